"""Tolerances: what is set, what comes out, and what a study makes of it."""

import json
import math
import sqlite3
from contextlib import closing

import numpy as np
import pytest
import torch
from botorch.exceptions.errors import InputDataError

from botorch_res import RobustDomain, RobustOptimizer
from botorch_res.models import FixedGP
from botorch_res.study.parameters import Choice, Integer, Range
from botorch_res.study.space import ParameterSpace
from botorch_res.study.tasks import read_domain

THICKNESS = Range("thickness", 1, 3, unit="mm", tolerance=(-0.2, 0.1))
SPEED = Range("speed", 1, 100, log=True, tolerance="5%")
LOAD = Range("load", 1, 2, uncontrollable=True)


class TestSpace:
    @pytest.mark.parametrize(
        "parameters",
        [
            [THICKNESS],
            [LOAD, SPEED, THICKNESS],
            [THICKNESS, Range("exact", 0, 1)],
            [Range("a", 1, 3, tolerance=0.1, evaluate=(0.95, 3)), LOAD],
            [Integer("a", 1, 4, tolerance=1), Choice("b", [1, 3], tolerance=0.5), LOAD],
            [Integer("a", 1, 4, tolerance=1), Range("b", 1, 3, tolerance=0.5), LOAD],
            [Range("a", 0, 1, levels=3, tolerance=0.1), THICKNESS],
        ],
    )
    def test_round_trips(self, parameters):
        space = ParameterSpace(parameters)
        content = json.loads(json.dumps(space.to_dict()))
        assert content == space.to_dict()
        stored = ParameterSpace.from_dict(content)
        assert stored.to_dict() == space.to_dict()
        assert stored.parameters == space.parameters
        assert stored.domain.tolerances == space.domain.tolerances
        evaluations = space.domain.evaluations
        assert torch.equal(stored.domain.evaluations.bounds, evaluations.bounds)
        drawn = space.sample(20, seed=0)
        lower, upper = evaluations.bounds
        assert ((lower <= drawn) & (drawn <= upper)).all()
        # 20 points of a Sobol sequence leave no eighth of an axis empty.
        assert (drawn.amin(0) < lower + (upper - lower) / 8).all()
        assert (drawn.amax(0) > upper - (upper - lower) / 8).all()
        for z in drawn:
            torch.testing.assert_close(stored.encode(space.decode(z)), z)

    def test_domain(self):
        space = ParameterSpace([LOAD, SPEED, THICKNESS])
        domain = space.domain
        assert domain.tolerances == {1: SPEED.tolerance, 2: THICKNESS.tolerance}
        assert domain.theta.columns == (1, 2, 0)
        assert space.theta_names == ["load"]
        assert space.tolerance_names == ["speed", "thickness"]
        assert space.x_names == ["speed", "thickness"]
        assert domain.bounds[:, 2].tolist() == [1.0, 3.0]
        assert domain.evaluations.bounds[:, 2].tolist() == [0.8, 3.1]

    def test_settings_and_deviations(self):
        space = ParameterSpace([LOAD, SPEED, Integer("n", 1, 5, tolerance=0.5)][1:2])
        x = torch.tensor([math.log(20.0)], dtype=torch.double)
        theta = torch.tensor([math.log(1.05)], dtype=torch.double)
        assert space.decode_setting(x) == pytest.approx({"speed": 20})
        assert space.decode_deviation(theta) == pytest.approx({"speed": 0.05})
        come_out = space.decode(space.domain.join(x, theta))
        assert come_out == pytest.approx({"speed": 21})

    def test_spaces_without_tolerances_are_stored_as_before(self):
        content = ParameterSpace([Range("a", 0, 1), LOAD]).to_dict()
        assert set(content) == {
            *("named", "parameters", "bounds", "uncontrollable"),
            *("x_choices", "theta_choices"),
        }
        assert set(content["parameters"][0]) == {
            *("name", "lower", "upper", "values"),
            *("unit", "uncontrollable", "log", "integer"),
        }

    @pytest.mark.parametrize(
        ("parameters", "error", "message"),
        [
            (
                [Range("a", 0, 1)],
                InputDataError,
                "one uncontrollable parameter, got none among .'a'.*a `tolerance`",
            ),
        ],
    )
    def test_errors(self, parameters, error, message):
        with pytest.raises(error, match=message):
            ParameterSpace(parameters)

    def test_old_values_in_the_widened_range(self):
        space = ParameterSpace([Range("a", 1, 3, tolerance=0.1, evaluate=(1, 3)), LOAD])
        assert space.encode({"a": 0.9, "load": 1}).tolist() == [0.9, 1.0]
        with pytest.raises(InputDataError, match=r"a = 0.85 lies outside.* 0.9 to 3.1"):
            space.encode({"a": 0.85, "load": 1})


