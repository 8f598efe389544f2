r"""The worst case ``h(x) = argmax over theta of f(x, theta)``, for many ``x`` at once.

A worst case can jump from one basin to another as ``x`` moves, so the search is global
at every ``x``. In a finite set it compares all thetas. In a box it computes the values
on a product grid (one matrix product for posterior samples), takes the most promising
local maxima, and improves them by Newton's method. If some columns of theta are listed,
it searches the box of the others for each row of listed values, all in one batch.

The result is the value of the function at a point of the domain. It can be below the
true maximum, but not above. Functions of a Matern kernel with ``nu = 0.5`` have peaks
at all scales, and no grid resolves all of them. Expect the highest peak that the grid
can see.

The gradient by ``x`` follows the envelope theorem for the value, and the implicit
function theorem for the location (``branches.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from torch import Tensor
from torch.nn.functional import pad

from botorch_res.checks import check_number, check_type
from botorch_res.domain import DomainPart, RobustDomain
from botorch_res.optim.worst_cases.box_search import BoxSearch
from botorch_res.optim.worst_cases.branches import Branches
from botorch_res.optim.worst_cases.mixed_search import MixedSearch
from botorch_res.optim.worst_cases.theta_search import (
    FiniteSearch,
    LocalMaxima,
    Slopes,
    ThetaSearch,
    WorstCase,
)
from botorch_res.sampling import BatchFunction, Derivatives, as_batch_function, memory
from botorch_res.sampling.local_polynomials import LocalPolynomials, expand_locally

# With less effort the grids would be empty.
LEAST_EFFORT = 0.01


class WorstCaseSolver:
    """Finds worst cases of a batch of functions, with all tables made once.

    Call it with controllable parts that broadcast with ``sample_shape x b x d_x``.
    """

    def __init__(
        self,
        function: BatchFunction | Callable[[Tensor], Tensor],
        domain: RobustDomain,
        effort: float = 1.0,
    ) -> None:
        """Make the tables.

        Args:
            function: Posterior samples, or any differentiable callable that maps
                ``n x d`` and ``sample_shape x n x d`` points to ``sample_shape x n``
                values.
            domain: The domain.
            effort: Scales the density of the grid and the number of local searches.
        """
        check_type("domain", domain, RobustDomain)
        check_number("effort", effort, LEAST_EFFORT)
        self.functions = as_batch_function(function, domain)
        self.domain = domain
        if self.functions.dim not in (None, domain.dim):
            raise BotorchTensorDimensionError(
                f"Expected a `domain` with {self.functions.dim} columns, as many as "
                f"the function's inputs have, got {domain.dim}."
            )
        dtypes = {b.dtype for b in self.functions.buffers() if b.is_floating_point()}
        if dtypes and domain.bounds.dtype not in dtypes:
            raise InputDataError(
                f"Expected a `domain` of the function's dtype {dtypes.pop()}, got "
                f"{domain.bounds.dtype}; use `domain.to(dtype)`."
            )
        self.effort = effort
        local = self._expand()
        self.search = self._make_search(local is not None)
        source = self.functions if local is None else local
        x, theta = domain.x.index, domain.theta.index[domain.theta.free]
        with torch.no_grad():
            self.table = self.functions.theta_table(self.thetas, domain)
            self.derivative_tables = [
                source.derivative_table(index)
                for index in (x, theta, torch.cat([x, theta]))
            ]

    @property
    def thetas(self) -> Tensor:
        """The ``M x d_theta`` thetas whose values the search starts from."""
        return self.search.thetas

    def _expand(self) -> LocalPolynomials | None:
        """Expand the functions, if they have the same two variables as theta."""
        x, theta = self.domain.x, self.domain.theta
        if not len(theta.free) == self.domain.dim == 2:
            return None
        corners = zip(x.bounds, theta.bounds, strict=True)
        bounds = torch.stack([self.domain.join(*corner) for corner in corners])
        return expand_locally(self.functions, bounds)

    def _make_search(self, is_expanded: bool) -> ThetaSearch:
        """Make the search over the domain's thetas."""
        theta = self.domain.theta
        if theta.choices is not None:
            return FiniteSearch(theta.choices)
        lengthscale = self.lengthscale(theta)
        is_analytic = self.functions.is_analytic
        box = BoxSearch(
            theta.free_bounds, lengthscale, is_analytic, self.effort, is_expanded
        )
        return box if theta.is_box else MixedSearch(theta, box)

    def __call__(self, x: Tensor) -> WorstCase:
        """Find the worst cases, with gradients if ``x`` requires them.

        Args:
            x: Controllable parts that broadcast with ``sample_shape x b x d_x``.

        Returns:
            Worst cases and their values.
        """
        (theta, value), _ = self.local_worst_cases(x, 1)
        return WorstCase(theta.squeeze(-2), value.squeeze(-1))

    def local_worst_cases(
        self, x: Tensor, num_branches: int
    ) -> tuple[WorstCase, Tensor]:
        """Find the worst case and its runners-up, with gradients if ``x`` needs them.

        In a box these are the highest local maxima, in a finite set the best choices.

        Args:
            x: Controllable parts that broadcast with ``sample_shape x b x d_x``.
            num_branches: The number ``k`` of local worst cases.

        Returns:
            The ``sample_shape x b x k`` local worst cases, the worst first, and their
            depths; see ``LocalMaxima``.
        """
        self.check_shape(x)
        with torch.no_grad():
            chunks = [
                self._rank(part, num_branches) for part in self._chunks(x.detach())
            ]
            axis = len(self.functions.sample_shape)
            theta, value, depth, valley = (
                torch.cat(column, axis) for column in zip(*chunks, strict=True)
            )
        if x.requires_grad and torch.is_grad_enabled():
            points = torch.cat([theta, valley], dim=-2)
            branch = self.search.follow(points, self._slopes(x.detach()))
            # The change is zero, but has the right derivative: it is linear in x.
            change = (x - x.detach()).unsqueeze(-2)
            slide = branch.shift[..., :num_branches, :, :] * change.unsqueeze(-2)
            rise = (branch.gradient * change).sum(dim=-1)
            rise, lowest = rise.tensor_split([num_branches], dim=-1)
            # The lowest points of the valleys are grid points and do not move.
            unknown = num_branches - lowest.shape[-1]
            theta, value = theta + slide.sum(dim=-1), value + rise
            depth = depth + pad(rise[..., unknown:] - lowest, (unknown, 0))
        return WorstCase(theta, value), depth

    def _rank(self, x: Tensor, num_branches: int) -> LocalMaxima:
        """Find the highest local maxima over theta."""
        return self.search.maximize(self.table(x), self._slopes(x), num_branches)

    def lengthscale(self, part: DomainPart) -> Tensor | None:
        """Get the functions' lengthscales in the free columns of a part of the domain.

        Args:
            part: The part.

        Returns:
            The lengthscales, or ``None`` if they are unknown.
        """
        scale = self.functions.lengthscale
        return None if scale is None else part.free_of(part.of(scale))

    def lower_bound(self, x: Tensor) -> Tensor:
        """Bound the worst case from below by the largest value at the search's thetas.

        Args:
            x: ``b x d_x`` or ``sample_shape x b x d_x`` controllable parts.

        Returns:
            ``sample_shape x b`` values.
        """
        # Only the largest values of a chunk are kept.
        parts = [
            self.search.inside(self.table(part)).amax(dim=-1)
            for part in self._chunks(x)
        ]
        return torch.cat(parts, dim=-1)

    def _chunks(self, x: Tensor) -> tuple[Tensor, ...]:
        """Cut controllable parts into chunks whose tables fit into memory."""
        size = self.functions.sample_shape.numel() * len(self.thetas)
        rows = max(1, memory.MAX_ELEMENTS // size)
        chunks: tuple[Tensor, ...] = x.split(rows, dim=-2)
        return chunks

    def check_shape(self, x: Tensor) -> None:
        """Raise an error if controllable parts have the wrong shape.

        Args:
            x: The controllable parts.
        """
        shape = self.functions.sample_shape
        if x.shape[-1:] != (self.domain.x.dim,) or not self.functions.accepts(x):
            raise BotorchTensorDimensionError(
                f"Expected `x` of shape b x d_x or {tuple(shape)} x b x d_x with d_x = "
                f"{self.domain.x.dim}, got shape {tuple(x.shape)}."
            )

    def is_complete(self, num_branches: int) -> bool:
        """Whether a number of branches covers all thetas.

        Args:
            num_branches: The number of branches.

        Returns:
            Whether theta has at most this many choices.
        """
        return self.search.is_complete(num_branches)

    def branches(
        self, x: Tensor, num_branches: int, known: Tensor | None = None
    ) -> Branches:
        """Find local worst cases at each point, and tell how they move with ``x``.

        Args:
            x: ``sample_shape x b x d_x`` controllable parts, each function its own.
            num_branches: The number of local worst cases to look for.
            known: ``sample_shape x b x m x d_theta`` approximate local worst cases to
                include. A finite set ignores them.

        Returns:
            The branches, in no order.
        """
        slopes = self._slopes(x)
        if self.search.is_complete(num_branches):
            return slopes.hold(self.thetas.expand(*x.shape[:-1], *self.thetas.shape))
        values = partial(self.table, x)
        return self.search.branches(values, slopes, num_branches, known)

    def hold(self, x: Tensor, theta: Tensor) -> Branches:
        """Tell how the values at fixed thetas change with ``x``.

        Args:
            x: Controllable parts that broadcast with ``sample_shape x b x d_x``.
            theta: ``sample_shape x b x k x d_theta`` thetas.

        Returns:
            The branches.
        """
        return self._slopes(x).hold(theta)

    def _slopes(self, x: Tensor) -> Slopes:
        """Prepare the derivatives at controllable parts."""
        return Slopes(*(partial(self._at, x, t) for t in self.derivative_tables))

    def _at(
        self, x: Tensor, table: Callable[[Tensor], Derivatives], theta: Tensor
    ) -> Derivatives:
        """Differentiate at ``sample_shape x b x k x d_theta`` thetas."""
        result = table(self.domain.join(x.unsqueeze(-2), theta).flatten(-3, -2))
        shape = theta.shape[-3:-1]
        return Derivatives(
            result.value.unflatten(-1, shape),
            result.gradient.unflatten(-2, shape),
            result.hessian.unflatten(-3, shape),
        )


def worst_case(
    function: BatchFunction | Callable[[Tensor], Tensor],
    x: Tensor,
    domain: RobustDomain,
    effort: float = 1.0,
) -> WorstCase:
    """Find the worst theta at each ``x``, for a batch of functions.

    To use the same functions many times, make a ``WorstCaseSolver`` once.

    Args:
        function: Posterior samples, or any differentiable callable that maps ``n x d``
            and ``sample_shape x n x d`` points to ``sample_shape x n`` values.
        x: ``b x d_x`` controllable parts for all functions, or
            ``sample_shape x b x d_x``, each function its own.
        domain: The domain.
        effort: Scales the density of the grid and the number of local searches.

    Returns:
        The worst cases ``sample_shape x b x d_theta`` and their values
        ``sample_shape x b``, differentiable in ``x`` (first derivatives only).

    Example:
        >>> samples = draw_fourier_samples(model, num_samples=16, seed=0)
        >>> theta, value = worst_case(samples, domain.x.sample(5, seed=0), domain)
        >>> value.shape
        torch.Size([16, 5])
    """
    solver = WorstCaseSolver(function, domain, effort)
    check_type("x", x, Tensor)
    solver.check_shape(x)
    inside = domain.x.contains(x)
    if not bool(inside.all()):
        raise InputDataError(
            f"Expected `x` in the domain, got {x[~inside][0].tolist()}."
        )
    return solver(x)
