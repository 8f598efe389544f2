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

from botorch_res.probability.constants import (
    column,
    constants,
    transplanted_gauss_legendre,
)
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
from botorch_res.probability.univariate import FARTHEST_SIGMAS, LEAST_WIDTH

# With 28 nodes a panel all moments are right to 1e-11; with 24, to 1e-9.
_NODES, _WEIGHTS = transplanted_gauss_legendre(28)
# Weights times powers of the nodes.
_POWERS = tuple(
    w * u**k for k in range(5) for u, w in zip(_NODES, _WEIGHTS, strict=True)
)
_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class Inner(NamedTuple):
    """The inner variable at the nodes of the sides, ``num_sides x n x batch_shape``.

    Attributes:
        scaled_prob: Its probability, times ``exp(pull^2 / 2)``.
        near: The bound nearer to the conditional mean, measured from it.
        offset: Its mean, from the point of the interval next to the conditional mean.
        score: Its mean, from the conditional mean.
        variance: Its variance.
        third: Its third central moment.
        far_density: Its density at the bound farther from the conditional mean.
        to_far: The distance of its mean from that bound.
    """

    scaled_prob: Tensor
    offset: Tensor
    near: Tensor
    score: Tensor
    variance: Tensor
    third: Tensor
    far_density: Tensor | None
    to_far: Tensor | None


def _one_bound(shift: Tensor, base: Base) -> Inner:
    near = shift - base.high
    tail = tail_moments(near)
    return Inner(
        scaled_prob=tail.scaled_prob,
        offset=tail.offset.neg_(),
        near=near.neg_(),
        score=tail.hazard.neg_(),
        variance=tail.variance,
        third=tail.third.neg_(),
        far_density=None,
        to_far=None,
    )


def _two_bounds(shift: Tensor, base: Base, box: Box) -> Inner:
    low = base.low - shift
    high = base.high - shift
    near = torch.maximum(low, -high)
    thickness = box.thickness.expand_as(near)
    moments = interval_moments(near, thickness)
    # On the left side the near bound is the lower one, on the right the upper one.
    sign = column((1.0, -1.0), shift.select(0, 0))
    return Inner(
        scaled_prob=moments.scaled_prob,
        offset=sign * moments.offset,
        near=sign * near,
        score=sign * (moments.offset + near.clamp_min(0.0)),
        variance=moments.variance,
        third=sign * moments.third,
        far_density=moments.far_density,
        to_far=sign * (thickness - moments.offset + near.clamp_max(0.0)),
    )


def _pull_rise(shift: Tensor, bound: Tensor) -> Tensor:
    """The rise of ``max(bound + shift, 0)^2 / 2`` over its value at zero shift."""
    bound = bound
    pull = bound.clamp_min(0.0)
    change = torch.maximum(shift + bound.clamp_max(0.0), -pull)
    return (0.5 * change).add_(pull).mul_(change)


class Middle(NamedTuple):
    """The middle panel, where ``x`` is linear in ``z``; ``batch_shape`` each.

    All sums over its nodes, those of the derivatives too, are sums of the moments of
    its node ``u`` on the unit interval.

    Attributes:
        density: Its mean density, relative to the base.
        mean: The mean of ``u``.
        second: The second central moment of ``u``.
        third: The third one.
        fourth: The fourth one.
    """

    density: Tensor
    mean: Tensor
    second: Tensor
    third: Tensor
    fourth: Tensor


def _middle(start: Tensor, length: Tensor, base: Base) -> Middle:
    y = torch.addcmul(start, length, column(_NODES, start))
    mass = y.mul(-0.5).sub_(base.z).mul_(y).add_(0.5 * base.pull.square())
    # The density only exceeds that of the base where the panel is empty.
    mass.clamp_max_(1.0).exp_()
    powers = constants(_POWERS, start).view(5, -1)
    density, *moments = torch.tensordot(powers, mass, dims=1).unbind()
    mean, second, third, fourth = (m / density.clamp_min(1e-300) for m in moments)
    square = mean.square()
    return Middle(
        density=density,
        mean=mean,
        second=(second - square).clamp_min_(0.0),
        third=third - mean * (3.0 * second - 2.0 * square),
        fourth=fourth - mean * (4.0 * third - mean * (6.0 * second - 3.0 * square)),
    )


