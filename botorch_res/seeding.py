"""Random numbers from a seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Draw from a seed, and restore the global generators of all devices afterwards.

    BoTorch's ``manual_seed`` restores only the generator of the CPU.

    Args:
        seed: The seed, or ``None`` to draw from the global generators.

    Yields:
        Nothing.
    """
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield
