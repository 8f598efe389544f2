"""Seeds: what they have to be, and how to draw from one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import torch
from botorch.exceptions.errors import InputDataError


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Draw from a seed and leave the global generators of all devices alone.

    BoTorch's ``manual_seed`` restores the generator of the CPU only.

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


def check_seed(seed: Any, optional: bool = True) -> None:
    """Raise unless a seed is a whole number that every generator takes.

    Args:
        seed: The seed.
        optional: Whether it may be ``None``.
    """
    if optional and seed is None:
        return
    is_whole = isinstance(seed, Integral) and not isinstance(seed, bool)
    if not is_whole or not 0 <= seed < 2**63:
        expected = "None or a whole number" if optional else "a whole number"
        raise InputDataError(
            f"Expected `seed` to be {expected} from 0 to 2**63 - 1, got {seed!r}."
        )
