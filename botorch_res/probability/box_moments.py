r"""Moments of a standardised bivariate normal on a box, and their derivatives.

The law of total variance over ``z``: at each node of the outer integral the inner
variable is a truncated normal, whose moments ``moments_above`` (one bound) and
``interval_moments`` (two) give without cancellation, and every sum over nodes has
positive terms. See ``integration_range`` for the notation and the range.

The derivatives are taken of the exact integral: what a bound moves at a node is again a
moment of the inner truncated normal. The nodes ride on the bounds of ``z`` where
the range reaches them, so that even an interval of rounding width has the right
derivatives, and stay where they are otherwise.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from botorch_res.probability.box_gradient import (
    Moments,
    middle_changes,
    range_changes,
    side_changes,
)
from botorch_res.probability.integrand import (
    Inner,
    Middle,
    Sides,
    evaluate_sides,
    integrate_middle,
)
from botorch_res.probability.integration_range import (
    Base,
    Box,
    Pieces,
    find_base,
    split_range,
)
from botorch_res.probability.univariate import FARTHEST_SIGMAS, LEAST_WIDTH

_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class BoxMoments(torch.autograd.Function):
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
        pieces = split_range(box, base, one_sided)
        middle = integrate_middle(pieces, base)
        sides = evaluate_sides(box, pieces, base, one_sided)
        total = middle.density * middle.length + sides.mass.sum((0, 1))
        sides.mass.div_(total)
        moments = _sum_up(middle, sides, total, pieces, base, slope)
        log_prob = total.log() - 0.5 * (base.z.square() + base.pull.square())
        ctx.save_for_backward(
            *(slope, spread, thickness, total),
            *(*moments, *base, *pieces, *middle),
            *(sides.mass, sides.y, sides.x, *sides.inner),
        )
        ctx.mark_non_differentiable(*base)
        return (
            log_prob - _LOG_SQRT_TWO_PI,
            *(moments.y, moments.yy, spread * moments.x),
            *(spread.square() * moments.xx, spread * moments.xy),
            *base,
        )

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
        moments, base, rest = Moments(*rest[:5]), Base(*rest[5:11]), rest[11:]
        pieces, middle, rest = Pieces(*rest[:8]), Middle(*rest[8:14]), rest[14:]
        mass, y, x, *inner = rest
        sides = Sides(mass, y, x, Inner(*inner))
        d_log, d_y, d_yy, d_x, d_xx, d_xy = gradients[:6]
        d = Moments(d_y, d_yy, d_x * spread, d_xx * spread.square(), d_xy * spread)
        centre = d_log - d.yy * moments.yy - d.xx * moments.xx - d.xy * moments.xy
        by_middle = middle_changes(
            d, d_log, centre, moments, middle, total, pieces, base, slope
        )
        by_sides, bounds = side_changes(
            d, centre, moments, sides, pieces, base, slope, thickness
        )
        # The bounds at the base move with the slope and with the base.
        to_both = bounds.to_high
        if bounds.to_low is not None:
            to_both = to_both + bounds.to_low
        to_slope = by_middle.to_slope + by_sides.to_slope - base.z * to_both
        to_scale = by_middle.to_scale + by_sides.to_scale
        to_base = by_middle.to_base + by_sides.to_base - slope * to_both
        to_range = range_changes(by_middle, by_sides, to_base, pieces, base)
        in_units = (
            None if change is None else change / spread
            for change in (*bounds, to_slope, to_scale)
        )
        return None, *to_range, *in_units, None, None, None, None


def _sum_up(
    middle: Middle,
    sides: Sides,
    total: Tensor,
    pieces: Pieces,
    base: Base,
    slope: Tensor,
) -> Moments:
    """The moments of ``x`` and ``y``; centres those of the sides on the way."""
    share = middle.density * middle.length / total
    y = torch.addcmul(pieces.start, middle.length, middle.mean)
    x = slope * y - base.pull
    second = middle.length.square() * middle.second
    product = sides.mass * sides.y
    y_mean = share * y + product.sum((0, 1))
    x_mean = share * x + torch.mul(sides.mass, sides.x, out=product).sum((0, 1))
    sides.y.sub_(y_mean)
    sides.x.sub_(x_mean)
    y, x = y - y_mean, x - x_mean
    yy = torch.mul(sides.mass, sides.y, out=product).mul_(sides.y).sum((0, 1))
    xy = torch.mul(sides.mass, sides.y, out=product).mul_(sides.x).sum((0, 1))
    xx = torch.mul(sides.mass, sides.x, out=product).mul_(sides.x)
    xx = xx.addcmul_(sides.mass, sides.inner.variance).sum((0, 1))
    return Moments(
        y=y_mean,
        yy=yy + share * (second + y.square()),
        x=x_mean,
        xx=xx + share * (1.0 + slope.square() * second + x.square()),
        xy=xy + share * (slope * second + x * y),
    )
