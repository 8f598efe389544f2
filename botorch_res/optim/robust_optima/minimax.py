r"""The smallest maximum of a few quadratics in a box, for many problems at once.

    min over u in [0, 1]^n of max over k of  q_k(u) = v_k + g_k.u + u.B_k u / 2

is the local model of a robust optimum, with one quadratic for each local worst case.
Linear constraints ``N u + c >= 0`` may be given in addition. If the problem has
constraints that hold in the worst case, their local worst cases are quadratics ``r_j``,
and the largest of them is penalised where it is positive,

    min over u of  max over k of q_k(u) + penalty max(0, max over j of r_j(u)).

In one dimension, all possible places of the minimum are compared: the ends, the
vertices of the parabolas and their intersections. In more dimensions, a primal-dual
interior-point method runs for a fixed number of iterations.

References:
.. [Nocedal2006numerical]
    J. Nocedal and S. J. Wright. Numerical Optimization. Springer, 2006. Chapter 19.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from botorch_res.optim.worst_cases.newton import solve_modified

# Iterations of the interior-point method. In about one problem of a thousand they leave
# an error above 1e-5 of the quadratics' range, at most a few percent. This is enough:
# the search only tries the point, and minimises again from the better of two points.
NUM_ITERATIONS = 12
# With a penalty, 16 leave an error of up to 1e-4, and these 1e-6.
NUM_PENALTY_ITERATIONS = 20
# The next target for the complementarity products, relative to their mean, and the
# share of the way to the boundary that a step may go. Textbook values.
CENTERING = 0.1
TO_BOUNDARY = 0.99
# The least slack of a linear constraint at the start. The start may violate it.
LEAST_SLACK = 0.1


# The penalty of a positive constraint, in units of the objective's change in the box
# over the constraints' change. Below, a minimum can violate constraints that can be
# met. Above, the interior-point method needs more iterations.
PENALTY_RANGE = (10.0, 1e3)


class Quadratics(NamedTuple):
    """Quadratics ``v + g.u + u.B u / 2`` of ``n`` variables.

    Attributes:
        value: ``... x k`` constants ``v``.
        gradient: ``... x k x n`` slopes ``g``.
        hessian: ``... x k x n x n`` curvatures ``B``, which need not be convex.
    """

    value: Tensor
    gradient: Tensor
    hessian: Tensor

    @property
    def size(self) -> Tensor:
        """How much they change in the unit cube, ``... x 1``."""
        # In a corner that is a smooth minimum, all gradients are zero.
        size = torch.maximum(
            self.gradient.abs().sum(-1), self.hessian.abs().sum(dim=(-2, -1))
        )
        size = size.amax(dim=-1, keepdim=True)
        return size.clamp_min(torch.finfo(size.dtype).tiny ** 0.5)

    def scaled(self, size: Tensor) -> Quadratics:
        """Scale to numbers of order one.

        Then each quadratic is within 1.5 of its constant. One whose constant is 3 below
        the largest is never the maximum, so how far below it is does not matter.

        Args:
            size: The ``... x 1`` unit.

        Returns:
            The quadratics in this unit, moved so that the largest constant is zero.
        """
        value = (self.value - self.value.amax(dim=-1, keepdim=True)) / size
        return Quadratics(
            value.clamp_min(-3.0),
            self.gradient / size[..., None],
            self.hessian / size[..., None, None],
        )

    def with_zero(self) -> Quadratics:
        """Add one that is zero everywhere, in front."""
        return Quadratics(
            pad(self.value, (1, 0)),
            pad(self.gradient, (0, 0, 1, 0)),
            pad(self.hessian, (0, 0, 0, 0, 1, 0)),
        )


def minimize_maximum(
    value: Tensor,
    gradient: Tensor,
    hessian: Tensor,
    normals: Tensor | None = None,
    slack: Tensor | None = None,
    constraints: Quadratics | None = None,
    penalty: Tensor | None = None,
) -> Tensor:
    r"""Minimise the maximum of quadratics over the unit cube.

    Args:
        value: ``... x k`` constants ``v``.
        gradient: ``... x k x n`` slopes ``g``.
        hessian: ``... x k x n x n`` curvatures ``B``, which need not be convex.
        normals: ``... x m x n`` coefficients ``N`` of constraints ``N u + c >= 0``.
        slack: Their ``... x m`` constants ``c``.
        constraints: Quadratics ``r_j`` that should be at most zero, if any.
        penalty: The ``... x 1`` price of the largest of them where it is positive.

    Returns:
        The ``... x n`` minimisers. They violate the linear constraints by up to the
        error of the method.
    """
    if normals is None or slack is None:
        normals, slack = gradient[..., :0, :], value[..., :0]
    # The sum of the maxima of one or two groups.
    groups = [Quadratics(value, gradient, hessian)]
    prices = [torch.ones_like(value[..., :1])]
    if constraints is not None and penalty is not None:
        groups.append(constraints.with_zero())
        prices.append(penalty)
    if gradient.shape[-1] == 1:
        low, high = _interval(normals[..., 0], slack)
        return _compare_candidates(groups, prices, low, high)
    return _interior_point(groups, prices, normals, slack)


def _interval(normal: Tensor, slack: Tensor) -> tuple[Tensor, Tensor]:
    """The ends of the part of the unit interval that satisfies constraints."""
    if slack.shape[-1] == 0:
        return slack.new_zeros(1), slack.new_ones(1)
    end = _divide(-slack, normal)
    zero, one = torch.zeros_like(end), torch.ones_like(end)
    low = pad(torch.where(normal > 0.0, end, zero), (0, 1), value=0.0)
    high = pad(torch.where(normal < 0.0, end, one), (0, 1), value=1.0)
    low, high = low.amax(dim=-1, keepdim=True), high.amin(dim=-1, keepdim=True)
    return low.clamp(0.0, 1.0), high.clamp(0.0, 1.0)


def _compare_candidates(
    groups: list[Quadratics], prices: list[Tensor], low: Tensor, high: Tensor
) -> Tensor:
    """Minimise the sum of maxima of parabolas over an interval, exactly."""
    parabolas = [(v, g[..., 0], B[..., 0, 0]) for v, g, B in groups]
    places = [_places(*own) for own in parabolas]
    u = torch.cat(places, dim=-1).clamp(0.0, 1.0)
    low, high = low.expand_as(u[..., :1]), high.expand_as(u[..., :1])
    u = torch.cat([low, high, torch.minimum(torch.maximum(u, low), high)], dim=-1)
    u = u.unsqueeze(-1)
    total = u.new_zeros(())
    for (value, slope, bend), price in zip(parabolas, prices, strict=True):
        q = slope.unsqueeze(-2) + 0.5 * u * bend.unsqueeze(-2)
        q = value.unsqueeze(-2) + u * q
        total = total + price.unsqueeze(-1) * q.amax(dim=-1, keepdim=True)
    best = total.argmin(dim=-2, keepdim=True)
    return u.take_along_dim(best, dim=-2).squeeze(-2)


def _places(value: Tensor, slope: Tensor, bend: Tensor) -> Tensor:
    """The vertices of parabolas and the places where two of them cross."""
    a = 0.5 * (bend.unsqueeze(-1) - bend.unsqueeze(-2))
    b = slope.unsqueeze(-1) - slope.unsqueeze(-2)
    c = value.unsqueeze(-1) - value.unsqueeze(-2)
    root = (b.square() - 4.0 * a * c).clamp_min(0.0).sqrt()
    # The stable form of both roots. A division by zero gives a point that is clamped.
    half = -0.5 * (b + torch.copysign(root, b))
    crossings = torch.cat([_divide(half, a), _divide(c, half)], dim=-1).flatten(-2)
    return torch.cat([_divide(-slope, bend), crossings], dim=-1)


def _divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Divide, with a finite result where the denominator is zero."""
    tiny = torch.finfo(denominator.dtype).tiny ** 0.5
    return numerator / torch.copysign(denominator.abs().clamp_min(tiny), denominator)


