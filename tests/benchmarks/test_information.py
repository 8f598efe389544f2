"""The brute-force estimate of information, where it has a closed form."""

from __future__ import annotations

import math

import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel, ScaleKernel

from benchmarks import information
from benchmarks.information import Grid, make_grid, true_information
from botorch_res import RobustDomain

DOUBLE = {"dtype": torch.double}


@pytest.fixture(autouse=True)
def forget():
    """Keep the problems of a test to itself."""
    yield
    true_information.cache_clear()


def test_the_smaller_of_two_values(monkeypatch):
    """Two independent values: the optimum says which is smaller, and its value."""
    domain = RobustDomain(
        torch.tensor([[0.0, 0.0], [1.0, 1.0]], **DOUBLE),
        [1],
        x_choices=torch.tensor([[0.0], [1.0]], **DOUBLE),
        theta_choices=torch.tensor([[0.0]], **DOUBLE),
    )
    base = RBFKernel()
    base.lengthscale = 0.01
    kernel = ScaleKernel(base).double()
    kernel.outputscale = 1.0
    Y = torch.zeros(1, 1, **DOUBLE)
    model = SingleTaskGP(
        torch.tensor([[0.5, 0.5]], **DOUBLE),
        Y,
        torch.full_like(Y, information.NOISE),
        covar_module=kernel,
        outcome_transform=None,
    ).eval()
    model.mean_module.initialize(constant=0.0)
    monkeypatch.setattr(information, "make_grid", lambda seed: Grid(model, domain))
    # By quadrature: with probability 1/2 a value is the smaller one, and only the noise
    # is left; or it is the larger one, and is truncated to values above the optimum.
    f = torch.linspace(-6.0, 6.0, 2401, **DOUBLE)
    normal = torch.distributions.Normal(0.0, 1.0)
    noise = torch.distributions.Normal(0.0, information.NOISE**0.5)
    step = float(f[1] - f[0])
    density = normal.log_prob(f).exp()
    smoothing = noise.log_prob(f.unsqueeze(-1) - f).exp() * step
    left = 0.5 * math.log(2.0 * math.pi * math.e * information.NOISE) * 0.5
    for v in torch.linspace(-5.0, 3.0, 81, **DOUBLE):
        above = density * (f > v)
        y = smoothing @ (above / (above.sum() * step))
        entropy = -float(torch.xlogy(y, y).sum()) * step
        weight = float(normal.log_prob(v).exp() * (1.0 - normal.cdf(v))) * 0.1
        left += weight * entropy
    prior = 0.5 * math.log(2.0 * math.pi * math.e * (1.0 + information.NOISE))
    found = true_information(0, 2**15)
    # Within a block of 256 draws the optimal values differ, which adds 0.01 to 0.02.
    torch.testing.assert_close(
        found, torch.full_like(found, prior - left), rtol=0.0, atol=0.04
    )


def test_no_more_than_there_is_to_know():
    """The information about the optimum is at most that about the value."""
    model, domain = make_grid(1)
    points = domain.all_pairs().flatten(0, 1)
    variance = model.posterior(points.unsqueeze(-2)).variance.flatten()
    most = 0.5 * (1.0 + variance / information.NOISE).log()
    found = true_information(1, 2**13)
    assert found.shape == (len(points),)
    assert bool((found <= most + 0.1).all())
    assert bool((found >= -0.1).all())
    assert float(found.max()) > 0.2
