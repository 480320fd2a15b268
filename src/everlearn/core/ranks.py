"""One run over several processes, the ranks of torch.distributed: each computes its rows of every batch.

A batch of B rows is sharded over W ranks in order, B/W rows each. So a rank's mean loss is over B/W rows, and the mean
over ranks of whatever is linear in it (a gradient) is that of the whole batch. θ, the memory and all that is learned
are the same on every rank. Without a process group every function here hands back what it was given.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from everlearn.errors import BadInput, Stopped

Value = TypeVar("Value")
_initialised = dist.is_initialized if dist.is_available() else lambda: False
_alone = False


def distributed() -> bool:
    return _initialised() and not _alone and dist.get_world_size() > 1


def world_size() -> int:
    return dist.get_world_size() if distributed() else 1


def rank() -> int:
    return dist.get_rank() if distributed() else 0


def shard(rows: Tensor | None, sizes: Sequence[int]) -> Tensor | None:
    """This rank's rows of each batch, where `rows` is batches of these sizes one after another."""
    if rows is None or not distributed():
        return rows
    return torch.cat([batch.chunk(world_size())[rank()] for batch in rows.split(list(sizes))])


def all_gather(tensor: Tensor, dim: int = 0) -> Tensor:
    """All ranks' rows, in their order."""
    if not distributed():
        return tensor
    parts = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(world_size())]
    with _exchange():
        dist.all_gather(parts, tensor.contiguous())
    return torch.cat(parts, dim)


def all_reduce(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The mean over ranks of each tensor, all in one exchange."""
    if not distributed():
        return tensors
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    with _exchange():
        dist.all_reduce(flat)
    parts = (flat / world_size()).split([tensor.numel() for tensor in tensors])
    return tuple(part.view(tensor.shape) for part, tensor in zip(parts, tensors))


@torch.no_grad()
def broadcast(*tensors: Tensor) -> None:
    """Every rank's tensors become what the first one's are."""
    if distributed():
        for tensor in tensors:
            first = tensor.contiguous()
            with _exchange():
                dist.broadcast(first, 0)
            tensor.copy_(first)


def broadcast_object(value: Value) -> Value:
    """The first rank's value, where each has its own: what it found on its disk."""
    if not distributed():
        return value
    values = [value]
    with _exchange():
        dist.broadcast_object_list(values, 0)
    return values[0]


@contextlib.contextmanager
def no_sync() -> Iterator[None]:
    """Inside, each rank computes for itself: all of them the same thing, on all rows."""
    global _alone
    before, _alone = _alone, True
    try:
        yield
    finally:
        _alone = before


@contextlib.contextmanager
def process_group() -> Iterator[None]:
    """The process group torchrun asks for, gloo between CPUs and NCCL between GPUs. Only the first rank speaks."""
    if not dist.is_available() or _asked_for() == 1 or "RANK" not in os.environ:
        yield
        return
    if missing := [name for name in ("MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK") if name not in os.environ]:
        raise BadInput(
            f"WORLD_SIZE is {_asked_for()}, and {', '.join(missing)} are not set; use torchrun, or unset WORLD_SIZE"
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # torchrun, when another rank failed: clear away, then end
    if torch.cuda.is_available() and (own := int(os.environ["LOCAL_RANK"])) < torch.cuda.device_count():
        torch.cuda.set_device(own)  # from here on `cuda` is this rank's own GPU
    dist.init_process_group(**_meeting())
    with contextlib.redirect_stdout(None) if rank() else contextlib.nullcontext():
        yield
    dist.destroy_process_group()  # not after an error: it would wait for ranks that wait for this one


def _meeting() -> dict[str, Any]:
    """Where ranks meet. Those that torchrun has started again would find the addresses of the dead there, so the place
    has the number of the attempt in its name; several machines each count their own."""
    if os.environ.get("GROUP_WORLD_SIZE") != "1":
        return {}
    from torch.distributed.rendezvous import rendezvous  # where there is no torch.distributed it cannot be had

    store, number, size = next(iter(rendezvous("env://")))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    named = dist.PrefixStore(f"attempt {attempt}", store)  # pyright: ignore[reportPrivateImportUsage]
    return {"store": named, "rank": number, "world_size": size}


def _asked_for() -> int:
    """How many processes the environment speaks of."""
    given = os.environ.get("WORLD_SIZE", "1")
    if not given.isdecimal():
        raise BadInput(f"WORLD_SIZE is '{given}', which is not a number of processes")
    return int(given)


def check_gpus() -> None:
    """Refuse more ranks than GPUs: two ranks on one would only wait for each other."""
    if distributed() and (processes := int(os.environ.get("LOCAL_WORLD_SIZE", 1))) > torch.cuda.device_count():
        raise BadInput(
            f"{processes} processes and {torch.cuda.device_count()} GPUs on this machine; "
            f"start torchrun with --nproc-per-node {torch.cuda.device_count()}, or use --device cpu"
        )


@contextlib.contextmanager
def _exchange() -> Iterator[None]:
    """An exchange fails where another rank has ended; that one's own words say why."""
    try:
        yield
    except RuntimeError as error:
        raise Stopped(f"another rank has ended, so rank {rank()} cannot go on ({error})") from error
