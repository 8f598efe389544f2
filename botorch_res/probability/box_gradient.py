"""Derivatives of the moments of a bivariate normal on a box, as sums over nodes.

All ``to_...`` are derivatives of one scalar, the sum of the moments times the gradients
that autograd hands down, to what the name says.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from botorch_res.probability.integrand import NODES, Edge, Middle
from botorch_res.probability.integration_range import Range
from botorch_res.probability.quadrature import column


class Moments(NamedTuple):
    """Moments of ``x`` and ``y``, or the gradients to them; ``batch_shape`` each.

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
    """What the nodes of the middle, or of the edge, have to say; ``batch_shape`` each.

    Attributes:
        to_slope: The slope, at a fixed bound of ``t`` at the base.
        to_scale: The logarithm of the conditional standard deviation, at a fixed bound
            and a fixed regression.
        to_base: The place of the base, at a fixed bound of ``t`` at the base.
        to_start: Where this part of the range starts.
        to_stop: Where it stops.
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
    """Sum over the middle, where all summands are polynomials in the node ``u``.

    Args:
        d: The gradients of the moments.
        d_log: The gradient of the log-probability.
        centre: What the logarithm of any node's mass changes, before its own part.
        moments: The moments.
        middle: The middle.
        total: The integral of the density.
        span: The range.
        slope: The slope.

    Returns:
        The changes by the middle.
    """
    length = middle.length
    place = torch.addcmul(span.first, length, middle.mean)
    y, x = place - moments.y, slope * place - span.pull - moments.x
    # Coefficients of powers of u - E[u]: to x, to y, to the logarithm of the mass.
    x_0 = d.x + 2.0 * d.xx * x + d.xy * y
    y_0 = d.y + 2.0 * d.yy * y + d.xy * x
    x_1 = length * (2.0 * d.xx * slope + d.xy)
    y_1 = length * (2.0 * d.yy + slope * d.xy)
    mass_0 = centre + d.xx + 0.5 * ((d.x + x_0) * x + (d.y + y_0) * y)
    mass_1 = length * (slope * x_0 + y_0)
    mass_2 = 0.5 * length * (slope * x_1 + y_1)
    # Means of the change of the mass times powers of u - E[u].
    sum_0 = mass_0 + mass_2 * middle.second
    sum_1 = mass_1 * middle.second + mass_2 * middle.third
    sum_2 = mass_0 * middle.second + mass_1 * middle.third + mass_2 * middle.fourth
    z = span.base + place
    by_base = z * sum_0 + length * sum_1
    # A node moves by one if its part of the range does, by u if the stop does.
    by_node = y_0 + slope * x_0 - by_base
    by_far = (y_1 + slope * x_1) * middle.second - z * sum_1 - length * sum_2
    by_far = by_far + middle.mean * by_node
    density = middle.density / total
    share = density * length
    to_stop = share * by_far + density * sum_0
    # The second moment at the base is left out at the edge, see there.
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
        d: The gradients of the moments.
        centre: What the logarithm of any node's mass changes, before its own part.
        moments: The moments.
        edge: The nodes, their mass a part of one.
        span: The range.
        slope: The slope.

    Returns:
        The changes by the edge, and by the bound of ``t`` at the base.
    """
    mass, y, x, bound, hazard, variance, third = edge
    # What the logarithm of a node's mass, its x and its y change.
    to_x = torch.addcmul(d.x, d.xx, x).addcmul_(d.xy, y)
    to_y = torch.addcmul(d.y, d.yy, y)
    to_mass = torch.addcmul(centre, to_x, x).addcmul_(to_y, y)
    to_mass.addcmul_(d.xx, variance).mul_(mass)
    to_x.addcmul_(d.xx, x).mul_(mass)
    to_y.addcmul_(d.yy, y).addcmul_(d.xy, x).mul_(mass)
    weight = mass * d.xx
    # What moving the mean of t changes, its bound staying put. The mean and the third
    # moment of t are minus those of the inner variable.
    shift = (to_x * variance).addcmul_(to_mass, hazard, value=-1.0)
    shift.addcmul_(weight, third, value=-1.0)
    # What scaling t changes, its mean and its bound staying put: its probability, by
    # its second moment less that at the base, which may be so huge that the rest would
    # drown,
    scaling = torch.addcmul(x, slope, y, value=-1.0).add_(moments.x - slope * moments.y)
    scaling.mul_(scaling + 2.0 * span.pull).add_(variance).sub_(1.0).mul_(to_mass)
    # then its mean,
    by_mean = torch.addcmul(third, variance, hazard, value=2.0)
    scaling.addcmul_(to_x, by_mean, value=-1.0)
    # then its variance.
    by_variance = torch.mul(bound, third).add_(variance, alpha=2.0)
    scaling.addcmul_(weight, by_variance)
    by_shift = shift.sum(0)
    to_high = to_x.sum(0) - by_shift - d.x * (span.high < 0.0)
    # What moving the nodes changes.
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
    """What the bounds of ``z`` change, by the parts that start or stop there.

    Args:
        middle: The changes by the middle.
        edge: The changes by the edge.
        to_base: The place of the base.
        span: The range.

    Returns:
        The changes by ``left``, ``right`` and ``width``; where the range reaches both
        bounds, ``right`` counts as ``left + width``.
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
    # A base on a bound carries the whole range along.
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
