"""Error-free sums and products: each result is exactly value plus error.

Torch has no fused multiply-add, so the products are Dekker's.
"""

from __future__ import annotations

from torch import Tensor

_SPLITTER = 2.0**27 + 1.0


def two_difference(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The difference ``a - b`` and its rounding error.

    Args:
        a: The minuend, in float64.
        b: The subtrahend.

    Returns:
        The rounded difference, and what is missing from it.
    """
    difference = a - b
    back = difference - a
    return difference, (a - (difference - back)) - (b + back)


def two_product(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The product ``a b`` and its rounding error.

    Args:
        a: The first factor, in float64, below 1e290.
        b: The second factor.

    Returns:
        The rounded product, and what is missing from it.
    """
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    error = (a_high * b_high).sub_(product)
    error.addcmul_(a_high, b_low).addcmul_(a_low, b_high).addcmul_(a_low, b_low)
    return product, error


def _halves(a: Tensor) -> tuple[Tensor, Tensor]:
    scaled = _SPLITTER * a
    high = scaled - (scaled - a)
    return high, a - high
