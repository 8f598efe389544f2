"""The knowledge gradient on a finite domain, computed in another way."""

import math

import torch

import benchmarks.baselines  # noqa: F401, for their names
from tests.benchmarks.baselines.built import built
from tests.strategies.textbook import CASES, DOUBLE, FLAT, NORMAL, Posterior, data


@CASES
def test_knowledge_gradient(seed, maximize):
    # The largest posterior mean over all pairs and data after an observation, which
    # the mean is linear in: for the imagined ones, and by integration over all.
    X, Y = data(seed=seed)
    posterior = Posterior(X, Y, negate=not maximize)
    choices = torch.cat([FLAT, X])
    scale = posterior.deviation(FLAT).square() + posterior.noise
    slope = posterior.covariance(choices, FLAT) / scale.sqrt()

    def largest(standardised):
        mean = posterior.mean(choices)[:, None, None]
        return (mean + slope.unsqueeze(-1) * standardised).amax(dim=0)

    acqf, value = built("knowledge_gradient", X, Y, maximize, num_fantasies=64)
    imagined = largest(acqf.sampler.base_samples.flatten())
    torch.testing.assert_close(value, imagined.mean(dim=-1), rtol=0, atol=1e-6)
    grid = torch.linspace(-6.0, 6.0, 2001, **DOUBLE)
    weight = NORMAL.log_prob(grid).exp()
    expected = torch.trapezoid(largest(grid) * weight, grid, dim=-1)
    square = torch.trapezoid(largest(grid).square() * weight, grid, dim=-1)
    error = (square - expected.square()).clamp_min(0.0).sqrt() / math.sqrt(64)
    assert ((value - expected).abs() <= 4 * error + 1e-6).all()
