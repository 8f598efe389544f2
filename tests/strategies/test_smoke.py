"""Runs of ten iterations find good settings, and keep to the protocol."""

from itertools import pairwise

import pytest
import torch

from botorch_res.models import BayesianGP
from tests.strategies.runs import PROBLEMS, iterate, quick_strategy, run

# Where ten evaluations are enough to tell.
BETTER_THAN_CHANCE = [
    ("res", "deep_drawing"),
    ("stable_opt", "deep_drawing"),
    ("thompson", "branin"),
    ("worst_case_nei", "branin"),
]


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


def test_hyperparameters_are_kept_and_refreshed():
    """Robot pushing: new ones every tenth observation."""
    problem = PROBLEMS["robot_pushing"]
    factory = BayesianGP(num_samples=2, num_steps=3, refresh=10)
    strategy = quick_strategy("stable_opt", problem, factory)
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
