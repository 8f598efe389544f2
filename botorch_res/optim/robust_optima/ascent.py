r"""Batched quasi-Newton ascent in the unit cube, for functions with kinks.

An acquisition function of worst cases has a kink wherever two of them tie, and its
maxima often lie there. The line search of L-BFGS-B then fails after dozens of
evaluations. Here every problem of the batch tries several step lengths at once and
keeps the best. The number of rounds is fixed: the cost is known in advance, no problem
waits for another, and nothing is read back from the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from botorch.utils.transforms import normalize, unnormalize
from torch import Tensor

from botorch_res.optim.robust_optima.minimax import minimize_maximum
from botorch_res.optim.worst_cases.newton import solve_modified

# The numbers below were compared on 18 random problems of 2 and 3 columns, with 4
# function samples each. The results hardly depend on them: all variants find the same
# maxima to 1e-3. Against four times the restarts they miss one maximum of the 18.
#
# The quasi-Newton step is tried at this many lengths at once, in a geometric sequence
# from the whole step to this power of ten of it. Two lengths, or a shortest length of
# 1e-3 of the step, give the same maxima.
NUM_LENGTHS = 3
SHORTEST_LENGTH = -1.5
# The first step, and the longest one, in units of the cube.
# A quarter or four times of either gives the same maxima.
FIRST_STEP = 0.05
LONGEST_STEP = 0.25
# If no length of a step helps, the next step is this much shorter, below the shortest
# length that was tried. A tenth gives the same maxima.
SHRINKAGE = 0.01
# The cosine between step and change of the gradient below which the curvature is noise.
# A safe choice: half of the digits.
LEAST_COSINE = 1e-8
# Smaller than any gradient that matters.
TINY = 1e-30


class Feasible(NamedTuple):
    """Linear constraints ``A u >= b`` on points of the unit cube.

    Attributes:
        normals: ``m x d`` coefficients ``A``.
        limits: ``m`` right-hand sides ``b``.
        inward: Moves ``... x d`` points to where they satisfy the constraints.
    """

    normals: Tensor
    limits: Tensor
    inward: Callable[[Tensor], Tensor]

    @classmethod
    def in_unit_cube(
        cls,
        normals: Tensor,
        limits: Tensor,
        inward: Callable[[Tensor], Tensor],
        bounds: Tensor,
    ) -> Feasible:
        """Turn linear constraints in a box into those in the unit cube.

        Args:
            normals: ``m x d`` coefficients in the box.
            limits: ``m`` right-hand sides.
            inward: Moves ``... x d`` points of the box to where they are feasible.
            bounds: The ``2 x d`` bounds of the box.

        Returns:
            The constraints on points of the unit cube.
        """
        lower, upper = bounds

        def inward_in_unit_cube(u: Tensor) -> Tensor:
            return normalize(inward(unnormalize(u, bounds)), bounds)

        limits = limits - normals @ lower
        return cls(normals * (upper - lower), limits, inward_in_unit_cube)


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
    """Evaluate the starts, and choose the size of the first step.

    Args:
        function: Maps ``n x batch_shape x d`` points of the unit cube to
            ``n x batch_shape`` values. Each value depends on its own point only, and
            is differentiable.
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
    feasible: Feasible | None = None,
) -> Ascent:
    """Continue the ascent. It never goes down.

    Args:
        function: As in ``begin``.
        state: The state so far.
        movable: ``d`` booleans: the columns that may change.
        num_rounds: The number of rounds. Each evaluates ``function`` once, at a few
            points per problem.
        finish: Whether the ascent ends here. The last round then needs no gradients,
            and the ascent cannot be continued.
        feasible: Linear constraints, which the points satisfy.

    Returns:
        The new state.
    """
    points, values, gradients, inverse = state
    lengths = torch.logspace(
        0.0, SHORTEST_LENGTH, NUM_LENGTHS, dtype=points.dtype, device=points.device
    ).view(-1, *[1] * points.ndim)
    for left in reversed(range(num_rounds)):
        if feasible is None:
            free = _free(points, gradients, movable)
            direction = _direction(inverse, gradients, free)
            trials = (points + lengths * direction).clamp(0.0, 1.0)
        else:
            free = movable.to(points.dtype)
            direction = _feasible_direction(inverse, points, gradients, free, feasible)
            trials = feasible.inward((points + lengths * direction).clamp(0.0, 1.0))
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
        inverse = torch.where(one.unsqueeze(-1), updated, SHRINKAGE * inverse)
        points = torch.where(one, new_points, points)
        gradients = torch.where(one, new_gradients, gradients)
        values = torch.where(better, new_values, values)
    return Ascent(points, values, gradients, inverse)


def _evaluate(
    function: Callable[[Tensor], Tensor], points: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute values and gradients at ``n x batch_shape x d`` points."""
    with torch.enable_grad():
        leaf = points.detach().requires_grad_()
        values = function(leaf)
        (gradients,) = torch.autograd.grad(values.sum(), leaf)
    return values.detach(), gradients


def _free(points: Tensor, gradients: Tensor, movable: Tensor) -> Tensor:
    """Mark coordinates that can move uphill with one, others with zero."""
    held = ((points <= 0.0) & (gradients < 0.0)) | ((points >= 1.0) & (gradients > 0.0))
    return (movable & ~held).to(points.dtype)


def _direction(inverse: Tensor, gradients: Tensor, free: Tensor) -> Tensor:
    """Compute the quasi-Newton step on the free coordinates, of bounded length."""
    uphill = (gradients * free).unsqueeze(-1)
    step = free * (inverse @ uphill).squeeze(-1)
    length: Tensor = step.norm(dim=-1, keepdim=True)
    return step * (LONGEST_STEP / length.clamp_min(LONGEST_STEP))


def _feasible_direction(
    inverse: Tensor,
    points: Tensor,
    gradients: Tensor,
    free: Tensor,
    feasible: Feasible,
) -> Tensor:
    """Maximise the quadratic model near the points, within cube and constraints."""
    longest = _direction(inverse, gradients, free).norm(dim=-1, keepdim=True)
    radius = free * (2.0 * longest).clamp_max(LONGEST_STEP)
    low = (points - radius).clamp_min(0.0)
    width = (points + radius).clamp_max(1.0) - low
    identity = torch.eye(points.shape[-1], dtype=points.dtype, device=points.device)
    hessian = solve_modified(inverse, identity.expand_as(inverse))
    move = low - points
    slope = (hessian @ move.unsqueeze(-1)).squeeze(-1) - gradients
    u = minimize_maximum(
        torch.zeros_like(points[..., :1]),
        (width * slope).unsqueeze(-2),
        (width.unsqueeze(-1) * hessian * width.unsqueeze(-2)).unsqueeze(-3),
        feasible.normals * width.unsqueeze(-2),
        low @ feasible.normals.mT - feasible.limits,
    )
    step: Tensor = move + width * u
    return step


def _update(inverse: Tensor, move: Tensor, change: Tensor) -> Tensor:
    """Update the inverse Hessian by the BFGS formula where the function is concave."""
    curvature = (move * change).sum(dim=-1, keepdim=True).unsqueeze(-1)
    size = move.norm(dim=-1) * change.norm(dim=-1)
    concave = curvature > LEAST_COSINE * size[..., None, None]
    scale = torch.where(concave, curvature, 1.0).reciprocal()
    move, change = move.unsqueeze(-1), change.unsqueeze(-1)
    identity = torch.eye(move.shape[-2], dtype=move.dtype, device=move.device)
    left = identity - scale * move * change.mT
    updated = left @ inverse @ left.mT + scale * move * move.mT
    return torch.where(concave, updated, inverse)
