import math
from copy import deepcopy

import pytest
import torch
from botorch.exceptions.errors import InputDataError

from botorch_res import RobustDomain
from botorch_res.optim import WorstCaseSolver, robust_optimum
from botorch_res.optim.robust_optima.robust_optimum import _screen, fill
from botorch_res.optim.robust_optima.robust_problem import RobustProblem
from botorch_res.sampling import draw_fourier_samples, memory, posterior_mean
from tests.brute_force import (
    maximum_over_theta,
    mean_at,
    minimum_over_x,
    pairs,
    robust_value,
    values_at,
)
from tests.problems import (
    Draws,
    make_kernel,
    make_model,
    random_samples,
    sloppy_domain,
    standardized,
    unit_domain,
)


@pytest.mark.parametrize(
    ("box", "num_thetas", "problems"),
    [
        (unit_domain(1, 1), None, 6),
        (unit_domain(2, 1), None, 2),
        (unit_domain(1, 2), None, 2),
        (unit_domain(2, 2), None, 1),
        (unit_domain(1, 1), 7, 4),
        (unit_domain(2, 1), 12, 2),
        (unit_domain(3, 1), 4, 1),
        (sloppy_domain(1, 0, 1), None, 6),
        (sloppy_domain(2, 0, 2), None, 2),
        (sloppy_domain(1, 1, 1), None, 2),
        (sloppy_domain(2, 0, 2), 12, 2),
    ],
)
def test_accuracy_against_brute_force(box, num_thetas, problems):
    misses, kinks = 0, 0
    for seed in range(20, 20 + problems):
        samples, _ = random_samples(box.dim, seed)
        domain, choices = box, {}
        if num_thetas is not None:
            unit = torch.rand(
                num_thetas,
                box.theta.dim,
                generator=torch.Generator().manual_seed(seed),
            ).double()
            choices["theta_choices"] = torch.lerp(*box.theta.bounds, unit)
            domain = RobustDomain(
                box.bounds,
                range(box.x.dim, box.dim),
                tolerances=box.tolerances,
                **choices,
            )
        optimum = robust_optimum(samples, domain)
        assert ((optimum.x >= 0) & (optimum.x <= 1)).all()
        joined = domain.join(optimum.x, optimum.theta).unsqueeze(-2)
        torch.testing.assert_close(
            samples(joined).squeeze(-1), optimum.value, rtol=1e-8, atol=1e-8
        )
        rival = minimum_over_x(samples, domain, limit=400, top=4)
        x = torch.cat([optimum.x.unsqueeze(-2), rival], dim=-2)
        if num_thetas is None:
            worst = maximum_over_theta(samples, x, domain, limit=3000)
        else:
            points = domain.join(x.unsqueeze(-2), choices["theta_choices"])
            worst = values_at(samples, points).amax(-1)
        misses += int(((optimum.value - worst.amin(-1)).abs() > 1e-3).sum())
        branches = WorstCaseSolver(samples, domain).branches(x[:, :1], 4).value
        best = branches.topk(min(2, branches.shape[-1]), dim=-1).values
        kinks += int((best[..., 0] - best[..., -1] < 1e-6).sum())
    assert misses <= 0.01 * 8 * problems
    # The minimum usually sits where two thetas tie.
    assert kinks >= 0.1 * 8 * problems


def test_many_rows_share_the_candidates():
    """Else fifty rows in many columns take all memory."""
    samples, _ = random_samples(5, 0, num_samples=1)
    choices = {3: [i / 49 for i in range(50)]}
    domain = unit_domain(4, 1, x_choices=choices)
    candidates, _, _ = fill(RobustProblem(WorstCaseSolver(samples, domain)))
    assert 2 * 4096 < 50 * len(candidates) <= 4 * 4096


def test_starts_are_not_neighbours():
    """The best candidate, and others that are further away than its neighbours."""
    samples, _ = random_samples(3, 21)
    solver = WorstCaseSolver(samples, unit_domain(2, 1))
    problem = RobustProblem(solver)
    candidates, spacing, num_starts = fill(problem)
    starts, _ = _screen(problem, candidates, spacing, num_starts)
    value = solver.lower_bound(candidates)
    for own, found in zip(value, starts, strict=True):
        expected = [candidates[own.argmin()]]
        ranked = candidates[own.argsort()[: 8 * num_starts]]
        for i, x in enumerate(ranked):
            apart = ((ranked[:i] - x) / spacing).abs().amax(dim=-1)
            if i > 0 and (apart > 1.5).all():
                expected.append(x)
        count = min(len(expected), num_starts)
        assert torch.equal(found[:count], torch.stack(expected[:count]))
        assert 1 < count < len(ranked)


