r"""Moments of a standardised bivariate normal on a box, and their derivatives.

This is the law of total variance over ``z``. At each node of the outer integral the
inner variable is a truncated normal, and ``moments_above`` gives its moments without
cancellation. Every sum over nodes has positive terms. See ``integration_range`` for the
notation and the range.

The derivatives are those of the exact integral: the derivative by a bound at a node is
again a moment of the inner truncated normal. Where the range reaches a bound of ``z``,
the nodes move with this bound, so that even an interval of rounding width has the right
derivatives. Elsewhere the nodes stay where they are.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from botorch_res.probability.box_gradient import (
    Moments,
    edge_changes,
    middle_changes,
    range_changes,
)
from botorch_res.probability.integrand import (
    Edge,
    Middle,
    evaluate_edge,
    integrate_middle,
)
from botorch_res.probability.integration_range import Range, find_range
from botorch_res.probability.univariate import in_sigmas

_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class BoxMoments(torch.autograd.Function):
    """The moments on a standardised box, the first variable in its own units.

    Maps

    - ``left`` and ``right``, the bounds of ``z``, and their difference ``width``,
    - ``above``, the upper bound of the first variable less its mean,
    - ``regression``, the slope of its conditional mean,
    - ``spread``, its conditional standard deviation,
    - ``high_at_left`` and ``high_at_right``, which carry no derivatives

    to

    - the log-probability,
    - the mean and the variance of ``y = z - base``,
    - the mean and the variance of ``x = spread (t + slope y - pull)``,
    - the covariance of ``x`` and ``y``,
    - ``base``, ``on_left``, ``on_right`` and ``high`` of the ``Range``, which carry no
      derivatives. A caller that uses ``pull``, or ``base`` where it is a bound, must
      add the derivative of that bound.

    If ``x`` were in conditional standard deviations, the derivatives by ``spread`` and
    ``slope`` would nearly cancel at a correlation close to one. So would the
    derivatives by the two bounds of a thin interval: this is why ``width`` is an
    argument of its own.
    """

    @staticmethod
    def forward(
        ctx: Any,
        left: Tensor,
        right: Tensor,
        width: Tensor,
        above: Tensor,
        regression: Tensor,
        spread: Tensor,
        high_at_left: Tensor,
        high_at_right: Tensor,
    ) -> tuple[Tensor, ...]:
        """Compute the integral and keep what the derivatives need.

        Args:
            ctx: Autograd's context.
            left: The lower bound of ``z``.
            right: The upper bound of ``z``.
            width: Their difference.
            above: The upper bound of the first variable, less its mean.
            regression: The slope of its conditional mean in ``z``.
            spread: Its conditional standard deviation.
            high_at_left: The upper bound of ``t`` at ``left``.
            high_at_right: The upper bound of ``t`` at ``right``.

        Returns:
            The six moments, then the first four attributes of the ``Range``.
        """
        high, slope = in_sigmas(above, spread), regression / spread
        span = find_range(left, right, width, high, slope, high_at_left, high_at_right)
        middle = integrate_middle(span)
        edge = evaluate_edge(span, slope)
        total = middle.density * middle.length + edge.mass.sum(0)
        edge.mass.div_(total)
        moments = _sum_up(middle, edge, total, span, slope)
        log_prob = total.log() - 0.5 * (span.base.square() + span.pull.square())
        ctx.save_for_backward(
            *(slope, spread, total),
            *(*moments, *span, *middle, *edge),
        )
        ctx.mark_non_differentiable(*span[:4])
        return (
            log_prob - _LOG_SQRT_TWO_PI,
            *(moments.y, moments.yy, spread * moments.x),
            *(spread.square() * moments.xx, spread * moments.xy),
            *span[:4],
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Apply the derivatives.

        Args:
            ctx: Autograd's context.
            *gradients: The gradients of the six moments, then those of the range.

        Returns:
            The gradients of the arguments of ``forward``.
        """
        slope, spread, total, *rest = ctx.saved_tensors
        moments, span = Moments(*rest[:5]), Range(*rest[5:15])
        middle, edge = Middle(*rest[15:21]), Edge(*rest[21:])
        d_log, d_y, d_yy, d_x, d_xx, d_xy = gradients[:6]
        d = Moments(d_y, d_yy, d_x * spread, d_xx * spread.square(), d_xy * spread)
        centre = d_log - d.yy * moments.yy - d.xx * moments.xx - d.xy * moments.xy
        by_middle = middle_changes(
            d, d_log, centre, moments, middle, total, span, slope
        )
        by_edge, to_high = edge_changes(d, centre, moments, edge, span, slope)
        # The bound at the base changes with the slope and with the base.
        to_slope = by_middle.to_slope + by_edge.to_slope - span.base * to_high
        to_scale = by_middle.to_scale + by_edge.to_scale
        to_base = by_middle.to_base + by_edge.to_base - slope * to_high
        to_range = range_changes(by_middle, by_edge, to_base, span)
        in_units = (change / spread for change in (to_high, to_slope, to_scale))
        return *to_range, *in_units, None, None


def _sum_up(
    middle: Middle, edge: Edge, total: Tensor, span: Range, slope: Tensor
) -> Moments:
    """Compute the moments of ``x`` and ``y``, and centre those of the edge."""
    share = middle.density * middle.length / total
    y = torch.addcmul(span.first, middle.length, middle.mean)
    x = slope * y - span.pull
    second = middle.length.square() * middle.second
    product = edge.mass * edge.y
    y_mean = share * y + product.sum(0)
    x_mean = share * x + torch.mul(edge.mass, edge.x, out=product).sum(0)
    edge.y.sub_(y_mean)
    edge.x.sub_(x_mean)
    y, x = y - y_mean, x - x_mean
    yy = torch.mul(edge.mass, edge.y, out=product).mul_(edge.y).sum(0)
    xy = torch.mul(edge.mass, edge.y, out=product).mul_(edge.x).sum(0)
    xx = torch.mul(edge.mass, edge.x, out=product).mul_(edge.x)
    xx = xx.addcmul_(edge.mass, edge.variance).sum(0)
    return Moments(
        y=y_mean,
        yy=yy + share * (second + y.square()),
        x=x_mean,
        xx=xx + share * (1.0 + slope.square() * second + x.square()),
        xy=xy + share * (slope * second + x * y),
    )
