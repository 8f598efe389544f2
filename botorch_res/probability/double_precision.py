"""Conversion to double precision, and arithmetic that returns its rounding errors.

Torch has no fused multiply-add, so products use Dekker's algorithm.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# Splits the 53 bits of a float64 into two halves.
_SPLITTER = 2.0**27 + 1.0


class _Widen(torch.autograd.Function):
    """A conversion to float64 whose gradient saturates instead of overflowing."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        """Convert.

        Args:
            ctx: Autograd's context.
            value: A tensor of a narrower dtype.

        Returns:
            The tensor in float64.
        """
        ctx.dtype = value.dtype
        return value.double()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Convert back, within the range of the dtype.

        Args:
            ctx: Autograd's context.
            *gradients: The one gradient, in float64.

        Returns:
            The gradient in the original dtype.
        """
        largest = torch.finfo(ctx.dtype).max
        return gradients[0].clamp(-largest, largest).to(ctx.dtype)


def widen(value: Tensor) -> Tensor:
    """Convert to float64, with gradients that stay finite on the way back.

    Args:
        value: A floating-point tensor.

    Returns:
        The tensor in float64. A float64 tensor is returned itself.
    """
    if value.dtype == torch.float64:
        return value
    return _Widen.apply(value)  # type: ignore[no-any-return,no-untyped-call]


def two_difference(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The difference ``a - b`` and its rounding error.

    Args:
        a: The minuend, in float64.
        b: The subtrahend.

    Returns:
        The rounded difference and its rounding error.
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
        The rounded product and its rounding error.
    """
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    error = (a_high * b_high).sub_(product)
    error.addcmul_(a_high, b_low).addcmul_(a_low, b_high).addcmul_(a_low, b_low)
    return product, error


def _halves(a: Tensor) -> tuple[Tensor, Tensor]:
    """Split numbers into a high and a low half of their bits."""
    scaled = _SPLITTER * a
    high = scaled - (scaled - a)
    return high, a - high