class BoxExpectation(torch.autograd.Function):
    """The moments on a ``Box`` of which one variable is in its own units.

    Maps

    - whether the box is one-sided,
    - ``left`` and ``right``, the bounds of ``z``, and their difference ``width``,
    - ``below`` and ``above``, the bounds of the first variable less its mean, and
      their difference ``gap``,
    - ``regression``, the slope of its conditional mean,
    - ``spread``, its conditional standard deviation,
    - the remaining attributes of the ``Box``, which carry no derivatives

    to

    - the log-probability,
    - the mean and the variance of ``y = z - base.z``,
    - the mean and the variance of ``x = spread (t + slope y - base.pull)``,
    - the covariance of ``x`` and ``y``,
    - the attributes of the base, which carry no derivatives: who uses ``base.z`` where
      it is a bound, or ``base.pull``, adds the derivative of that bound.

    Were ``x`` in conditional standard deviations, the derivatives to ``spread`` and
    ``slope`` would all but cancel near a correlation of one. So would the derivatives
    to the two bounds of a thin interval: the differences carry their part.
    """

    @staticmethod
    def forward(
        ctx: Any,
        one_sided: bool,
        left: Tensor,
        right: Tensor,
        width: Tensor,
        below: Tensor,
        above: Tensor,
        gap: Tensor,
        regression: Tensor,
        spread: Tensor,
        *attributes: Tensor,
    ) -> tuple[Tensor, ...]:
        """Integrate, and keep what the derivatives need.

        Args:
            ctx: Autograd's context.
            one_sided: Whether there is no lower bound on ``t``.
            left: The lower bound of ``z``.
            right: The upper bound of ``z``.
            width: Their difference.
            below: The lower bound of the first variable, less its mean.
            above: The upper bound of the first variable, less its mean.
            gap: Their difference.
            regression: The slope of its conditional mean in ``z``.
            spread: Its conditional standard deviation.
            *attributes: The last four attributes of the ``Box``.

        Returns:
            The six moments, then the attributes of the ``Base``.
        """
        low, high = (
            (bound / spread).clamp_(-FARTHEST_SIGMAS, FARTHEST_SIGMAS)
            for bound in (below, above)
        )
        thickness = (gap / spread).clamp_max_(4.0 * FARTHEST_SIGMAS) + LEAST_WIDTH
        slope = regression / spread
        box = Box(left, right, low, high, slope, width, thickness, *attributes)
        base = find_base(box)
        panels = place_panels(box, base, one_sided)
        length = panels.stop - panels.start
        middle = _middle(panels.start, length, base)
        # The sides, num_sides x n x batch_shape.
        side_length = (panels.side_stop - panels.side_start).unsqueeze(1)
        y = torch.addcmul(
            panels.side_start.unsqueeze(1), side_length, column(_NODES, box.slope)
        )
        x = box.slope * y
        inner = _one_bound(x, base) if one_sided else _two_bounds(x, base, box)
        mass = y.mul(-0.5).sub_(base.z).mul_(y).sub_(_pull_rise(x, -base.high))
        if not one_sided:
            mass.sub_(_pull_rise(-x, base.low))
        mass.exp_().mul_(column(_WEIGHTS, box.slope)).mul_(inner.scaled_prob)
        mass.mul_(side_length)
        middle_mass = middle.density * length
        total = middle_mass + mass.sum((0, 1))
        mass.div_(total)
        middle_mass = middle_mass / total
        # The conditional mean, moved by the truncation.
        x.sub_(base.pull)
        low, high = from_pull(base.low, base.high, box.thickness)
        torch.minimum(x, high, out=x)
        if not one_sided:
            torch.maximum(x, low, out=x)
        x.add_(inner.offset)
        # Mean and variance of y, and what x adds to slope y in the middle.
        y_middle = torch.addcmul(panels.start, length, middle.mean)
        x_middle = box.slope * y_middle - base.pull
        product = mass * y
        y_mean = middle_mass * y_middle + product.sum((0, 1))
        product = torch.mul(mass, x, out=product)
        x_mean = middle_mass * x_middle + product.sum((0, 1))
        y.sub_(y_mean)
        x.sub_(x_mean)
        y_middle, x_middle = y_middle - y_mean, x_middle - x_mean
        second = length.square() * middle.second
        product = torch.mul(mass, y, out=product).mul_(y)
        y_variance = (second + y_middle.square()) * middle_mass + product.sum((0, 1))
        product = torch.mul(mass, y, out=product).mul_(x)
        covariance = box.slope * second + x_middle * y_middle
        covariance = covariance * middle_mass + product.sum((0, 1))
        product = torch.mul(mass, x, out=product).mul_(x)
        product.addcmul_(mass, inner.variance)
        x_variance = 1.0 + box.slope.square() * second + x_middle.square()
        x_variance = x_variance * middle_mass + product.sum((0, 1))
        log_prob = total.log() - 0.5 * (base.z.square() + base.pull.square())
        ctx.one_sided = one_sided
        ctx.save_for_backward(
            *(box.slope, spread, box.thickness, total),
            *(y_mean, x_mean, y_variance, x_variance, covariance),
            *(y_middle, x_middle, mass, y, x, *inner[2:]),
            *(*middle, *base, *panels),
        )
        ctx.mark_non_differentiable(*base)
        moments = (
            *(y_mean, y_variance, spread * x_mean),
            *(spread.square() * x_variance, spread * covariance),
        )
        return log_prob - _LOG_SQRT_TWO_PI, *moments, *base

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Apply the derivatives.

        Args:
            ctx: Autograd's context.
            *gradients: The gradients of the six moments, then those of the base.

        Returns:
            The gradients of the arguments of ``forward``.
        """
        slope, spread, thickness, total, *rest = ctx.saved_tensors
        y_mean, x_mean, y_variance, x_variance, xy, *rest = rest
        y_middle, x_middle, mass, y, x, *rest = rest
        near, score, variance, third, far, to_far, *rest = rest
        middle, base, panels = Middle(*rest[:5]), Base(*rest[5:11]), Panels(*rest[11:])
        d_log, d_y, d_yy, d_x, d_xx, d_xy = gradients[:6]
        d_x, d_xx, d_xy = d_x * spread, d_xx * spread.square(), d_xy * spread
        centre = d_log - d_yy * y_variance - d_xx * x_variance - d_xy * xy
        z_mean = base.z + y_mean
        # What the logarithm of a node's mass, its x and its y change; x and y are
        # centred.
        to_x = torch.addcmul(d_x, d_xx, x).addcmul_(d_xy, y)
        to_y = torch.addcmul(d_y, d_yy, y)
        to_mass = torch.addcmul(centre, to_x, x).addcmul_(to_y, y)
        to_mass.addcmul_(d_xx, variance).mul_(mass)
        to_x.addcmul_(d_xx, x).mul_(mass)
        to_y.addcmul_(d_yy, y).addcmul_(d_xy, x).mul_(mass)
        # What moving the mean of the inner variable changes, its bounds staying put.
        weight = mass * d_xx
        shift = (to_x * variance).addcmul_(to_mass, score).addcmul_(weight, third)
        # What scaling the inner variable changes, its mean and its bounds staying put.
        scaling = torch.addcmul(third, variance, score, value=2.0).mul_(to_x)
        # Its second moment, from that at the base, which may be huge beside the change.
        change = torch.addcmul(x, slope, y, value=-1.0).add_(x_mean - slope * y_mean)
        change.mul_(change + 2.0 * base.pull).add_(variance).sub_(1.0)
        scaling.addcmul_(to_mass, change)
        scaling.addcmul_(weight, torch.mul(near, third).add_(variance, alpha=2.0))
        to_scale = scaling.sum((0, 1))
        shift_sum = shift.sum(1)
        with_bounds = to_x.sum(1) - shift_sum
        # What moving the nodes changes.
        z = y + z_mean
        to_slope = (shift * y).sum((0, 1)) + y_mean * shift_sum.sum(0)
        mass_z = torch.mul(to_mass, z, out=z)
        to_base = mass_z.sum((0, 1)).neg_()
        to_y.addcmul_(slope, shift).sub_(mass_z)
        node = to_y.sum(1)
        node_far = torch.mul(to_y, column(_NODES, slope), out=z).sum(1)
        side_length = (panels.side_stop - panels.side_start).clamp_min_(1e-300)
        rate = to_mass.sum(1) / side_length
        # The same sums of the middle, where all summands are polynomials in u.
        length = panels.stop - panels.start
        x_0 = d_x + 2.0 * d_xx * x_middle + d_xy * y_middle
        y_0 = d_y + 2.0 * d_yy * y_middle + d_xy * x_middle
        x_1 = length * (2.0 * d_xx * slope + d_xy)
        y_1 = length * (2.0 * d_yy + slope * d_xy)
        mass_0 = centre + d_xx + 0.5 * ((d_x + x_0) * x_middle + (d_y + y_0) * y_middle)
        mass_1 = length * (slope * x_0 + y_0)
        mass_2 = 0.5 * length * (slope * x_1 + y_1)
        z_0 = z_mean + y_middle
        sum_mass = mass_0 + mass_2 * middle.second
        sum_mass_1 = mass_1 * middle.second + mass_2 * middle.third
        sum_mass_2 = mass_0 * middle.second + mass_1 * middle.third
        sum_mass_2 = sum_mass_2 + mass_2 * middle.fourth
        sum_z = z_0 * sum_mass + length * sum_mass_1
        middle_node = y_0 + slope * x_0 - sum_z
        middle_far = (y_1 + slope * x_1) * middle.second
        middle_far = middle_far - z_0 * sum_mass_1 - length * sum_mass_2
        middle_far = middle_far + middle.mean * middle_node
        density = middle.density / total
        share = density * length
        to_base = to_base - share * sum_z
        in_slope = x_0 * (y_middle + y_mean) + x_1 * length * middle.second
        to_slope = to_slope + share * in_slope
        to_scale = to_scale + 2.0 * share * d_xx
        to_scale = to_scale + base.pull.square() * (d_log - share * sum_mass)
        to_stop = node_far + rate
        middle_stop = share * middle_far + density * sum_mass
        ends = (
            (panels.start, share * middle_node - middle_stop),
            (panels.stop, middle_stop),
            (panels.side_start, node - to_stop),
            (panels.side_stop, to_stop),
        )
        # Bounds of t, at the base.
        by_side = with_bounds.unbind()
        to_high = by_side[-1] - d_x * (base.high < 0.0)
        to_bounds, to_low, outwards = to_high, None, None
        if not ctx.one_sided:
            edge = (to_far.square() - variance).mul_(weight)
            to_scale = to_scale - thickness * (edge * far).sum((0, 1))
            edge.addcmul_(to_x, to_far).add_(to_mass)
            outwards = edge.mul_(far).sum((0, 1)) / spread
            to_low = by_side[0] - d_x * (base.low > 0.0)
            to_bounds = to_high + to_low
            to_low = to_low / spread
        to_slope = to_slope - base.z * to_bounds
        to_base = to_base - slope * to_bounds
        to_range = _to_range(ends, to_base, base, panels)
        to_bounds = to_low, to_high / spread, outwards
        return (
            None,
            *to_range,
            *to_bounds,
            to_slope / spread,
            to_scale / spread,
            *((None,) * 4),
        )


def _to_range(
    ends: tuple[tuple[Tensor, Tensor], ...], to_base: Tensor, base: Base, panels: Panels
) -> tuple[Tensor, Tensor, Tensor]:
    """What the bounds of ``z`` change, by the panels that start or stop there.

    Returns:
        The changes by ``left``, ``right`` and ``width``; where the range reaches both
        bounds, ``right`` counts as ``left + width``.
    """
    shape = panels.first.shape
    to_first = to_last = torch.zeros_like(to_base)
    for place, change in ends:
        at_first = place == panels.first
        at_last = (place == panels.last) & at_first.logical_not()
        to_first = to_first + (change * at_first).view(-1, *shape).sum(0)
        to_last = to_last + (change * at_last).view(-1, *shape).sum(0)
    to_first, to_last = to_first * panels.at_left, to_last * panels.at_right
    zero = torch.zeros_like(to_base)
    # A base on a bound carries the whole range along.
    on_bound = base.on_left.logical_or(base.on_right)
    both = torch.where(on_bound, to_base, to_first + to_last)
    right = torch.where(base.on_left, to_last, both - to_first)
    reaches_both = panels.at_left.logical_and(panels.at_right)
    left = torch.where(panels.at_left, both - right, zero)
    return (
        torch.where(reaches_both, both, left),
        torch.where(reaches_both, zero, right),
        torch.where(reaches_both, right, zero),
    )
