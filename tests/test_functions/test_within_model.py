"""Objectives drawn from a GP prior, solved anew with NumPy."""

from functools import cache

import gpytorch
import numpy as np
import pytest
import torch
from botorch.exceptions.errors import InputDataError
from botorch.models import SingleTaskGP
from botorch.utils.testing import BaseTestProblemTestCaseMixIn, BotorchTestCase
from branch_and_bound import proves_lower_bound

from botorch_res.test_functions import WithinModel

LENGTHSCALE = 0.1


class TestProblem(BotorchTestCase, BaseTestProblemTestCaseMixIn):
    functions = (WithinModel(), WithinModel(seed=1, noise_std=0.1, negate=True))


# One for all tests, because an objective remembers its optimum.
objective = cache(WithinModel)


def kernel(a, b):
    return np.exp(-(((a[:, None] - b) / LENGTHSCALE) ** 2) / 2)


def expansion(problem):
    """The points and the weights of an objective, as NumPy arrays."""
    return problem._points.numpy(), problem._weights.numpy()


class TestObjective:
    def test_is_a_posterior_mean(self):
        """A GP that has seen the values at the points predicts the objective."""
        problem = WithinModel(seed=3, num_points=200)
        points, weights = expansion(problem)
        covariance = kernel(points[:, 0], points[:, 0])
        covariance *= kernel(points[:, 1], points[:, 1])
        targets = (covariance + 1e-3 * np.eye(200)) @ weights
        model = SingleTaskGP(
            torch.from_numpy(points),
            torch.from_numpy(targets).unsqueeze(-1),
            train_Yvar=torch.full((200, 1), 1e-3, dtype=torch.double),
            covar_module=gpytorch.kernels.RBFKernel(),
            mean_module=gpytorch.means.ZeroMean(),
            outcome_transform=None,
        )
        model.covar_module.lengthscale = LENGTHSCALE
        z = problem.domain.sample(50, seed=0)
        mean = model.posterior(z).mean.squeeze(-1)
        torch.testing.assert_close(problem(z), mean.detach(), rtol=1e-6, atol=1e-8)

    def test_is_drawn_from_the_prior(self):
        """At points a good way apart, values have the prior's moments."""
        axis = torch.tensor([0.1, 0.5, 0.85], dtype=torch.double)
        z = torch.cartesian_prod(axis, axis)
        near = z + torch.tensor([0.1, 0.0], dtype=torch.double)
        both = torch.stack([z, near])
        values, others = torch.stack(
            [WithinModel(seed=s)(both) for s in range(40)], dim=1
        )
        count = values.numel()
        assert abs(float(values.mean())) < 4 / count**0.5
        assert abs(float(values.var()) - 1) < 4 * (2 / count) ** 0.5
        correlation = float((values * others).mean())
        assert abs(correlation - np.exp(-0.5)) < 4 * (1.4 / count) ** 0.5

    def test_seeds(self):
        z = WithinModel().domain.sample(5, seed=0)
        assert torch.equal(WithinModel(seed=5)(z), WithinModel(seed=5)(z))
        assert not torch.allclose(WithinModel(seed=5)(z), WithinModel(seed=6)(z))

    def test_does_not_touch_the_global_generator(self):
        before = torch.random.get_rng_state()
        WithinModel(seed=1)
        assert torch.equal(torch.random.get_rng_state(), before)

    @pytest.mark.parametrize("name", ["num_points", "lengthscale", "noise_variance"])
    def test_bad_arguments(self, name):
        with pytest.raises(InputDataError, match=f"`{name}` to be positive, got 0"):
            WithinModel(**{name: 0})


