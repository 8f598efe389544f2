"""Proposals are points at which the function can be evaluated."""

import pytest

from botorch_res import RobustDomain
from botorch_res.strategies import make_strategy
from tests.problems import UNIT, line

GRADES = line(3)
DOMAINS = {
    # The worst choice may lie outside of the box, and its edge is no choice.
    "list": RobustDomain(
        UNIT, [1], theta_choices=GRADES, evaluation_bounds=0.2 + 0.6 * UNIT
    ),
    "lists": RobustDomain(
        UNIT[:, :1],
        x_choices=line(5),
        theta_choices=line(2, -0.1, 0.1),
        tolerances={0: 0.1},
        evaluation_bounds=UNIT[:, :1],
    ),
    "box": RobustDomain(UNIT, [1], tolerances={0: 0.1}, evaluation_bounds=UNIT),
}


@pytest.mark.parametrize("kind", DOMAINS)
@pytest.mark.parametrize(
    "name", ["random", "res", "stable_opt", "thompson", "worst_case_nei"]
)
def test_proposals_can_be_evaluated(name, kind):
    domain = DOMAINS[kind]
    X = domain.sample(5, seed=0)
    Y = ((X[:, :1] - 0.4).square() + X[:, -1:]).sin()
    strategy = make_strategy(name, domain, maximize=False)
    z = strategy.propose(X, Y, n=2, seed=0)
    x, theta = domain.evaluations.split(z)
    assert domain.evaluations.x.contains(x).all()
    assert domain.evaluations.theta.contains(theta).all()
