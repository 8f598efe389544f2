"""The problems with categories, written anew with NumPy and solved by proof."""

import numpy as np
import pytest
import torch
from botorch.utils.testing import BaseTestProblemTestCaseMixIn, BotorchTestCase
from branch_and_bound import proves_lower_bound
from scipy.optimize import brentq

from botorch_res.test_functions import MotorCatalogue, SnapHook, SwitchingModes

MATERIALS = {
    # E, L, beta, permissible strain, gamma.
    "steel": (210_000, 60, 3e-4, 0.0018, 5e-4),
    "aluminium": (70_000, 40, 6e-4, 0.0035, 1e-3),
    "POM": (2800, 15, 6e-3, 0.04, 4e-3),
}
STIFFNESS = {
    "steel": {"A": 1, "B": 1.04, "C": 0.95},
    "aluminium": {"A": 1, "B": 1.1, "C": 0.91},
    "POM": {"A": 1, "B": 1.12, "C": 0.9},
}
STRENGTH = {
    "steel": {"A": 1, "B": 0.92, "C": 1.05},
    "aluminium": {"A": 1, "B": 0.85, "C": 1.1},
    "POM": {"A": 1, "B": 0.8, "C": 1.15},
}
MODES = [
    (0.15, 12, 1, 0.9, -0.3, 0.5),
    (0, 11, 5, 1.1, 0, 0.6),
    (0.35, 11, 2, 0.6, 0.6, 0.8),
    (0, 11, 5, 0.7, 0.8, -0.6),
]
CONTROLLERS = [(1, 0.3, 2, 2.5), (0.9, 0.1, 4, 2), (1.1, 0.45, 1.5, 2)]


def hook_factors(material, temperature, supplier):
    """Force in units of 20 N at 1 mm, and share of the permissible strain at 1 mm."""
    name, other = list(MATERIALS)[int(material)], "ABC"[int(supplier)]
    modulus, length, beta, strain, gamma = MATERIALS[name]
    warming = temperature - 20
    modulus = STIFFNESS[name][other] * modulus * (1 - beta * warming)
    force = modulus * 10 / (4 * length**3)
    limit = STRENGTH[name][other] * strain * (1 + gamma * warming)
    return force / 20, 3 / (2 * length**2) / limit


def snap_hook(material, thickness, temperature, supplier):
    force, share = hook_factors(material, temperature, supplier)
    return (force * thickness**3 - 1) ** 2 + (share * thickness) ** 2


def switching_modes(u, mode, theta):
    level, frequency, phase, height, place, shift = MODES[int(mode)]
    wave = np.sin(frequency * u + phase) / 4
    return level + wave + height * np.cos(np.pi * (theta - place - shift * u))


def motor(maker, torque, inertia, load, friction):
    gain, height, place, width = CONTROLLERS[int(maker)]
    time = (inertia + load) / (gain * torque - friction)
    return time + height * (1 - ((load - place) / width) ** 2)


FORMULAS = {
    SnapHook: snap_hook,
    SwitchingModes: switching_modes,
    MotorCatalogue: motor,
}
PROBLEMS = tuple(FORMULAS)


def evaluate(kind, z):
    """Values of ``... x d`` points; a category selects its own formula."""
    points = z.reshape(-1, z.shape[-1])
    return np.array([FORMULAS[kind](*row) for row in points]).reshape(z.shape[:-1])


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
        expected = torch.from_numpy(evaluate(kind, z.numpy()))
        torch.testing.assert_close(kind()(z), expected)
        single = kind().to(dtype=torch.float)(z.float())
        torch.testing.assert_close(single, expected.float(), rtol=1e-4, atol=1e-4)

    def test_worst_case_value(self, kind):
        """Against a grid of the free columns of theta, with all listed values."""
        problem = kind()
        domain = problem.domain
        x = domain.x.sample(12, seed=1)
        axes = [np.linspace(*domain.theta.free_bounds.numpy()[:, i], 201) for i in (0,)]
        if kind is MotorCatalogue:
            axes.append(np.linspace(0, 1, 3))
        free = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
        theta = domain.theta.combine(
            torch.from_numpy(free).unsqueeze(1), domain.theta.rows
        ).flatten(0, -2)
        z = domain.join(x.unsqueeze(1), theta)
        brute = torch.from_numpy(evaluate(kind, z.numpy()).max(axis=1))
        found = problem.worst_case_value(x)
        # A step of the grid is 1 / 200 of the range: near a smooth top its square
        # counts.
        assert (found >= brute - 1e-12).all()
        torch.testing.assert_close(found, brute, rtol=0, atol=1e-4)
        batched = problem.worst_case_value(x.view(2, 3, 2, -1))
        torch.testing.assert_close(batched, found.view(2, 3, 2))

    def test_gradient(self, kind):
        problem = kind()
        lower, upper = problem.bounds
        z = problem.domain.sample(20, seed=2)
        # Finite differences must not leave the bounds.
        numbers = z.lerp((lower + upper) / 2, 0.01)[:, problem.continuous_inds]
        is_category = torch.zeros(problem.dim, dtype=torch.bool)
        is_category[problem.categorical_inds] = True
        places = torch.eye(problem.dim).double()[problem.continuous_inds]

        def values(numbers):
            return problem(torch.where(is_category, z, numbers @ places))

        assert torch.autograd.gradcheck(values, (numbers.requires_grad_(),))

    def test_domain(self, kind):
        problem = kind()
        domain = problem.domain
        assert domain.cat_dims == tuple(problem.categorical_inds)
        assert set(problem.continuous_inds).isdisjoint(problem.categorical_inds)
        listed = {
            SnapHook: (1, 1),
            SwitchingModes: (1, 0),
            MotorCatalogue: (3, 0),
        }
        assert (len(domain.x.listed), len(domain.theta.listed)) == listed[kind]

    def test_stored_optimum_is_attained(self, kind):
        problem = kind()
        value = FORMULAS[kind](*problem.robust_optimizer.numpy())
        assert problem.robust_optimal_value == pytest.approx(value, rel=1e-13)
        worst = problem.worst_case_value(problem.robust_setting)
        assert float(worst) == pytest.approx(value, rel=1e-13)


