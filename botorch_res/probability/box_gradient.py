"""Derivatives of the moments of a bivariate normal on a box, as sums over nodes.

One scalar is differentiated: the sum of the moments times the gradients that autograd
passes in. Its derivative by a quantity ``name`` is called ``to_name``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from botorch_res.probability.integrand import NODES, Edge, Middle
from botorch_res.probability.integration_range import Range
from botorch_res.probability.quadrature import column


class Moments(NamedTuple):
    """Moments of ``x`` and ``y``, or the gradients by them; ``batch_shape`` each.

    Attributes:
        y: The mean of ``y``.
        yy: The variance of ``y``.
        x: The mean of ``x``, in conditional standard deviations.
        xx: The variance of ``x``.
        xy: The covariance.
    """

    y: Tensor
    yy: Tensor
    x: Tensor
    xx: Tensor
    xy: Tensor


class Changes(NamedTuple):
    """Derivatives from the nodes of the middle or the edge; ``batch_shape`` each.

    Attributes:
        to_slope: By the slope, at a fixed bound of ``t`` at the base.
        to_scale: By the logarithm of the conditional standard deviation, at a fixed
            bound and a fixed regression.
        to_base: By the place of the base, at a fixed bound of ``t`` at the base.
        to_start: By the place where this part of the range starts.
        to_stop: By the place where it stops.
    """

    to_slope: Tensor
    to_scale: Tensor
    to_base: Tensor
    to_start: Tensor
    to_stop: Tensor


def middle_changes(
    d: Moments,
    d_log: Tensor,
    centre: Tensor,
    moments: Moments,
    middle: Middle,
    total: Tensor,
    span: Range,
    slope: Tensor,
) -> Changes:
    """Sum over the middle, where all terms are polynomials in the node ``u``.

    Args:
        d: The gradients by the moments.
        d_log: The gradient by the log-probability.
        centre: The derivative by the logarithm of a node's mass, without the part that
            depends on the node.
        moments: The moments.
        middle: The middle.
        total: The integral of the density.
        span: The range.
        slope: The slope.

    Returns:
        The derivatives from the middle.
    """
    length = middle.length
    place = torch.addcmul(span.first, length, middle.mean)
    y, x = place - moments.y, slope * place - span.pull - moments.x
    # Coefficients of powers of u - E[u] in the derivatives by x, by y, and by the
    # logarithm of the mass.
    x_0 = d.x + 2.0 * d.xx * x + d.xy * y
    y_0 = d.y + 2.0 * d.yy * y + d.xy * x
    x_1 = length * (2.0 * d.xx * slope + d.xy)
    y_1 = length * (2.0 * d.yy + slope * d.xy)
    mass_0 = centre + d.xx + 0.5 * ((d.x + x_0) * x + (d.y + y_0) * y)
    mass_1 = length * (slope * x_0 + y_0)
    mass_2 = 0.5 * length * (slope * x_1 + y_1)
    # Means of the derivative by the mass, times powers of u - E[u].
    sum_0 = mass_0 + mass_2 * middle.second
    sum_1 = mass_1 * middle.second + mass_2 * middle.third
    sum_2 = mass_0 * middle.second + mass_1 * middle.third + mass_2 * middle.fourth
    z = span.base + place
    by_base = z * sum_0 + length * sum_1
    # A node moves by one if the whole part moves by one, and by u if the stop does.
    by_node = y_0 + slope * x_0 - by_base
    by_far = (y_1 + slope * x_1) * middle.second - z * sum_1 - length * sum_2
    by_far = by_far + middle.mean * by_node
    density = middle.density / total
    share = density * length
    to_stop = share * by_far + density * sum_0
    # The edge leaves out the second moment at the base, see edge_changes.
    at_base = span.pull.square() * (d_log - share * sum_0)
    return Changes(
        to_slope=share * (x_0 * place + x_1 * length * middle.second),
        to_scale=2.0 * share * d.xx + at_base,
        to_base=-share * by_base,
        to_start=share * by_node - to_stop,
        to_stop=to_stop,
    )


def edge_changes(
    d: Moments,
    centre: Tensor,
    moments: Moments,
    edge: Edge,
    span: Range,
    slope: Tensor,
) -> tuple[Changes, Tensor]:
    """Sum over the nodes of the edge, whose ``x`` and ``y`` must be centred.

    Args:
        d: The gradients by the moments.
        centre: As in ``middle_changes``.
        moments: The moments.
        edge: The nodes, with masses as shares of the total.
        span: The range.
        slope: The slope.

    Returns:
        The derivatives from the edge, and the derivative by the bound of ``t`` at the
        base.
    """
    mass, y, x, bound, hazard, variance, third = edge
    # The derivatives by x, by y and by the logarithm of the mass of each node.
    to_x = torch.addcmul(d.x, d.xx, x).addcmul_(d.xy, y)
    to_y = torch.addcmul(d.y, d.yy, y)
    to_mass = torch.addcmul(centre, to_x, x).addcmul_(to_y, y)
    to_mass.addcmul_(d.xx, variance).mul_(mass)
    to_x.addcmul_(d.xx, x).mul_(mass)
    to_y.addcmul_(d.yy, y).addcmul_(d.xy, x).mul_(mass)
    weight = mass * d.xx
    # The derivative by the mean of t at a fixed bound. The mean and the third moment of
    # t are minus those of the inner variable.
    shift = (to_x * variance).addcmul_(to_mass, hazard, value=-1.0)
    shift.addcmul_(weight, third, value=-1.0)
    # The derivative by the scale of t at a fixed mean and bound has three parts. First,
    # the probability changes, by the second moment minus that at the base. The latter
    # can be so large that the rest would get lost in it.
    scaling = torch.addcmul(x, slope, y, value=-1.0).add_(moments.x - slope * moments.y)
    scaling.mul_(scaling + 2.0 * span.pull).add_(variance).sub_(1.0).mul_(to_mass)
    # Second, the mean changes.
    by_mean = torch.addcmul(third, variance, hazard, value=2.0)
    scaling.addcmul_(to_x, by_mean, value=-1.0)
    # Third, the variance changes.
    by_variance = torch.mul(bound, third).add_(variance, alpha=2.0)
    scaling.addcmul_(weight, by_variance)
    by_shift = shift.sum(0)
    to_high = to_x.sum(0) - by_shift - d.x * (span.high < 0.0)
    # The derivatives by the places of the nodes.
    to_slope = (shift * y).sum(0) + moments.y * by_shift
    by_base = (y + (span.base + moments.y)).mul_(to_mass)
    to_y.addcmul_(slope, shift).sub_(by_base)
    length = (span.last - span.split).clamp_min_(1e-300)
    by_node = to_y.sum(0)
    to_stop = to_mass.sum(0) / length + to_y.mul_(column(NODES, slope)).sum(0)
    changes = Changes(
        to_slope=to_slope,
        to_scale=scaling.sum(0),
        to_base=by_base.sum(0).neg_(),
        to_start=by_node - to_stop,
        to_stop=to_stop,
    )
    return changes, to_high


def range_changes(
    middle: Changes, edge: Changes, to_base: Tensor, span: Range
) -> tuple[Tensor, Tensor, Tensor]:
    """Derivatives by the bounds of ``z``, from the parts that start or stop there.

    Args:
        middle: The derivatives from the middle.
        edge: The derivatives from the edge.
        to_base: The derivative by the place of the base.
        span: The range.

    Returns:
        The derivatives by ``left``, ``right`` and ``width``. Where the range reaches
        both bounds, ``right`` counts as ``left + width``.
    """
    places = torch.stack((span.first, span.split, span.split, span.last))
    changes = torch.stack(
        (middle.to_start, middle.to_stop, edge.to_start, edge.to_stop)
    )
    at_first = places == span.first
    at_last = (places == span.last).logical_and(at_first.logical_not())
    to_first = (changes * at_first).sum(0) * span.at_left
    to_last = (changes * at_last).sum(0) * span.at_right
    zero = torch.zeros_like(to_base)
    # A base on a bound moves the whole range along.
    on_bound = span.on_left.logical_or(span.on_right)
    both = torch.where(on_bound, to_base, to_first + to_last)
    right = torch.where(span.on_left, to_last, both - to_first)
    reaches_both = span.at_left.logical_and(span.at_right)
    left = torch.where(span.at_left, both - right, zero)
    return (
        torch.where(reaches_both, both, left),
        torch.where(reaches_both, zero, right),
        torch.where(reaches_both, right, zero),
    )
