import math
import pickle
import re
import warnings

import pytest
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from botorch.exceptions.warnings import InputDataWarning, OptimizationWarning
from botorch.models import SingleTaskGP
from botorch.utils.transforms import is_ensemble
from gpytorch.settings import debug

from botorch_res.models.fitting import (
    BayesianGP,
    DefaultGP,
    FixedGP,
    MaximumLikelihoodGP,
    default_hyperparameter_posterior,
)
from botorch_res.models.hyperparameters import HyperparameterPosterior
from botorch_res.models.scaled_gp import EnsembleGP, outcome_scale
from tests.problems import RAW as BOUNDS
from tests.problems import Draws

SMALL_BAYESIAN = BayesianGP(num_samples=4, num_steps=10)
FACTORIES = [
    DefaultGP(),
    MaximumLikelihoodGP(num_restarts=2),
    FixedGP(0.3, standardize=True),
    SMALL_BAYESIAN,
]


def points(n, seed=0, dtype=torch.double):
    return torch.lerp(*BOUNDS, Draws(seed).uniform(n, 2)).to(dtype)


def smooth(X):
    unit = (X - BOUNDS[0].to(X)) / (BOUNDS[1] - BOUNDS[0]).to(X)
    return ((5 * unit[:, :1]).sin() + (unit[:, 1:] - 0.4).square()) * 3.0 + 7.0


def moments(model, X):
    """Mean and variance in the user's units.

    They are scaled by hand: gpytorch raises every variance below 1e-10 to that value,
    also in the user's units.
    """
    with torch.no_grad(), debug(False):  # at the training data, too
        distribution = model(model.input_transform(X))
    mean, variance = distribution.mean, distribution.variance
    if is_ensemble(model):
        variance = variance.mean(0) + mean.var(0, correction=0)
        mean = mean.mean(0)
    transform = getattr(model, "outcome_transform", None)
    if transform is not None:
        scale, offset = transform.stdvs.flatten()[0], transform.means.flatten()[0]
        mean, variance = offset + scale * mean, scale**2 * variance
    return mean, variance


def test_moments_are_those_of_the_posterior():
    X = points(5)
    for factory in FACTORIES:
        model = factory(X, smooth(X), None, BOUNDS)
        posterior = model.posterior(points(3, seed=1))
        mean, variance = moments(model, points(3, seed=1))
        mixture = is_ensemble(model)
        torch.testing.assert_close(
            mean.unsqueeze(-1), posterior.mixture_mean if mixture else posterior.mean
        )
        torch.testing.assert_close(
            variance.unsqueeze(-1),
            posterior.mixture_variance if mixture else posterior.variance,
        )


