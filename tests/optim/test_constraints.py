"""Searches with fixed columns and linear constraints, against grids."""

import pytest
import torch
from botorch.acquisition.acquisition import AcquisitionFunction

from botorch_res import (
    RobustDomain,
    StableOpt,
    qRobustEntropySearch,
    recommend_robust_optimum,
)
from botorch_res.optim import optimize_replicates, optimize_robust_acqf, robust_optimum
from botorch_res.optim.acquisition.starts import add_optima
from tests.brute_force import stencil, unit_grid
from tests.problems import DOUBLE, Draws, line, make_model, standardized, unit_domain

MIXTURE = ([0, 1], [-1.0, -1.0], -1.0)  # x0 + x1 <= 1
ORDER = ([0, 1], [-1.0, 1.0], 0.0)  # x0 <= x1
CONSTRAINTS = {"mixture": [MIXTURE], "order": [ORDER], "both": [MIXTURE, ORDER]}
# In all a hundred and more, because the grids take most of the time.
NUM_FUNCTIONS = {"mixture": 34, "order": 34, "both": 34}
FAR = 1e6


class Waves(AcquisitionFunction):
    """A random smooth function of three columns."""

    def __init__(self, seed: int, dim: int = 3) -> None:
        super().__init__(model=None)
        draws = Draws(seed)
        self.waves, self.phases = draws.normal(dim, 40) / 0.5, 6.3 * draws.uniform(40)
        self.amplitudes = draws.normal(40) * 0.05**0.5

    def values(self, z):
        return (z @ self.waves + self.phases).cos() @ self.amplitudes

    def forward(self, X):
        return self.values(X.squeeze(-2))


def slack(z, constraints):
    """The least slack of all constraints at each point."""
    found = [
        z[..., indices] @ z.new_tensor(own) - rhs for indices, own, rhs in constraints
    ]
    return torch.stack(found).amin(dim=0)


def feasible_grid(constraints, n, dim=2):
    """A grid of the unit cube, cut, and the edges: the grid points scaled onto them."""
    grid = unit_grid([n] * dim, line(2))
    domain = RobustDomain(line(2).repeat(1, dim + 1), [dim])
    domain = domain.restricted(inequality_constraints=constraints)
    return torch.cat([grid[slack(grid, constraints) >= 0.0], domain.x.nearest(grid)])


def highest(function, points, constraints, top=12):
    """The largest value on feasible points, by patterns around the best."""
    z = points[function(points).topk(top).indices]
    pattern = stencil(2, z.shape[-1], z) / 30.0
    for zoom in range(16):
        trial = (z.unsqueeze(1) + 0.7**zoom * pattern).clamp(0.0, 1.0)
        value = function(trial) - FAR * (slack(trial, constraints) < -1e-12)
        z = trial[torch.arange(len(z)), value.argmax(-1)]
    return function(z).max()


def problems(n, share=1.0):
    """Random functions with each set of constraints, and a grid of feasible ``x``."""
    for name, count in NUM_FUNCTIONS.items():
        constraints = CONSTRAINTS[name]
        grid = feasible_grid(constraints, n)
        seeds = range(round(share * count))
        yield from ((seed, constraints, grid) for seed in seeds)


def test_acquisition_functions():
    domain = unit_domain(2, 1)
    found, on_edge = [], []
    for seed, constraints, x in problems(21):
        z = domain.join(x.unsqueeze(1), line(21)).flatten(0, 1)
        function = Waves(seed)
        values = function.values(z)
        best = highest(function.values, z, constraints, top=40)
        candidate, value = optimize_robust_acqf(
            function, domain, inequality_constraints=constraints, seed=seed
        )
        assert slack(candidate, constraints) >= -1e-8
        assert ((candidate >= 0) & (candidate <= 1)).all()
        assert value == pytest.approx(function.values(candidate).item(), abs=1e-9)
        assert value <= best + 1e-4
        found.append(value >= best - 1e-3 * (values.max() - values.min()))
        on_edge.append(slack(candidate, constraints) < 1e-6)
    assert torch.stack(found).double().mean() >= 0.98
    assert torch.stack(on_edge).double().mean() > 0.25


