"""Acquisition functions on domains with both listed and free columns."""

import pytest
import torch
from botorch.acquisition.acquisition import AcquisitionFunction

from botorch_res import RobustDomain, StableOpt, qRobustEntropySearch
from botorch_res.optim import (
    gen_robust_initial_conditions,
    optimize_replicates,
    optimize_robust_acqf,
)
from botorch_res.optim.acquisition.multistart import starts_per_restart
from botorch_res.optim.acquisition.starts import add_optima
from tests.brute_force import stencil, unit_grid
from tests.mixed_problems import (
    ALL_KINDS,
    LISTED_THETA,
    NAMES,
    mixed_model,
    unit_bounds,
)
from tests.operation_count import OperationCount
from tests.problems import DOUBLE, Draws, line, unit_domain

FREE, LISTED = [0, 2], [1, 3]
# Names and numbers that are set, any number that is not.
NAME_AND_NUMBER = RobustDomain(unit_bounds(3, (0,)), [2], {0: NAMES}, cat_dims=[0])


def make_domain(num_x: int, num_theta: int) -> RobustDomain:
    """Columns: a free and a listed x, a free and a listed theta."""
    bounds = line(2).repeat(1, 4)
    bounds[1, LISTED] = torch.tensor([num_x - 0.5, num_theta - 0.5], **DOUBLE)
    return RobustDomain(
        bounds,
        [2, 3],
        {1: torch.arange(num_x, **DOUBLE)},
        {3: torch.arange(num_theta, **DOUBLE)},
    )