class TestWorstCase:
    @pytest.mark.parametrize("negate", [False, True])
    def test_brute_force(self, negate):
        problem = WithinModel(seed=2, negate=negate)
        points, weights = expansion(problem)
        x, theta = np.linspace(0, 1, 101), np.linspace(0, 1, 20001)
        on_grid = (kernel(x, points[:, 0]) * weights) @ kernel(theta, points[:, 1]).T
        sign = -1 if negate else 1
        worst = sign * problem.worst_case_value(torch.from_numpy(x).unsqueeze(-1))
        # The grid may miss the top of a peak by its curvature times spacing^2 / 8.
        gap = worst.numpy() - on_grid.max(axis=1)
        assert gap.min() > -1e-12
        assert gap.max() < 1e4 * (1 / 20000) ** 2 / 8

    def test_gradient_is_that_at_the_worst_theta(self):
        problem = WithinModel(seed=2)
        x = problem.domain.x.sample(20, seed=0).requires_grad_()
        gradient = torch.autograd.grad(problem.worst_case_value(x).sum(), x)[0]
        step = 1e-6
        with torch.no_grad():
            difference = problem.worst_case_value(x + step) - problem.worst_case_value(
                x - step
            )
        torch.testing.assert_close(
            gradient.squeeze(-1), difference / (2 * step), rtol=1e-6, atol=1e-6
        )

    def test_gradient_of_the_objective(self):
        problem = WithinModel(num_points=50)
        z = problem.domain.sample(10, seed=0).requires_grad_()
        assert torch.autograd.gradcheck(problem, (z,))

    def test_does_not_depend_on_chunks(self, monkeypatch):
        problem = WithinModel(seed=2)
        x = problem.domain.x.sample(20, seed=0)
        whole = problem.worst_case_value(x)
        monkeypatch.setattr("botorch_res.test_functions.within_model.CHUNK", 7)
        # A sum of these weights, in another order.
        rounding = torch.finfo(torch.double).eps * float(problem._weights.abs().sum())
        torch.testing.assert_close(
            problem.worst_case_value(x), whole, rtol=0, atol=rounding
        )

    def test_coarse_lengthscale(self):
        """With few thetas on the grid there are fewer than three local maxima."""
        problem = WithinModel(num_points=30, lengthscale=30.0)
        x = problem.domain.x.sample(5, seed=0)
        theta = torch.linspace(0, 1, 1001, dtype=torch.double).unsqueeze(-1)
        values = problem(problem.domain.join(x.unsqueeze(-2), theta))
        torch.testing.assert_close(problem.worst_case_value(x), values.amax(-1))


class TestOptimum:
    @pytest.mark.parametrize("seed", range(3))
    def test_proof(self, seed):
        """The objective's norm in the kernel's space bounds its derivatives."""
        problem = objective(seed)
        points, weights = expansion(problem)
        gram = kernel(points[:, 0], points[:, 0]) * kernel(points[:, 1], points[:, 1])
        norm = np.sqrt(weights @ gram @ weights)
        slope, bend = norm / LENGTHSCALE, norm * np.sqrt(3) / LENGTHSCALE**2
        theta = np.linspace(0, 1, 4001)
        in_theta = kernel(theta, points[:, 1]).T

        def on_grid(x):
            return np.concatenate(
                [
                    ((kernel(part, points[:, 0]) * weights) @ in_theta).max(axis=1)
                    for part in np.array_split(x, 1 + len(x) // 500)
                ]
            )

        def bound(centres, half):
            return on_grid(centres[:, 0]) - slope * half[0]

        claim = problem.robust_optimal_value
        assert proves_lower_bound(bound, [[0], [1]], claim - 3e-5)
        x, _ = problem.domain.split(problem.robust_optimizer)
        attained = on_grid(x.numpy())[0]
        assert attained - 1e-12 <= claim <= attained + bend * 2.5e-4**2 / 8

    def test_is_not_the_plain_one(self):
        for seed in range(3):
            problem = objective(seed)
            axis = torch.linspace(0, 1, 101, dtype=torch.double)
            z = torch.cartesian_prod(axis, axis)
            plain = z[problem(z).argmin()]
            assert (
                problem.worst_case_value(plain[:1])
                > problem.robust_optimal_value + 0.05
            )

    def test_belongs_to_the_objective_and_not_to_its_dtype(self):
        single, double = WithinModel(dtype=torch.float), objective(0)
        assert single.robust_optimal_value == double.robust_optimal_value
        assert single.robust_optimizer.dtype == torch.float
