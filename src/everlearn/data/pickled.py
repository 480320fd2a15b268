"""Pickled image batches, read without unpickling: what a pickle says is taken down as data, and nothing is called.

A pickle is a program. Of its instructions those of the published files, and of what numpy writes today, are known here;
any other is refused. An array is made by ourselves, of bytes whose number its shape and type call for. What a pickle
makes us do is bounded: so many instructions, and no more bytes than the file has, once as bytes and once as an array.
"""

from __future__ import annotations

import math
import pickletools
from dataclasses import dataclass
from typing import Any

import numpy as np

TYPES = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)}  # of arrays
# numpy 1 and 2 write the same functions under different modules.
REBUILD = {f"{core}.multiarray _reconstruct" for core in ("numpy.core", "numpy._core")}
FROMBUFFER = {f"{core}.numeric _frombuffer" for core in ("numpy.core", "numpy._core")}
NAMES = {"numpy ndarray", "numpy dtype", "_codecs encode", *REBUILD, *FROMBUFFER}
VALUES = {"BINFLOAT", "BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
VALUES |= {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"}
INSTRUCTIONS = 2_000_000  # the longest published file has 0.2 million
WORDS = {"BINSTRING", "SHORT_BINSTRING"}  # of Python 2: bytes
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class Strange(ValueError):
    """An instruction or a name no image batch needs."""


@dataclass(eq=False)
class Call:
    """What a pickle would have called, and with what."""

    name: str
    arguments: tuple
    state: Any = None


class Mark:
    """Where a run of items begins."""


def read(content: bytes) -> Any:
    """Dicts, lists, tuples, numbers, words and bytes; arrays of whole numbers as arrays."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    made = 0
    argument: Any
    for count, (instruction, argument, _) in enumerate(pickletools.genops(content)):
        name = instruction.name
        if count > INSTRUCTIONS:
            raise Strange(f"more than {INSTRUCTIONS:,} instructions")
        if name == "STOP":
            break
        if name in VALUES:
            stack.append(argument)
        elif name in WORDS:
            stack.append(argument.encode("latin1"))
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in ("MEMOIZE", "BINPUT", "LONG_BINPUT"):
            memo[len(memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name in ("REDUCE", "BUILD"):
            call = _called(name, stack)
            made += _size(call)
            if made > 2 * len(content):
                raise Strange(f"more than its own {len(content):,} bytes")
            stack.append(_made(call))
        elif name not in ("PROTO", "FRAME"):
            _built(name, argument, stack)
    (value,) = stack
    return value


def _built(name: str, argument: Any, stack: list[Any]) -> None:
    """An instruction that makes something of what is on the stack."""
    if name == "MARK":
        stack.append(Mark())
    elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
        stack.append({"EMPTY_DICT": {}, "EMPTY_LIST": [], "EMPTY_TUPLE": ()}[name])
    elif name in TUPLES:
        items = [stack.pop() for _ in range(TUPLES[name])]
        stack.append(tuple(reversed(items)))
    elif name == "TUPLE":
        stack.append(tuple(_since_mark(stack)))
    elif name in ("APPEND", "APPENDS"):
        items = [stack.pop()] if name == "APPEND" else _since_mark(stack)
        _a(list, stack[-1]).extend(items)
    elif name in ("SETITEM", "SETITEMS"):
        items = [*reversed((stack.pop(), stack.pop()))] if name == "SETITEM" else _since_mark(stack)
        keys = [_a((str, bytes), key) for key in items[::2]]  # hashing other keys could take for ever
        _a(dict, stack[-1]).update(zip(keys, items[1::2], strict=True))
    elif name in ("GLOBAL", "STACK_GLOBAL"):
        named = argument if name == "GLOBAL" else " ".join(reversed((stack.pop(), stack.pop())))
        if named not in NAMES:
            raise Strange(named.replace(" ", "."))
        stack.append(Call(named, ()))
    else:
        raise Strange(name)


def _since_mark(stack: list[Any]) -> list[Any]:
    items: list[Any] = []
    while not isinstance(item := stack.pop(), Mark):
        items.append(item)
    return items[::-1]


def _a(kind: type | tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, kind):
        due = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise ValueError(f"a {type(value).__name__} where a {due} is due")
    return value


def _called(name: str, stack: list[Any]) -> Call:
    """A function with its arguments, or what it made with its state."""
    given = stack.pop()
    called = _a(Call, stack.pop())
    if name == "REDUCE":
        return Call(called.name, _a(tuple, given))
    return Call(called.name, called.arguments, given)


def _size(call: Call) -> int:
    """How many bytes are among the arguments and the state of a call."""
    given = (*call.arguments, *(call.state if isinstance(call.state, tuple) else ()))
    return sum(len(one) for one in given if isinstance(one, (str, bytes, bytearray)))


def _made(call: Call) -> Any:
    """What a call stands for, once all of it is there: bytes, or an array of whole numbers."""
    if call.name == "_codecs encode":
        return _a(str, call.arguments[0]).encode("latin1")
    if call.name in FROMBUFFER:
        raw, kind, shape, order = call.arguments
        return _array(raw, kind, shape, order)
    if call.name in REBUILD and call.state is not None:
        _, shape, kind, fortran, raw = call.state
        return _array(raw, kind, shape, "F" if fortran else "C")
    return call


def _array(raw: Any, kind: Any, shape: Any, order: Any) -> np.ndarray:
    """A new array made of these bytes, if their number fits its shape and type."""
    called = _a(Call, kind)
    if called.name != "numpy dtype":
        raise ValueError(f"{called.name} where a type is due")
    text = lambda of: of.decode("latin1") if isinstance(of, bytes) else _a(str, of)
    letters = text(called.arguments[0])
    end = text(called.state[1]) if called.state else "|"
    if letters not in TYPES or end not in tuple("<>|=") or order not in ("C", "F"):
        raise ValueError(f"an array of type {letters}")
    sizes = tuple(_a(int, size) for size in _a(tuple, shape)[:3])
    raw, dtype = _a((bytes, bytearray), raw), np.dtype(("" if end == "|" else end) + letters)
    if len(sizes) > 2 or min(sizes, default=0) < 0 or len(raw) != math.prod(sizes) * dtype.itemsize:
        raise ValueError(f"an array of shape {sizes} and {len(raw)} bytes")
    return np.frombuffer(bytes(raw), dtype).reshape(sizes, order=order).copy()