class RowFunction(AcquisitionFunction):
    """Waves in the free columns, with amplitudes of their own in each row.

    Half of the variance is common to all rows, the rest is that of rows of x, rows of
    theta, and pairs of them.
    """

    def __init__(self, num_x: int, num_theta: int, seeds: list[int]) -> None:
        super().__init__(model=None)
        waves, phases, amplitudes = [], [], []
        for seed in seeds:
            draws = Draws(seed)
            waves.append(draws.normal(2, 48) / 0.35)
            phases.append(6.3 * draws.uniform(48))
            common = draws.normal(1, 1, 48) * 3**0.5
            own = draws.normal(num_x, 1, 48) + draws.normal(1, num_theta, 48)
            amplitudes.append(common + own + draws.normal(num_x, num_theta, 48))
        self.waves, self.phases = torch.stack(waves), torch.stack(phases)
        self.amplitudes = torch.stack(amplitudes)
        self.largest = 0

    def values(self, z):
        """Values at ``n x S x d`` points."""
        self.largest = max(self.largest, len(z))
        row, column = z[..., LISTED].long().unbind(-1)
        amplitude = self.amplitudes[torch.arange(len(self.waves)), row, column]
        angle = torch.einsum("nsd,sdm->nsm", z[..., FREE], self.waves) + self.phases
        return (angle.cos() * amplitude).sum(-1)

    def forward(self, X):
        z = X.squeeze(-2)
        return self.values(z) if X.ndim == 4 else self.values(z.unsqueeze(1))[:, 0]

    @torch.no_grad()
    def best(self):
        """The maximum of the first member, by grids; and the range of its values."""
        points = unit_grid([101, 101], self.waves)
        waves, phases = self.waves[0], self.phases[0]
        amplitudes = self.amplitudes[0].flatten(0, 1)
        table = (points @ waves + phases).cos() @ amplitudes.mT
        index = table.flatten().topk(300).indices
        points = points[index // len(amplitudes)]
        amplitudes = amplitudes[index % len(amplitudes)].unsqueeze(1)
        pattern = stencil(2, 2, points) / 100.0
        for zoom in range(12):
            trial = (points.unsqueeze(1) + 0.6**zoom * pattern).clamp(0.0, 1.0)
            values = ((trial @ waves + phases).cos() * amplitudes).sum(-1)
            points = trial[torch.arange(len(trial)), values.argmax(-1)]
        return values.max(), table.max() - table.min()


@pytest.mark.parametrize(
    ("num_x", "num_theta", "rate"), [(4, 3, 0.98), (12, 12, 0.97), (1, 12, 0.97)]
)
def test_maximum_of_random_functions(num_x, num_theta, rate):
    domain, found = make_domain(num_x, num_theta), []
    for seed in range(100):
        function = RowFunction(num_x, num_theta, [seed])
        best, spread = function.best()
        z, value = optimize_robust_acqf(function, domain, seed=seed)
        x, theta = domain.split(z)
        assert domain.x.contains(x).all()
        assert domain.theta.contains(theta).all()
        assert function(z.unsqueeze(1)).item() == pytest.approx(value.item())
        assert value <= best + 1e-6 * spread
        found.append(value >= best - 1e-3 * spread)
    assert torch.stack(found).double().mean() >= rate


def all_points(domain: RobustDomain, n: int):
    """Each row of x and theta with a grid of the free columns."""
    x, theta = (
        part.combine(
            torch.lerp(*part.free_bounds, unit_grid([n] * len(part.free), part.bounds)),
            part.rows.unsqueeze(1),
        ).reshape(-1, part.dim)
        for part in (domain.x, domain.theta)
    )
    return domain.join(x.unsqueeze(1), theta).flatten(0, 1)


@pytest.mark.parametrize("domain", [NAME_AND_NUMBER, LISTED_THETA, ALL_KINDS])
@pytest.mark.parametrize("kind", ["product", "sum and product"])
@pytest.mark.parametrize("name", ["entropy search", "StableOpt"])
def test_real_acquisition_functions(domain, kind, name):
    model = mixed_model(domain, kind, seed=4, t=10, noise=1e-2)
    if name == "StableOpt":
        acqf = StableOpt(model, domain, maximize=False)
    else:
        acqf = qRobustEntropySearch(model, domain, 4, maximize=False, seed=0)
    points = all_points(domain, 9 if domain.dim == 5 else 30)
    with torch.no_grad():
        values = torch.cat([acqf(part.unsqueeze(1)) for part in points.split(2000)])
    z, value = optimize_robust_acqf(acqf, domain, seed=0)
    assert domain.x.contains(domain.split(z)[0]).all()
    assert value >= values.max() - 1e-3 * (values.max() - values.min())


def test_replicates_take_the_steps_of_single_functions():
    domain, seeds = make_domain(4, 3), [0, 1, 2]
    batch = RowFunction(4, 3, seeds)
    z, values = optimize_replicates(batch, domain, seeds)
    for seed in seeds:
        alone = optimize_robust_acqf(RowFunction(4, 3, [seed]), domain, seed=seed)
        torch.testing.assert_close(z[seed : seed + 1], alone[0], rtol=0.0, atol=1e-9)
        torch.testing.assert_close(values[seed], alone[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("num_theta", [1, 3])
def test_rows_of_theta_are_compared_at_one_setting(num_theta):
    """With what is evaluated once for each setting, the steps are the same."""
    domain, seeds, sizes = make_domain(4, num_theta), [0, 1, 2], set()

    class Shared(RowFunction):
        def at_one_setting(self, X):
            x = X[..., [0, 1]]
            assert torch.equal(x, x[..., :1, :].expand_as(x))
            sizes.add(X.shape[-2])
            return torch.stack([self(z) for z in X.split(1, dim=-2)], dim=-1)

    def replicate(kind):
        return optimize_replicates(kind(4, num_theta, seeds), domain, seeds)

    def optimize(kind):
        return optimize_robust_acqf(kind(4, num_theta, [0]), domain, seed=0)

    for search in (replicate, optimize):
        for one, other in zip(search(Shared), search(RowFunction), strict=True):
            assert torch.equal(one, other)
    assert sizes == ({num_theta} if num_theta > 1 else set())


def test_many_rows_are_compared_in_chunks():
    """Not all pairs of 50 and 50 rows, and no loop over rows."""
    counts = []
    for num in (5, 50):
        domain, function = make_domain(num, num), RowFunction(num, num, [0])
        with OperationCount() as counter:
            optimize_robust_acqf(function, domain, seed=0)
        counts.append(counter.count)
        # Eight times eight starts with about 64 pairs of rows; less in the ascent.
        assert function.largest == {5: 64 * 25, 50: 64 * 50}[num]
        _, value = optimize_robust_acqf(function, domain, seed=0, batch_limit=2000)
        best, spread = function.best()
        assert value > best - 0.1 * spread
    # Random numbers of the starts are drawn one after the other.
    assert counts[1] <= 1.05 * counts[0]
    function = RowFunction(50, 50, [0])
    optimize_robust_acqf(function, domain, seed=0, batch_limit=200)
    assert function.largest == 200


class TestStarts:
    def test_optima_and_their_neighbours(self):
        domain = ALL_KINDS
        filling, optima = domain.sample(64, seed=0), domain.sample(3, seed=1)
        raw = add_optima(filling, optima, domain)
        x, theta = domain.split(raw)
        assert domain.x.contains(x).all()
        assert domain.theta.contains(theta).all()
        assert torch.equal(raw[:3], optima)
        assert torch.equal(raw[16:], filling[16:])
        near, base = raw[3:16], optima[torch.arange(3, 16) % 3]
        listed = domain.is_listed
        assert listed.tolist() == [False, True, True, True, False]
        # Every other point keeps the rows of an optimum, the others have their own.
        own = filling[3:16]
        keeps = torch.arange(3, 16) % 2 == 0
        expected = torch.where(keeps.unsqueeze(-1), base, own)
        assert torch.equal(near[:, listed], expected[:, listed])
        assert not (near == base)[:, ~listed].any()

    def test_in_botorch(self):
        function, domain = RowFunction(4, 3, [0]), make_domain(4, 3)
        starts = gen_robust_initial_conditions(
            function,
            domain.bounds,
            q=1,
            num_restarts=6,
            raw_samples=64,
            options={"seed": 0},
            domain=domain,
        )
        assert starts.shape == (6, 1, 4)
        x, theta = domain.split(starts)
        assert domain.x.contains(x).all()
        assert domain.theta.contains(theta).all()
        assert len(starts[..., LISTED].flatten(0, 1).unique(dim=0)) > 2


def test_a_tolerance_beside_a_list():
    """The search is over what comes out: a box widened by the tolerance, and a list."""
    bounds = line(2).repeat(1, 2)
    domain = RobustDomain(bounds, x_choices={1: [0.0, 0.4, 1.0]}, tolerances={0: 0.2})

    class Bowl(RowFunction):
        def forward(self, X):
            z = X.squeeze(-2)
            return -(z - z.new_tensor([1.15, 0.5])).square().sum(-1)

    z, value = optimize_robust_acqf(Bowl(1, 1, [0]), domain, seed=0)
    torch.testing.assert_close(z, z.new_tensor([[1.15, 0.4]]), rtol=0.0, atol=1e-6)
    assert value == pytest.approx(-0.01, abs=1e-10)


def test_is_listed():
    assert not unit_domain(2, 1).is_listed.any()
    assert unit_domain(1, 1, x_choices=line(3)).is_listed.tolist() == [True, False]


@pytest.mark.parametrize(
    ("x", "theta", "factor"),
    [
        ({}, {}, 1),
        ({0: [0.0, 0.3, 1.0]}, {}, 3),
        ({0: [0.0, 1.0]}, {2: [0.0, 1.0]}, 4),
        ({0: [0.0, 0.3, 1.0]}, {2: [0.0, 1.0]}, 6),
        ({0: [0.0, 0.3, 1.0]}, {2: [0.0, 0.5, 1.0]}, 8),
        ({}, {2: [0.0, 0.3, 1.0]}, 1),
        ({0: [0.0, 0.3, 1.0], 1: [0.5, 1.0]}, {2: [0.0, 1.0]}, 1),
    ],
)
def test_more_starts_for_rows_of_x(x, theta, factor):
    """Rows of theta alone, and finite sets, need no more starts."""
    domain = RobustDomain(line(2).repeat(1, 4), [2, 3], x or None, theta or None)
    assert starts_per_restart(domain) == factor
