"""Derivatives of the moments of a bivariate normal on a box, as sums over nodes.

All ``to_...`` are derivatives of one scalar, the sum of the moments times the gradients
that autograd hands down, to what the name says.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from botorch_res.probability.integrand import NODES, Middle, Sides
from botorch_res.probability.integration_range import Base, Pieces
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
    """What the nodes of the middle, or of the sides, have to say.

    Attributes:
        to_slope: The slope, at fixed bounds of ``t`` at the base.
        to_scale: The logarithm of the conditional standard deviation, at fixed bounds
            and a fixed regression.
        to_base: The place of the base, at fixed bounds of ``t`` at the base.
        to_start: The start of each piece.
        to_stop: The stop of each piece.
    """

    to_slope: Tensor
    to_scale: Tensor
    to_base: Tensor
    to_start: Tensor
    to_stop: Tensor


class BoundChanges(NamedTuple):
    """What the bounds of ``t`` at the base change; ``batch_shape`` each.

    Attributes:
        to_low: The lower bound, its distance to the upper staying; None if one-sided.
        to_high: The upper bound, its distance to the lower staying.
        outwards: The distance, by mass added at the farther bound; None if one-sided.
    """

    to_low: Tensor | None
    to_high: Tensor
    outwards: Tensor | None


def middle_changes(
    d: Moments,
    d_log: Tensor,
    centre: Tensor,
    moments: Moments,
    middle: Middle,
    total: Tensor,
    pieces: Pieces,
    base: Base,
    slope: Tensor,
) -> Changes:
    """Sum over the middle, where all summands are polynomials in the node ``u``.

    Args:
        d: The gradients of the moments.
        d_log: The gradient of the log-probability.
        centre: What the logarithm of any node's mass changes, before its own part.
        moments: The moments.
        middle: The middle piece.
        total: The integral of the density.
        pieces: The pieces.
        base: The base.
        slope: The slope.

    Returns:
        The changes by the middle.
    """
    length = middle.length
    place = torch.addcmul(pieces.start, length, middle.mean)
    y, x = place - moments.y, slope * place - base.pull - moments.x
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
    z = base.z + place
    by_base = z * sum_0 + length * sum_1
    # A node moves by one if its piece does, by u if the stop does.
    by_node = y_0 + slope * x_0 - by_base
    by_far = (y_1 + slope * x_1) * middle.second - z * sum_1 - length * sum_2
    by_far = by_far + middle.mean * by_node
    density = middle.density / total
    share = density * length
    to_stop = share * by_far + density * sum_0
    # The second moment at the base is left out at the sides, see there.
    at_base = base.pull.square() * (d_log - share * sum_0)
    return Changes(
        to_slope=share * (x_0 * place + x_1 * length * middle.second),
        to_scale=2.0 * share * d.xx + at_base,
        to_base=-share * by_base,
        to_start=share * by_node - to_stop,
        to_stop=to_stop,
    )


def side_changes(
    d: Moments,
    centre: Tensor,
    moments: Moments,
    sides: Sides,
    pieces: Pieces,
    base: Base,
    slope: Tensor,
    thickness: Tensor,
) -> tuple[Changes, BoundChanges]:
    """Sum over the nodes of the sides, whose ``x`` and ``y`` must be centred.

    Args:
        d: The gradients of the moments.
        centre: What the logarithm of any node's mass changes, before its own part.
        moments: The moments.
        sides: The nodes, their mass a part of one.
        pieces: The pieces.
        base: The base.
        slope: The slope.
        thickness: The distance of the bounds of ``t``.

    Returns:
        The changes by the sides, and by the bounds of ``t``.
    """
    mass, y, x, inner = sides
    # What the logarithm of a node's mass, its x and its y change.
    to_x = torch.addcmul(d.x, d.xx, x).addcmul_(d.xy, y)
    to_y = torch.addcmul(d.y, d.yy, y)
    to_mass = torch.addcmul(centre, to_x, x).addcmul_(to_y, y)
    to_mass.addcmul_(d.xx, inner.variance).mul_(mass)
    to_x.addcmul_(d.xx, x).mul_(mass)
    to_y.addcmul_(d.yy, y).addcmul_(d.xy, x).mul_(mass)
    weight = mass * d.xx
    # What moving the mean of the inner variable changes, its bounds staying put.
    shift = (to_x * inner.variance).addcmul_(to_mass, inner.score)
    shift.addcmul_(weight, inner.third)
    # What scaling it changes, its mean and its bounds staying put: first its mean,
    scaling = torch.addcmul(inner.third, inner.variance, inner.score, value=2.0)
    scaling.mul_(to_x)
    # then its probability, by its second moment less that at the base, which may be
    # so huge that the rest would drown,
    change = torch.addcmul(x, slope, y, value=-1.0).add_(moments.x - slope * moments.y)
    change.mul_(change + 2.0 * base.pull).add_(inner.variance).sub_(1.0)
    scaling.addcmul_(to_mass, change)
    # then its variance.
    by_variance = torch.mul(inner.near, inner.third).add_(inner.variance, alpha=2.0)
    to_scale = scaling.addcmul_(weight, by_variance).sum((0, 1))
    shifts = shift.sum(1)
    by_side = (to_x.sum(1) - shifts).unbind()
    to_high, to_low, outwards = by_side[-1] - d.x * (base.high < 0.0), None, None
    if inner.far_density is not None and inner.to_far is not None:
        to_low = by_side[0] - d.x * (base.low > 0.0)
        edge = (inner.to_far.square() - inner.variance).mul_(weight)
        to_scale = to_scale - thickness * (edge * inner.far_density).sum((0, 1))
        edge.addcmul_(to_x, inner.to_far).add_(to_mass)
        outwards = edge.mul_(inner.far_density).sum((0, 1))
    # What moving the nodes changes.
    to_slope = (shift * y).sum((0, 1)) + moments.y * shifts.sum(0)
    by_base = (y + (base.z + moments.y)).mul_(to_mass)
    to_y.addcmul_(slope, shift).sub_(by_base)
    length = (pieces.side_stop - pieces.side_start).clamp_min_(1e-300)
    by_node = to_y.sum(1)
    to_stop = to_mass.sum(1) / length + to_y.mul_(column(NODES, slope)).sum(1)
    changes = Changes(
        to_slope=to_slope,
        to_scale=to_scale,
        to_base=by_base.sum((0, 1)).neg_(),
        to_start=by_node - to_stop,
        to_stop=to_stop,
    )
    return changes, BoundChanges(to_low, to_high, outwards)


def range_changes(
    middle: Changes, sides: Changes, to_base: Tensor, pieces: Pieces, base: Base
) -> tuple[Tensor, Tensor, Tensor]:
    """What the bounds of ``z`` change, by the pieces that start or stop there.

    Args:
        middle: The changes by the middle.
        sides: The changes by the sides.
        to_base: The place of the base.
        pieces: The pieces.
        base: The base.

    Returns:
        The changes by ``left``, ``right`` and ``width``; where the range reaches both
        bounds, ``right`` counts as ``left + width``.
    """
    ends = (
        (pieces.start.unsqueeze(0), middle.to_start.unsqueeze(0)),
        (pieces.stop.unsqueeze(0), middle.to_stop.unsqueeze(0)),
        (pieces.side_start, sides.to_start),
        (pieces.side_stop, sides.to_stop),
    )
    places, changes = (torch.cat(values) for values in zip(*ends, strict=True))
    at_first = places == pieces.first
    at_last = (places == pieces.last).logical_and(at_first.logical_not())
    to_first = (changes * at_first).sum(0) * pieces.at_left
    to_last = (changes * at_last).sum(0) * pieces.at_right
    zero = torch.zeros_like(to_base)
    # A base on a bound carries the whole range along.
    on_bound = base.on_left.logical_or(base.on_right)
    both = torch.where(on_bound, to_base, to_first + to_last)
    right = torch.where(base.on_left, to_last, both - to_first)
    reaches_both = pieces.at_left.logical_and(pieces.at_right)
    left = torch.where(pieces.at_left, both - right, zero)
    return (
        torch.where(reaches_both, both, left),
        torch.where(reaches_both, zero, right),
        torch.where(reaches_both, right, zero),
    )