@pytest.mark.parametrize("factory", FACTORIES, ids=lambda f: type(f).__name__)
class TestEveryFactory:
    @pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
    @pytest.mark.parametrize("n", [1, 2, 3, 12])
    def test_magnitude_does_not_matter(self, factory, n, scale):
        X = points(n)
        Y = smooth(X)
        test_X = points(20, seed=1)
        with warnings.catch_warnings():
            # One observation leaves a maximum likelihood fit without a signal.
            warnings.simplefilter("ignore", OptimizationWarning)
            mean, variance = moments(factory(X, Y, None, BOUNDS), test_X)
            scaled = moments(factory(X, Y * scale, None, BOUNDS), test_X)
        assert torch.isfinite(mean).all()
        assert (variance > 0).all()
        tolerance = {"rtol": 1e-4, "atol": 1e-4}
        torch.testing.assert_close(scaled[0] / scale, mean, **tolerance)
        torch.testing.assert_close(scaled[1] / scale**2, variance, **tolerance)
        # Uncertain where nothing was seen, but not beyond reason.
        spread = Y.abs().max() if n == 1 else Y.std()
        assert variance.max().sqrt() > 0.05 * spread
        assert variance.max().sqrt() < 20 * spread

    @pytest.mark.parametrize("value", [0.0, 3.0, -1e12, 1e-12])
    @pytest.mark.parametrize("n", [1, 5])
    def test_constant_and_repeated(self, factory, n, value):
        X = points(n)
        X = torch.cat([X, X])
        Y = torch.full((2 * n, 1), value, dtype=torch.double)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OptimizationWarning)
            model = factory(X, Y, None, BOUNDS)
        mean, variance = moments(model, points(20, seed=1))
        assert ((mean - value).abs() <= 1e-9 * abs(value)).all()
        assert torch.isfinite(variance).all()
        assert (variance > 0).all()

    def test_predicts_and_stays_in_user_units(self, factory):
        X = points(40)
        model = factory(X, smooth(X), torch.full((40, 1), 1e-6), BOUNDS)
        test_X = points(50, seed=2)
        mean, variance = moments(model, test_X)
        error = (mean - smooth(test_X).squeeze(-1)).abs()
        assert error.max() < 0.3
        assert ((error / variance.sqrt()) < 6).double().mean() > 0.9
        at_data, _ = moments(model, X)
        torch.testing.assert_close(at_data, smooth(X)[:, 0], rtol=0, atol=2e-2)

    def test_single_precision(self, factory):
        X = points(6, dtype=torch.float)
        with pytest.warns(InputDataWarning, match="torch.float32"):
            model = factory(X, smooth(X), torch.zeros(6, 1), BOUNDS.float())
        mean, variance = moments(model, X)
        assert mean.dtype == torch.float
        assert (variance > 0).all()

    def test_is_reproducible_and_pickles(self, factory):
        X = points(5)
        state = torch.random.get_rng_state()
        first = factory(X, smooth(X), None, BOUNDS, seed=3)
        again = pickle.loads(pickle.dumps(factory))(X, smooth(X), None, BOUNDS, seed=3)
        assert torch.equal(state, torch.random.get_rng_state())
        test_X = points(4, seed=9)
        for a, b, c in zip(
            moments(first, test_X),
            moments(again, test_X),
            moments(pickle.loads(pickle.dumps(first)), test_X),
            strict=True,
        ):
            assert torch.equal(a, b)
            assert torch.equal(a, c)

    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            ({"X": points(0)}, BotorchTensorDimensionError, r"got \(0, 2\)"),
            ({"bounds": BOUNDS[:, :1]}, BotorchTensorDimensionError, r"and \(2, 1\)"),
            ({"Y": torch.zeros(3)}, BotorchTensorDimensionError, r"`Y` of shape 3 x 1"),
            (
                {"Y": torch.full((3, 1), math.nan)},
                InputDataError,
                "`Y` to be finite, got",
            ),
            (
                {"Yvar": torch.full((3, 1), -1.0)},
                InputDataError,
                "`Yvar` to be at least 0, got",
            ),
        ],
    )
    def test_bad_data(self, factory, change, error, message):
        X = points(3)
        arguments = {"X": X, "Y": smooth(X), "Yvar": None, "bounds": BOUNDS} | change
        with pytest.raises(error, match=message):
            factory(**arguments)


class TestOutcomeScale:
    def test_spread(self):
        Y = torch.tensor([[1.0], [3.0], [5.0]], dtype=torch.double) * 1e-12
        offset, scale = outcome_scale(Y)
        torch.testing.assert_close(offset, Y[1:2])
        torch.testing.assert_close(scale, Y.std(dim=0, correction=0, keepdim=True))

    def test_rounding_error_is_no_spread(self):
        Y = torch.tensor([[1.0], [1.0 + 1e-15]], dtype=torch.double) * 1e12
        assert outcome_scale(Y)[1] == Y.max()

    def test_zero(self):
        Y = torch.zeros(2, 3, 1)
        offset, scale = outcome_scale(Y)
        assert offset.tolist() == [[[0.0]], [[0.0]]]
        assert scale.tolist() == [[[1.0]], [[1.0]]]


