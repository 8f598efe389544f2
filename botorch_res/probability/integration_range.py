r"""Where to integrate a bivariate normal on a box: the range, and how it is split.

Standardised, the box is ``left <= z <= right`` and ``t + slope z <= high``. Here ``z``
and ``t`` are independent standard normal: ``z`` is the second variable in standard
deviations, ``t`` the first in conditional ones, ``slope = rho / sqrt(1 - rho^2) >= 0``.
With the pull ``p(z) = min(high - slope z, 0)``, the density of ``z`` is ``exp(-F(z))``,
``F(z) = (z^2 + p(z)^2) / 2``, times a factor that varies slowly. ``F`` is convex and
piecewise quadratic. Its minimum (the base), and the points beyond which the density is
negligible, have closed forms.

The range is split where the bound on ``t`` starts to matter. Left of the split, in the
middle, the inner variable counts as unbounded and has the moments of the normal. The
part to the right, the edge, contains the transition. Without the split, no reasonable
number of nodes resolves a transition as narrow as ``1 / slope``.

Two numbers fix the range and the split. They were chosen by the largest relative error
of a variance over the 2000 boxes of ``tests/data/truncated_bvn.npz``, with the 28 nodes
of ``integrand``. With the values below it is 3e-11.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# The range ends where F has risen by this much. With 30 too much is cut off (error
# 1e-10). With 38 the nodes are too far apart (3e-10).
_NEGLIGIBLE_RISE = 34.0
# A bound this many standard deviations away counts as none. With 6.5 it still matters
# (error 8e-10). With 8.5 the nodes of the edge are too far apart (1e-10).
_UNBOUNDED_SIGMAS = 7.5


class Range(NamedTuple):
    """The base and the range, relative to the base; ``batch_shape`` each.

    Attributes:
        base: The minimum of ``F``.
        on_left: Whether the base is ``left``.
        on_right: Whether the base is ``right`` (and not ``left``).
        high: The upper bound of ``t`` at the base.
        pull: The pull at the base, ``min(high, 0)``.
        first: Where the range starts. This and the next two are values of
            ``y = z - base``.
        split: Where the range is split.
        last: Where the range stops.
        at_left: Whether the range reaches ``left``.
        at_right: Whether the range reaches ``right``.
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

    Subtracting two close bounds would lose digits. The caller therefore also gives the
    differences, computed from the original inputs. All arguments are ``batch_shape``.

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
    # Near the ridge of a strong correlation, the bounds of t give the distances from
    # the base to left and right more precisely.
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
    # F has the curvature 1 + slope^2 where the bound pulls, and 1 elsewhere. Going left
    # the pull ends, going right it begins, each at most once.
    pulled = 1.0 + slope.square()
    free = torch.ones_like(pulled)
    derivative = base - slope * pull
    derivative = torch.stack((-derivative, derivative)).clamp_min_(0.0)
    curvature = torch.stack((pulled, free))
    turn = torch.stack((-pull, high.clamp_min(0.0))) / slope
    rise = torch.full_like(derivative, _NEGLIGIBLE_RISE)
    step = torch.minimum(_rise_distance(derivative, curvature, rise), turn)
    rise = (rise - step * (derivative + 0.5 * curvature * step)).clamp_min_(0.0)
    derivative = derivative + curvature * step
    curvature = torch.stack((free, pulled))
    return (step + _rise_distance(derivative, curvature, rise)).unbind()


def _rise_distance(derivative: Tensor, curvature: Tensor, rise: Tensor) -> Tensor:
    """The distance over which a quadratic rises by ``rise``."""
    root = (derivative.square() + 2.0 * curvature * rise).sqrt()
    return 2.0 * rise / (derivative + root)
