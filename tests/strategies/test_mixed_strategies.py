"""Every strategy on domains with categories and with numbers, listed and free."""

import pytest
import torch

from botorch_res.models import BayesianGP, DefaultGP
from botorch_res.strategies import (
    make_strategy,
    propose_replicates,
    recommend_replicates,
)
from botorch_res.test_functions import MotorCatalogue, SnapHook, SwitchingModes
from tests.strategies.options import NAMES, QUICK

PROBLEMS = {
    kind.__name__: kind() for kind in (SnapHook, SwitchingModes, MotorCatalogue)
}


def check_points(domain, z):
    x, theta = domain.split(z)
    assert domain.x.contains(x).all()
    assert domain.theta.contains(theta).all()
    # Categories are codes to the bit, since kernels compare them.
    codes = z[..., list(domain.cat_dims)]
    assert torch.equal(codes, codes.round())


def build(name, problem, factory=None):
    return make_strategy(
        name,
        problem.domain,
        maximize=not problem.is_minimization_problem,
        model_factory=factory,
        **QUICK.get(name, {}),
    )


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", NAMES)
def test_eight_iterations(name, problem):
    """Without warnings, which are errors here."""
    problem = PROBLEMS[problem]
    domain = problem.domain
    strategy = build(name, problem)
    X = domain.sample(4, seed=0)
    for iteration in range(8):
        Y = problem(X).unsqueeze(-1)
        n = 2 if iteration == 3 else 1
        z = strategy.propose(X, Y, n=n, seed=iteration)
        assert z.shape == (n, domain.dim)
        check_points(domain, z)
        X = torch.cat([X, z])
    # What is known is not worth another evaluation; random points may be the same.
    if name != "random":
        assert len(X.unique(dim=0)) > len(X) - 3
    best = strategy.recommend(X, problem(X).unsqueeze(-1))
    assert domain.x.contains(best.x)
    assert domain.theta.contains(best.theta)
    assert best.lower <= best.upper


@pytest.mark.parametrize("name", ["res", "stable_opt", "thompson"])
def test_replicates_are_single_runs(name):
    problem = PROBLEMS["SwitchingModes"]
    domain, seeds = problem.domain, [3, 4]
    strategy = build(name, problem)
    X = torch.stack([domain.sample(9, seed=seed) for seed in seeds])
    Y = problem(X).unsqueeze(-1)
    z = propose_replicates(strategy, X, Y, seeds)
    best = recommend_replicates(strategy, X, Y)
    for i, seed in enumerate(seeds):
        alone = strategy.propose(X[i], Y[i], seed=seed)
        torch.testing.assert_close(z[i : i + 1], alone, rtol=0, atol=1e-5)
        x = strategy.recommend(X[i], Y[i]).x
        torch.testing.assert_close(best.x[i], x, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_ensembles_and_pending_points(name):
    problem = PROBLEMS["SnapHook"]
    strategy = build(name, problem, BayesianGP(num_samples=2, num_steps=3))
    X = problem.domain.sample(8, seed=0)
    Y = problem(X).unsqueeze(-1)
    z = strategy.propose(X[:6], Y[:6], X_pending=X[6:], seed=1)
    check_points(problem.domain, z)
    assert problem.domain.x.contains(strategy.recommend(X, Y).x)


def grid_of(part, num=81):
    """All listed rows of a part with one free column, at equal distances there."""
    lower, upper = part.free_bounds[:, 0].tolist()
    line = torch.linspace(lower, upper, num).double().view(-1, 1, 1)
    return part.combine(line, part.rows).flatten(0, 1)


def test_stable_opt_against_brute_force():
    """The best x by lower bounds, and the worst theta there by upper bounds."""
    problem = PROBLEMS["SnapHook"]
    domain = problem.domain
    X = domain.sample(20, seed=1)
    Y = problem(X).unsqueeze(-1)
    strategy = make_strategy("stable_opt", domain, maximize=False)
    x, theta = domain.split(strategy.propose(X, Y)[0])
    model = DefaultGP()(X, Y, None, domain.bounds, cat_dims=domain.cat_dims)

    def bound(z, multiple):
        with torch.no_grad():
            posterior = model.posterior(z.flatten(0, -2).unsqueeze(-2))
        deviation = posterior.variance.sqrt()
        return (posterior.mean + multiple * deviation).view(z.shape[:-1])

    settings, thetas = grid_of(domain.x), grid_of(domain.theta)
    optimistic = bound(domain.join(settings.unsqueeze(1), thetas), -2.0).amax(-1)
    at_x = bound(domain.join(x, thetas), -2.0).max()
    spread = float(Y.std())
    assert float(at_x) <= float(optimistic.min()) + 1e-3 * spread
    pessimistic = bound(domain.join(x, thetas), 2.0).max()
    found = bound(domain.join(x, theta).unsqueeze(0), 2.0)
    assert float(found) >= float(pessimistic) - 1e-3 * spread


def test_worst_case_improvement_chooses_the_worst_theta_by_the_mean():
    problem = PROBLEMS["SnapHook"]
    domain = problem.domain
    X = domain.sample(12, seed=1)
    Y = problem(X).unsqueeze(-1)
    strategy = build("worst_case_nei", problem)
    x, theta = domain.split(strategy.propose(X, Y)[0])
    model = DefaultGP()(X, Y, None, domain.bounds, cat_dims=domain.cat_dims)
    thetas = torch.cat([grid_of(domain.theta), theta.unsqueeze(0)])
    with torch.no_grad():
        mean = model.posterior(domain.join(x, thetas)).mean.flatten()
    assert mean[-1] >= mean.max() - 1e-3 * Y.std()
