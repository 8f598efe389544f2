import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from botorch_res.optim.robust_optima.minimax import Quadratics, minimize_maximum


def largest(value, gradient, hessian, u):
    """The maximum of the quadratics at ``n x m x d`` points."""
    linear = torch.einsum("nkd,nmd->nmk", gradient, u)
    square = torch.einsum("nmd,nkde,nme->nmk", u, hessian, u)
    return (value[:, None] + linear + 0.5 * square).amax(-1)


def brute_force(value, gradient, hessian):
    """The minimum over nested grids, in one dimension."""
    n = len(value)
    axis = torch.linspace(0, 1, 801, dtype=torch.double).unsqueeze(-1)
    center, width = torch.full((n, 1, 1), 0.5, dtype=torch.double), 0.5
    for _ in range(12):
        u = (center + width * (2 * axis - 1)).clamp(0, 1)
        values = largest(value, gradient, hessian, u)
        center = u[torch.arange(n), values.argmin(-1)].unsqueeze(1)
        width *= 0.3
    return values.amin(-1)


def sequential_programming(value, gradient, hessian):
    """The minimum of convex problems by SciPy: of s, with s at least each quadratic."""
    found = []
    for v, g, B in zip(value.numpy(), gradient.numpy(), hessian.numpy(), strict=True):
        dim = g.shape[-1]

        def slack(w, v=v, g=g, B=B):
            return w[-1] - v - g @ w[:-1] - 0.5 * (B @ w[:-1]) @ w[:-1]

        def slope(w, g=g, B=B):
            return np.column_stack([-g - B @ w[:-1], np.ones(len(g))])

        start = np.append(np.full(dim, 0.5), 0.0)
        start[-1] -= slack(start).min()
        result = minimize(
            lambda w: w[-1],
            start,
            jac=lambda w: np.eye(len(w))[-1],
            bounds=[(0.0, 1.0)] * dim + [(None, None)],
            constraints={"type": "ineq", "fun": slack, "jac": slope},
            method="SLSQP",
            options={"ftol": 1e-12, "maxiter": 300},
        )
        w = result.x
        w[:-1] = w[:-1].clip(0.0, 1.0)
        found.append(w[-1] - slack(w).min())
    return torch.tensor(found)


def random_problems(n, k, dim, bend):
    generator = torch.Generator().manual_seed(k * dim)
    value = 0.3 * torch.randn(n, k, generator=generator, dtype=torch.double)
    gradient = torch.randn(n, k, dim, generator=generator, dtype=torch.double)
    root = torch.randn(n, k, dim, dim, generator=generator, dtype=torch.double)
    eye = torch.eye(dim, dtype=torch.double)
    return value, gradient, 0.5 * root @ root.mT - bend * eye


@pytest.mark.parametrize("k", [1, 3, 6])
def test_one_dimension_is_exact(k):
    problem = random_problems(100, k, 1, bend=0.0)
    u = minimize_maximum(*problem)
    gap = largest(*problem, u.unsqueeze(1)).squeeze(1) - brute_force(*problem)
    assert gap.max() < 1e-9


