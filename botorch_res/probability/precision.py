"""Double precision inside, the caller's precision outside."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


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
        The tensor in float64, itself if it is that already.
    """
    if value.dtype == torch.float64:
        return value
    return _Widen.apply(value)  # type: ignore[no-any-return,no-untyped-call]
