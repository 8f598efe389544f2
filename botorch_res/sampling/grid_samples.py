r"""Exact joint samples of a Gaussian process on a finite domain.

Some kernels have no Fourier features: categorical and periodic ones, sums, products. If
both parts of the domain are finite, they can still be sampled exactly. The functions
are then tables of jointly normal values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from gpytorch.kernels import Kernel
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor
from torch.nn import Module

from botorch_res.domain import DomainPart, RobustDomain
from botorch_res.models import ExactGPView
from botorch_res.sampling.batch_function import BatchFunction

# The joint covariance of this many points takes 200 MB in double precision.
MAX_JOINT_POINTS = 5000


class GridSamples(BatchFunction):
    """Functions that are known only on the points of a finite domain.

    Attributes:
        table: ``sample_shape x n_x x n_theta`` values.
    """

    table: Tensor

    def __init__(self, table: Tensor, domain: RobustDomain) -> None:
        """Store the values.

        Args:
            table: ``sample_shape x n_x x n_theta`` values.
            domain: The finite domain, with ``n_x`` and ``n_theta`` choices.
        """
        super().__init__()
        self.register_buffer("table", table)
        self.domain = domain
        self.sample_shape = table.shape[:-2]
        self.dim = domain.dim

    @property
    def num_samples(self) -> int:
        """The number ``C`` of functions (for each model of a batch)."""
        return self.sample_shape[0]

    def forward(self, z: Tensor) -> Tensor:
        """Look the values up.

        Args:
            z: ``n x d`` or ``sample_shape x n x d`` points of the domain.

        Returns:
            ``sample_shape x n`` values.
        """
        x, theta = self.domain.split(z)
        row = _find(self.domain.x, x)
        column = _find(self.domain.theta, theta)
        index = row * self.table.shape[-1] + column
        shape = (*self.sample_shape, z.shape[-2])
        return self.table.flatten(-2).gather(-1, index.expand(shape))

    def derivatives(self, z: Tensor, columns: Tensor) -> NoReturn:
        """Raise: a table of values has no derivatives.

        Args:
            z: Ignored.
            columns: Ignored.
        """
        raise UnsupportedError(
            "Joint samples on a finite domain have no derivatives; use them with the "
            "finite domain on which they were drawn."
        )

    def theta_table(
        self, thetas: Tensor, domain: RobustDomain
    ) -> Callable[[Tensor], Tensor]:
        """Prepare the evaluation on a fixed set of thetas.

        Args:
            thetas: ``M x d_theta`` uncontrollable choices.
            domain: The domain, which knows the controllable columns.

        Returns:
            A function of ``b x d_x`` or ``sample_shape x b x d_x`` controllable choices
            that returns the ``sample_shape x b x M`` values at all pairs.
        """
        column = _find(self.domain.theta, thetas)
        return partial(_look_up, self.table.index_select(-1, column), self.domain)

    def _apply(self, fn: Any, recurse: bool = True) -> GridSamples:
        """Move to a dtype or device together with the domain."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.domain = self.domain.to(self.table.dtype, self.table.device)
        return self


def draw_grid_samples(
    view: ExactGPView, num_samples: int, domain: RobustDomain | None
) -> GridSamples:
    """Draw exact joint samples on all points of a finite domain.

    Args:
        view: The model.
        num_samples: The number ``C`` of functions (for each model of a batch).
        domain: The domain.

    Returns:
        ``C x batch_shape`` functions, in the user's units.

    Raises:
        UnsupportedError: If the domain is not finite, or too large.
    """
    name = describe_kernel(view.covar_module)
    if domain is None or not (domain.x.is_finite and domain.theta.is_finite):
        raise UnsupportedError(
            f"The kernel {name} has no Fourier features. Use an RBFKernel or a "
            "MaternKernel (with or without ScaleKernel, without active_dims), or pass "
            "a `domain` with `x_choices` and `theta_choices`, on which exact joint "
            "samples can be drawn."
        )
    pairs = domain.all_pairs()
    if pairs.shape[:2].numel() > MAX_JOINT_POINTS:
        raise UnsupportedError(
            f"The kernel {name} has no Fourier features, and the domain has too many "
            f"points for exact joint samples: {pairs.shape[:2].numel()} instead of at "
            f"most {MAX_JOINT_POINTS}."
        )
    points = view.transform_inputs(pairs.flatten(0, 1))
    mean, covariance = view.joint_posterior(points)
    factor = psd_safe_cholesky(covariance)
    normal = torch.randn(
        *factor.shape[:-2],
        num_samples,
        factor.shape[-1],
        dtype=factor.dtype,
        device=factor.device,
    )
    values = view.untransform_outcomes(mean).unsqueeze(-2)
    values = values + view.outcome_scale.unsqueeze(-1) * (normal @ factor.mT)
    return GridSamples(values.movedim(-2, 0).unflatten(-1, pairs.shape[:2]), domain)


def describe_kernel(kernel: Module) -> str:
    """Name a kernel and the kernels inside it.

    Args:
        kernel: A GPyTorch kernel.

    Returns:
        For example ``ScaleKernel(PeriodicKernel)``. A kernel that sees only some of the
        columns is named with these columns.
    """
    inner = [
        describe_kernel(child)
        for child in (*kernel.children(), *getattr(kernel, "kernels", []))
        if isinstance(child, Kernel)
    ]
    name = type(kernel).__name__
    if inner:
        return f"{name}({', '.join(inner)})"
    columns: Tensor | None = getattr(kernel, "active_dims", None)
    return name if columns is None else f"{name} of the columns {columns.tolist()}"


def _look_up(table: Tensor, domain: RobustDomain, x: Tensor) -> Tensor:
    """Look up a ``sample_shape x n_x x M`` table at controllable choices."""
    row = _find(domain.x, x).unsqueeze(-1)
    return table.gather(-2, row.expand(*table.shape[:-2], -1, table.shape[-1]))


def _find(part: DomainPart, points: Tensor) -> Tensor:
    """Find the ``... x n`` positions of points among the choices."""
    choices = part.choices
    assert choices is not None
    width = choices.amax(dim=0) - choices.amin(dim=0)
    # Points went through a few operations since they were choices. A thousand rounding
    # units is a safe choice: it covers these, and tells any sensible choices apart.
    tolerance = (
        1e3 * torch.finfo(choices.dtype).eps * (width + choices.abs().amax(dim=0))
    )
    same = ((points.unsqueeze(-2) - choices).abs() <= tolerance).all(dim=-1)
    missing = ~same.any(dim=-1)
    if missing.any():
        raise InputDataError(
            "Samples of a kernel without Fourier features exist only on a finite "
            "domain. Expected all points, also those of the training data, to be "
            f"among its `{part.name}_choices`, got {points[missing][0].tolist()}."
        )
    return same.to(torch.uint8).argmax(dim=-1)
