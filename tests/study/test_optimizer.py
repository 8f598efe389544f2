import csv
import json
import math
import re
import sqlite3
import warnings
from contextlib import closing

import numpy as np
import pytest
import torch
from botorch.exceptions.errors import InputDataError
from botorch.exceptions.warnings import UserInputWarning

from botorch_res import RobustDomain, RobustOptimizer
from botorch_res.acquisition.targets import TARGETS
from botorch_res.models import BayesianGP, DefaultGP, FixedGP
from botorch_res.strategies import RobustEntropySearchStrategy, Strategy, base
from botorch_res.study.parameters import Choice, Integer, Range
from botorch_res.study.space import ParameterSpace

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
DOMAIN = RobustDomain(BOUNDS, [1])
PARAMETERS = [
    Range("friction", 1e-3, 1e-1, log=True),
    Choice("force", [200, 300, 350], unit="kN", uncontrollable=True),
]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Small defaults of the search: most of these tests are not about its quality."""
    defaults = RobustEntropySearchStrategy.__init__.__kwdefaults__
    small = {"num_samples": 2, "num_restarts": 2, "raw_samples": 32}
    monkeypatch.setattr(
        RobustEntropySearchStrategy.__init__, "__kwdefaults__", defaults | small
    )


def saddle(z):
    """Robust optimum x = 0.3, theta = 0.7, value 0 for ``min max``."""
    return float((z[0] - 0.3) ** 2 - (z[1] - 0.7) ** 2)


def negative(z):
    return -saddle(z)


def press(friction, force):
    return (math.log(friction) + 4) ** 2 + (force - 280) ** 2 / 1e4


def told(optimizer, n, function=saddle):
    for _ in range(n):
        trial = optimizer.ask()
        optimizer.tell(trial, function(trial.point))
    return optimizer


class TestAskAndTell:
    @pytest.mark.parametrize("strategy", ["random", "res"])
    def test_initial_design_then_strategy(self, strategy):
        optimizer = RobustOptimizer(
            DOMAIN, maximize=False, seed=3, strategy=strategy, num_initial=3
        )
        told(optimizer, 5)
        trials = optimizer.trials
        assert [t.origin for t in trials] == ["initial"] * 3 + [strategy] * 2
        assert [t.number for t in trials] == list(range(5))
        assert len({t.seed for t in trials}) == 5
        points = torch.tensor([t.point for t in trials[:3]])
        assert len(points.unique(dim=0)) == 3

    def test_finds_the_robust_optimum(self):
        optimizer = told(RobustOptimizer(DOMAIN, maximize=False, seed=0), 16)
        found = optimizer.recommend()
        assert found.x["x1"] == pytest.approx(0.3, abs=0.02)
        assert found.theta["theta1"] == pytest.approx(0.7, abs=0.02)
        assert found.value == pytest.approx(0.0, abs=1e-3)
        assert found.lower <= found.value <= found.upper

    def test_maximises_the_mirror_image(self):
        down = told(RobustOptimizer(DOMAIN, maximize=False, seed=0), 4)
        up = told(RobustOptimizer(DOMAIN, maximize=True, seed=0), 4, negative)
        a, b = down.recommend(), up.recommend()
        assert a.x == pytest.approx(b.x, abs=1e-6)
        assert (a.value, a.lower) == pytest.approx((-b.value, -b.upper), abs=1e-6)
        # At a robust optimum two thetas often tie, and rounding decides between them.
        assert down.ask().point[0] == pytest.approx(up.ask().point[0], abs=1e-6)

    def test_several_at_once(self):
        optimizer = RobustOptimizer(DOMAIN, maximize=False, seed=0, num_initial=4)
        trials = optimizer.ask(3)
        assert [t.number for t in trials] == [0, 1, 2]
        optimizer.tell(trials[1], 1.0)
        more = optimizer.ask(3)
        assert [t.origin for t in more] == ["initial", "res", "res"]
        optimizer.tell(0, 2.0)
        assert [t.state for t in optimizer.trials] == ["complete"] * 2 + ["running"] * 4

    def test_pending_and_failed_points_reach_the_strategy(self, monkeypatch):
        seen = []

        class Spy(Strategy):
            def propose(self, X, Y, Yvar=None, X_pending=None, n=1, seed=0):
                seen.append((X, X_pending, n, seed))
                return torch.full((n, 2), 1.5)  # clamped to the bounds

        monkeypatch.setitem(base._STRATEGIES, "spy", Spy)
        optimizer = RobustOptimizer(
            DOMAIN, maximize=False, seed=0, strategy="spy", num_initial=4
        )
        first = optimizer.ask(3)
        optimizer.tell(first[0], 1.0)
        optimizer.fail(first[1], "broke")
        trials = optimizer.ask(3)
        X, pending, n, seed = seen[0]
        assert X.tolist() == [list(first[0].point)]
        assert pending.tolist() == [
            list(t.point) for t in (first[1], first[2], trials[0])
        ]
        assert n == 2
        assert seed == trials[1].seed
        assert trials[1].point == (1.0, 1.0)
        for trial in (first[2], *trials):
            optimizer.tell(trial, 1.0)
        told(RobustOptimizer(DOMAIN, maximize=False, strategy="spy"), 5)
        assert seen[-1][1] is None

    def test_without_any_value_the_design_goes_on(self):
        optimizer = RobustOptimizer(DOMAIN, maximize=False, seed=0, num_initial=2)
        for _ in range(5):
            optimizer.fail(optimizer.ask(), "no luck")
        assert [t.origin for t in optimizer.trials] == ["initial"] * 5
        assert len({t.point for t in optimizer.trials}) == 5
        with pytest.raises(InputDataError, match=r"5 trial\(s\), 5 of them failed"):
            optimizer.recommend()

    def test_names_and_units(self):
        optimizer = RobustOptimizer(PARAMETERS, maximize=False, seed=0)
        trial = optimizer.ask()
        assert set(trial.parameters) == {"friction", "force"}
        assert 1e-3 <= trial.parameters["friction"] <= 1e-1
        assert trial.parameters["force"] in (200, 300, 350)
        assert trial.point[0] == pytest.approx(math.log(trial.parameters["friction"]))
        optimizer.tell(trial, press(**trial.parameters))
        found = optimizer.recommend()
        assert list(found.x) == ["friction"]
        assert list(found.theta) == ["force"]

    def test_own_observations(self):
        optimizer = RobustOptimizer(PARAMETERS, maximize=False, num_initial=2)
        trial = optimizer.add({"friction": 0.01, "force": 300}, 4.0, noise=0.1)
        assert (trial.origin, trial.state, trial.noise) == ("added", "complete", 0.1)
        assert trial.parameters == {"friction": pytest.approx(0.01), "force": 300}
        assert optimizer.add([0.02, 200], 5.0).number == 1
        assert optimizer.ask().origin == "res"


class TestExploit:
    def test_always(self):
        optimizer = RobustOptimizer(DOMAIN, maximize=False, seed=0, gamma=1.0)
        told(optimizer, 4)
        best = optimizer.recommend()
        trials = optimizer.ask(3)
        assert [t.origin for t in trials] == ["exploit", "res", "res"]
        assert trials[0].parameters == best.x | best.theta
        optimizer.tell(trials[0], saddle(trials[0].point))
        assert optimizer.ask().origin == "exploit"

    def test_sometimes(self):
        optimizer = RobustOptimizer(
            DOMAIN, maximize=False, seed=1, gamma=0.4, strategy="random", num_initial=1
        )
        told(optimizer, 21)
        count = sum(t.origin == "exploit" for t in optimizer.trials)
        # 20 draws with probability 0.4: 8 with a standard deviation of 2.2.
        assert 2 <= count <= 14


class TestReproducible:
    @pytest.mark.parametrize("strategy", ["random", "res"])
    def test_interrupted_or_not(self, tmp_path, strategy):
        settings = {"maximize": False, "strategy": strategy, "gamma": 0.2}
        whole = RobustOptimizer(DOMAIN, seed=5, **settings)
        told(whole, 7)
        path = tmp_path / "study.db"
        RobustOptimizer(DOMAIN, seed=5, storage=path, **settings)
        for _ in range(7):
            # A new object for every trial, as if the machine rebooted each time: before
            # ask, and between ask and tell.
            trial = RobustOptimizer.open(path).ask()
            RobustOptimizer(DOMAIN, storage=path, maximize=False).tell(
                trial.number, saddle(trial.point)
            )
        pieces = RobustOptimizer.open(path)
        assert [t.point for t in pieces.trials] == [t.point for t in whole.trials]
        assert [t.seed for t in pieces.trials] == [t.seed for t in whole.trials]
        a, b = pieces.recommend(), whole.recommend()
        assert (a.x, a.value, a.lower) == (b.x, b.value, b.lower)

    def test_seeds_matter_and_the_global_one_does_not(self):
        torch.manual_seed(0)
        state = torch.random.get_rng_state()
        runs = [
            told(RobustOptimizer(DOMAIN, maximize=False, seed=seed), 5)
            for seed in (1, 1, 2)
        ]
        assert torch.equal(state, torch.random.get_rng_state())
        a, b, c = ([t.point for t in run.trials] for run in runs)
        assert a == b
        assert a != c

    def test_a_seed_is_drawn_and_stored(self, tmp_path):
        first = RobustOptimizer(DOMAIN, maximize=False, storage=tmp_path / "study.db")
        assert RobustOptimizer.open(tmp_path / "study.db").seed == first.seed
        other = RobustOptimizer(DOMAIN, maximize=False)
        assert other.seed != first.seed


class TestReopening:
    def test_settings_are_kept_unless_given(self, tmp_path):
        path = tmp_path / "study.db"
        RobustOptimizer(
            PARAMETERS,
            maximize=True,
            storage=path,
            strategy="random",
            num_initial=7,
            noise=0.5,
            gamma=0.25,
        )
        again = RobustOptimizer.open(path)
        assert again.maximize
        assert again.storage == path
        assert again.space.to_dict() == ParameterSpace(PARAMETERS).to_dict()
        assert (again.num_initial, again.gamma, again._noise) == (7, 0.25, 0.5)
        assert type(again.strategy).__name__ == "RandomStrategy"
        other = RobustOptimizer.open(path, strategy="thompson", gamma=0.0, noise=0.0)
        assert type(other.strategy).__name__ == "ThompsonStrategy"
        assert (other.num_initial, other.gamma, other._noise) == (7, 0.0, 0.0)

    def test_settings_of_other_libraries_are_stored(self, tmp_path):
        path = tmp_path / "study.db"
        RobustOptimizer(
            [
                Choice("size", np.array([1, 2, 4])),
                Range("load", 0, 1, uncontrollable=True),
            ],
            maximize=False,
            storage=path,
            seed=np.int64(3),
            num_initial=np.int32(7),
            noise=np.float32(0.5),
            gamma=np.float32(0.25),
        )
        again = RobustOptimizer.open(path, seed=3)
        assert (again.seed, again.num_initial, again.gamma, again._noise) == (
            *(3, 7, 0.25, 0.5),
        )
        assert again.space.parameters[0] == Choice("size", [1, 2, 4])

    def test_options_of_the_strategy_are_kept(self, tmp_path):
        path = tmp_path / "study.db"
        options = {"num_samples": 5}
        RobustOptimizer(
            DOMAIN, maximize=False, storage=path, strategy_options=options, seed=0
        )
        assert RobustOptimizer.open(path).strategy.num_samples == 5
        again = RobustOptimizer.open(path, strategy="res")
        assert again.strategy.num_samples == 5
        again = RobustOptimizer.open(path, strategy_options={"num_samples": 6})
        assert again.strategy.num_samples == 6
        # They are not those of another strategy.
        RobustOptimizer.open(path, strategy="random")

    def test_options_that_cannot_be_stored(self, tmp_path, monkeypatch):
        class Fixed(Strategy):
            def __init__(self, *args, where=None, **kwargs):
                super().__init__(*args, **kwargs)
                self.where = where

            def propose(self, X, Y, Yvar=None, X_pending=None, n=1, seed=0):
                return self.where.expand(n, 2)

        monkeypatch.setitem(base._STRATEGIES, "fixed", Fixed)
        path = tmp_path / "study.db"
        with pytest.warns(UserInputWarning, match="where.*Give them again"):
            optimizer = RobustOptimizer(
                DOMAIN,
                maximize=False,
                storage=path,
                strategy="fixed",
                strategy_options={"where": BOUNDS.mean(dim=0)},
                num_initial=1,
            )
        told(optimizer, 2)
        assert optimizer.trials[1].point == (0.5, 0.5)
        assert RobustOptimizer.open(path).strategy.where is None

    def test_a_model_of_the_users_own_has_to_be_given_again(self, tmp_path):
        path = tmp_path / "study.db"
        settings = {"maximize": False, "storage": path}
        RobustOptimizer(DOMAIN, model=FixedGP(0.3), **settings)
        RobustOptimizer(DOMAIN, model=FixedGP(0.3), **settings)
        with pytest.warns(UserInputWarning, match="begun with the model FixedGP and"):
            RobustOptimizer.open(path)

    @pytest.mark.parametrize("name", ["strategy_options", "model"])
    def test_studies_of_former_releases(self, tmp_path, name):
        """Their settings lack some names."""
        path = tmp_path / "study.db"
        RobustOptimizer(DOMAIN, maximize=False, storage=path, gamma=0.25)
        with closing(sqlite3.connect(path)) as connection:
            (text,) = connection.execute("SELECT settings FROM study").fetchone()
            settings = json.loads(text)
            del settings[name]
            connection.execute("UPDATE study SET settings = ?", [json.dumps(settings)])
            connection.commit()
        assert RobustOptimizer.open(path).gamma == 0.25

    @pytest.mark.parametrize(
        ("domain", "changes", "message"),
        [
            (RobustDomain(2 * BOUNDS, [1]), {}, "another domain: x1 from 0 to 1, .* 2"),
            (RobustDomain(BOUNDS, [0]), {}, "another domain"),
            (
                RobustDomain(BOUNDS, [1], BOUNDS[:, :1]),
                {},
                "gave .* x one of 2 choices",
            ),
            (PARAMETERS, {}, "You gave friction from 0.001 to 0.1"),
            (DOMAIN, {"maximize": True}, "is to minimise .* you asked to maximise"),
            (DOMAIN, {"seed": 8}, "the seed 7, you gave 8. .* leave the seed out"),
        ],
    )
    def test_another_study(self, tmp_path, domain, changes, message):
        path = tmp_path / "study.db"
        told(RobustOptimizer(DOMAIN, maximize=False, storage=path, seed=7), 1)
        with pytest.raises(InputDataError, match=message):
            RobustOptimizer(domain, **{"maximize": False, "storage": path} | changes)
        with pytest.raises(InputDataError, match="Use another file for another study"):
            RobustOptimizer(domain, **{"maximize": False, "storage": path} | changes)
        assert len(RobustOptimizer.open(path, seed=7).trials) == 1

    def test_an_empty_file(self, tmp_path):
        path = tmp_path / "study.db"
        path.touch()
        with pytest.raises(InputDataError, match="holds no study yet"):
            RobustOptimizer.open(path)

    def test_two_processes_ask_at_the_same_time(self, tmp_path, monkeypatch):
        path = tmp_path / "study.db"
        one = told(RobustOptimizer(DOMAIN, maximize=False, storage=path, seed=0), 4)
        other = RobustOptimizer.open(path)
        propose, calls = type(one.strategy).propose, []

        def slow(strategy, *args, X_pending=None, **kwargs):
            calls.append(X_pending)
            if len(calls) == 1:  # while this one thinks, the other one asks
                other.ask()
            return propose(strategy, *args, X_pending=X_pending, **kwargs)

        monkeypatch.setattr(type(one.strategy), "propose", slow)
        mine = one.ask()
        first, second = one.trials[4:]
        assert mine == second
        assert first.number == 4
        assert first.point != second.point
        # The second thought knows of the other's point.
        assert calls[0] is None
        assert calls[-1].tolist() == [list(first.point)]


class TestBadValues:
    @pytest.fixture
    def optimizer(self):
        return told(RobustOptimizer(PARAMETERS, maximize=False, seed=0), 0)

    @pytest.mark.parametrize(
        ("value", "error", "message"),
        [
            (math.nan, InputDataError, r"finite, got nan. .*use `fail\(trial, reason"),
            (math.inf, InputDataError, "finite, got inf"),
            (-1e101, InputDataError, r"at most 1e\+100 .*Use another unit"),
            ("3.0", InputDataError, r"a number, got '3\.0'"),
            (None, InputDataError, "a number, got None"),
            (True, InputDataError, "a number, got True"),
            (1j, InputDataError, "a number"),
            ([1.0], InputDataError, r"a number, got \[1\.0\]"),
            (torch.zeros(2), InputDataError, "one number, got 2 of them"),
            (np.zeros((2, 2)), InputDataError, "one number, got 4 of them"),
        ],
    )
    def test_values(self, optimizer, value, error, message):
        trial = optimizer.ask()
        with pytest.raises(error, match=message):
            optimizer.tell(trial, value)
        with pytest.raises(error, match=message):
            optimizer.add(trial.parameters, value)
        assert [t.state for t in optimizer.trials] == ["running"]
        optimizer.tell(trial, 1.0)
        assert optimizer.trials[0].value == 1.0

    @pytest.mark.parametrize(
        "value",
        [3, 3.0, np.float32(3), np.array([3.0]), np.int64(3), torch.tensor([[3.0]])],
    )
    def test_numbers_of_all_kinds(self, optimizer, value):
        assert optimizer.tell(optimizer.ask(), value).value == 3.0

    @pytest.mark.parametrize("noise", [-1.0, math.nan, math.inf])
    def test_noise(self, optimizer, noise):
        trial = optimizer.ask()
        with pytest.raises(InputDataError, match=r"a standard deviation, .* got"):
            optimizer.tell(trial, 1.0, noise=noise)
        assert optimizer.trials[0].state == "running"

    def test_trials(self, optimizer):
        trial = optimizer.ask()
        with pytest.raises(InputDataError, match=r"There is no trial 5"):
            optimizer.tell(5, 1.0)
        for wrong in ([trial], "0", 0.0, True, None):
            with pytest.raises(
                InputDataError, match="Expected `trial` to be a trial from `ask`"
            ):
                optimizer.tell(wrong, 1.0)
        optimizer.tell(trial, 1.0)
        with pytest.raises(InputDataError, match=r"has the value 1\.0 already"):
            optimizer.tell(trial, 2.0)
        with pytest.raises(InputDataError, match=r"has the value 1\.0 already"):
            optimizer.fail(trial, "too late")
        assert optimizer.trials[0].value == 1.0
        other = optimizer.ask()
        with pytest.raises(InputDataError, match="`reason` to be a text, got 3"):
            optimizer.fail(other, 3)
        optimizer.fail(other, "it broke")
        with pytest.raises(InputDataError, match=r"has failed already \(it broke\)"):
            optimizer.tell(other, 2.0)

    def test_a_trial_of_another_study(self, optimizer):
        optimizer.ask()
        foreign = RobustOptimizer(PARAMETERS, maximize=False, seed=1).ask()
        with pytest.raises(InputDataError, match="it belongs to another study"):
            optimizer.tell(foreign, 1.0)
        with pytest.raises(InputDataError, match="it belongs to another study"):
            optimizer.fail(foreign, "broke")
        assert [t.state for t in optimizer.trials] == ["running"]

    def test_points(self, optimizer):
        with pytest.raises(InputDataError, match=r"friction = 0\.5 lies outside"):
            optimizer.add({"friction": 0.5, "force": 200}, 1.0)
        with pytest.raises(InputDataError, match=r"force \[kN\] = 260 .* 300 and 200"):
            optimizer.add({"friction": 0.05, "force": 260}, 1.0)
        assert len(optimizer.trials) == 0

    @pytest.mark.parametrize("n", [0, -1, True, 1.5, "2"])
    def test_number_of_trials(self, optimizer, n):
        with pytest.raises(InputDataError, match="`n` to be a whole number of at lea"):
            optimizer.ask(n)
        with pytest.raises(InputDataError, match="`after` to be a whole number of at"):
            optimizer.recommend(after=n)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"maximize": 1}, "`maximize` to be a bool, got 1"),
            (
                {"domain": "unit square"},
                "RobustDomain, .* got 'unit square'",
            ),
            ({"domain": [1, 2]}, r"got \[1, 2\]"),
            ({"seed": -1}, "`seed` .* a whole number from 0"),
            ({"num_initial": 0}, "`num_initial` .* got 0"),
            ({"gamma": 1.5}, "a probability from 0 to 1, got 1.5"),
            ({"gamma": "a"}, "a probability from 0 to 1, got 'a'"),
            ({"noise": -1}, "a standard deviation"),
            ({"noise": "a"}, "the noise, .* got 'a'. Leave it out if"),
            ({"strategy": "magic"}, "got 'magic'"),
            ({"strategy_options": {"magic": 1}}, "argument 'magic'"),
            ({"model": 3}, "`model` to be callable, got 3"),
            ({"seed": True}, "`seed` .* got True"),
        ],
    )
    def test_settings(self, tmp_path, arguments, message):
        path = tmp_path / "study.db"
        defaults = {"domain": DOMAIN, "maximize": False, "storage": path}
        with pytest.raises(InputDataError, match=message):
            RobustOptimizer(**defaults | arguments)
        assert not path.exists()  # nothing was made by mistake

    def test_direction_has_no_default(self):
        with pytest.raises(TypeError, match="maximize"):
            RobustOptimizer(DOMAIN)


class TestDifficultValues:
    @pytest.mark.parametrize("strategy", ["random", "res"])
    @pytest.mark.parametrize("scale", [1e-12, 1e12])
    def test_magnitudes(self, scale, strategy):
        settings = {"maximize": False, "seed": 0, "strategy": strategy}
        plain = told(RobustOptimizer(DOMAIN, **settings), 5)
        scaled = RobustOptimizer(DOMAIN, **settings)
        for trial in plain.trials:
            scaled.add(trial.parameters, scale * trial.value)
        a, b = plain.recommend(), scaled.recommend()
        assert a.x == pytest.approx(b.x, abs=1e-4)
        for name in ("value", "lower", "upper", "standard_deviation"):
            assert getattr(b, name) / scale == pytest.approx(getattr(a, name), abs=1e-4)
        loo, scaled_loo = plain.leave_one_out(), scaled.leave_one_out()
        torch.testing.assert_close(scaled_loo.residual, loo.residual, rtol=0, atol=0.01)
        # At a robust optimum two thetas often tie, and rounding decides between them.
        assert plain.ask().point[0] == pytest.approx(scaled.ask().point[0], abs=1e-4)

    @pytest.mark.parametrize("value", [0.0, 5.0, 1e12, 1e-12])
    def test_constant_results(self, value):
        optimizer = RobustOptimizer(DOMAIN, maximize=False, seed=0)
        told(optimizer, 6, lambda z: value)
        found = optimizer.recommend()
        assert found.value == pytest.approx(value, rel=5e-3, abs=5e-3)
        assert found.lower <= value <= found.upper
        assert found.upper - found.lower <= 0.01 * abs(value) or value == 0.0
        points = torch.tensor([t.point for t in optimizer.trials])
        assert len(points.unique(dim=0)) == 6

    def test_duplicates(self):
        optimizer = RobustOptimizer(DOMAIN, maximize=False, seed=0)
        for i in range(12):
            optimizer.add([0.5, 0.5], 1.0 + 0.1 * (i % 3))
        model, unit = optimizer.fit()
        mean = float(model.posterior(torch.full((1, 2), 0.5).double()).mean) * unit
        assert mean == pytest.approx(1.1, abs=0.02)
        told(optimizer, 3, lambda z: 1.1 + saddle(z))
        points = {t.point for t in optimizer.trials}
        assert len(points) == 4  # the strategy looks elsewhere
        assert optimizer.recommend().value == pytest.approx(1.1, abs=0.2)


class TestModelCare:
    def test_noise_of_the_observations(self, monkeypatch):
        seen = []

        def factory(X, Y, Yvar, bounds, seed=0):
            seen.append((Y, Yvar))
            return FixedGP(0.3)(X, Y, Yvar, bounds)

        def variances(noise, *noises):
            optimizer = RobustOptimizer(
                DOMAIN, maximize=False, model=factory, noise=noise
            )
            for told_noise in noises:
                optimizer.add([0.5, 0.5], 1e-3, noise=told_noise)
            optimizer.recommend()
            return None if seen[-1][1] is None else seen[-1][1].flatten().tolist()

        assert variances(None, None, None) is None
        assert variances(None, 3.0, None, 1.0) == [9.0, 5.0, 1.0]
        assert variances(0.5, 3.0, None) == [9.0, 0.25]
        assert variances(0.0, None) == [0.0]
        # A model of the user's own sees the values as they are.
        assert seen[-1][0].tolist() == [[1e-3]]

    def test_the_default_model_sees_values_of_order_one(self, monkeypatch):
        optimizer = RobustOptimizer(DOMAIN, maximize=False)
        seen = []

        def factory(X, Y, Yvar, bounds, seed=0):
            seen.append((Y, Yvar))
            return DefaultGP()(X, Y, Yvar, bounds, seed)

        monkeypatch.setattr(optimizer.strategy, "model_factory", factory)
        optimizer.add([0.5, 0.5], 3e-9, noise=1e-9)
        optimizer.add([0.2, 0.5], 7e-9, noise=2e-9)
        model, unit = optimizer.fit()
        assert unit == 1e-9
        torch.testing.assert_close(seen[0][0], torch.tensor([[3.0], [7.0]]).double())
        torch.testing.assert_close(seen[0][1], torch.tensor([[1.0], [4.0]]).double())
        mean = model.posterior(torch.tensor([[0.2, 0.5]]).double()).mean
        assert float(mean) * unit == pytest.approx(6e-9, abs=2e-9)

    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_few_points(self, n):
        optimizer = told(RobustOptimizer(DOMAIN, maximize=False, seed=0), n)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = optimizer.recommend()
        values = [t.value for t in optimizer.trials]
        spread = max(map(abs, values)) if n == 1 else np.std(values)
        assert abs(found.value - np.mean(values)) < 3 * spread
        assert 0.01 * spread < found.upper - found.lower < 20 * spread

    def test_leave_one_out(self):
        optimizer = RobustOptimizer(DOMAIN, maximize=False, seed=0, strategy="random")
        found = told(optimizer, 20).leave_one_out()
        values = torch.tensor([t.value for t in optimizer.trials], dtype=torch.double)
        torch.testing.assert_close(found.observed, values)
        assert found.explained > 0.8

    @pytest.mark.parametrize("strategy", ["res", "thompson"])
    def test_average_over_hyperparameters(self, strategy):
        """An ensemble of models as the factory, with its options stored nowhere."""
        optimizer = RobustOptimizer(
            DOMAIN,
            maximize=False,
            seed=0,
            model=BayesianGP(num_samples=4, num_steps=20),
            strategy=strategy,
        )
        told(optimizer, 8)
        assert [t.origin for t in optimizer.trials[4:]] == [strategy] * 4
        assert optimizer.fit()[0].batch_shape == (4,)
        found = optimizer.recommend()
        assert found.x["x1"] == pytest.approx(0.3, abs=0.15)
        assert found.lower <= found.value <= found.upper
        values = [t.value for t in optimizer.trials]
        assert optimizer.leave_one_out().observed.tolist() == pytest.approx(values)
        assert optimizer.acquisition()(BOUNDS[:1]).isfinite().all()
        running = optimizer.ask(2)
        assert running[0].point != running[1].point

    def test_acquisition_is_what_the_next_suggestion_maximises(self):
        optimizer = told(RobustOptimizer(DOMAIN, maximize=True, seed=0), 5, negative)
        optimizer.fail(optimizer.ask(), "broke")
        acqf = optimizer.acquisition()
        assert acqf.X_pending.tolist() == [list(optimizer.trials[5].point)]
        points = torch.cat(
            [torch.tensor([optimizer.ask().point]).double(), DOMAIN.sample(256, seed=0)]
        )
        with torch.no_grad():
            chosen, *others = acqf(points.unsqueeze(-2)).tolist()
        assert chosen >= max(others) - 1e-3

    @pytest.mark.parametrize("target", TARGETS)
    def test_acquisition_has_the_target_of_the_strategy(self, target):
        optimizer = RobustOptimizer(
            DOMAIN, maximize=False, strategy_options={"target": target}
        )
        assert told(optimizer, 1).acquisition().target.name == target

    def test_strategy_options(self, monkeypatch):
        class Fixed(Strategy):
            def __init__(self, *args, where, **kwargs):
                super().__init__(*args, **kwargs)
                self.where = where

            def propose(self, X, Y, Yvar=None, X_pending=None, n=1, seed=0):
                return torch.full((n, 2), self.where, dtype=torch.double)

        monkeypatch.setitem(base._STRATEGIES, "fixed", Fixed)
        optimizer = RobustOptimizer(
            DOMAIN,
            maximize=False,
            strategy="fixed",
            strategy_options={"where": 0.25},
            num_initial=1,
        )
        told(optimizer, 2)
        assert optimizer.trials[1].point == (0.25, 0.25)


class TestRecommendation:
    def test_text(self):
        optimizer = RobustOptimizer(PARAMETERS, maximize=False, seed=0)
        optimizer.add({"friction": 0.01, "force": 300}, 4.0)
        text = str(optimizer.recommend())
        assert text.startswith("friction = ")
        found = optimizer.recommend()
        assert f"worst case {found.value:.6g} (95 %: " in text
        assert " at force = " in text
        assert "_prediction" not in repr(optimizer.recommend())

    def test_as_many_digits_as_tell_something(self):
        parameters = [
            Range("frequency", 2.4e9, 2.4e9 + 1.0),
            Range("load", 0.0, 1.0, uncontrollable=True),
        ]
        optimizer = RobustOptimizer(parameters, maximize=False, seed=0)
        for offset, load in ((0.0, 0.0), (0.5, 1.0), (1.0, 0.5)):
            optimizer.add([2.4e9 + offset, load], 1e12 + offset**2 - load)
        found = optimizer.recommend()
        shown = [float(n) for n in re.findall(r"-?[\d.]+(?:e[+-]?\d+)?", str(found))]
        frequency, value, _, lower, upper, load = shown
        assert frequency == pytest.approx(found.x["frequency"], abs=1e-3)
        assert load == pytest.approx(found.theta["load"], abs=1e-5)
        width = found.upper - found.lower
        for number, expected in (
            (value, found.value),
            (lower, found.lower),
            (upper, found.upper),
        ):
            assert number == pytest.approx(expected, rel=0, abs=0.05 * width)

    def test_curve_of_a_range(self):
        optimizer = RobustOptimizer(DOMAIN, maximize=False, seed=0, strategy="random")
        found = told(optimizer, 25).recommend()
        (curve,) = found.curve.values()
        assert curve.name == "x1"
        assert curve.x.tolist() == pytest.approx(np.linspace(0, 1, 101))
        assert curve.theta.shape == (101, 1)
        truth = (curve.x - 0.3).square()  # the worst theta is 0.7 everywhere
        torch.testing.assert_close(curve.value, truth, rtol=0, atol=0.05)
        assert ((curve.lower <= truth + 0.01) & (truth - 0.01 <= curve.upper)).all()
        # The grid misses the optimum by at most half its spacing.
        assert float(curve.value.min()) == pytest.approx(found.value, abs=1e-3)
        assert found.curve is found.curve

    def test_curves_of_finite_parameters_in_their_units(self):
        parameters = [
            Integer("layers", 1, 4),
            Choice("size", [8.0, 0.5, 2.0], log=True),
            Range("load", -1.0, 1.0, uncontrollable=True),
        ]
        optimizer = RobustOptimizer(parameters, maximize=True, seed=0)
        for layers in (1, 2, 4):
            for size in (0.5, 8.0):
                optimizer.add([layers, size, 0.5], 1e6 * (layers - size))
        found = optimizer.recommend()
        assert found.curve["layers"].x.tolist() == [1.0, 2.0, 3.0, 4.0]
        assert found.curve["size"].x.tolist() == [0.5, 2.0, 8.0]
        here = found.curve["size"].x.tolist().index(found.x["size"])
        assert float(found.curve["size"].value[here]) == pytest.approx(found.value)
        here = found.curve["layers"].x.tolist().index(found.x["layers"])
        assert float(found.curve["layers"].value[here]) == pytest.approx(found.value)
        assert isinstance(found.x["layers"], int)
        assert found.x == {"layers": 4, "size": 0.5}


class TestTable:
    @pytest.fixture
    def optimizer(self):
        optimizer = RobustOptimizer(PARAMETERS, maximize=False, seed=0)
        optimizer.tell(optimizer.ask(), 1 / 3, noise=0.25)
        optimizer.fail(optimizer.ask(), "the mesh, again")
        optimizer.ask()
        return optimizer

    def test_sequence(self, optimizer):
        trials = optimizer.trials
        assert len(trials) == 3
        assert [t.number for t in trials[1:]] == [1, 2]
        assert trials[-1].state == "running"
        assert [t.number for t in reversed(trials)] == [2, 1, 0]

    def test_text(self, optimizer):
        lines = str(optimizer.trials).splitlines()
        assert lines[0].split() == [
            *("number", "state", "friction", "force", "[kN]", "value", "reason")
        ]
        assert "0.333333" in lines[1]
        assert lines[2].endswith("the mesh, again")
        assert len(lines) == 4

    def test_csv_reads_back_exactly(self, optimizer, tmp_path):
        path = tmp_path / "trials.csv"
        optimizer.trials.to_csv(path)
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0]) == optimizer.trials.columns
        for row, trial in zip(rows, optimizer.trials, strict=True):
            assert float(row["friction"]) == trial.parameters["friction"]
            assert int(row["force"]) == trial.parameters["force"]
            assert int(row["seed"]) == trial.seed
        assert float(rows[0]["value"]) == 1 / 3
        assert (rows[1]["value"], rows[1]["reason"]) == ("", "the mesh, again")

    def test_pandas(self, optimizer, monkeypatch):
        frame = optimizer.trials.to_pandas()
        assert list(frame.index) == [0, 1, 2]
        assert frame.loc[0, "value"] == 1 / 3
        monkeypatch.setitem(__import__("sys").modules, "pandas", None)
        with pytest.raises(ImportError, match="pip install pandas"):
            optimizer.trials.to_pandas()
