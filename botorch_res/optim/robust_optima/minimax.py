r"""The smallest maximum of a few quadratics in a box, for many problems at once.

    min over u in [0, 1]^n of max over k of  q_k(u) = v_k + g_k.u + u.B_k u / 2

is the local model of a robust optimum, with one quadratic for each local worst case.
Linear constraints ``N u + c >= 0`` may be given in addition. In
one dimension, all possible places of the minimum are compared: the ends, the vertices
of the parabolas and their intersections. In more dimensions, a primal-dual
interior-point method runs for a fixed number of iterations.

References:
.. [Nocedal2006numerical]
    J. Nocedal and S. J. Wright. Numerical Optimization. Springer, 2006. Chapter 19.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from botorch_res.optim.worst_cases.newton import solve_modified

# Iterations of the interior-point method. In about one problem of a thousand they leave
# an error above 1e-5 of the quadratics' range, at most a few percent. This is enough:
# the search only tries the point, and minimises again from the better of two points.
NUM_ITERATIONS = 12
# The next target for the complementarity products, relative to their mean, and the
# share of the way to the boundary that a step may go. Textbook values.
CENTERING = 0.1
TO_BOUNDARY = 0.99
# The least slack of a linear constraint at the start. The start may violate it.
LEAST_SLACK = 0.1


def minimize_maximum(
    value: Tensor,
    gradient: Tensor,
    hessian: Tensor,
    normals: Tensor | None = None,
    slack: Tensor | None = None,
) -> Tensor:
    r"""Minimise the maximum of quadratics over the unit cube.

    Args:
        value: ``... x k`` constants ``v``.
        gradient: ``... x k x n`` slopes ``g``.
        hessian: ``... x k x n x n`` curvatures ``B``, which need not be convex.
        normals: ``... x m x n`` coefficients ``N`` of constraints ``N u + c >= 0``.
        slack: Their ``... x m`` constants ``c``.

    Returns:
        The ``... x n`` minimisers. They violate the constraints by up to the error of
        the method.
    """
    if normals is None or slack is None:
        normals, slack = gradient[..., :0, :], value[..., :0]
    if gradient.shape[-1] == 1:
        low, high = _interval(normals[..., 0], slack)
        return _compare_candidates(
            value, gradient[..., 0], hessian[..., 0, 0], low, high
        )
    return _interior_point(value, gradient, hessian, normals, slack)


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
    value: Tensor, slope: Tensor, bend: Tensor, low: Tensor, high: Tensor
) -> Tensor:
    """Minimise the maximum of parabolas over an interval, exactly."""
    a = 0.5 * (bend.unsqueeze(-1) - bend.unsqueeze(-2))
    b = slope.unsqueeze(-1) - slope.unsqueeze(-2)
    c = value.unsqueeze(-1) - value.unsqueeze(-2)
    root = (b.square() - 4.0 * a * c).clamp_min(0.0).sqrt()
    # The stable form of both roots. A division by zero gives a point that is clamped.
    half = -0.5 * (b + torch.copysign(root, b))
    crossings = torch.cat([_divide(half, a), _divide(c, half)], dim=-1).flatten(-2)
    u = torch.cat([_divide(-slope, bend), crossings], dim=-1).clamp(0.0, 1.0)
    low, high = low.expand_as(u[..., :1]), high.expand_as(u[..., :1])
    u = torch.cat([low, high, torch.minimum(torch.maximum(u, low), high)], dim=-1)
    u = u.unsqueeze(-1)
    q = value.unsqueeze(-2) + u * (slope.unsqueeze(-2) + 0.5 * u * bend.unsqueeze(-2))
    best = q.amax(dim=-1, keepdim=True).argmin(dim=-2, keepdim=True)
    return u.take_along_dim(best, dim=-2).squeeze(-2)


def _divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Divide, with a finite result where the denominator is zero."""
    tiny = torch.finfo(denominator.dtype).tiny ** 0.5
    return numerator / torch.copysign(denominator.abs().clamp_min(tiny), denominator)


