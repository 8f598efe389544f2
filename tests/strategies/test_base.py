import subprocess
import sys

import pytest
import torch
from botorch.exceptions.errors import InputDataError

from botorch_res import RobustDomain
from botorch_res.acquisition import qRobustEntropySearch
from botorch_res.models import BayesianGP, DefaultGP, FixedGP
from botorch_res.strategies import (
    RandomStrategy,
    Strategy,
    base,
    make_strategy,
    register_strategy,
)
from tests.problems import unit_domain
from tests.strategies.contract import (
    BOUNDS,
    CHEAP,
    DOMAINS,
    EveryStrategy,
    InvariantStrategy,
    data,
)
from tests.strategies.options import NAMES


@pytest.mark.parametrize("name", NAMES)
class TestEveryStrategy(EveryStrategy):
    pass


@pytest.mark.parametrize("name", ["stable_opt", "worst_case_nei"])
class TestInvariantStrategy(InvariantStrategy):
    pass


def test_bad_sqrt_beta():
    for bad in (-1.0, float("nan"), float("inf"), "2"):
        with pytest.raises(InputDataError, match=f"`sqrt_beta` .* got {bad!r}"):
            make_strategy("stable_opt", DOMAINS[0], maximize=False, sqrt_beta=bad)


class TestFit:
    def test_is_remembered_while_the_data_stay(self):
        calls = []

        def factory(X, Y, Yvar, bounds, seed=0):
            calls.append(len(X))
            return DefaultGP()(X, Y, Yvar, bounds, seed)

        X, Y = data(DOMAINS[0])
        strategy = RandomStrategy(
            DOMAINS[0], maximize=False, model_factory=factory, seed=5
        )
        model = strategy.fit(X, Y)
        assert strategy.fit(X.clone(), Y.clone()) is model
        assert strategy.fit(X, Y, torch.ones_like(Y)) is not model
        Y_later = Y.clone()
        Y_later[0] += 1e-9
        strategy.fit(X, Y_later)
        strategy.fit(X[:4], Y[:4])
        assert calls == [6, 6, 6, 4]

    def test_changes_in_place_are_noticed(self):
        X, Y = data(DOMAINS[0])
        strategy = RandomStrategy(DOMAINS[0], maximize=False)
        model = strategy.fit(X, Y)
        Y += 1.0
        assert strategy.fit(X, Y) is not model

    def test_factory_gets_seed_and_bounds(self):
        seen = []

        def factory(X, Y, Yvar, bounds, seed=0):
            seen.append((bounds, seed))
            return FixedGP(0.3)(X, Y, Yvar, bounds)

        RandomStrategy(
            DOMAINS[0], maximize=True, model_factory=factory, seed=8
        ).recommend(*data(DOMAINS[0]))
        assert torch.equal(seen[0][0], BOUNDS)
        assert seen[0][1] == 8

    def test_factory_gets_categories_if_there_are_any(self):
        seen = []

        def factory(X, Y, Yvar, bounds, seed=0, **options):
            seen.append(options)
            return FixedGP(0.3)(X, Y, Yvar, bounds, **options)

        mixed = RobustDomain(BOUNDS, [1], x_choices={0: [-5.0, 2.0]}, cat_dims=[0])
        for domain in (DOMAINS[0], mixed):
            RandomStrategy(domain, maximize=True, model_factory=factory).fit(
                *data(domain)
            )
        assert seen == [{}, {"cat_dims": (0,)}]

    def test_default_model(self):
        assert RandomStrategy(DOMAINS[0], maximize=True).model_factory == DefaultGP()


class TestBelieve:
    def test_pending_points_are_observations_of_the_mean(self):
        X, Y = data(DOMAINS[0])
        strategy = RandomStrategy(DOMAINS[0], maximize=False, model_factory=CHEAP)
        Yvar = torch.rand_like(Y)
        pending = DOMAINS[0].sample(2, seed=7)
        all_X, all_Y, all_Yvar = strategy.believe(X, Y, Yvar, pending)
        mean = strategy.fit(X, Y, Yvar).posterior(pending).mean
        torch.testing.assert_close(all_X, torch.cat([X, pending]))
        torch.testing.assert_close(all_Y, torch.cat([Y, mean]))
        torch.testing.assert_close(all_Yvar[-2:], Yvar.mean().expand(2, 1))
        assert strategy.believe(X, Y, None, pending)[2] is None
        assert strategy.believe(X, Y, Yvar, pending[:0]) == (X, Y, Yvar)


