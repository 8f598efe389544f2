"""The oracle of a batch of replicates is the single run of each of its members."""

import re
from operator import attrgetter

import pytest
import torch
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.exceptions.warnings import OptimizationWarning
from gpytorch.kernels import LinearKernel

from botorch_res import RobustDomain
from botorch_res.acquisition import qRobustEntropySearch
from botorch_res.models import (
    BayesianGP,
    DefaultGP,
    ExactGPView,
    FixedGP,
    MaximumLikelihoodGP,
)
from botorch_res.optim import (
    mean_function,
    optimize_replicates,
    optimize_robust_acqf,
    recommend_robust_optimum,
)
from botorch_res.sampling import draw_fourier_samples, posterior_mean
from botorch_res.sampling.theta_table import FactorProduct, ThetaTable
from botorch_res.strategies import (
    make_strategy,
    propose_replicates,
    recommend_replicates,
    supports_replicates,
)
from tests import problems
from tests.problems import DOUBLE, KINDS, make_kernel, standardized, unit_domain

SEEDS = [3, 11, 5]
TOLERANCES = ("tolerance", "two tolerances")
FACTORY = FixedGP(0.25)
BOUNDS = torch.tensor([[0.0, -1.0], [2.0, 1.0]], **DOUBLE)
CHOICES = torch.tensor([[0.05, 0.1], [0.35, 0.575], [0.6, 0.8], [0.95, 0.3]], **DOUBLE)


def make_domain(kind="box"):
    # With tolerances much wider than the peaks of a function, one peak is the worst
    # case of many settings. All of them are optimal then, and rounding selects one.
    if kind == "tolerance":
        return RobustDomain(BOUNDS, [1], tolerances={0: 0.05})
    if kind == "two tolerances":
        return RobustDomain(BOUNDS, tolerances={0: 0.05, 1: (-0.05, 0.1)})
    return problems.make_domain(kind, BOUNDS, CHOICES)


def wave(X):
    """A function without symmetries, so that no two worst cases tie."""
    return ((6.0 * X[..., 0] + 1.0).sin() + (5.0 * X[..., 1] - 2.0 * X[..., 0]).cos())[
        ..., None
    ]


def make_data(domain, t=6):
    X = torch.stack([domain.sample(t, seed=seed) for seed in SEEDS])
    return X, wave(X)


