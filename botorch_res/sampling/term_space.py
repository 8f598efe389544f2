r"""The terms of a model's kernel, each in the space in which it is stationary.

A kernel is a sum of products of stationary factors and of others (see ``KernelSum``).
The others see listed columns only. There, a function has a value of its own for each
level (see ``Levels``), with the covariance of these factors between levels.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.models.transforms.input import AffineInputTransform, ChainedInputTransform
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn import Module

from botorch_res.domain import DomainPart, RobustDomain
from botorch_res.models import ExactGPView
from botorch_res.models.kernel_sum import KernelTerm
from botorch_res.sampling.expansion import Expansion
from botorch_res.sampling.levels import Levels
from botorch_res.sampling.radial_kernel import RadialKernel


class TermSpace(NamedTuple):
    """The space in which a term of the model's kernel has unit lengthscales.

    Attributes:
        term: The term.
        kernel: The product of the term's stationary factors, without its variance.
        variance: ``batch_shape x 1 x 1`` variance of these.
        scale: ``batch_shape x 1 x d`` lengthscales, infinite in columns that do not
            count; the shortest of all factors.
        shift: ``batch_shape x 1 x d`` centre of the observations.
        centers: ``batch_shape x t x d`` observations.
        slope: ``batch_shape x 1 x d`` derivative by the user's columns, or ``None``.
        levels: The levels of the term's other factors, or ``None`` if it has none.
        root: ``batch_shape x L x L`` root of the covariance of these factors between
            levels, ``1 x 1`` without levels.
        at_data: ``batch_shape x L x t`` covariance between levels and observations.
        between_data: ``batch_shape x t x t`` covariance between observations.
    """

    term: KernelTerm
    kernel: RadialKernel
    variance: Tensor
    scale: Tensor
    shift: Tensor
    centers: Tensor
    slope: Tensor | None
    levels: Levels | None
    root: Tensor
    at_data: Tensor
    between_data: Tensor

    @property
    def is_constant(self) -> bool:
        """Whether no column counts, so that the kernel needs no features."""
        return bool(self.scale.isinf().all())


def read_levels(view: ExactGPView, domain: RobustDomain | None) -> Levels | None:
    """List the levels of the kernel's factors that are not stationary.

    Args:
        view: The model.
        domain: The domain, if it is known.

    Returns:
        The levels, or ``None`` if all factors are stationary.

    Raises:
        UnsupportedError: If the domain does not list these columns.
        InputDataError: If it lists a task that the model does not know.
    """
    columns = sorted({*view.kernel.other_columns, *view.mean_columns})
    if not columns:
        return None
    name = describe_kernel(view.covar_module)
    free = columns
    if domain is not None:
        parts = (domain.x, domain.theta)
        listed = {p.columns[i] for p in parts for i in p.listed.tolist()}
        free = [i for i in columns if i not in listed or i in domain.tolerances]
    if free or domain is None:
        raise UnsupportedError(
            f"The kernel {name} has no Fourier features in the columns {free}. Use "
            "sums and products of RBFKernel and MaternKernel there, or pass a `domain` "
            "that lists the values of these columns, without a tolerance, in "
            "`x_choices` and `theta_choices`."
        )
    _check_tasks(view, parts)
    return Levels(domain, columns, view.original_inputs)


def _check_tasks(view: ExactGPView, parts: tuple[DomainPart, DomainPart]) -> None:
    """Raise an error unless a model knows all tasks that a domain lists."""
    for part in parts:
        for column, values in zip(part.listed.tolist(), part.rows.mT, strict=True):
            task = part.columns[column]
            unknown = set(values.tolist()) - set(view.tasks)
            if task == view.task_column and unknown:
                raise InputDataError(
                    f"Expected tasks of the model, {list(view.tasks)}, among the "
                    f"listed values of column {task}, got {sorted(unknown)}."
                )


def read_spaces(view: ExactGPView, levels: Levels | None) -> list[TermSpace]:
    """Read the space of each term of a model's kernel.

    Args:
        view: The model.
        levels: The levels of the factors that are not stationary.

    Returns:
        The spaces.
    """
    return [_read_space(view, term, levels) for term in view.kernel.terms]


def _read_space(
    view: ExactGPView, term: KernelTerm, levels: Levels | None
) -> TermSpace:
    """Read the space of one term."""
    inputs = view.train_inputs
    shape = (*view.batch_shape, 1, inputs.shape[-1])
    scales = [factor.lengthscale.expand(shape) for factor in term.stationary]
    scale, shares = scales[0], None
    if len(scales) > 1:
        scale = reduce(torch.minimum, scales)
        shares = torch.stack([(scale / own).nan_to_num(0.0) for own in scales])
    scaled = inputs / scale
    shift = scaled.mean(dim=-2, keepdim=True)
    slope = input_slope(view)
    one = inputs.new_ones(1, 1)
    root, at_data, between_data = one, one, one
    if not term.others:
        levels = None
    if levels is not None:
        points = levels.points(view.original_inputs.flatten(0, -2)[0])
        points = view.transform_inputs(points.expand(*view.batch_shape, -1, -1))
        covariance, at_data, between_data = (
            reduce(torch.mul, (factor.matrix(*pair) for factor in term.others))
            for pair in ((points, points), (points, inputs), (inputs, inputs))
        )
        root = covariance_root(covariance)
    return TermSpace(
        term=term,
        kernel=RadialKernel([f.smoothness for f in term.stationary], shares),
        variance=term.stationary[0].outputscale.expand(shape[:-1]).unsqueeze(-1),
        scale=scale,
        shift=shift,
        centers=scaled - shift,
        slope=None if slope is None else slope / scale,
        levels=levels,
        root=root,
        at_data=at_data,
        between_data=between_data,
    )


def input_slope(view: ExactGPView) -> Tensor | None:
    """The derivative of the model's input transform, if it is an affine map.

    Args:
        view: The model.

    Returns:
        ``batch_shape x 1 x d`` derivatives of each column by the same column, or
        ``None``.
    """
    if not _is_affine(view.input_transform):
        return None
    zero = torch.zeros_like(view.train_inputs[..., :1, :])
    ends = torch.cat([zero, torch.ones_like(zero)], dim=-2)
    return view.transform_inputs(ends).diff(dim=-2)


def covariance_root(covariance: Tensor) -> Tensor:
    """A matrix whose product with its transpose is a covariance, singular or not.

    Args:
        covariance: ``... x n x n`` positive semi-definite matrices.

    Returns:
        ``... x n x n`` roots.
    """
    root: Tensor
    root, info = torch.linalg.cholesky_ex(covariance)
    if bool((info > 0).any()):
        values, vectors = torch.linalg.eigh(covariance)
        root = vectors * values.clamp_min(0.0).sqrt().unsqueeze(-2)
    return root


def build_expansion(
    view: ExactGPView,
    space: TermSpace,
    frequencies: Tensor,
    weights: Tensor,
    kernel_weights: Tensor | None,
) -> Expansion:
    """Put a term together and convert it to the user's units.

    Args:
        view: The model.
        space: The space of the term.
        frequencies: ``batch_shape x F / 2 x d`` frequencies.
        weights: ``batch_shape x C x F`` weights of all cosines, then all sines; with
            levels, ``batch_shape x C x L x F``.
        kernel_weights: ``batch_shape x C x t`` weights of the kernel at the
            observations; with levels, ``batch_shape x C x L x t``; or ``None``.

    Returns:
        The expansion.
    """
    samples = -2 if space.levels is None else -3
    unit = view.outcome_scale[(...,) + (None,) * (-1 - samples)]
    cosines, sines = (unit * weights).movedim(samples, 0).tensor_split(2, dim=-1)
    centers = space.centers
    if kernel_weights is None:
        centers = centers[..., :0, :]
        kernel_weights = weights[..., :0]
    else:
        variance = space.variance if samples == -2 else space.variance.unsqueeze(-1)
        kernel_weights = variance * kernel_weights
    return Expansion(
        frequencies=frequencies,
        cosines=cosines,
        sines=sines,
        centers=centers,
        kernel_weights=(unit * kernel_weights).movedim(samples, 0),
        offset=torch.zeros_like(view.outcome_scale).squeeze(-1),
        kernel=space.kernel,
        scale=space.scale,
        shift=space.shift,
        input_transform=view.input_transform,
        slope=space.slope,
        levels=space.levels,
    )


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


def _is_affine(transform: Module | None) -> bool:
    """Whether an input transform is an affine map of each column."""
    if isinstance(transform, ChainedInputTransform):
        return all(_is_affine(link) for link in transform.values())
    return transform is None or isinstance(transform, AffineInputTransform)
