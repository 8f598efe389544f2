r"""Where to integrate a bivariate normal on a box: the range, and how it is split.

Standardised, the box is ``left <= z <= right`` and ``t + slope z <= high`` with ``z``
and ``t`` independent standard normal: ``z`` is the second variable in standard
deviations, ``t`` the first in conditional ones, ``slope = rho / sqrt(1 - rho^2) >= 0``.
With the pull ``p(z) = min(high - slope z, 0)`` the density of ``z`` is ``exp(-F(z))``,
``F(z) = (z^2 + p(z)^2) / 2``, times a factor that varies slowly. ``F`` is convex and
piecewise quadratic: its minimum (the base) and the points beyond which the density is
negligible are found in closed form.

The range is split where the bound on ``t`` starts to matter. Left of the split the
inner variable counts as unbounded, and its moments are those of the normal. The part
to the right, the edge, holds the transition. Without the split no sensible number of
nodes resolves a transition as narrow as ``1 / slope``.

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
# felt (error 8e-10), with 8.5 the nodes at the edge are too far apart (1e-10).
_UNBOUNDED_SIGMAS = 7.5


class Range(NamedTuple):
    """The base, to which all else is relative, and the range; ``batch_shape`` each.

    Attributes:
        base: The minimum of ``F``.
        on_left: Whether it is ``left``.
        on_right: Whether it is ``right`` (and not ``left``).
        high: The upper bound of ``t`` at the base.
        pull: The pull at the base, ``min(high, 0)``.
        first: Where the range starts, like the next two in ``y = z - base``.
        split: Where it is split.
        last: Where it stops.
        at_left: Whether it reaches ``left``.
        at_right: Whether it reaches ``right``.
    """

    base: Tensor
    on_left: Tensor
    on_right: Tensor
    high: Tensor
    pull: Tensor
    first: Tensor
    split: Tensor
    last: Tensor
    at_left: Tensor
    at_right: Tensor


def find_range(
    left: Tensor,
    right: Tensor,
    width: Tensor,
    high: Tensor,
    slope: Tensor,
    high_at_left: Tensor,
    high_at_right: Tensor,
) -> Range:
    """Find the base and the range of the integral; see the module's docstring.

    Bounds that are close together must not be subtracted, so the differences are given
    as well, made from the exact inputs. All are ``batch_shape``.

    Args:
        left: The lower bound of ``z``.
        right: The upper bound of ``z``.
        width: ``right - left``, positive.
        high: The upper bound of ``t + slope z``.
        slope: The slope, not negative.
        high_at_left: ``high - slope left``.
        high_at_right: ``high - slope right``.

    Returns:
        The range.
    """
    pull_at_peak = high.clamp_max(0.0) / (1.0 + slope.square())
    peak = slope * pull_at_peak
    on_left = peak <= left
    on_right = (peak >= right).logical_and(on_left.logical_not())

    def at_base(at_left: Tensor, at_right: Tensor, at_peak: Tensor) -> Tensor:
        return torch.where(on_left, at_left, torch.where(on_right, at_right, at_peak))

    base = at_base(left, right, peak)
    high = at_base(high_at_left, high_at_right, pull_at_peak + high.clamp_min(0.0))
    pull = high.clamp_max(0.0)
    slope = slope.clamp_min(1e-100)
    # Near the ridge of a strong correlation the bounds of t tell the distances from the
    # base to left and right more precisely.
    steep = (slope > 1.0) & (pull != 0.0)
    to_left = torch.where(steep, (high_at_left - high) / slope, base - left)
    to_right = torch.where(steep, (high - high_at_right) / slope, right - base)
    to_left = torch.where(on_right, width, to_left.clamp_min(0.0))
    to_right = torch.where(on_left, width, to_right.clamp_min(0.0))
    left_cut, right_cut = _cuts(base, high, pull, slope)
    first = -torch.minimum(to_left, left_cut)
    last = torch.minimum(to_right, right_cut)
    return Range(
        base=base,
        on_left=on_left,
        on_right=on_right,
        high=high,
        pull=pull,
        first=first,
        split=((high - _UNBOUNDED_SIGMAS) / slope).clamp(first, last),
        last=last,
        at_left=to_left <= left_cut,
        at_right=to_right <= right_cut,
    )


def _cuts(
    base: Tensor, high: Tensor, pull: Tensor, slope: Tensor
) -> tuple[Tensor, ...]:
    """The distances, left and right of the base, at which the density is negligible."""
    # F has the curvature 1 + slope^2 where the bound pulls and 1 where it does not. To
    # the left the pull ends, to the right it begins, at most once each.
    pulled = 1.0 + slope.square()
    free = torch.ones_like(pulled)
    derivative = base - slope * pull
    derivative = torch.stack((-derivative, derivative)).clamp_min_(0.0)
    curvature = torch.stack((pulled, free))
    limit = torch.stack((-pull, high.clamp_min(0.0))) / slope
    rise = torch.full_like(derivative, _NEGLIGIBLE_RISE)
    step = torch.minimum(_rise_distance(derivative, curvature, rise), limit)
    rise = (rise - step * (derivative + 0.5 * curvature * step)).clamp_min_(0.0)
    derivative = derivative + curvature * step
    curvature = torch.stack((free, pulled))
    return (step + _rise_distance(derivative, curvature, rise)).unbind()


def _rise_distance(derivative: Tensor, curvature: Tensor, rise: Tensor) -> Tensor:
    """How far a quadratic goes before it has risen by ``rise``."""
    root = (derivative.square() + 2.0 * curvature * rise).sqrt()
    return 2.0 * rise / (derivative + root)
