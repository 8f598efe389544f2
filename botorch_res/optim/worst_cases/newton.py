r"""Newton's method for many small problems in the unit cube at once.

Each climber takes the Newton step of its own quadratic model, within the cube and a
trust region. It moves only if the new point is higher; otherwise its trust region
shrinks. The number of steps is fixed.

There are many matrices, and all are tiny (one to seven rows). So the factorisation is
written out in elementwise operations over the batch. It needs no LAPACK call for each
matrix, cannot fail, and has no data-dependent branch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from botorch_res.optim.tuples import where
from botorch_res.sampling import Derivatives

# Near a maximum, a step of this size in the unit cube changes values only by rounding.
# Whether it is accepted then says nothing about the model.
TINY_STEP = 1e-7
# A failed step shrinks the trust region to this share of the step. With a half, the
# robust optima of 256 functions of 2 and 3 columns are the same to 1e-6: from a grid
# finer than the lengthscale, few steps fail.
SHRINKAGE = 0.25


def solve_modified(matrix: Tensor, rhs: Tensor) -> Tensor:
    r"""Solve ``A s = r`` with ``A`` made positive definite where it is not.

    The factorisation is ``L D L^T`` with the absolute values of the pivots ``D``. It
    does not change a positive definite matrix, and makes directions of negative
    curvature positive.

    Args:
        matrix: ``... x d x d`` symmetric matrices ``A``.
        rhs: ``... x d x m`` right-hand sides ``r``.

    Returns:
        ``... x d x m`` solutions.
    """
    size = torch.diagonal(matrix, dim1=-2, dim2=-1).abs().amax(dim=-1, keepdim=True)
    dtype = torch.finfo(matrix.dtype)
    # Far below pivots that matter; steps along smaller ones are cut by the box anyway.
    floor = (size * dtype.eps**0.75).clamp_min(dtype.tiny**0.5)
    entries = [list(row.unbind(-2)) for row in matrix.unsqueeze(-1).unbind(-3)]
    solution = list(rhs.unbind(-2))
    pivots, factors = [], []
    for i in range(len(entries)):
        column = [row[i] for row in entries]  # its entries from the diagonal on
        pivot = column[i].abs().maximum(floor)
        below = [entry / pivot for entry in column[i + 1 :]]
        for j, factor in enumerate(below, start=i + 1):
            solution[j] = solution[j] - factor * solution[i]
            for k in range(i + 1, j + 1):
                entries[j][k] = entries[j][k] - factor * column[k]
        pivots.append(pivot)
        factors.append(below)
    for i in reversed(range(len(pivots))):
        solution[i] = solution[i] / pivots[i]
        for factor, later in zip(factors[i], solution[i + 1 :], strict=True):
            solution[i] = solution[i] - factor * later
    return torch.stack(solution, dim=-2)


def box_newton_step(
    gradient: Tensor, hessian: Tensor, lower: Tensor, upper: Tensor
) -> Tensor:
    r"""Maximise a quadratic model, ``g.s + s.H s / 2``, over a box.

    In more than two dimensions this is an active-set method without release. It goes
    towards the maximum over the free coordinates until one of them meets a face of the
    box, fixes that one, and repeats. The step stays in the box and does not go down on
    the model. It is the exact maximum unless a fixed coordinate should be released
    again. Where the model is not concave, the sign of the curvature is reversed.

    Args:
        gradient: ``... x d`` gradients.
        hessian: ``... x d x d`` Hessians.
        lower: ``... x d`` lower bounds of the step, none above zero.
        upper: ``... x d`` upper bounds of the step, none below zero.

    Returns:
        ``... x d`` steps.
    """
    dim = gradient.shape[-1]
    tiny = torch.finfo(gradient.dtype).tiny ** 0.5
    if dim == 1:
        curvature = hessian.squeeze(-1).abs().clamp_min(tiny)
        return (gradient / curvature).clamp(lower, upper)
    if dim == 2:
        return _plane_step(gradient, hessian, lower, upper)
    model = -hessian
    identity = torch.eye(dim, dtype=hessian.dtype, device=hessian.device)
    step = torch.zeros_like(gradient)
    slope = gradient
    held = torch.zeros_like(gradient, dtype=torch.bool)
    for i in range(dim):
        if i > 0:
            slope = gradient + multiply(hessian, step)
        held = held | ((slope > 0) & (step >= upper)) | ((slope < 0) & (step <= lower))
        free = ~held
        mask = free.unsqueeze(-1) & free.unsqueeze(-2)
        rhs = (free * slope).unsqueeze(-1)
        move = solve_modified(torch.where(mask, model, identity), rhs).squeeze(-1)
        # Go as far as the first bound, which then becomes active.
        room = torch.where(move > 0, upper - step, step - lower)
        ratio = torch.where(held, 1.0, room / move.abs().clamp_min(tiny))
        fraction = ratio.amin(dim=-1, keepdim=True).clamp(0.0, 1.0)
        step = (step + fraction * move).clamp(lower, upper)
        held = held | (ratio <= fraction)
    return step


def _plane_step(
    gradient: Tensor, hessian: Tensor, lower: Tensor, upper: Tensor
) -> Tensor:
    """Maximise a quadratic model of two variables over a box, in closed form.

    If the free maximum is beyond some faces of the box, the maximum is on one of these
    faces. So one of its coordinates is the free maximum's, moved into the box, and the
    other one is the best beside it. Where the model is not concave, the face is the one
    that is met first on the way to the maximum of the model of ``solve_modified``. The
    best of all faces could be across a valley, next to another maximum.
    """
    # One tensor for each component: contiguous ones are several times faster.
    a, b, _, c = (-hessian).flatten(-2).movedim(-1, 0).contiguous().unbind()
    g, h = gradient.movedim(-1, 0).contiguous().unbind()
    low, high = (bound.movedim(-1, 0).contiguous() for bound in (lower, upper))
    dtype = torch.finfo(hessian.dtype)
    size = torch.maximum(a.abs(), c.abs())
    floor = (size * dtype.eps**0.75).clamp_min(dtype.tiny**0.5)
    first, second = torch.maximum(a.abs(), floor), torch.maximum(c.abs(), floor)
    ratio = b / first
    pivot = c - ratio * b
    free_y = (h - ratio * g) / torch.maximum(pivot.abs(), floor)
    free_x = g / first - ratio * free_y
    x, y = free_x.clamp(low[0], high[0]), free_y.clamp(low[1], high[1])
    # How much of the way is inside the box; all of it if there is none to go.
    share_x, share_y = (
        torch.where(far == 0.0, 1.0, near / far)
        for near, far in ((x, free_x), (y, free_y))
    )
    share = torch.minimum(share_x, share_y)
    ahead_x, ahead_y = share * free_x, share * free_y
    beside_x = ahead_y + (h - b * x - c * ahead_y) / second
    beside_y = ahead_x + (g - b * y - a * ahead_x) / first
    beside_x = beside_x.clamp(low[1], high[1])
    beside_y = beside_y.clamp(low[0], high[0])
    value, other = (
        (g - 0.5 * a * u - b * v) * u + (h - 0.5 * c * v) * v
        for u, v in ((x, beside_x), (beside_y, y))
    )
    is_concave = (a > 0.0) & (pivot > 0.0)
    on_y = torch.where(is_concave, other > value, share_y < share_x)
    x, y = torch.where(on_y, beside_y, x), torch.where(on_y, y, beside_x)
    inside = share >= 1.0
    x, y = torch.where(inside, free_x, x), torch.where(inside, free_y, y)
    return torch.stack([x, y]).movedim(0, -1)


def multiply(matrix: Tensor, vector: Tensor) -> Tensor:
    """Multiply many tiny symmetric matrices and vectors.

    Elementwise operations are faster for these than a batch of matrix products, and
    than sums over a few elements.

    Args:
        matrix: ``... x d x d`` symmetric matrices.
        vector: ``... x d`` vectors.

    Returns:
        ``... x d`` products.
    """
    terms = zip(matrix.unbind(-1), vector.unsqueeze(-1).unbind(-2), strict=True)
    return reduce(torch.add, (column * entry for column, entry in terms))


def dot(one: Tensor, other: Tensor) -> Tensor:
    """Multiply many pairs of short vectors.

    Args:
        one: ``... x d`` vectors.
        other: ``... x d`` vectors.

    Returns:
        ``...`` products.
    """
    return reduce(torch.add, (one * other).unbind(-1))


class Climbers(NamedTuple):
    """The state of many Newton searches in the unit cube.

    Attributes:
        theta: ``... x k x d_theta`` points.
        value: ``... x k`` values.
        gradient: ``... x k x d_theta`` gradients, or ``... x k x d`` with those by
            ``x`` in front.
        hessian: The Hessians, of the same columns.
        radius: ``... x k x d_theta`` largest steps.
        step: ``... x k x d_theta`` next steps.
        gain: ``... x k`` increases of the value that the model predicts for the step.
    """

    theta: Tensor
    value: Tensor
    gradient: Tensor
    hessian: Tensor
    radius: Tensor
    step: Tensor
    gain: Tensor


def aim(theta: Tensor, state: Derivatives, radius: Tensor) -> Climbers:
    """Choose the next Newton step in the unit cube.

    Args:
        theta: ``... x d_theta`` points.
        state: Value and derivatives at these points; the last columns are theta's.
        radius: ``... x d_theta`` largest steps, or broadcasts with it.

    Returns:
        Climbers at these points.
    """
    dim = theta.shape[-1]
    gradient, hessian = state.gradient[..., -dim:], state.hessian[..., -dim:, -dim:]
    lower = torch.maximum(-theta, -radius)
    upper = torch.minimum(1.0 - theta, radius)
    step = box_newton_step(gradient, hessian, lower, upper)
    gain = dot(step, gradient + 0.5 * multiply(hessian, step))
    return Climbers(theta, *state, radius.expand(theta.shape), step, gain)


def climb(
    derivatives: Callable[[Tensor], Derivatives], climbers: Climbers, num_steps: int
) -> Climbers:
    """Let climbers go up. They never go down.

    Args:
        derivatives: Value and derivatives at ``... x k x d_theta`` points of the unit
            cube; the last columns are theta's.
        climbers: ``... x k`` climbers.
        num_steps: The number of steps.

    Returns:
        The climbers at the end.
    """
    for _ in range(num_steps):
        trial = (climbers.theta + climbers.step).clamp(0.0, 1.0)
        new = derivatives(trial)
        better = new.value > climbers.value
        one = better.unsqueeze(-1)
        state = where(better, new, Derivatives(*climbers[1:4]))
        theta = torch.where(one, trial, climbers.theta)
        shrunk = (SHRINKAGE * climbers.step.abs()).clamp_min(TINY_STEP)
        radius = torch.where(one, climbers.radius, shrunk)
        climbers = aim(theta, state, radius)
    return climbers
