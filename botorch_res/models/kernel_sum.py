r"""A GPyTorch kernel as a sum of products.

Sums, products, scales and ``active_dims`` can be nested in any way. Multiplied out,
every kernel is a sum of terms, and every term a product of

- stationary factors, which are evaluated here (``stationary_kernel``), and
- all other factors, such as categorical or periodic kernels, which GPyTorch evaluates.

A stationary factor of some of the columns has an infinite lengthscale in the others, so
that these do not count. The product of squared exponential kernels is one of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from itertools import chain, product
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import (
    AdditiveKernel,
    IndexKernel,
    Kernel,
    MaternKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from linear_operator import to_dense
from torch import Tensor
from torch.nn import Module, ModuleList

from botorch_res.models.stationary_kernel import StationaryKernel


class OtherKernel(Module):
    """A kernel that GPyTorch evaluates, of some columns.

    Attributes:
        kernel: The kernel.
        columns: The columns that it sees.
    """

    columns: Tensor

    def __init__(self, kernel: Kernel, columns: Tensor) -> None:
        """Store the kernel.

        Args:
            kernel: The kernel.
            columns: The columns that it sees.
        """
        super().__init__()
        self.kernel = kernel
        self.register_buffer("columns", columns)

    def matrix(self, X1: Tensor, X2: Tensor) -> Tensor:
        """Covariance of all pairs of points; see ``KernelSum``."""
        X1, X2 = (X.index_select(-1, self.columns) for X in (X1, X2))
        if isinstance(self.kernel, IndexKernel):
            # Its own way goes through sparse matrices, with warnings.
            table = to_dense(self.kernel.covar_matrix)
            row, column = X1.detach().round().long(), X2.detach().round().long().mT
            shape = torch.broadcast_shapes(
                table.shape[:-2], row.shape[:-2], column.shape[:-2]
            )
            table = table.expand(*shape, *table.shape[-2:])
            row = row.expand(*shape, -1, table.shape[-1])
            column = column.expand(*shape, row.shape[-2], -1)
            return table.gather(-2, row).gather(-1, column)
        # What calls ``forward`` would only select the columns again.
        covariance: Tensor = to_dense(self.kernel.forward(X1, X2))
        return covariance

    def pairs(self, X1: Tensor, X2: Tensor) -> Tensor:
        """Covariance of each point with its partner; see ``KernelSum``."""
        # Points that all models of a batch share have no dimension for it yet.
        missing = [1] * (len(self.kernel.batch_shape) + 2 - max(X1.ndim, X2.ndim))
        shape = torch.broadcast_shapes(X1.shape, X2.shape)
        X1, X2 = (X.expand(*missing, *shape) for X in (X1, X2))
        # Many sets of one point each: some kernels make a matrix for their diagonal.
        X1, X2 = (X.movedim(-2, 0).unsqueeze(-2) for X in (X1, X2))
        return self.matrix(X1, X2)[..., 0, 0].movedim(0, -1)

    def variance(self, X: Tensor) -> Tensor:
        """Variance of the prior at each point; see ``KernelSum``."""
        return self.pairs(X, X)


class KernelTerm(Module):
    """A product of kernels, the first of which has the variance of the product."""

    def __init__(
        self, stationary: Sequence[StationaryKernel], others: Sequence[OtherKernel]
    ) -> None:
        """Store the factors.

        Args:
            stationary: The stationary factors, at least one.
            others: All other factors.
        """
        super().__init__()
        self._factors = ModuleList([*stationary, *others])
        self._num_stationary = len(stationary)

    @property
    def factors(self) -> list[Any]:
        """All factors, the stationary ones first."""
        return list(self._factors)

    @property
    def stationary(self) -> list[StationaryKernel]:
        """The stationary factors."""
        return self.factors[: self._num_stationary]

    @property
    def others(self) -> list[OtherKernel]:
        """All other factors."""
        return self.factors[self._num_stationary :]

    def matrix(self, X1: Tensor, X2: Tensor) -> Tensor:
        """Covariance of all pairs of points; see ``KernelSum``."""
        return _product([factor.matrix(X1, X2) for factor in self.factors])

    def pairs(self, X1: Tensor, X2: Tensor) -> Tensor:
        """Covariance of each point with its partner; see ``KernelSum``."""
        return _product([factor.pairs(X1, X2) for factor in self.factors])

    def variance(self, X: Tensor) -> Tensor:
        """Variance of the prior at each point; see ``KernelSum``."""
        return _product([factor.variance(X) for factor in self.factors])


class KernelSum(Module):
    """A sum of products of kernels."""

    def __init__(self, terms: Sequence[KernelTerm]) -> None:
        """Store the terms.

        Args:
            terms: The products, at least one.
        """
        super().__init__()
        self._terms = ModuleList(terms)

    @property
    def terms(self) -> list[KernelTerm]:
        """The products."""
        terms: Any = self._terms
        return list(terms)

    @property
    def is_stationary(self) -> bool:
        """Whether all factors of all terms are stationary."""
        return not any(term.others for term in self.terms)

    @property
    def other_columns(self) -> list[int]:
        """The columns of the factors that are not stationary, in increasing order."""
        others = [factor for term in self.terms for factor in term.others]
        return sorted({i for factor in others for i in factor.columns.tolist()})

    def matrix(self, X1: Tensor, X2: Tensor) -> Tensor:
        """Covariance of all pairs of points.

        Args:
            X1: ``... x batch_shape x n x d`` points.
            X2: ``... x batch_shape x m x d`` points.

        Returns:
            ``... x batch_shape x n x m`` covariances.
        """
        return _sum([term.matrix(X1, X2) for term in self.terms])

    def pairs(self, X1: Tensor, X2: Tensor) -> Tensor:
        """Covariance of each point of the first set with its partner in the second.

        Args:
            X1: ``... x batch_shape x n x d`` points.
            X2: ``... x batch_shape x n x d`` points.

        Returns:
            ``... x batch_shape x n`` covariances.
        """
        return _sum([term.pairs(X1, X2) for term in self.terms])

    def variance(self, X: Tensor) -> Tensor:
        """Variance of the prior at each point.

        Args:
            X: ``... x batch_shape x n x d`` points.

        Returns:
            ``... x batch_shape x n`` variances.
        """
        return _sum([term.variance(X) for term in self.terms])


class _Factor(NamedTuple):
    """A kernel that is neither scaled nor a sum or product, and what it sees."""

    kernel: Any
    columns: list[int]


class _Product(NamedTuple):
    """A product of factors and of variances."""

    variances: list[Tensor]
    factors: list[_Factor]


def read_kernel(kernel: Any, inputs: Tensor) -> KernelSum:
    """Multiply a kernel out.

    Args:
        kernel: Any GPyTorch kernel.
        inputs: ``... x d`` inputs of the dtype and on the device of the kernel.

    Returns:
        The same kernel as a sum of products.
    """
    products = _multiply_out(kernel, list(range(inputs.shape[-1])))
    return KernelSum([_make_term(part, inputs) for part in products])


def _multiply_out(
    kernel: Any, columns: list[int], is_scaled: bool = False
) -> list[_Product]:
    """The products whose sum a kernel is."""
    # A scale takes over the columns of what it scales.
    if kernel.active_dims is not None and not is_scaled:
        columns = [columns[i] for i in kernel.active_dims.tolist()]
    # Exact types: a subclass may compute something else.
    if type(kernel) is ScaleKernel:
        parts = _multiply_out(kernel.base_kernel, columns, is_scaled=True)
        scale = kernel.outputscale.unsqueeze(-1)
        return [_Product([scale, *part.variances], part.factors) for part in parts]
    if type(kernel) is AdditiveKernel:
        return [p for part in kernel.kernels for p in _multiply_out(part, columns)]
    if type(kernel) is ProductKernel:
        sums = [_multiply_out(part, columns) for part in kernel.kernels]
        return [
            _Product(*(list(chain(*lists)) for lists in zip(*choice, strict=True)))
            for choice in product(*sums)
        ]
    return [_Product([], [_Factor(kernel, columns)])]


def _make_term(part: _Product, inputs: Tensor) -> KernelTerm:
    """Make a term of a product of GPyTorch's kernels."""
    lengthscales: dict[float, list[Tensor]] = {}
    others = []
    for kernel, columns in part.factors:
        if type(kernel) in (RBFKernel, MaternKernel):
            smoothness = kernel.nu if type(kernel) is MaternKernel else math.inf
            scale = _in_all_columns(kernel.lengthscale, columns, inputs.shape[-1])
            lengthscales.setdefault(smoothness, []).append(scale)
        else:
            index = torch.tensor(columns, device=inputs.device)
            others.append(OtherKernel(kernel, index))
    smooth = lengthscales.get(math.inf, [])
    if len(smooth) > 1:  # A product of squared exponential kernels is one of them.
        lengthscales[math.inf] = [_sum([scale**-2.0 for scale in smooth]) ** -0.5]
    if not lengthscales:  # A constant.
        lengthscales[math.inf] = [torch.full_like(inputs[..., :1, :], math.inf)]
    stationary: list[StationaryKernel] = []
    for smoothness, scales in lengthscales.items():
        for scale in scales:
            variance = torch.ones_like(scale[..., 0])
            if not stationary:
                variance = _product([variance, *part.variances])
            stationary.append(StationaryKernel(smoothness, scale, variance))
    return KernelTerm(stationary, others)


def _in_all_columns(lengthscale: Tensor, columns: list[int], dim: int) -> Tensor:
    """Lengthscales in all columns, infinite in those that do not count."""
    scale = lengthscale.new_full((*lengthscale.shape[:-1], dim), math.inf)
    scale[..., columns] = lengthscale
    return scale


def _product(factors: list[Tensor]) -> Tensor:
    """Multiply tensors."""
    return reduce(torch.mul, factors)


def _sum(terms: list[Tensor]) -> Tensor:
    """Add tensors."""
    return reduce(torch.add, terms)
