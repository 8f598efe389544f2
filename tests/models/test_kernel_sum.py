import math
import warnings

import pytest
import torch
from botorch.models.kernels import CategoricalKernel
from gpytorch.kernels import (
    IndexKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
)

from botorch_res.models.kernel_sum import read_kernel
from tests.problems import DOUBLE, Draws


def scaled(kernel: Kernel, outputscale: float, **options: object) -> Kernel:
    kernel = ScaleKernel(kernel, **options)
    kernel.outputscale = outputscale
    return kernel


def rbf(scale: float, *columns: int) -> Kernel:
    kernel = RBFKernel(
        active_dims=list(columns) or None, ard_num_dims=len(columns) or 4
    )
    kernel.lengthscale = scale + 0.1 * torch.arange(len(columns) or 4)
    return kernel


def matern(nu: float, scale: float, *columns: int) -> Kernel:
    kernel = MaternKernel(nu, active_dims=list(columns) or None)
    kernel.lengthscale = scale
    return kernel


def category(*columns: int) -> Kernel:
    kernel = CategoricalKernel(active_dims=list(columns), ard_num_dims=len(columns))
    kernel.lengthscale = 0.7 + 0.2 * torch.arange(len(columns))
    return kernel


def nested() -> Kernel:
    """Columns of columns: the periodic kernel sees column 1."""
    periodic = PeriodicKernel(active_dims=[0])
    product = periodic * rbf(0.4, 1)
    product.active_dims = torch.tensor([1, 3])
    return product


# A kernel; for each term its stationary factors, and its number of others.
KERNELS = {
    "one": (lambda: scaled(matern(2.5, 0.4), 2.0), [([2.5], 0)]),
    "some columns": (lambda: scaled(rbf(0.3, 0, 2), 2.0), [([math.inf], 0)]),
    "columns of the scale": (
        lambda: scaled(RBFKernel(), 2.0, active_dims=[0, 2]),
        [([math.inf], 0)],
    ),
    "nested scales": (
        lambda: scaled(scaled(rbf(0.3, 1), 2.0) + matern(1.5, 0.5), 3.0),
        [([math.inf], 0), ([1.5], 0)],
    ),
    "product of squared exponentials": (
        lambda: scaled(rbf(0.3, 0, 1), 2.0) * scaled(rbf(0.5, 1, 2), 0.5),
        [([math.inf], 0)],
    ),
    "product of two kinds": (
        lambda: rbf(0.3, 0) * matern(2.5, 0.5) * matern(2.5, 0.3, 0, 3),
        [([math.inf, 2.5, 2.5], 0)],
    ),
    "product of sums": (
        lambda: (rbf(0.3, 0) + category(3)) * (matern(0.5, 1.0, 1) + category(2, 3)),
        [([math.inf, 0.5], 0), ([math.inf], 1), ([0.5], 1), ([math.inf], 2)],
    ),
    "others": (
        lambda: (
            scaled(LinearKernel(active_dims=[1]), 2.0) + scaled(PeriodicKernel(), 1.5)
        ),
        [([math.inf], 1), ([math.inf], 1)],
    ),
    "nested columns": (nested, [([math.inf], 1)]),
    "tasks": (
        lambda: rbf(0.5, 0, 1, 2) * IndexKernel(3, rank=2, active_dims=[3]),
        [([math.inf], 1)],
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_values_are_those_of_gpytorch(name: str) -> None:
    make, terms = KERNELS[name]
    kernel = make().double().requires_grad_(False)
    draws = Draws(0)
    X1, X2 = draws.uniform(2, 7, 4), draws.uniform(5, 4)
    X1[..., 3], X2[..., 3] = (3 * X1[..., 3]).floor(), (3 * X2[..., 3]).floor()
    found = read_kernel(kernel, X2)
    assert [
        ([f.smoothness for f in t.stationary], len(t.others)) for t in found.terms
    ] == terms
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # GPyTorch's sparse matrices of tasks
        expected = kernel(X1, X2).to_dense()
    torch.testing.assert_close(found.matrix(X1, X2), expected, rtol=1e-7, atol=1e-7)
    pairs = found.matrix(X1, X1.flip(-2)).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(found.pairs(X1, X1.flip(-2)), pairs)
    variance = found.matrix(X1, X1).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(found.variance(X1), variance)


def test_batch_of_models() -> None:
    batch = torch.Size([3])
    kernel = ScaleKernel(
        RBFKernel(batch_shape=batch, active_dims=[0, 1])
        * CategoricalKernel(batch_shape=batch, active_dims=[2]),
        batch_shape=batch,
    ).double()
    kernel.outputscale = torch.tensor([1.0, 2.0, 3.0], **DOUBLE)
    kernel.base_kernel.kernels[0].lengthscale = torch.tensor(
        [[[0.2]], [[0.4]], [[0.8]]]
    )
    X = Draws(0).uniform(2, 3, 6, 3)
    X[..., 2] = (2 * X[..., 2]).round()
    found = read_kernel(kernel.requires_grad_(False), X[0])
    expected = kernel(X, X.flip(-2)).to_dense()
    torch.testing.assert_close(
        found.matrix(X, X.flip(-2)), expected, rtol=1e-7, atol=1e-7
    )
    pairs = expected.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(found.pairs(X, X.flip(-2)), pairs, rtol=1e-7, atol=1e-7)
    common, partner = X[0, 0], X[0, 0].flip(-2)
    pairs = found.matrix(common, partner).diagonal(dim1=-2, dim2=-1)
    assert pairs.shape == (3, 6)
    torch.testing.assert_close(found.pairs(common, partner), pairs)


def test_columns() -> None:
    kernel = read_kernel(KERNELS["product of sums"][0](), torch.zeros(1, 4))
    assert kernel.other_columns == [2, 3]
    assert not kernel.is_stationary
    assert [factor.columns for factor in kernel.terms[0].stationary] == [[0], [1]]
    assert read_kernel(
        KERNELS["nested columns"][0](), torch.zeros(1, 4)
    ).other_columns == [1]
    assert read_kernel(rbf(0.3), torch.zeros(1, 4)).is_stationary


def test_subclasses_are_left_to_gpytorch() -> None:
    class Doubled(RBFKernel):
        pass

    class DoubledScale(ScaleKernel):
        pass

    for kernel in (ScaleKernel(Doubled()), DoubledScale(RBFKernel())):
        assert not read_kernel(kernel, torch.zeros(1, 4)).is_stationary


def test_gradient_of_a_product() -> None:
    kernel = (rbf(0.3, 0) * matern(2.5, 0.5) * category(3)).double()
    found = read_kernel(kernel, torch.zeros(1, 4, **DOUBLE))
    draws = Draws(1)
    X1, X2 = draws.uniform(3, 4), draws.uniform(2, 4)
    X1[:, 3] = X2[:, 3] = 1.0
    assert torch.autograd.gradcheck(found.matrix, (X1.requires_grad_(), X2))
