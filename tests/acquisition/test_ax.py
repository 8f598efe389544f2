import math
from pathlib import Path
from typing import Any

import pytest
import torch
from ax.adapter.registry import Cont_X_trans, Generators, Y_trans
from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
from ax.api.protocols.metric import IMetric
from ax.core.observation import ObservationFeatures
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from botorch.exceptions.errors import InputDataError, UnsupportedError
from torch import Tensor

from botorch_res import RobustDomain
from botorch_res.acquisition import qRobustEntropySearch
from botorch_res.acquisition.ax import RobustAcquisition, robust_generator_spec

# Ax calls what it, or pandas, has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
# BoTorch's search, which Ax uses by itself, stumbles over kinks.
stumbling = pytest.mark.filterwarnings("ignore:Optimization failed:RuntimeWarning")

X = RangeParameterConfig(name="x", bounds=(-5.0, 10.0), parameter_type="float")
VALUES = [0.0, 4.0, 9.0, 15.0]
POSITIVE = [0.5, 4.0, 9.0, 15.0]
WORDS = dict(zip(["low", "middle", "high", "top"], VALUES, strict=True))
THETAS = {
    "range": RangeParameterConfig(
        name="theta", bounds=(0.0, 15.0), parameter_type="float"
    ),
    "choice": ChoiceParameterConfig(
        name="theta", values=VALUES, parameter_type="float", is_ordered=True
    ),
    "log": ChoiceParameterConfig(
        name="theta", values=POSITIVE, parameter_type="float", is_ordered=True
    ),
    "words": ChoiceParameterConfig(
        name="theta", values=list(WORDS), parameter_type="str", is_ordered=True
    ),
    "unordered": ChoiceParameterConfig(
        name="theta", values=VALUES, parameter_type="float", is_ordered=False
    ),
}
# What the model sees: Ax numbers words, and takes logarithms of its own accord.
CHOICES = {
    "range": None,
    "choice": VALUES,
    "log": [math.log10(value) for value in POSITIVE],
    "words": [0.0, 1.0, 2.0, 3.0],
}
# Few and small, as the tests have to be fast.
SMALL = {"num_samples": 3, "num_features": 64, "seed": 1}
SEARCH = {"num_restarts": 2, "raw_samples": 16}


def branin(x: float, theta: float | str) -> float:
    theta = WORDS.get(theta, theta)
    valley = theta - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return valley**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def make_client(kind: str = "range", constraints: tuple[str, ...] = ()) -> Client:
    """An experiment with six trials, the uncontrollable parameter first."""
    client = Client(random_seed=0)
    client.configure_experiment(
        parameters=[THETAS[kind], X], parameter_constraints=constraints
    )
    client.configure_optimization(objective="-f")
    thetas = VALUES if kind == "range" else THETAS[kind].values
    for i, x in enumerate([-4.0, 7.0, 0.5, 3.0, 9.5, -2.0]):
        observe(client, client.attach_trial({"x": x, "theta": thetas[i % 4]}))
    return client


def observe(client: Client, index: int) -> None:
    parameters = client._experiment.trials[index].arm.parameters
    client.complete_trial(index, raw_data={"f": branin(**parameters)})


def use(client: Client, **options: Any) -> GenerationStrategy:
    """Let a client propose trials by Robust Entropy Search."""
    spec = robust_generator_spec(["theta"], **SEARCH, **{**SMALL, **options})
    strategy = GenerationStrategy(
        name="RES", nodes=[GenerationNode(name="RES", generator_specs=[spec])]
    )
    client.set_generation_strategy(strategy)
    return strategy


def acquisition(client: Client) -> RobustAcquisition:
    """What Ax built for the last trial."""
    return client._generation_strategy.adapter.generator._acquisition


def make_domain(kind: str) -> RobustDomain:
    """The domain in the units of the model's inputs."""
    choices = CHOICES[kind]
    lower, upper = (0.0, 15.0) if choices is None else (choices[0], choices[-1])
    return RobustDomain(
        torch.tensor([[lower, -5.0], [upper, 10.0]], dtype=torch.double),
        [0],
        theta_choices=choices
        and torch.tensor(choices, dtype=torch.double).unsqueeze(-1),
    )


def assert_same_values(
    acqf: qRobustEntropySearch, domain: RobustDomain, X_pending: Tensor | None
) -> None:
    """Compare with an acquisition function that minimises, built on the same model."""
    by_hand = qRobustEntropySearch(
        acqf.model, domain, maximize=False, X_pending=X_pending, **SMALL
    )
    points = domain.sample(20, seed=0).unsqueeze(-2)
    expected = by_hand(points)
    assert expected.max() > 0.01
    torch.testing.assert_close(acqf(points), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["range", "log", "words"])
