import itertools
import pickle
import weakref

import pytest
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError

from botorch_res import RobustDomain
from botorch_res.optim import WorstCaseSolver, worst_case
from botorch_res.optim.worst_cases.box_search import BoxSearch
from botorch_res.sampling import (
    BatchFunction,
    draw_fourier_samples,
    memory,
    posterior_mean,
)
from tests.brute_force import maximum_over_theta, values_at
from tests.mixed_problems import ALL_KINDS, mixed_samples
from tests.problems import (
    Draws,
    line,
    make_kernel,
    make_model,
    random_samples,
    sloppy_domain,
    standardized,
    unit_domain,
)


@pytest.mark.parametrize(
    ("domain", "nu", "problems", "share"),
    [
        (unit_domain(1, 1), None, 20, 0.999),
        (unit_domain(1, 2), None, 6, 0.99),
        (unit_domain(1, 3), None, 2, 0.97),
        (unit_domain(1, 1), 2.5, 6, 0.999),
        (unit_domain(1, 2), 1.5, 4, 0.99),
        (unit_domain(1, 3), 2.5, 2, 0.97),
        (sloppy_domain(1, 0, 1), None, 20, 0.999),
        (sloppy_domain(2, 0, 2), None, 6, 0.99),
        (sloppy_domain(3, 0, 3), None, 2, 0.97),
        (sloppy_domain(1, 1, 1), None, 6, 0.99),
        (sloppy_domain(2, 0, 1), 2.5, 6, 0.999),
        (sloppy_domain(1, 1, 1), 1.5, 2, 0.99),
    ],
)
def test_accuracy_against_brute_force(domain, nu, problems, share):
    hits = []
    for seed in range(problems):
        samples, _ = random_samples(domain.dim, seed, nu)
        x = domain.x.sample(4, seed=seed).expand(8, -1, -1)
        worst = worst_case(samples, x, domain)
        lower, upper = domain.theta.bounds
        assert ((worst.theta >= lower) & (worst.theta <= upper)).all()
        # Never above the maximum: it is a value of the function in the box.
        values = samples(domain.join(x, worst.theta))
        torch.testing.assert_close(worst.value, values, rtol=1e-9, atol=1e-9)
        best = maximum_over_theta(samples, x, domain)
        hits.append((worst.value >= best - 1e-7).flatten())
    assert torch.cat(hits).double().mean() >= share


def test_the_highest_point_of_the_grid_is_climbed():
    """Here the quadratic through the highest points of the grid points elsewhere."""
    samples, _ = random_samples(3, 20)
    domain = unit_domain(1, 2)
    x = torch.full((8, 1, 1), 0.67814, dtype=torch.double)
    worst = worst_case(samples, x, domain)
    best = maximum_over_theta(samples, x, domain)
    torch.testing.assert_close(worst.value, best, rtol=0.0, atol=1e-7)


def test_common_and_own_points_give_the_same():
    samples, _ = random_samples(3, 2)
    domain = unit_domain(2, 1)
    solver = WorstCaseSolver(samples, domain)
    x = domain.x.sample(5, seed=0)
    common, own = solver(x), solver(x.expand(8, -1, -1))
    assert common.theta.shape == (8, 5, 1)
    torch.testing.assert_close(common.value, own.value)
    torch.testing.assert_close(common.theta, own.theta, rtol=0.0, atol=1e-6)