class TestDefaultGP:
    def test_finds_the_hyperparameters_of_its_own_data(self):
        X = points(60)
        truth = FixedGP([0.3, 0.6], signal_variance=1.0)
        prior = truth(X[:1], torch.zeros(1, 1).double(), None, BOUNDS)
        with torch.no_grad():
            covariance = prior.covar_module(prior.input_transform(X)).to_dense()
        noise = Draws(1).normal(60, 2)
        f = torch.linalg.cholesky(covariance + 1e-8 * torch.eye(60)) @ noise[:, :1]
        model = DefaultGP()(X, 50 * (f + 0.1 * noise[:, 1:]), None, BOUNDS)
        lengthscale = model.covar_module.base_kernel.lengthscale.squeeze()
        assert ((lengthscale / torch.tensor([0.3, 0.6])).log().abs() < 0.4).all()
        noise_std = (model.likelihood.noise * model.outcome_transform.stdvs**2).sqrt()
        assert 0.6 < noise_std / 5 < 1.6

    def test_training_mode_keeps_the_scaling(self):
        X = points(3)
        model = DefaultGP()(X, smooth(X), None, BOUNDS)
        before = moments(model, X)
        model.train()
        assert not model.outcome_transform.training
        model.eval()
        torch.testing.assert_close(moments(model, X)[0], before[0])


class TestMaximumLikelihoodGP:
    def test_bounds_and_noise_of_the_protocol(self):
        X = points(10)
        Y = (smooth(X) - 7) / 3
        model = MaximumLikelihoodGP(standardize=False)(X, Y, None, BOUNDS)
        assert not hasattr(model, "outcome_transform")
        torch.testing.assert_close(
            model.likelihood.noise, torch.full((10,), 1e-3).double()
        )
        lengthscale = model.covar_module.base_kernel.lengthscale
        assert (lengthscale <= 10 * (1 + 1e-12)).all()
        assert (lengthscale >= 1e-5 * (1 - 1e-12)).all()

    def test_an_observation_of_zero_falls_back(self):
        X = points(1)
        message = (
            r"degenerate: lengthscales \(0.3, 0.3\), signal standard deviation 1e-05, "
            r"log density 3.45. .* uses lengthscales \(0.3, 0.3\), signal standard "
            r"deviation 1 instead"
        )
        with pytest.warns(OptimizationWarning, match=message):
            model = MaximumLikelihoodGP()(X, smooth(X), None, BOUNDS)
        assert model.covar_module.outputscale == pytest.approx(1.0)

    def test_white_noise_falls_back(self):
        # A lengthscale so short that all observations are isolated spikes.
        X = points(30)
        Y = torch.tensor([[1.0], [-1.0]], dtype=torch.double).repeat(15, 1)
        factory = MaximumLikelihoodGP(lengthscale_bounds=(1e-5, 5e-4))
        with pytest.warns(OptimizationWarning, match="degenerate"):
            factory(X, Y, None, BOUNDS)


class TestFixedGP:
    def test_is_what_it_says(self):
        X = points(4)
        factory = FixedGP((0.1, 0.2), signal_variance=2.0, noise_variance=0.01)
        model = factory(X, smooth(X), None, BOUNDS)
        expected = torch.tensor([[0.1, 0.2]], dtype=torch.double)
        torch.testing.assert_close(model.covar_module.base_kernel.lengthscale, expected)
        assert model.covar_module.outputscale == pytest.approx(2.0)
        # The posterior by hand, with a zero mean.
        unit = (torch.cat([X, points(3, seed=5)]) - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])
        scaled = unit / expected
        K = 2 * torch.exp(-torch.cdist(scaled, scaled).square() / 2)
        noisy = K[:4, :4] + 0.01 * torch.eye(4, dtype=torch.double)
        mean, variance = moments(model, points(3, seed=5))
        gain = K[4:, :4] @ noisy.inverse()
        torch.testing.assert_close(mean, (gain @ smooth(X)).squeeze(-1))
        torch.testing.assert_close(
            variance, K[4:, 4:].diagonal() - (gain * K[4:, :4]).sum(-1)
        )

    def test_number_of_lengthscales(self):
        with pytest.raises(BotorchTensorDimensionError, match=r"or 2, got \(0.1,"):
            FixedGP((0.1, 0.2, 0.3))(points(2), torch.zeros(2, 1), None, BOUNDS)


