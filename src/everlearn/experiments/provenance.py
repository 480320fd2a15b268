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

from everlearn.core import ranks
from everlearn.spec import plainly
from everlearn.version import __version__


def here(device: str) -> dict:
    """The provenance of what is run now on this device: the commit, the versions, the device, the threads."""
    named = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
    return {
        "commit": os.environ.get("EVERLEARN_COMMIT") or _commit(),
        "versions": {
            "everlearn": __version__,
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "python": platform.python_version(),
        },
        "device": f"{device}: {named}",
        "threads": torch.get_num_threads(),
        **({"ranks": ranks.world_size()} if ranks.distributed() else {}),
    }


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def commits(made: dict) -> list:
    """All that had a part in a run: other code than began it may have gone on with it."""
    return made.get("commits", [made["commit"]])


def same(one: dict, other: dict) -> bool:
    """Made by one state of the code, with the same versions, on the same device? A changed tree is like no other."""
    known = len({*commits(one), *commits(other)}) == 1 and not str(one["commit"]).endswith("+")
    return known and all(one.get(key) == other.get(key) for key in ("versions", "device", "deterministic"))


def merged(made: Sequence[dict]) -> dict:
    """What several runs' provenances have in common; where they differ, all that there is."""
    values = {
        "commit": [commit for one in made for commit in commits(one)],
        **{key: [one[key] for one in made] for key in ("versions", "device")},
    }
    distinct: dict[str, list] = {key: [] for key in values}
    for key, of in values.items():
        for value in of:
            if value not in distinct[key]:
                distinct[key].append(value)
    found = {key: of[0] if len(of) == 1 else of for key, of in distinct.items()}
    return found | {"finished": max(one["finished"] for one in made)}


def described(thing: object) -> str:
    """An object of one's own by its class and what it holds."""
    held = (f"{name}={plainly(value)}" for name, value in getattr(thing, "__dict__", {}).items() if name != "weighting")
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
    """The commit of the source tree this package runs from, with a + if there are changes; None if installed."""
    root = Path(__file__).parent
    git = lambda *words: subprocess.run(
        ["git", "-C", root, *words], capture_output=True, text=True, check=True
    ).stdout.strip()
    try:
        if Path(git("rev-parse", "--show-toplevel")) != root.parents[2]:
            return None
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
