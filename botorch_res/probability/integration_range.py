r"""Where to integrate a bivariate normal on a box: the range, and how it is split.

Standardised, the box is ``left <= z <= right`` and ``low <= t + slope z <= high`` with
``z`` and ``t`` independent standard normal: ``z`` is the second variable in standard
deviations, ``t`` the first in conditional ones, ``slope = rho / sqrt(1 - rho^2) >= 0``.
With the pull ``p(z)``, the point of ``[low - slope z, high - slope z]`` next to zero,
the density of ``z`` is ``exp(-F(z))``, ``F(z) = (z^2 + p(z)^2) / 2``, times a factor
that varies slowly. ``F`` is convex and piecewise quadratic: its minimum (the base) and
the points beyond which the density is negligible are found in closed form.

The range is split where a bound on ``t`` is so far away that it no longer matters. In
the middle the inner variable counts as unbounded, and its moments are those of the
normal. Each side holds the transition of one bound. Without the split no sensible
number of nodes resolves a transition as narrow as ``1 / slope``.

Two numbers fix the range and the split. Both were chosen by the largest relative error
of a variance over the 2000 boxes of ``tests/data/truncated_bvn.npz``, with the 28 nodes
of ``integrand``; it is 3e-11 with the values below.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# The range ends where F has risen by this much. With 30 too much is cut off (error
# 1e-10), with 38 the nodes are too far apart (3e-10).
_NEGLIGIBLE_RISE = 34.0
# A bound this many standard deviations away counts as none. With 6.5 it would still be
# felt (error 8e-10), with 8.5 the nodes at the sides are too far apart (1e-10).
_UNBOUNDED_SIGMAS = 7.5


class Box(NamedTuple):
    """A standardised box, see the module's docstring; all tensors ``batch_shape``.

    Bounds that are close together must not be subtracted, so the differences are given
    as well, made from the exact inputs.

    Attributes:
        left: The lower bound of ``z``.
        right: The upper bound of ``z``.
        low: The lower bound of ``t + slope z``.
        high: The upper bound of ``t + slope z``.
        slope: The slope, not negative.
        width: ``right - left``, positive.
        thickness: ``high - low``, positive.
        low_at_left: ``low - slope left``.
        low_at_right: ``low - slope right``.
        high_at_left: ``high - slope left``.
        high_at_right: ``high - slope right``.
    """

    left: Tensor
    right: Tensor
    low: Tensor
    high: Tensor
    slope: Tensor
    width: Tensor
    thickness: Tensor
    low_at_left: Tensor
    low_at_right: Tensor
    high_at_left: Tensor
    high_at_right: Tensor


class Base(NamedTuple):
    """The minimum of ``F``, to which everything is relative; ``batch_shape`` each.

    Attributes:
        z: Its place.
        on_left: Whether it is ``left``.
        on_right: Whether it is ``right`` (and not ``left``).
        low: The lower bound of ``t`` at the base.
        high: The upper bound of ``t`` at the base.
        pull: The point of ``[low, high]`` next to zero.
    """

    z: Tensor
    on_left: Tensor
    on_right: Tensor
    low: Tensor
    high: Tensor
    pull: Tensor


class Pieces(NamedTuple):
    """The pieces of the outer integral, in ``y = z - base.z``.

    These are the middle, the right side and, unless the box is one-sided, the left
    side.

    Attributes:
        first: Where the range starts, ``batch_shape``.
        last: Where it stops, ``batch_shape``.
        start: Where the middle starts, ``batch_shape``.
        stop: Where it stops, ``batch_shape``.
        side_start: Where the sides start, ``num_sides x batch_shape``.
        side_stop: Where they stop, ``num_sides x batch_shape``.
        at_left: Whether the range reaches ``left``, ``batch_shape``.
        at_right: Whether the range reaches ``right``, ``batch_shape``.
    """

    first: Tensor
    last: Tensor
    start: Tensor
    stop: Tensor
    side_start: Tensor
    side_stop: Tensor
    at_left: Tensor
    at_right: Tensor


def find_base(box: Box) -> Base:
    """Find the minimum of ``F`` on the box.

    Args:
        box: The box.

    Returns:
        The base.
    """
    pull = box.low.clamp_min(0.0) + box.high.clamp_max(0.0)
    pull_at_peak = pull / (1.0 + box.slope.square())
    peak = box.slope * pull_at_peak
    on_left = peak <= box.left
    on_right = (peak >= box.right).logical_and(on_left.logical_not())

    def at_base(at_left: Tensor, at_right: Tensor, at_peak: Tensor) -> Tensor:
        return torch.where(on_left, at_left, torch.where(on_right, at_right, at_peak))

    low, high = from_pull(box.low, box.high, box.thickness)
    low = at_base(box.low_at_left, box.low_at_right, pull_at_peak + low)
    high = at_base(box.high_at_left, box.high_at_right, pull_at_peak + high)
    return Base(
        z=at_base(box.left, box.right, peak),
        on_left=on_left,
        on_right=on_right,
        low=low,
        high=high,
        pull=low.clamp_min(0.0) + high.clamp_max(0.0),
    )


def from_pull(low: Tensor, high: Tensor, thickness: Tensor) -> tuple[Tensor, Tensor]:
    """Two bounds measured from their point next to zero, without subtracting them.

    Args:
        low: The lower bound.
        high: The upper bound.
        thickness: Their difference.

    Returns:
        The lower and the upper bound, relative to ``clamp(0, low, high)``.
    """
    return (
        torch.maximum(low.clamp_max(0.0), -thickness),
        torch.minimum(high.clamp_min(0.0), thickness),
    )


def split_range(box: Box, base: Base, one_sided: bool) -> Pieces:
    """Find the range of the integral, and split it.

    Args:
        box: The box.
        base: Its base.
        one_sided: Whether there is no lower bound on ``t`` at all.

    Returns:
        The pieces.
    """
    slope = box.slope.clamp_min(1e-100)
    to_left, to_right = _gaps(box, base, slope)
    left_cut, right_cut = _cuts(box, base, slope)
    first = -torch.minimum(to_left, left_cut)
    last = torch.minimum(to_right, right_cut)
    # The middle is where both bounds are far away. Where they are too close together
    # for that, the sides meet half-way.
    start, stop = first, (base.high - _UNBOUNDED_SIGMAS) / slope
    if not one_sided:
        half_way = (base.high + base.low) / (2.0 * slope)
        start = torch.minimum((base.low + _UNBOUNDED_SIGMAS) / slope, half_way).clamp(
            first, last
        )
        stop = torch.maximum(stop, half_way)
    stop = stop.clamp(first, last)
    left_side, right_side = (first, start), (stop, last)
    sides = (right_side,) if one_sided else (left_side, right_side)
    return Pieces(
        first=first,
        last=last,
        start=start,
        stop=stop,
        side_start=torch.stack([side[0] for side in sides]),
        side_stop=torch.stack([side[1] for side in sides]),
        at_left=to_left <= left_cut,
        at_right=to_right <= right_cut,
    )


def _gaps(box: Box, base: Base, slope: Tensor) -> tuple[Tensor, Tensor]:
    """The distances from the base to ``left`` and ``right``."""
    zero = torch.zeros_like(box.width)
    # Near the ridge of a strong correlation the bounds of t tell them more precisely.
    from_low = base.low > 0.0
    steep = (slope > 1.0) & (base.pull != 0.0)
    to_left = torch.where(
        from_low, box.low_at_left - base.low, box.high_at_left - base.high
    )
    to_right = torch.where(
        from_low, base.low - box.low_at_right, base.high - box.high_at_right
    )
    to_left = torch.where(steep, to_left / slope, base.z - box.left)
    to_right = torch.where(steep, to_right / slope, box.right - base.z)
    to_left = torch.where(base.on_right, box.width, to_left.clamp_min(0.0))
    to_right = torch.where(base.on_left, box.width, to_right.clamp_min(0.0))
    return (
        torch.where(base.on_left, zero, to_left),
        torch.where(base.on_right, zero, to_right),
    )


def _cuts(box: Box, base: Base, slope: Tensor) -> tuple[Tensor, Tensor]:
    """The distances to both sides of the base at which the density is negligible."""
    # Going away from the base, F is quadratic with curvature 1 + slope^2 where a bound
    # pulls and 1 where none does. There are at most three such stretches.
    pulled_low, pulled_high = base.low.clamp_min(0.0), base.high.clamp_max(0.0)
    steep = 1.0 + slope.square()
    derivative = base.z - slope * base.pull
    derivative = torch.stack((-derivative, derivative)).clamp_min_(0.0)
    pulled = torch.stack((-pulled_high, pulled_low)) / slope
    free = torch.stack((pulled_high - base.low, base.high - pulled_low))
    free = free.clamp_min_(0.0) / slope
    rise = torch.full_like(derivative, _NEGLIGIBLE_RISE)
    distance = torch.zeros_like(derivative)
    for curvature, limit in ((steep, pulled), (torch.ones_like(steep), free)):
        step = torch.minimum(_rise_distance(derivative, curvature, rise), limit)
        rise = (rise - step * (derivative + 0.5 * curvature * step)).clamp_min_(0.0)
        derivative = derivative + curvature * step
        distance = distance + step
    distance = distance + _rise_distance(derivative, steep, rise)
    left, right = distance.unbind()
    return left, right


def _rise_distance(derivative: Tensor, curvature: Tensor, rise: Tensor) -> Tensor:
    """How far a quadratic goes before it has risen by ``rise``."""
    root = (derivative.square() + 2.0 * curvature * rise).sqrt()
    return 2.0 * rise / (derivative + root)
