"""Each strategy's proposal on a finite domain, computed in another way."""

import math

import pytest
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.risk_measures import WorstCase
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputPerturbation
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.sampling.normal import SobolQMCNormalSampler
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel
from gpytorch.means import ZeroMean
from linear_operator import to_linear_operator

from botorch_res import RobustDomain
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


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("is_finite", [True, False])
@pytest.mark.parametrize("dim", [1, 2])
def test_worst_case_improvement_with_tolerances(dim, is_finite, maximize):
    """It is what BoTorch's ``InputPerturbation`` makes of the same model and seed."""
    # All points are settings, so that both have the same baseline.
    bounds = torch.tensor([[0.0], [1.0]], **DOUBLE).expand(2, dim)
    limits = dict(list({0: 0.1, 1: (-0.05, 0.2)}.items())[:dim])
    deviations = RobustDomain(bounds, tolerances=limits).theta.sample(6, seed=1)
    choices = {"theta_choices": deviations} if is_finite else {}
    domain = RobustDomain(bounds, tolerances=limits, **choices)
    X = domain.x.sample(8, seed=2)
    Y = (9.0 * X).sin().sum(dim=-1, keepdim=True)
    sign = 1.0 if maximize else -1.0

    def make_model(targets, transform=None):
        kernel = RBFKernel(ard_num_dims=dim)
        kernel.lengthscale = 0.3
        return SingleTaskGP(
            X,
            targets,
            torch.full_like(Y, 1e-4),
            covar_module=kernel,
            mean_module=ZeroMean(),
            outcome_transform=None,
            input_transform=transform,
        ).eval()

    ours = WorstCaseImprovement(
        *(make_model(Y), domain, deviations, X),
        maximize=maximize,
        X_pending=None,
        num_samples=64,
        seed=5,
    )
    with seeded(5):
        theirs = qLogNoisyExpectedImprovement(
            make_model(sign * Y, InputPerturbation(deviations)),
            X_baseline=X.unique(dim=0),
            sampler=SobolQMCNormalSampler(torch.Size([64]), seed=5),
            objective=WorstCase(len(deviations)),
            posterior_transform=Jitter(),
            prune_baseline=True,
        )
    x = domain.x.sample(32, seed=3).unsqueeze(-2)
    with torch.no_grad():
        values = ours(x), theirs(x)
    assert values[0].std() > 0.1
    # Roundings of the two covariances, by the condition number that jitter allows.
    torch.testing.assert_close(*values, rtol=1e-5, atol=1e-5)


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
