"""The problems with tolerances, written anew with NumPy and solved by proof."""

import numpy as np
import pytest
import torch
from botorch.exceptions.errors import InputDataError
from botorch.utils.testing import BaseTestProblemTestCaseMixIn, BotorchTestCase
from branch_and_bound import proves_lower_bound
from numpy.polynomial.polynomial import polyder, polyval2d
from scipy.optimize import brentq
from test_synthetic import COEFFICIENTS

from botorch_res.test_functions import (
    GaussianValleys,
    GrowingSines,
    PlateauWithCliff,
    RobustPolynomial,
    ShiftedSinusLinear,
    SinusLinear,
    TolerancePolynomial,
    ToleranceRosenbrock,
    ToleranceSinusLinear,
)

ROSENBROCK = np.zeros((5, 3))
for i, j, coefficient in (
    *((0, 0, 1), (1, 0, -2), (2, 0, 1)),
    *((0, 2, 100), (2, 1, -200), (4, 0, 100)),
):
    ROSENBROCK[i, j] = coefficient
DEPTHS, WIDTHS = np.array([1, 0.8, 0.6]), np.array([0.06, 0.12, 0.25])
CENTRES = np.array([[0.8, 0.75], [0.25, 0.75], [0.4, 0.25]])


def sinus_linear(z):
    return np.sin(5 * np.pi * z**2) + 0.5 * z


def cliff(z):
    return 0.5 * (1 - z) ** 2 + (1 + np.tanh((z - 0.8) / 0.04)) / 2


def sines(z):
    return np.sin(8 * np.pi * z**2) + 0.5 * np.sin(16 * np.pi * z**2 + 1) - z


def valleys(z1, z2):
    squares = (z1[..., None] - CENTRES[:, 0]) ** 2 + (
        z2[..., None] - CENTRES[:, 1]
    ) ** 2
    return -np.exp(-squares / (2 * WIDTHS**2)) @ DEPTHS


FORMULAS = {
    TolerancePolynomial: lambda z1, z2: polyval2d(z1, z2, COEFFICIENTS),
    ShiftedSinusLinear: sinus_linear,
    GaussianValleys: valleys,
    ToleranceRosenbrock: lambda z1, z2: polyval2d(z1, z2, ROSENBROCK),
    ToleranceSinusLinear: sinus_linear,
    PlateauWithCliff: lambda *z: np.mean([cliff(column) for column in z], axis=0),
    GrowingSines: lambda *z: np.mean([sines(column) for column in z], axis=0),
}
PROBLEMS = tuple(FORMULAS)


def disc(radius, num):
    angles = 2 * np.pi * np.arange(num) / num
    edge = radius * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    return np.concatenate([np.zeros((1, 2)), edge])


# The deviations: all of them, or a dense grid of the interval of each variable.
FINITE = {
    TolerancePolynomial: disc(0.5, 5),
    ShiftedSinusLinear: np.array([[0.05], [0.1]]),
    GaussianValleys: disc(0.15, 8),
}
RADII = {
    ToleranceRosenbrock: (0.2, 0.0),
    ToleranceSinusLinear: (0.05,),
    PlateauWithCliff: (0.2,) * 3,
    GrowingSines: (0.03,) * 4,
}
TERMS = {
    ToleranceSinusLinear: sinus_linear,
    PlateauWithCliff: cliff,
    GrowingSines: sines,
}