@pytest.mark.parametrize("below", [0.0, 1e6])
@pytest.mark.parametrize("dim", [2, 3, 4])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_convex_problems(dim, k, below):
    """Also if most of the quadratics are so far below that they do not matter."""
    value, gradient, hessian = random_problems(60, k, dim, bend=0.0)
    value[:, k // 2 + 1 :] -= below
    u = minimize_maximum(value, gradient, hessian)
    assert ((u >= 0) & (u <= 1)).all()
    found = largest(value, gradient, hessian, u.unsqueeze(1)).squeeze(1)
    size = torch.maximum(gradient.abs().sum(-1), hessian.abs().sum((-2, -1))).amax(-1)
    gap = (found - sequential_programming(value, gradient, hessian)) / size
    assert gap.abs().max() < 3e-5
    assert gap.abs().quantile(0.9) < 1e-6


@pytest.mark.parametrize("dim", [2, 3, 4])
def test_quadratics_far_below_change_nothing(dim):
    value, gradient, hessian = random_problems(2000, 6, dim, bend=0.0)
    few = value[:, :3], gradient[:, :3], hessian[:, :3]
    value[:, 3:] -= 1e6
    all_of_them = value, gradient, hessian
    gap = largest(*few, minimize_maximum(*all_of_them).unsqueeze(1))
    gap = gap - largest(*few, minimize_maximum(*few).unsqueeze(1))
    assert gap.abs().max() < 1e-3
    assert gap.abs().quantile(0.99) < {2: 1e-6, 3: 2e-5, 4: 5e-5}[dim]


@pytest.mark.parametrize("dim", [1, 3])
def test_problems_do_not_depend_on_their_batch(dim):
    problem = random_problems(24, 4, dim, bend=0.5)
    u = minimize_maximum(*problem)
    grouped = minimize_maximum(*(part.unflatten(0, (2, 3, 4)) for part in problem))
    torch.testing.assert_close(grouped.flatten(0, 2), u, rtol=0.0, atol=1e-12)
    single = minimize_maximum(*(part[5] for part in problem))
    torch.testing.assert_close(single, u[5], rtol=0.0, atol=1e-12)
    assert minimize_maximum(*(part[:0] for part in problem)).shape == (0, dim)


def test_single_precision():
    problem = random_problems(500, 4, 3, bend=0.0)
    u = minimize_maximum(*(part.float() for part in problem)).double()
    exact = minimize_maximum(*problem)
    lost = largest(*problem, u.unsqueeze(1)) - largest(*problem, exact.unsqueeze(1))
    assert lost.max() < 1e-3
    assert lost.quantile(0.9) < 1e-5


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


def with_constraints(value, gradient, hessian, normals, slack):
    """The minimum of convex problems in a polytope, by SciPy."""
    found = []
    for v, g, B, N, c in zip(
        *(part.numpy() for part in (value, gradient, hessian, normals, slack)),
        strict=True,
    ):

        def below(w, v=v, g=g, B=B):
            return w[-1] - v - g @ w[:-1] - 0.5 * (B @ w[:-1]) @ w[:-1]

        dim = g.shape[-1]
        result = minimize(
            lambda w: w[-1],
            np.append(np.full(dim, 0.5), 10.0),
            bounds=[(0.0, 1.0)] * dim + [(None, None)],
            constraints=[
                {"type": "ineq", "fun": below},
                {"type": "ineq", "fun": lambda w, N=N, c=c: N @ w[:-1] + c},
            ],
            method="SLSQP",
            options={"ftol": 1e-12, "maxiter": 300},
        )
        found.append(result.x[-1] if result.success else np.nan)
    return torch.tensor(found)


@pytest.mark.parametrize("dim", [1, 2, 4])
@pytest.mark.parametrize("k", [1, 3])
def test_linear_constraints(dim, k):
    """Faces through the middle of the cube or near it, which the start may violate."""
    problem = random_problems(40, k, dim, bend=0.0)
    generator = torch.Generator().manual_seed(dim)
    normals = torch.randn(40, 2, dim, generator=generator, dtype=torch.double)
    inside = 0.25 + 0.5 * torch.rand(40, 1, dim, generator=generator).double()
    slack = 0.05 - (normals * inside).sum(-1)
    u = minimize_maximum(*problem, normals, slack)
    margin = (normals * u.unsqueeze(1)).sum(-1) + slack
    # The searches move such points inwards.
    assert margin.min() > -1e-4
    assert (margin.amin(-1) < 1e-5).sum() > 10
    found = largest(*problem, u.unsqueeze(1)).squeeze(1)
    gap = found - with_constraints(*problem, normals, slack)
    # SciPy fails in a few of them.
    gap = gap[~gap.isnan()]
    assert len(gap) >= 32
    assert gap.abs().max() < 1e-3
    assert gap.abs().quantile(0.9) < 1e-5


def under_constraints(value, gradient, hessian, above):
    """The minimum of convex problems under convex constraints, by SciPy."""
    found = []
    for v, g, B, *other in zip(
        *(part.numpy() for part in (value, gradient, hessian, *above)), strict=True
    ):

        def slack(w, parts=((v, g, B), other)):
            (one, two) = (
                c + a @ w[:-1] + 0.5 * (H @ w[:-1]) @ w[:-1] for c, a, H in parts
            )
            return np.append(w[-1] - one, -two)

        dim = g.shape[-1]
        starts = (np.append(np.full(dim, at), 10.0) for at in (0.5, 0.1, 0.9))
        results = [
            minimize(
                lambda w: w[-1],
                start,
                bounds=[(0.0, 1.0)] * dim + [(None, None)],
                constraints={"type": "ineq", "fun": slack},
                method="SLSQP",
                options={"ftol": 1e-13, "maxiter": 500},
            )
            for start in starts
        ]
        good = [r.x[-1] for r in results if r.success and slack(r.x).min() > -1e-8]
        found.append(min(good, default=np.nan))
    return torch.tensor(found)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_constraints(dim):
    """Of convex quadratics; where none is possible, SciPy finds nothing."""
    problem = random_problems(40, 4, dim, bend=0.0)
    value, gradient, hessian = random_problems(40, 5, dim, bend=0.0)
    above = Quadratics(value - 0.7, gradient, hessian)
    price = torch.full((40, 1), 300.0).double()
    u = minimize_maximum(*problem, constraints=above, penalty=price)
    best = under_constraints(*problem, above)
    violation = largest(*above, u.unsqueeze(1)).squeeze(1)
    possible = ~best.isnan()
    assert possible.sum() > 35
    gap = (largest(*problem, u.unsqueeze(1)).squeeze(1) - best)[possible]
    assert gap.abs().max() < 1e-5
    assert violation[possible].max() < 1e-6
    assert (violation[possible] > -1e-6).sum() > 5


@pytest.mark.parametrize("dim", [1, 2])
def test_the_least_violation(dim):
    """Two planes exclude each other; their values meet in the middle."""
    zeros = torch.zeros(1, 1, dim, dim).double()
    plane = torch.ones(1, 1, dim).double()
    rise = torch.tensor([[[1.0] + [0.0] * (dim - 1), [-1.0] + [0.0] * (dim - 1)]])
    above = Quadratics(
        torch.tensor([[0.2, 1.0]]).double(),
        rise.double(),
        zeros.expand(1, 2, dim, dim),
    )
    u = minimize_maximum(
        zeros[..., 0, 0],
        plane,
        zeros,
        constraints=above,
        penalty=torch.full((1, 1), 100.0).double(),
    )
    assert u[0, 0].item() == pytest.approx(0.4, abs=1e-6)
    assert (u[0, 1:] < 1e-6).all()
