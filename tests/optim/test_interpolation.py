"""Polynomials through values on a grid."""

import pytest
import torch

from botorch_res.optim.worst_cases.interpolation import GridInterpolation
from botorch_res.optim.worst_cases.product_grid import ProductGrid

DOUBLE = {"dtype": torch.double}


def derivatives_by_autograd(function, theta):
    theta = theta.clone().requires_grad_()
    value = function(theta)
    (gradient,) = torch.autograd.grad(value.sum(), theta, create_graph=True)
    rows = [
        torch.autograd.grad(gradient[..., i].sum(), theta, retain_graph=True)[0]
        for i in range(theta.shape[-1])
    ]
    return value.detach(), gradient.detach(), torch.stack(rows, dim=-2)


@pytest.mark.parametrize("margin", [0, 2])
@pytest.mark.parametrize("counts", [[9], [7, 6], [5, 6, 7]])
def test_polynomials_are_reproduced(counts, margin):
    """A polynomial of the degree that the neighbours determine, mixed terms and all."""
    generator = torch.Generator().manual_seed(0)
    dim, radius = len(counts), 2
    powers = torch.cartesian_prod(*[torch.arange(5)] * dim).reshape(-1, dim)
    weights = torch.randn(len(powers), generator=generator, **DOUBLE)

    def function(theta):
        return ((theta.unsqueeze(-2) ** powers).prod(dim=-1) * weights).sum(dim=-1)

    grid = ProductGrid(counts, torch.zeros(1, **DOUBLE), margin)
    values = function(grid.points).expand(3, -1)
    interpolation = GridInterpolation(counts, radius, margin, grid.points)
    middle = torch.rand(3, 4, dim, generator=generator, **DOUBLE)
    shift = 0.3 * grid.spacing * torch.randn(3, 4, dim, generator=generator, **DOUBLE)
    theta = middle + shift
    result = interpolation.through(values, middle)(theta)
    for ours, theirs in zip(
        result, derivatives_by_autograd(function, theta), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


def wave(theta):
    """An analytic function with a lengthscale of about one."""
    rates = torch.tensor([0.3, 1.0, 1.7, 2.4, -3.1], dtype=theta.dtype)
    return (rates * theta.sum(dim=-1, keepdim=True) + rates).cos().sum(dim=-1)


def test_thirteen_neighbours_are_as_good_as_the_function():
    """In all of the interval, because of the margin."""
    counts = [33]  # the interval is four lengthscales wide, eight points for each
    grid = ProductGrid(counts, torch.zeros(1, **DOUBLE), margin=6)
    values = wave(4.0 * grid.points)
    interpolation = GridInterpolation(counts, 6, 6, grid.points)
    theta = torch.linspace(0.0, 1.0, 501, **DOUBLE).unsqueeze(-1)
    result = interpolation.through(values, theta)(theta)
    value, gradient, hessian = derivatives_by_autograd(lambda t: wave(4.0 * t), theta)
    assert (result.value - value).abs().max() < 3e-9
    assert (result.gradient - gradient).abs().max() < 1e-6
    assert (result.hessian - hessian).abs().max() < 1e-4


def test_single_precision_keeps_its_digits():
    counts = [33]
    grid = ProductGrid(counts, torch.zeros(1), margin=6)
    interpolation = GridInterpolation(counts, 6, 6, grid.points)
    theta = torch.linspace(0.0, 1.0, 101).unsqueeze(-1)
    result = interpolation.through(wave(4.0 * grid.points), theta)(theta)
    assert result.value.dtype == torch.float
    assert (result.value - wave(4.0 * theta)).abs().max() < 1e-5


def test_a_small_grid_has_fewer_neighbours():
    """Three points determine a parabola."""
    grid = ProductGrid([3], torch.zeros(1, **DOUBLE))
    interpolation = GridInterpolation([3], 4, 0, grid.points)
    theta = torch.tensor([[0.2], [0.9]], **DOUBLE)
    result = interpolation.through((grid.points**2).squeeze(-1), theta)(theta)
    torch.testing.assert_close(result.value, theta.squeeze(-1) ** 2)
    torch.testing.assert_close(result.gradient, 2.0 * theta)