def test_trials_in_a_domain_of_each_kind(kind: str) -> None:
    client = make_client(kind)
    use(client)
    (first,) = client.get_next_trials(max_trials=1)
    (second,) = client.get_next_trials(max_trials=1)
    trials = client._experiment.trials
    assert all(
        client._experiment.search_space.check_membership(trials[i].arm.parameters)
        for i in (first, second)
    )
    # The first of the two trials is pending for the second.
    built = acquisition(client)
    pending = built.X_pending
    assert pending.shape == (1, 2)
    assert pending[0, 1] == pytest.approx(trials[first].arm.parameters["x"])
    domain = make_domain(kind)
    torch.testing.assert_close(built.acqf.domain.bounds, domain.bounds)
    assert_same_values(built.acqf, domain, pending)


def test_saved_reloaded_and_continued(tmp_path: Path) -> None:
    client = make_client("choice")
    use(client)
    for _ in range(3):
        (index,) = client.get_next_trials(max_trials=1)
        observe(client, index)
    path = str(tmp_path / "experiment.json")
    client.save_to_json_file(path)
    reloaded = Client.load_from_json_file(path)
    (spec,) = reloaded._generation_strategy._nodes[0].generator_specs
    assert spec.generator_kwargs["acquisition_class"] is RobustAcquisition
    assert spec.generator_kwargs["botorch_acqf_class"] is qRobustEntropySearch
    (index,) = reloaded.get_next_trials(max_trials=1)
    assert index == 9
    assert_same_values(acquisition(reloaded).acqf, make_domain("choice"), None)
    observe(reloaded, index)
    trials = reloaded._experiment.trials
    assert len(trials) == 10
    assert all(trial.status.is_completed for trial in trials.values())


@stumbling
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("range", {"uncontrollable": ["theta"]}),
        (
            "choice",
            {"uncontrollable": [0], "theta_choices": [[value] for value in VALUES]},
        ),
    ],
)
def test_plain_modular_generator(kind: str, options: dict[str, Any]) -> None:
    # Without anything of this package but the acquisition function; Ax searches.
    adapter = Generators.BOTORCH_MODULAR(
        experiment=make_client(kind)._experiment,
        botorch_acqf_class=qRobustEntropySearch,
        botorch_acqf_options={**options, **SMALL},
    )
    search = {**SEARCH, "options": {"maxiter": 3}}
    run = adapter.gen(n=1, model_gen_options={"optimizer_kwargs": search})
    assert adapter._experiment.search_space.check_membership(run.arms[0].parameters)
    acqf = adapter.generator._acquisition.acqf
    assert_same_values(acqf, make_domain(kind), None)


def test_a_tracked_metric_is_left_aside() -> None:
    client = make_client()
    client.configure_metrics(metrics=[IMetric("tracked")])
    for trial in client._experiment.trials.values():
        client.attach_data(trial.index, {"tracked": trial.arm.parameters["x"]})
    use(client)
    client.get_next_trials(max_trials=1)
    built = acquisition(client)
    assert (built.surrogate.model.num_outputs, built.acqf.model.num_outputs) == (2, 1)
    (dataset,) = built.surrogate.training_data
    assert torch.equal(built.acqf.view.original_inputs, dataset.X)
    assert_same_values(built.acqf, make_domain("range"), None)


def test_the_worst_outcomes_are_not_cut_off() -> None:
    client = make_client()
    # An outcome far worse than the others.
    client.complete_trial(client.attach_trial({"x": -5.0, "theta": 0.0}), {"f": 1e4})
    strategy = use(client)
    client.get_next_trials(max_trials=1)
    outcomes = torch.tensor(
        client._experiment.lookup_data().df["mean"].to_numpy(), dtype=torch.double
    )
    plain = Generators.BOTORCH_MODULAR(experiment=client._experiment)
    agree = []
    for adapter in (strategy.adapter, plain):
        (dataset,) = adapter.generator.surrogate.training_data
        Y = dataset.Y.flatten().sort().values
        standardized = (outcomes - outcomes.mean()) / outcomes.std()
        agree.append(torch.allclose(Y, standardized.sort().values, atol=1e-6))
    assert agree == [True, False]


@stumbling
def test_fixed_parameters_and_candidate_sets_are_left_to_ax() -> None:
    client = make_client("choice")
    strategy = use(client)
    (parameters,) = client.get_next_trials(
        max_trials=1, fixed_parameters={"theta": 9.0}
    ).values()
    assert parameters["theta"] == 9.0
    adapter = strategy.adapter
    run = adapter.gen(n=1, model_gen_options={"in_sample": True})
    known = [trial.arm.parameters["x"] for trial in client._experiment.trials.values()]
    assert run.arms[0].parameters["x"] in known
    built = adapter.generator._acquisition
    candidates, value, weights = built.optimize(
        1, built.search_space_digest, optimizer_options={**SEARCH, "seed": 0}
    )
    torch.testing.assert_close(built.acqf(candidates), value.reshape(1))
    assert weights.tolist() == [1.0]


