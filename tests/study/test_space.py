import json
import math

import pytest
import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError

from botorch_res import RobustDomain
from botorch_res.study.parameters import Choice, Integer, Range
from botorch_res.study.space import ParameterSpace

FRICTION = Range("friction", 0.1, 0.2)
FORCE = Choice("force", [200, 300, 350], unit="kN", uncontrollable=True)
LAYERS = Integer("layers", 1, 4)
RATE = Range("rate", 1e-6, 1e-2, log=True, unit="1/s")
SPEED = Range("speed", -1.0, 3.0, uncontrollable=True)
MATERIAL = Choice("material", ["steel", "aluminium", "POM"])
SUPPLIER = Choice("supplier", ["A", "B"], uncontrollable=True)
THICKNESS = Range("thickness", 1, 3, unit="mm", tolerance=0.1)


class TestParameterSpace:
    @pytest.mark.parametrize(
        "parameters",
        [
            [FRICTION, FORCE],
            [FORCE, RATE, FRICTION],
            [LAYERS, Choice("size", [1.0, 2.5]), SPEED],
            [SPEED, LAYERS],
            [Range("size", 0.5, 2.0, levels=7, log=True), LAYERS, SPEED],
            [LAYERS, RATE, FORCE, SPEED],
            [MATERIAL, FORCE],
            [SUPPLIER, FRICTION],
            [MATERIAL, FRICTION, SPEED, SUPPLIER],
            [SUPPLIER, MATERIAL, FORCE, LAYERS],
            [THICKNESS, MATERIAL, SUPPLIER],
            [Integer("a", 1, 4, tolerance=1), MATERIAL, RATE, SPEED, SUPPLIER],
        ],
    )
    def test_round_trips(self, parameters):
        space = ParameterSpace(parameters)
        stored = ParameterSpace.from_dict(json.loads(json.dumps(space.to_dict())))
        assert stored.to_dict() == space.to_dict()
        assert stored.parameters == space.parameters
        for z in space.sample(20, seed=0):
            values = space.decode(z)
            assert list(values) == [p.name for p in parameters]
            torch.testing.assert_close(space.encode(values), z)
            torch.testing.assert_close(stored.encode(list(values.values())), z)

    def test_columns(self):
        space = ParameterSpace([FORCE, RATE, FRICTION])
        assert space.domain.theta.columns == (0,)
        assert space.x_names == ["rate", "friction"]
        assert space.theta_names == ["force"]
        assert space.domain.theta.choices.tolist() == [[200.0], [300.0], [350.0]]
        assert space.domain.x.choices is None
        assert space.domain.bounds[:, 1].tolist() == [math.log(1e-6), math.log(1e-2)]

    def test_finite_parameters_span_all_combinations(self):
        space = ParameterSpace([LAYERS, SPEED, Choice("size", [1.0, 2.5])])
        assert space.domain.x.choices.tolist() == [
            [float(i), size] for i in range(1, 5) for size in (1.0, 2.5)
        ]

    def test_a_range_with_levels_stands_beside_an_integer(self):
        space = ParameterSpace([Range("friction", 0.1, 0.2, levels=3), LAYERS, SPEED])
        assert space.domain.x.choices.tolist() == [
            [friction, float(i)] for friction in (0.1, 0.15, 0.2) for i in range(1, 5)
        ]

    def test_free_and_listed_columns(self):
        domain = ParameterSpace([MATERIAL, SPEED, FRICTION, LAYERS, SUPPLIER]).domain
        assert domain.x.columns == (0, 2, 3)
        assert domain.x.free.tolist() == [1]
        assert domain.x.rows.tolist() == [
            [float(i), float(n)] for i in range(3) for n in range(1, 5)
        ]
        assert domain.theta.columns == (1, 4)
        assert domain.theta.free.tolist() == [0]
        assert domain.theta.rows.tolist() == [[0.0], [1.0]]
        assert domain.cat_dims == (0, 4)

    def test_tolerances_beside_lists(self):
        """Deviations are free columns of theta, in front of its listed ones."""
        coarse = Integer("n", 1, 3, tolerance=0.5)
        domain = ParameterSpace([SUPPLIER, THICKNESS, coarse, MATERIAL]).domain
        assert domain.tolerances == {1: (-0.1, 0.1), 2: (-0.5, 0.5)}
        assert domain.theta.columns == (1, 2, 0)
        assert domain.theta.free.tolist() == [0, 1]
        assert domain.theta.rows.tolist() == [[0.0], [1.0]]
        assert domain.x.free.tolist() == [0]
        assert domain.x.rows.tolist() == [
            [float(n), float(i)] for n in range(1, 4) for i in range(3)
        ]
        evaluations = domain.evaluations
        assert evaluations.x.free.tolist() == [0, 1]
        assert evaluations.x.rows.tolist() == [[0.0], [1.0], [2.0]]
        assert evaluations.bounds[:, 2].tolist() == [0.5, 3.5]

    def test_names_stay_names(self):
        space = ParameterSpace([MATERIAL, FRICTION, SUPPLIER])
        values = {"material": "POM", "friction": 0.125, "supplier": "A"}
        z = space.encode(values)
        assert z.tolist() == [2.0, 0.125, 0.0]
        assert space.decode(z) == values
        assert space.encode(["POM", 0.125, "A"]).tolist() == z.tolist()
        x, _ = space.domain.split(z)
        assert space.decode_setting(x) == {"material": "POM", "friction": 0.125}

    def test_what_is_stored(self):
        """Fully free and fully finite parts as ever; names and mixtures beside them."""
        content = ParameterSpace([FRICTION, FORCE]).to_dict()
        assert "cat_dims" not in content
        assert content["x_choices"] is None
        assert content["theta_choices"] == [[200.0], [300.0], [350.0]]
        assert "names" not in content["parameters"][1]
        content = ParameterSpace([MATERIAL, FRICTION, FORCE]).to_dict()
        assert content["cat_dims"] == [0]
        assert content["x_choices"] == {"columns": [0], "rows": [[0.0], [1.0], [2.0]]}
        assert content["parameters"][0]["names"] == ["steel", "aluminium", "POM"]

    @pytest.mark.parametrize(
        "parameters",
        [[FRICTION, FORCE], [SPEED, RATE, FRICTION], [FORCE, LAYERS], [SPEED, LAYERS]],
    )
    def test_samples_are_the_domains_if_every_part_is_simple(self, parameters):
        space = ParameterSpace(parameters)
        assert torch.equal(space.sample(16, seed=3), space.domain.sample(16, seed=3))

    def test_samples_fill_every_column_of_a_finite_set(self):
        """Each of 8 values is drawn equally often, and so is each pair of halves."""
        space = ParameterSpace([Integer("a", 1, 8), Integer("b", 1, 8), SPEED])
        drawn = space.sample(16, seed=0)
        for column in (0, 1):
            assert drawn[:, column].unique(return_counts=True)[1].tolist() == [2] * 8
        quarters = (drawn[:, :2] > 4.5).long() @ torch.tensor([1, 2])
        assert quarters.bincount().tolist() == [4] * 4
        assert space.domain.x.contains(drawn[:, :2]).all()

    @pytest.mark.parametrize(
        ("parameters", "error", "message"),
        [
            ([FRICTION], InputDataError, "one uncontrollable parameter, got none"),
            ([SPEED], InputDataError, "one controllable parameter, got none"),
            ([SPEED, SPEED], InputDataError, "distinct parameter names"),
            (
                [Integer("a", 0, 200), FRICTION, Integer("b", 0, 200), SPEED],
                UnsupportedError,
                "201 x 201 = 40401 combinations, more than 10000",
            ),
            (
                [
                    Range("a", 0, 1, levels=2000),
                    FRICTION,
                    Integer("t", 1, 501, uncontrollable=True),
                ],
                UnsupportedError,
                "the 501 of uncontrollable .* 1002000 pairs, more than 1000000",
            ),
            ([Range("noise", 0, 1), SPEED], InputDataError, "such as 'noise_setting'"),
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
            ({"friction": "0.1", "force": 200}, InputDataError, "number.*got '0.1'"),
            ({"friction": True, "force": 200}, InputDataError, "got True"),
            (0.1, InputDataError, "by name or in this order, got 0.1"),
            ("friction", InputDataError, "by name or in this order, got 'friction'"),
        ],
    )
    def test_bad_values(self, values, error, message):
        with pytest.raises(error, match=message):
            ParameterSpace([FRICTION, FORCE]).encode(values)

    def test_unknown_name(self):
        message = "'material' to be one of 'steel', 'aluminium', 'POM', got 'Pom'"
        with pytest.raises(InputDataError, match=message):
            ParameterSpace([MATERIAL, SPEED]).encode(["Pom", 0.0])

    @pytest.mark.parametrize(
        ("parameters", "same"),
        [
            ([MATERIAL, Range("a", 0, 1), SPEED], True),
            ([MATERIAL, Range("a", 0, 1, levels=5), SPEED], True),
            ([MATERIAL, Range("a", 0, 2), SPEED], False),
            ([Integer("b", 0, 2), Range("a", 0, 1), SPEED], False),
            ([Range("b", 0, 2), Range("a", 0, 1), SPEED], False),
            ([Choice("b", ["A", "B"]), Range("a", 0, 1), SPEED], False),
        ],
    )
    def test_spans_a_mixed_domain(self, parameters, same):
        bounds = torch.tensor([[0.0, 0.0, -1.0], [2.0, 1.0, 3.0]])
        codes = {0: [0.0, 1.0, 2.0]}
        domain = RobustDomain(bounds, [2], x_choices=codes, cat_dims=[0])
        assert ParameterSpace(parameters).spans(domain) is same

    def test_a_range_does_not_span_a_list(self):
        bounds = torch.tensor([[0.0, -1.0], [2.0, 3.0]])
        listed = RobustDomain(bounds, [1], x_choices={0: [0.0, 1.0, 2.0]})
        assert ParameterSpace([Integer("b", 0, 2), SPEED]).spans(listed)
        assert not ParameterSpace([Range("b", 0, 2), SPEED]).spans(listed)

    def test_plain_mixed_domain(self):
        bounds = torch.tensor([[0.0, 0.0, -1.0, 0.0], [2.0, 1.0, 3.0, 9.0]])
        rows = torch.tensor([[0.0, 0.5], [2.0, 1.0]])
        domain = RobustDomain(
            bounds, [2, 3], {(0, 1): rows}, {3: [1.0, 4.0]}, cat_dims=[3]
        )
        space = ParameterSpace.from_domain(domain)
        assert space.describe().endswith(
            "theta2 from 0 to 9 (uncontrollable), x one of 2 choices, "
            "theta2 one of 2 choices"
        )
        z = torch.tensor([2.0, 1.0, 0.3, 4.0], dtype=torch.double)
        torch.testing.assert_close(space.encode(z.tolist()), z)
        with pytest.raises(InputDataError, match=r"'theta2': 2.0. is not .*\[1.0\]"):
            space.encode([2.0, 1.0, 0.3, 2.0])
        with pytest.raises(InputDataError, match=r"'x1': 2.0, 'x2': 0.5. is not one"):
            space.encode([2.0, 0.5, 0.3, 4.0])
        stored = ParameterSpace.from_dict(json.loads(json.dumps(space.to_dict())))
        assert stored.to_dict() == space.to_dict()
        assert repr(stored.domain) == repr(space.domain)
        assert space.spans(domain)

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
        assert torch.equal(stored.sample(4, seed=0), space.domain.sample(4, seed=0))
        assert space.describe().endswith(
            "theta1 from 5 to 9 (uncontrollable), theta one of 1 choices"
        )

    def test_describe(self):
        assert ParameterSpace([RATE, FORCE]).describe() == (
            "rate [1/s] from 1e-06 to 0.01 (log), "
            "force [kN] in {200, 300, 350} (uncontrollable)"
        )