@pytest.mark.parametrize("kind", [*KINDS, *TOLERANCES])
@pytest.mark.parametrize("maximize", [False, True])
def test_members_gain_the_information_of_single_runs(kind, maximize):
    domain = make_domain(kind)
    X, Y = make_data(domain)
    options = {"num_samples": 2, "maximize": maximize}
    strategy = make_strategy(
        "res",
        domain,
        model_factory=FACTORY,
        num_restarts=3,
        raw_samples=32,
        **options,
    )
    together = propose_replicates(strategy, X, Y, SEEDS)
    for i, seed in enumerate(SEEDS):
        alone = strategy.propose(X[i], Y[i], seed=seed)
        acqf = qRobustEntropySearch(
            strategy.fit(X[i], Y[i]), domain, seed=seed, **options
        )
        values = acqf(torch.stack([together[i : i + 1], alone]))
        # A maximum on a kink is reached up to the last steps of the search.
        torch.testing.assert_close(together[i], alone[0], rtol=0, atol=1e-3)
        torch.testing.assert_close(values[0], values[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["box", "theta", *TOLERANCES])
@pytest.mark.parametrize(
    "factory",
    [
        FACTORY,
        MaximumLikelihoodGP(standardize=False, lengthscale_bounds=(0.1, 10.0)),
    ],
)
def test_batched_information_gain_is_that_of_single_models(kind, factory):
    domain = make_domain(kind)
    X, Y = make_data(domain)
    # The fits have signal variances of different orders of magnitude.
    Y = Y * torch.tensor([1.0, 4.0, 0.3], **DOUBLE).view(-1, 1, 1)
    options = {"num_samples": 2, "maximize": False}
    points = domain.sample(60, seed=1).view(20, 3, 1, 2)
    batch = qRobustEntropySearch(
        factory(X, Y, None, domain.bounds), domain, seed=SEEDS, **options
    )(points)
    for i, seed in enumerate(SEEDS):
        alone = qRobustEntropySearch(
            factory(X[i], Y[i], None, domain.bounds), domain, seed=seed, **options
        )(points[:, i])
        # The hyperparameters are the same to the last digit. Fixed models then agree to
        # 3e-13, fitted ones to 1e-9 except for one of six, which is 1.4e-8 off. Neither
        # its data's condition number (69) nor a lengthscale at its bound explains that:
        # other members have both, and agree to 1e-12. With two tolerances, samples are
        # searched in tables, whose finer grid all members share: one of them is 6e-7
        # off.
        fitted = 1e-6 if kind == "two tolerances" else 1e-7
        tolerance = 1e-8 if factory is FACTORY else fitted
        torch.testing.assert_close(batch[:, i], alone, rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", ["box", "theta", "both"])
def test_samples_of_a_model_share_its_points(kind, monkeypatch):
    """The factors of candidates are made once for a model, not for each sample."""
    domain = make_domain(kind)
    X, Y = make_data(domain)
    acqf = qRobustEntropySearch(
        FACTORY(X, Y, None, domain.bounds), domain, num_samples=4, seed=SEEDS
    )
    sizes = []
    features = ThetaTable._features

    def record(table, u, part):
        found = features(table, u, part)
        sizes.append(tuple(found.shape[:-1]))
        return found

    def refuse(product, factors, weights):
        raise AssertionError("The weights are those of the thetas, made beforehand.")

    monkeypatch.setattr(ThetaTable, "_features", record)
    monkeypatch.setattr(FactorProduct, "weigh", refuse)
    points = domain.sample(60, seed=1).view(20, 3, 1, 2).requires_grad_()
    acqf(points).sum().backward()
    assert sizes == [(3, 1, 20)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("name", ["stable_opt", "thompson", "random"])
def test_members_take_the_steps_of_single_runs(kind, maximize, name):
    domain = make_domain(kind)
    X, Y = make_data(domain)
    strategy = make_strategy(name, domain, maximize=maximize, model_factory=FACTORY)
    together = propose_replicates(strategy, X, Y, SEEDS)
    for i, seed in enumerate(SEEDS):
        alone = strategy.propose(X[i], Y[i], seed=seed)
        if name == "thompson":
            # At a sample's robust optimum two thetas may tie: then either is right.
            view = ExactGPView(strategy.fit(X[i], Y[i]), negate=maximize)
            sample = draw_fourier_samples(view, num_samples=1, seed=seed)
            ours, theirs = sample(torch.stack([together[i], alone[0]]))[0]
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
            alone[:, 1] = together[i, 1]
        torch.testing.assert_close(together[i], alone[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["box", "theta", *TOLERANCES])
@pytest.mark.parametrize("maximize", [False, True])
def test_recommendations_are_those_of_single_runs(kind, maximize):
    domain = make_domain(kind)
    X, Y = make_data(domain)
    strategy = make_strategy(
        "res", domain, maximize=maximize, model_factory=DefaultGP()
    )
    together = recommend_replicates(strategy, X, Y)
    for i, data in enumerate(zip(X, Y, strict=True)):
        alone = recommend_robust_optimum(strategy.fit(*data), domain, maximize)
        torch.testing.assert_close(together.x[i], alone.x, rtol=0, atol=1e-5)
        # Not at a minimum of the mean's worst case, so that it follows x.
        torch.testing.assert_close(together.value[i], alone.value, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "factory",
    [
        FACTORY,
        DefaultGP(min_noise=1e-3),
        MaximumLikelihoodGP(),
        FixedGP([0.2, 0.4], 2.0),
    ],
)
@pytest.mark.parametrize("noise", [None, 0.01])
def test_batched_models_are_those_of_each_data_set(factory, noise):
    domain = make_domain()
    X, Y = make_data(domain, t=12)
    Y = Y * torch.tensor([1.0, 100.0, 1e-3], **DOUBLE).view(-1, 1, 1)
    Yvar = None if noise is None else (noise * Y.std(-2, keepdim=True)).square()
    Yvar = None if Yvar is None else Yvar.expand_as(Y)
    batch = factory(X, Y, Yvar, domain.bounds, seed=1)
    points = domain.sample(7, seed=9)
    together = posterior_mean(batch)(points).squeeze(0)
    assert batch.batch_shape == (3,)
    for i in range(3):
        own = None if Yvar is None else Yvar[i]
        model = factory(X[i], Y[i], own, domain.bounds, seed=1)
        alone = mean_function(model)(points).squeeze()
        spread = Y[i].std()
        torch.testing.assert_close(
            together[i] / spread, alone / spread, rtol=0, atol=1e-4
        )
        for name in ("outputscale", "base_kernel.lengthscale"):
            ours, theirs = map(
                attrgetter(name), (batch.covar_module, model.covar_module)
            )
            torch.testing.assert_close(ours[i], theirs, rtol=1e-2, atol=0)


def test_only_degenerate_fits_of_a_batch_are_replaced():
    domain = make_domain()
    X, Y = make_data(domain)
    Y[1] = 0.0
    factory = MaximumLikelihoodGP(standardize=False)
    with pytest.warns(OptimizationWarning, match="1 of 3 fits"):
        batch = factory(X, Y, None, domain.bounds)
    alone = factory(X[0], Y[0], None, domain.bounds)
    scale = batch.covar_module.outputscale
    torch.testing.assert_close(scale[0], alone.covar_module.outputscale)
    assert scale[1] == 1.0


@pytest.mark.parametrize("method", ["matheron", "weight"])
@pytest.mark.parametrize("shared", [False, True])
def test_samples_with_seeds_are_those_of_single_models(method, shared):
    domain = make_domain()
    X, Y = make_data(domain)

    def model(X, Y, batch_shape):
        X = (X - domain.bounds[0]) / 2.0
        kernel = make_kernel(2.5, 0.4, batch=() if shared else batch_shape)
        return problems.make_model(X, standardized(Y), 1e-3, kernel).eval()

    options = {"num_features": 64, "method": method}
    batch = draw_fourier_samples(model(X, Y, X.shape[:-2]), 2, seed=SEEDS, **options)
    points = (domain.sample(7, seed=9) - domain.bounds[0]) / 2.0
    for i, seed in enumerate(SEEDS):
        alone = draw_fourier_samples(
            model(X[i], Y[i], torch.Size()), 2, seed=seed, **options
        )
        torch.testing.assert_close(batch(points)[:, i], alone(points))


def test_seeds_may_be_any_sequence():
    domain = make_domain()
    batch = FACTORY(*make_data(domain), None, domain.bounds)
    points = domain.sample(7, seed=9)
    listed, ranged = (
        draw_fourier_samples(batch, 1, seed=seeds)(points)
        for seeds in ([0, 1, 2], range(3))
    )
    assert torch.equal(listed, ranged)


def test_seeds_have_to_match_the_batch():
    domain = make_domain("both")
    X, Y = make_data(domain)
    batch = FACTORY(X, Y, None, domain.bounds)
    with pytest.raises(InputDataError, match=r"got 2 for a model of batch shape \(3,"):
        draw_fourier_samples(batch, 1, seed=[0, 1])
    with pytest.raises(InputDataError, match=r"`seed` to be a whole .* got None"):
        draw_fourier_samples(batch, 1, seed=[0, None, 1])
    kernel = LinearKernel(batch_shape=torch.Size([3])).double()
    unit = (X - domain.bounds[0]) / 2.0
    linear = problems.make_model(unit, Y, 0.1, kernel).eval()
    points = domain.all_pairs().flatten(0, 1)
    together = draw_fourier_samples(linear, 1, seed=SEEDS, domain=domain)(points)
    for i, seed in enumerate(SEEDS):
        single = problems.make_model(unit[i], Y[i], 0.1, LinearKernel().double()).eval()
        alone = draw_fourier_samples(single, 1, seed=seed, domain=domain)(points)
        torch.testing.assert_close(together[:, i], alone, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_search_without_sampled_optima_and_in_small_chunks(kind):
    domain = make_domain(kind)
    X, Y = make_data(domain)
    options = {"num_samples": 2, "maximize": False}
    batch = qRobustEntropySearch(
        FACTORY(X, Y, None, domain.bounds), domain, seed=SEEDS, **options
    )
    del batch.robust_optimizers
    limits = {"num_restarts": 2, "raw_samples": 16}
    candidates, values = optimize_replicates(
        batch, domain, SEEDS, batch_limit=7, max_choices=4, **limits
    )
    assert candidates.shape == (3, 2)
    for i, seed in enumerate(SEEDS):
        alone = qRobustEntropySearch(
            FACTORY(X[i], Y[i], None, domain.bounds), domain, seed=seed, **options
        )
        del alone.robust_optimizers
        candidate, value = optimize_robust_acqf(
            alone, domain, seed=seed, batch_limit=4, **limits
        )
        torch.testing.assert_close(candidates[i], candidate[0], rtol=0, atol=1e-3)
        torch.testing.assert_close(values[i], value, rtol=0, atol=1e-4)


def test_search_refuses_bad_arguments_and_values():
    domain = make_domain("both")
    X, Y = make_data(domain)
    batch = qRobustEntropySearch(
        FACTORY(X, Y, None, domain.bounds), domain, num_samples=1, seed=SEEDS
    )
    with pytest.raises(InputDataError, match=r"`raw_samples` .* at least 8, got 2"):
        optimize_replicates(batch, domain, SEEDS, raw_samples=2)
    for seeds in ([], 3):
        with pytest.raises(
            InputDataError, match=rf"for each model, got {re.escape(str(seeds))}"
        ):
            optimize_replicates(batch, domain, seeds)
    with pytest.raises(InputDataError, match=r"None or a whole number .* got 0\.5"):
        optimize_replicates(batch, domain, [1, 0.5, 2])
    with pytest.raises(
        BotorchTensorDimensionError, match=r"a point of shape \(1, 2, 1, 2\)"
    ):
        optimize_replicates(batch, domain, [1, 2])
    with pytest.raises(
        BotorchTensorDimensionError, match=r"a point of shape \(1, 3, 1, 3\)"
    ):
        optimize_replicates(batch, unit_domain(2, 1), SEEDS)
    batch.forward = lambda X: torch.full(X.shape[:2], torch.nan, **DOUBLE)
    batch.at_one_setting = lambda X: torch.full(X.shape[:3], torch.nan, **DOUBLE)
    with pytest.raises(RuntimeError, match="48 of 48 values of qRobust"):
        optimize_replicates(batch, domain, SEEDS)


def test_what_cannot_be_one_batch_is_refused():
    domain = make_domain()
    X, Y = make_data(domain)
    res = make_strategy("res", domain, maximize=False, model_factory=FACTORY)
    assert supports_replicates(res)
    with pytest.raises(BotorchTensorDimensionError, match="got 2"):
        propose_replicates(res, X, Y, [0, 1])
    with pytest.raises(BotorchTensorDimensionError, match=r"got \(6, 2\)"):
        recommend_replicates(res, X[0], Y[0])
    improvement = make_strategy("worst_case_nei", domain, maximize=False)
    with pytest.raises(UnsupportedError, match="got WorstCaseImprovementStrategy"):
        propose_replicates(improvement, X, Y, SEEDS)
    bayesian = BayesianGP(num_samples=2)
    ensemble = make_strategy("res", domain, maximize=False, model_factory=bayesian)
    assert not supports_replicates(ensemble)
    with pytest.raises(BotorchTensorDimensionError, match="one set of data"):
        bayesian(X, Y, None, domain.bounds)