def test_relaxed_discrete_parameters_are_rounded() -> None:
    # Ax works in the unit cube here, and the choices become a range.
    client = make_client("words")
    adapter = Generators.BOTORCH_MODULAR(
        experiment=client._experiment,
        transforms=Cont_X_trans + Y_trans,
        acquisition_class=RobustAcquisition,
        botorch_acqf_class=qRobustEntropySearch,
        botorch_acqf_options={"uncontrollable": ["theta"], **SMALL},
    )
    pending = ObservationFeatures({"x": 10.0, "theta": "top"})
    run = adapter.gen(
        n=2,
        pending_observations={"f": [pending]},
        model_gen_options={"optimizer_kwargs": SEARCH},
    )
    assert len(run.arms) == 2
    assert all(arm.parameters["theta"] in WORDS for arm in run.arms)
    built = adapter.generator._acquisition
    assert built.X_pending[0, 1] == 1.0
    unit = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
    assert_same_values(built.acqf, RobustDomain(unit, [0]), built.X_pending)


@pytest.mark.parametrize(
    ("kind", "options", "error", "message"),
    [
        ("unordered", {}, InputDataError, "'theta_OH_PARAM_0'.*declare them as ordere"),
        ("range", {"maximize": False}, InputDataError, "leave `maximize` out"),
        (
            "choice",
            {"theta_choices": [[value] for value in VALUES]},
            InputDataError,
            "leave these options out",
        ),
    ],
)
def test_misuse(
    kind: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    client = make_client(kind)
    use(client, **options)
    with pytest.raises(error, match=message):
        client.get_next_trials(max_trials=1)


def test_parameter_constraints_are_an_error() -> None:
    client = make_client(constraints=("x + theta <= 20",))
    use(client)
    with pytest.raises(UnsupportedError, match="no parameter constraints"):
        client.get_next_trials(max_trials=1)


def test_outcome_constraints_are_an_error() -> None:
    client = make_client()
    client.configure_optimization(objective="-f", outcome_constraints=["g <= 1.0"])
    for trial in client._experiment.trials.values():
        client.attach_data(trial.index, {"g": trial.arm.parameters["x"]})
    use(client)
    with pytest.raises(UnsupportedError, match="no `constraints`"):
        client.get_next_trials(max_trials=1)


def test_choices_beside_ranges() -> None:
    """Of theta, one parameter is a choice and the other a range."""
    client = Client(random_seed=0)
    load = RangeParameterConfig(name="load", bounds=(0.0, 2.0), parameter_type="float")
    client.configure_experiment(parameters=[THETAS["choice"], load, X])
    client.configure_optimization(objective="-f")
    for i, x in enumerate([-4.0, 7.0, 0.5, 3.0, 9.5, -2.0]):
        point = {"x": x, "theta": VALUES[i % 4], "load": 0.4 * i}
        value = branin(x, point["theta"]) + point["load"] * x
        client.complete_trial(client.attach_trial(point), {"f": value})
    spec = robust_generator_spec(["theta", "load"], **SEARCH, **SMALL)
    strategy = GenerationStrategy(
        name="RES", nodes=[GenerationNode(name="RES", generator_specs=[spec])]
    )
    client.set_generation_strategy(strategy)
    (parameters,) = client.get_next_trials(max_trials=1).values()
    assert parameters["theta"] in VALUES
    acqf = acquisition(client).acqf
    assert acqf.domain.theta.listed.tolist() == [0]
    bounds = torch.tensor([[0.0, 0.0, -5.0], [15.0, 2.0, 10.0]], dtype=torch.double)
    domain = RobustDomain(bounds, [0, 1], theta_choices={0: VALUES})
    assert_same_values(acqf, domain, X_pending=None)


def test_tolerances() -> None:
    client = make_client()
    spec = robust_generator_spec(
        ["theta"], **SEARCH, **SMALL, tolerances={"x": (-0.5, 1.0)}
    )
    strategy = GenerationStrategy(
        name="RES", nodes=[GenerationNode(name="RES", generator_specs=[spec])]
    )
    client.set_generation_strategy(strategy)
    client.get_next_trials(max_trials=1)
    built = acquisition(client)
    bounds = make_domain("range").bounds
    domain = RobustDomain(
        bounds, [0], tolerances={1: (-0.5, 1.0)}, evaluation_bounds=bounds
    )
    assert built.acqf.domain.tolerances == domain.tolerances
    assert torch.equal(built.acqf.domain.evaluations.bounds, bounds)
    assert_same_values(built.acqf, domain, X_pending=None)