class TestRegistry:
    def test_names(self):
        assert NAMES == ["random", "res", "stable_opt", "thompson", "worst_case_nei"]
        assert isinstance(
            make_strategy("random", DOMAINS[0], maximize=False), RandomStrategy
        )

    def test_the_package_alone_is_robust(self):
        """Without the baselines of the benchmarks, which other tests import."""
        script = """
from botorch_res import RobustOptimizer
from botorch_res.study import Range
parameters = [Range("x", 0, 1), Range("load", 0, 1, uncontrollable=True)]
RobustOptimizer(parameters, maximize=False, strategy="expected_improvement")
"""
        run = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True
        )
        names = "random, res, stable_opt, thompson, worst_case_nei"
        assert f"a strategy among {names}, got 'expected_improvement'." in run.stderr

    def test_unknown_name(self):
        with pytest.raises(InputDataError, match=r"random, .*thompson.*, got 'magic'"):
            make_strategy("magic", DOMAINS[0], maximize=False)

    def test_own_strategy(self, monkeypatch):
        monkeypatch.setattr(base, "_STRATEGIES", dict(base._STRATEGIES))

        @register_strategy("corner")
        class Corner(Strategy):
            def __init__(self, *args, which=0, **kwargs):
                super().__init__(*args, **kwargs)
                self.which = which

            def propose(self, X, Y, Yvar=None, X_pending=None, n=1, seed=0):
                return self.domain.bounds[[self.which]].expand(n, -1)

        corner = make_strategy("corner", DOMAINS[0], maximize=False, which=1)
        assert torch.equal(corner.propose(*data(DOMAINS[0]))[0], BOUNDS[1])
        assert register_strategy("corner")(Corner) is Corner
        with pytest.raises(InputDataError, match="'corner', which belongs to Corner"):
            register_strategy("corner")(RandomStrategy)


def test_thompson_with_an_ensemble():
    strategy = make_strategy(
        "thompson",
        DOMAINS[1],
        maximize=False,
        model_factory=BayesianGP(num_samples=3, num_steps=5),
    )
    proposed = strategy.propose(*data(DOMAINS[1]), n=4, seed=0)
    assert proposed.shape == (4, 2)
    assert len(proposed.unique(dim=0)) == 4


@pytest.mark.parametrize("maximize", [True, False])
def test_thompson_finds_a_known_optimum(maximize):
    # A function that the model knows well has one robust optimum: that of the samples.
    domain = unit_domain()
    X = domain.sample(60, seed=0)
    sign = -1.0 if maximize else 1.0
    # max over theta is at theta = 0.7; then min over x at x = 0.3.
    Y = sign * ((X[:, :1] - 0.3).square() - (X[:, 1:] - 0.7).square())
    strategy = make_strategy("thompson", domain, maximize=maximize)
    proposed = strategy.propose(X, Y, n=5, seed=0)
    expected = torch.tensor([[0.3, 0.7]], dtype=torch.double).expand(5, 2)
    torch.testing.assert_close(proposed, expected, rtol=0, atol=0.03)


class TestRobustEntropySearch:
    def test_proposes_the_maximum_of_the_acquisition_function(self):
        domain = DOMAINS[3]
        X, Y = data(domain)
        strategy = make_strategy("res", domain, maximize=False, num_samples=4)
        proposed = strategy.propose(X, Y, seed=2)
        acqf = qRobustEntropySearch(
            strategy.fit(X, Y), domain, num_samples=4, maximize=False, seed=2
        )
        points = domain.all_pairs().reshape(-1, 2)
        best = points[acqf(points.unsqueeze(-2)).argmax()]
        assert torch.equal(proposed, best.unsqueeze(0))

    def test_pending_points_are_not_proposed_again(self):
        domain = DOMAINS[0]
        X, Y = data(domain)
        strategy = make_strategy(
            "res", domain, maximize=True, num_samples=4, num_restarts=2, raw_samples=32
        )
        first = strategy.propose(X, Y, seed=0)
        pending = strategy.propose(X, Y, X_pending=first, seed=0)
        width = BOUNDS[1] - BOUNDS[0]
        assert ((first - pending) / width).abs().max() > 1e-3
