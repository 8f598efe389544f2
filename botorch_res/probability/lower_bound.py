r"""The standard normal above a bound: hazard and central moments without cancellation.

For ``t ~ N(0, 1)`` given ``t > x``, everything follows from the continued fraction of
the hazard (the inverse Mills ratio)

    h(x) = phi(x) / P(t > x) = x + 1 / (x + 2 / (x + 3 / (x + ...))).

Given ``zeta = 3 / (x + 4 / (x + ...))`` and ``epsilon = 2 / (x + zeta)``,

    E[t] - x      = delta = 1 / (x + epsilon)
    Var[t]        = kappa = delta (epsilon - delta)
    E[(t - E t)^3]        = h delta^2 epsilon (zeta - epsilon),    h = x + delta,

No digits cancel here for ``x >= 0``, however large ``x`` is. A rational function of
``s = 2 / (x + 2)`` gives ``zeta`` with a relative error below 4e-15 for all ``x >= 0``;
``tests/probability/fit_lower_bound.py`` computes its coefficients. Below zero the
complement ``P(t > x) = 1 - P(t > -x)`` is used, and nothing cancels there either. The
code takes no branch and calls no special function: two dozen fused multiplications
vectorise on every device, unlike ``erfcx`` and ``log_ndtr``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from botorch_res.probability.quadrature import constants, horner

INV_SQRT_TWO_PI = 1.0 / math.sqrt(2.0 * math.pi)

# zeta(x) (x + 2) as a function of s = 2 / (x + 2), lowest order first.
_NUMERATOR = (
    2.999999999999989,
    17.630482680075858,
    90.87653977388227,
    315.4606846520638,
    891.8692021326422,
    1985.2468366384242,
    3526.9195207123867,
    4826.55462121153,
    4727.289333558213,
    2701.139576417928,
)
_DENOMINATOR = (
    1.0,
    4.876827560019248,
    25.415352366193144,
    81.73820902175505,
    228.05518885303238,
    495.68545655105913,
    889.5435819695776,
    1270.255726959305,
    1403.5258898266038,
    1098.4787231193698,
    481.6093133408711,
)


class MomentsAbove(NamedTuple):
    """Moments of a standard normal variable ``t`` given ``t > x``.

    Attributes:
        scaled_prob: The probability ``P(t > x)``, times ``exp(x^2 / 2)`` for positive
            ``x``, so that it never underflows.
        hazard: The density at the bound, ``phi(x) / P(t > x)``.
        offset: The mean, measured from the point next to zero: ``E[t] - max(x, 0)``.
        variance: The variance of ``t``.
        third: The third central moment of ``t``.
    """

    scaled_prob: Tensor
    hazard: Tensor
    offset: Tensor
    variance: Tensor
    third: Tensor


def moments_above(x: Tensor) -> MomentsAbove:
    """Moments of the standard normal above ``x``, in full precision for every ``x``.

    Not meant for autograd. The derivatives are moments again, and the callers, each an
    ``autograd.Function``, write them down.

    Args:
        x: The bound, of any shape, in float64. ``abs(x)`` is at most about 1e60.

    Returns:
        The moments, each of the shape of ``x``.
    """
    # Most of the cost is memory traffic, so buffers are reused as soon as possible.
    distance = x.abs()
    scale = (distance + 2.0).reciprocal_()
    s = 2.0 * scale
    zeta = horner(constants(_NUMERATOR, x), s)
    denominator = horner(constants(_DENOMINATOR, x), s)
    zeta.mul_(scale).div_(denominator)
    epsilon = torch.add(distance, zeta, out=denominator).reciprocal_().mul_(2.0)
    excess = torch.add(distance, epsilon, out=scale).reciprocal_()
    hazard = torch.add(distance, excess, out=s)
    prob = hazard.reciprocal().mul_(INV_SQRT_TWO_PI)
    third = zeta.sub_(epsilon).mul_(epsilon).mul_(excess).mul_(excess).mul_(hazard)
    variance = epsilon.sub_(excess).mul_(excess)
    # Below zero, the same from the complement.
    density = distance.square().mul_(-0.5).exp_()
    prob_below = torch.mul(density, prob).neg_().add_(1.0)
    hazard_below = density.mul_(INV_SQRT_TWO_PI).div_(prob_below)
    excess_below = distance.add_(hazard_below)
    variance_below = torch.mul(hazard_below, excess_below).neg_().add_(1.0)
    third_below = excess_below.square_().sub_(variance_below).mul_(hazard_below)
    # With weights zero and one lerp selects exactly. It is several times as fast as
    # where.
    below = x.clone().lt_(0.0)
    return MomentsAbove(
        scaled_prob=prob.lerp_(prob_below, below),
        hazard=hazard.lerp_(hazard_below, below),
        offset=excess.lerp_(hazard_below, below),
        variance=variance.lerp_(variance_below, below),
        third=third.lerp_(third_below, below),
    )


class VarianceAbove(torch.autograd.Function):
    """The variance of ``moments_above`` with its closed-form derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Compute the variance and keep what the derivative needs.

        Args:
            ctx: Autograd's context.
            x: The bound.

        Returns:
            The variance of ``t`` given ``t > x``.
        """
        moments = moments_above(x)
        ctx.save_for_backward(moments.third)
        return moments.variance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Apply the derivative: moving the bound tilts the density by ``exp(-t dx)``.

        Args:
            ctx: Autograd's context.
            *gradients: The one gradient.

        Returns:
            The gradient of the bound.
        """
        third: Tensor = ctx.saved_tensors[0]
        return -gradients[0] * third
