"""Random numbers from a seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


def derive_seed(seed: int | Sequence[int] | None, i: int) -> int | Sequence[int] | None:
    """A seed for one of several things that are drawn independently.

    Args:
        seed: The seed of all of them, or one for each model of a batch.
        i: The position of this one. The first one has the seed itself.

    Returns:
        The seed.
    """
    if seed is None or i == 0:
        return seed
    if isinstance(seed, Sequence):
        return [_scattered(own, i) for own in seed]
    return _scattered(seed, i)


def _scattered(seed: int, i: int) -> int:
    """A seed far from those that users choose."""
    # The golden ratio of 63 bits: multiples of it are far apart.
    return (seed + i * 0x4F1BBCDCBFA53E0B) % 2**63
