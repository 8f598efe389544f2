"""Robust Entropy Search with BoTorch's fully Bayesian SAAS model."""

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP, fully_bayesian
from botorch.models.fully_bayesian import SaasFullyBayesianSingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.means import ConstantMean

from botorch_res import (
    RobustDomain,
    optimize_robust_acqf,
    qRobustEntropySearch,
    recommend_robust_optimum,
)

DOUBLE = {"dtype": torch.double}
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
    generator = torch.Generator().manual_seed(0)
    unit = torch.rand(9, 2, generator=generator, **DOUBLE)
    Y = (5 * unit[:, :1]).sin() * unit[:, 1:] + unit[:, 1:].square()
    return torch.lerp(BOUNDS[0], BOUNDS[1], unit), 20 * Y + 7


def transforms():
    return {
        "input_transform": Normalize(2, bounds=BOUNDS),
        "outcome_transform": Standardize(1),
    }


@pytest.fixture(params=["inferred noise", "given noise"])
def models(request, monkeypatch):
    """A SAAS model, and its members as models of their own."""
    # The constructor hands the data to JAX, which only the sampler NUTS makes use of.
    monkeypatch.setattr(fully_bayesian, "_HAS_JAX", True)
    monkeypatch.setattr(fully_bayesian, "jnp", np, raising=False)
    X, Y = data()
    Yvar = torch.full_like(Y, 0.1) if request.param == "given noise" else None
    model = SaasFullyBayesianSingleTaskGP(X, Y, Yvar, **transforms())
    model.load_mcmc_samples(SAMPLES)
    singles = []
    for i in range(3):
        single = SingleTaskGP(
            X,
            Y,
            Yvar,
            mean_module=ConstantMean(),
            covar_module=ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2)),
            **transforms(),
        )
        single.mean_module.constant = SAMPLES["mean"][i]
        single.covar_module.outputscale = SAMPLES["outputscale"][i]
        single.covar_module.base_kernel.lengthscale = SAMPLES["lengthscale"][i]
        if Yvar is None:
            single.likelihood.noise = SAMPLES["noise"][i]
        singles.append(single.double().eval())
    return model.eval(), singles


@pytest.mark.parametrize("finite", [False, True])
def test_value_and_gradient_are_averages_over_the_members(models, finite):
    model, singles = models
    thetas = torch.linspace(0, 2, 7, **DOUBLE).unsqueeze(-1)
    domain = RobustDomain(BOUNDS, [1], theta_choices=thetas if finite else None)
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
    x = torch.cat([torch.linspace(-5, 10, 200, **DOUBLE), recommended.x])
    theta = torch.linspace(0, 2, 201, **DOUBLE)
    with torch.no_grad():
        grid = torch.cartesian_prod(x, theta).unsqueeze(-2)
        mean = model.posterior(grid).mixture_mean
    worst = mean.view(201, 201).amax(dim=-1)
    assert recommended.value <= worst[:-1].min()
    assert recommended.value == pytest.approx(float(worst[-1]), abs=1e-3)
