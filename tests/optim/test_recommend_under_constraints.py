import math
import warnings

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from botorch.exceptions.warnings import BotorchWarning
from botorch.models import ModelListGP

from botorch_res import RobustDomain
from botorch_res.optim import WorstCaseSolver, recommend_under_constraints
from botorch_res.optim.robust_optima.probable import best_probable
from botorch_res.optim.robust_optima.robust_problem import RobustProblem
from botorch_res.sampling.affine import AffineFunction
from botorch_res.test_functions import RobustIslands
from tests.problems import (
    Draws,
    line,
    make_kernel,
    make_model,
    random_samples,
    unit_domain,
)


def samples_of_a_model(domain, level, num_samples=40):
    """Functions of two smooth posteriors, one a constraint, on few thetas."""
    f, _ = random_samples(domain.dim, 3, None, num_samples, None, 64)
    g, _ = random_samples(domain.dim, 6, None, num_samples, None, 64)
    offset = torch.tensor(-level).double()
    return f, AffineFunction(g, 1.0, offset)


def by_grid(f, c, x, thetas, domain, probability):
    points = domain.join(x.unsqueeze(-2), thetas).flatten(0, 1)
    value, violation = (
        own(points).unflatten(-1, (len(x), len(thetas))).amax(-1) for own in (f, c)
    )
    rank = math.ceil(probability * len(value))
    return value.mean(dim=0), violation.sort(dim=0).values[rank - 1]


@pytest.mark.parametrize("x_dim", [1, 2])
@pytest.mark.parametrize("probability", [0.5, 0.9])
def test_best_probable_by_a_grid(x_dim, probability):
    thetas = line(5)
    domain = unit_domain(x_dim, 1, theta_choices=thetas)
    num = 2001 if x_dim == 1 else 101
    grid = torch.cartesian_prod(*[line(num).squeeze(-1)] * x_dim).view(-1, x_dim)
    f, c = samples_of_a_model(domain, 0.0)
    _, level = by_grid(f, c, grid, thetas, domain, probability)
    for share in (0.1, 0.4):
        bound = AffineFunction(c, 1.0, -level.quantile(share))
        value, own = by_grid(f, bound, grid, thetas, domain, probability)
        problem = RobustProblem(
            WorstCaseSolver(f, domain), [WorstCaseSolver(bound, domain)]
        )
        x, found = best_probable(problem, grid[:1], probability)
        at, held = by_grid(f, bound, x.unsqueeze(0), thetas, domain, probability)
        assert found == pytest.approx(float(held))
        assert found <= 0.0
        assert float(at) <= float(value[own <= 0].min()) + 2e-3
    # The one that comes closest.
    bound = AffineFunction(c, 1.0, 0.5 - level.min())
    problem = RobustProblem(
        WorstCaseSolver(f, domain), [WorstCaseSolver(bound, domain)]
    )
    _, found = best_probable(problem, grid[:1], probability)
    assert 0.0 < found <= 0.5 + 2e-3


def islands(num=40, sign=1.0):
    problem = RobustIslands()
    X = problem.domain.sample(num, seed=0)
    kernel = make_kernel(lengthscale=torch.tensor([0.12, 1.0]).double())
    f, slack = problem(X).unsqueeze(-1), problem.evaluate_slack(X)
    outputs = [make_model(X, Y, 1e-4, kernel) for Y in (sign * f, slack)]
    return problem, ModelListGP(*outputs)


def test_a_problem_that_is_known_well():
    problem, model = islands(80)
    options = {"maximize": False, "num_samples": 32}
    best = recommend_under_constraints(
        model, problem.domain, problem.constraints, **options
    )
    torch.testing.assert_close(best.x, problem.robust_setting, rtol=0, atol=0.01)
    assert best.value == pytest.approx(problem.robust_optimal_value, abs=0.03)
    assert problem.worst_case_slack(best.x) > 0
    assert best.probability >= 0.85
    assert best.constraint_theta.shape == (1, 1)
    assert best.constraint_value >= 0
    # The same in the mirror.
    _, negated = islands(80, sign=-1.0)
    mirrored = recommend_under_constraints(
        negated, problem.domain, problem.constraints, num_samples=32
    )
    torch.testing.assert_close(mirrored.x, best.x, rtol=0, atol=0.01)
    assert mirrored.value == pytest.approx(-float(best.value), abs=0.01)


