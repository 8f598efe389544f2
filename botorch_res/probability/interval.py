r"""The standard normal on an interval ``[a, a + w]`` whose near end is ``a``.

The near end is the one closer to zero. Every quantity is measured from it, so that the
far end takes away only a small part. Two computations cover all cases, and a weight of
zero or one selects between them:

- The log-density falls by 0.25 or more over the interval. The normal above ``a`` is a
  mixture of the interval (probability ``1 - tau``) and the normal above ``a + w``
  (``tau``). ``moments_above`` gives the moments of both normals without cancellation.
  Solving for the interval's moments loses two digits at worst.
- The log-density falls by less. An eight-node Gauss-Legendre rule is then exact to
  rounding.

On 1500 random intervals the largest relative error of the variance is 6e-13. With a
threshold of 0.125 the mixture loses more digits (3e-12). With six nodes the rule is not
exact (2e-10).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from botorch_res.probability.lower_bound import (
    INV_SQRT_TWO_PI,
    MomentsAbove,
    moments_above,
)
from botorch_res.probability.quadrature import column, constants, gauss_legendre

# If the log-density falls by more than this, the interval counts as wide.
_WIDE_FALL = 0.25
_NODES, _WEIGHTS = gauss_legendre(8)
# Weights times powers of the nodes, measured from the middle. The density is nearly
# even about the middle, so the central moments lose no digits.
_POWERS = tuple(
    weight * (node - 0.5) ** power
    for power in range(4)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True)
)


class IntervalMoments(NamedTuple):
    """Moments of a standard normal variable ``t`` given ``a <= t <= a + w``.

    Attributes:
        scaled_prob: The probability of the interval, times ``exp(a^2 / 2)`` for
            positive ``a``, so that it never underflows.
        offset: The mean, measured from the interval's point next to zero:
            ``E[t] - max(a, 0)``.
        variance: The variance of ``t``.
        third: The third central moment of ``t``.
        far_density: The density of the truncated variable at the far end ``a + w``.
    """

    scaled_prob: Tensor
    offset: Tensor
    variance: Tensor
    third: Tensor
    far_density: Tensor


def interval_moments(near: Tensor, width: Tensor) -> IntervalMoments:
    """Moments of the standard normal on ``[near, near + width]``.

    Autograd cannot differentiate this function. Use ``StandardInterval`` for that.

    Args:
        near: The end closer to zero, ``near >= -width / 2``.
        width: The width, positive, of the same shape.

    Returns:
        The moments, each of the same shape.
    """
    # Only the rounding of huge bounds makes this negative.
    fall = (near + 0.5 * width).clamp_min_(0.0).mul_(width)
    below = near.clamp_max(0.0)
    wide = _wide_interval(near, width, fall, below)
    narrow = _narrow_interval(near, width, fall, below)
    is_wide = (fall + 0.5 * below.square()).gt_(_WIDE_FALL)
    return IntervalMoments(
        *(torch.lerp(n, w, is_wide) for n, w in zip(narrow, wide, strict=True))
    )


def _wide_interval(
    near: Tensor, width: Tensor, fall: Tensor, below: Tensor
) -> IntervalMoments:
    """Compute the moments from those above each end."""
    both = moments_above(torch.stack((near, near + width)))
    inner, outer = (
        MomentsAbove(*moments)
        for moments in zip(*(moment.unbind() for moment in both), strict=True)
    )
    edge = torch.exp(-fall) * inner.hazard
    # The clamp matters only where this result is not used.
    tau = (edge / outer.hazard).clamp_max_(0.9)
    inside = 1.0 - tau
    inner_mean = inner.offset
    outer_mean = width + below + outer.offset
    mean = (inner_mean - tau * outer_mean) / inside
    variance = (inner.variance - tau * outer.variance) / inside
    variance = variance - tau * (outer_mean - mean).square()
    up, down = outer_mean - inner_mean, mean - inner_mean
    outer_third = outer.third + up * (3.0 * outer.variance + up.square())
    third = (inner.third - tau * outer_third) / inside
    third = third - down * (3.0 * variance + down.square())
    return IntervalMoments(
        scaled_prob=inner.scaled_prob * inside,
        offset=mean,
        variance=variance,
        third=third,
        far_density=edge / inside,
    )


def _narrow_interval(
    near: Tensor, width: Tensor, fall: Tensor, below: Tensor
) -> IntervalMoments:
    """Compute the moments by quadrature."""
    step = width * column(_NODES, near)
    # Where this result is used, the log-density changes by less than one.
    mass = step.mul(-0.5).sub_(near).mul_(step).clamp_(-1.0, 1.0).exp_()
    powers = constants(_POWERS, near).view(4, -1)
    total, mean, second, third = torch.tensordot(powers, mass, dims=1).unbind()
    mean, second, third = mean / total, second / total, third / total
    square = mean.square()
    probable = width * total
    return IntervalMoments(
        scaled_prob=probable * torch.exp(-0.5 * below.square()) * INV_SQRT_TWO_PI,
        offset=width * (0.5 + mean) + below,
        variance=width.square() * (second - square),
        third=width.pow(3) * (third - mean * (3.0 * second - 2.0 * square)),
        far_density=torch.exp(-fall) / probable,
    )


class StandardInterval(torch.autograd.Function):
    """``interval_moments`` with its closed-form derivatives.

    Maps ``(near, width)`` to ``(log_prob, offset, variance)``.
    """

    @staticmethod
    def forward(ctx: Any, near: Tensor, width: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the moments and keep what the derivatives need.

        Args:
            ctx: Autograd's context.
            near: The end closer to zero.
            width: The width.

        Returns:
            Log-probability, offset and variance, see ``IntervalMoments``.
        """
        moments = interval_moments(near, width)
        ctx.save_for_backward(near, width, *moments[1:])
        log_prob = moments.scaled_prob.log() - 0.5 * near.clamp_min(0.0).square()
        return log_prob, moments.offset, moments.variance

    @staticmethod
    def backward(
        ctx: Any, grad_log_prob: Tensor, grad_offset: Tensor, grad_variance: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Apply the closed-form derivatives.

        Moving ``near`` at a fixed width tilts the density by ``exp(-t dnear)``;
        widening it adds mass at the far end.

        Args:
            ctx: Autograd's context.
            grad_log_prob: The gradient of the log-probability.
            grad_offset: The gradient of the offset.
            grad_variance: The gradient of the variance.

        Returns:
            The gradients of ``near`` and ``width``.
        """
        near, width, offset, variance, third, far_density = ctx.saved_tensors
        to_far = width - offset + near.clamp_max(0.0)
        # At near = 0 the offset counts from the mean, like the gradient of torch.clamp.
        from_mean = near.clone().le_(0.0)
        grad_near = (
            grad_offset * (from_mean - variance)
            - grad_log_prob * (offset + near.clamp_min(0.0))
            - grad_variance * third
        )
        grad_width = far_density * (
            grad_log_prob
            + grad_offset * to_far
            + grad_variance * (to_far.square() - variance)
        )
        return grad_near, grad_width
