r"""Batches of functions, and what the optimisers need from them.

``worst_case`` and ``robust_optimum`` work on ``sample_shape`` functions at once:
posterior samples, a posterior mean, or any function that a user can write. The
``sample_shape`` of ``C`` samples of a model is ``C x batch_shape``, as in BoTorch, so
that points broadcast. All functions share ``n x d`` points. All samples of a model
share ``batch_shape x n x d`` points. With ``sample_shape x n x d`` points, each
function has its own. The optimisers need a ``BatchFunction``, which has

- values at points;
- values, gradients and Hessians with respect to some of the columns;
- values at all pairs of some ``x`` with a fixed set of ``theta``;
- optionally a lengthscale, which tells how fine a search must be.

The base class provides all but the first by autograd and plain evaluation, so any batch
callable will do. Posterior samples replace them by closed forms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from torch import Tensor
from torch.nn import Module

from botorch_res.domain import RobustDomain

# The largest number of points at which a callable is evaluated at once. A safe choice:
# a callable that makes a hundred numbers of each point then takes 200 MB.
MAX_POINTS_AT_ONCE = 2**18


class Derivatives(NamedTuple):
    """Values and derivatives of a batch of functions at given points.

    Attributes:
        value: ``sample_shape x n``.
        gradient: ``sample_shape x n x k``, one entry for each of ``k`` columns.
        hessian: ``sample_shape x n x k x k``.
    """

    value: Tensor
    gradient: Tensor
    hessian: Tensor


class BatchFunction(Module, ABC):
    """A batch of ``sample_shape`` real functions of ``d`` variables.

    Attributes:
        sample_shape: The shape of the batch; empty for a single function.
        lengthscale: The distance, in each of the ``d`` columns, over which the
            functions change, or ``None`` if it is unknown.
        is_analytic: Whether polynomials approximate the functions well over distances
            of a lengthscale.
        dim: The number of columns ``d``, or ``None`` if it is unknown.
        width: ``d`` widths of the region of interest. They set the size of differences
            for functions that have no second derivatives in autograd.
    """

    sample_shape: torch.Size
    dim: int | None = None
    width: Tensor
    lengthscale: Tensor | None = None
    is_analytic: bool = False

    def accepts(self, z: Tensor) -> bool:
        """Whether points broadcast with ``sample_shape x n x d``.

        Args:
            z: Points.

        Returns:
            Whether the points fit these functions without adding to their number.
        """
        sizes = zip(z.shape[-3::-1], self.sample_shape[::-1], strict=False)
        return 2 <= z.ndim <= 2 + len(self.sample_shape) and all(
            size in (1, own) for size, own in sizes
        )

    def is_shared(self, z: Tensor) -> bool:
        """Whether all samples of a model share their points.

        Args:
            z: Points that broadcast with ``sample_shape x n x d``.

        Returns:
            Whether the points have no dimension of samples, or one of size 1.
        """
        return z.ndim < 2 + len(self.sample_shape) or z.shape[:-2][:1] in ((), (1,))

    @abstractmethod
    def forward(self, z: Tensor) -> Tensor:
        """Evaluate the functions.

        Args:
            z: Points that broadcast with ``sample_shape x n x d``.

        Returns:
            ``sample_shape x n`` values.
        """

    def derivatives(self, z: Tensor, columns: Tensor) -> Derivatives:
        """Value, gradient and Hessian with respect to some columns.

        Both derivatives come from autograd. Some functions have no second derivative
        there (``torch.cdist``, and with it many GPyTorch kernels). For these, the
        Hessian comes from central differences of gradients.

        Args:
            z: ``sample_shape x n x d`` points, each function its own.
            columns: The indices of the ``k`` columns of ``z`` to differentiate by,
                which may repeat.

        Returns:
            The values and derivatives, detached from any graph.
        """
        with torch.enable_grad():
            leaf = z.detach().clone().requires_grad_()
            value = self(leaf)
            try:
                gradient = _gradient(value, leaf, create_graph=True)
                gradient = gradient.index_select(-1, columns)
                # A loop over columns, not points, with one backward pass for each.
                rows = [_gradient(slope, leaf) for slope in gradient.unbind(dim=-1)]
                hessian = torch.stack(rows, dim=-2).index_select(-1, columns)
            except NotImplementedError:
                gradient = _gradient(value, leaf).index_select(-1, columns)
                hessian = self._difference_hessian(z.detach(), columns)
        return Derivatives(
            value.detach(), gradient.detach(), 0.5 * (hessian + hessian.mT)
        )

    def derivative_table(self, columns: Tensor) -> Callable[[Tensor], Derivatives]:
        """Prepare the derivatives with respect to some columns.

        Args:
            columns: The indices of the ``k`` columns of ``z`` to differentiate by.

        Returns:
            A function of ``sample_shape x n x d`` points, each function its own, that
            returns values and derivatives.
        """
        return partial(self.derivatives, columns=columns)

    def _difference_hessian(self, z: Tensor, columns: Tensor) -> Tensor:
        """Take central differences of gradients, for all points and columns at once."""
        k = len(columns)
        step = torch.finfo(z.dtype).eps ** (1.0 / 3.0) * self.width
        step = torch.diag_embed(step).index_select(0, columns)
        moves = torch.stack([step, -step])  # 2 x k x d
        leaf = (z[..., None, None, :] + moves).flatten(-4, -2).requires_grad_()
        slopes = _gradient(self(leaf), leaf).index_select(-1, columns)
        forward, backward = slopes.unflatten(-2, (z.shape[-2], 2, k)).unbind(dim=-3)
        distance = (moves[0] - moves[1]).sum(dim=-1, keepdim=True)
        hessian: Tensor = (forward - backward) / distance
        return hessian

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

        def evaluate(x: Tensor) -> Tensor:
            if x.ndim > 2:
                x = x.expand(*self.sample_shape, *x.shape[-2:])
            z = domain.join(x.unsqueeze(-2), thetas)
            values: Tensor = self(z.flatten(-3, -2)).unflatten(-1, z.shape[-3:-1])
            return values

        def table(x: Tensor) -> Tensor:
            copies = 1 if x.ndim == 2 else self.sample_shape.numel()
            rows = max(1, MAX_POINTS_AT_ONCE // (len(thetas) * copies))
            return torch.cat([evaluate(part) for part in x.split(rows, dim=-2)], dim=-2)

        return table


def _gradient(value: Tensor, leaf: Tensor, create_graph: bool = False) -> Tensor:
    """Differentiate point-wise values; zero where they do not depend on the points."""
    if not value.requires_grad:
        return torch.zeros_like(leaf)
    (gradient,) = torch.autograd.grad(
        value.sum(),
        leaf,
        retain_graph=True,
        create_graph=create_graph,
        allow_unused=True,
        materialize_grads=True,
    )
    return gradient


class CallableFunction(BatchFunction):
    """A batch of functions made from any differentiable batch callable."""

    def __init__(
        self, function: Callable[[Tensor], Tensor], domain: RobustDomain
    ) -> None:
        """Wrap a callable.

        Args:
            function: Maps ``n x d`` points, and ``sample_shape x n x d`` points, to
                ``sample_shape x n`` values. It is evaluated once at a few points of the
                domain to find ``sample_shape``.
            domain: The domain of the function.

        Raises:
            BotorchTensorDimensionError: If the values have the wrong shape.
            InputDataError: If the values are not a tensor, or not finite.
        """
        super().__init__()
        self.callable = function
        self.register_buffer("width", domain.bounds[1] - domain.bounds[0])
        # More points than columns, so that the two cannot be confused.
        probe = domain.sample(domain.dim + 1, seed=0)
        with torch.no_grad():
            values: object = function(probe)
        if not isinstance(values, Tensor):
            raise InputDataError(
                f"Expected `function` to return a tensor, got {type(values).__name__}."
            )
        if values.shape[-1:] != probe.shape[:1]:
            raise BotorchTensorDimensionError(
                f"Expected `function` to map points of shape {tuple(probe.shape)} to "
                f"values of shape sample_shape x {probe.shape[0]}, got shape "
                f"{tuple(values.shape)}."
            )
        _check_values(values, probe)
        self.sample_shape = values.shape[:-1]

    def forward(self, z: Tensor) -> Tensor:
        """Evaluate the callable.

        Args:
            z: ``n x d`` or ``sample_shape x n x d`` points.

        Returns:
            ``sample_shape x n`` values.

        Raises:
            InputDataError: If a value is not finite.
        """
        values = self.callable(z)
        _check_values(values, z)
        return values


def _check_values(values: Tensor, z: Tensor) -> None:
    """Raise an error that says where a callable's values are not finite."""
    finite = values.isfinite()
    if not finite.all():
        point = z.detach().expand(*values.shape, -1)[~finite][0]
        raise InputDataError(
            "Expected `function` to be finite in the whole domain, but at "
            f"{point.tolist()} it is not."
        )


def as_batch_function(
    function: BatchFunction | Callable[[Tensor], Tensor], domain: RobustDomain
) -> BatchFunction:
    """Give any batch callable the interface that the optimisers need.

    Args:
        function: A ``BatchFunction``, or a differentiable callable that maps ``n x d``
            and ``sample_shape x n x d`` points to ``sample_shape x n`` values.
        domain: The domain of the function.

    Returns:
        The function itself, or a wrapper that differentiates it by autograd.
    """
    if isinstance(function, BatchFunction):
        return function
    if not callable(function):
        raise InputDataError(
            "Expected `function` to be a BatchFunction or a callable, got "
            f"{type(function).__name__}."
        )
    return CallableFunction(function, domain)
