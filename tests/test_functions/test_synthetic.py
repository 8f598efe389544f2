"""The closed-form problems, written anew with NumPy and solved by proof."""

import numpy as np
import pytest
import torch
from botorch.utils.testing import BaseTestProblemTestCaseMixIn, BotorchTestCase
from branch_and_bound import proves_lower_bound
from numpy.polynomial.polynomial import polyder, polyval2d
from scipy.optimize import brentq, fsolve

from botorch_res.test_functions import (
    RobustBranin,
    RobustEggholder,
    RobustHartmann3,
    RobustPolynomial,
    SinusLinear,
)

PROBLEMS = (
    RobustBranin,
    SinusLinear,
    RobustEggholder,
    RobustHartmann3,
    RobustPolynomial,
)


def branin(x, theta):
    ridge = theta - 5.1 * x**2 / (4 * np.pi**2) + 5 * x / np.pi - 6
    return ridge**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10


def sinus_linear(x, theta):
    return np.sin(5 * np.pi * (x + theta) ** 2) + 0.5 * (x + theta)


def eggholder(x, theta):
    wave = np.sin(np.sqrt(np.abs(theta + x / 2 + 47)))
    return -(theta + 47) * wave - x * np.sin(np.sqrt(np.abs(x - (theta + 47))))


def hartmann3(x1, x2, theta):
    heights = (1, 1.2, 3, 3.2)
    sharpness = ((3, 10, 30), (0.1, 10, 35), (3, 10, 30), (0.1, 10, 35))
    centres = (
        (3689, 1170, 2673),
        (4699, 4387, 7470),
        (1091, 8732, 5547),
        (381, 5743, 8828),
    )
    z, centres = (
        np.stack(np.broadcast_arrays(x1, x2, theta), axis=-1),
        np.array(centres) / 1e4,
    )
    return (
        np.exp(-((z[..., None, :] - centres) ** 2 * sharpness).sum(axis=-1)) @ heights
    )


# The coefficient of z1^i z2^j in row i, column j.
COEFFICIENTS = np.zeros((7, 7))
for i, j, coefficient in (
    *((6, 0, 2), (5, 0, -12.2), (4, 0, 21.2), (1, 0, 6.2), (3, 0, -6.4), (2, 0, -4.7)),
    *((0, 6, 1), (0, 5, -11), (0, 4, 43.3), (0, 1, -10), (0, 3, -74.8), (0, 2, 56.9)),
    *((1, 1, -4.1), (2, 2, -0.1), (1, 2, 0.4), (2, 1, 0.4)),
):
    COEFFICIENTS[i, j] = coefficient


def polynomial(x1, x2, radius, angle):
    z1, z2 = x1 + radius * np.cos(angle), x2 + radius * np.sin(angle)
    return polyval2d(z1, z2, COEFFICIENTS)


FORMULAS = dict(
    zip(
        PROBLEMS,
        (branin, sinus_linear, eggholder, hartmann3, polynomial),
        strict=True,
    )
)
THETAS = {
    RobustBranin: [(0.75 + 13.5 / 19 * k,) for k in range(20)],
    SinusLinear: [(0.05,), (0.1,)],
    RobustEggholder: [(-512,), (0,), (185,)],
    RobustHartmann3: [(0.25 + 0.05 * k,) for k in range(11)],
    RobustPolynomial: [(r, 0.4 * np.pi * k) for r in (0, 0.5) for k in range(6)],
}


def values_by_theta(kind, *x):
    return np.stack([FORMULAS[kind](*x, *theta) for theta in THETAS[kind]])


class TestProblems(BotorchTestCase, BaseTestProblemTestCaseMixIn):
    functions = tuple(
        kind(negate=negate, noise_std=noise_std)
        for kind in PROBLEMS
        for negate, noise_std in ((False, None), (True, 0.1))
    )


