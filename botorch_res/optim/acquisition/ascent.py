r"""Batched quasi-Newton ascent in the unit cube, for functions with kinks.

An acquisition function that looks at worst cases has a kink wherever two of them tie,
and its maxima like to sit there. The line search of L-BFGS-B then fails after dozens of
evaluations. Here every problem of the batch tries several step lengths at once, keeps
the best, and the number of rounds is fixed: the cost is known beforehand, no problem
waits for another, and nothing is read back from the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

# The quasi-Newton step is tried at so many lengths at once, in a geometric sequence
# from the whole step to this power of ten of it.
NUM_LENGTHS = 3
SHORTEST_LENGTH = -1.5
# Longest step in units of the cube: the first, and any.
FIRST_STEP = 0.05
LONGEST_STEP = 0.25
# Below any gradient that matters.
TINY = 1e-30


class Ascent(NamedTuple):
    """The state of the ascent from ``batch_shape`` starts.

    Attributes:
        points: ``batch_shape x d`` points of the unit cube.
        values: ``batch_shape`` values there.
        gradients: ``batch_shape x d`` gradients there.
        inverse: ``batch_shape x d x d`` estimated inverses of the negative Hessians.
    """

    points: Tensor
    values: Tensor
    gradients: Tensor
    inverse: Tensor


def begin(
    function: Callable[[Tensor], Tensor], starts: Tensor, movable: Tensor
) -> Ascent:
    """Evaluate the starts and choose the size of the first step.

    Args:
        function: Maps ``n x batch_shape x d`` points of the unit cube to
            ``n x batch_shape`` values, each a differentiable function of its own point.
        starts: ``batch_shape x d`` starting points.
        movable: ``d`` booleans: the columns that may change.

    Returns:
        The state before the first round.
    """
    values, gradients = (part[0] for part in _evaluate(function, starts.unsqueeze(0)))
    identity = torch.eye(starts.shape[-1], dtype=starts.dtype, device=starts.device)
    free = _free(starts, gradients, movable)
    length = (gradients * free).norm(dim=-1, keepdim=True).clamp_min(TINY)
    inverse = identity * (FIRST_STEP / length).unsqueeze(-1)
    return Ascent(starts, values, gradients, inverse)


def advance(
    function: Callable[[Tensor], Tensor],
    state: Ascent,
    movable: Tensor,
    num_rounds: int,
    finish: bool,
) -> Ascent:
    """Go on with the ascent, never going down.

    Args:
        function: As in ``begin``.
        state: The state so far.
        movable: ``d`` booleans: the columns that may change.
        num_rounds: The number of rounds, each with one evaluation of ``function`` at
            a few points per problem.
        finish: Whether the ascent ends here, so that the last round goes without
            gradients, and the state is of no use for another one.

    Returns:
        The new state.
    """
    points, values, gradients, inverse = state
    lengths = torch.logspace(
        0.0, SHORTEST_LENGTH, NUM_LENGTHS, dtype=points.dtype, device=points.device
    ).view(-1, *[1] * points.ndim)
    for left in reversed(range(num_rounds)):
        free = _free(points, gradients, movable)
        direction = _direction(inverse, gradients, free)
        trials = (points + lengths * direction).clamp(0.0, 1.0)
        if finish and left == 0:
            with torch.no_grad():
                trial_values = function(trials)
            trial_gradients = torch.zeros_like(trials)
        else:
            trial_values, trial_gradients = _evaluate(function, trials)
        best = trial_values.argmax(dim=0, keepdim=True)
        new_values = trial_values.take_along_dim(best, dim=0)[0]
        best = best.unsqueeze(-1)
        new_points = trials.take_along_dim(best, dim=0)[0]
        new_gradients = trial_gradients.take_along_dim(best, dim=0)[0]
        better = new_values > values
        updated = _update(
            inverse, free * (new_points - points), free * (gradients - new_gradients)
        )
        one = better.unsqueeze(-1)
        # Where no step helped, the model of the function is wrong: try shorter ones.
        inverse = torch.where(one.unsqueeze(-1), updated, 0.01 * inverse)
        points = torch.where(one, new_points, points)
        gradients = torch.where(one, new_gradients, gradients)
        values = torch.where(better, new_values, values)
    return Ascent(points, values, gradients, inverse)


def _evaluate(
    function: Callable[[Tensor], Tensor], points: Tensor
) -> tuple[Tensor, Tensor]:
    """Values and gradients at ``n x batch_shape x d`` points."""
    with torch.enable_grad():
        leaf = points.detach().requires_grad_()
        values = function(leaf)
        (gradients,) = torch.autograd.grad(values.sum(), leaf)
    return values.detach(), gradients


def _free(points: Tensor, gradients: Tensor, movable: Tensor) -> Tensor:
    """One for the coordinates that may move uphill, zero for the others."""
    held = ((points <= 0.0) & (gradients < 0.0)) | ((points >= 1.0) & (gradients > 0.0))
    return (movable & ~held).to(points.dtype)


def _direction(inverse: Tensor, gradients: Tensor, free: Tensor) -> Tensor:
    """The quasi-Newton step on the free coordinates, of bounded length."""
    uphill = (gradients * free).unsqueeze(-1)
    step = free * (inverse @ uphill).squeeze(-1)
    length: Tensor = step.norm(dim=-1, keepdim=True)
    return step * (LONGEST_STEP / length.clamp_min(LONGEST_STEP))


def _update(inverse: Tensor, move: Tensor, change: Tensor) -> Tensor:
    """The update of Broyden, Fletcher, Goldfarb and Shanno, where it is concave."""
    curvature = (move * change).sum(dim=-1, keepdim=True).unsqueeze(-1)
    size = move.norm(dim=-1) * change.norm(dim=-1)
    concave = curvature > 1e-8 * size[..., None, None]
    scale = torch.where(concave, curvature, 1.0).reciprocal()
    move, change = move.unsqueeze(-1), change.unsqueeze(-1)
    identity = torch.eye(move.shape[-2], dtype=move.dtype, device=move.device)
    left = identity - scale * move * change.mT
    updated = left @ inverse @ left.mT + scale * move * move.mT
    return torch.where(concave, updated, inverse)
