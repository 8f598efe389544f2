"""Runs of a strategy on a problem, as short as they can be."""

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


def quick_strategy(name, problem, model_factory=None):
    """A strategy with small numbers, and a model that needs no fit."""
    domain = problem.domain
    if domain.x_choices is not None:
        # One x of every 25 of the 2500 of Hartmann 3: all pairs are evaluated.
        domain = RobustDomain(
            domain.bounds,
            domain.uncontrollable,
            domain.x_choices[::25],
            domain.theta_choices,
        )
    return make_strategy(
        name,
        domain,
        maximize=not problem.is_minimization_problem,
        model_factory=model_factory or FixedGP(0.3, standardize=True),
        **QUICK.get(name, {}),
    )


def run(strategy, problem, num_initial=1, iterations=ITERATIONS):
    """All points, ``num_initial`` of them given, and their values."""
    X = strategy.domain.sample(num_initial, seed=7)
    Y = problem(X).unsqueeze(-1)
    for seed in range(iterations):
        proposed = strategy.propose(X, Y, seed=seed)
        X = torch.cat([X, proposed])
        Y = torch.cat([Y, problem(proposed).unsqueeze(-1)])
    return X, Y


def check(strategy, X, Y, iterations=ITERATIONS):
    """Raise unless the points are of the domain, the values finite, and all not one."""
    domain = strategy.domain
    x, theta = domain.split(X)
    assert domain.contains_x(x).all()
    assert domain.contains_theta(theta).all()
    assert torch.isfinite(Y).all()
    assert len(X.unique(dim=0)) >= iterations // 2
