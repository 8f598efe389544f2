import mpmath
import pytest
import torch

from botorch_res.models.kernel_sum import read_kernel
from tests.problems import DOUBLE, Draws, make_kernel

SCALE = torch.tensor([0.3, 0.7], **DOUBLE)


def exact(nu: float | None, distance: float) -> float:
    """The kernel by its general formula, with Bessel functions."""
    if distance == 0.0:
        return 2.5
    if nu is None:
        return 2.5 * float(mpmath.exp(-(mpmath.mpf(distance) ** 2) / 2))
    with mpmath.workdps(40):
        r = mpmath.sqrt(2 * nu) * mpmath.mpf(distance)
        bessel = mpmath.besselk(nu, r) * r**nu
        return float(2.5 * bessel * mpmath.mpf(2) ** (1 - nu) / mpmath.gamma(nu))


@pytest.mark.parametrize("nu", [None, 0.5, 1.5, 2.5])
def test_values_even_of_neighbours(nu: float | None) -> None:
    kernel = read_kernel(make_kernel(nu, SCALE, 2.5), SCALE)
    X = Draws(0).uniform(30, 2)
    steps = torch.logspace(-14, 0, 30, **DOUBLE).unsqueeze(-1)
    Y = X + steps * torch.tensor([0.3, 0.0], **DOUBLE)  # in units of the lengthscale
    gaps = ((Y - X)[:, 0] / 0.3).tolist()
    expected = torch.tensor([exact(nu, gap) for gap in gaps], **DOUBLE)
    torch.testing.assert_close(kernel.pairs(X, Y), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(
        kernel.matrix(X, Y).diagonal(), expected, rtol=1e-12, atol=0
    )
    torch.testing.assert_close(
        kernel.matrix(X, Y),
        make_kernel(nu, SCALE, 2.5)(X, Y).to_dense().detach(),
        atol=1e-7,
        rtol=0,
    )


@pytest.mark.parametrize("nu", [None, 0.5, 1.5, 2.5])
def test_values_far_from_the_origin(nu: float | None) -> None:
    kernel = read_kernel(make_kernel(nu, SCALE, 2.5), SCALE)
    # Exact in binary, so that the distances are the same.
    X = torch.arange(12, **DOUBLE).view(6, 2) / 64.0
    Y = X.flip(0) + 1.0 / 128.0
    shift = 4096.0
    torch.testing.assert_close(
        kernel.matrix(X + shift, Y + shift), kernel.matrix(X, Y), rtol=1e-11, atol=0
    )


@pytest.mark.parametrize("nu", [None, 1.5, 2.5])
def test_lengthscale_that_is_a_small_part_of_the_range(nu: float | None) -> None:
    """The lengthscale that a column with two values gets by maximum likelihood."""
    scale = torch.tensor([0.1, 1e-5], **DOUBLE)
    kernel = read_kernel(make_kernel(nu, scale, 2.5), scale)
    X = Draws(0).uniform(35, 2)
    X[:, 1] = X[:, 1].round()
    difference = (X.unsqueeze(0) - X.unsqueeze(1)) / scale
    gaps = difference.square().sum(-1).sqrt()
    expected = [[exact(nu, gap) for gap in row] for row in gaps.tolist()]
    found = kernel.matrix(X, X)
    expected = torch.tensor(expected, **DOUBLE)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-300)
    smallest = torch.linalg.eigvalsh(found + 1e-6 * torch.eye(35, **DOUBLE)).min()
    assert smallest > 0.99e-6


@pytest.mark.parametrize("nu", [None, 1.5, 2.5])
def test_derivatives(nu: float | None) -> None:
    """Of both sets of points, where one is common to a batch of others."""
    kernel = read_kernel(make_kernel(nu, SCALE, 2.5), SCALE)
    draws = Draws(0)
    X1 = draws.uniform(3, 2).requires_grad_()
    X2 = draws.uniform(2, 4, 2).requires_grad_()
    assert torch.autograd.gradcheck(kernel.matrix, (X1, X2))
    assert torch.autograd.gradgradcheck(kernel.matrix, (X1, X2))
    assert torch.autograd.gradcheck(lambda X: kernel.matrix(X, X2.detach()), (X1,))
    same = X1.detach().clone().requires_grad_()
    kernel.matrix(same, X1.detach()).diagonal().sum().backward()
    assert torch.equal(same.grad, torch.zeros_like(same))
