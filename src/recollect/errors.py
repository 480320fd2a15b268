"""What can go wrong, in words for the person at the keyboard: one sentence that names the value and the way out."""

import difflib
from collections.abc import Iterable


class RecollectError(Exception):
    """A run that failed on the way: the command line prints the sentence and exits with 1."""

    exit_code = 1


class BadInput(RecollectError, ValueError):
    """Something asked for that cannot be: found before any work starts; the command line exits with 2."""

    exit_code = 2


def unknown(kind: str, given: object, known: Iterable[str]) -> BadInput:
    """The error for a name that is not there, with the nearest right one."""
    known = list(known)
    near = difflib.get_close_matches(str(given).lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(sorted(known))}"
    return BadInput(f"unknown {kind} '{given}'; {hint}")
