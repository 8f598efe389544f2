"""The deep-drawing problem, written anew with NumPy and solved by proof."""

import math
import random
from statistics import NormalDist

import numpy as np
import pytest
import torch
from botorch.utils.testing import BaseTestProblemTestCaseMixIn, BotorchTestCase
from branch_and_bound import proves_lower_bound
from scipy.optimize import brentq, minimize_scalar

from botorch_res.test_functions import DeepDrawing

FORCES = (200, 300, 350)
STROKE = np.arange(5, 61)
DIAMETER = np.sqrt(200**2 - 4 * 101 * STROKE)
RIM, DIE = np.log(200 / DIAMETER), np.log(1 + (200**2 - DIAMETER**2) / 101**2) / 2


def punch_force(mu, holder_force):
    """Siebel's formula in N, with the holder's force in N."""
    kf1 = 550 * (0.008 + (RIM + DIE) / 2) ** 0.22
    kf2 = 550 * (0.008 + DIE) ** 0.22
    wrap = np.exp(mu * np.pi / 2)
    return (
        np.pi * 101 * (1.1 * kf1 * np.log(DIAMETER / 101) * wrap + kf2 / (2 * 8))
        + 2 * mu * holder_force * 101 / DIAMETER * wrap
    )


def experiments():
    """The measured curves of the three holder forces, in kN."""
    generator = random.Random(0)
    curves = []
    for force in FORCES:
        pressure = 1000 * force / (np.pi / 4 * (DIAMETER**2 - 101**2))
        clean = punch_force(0.18 * (pressure / 10) ** -0.2, 1000 * force) / 1000
        noise = [NormalDist().inv_cdf(generator.random()) / 2 for _ in STROKE]
        curves.append(clean + noise)
    return curves


EXPERIMENTS = experiments()


def errors(mu):
    """The largest error of the simulation, in kN, for each holder force."""
    return np.array(
        [
            np.abs(measured - punch_force(mu, 1000 * force) / 1000).max()
            for force, measured in zip(FORCES, EXPERIMENTS, strict=True)
        ]
    )


class TestProblem(BotorchTestCase, BaseTestProblemTestCaseMixIn):
    functions = (DeepDrawing(), DeepDrawing(noise_std=0.1, negate=True))


def test_formula():
    problem = DeepDrawing()
    mu = torch.linspace(0.1, 0.2, 31, dtype=torch.double).view(-1, 1)
    values = problem(problem.domain.join(mu.unsqueeze(-2), problem.theta_choices))
    np.testing.assert_allclose(values, [errors(m) for m in mu.ravel().numpy()], 1e-11)
    single = problem.to(dtype=torch.float).worst_case_value(mu.float())
    torch.testing.assert_close(single.double(), values.amax(-1), rtol=1e-4, atol=0)


def test_forces_along_the_stroke():
    problem = DeepDrawing()
    np.testing.assert_array_equal(problem.stroke, STROKE)
    measured = problem.measured_force(problem.theta_choices)
    np.testing.assert_allclose(measured, EXPERIMENTS, rtol=1e-11)
    mu = torch.tensor([[0.13]], dtype=torch.double)
    simulated = problem.simulated_force(mu, problem.theta_choices)
    expected = [punch_force(0.13, 1000 * force) / 1000 for force in FORCES]
    np.testing.assert_allclose(simulated, expected, rtol=1e-11)


def test_forces_are_plausible():
    for force in FORCES:
        curve = punch_force(0.15, 1000 * force) / 1000
        # In kN: a cup of 101 mm and 1 mm, with its peak inside of the stroke.
        assert 100 < curve.max() < 250
        assert 0 < curve.argmax() < len(STROKE) - 1
    assert DIAMETER.min() > 101 + 2 * 8


def test_between_the_forces():
    problem = DeepDrawing()
    forces = torch.linspace(200, 350, 6001, dtype=torch.double).view(-1, 1)
    values = problem(
        problem.domain.join(torch.tensor([[0.13]], dtype=torch.double), forces)
    )
    # Continuous: between two neighbours, 25 N apart, no jump.
    assert values.diff().abs().max() < 0.01
    at_choices = values[[0, 4000, 6000]].numpy()
    np.testing.assert_allclose(at_choices, errors(0.13), rtol=1e-11)


def test_gradient():
    problem = DeepDrawing()
    z = problem.domain.sample(20, seed=0).lerp(problem.bounds.mean(dim=0), 0.1)
    assert torch.autograd.gradcheck(problem, (z.requires_grad_(),))


def test_optimum():
    problem = DeepDrawing()
    # The force is increasing and convex in mu, so it is steepest at the upper bound.
    wrap = math.exp(0.2 * math.pi / 2)
    slope = max(
        (punch_force(0.2 + 1e-6, 1e3 * force) - punch_force(0.2, 1e3 * force)).max()
        / 1e-3
        for force in FORCES
    )
    assert slope < 350 * 2 * wrap + math.pi / 2 * wrap * 450

    def bound(centres, half):
        return np.array([errors(mu).max() for mu in centres[:, 0]]) - slope * half[0]

    claim = problem.robust_optimal_value
    assert proves_lower_bound(bound, [[0.1], [0.2]], claim - 1e-9)
    assert not proves_lower_bound(bound, [[0.1], [0.2]], claim + 1e-9, splits=30)
    kink = brentq(lambda mu: errors(mu)[0] - errors(mu)[2], 0.13, 0.15, xtol=1e-15)
    assert problem.robust_optimizer[0] == pytest.approx(kink, abs=1e-14)
    assert claim == pytest.approx(errors(kink).max(), rel=1e-12)


def test_no_single_force_has_the_same_optimum():
    problem = DeepDrawing()
    for index in range(3):
        # The error of one force falls and then rises in mu.
        best = minimize_scalar(
            lambda mu, index=index: errors(mu)[index],
            bounds=(0.1, 0.2),
            method="bounded",
            options={"xatol": 1e-9},
        )
        assert abs(best.x - problem.robust_optimizer[0]) > 1e-3
        assert errors(best.x).max() > problem.robust_optimal_value + 0.5