def _interior_point(
    groups: list[Quadratics], prices: list[Tensor], normals: Tensor, slack: Tensor
) -> Tensor:
    """Minimise the sum of maxima of quadratics by an interior-point method."""
    # With the maximum s of a group as a variable, the constraints are
    # y_k = s - q_k(u) >= 0, with multipliers p_k that add up to the price of the group,
    # and 0 <= u <= 1. Each iteration is one Newton step on the perturbed optimality
    # conditions, after elimination of s, the slacks and the multipliers. Linear
    # constraints are y_j = -q_j(u) >= 0 with q_j = -N_j.u - c_j, without any s.
    batch, n = groups[0].value.shape[:-1], normals.shape[-1]
    sizes = [group.size for group in groups]
    parts = [group.scaled(size) for group, size in zip(groups, sizes, strict=True)]
    length = normals.norm(dim=-1).clamp_min(torch.finfo(slack.dtype).tiny ** 0.5)
    linear = Quadratics(
        (-slack / length).expand(*batch, -1),
        (-normals / length.unsqueeze(-1)).expand(*batch, -1, -1),
        normals.new_zeros(()).expand(*batch, length.shape[-1], n, n),
    )
    # The rows of each group. Those of linear constraints come last.
    counts = [part.value.shape[-1] for part in parts]
    ends = list(accumulate(counts))
    rows = [slice(end - k, end) for k, end in zip(counts, ends, strict=True)]

    # The batch of problems comes last, contiguous in memory.
    def transposed(tensors: Iterable[Tensor]) -> Tensor:
        joined = torch.cat(list(tensors), dim=len(batch))
        flat = joined.reshape(-1, *joined.shape[len(batch) :])
        return flat.movedim(0, -1).contiguous()

    v, g, B = (transposed(columns) for columns in zip(*parts, linear, strict=True))
    k = len(v)
    totals = [
        (price * size / sizes[0]).clamp(*PENALTY_RANGE).reshape(-1)
        for price, size in zip(prices, sizes, strict=True)
    ]
    totals[0] = torch.ones_like(totals[0])

    u = torch.full_like(g[0], 0.5)
    bend = (B * u).sum(dim=2)
    q = v + ((g + 0.5 * bend) * u).sum(dim=1)
    s = [q[own].amax(dim=0) + 1.0 for own in rows]
    y = _heights(q, s, rows).clamp_min(LEAST_SLACK)
    p = torch.full_like(q, 1.0 / k)
    # The distances from both faces in each coordinate, and their multipliers.
    sides, force = torch.stack([u, 1.0 - u]), u.new_ones(2, *u.shape)
    for _ in range(NUM_ITERATIONS if len(groups) == 1 else NUM_PENALTY_ITERATIONS):
        slope = g + bend
        residual = _heights(q, s, rows) - y
        products = (p * y).sum(dim=0) + (force * sides).sum(dim=(0, 1))
        target = CENTERING / (k + 2 * n) * products
        ratio, side_ratio = p / y, force / sides
        pushed, side_pushed = target / y - ratio * residual, target / sides
        sums = [ratio[own].sum(dim=0) for own in rows]
        means = [
            (ratio[own].unsqueeze(1) * slope[own]).sum(dim=0) / total
            for own, total in zip(rows, sums, strict=True)
        ]
        excess = [
            pushed[own].sum(dim=0) - total
            for own, total in zip(rows, totals, strict=True)
        ]
        centered = torch.cat(
            [slope[own] - mean for own, mean in zip(rows, means, strict=True)]
            + [slope[ends[-1] :]]
        )
        weighted = ratio.unsqueeze(1) * centered
        matrix = (p[:, None, None] * B).sum(dim=0)
        matrix = matrix + (weighted.unsqueeze(2) * centered.unsqueeze(1)).sum(dim=0)
        matrix.diagonal().add_(side_ratio.sum(dim=0).mT)
        pull = [own * mean for own, mean in zip(excess, means, strict=True)]
        rhs = sum(pull[1:], start=pull[0]) - (pushed.unsqueeze(1) * slope).sum(dim=0)
        rhs = rhs + side_pushed[0] - side_pushed[1]
        du = solve_modified(matrix.movedim(-1, 0), rhs.mT.unsqueeze(-1)).squeeze(-1).mT
        ds = [
            own / total + (mean * du).sum(dim=0)
            for own, total, mean in zip(excess, sums, means, strict=True)
        ]
        dh = _heights((slope * du).sum(dim=1), ds, rows)
        dy, dp = dh + residual, pushed - p - ratio * dh
        dsides = torch.stack([du, -du])
        dforce = side_pushed - force - side_ratio * dsides
        # The longest step that keeps slacks and multipliers positive.
        rate = torch.maximum((-dy / y).amax(dim=0), (-dp / p).amax(dim=0))
        side_rate = torch.maximum(-dsides / sides, -dforce / force).amax(dim=(0, 1))
        rate = torch.maximum(rate, side_rate).clamp_min(TO_BOUNDARY)
        length = TO_BOUNDARY / rate
        u = u + length * du
        s = [own + length * step for own, step in zip(s, ds, strict=True)]
        y, p = y + length * dy, p + length * dp
        sides, force = sides + length * dsides, force + length * dforce
        bend = (B * u).sum(dim=2)
        q = v + ((g + 0.5 * bend) * u).sum(dim=1)
    # An interior point never reaches a face. Its multipliers tell where it would.
    below, above = force > sides
    u = torch.where(below, torch.zeros_like(u), u)
    u = torch.where(above, torch.ones_like(u), u)
    return u.movedim(-1, 0).reshape(*batch, n)


def _heights(q: Tensor, tops: list[Tensor], rows: list[slice]) -> Tensor:
    """How far ``k x b`` values are below the tops of their groups, or below zero."""
    parts = [top - q[own] for top, own in zip(tops, rows, strict=True)]
    return torch.cat([*parts, -q[rows[-1].stop :]])
