"""Strategies under constraints, on a finite domain and computed in another way."""

import math

import pytest
import torch
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
)

from botorch_res.acquisition import StableOpt, qRobustEntropySearch
from botorch_res.models import BayesianGP, ExactGPView
from botorch_res.sampling import draw_fourier_samples
from botorch_res.seeding import derive_seed
from botorch_res.strategies import make_strategy
from botorch_res.strategies.recommendation import worst_case_band
from botorch_res.strategies.worst_case_improvement import WorstCaseImprovement
from tests.problems import Draws
from tests.strategies.options import QUICK
from tests.strategies.textbook import (
    BOX,
    DOMAIN,
    FLAT,
    MODEL,
    PAIRS,
    Posterior,
    sampled_values,
)

NAMES = ["random", "res", "stable_opt", "thompson", "worst_case_nei"]
LIMITS = {1: (45.0, 55.0)}


def data(t=6, seed=0):
    """The objective and another output."""
    X = BOX.sample(t, seed=seed)
    return X, 50.0 + 7.0 * Draws(seed).normal(t, 2)


def make(name, maximize=False, constraints=LIMITS, **options):
    options = {**QUICK.get(name, {}), **options}
    return make_strategy(
        name,
        DOMAIN,
        maximize=maximize,
        model_factory=MODEL,
        constraints=constraints,
        **options,
    )


def in_model_units(Y, bound):
    return (bound - Y.mean()) / Y.std(correction=0)


@pytest.mark.parametrize("name", NAMES)
class TestEveryStrategy:
    def test_points_of_the_domain(self, name):
        X, Y = data()
        Yvar = torch.full_like(Y, 1e-3)
        strategy = make(name, maximize=True)
        proposed = strategy.propose(X, Y, Yvar, X_pending=X[:2], n=2, seed=1)
        assert proposed.shape == (2, 3)
        assert torch.isin(proposed, FLAT).all()
        again = make(name, maximize=True).propose(X, Y, Yvar, X[:2], n=2, seed=1)
        assert torch.equal(again, proposed)

    def test_bad_input(self, name):
        for wrong, message in (
            ({1: (None, None)}, "a lower or an upper bound"),
            ({"stress": (None, 1.0)}, "by their numbers, got 'stress'"),
            ([1.0], "`constraints` to be a Mapping"),
        ):
            with pytest.raises(InputDataError, match=message):
                make(name, constraints=wrong)
        if name == "random":  # which ignores the data
            return
        X, Y = data()
        with pytest.raises(
            BotorchTensorDimensionError, match=r"`Y` of at least 2 columns.*\(6, 1\)"
        ):
            make(name).propose(X, Y[:, :1])
        Y[2, 1] = math.nan
        with pytest.raises(InputDataError, match="`Y` to be finite, got nan"):
            make(name).propose(X, Y)


@pytest.mark.filterwarnings("ignore:Found no setting")
def test_recommendation():
    X, Y = data()
    found = make("random").recommend(X, Y)
    best = found.probable
    assert torch.equal(found.x, best.x)
    assert best.constraint_value.shape == (2,)
    assert 0.0 <= best.probability <= 1.0
    # The objective's worst case there is that of a model of the objective alone.
    objective = MODEL(X, Y[:, :1], None, BOX.bounds)
    band = worst_case_band(objective, DOMAIN, found.x.unsqueeze(0), maximize=False)
    for name in ("value", "lower", "upper"):
        assert getattr(found, name) == pytest.approx(float(getattr(band, name)))
    assert torch.equal(found.theta, band.theta[0])
    assert found.lower < found.value < found.upper
    plain = make("random", constraints=None).recommend(X, Y[:, :1])
    assert plain.probable is None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("bounds", [(None, 55.0), (45.0, None), (45.0, 55.0)])
def test_stable_opt(seed, bounds):
    X, Y = data(seed=seed)
    maximize, shape = seed % 2 == 0, PAIRS.shape[:2]
    objective = Posterior(X, Y[:, :1], negate=maximize)
    low, high = (
        (objective.mean(FLAT) + k * objective.deviation(FLAT)).view(shape)
        for k in (-2.0, 2.0)
    )
    other, excess = Posterior(X, Y[:, 1:], negate=False), {-2.0: [], 2.0: []}
    for sign, bound in zip((-1.0, 1.0), bounds, strict=True):
        for k, found in excess.items():
            if bound is not None:
                own = sign * (other.mean(FLAT) - in_model_units(Y[:, 1], bound))
                found.append((own + k * other.deviation(FLAT)).view(shape))
    optimistic, pessimistic = (torch.stack(excess[k]) for k in (-2.0, 2.0))
    violation = optimistic.amax(dim=(0, 2))
    value = low.amax(dim=1).where(violation <= 0, torch.inf)
    i = (value if (violation <= 0).any() else violation).argmin()
    critical = pessimistic[:, i]
    worst = critical[critical.amax(dim=1).argmax()]
    j = worst.argmax() if worst.max() > 0 else high[i].argmax()
    strategy = make("stable_opt", maximize, {1: bounds}, sqrt_beta=2.0)
    assert torch.equal(strategy.propose(X, Y, seed=5)[0], PAIRS[i, j])
    # As an acquisition function.
    acqf = StableOpt(
        strategy.fit(X, Y), DOMAIN, maximize=maximize, constraints={1: bounds}
    )
    values = acqf(PAIRS[:, :1])
    assert torch.equal(values.isneginf(), violation > 0)
    if (violation <= 0).any():
        assert values.argmax() == i


