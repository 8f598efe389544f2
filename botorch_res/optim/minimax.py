r"""The smallest maximum of a few quadratics in a box, for many problems at once.

    min over u in [0, 1]^n of max over k of  q_k(u) = v_k + g_k.u + u.B_k u / 2

is the local model of a robust optimum: one quadratic for each local worst case. In one
dimension all points where the minimum can be are compared: the ends, the vertices of
the parabolas and their intersections. In more dimensions a primal-dual interior-point
method is used, with a fixed number of iterations.

References:
.. [Nocedal2006numerical]
    J. Nocedal and S. J. Wright. Numerical Optimization. Springer, 2006. Chapter 19.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from botorch_res.optim.newton import solve_modified


def minimize_maximum(
    value: Tensor, gradient: Tensor, hessian: Tensor, num_iterations: int = 12
) -> Tensor:
    r"""Minimise the maximum of quadratics over the unit cube.

    Args:
        value: ``... x k`` constants ``v``.
        gradient: ``... x k x n`` slopes ``g``.
        hessian: ``... x k x n x n`` curvatures ``B``, which need not be convex.
        num_iterations: The number of iterations in more than one dimension.

    Returns:
        The ``... x n`` minimisers.
    """
    if gradient.shape[-1] == 1:
        return _compare_candidates(value, gradient[..., 0], hessian[..., 0, 0])
    return _interior_point(value, gradient, hessian, num_iterations)


def _compare_candidates(value: Tensor, slope: Tensor, bend: Tensor) -> Tensor:
    """Minimise the maximum of parabolas over the unit interval, exactly.

    Args:
        value: ``... x k`` constants ``v``.
        slope: ``... x k`` slopes ``g``.
        bend: ``... x k`` curvatures ``B``.

    Returns:
        The ``... x 1`` minimisers.
    """
    a = 0.5 * (bend.unsqueeze(-1) - bend.unsqueeze(-2))
    b = slope.unsqueeze(-1) - slope.unsqueeze(-2)
    c = value.unsqueeze(-1) - value.unsqueeze(-2)
    root = (b.square() - 4.0 * a * c).clamp_min(0.0).sqrt()
    # The stable form of both roots; a division by zero gives a point that is clamped.
    half = -0.5 * (b + torch.copysign(root, b))
    crossings = torch.cat([_divide(half, a), _divide(c, half)], dim=-1).flatten(-2)
    ends = torch.cat(
        [torch.zeros_like(value[..., :1]), torch.ones_like(value[..., :1])], -1
    )
    u = torch.cat([ends, _divide(-slope, bend), crossings], dim=-1).clamp(0.0, 1.0)
    u = u.unsqueeze(-1)
    q = value.unsqueeze(-2) + u * (slope.unsqueeze(-2) + 0.5 * u * bend.unsqueeze(-2))
    best = q.amax(dim=-1, keepdim=True).argmin(dim=-2, keepdim=True)
    return u.take_along_dim(best, dim=-2).squeeze(-2)


def _divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Divide, with a finite result where the denominator vanishes.

    Args:
        numerator: The numerator.
        denominator: The denominator.

    Returns:
        The quotient.
    """
    tiny = torch.finfo(denominator.dtype).tiny ** 0.5
    return numerator / torch.copysign(denominator.abs().clamp_min(tiny), denominator)


def _interior_point(
    value: Tensor, gradient: Tensor, hessian: Tensor, num_iterations: int
) -> Tensor:
    """Minimise the maximum of quadratics by an interior-point method.

    With the maximum ``s`` as a variable, the constraints are ``y_k = s - q_k(u) >= 0``
    with multipliers ``p_k`` and ``0 <= u <= 1`` with multipliers ``l`` and ``m``. Each
    iteration is one Newton step on the perturbed optimality conditions, in which ``s``,
    the slacks and the multipliers are eliminated.

    Args:
        value: ``... x k`` constants ``v``.
        gradient: ``... x k x n`` slopes ``g``.
        hessian: ``... x k x n x n`` curvatures ``B``.
        num_iterations: The number of iterations.

    Returns:
        The ``... x n`` minimisers.
    """
    # Numbers of order one: the method's start and its tolerances assume them.
    # In a corner that is a smooth minimum all gradients are zero.
    size = torch.maximum(gradient.abs().sum(-1), hessian.abs().sum(dim=(-2, -1)))
    size = size.amax(dim=-1, keepdim=True)
    size = size.clamp_min(torch.finfo(value.dtype).tiny ** 0.5)
    value = ((value - value.amax(dim=-1, keepdim=True)) / size).clamp_min(-1e3)
    gradient, hessian = gradient / size[..., None], hessian / size[..., None, None]

    k, n = gradient.shape[-2:]
    batch = value.shape[:-1]
    eye = torch.eye(n, dtype=value.dtype, device=value.device).expand(*batch, n, n)
    constant = torch.cat(
        [value, torch.zeros_like(eye[..., 0]), -torch.ones_like(eye[..., 0])], -1
    )
    linear = torch.cat([gradient, -eye, eye], dim=-2)
    lifted = torch.cat(
        [torch.ones_like(value), torch.zeros_like(linear[..., k:, 0])], -1
    )

    def bent(u: Tensor) -> Tensor:
        """The change of all slopes; those of the sides of the cube have none."""
        return pad((hessian @ u[..., None, :, None]).squeeze(-1), (0, 0, 0, 2 * n))

    u = torch.full_like(gradient[..., 0, :], 0.5)
    bend = bent(u)
    q = constant + ((linear + 0.5 * bend) * u.unsqueeze(-2)).sum(dim=-1)
    s = q[..., :k].amax(dim=-1, keepdim=True) + 1.0
    y = lifted * s - q
    p = lifted / k + (1.0 - lifted)
    for _ in range(num_iterations):
        slope = linear + bend
        residual = lifted * s - q - y
        target = 0.1 * (p * y).mean(dim=-1, keepdim=True)
        ratio = p / y
        pushed = target / y - ratio * residual
        weight = lifted * ratio
        total = weight.sum(dim=-1, keepdim=True)
        mean = (weight.unsqueeze(-2) @ slope).squeeze(-2) / total
        excess = (lifted * pushed).sum(dim=-1, keepdim=True) - 1.0
        centered = slope - lifted.unsqueeze(-1) * mean.unsqueeze(-2)
        matrix = (p[..., :k, None, None] * hessian).sum(dim=-3)
        matrix = matrix + centered.mT @ (ratio.unsqueeze(-1) * centered)
        rhs = excess * mean - (pushed.unsqueeze(-2) @ slope).squeeze(-2)
        du = solve_modified(matrix, rhs.unsqueeze(-1))
        ds = excess / total + (mean * du.squeeze(-1)).sum(dim=-1, keepdim=True)
        dh = lifted * ds - (slope @ du).squeeze(-1)
        dy = dh + residual
        dp = pushed - p - ratio * dh
        # The largest step that keeps slacks and multipliers positive.
        rate = torch.maximum(
            (-dy / y).amax(-1, keepdim=True), (-dp / p).amax(-1, keepdim=True)
        )
        length = 0.99 / rate.clamp_min(0.99)
        u, s = u + length * du.squeeze(-1), s + length * ds
        y, p = y + length * dy, p + length * dp
        bend = bent(u)
        q = constant + ((linear + 0.5 * bend) * u.unsqueeze(-2)).sum(dim=-1)
    # An interior point never reaches a face; its multipliers tell where it would.
    below, above = (p > y)[..., k:].split(n, dim=-1)
    u = torch.where(below, torch.zeros_like(u), u)
    return torch.where(above, torch.ones_like(u), u)
