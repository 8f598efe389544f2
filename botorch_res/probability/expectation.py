r"""Moments of a standardised bivariate normal on a box, and their derivatives.

The law of total variance over ``z``: at each node of the outer integral the inner
variable is a truncated normal, whose moments ``tail_moments`` (one bound) and
``interval_moments`` (two) have without cancellation, and every sum over nodes has
positive terms. See ``panels`` for the notation and the choice of nodes.

The derivatives are taken of the exact integral: what a bound moves at a node is again a
moment of the inner truncated normal. The nodes ride on the bounds of ``z`` where
the range reaches them, so that even an interval of rounding width has the right
derivatives, and stay where they are otherwise.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from botorch_res.probability.constants import constants, transplanted_gauss_legendre
from botorch_res.probability.interval import interval_moments
from botorch_res.probability.panels import (
    Base,
    Box,
    Panels,
    find_base,
    from_pull,
    place_panels,
)
from botorch_res.probability.tail import tail_moments

# With 28 nodes a panel all moments are right to 1e-11; with 24, to 1e-9.
_NODES, _WEIGHTS = transplanted_gauss_legendre(28)
_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class Inner(NamedTuple):
    """The inner variable at the nodes of the sides, ``num_sides x batch_shape x n``.

    Attributes:
        scaled_prob: Its probability, times ``exp(pull^2 / 2)``.
        offset: Its mean, from the point of the interval next to the conditional mean.
        score: Its mean, from the conditional mean.
        variance: Its variance.
        third: Its third central moment.
        far_density: Its density at the bound farther from the conditional mean.
        to_far: The distance of its mean from that bound.
    """

    scaled_prob: Tensor
    offset: Tensor
    score: Tensor
    variance: Tensor
    third: Tensor
    far_density: Tensor | None
    to_far: Tensor | None


def _one_bound(shift: Tensor, base: Base) -> Inner:
    tail = tail_moments(shift - base.high.unsqueeze(-1))
    return Inner(
        scaled_prob=tail.scaled_prob,
        offset=tail.offset.neg_(),
        score=tail.hazard.neg_(),
        variance=tail.variance,
        third=tail.third.neg_(),
        far_density=None,
        to_far=None,
    )


def _two_bounds(shift: Tensor, base: Base, thickness: Tensor) -> Inner:
    low = base.low.unsqueeze(-1) - shift
    high = base.high.unsqueeze(-1) - shift
    near = torch.maximum(low, -high)
    thickness = thickness.unsqueeze(-1).expand_as(near)
    moments = interval_moments(near, thickness)
    # On the left side the near bound is the lower one, on the right the upper one.
    sign = torch.ones_like(near)
    sign[1] = -1.0
    return Inner(
        scaled_prob=moments.scaled_prob,
        offset=sign * moments.offset,
        score=sign * (moments.offset + near.clamp_min(0.0)),
        variance=moments.variance,
        third=sign * moments.third,
        far_density=moments.far_density,
        to_far=sign * (thickness - moments.offset + near.clamp_max(0.0)),
    )


def _pull_rise(shift: Tensor, bound: Tensor) -> Tensor:
    """The rise of ``max(bound + shift, 0)^2 / 2`` over its value at zero shift."""
    bound = bound.unsqueeze(-1)
    pull = bound.clamp_min(0.0)
    change = torch.maximum(shift + bound.clamp_max(0.0), -pull)
    return (0.5 * change).add_(pull).mul_(change)


class BoxExpectation(torch.autograd.Function):
    """The moments of a ``Box``, with derivatives to its first five attributes.

    Maps the attributes of the box, and whether it is one-sided, to

    - the log-probability,
    - the mean and the variance of ``y = z - base.z``,
    - the mean and the variance of ``x = t + slope y - base.pull``,
    - the covariance of ``x`` and ``y``,
    - the attributes of the base, which carry no derivatives: who uses ``base.z`` where
      it is a bound, or ``base.pull``, adds the derivative of that bound.
    """

    @staticmethod
    def forward(ctx: Any, one_sided: bool, *attributes: Tensor) -> tuple[Tensor, ...]:
        """Integrate, and keep what the derivatives need.

        Args:
            ctx: Autograd's context.
            one_sided: Whether there is no lower bound on ``t``.
            *attributes: The attributes of the ``Box``.

        Returns:
            The six moments, then the attributes of the ``Base``.
        """
        box = Box(*attributes)
        base = find_base(box)
        panels = place_panels(box, base, one_sided)
        nodes, node_weights = constants(_NODES, box.left), constants(_WEIGHTS, box.left)
        length = panels.stop - panels.start
        y = torch.addcmul(panels.start.unsqueeze(-1), length.unsqueeze(-1), nodes)
        x = box.slope.unsqueeze(-1) * y
        if one_sided:
            inner = _one_bound(x[1:], base)
        else:
            inner = _two_bounds(x[1:], base, box.thickness)
        # The logarithm of the density of z, relative to the base.
        mass = y.mul(-0.5).sub_(base.z.unsqueeze(-1)).mul_(y)
        mass[1:] -= _pull_rise(x[1:], -base.high)
        # Nothing pulls in the middle; it only exceeds the base where it is empty.
        mass[0] += (0.5 * base.pull.square()).unsqueeze(-1)
        mass[0].clamp_max_(1.0)
        if not one_sided:
            mass[1:] -= _pull_rise(-x[1:], base.low)
        mass = mass.exp_().mul_(node_weights).mul_(length.unsqueeze(-1))
        mass[1:] *= inner.scaled_prob
        total = mass.sum((0, -1))
        mass /= total.unsqueeze(-1)
        # The conditional mean, then the mean of the inner variable.
        x -= base.pull.unsqueeze(-1)
        low, high = from_pull(base.low, base.high, box.thickness)
        side = torch.minimum(x[1:], high.unsqueeze(-1))
        if not one_sided:
            side = torch.maximum(side, low.unsqueeze(-1))
        x[1:] = side.add_(inner.offset)
        y_mean = (mass * y).sum((0, -1))
        x_mean = (mass * x).sum((0, -1))
        y_centred = y - y_mean.unsqueeze(-1)
        x -= x_mean.unsqueeze(-1)
        weighted_x = mass * x
        y_variance = (mass * y_centred).mul_(y_centred).sum((0, -1))
        covariance = (weighted_x * y_centred).sum((0, -1))
        x_variance = weighted_x.mul_(x).sum((0, -1))
        within = mass[0].sum(-1) + (mass[1:] * inner.variance).sum((0, -1))
        log_prob = total.log() - 0.5 * (base.z.square() + base.pull.square())
        log_prob -= _LOG_SQRT_TWO_PI
        x_variance += within
        ctx.one_sided = one_sided
        ctx.save_for_backward(
            *(box.slope, y_variance, x_variance, covariance),
            *(length, mass, y, y_centred, x, *inner[2:]),
            *(*base, *panels),
        )
        ctx.mark_non_differentiable(*base)
        return log_prob, y_mean, y_variance, x_mean, x_variance, covariance, *base

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Apply the derivatives.

        Args:
            ctx: Autograd's context.
            *gradients: The gradients of the six moments, then those of the base.

        Returns:
            The gradients of the arguments of ``forward``.
        """
        slope, y_variance, x_variance, covariance, *rest = ctx.saved_tensors
        length, mass, y, y_centred, x, score, variance, third, far, to_far = rest[:10]
        base, panels = Base(*rest[10:16]), Panels(*rest[16:])
        d_y, d_yy, d_x, d_xx, d_xy = (g.unsqueeze(-1) for g in gradients[1:6])
        centre = (
            gradients[0]
            - gradients[2] * y_variance
            - gradients[4] * x_variance
            - gradients[5] * covariance
        ).unsqueeze(-1)
        # What the logarithm of a node's mass, its x and its y change.
        half_x = torch.addcmul(torch.addcmul(d_x, d_xx, x), d_xy, y_centred)
        half_y = torch.addcmul(d_y, d_yy, y_centred)
        to_mass = torch.addcmul(centre, half_x, x)
        to_mass = to_mass.addcmul_(half_y, y_centred)
        to_mass[0] += d_xx
        to_mass[1:] += d_xx * variance
        to_mass *= mass
        to_x = half_x.addcmul_(d_xx, x).mul_(mass)
        to_y = half_y.addcmul_(d_yy, y_centred).addcmul_(d_xy, x).mul_(mass)
        # What moving the inner variable's mean changes: its bounds stay.
        shift = to_x.clone()
        side = shift[1:]
        fixed = to_x[1:]
        side *= variance
        side.addcmul_(to_mass[1:], score)
        side.addcmul_(mass[1:] * d_xx, third)
        moved_with_bound = (fixed - side).sum(-1)
        # Nodes that ride on the bounds of z.
        z = y + base.z.unsqueeze(-1)
        to_y += slope.unsqueeze(-1) * shift
        to_y.addcmul_(to_mass, z, value=-1.0)
        rate = to_mass.sum(-1) / length.clamp_min(1e-300)
        stop_share = (to_y * constants(_NODES, y)).sum(-1)
        to_start, to_stop = to_y.sum(-1) - stop_share - rate, stop_share + rate
        first, last = panels.start.amin(0), panels.stop.amax(0)
        to_first = (
            to_start * (panels.start == first) + to_stop * (panels.stop == first)
        ).sum(0)
        to_last = (
            to_start * ((panels.start == last) & (panels.start != first))
            + to_stop * ((panels.stop == last) & (panels.stop != first))
        ).sum(0)
        # Bounds of t, at the base.
        pull = gradients[3]
        to_high = moved_with_bound[-1] - pull * (base.high < 0.0)
        to_bounds = to_high
        to_low = None
        if not ctx.one_sided:
            edge = to_mass[1:] + to_x[1:] * to_far
            edge += mass[1:] * d_xx * (to_far.square() - variance)
            outwards = (far * edge).sum((0, -1))
            to_high = to_high + outwards
            to_low = moved_with_bound[0] - outwards - pull * (base.low > 0.0)
            to_bounds = to_high + to_low
        to_slope = (shift * y).sum((0, -1)) - base.z * to_bounds
        to_base = -(to_mass * z).sum((0, -1)) - slope * to_bounds
        left = base.on_left * (to_base - panels.at_right * to_last)
        left = left + (panels.at_left & ~base.on_left) * to_first
        right = base.on_right * (to_base - panels.at_left * to_first)
        right = right + (panels.at_right & ~base.on_right) * to_last
        return None, left, right, to_low, to_high, to_slope, *(None,) * 6