BOUNDS = torch.tensor([[0.0, -1.0, 5.0], [1.0, 1.0, 9.0]], dtype=torch.double)
NARROWER = torch.tensor([[0.1, -1.0, 5.0], [0.9, 0.5, 9.0]], dtype=torch.double)
DEVIATIONS = torch.tensor([[-0.1, 0.5], [0.05, 0.5], [0.1, 1.0]], dtype=torch.double)


class TestPlainDomain:
    @pytest.mark.parametrize(
        "arguments",
        [
            {"tolerances": {0: 0.1, 1: (-0.2, 0.3)}},
            {"tolerances": {1: 0.1}, "uncontrollable": [0]},
            {"uncontrollable": [0], "evaluation_bounds": NARROWER},
            {
                "tolerances": {1: 0.1},
                "uncontrollable": [0],
                "theta_choices": DEVIATIONS,
            },
        ],
        ids=["tolerances", "both", "evaluations", "deviations"],
    )
    def test_round_trips(self, arguments):
        domain = RobustDomain(BOUNDS, **arguments)
        space = ParameterSpace.from_domain(domain)
        content = json.loads(json.dumps(space.to_dict()))
        stored = ParameterSpace.from_dict(content)
        assert stored.to_dict() == space.to_dict()
        assert repr(stored.domain) == repr(domain)
        for z in space.sample(8, seed=0):
            torch.testing.assert_close(space.encode(list(space.decode(z).values())), z)

    def test_names(self):
        domain = RobustDomain(BOUNDS, [0], tolerances={2: 0.5})
        space = ParameterSpace.from_domain(domain)
        assert [p.name for p in space.parameters] == ["theta1", "x1", "x2"]
        assert space.tolerance_names == ["x2"]
        assert [p.uncontrollable for p in space.parameters] == [True, False, False]
        assert space.parameters[2].tolerance == (-0.5, 0.5)

    def test_spans(self):
        bounds = torch.tensor([[1.0, 1.0], [3.0, 2.0]], dtype=torch.double)
        domain = RobustDomain(bounds, [1], tolerances={0: (-0.2, 0.1)})
        for parameters, same in (
            ([THICKNESS, LOAD], True),
            ([Range("a", 1, 3, tolerance=0.1), LOAD], False),
            ([Range("a", 1, 3), LOAD], False),
            ([Range("a", 1, 3, log=True, tolerance="5%"), LOAD], False),
            ([THICKNESS, Range("a", 1, 2, tolerance=0.1)], False),
        ):
            assert ParameterSpace(parameters).spans(domain) is same
        deviations = torch.tensor([[-0.1], [0.1]], dtype=torch.double)
        coarse = RobustDomain(
            bounds[:, :1], tolerances={0: 0.1}, theta_choices=deviations
        )
        assert ParameterSpace.from_domain(coarse).spans(coarse)
        other = RobustDomain(
            bounds[:, :1], tolerances={0: 0.1}, theta_choices=0.5 * deviations
        )
        assert not ParameterSpace.from_domain(coarse).spans(other)