def test_the_second_descent_is_needed():
    """The first one ends 0.002 too high for one of these functions."""
    samples, _ = random_samples(4, 48)
    domain = unit_domain(2, 2)
    optimum = robust_optimum(samples, domain)
    rival = minimum_over_x(samples, domain, limit=400, top=4)
    best = maximum_over_theta(samples, rival, domain, limit=3000).amin(-1)
    assert (optimum.value <= best + 1e-3).all()


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_kinks(dim):
    """max over theta in [-1, 1] of theta (x - a): the distance to a, sharp at a."""
    bounds = torch.tensor([[0.0] * dim + [-1.0], [1.0] * (dim + 1)], dtype=torch.double)
    domain = RobustDomain(bounds, [dim])
    a = torch.tensor([0.3, 0.62, 0.47], dtype=torch.double)[:dim]

    def kink(z):
        distance = z[..., :dim] - a
        along = distance.sum(-1) * z[..., dim]
        return along + distance.square().sum(-1)

    optimum = robust_optimum(kink, domain)
    torch.testing.assert_close(optimum.x, a, rtol=0.0, atol=1e-4)
    assert 0 <= optimum.value.item() < 1e-4


@pytest.mark.parametrize("dim", [1, 2, 4, 6])
def test_smooth_minima_and_corners(dim):
    """A bowl with its lowest point inside in some columns and outside in others."""
    bounds = torch.tensor([[-2.0] * dim + [0.0], [3.0] * dim + [1.0]]).double()
    domain = RobustDomain(bounds, [dim])
    target = torch.tensor([0.5, 4.0, -1.0, -3.0, 0.0, 1.7]).double()[:dim]

    def bowl(z):
        square = (z[..., :dim] - target).square().sum(-1)
        return 0.1 * square - (z[..., dim] - 0.4).square()

    optimum = robust_optimum(bowl, domain)
    expected = target.clamp(-2.0, 3.0)
    torch.testing.assert_close(optimum.x, expected, rtol=0.0, atol=1e-5)
    outside = (target < -2) | (target > 3)
    assert torch.equal(optimum.x[outside], expected[outside])
    assert optimum.theta.item() == pytest.approx(0.4)
    height = 0.1 * (expected - target).square().sum().item()
    assert optimum.value.item() == pytest.approx(height)


@pytest.mark.parametrize("dims", [(2, 1), (3, 1), (2, 2)])
def test_all_gradients_are_zero_in_the_corner_that_is_best(dims):
    domain = unit_domain(*dims)
    for reduce, value in ((torch.sum, dims[1]), (torch.prod, 0.0)):
        optimum = robust_optimum(
            lambda z, reduce=reduce: reduce(z.square(), dim=-1), domain
        )
        assert float(optimum.value) == pytest.approx(value, abs=1e-12)
        worst = reduce(domain.join(optimum.x, optimum.theta).square(), dim=-1)
        assert float(worst) == pytest.approx(value, abs=1e-12)


def test_four_kinds_of_domain(monkeypatch):
    samples, _ = random_samples(2, 7)
    x_choices = torch.rand(30, 1, dtype=torch.double)
    theta_choices = torch.rand(9, 1, dtype=torch.double)
    for xs, thetas in (
        (None, None),
        (None, theta_choices),
        (x_choices, None),
        (x_choices, theta_choices),
    ):
        domain = unit_domain(1, 1, x_choices=xs, theta_choices=thetas)
        optimum = robust_optimum(samples, domain)
        # Coarse in x and fine in theta: at most a little too high, hardly ever too low.
        best = robust_value(values_at(samples, pairs(domain, 161, 801)))
        torch.testing.assert_close(optimum.value, best, rtol=0.0, atol=0.02)
        assert (optimum.value <= best + 1e-3).all()
        if xs is not None:
            assert torch.isin(optimum.x, xs).all()
            with monkeypatch.context() as patch:
                patch.setattr(memory, "MAX_ELEMENTS", 1000)
                chunked = robust_optimum(samples, domain)
            torch.testing.assert_close(chunked.value, optimum.value)


