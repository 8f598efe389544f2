"""Tolerances of a parameter: how they are read, and what comes out."""

import math

import numpy as np
import pytest
from botorch.exceptions.errors import InputDataError

from botorch_res.study.parameters import Choice, Integer, Range
from botorch_res.study.parameters.tolerances import read_tolerance
from botorch_res.study.space import ParameterSpace

THICKNESS = Range("thickness", 1, 3, unit="mm", tolerance=(-0.2, 0.1))
SPEED = Range("speed", 1, 100, log=True, tolerance="5%")


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


def test_as_wide_as_the_range():
    for lower, upper, radius in ((0.1, 0.3, 0.1), (0.8, 1.0, 0.1)):
        assert Range("a", lower, upper, tolerance=radius).tolerance == (-radius, radius)
    Range("a", 1, 1.1025, log=True, tolerance="5%")