class TestBayesianGP:
    def test_is_an_ensemble(self):
        X = points(5)
        model = SMALL_BAYESIAN(X, smooth(X), None, BOUNDS)
        assert isinstance(model, EnsembleGP)
        assert is_ensemble(model)
        assert model.batch_shape == torch.Size([4])
        posterior = model.posterior(points(3).expand(2, 3, 2))
        assert posterior.mean.shape == (2, 4, 3, 1)
        assert len(model.covar_module.outputscale.unique()) == 4

    def test_members_are_samples_of_the_posterior(self):
        X = points(6)
        Y = smooth(X)
        Yvar = torch.full_like(Y, 1e-2)
        factory = BayesianGP(num_samples=3, num_steps=20)
        model = factory(X, Y, Yvar, BOUNDS, seed=4)
        offset, scale = outcome_scale(Y)
        posterior = default_hyperparameter_posterior(
            (X - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0]),
            ((Y - offset) / scale).squeeze(-1),
            (Yvar / scale**2).squeeze(-1),
        )
        samples = posterior.natural(posterior.sample(3, 20, seed=4))
        torch.testing.assert_close(
            model.covar_module.base_kernel.lengthscale.squeeze(-2), samples.lengthscale
        )
        torch.testing.assert_close(
            model.covar_module.outputscale, samples.signal_variance
        )

    @pytest.mark.parametrize("factory", [DefaultGP, SMALL_BAYESIAN.__class__])
    def test_noise_that_is_known_for_all_observations(self, factory):
        X = points(6)
        Y = smooth(X)
        _, scale = outcome_scale(Y)
        options = {} if factory is DefaultGP else {"num_samples": 2, "num_steps": 5}
        model = factory(noise_variance=1e-2, **options)(X, Y, None, BOUNDS, seed=3)
        Yvar = (1e-2 * scale.square()).expand_as(Y)
        same = factory(**options)(X, Y, Yvar, BOUNDS, seed=3)
        for found, expected in zip(
            model.state_dict().values(), same.state_dict().values(), strict=True
        ):
            torch.testing.assert_close(found, expected)
        # What an observation says of its own noise counts more.
        given = factory(noise_variance=0.5, **options)(X, Y, Yvar, BOUNDS, seed=3)
        torch.testing.assert_close(
            given.likelihood.noise_covar.noise, same.likelihood.noise_covar.noise
        )
        with pytest.raises(InputDataError, match="`noise_variance` to be a finite"):
            factory(noise_variance=-1.0)

    def test_refresh_keeps_hyperparameters(self):
        X = points(13)
        Y = smooth(X)
        factory = BayesianGP(num_samples=2, num_steps=5, refresh=5)
        scales = {
            n: factory(X[:n], Y[:n], None, BOUNDS).covar_module.outputscale
            for n in (1, 4, 5, 9, 10, 13)
        }
        assert torch.equal(scales[5], scales[9])
        assert torch.equal(scales[10], scales[13])
        assert torch.equal(scales[1], scales[4])
        assert not torch.equal(scales[9], scales[10])
        model = factory(X, Y, torch.full_like(Y, 1e-8), BOUNDS)
        torch.testing.assert_close(moments(model, X)[0], Y[:, 0], rtol=0, atol=0.01)

    def test_draws_only_when_it_must(self, monkeypatch):
        draws = []
        sample = HyperparameterPosterior.sample

        def counted(posterior, *args):
            draws.append(args)
            return sample(posterior, *args)

        monkeypatch.setattr(HyperparameterPosterior, "sample", counted)
        X = points(13)
        Y = smooth(X)
        options = {"num_samples": 2, "num_steps": 3, "refresh": 5}
        factory = BayesianGP(**options)
        Yvar = torch.full_like(Y, 1e-4)
        for n in range(1, 14):
            model = factory(X[:n], Y[:n], None, BOUNDS)
            known = len(draws)
            fresh = BayesianGP(**options)(X[:n], Y[:n], None, BOUNDS)
            for found, expected in zip(
                model.state_dict().values(), fresh.state_dict().values(), strict=True
            ):
                assert torch.equal(found, expected)
            del draws[known:]
        assert len(draws) == 3
        # Later observations are none of its business, earlier ones, the noise and the
        # seed are; every seed has its own.
        changed = Y.clone()
        changed[12] += 1.0
        factory(X, changed, None, BOUNDS)
        assert len(draws) == 3
        factory(X, Y, None, BOUNDS, seed=1)
        factory(X, Y, None, BOUNDS)
        assert len(draws) == 4
        changed[9] += 1.0
        factory(X, changed, None, BOUNDS)
        factory(X, changed, Yvar, BOUNDS)
        factory(X, changed, Yvar, BOUNDS + 1.0)
        assert len(draws) == 7
        assert factory == BayesianGP(**options)
        assert hash(factory) == hash(BayesianGP(**options))


