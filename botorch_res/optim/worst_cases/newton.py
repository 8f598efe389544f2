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
    dim = matrix.shape[-1]
    size = torch.diagonal(matrix, dim1=-2, dim2=-1).abs().amax(dim=-1)
    dtype = torch.finfo(matrix.dtype)
    # Far below pivots that matter; steps along smaller ones are cut by the box anyway.
    floor = (size * dtype.eps**0.75).clamp_min(dtype.tiny**0.5).unsqueeze(-1)
    rows = []  # of L^T, each with its pivot
    for i in range(dim):
        column = matrix[..., 0]
        pivot = column[..., :1].abs().maximum(floor)
        lower = column[..., 1:] / pivot
        rows.append((lower.unsqueeze(-1), pivot))
        matrix = matrix[..., 1:, 1:] - lower.unsqueeze(-1) * column[..., None, 1:]
        if i + 1 < dim:
            head, rest = rhs[..., i : i + 1, :], rhs[..., i + 1 :, :]
            rest = rest - lower.unsqueeze(-1) * head
            rhs = torch.cat([rhs[..., : i + 1, :], rest], dim=-2)
    solution = rhs[..., dim:, :]
    for i in reversed(range(dim)):
        lower, pivot = rows[i]
        head = rhs[..., i : i + 1, :] / pivot.unsqueeze(-1)
        if i + 1 < dim:
            head = head - (lower * solution).sum(dim=-2, keepdim=True)
        solution = torch.cat([head, solution], dim=-2)
    return solution


def box_newton_step(
    gradient: Tensor, hessian: Tensor, lower: Tensor, upper: Tensor
) -> Tensor:
    r"""Maximise a quadratic model, ``g.s + s.H s / 2``, over a box.

    This is an active-set method without release. It goes towards the maximum over the
    free coordinates until one of them meets a face of the box, fixes that one, and
    repeats. The step stays in the box and does not go down on the model. It is the
    exact maximum unless a fixed coordinate should be released again. Where the model is
    not concave, the sign of the curvature is reversed.

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
    step = torch.zeros_like(gradient)
    slope = gradient
    held = torch.zeros_like(gradient, dtype=torch.bool)
    for _ in range(dim):
        blocked = ((slope > 0) & (step >= upper)) | ((slope < 0) & (step <= lower))
        held = held | blocked
        free = (~held).to(gradient.dtype)
        mask = free.unsqueeze(-1) * free.unsqueeze(-2)
        matrix = torch.diag_embed(1.0 - free) - hessian * mask
        rhs = (free * slope).unsqueeze(-1)
        move = solve_modified(matrix, rhs).squeeze(-1)
        # Go as far as the first bound, which then becomes active.
        room = torch.where(move > 0, upper - step, step - lower)
        ratio = torch.where(held, 1.0, room / move.abs().clamp_min(tiny))
        fraction = ratio.amin(dim=-1, keepdim=True).clamp(0.0, 1.0)
        step = (step + fraction * move).clamp(lower, upper)
        held = held | (ratio <= fraction)
        slope = gradient + (hessian @ step.unsqueeze(-1)).squeeze(-1)
    return step


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
    curved = (hessian @ step.unsqueeze(-1)).squeeze(-1)
    gain = (step * (gradient + 0.5 * curved)).sum(dim=-1)
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
