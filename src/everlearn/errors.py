"""What can go wrong, in words for the person at the keyboard: one sentence that names the value and the way out."""

import contextlib
import difflib
import errno
import json
import math
import os
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import dropwhile
from numbers import Integral, Real
from pathlib import Path
from types import FrameType
from typing import Any

LONG = 200  # characters of a value in a sentence
TASK = "task"  # as the decay of an average
FEW = 3  # values of a list are named one by one
MANY = 20  # names in a sentence
PLAIN = (bool, int, float, str, type(None))  # what a setting can be written down as
# What other libraries call it.
ELSEWHERE = {"learning_rate": "lr", "buffer": "memory", "buffer_size": "memory", "mem_size": "memory", "derpp": "der++"}
FULL = (errno.ENOSPC, errno.EDQUOT)  # of a disk
# What reading a document may raise that is not of the form expected: a key is missing, a value is of another kind.
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
LIBRARIES = tuple({"<frozen", *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))})
TORCH = r"torch(vision)?\b|everlearn\.arguments"  # modules that pass on what others ask for


class EverlearnError(Exception):
    """A run that failed on the way: the command line prints the sentence and exits with 1."""

    exit_code = 1
    traceback: str | None = None  # of what led to it, where it came from another process


class Stopped(EverlearnError):
    """A run ended from outside: its checkpoint is still good."""


class BadInput(EverlearnError, ValueError):
    """Something asked for that cannot be: found before any work starts; the command line exits with 2."""

    exit_code = 2


class Notice(UserWarning):
    """Something left out that one may not expect to be: the command line prints the sentence and goes on."""


def printable(text: object, keep: str = "") -> str:
    """Foreign words as they can be shown: what is no visible character (a line's end, a terminal's escape, a mark that
    turns the reading direction) is �, but for those in `keep`."""
    return "".join(c if c.isprintable() or c in keep else "\ufffd" for c in str(text))


def shown(value: object) -> str:
    """A value as a sentence names it: numbers and words as they are, if they are short, and all else by its type."""
    if type(value) in (list, tuple) and len(value) <= FEW:  # pyright: ignore
        inner = [_named(one) for one in value]  # pyright: ignore
        brackets = "[]" if isinstance(value, list) else "()"
        if all(type(one) in PLAIN for one in value):  # pyright: ignore
            return ", ".join(inner).join(brackets)
        return f"a {type(value).__name__} ({', '.join(inner)})"
    return _named(value)


def _named(value: object) -> str:
    if type(value) not in PLAIN:
        with contextlib.suppress(Exception):  # numpy's and torch's own numbers are as good
            value = value.item() if getattr(value, "ndim", None) == 0 else value  # pyright: ignore
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"
    if type(value) not in PLAIN:
        if isinstance(value, type):
            return f"the class {value.__name__}"
        kind, layout = type(value).__name__, str(getattr(value, "layout", "")).removeprefix("torch.")
        if kind == "Tensor" and (layout != "strided" or value.is_meta or value.is_nested):  # pyright: ignore
            return f"a {'nested' if value.is_nested else 'meta' if value.is_meta else layout} one"  # pyright: ignore
        return f"{'an' if kind[:1] in 'AEIOaeio' else 'a'} {kind}"
    words = repr(value)
    return words if len(words) <= LONG else f"{words[: LONG - 1]}…"


def listed(names: Sequence[str]) -> str:
    """Names for a sentence, commas in them or not; of very many the first."""
    return "; ".join([*names[:MANY], *["…"] * (len(names) > MANY)]) or "none"


