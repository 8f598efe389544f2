"""Max-value and joint entropy search on a finite domain, computed in another way."""

import math

import pytest
import torch
from botorch.models.utils.gpytorch_modules import MIN_INFERRED_NOISE_LEVEL
from botorch.sampling.normal import SobolQMCNormalSampler

import benchmarks.baselines  # noqa: F401, for their names
from botorch_res.models import BayesianGP, ExactGPView
from botorch_res.models.members import members
from botorch_res.seeding import seeded
from botorch_res.strategies import make_strategy
from tests.benchmarks.baselines.built import built
from tests.problems import Draws
from tests.strategies.options import QUICK
from tests.strategies.textbook import (
    CASES,
    DOMAIN,
    DOUBLE,
    FLAT,
    NORMAL,
    Posterior,
    data,
    sampled_values,
    unit_cube,
)


@CASES
def test_max_value_entropy(seed, maximize):
    X, Y = data(seed=seed)
    posterior = Posterior(X, Y, negate=not maximize)
    acqf, _ = built("max_value_entropy", X, Y, maximize, num_optima=20)
    # The information that a noisy observation holds about the sampled optimal values,
    # by integration over the standardised observation.
    best = acqf.posterior_max_values.view(-1, 1, 1)
    mean, variance = posterior.mean(FLAT), posterior.deviation(FLAT).square()
    noisy = (variance + posterior.noise).sqrt()
    grid = torch.linspace(-8.0, 8.0, 801, **DOUBLE)
    later_mean = mean.unsqueeze(-1) + (variance / noisy).unsqueeze(-1) * grid
    later_deviation = (variance * posterior.noise).sqrt() / noisy
    log_ratio = torch.special.log_ndtr(
        (best - later_mean) / later_deviation.unsqueeze(-1)
    ) - torch.special.log_ndtr((best - mean.unsqueeze(-1)) / variance.sqrt()[:, None])
    density = NORMAL.log_prob(grid) + log_ratio  # without the factor 1 / noisy
    entropy = -torch.trapezoid(density.exp() * density, grid, dim=-1)
    expected = 0.5 * math.log(2 * math.pi * math.e) - entropy.mean(dim=0)
    # BoTorch averages over quasi-random observations. How far the averages of several
    # such sets are apart tells how far they may be from the integral; the last term is
    # for the bound that BoTorch sets to probabilities.
    found = []
    for replicate in range(8):
        acqf.sampler = SobolQMCNormalSampler(torch.Size([1024]), seed=replicate)
        found.append(acqf(unit_cube(FLAT).unsqueeze(-2)))
    smallest, largest = torch.stack(found).aminmax(dim=0)
    error = largest - smallest + 1e-4
    assert ((smallest - error < expected) & (expected < largest + error)).all()
    assert error.max() < 0.05 * expected.max()

    # BoTorch's optimal values are those of independent points. Slepian's inequality:
    # these are larger than those of points that are positively correlated.
    choices = torch.cat([FLAT, X])
    joint = sampled_values(posterior, choices, 4000, seed).amax(dim=0)
    normal = Draws(seed).normal(4000, len(choices))
    alone = posterior.mean(choices) + posterior.deviation(choices) * normal
    alone = alone.amax(dim=-1)
    best = best.flatten()
    slack = 4 * best.std() / math.sqrt(len(best))
    assert joint.mean() - slack < best.mean() < alone.mean() + slack


@CASES
def test_joint_entropy_search(seed, maximize):
    X, Y = data(seed=seed)
    posterior = Posterior(X, Y, negate=not maximize)
    acqf, value = built("joint_entropy_search", X, Y, maximize, num_optima=512)
    # Conditioned on the place and the value of each sampled optimum, the variance of
    # the normal truncated at that value; the lower bound of Tu et al. (2022).
    where = torch.cdist(acqf.optimal_inputs.flatten(0, 1), unit_cube(FLAT)).argmin(-1)
    best = acqf.optimal_outputs.flatten()
    variance = posterior.deviation(FLAT).square().unsqueeze(-1)
    covariance = posterior.covariance(FLAT, FLAT)
    # BoTorch takes optimal values for observations with this noise, and the average
    # of the noise of all observations for that of a new one.
    at_best = covariance.diagonal()[where] + MIN_INFERRED_NOISE_LEVEL
    noise = posterior.noise
    later_noise = (len(X) * noise + MIN_INFERRED_NOISE_LEVEL) / (len(X) + 1)
    weight = covariance[:, where] / at_best
    mean = posterior.mean(FLAT)
    given_mean = mean.unsqueeze(-1) + weight * (best - mean[where])
    given_variance = variance - weight * covariance[:, where]
    gamma = (best - given_mean) / given_variance.sqrt()
    ratio = (NORMAL.log_prob(gamma) - torch.special.log_ndtr(gamma)).exp()
    left = given_variance * (1 - (gamma + ratio) * ratio)
    expected = ((variance + noise).log() - (left + later_noise).log()).mean(dim=-1) / 2
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-5)

    # The sampled optima are those of the posterior.
    samples = sampled_values(posterior, FLAT, 8000, seed)
    largest, place = samples.max(dim=0)
    frequency = torch.bincount(place, minlength=len(FLAT)) / 8000
    found = torch.bincount(where, minlength=len(FLAT)) / 512
    # The smallest variance is that of a place that is found once.
    error = (frequency * (1 - frequency)).clamp_min(1 / 512).div(512).sqrt()
    assert ((found - frequency).abs() / error).max() < 4
    error = largest.std() * math.sqrt(1 / 512 + 1 / 8000)
    assert (best.mean() - largest.mean()).abs() < 4 * error


@pytest.mark.parametrize(
    ("name", "optima"),
    [
        ("max_value_entropy", "posterior_max_values"),
        ("joint_entropy_search", "optimal_outputs"),
    ],
)
def test_ensemble_shares_out_the_sampled_optima(name, optima):
    X, Y = data()
    factory = BayesianGP(num_samples=3, num_steps=5)
    options = {"maximize": False, "model_factory": factory, "num_optima": 8}
    strategy = make_strategy(name, DOMAIN, **{**QUICK[name], **options})
    with seeded(0):
        acqf = strategy.acquisition_function(X, Y, None, X[:0], seed=0)
    sampled = [getattr(member, optima) for member in acqf.acquisition_functions]
    # Three for each of three members, and each member's are its own.
    assert [values.numel() for values in sampled] == [3, 3, 3]
    assert len(torch.cat([values.flatten() for values in sampled]).unique()) > 3
    # Of more members, four are used.
    strategy.model_factory = BayesianGP(num_samples=7, num_steps=5)
    strategy._last_fit = None
    with seeded(0):
        acqf = strategy.acquisition_function(X, Y, None, X[:0], seed=0)
    every = members(ExactGPView(strategy.fit(X, Y), negate=True, model_units=True))
    for used, model in zip(acqf.acquisition_functions, every[::2], strict=True):
        scale = model.covar_module.outputscale
        assert torch.equal(used.model.covar_module.outputscale, scale)