def _interior_point(
    value: Tensor, gradient: Tensor, hessian: Tensor, normals: Tensor, slack: Tensor
) -> Tensor:
    """Minimise the maximum of quadratics by an interior-point method."""
    # With the maximum s as a variable, the constraints are y_k = s - q_k(u) >= 0, with
    # multipliers p_k, and 0 <= u <= 1. Each iteration is one Newton step on the
    # perturbed optimality conditions, after elimination of s, the slacks and the
    # multipliers. Linear constraints are y_j = -q_j(u) >= 0 with q_j = -N_j.u - c_j:
    # the weight of s is one for quadratics, and zero for linear constraints.
    # Scale to numbers of order one, which the start and the iterations assume. (In a
    # corner that is a smooth minimum, all gradients are zero.)
    size = torch.maximum(gradient.abs().sum(-1), hessian.abs().sum(dim=(-2, -1)))
    size = size.amax(dim=-1, keepdim=True)
    size = size.clamp_min(torch.finfo(value.dtype).tiny ** 0.5)
    # Now each quadratic is within 1.5 of its constant. One whose constant is 3 below
    # the largest is never the maximum, so how far below it is does not matter.
    value = ((value - value.amax(dim=-1, keepdim=True)) / size).clamp_min(-3.0)
    gradient, hessian = gradient / size[..., None], hessian / size[..., None, None]
    length = normals.norm(dim=-1).clamp_min(torch.finfo(value.dtype).tiny ** 0.5)
    num_quadratics, num_linear = value.shape[-1], length.shape[-1]
    value = torch.cat([value, (-slack / length).expand(*value.shape[:-1], -1)], -1)
    linear = (-normals / length.unsqueeze(-1)).expand(*value.shape[:-1], -1, -1)
    gradient = torch.cat([gradient, linear], dim=-2)
    hessian = pad(hessian, (0, 0, 0, 0, 0, num_linear))

    # The batch of problems comes last, contiguous in memory.
    k, n = gradient.shape[-2:]
    batch = value.shape[:-1]
    v = value.reshape(-1, k).movedim(0, -1).contiguous()
    g = gradient.reshape(-1, k, n).movedim(0, -1).contiguous()
    B = hessian.reshape(-1, k, n, n).movedim(0, -1).contiguous()

    u = torch.full_like(g[0], 0.5)
    bend = (B * u).sum(dim=2)
    q = v + ((g + 0.5 * bend) * u).sum(dim=1)
    s = q[:num_quadratics].amax(dim=0) + 1.0
    weight = torch.ones_like(q[:, :1])
    weight[num_quadratics:] = 0.0
    y = (weight * s - q).clamp_min(LEAST_SLACK)
    p = torch.full_like(q, 1.0 / k)
    # The distances from both faces in each coordinate, and their multipliers.
    sides, force = torch.stack([u, 1.0 - u]), u.new_ones(2, *u.shape)
    for _ in range(NUM_ITERATIONS):
        slope = g + bend
        residual = weight * s - q - y
        products = (p * y).sum(dim=0) + (force * sides).sum(dim=(0, 1))
        target = CENTERING / (k + 2 * n) * products
        ratio, side_ratio = p / y, force / sides
        pushed, side_pushed = target / y - ratio * residual, target / sides
        own = weight * ratio
        total = own.sum(dim=0)
        mean = (own.unsqueeze(1) * slope).sum(dim=0) / total
        excess = (weight * pushed).sum(dim=0) - 1.0
        centered = slope - weight.unsqueeze(1) * mean
        weighted = ratio.unsqueeze(1) * centered
        matrix = (p[:, None, None] * B).sum(dim=0)
        matrix = matrix + (weighted.unsqueeze(2) * centered.unsqueeze(1)).sum(dim=0)
        matrix.diagonal().add_(side_ratio.sum(dim=0).mT)
        rhs = excess * mean - (pushed.unsqueeze(1) * slope).sum(dim=0)
        rhs = rhs + side_pushed[0] - side_pushed[1]
        du = solve_modified(matrix.movedim(-1, 0), rhs.mT.unsqueeze(-1)).squeeze(-1).mT
        ds = excess / total + (mean * du).sum(dim=0)
        dh = weight * ds - (slope * du).sum(dim=1)
        dy, dp = dh + residual, pushed - p - ratio * dh
        dsides = torch.stack([du, -du])
        dforce = side_pushed - force - side_ratio * dsides
        # The longest step that keeps slacks and multipliers positive.
        rate = torch.maximum((-dy / y).amax(dim=0), (-dp / p).amax(dim=0))
        side_rate = torch.maximum(-dsides / sides, -dforce / force).amax(dim=(0, 1))
        rate = torch.maximum(rate, side_rate).clamp_min(TO_BOUNDARY)
        length = TO_BOUNDARY / rate
        u, s = u + length * du, s + length * ds
        y, p = y + length * dy, p + length * dp
        sides, force = sides + length * dsides, force + length * dforce
        bend = (B * u).sum(dim=2)
        q = v + ((g + 0.5 * bend) * u).sum(dim=1)
    # An interior point never reaches a face. Its multipliers tell where it would.
    below, above = force > sides
    u = torch.where(below, torch.zeros_like(u), u)
    u = torch.where(above, torch.ones_like(u), u)
    return u.movedim(-1, 0).reshape(*batch, n)
