r"""Recommendations: the setting to choose, and how sure the model is of its worst case.

The worst-case value ``g(x) = max over theta of f(x, theta)`` has a distribution under
the posterior: functions are drawn jointly over many thetas, and the largest value of
each counts. The prediction is the median, and the interval holds 95 %. Both are usually
above the largest posterior mean, because any theta can turn out to be the worst one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from botorch.models.model import Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.models.moments import posterior_moments
from botorch_res.optim import (
    ProbableOptimum,
    WorstCaseSolver,
    mean_function,
    recommend_robust_optimum,
    recommend_under_constraints,
)
from botorch_res.sampling.outcome_constraints import OutcomeConstraints, single_output
from botorch_res.seeding import seeded

# The central 95 %, and the median.
_QUANTILES = (0.025, 0.5, 0.975)
_NUM_FUNCTIONS = 512
# The most thetas over which functions are drawn jointly.
_MAX_THETAS = 128


@dataclass(frozen=True)
class WorstCaseBand:
    """The predicted worst case at several ``x``.

    Attributes:
        x: ``n x d_x`` controllable parts.
        theta: ``n x d_theta`` predicted worst cases: those of the posterior mean.
        value: ``n`` medians of the worst-case value.
        lower: ``n`` lower ends of the 95 % interval of the worst-case value.
        upper: ``n`` upper ends.
    """

    x: Tensor
    theta: Tensor
    value: Tensor
    lower: Tensor
    upper: Tensor


@dataclass(frozen=True)
class Recommendation:
    """What a strategy recommends, in the domain's coordinates.

    Attributes:
        x: The ``d_x`` controllable part.
        theta: The ``d_theta`` predicted worst case there: that of the posterior mean.
        value: The median of the worst-case value at ``x``.
        lower: The lower end of its 95 % interval.
        upper: The upper end.
        standard_deviation: The posterior standard deviation of ``f(x, theta)``.
        probable: With constraints their worst cases at ``x``, and the probability that
            all of them hold for all theta.
    """

    x: Tensor
    theta: Tensor
    value: float
    lower: float
    upper: float
    standard_deviation: float
    probable: ProbableOptimum | None = None


def recommend(
    model: Model, domain: RobustDomain, maximize: bool, seed: int = 0
) -> Recommendation:
    """Recommend the setting whose expected worst case is best.

    Args:
        model: A single-output model.
        domain: The domain.
        maximize: Whether the worst case is to be maximised.
        seed: The seed of the functions.

    Returns:
        The recommendation.
    """
    x = recommend_robust_optimum(model, domain, maximize, seed=seed).x
    return _describe(model, domain, maximize, x, seed)


def recommend_constrained(
    model: Model,
    domain: RobustDomain,
    maximize: bool,
    constraints: OutcomeConstraints,
    seed: int = 0,
) -> Recommendation:
    """Recommend the best setting whose constraints probably hold in the worst case.

    Args:
        model: A model of several outputs; the objective is the first.
        domain: The domain.
        maximize: Whether the worst case is to be maximised.
        constraints: The lower and the upper bound of each constrained output.
        seed: The seed of the functions.

    Returns:
        The recommendation.
    """
    best = recommend_under_constraints(
        model, domain, constraints, maximize=maximize, seed=seed
    )
    own = _describe(single_output(model, 0), domain, maximize, best.x, seed)
    return replace(own, probable=best)


def _describe(
    model: Model, domain: RobustDomain, maximize: bool, x: Tensor, seed: int
) -> Recommendation:
    """Predict the worst case at a setting."""
    band = worst_case_band(model, domain, x.unsqueeze(0), maximize, seed)
    theta = band.theta[0]
    with torch.no_grad():
        posterior = model.posterior(domain.join(x, theta).unsqueeze(0))
        _, variance = posterior_moments(posterior)
    return Recommendation(
        x=x,
        theta=theta,
        value=float(band.value),
        lower=float(band.lower),
        upper=float(band.upper),
        standard_deviation=float(variance.sqrt()),
    )


def worst_case_band(
    model: Model, domain: RobustDomain, x: Tensor, maximize: bool, seed: int = 0
) -> WorstCaseBand:
    """Predict the worst case at given ``x``, with its uncertainty.

    Args:
        model: A single-output model.
        domain: The domain.
        x: ``n x d_x`` controllable parts.
        maximize: Whether the worst case is to be maximised, so that it is the smallest
            value over theta.
        seed: The seed of the functions that give the interval.

    Returns:
        The prediction.
    """
    sign = -1.0 if maximize else 1.0
    with torch.no_grad():
        mean = mean_function(model, maximize, domain)
        worst = WorstCaseSolver(mean, domain)(x)
        theta = worst.theta.reshape(len(x), -1)
        others = _spread_thetas(domain, seed)
        thetas = torch.cat([others.expand(len(x), -1, -1), theta.unsqueeze(-2)], -2)
        drawn = sign * _draw(model, domain.join(x.unsqueeze(-2), thetas), seed)
        levels = x.new_tensor(_QUANTILES)
        ends = drawn.amax(dim=-1).quantile(levels, dim=0)
    lower, value, upper = (sign * ends).sort(dim=0).values
    return WorstCaseBand(x, theta, value, lower, upper)


def _spread_thetas(domain: RobustDomain, seed: int) -> Tensor:
    """Thetas that stand for all of them: the whole set if it is small."""
    choices = domain.theta.choices
    if choices is not None and len(choices) <= _MAX_THETAS:
        return choices
    return domain.theta.sample(_MAX_THETAS, seed=seed)


def _draw(model: Model, points: Tensor, seed: int) -> Tensor:
    """Draw from the joint posterior at ``n x m x d`` points: ``functions x n x m``.

    The covariance of close points is singular up to rounding. Its eigenvalues are
    clamped at zero, which needs no jitter and leaves the others alone.
    """
    n, m, _ = points.shape
    posterior: Any = model.posterior(points)
    if not isinstance(posterior, GPyTorchPosterior):
        with seeded(seed):
            functions: Tensor = posterior.rsample(torch.Size([_NUM_FUNCTIONS]))
        return functions.reshape(_NUM_FUNCTIONS, n, m)
    distribution = posterior.distribution
    # The members of an ensemble are one more dimension.
    mean = distribution.mean.reshape(n, -1, m)
    covariance = distribution.covariance_matrix.reshape(n, -1, m, m)
    values, vectors = torch.linalg.eigh(covariance)
    # The symmetric root is unique, so that curves of the result are smooth.
    root = (vectors * values.clamp_min(0.0).sqrt().unsqueeze(-2)) @ vectors.mT
    members = mean.shape[1]
    half = -(-_NUM_FUNCTIONS // (2 * members))
    generator = torch.Generator(mean.device).manual_seed(seed)
    normal = mean.new_empty(members, m, half).normal_(generator=generator)
    # In pairs of opposite sign, so that minimising is the mirror image of maximising.
    normal = torch.cat([normal, -normal], dim=-1)
    drawn: Tensor = mean.unsqueeze(-1) + root @ normal
    return drawn.permute(1, 3, 0, 2).reshape(-1, n, m)
