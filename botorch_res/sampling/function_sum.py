"""Sums of batches of functions, and linear functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, ModuleList

from botorch_res.domain import RobustDomain
from botorch_res.sampling.batch_function import BatchFunction, Derivatives


class FunctionSum(BatchFunction):
    """A sum of batches of functions, all of the same ``sample_shape``."""

    def __init__(self, terms: Sequence[BatchFunction]) -> None:
        """Store the terms.

        Args:
            terms: The functions.
        """
        super().__init__()
        self._terms = ModuleList(terms)
        self.sample_shape = terms[0].sample_shape
        self.dim = terms[0].dim

    @property
    def terms(self) -> list[BatchFunction]:
        """The functions."""
        terms: Any = self._terms
        return list(terms)

    @property
    def num_samples(self) -> int:
        """The number ``C`` of functions (for each model of a batch)."""
        return self.sample_shape[0]

    @property
    def lengthscale(self) -> Tensor | None:  # type: ignore[override]
        """The shortest distance over which a term changes, in the user's units."""
        scales = [term.lengthscale for term in self.terms]
        known = [scale for scale in scales if scale is not None]
        return None if len(known) < len(scales) else reduce(torch.minimum, known)

    @property
    def is_analytic(self) -> bool:  # type: ignore[override]
        """Whether all terms are."""
        return all(term.is_analytic for term in self.terms)

    def forward(self, z: Tensor) -> Tensor:
        """Evaluate the functions.

        Args:
            z: Points that broadcast with ``sample_shape x n x d``.

        Returns:
            ``sample_shape x n`` values.
        """
        return _add(self.terms, z)

    def derivative_table(self, columns: Tensor) -> Callable[[Tensor], Derivatives]:
        """Prepare the derivatives with respect to some columns.

        Args:
            columns: The indices of the ``k`` columns of ``z`` to differentiate by.

        Returns:
            A function of ``sample_shape x n x d`` points, each function its own, that
            returns values and derivatives.
        """
        tables = [term.derivative_table(columns) for term in self.terms]
        return partial(_add_derivatives, tables)

    def derivatives(self, z: Tensor, columns: Tensor) -> Derivatives:
        """Value, gradient and Hessian with respect to some columns.

        Args:
            z: ``sample_shape x n x d`` points, each function its own.
            columns: The indices of the ``k`` columns of ``z`` to differentiate by.

        Returns:
            The values and derivatives, detached from any graph.
        """
        return self.derivative_table(columns)(z)

    def theta_table(
        self, thetas: Tensor, domain: RobustDomain
    ) -> Callable[[Tensor], Tensor]:
        """Prepare the evaluation on a fixed set of thetas.

        Args:
            thetas: ``M x d_theta`` uncontrollable parts.
            domain: The domain, which knows the controllable columns.

        Returns:
            A function of controllable parts that broadcast with ``sample_shape x b x
            d_x``. It returns the ``sample_shape x b x M`` values at all pairs.
        """
        tables = [term.theta_table(thetas, domain) for term in self.terms]
        return partial(_add, tables)


class LinearFunction(BatchFunction):
    """Linear functions of transformed points.

    Attributes:
        weights: ``sample_shape x d x 1`` weights.
        offset: ``sample_shape`` values at zero.
    """

    weights: Tensor
    offset: Tensor
    slope: Tensor | None

    def __init__(
        self,
        weights: Tensor,
        offset: Tensor,
        input_transform: Module | None,
        slope: Tensor | None,
    ) -> None:
        """Store the functions.

        Args:
            weights: ``sample_shape x d x 1`` weights of the transformed columns.
            offset: ``sample_shape`` values where all of them are zero.
            input_transform: The model's input transform.
            slope: ``batch_shape x 1 x d`` derivative of each transformed column by the
                user's column, or ``None`` if the transform is not affine.
        """
        super().__init__()
        self.register_buffer("weights", weights)
        self.register_buffer("offset", offset)
        self.register_buffer("slope", slope)
        self.input_transform = input_transform
        self.sample_shape = offset.shape
        self.dim = None if slope is None else slope.shape[-1]
        self.is_analytic = slope is not None

    @property
    def lengthscale(self) -> Tensor | None:  # type: ignore[override]
        """Infinite: a linear function needs no grid."""
        if self.slope is None:
            return None
        return torch.full_like(self.slope.flatten(0, -2)[0], torch.inf)

    def forward(self, z: Tensor) -> Tensor:
        """Evaluate the functions.

        Args:
            z: Points that broadcast with ``sample_shape x n x d``.

        Returns:
            ``sample_shape x n`` values.
        """
        u = z if self.input_transform is None else self.input_transform(z)
        return (u @ self.weights).squeeze(-1) + self.offset.unsqueeze(-1)

    def derivatives(self, z: Tensor, columns: Tensor) -> Derivatives:
        """Value, gradient and Hessian with respect to some columns, in closed form.

        Args:
            z: Points that broadcast with ``sample_shape x n x d``.
            columns: The indices of the ``k`` columns of ``z`` to differentiate by.

        Returns:
            The values and derivatives, detached from any graph.
        """
        if self.slope is None:
            return super().derivatives(z, columns)
        value = self(z.expand(*self.sample_shape, *z.shape[-2:])).detach()
        gradient = (self.slope * self.weights.mT).index_select(-1, columns)
        gradient = gradient.expand(*value.shape, -1)
        flat = torch.zeros_like(gradient).unsqueeze(-1)
        return Derivatives(value, gradient, flat.expand(*gradient.shape, len(columns)))


def _add(terms: Sequence[Callable[[Tensor], Tensor]], x: Tensor) -> Tensor:
    """Add the values of functions at the same points."""
    return reduce(torch.add, (term(x) for term in terms))


def _add_derivatives(
    tables: Sequence[Callable[[Tensor], Derivatives]], z: Tensor
) -> Derivatives:
    """Add the derivatives of functions at the same points."""
    found = zip(*(table(z) for table in tables), strict=True)
    return Derivatives(*(reduce(torch.add, parts) for parts in found))
