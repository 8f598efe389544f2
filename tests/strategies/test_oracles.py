"""Each strategy's proposal on a finite domain, computed in another way."""

import math

import pytest
import torch
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator

from botorch_res.seeding import seeded
from botorch_res.strategies import make_strategy
from botorch_res.strategies.worst_case_improvement import Jitter, WorstCaseImprovement
from tests.strategies.textbook import (
    BOUNDS,
    CASES,
    DOMAIN,
    DOUBLE,
    FLAT,
    MODEL,
    PAIRS,
    Posterior,
    data,
    propose,
    sampled_values,
)


@CASES
@pytest.mark.parametrize("sqrt_beta", [1.0, 2.0, 4.0])
def test_stable_opt(seed, maximize, sqrt_beta):
    X, Y = data(seed=seed)
    posterior = Posterior(X, Y, negate=maximize)
    mean = posterior.mean(FLAT).view(PAIRS.shape[:2])
    width = sqrt_beta * posterior.deviation(FLAT).view(PAIRS.shape[:2])
    i = (mean - width).amax(dim=1).argmin()
    j = (mean + width)[i].argmax()
    proposed = propose("stable_opt", X, Y, maximize, sqrt_beta=sqrt_beta)
    assert torch.equal(proposed, PAIRS[i, j])


@CASES
def test_worst_case_improvement(seed, maximize):
    # Improvement of the worst case over that of every evaluated x, by joint samples.
    X, Y = data(seed=seed)
    posterior = Posterior(X, Y, negate=not maximize)
    baseline = DOMAIN.join(DOMAIN.split(X)[0].unsqueeze(-2), DOMAIN.theta.choices)
    points = torch.cat([PAIRS, baseline]).flatten(0, 1)
    values = sampled_values(posterior, points, 20000, seed)
    worst = values.view(len(PAIRS) + len(X), -1, 20000).amin(dim=1)
    new, old = worst.split([len(PAIRS), len(X)])
    improvement = (new - old.amax(dim=0)).clamp_min(0.0)
    strategy = make_strategy(
        "worst_case_nei",
        DOMAIN,
        maximize=maximize,
        model_factory=MODEL,
        num_samples=1024,
    )
    acqf = WorstCaseImprovement(
        *(strategy.fit(X, Y), DOMAIN, DOMAIN.theta.choices, X),
        maximize=maximize,
        X_pending=None,
        num_samples=1024,
        seed=5,
    )
    with torch.no_grad():
        value = acqf(PAIRS[:, :1])
    error = improvement.std(dim=-1) * math.sqrt(1 / 1024 + 1 / 20000)
    difference = value.exp() - improvement.mean(dim=-1)
    # Where no sample improves, BoTorch's smoothed improvement is not quite zero.
    assert (difference.abs() <= 4 * error + 1e-12).all()
    i = value.argmax()
    j = posterior.mean(PAIRS[i]).argmin()
    assert torch.equal(strategy.propose(X, Y, seed=5)[0], PAIRS[i, j])


@pytest.mark.parametrize("pending", [False, True])
def test_pruning_of_the_baseline_is_seeded(pending):
    # BoTorch would keep three and four points at these states of the global generator.
    X, Y = data(seed=3)
    model = MODEL(X, Y, None, BOUNDS)
    values = []
    for state in (0, 11):
        with seeded(state):
            before = torch.get_rng_state()
            acqf = WorstCaseImprovement(
                *(model, DOMAIN, DOMAIN.theta.choices, X),
                maximize=False,
                X_pending=FLAT[:2] if pending else None,
                num_samples=64,
                seed=5,
            )
            assert torch.equal(torch.get_rng_state(), before)
        values.append(acqf(PAIRS[:, :1]))
    assert torch.equal(*values)


def test_jitter_is_all_that_is_added():
    X, Y = data()
    model = MODEL(X, Y, None, BOUNDS)
    with torch.no_grad():
        before = model.posterior(FLAT[:9])
        after = model.posterior(FLAT[:9], posterior_transform=Jitter())
    added = after.covariance_matrix - before.covariance_matrix
    torch.testing.assert_close(added, 1e-8 * torch.eye(9, **DOUBLE), rtol=1e-4, atol=0)
    assert torch.equal(after.mean, before.mean)
    assert torch.equal(Jitter().evaluate(Y), Y)


def test_jitter_does_not_factorise():
    """Not all points that BoTorch knows, in every call, nor what rounding spoilt."""
    covariance = torch.ones(3, 3, **DOUBLE) - 1e-6 * torch.eye(3, **DOUBLE)
    lazy = MultivariateNormal(torch.zeros(3, **DOUBLE), to_linear_operator(covariance))
    after = Jitter()(GPyTorchPosterior(lazy))
    expected = covariance + 1e-8 * torch.eye(3, **DOUBLE)
    torch.testing.assert_close(after.covariance_matrix, expected)