@pytest.mark.parametrize("kind", PROBLEMS)
class TestDefinition:
    def test_formula(self, kind):
        z = kind().domain.sample(200, seed=0)
        expected = torch.from_numpy(FORMULAS[kind](*z.numpy().T))
        torch.testing.assert_close(kind()(z), expected)
        # The rounding of an input may cost more than that of the value.
        torch.testing.assert_close(
            kind().to(dtype=torch.float)(z.float()),
            expected.float(),
            rtol=1e-4,
            atol=1e-4 * float(expected.std()),
        )

    def test_choices_of_theta(self, kind):
        np.testing.assert_allclose(
            kind().domain.theta.choices, THETAS[kind], rtol=1e-15, atol=1e-15
        )

    def test_worst_case_value(self, kind):
        problem = kind()
        x = problem.domain.x.sample(24, seed=1)
        expected = torch.from_numpy(values_by_theta(kind, *x.numpy().T).max(axis=0))
        torch.testing.assert_close(problem.worst_case_value(x), expected)
        batched = problem.worst_case_value(x.view(2, 3, 4, -1))
        torch.testing.assert_close(batched, expected.view(2, 3, 4))
        torch.testing.assert_close(kind(negate=True).worst_case_value(x), -expected)

    def test_gradient(self, kind):
        lower, upper = kind().bounds
        # Finite differences must not leave the bounds, which choices of theta are on.
        z = kind().domain.sample(20, seed=2).lerp((lower + upper) / 2, 0.1)
        z.requires_grad_()
        assert torch.autograd.gradcheck(kind(), (z,))

    def test_stored_optimum_is_attained(self, kind):
        problem = kind()
        x = problem.domain.split(problem.robust_optimizer)[0].numpy()
        value = values_by_theta(kind, *x).max()
        assert problem.robust_optimal_value == pytest.approx(value, rel=1e-13)
        at_optimizer = FORMULAS[kind](*problem.robust_optimizer.numpy())
        assert at_optimizer == pytest.approx(value, rel=1e-13)


