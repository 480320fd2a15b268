"""The settings an experiment starts from.

Of each row: the method, the stream and the smallest memory it applies to. A later row outweighs an earlier one. The
rows of CIFAR and Tiny-ImageNet are the published settings; those of the smaller streams are our own. The weights of a
method's terms are in its own file (`weights`, `preset`); rows that have other weights are for fixed ones alone.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

DEFAULTS: list[tuple[str, str, int, dict[str, Any]]] = [
    ("*", "*", 0, dict(memory=200)),
    ("*", "digits", 0, dict(memory=100, batch=10, lr=0.1)),
    ("*", "mnist", 0, dict(epochs=2)),
    ("*", "fashion-mnist", 0, dict(epochs=2)),
    ("*", "cifar*", 0, dict(epochs=50)),
    ("*", "tinyimagenet", 0, dict(epochs=50)),
    *((bound, stream, 0, dict(lr=0.1)) for bound in ("finetune", "joint") for stream in ("cifar*", "tinyimagenet")),
    ("der++", "cifar10", 0, dict(weights=(1.0, 0.1, 0.5))),
    ("der++", "cifar10", 500, dict(weights=(1.0, 0.2, 0.5))),
    ("der++", "cifar10", 5120, dict(weights=(1.0, 0.1, 1.0))),
    ("oewc", "tinyimagenet", 0, dict(strength=25.0)),
    ("lwf", "cifar10", 0, dict(weights=(1.0, 3.0))),
    *(("icarl", stream, 0, dict(lr=0.1, weight_decay=1e-5, reduction="mean")) for stream in ("cifar*", "tinyimagenet")),
    *(("lwf", stream, 0, dict(lr=0.01, weight_decay=5e-4, head="all")) for stream in ("cifar*", "tinyimagenet")),
]


def defaults(method: str, weighting: str, stream: str, memory: int | None = None) -> dict[str, Any]:
    """The table's settings for a method on a stream, at a memory size (the stream's own unless given)."""
    merged: dict[str, Any] = {}
    for of_method, of_stream, from_memory, settings in DEFAULTS:
        named = fnmatchcase(method, of_method) and fnmatchcase(stream, of_stream)
        if named and from_memory <= (memory or merged.get("memory", 0)):
            merged |= settings
    if weighting != "fixed":
        merged.pop("weights", None)
    return merged