class TestOptima:
    """No x has a smaller worst case than the stored one."""

    @pytest.mark.parametrize("material", [0, 1, 2])
    def test_snap_hook(self, material):
        corners = [hook_factors(material, t, s) for t in (-20, 60) for s in (0, 1, 2)]

        def bound(centres, half):
            lowest = []
            for force, share in corners:
                h = centres[:, 0]
                value = (force * h**3 - 1) ** 2 + (share * h) ** 2
                stretch = max(1, force * 2.5**3 - 1)
                slope = 6 * stretch * force * 2.5**2 + 2 * share**2 * 2.5
                lowest.append(value - slope * half[0])
            return np.max(lowest, axis=0)

        problem = SnapHook()
        claim = problem.robust_optimal_value
        assert proves_lower_bound(bound, [[1.5], [2.5]], claim - 1e-9)
        is_best = problem.robust_optimizer[0] == material
        higher = proves_lower_bound(bound, [[1.5], [2.5]], claim + 1e-3, splits=22)
        assert higher != is_best

    def test_thickness_of_the_snap_hook(self):
        force, share = hook_factors(0, -20, 1)
        thickness = brentq(
            lambda h: 6 * force * h**2 * (force * h**3 - 1) + 2 * share**2 * h,
            *(1.8, 2.1),
            xtol=1e-14,
        )
        found = SnapHook().robust_optimizer
        assert found.tolist() == [0.0, pytest.approx(thickness, abs=1e-12), -20.0, 1.0]

    @pytest.mark.parametrize("mode", range(4))
    def test_switching_modes(self, mode):
        level, frequency, phase, height, place, shift = MODES[mode]

        def bound(centres, half):
            u = centres[:, 0]
            top = place + shift * u
            distance = np.abs(top - np.clip(top, 0, 1))
            value = level + np.sin(frequency * u + phase) / 4
            value = value + height * np.cos(np.pi * distance)
            return value - (frequency / 4 + np.pi * height * abs(shift)) * half[0]

        problem = SwitchingModes()
        claim = problem.robust_optimal_value
        assert proves_lower_bound(bound, [[0], [1]], claim - 1e-9)
        is_best = problem.robust_optimizer[1] == mode
        assert proves_lower_bound(bound, [[0], [1]], claim + 1e-3, splits=22) != is_best

    def test_setting_of_the_switching_modes(self):
        # The wave is at its bottom, and the ridge's top inside.
        u = (3.5 * np.pi - 5) / 11
        expected = [u, 3.0, 0.8 - 0.6 * u]
        np.testing.assert_allclose(SwitchingModes().robust_optimizer, expected)
        assert SwitchingModes().robust_optimal_value == pytest.approx(0.7 - 0.25)

    def test_motor_catalogue(self):
        problem = MotorCatalogue()
        loads, friction = np.linspace(1, 5, 100_001), 1.0
        worst = [
            motor(*row, loads, friction).max()
            for row in problem.domain.x.choices.numpy()
        ]
        best = problem.domain.x.choices[int(np.argmin(worst))]
        assert torch.equal(problem.robust_setting, best)
        assert problem.robust_optimal_value == pytest.approx(min(worst), abs=1e-9)
        assert np.sort(worst)[1] > min(worst) + 0.01


def test_the_best_mode_changes_with_theta():
    u = np.linspace(0, 1, 501)
    best = {
        int(np.argmin([switching_modes(u, c, theta).min() for c in range(4)]))
        for theta in np.linspace(0, 1, 21)
    }
    assert best == {0, 1, 2, 3}


def test_the_best_material_is_not_the_robust_one():
    h = np.linspace(1.5, 2.5, 501)
    nominal = [snap_hook(material, h, 20, 0).min() for material in range(3)]
    assert SnapHook.materials[int(np.argmin(nominal))] == "POM"
    robust = SnapHook.materials[int(SnapHook().robust_setting[0])]
    assert robust == "steel"
    assert SnapHook.suppliers == ("A", "B", "C")
    assert len(MotorCatalogue.makers) == len(CONTROLLERS)