def test_chunks_do_not_change_the_result(monkeypatch):
    samples, _ = random_samples(2, 3)
    domain = unit_domain(1, 1)
    x = domain.x.sample(9, seed=0)
    whole = worst_case(samples, x, domain)
    monkeypatch.setattr(memory, "MAX_ELEMENTS", 500)
    parts = worst_case(samples, x, domain)
    torch.testing.assert_close(parts.value, whole.value)
    torch.testing.assert_close(parts.theta, whole.theta, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("uncontrollable", [[0], [2, 0]])
def test_units_and_order_of_columns(uncontrollable):
    """A box in raw units, columns in any order: the same worst cases."""
    raw = torch.tensor([[-5.0, 1e3, 0.1], [10.0, 3e3, 0.2]], dtype=torch.double)
    ours, _ = random_samples(3, 4, bounds=raw)
    theirs, _ = random_samples(3, 4)
    domain = RobustDomain(raw, uncontrollable)
    plain = RobustDomain(unit_domain(2, 1).bounds, uncontrollable)
    x = plain.x.sample(6, seed=0)
    expected = worst_case(theirs, x, plain)
    low, high = domain.x.bounds
    worst = worst_case(ours, low + (high - low) * x, domain)
    torch.testing.assert_close(worst.value, expected.value, rtol=1e-7, atol=1e-7)
    low, high = domain.theta.bounds
    theta = (worst.theta - low) / (high - low)
    torch.testing.assert_close(theta, expected.theta, rtol=0.0, atol=1e-4)


@pytest.mark.parametrize("theta_dim", [1, 2, 3])
@pytest.mark.parametrize("own", [False, True])
def test_gradients_equal_finite_differences(theta_dim, own):
    domain = unit_domain(2, theta_dim)
    checked = 0
    for seed in range(3):
        samples, _ = random_samples(2 + theta_dim, seed + 10, num_samples=4)
        # A fine solver, so that the differences see no noise of the search.
        solver = WorstCaseSolver(samples, domain, effort=1.5)
        plan = solver.search.plan
        solver.search.plan = plan._replace(num_steps=plan.num_steps + 4)
        x = 0.1 + 0.8 * domain.x.sample(5, seed=seed)
        if own:
            x = x.expand(4, -1, -1).clone()
        x.requires_grad_()
        worst = solver(x)
        weights = torch.rand(4, 5, 1 + theta_dim, dtype=torch.double)
        step = 3e-5
        for column in range(2):
            move = torch.zeros_like(x)
            move[..., column] = step
            with torch.no_grad():
                right, left = solver(x + move), solver(x - move)
            slope = (right.value - left.value) / (2 * step)
            shift = (right.theta - left.theta) / (2 * step)
            bend = (right.value + left.value - 2 * worst.value).abs()
            # Away from ties, and from ends of a bound's reign.
            smooth = (bend < 1e-6) & (shift.abs().amax(-1) < 20.0)
            smooth &= (right.theta + left.theta - 2 * worst.theta).abs().amax(-1) < 1e-6
            for c in range(4):
                for j in range(5):
                    if not smooth[c, j]:
                        continue
                    checked += 1
                    for target, exact in (
                        (worst.value[c, j], slope[c, j]),
                        (
                            (weights[c, j, 1:] * worst.theta[c, j]).sum(),
                            (weights[c, j, 1:] * shift[c, j]).sum(),
                        ),
                    ):
                        (gradient,) = torch.autograd.grad(target, x, retain_graph=True)
                        ours = gradient[c, j, column] if own else gradient[j, column]
                        assert ours.item() == pytest.approx(
                            exact.item(), rel=1e-4, abs=2e-4
                        )
    assert checked > 40


def test_gradients_at_bounds_and_of_finite_sets():
    """f = x theta: the worst theta is 1 for every positive x, and does not move."""
    x = torch.tensor([[0.3], [0.7]], dtype=torch.double, requires_grad=True)
    choices = torch.tensor([[0.2], [0.9]], dtype=torch.double)
    for domain, top in (
        (unit_domain(1, 1), 1.0),
        (unit_domain(1, 1, theta_choices=choices), 0.9),
    ):
        worst = worst_case(lambda z: z[..., 0] * z[..., 1], x, domain)
        assert worst.theta.tolist() == [[top], [top]]
        (slope,) = torch.autograd.grad(worst.value.sum(), x, retain_graph=True)
        assert slope.flatten().tolist() == pytest.approx([top, top])
        (shift,) = torch.autograd.grad(worst.theta.sum(), x)
        assert not shift.any()
    with torch.no_grad():
        assert not worst_case(lambda z: z.sum(-1), x, domain).value.requires_grad


def test_finite_sets_are_compared_one_by_one():
    samples, _ = random_samples(3, 5)
    choices = torch.rand(2000, 1, dtype=torch.double)
    domain = unit_domain(2, 1, theta_choices=choices)
    x = torch.rand(8, 3, 2, dtype=torch.double)
    worst = worst_case(samples, x, domain)
    values = values_at(samples, domain.join(x.unsqueeze(-2), choices))
    torch.testing.assert_close(worst.value, values.amax(-1))
    torch.testing.assert_close(worst.theta, choices[values.argmax(-1)])


def test_plain_callables_and_posterior_means():
    domain = unit_domain(1, 2)
    x = torch.rand(6, 1, dtype=torch.double)

    def bump(z):  # its maximum is at theta = (x, 1 - x), of height one
        first, second = z[..., 1] - z[..., 0], z[..., 2] - 1 + z[..., 0]
        return (-8 * (first.square() + second.square() + first * second)).exp()

    worst = worst_case(bump, x.requires_grad_(), domain)
    torch.testing.assert_close(worst.theta, torch.cat([x, 1 - x], -1))
    torch.testing.assert_close(worst.value, torch.ones(6, dtype=torch.double))
    (shift,) = torch.autograd.grad(worst.theta[:, 1].sum(), x)
    torch.testing.assert_close(shift, -torch.ones_like(shift))
    _, model = random_samples(3, 6)
    closed = worst_case(posterior_mean(model), x.detach(), domain)
    plain = worst_case(
        lambda z: model.posterior(z).mean.squeeze(-1), x.detach(), domain, effort=2.0
    )
    torch.testing.assert_close(closed.value[0], plain.value, rtol=1e-6, atol=1e-6)


def test_batches_of_models_and_single_precision():
    draws = Draws(0)
    X, Y = draws.uniform(2, 6, 2), standardized(draws.normal(2, 6, 1))
    # The grid has to be fine enough for the shorter one.
    scale = torch.tensor([0.03, 1.0], dtype=torch.double).view(2, 1, 1).expand(2, 1, 2)
    model = make_model(X, Y, 1e-3, make_kernel(lengthscale=scale, batch=(2,)))
    samples = draw_fourier_samples(model, 3, seed=0)
    domain = unit_domain(1, 1)
    x = domain.x.sample(4, seed=0)
    worst = worst_case(samples, x, domain)
    assert worst.theta.shape == (3, 2, 4, 1)
    best = values_at(samples, domain.join(x.unsqueeze(-2), line(12001))).amax(-1)
    torch.testing.assert_close(worst.value, best, rtol=0.0, atol=1e-5)
    single = worst_case(samples.float(), x.float(), domain.to(torch.float))
    assert single.value.dtype == torch.float
    torch.testing.assert_close(single.value.double(), best, rtol=0.0, atol=1e-3)


def test_solvers_can_be_pickled():
    samples, _ = random_samples(2, 1)
    solver = WorstCaseSolver(samples, unit_domain(1, 1))
    x = torch.rand(2, 1, dtype=torch.double)
    copy = pickle.loads(pickle.dumps(solver))
    assert torch.equal(copy(x).value, solver(x).value)


def test_wrong_shapes():
    samples, _ = random_samples(2, 1)
    with pytest.raises(BotorchTensorDimensionError, match="with 2 columns, as many"):
        WorstCaseSolver(samples, unit_domain(2, 1))
    solver = WorstCaseSolver(samples, unit_domain(1, 1))
    for shape in ((3, 2), (5, 3, 1), (1,)):
        with pytest.raises(BotorchTensorDimensionError, match=r"\(8,\) x b x d_x with"):
            solver(torch.rand(shape, dtype=torch.double))


@pytest.mark.parametrize("nu", [None, 2.5])
def test_effort_scales_the_grid(nu):
    samples, _ = random_samples(2, 1, nu)
    domain = unit_domain(1, 1)
    half, one, two = (
        WorstCaseSolver(samples, domain, effort).search.grid.counts[0] - 1
        for effort in (0.5, 1, 2)
    )
    assert two == pytest.approx(2 * one, abs=1)
    # Analytic functions have the least density at which the polynomials are exact.
    assert half == (one if nu is None else pytest.approx(0.5 * one, abs=1))


def test_functions_that_no_grid_resolves():
    """Then polynomials between grid points are no use, and functions are climbed."""

    class Comb(BatchFunction):
        sample_shape = torch.Size([])
        lengthscale = torch.tensor([1.0, 1e-5], dtype=torch.double)
        is_analytic = True

        def forward(self, z):
            return -(z[..., 1] - 0.3 - 0.1 * z[..., 0]).square()

    solver = WorstCaseSolver(Comb(), unit_domain(1, 1))
    x = torch.tensor([[0.25], [0.8]], dtype=torch.double)
    assert solver.search.plan.radius == 0
    torch.testing.assert_close(solver(x).theta, 0.3 + 0.1 * x)


@pytest.mark.parametrize("scale", [5.263e-05, 3.7e-04, 9.8e-04])
def test_values_are_those_of_the_function_on_the_coarsest_grids(scale):
    """The number of points is limited, and rounding may make it one less."""
    domain = unit_domain(1, 1)
    X = domain.sample(5, seed=0)
    kernel = make_kernel(lengthscale=torch.tensor([0.3, scale], dtype=torch.double))
    model = make_model(X, X[:, :1].sin(), kernel=kernel)
    samples = draw_fourier_samples(model, 4, seed=0)
    x = domain.x.sample(8, seed=1).expand(4, -1, -1)
    worst = worst_case(samples, x, domain)
    value = samples(domain.join(x, worst.theta))
    torch.testing.assert_close(worst.value, value, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("dim", [2, 3])
def test_several_finalists_are_needed(dim):
    """The first steps do not tell which of the peaks of a rough function is highest."""
    domain = unit_domain(1, dim)
    samples, _ = random_samples(1 + dim, {2: 11, 3: 5}[dim], nu=2.5)
    x = domain.x.sample(8, seed={2: 11, 3: 5}[dim])
    solver = WorstCaseSolver(samples, domain)
    several = solver(x).value
    solver.search.plan = solver.search.plan._replace(num_finalists=1)
    one = solver(x).value
    assert (several >= one - 1e-9).all()
    assert (several > one + 1e-4).any()
    best = maximum_over_theta(samples, x.expand(8, -1, -1), domain)
    assert ((several >= best - 1e-6).sum() > (one >= best - 1e-6).sum()).all()


def test_the_coarsest_grid_is_not_trusted():
    """Polynomials are used only on grids as fine as the functions ask for."""
    unit = line(2)
    for scale in torch.logspace(-6, -2, 400, dtype=torch.double).tolist():
        search = BoxSearch(unit, scale * unit[1], is_analytic=True, effort=1.0)
        assert (search.plan.radius == 0) == (1.0 + 8.0 / scale > 8191), scale


def depth_by_the_line(ranked, values, theta):
    """How far one goes down from each local maximum to a higher one, on a line."""
    theta = theta.squeeze(-1)
    depth = torch.full_like(ranked.value, torch.inf)
    for k in range(depth.shape[-1]):
        for j in range(k):
            low, high = ranked.theta[..., [j, k], 0].sort(dim=-1).values.split(1, -1)
            between = (theta >= low) & (theta <= high)
            lowest = torch.where(between, values, torch.inf).amin(dim=-1)
            fall = ranked.value[..., k] - lowest
            depth[..., k] = torch.minimum(depth[..., k], fall)
    return depth


def test_runners_up_are_local_maxima():
    """Against the local maxima on a dense line."""
    domain = unit_domain(1, 1)
    theta = line(8001)
    right, deep = [], []
    for seed in range(6):
        samples, _ = random_samples(2, seed)
        x = domain.x.sample(8, seed=seed)
        ranked, depth = WorstCaseSolver(samples, domain).local_worst_cases(x, 3)
        assert (ranked.value[..., :-1] >= ranked.value[..., 1:]).all()
        values = values_at(samples, domain.join(x.unsqueeze(-2), theta))
        deep.append(depth_by_the_line(ranked, values, theta) - depth)
        padded = torch.nn.functional.pad(values, (1, 1), value=-torch.inf)
        middle = padded[..., 1:-1]
        highest = (middle >= padded[..., :-2]) & (middle >= padded[..., 2:])
        expected = torch.where(highest, middle, -torch.inf).topk(3, dim=-1).values
        same = (ranked.value - expected).abs() < 1e-5
        right.append((same | (ranked.value == expected)).all(dim=-1).flatten())
        found = ranked.value.isfinite()
        values = values_at(samples, domain.join(x.unsqueeze(-2), ranked.theta))
        torch.testing.assert_close(values[found], ranked.value[found])
    # The rest are maxima so close to an end that the grid does not separate them.
    assert torch.cat(right).double().mean() > 0.95
    # The grid is never at the very bottom of a valley.
    too_flat = torch.cat(deep)[..., 1:].flatten()
    too_flat = too_flat[too_flat.isfinite()]
    assert len(too_flat) > 100
    assert too_flat.min() > -1e-5
    assert too_flat.max() < 0.02


@pytest.mark.parametrize(("nu", "seed"), [(None, 1), (None, 5), (None, 11), (2.5, 8)])
def test_runners_up_of_two_thetas_are_stationary(nu, seed):
    """The highest point of the grid is none of them, unless it is a maximum."""
    domain = unit_domain(1, 2)
    samples, _ = random_samples(3, seed, nu)
    solver = WorstCaseSolver(samples, domain)
    x = domain.x.sample(64, seed=seed)
    ranked, _ = solver.local_worst_cases(x, 2)
    points = domain.join(x.unsqueeze(-2), ranked.theta).flatten(-3, -2)
    points.requires_grad_()
    (slope,) = torch.autograd.grad(samples(points).sum(), points)
    slope = slope[..., 1:].unflatten(-2, (64, 2))
    at_end = ((ranked.theta <= 1e-9) & (slope <= 0)) | (
        (ranked.theta >= 1.0 - 1e-9) & (slope >= 0)
    )
    steepest = torch.where(at_end, 0.0, slope.abs()).amax(dim=-1)[..., 1]
    tied = ranked.value[..., 0] - ranked.value[..., 1] < 0.05
    assert tied.sum() > 20
    assert steepest[tied].max() < 0.05


@pytest.mark.parametrize("nu", [None, 2.5])
def test_gradient_of_the_depth(nu):
    """Against central differences, where the valley's lowest node stays the same."""
    domain = unit_domain(2, 1)
    samples, _ = random_samples(3, 5, nu)
    solver = WorstCaseSolver(samples, domain)
    x = (0.1 + 0.8 * domain.x.sample(16, seed=0)).requires_grad_()
    middle, depth = solver.local_worst_cases(x, 3)
    valley = solver._rank(x.detach(), 3)[-1]
    # The function at the lowest point is that much below the maximum.
    lowest = values_at(samples, domain.join(x.unsqueeze(-2), valley))
    value, depth = middle.value[..., 1:], depth[..., 1:]
    there = (depth > 0.0) & value.isfinite()
    torch.testing.assert_close((value - lowest)[there], depth[there])
    step, slopes = 1e-6, []
    for move in step * torch.eye(2, dtype=torch.double):
        depths = []
        for at in (x.detach() + move, x.detach() - move):
            side, other = solver.local_worst_cases(at, 3)
            depths.append(other[..., 1:])
            there &= (solver._rank(at, 3)[-1] == valley).all(dim=-1)
            there &= ((side.theta - middle.theta)[..., 1:, :].abs() < 1e-3).all(dim=-1)
        slopes.append((depths[0] - depths[1]) / (2.0 * step))
    expected = torch.stack(slopes, dim=-1)
    assert (there.sum(dim=(0, 1)) > 20).all()
    for c, k in itertools.product(range(len(depth)), range(2)):
        (ours,) = torch.autograd.grad(depth[c, :, k].sum(), x, retain_graph=True)
        mask = there[c, :, k]
        torch.testing.assert_close(
            ours[mask], expected[c, :, k][mask], rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("nu", [None, 2.5])
def test_more_runners_up_than_the_grid_has_points(nu):
    samples, _ = random_samples(7, 1, nu)
    domain = unit_domain(6, 1)
    x = domain.x.sample(5, seed=0)
    few, _ = WorstCaseSolver(samples, domain).local_worst_cases(x, 2)
    many, _ = WorstCaseSolver(samples, domain).local_worst_cases(x, 30)
    assert many.theta.shape == (8, 5, 30, 1)
    torch.testing.assert_close(many.value[..., :2], few.value)
    assert many.value[..., -1].isneginf().all()
    found = many.value.isfinite()
    values = values_at(samples, domain.join(x.unsqueeze(-2), many.theta))
    torch.testing.assert_close(many.value[found], values[found])


def test_runners_up_of_a_finite_set():
    samples, _ = random_samples(2, 0)
    thetas = torch.tensor([[0.1], [0.9]], dtype=torch.double)
    domain = unit_domain(1, 1, theta_choices=thetas)
    x = domain.x.sample(5, seed=0).requires_grad_()
    ranked, _ = WorstCaseSolver(samples, domain).local_worst_cases(x, 3)
    values = values_at(samples, domain.join(x.unsqueeze(-2), thetas))
    expected = values.sort(dim=-1, descending=True).values
    torch.testing.assert_close(ranked.value[..., :2], expected)
    assert ranked.value[..., 2].isneginf().all()
    ours = torch.autograd.grad(ranked.value[..., :2].sum(dim=(0, 1))[1], x)[0]
    theirs = torch.autograd.grad(expected.sum(dim=(0, 1))[1], x)[0]
    torch.testing.assert_close(ours, theirs)


def test_branches_in_rows_of_theta():
    """The highest branch is the worst case, whether it is known before or not."""
    samples = mixed_samples(ALL_KINDS, "product", 3, 8)
    solver = WorstCaseSolver(samples, ALL_KINDS)
    x = ALL_KINDS.x.sample(5, seed=1).expand(8, 5, -1)
    theta, value = solver(x)
    for known in (None, theta.unsqueeze(-2)):
        branches = solver.branches(x, 6, known)
        highest = branches.value.max(dim=-1)
        torch.testing.assert_close(highest.values, value, rtol=0.0, atol=1e-3)
        index = highest.indices[..., None, None]
        found = branches.theta.take_along_dim(index, dim=-2).squeeze(-2)
        torch.testing.assert_close(found, theta, rtol=0.0, atol=0.05)
        rows = ALL_KINDS.theta.distances_to_rows(branches.theta).amin(dim=-1)
        assert rows.max() == 0.0


def test_a_bound_keeps_no_tables(monkeypatch):
    """Only the largest values: the tables of all chunks may not fit into memory."""
    samples, _ = random_samples(2, 0)
    thetas = torch.linspace(0.0, 1.0, 50, dtype=torch.double).unsqueeze(-1)
    solver = WorstCaseSolver(samples, unit_domain(1, 1, theta_choices=thetas))
    x = solver.domain.x.sample(40, seed=0)
    expected = solver.table(x).amax(dim=-1)
    make_table, tables = solver.table, []

    def table(part):
        assert sum(own() is not None for own in tables) == 0
        values = make_table(part)
        tables.append(weakref.ref(values))
        return values

    solver.table = table
    monkeypatch.setattr(memory, "MAX_ELEMENTS", 10 * samples.num_samples * 50)
    torch.testing.assert_close(solver.lower_bound(x), expected)
    assert len(tables) == 4