@pytest.mark.parametrize(
    ("factory", "options"),
    [
        (DefaultGP, {"num_restarts": 0}),
        (DefaultGP, {"min_noise": -1.0}),
        (MaximumLikelihoodGP, {"num_restarts": 2.5}),
        (MaximumLikelihoodGP, {"noise_variance": -1.0}),
        (FixedGP, {"lengthscale": (0.1, -0.3)}),
        (FixedGP, {"lengthscale": 0.1, "signal_variance": 0.0}),
        (FixedGP, {"lengthscale": 0.1, "noise_variance": float("nan")}),
        (BayesianGP, {"num_samples": 0}),
        (BayesianGP, {"num_steps": 0}),
        (BayesianGP, {"refresh": 0}),
    ],
)
def test_bad_settings(factory, options):
    name, value = list(options.items())[-1]
    with pytest.raises(
        InputDataError, match=rf"`{name}`.*, got {re.escape(str(value))}"
    ):
        factory(**options)


def test_factories_build_single_task_gps():
    X = points(3)
    for factory in FACTORIES:
        assert isinstance(factory(X, smooth(X), None, BOUNDS), SingleTaskGP)


# A category, a number, and a category whose codes are far apart.
CODES = torch.tensor([[0.0, 1.0, 2.0], [-40.0, 0.0, 1e3]], dtype=torch.double)
MIXED = torch.tensor([[0.0, 100.0, -40.0], [2.0, 300.0, 1e3]], dtype=torch.double)


def mixed_points(n, seed=0, names=CODES):
    unit = Draws(seed).uniform(n, 3)
    first, second = (3 * unit[:, [0, 2]]).long().unbind(-1)
    number = torch.lerp(*MIXED[:, 1], unit[:, 1])
    return torch.stack([names[0][first], number, names[1][second]], dim=-1)


def mixed_outcomes(n, seed=0):
    X = mixed_points(n, seed, torch.arange(6.0).double().view(2, 3))
    wave = (X[:, 1] / 40 + 0.4 * X[:, 0]).sin()
    return (50 + 4 * wave + X[:, 2]).unsqueeze(-1)


def mixed_variances(n):
    return torch.full((n, 1), 0.01, dtype=torch.double)


