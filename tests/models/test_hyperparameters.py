import math
import sys

import numpy as np
import pytest
import torch
from botorch.exceptions.errors import InputDataError
from botorch.models import SingleTaskGP
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_res.models.hyperparameters import HyperparameterPosterior, LogNormalPrior
from botorch_res.models.scaled_gp import ScaledData
from tests.problems import Draws, line

FLAT = LogNormalPrior(0.3, math.inf, 1e-5, 10.0)
FLAT_SIGNAL = LogNormalPrior(1.0, math.inf, 1e-5, 10.0)
NOISE = LogNormalPrior(1e-4, 2.0, 1e-6, 1.0)


def data(n, dim, seed=0, batch_shape=()):
    X = Draws(seed).uniform(*batch_shape, n, dim)
    y = (4 * X).sin().sum(-1) + 0.3 * X[..., 0] ** 2
    return X, y - y.mean(-1, keepdim=True)


class TestDensity:
    @pytest.mark.parametrize("given_noise", [True, False])
    def test_differences_equal_gpytorch(self, given_noise):
        X, y = data(7, 3)
        noise = torch.rand(7, dtype=torch.double) * 0.1 + 0.01 if given_noise else None
        prior = LogNormalPrior(0.5, 0.8, 1e-3, 10.0)
        posterior = HyperparameterPosterior(X, y, noise, prior, FLAT_SIGNAL, NOISE)
        p = 4 if given_noise else 5
        parameters = torch.randn(6, p, dtype=torch.double) * 0.5 - 0.5
        found = posterior.log_density(parameters)

        expected = []
        bounds = line(2).expand(2, 3)
        Yvar = None if noise is None else noise.unsqueeze(-1)
        scaled = ScaledData(X, y.unsqueeze(-1), Yvar, bounds, standardize=False)
        for row in parameters:
            model = scaled.build(posterior.natural(row), SingleTaskGP).train()
            mll = ExactMarginalLogLikelihood(model.likelihood, model)
            with torch.no_grad():
                value = mll(model(*model.train_inputs), model.train_targets) * 7
            value = value - ((row[:3] - math.log(0.5)) / 0.8).square().sum() / 2
            if not given_noise:
                value = value - ((row[4] - math.log(1e-4)) / 2.0) ** 2 / 2
            expected.append(value)
        expected = torch.stack(expected)
        # gpytorch keeps the constant of the normal density.
        torch.testing.assert_close(found - found[0], expected - expected[0])

    @pytest.mark.parametrize("cat_dims", [[1], [2, 0], [0, 1, 2]])
    def test_categories_equal_the_definition(self, cat_dims):
        X, y = data(9, 3)
        # Codes at any distance: only equality counts.
        X[:, cat_dims] = torch.tensor([0.0, 7.0, -1e3]).double()[(3 * X).long()][
            :, cat_dims
        ]
        noise = torch.full_like(y, 0.05)
        prior = LogNormalPrior(2.0, 1.0, 0.1, 100.0)
        arguments = (X, y, noise, FLAT, FLAT_SIGNAL, NOISE, cat_dims, prior)
        posterior = HyperparameterPosterior(*arguments)
        expected_centre = [2.0 if i in cat_dims else 0.3 for i in range(3)]
        assert posterior.centre.exp().tolist() == pytest.approx([*expected_centre, 1.0])
        for row in torch.randn(4, 4, dtype=torch.double) * 0.5:
            *lengthscale, deviation = row.exp()
            covariance = deviation**2 * torch.ones(9, 9, dtype=torch.double)
            log_prior = 0.0
            for i, scale in enumerate(lengthscale):
                difference = X[:, i].unsqueeze(0) - X[:, i].unsqueeze(1)
                if i in cat_dims:
                    same = difference == 0
                    covariance *= torch.where(same, 1.0, math.exp(-1 / scale))
                    log_prior -= float(row[i] - math.log(2.0)) ** 2 / 2
                else:
                    covariance *= (-(difference**2) / (2 * scale**2)).exp()
            covariance = covariance + noise.diag()
            normal = torch.distributions.MultivariateNormal(0.0 * y, covariance)
            expected = normal.log_prob(y) + 4.5 * math.log(2 * math.pi) + log_prior
            torch.testing.assert_close(posterior.log_density(row), expected)

    def test_batches_of_data_sets_equal_single_ones(self):
        X, y = data(5, 2, batch_shape=(3,))
        X[..., 1] = (3 * X[..., 1]).floor()
        noise = torch.full_like(y, 1e-2)
        priors = (FLAT, FLAT_SIGNAL, NOISE, [1])
        batch = HyperparameterPosterior(X, y, noise, *priors)
        parameters = torch.randn(4, 3, 3, dtype=torch.double) * 0.3
        found = batch.log_density(parameters)
        for i in range(3):
            single = HyperparameterPosterior(X[i], y[i], noise[i], *priors)
            torch.testing.assert_close(
                found[:, i], single.log_density(parameters[:, i])
            )

    def test_a_singular_covariance_has_no_density(self):
        X = torch.full((3, 1), 0.5, dtype=torch.double)
        posterior = HyperparameterPosterior(
            X, X[:, 0], torch.zeros(3), FLAT, FLAT_SIGNAL, NOISE
        )
        assert posterior.log_density(torch.zeros(2, dtype=torch.double)) == -math.inf
        mode, density = posterior.maximize(num_restarts=3, seed=0)
        assert torch.equal(mode, posterior.centre)
        assert density == -math.inf

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((1.0, 1.0, 2.0, 3.0), "got 2.0, 1.0 and 3.0"),
            ((1.0, 1.0, 0.0, 3.0), "got 0.0, 1.0 and 3.0"),
            ((1.0, 0.0, 0.5, 3.0), "`spread` to be positive, got 0.0"),
        ],
    )
    def test_priors_are_checked(self, arguments, message):
        with pytest.raises(InputDataError, match=message):
            LogNormalPrior(*arguments)

    def test_text_shows_the_numbers(self):
        X, y = data(3, 2)
        posterior = HyperparameterPosterior(X, y, None, FLAT, FLAT_SIGNAL, NOISE)
        assert str(posterior.natural(posterior.centre)) == (
            "lengthscales (0.3, 0.3), signal standard deviation 1, "
            "noise variance 0.0001"
        )