class TestOptima:
    """No x has a smaller worst case than the stored one."""

    def test_branin(self):
        # The slope is at most 2 |ridge| |ridge'| + 10 (1 - t) on the domain.
        ridge, ridge_slope = 14.25 + 0.13 * 100 + 1.6 * 10 + 6, 2 * 0.13 * 10 + 1.6

        def bound(centres, half):
            worst = values_by_theta(RobustBranin, centres[:, 0]).max(axis=0)
            return worst - (2 * ridge * ridge_slope + 10) * half[0]

        claim = RobustBranin().robust_optimal_value
        assert proves_lower_bound(bound, [[-5], [10]], claim - 1e-9)
        assert not proves_lower_bound(bound, [[-5], [10]], claim + 1e-9)
        x = brentq(lambda x: branin(x, 0.75) - branin(x, 14.25), -2, 0, xtol=1e-14)
        assert RobustBranin().robust_optimizer[0] == pytest.approx(x, abs=1e-13)

    def test_sinus_linear(self):
        def bound(centres, half):
            worst = values_by_theta(SinusLinear, centres[:, 0]).max(axis=0)
            return worst - (10 * np.pi * 1.1 + 0.5) * half[0]

        claim = SinusLinear().robust_optimal_value
        assert proves_lower_bound(bound, [[0], [1]], claim - 1e-9)
        assert not proves_lower_bound(bound, [[0], [1]], claim + 1e-9)
        x = brentq(
            lambda x: sinus_linear(x, 0.05) - sinus_linear(x, 0.1),
            *(0.4, 0.5),
            xtol=1e-14,
        )
        assert SinusLinear().robust_optimizer[0] == pytest.approx(x, abs=1e-13)

    def test_eggholder(self):
        def change_of_wave(u, radius):
            # Of sin(sqrt|u|): it is 1/2-Hoelder, and away from 0 it has a slope.
            nearest = np.maximum(np.abs(u) - radius, 1e-300)
            return np.minimum(np.sqrt(radius), radius / (2 * np.sqrt(nearest)))

        def bound(centres, half):
            x, radius = centres[:, 0], half[0]
            by_theta = [
                eggholder(x, theta)
                - abs(theta + 47) * change_of_wave(theta + 47 + x / 2, radius / 2)
                - radius
                - 512 * change_of_wave(x - theta - 47, radius)
                for (theta,) in THETAS[RobustEggholder]
            ]
            return np.max(by_theta, axis=0)

        claim = RobustEggholder().robust_optimal_value
        assert proves_lower_bound(bound, [[-512], [512]], claim - 1e-5)
        assert not proves_lower_bound(bound, [[-512], [512]], claim + 1e-3, splits=25)

        def slope(x):
            u, v = 232 + x / 2, x - 232
            return (
                -232 * np.cos(np.sqrt(u)) / (4 * np.sqrt(u))
                - np.sin(np.sqrt(v))
                - x * np.cos(np.sqrt(v)) / (2 * np.sqrt(v))
            )

        x = brentq(slope, 234, 235, xtol=1e-13)
        assert RobustEggholder().robust_optimizer[0] == pytest.approx(x, abs=1e-11)

    def test_hartmann3(self):
        axis = np.arange(50) / 49
        x1, x2 = np.meshgrid(axis, axis, indexing="ij")
        worst = values_by_theta(RobustHartmann3, x1, x2).max(axis=0)
        problem = RobustHartmann3()
        np.testing.assert_allclose(
            problem.domain.x.choices, np.stack([x1, x2], -1).reshape(-1, 2), rtol=1e-15
        )
        assert problem.robust_optimal_value == pytest.approx(worst.min(), rel=1e-14)
        i, j = np.unravel_index(worst.argmin(), worst.shape)
        assert problem.robust_optimizer[:2].tolist() == [axis[i], axis[j]]

    def test_polynomial(self):
        slopes = [polyder(COEFFICIENTS, axis=axis) for axis in (0, 1)]
        # No second derivative is larger in size than this, for |z1| <= 3.7 and
        # |z2| <= 4.9.
        bends = np.array(
            [
                [polyval2d(3.7, 4.9, abs(polyder(s, axis=axis))) for axis in (0, 1)]
                for s in slopes
            ]
        )
        moves = {(r * np.cos(a), r * np.sin(a)) for r, a in THETAS[RobustPolynomial]}

        def bound(centres, half):
            by_theta = []
            for move in moves:
                z = (centres + move).T
                decline = sum(
                    abs(polyval2d(*z, s)) * h for s, h in zip(slopes, half, strict=True)
                )
                by_theta.append(polyval2d(*z, COEFFICIENTS) - decline)
            return np.max(by_theta, axis=0) - half @ bends @ half / 2

        problem = RobustPolynomial()
        claim, box = problem.robust_optimal_value, problem.domain.x.bounds
        assert proves_lower_bound(bound, box, claim - 1e-6)
        assert not proves_lower_bound(bound, box, claim + 1e-6, splits=30)

        def ties(x):
            first, second, third = (
                polynomial(*x, 0.5, 0.4 * np.pi * k) for k in (1, 2, 4)
            )
            return first - second, second - third

        x = fsolve(ties, (-0.2, 0.3), xtol=1e-13)
        np.testing.assert_allclose(problem.robust_optimizer[:2], x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", PROBLEMS)
def test_robust_optimum_is_not_the_plain_one(kind):
    x_bounds = kind().domain.x.bounds.numpy()
    num = 20001 if x_bounds.shape[1] == 1 else 200
    if kind is RobustHartmann3:
        num = 50
    axes = [np.linspace(low, high, num) for low, high in x_bounds.T]
    x = np.stack(np.meshgrid(*axes, indexing="ij")).reshape(len(axes), -1)
    values = values_by_theta(kind, *x)
    plain = values.min(axis=0).argmin()
    spread = values.max() - values.min()
    assert values[:, plain].max() > kind().robust_optimal_value + 0.03 * spread
