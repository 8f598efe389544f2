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
from botorch_res.study.parameters.tolerances import read_tolerance
from botorch_res.study.space import ParameterSpace
from botorch_res.study.tasks import read_domain

THICKNESS = Range("thickness", 1, 3, unit="mm", tolerance=(-0.2, 0.1))
SPEED = Range("speed", 1, 100, log=True, tolerance="5%")
LOAD = Range("load", 1, 2, uncontrollable=True)


class TestReading:
    @pytest.mark.parametrize(
        ("tolerance", "log", "expected"),
        [
            (0.1, False, (-0.1, 0.1)),
            (1, False, (-1.0, 1.0)),
            ((-0.1, 0.05), False, (-0.1, 0.05)),
            ([0.1, 0.2], False, (0.1, 0.2)),
            (np.float64(0.25), False, (-0.25, 0.25)),
            ("5%", True, (math.log(1 / 1.05), math.log(1.05))),
            (" 0.5 %", True, (-math.log(1.005), math.log(1.005))),
            (("-5%", "10%"), True, (math.log(0.95), math.log(1.10))),
            (["+5%", "20%"], True, (math.log(1.05), math.log(1.20))),
            ("*1.05", True, (-math.log(1.05), math.log(1.05))),
            (" * 1.05", True, (-math.log(1.05), math.log(1.05))),
            (("/1.05", "*1.1"), True, (-math.log(1.05), math.log(1.1))),
            (("*0.9", "5%"), True, (math.log(0.9), math.log(1.05))),
        ],
    )
    def test_values(self, tolerance, log, expected):
        found = read_tolerance("a", tolerance, (1, 3), log)
        assert found == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize(
        ("tolerance", "log", "message"),
        [
            ("5%", False, "'a' to be a number.*got '5%'. A percentage or a f"),
            (("-5%", "5%"), False, "A percentage or a factor needs a logarithmic"),
            ("*1.05", False, r"got '\*1.05'. A percentage or a factor needs"),
            ("0.1", False, "to be a number"),
            ((0.1, 0.2, 0.3), False, r"a lower and an upper.*got \(0.1, 0.2, 0.3\)"),
            ((), False, "a lower and an upper"),
            (True, False, "got True"),
            (math.nan, False, "got nan"),
            ((-math.inf, 0.1), False, "inf"),
            (0, False, "to be positive.*got 0"),
            (-0.1, False, "'a' to be positive.*got -0.1"),
            ((0.1, -0.1), False, r"lower and then an upper.*got \(0.1, -0.1\)"),
            ((0.1, 0.1), False, "lower and then an upper"),
            (1.1, False, "than its range, 1 to 3, got 1.1"),
            (0.1, True, "'a', whose scale is logarithmic, .*'5%'.* got 0.1"),
            ("5", True, "percentage like '5%'.* got '5'"),
            ("five%", True, "got 'five%'"),
            ("nan%", True, "got 'nan%'"),
            (("-100%", "5%"), True, "or a percentage.*'-100%'"),
            ("1.05", True, r"a factor like '\*1.05' or .*got '1.05'"),
            (1.05, True, r"a factor like '\*1.05' or .*got 1.05"),
            ("*", True, "got '[*]'"),
            ("*-2", True, "got '[*]-2'"),
            ("/0", True, "got '/0'"),
            ("*inf", True, "got '[*]inf'"),
            ("/1.05", True, "to be positive.*got '/1.05'"),
            (("*1.1", "/1.05"), True, "lower and then an upper"),
            ("0%", True, "to be positive.*got '0%'"),
            ("-5%", True, "to be positive.*got '-5%'"),
            (("5%", "-5%"), True, "lower and then an upper"),
            ("100%", True, "than its range, 1 to 3, got '100%'"),
        ],
    )
    def test_errors(self, tolerance, log, message):
        with pytest.raises(InputDataError, match=message):
            read_tolerance("a", tolerance, (1, 3), log)

    def test_as_wide_as_the_range(self):
        assert read_tolerance("a", 1.0, (1, 3), False) == (-1.0, 1.0)