class TestMaximize:
    @pytest.mark.parametrize("seed", range(4))
    def test_beats_a_dense_search(self, seed):
        X, y = data(9, 2, seed)
        noise = torch.full_like(y, 1e-3)
        posterior = HyperparameterPosterior(X, y, noise, FLAT, FLAT_SIGNAL, NOISE)
        mode, density = posterior.maximize(num_restarts=8, seed=0)
        unit = Draws(seed).uniform(20_000, 3)
        lower = torch.tensor([0.02, 0.02, 0.02], dtype=torch.double).log()
        search = posterior.log_density(torch.lerp(lower, posterior.upper, unit))
        assert density >= search.max()
        assert (mode >= posterior.lower).all()
        assert (mode <= posterior.upper).all()
        # Stationary in every coordinate that is not at a bound.
        mode = mode.clone().requires_grad_(True)
        (gradient,) = torch.autograd.grad(posterior.log_density(mode), mode)
        free = (mode > posterior.lower + 1e-9) & (mode < posterior.upper - 1e-9)
        assert gradient[free].abs().max() < 1e-3

    def test_many_data_sets_at_once(self):
        X, y = data(8, 2, batch_shape=(5,))
        noise = torch.full_like(y, 1e-3)
        together, density = HyperparameterPosterior(
            X, y, noise, FLAT, FLAT_SIGNAL, NOISE
        ).maximize(4, seed=0)
        assert together.shape == (5, 3)
        for i in range(5):
            single = HyperparameterPosterior(
                X[i], y[i], noise[i], FLAT, FLAT_SIGNAL, NOISE
            )
            mode, best = single.maximize(4, seed=0)
            torch.testing.assert_close(density[i], best, rtol=0, atol=1e-5)
            torch.testing.assert_close(together[i], mode, rtol=0, atol=1e-2)

    def test_what_the_data_leave_open_stays_at_the_centre(self):
        X = torch.tensor([[0.2, 0.7]], dtype=torch.double)
        y = torch.tensor([0.8], dtype=torch.double)
        posterior = HyperparameterPosterior(
            X, y, torch.full_like(y, 1e-3), FLAT, FLAT_SIGNAL, NOISE
        )
        mode, _ = posterior.maximize(8, seed=0)
        torch.testing.assert_close(mode[:2], posterior.centre[:2])
        # One observation y of N(0, s^2 + noise): the best s^2 is y^2 - noise.
        signal = mode[2].exp().square()
        torch.testing.assert_close(
            signal, torch.tensor(0.64 - 1e-3).double(), rtol=1e-4, atol=0
        )


