import math

import pytest
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError

from botorch_res import RobustDomain
from botorch_res.optim import (
    WorstCaseSolver,
    constrained_robust_optimum,
    robust_optimum,
)
from botorch_res.sampling import draw_fourier_samples
from botorch_res.sampling.affine import AffineFunction
from tests.constrained_problems import compare, random_pair
from tests.operation_count import OperationCount
from tests.problems import line, make_model, random_samples, unit_domain


@pytest.mark.parametrize(
    ("dims", "num_thetas", "seeds"),
    [((1, 1), 0, 3), ((2, 1), 0, 1), ((1, 2), 0, 1), ((1, 1), 12, 8), ((2, 1), 12, 4)],
)
def test_accuracy_against_brute_force(dims, num_thetas, seeds):
    """All of them here; ``benchmarks/constrained.py`` counts five hundred."""
    kinds = 0
    for seed in range(seeds):
        choices = {}
        if num_thetas:
            generator = torch.Generator().manual_seed(seed)
            rows = torch.rand(num_thetas, dims[1], generator=generator).double()
            choices["theta_choices"] = rows
        domain = unit_domain(*dims, **choices)
        f, c = random_pair(domain, seed)
        optimum = constrained_robust_optimum(f, [c], domain)
        found = compare(f, c, domain, optimum)
        possible = found["is_possible"]
        assert torch.equal(optimum.is_feasible, possible)
        assert (found["excess"] < 1e-3).all()
        assert (found["violation"][possible] < 1e-6).all()
        none = ~possible
        assert (found["violation"] - found["least"])[none].le(1e-3).all()
        # What it says of its points is true.
        for own, theta, value in (
            (f, optimum.theta, optimum.value),
            (c, optimum.constraint_theta[:, 0], optimum.constraint_value[:, 0]),
        ):
            joined = domain.join(optimum.x, theta).unsqueeze(-2)
            torch.testing.assert_close(own(joined).squeeze(-1), value)
        torch.testing.assert_close(found["own_value"], optimum.value, rtol=0, atol=1e-6)
        free = robust_optimum(f, domain).value
        kinds += int((optimum.value[possible] > free[possible] + 1e-3).sum())
    # The constraint matters in many of them.
    assert kinds >= 2 * seeds


def disc(z):
    """At most zero in a disc of radius 0.5 - 0.1 = 0.4 around the origin's corner."""
    distance = (z[..., :2].square().sum(-1) + 1e-12).sqrt()
    return distance - 0.5 + 0.1 * z[..., 2]


def plane(z):
    return -z[..., 0] - z[..., 1] - 0.2 * (z[..., 2] - 0.5).square()


def test_a_disc():
    """The best point of a disc is where its edge meets the diagonal."""
    domain = unit_domain(2, 1)
    best = constrained_robust_optimum(plane, [disc], domain)
    expected = torch.full((2,), 0.4 * math.sqrt(0.5)).double()
    torch.testing.assert_close(best.x, expected, rtol=0, atol=1e-5)
    assert best.value.item() == pytest.approx(-0.4 * math.sqrt(2), abs=1e-6)
    assert best.theta.item() == pytest.approx(0.5)
    assert best.constraint_theta.item() == pytest.approx(1.0)
    assert -1e-6 < best.violation.item() <= 0.0
    assert best.is_feasible.item()


def test_two_constraints():
    """The corner where an edge meets the disc, and a violation of two that exclude."""
    domain = unit_domain(2, 1)

    def half(z, limit):
        return z[..., 0] - limit + 0.1 * (z[..., 2] - 0.3).square() - 0.049

    best = constrained_robust_optimum(
        plane, [disc, lambda z: half(z, limit=0.2)], domain
    )
    expected = torch.tensor([0.2, math.sqrt(0.16 - 0.04)]).double()
    torch.testing.assert_close(best.x, expected, rtol=0, atol=1e-5)
    assert (best.constraint_value <= 0.0).all()
    assert (best.constraint_value > -1e-5).all()
    best = constrained_robust_optimum(
        plane, [disc, lambda z: 0.8 - z[..., 0] - 0.1 * z[..., 2]], domain
    )
    # |x| = 0.4 + v and x_1 = 0.8 - v for the violation v, with x_2 = 0, in which the
    # violation is flat.
    assert best.violation.item() == pytest.approx(0.2, abs=1e-4)
    assert best.x[0].item() == pytest.approx(0.6, abs=1e-4)
    assert best.x[1].item() == pytest.approx(0.0, abs=1e-2)
    assert not best.is_feasible.item()


def test_the_least_violation_at_a_smooth_minimum():
    domain = unit_domain(2, 1)
    target = torch.tensor([0.3, 0.6]).double()

    def bowl(z):
        return (z[..., :2] - target).square().sum(-1) + 0.1 + 0.2 * z[..., 2]

    best = constrained_robust_optimum(plane, [bowl], domain)
    assert best.violation.item() == pytest.approx(0.3, abs=1e-5)
    torch.testing.assert_close(best.x, target, rtol=0, atol=3e-3)


