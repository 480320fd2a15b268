"""Rows chosen by words of their labels: `--only`, the same for a study and for what was run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from everlearn.errors import BadInput, listed


def chosen(labels: Iterable[str], only: Sequence[str], of: str = "", besides: str = "") -> list[str]:
    """The labels that have one of these in them, as whole words; `*` stands for anything. Without any, all labels.

    The refusal of what is in no label names the labels there are `of` something, and what there is `besides`.
    """
    labels = list(labels)
    found: set[str] = set()
    for words in only:
        if not words.strip():
            raise BadInput(f"--only needs a part of a row's label; the rows: {listed(labels)}{besides}")
        # Whole words: er is not in rer or er-ace, nor M = 50 in M = 500; consolidate is in er+consolidate.
        wanted = re.compile(rf"(?<!\w){re.escape(words).replace(re.escape('*'), '.*')}(?![\w+-])")
        if not (having := set(filter(wanted.search, labels))):
            raise BadInput(f"no row{of} has '{words}' in its label; the rows: {listed(labels)}{besides}")
        found |= having
    return [label for label in labels if label in found] if only else labels