@pytest.mark.parametrize("width", [2e-2, 2e-3])
def test_thin_strips(width):
    """Against a grid along and across the strip."""
    strip = [([0, 1], [1.0, 1.0], 0.7 - width), (*MIXTURE[:2], -0.7)]
    base = unit_domain(2, 1)
    domain = base.restricted(inequality_constraints=strip)
    t, s = unit_grid([201, 5], line(2)).unbind(-1)
    x = torch.stack([0.7 * t, 0.7 * (1.0 - t) - width * s], dim=-1)
    z = domain.join(x[(x >= 0.0).all(-1)].unsqueeze(1), line(51))
    for seed in range(12):
        function = Waves(seed)
        table = function.values(z)
        accuracy = 1e-3 * (table.max() - table.min())
        candidate, value = optimize_robust_acqf(function, domain, seed=seed)
        assert slack(candidate, strip) >= -1e-8
        assert value >= table.max() - accuracy
        if seed < 6:
            optimum = robust_optimum(function.values, domain)
            assert slack(optimum.x, strip) >= -1e-8
            assert optimum.value <= table.amax(-1).amin() + accuracy


def test_robust_optima():
    thetas = line(81)
    misses, on_edge = 0, 0
    for seed, constraints, x in problems(31, 0.6):
        domain = unit_domain(2, 1).restricted(inequality_constraints=constraints)
        function = Waves(seed)

        def best_case(x, function=function, domain=domain):
            z = domain.join(x.unsqueeze(-2), thetas)
            return -function.values(z).amax(-1)

        optimum = robust_optimum(function.values, domain)
        best = -highest(best_case, x, constraints)
        margin = slack(optimum.x, constraints)
        assert margin >= -1e-8
        misses += int(abs(optimum.value - best) > 1e-3)
        on_edge += int(margin < 1e-6)
    assert misses <= 1
    assert on_edge >= 18


def test_robust_optima_in_three_columns():
    """A mixture of three parts; the best one lies on a face, on an edge or inside."""
    mixture = ([0, 1, 2], [-1.0] * 3, -1.0)
    domain = unit_domain(3, 1).restricted(inequality_constraints=[mixture, ORDER])
    draws = Draws(3)
    for _ in range(20):
        target = 1.2 * draws.uniform(3)

        def bowl(z, target=target):
            return (z[..., :3] - target).square().sum(-1) - z[..., 3].square()

        x = robust_optimum(bowl, domain).x
        assert slack(x, [mixture, ORDER]) >= -1e-8
        grid = feasible_grid([mixture, ORDER], 21, 3)
        value = highest(
            lambda x, target=target: -(x - target).square().sum(-1),
            grid,
            [mixture, ORDER],
        )
        assert (x - target).square().sum() <= -value + 1e-3


def test_listed_and_free_columns():
    """A constraint between a listed and a free column has a limit in each row."""
    base = unit_domain(2, 1, x_choices={1: [0.1, 0.35, 0.8]})
    constraints = [ORDER]
    domain = base.restricted(inequality_constraints=constraints)
    told = torch.tensor([[0.3, 0.35]], **DOUBLE)
    misses = 0
    for seed in range(30):
        function = Waves(seed)
        tables = []
        for row in (0.1, 0.35, 0.8):
            x = torch.cat([line(401, 0.0, row), torch.full((401, 1), row)], dim=-1)
            z = domain.join(x.double().unsqueeze(1), line(201))
            tables.append(function.values(z))
        table = torch.cat(tables)
        optimum = robust_optimum(function.values, domain, initial_x=told)
        assert domain.x.contains(optimum.x)
        assert slack(optimum.x, constraints) >= -1e-8
        misses += int(abs(optimum.value - table.amax(-1).amin()) > 1e-3)
        z, value = optimize_robust_acqf(function, domain, seed=seed)
        assert slack(z, constraints) >= -1e-8
        assert domain.x.contains(domain.split(z)[0])
        misses += int(value < table.max() - 1e-3)
    assert misses <= 1


def test_many_columns():
    """Candidates of a mixture of six parts, by a Sobol sequence."""
    shares = (list(range(6)), [-1.0] * 6, -1.0)
    domain = unit_domain(6, 1).restricted({5: 0.1}, [shares])
    target = torch.tensor([0.3, 0.5, 0.3, -0.1, 0.0, 0.9], **DOUBLE)

    def bowl(z):
        return (z[..., :6] - target).square().sum(-1) + z[..., 6]

    optimum = robust_optimum(bowl, domain)
    # 0.2 less altogether in the first three columns.
    expected = torch.tensor([0.7 / 3, 1.3 / 3, 0.7 / 3, 0.0, 0.0, 0.1], **DOUBLE)
    torch.testing.assert_close(optimum.x, expected, rtol=0.0, atol=1e-4)


