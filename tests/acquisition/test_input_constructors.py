import inspect
import json
import subprocess
import sys
from typing import Any

import pytest
import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.objective import (
    IdentityMCObjective,
    ScalarizedPosteriorTransform,
)
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.utils.datasets import SupervisedDataset

from botorch_res import RobustDomain
from botorch_res.acquisition import construct_inputs_qRES, qRobustEntropySearch

DOUBLE = {"dtype": torch.double}
# The uncontrollable column comes first, and no two bounds are the same.
NAMES = ["theta", "x"]
PAIRS = [(0.0, 15.0), (-5.0, 10.0)]
BOUNDS = torch.tensor(PAIRS, **DOUBLE).T
THETAS = [[0.0], [4.0], [15.0]]
XS = [[-5.0], [1.0], [3.0], [10.0]]
MINIMIZE = ScalarizedPosteriorTransform(weights=torch.tensor([-1.0], **DOUBLE))


@pytest.fixture(scope="module")
def dataset() -> SupervisedDataset:
    """Six observations, of which some are at the finite choices."""
    X = torch.tensor(
        [[0.0, -5.0], [4.0, 3.0], [15.0, 8.0], [9.0, 1.0], [2.0, 6.5], [12.0, -1.0]],
        **DOUBLE,
    )
    Y = (0.3 * X[:, :1]).sin() * X[:, 1:] + 0.1 * X[:, :1]
    return SupervisedDataset(X, Y, feature_names=NAMES, outcome_names=["f"])


@pytest.fixture(scope="module")
def model(dataset: SupervisedDataset) -> SingleTaskGP:
    model = SingleTaskGP(
        dataset.X,
        dataset.Y,
        input_transform=Normalize(2, bounds=BOUNDS),
        outcome_transform=Standardize(1),
    )
    return model.eval()


def construct(**kwargs: object) -> qRobustEntropySearch:
    """Build the acquisition function as Ax does."""
    inputs = get_acqf_input_constructor(qRobustEntropySearch)(**kwargs)
    return qRobustEntropySearch(**inputs)


