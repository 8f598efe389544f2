"""Robust Entropy Search with BoTorch's fully Bayesian SAAS model."""

import numpy as np
import pytest
import torch
from botorch.models import fully_bayesian
from botorch.models.fully_bayesian import SaasFullyBayesianSingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf

from botorch_res import (
    RobustDomain,
    optimize_robust_acqf,
    qRobustEntropySearch,
    recommend_robust_optimum,
)
from tests.brute_force import mean_at, pairs, robust_value
from tests.problems import DOUBLE, Draws, line, make_domain, make_kernel, make_model

BOUNDS = torch.tensor([[-5.0, 0.0], [10.0, 2.0]], **DOUBLE)
DOMAIN = RobustDomain(BOUNDS, [1])
SAMPLES = {
    "mean": torch.tensor([0.0, 0.3, -0.2], **DOUBLE),
    "outputscale": torch.tensor([1.0, 0.7, 1.5], **DOUBLE),
    "lengthscale": torch.tensor([[0.3, 0.5], [0.2, 0.9], [0.5, 0.4]], **DOUBLE),
    "noise": torch.tensor([1e-3, 1e-2, 3e-3], **DOUBLE),
}
SEEDS = (3, 4, 5)


def data():
    unit = Draws(0).uniform(9, 2)
    Y = (5 * unit[:, :1]).sin() * unit[:, 1:] + unit[:, 1:].square()
    return torch.lerp(*BOUNDS, unit), 20 * Y + 7


@pytest.fixture(params=["inferred noise", "given noise"])
def models(request, monkeypatch):
    """A SAAS model, and its members as models of their own."""
    # The constructor hands the data to JAX, which only the sampler NUTS makes use of.
    monkeypatch.setattr(fully_bayesian, "_HAS_JAX", True)
    monkeypatch.setattr(fully_bayesian, "jnp", np, raising=False)
    X, Y = data()
    Yvar = torch.full_like(Y, 0.1) if request.param == "given noise" else None
    model = SaasFullyBayesianSingleTaskGP(
        X,
        Y,
        Yvar,
        input_transform=Normalize(2, bounds=BOUNDS),
        outcome_transform=Standardize(1),
    )
    model.load_mcmc_samples(SAMPLES)
    singles = []
    for i in range(3):
        scales = SAMPLES["lengthscale"][i], SAMPLES["outputscale"][i]
        single = make_model(X, Y, Yvar, make_kernel(2.5, *scales), BOUNDS)
        single.mean_module.constant = SAMPLES["mean"][i]
        if Yvar is None:
            single.likelihood.noise = SAMPLES["noise"][i]
        singles.append(single.eval())
    return model.eval(), singles


@pytest.mark.parametrize("finite", [False, True])
def test_value_and_gradient_are_averages_over_the_members(models, finite):
    model, singles = models
    domain = make_domain("theta" if finite else "box", BOUNDS, line(7))
    z = DOMAIN.sample(20, seed=1).unsqueeze(-2).requires_grad_(True)
    options = {"num_samples": 4, "maximize": False, "X_pending": domain.sample(1, 9)}
    acqf = qRobustEntropySearch(model, domain, seed=SEEDS, **options)
    values = acqf(z)
    assert values.shape == (20,)
    expected = sum(
        qRobustEntropySearch(single, domain, seed=seed, **options)(z) / 3
        for single, seed in zip(singles, SEEDS, strict=True)
    )
    torch.testing.assert_close(values, expected, rtol=0, atol=1e-7)
    gradient, expected_gradient = (
        torch.autograd.grad(total.sum(), z)[0] for total in (values, expected)
    )
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-4, atol=1e-6)
    assert values.max() > 1e-3


# The line search of L-BFGS-B may end at a kink.
@pytest.mark.filterwarnings("ignore:Optimization failed:RuntimeWarning")
def test_search_and_recommendation(models):
    model, _ = models
    acqf = qRobustEntropySearch(model, DOMAIN, num_samples=4, maximize=False, seed=0)
    random = acqf(DOMAIN.sample(256, seed=2).unsqueeze(-2)).max()
    _, own = optimize_robust_acqf(acqf, DOMAIN, seed=0)
    assert own >= random
    candidate, value = optimize_acqf(
        acqf, BOUNDS, q=1, num_restarts=8, raw_samples=256, options={"seed": 0}
    )
    assert candidate.shape == (1, 2)
    assert value > 0.99 * own
    # The robust optimum of the mixture's mean: no worse than any of a grid, and its
    # value is that of the worst theta of a grid.
    recommended = recommend_robust_optimum(model, DOMAIN, maximize=False)
    assert recommended.value <= robust_value(mean_at(model, pairs(DOMAIN, 200, 201)))
    alone = RobustDomain(BOUNDS, [1], x_choices=recommended.x.unsqueeze(-1))
    worst = robust_value(mean_at(model, pairs(alone, 1, 201)))
    assert recommended.value == pytest.approx(float(worst), abs=1e-3)