def test_maximisation_by_sign():
    samples, _ = random_samples(2, 8)
    domain = unit_domain(1, 1)
    negated = deepcopy(samples)
    for name in ("cosines", "sines", "kernel_weights", "offset"):
        setattr(negated, name, -getattr(samples, name))
    negated.angles = negated.angles + math.pi
    ours = robust_optimum(negated, domain)
    plain = robust_optimum(lambda z: -samples(z), domain, effort=1.5)
    torch.testing.assert_close(ours.value, plain.value, rtol=0.0, atol=1e-3)


def test_initial_points_and_starts():
    """A needle between the candidates is found if one is told where it is."""
    domain = unit_domain(1, 1)

    def needle(z):
        x = z[..., 0]
        return x - 3 * (-((x - 0.5037) / 1e-4).square()).exp() - z[..., 1].square()

    assert robust_optimum(needle, domain).value.item() == pytest.approx(0.0)
    told = torch.tensor([[0.50372]], dtype=torch.double)
    optimum = robust_optimum(needle, domain, num_starts=2, initial_x=told)
    assert optimum.value.item() == pytest.approx(0.5037 - 3, abs=1e-3)


def test_posterior_means_and_batches():
    _, model = random_samples(2, 9)
    domain = unit_domain(1, 1)
    optimum = robust_optimum(posterior_mean(model), domain)
    best = robust_value(mean_at(model, pairs(domain, 51, 51)))
    assert optimum.value.item() == pytest.approx(best.item(), abs=0.02)
    assert optimum.x.shape == (1, 1)

    def shifted(z):
        center = torch.tensor([[0.2, 0.4], [0.6, 0.8]], dtype=torch.double)
        return (z[..., 0] - center.unsqueeze(-1)).square() - z[..., 1]

    batch = robust_optimum(shifted, domain)
    expected = torch.tensor([[0.2, 0.4], [0.6, 0.8]], dtype=torch.double)
    torch.testing.assert_close(batch.x.squeeze(-1), expected, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize(("x_dim", "theta_dim"), [(2, 1), (2, 2), (5, 1)])
@pytest.mark.parametrize("nu", [None, 2.5])
def test_order_of_columns(x_dim, theta_dim, nu):
    """Data, lengthscales, bounds and domain permuted alike: the same robust optima."""
    dim = x_dim + theta_dim
    draws = Draws(dim)
    X, Y = draws.uniform(9, dim), standardized(draws.normal(9, 1))
    scale = 0.3 + 0.7 * draws.uniform(dim)
    bounds = torch.zeros(2, dim, dtype=torch.double)
    bounds[1] = 0.7 + 0.6 * draws.uniform(dim)
    optima = []
    for _ in range(3):
        order = draws.permutation(dim)
        kernel = make_kernel(nu, scale[order], dim=dim)
        model = make_model(X[:, order], Y, 1e-3, kernel)
        places = order.argsort()
        domain = RobustDomain(bounds[:, order], places[x_dim:].tolist())
        samples = draw_fourier_samples(model, 4, seed=0)
        optimum = robust_optimum(samples, domain)
        optima.append(domain.join(optimum.x, optimum.theta)[:, places])
        # At a kink two thetas tie, and either may be called the worst case.
        first = domain.split(optima[0][:, order])
        at_first = samples(domain.join(*first)).diagonal()
        torch.testing.assert_close(optimum.x, first[0], rtol=0.0, atol=1e-6)
        torch.testing.assert_close(optimum.value, at_first, rtol=0.0, atol=1e-6)


def test_single_precision():
    samples, _ = random_samples(2, 7)
    domain = unit_domain(1, 1)
    exact = robust_optimum(samples, domain).value
    single = robust_optimum(samples.float(), domain.to(torch.float)).value
    assert single.dtype == torch.float
    error = (single.double() - exact).abs()
    assert error.median() < 1e-3
    assert math.isfinite(error.max())


@pytest.mark.parametrize(("x_dim", "theta_dim"), [(1, 1), (2, 1)])
def test_a_solver_that_is_there(x_dim, theta_dim):
    """Tables that are made for worst cases serve the optimum, too."""
    samples, _ = random_samples(x_dim + theta_dim, 3)
    domain = unit_domain(x_dim, theta_dim)
    solver = WorstCaseSolver(samples, domain, effort=0.7)
    for ours, theirs in zip(
        robust_optimum(solver), robust_optimum(samples, domain, 0.7), strict=True
    ):
        assert torch.equal(ours, theirs)
    with pytest.raises(
        InputDataError, match="Expected no `domain` and no `effort` beside"
    ):
        robust_optimum(solver, domain)