class TestSampler:
    @pytest.mark.parametrize(("given_noise", "grid_size"), [(True, 201), (False, 61)])
    def test_moments_equal_quadrature(self, given_noise, grid_size):
        # If the noise is inferred, two explanations compete: a short lengthscale, or a
        # long one with much noise.
        X, y = data(6, 1, seed=3)
        y = y + 0.3 * Draws(0).normal(6)
        lengthscale = LogNormalPrior(0.3, 1.0, 0.01, 20.0)
        signal = LogNormalPrior(1.0, 0.7, 0.05, 10.0)
        noise = torch.full_like(y, 1e-3) if given_noise else None
        posterior = HyperparameterPosterior(X, y, noise, lengthscale, signal, NOISE)
        axes = [
            torch.linspace(float(a), float(b), grid_size, dtype=torch.double)
            for a, b in zip(posterior.lower, posterior.upper, strict=True)
        ]
        grid = torch.cartesian_prod(*axes)
        weight = posterior.log_density(grid).softmax(0)
        mean = weight @ grid
        covariance = (grid - mean).T @ (weight.unsqueeze(-1) * (grid - mean))

        walkers = 2000
        samples = posterior.sample(walkers, 100, seed=1)
        assert samples.shape == (walkers, len(axes))
        deviation = covariance.diagonal().sqrt()
        error = (samples.mean(0) - mean) / deviation * math.sqrt(walkers)
        assert error.abs().max() < 4
        # The standard error of a variance is at most about sqrt(kurtosis / walkers).
        torch.testing.assert_close(samples.T.cov(), covariance, rtol=0.12, atol=0.01)

    def test_seeds_and_bounds(self):
        X, y = data(2, 1)
        # A mode at the upper bound of the lengthscale: half the start lies beyond it.
        narrow = LogNormalPrior(0.3, 1.0, 0.25, 0.31)
        posterior = HyperparameterPosterior(X, y, None, narrow, FLAT_SIGNAL, NOISE)
        states = torch.random.get_rng_state(), np.random.get_state()  # noqa: NPY002
        first = posterior.sample(20, 10, seed=0)
        assert first.shape == (20, 3)
        assert (first >= posterior.lower).all()
        assert (first <= posterior.upper).all()
        assert len(first[:, 0].unique()) == 20
        assert torch.equal(first, posterior.sample(20, 10, seed=0))
        assert not torch.equal(first, posterior.sample(20, 10, seed=1))
        assert torch.equal(states[0], torch.random.get_rng_state())
        after = np.random.get_state()  # noqa: NPY002
        assert all(map(np.array_equal, states[1], after))

    def test_few_samples_are_some_of_many_walkers(self):
        X, y = data(5, 2)
        posterior = HyperparameterPosterior(X, y, None, FLAT, FLAT_SIGNAL, NOISE)
        few = posterior.sample(2, 30, seed=0)
        assert torch.equal(few, posterior.sample(16, 30, seed=0)[:2])

    def test_error_without_emcee(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "emcee", None)
        X, y = data(3, 1)
        posterior = HyperparameterPosterior(X, y, None, FLAT, FLAT_SIGNAL, NOISE)
        with pytest.raises(ImportError, match=r"pip install \"botorch_res\[bayes\]\""):
            posterior.sample(2, 1, seed=0)
