"""Ten iterations from one observation, every strategy and every problem.

All pairs of the two are run by ``python -m benchmarks.smoke``.
"""

from itertools import pairwise

import pytest
import torch

from botorch_res.models import BayesianGP
from botorch_res.strategies import available_strategies
from tests.strategies.ten_iterations import (
    ITERATIONS,
    PROBLEMS,
    check,
    quick_strategy,
    run,
)

# Every strategy once, every problem at least once.
NON_ROBUST = {
    "expected_improvement": "polynomial",
    "joint_entropy_search": "branin",
    "knowledge_gradient": "hartmann3",
    "max_value_entropy": "eggholder",
    "random": "within_model",
    "upper_confidence_bound": "robot_pushing",
}
# Where ten evaluations are enough to tell.
ROBUST = {
    "res": "deep_drawing",
    "stable_opt": "deep_drawing",
    "thompson": "deep_drawing",
    "worst_case_nei": "sinus_linear",
}


def test_all_are_run():
    assert sorted(NON_ROBUST | ROBUST) == available_strategies()
    assert {*NON_ROBUST.values(), *ROBUST.values()} == set(PROBLEMS)


@pytest.mark.parametrize(("name", "problem"), (NON_ROBUST | ROBUST).items())
def test_ten_iterations(name, problem):
    problem = PROBLEMS[problem]
    strategy = quick_strategy(name, problem)
    X, Y = run(strategy, problem)
    assert len(X) == ITERATIONS + 1
    check(strategy, X, Y)
    if name in ROBUST:
        # Better than four of five random settings.
        found = problem.worst_case_value(strategy.recommend(X, Y).x)
        chance = problem.worst_case_value(strategy.domain.sample_x(256, seed=0))
        assert found <= chance.quantile(0.2)


class TestFullyBayesianProtocol:
    """Robot pushing: an ensemble, with new hyperparameters every tenth observation."""

    FACTORY = BayesianGP(num_samples=2, num_steps=3, refresh=10)

    @pytest.mark.parametrize("name", available_strategies())
    def test_every_strategy(self, name):
        problem = PROBLEMS["robot_pushing"]
        strategy = quick_strategy(name, problem, self.FACTORY)
        X, Y = run(strategy, problem, num_initial=2, iterations=2)
        check(strategy, X, Y, iterations=2)

    def test_hyperparameters_are_kept_and_refreshed(self):
        problem = PROBLEMS["robot_pushing"]
        strategy = quick_strategy("upper_confidence_bound", problem, self.FACTORY)
        X, Y = run(strategy, problem, num_initial=18, iterations=3)
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
