"""How large a tensor may become before the work is cut into pieces."""

from __future__ import annotations

import torch

# The largest number of elements of an intermediate tensor, 128 MiB in double precision:
# a safe choice for laptops and GPUs alike.
MAX_ELEMENTS = 2**24
# The same for a chain of elementwise operations on a CPU: 2 MiB, which a cache can hold
# from one operation to the next. For derivatives of 16 samples at 1024 points, sizes
# from 2**17 to 2**24 take the same time within 40 %. With 2**14 it is three times as
# long, because there are too many small operations.
CACHED_ELEMENTS = 2**18


def piece_size(device: torch.device) -> int:
    """Choose the size of the pieces for a chain of elementwise operations.

    Args:
        device: The device that runs the operations.

    Returns:
        The largest number of elements of a piece.
    """
    is_cached = device.type == "cpu"
    return min(MAX_ELEMENTS, CACHED_ELEMENTS) if is_cached else MAX_ELEMENTS