def well(thickness):
    """A deep and narrow well on a slope: the nominal optimum is no robust one."""
    return (thickness - 1.9) ** 2 - 1.2 * math.exp(-(((thickness - 1.45) / 0.12) ** 2))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A dense study, so that the model is the function itself."""
    path = tmp_path_factory.mktemp("study") / "well.db"
    optimizer = RobustOptimizer(
        [THICKNESS], maximize=False, seed=0, noise=0.0, storage=path
    )
    for z in np.linspace(0.8, 3.1, 47):
        optimizer.add([min(float(z), 3.1)], well(z))
    return optimizer


class TestStudy:
    def test_recommendation_against_brute_force(self, study):
        settings = np.linspace(1, 3, 2001)
        deviations = np.linspace(-0.2, 0.1, 301)
        values = np.vectorize(well)(settings[:, None] + deviations)
        worst = values.max(axis=1)
        best = study.recommend()
        # The model misses the function by 1e-4 or so between 47 values.
        assert best.value == pytest.approx(worst.min(), abs=2e-3)
        assert best.x["thickness"] == pytest.approx(settings[worst.argmin()], abs=5e-3)
        assert best.theta == {}
        deviation = best.deviation["thickness"]
        assert deviation in (pytest.approx(-0.2), pytest.approx(0.1))
        come_out = best.worst_case["thickness"]
        assert come_out == pytest.approx(best.x["thickness"] + deviation)
        assert well(come_out) == pytest.approx(best.value, abs=2e-3)
        curve = best.curve["thickness"]
        expected = [worst[np.abs(settings - x).argmin()] for x in curve.x.tolist()]
        np.testing.assert_allclose(curve.value, expected, atol=5e-3)
        assert curve.theta.shape == (101, 0)
        reached = [
            well(x + d)
            for x, d in zip(curve.x, curve.deviation["thickness"], strict=True)
        ]
        np.testing.assert_allclose(reached, curve.value, atol=5e-3)

    def test_text(self, study):
        best = study.recommend()
        text = str(best)
        assert text.startswith(f"set thickness = {best.x['thickness']:.6g}: worst case")
        shown = f"{best.deviation['thickness']:+.4g}"
        expected = f") at thickness = {best.worst_case['thickness']:.6g} ({shown})"
        assert text.endswith(expected)

    def test_storage(self, study):
        reopened = RobustOptimizer.open(study.storage)
        assert str(reopened.recommend()) == str(study.recommend())
        same = [Range("thickness", 1, 3, unit="mm", tolerance=[-0.2, 0.1])]
        RobustOptimizer(same, maximize=False, storage=study.storage)
        other = [Range("thickness", 1, 3, unit="mm", tolerance=0.2)]
        with pytest.raises(InputDataError, match=r"-0.2 to \+0.1. You gave .*\+0.2"):
            RobustOptimizer(other, maximize=False, storage=study.storage)

    def test_studies_from_before_there_were_tolerances(self, tmp_path):
        path = tmp_path / "old.db"
        space = {
            "named": True,
            "parameters": [
                {
                    "name": name,
                    "lower": 0.0,
                    "upper": 1.0,
                    "values": None,
                    "unit": "",
                    "uncontrollable": uncontrollable,
                    "log": False,
                    "integer": False,
                }
                for name, uncontrollable in (("a", False), ("b", True))
            ],
            "bounds": [[0.0, 0.0], [1.0, 1.0]],
            "uncontrollable": [1],
            "x_choices": None,
            "theta_choices": None,
        }
        parameters = [Range("a", 0, 1), Range("b", 0, 1, uncontrollable=True)]
        RobustOptimizer(parameters, maximize=False, storage=path)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE study SET space = ?", (json.dumps(space),))
        assert RobustOptimizer.open(path).space.parameters == tuple(parameters)
        RobustOptimizer(parameters, maximize=False, storage=path)

    def test_both_kinds_of_uncertainty(self):
        """By hand: log-distance to 10 is worst at an end, and load always at 2."""
        optimizer = RobustOptimizer(
            [SPEED, LOAD], maximize=True, seed=0, strategy="random", num_initial=30
        )
        optimizer.run(
            lambda speed, load: -load * math.log(speed / 10) ** 2, 30, progress=False
        )
        best = optimizer.recommend()
        assert best.x["speed"] == pytest.approx(10, rel=0.02)
        assert best.theta == pytest.approx({"load": 2.0})
        assert abs(best.deviation["speed"]) == pytest.approx(0.05, abs=3e-3)
        # 30 points at random tell the model a thousandth of the values, 0 to -10.6.
        assert best.value == pytest.approx(-2 * math.log(1.05) ** 2, abs=1e-2)
        text = str(best)
        assert " at load = 2, speed = " in text
        assert text.endswith(("(+5%)", "(-4.76%)"))

    @pytest.mark.parametrize("gamma", [0.0, 1.0])
    def test_trials_are_what_may_be_evaluated(self, gamma):
        """Even if the worst case is elsewhere, and the recommendation is evaluated."""
        limited = Range("a", 0, 1, tolerance=0.2, evaluate=(0.25, 1.0))
        optimizer = RobustOptimizer([limited], maximize=False, seed=0, gamma=gamma)
        optimizer.run(lambda a: a, 8, progress=False)
        values = [trial.parameters["a"] for trial in optimizer.trials]
        assert all(0.25 <= value <= 1.0 for value in values)
        assert {t.origin for t in optimizer.trials} == {
            "initial",
            "exploit" if gamma else "res",
        }
        assert not 0.25 <= optimizer.recommend().worst_case["a"] <= 1.0
        if gamma:
            assert values[-1] == pytest.approx(0.25)

    def test_perturbed_settings_are_evaluated(self):
        """The design reaches beyond the settings, and old values may lie there."""
        optimizer = RobustOptimizer(
            [Integer("n", 1, 3, tolerance=0.5)], maximize=False, num_initial=16, seed=0
        )
        values = [trial.parameters["n"] for trial in optimizer.ask(16)]
        assert min(values) < 1
        assert max(values) > 3
        assert all(0.5 <= value <= 3.5 for value in values)
        assert optimizer.add({"n": 3.4}, 1.0).parameters == {"n": 3.4}
        assert optimizer.recommend().x["n"] in (1, 2, 3)
        assert isinstance(optimizer.recommend().x["n"], int)

    def test_observations_beyond_what_may_be_evaluated_count(self):
        """An old value in the widened range is an observation like any other."""
        fixed = FixedGP(lengthscale=0.3, noise_variance=1e-6)
        limited = Range("a", 0, 1, tolerance=0.2, evaluate=(0.0, 1.0))
        optimizer = RobustOptimizer([limited], maximize=False, model=fixed, seed=0)
        optimizer.add([1.2], 2.0)
        optimizer.add([0.0], 0.0)
        model, _ = optimizer.fit()
        z = torch.tensor([[1.2]], dtype=torch.double)
        assert float(model.posterior(z).mean) == pytest.approx(2.0, abs=1e-4)


class TestFile:
    def read(self, tmp_path, table):
        path = tmp_path / "domain.toml"
        path.write_text(f'direction = "minimize"\n[parameters.a]\n{table}\n')
        return read_domain(path)[0].parameters[0]

    def test_tolerances(self, tmp_path):
        for table, expected in (
            (
                "lower = 1\nupper = 3\ntolerance = 0.1",
                Range("a", 1, 3, tolerance=0.1),
            ),
            (
                "lower = 1\nupper = 3\ntolerance = [-0.1, 0.05]\nevaluate = [0.95, 3]",
                Range("a", 1, 3, tolerance=(-0.1, 0.05), evaluate=(0.95, 3)),
            ),
            (
                'lower = 1\nupper = 3\nlog = true\ntolerance = "5%"',
                Range("a", 1, 3, log=True, tolerance="5%"),
            ),
            (
                'lower = 1\nupper = 3\nlog = true\ntolerance = ["-5%", "10%"]',
                Range("a", 1, 3, log=True, tolerance=("-5%", "10%")),
            ),
            (
                "values = [1, 2, 4]\ntolerance = 0.1",
                Choice("a", [1, 2, 4], tolerance=0.1),
            ),
            (
                "lower = 1\nupper = 3\ninteger = true\ntolerance = 0.1",
                Integer("a", 1, 3, tolerance=0.1),
            ),
        ):
            assert self.read(tmp_path, table) == expected

    def test_errors_name_the_parameter(self, tmp_path):
        with pytest.raises(InputDataError, match="parameter 'a' to be a number"):
            self.read(tmp_path, 'lower = 1\nupper = 3\ntolerance = "5%"')


@pytest.mark.parametrize("seed", range(3))
def test_ends_may_be_rounded(seed):
    """What people compute as the ends of what can come out is accepted."""
    uniform = np.random.default_rng(seed).uniform
    for _ in range(30):
        lower, factor = uniform(0.1, 10.0), 1.0 + round(uniform(0.01, 0.2), 3)
        percent = f"{100.0 * (factor - 1.0)}%"
        parameter = Range(
            "speed",
            lower,
            10.0 * lower,
            log=True,
            tolerance=percent,
            evaluate=(lower / factor, 3.0 * lower),
        )
        space = ParameterSpace([parameter])
        z = space.encode({"speed": lower / factor})
        # A trial at an end of what may be evaluated is at that end.
        assert space.decode(z)["speed"] == parameter.evaluate[0]
        ends = space.domain.evaluations.bounds
        decoded = [space.decode(end)["speed"] for end in ends]
        assert decoded == list(parameter.evaluate)