@pytest.mark.parametrize("dims", [(1, 1), (2, 1)])
def test_a_constraint_that_always_holds_changes_little(dims):
    domain = unit_domain(*dims)
    f, _ = random_samples(domain.dim, 3)
    c, _ = random_samples(domain.dim, 4)
    c = AffineFunction(c, 1.0, torch.tensor(-100.0).double())
    free = robust_optimum(f, domain)
    best = constrained_robust_optimum(f, [c], domain)
    torch.testing.assert_close(best.value, free.value, rtol=0, atol=1e-5)
    assert best.is_feasible.all()
    none = constrained_robust_optimum(f, [], domain)
    for name in free._fields:
        assert torch.equal(getattr(none, name), getattr(free, name))
    assert none.constraint_value.shape == (8, 0)
    assert none.is_feasible.all()
    assert none.violation.isneginf().all()


def test_finite_sets():
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(40, 1, generator=generator).double()
    domain = unit_domain(1, 1, x_choices=rows, theta_choices=line(9))
    f, c = random_pair(domain, 5, num_samples=20)
    # Some levels are values at these very points.
    c = AffineFunction(c, 1.0, torch.tensor(1e-3).double())
    best = constrained_robust_optimum(f, [c], domain)
    value, violation = (
        own(domain.join(rows.unsqueeze(1), line(9)).flatten(0, 1))
        .unflatten(-1, (40, 9))
        .amax(-1)
        for own in (f, c)
    )
    for i in range(20):
        feasible = violation[i] <= 0
        assert bool(feasible.any()) == bool(best.is_feasible[i])
        order = value[i].where(feasible, torch.inf) if feasible.any() else violation[i]
        assert torch.equal(best.x[i], rows[order.argmin()])


def test_listed_columns_of_x():
    """The best row is not the best feasible one."""
    bounds = torch.tensor([[0.0, 0.0, 0.0], [2.0, 1.0, 1.0]]).double()
    domain = RobustDomain(bounds, [2], x_choices={0: [0.0, 1.0, 2.0]})

    def f(z):
        return z[..., 1] - z[..., 0] + 0.1 * z[..., 2]

    def c(z):
        return 0.7 * z[..., 0] - z[..., 1] + 0.1 * z[..., 2]

    best = constrained_robust_optimum(f, [c], domain)
    torch.testing.assert_close(best.x, torch.tensor([1.0, 0.8]).double())
    assert best.value.item() == pytest.approx(-0.1, abs=1e-6)


def test_batches_of_models():
    """The members' optima are those of the single models' samples."""
    domain = unit_domain(1, 1)
    X = torch.rand(2, 6, 2, generator=torch.Generator().manual_seed(1)).double()
    Y = torch.sin(7 * X.sum(-1, keepdim=True))
    samples = draw_fourier_samples(make_model(X, Y, 1e-3), 3, seed=[0, 1])
    limit = samples(X).mean()
    c = AffineFunction(samples, -1.0, limit)
    found = constrained_robust_optimum(samples, [c], domain)
    assert found.x.shape == (3, 2, 1)
    assert found.constraint_theta.shape == (3, 2, 1, 1)
    for i in range(2):
        own = draw_fourier_samples(make_model(X[i], Y[i], 1e-3), 3, seed=i)
        c = AffineFunction(own, -1.0, limit)
        single = constrained_robust_optimum(own, [c], domain)
        torch.testing.assert_close(found.value[:, i], single.value, rtol=0, atol=1e-5)


def test_operations_do_not_grow_with_the_batch():
    domain = unit_domain(1, 1)
    counts = set()
    for num_samples, num_starts in ((2, 2), (9, 5)):
        f, c = random_pair(domain, 0, num_samples)
        with OperationCount() as counter:
            constrained_robust_optimum(f, [c], domain, num_starts=num_starts)
        counts.add(counter.count)
    assert len(counts) == 1


def test_bad_input():
    domain = unit_domain(2, 1)
    solver = WorstCaseSolver(plane, domain)
    with pytest.raises(InputDataError, match="`constraints` to be WorstCaseSolvers"):
        constrained_robust_optimum(solver, [disc])
    with pytest.raises(InputDataError, match="no `domain` and no `effort` beside"):
        constrained_robust_optimum(solver, [WorstCaseSolver(disc, domain)], domain)
    f, _ = random_samples(3, 0)
    with pytest.raises(BotorchTensorDimensionError, match=r"sample_shape \(8,\)"):
        constrained_robust_optimum(f, [disc], domain)
    with pytest.raises(InputDataError, match="`domain` to be a RobustDomain"):
        constrained_robust_optimum(plane, [disc])
