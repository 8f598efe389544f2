r"""The smallest maximum of a few quadratics in a box, for many problems at once.

    min over u in [0, 1]^n of max over k of  q_k(u) = v_k + g_k.u + u.B_k u / 2

is the local model of a robust optimum: one quadratic for each local worst case. It is
solved by a primal-dual interior-point method with a fixed number of iterations.

References:
.. [Nocedal2006numerical]
    J. Nocedal and S. J. Wright. Numerical Optimization. Springer, 2006. Chapter 19.
"""

from __future__ import annotations

import torch
from torch import Tensor

from botorch_res.optim.newton import solve_modified


def minimize_maximum(
    value: Tensor, gradient: Tensor, hessian: Tensor, num_iterations: int = 12
) -> Tensor:
    r"""Minimise the maximum of quadratics over the unit cube.

    With the maximum ``s`` as a variable, the constraints are ``y_k = s - q_k(u) >= 0``
    with multipliers ``p_k`` and ``0 <= u <= 1`` with multipliers ``l`` and ``m``. Each
    iteration is one Newton step on the perturbed optimality conditions, in which ``s``,
    the slacks and the multipliers are eliminated.

    Args:
        value: ``... x k`` constants ``v``; minus infinity leaves a quadratic out.
        gradient: ``... x k x n`` slopes ``g``.
        hessian: ``... x k x n x n`` curvatures ``B``, which need not be convex.
        num_iterations: The number of iterations.

    Returns:
        The ``... x n`` minimisers.
    """
    # Numbers of order one: the methods's start and its tolerances assume them.
    size = gradient.abs().sum(dim=-1).amax(dim=-1, keepdim=True)
    size = size.clamp_min(torch.finfo(value.dtype).tiny ** 0.5)
    value = ((value - value.amax(dim=-1, keepdim=True)) / size).clamp_min(-1e3)
    gradient, hessian = gradient / size[..., None], hessian / size[..., None, None]

    u = torch.full_like(gradient[..., 0, :], 0.5)
    y = torch.ones_like(value)
    p = torch.full_like(value, 1.0 / value.shape[-1])
    lower, upper = torch.ones_like(u), torch.ones_like(u)
    bend = (hessian @ u[..., None, :, None]).squeeze(-1)
    q = value + ((gradient + 0.5 * bend) * u.unsqueeze(-2)).sum(dim=-1)
    s = q.amax(dim=-1, keepdim=True) + 1.0
    count = value.shape[-1] + 2 * u.shape[-1]
    for _ in range(num_iterations):
        slope = gradient + bend
        complementarity = (p * y).sum(dim=-1, keepdim=True) + (
            lower * u + upper * (1.0 - u)
        ).sum(dim=-1, keepdim=True)
        target = 0.1 * complementarity / count
        ratio = p / y
        pushed = target / y - ratio * (s - q - y)
        total = ratio.sum(dim=-1, keepdim=True)
        mean = (ratio.unsqueeze(-1) * slope).sum(dim=-2) / total
        centered = slope - mean.unsqueeze(-2)
        excess = pushed.sum(dim=-1, keepdim=True) - 1.0
        barrier = lower / u + upper / (1.0 - u)
        matrix = (
            (p[..., None, None] * hessian).sum(dim=-3)
            + centered.mT @ (ratio.unsqueeze(-1) * centered)
            + torch.diag_embed(barrier)
        )
        push = target / u - target / (1.0 - u)
        rhs = push + excess * mean - (pushed.unsqueeze(-1) * slope).sum(dim=-2)
        du = solve_modified(matrix, rhs.unsqueeze(-1)).squeeze(-1)
        ds = excess / total + (mean * du).sum(dim=-1, keepdim=True)
        dq = (slope * du.unsqueeze(-2)).sum(dim=-1)
        dy = ds - dq + (s - q - y)
        dp = pushed - ratio * (ds - dq) - p
        dlower = target / u - lower - lower / u * du
        dupper = target / (1.0 - u) - upper + upper / (1.0 - u) * du
        now = torch.cat([y, p, u, 1.0 - u, lower, upper], dim=-1)
        change = torch.cat([dy, dp, du, -du, dlower, dupper], dim=-1)
        # The largest step that keeps all of these positive.
        rate = (-change / now).amax(dim=-1, keepdim=True)
        length = 0.99 / rate.clamp_min(0.99)
        y, p = y + length * dy, p + length * dp
        u, s = u + length * du, s + length * ds
        lower, upper = lower + length * dlower, upper + length * dupper
        bend = (hessian @ u[..., None, :, None]).squeeze(-1)
        q = value + ((gradient + 0.5 * bend) * u.unsqueeze(-2)).sum(dim=-1)
    # An interior point never reaches a face; its multipliers tell where it would.
    u = torch.where(lower > u, torch.zeros_like(u), u)
    return torch.where(upper > 1.0 - u, torch.ones_like(u), u)
