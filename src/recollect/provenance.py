"""Which code made a result, on what, and of which objects: enough to run it again, or to say that nobody can."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import numpy
import torch
from torch import nn

from recollect import ranks
from recollect.version import __version__

ORIGIN = ("commit", "versions", "device")


def here(device: str) -> dict:
    """Of what is run now."""
    named = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
    return {
        "commit": os.environ.get("RECOLLECT_COMMIT") or _commit(),
        "versions": {
            "recollect": __version__,
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "python": platform.python_version(),
        },
        "device": f"{device}: {named}",
        "threads": torch.get_num_threads(),
        **({"ranks": ranks.world()} if ranks.several() else {}),
        "finished": now(),
    }


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def same(*provenances: dict) -> bool:
    """Made by one state of the code, with the same versions, on the same device? Unknown and changed code is like no other."""
    origin = merged(provenances)
    commit = origin["commit"]
    return isinstance(commit, str) and not commit.endswith("+") and not any(isinstance(origin[k], list) for k in ORIGIN)


def merged(provenances: Sequence[dict]) -> dict:
    """What several runs' provenances have in common; where they differ, all that there is."""
    found = {}
    for key in ORIGIN:
        values = [p[key] for i, p in enumerate(provenances) if p[key] not in [q[key] for q in provenances[:i]]]
        found[key] = values[0] if len(values) == 1 else values
    return found | {"finished": max(p["finished"] for p in provenances)}


def described(thing: object) -> str:
    """An object of one's own by its class and the plain values it holds."""
    plain = lambda value: (
        isinstance(value, (bool, int, float, str, type(None)))
        or (isinstance(value, (tuple, list)) and all(map(plain, value)))
    )
    held = (f"{name}={value!r}" for name, value in getattr(thing, "__dict__", {}).items() if plain(value))
    return f"{type(thing).__name__}({', '.join(held)})"


def fingerprint(network: nn.Module) -> str:
    """A network of one's own by its class, its layers and its first weights."""
    digest = hashlib.sha256(repr(network).encode())
    for name, tensor in network.state_dict().items():
        if isinstance(tensor, torch.Tensor):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return f"{type(network).__name__} {digest.hexdigest()[:8]}"


@functools.cache
def _commit() -> str | None:
    """The commit of the source tree this package runs from, with a + if the tree has changed since; None if installed."""
    root = Path(__file__).parent
    git = lambda *words: subprocess.run(
        ["git", "-C", root, *words], capture_output=True, text=True, check=True
    ).stdout.strip()
    try:
        if Path(git("rev-parse", "--show-toplevel")) != root.parents[1]:
            return None
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