KINDS = {
    "box": ({}, {}),
    "theta": ({"theta_choices": THETAS}, {"discrete_choices": {0: [0, 4, 15]}}),
    "x": ({"x_choices": XS}, {"discrete_choices": {1: [-5.0, 1.0, 3.0, 10.0]}}),
    "both": (
        {"theta_choices": THETAS, "x_choices": XS},
        {"discrete_choices": {0: [0, 4, 15], 1: [-5.0, 1.0, 3.0, 10.0]}},
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_same_values_as_by_hand(
    kind: str, model: SingleTaskGP, dataset: SupervisedDataset
) -> None:
    lists, discrete = KINDS[kind]
    domain = RobustDomain(
        BOUNDS,
        [0],
        **{name: torch.tensor(values, **DOUBLE) for name, values in lists.items()},
    )
    pending = torch.tensor([[4.0, 1.0]], **DOUBLE)
    settings = {"num_samples": 4, "num_features": 128, "effort": 0.5, "seed": 3}
    by_hand = qRobustEntropySearch(
        model, domain, maximize=False, X_pending=pending, **settings
    )
    points = domain.sample(20, seed=0).unsqueeze(-2)
    expected = by_hand(points)
    assert expected.max() > 0.01
    saved = json.loads(json.dumps({"uncontrollable": ["theta"], **lists}))
    for options in (
        saved,
        {"uncontrollable": [0], **discrete},
        {"domain": domain},
    ):
        acqf = construct(
            model=model,
            training_data=dataset,
            bounds=PAIRS,
            X_baseline=dataset.X,
            X_pending=pending,
            posterior_transform=MINIMIZE,
            **settings,
            **options,
        )
        assert torch.equal(acqf.X_pending, pending)
        assert acqf.domain.theta.columns == (0,)
        assert acqf.solver.effort == settings["effort"]
        torch.testing.assert_close(acqf(points), expected, rtol=1e-12, atol=1e-12)


def test_direction(model: SingleTaskGP) -> None:
    domain = RobustDomain(BOUNDS, [0])
    points = domain.sample(20, seed=0).unsqueeze(-2)
    settings = {"num_samples": 4, "num_features": 128, "effort": 0.5, "seed": 3}
    maximum, minimum = (
        qRobustEntropySearch(model, domain, maximize=maximize, **settings)(points)
        for maximize in (True, False)
    )
    assert not torch.allclose(maximum, minimum, rtol=1e-2)
    for expected, options in (
        (maximum, {}),
        (minimum, {"maximize": False}),
        (minimum, {"posterior_transform": MINIMIZE}),
    ):
        acqf = construct(model=model, domain=domain, **settings, **options)
        torch.testing.assert_close(acqf(points), expected, rtol=1e-12, atol=1e-12)


def test_one_dataset_for_each_outcome(
    model: SingleTaskGP, dataset: SupervisedDataset
) -> None:
    inputs = construct_inputs_qRES(
        model,
        training_data={"f": dataset, "tracked": dataset},
        bounds=PAIRS,
        uncontrollable=["x"],
    )
    assert inputs["domain"].theta.columns == (1,)


@pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning")
def test_single_precision(dataset: SupervisedDataset) -> None:
    data = SupervisedDataset(
        dataset.X.float(), dataset.Y.float(), feature_names=NAMES, outcome_names=["f"]
    )
    model = SingleTaskGP(data.X, data.Y, input_transform=Normalize(2)).eval()
    acqf = construct(
        model=model,
        training_data=data,
        bounds=PAIRS,
        uncontrollable=["theta"],
        theta_choices=THETAS,
        num_samples=2,
        num_features=64,
    )
    assert acqf.domain.bounds.dtype == torch.float
    assert acqf(data.X[:1]).isfinite().all()


def test_discrete_choices_are_combined(model: SingleTaskGP) -> None:
    domain = construct_inputs_qRES(
        model,
        bounds=[(0, 1), (0, 1), (2, 3)],
        uncontrollable=[2, 0],
        discrete_choices={0: [0, 1], 2: [2, 3]},
    )["domain"]
    assert domain.x.choices is None
    assert domain.theta.choices.tolist() == [[2, 0], [2, 1], [3, 0], [3, 1]]


def test_tolerances_by_name_or_index(
    model: SingleTaskGP, dataset: SupervisedDataset
) -> None:
    construct = get_acqf_input_constructor(qRobustEntropySearch)
    bounds = [(0.0, 1.0), (0.0, 1.0)]
    name = dataset.feature_names[0]
    for column, data in ((0, None), (name, dataset)):
        domain = construct(
            model, training_data=data, bounds=bounds, tolerances={column: 0.1}
        )["domain"]
        assert domain.tolerances == {0: (-0.1, 0.1)}
        # Evaluations stay within the bounds of BoTorch's and Ax's search.
        assert domain.evaluations.bounds.T.tolist() == [[0.0, 1.0], [0.0, 1.0]]
        assert construct(model, bounds=bounds, domain=domain)["domain"] is domain
    with pytest.raises(InputDataError, match=r"`tolerances` to name columns .*\['y'\]"):
        construct(model, training_data=dataset, bounds=bounds, tolerances={"y": 0.1})


def test_has_the_options_of_the_class() -> None:
    options = inspect.signature(construct_inputs_qRES).parameters
    for name, parameter in inspect.signature(qRobustEntropySearch).parameters.items():
        # Functions and their optima belong to a model that Ax has not made yet, and
        # Ax has other forms of constraints.
        if name not in ("domain", "samples", "optima", "objective_index"):
            assert options[name].default == parameter.default


def test_rejects_what_is_unknown(model: SingleTaskGP) -> None:
    with pytest.raises(TypeError, match="target_fidelities"):
        construct(model=model, domain=RobustDomain(BOUNDS, [0]), target_fidelities={})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"`botorch_acqf_options`; got .* and uncontrollable = None"),
        ({"bounds": None, "uncontrollable": [0]}, "got bounds = None"),
        ({"uncontrollable": "theta"}, r"got 'theta': write \['theta'\]"),
        ({"uncontrollable": ["y"]}, r"\['theta', 'x'\], got \['y'\].*as ordered"),
        (
            {"uncontrollable": ["theta"], "training_data": None},
            r"training data, \[\], got \['theta'\]",
        ),
        ({"uncontrollable": [2]}, r"at most 1 of them, got \[2\]"),
        ({"uncontrollable": [0], "bounds": BOUNDS}, "2 x d tensor goes"),
        ({"uncontrollable": [0], "bounds": [(0, 1, 2)] * 2}, r"one pair \(lower, up"),
        (
            {"uncontrollable": [0], "domain": RobustDomain(BOUNDS, [0])},
            r"either `domain` or \['uncontrollable'\]",
        ),
        ({"domain": RobustDomain(BOUNDS + 0.1, [0])}, r"from 0\.1 to 15\.1.*logarith"),
        ({"domain": RobustDomain(torch.rand(2, 3).msort(), [0])}, "`bounds`, 2, got 3"),
        (
            {"uncontrollable": [0], "theta_choices": [[1.0], [15.0]]},
            r"`bounds` \[0\.0, 15\.0\] of column 0 .* from 1\.0 to 15\.0",
        ),
        (
            {"uncontrollable": [0], "theta_choices": [[0.0], [5.0], [17.0]]},
            "`theta_choices` within the bounds",
        ),
        (
            {
                "uncontrollable": [0],
                "theta_choices": THETAS,
                "discrete_choices": {0: [0.0, 4.0, 15.0]},
            },
            r"either `discrete_choices` or \['theta_choices'\]",
        ),
        (
            {"uncontrollable": [0], "x_choices": [[-5.0], [0.1], [10.0]]},
            "`x_choices`, but none of 3 is at one",
        ),
        (
            {
                "uncontrollable": [0],
                "posterior_transform": MINIMIZE,
                "maximize": False,
            },
            "leave `maximize` out",
        ),
    ],
)
def test_misuse(
    options: dict[str, object],
    message: str,
    model: SingleTaskGP,
    dataset: SupervisedDataset,
) -> None:
    inside = SupervisedDataset(
        dataset.X[3:], dataset.Y[3:], feature_names=NAMES, outcome_names=["f"]
    )
    kwargs = {"training_data": inside, "bounds": PAIRS, **options}
    with pytest.raises(InputDataError, match=message):
        construct(model=model, **kwargs)


