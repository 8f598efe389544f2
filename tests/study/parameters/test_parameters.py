import itertools
import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from hypothesis import given
from hypothesis import strategies as st

from botorch_res.study.parameters import (
    Choice,
    Integer,
    Parameter,
    Range,
)

FRICTION = Range("friction", 0.1, 0.2)
FORCE = Choice("force", [200, 300, 350], unit="kN", uncontrollable=True)
LAYERS = Integer("layers", 1, 4)
MATERIAL = Choice("material", ["steel", "aluminium", "POM"])
RATE = Range("rate", 1e-6, 1e-2, log=True, unit="1/s")


class TestParameter:
    @given(st.floats(1e-6, 1e-2))
    def test_log_range_round_trip(self, value):
        decoded = RATE.decode(RATE.encode(value))
        assert decoded == pytest.approx(value, rel=1e-12)
        assert 1e-6 <= decoded <= 1e-2

    @pytest.mark.parametrize("lower", [1e-6, 0.1, 3.0, 7e-3])
    def test_rounding_never_leaves_the_bounds(self, lower):
        parameter = Range("p", lower, 10 * lower, log=True)
        assert parameter.decode(parameter.encode(lower)) >= lower
        assert parameter.decode(parameter.encode(10 * lower)) <= 10 * lower

    @given(st.integers(1, 4))
    def test_integers_stay_integers(self, value):
        decoded = LAYERS.decode(LAYERS.encode(value) + 1e-12)
        assert decoded == value
        assert isinstance(decoded, int)

    def test_choices_come_back_as_they_were_given(self):
        parameter = Choice("p", [0.1, 3, 7.5], log=True)
        assert [parameter.decode(parameter.encode(v)) for v in (0.1, 3, 7.5)] == [
            0.1,
            3.0,
            7.5,
        ]
        assert isinstance(FORCE.decode(300.0), int)

    def test_names(self):
        assert [MATERIAL.encode(name) for name in ("POM", "steel")] == [2.0, 0.0]
        assert [MATERIAL.decode(u) for u in (1.0, 1.9999, 7.0)] == [
            "aluminium",
            "POM",
            "POM",
        ]
        assert MATERIAL.number(2.0) == 2
        assert MATERIAL.coordinates == [0.0, 1.0, 2.0]
        assert MATERIAL.widened is MATERIAL
        for name in MATERIAL.names:
            MATERIAL.check(name)
        assert Choice("a", np.array(["x", "y"])) == Choice("a", ["x", "y"])
        assert type(Choice("a", np.array(["x", "y"])).decode(0.0)) is str

    @pytest.mark.parametrize("wrong", ["brass", 0, 1.0, None, ["steel"]])
    def test_unknown_names(self, wrong):
        message = "'material' to be one of 'steel', 'aluminium', 'POM', got "
        with pytest.raises(InputDataError, match=message + re.escape(repr(wrong))):
            MATERIAL.check(wrong)

    def test_levels_in_equal_steps(self):
        parameter = Range("p", 0.1, 0.2, levels=5, unit="m", uncontrollable=True)
        assert parameter.values == (0.1, 0.125, 0.15, 0.175, 0.2)
        assert (parameter.unit, parameter.uncontrollable) == ("m", True)
        assert isinstance(parameter.decode(0.1251), float)
        assert parameter.decode(0.1251) == parameter.values[1]

    def test_levels_in_equal_factors(self):
        parameter = Range("p", 1e-6, 1e-2, levels=np.int64(5), log=True)
        assert parameter.values == pytest.approx((1e-6, 1e-5, 1e-4, 1e-3, 1e-2))
        assert (parameter.values[0], parameter.values[-1]) == (1e-6, 1e-2)
        for value in parameter.values:
            assert parameter.decode(parameter.encode(value)) == value

    @pytest.mark.parametrize("log", [False, True])
    @given(st.integers(2, 300), st.floats(1e-9, 1e9), st.floats(1.001, 1e6))
    def test_levels_increase_and_stay_inside(self, log, levels, lower, factor):
        values = Range("p", lower, lower * factor, levels=levels, log=log).values
        assert len(values) == levels
        assert all(a < b for a, b in itertools.pairwise(values))
        assert (values[0], values[-1]) == (lower, lower * factor)

    def test_numbers_of_other_libraries_become_plain(self):
        assert Range("a", np.float32(0), Fraction(1, 2)) == Range("a", 0.0, 0.5)
        assert Choice("a", np.array([1, 2, 4])) == Choice("a", [1, 2, 4])
        assert isinstance(Choice("a", np.array([1, 2, 4])).decode(4.0), int)
        assert type(Integer("a", np.int64(1), np.int64(3)).lower) is int
        for number in (Range("a", np.float32(0), 1).lower, *LAYERS.values):
            assert type(number) is float

    @pytest.mark.parametrize(
        ("parameter", "expected"),
        [
            (Range("a", 0, 1), [0.0, 0.3, 0.999]),
            (Choice("a", [7, 1, 3]), [7.0, 7.0, 3.0]),
            (MATERIAL, [0.0, 0.0, 2.0]),
            (Range("a", 1, 100, levels=3, log=True), [0.0, 0.0, math.log(100)]),
        ],
    )
    def test_spread(self, parameter, expected):
        unit = torch.tensor([0.0, 0.3, 0.999], dtype=torch.double)
        assert parameter.spread(unit).tolist() == pytest.approx(expected)

    @pytest.mark.parametrize(
        ("parameter", "expected"),
        [
            (RATE, "rate [1/s] from 1e-06 to 0.01 (log)"),
            (FORCE, "force [kN] in {200, 300, 350} (uncontrollable)"),
            (Range("a", 0, 1, levels=11), "a from 0 to 1 (11 values)"),
            (MATERIAL, "material in {steel, aluminium, POM}"),
        ],
    )
    def test_describe(self, parameter, expected):
        assert parameter.describe() == expected

    def test_label(self):
        assert FORCE.label() == "force [kN]"
        assert FRICTION.label() == "friction"

    @pytest.mark.parametrize(
        ("build", "error", "message"),
        [
            (lambda: Range("a b", 0, 1), InputDataError, "a word like.*got 'a b'"),
            (lambda: Range("a", 0, math.inf), InputDataError, "finite numbers.*inf"),
            (lambda: Range("a", 1, 1), InputDataError, "at least two values.*leave it"),
            (lambda: Range("a", 0, 1, log=True), InputDataError, "positive values"),
            (lambda: Choice("a", []), InputDataError, r"numbers or of names, got \[\]"),
            (lambda: Choice("a", 3), InputDataError, "numbers or of names, got 3"),
            (lambda: Choice("a", "red"), InputDataError, "of names, got 'red'"),
            (lambda: Choice("a", [[1], [2]]), InputDataError, r"got \[1\]"),
            (lambda: Choice("a", [1, 1, 2]), InputDataError, r"distinct.*\[1, 1, 2\]"),
            (
                lambda: Choice("a", ["red", 2]),
                InputDataError,
                r"all numbers or all names, got \['red', 2\]",
            ),
            (
                lambda: Choice("a", ["red", "blue", "red"]),
                InputDataError,
                r"'a' to be distinct, got \['red', 'blue', 'red'\]",
            ),
            (
                lambda: Choice("a", ["red", "blue", " red"]),
                InputDataError,
                r"'a' to be distinct, got \['red', 'blue', ' red'\]",
            ),
            (
                lambda: Choice("a", ["red"]),
                InputDataError,
                r"at least two values, got a in \{red\}.*leave it out",
            ),
            (lambda: Choice("a", ["red", " "]), InputDataError, "not to be blank"),
            (
                lambda: Choice("a", ["red", "blue"], log=True),
                InputDataError,
                "no `log` of parameter 'a', whose values are names, got True",
            ),
            (
                lambda: Choice("a", ["red", "blue"], tolerance=0.1),
                InputDataError,
                "no `tolerance` of .*got 0.1. There is no distance between names",
            ),
            (
                lambda: Choice("a", ["red", "blue"], evaluate=(0, 1)),
                InputDataError,
                "`evaluate` beside a `tolerance` only",
            ),
            (lambda: Choice("a", [2, True]), InputDataError, "got True"),
            (lambda: Choice("a", [2.0]), InputDataError, "at least two values"),
            (
                lambda: Integer("a", 0, 1.5),
                InputDataError,
                "'a' to be whole numbers, got 0 and",
            ),
            (
                lambda: Integer("a", 0, 10**6),
                UnsupportedError,
                "1000001. Use a `Range`",
            ),
            (lambda: Range("a", 0, 1, levels=1), InputDataError, "from 2 to 10000"),
            (lambda: Range("a", 0, 1, levels=10001), InputDataError, "got 10001"),
            (
                lambda: Range("a", 1, 1 + 1e-11, levels=101),
                InputDataError,
                "101 levels of parameter 'a' .* Count from another zero",
            ),
            (lambda: Range("a", 0, 1, levels=5.0), InputDataError, "got 5.0"),
            (lambda: Range("a", 0, 1, levels=True), InputDataError, "got True"),
            (
                lambda: Range("a", 0, 1, log="yes"),
                InputDataError,
                "`log` .*bool, got 'yes'",
            ),
            (lambda: Range("a", 0, 1, unit=3), InputDataError, "`unit` .* str, got 3"),
            (
                lambda: Range("a", 0, 1, uncontrollable="true"),
                InputDataError,
                "`uncontrollable` of parameter 'a'",
            ),
        ],
    )
    def test_errors_say_what_to_do(self, build, error, message):
        with pytest.raises(error, match=message):
            build()


def test_parameters_are_values():
    assert Range("a", 0, 1) == Parameter("a", 0, 1)