@pytest.mark.parametrize("factory", FACTORIES, ids=lambda f: type(f).__name__)
class TestCategories:
    def test_predictions_equal_the_definition(self, factory):
        X, Z = mixed_points(14), mixed_points(9, seed=1)
        Yvar = mixed_variances(14)
        model = factory(X, mixed_outcomes(14), Yvar, MIXED, seed=2, cat_dims=[2, 0])
        numbers, categories = model.covar_module.base_kernel.kernels
        variance = model.covar_module.outputscale[..., None, None]
        number = numbers.lengthscale
        # BoTorch averages over the columns.
        first, second = (2 * categories.lengthscale).split(1, -1)
        points = torch.cat([X, Z])
        difference = points.unsqueeze(-2) - points.unsqueeze(-3)
        exponent = difference[..., 1].div(200).square() / (2 * number.square())
        exponent = exponent + difference[..., 0].ne(0) / first
        exponent = exponent + difference[..., 2].ne(0) / second
        K = variance * exponent.neg().exp()
        offset, scale = outcome_scale(mixed_outcomes(14))
        noise = 0.01 / scale.square() * torch.eye(14, dtype=torch.double)
        y = ((mixed_outcomes(14) - offset) / scale).expand(*K.shape[:-2], -1, 1)
        gain = K[..., 14:, :14] @ (K[..., :14, :14] + noise).inverse()
        own_mean = (gain @ y).squeeze(-1)
        own_variance = (K[..., 14:, 14:] - gain @ K[..., :14, 14:]).diagonal(
            dim1=-2, dim2=-1
        )
        own_mean, own_variance = (v.reshape(-1, 9) for v in (own_mean, own_variance))
        expected = offset.squeeze() + scale.squeeze() * own_mean.mean(0)
        spread = own_variance.mean(0) + own_mean.var(0, correction=0)
        mean, variance = moments(model, Z)
        torch.testing.assert_close(mean, expected, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(
            variance, scale.squeeze() ** 2 * spread, rtol=1e-5, atol=1e-6
        )

    def test_names_do_not_matter(self, factory):
        names = torch.tensor([[2.0, 0.0, 1.0], [1e3, -40.0, 0.0]], dtype=torch.double)
        found = []
        for codes in (CODES, names):
            model = factory(
                mixed_points(14, 0, codes),
                mixed_outcomes(14),
                mixed_variances(14),
                MIXED,
                cat_dims=(0, 2),
            )
            found.append(moments(model, mixed_points(9, 1, codes)))
        for first, second in zip(*found, strict=True):
            torch.testing.assert_close(first, second)

    def test_categories_alone(self, factory):
        X, Y = CODES.T.repeat(3, 1), mixed_outcomes(9)
        Yvar = mixed_variances(9)
        model = factory(X, Y, Yvar, MIXED[:, [0, 2]], cat_dims=[0, 1])
        mean, variance = moments(model, CODES.T)
        # The averages of the three observations of each.
        expected = Y.view(3, 3).mean(0)
        torch.testing.assert_close(mean, expected, rtol=0, atol=0.15)
        assert (variance > 0).all()

    @pytest.mark.parametrize("cat_dims", [[3], [-1], [0, 0]])
    def test_bad_columns(self, factory, cat_dims):
        message = "`cat_dims` to be distinct .* from 0 to 2, got " + re.escape(
            str(cat_dims)
        )
        with pytest.raises(InputDataError, match=message):
            factory(mixed_points(3), mixed_outcomes(3), None, MIXED, cat_dims=cat_dims)


def test_samples_are_those_of_the_categories():
    """Codes of the unit cube: only ``cat_dims`` tells them from numbers."""
    X, bounds = Draws(0).uniform(6, 2).round(), torch.tensor([[0.0] * 2, [1.0] * 2])
    Y, factory = X.sum(-1, keepdim=True), BayesianGP(num_samples=2, num_steps=3)
    factory(X, Y, None, bounds.double())
    again = factory(X, Y, None, bounds.double(), cat_dims=[0])
    fresh = BayesianGP(num_samples=2, num_steps=3)
    expected = fresh(X, Y, None, bounds.double(), cat_dims=[0])
    scale, other = (m.covar_module.outputscale for m in (again, expected))
    assert torch.equal(scale, other)


def test_lengthscales_of_categories_are_found():
    """Functions of one wave, with an offset and without a share of their own."""
    X = mixed_points(60)
    Y = (X[:, 1:2] / 40).sin() + X[:, :1].square() + 1e-3 * Draws(1).normal(60, 1)
    model = DefaultGP()(X, Y, None, MIXED, cat_dims=[0, 2])
    lengthscale = 2 * model.covar_module.base_kernel.kernels[1].lengthscale.flatten()
    # The last column changes nothing.
    assert lengthscale[1] > 10 * lengthscale[0]
    assert lengthscale[1] > 20


def test_a_degenerate_fit_with_categories_falls_back():
    X = mixed_points(30)
    Y = torch.tensor([[1.0], [-1.0]], dtype=torch.double).repeat(15, 1)
    factory = MaximumLikelihoodGP(lengthscale_bounds=(1e-5, 5e-4))
    with pytest.warns(OptimizationWarning, match="degenerate"):
        factory(X, Y, None, MIXED, cat_dims=[0, 2])
