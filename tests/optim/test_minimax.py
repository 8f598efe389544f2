import pytest
import torch

from botorch_res.optim.minimax import minimize_maximum


def largest(value, gradient, hessian, u):
    """The maximum of the quadratics at ``n x m x d`` points."""
    linear = torch.einsum("nkd,nmd->nmk", gradient, u)
    square = torch.einsum("nmd,nkde,nme->nmk", u, hessian, u)
    return (value[:, None] + linear + 0.5 * square).amax(-1)


def brute_force(value, gradient, hessian):
    n, _, dim = gradient.shape
    m = {1: 801, 2: 41, 3: 13}[dim]
    axis = torch.linspace(0, 1, m, dtype=torch.double)
    cube = torch.cartesian_prod(*[axis] * dim).reshape(-1, dim)
    center, width = torch.full((n, 1, dim), 0.5, dtype=torch.double), 0.5
    for _ in range(12):
        u = (center + width * (2 * cube - 1)).clamp(0, 1)
        values = largest(value, gradient, hessian, u)
        best = values.argmin(-1)
        center = u[torch.arange(n), best].unsqueeze(1)
        width *= 0.3
    return values.amin(-1)


def random_problems(n, k, dim, bend):
    generator = torch.Generator().manual_seed(k * dim)
    value = 0.3 * torch.randn(n, k, generator=generator, dtype=torch.double)
    gradient = torch.randn(n, k, dim, generator=generator, dtype=torch.double)
    root = torch.randn(n, k, dim, dim, generator=generator, dtype=torch.double)
    eye = torch.eye(dim, dtype=torch.double)
    return value, gradient, 0.5 * root @ root.mT - bend * eye


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_convex_problems(dim, k):
    problem = random_problems(100, k, dim, bend=0.0)
    u = minimize_maximum(*problem)
    assert ((u >= 0) & (u <= 1)).all()
    gap = largest(*problem, u.unsqueeze(1)).squeeze(1) - brute_force(*problem)
    assert gap.max() < (1e-9 if dim == 1 else 1e-3)
    assert gap.quantile(0.95) < (1e-9 if dim == 1 else 1e-4)


def test_one_dimension_is_exact_without_convexity():
    problem = random_problems(200, 4, 1, bend=2.0)
    u = minimize_maximum(*problem)
    gap = largest(*problem, u.unsqueeze(1)).squeeze(1) - brute_force(*problem)
    assert gap.max() < 1e-9


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_corners_are_reached_exactly(dim):
    """One plane falls towards a corner: its multipliers snap the point to it."""
    sign = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0], dtype=torch.double)[:dim]
    gradient = sign.expand(1, 1, dim)
    zeros = torch.zeros(1, 1, dim, dim, dtype=torch.double)
    u = minimize_maximum(zeros[..., 0, 0], gradient, zeros)
    assert torch.equal(u[0], (sign < 0).double())


@pytest.mark.parametrize("dim", [1, 2])
def test_degenerate_problems_are_finite(dim):
    zeros = torch.zeros(1, 3, dim, dim, dtype=torch.double)
    u = minimize_maximum(zeros[..., 0, 0], zeros[..., 0], zeros)
    assert torch.isfinite(u).all()
    value = torch.tensor([[0.0, -1e9, 0.0]], dtype=torch.double)
    u = minimize_maximum(value, torch.ones(1, 3, dim, dtype=torch.double), zeros)
    assert (u < 1e-6).all()
