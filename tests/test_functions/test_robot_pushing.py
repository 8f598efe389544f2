"""The robot that pushes: physics, goals, and the best worst case."""

import builtins
import math

import numpy as np
import pytest
import torch
from botorch.utils.testing import BaseTestProblemTestCaseMixIn, BotorchTestCase

from botorch_res.test_functions import RobotPushing, robot_pushing
from botorch_res.test_functions.robot_pushing import end_position


def expected_end(rx, ry, duration):
    """Where an object without inertia ends that the hand pushes straight ahead."""
    distance = math.hypot(rx, ry)
    pushed = max(0.0, 0.5 * duration - (distance - 0.5 - 0.1))
    return -rx / distance * pushed, -ry / distance * pushed


class TestProblem(BotorchTestCase, BaseTestProblemTestCaseMixIn):
    functions = (RobotPushing(), RobotPushing(seed=1, noise_std=0.1, negate=True))


class TestPhysics:
    def test_object_is_pushed_straight_ahead(self):
        generator = np.random.default_rng(0)
        for _ in range(60):
            rx, ry = generator.uniform(-5, 5, 2)
            duration = generator.uniform(1, 30)
            end = end_position(rx, ry, duration)
            # In a time step the hand moves by 0.01, and it may sink in by as much.
            assert end == pytest.approx(expected_end(rx, ry, duration), abs=0.011)

    def test_no_contact_no_motion(self):
        assert end_position(4.0, 3.0, 8.0) == (0.0, 0.0)

    def test_continuous_in_the_duration(self):
        ends = [end_position(-1.0, 2.0, t) for t in np.linspace(1, 30, 4001)]
        steps = np.hypot(*np.diff(ends, axis=0).T)
        assert steps.max() < 2 * 0.5 * 29 / 4000

    def test_friction_stops_the_object(self):
        space, disc, hand = robot_pushing._scene(-1.0, 0.0)
        while disc.velocity.x < 0.49:
            space.step(0.001)
        hand.velocity = 0, 0
        start = disc.position.x
        for _ in range(1000):
            space.step(0.001)
        # Dry friction decelerates by 0.3 g, whatever the speed.
        assert disc.velocity.length < 1e-12
        slide = 0.5**2 / (2 * 0.3 * 9.81)
        assert disc.position.x - start == pytest.approx(slide, abs=2e-3)

    def test_friction_stops_the_spin(self):
        space, disc, _ = robot_pushing._scene(5.0, 5.0)
        disc.angular_velocity = 1.0
        for _ in range(1000):
            space.step(0.001)
        # The torque on a disc is 2/3 mu m g r, its moment of inertia m r^2 / 2.
        assert abs(disc.angular_velocity) < 1e-12
        turned = 1 / (2 * (2 / 3 * 0.3 * 9.81 * 0.5) / (0.5**2 / 2))
        assert disc.angle == pytest.approx(turned, abs=1e-3)

    def test_start_at_the_object(self):
        assert all(math.isfinite(c) for c in end_position(0.0, 0.0, 30.0))

    def test_deterministic(self):
        z = RobotPushing().domain.sample(5, seed=0)
        values = RobotPushing()(z)
        robot_pushing._path.cache_clear()
        assert torch.equal(RobotPushing()(z), values)

    def test_one_simulation_serves_all_durations_and_goals(self):
        problem = RobotPushing()
        robot_pushing._path.cache_clear()
        z = problem.domain.sample(40, seed=0)
        z[:, :2] = torch.tensor([1.0, 2.0])
        problem(z)
        assert robot_pushing._path.cache_info().misses == 1


class TestGoals:
    def test_distribution(self):
        goals = torch.stack([RobotPushing(seed=s).theta_choices for s in range(300)])
        first, second = goals.unbind(dim=-2)
        assert first.abs().max() <= 5
        # Uniform: mean 0 and variance 100 / 12, within five standard errors.
        assert first.mean(dim=0).abs().max() < 5 * (100 / 12 / 300) ** 0.5
        assert (first.var(dim=0) - 100 / 12).abs().max() < 5 * 7.5 / 300**0.5
        radius = (second - first).norm(dim=-1)
        assert radius.max() <= 2
        # Uniform in a disc: the squared radius is uniform in [0, 4].
        assert abs(float(radius.square().mean()) - 2) < 5 * (16 / 12 / 300) ** 0.5

    def test_value(self):
        problem = RobotPushing(seed=4)
        x = torch.tensor([[3.0, -2.0, 12.0]], dtype=torch.double)
        end = torch.tensor(end_position(3.0, -2.0, 12.0), dtype=torch.double)
        expected = 5 - (end - problem.theta_choices).norm(dim=-1)
        values = problem(problem.domain.join(x, problem.theta_choices))
        torch.testing.assert_close(values, expected)
        assert not problem.is_minimization_problem
        assert problem.worst_case_value(x) == expected.min()


class TestOptimum:
    @pytest.mark.parametrize("seed", range(20))
    def test_attains_the_upper_bound(self, seed):
        # By the triangle inequality no point is closer to both goals.
        problem = RobotPushing(seed=seed)
        first, second = problem.theta_choices
        bound = 5 - float((first - second).norm()) / 2
        assert problem.robust_optimal_value == pytest.approx(bound, abs=1e-14)
        x, theta = problem.domain.split(problem.robust_optimizer)
        assert float(problem.worst_case_value(x)) == pytest.approx(bound, abs=1e-12)
        assert theta.tolist() in problem.theta_choices.tolist()

    def test_sweep(self):
        problem = RobotPushing(seed=0)
        axis = torch.linspace(-5, 5, 15, dtype=torch.double)
        duration = torch.linspace(1, 30, 60, dtype=torch.double)
        x = torch.cartesian_prod(axis, axis, duration)
        best = float(problem.worst_case_value(x).max())
        # The object's end moves by less than 0.25 in half a cell of the grid around
        # the optimum.
        assert problem.robust_optimal_value - 0.25 < best
        assert best <= problem.robust_optimal_value + 1e-12

    def test_is_not_the_plain_one(self):
        problem = RobotPushing(seed=0)
        first, second = problem.theta_choices.tolist()
        plain = robot_pushing._push_to(*first)
        z = torch.tensor([[*plain, *first]], dtype=torch.double)
        assert float(problem(z)) == pytest.approx(5, abs=1e-12)
        assert float(problem(z)) > problem.robust_optimal_value
        worst = float(problem.worst_case_value(z[:, :3]))
        assert worst == pytest.approx(5 - math.dist(first, second), abs=1e-12)
        assert worst < problem.robust_optimal_value - 0.5

    def test_push_that_ends_where_it_began(self):
        assert end_position(*robot_pushing._push_to(0.0, 0.0)) == (0.0, 0.0)


def test_error_without_pymunk(monkeypatch):
    real_import = builtins.__import__

    def without_pymunk(name, *args, **kwargs):
        if name == "pymunk":
            raise ImportError("No module named 'pymunk'")
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pymunk)
    with pytest.raises(ImportError, match=r"pip install \"botorch_res\[robot\]\""):
        RobotPushing()
