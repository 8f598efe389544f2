r"""The setting with the smallest expected worst case.

The robust optimum of the posterior mean takes the mean for the truth. Where nothing has
been evaluated the mean is flat, and a setting there looks harmless. Yet some theta is
probably bad: the expected maximum is above the maximum of the expectation. An average
over function samples sees this:

.. math:: G(x) = \frac{1}{C} \sum_c \max_\theta f_c(x, \theta).

Its minimum is the setting to recommend. The average is an estimate, and where all is
known well the mean's optimum is more precise. So that one stays, unless the samples
tell the difference from their own error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from botorch.utils.transforms import normalize, unnormalize
from torch import Tensor

from botorch_res.models import ExactGPView
from botorch_res.optim.robust_optima.ascent import Feasible, advance, begin
from botorch_res.optim.robust_optima.robust_optimum import (
    RobustOptimum,
    fill,
    in_rows,
    select_starts,
)
from botorch_res.optim.robust_optima.robust_problem import RobustProblem
from botorch_res.optim.worst_cases.solver import WorstCaseSolver
from botorch_res.sampling import draw_fourier_samples

# By how many standard errors the average must be smaller than at the mean's optimum.
# In 20 runs on functions from the prior and 20 on Branin, 1 loses precision at the end
# of a run, and 3 takes some of the chances that 2 takes.
SIGNIFICANCE = 2.0
# The largest number of candidates, how many of them are looked at closely, how many of
# these are starts of an ascent, and its number of rounds.
MAX_CANDIDATES = 1024
NUM_STARTS = 8
NUM_KEPT = 3
NUM_ROUNDS = 8


def prefer_expectation(
    mean: WorstCaseSolver,
    x: Tensor,
    view: ExactGPView,
    num_samples: int,
    seed: int | Sequence[int] | None,
) -> RobustOptimum:
    """Replace settings by those with smaller expected worst cases, if there are any.

    Args:
        mean: The solver of the posterior means.
        x: The ``batch_shape x d_x`` robust optima of the means.
        view: The models. They are ensembles if they have more dimensions than
            ``batch_shape``.
        num_samples: The number of functions for each setting.
        seed: The seed of the functions, or one for each model.

    Returns:
        The settings, and their worst cases by the means.
    """
    batch_shape = x.shape[:-1]
    members = view.batch_shape.numel() // batch_shape.numel()
    samples = draw_fourier_samples(
        view, math.ceil(num_samples / members), seed=seed, domain=mean.domain
    )
    solver = WorstCaseSolver(samples, mean.domain, mean.effort)
    x = least_expected_worst_case(solver, x)
    theta, value = mean(x.unsqueeze(-2))
    return RobustOptimum(x, theta.reshape(*batch_shape, -1), value.reshape(batch_shape))


def least_expected_worst_case(solver: WorstCaseSolver, x: Tensor) -> Tensor:
    """Find the setting with the smallest average of the worst cases of functions.

    Args:
        solver: The solver of ``C x members x batch_shape`` functions, whose average is
            over all but the ``batch_shape``.
        x: ``batch_shape x d_x`` settings to return unless another one is better by more
            than the error of the average.

    Returns:
        ``batch_shape x d_x`` settings.
    """
    part = solver.domain.x
    shape = solver.functions.sample_shape
    first = len(shape) - x.ndim + 1

    def worst_cases(points: Tensor) -> Tensor:
        """All ``functions x batch_shape x n`` worst cases at ``n`` settings each."""
        found = solver(points.expand(*shape, *points.shape[-2:]))
        value: Tensor = found.value.flatten(end_dim=first - 1)
        return value

    def in_unit_cube(u: Tensor) -> Tensor:
        # The ascent has the batch dimensions last.
        points = unnormalize(u.flatten(end_dim=1), part.bounds).movedim(0, -2)
        average = worst_cases(points).mean(dim=0).movedim(-1, 0)
        values: Tensor = -average.unflatten(0, u.shape[:2])
        return values

    with torch.no_grad():
        if part.choices is not None:
            value = solver.lower_bound(part.choices).flatten(end_dim=first - 1)
            count = min(NUM_STARTS, len(part.choices))
            best = value.mean(dim=0).topk(count, largest=False).indices
            found = part.choices[best]
        else:
            candidates, spacing, _ = fill(RobustProblem(solver), MAX_CANDIDATES)
            candidates = in_rows(part, candidates)
            value = solver.lower_bound(candidates.flatten(end_dim=-2))
            value = value.flatten(end_dim=first - 1).mean(dim=0)
            starts = select_starts(part, candidates, value, spacing, NUM_STARTS)
            starts = torch.cat([starts, x.unsqueeze(-2)], dim=-2)
            values = worst_cases(starts).mean(dim=0)
            count = min(NUM_KEPT, values.shape[-1])
            best = values.topk(count, largest=False).indices.unsqueeze(-1)
            starts = starts.take_along_dim(best, dim=-2).movedim(-2, 0)
            columns = torch.arange(part.dim, device=x.device)
            movable = torch.isin(columns, part.free)
            feasible = None
            if part.is_constrained:
                feasible = Feasible.in_unit_cube(
                    part.normals, part.limits, part.inward, part.bounds
                )
            state = begin(in_unit_cube, normalize(starts, part.bounds), movable)
            state = advance(in_unit_cube, state, movable, NUM_ROUNDS, True, feasible)
            points = torch.where(
                movable, unnormalize(state.points, part.bounds), starts
            )
            found = points.movedim(0, -2)
        both = torch.cat([found, x.unsqueeze(-2)], dim=-2)
        values = worst_cases(both)
        best = values[..., :-1].mean(dim=0).argmin(dim=-1, keepdim=True)
        gain = (values[..., -1:] - values[..., :-1]).take_along_dim(
            best.unsqueeze(0), -1
        )
        mean, error = gain.mean(dim=0), gain.std(dim=0) / len(gain) ** 0.5
        is_better = mean > SIGNIFICANCE * error
        best = found.take_along_dim(best.unsqueeze(-1), dim=-2).squeeze(-2)
        chosen: Tensor = torch.where(is_better, best, x)
        return chosen
