import json
import math

import pytest
import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from hypothesis import given
from hypothesis import strategies as st

from botorch_res import RobustDomain
from botorch_res.study.parameters import (
    Choice,
    Integer,
    Parameter,
    ParameterSpace,
    Range,
)

FRICTION = Range("friction", 0.1, 0.2)
FORCE = Choice("force", [200, 300, 350], unit="kN", uncontrollable=True)
LAYERS = Integer("layers", 1, 4)
RATE = Range("rate", 1e-6, 1e-2, log=True, unit="1/s")
SPEED = Range("speed", -1.0, 3.0, uncontrollable=True)


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
            (lambda: Choice("a", []), InputDataError, "got none"),
            (lambda: Choice("a", [1, 1, 2]), InputDataError, r"distinct.*\[1, 1, 2\]"),
            (lambda: Choice("a", ["red", "blue"]), InputDataError, "got 'red'.*labels"),
            (lambda: Choice("a", [2, True]), InputDataError, "got True"),
            (lambda: Choice("a", [2.0]), InputDataError, "at least two values"),
            (lambda: Integer("a", 0, 1.5), TypeError, "whole numbers.*'a', got 0 and"),
            (
                lambda: Integer("a", 0, 10**6),
                UnsupportedError,
                "1000001. Use a `Range`",
            ),
        ],
    )
    def test_errors_say_what_to_do(self, build, error, message):
        with pytest.raises(error, match=message):
            build()


class TestParameterSpace:
    @pytest.mark.parametrize(
        "parameters",
        [
            [FRICTION, FORCE],
            [FORCE, RATE, FRICTION],
            [LAYERS, Choice("size", [1.0, 2.5]), SPEED],
            [SPEED, LAYERS],
        ],
    )
    def test_round_trips(self, parameters):
        space = ParameterSpace(parameters)
        stored = ParameterSpace.from_dict(json.loads(json.dumps(space.to_dict())))
        assert stored.to_dict() == space.to_dict()
        assert stored.parameters == space.parameters
        for z in space.domain.sample(20, seed=0):
            values = space.decode(z)
            assert list(values) == [p.name for p in parameters]
            torch.testing.assert_close(space.encode(values), z)
            torch.testing.assert_close(stored.encode(list(values.values())), z)

    def test_columns(self):
        space = ParameterSpace([FORCE, RATE, FRICTION])
        assert space.domain.uncontrollable == (0,)
        assert space.x_names == ["rate", "friction"]
        assert space.theta_names == ["force"]
        assert space.domain.theta_choices.tolist() == [[200.0], [300.0], [350.0]]
        assert space.domain.x_choices is None
        assert space.domain.bounds[:, 1].tolist() == [math.log(1e-6), math.log(1e-2)]

    def test_finite_parameters_span_all_combinations(self):
        space = ParameterSpace([LAYERS, SPEED, Choice("size", [1.0, 2.5])])
        assert space.domain.x_choices.tolist() == [
            [float(i), size] for i in range(1, 5) for size in (1.0, 2.5)
        ]

    @pytest.mark.parametrize(
        ("parameters", "error", "message"),
        [
            ([FRICTION], InputDataError, "one uncontrollable parameter, got none"),
            ([SPEED], InputDataError, "one controllable parameter, got none"),
            ([SPEED, SPEED], InputDataError, "distinct parameter names"),
            ([FRICTION, LAYERS, SPEED], UnsupportedError, r"\(friction\).*\(layers\)"),
            (
                [Integer("a", 0, 200), Integer("b", 0, 200), SPEED],
                UnsupportedError,
                "40401 combinations",
            ),
        ],
    )
    def test_bad_spaces(self, parameters, error, message):
        with pytest.raises(error, match=message):
            ParameterSpace(parameters)

    @pytest.mark.parametrize(
        ("values", "error", "message"),
        [
            ({"friction": 0.3, "force": 200}, InputDataError, "0.3 lies outside.*0.2"),
            (
                {"friction": 0.1, "force": 260},
                InputDataError,
                "nearest are 300 and 200",
            ),
            ({"friction": math.nan, "force": 200}, InputDataError, "nan lies outside"),
            ({"friction": 0.1}, InputDataError, "friction, force, got friction"),
            ({}, InputDataError, "got none"),
            ([0.1], InputDataError, "2 values, for friction, force, got 1"),
            ({"friction": "0.1", "force": 200}, TypeError, "number.*got '0.1'"),
            ({"friction": True, "force": 200}, TypeError, "got True"),
        ],
    )
    def test_bad_values(self, values, error, message):
        with pytest.raises(error, match=message):
            ParameterSpace([FRICTION, FORCE]).encode(values)

    def test_plain_domain(self):
        bounds = torch.tensor([[0.0, -1.0, 5.0], [1.0, 1.0, 9.0]])
        domain = RobustDomain(bounds, [2, 0], theta_choices=torch.tensor([[5.5, 0.5]]))
        space = ParameterSpace.from_domain(domain)
        assert not space.named
        assert [p.name for p in space.parameters] == ["theta2", "x1", "theta1"]
        assert space.x_names == ["x1"]
        assert space.theta_names == ["theta1", "theta2"]
        assert space.domain.bounds.dtype == torch.double
        z = torch.tensor([0.5, 0.25, 5.5], dtype=torch.double)
        assert space.decode(z) == {"theta2": 0.5, "x1": 0.25, "theta1": 5.5}
        assert torch.equal(space.encode(z), z)
        with pytest.raises(
            InputDataError, match=r"1 choices .*nearest is \[5.5, 0.5\]"
        ):
            space.encode([0.5, 0.25, 6.0])
        stored = ParameterSpace.from_dict(json.loads(json.dumps(space.to_dict())))
        assert stored.to_dict() == space.to_dict()


def test_describe():
    assert ParameterSpace([RATE, FORCE]).describe() == (
        "rate [1/s] from 1e-06 to 0.01 (log), "
        "force [kN] from 200 to 350 (3 values) (uncontrollable)"
    )


def test_parameters_are_values():
    assert Range("a", 0, 1) == Parameter("a", 0, 1)
