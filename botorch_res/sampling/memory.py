"""Into how large pieces to cut what would need too much memory at once."""

from __future__ import annotations

import torch

# Largest number of elements of an intermediate tensor: 128 MiB in double precision.
MAX_ELEMENTS = 2**24
# The same on a processor: so few that its caches hold what one operation leaves to the
# next.
CACHED_ELEMENTS = 2**18


def piece_size(device: torch.device) -> int:
    """Into pieces of how many elements to cut a chain of elementwise operations.

    Args:
        device: Where they run.

    Returns:
        The largest number of elements.
    """
    is_cached = device.type == "cpu"
    return min(MAX_ELEMENTS, CACHED_ELEMENTS) if is_cached else MAX_ELEMENTS