@pytest.mark.parametrize("maximize", [False, True])
def test_fixed_columns(maximize):
    """The search in the others is that of a function of fewer columns."""
    base = unit_domain(2, 2)
    fixed = {0: 0.3, 3: 0.9}
    domain = base.restricted(fixed)
    for seed in range(10):
        function = Waves(seed, 4)
        sign = -1.0 if maximize else 1.0
        rest = unit_grid([1001, 201], line(2))
        ends = torch.tensor([0.3, 0.9], **DOUBLE).expand(len(rest), -1)
        z = torch.cat([ends[:, :1], rest, ends[:, 1:]], dim=-1)
        table = sign * function.values(z).view(1001, 201)
        if maximize:
            function.amplitudes = -function.amplitudes
        optimum = robust_optimum(function.values, domain)
        assert optimum.x[0] == 0.3
        assert optimum.theta[1] == 0.9
        assert optimum.value == pytest.approx(table.amax(1).amin().item(), abs=2e-3)
        candidate, value = optimize_robust_acqf(
            function, base, fixed_features=fixed, seed=seed
        )
        assert candidate[0, [0, 3]].tolist() == [0.3, 0.9]
        assert value >= table.max() - 1e-3


class TestModels:
    def make_model(self):
        draws = Draws(5)
        X = draws.uniform(12, 3)
        return make_model(X, standardized(draws.normal(12, 1)), 1e-2)

    @pytest.mark.parametrize("maximize", [False, True])
    def test_recommendation(self, maximize):
        model, domain = self.make_model(), unit_domain(2, 1)
        restricted = {
            "fixed_features": {2: 0.4},
            "inequality_constraints": [MIXTURE, ORDER],
            "num_samples": 0,
        }
        best = recommend_robust_optimum(model, domain, maximize, **restricted)
        assert best.theta.tolist() == [0.4]
        assert slack(best.x, [MIXTURE, ORDER]) >= -1e-8
        x = feasible_grid([MIXTURE, ORDER], 61)
        z = torch.cat([x, torch.full_like(x[:, :1], 0.4)], dim=-1)
        with torch.no_grad():
            mean = model.posterior(z).mean.flatten()
        expected = (mean.max() if maximize else mean.min()).item()
        assert best.value == pytest.approx(expected, abs=2e-3)

    def test_acquisition_functions_of_a_restricted_domain(self):
        model = self.make_model()
        domain = unit_domain(2, 1).restricted(
            {2: 0.4}, inequality_constraints=[MIXTURE, ORDER]
        )
        acqf = qRobustEntropySearch(model, domain, 4, maximize=False, seed=0)
        optima = acqf.robust_optimizers
        assert slack(optima, [MIXTURE, ORDER]).min() >= -1e-8
        assert (optima[..., 2] == 0.4).all()
        candidate, value = optimize_robust_acqf(acqf, domain, seed=0)
        x = feasible_grid([MIXTURE, ORDER], 25)
        z = torch.cat([x, torch.full_like(x[:, :1], 0.4)], dim=-1)
        with torch.no_grad():
            assert value >= acqf(z.unsqueeze(1)).max() - 1e-3
        assert slack(candidate, [MIXTURE, ORDER]) >= -1e-8
        candidate, _ = StableOpt(model, domain, maximize=False).optimize()
        assert slack(candidate, [MIXTURE, ORDER]) >= -1e-8
        # A function of the whole domain, and optima that violate the constraints.
        whole = qRobustEntropySearch(model, unit_domain(2, 1), 4, seed=0)
        candidate, _ = optimize_robust_acqf(whole, domain, seed=0)
        assert slack(candidate, [MIXTURE, ORDER]) >= -1e-8
        assert candidate[0, 2] == 0.4

    def test_starts_satisfy_the_constraints(self):
        domain = unit_domain(2, 1).restricted({2: 0.4}, [MIXTURE])
        optima = unit_domain(2, 1).sample(6, seed=1)
        raw = add_optima(domain.sample(64, seed=0), optima, domain)
        assert slack(raw, [MIXTURE]).min() >= -1e-12
        assert (raw[:, 2] == 0.4).all()
        nearest = domain.nearest_evaluation(optima)
        torch.testing.assert_close(raw[:6], nearest, rtol=0.0, atol=1e-12)


def test_replicates_take_the_steps_of_single_functions():
    class Two(Waves):
        def forward(self, X):
            z = X.squeeze(-2)
            return self.values(z) * (z.new_tensor([1.0, -1.0]) if X.ndim == 4 else 1.0)

    domain = unit_domain(2, 1).restricted(inequality_constraints=[ORDER])
    z, values = optimize_replicates(Two(0), domain, [3, 4])
    alone = optimize_robust_acqf(Two(0), domain, seed=3)
    torch.testing.assert_close(z[:1], alone[0], rtol=0.0, atol=1e-8)
    torch.testing.assert_close(values[0], alone[1])