def parsed(text: str | bytes, read: Callable[[Any], Any] = json.loads) -> Any:
    """A JSON document, or one of another form; what is nested too deep is a ValueError, as any mistake in it."""
    try:
        return read(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


@contextlib.contextmanager
def passed_on(who: str) -> Iterator[None]:
    """Around a call of somebody else's code: its errors come through as they are, with a line on whose they are."""
    try:
        yield
    except EverlearnError:
        raise
    except Exception as error:
        error.add_note(f"everlearn: {who} raised this")
        raise


@contextlib.contextmanager
def unwritten(samples: Any, who: str) -> Iterator[None]:
    """Around a call of somebody else's code that is given samples, a tensor: they are their owner's or the memory's."""
    version = lambda: 0 if samples.is_inference() else samples._version
    before = version()
    yield
    if version() != before:
        raise BadInput(f"{who} writes to the samples it is given; let it take a copy first, x = x.clone()")


def plural(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def located(error: Exception) -> str:
    """An error of somebody else's code in a line, and where it happened: in their own file, if that is among those it
    came through, else in the last one that is not torch's."""
    frames = list(traceback.walk_tb(error.__traceback__))
    of_torch = lambda frame: re.match(TORCH, frame.f_globals.get("__name__", ""))
    usual = next((found for found in reversed(frames) if not of_torch(found[0])), frames[-1])
    frame, line = _foreign(error) or usual
    words = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {words[0]} ({Path(frame.f_code.co_filename).name}, line {line})"


def foreign(error: Exception) -> bool:
    """Did it come through a file that is neither ours nor of a library?"""
    return _foreign(error) is not None


def _foreign(error: BaseException | None) -> tuple[FrameType, int] | None:
    """Where it was last in such a file that our code has called; a generator's end hides behind its cause."""
    if error is None:
        return None
    ours = lambda frame: frame.f_globals.get("__name__", "").partition(".")[0] == "everlearn"
    within = list(dropwhile(lambda found: not ours(found[0]), traceback.walk_tb(error.__traceback__)))
    theirs = (of for of in within if not ours(of[0]) and not of[0].f_code.co_filename.startswith(LIBRARIES))
    return max(theirs, key=within.index, default=None) or _foreign(error.__cause__)


def short_of_memory(error: Exception) -> bool:
    """The machine's or a GPU's; torch has no error of its own for the machine's."""
    return isinstance(error, MemoryError) or re.search("out of memory|allocate memory", str(error)) is not None


def number(name: str, value: Any, *, whole: bool = False, positive: bool = False, below: float = math.inf) -> None:
    """Refuse what is not a number from 0 up (`positive`: above it), small enough for arithmetic in float32 or int64."""
    kind: Any = Integral if whole else Real  # of which type checkers know no order
    if not isinstance(value, kind):
        raise BadInput(f"{name} must be a {'whole ' if whole else ''}number, not {shown(value)}")
    if not (value > 0 if positive else value >= 0):
        raise BadInput(f"{name} {shown(value)} must be a number {'greater than 0' if positive else 'from 0 up'}")
    limit, words = (2**63, "2⁶³") if whole else (1e38, "1e38")
    if not value < min(below, limit):
        raise BadInput(f"{name} {shown(value)} must be a number below {below if below < limit else words}")


def decay(value: Any) -> None:
    """Refuse what is no decay of an average: a number from 0 up and below 1, or `task`."""
    if isinstance(value, str) and value != TASK:
        raise BadInput(
            f"average {shown(value)} is neither '{TASK}' (over about the last half of a task) nor a decay such as 0.999"
        )
    if value != TASK:
        number("average", value, below=1)


def unknown(kind: str, given: object, known: Iterable[str]) -> BadInput:
    """The error for a name that is not there, with the nearest right one."""
    known = list(known)
    words = given if isinstance(given, str) and len(given) <= LONG else shown(given).strip("'")
    lower = {name.lower(): name for name in known}
    alike = [] if words.isdigit() else difflib.get_close_matches(words.lower(), lower, n=1, cutoff=0.5)
    near = _meant(kind, words, known) or [lower[name] for name in alike]
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(sorted(known))}"
    return BadInput(f"unknown {kind} '{words}'; {hint}")


def _meant(kind: str, words: str, known: list[str]) -> list[str]:
    """What others call so, or how the file or folder of that name is named."""
    if ELSEWHERE.get(words.lower()) in known:
        return [ELSEWHERE[words.lower()]]
    if words.endswith(".py"):
        return [f"{words}:NAME"]
    if kind in ("stream", "data set"):
        return [f"npz:{words}"] * words.endswith(".npz") or [f"folder:{words}"] * os.path.isdir(words)
    return []