def test_worst_cases_of_two_bounds():
    """The lower bound comes first; values are those of the outputs."""
    problem, model = islands(20)
    domain = problem.domain
    best = recommend_under_constraints(
        model, domain, {1: (-0.9, 1.5)}, probability=0.6, num_samples=16
    )
    thetas = torch.linspace(-0.5, 0.5, 2001, dtype=torch.double).unsqueeze(-1)
    mean = model.models[1].posterior(domain.join(best.x, thetas)).mean.flatten()
    expected = torch.stack([mean.min(), mean.max()]).detach()
    torch.testing.assert_close(best.constraint_value, expected, rtol=0, atol=1e-5)
    at = model.models[1].posterior(domain.join(best.x, best.constraint_theta)).mean
    torch.testing.assert_close(at.flatten().detach(), best.constraint_value)


def test_probability_by_exact_draws():
    """Against joint draws of the output at the thetas of a finite set."""
    draws = Draws(2)
    X = draws.uniform(6, 2)
    kernel = make_kernel(lengthscale=0.4)
    model = ModelListGP(
        *(make_model(X, draws.normal(6, 1), 1e-2, kernel) for _ in range(2))
    )
    domain = unit_domain(1, 1, x_choices=line(2), theta_choices=line(6))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BotorchWarning)
        best = recommend_under_constraints(
            model, domain, {1: (None, 0.8)}, maximize=False, num_samples=1000
        )
    posterior = model.models[1].posterior(domain.join(best.x, line(6)))
    values = posterior.rsample(torch.Size([20_000])).squeeze(-1)
    expected = float((values.amax(-1) <= 0.8).double().mean())
    assert best.probability == pytest.approx(expected, abs=4 * 0.5 / 1000**0.5)


def test_nothing_is_probable():
    problem, model = islands(10)
    with pytest.warns(BotorchWarning, match="with a probability of 0.95: .* closest"):
        best = recommend_under_constraints(
            model, problem.domain, {1: (3.0, None)}, maximize=False, num_samples=16
        )
    assert best.probability == 0.0
    assert problem.domain.x.contains(best.x)


def test_restricted_and_mixed_domains():
    """A listed column of x, a fixed one, and a linear constraint on the others."""
    bounds = torch.tensor([[0.0] * 4, [2.0, 1.0, 1.0, 1.0]]).double()
    domain = RobustDomain(bounds, [3], {0: [0.0, 1.0, 2.0]})
    X = domain.sample(30, seed=0)
    f = X[:, 1:2] - X[:, :1] + 0.1 * X[:, 3:]
    c = X[:, :1] - 2.0 * X[:, 1:2] - 0.2 * X[:, 3:] + 0.1
    kernel = make_kernel(lengthscale=2.0, dim=4)
    model = ModelListGP(*(make_model(X, Y, 1e-5, kernel) for Y in (f, c)))
    best = recommend_under_constraints(
        model,
        domain,
        {1: (None, 0.0)},
        maximize=False,
        num_samples=16,
        fixed_features={2: 0.5},
        inequality_constraints=[([1, 2], [1.0, 1.0], 0.9)],
    )
    # Without the linear constraint the row 1 would be as good, with less of column 1.
    assert best.x[2] == 0.5
    assert best.x[0] == 1.0
    assert best.x[1] == pytest.approx(0.55, abs=0.02)
    assert best.probability >= 0.8


def test_ensembles():
    """A batch of models is an ensemble, of as many samples in total."""
    problem, model = islands(8)
    X = problem.domain.sample(8, seed=0).expand(3, -1, -1)
    kernel = make_kernel(lengthscale=0.3)
    outputs = [
        make_model(X, own.train_targets.unsqueeze(-1).expand(3, -1, -1), 1e-3, kernel)
        for own in model.models
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BotorchWarning)
        best = recommend_under_constraints(
            ModelListGP(*outputs), problem.domain, problem.constraints, num_samples=10
        )
    assert best.x.shape == best.theta.shape == (1,)
    assert (12 * best.probability) == pytest.approx(round(12 * best.probability))


@pytest.mark.parametrize("bad", [0.0, 1.1, math.nan, "0.9", True])
def test_bad_probability(bad):
    problem, model = islands(4)
    with pytest.raises(InputDataError, match="`probability` to be a number above 0"):
        recommend_under_constraints(
            model, problem.domain, problem.constraints, probability=bad
        )


def test_bad_constraints():
    problem, model = islands(4)
    with pytest.raises(InputDataError, match="to have a lower or an upper bound"):
        recommend_under_constraints(model, problem.domain, {1: (None, None)})
    with pytest.raises(InputDataError, match="`constraints` to be a Mapping"):
        recommend_under_constraints(model, problem.domain, None)
