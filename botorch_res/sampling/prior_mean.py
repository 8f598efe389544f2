"""The prior mean of a Gaussian process as a batch of functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from botorch_res.models import ExactGPView
from botorch_res.sampling.batch_function import BatchFunction
from botorch_res.sampling.expansion import Expansion
from botorch_res.sampling.function_sum import FunctionSum, LinearFunction
from botorch_res.sampling.levels import Levels
from botorch_res.sampling.radial_kernel import RadialKernel
from botorch_res.sampling.term_space import input_slope


def add_prior_mean(
    view: ExactGPView, levels: Levels | None, terms: Sequence[Expansion]
) -> BatchFunction:
    """Add the terms of functions, and the prior mean.

    Args:
        view: The model.
        levels: The levels on which the mean may depend.
        terms: The terms, in the user's units.

    Returns:
        Their sum with the mean, in the user's units.

    Raises:
        UnsupportedError: If the mean is neither constant nor linear, nor constant for
            each task.
    """
    view.check_mean()
    first = terms[0]
    shape = first.sample_shape
    if view.has_constant_mean:
        mean = view.untransform_outcomes(view.prior_mean(view.train_inputs)[..., :1])
        first.offset = mean.squeeze(-1).expand(shape).clone()
        return first if len(terms) == 1 else FunctionSum(terms)
    if levels is not None and view.mean_columns:
        return FunctionSum([*terms, _task_means(view, levels, first)])
    module: Any = view.mean_module
    scale = view.sign * view.outcome_scale
    weights = scale.unsqueeze(-1) * module.weights
    bias = torch.zeros_like(scale) if module.bias is None else module.bias
    offset = (view.outcome_offset + scale * bias).squeeze(-1)
    linear = LinearFunction(
        weights.expand(*shape, -1, -1).clone(),
        offset.expand(shape).clone(),
        view.input_transform,
        input_slope(view),
    )
    return FunctionSum([*terms, linear])


def _task_means(view: ExactGPView, levels: Levels, like: Expansion) -> Expansion:
    """Functions that have a constant value for each task."""
    points = levels.points(view.original_inputs.flatten(0, -2)[0])
    mean = view.prior_mean(view.transform_inputs(points)).expand(*view.batch_shape, -1)
    # The cosine of a frequency of zero is one.
    weights = view.untransform_outcomes(mean).unsqueeze(-1)
    weights = weights.expand(*like.sample_shape, -1, -1).clone()
    centers = like.centers[..., :0, :]
    return Expansion(
        frequencies=torch.zeros_like(like.shift),
        cosines=weights,
        sines=torch.zeros_like(weights),
        centers=centers,
        kernel_weights=weights[..., :0],
        offset=torch.zeros_like(like.offset),
        kernel=RadialKernel([math.inf], None),
        scale=torch.full_like(like.scale, math.inf),
        shift=torch.zeros_like(like.shift),
        input_transform=like.input_transform,
        slope=None if like.slope is None else torch.zeros_like(like.slope),
        levels=levels,
    )