def worst_cases(kind, x, num=4001):
    """The worst cases of ``n x d`` settings by brute force."""
    if kind in FINITE:
        z = x[:, None] + FINITE[kind]
        return FORMULAS[kind](*np.moveaxis(z, -1, 0)).max(axis=1)
    steps = np.linspace(-1, 1, num)
    if kind in TERMS:
        z = x[..., None] + RADII[kind][0] * steps
        return TERMS[kind](z).max(axis=-1).mean(axis=-1)
    return FORMULAS[kind](x[:, :1] + 0.2 * steps, x[:, 1:] + 0 * steps).max(axis=1)


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

    def test_deviations(self, kind):
        theta = kind().domain.theta
        if kind in FINITE:
            np.testing.assert_allclose(theta.choices, FINITE[kind], atol=1e-15)
        else:
            radii = [radius for radius in RADII[kind] if radius]
            assert theta.choices is None
            assert theta.bounds.tolist() == [[-radius for radius in radii], radii]

    def test_worst_case_value(self, kind):
        problem = kind()
        x = problem.domain.x.sample(240, seed=1)
        expected = torch.from_numpy(worst_cases(kind, x.numpy()))
        worst = problem.worst_case_value(x)
        torch.testing.assert_close(worst[:24], expected[:24], rtol=1e-4, atol=1e-5)
        # The grid misses a peak by half a step: a lower bound that is nearly sharp.
        assert (worst - expected).min() > -1e-12 * expected.abs().max()
        assert (worst - expected).max() < 1e-4 * float(expected.std())
        batched = problem.worst_case_value(x.view(2, 3, 40, -1))
        torch.testing.assert_close(batched, worst.view(2, 3, 40))
        assert torch.equal(kind(negate=True).worst_case_value(x), -worst)

    def test_gradients(self, kind):
        problem = kind()
        lower, upper = problem.bounds
        z = problem.domain.sample(20, seed=2).lerp((lower + upper) / 2, 0.1)
        assert torch.autograd.gradcheck(problem, (z.requires_grad_(),))
        lower, upper = problem.domain.x.bounds
        x = problem.domain.x.sample(20, seed=3).lerp((lower + upper) / 2, 0.1)
        x.requires_grad_()
        assert torch.autograd.gradcheck(problem.worst_case_value, (x,))

    def test_stored_optimum_is_attained(self, kind):
        problem = kind()
        value = worst_cases(kind, problem.robust_setting.numpy()[None])
        assert problem.robust_optimal_value == pytest.approx(value, rel=1e-11)
        at_optimizer = FORMULAS[kind](*problem.robust_optimizer.numpy())
        assert at_optimizer == pytest.approx(value, rel=1e-11)

    def test_bounds_are_those_of_evaluations(self, kind):
        problem = kind()
        for dtype in (torch.double, torch.float):
            domain = problem.to(dtype=dtype).domain
            assert torch.equal(problem.bounds, domain.evaluations.bounds)
            corners = domain.join(domain.x.bounds, domain.theta.bounds)
            assert torch.equal(corners, problem.bounds)
            problem(corners)  # BoTorch tolerates no rounding
        with pytest.raises(ValueError, match="within the bounds"):
            problem(problem.bounds + 1e-3)


@pytest.mark.parametrize("kind", TERMS)
def test_any_number_of_variables(kind):
    problems = [kind(dim=dim) for dim in (1, 2, 5)]
    for problem in problems:
        assert problem.domain.dim == len(problem.robust_setting)
        assert float(problem.worst_case_value(problem.robust_setting)) == (
            pytest.approx(problem.robust_optimal_value, rel=1e-11)
        )
    x = problems[2].domain.x.sample(7, seed=0)
    each = problems[0].worst_case_value(x.unsqueeze(-1)).mean(dim=-1)
    torch.testing.assert_close(problems[2].worst_case_value(x), each)
    with pytest.raises(InputDataError, match="`dim`"):
        kind(dim=0)


@pytest.mark.parametrize(
    ("kind", "twin"),
    [(TolerancePolynomial, RobustPolynomial), (ShiftedSinusLinear, SinusLinear)],
)
def test_forms_of_the_same_problem(kind, twin):
    problem, twin = kind(), twin()
    assert problem.robust_optimal_value == twin.robust_optimal_value
    assert torch.equal(problem.robust_setting, twin.robust_setting)
    assert torch.equal(problem.domain.x.bounds, twin.domain.x.bounds)
    x = problem.domain.x.sample(100, seed=0)
    expected = twin.worst_case_value(x)
    torch.testing.assert_close(problem.worst_case_value(x), expected)


