"""Runs of a strategy on the test problems, with small numbers."""

import torch

from botorch_res import RobustDomain
from botorch_res.models import FixedGP
from botorch_res.strategies import make_strategy
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


def iterate(strategy, problem, num_initial=1, iterations=10, start=7):
    """All points, ``num_initial`` of them given, their values, and the result."""
    X = strategy.domain.sample(num_initial, seed=start)
    Y = problem(X).unsqueeze(-1)
    for seed in range(iterations):
        proposed = strategy.propose(X, Y, seed=seed)
        X = torch.cat([X, proposed])
        Y = torch.cat([Y, problem(proposed).unsqueeze(-1)])
    return X, Y, strategy.recommend(X, Y)


def run(strategy, problem, num_initial=1, iterations=10):
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
