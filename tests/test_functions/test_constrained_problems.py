"""The problems with constraints, written anew with NumPy and solved by proof."""

import numpy as np
import pytest
import torch
from botorch.utils.testing import (
    BaseTestProblemTestCaseMixIn,
    BotorchTestCase,
    ConstrainedTestProblemTestCaseMixin,
)
from branch_and_bound import proves_lower_bound
from numpy.polynomial.polynomial import polyder, polyval2d
from test_synthetic import COEFFICIENTS

from botorch_res.optim import constrained_robust_optimum
from botorch_res.test_functions import (
    Cantilever,
    ConstrainedPolynomial,
    RobustIslands,
    SwingingObstacle,
    WeldedBeam,
)

MOVES = [(0.0, 0.0)] + [
    (0.5 * np.cos(a), 0.5 * np.sin(a)) for a in 2 * np.pi * np.arange(5) / 5
]
TARGETS = np.array([(0.2, 0.3), (0.3, 0.7), (0.8, 0.6), (0.7, 0.2), (0.5, 0.5)])
OBSTACLES = np.array([(0.1, 0.1), (0.1, 0.9), (0.55, 0.5), (0.9, 0.9), (0.9, 0.1)])


def polynomial(z1, z2):
    value = polyval2d(z1, z2, COEFFICIENTS)
    return value, [1.2**2 - (z1 - 1.3) ** 2 - (z2 - 1.6) ** 2]


def welded_beam(h, length, load, arm):
    cost = 1.10471 * h**2 * length + 0.09622 * (14 + length) + load * arm / 1e6
    across = ((h + 8) / 2) ** 2
    reach = np.sqrt((length / 2) ** 2 + across)
    polar = 2 * np.sqrt(2) * h * length * (length**2 / 12 + across)
    shear = load / (np.sqrt(2) * h * length)
    torsion = load * (arm + length / 2) * reach / polar
    angle = length / (2 * reach)
    stress = np.sqrt(shear**2 + 2 * shear * torsion * angle + torsion**2)
    return cost, [1 - stress / 13600]


def cantilever(width, thickness, across, down):
    modulus, reach = 2.9e7, 100
    stress = 600 * down / (width * thickness**2) + 600 * across / (width**2 * thickness)
    sag = np.sqrt((down / thickness**2) ** 2 + (across / width**2) ** 2)
    sag = 4 * reach**3 / (modulus * width * thickness) * sag
    return width * thickness + sag, [1 - stress / 40000, 1 - sag / 2.2535]


def islands(x, theta):
    value = 3 * (x - 0.3) ** 2 + 0.4 * np.cos(6 * x + 2 * theta)
    return value, [np.cos(6 * np.pi * x + theta) - 0.2]


def obstacle(x1, x2, position):
    k = int(position)
    value, gap = (
        (x1 - places[k, 0]) ** 2 + (x2 - places[k, 1]) ** 2
        for places in (TARGETS, OBSTACLES)
    )
    return value, [gap - 0.15**2]


FORMULAS = {
    ConstrainedPolynomial: polynomial,
    WeldedBeam: welded_beam,
    Cantilever: cantilever,
    RobustIslands: islands,
    SwingingObstacle: obstacle,
}
PROBLEMS = tuple(FORMULAS)


def evaluate(kind, points):
    """Values ``n`` and slacks ``n x n_c`` of ``n x d`` points."""
    found = [FORMULAS[kind](*row) for row in points.numpy()]
    return tuple(torch.tensor(np.array(part)) for part in zip(*found, strict=True))


class TestProblems(
    BotorchTestCase, BaseTestProblemTestCaseMixIn, ConstrainedTestProblemTestCaseMixin
):
    functions = tuple(
        kind(negate=negate, noise_std=noise_std)
        for kind in PROBLEMS
        for negate, noise_std in ((False, None), (True, 0.1))
    )


@pytest.mark.parametrize("kind", PROBLEMS)
class TestDefinition:
    def test_formula(self, kind):
        problem = kind()
        z = problem.domain.sample(100, seed=0)
        value, slack = evaluate(kind, z)
        torch.testing.assert_close(problem(z), value)
        torch.testing.assert_close(problem.evaluate_slack(z), slack)
        assert problem.constraints == {
            1 + i: (0.0, None) for i in range(problem.num_constraints)
        }

    def test_worst_cases(self, kind):
        """Against all listed thetas, or a grid."""
        problem = kind()
        domain = problem.domain
        x = domain.x.sample(30, seed=1)
        thetas = domain.theta.choices
        if thetas is None:
            num = 4001 if domain.theta.dim == 1 else 21
            axes = [
                torch.linspace(*ends, num, dtype=torch.double)
                for ends in domain.theta.bounds.T.tolist()
            ]
            thetas = torch.cartesian_prod(*axes).reshape(-1, domain.theta.dim)
        z = domain.join(x.unsqueeze(-2), thetas)
        torch.testing.assert_close(
            problem.worst_case_value(x), problem(z).amax(-1), rtol=1e-6, atol=1e-6
        )
        slack = problem.evaluate_slack(z).amin(-2)
        found = problem.worst_case_slack(x)
        torch.testing.assert_close(found, slack, rtol=1e-6, atol=1e-6)
        batched = problem.worst_case_slack(x.view(2, 15, -1))
        torch.testing.assert_close(batched, found.view(2, 15, -1))
        assert torch.equal(kind(negate=True).worst_case_slack(x), found)

    def test_stored_optimum(self, kind):
        """It is attained, feasible, and found; without the constraint it is another."""
        problem = kind()
        x = problem.robust_setting
        value = float(problem.worst_case_value(x))
        assert problem.robust_optimal_value == pytest.approx(value, rel=1e-12)
        assert kind(negate=True).robust_optimal_value == pytest.approx(-value)
        assert float(evaluate(kind, problem.robust_optimizer.unsqueeze(0))[0]) == (
            pytest.approx(value, rel=1e-12)
        )
        assert abs(float(problem.worst_case_slack(x).min())) < 1e-12
        bounds = problem.domain.x.bounds.T.tolist()
        axes = [torch.linspace(*ends, 201, dtype=torch.double) for ends in bounds]
        grid = torch.cartesian_prod(*axes).reshape(-1, len(axes))
        values = problem.worst_case_value(grid)
        assert values.min() < value - 1e-3 * values.std()
        plain = grid[values.argmin()]
        assert problem.worst_case_slack(plain).min() < 0
        found = constrained_robust_optimum(
            problem,
            [
                lambda z, i=i: -problem.evaluate_slack(z)[..., i]
                for i in range(problem.num_constraints)
            ],
            problem.domain,
            num_steps=8,
        )
        assert found.is_feasible
        scale = float(values.std())
        assert float(found.value) == pytest.approx(value, abs=1e-4 * scale)