class TestOptima:
    """No setting has a smaller worst case than the stored one."""

    @pytest.mark.parametrize(
        ("kind", "slope"),
        [
            # Largest slopes of the terms, with z between -0.2 and 1.2.
            (ShiftedSinusLinear, 10 * np.pi * 1.1 + 0.5),
            (ToleranceSinusLinear, 10 * np.pi * 1.05 + 0.5),
            (PlateauWithCliff, 1.2 + 12.5),
            (GrowingSines, 2 * 16 * np.pi * 1.03 + 1),
        ],
    )
    def test_one_variable(self, kind, slope):
        radius = RADII.get(kind, (None,))[0]
        moves = FINITE.get(kind)
        if moves is None:
            # Fewer deviations make a lower bound.
            moves = radius * np.linspace(-1, 1, 5)[:, None]
        term = TERMS.get(kind, sinus_linear)

        def bound(centres, half):
            worst = term(centres + moves[:, 0]).max(axis=1)
            return worst - slope * half[0]

        problem = kind(**({"dim": 1} if kind in TERMS else {}))
        claim, box = problem.robust_optimal_value, problem.domain.x.bounds
        assert proves_lower_bound(bound, box, claim - 1e-9)
        assert not proves_lower_bound(bound, box, claim + 1e-9)
        # Two deviations tie there.
        low, high = moves[0, 0], moves[-1, 0]
        setting = float(problem.robust_setting)
        x = brentq(
            lambda x: term(x + low) - term(x + high),
            *(setting - 0.01, setting + 0.01),
            xtol=1e-14,
        )
        assert setting == pytest.approx(x, abs=1e-11)

    @pytest.mark.parametrize(
        ("kind", "coefficients", "moves", "largest"),
        [
            (TolerancePolynomial, COEFFICIENTS, disc(0.5, 5), (3.7, 4.9)),
            (
                ToleranceRosenbrock,
                ROSENBROCK,
                [(-0.2, 0), (0, 0), (0.2, 0)],
                (1.7, 1.5),
            ),
        ],
    )
    def test_polynomials(self, kind, coefficients, moves, largest):
        slopes = [polyder(coefficients, axis=axis) for axis in (0, 1)]
        # No second derivative is larger in size than this.
        bends = np.array(
            [
                [polyval2d(*largest, abs(polyder(s, axis=axis))) for axis in (0, 1)]
                for s in slopes
            ]
        )

        def bound(centres, half):
            by_move = []
            for move in moves:
                z = (centres + move).T
                decline = sum(
                    abs(polyval2d(*z, s)) * h for s, h in zip(slopes, half, strict=True)
                )
                by_move.append(polyval2d(*z, coefficients) - decline)
            return np.max(by_move, axis=0) - half @ bends @ half / 2

        problem = kind()
        claim, box = problem.robust_optimal_value, problem.domain.x.bounds
        assert proves_lower_bound(bound, box, claim - 1e-8)
        assert not proves_lower_bound(bound, box, claim + 1e-6, splits=16)

    def test_rosenbrock_by_hand(self):
        # Where the ends tie, x2 = x1^2 + 1/25 - (1 - x1) / (200 x1), and the worst case
        # is (1 - x1)^2 + 1/25 + ((1 - x1) / (20 x1))^2 + 16 x1^2.
        first = brentq(
            lambda x: -2 * (1 - x) + 32 * x - (1 - x) / (200 * x**3),
            *(0.1, 0.15),
            xtol=1e-15,
        )
        second = first**2 + 0.04 - (1 - first) / (200 * first)
        problem = ToleranceRosenbrock()
        np.testing.assert_allclose(
            problem.robust_setting, [first, second], rtol=0, atol=1e-12
        )

    def test_gaussian_valleys(self):
        # No second derivative in any direction is larger in size than this.
        bend = (DEPTHS / WIDTHS**2).sum()

        def bound(centres, half):
            by_move = []
            for move in disc(0.15, 8):
                offset = (centres + move)[:, None] - CENTRES
                terms = DEPTHS * np.exp(-(offset**2).sum(-1) / (2 * WIDTHS**2))
                slope = ((terms / WIDTHS**2)[..., None] * offset).sum(axis=1)
                by_move.append(-terms.sum(axis=-1) - abs(slope) @ half)
            return np.max(by_move, axis=0) - bend * (half @ half) / 2

        problem = GaussianValleys()
        claim, box = problem.robust_optimal_value, problem.domain.x.bounds
        assert proves_lower_bound(bound, box, claim - 1e-8)
        assert not proves_lower_bound(bound, box, claim + 1e-6, splits=16)


@pytest.mark.parametrize("kind", [k for k in PROBLEMS if k is not ToleranceSinusLinear])
def test_robust_optimum_is_far_from_the_plain_one(kind):
    problem = kind(**({"dim": 1} if kind in TERMS else {}))
    x_bounds = problem.domain.x.bounds.numpy()
    num = 2001 if x_bounds.shape[1] == 1 else 200
    axes = [np.linspace(low, high, num) for low, high in x_bounds.T]
    x = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    plain = x[FORMULAS[kind](*x.T).argmin()]
    distance = abs(plain - problem.robust_setting.numpy()) / (x_bounds[1] - x_bounds[0])
    assert distance.max() > 0.07
    # More than half of all settings have a better worst case than the plain optimum.
    worst = worst_cases(kind, x, num=201)
    at_plain = worst_cases(kind, plain[None], num=201)
    assert at_plain - problem.robust_optimal_value > 0.1 * worst.std()
