r"""The best setting whose constraints probably hold in the worst case.

With joint samples of all outputs, the probability that all constraints hold in the
worst case at ``x`` is the share of samples in which they do. It is at least ``p`` if
and only if the ``p``-quantile of the largest violation is at most zero. Among these
settings, the one with the smallest average worst case is best. If there is none, the
one with the smallest quantile comes closest.

The quantile is continuous in ``x``, but its slope jumps from sample to sample. So the
search needs no derivatives: it screens a grid, and then looks around the best points
again and again, at ever smaller distances. What it finds is the best of many points by
one set of samples, so the probability is counted anew in other samples.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from botorch.exceptions.warnings import BotorchWarning
from botorch.models.model import Model
from torch import Tensor
from torch.quasirandom import SobolEngine

from botorch_res.checks import (
    check_number,
    check_probability,
    check_seed,
    check_type,
)
from botorch_res.domain import RobustDomain
from botorch_res.domain.arguments import Constraints
from botorch_res.optim.robust_optima.recommend import mean_function
from botorch_res.optim.robust_optima.robust_optimum import (
    _price,
    constrained_robust_optimum,
    fill,
    in_rows,
    select_starts,
)
from botorch_res.optim.robust_optima.robust_problem import RobustProblem
from botorch_res.optim.worst_cases.solver import WorstCaseSolver
from botorch_res.sampling import BatchFunction, draw_fourier_samples, posterior_mean
from botorch_res.sampling.outcome_constraints import (
    OutcomeConstraints,
    Reading,
    check_constraints,
    read_outputs,
    single_output,
)
from botorch_res.seeding import derive_seed

# How many points are looked around, at how many points around each for every free
# column, how often, and by how much the distance shrinks each time: to a thousandth.
NUM_CENTERS = 4
POINTS_PER_COLUMN = 8
NUM_ROUNDS = 12
SHRINKAGE = 0.55
# The largest number of candidates to screen, and how many of them are looked at.
MAX_CANDIDATES, NUM_STARTS = 1024, 32
# The price of a violation in the screening, see ``robust_optimum.py``.
SCREENING_PENALTY = 10.0


class ProbableOptimum(NamedTuple):
    """A setting whose constraints hold in the worst case with some probability.

    There is one constraint for each bound: those of the first constrained output come
    first, its lower bound before its upper one.

    Attributes:
        x: The ``d_x`` controllable part.
        theta: The ``d_theta`` worst case of the objective there, by the posterior mean.
        value: The objective's value in this worst case.
        constraint_theta: ``J x d_theta``, the worst case for each bound.
        constraint_value: ``J`` values of the constrained outputs there.
        probability: The probability that all constraints hold at ``x`` for all theta.
    """

    x: Tensor
    theta: Tensor
    value: Tensor
    constraint_theta: Tensor
    constraint_value: Tensor
    probability: float


def recommend_under_constraints(
    model: Model,
    domain: RobustDomain,
    constraints: OutcomeConstraints,
    probability: float = 0.95,
    objective_index: int = 0,
    maximize: bool = True,
    effort: float = 1.0,
    fixed_features: Mapping[int, float] | None = None,
    inequality_constraints: Constraints | None = None,
    num_samples: int = 64,
    seed: int | None = 0,
) -> ProbableOptimum:
    r"""Find the best setting whose constraints probably hold in the worst case.

    Args:
        model: A fitted ``ModelListGP`` of exact single-output models, or one model of
            several independent outputs. Batches of models are ensembles.
        domain: Which columns are controllable, and the values they can take.
        constraints: The lower and the upper bound of each constrained output, one of
            them possibly ``None``, which must hold for all ``theta``.
        probability: The least probability of this.
        objective_index: The output to optimise.
        maximize: If ``True``, maximise the minimum over ``theta``. If ``False``,
            minimise the maximum over ``theta``.
        effort: Scales the density of the search; see ``robust_optimum``.
        fixed_features: Values of columns to keep, ``{column: value}``.
        inequality_constraints: Linear constraints on controllable columns, a list of
            ``(indices, coefficients, rhs)``; see ``RobustDomain.restricted``.
        num_samples: The number of function samples.
        seed: The seed of the samples.

    Returns:
        The setting, the worst cases there, and the probability. If no setting was found
        with the probability asked for, the one that comes closest, with a warning.

    Example:
        >>> from botorch.models import ModelListGP
        >>> both = ModelListGP(model, model)  # cost and stress, say
        >>> best = recommend_under_constraints(both, domain, {1: (None, 250.0)})
        >>> best.x, best.value, best.probability
    """
    check_type("domain", domain, RobustDomain)
    check_constraints(constraints)
    check_number("num_samples", num_samples, 2)
    check_seed(seed)
    check_probability("probability", probability)
    domain = domain.restricted(fixed_features, inequality_constraints)
    readings = read_outputs(model, constraints, objective_index, maximize)
    members = readings[0].view.batch_shape.numel()
    count = math.ceil(num_samples / members)

    def make_problem(draw: Callable[[int, Reading], BatchFunction]) -> RobustProblem:
        objective, *others = (
            WorstCaseSolver(channel, domain, effort)
            for i, reading in enumerate(readings)
            for channel in reading.channels(draw(i, reading))
        )
        return RobustProblem(objective, others)

    def draw_from(first: int) -> RobustProblem:
        return make_problem(
            lambda i, reading: draw_fourier_samples(
                reading.view, count, seed=derive_seed(seed, first + i), domain=domain
            )
        )

    means = make_problem(lambda i, reading: posterior_mean(reading.view, domain))
    by_mean = constrained_robust_optimum(means.objective, means.constraints)
    start = by_mean.x.reshape(-1, domain.x.dim)
    x, level = best_probable(draw_from(0), start, probability)
    held = draw_from(len(readings))(x.unsqueeze(0)).is_feasible
    share = float(held.double().mean())
    if level > 0.0:
        warnings.warn(
            f"Found no setting whose constraints hold in the worst case with a "
            f"probability of {probability:g}: at the one that comes closest it is "
            f"{share:.2g}.",
            BotorchWarning,
            stacklevel=2,
        )
    outputs = [(objective_index, maximize)]
    outputs += [
        (index, bound is bounds[0])
        for index, bounds in sorted(constraints.items())
        for bound in bounds
        if bound is not None
    ]
    found = [
        _predict(single_output(model, i), negate, domain, x) for i, negate in outputs
    ]
    thetas = torch.stack([theta for theta, _ in found])
    values = torch.stack([value for _, value in found])
    return ProbableOptimum(x, thetas[0], values[0], thetas[1:], values[1:], share)


def _predict(
    model: Model, negate: bool, domain: RobustDomain, x: Tensor
) -> tuple[Tensor, Tensor]:
    """The worst case of an output by its posterior mean, and the value there."""
    with torch.no_grad():
        worst = WorstCaseSolver(mean_function(model, negate, domain), domain)(x[None])
    value = worst.value.reshape(())
    return worst.theta.reshape(-1), -value if negate else value


def best_probable(
    problem: RobustProblem, x: Tensor, probability: float
) -> tuple[Tensor, float]:
    """Find the best setting whose constraints hold with a probability.

    Args:
        problem: ``sample_shape`` joint samples of the function and its constraints.
        x: ``n x d_x`` settings to look at in addition.
        probability: The least share of samples in which all constraints hold.

    Returns:
        The ``d_x`` setting, and the quantile of the violation there: at most zero if
        the setting has the probability.
    """
    part = problem.objective.domain.x

    def judge(points: Tensor) -> tuple[Tensor, Tensor]:
        found = problem(points)
        return _average(found.value, found.violation, probability)

    with torch.no_grad():
        if part.choices is not None:
            points = part.choices
            value, level = judge(points)
        else:
            starts, spacing = _screened(problem, probability)
            points = torch.cat([x, starts])
            value, level = judge(points)
            for i in range(NUM_ROUNDS):
                best = _order(value, level)[:NUM_CENTERS]
                points, value, level = points[best], value[best], level[best]
                trial = _around(points, SHRINKAGE**i * spacing, problem, seed=i)
                points = torch.cat([points, trial])
                value, level = (
                    torch.cat(pair)
                    for pair in zip((value, level), judge(trial), strict=True)
                )
        best = _order(value, level)[0]
        return points[best], float(level[best])


def _average(
    value: Tensor, violation: Tensor, probability: float
) -> tuple[Tensor, Tensor]:
    """Average worst cases over samples, and take the quantile of violations."""
    value, violation = (part.reshape(-1, part.shape[-1]) for part in (value, violation))
    # Rounding must not ask for one sample more.
    rank = math.ceil(probability * len(violation) - 1e-9)
    return value.mean(dim=0), violation.kthvalue(max(1, rank), dim=0).values


def _order(value: Tensor, level: Tensor) -> Tensor:
    """Sort points: those that have the probability by value, then the others."""
    beyond = value.amax() + 1.0 + level
    return torch.where(level <= 0.0, value, beyond).argsort()


def _screened(problem: RobustProblem, probability: float) -> tuple[Tensor, Tensor]:
    """Choose promising points of a grid; return the grid's spacing, too."""
    part = problem.objective.domain.x
    free, spacing, _ = fill(problem, MAX_CANDIDATES)
    candidates = in_rows(part, free)
    points = candidates.reshape(-1, part.dim)
    value, level = _average(*problem.lower_bound(points), probability)
    merit = _price(problem, value, level, SCREENING_PENALTY).merit(value, level)
    return select_starts(part, candidates, merit, spacing, NUM_STARTS), spacing


def _around(
    points: Tensor, radius: Tensor, problem: RobustProblem, seed: int
) -> Tensor:
    """Points in boxes around others, in the same rows of listed values."""
    part = problem.objective.domain.x
    dim = len(part.free)
    engine = SobolEngine(dim, scramble=True, seed=seed)
    unit = engine.draw(POINTS_PER_COLUMN * dim, dtype=torch.double).to(points)
    free = part.free_of(points).unsqueeze(-2) + radius * (2.0 * unit - 1.0)
    lower, upper = part.free_bounds
    free = torch.minimum(torch.maximum(free, lower), upper)
    trial = part.combine(free, part.listed_of(points).unsqueeze(-2))
    return part.inward(trial).reshape(-1, part.dim)
