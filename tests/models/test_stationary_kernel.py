import mpmath
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from botorch_res.models.stationary_kernel import read_stationary_kernel

DOUBLE = {"dtype": torch.double}


def make_kernel(nu: float | None) -> ScaleKernel:
    base = RBFKernel(ard_num_dims=2) if nu is None else MaternKernel(nu, ard_num_dims=2)
    kernel = ScaleKernel(base).double()
    kernel.base_kernel.lengthscale = torch.tensor([0.3, 0.7], **DOUBLE)
    kernel.outputscale = 2.5
    return kernel


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
    kernel = read_stationary_kernel(make_kernel(nu))
    X = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), **DOUBLE)
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
        make_kernel(nu)(X, Y).to_dense().detach(),
        atol=1e-7,
        rtol=0,
    )


@pytest.mark.parametrize("nu", [None, 0.5, 1.5, 2.5])
def test_values_far_from_the_origin(nu: float | None) -> None:
    kernel = read_stationary_kernel(make_kernel(nu))
    # Exact in binary, so that the distances are the same.
    X = torch.arange(12, **DOUBLE).view(6, 2) / 64.0
    Y = X.flip(0) + 1.0 / 128.0
    shift = 4096.0
    torch.testing.assert_close(
        kernel.matrix(X + shift, Y + shift), kernel.matrix(X, Y), rtol=1e-11, atol=0
    )


@pytest.mark.parametrize("nu", [None, 1.5, 2.5])
def test_second_derivatives(nu: float | None) -> None:
    kernel = read_stationary_kernel(make_kernel(nu))
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(3, 2, generator=generator, **DOUBLE).requires_grad_()
    Y = torch.rand(2, 2, generator=generator, **DOUBLE)
    assert torch.autograd.gradcheck(kernel.matrix, (X, Y))
    assert torch.autograd.gradgradcheck(kernel.matrix, (X, Y))


def test_other_kernels_are_left_to_gpytorch() -> None:
    assert read_stationary_kernel(ScaleKernel(RBFKernel(active_dims=[0]))) is None
    assert read_stationary_kernel(ScaleKernel(RBFKernel(), active_dims=[0])) is None
    assert read_stationary_kernel(RBFKernel() + RBFKernel()) is None

    class Doubled(RBFKernel):
        pass

    class DoubledScale(ScaleKernel):
        pass

    assert read_stationary_kernel(ScaleKernel(Doubled())) is None
    assert read_stationary_kernel(DoubledScale(RBFKernel())) is None
