"""torch's own randomness (a network's first weights, dropout) from a seed, leaving the caller's as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch


@contextlib.contextmanager
def seeded(*key: int, device: str | torch.device = "cpu") -> Iterator[None]:
    """Inside, torch's generators start from the key."""
    cuda = torch.device(device).type == "cuda"
    before = torch.get_rng_state(), torch.cuda.get_rng_state() if cuda else None
    seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1) if len(key) > 1 else key[0]
    torch.default_generator.manual_seed(seed)
    if cuda:
        torch.cuda.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        if cuda:
            torch.cuda.set_rng_state(before[1])