class TestParameters:
    def test_what_comes_out(self):
        wide = THICKNESS.widened
        assert (wide.lower, wide.upper, wide.tolerance) == (0.8, 3.1, None)
        assert THICKNESS.evaluations == wide
        assert wide.widened == wide

    def test_what_comes_out_of_factors(self):
        parameter = Range("a", 1, 100, log=True, tolerance=("-5%", "10%"))
        assert (parameter.widened.lower, parameter.widened.upper) == (0.95, 110.0)
        ends = [parameter.encode(e) for e in (1.0, 100.0)]
        assert ends[0] + parameter.tolerance[0] == pytest.approx(math.log(0.95))
        assert ends[1] + parameter.tolerance[1] == pytest.approx(math.log(110))

    def test_rounding_does_not_refuse_what_people_write(self):
        """In floating point, 0.8 - 0.1 is above 0.7."""
        parameter = Range("a", 0.8, 2.0, tolerance=0.1)
        assert parameter.widened.lower == 0.7
        space = ParameterSpace([parameter])
        assert space.decode(space.encode([0.7])) == {"a": 0.7}

    def test_finite_settings(self):
        """Anything can come out of whole numbers, too."""
        for parameter in (
            Integer("a", 1, 4, tolerance=0.5),
            Choice("a", [1, 2, 4], tolerance=0.5),
            Range("a", 1, 4, levels=4, tolerance=0.5),
        ):
            assert parameter.widened.values is None
            assert parameter.widened.decode(2.25) == 2.25
            assert (parameter.widened.lower, parameter.widened.upper) == (0.5, 4.5)
            assert parameter.decode(1.75) == 2
            assert parameter.evaluations.lower == 0.5

    def test_what_may_be_evaluated(self):
        parameter = Range("a", 1, 3, tolerance=0.1, evaluate=(0.95, 3))
        evaluations = parameter.evaluations
        assert (evaluations.lower, evaluations.upper) == (0.95, 3.0)
        assert parameter.widened.lower == 0.9

    def test_deviations_for_people(self):
        assert THICKNESS.decode_deviation(-0.2) == -0.2
        assert THICKNESS.show_deviation(-0.2) == "-0.2"
        low, high = map(SPEED.decode_deviation, SPEED.tolerance)
        assert (low, high) == pytest.approx((1 / 1.05 - 1, 0.05))
        assert (SPEED.show_deviation(low), SPEED.show_deviation(high)) == (
            "-4.76%",
            "+5%",
        )

    def test_describe(self):
        assert THICKNESS.describe() == (
            "thickness [mm] from 1 to 3 with a tolerance of -0.2 to +0.1"
        )
        limited = Range("a", 1, 3, tolerance=0.1, evaluate=(1, 3))
        assert limited.describe().endswith("-0.1 to +0.1, evaluated from 1 to 3")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"evaluate": (1, 2)}, r"beside a `tolerance` only, got \(1, 2\) .*'a'"),
            ({"tolerance": 0.1, "uncontrollable": True}, "controllable.*0.1 for 'a'"),
            ({"tolerance": -1}, "'a' to be positive"),
            ({"tolerance": 0.1, "evaluate": (2, 1)}, r"smallest and .*got \(2, 1\)"),
            ({"tolerance": 0.1, "evaluate": (0.8, 2)}, "within 0.9 to 3.1"),
            ({"tolerance": 0.1, "evaluate": (1, 3.2)}, "within 0.9 to 3.1"),
            ({"tolerance": 0.1, "evaluate": (1, "2")}, "got"),
            ({"tolerance": 0.1, "evaluate": (1, 2, 3)}, "got"),
            ({"tolerance": 0.1, "evaluate": 2}, "got 2"),
            (
                {"tolerance": 0.1, "levels": 3, "evaluate": (1.2, 1.8)},
                r"a value that can come out of a in \{1, 2, 3\} with a tolerance of "
                r"-0.1 to \+0.1, got \(1.2, 1.8\)",
            ),
        ],
    )
    def test_errors(self, arguments, message):
        with pytest.raises(InputDataError, match=message):
            Range("a", 1, 3, **arguments)

    @pytest.mark.parametrize("evaluate", [(1.1, 1.8), (1.2, 1.9), (1.95, 2.05)])
    def test_some_of_a_list_may_be_evaluated(self, evaluate):
        parameter = Range("a", 1, 3, levels=3, tolerance=0.1, evaluate=evaluate)
        assert parameter.evaluate == evaluate


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


def test_as_wide_as_the_range():
    for lower, upper, radius in ((0.1, 0.3, 0.1), (0.8, 1.0, 0.1)):
        assert Range("a", lower, upper, tolerance=radius).tolerance == (-radius, radius)
    Range("a", 1, 1.1025, log=True, tolerance="5%")
