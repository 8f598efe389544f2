"""Ten iterations from one observation: every strategy on every problem."""

from itertools import pairwise

import pytest
import torch

from botorch_res import RobustDomain
from botorch_res.models import BayesianGP, FixedGP
from botorch_res.strategies import available_strategies, make_strategy
from botorch_res.test_functions import (
    DeepDrawing,
    RobotPushing,
    RobustBranin,
    RobustEggholder,
    RobustHartmann3,
    RobustPolynomial,
    SinusLinear,
    WithinModel,
)
from tests.strategies.options import QUICK

ITERATIONS = 10
PROBLEMS = {
    "within_model": WithinModel(num_points=100),
    "branin": RobustBranin(),
    "sinus_linear": SinusLinear(),
    "eggholder": RobustEggholder(),
    "hartmann3": RobustHartmann3(),
    "polynomial": RobustPolynomial(),
    "robot_pushing": RobotPushing(),
    "deep_drawing": DeepDrawing(),
}
# Where ten evaluations are enough to tell.
BETTER_THAN_CHANCE = [
    ("res", "deep_drawing"),
    ("stable_opt", "deep_drawing"),
    ("thompson", "branin"),
    ("worst_case_nei", "branin"),
]


def quick_strategy(name, problem, model_factory=None):
    """A strategy with small numbers, and a model that needs no fit."""
    domain = problem.domain
    if domain.x.choices is not None:
        # One x of every 25 of the 2500 of Hartmann 3: all pairs are evaluated.
        domain = RobustDomain(
            domain.bounds,
            domain.theta.columns,
            domain.x.choices[::25],
            domain.theta.choices,
        )
    return make_strategy(
        name,
        domain,
        maximize=not problem.is_minimization_problem,
        model_factory=model_factory or FixedGP(0.3, standardize=True),
        **QUICK.get(name, {}),
    )


def iterate(strategy, problem, num_initial=1, iterations=ITERATIONS, start=7):
    """All points, ``num_initial`` of them given, their values, and the result."""
    X = strategy.domain.sample(num_initial, seed=start)
    Y = problem(X).unsqueeze(-1)
    for seed in range(iterations):
        proposed = strategy.propose(X, Y, seed=seed)
        X = torch.cat([X, proposed])
        Y = torch.cat([Y, problem(proposed).unsqueeze(-1)])
    return X, Y, strategy.recommend(X, Y)


def run(strategy, problem, num_initial=1, iterations=ITERATIONS):
    """Iterate, and check what holds for every strategy."""
    X, Y, recommended = iterate(strategy, problem, num_initial, iterations)
    domain = strategy.domain
    assert X.shape == (num_initial + iterations, domain.dim)
    assert torch.isfinite(Y).all()
    z = torch.cat([X, domain.join(recommended.x, recommended.theta).unsqueeze(0)])
    x, theta = domain.split(z)
    assert domain.x.contains(x).all()
    assert domain.theta.contains(theta).all()
    assert len(X.unique(dim=0)) > iterations // 2
    assert recommended.lower <= recommended.upper
    assert recommended.standard_deviation >= 0
    return X, Y, recommended


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", available_strategies())
def test_ten_iterations(name, problem):
    problem = PROBLEMS[problem]
    _, _, recommended = run(quick_strategy(name, problem), problem)
    assert torch.isfinite(problem.worst_case_value(recommended.x))


@pytest.mark.parametrize(("name", "problem"), BETTER_THAN_CHANCE)
def test_most_runs_are_better_than_chance(name, problem):
    """One run is luck: rounding decides between worst cases that tie."""
    problem = PROBLEMS[problem]
    strategy = quick_strategy(name, problem)
    x = [iterate(strategy, problem, start=start)[2].x for start in range(5)]
    found = problem.worst_case_value(torch.stack(x))
    # Better than four of five random settings.
    chance = problem.worst_case_value(strategy.domain.x.sample(256, seed=0))
    assert found.median() <= chance.quantile(0.2)


class TestFullyBayesianProtocol:
    """Robot pushing: an ensemble, with new hyperparameters every tenth observation."""

    FACTORY = BayesianGP(num_samples=2, num_steps=3, refresh=10)

    @pytest.mark.parametrize("name", available_strategies())
    def test_every_strategy(self, name):
        problem = PROBLEMS["robot_pushing"]
        strategy = quick_strategy(name, problem, self.FACTORY)
        run(strategy, problem, num_initial=2, iterations=2)

    def test_hyperparameters_are_kept_and_refreshed(self):
        problem = PROBLEMS["robot_pushing"]
        strategy = quick_strategy("upper_confidence_bound", problem, self.FACTORY)
        X, Y, _ = run(strategy, problem, num_initial=18, iterations=3)
        scales = {
            n: strategy.fit(X[:n], Y[:n]).covar_module.base_kernel.lengthscale
            for n in range(8, 22)
        }
        changes = [
            after
            for before, after in pairwise(scales)
            if not torch.equal(scales[before], scales[after])
        ]
        assert changes == [10, 20]