@pytest.mark.parametrize("name", ["objective", "constraints", "constraints_tuple"])
def test_unsupported(name: str, model: SingleTaskGP) -> None:
    with pytest.raises(UnsupportedError, match=f"no `{name}`"):
        construct(
            model=model,
            domain=RobustDomain(BOUNDS, [0]),
            **{name: IdentityMCObjective()},
        )


@pytest.mark.parametrize(
    "choices",
    [
        {"discrete_choices": {0: [0, 1], 3: [2, 2.5, 3]}},
        {"x_choices": {"a": [0, 1]}, "theta_choices": {3: [2, 2.5, 3]}},
    ],
)
def test_listed_beside_free(choices: dict[str, Any], model: SingleTaskGP) -> None:
    X = torch.tensor([[0.0, 0.3, 0.7, 2.5], [1.0, 0.1, 0.2, 3.0]], dtype=torch.double)
    data = SupervisedDataset(
        X, X[:, :1], feature_names=list("abcd"), outcome_names=["f"]
    )
    arguments: dict[str, Any] = {
        "bounds": [(0, 1), (0, 1), (0, 1), (2, 3)],
        "uncontrollable": ["c", "d"],
        **choices,
    }
    domain = construct_inputs_qRES(model, data, **arguments)["domain"]
    assert domain.x.listed.tolist() == [0]
    assert domain.x.rows.tolist() == [[0], [1]]
    assert domain.theta.listed.tolist() == [1]
    assert domain.theta.rows.tolist() == [[2], [2.5], [3]]
    other = SupervisedDataset(
        X + 0.1, X[:, :1], feature_names=list("abcd"), outcome_names=["f"]
    )
    with pytest.raises(InputDataError, match="at the `x_choices`, but none of 2 is at"):
        construct_inputs_qRES(model, other, **arguments)
    arguments["bounds"] = [(0, 1), (0, 1), (0, 1), (2, 4)]
    with pytest.raises(InputDataError, match=r"column 3 .* from 2\.0 to 3\.0"):
        construct_inputs_qRES(model, data, **arguments)


def test_without_ax() -> None:
    # None in `sys.modules` is what a missing package looks like.
    script = """
import sys
sys.modules["ax"] = None
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch_res.acquisition import qRobustEntropySearch
get_acqf_input_constructor(qRobustEntropySearch)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
