import itertools

import pytest
import torch

from botorch_res.optim.worst_cases.newton import box_newton_step, solve_modified


def random_definite(n, dim, generator):
    A = torch.randn(n, dim, dim, generator=generator, dtype=torch.double)
    return A @ A.mT + 0.1 * torch.eye(dim, dtype=torch.double)


def exact_maximum(gradient, hessian, lower, upper):
    """Compare the stationary points of all faces of the box."""
    best = -torch.inf
    for face in itertools.product((0, 1, 2), repeat=len(gradient)):
        step = torch.zeros_like(gradient)
        free = [i for i, side in enumerate(face) if side == 0]
        for i, side in enumerate(face):
            step[i] = (0.0, lower[i], upper[i])[side]
        if free:
            rhs = -(gradient + hessian @ step)[free]
            step[free] = torch.linalg.solve(hessian[free][:, free], rhs)
        if (step >= lower - 1e-12).all() and (step <= upper + 1e-12).all():
            best = max(best, (gradient @ step + 0.5 * step @ hessian @ step).item())
    return best


@pytest.mark.parametrize("dim", [1, 2, 3, 6])
def test_solves_definite_systems(dim):
    A = random_definite(50, dim, torch.Generator().manual_seed(0))
    rhs = torch.randn(50, dim, 2, dtype=torch.double)
    torch.testing.assert_close(solve_modified(A, rhs), torch.linalg.solve(A, rhs))


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_indefinite_systems_give_ascent_directions(dim):
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(200, dim, dim, generator=generator, dtype=torch.double)
    A = A + A.mT
    A[0] = 0.0
    rhs = torch.randn(200, dim, 1, generator=generator, dtype=torch.double)
    direction = solve_modified(A, rhs)
    assert torch.isfinite(direction).all()
    assert ((direction * rhs).sum((-2, -1)) > 0).all()


@pytest.mark.parametrize(("dim", "share"), [(1, 1.0), (2, 1.0), (3, 0.85)])
def test_box_steps(dim, share):
    n = 200
    generator = torch.Generator().manual_seed(1)
    hessian = -random_definite(n, dim, generator)
    gradient = torch.randn(n, dim, generator=generator, dtype=torch.double)
    room = torch.rand(2, n, dim, generator=generator, dtype=torch.double)
    room[:, ::3] *= (torch.rand(2, n, dim, generator=generator) > 0.5)[:, ::3]
    lower, upper = -room[0], room[1]
    step = box_newton_step(gradient, hessian, lower, upper)
    assert ((step >= lower) & (step <= upper)).all()
    value = (gradient * step).sum(-1)
    value = value + 0.5 * (step.unsqueeze(-2) @ hessian @ step.unsqueeze(-1)).flatten()
    best = torch.tensor(
        [
            exact_maximum(*case)
            for case in zip(gradient, hessian, lower, upper, strict=True)
        ],
        dtype=torch.double,
    )
    assert (value >= -1e-12).all()
    assert (value <= best + 1e-9).all()
    # In three dimensions no coordinate is released once it is held.
    assert (value >= best - 1e-9).double().mean() >= share


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_convex_models_are_climbed_to_the_boundary(dim):
    gradient = torch.full((1, dim), 0.5, dtype=torch.double)
    hessian = 0.1 * torch.eye(dim, dtype=torch.double).unsqueeze(0)
    one = torch.ones_like(gradient)
    assert torch.equal(box_newton_step(gradient, hessian, -one, one), one)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_steps_where_the_model_says_little_stay_in_the_box(dim):
    one = torch.ones(3, dim, dtype=torch.double)
    # Flat, a saddle without curvature along the axes, and too steep to be true.
    hessian = torch.zeros(3, dim, dim, dtype=torch.double)
    hessian[1] = 1.0 - torch.eye(dim, dtype=torch.double)
    hessian[2] = 1e100
    step = box_newton_step(0.5 * one, hessian, -one, 2.0 * one)
    assert ((step >= -1.0) & (step <= 2.0)).all()
    assert torch.equal(step[0], 2.0 * one[0])
    gain = (0.5 * step).sum(-1) + 0.5 * torch.einsum(
        "ni,nij,nj->n", step, hessian, step
    )
    assert (gain >= 0.0).all()
