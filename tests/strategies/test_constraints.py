"""Strategies under constraints, on a finite domain and computed in another way."""

import math

import pytest
import torch
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)

from botorch_res.acquisition import StableOpt, qRobustEntropySearch
from botorch_res.models import BayesianGP, ExactGPView
from botorch_res.sampling import draw_fourier_samples
from botorch_res.seeding import derive_seed
from botorch_res.strategies import make_strategy
from tests.problems import Draws
from tests.strategies.options import QUICK
from tests.strategies.textbook import BOX, DOMAIN, FLAT, MODEL, PAIRS, Posterior

NAMES = ["random", "res", "stable_opt", "thompson"]
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
    assert found.lower <= found.upper
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


def test_stable_opt_with_an_ensemble():
    X, Y = data()
    strategy = make_strategy(
        "stable_opt",
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


def test_worst_case_improvement_knows_no_constraints():
    with pytest.raises(UnsupportedError, match="no `constraints` with the worst-case"):
        make("worst_case_nei")