@pytest.mark.parametrize("name", ["stable_opt", "worst_case_nei"])
def test_ensembles(name):
    X, Y = data()
    strategy = make_strategy(
        name,
        DOMAIN,
        maximize=False,
        model_factory=BayesianGP(num_samples=3, num_steps=5),
        constraints=LIMITS,
    )
    assert torch.isin(strategy.propose(X, Y), FLAT).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bounds", [(None, 52.0), (None, 20.0)])
def test_thompson(seed, bounds):
    X, Y = data(seed=seed)
    strategy = make("thompson", constraints={1: bounds})
    model = strategy.fit(X, Y)
    values = []
    for i, own in enumerate(model.models):
        view = ExactGPView(own, model_units=True)
        samples = draw_fourier_samples(
            view, 1, seed=derive_seed(seed, i), domain=DOMAIN
        )
        values.append(samples(FLAT)[0].view(PAIRS.shape[:2]))
    excess = values[1] - in_model_units(Y[:, 1], bounds[1])
    violation = excess.amax(dim=1)
    if (violation <= 0).any():
        value = values[0].amax(dim=1).where(violation <= 0, torch.inf)
        i = value.argmin()
        j = values[0][i].argmax()
    else:
        i = violation.argmin()
        j = excess[i].argmax()
    assert torch.equal(strategy.propose(X, Y, seed=seed)[0], PAIRS[i, j])


def test_entropy_search_proposes_the_maximum():
    X, Y = data()
    strategy = make("res", num_samples=4)
    acqf = qRobustEntropySearch(
        strategy.fit(X, Y),
        DOMAIN,
        num_samples=4,
        maximize=False,
        seed=2,
        constraints=LIMITS,
    )
    best = FLAT[acqf(FLAT.unsqueeze(-2)).argmax()]
    assert torch.equal(strategy.propose(X, Y, seed=2)[0], best)


def test_pending_points_are_observations_of_all_means():
    X, Y = data()
    strategy = make("stable_opt")
    Yvar = torch.rand_like(Y)
    pending = BOX.sample(2, seed=7)
    _, all_Y, all_Yvar = strategy.believe(X, Y, Yvar, pending)
    models = strategy.fit(X, Y, Yvar).models
    means = torch.cat([own.posterior(pending).mean for own in models], dim=-1)
    torch.testing.assert_close(all_Y[-2:], means)
    torch.testing.assert_close(all_Yvar[-2:], Yvar.mean(dim=0).expand(2, 2))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bounds", [(None, 58.0), (40.0, 60.0)])
def test_worst_case_improvement(seed, bounds):
    """By joint samples: where a bound does not hold, the value is that of a cost."""
    X, Y = data(seed=seed)
    maximize, num = seed % 2 == 0, 20_000
    baseline = DOMAIN.join(DOMAIN.split(X)[0].unsqueeze(-2), DOMAIN.theta.choices)
    points = torch.cat([PAIRS, baseline]).flatten(0, 1)
    shape = (len(PAIRS) + len(X), -1, num)
    objective = Posterior(X, Y[:, :1], negate=not maximize)
    value = sampled_values(objective, points, num, seed).view(shape)
    other = Posterior(X, Y[:, 1:], negate=False)
    own = sampled_values(other, points, num, seed + 100).view(shape)
    holds = torch.ones_like(own, dtype=torch.bool)
    for sign, bound in zip((-1.0, 1.0), bounds, strict=True):
        if bound is not None:
            holds &= sign * (own - in_model_units(Y[:, 1], bound)) <= 0
    strategy = make("worst_case_nei", maximize, {1: bounds}, num_samples=1024)
    acqf = WorstCaseImprovement(
        *(strategy.fit(X, Y), DOMAIN, DOMAIN.theta.choices, X),
        maximize=maximize,
        X_pending=None,
        num_samples=1024,
        seed=5,
        constraints={1: bounds},
    )
    cost = float(acqf.improvements[0].objective.preprocessing_function.cost)
    assert -cost < value.min()
    worst = value.where(holds, torch.tensor(-cost).double()).amin(dim=1)
    new, old = worst.split([len(PAIRS), len(X)])
    improvement = (new - old.amax(dim=0)).clamp_min(0.0)
    with torch.no_grad():
        found = acqf(PAIRS[:, :1]).exp()
    error = improvement.std(dim=-1) * math.sqrt(1 / 1024 + 1 / num)
    difference = (found - improvement.mean(dim=-1)).abs()
    # BoTorch smooths the indicator of a bound over a few thousandths.
    assert (difference <= 4 * error + 0.02 * (1.0 + improvement.mean(dim=-1))).all()
    i = found.argmax()
    j = objective.mean(PAIRS[i]).argmin()
    assert torch.equal(strategy.propose(X, Y, seed=5)[0], PAIRS[i, j])
