"""What a learner answers and knows, for people and for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from everlearn.experiments.use import Answers, Guess, Lesson
from everlearn.report import safe, tables
from everlearn.report.sheet import Sheet


def guesses(found: Sequence[Guess]) -> Sheet:
    """A row per class, so that each stands beside its probability; the first one of a sample names the file."""
    table = tables.plain("file", "class", "probability,\nin %", numbers=True, labels=2)
    for guess in found:
        for place, (name, chance) in enumerate(guess.ranked):
            table.add_row("" if place else guess.name, str(name), f"{100 * chance:.1f}")
    return table


def guesses_csv(found: Sequence[Guess], top: int) -> str:
    """A line per sample, as spreadsheets read it: file, class, probability, class_2, probability_2 and so on."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    write(
        ["file", "class", "probability", *(f"{of}_{n}" for n in range(2, top + 1) for of in ("class", "probability"))]
    )
    for guess in found:
        ranked = (cell for name, chance in guess.ranked for cell in (safe.csv(name), f"{chance:.6f}"))
        write([safe.csv(guess.name), *ranked])
    return out.getvalue()


def answers(learner: str, found: Answers) -> dict[str, Any]:
    """What was asked of a learner as plain data, for --json."""
    ranked = lambda guess: [{"class": name, "probability": chance} for name, chance in guess.ranked]
    place = lambda guess: {"file": str(guess.file)} | ({} if guess.row is None else {"sample": guess.row})
    return {
        "learner": learner,
        "predictions": [place(guess) | ranked(guess)[0] | {"top": ranked(guess)} for guess in found.guesses],
        "skipped": [{"file": str(file), "reason": reason} for file, reason in found.skipped],
    }


def lesson(of: Lesson, title: str) -> Sheet:
    """A table of what a learner knows after a lesson, a row per class."""
    heads = ("class", "samples", "right, in %", "in memory", "of these\nright, in %")
    table = tables.plain(*heads, title=title, numbers=True)
    share = lambda part: "–" if part is None else f"{100 * part:.1f}"
    for known in of.classes:
        name = f"{known.name} (new)" if known.new else str(known.name)
        table.add_row(name, str(known.samples), share(known.right), str(known.kept), share(known.kept_right))
    return table


def others(of: Lesson) -> str | None:
    """What became of the classes that are not among the data, and what helps if they were forgotten."""
    if of.others is None:
        return None
    samples, before, after = of.others
    words = f"Of {samples} samples kept of other classes {100 * before:.1f} % were right, {100 * after:.1f} % are now"
    more = f": more --epochs than {of.epochs} rehearse them longer" if after < before - 0.1 else ""
    return f"{words}{more}."


def lesson_document(of: Lesson) -> dict[str, Any]:
    """A lesson as plain data, for --json; shares in %."""
    share = lambda part: None if part is None else 100 * part
    return {
        "epochs": of.epochs,
        "acc": share(of.right),
        "validation": None if of.validation is None else {"samples": of.held_out, "acc": share(of.validation)},
        "others": of.others
        and {"samples": of.others.samples, "before": share(of.others.before), "after": share(of.others.after)},
        "classes": [
            {
                "class": known.name,
                "new": known.new,
                "samples": known.samples,
                "acc": share(known.right),
                "kept": known.kept,
                "kept_acc": share(known.kept_right),
            }
            for known in of.classes
        ],
    }