class TestOptima:
    """No feasible setting has a smaller worst case than the stored one.

    Boxes in which every setting violates a constraint are excluded.
    """

    @staticmethod
    def check(kind, bound, gap=1e-7, splits=14):
        problem = kind()
        claim, box = problem.robust_optimal_value, problem.domain.x.bounds
        assert proves_lower_bound(bound, box, claim - gap)
        assert not proves_lower_bound(bound, box, claim + gap, splits=splits)

    def test_polynomial(self):
        slopes = [polyder(COEFFICIENTS, axis=axis) for axis in (0, 1)]
        # No second derivative is larger in size than this.
        bends = np.array(
            [
                [polyval2d(3.7, 4.9, abs(polyder(s, axis=axis))) for axis in (0, 1)]
                for s in slopes
            ]
        )

        def bound(centres, half):
            values, nearest = [], []
            for move in MOVES:
                z = centres + move
                decline = sum(
                    abs(polyval2d(*z.T, s)) * h
                    for s, h in zip(slopes, half, strict=True)
                )
                values.append(polyval2d(*z.T, COEFFICIENTS) - decline)
                gaps = (abs(z - (1.3, 1.6)) - half).clip(0)
                nearest.append((gaps**2).sum(axis=-1))
            value = np.max(values, axis=0) - half @ bends @ half / 2
            return np.where(np.max(nearest, axis=0) > 1.2**2, np.inf, value)

        self.check(ConstrainedPolynomial, bound, gap=1e-5)

    def test_welded_beam(self):
        def bound(centres, half):
            low, high = (centres - half).T, (centres + half).T
            value = welded_beam(*low, 7000, 15)[0]
            # Each factor at the corner where it is smallest.
            (h, length), (thin, short) = high, low
            polar = h * (length**2 / 12 + ((h + 8) / 2) ** 2) * 2 * np.sqrt(2)
            shear = 7000 / (np.sqrt(2) * h * length)
            reach = np.sqrt((short / 2) ** 2 + ((thin + 8) / 2) ** 2)
            torsion = 7000 * (15 / length + 0.5) / polar
            mixed = shear * torsion * length * short / length
            stress = np.sqrt(shear**2 + mixed + (torsion * reach) ** 2)
            return np.where(stress > 13600, np.inf, value)

        self.check(WeldedBeam, bound, gap=1e-6)

    def test_cantilever(self):
        def bound(centres, half):
            low, high = (centres - half).T, (centres + half).T
            _, slacks = cantilever(*high, 700, 1200)
            sag = (1 - slacks[1]) * 2.2535
            value = low[0] * low[1] + sag
            return np.where(np.min(slacks, axis=0) < 0, np.inf, value)

        self.check(Cantilever, bound, gap=1e-5)

    def test_islands(self):
        thetas = np.array([-0.5, 0.0, 0.5])

        def bound(centres, half):
            value, (slack,) = islands(centres, thetas)
            lowest = value.max(axis=1) - (6 * 0.7 + 2.4) * half[0]
            # Fewer thetas than there are can only miss that a setting is not feasible.
            most = slack.min(axis=1) + 6 * np.pi * half[0]
            return np.where(most < 0, np.inf, lowest)

        self.check(RobustIslands, bound, gap=1e-8, splits=24)
        # Four intervals.
        x = torch.linspace(0, 1, 2001, dtype=torch.double).unsqueeze(-1)
        met = (RobustIslands().worst_case_slack(x) >= 0).flatten()
        assert int((met[1:] & ~met[:-1]).sum()) + int(met[0]) == 4

    def test_obstacle(self):
        def bound(centres, half):
            gaps = (abs(centres[:, None] - TARGETS) - half).clip(0)
            ways = abs(centres[:, None] - OBSTACLES) + half
            is_hit = ((ways**2).sum(axis=-1) < 0.15**2).any(axis=1)
            return np.where(is_hit, np.inf, (gaps**2).sum(axis=-1).max(axis=1))

        self.check(SwingingObstacle, bound, gap=1e-6)


def test_the_obstacle_is_in_the_way_in_one_position_only():
    problem = SwingingObstacle()
    line = torch.linspace(0, 1, 401, dtype=torch.double)
    grid = torch.cartesian_prod(line, line)
    best = grid[problem.worst_case_value(grid).argmin()]
    slack = problem.evaluate_slack(problem.domain.join(best, problem.theta_choices))
    assert (slack < 0).sum() == 1
