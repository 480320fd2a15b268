"""What torch is set to while runs are under way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from everlearn.learner import Learner

FLAGS = (
    (torch.backends.cuda.matmul, "allow_tf32"),
    (torch.backends.cudnn, "allow_tf32"),
    (torch.backends.cudnn, "benchmark"),
    (torch.backends.cudnn, "deterministic"),
)
_inside, _before = 0, None  # runs under way in this process, and what torch was set to before them


@contextlib.contextmanager
def arithmetic(learner: Learner, precision: str, deterministic: bool = False) -> Iterator[None]:
    """Inside, torch's settings for a run.

    On the CPU a small network runs on one thread. On a GPU `float32` means it: torch would convolve in tfloat32 of its
    own accord. There cuDNN tries its algorithms and takes the fastest, which may be another the next time;
    `deterministic` takes one that always gives the same bits.

    These are settings of the whole process. Runs that take turns in it want the same ones: the first to come sets them,
    and they are put back when the last one is gone.
    """
    global _inside, _before
    low = precision != "float32"
    if not _inside:
        _before = [getattr(*flag) for flag in FLAGS], torch.get_num_threads()
    _inside += 1
    if learner.device.type == "cuda":
        for flag, value in zip(FLAGS, (low, low, not deterministic, deterministic)):
            setattr(*flag, value)
    elif learner.small:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        _inside -= 1
        if not _inside:
            for flag, value in zip(FLAGS, _before[0]):
                setattr(*flag, value)
            torch.set_num_threads(_before[1])
