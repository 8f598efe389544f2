"""The integrand of a bivariate normal on a box, at the nodes of its pieces."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from botorch_res.probability.integration_range import Base, Box, Pieces, from_pull
from botorch_res.probability.interval import interval_moments
from botorch_res.probability.lower_bound import moments_above
from botorch_res.probability.quadrature import (
    column,
    constants,
    transplanted_gauss_legendre,
)

# Measured on the 2000 boxes of tests/data/truncated_bvn.npz, the largest relative error
# of a variance is 2e-8 with 24 nodes, 3e-11 with 28 and 2e-12 with 32.
NODES, WEIGHTS = transplanted_gauss_legendre(28)
# Weights times powers of the nodes.
_POWERS = tuple(w * u**k for k in range(5) for u, w in zip(NODES, WEIGHTS, strict=True))


class Middle(NamedTuple):
    """The middle piece, where ``x`` is linear in ``z``; ``batch_shape`` each.

    All sums over its nodes, those of the derivatives too, are sums of the moments of
    its node ``u`` on the unit interval.

    Attributes:
        length: Its length.
        density: Its mean density, relative to the base.
        mean: The mean of ``u``.
        second: The second central moment of ``u``.
        third: The third one.
        fourth: The fourth one.
    """

    length: Tensor
    density: Tensor
    mean: Tensor
    second: Tensor
    third: Tensor
    fourth: Tensor


def integrate_middle(pieces: Pieces, base: Base) -> Middle:
    """Integrate over the middle piece.

    Args:
        pieces: The pieces.
        base: The base.

    Returns:
        The moments of its node.
    """
    length = pieces.stop - pieces.start
    y = torch.addcmul(pieces.start, length, column(NODES, length))
    mass = y.mul(-0.5).sub_(base.z).mul_(y).add_(0.5 * base.pull.square())
    # The density only exceeds that of the base where the piece is empty.
    mass.clamp_max_(1.0).exp_()
    powers = constants(_POWERS, length).view(5, -1)
    density, *moments = torch.tensordot(powers, mass, dims=1).unbind()
    mean, second, third, fourth = (m / density.clamp_min(1e-300) for m in moments)
    square = mean.square()
    return Middle(
        length=length,
        density=density,
        mean=mean,
        second=(second - square).clamp_min_(0.0),
        third=third - mean * (3.0 * second - 2.0 * square),
        fourth=fourth - mean * (4.0 * third - mean * (6.0 * second - 3.0 * square)),
    )


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


class Sides(NamedTuple):
    """The nodes of the sides, ``num_sides x num_nodes x batch_shape`` each.

    Attributes:
        mass: The weight times the density, relative to the base.
        y: The place.
        x: The mean of the first variable, in conditional standard deviations.
        inner: The inner variable.
    """

    mass: Tensor
    y: Tensor
    x: Tensor
    inner: Inner


def evaluate_sides(box: Box, pieces: Pieces, base: Base, one_sided: bool) -> Sides:
    """Evaluate the integrand on the sides.

    Args:
        box: The box.
        pieces: The pieces.
        base: The base.
        one_sided: Whether there is no lower bound on ``t``.

    Returns:
        The nodes.
    """
    length = (pieces.side_stop - pieces.side_start).unsqueeze(1)
    y = torch.addcmul(pieces.side_start.unsqueeze(1), length, column(NODES, box.slope))
    x = box.slope * y
    inner = _one_bound(x, base) if one_sided else _two_bounds(x, base, box)
    mass = y.mul(-0.5).sub_(base.z).mul_(y).sub_(_pull_rise(x, -base.high))
    if not one_sided:
        mass.sub_(_pull_rise(-x, base.low))
    mass.exp_().mul_(column(WEIGHTS, box.slope)).mul_(inner.scaled_prob).mul_(length)
    # The conditional mean, moved by the truncation.
    x.sub_(base.pull)
    low, high = from_pull(base.low, base.high, box.thickness)
    torch.minimum(x, high, out=x)
    if not one_sided:
        torch.maximum(x, low, out=x)
    x.add_(inner.offset)
    return Sides(mass=mass, y=y, x=x, inner=inner)


def _one_bound(shift: Tensor, base: Base) -> Inner:
    """The inner variable below an upper bound."""
    near = shift - base.high
    moments = moments_above(near)
    return Inner(
        scaled_prob=moments.scaled_prob,
        offset=moments.offset.neg_(),
        near=near.neg_(),
        score=moments.hazard.neg_(),
        variance=moments.variance,
        third=moments.third.neg_(),
        far_density=None,
        to_far=None,
    )


def _two_bounds(shift: Tensor, base: Base, box: Box) -> Inner:
    """The inner variable between two bounds."""
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
    pull = bound.clamp_min(0.0)
    change = torch.maximum(shift + bound.clamp_max(0.0), -pull)
    return (0.5 * change).add_(pull).mul_(change)
