"""Outcome constraints that hold in the worst case, read from the user's arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.models.model import Model
from torch import Tensor

from botorch_res.checks import check_type, is_number
from botorch_res.models import ExactGPView
from botorch_res.sampling.affine import AffineFunction
from botorch_res.sampling.batch_function import BatchFunction

# As in BoTorch's constrained analytic functions: the lower and the upper bound of each
# constrained output, either of them possibly ``None``.
OutcomeConstraints = Mapping[int, tuple[float | None, float | None]]


@dataclass(frozen=True)
class Reading:
    """An output of a model, and its bounds.

    Attributes:
        view: The model of the output, in the model's units.
        limits: For each bound one for an upper or minus one for a lower bound, and its
            ``batch_shape`` values in the model's units. None for the objective.
    """

    view: ExactGPView
    limits: tuple[tuple[float, Tensor], ...] = ()

    def channels(self, samples: BatchFunction) -> list[BatchFunction]:
        """Make the functions whose worst cases count.

        Args:
            samples: ``C x batch_shape`` functions drawn from the output.

        Returns:
            The objective itself, or for each bound the distance beyond it.
        """
        if not self.limits:
            return [samples]
        return [
            AffineFunction(samples, sign, -sign * bound) for sign, bound in self.limits
        ]


def read_constraints(
    model: Model,
    constraints: Any,
    objective_index: Any,
    posterior_transform: PosteriorTransform | None,
) -> dict[int, tuple[float | None, float | None]]:
    """Check which outputs are optimised and constrained.

    Args:
        model: The model.
        constraints: The user's constraints, or ``None``.
        objective_index: The output to optimise.
        posterior_transform: The user's transform of the outcomes, if any.

    Returns:
        The bounds of the constrained outputs, in the order of the outputs.
    """
    num_outputs = getattr(model, "num_outputs", 1)
    if not _is_index(objective_index) or not 0 <= objective_index < num_outputs:
        raise InputDataError(
            "Expected `objective_index` to be a whole number from 0 to "
            f"{num_outputs - 1}, got {objective_index!r}."
        )
    if constraints is None:
        return {}
    if posterior_transform is not None:
        raise UnsupportedError(
            "Expected no `posterior_transform` beside `constraints`, got "
            f"{type(posterior_transform).__name__}."
        )
    check_constraints(constraints)
    others = [i for i in range(num_outputs) if i != objective_index]
    for index in constraints:
        if index not in others:
            raise InputDataError(
                f"Expected `constraints` of outputs among {others} (the objective is "
                f"output {objective_index} of {num_outputs}), got {index!r}."
            )
    return {int(index): constraints[index] for index in sorted(constraints)}


def check_constraints(constraints: Any) -> None:
    """Raise an error unless constraints are bounds of numbered outputs.

    Args:
        constraints: The user's constraints.
    """
    check_type("constraints", constraints, Mapping)
    for index, bounds in constraints.items():
        if not _is_index(index):
            raise InputDataError(
                f"Expected `constraints` of outputs by their numbers, got {index!r}."
            )
        _check_bounds(index, bounds)


def read_outputs(
    model: Model,
    constraints: Any,
    objective_index: int,
    negate: bool,
    posterior_transform: PosteriorTransform | None = None,
) -> list[Reading]:
    """Read the output that is optimised, and then those that are constrained.

    Args:
        model: The model.
        constraints: The user's constraints, or ``None``.
        objective_index: The output to optimise.
        negate: Whether to change the sign of that one.
        posterior_transform: The user's transform of the outcomes, if any.

    Returns:
        The outputs, in order.
    """
    limits = read_constraints(model, constraints, objective_index, posterior_transform)
    readings = [read_objective(model, objective_index, constraints, negate)]
    readings += [read_limits(model, *limit) for limit in limits.items()]
    check_members([reading.view for reading in readings])
    return readings


def read_objective(model: Model, index: int, constraints: Any, negate: bool) -> Reading:
    """Read the output that is optimised.

    Args:
        model: The model.
        index: The output.
        constraints: The user's constraints. Without any the model has one output.
        negate: Whether to change its sign.

    Returns:
        The output.
    """
    own = model if constraints is None else single_output(model, index)
    return Reading(ExactGPView(own, negate=negate, model_units=True))


def read_limits(
    model: Model, index: int, bounds: tuple[float | None, float | None]
) -> Reading:
    """Read an output that is constrained.

    Args:
        model: The model.
        index: The output.
        bounds: Its lower and its upper bound, in the user's units.

    Returns:
        The output.
    """
    own = single_output(model, index)
    units = ExactGPView(own)
    offset, scale = units.outcome_offset, units.outcome_scale
    return Reading(
        ExactGPView(own, model_units=True),
        tuple(
            (sign, ((bound - offset) / scale).squeeze(-1))
            for sign, bound in zip((-1.0, 1.0), bounds, strict=True)
            if bound is not None
        ),
    )


def beyond_bounds(
    model: Model, index: int, bounds: tuple[float | None, float | None]
) -> list[tuple[ExactGPView, Tensor]]:
    """Describe the distances of an output from its bounds.

    Args:
        model: The model.
        index: The output.
        bounds: Its lower and its upper bound, in the user's units.

    Returns:
        For each bound the model of the output, negative for a lower bound, and what to
        add to it. The sum is positive beyond the bound. It is in the model's units.
    """
    own = single_output(model, index)
    return [
        (ExactGPView(own, negate=sign < 0.0, model_units=True), -sign * bound)
        for sign, bound in read_limits(model, index, bounds).limits
    ]


def single_output(model: Model, index: int) -> Model:
    """Select one output of a model.

    Args:
        model: A model of one or several outputs.
        index: The output.

    Returns:
        The model of this output.
    """
    return model if model.num_outputs == 1 else model.subset_output([index])


def check_members(views: list[ExactGPView]) -> None:
    """Raise an error unless the models of all outputs fit together.

    Args:
        views: The models.
    """
    first = views[0]
    for view in views[1:]:
        shapes = [(*v.batch_shape, v.original_inputs.shape[-1]) for v in (first, view)]
        if shapes[0] != shapes[1]:
            raise BotorchTensorDimensionError(
                "Expected a `model` whose outputs have the same batch shape and number "
                f"of inputs, got {shapes[0]} and {shapes[1]}."
            )


def samples_of_outputs(
    samples: Any, objective_index: int, constraints: OutcomeConstraints | None
) -> list[BatchFunction]:
    """List the functions that a user has drawn.

    Args:
        samples: The user's functions; a dictionary of them if there are constraints.
        objective_index: The output to optimise.
        constraints: The constraints, or ``None``.

    Returns:
        The functions of each output.
    """
    if constraints is None:
        return [samples]
    indices = [objective_index, *sorted(constraints)]
    check_type("samples", samples, Mapping)
    if set(samples) != set(indices):
        raise InputDataError(
            f"Expected `samples` of the outputs {sorted(indices)}, got those of "
            f"{list(samples)}."
        )
    return [samples[index] for index in indices]


def _is_index(index: object) -> bool:
    """Whether a key can be the number of an output."""
    return isinstance(index, Integral) and not isinstance(index, bool)


def _check_bounds(index: Any, bounds: Any) -> None:
    """Raise an error unless bounds are a lower and an upper one."""
    is_pair = isinstance(bounds, Sequence) and len(bounds) == 2
    values = [bound for bound in bounds if bound is not None] if is_pair else []
    if not is_pair or not all(is_number(v) and math.isfinite(v) for v in values):
        raise InputDataError(
            f"Expected `constraints[{index}]` to be a lower and an upper bound, "
            f"finite numbers or None, got {bounds!r}."
        )
    if not values:
        raise InputDataError(
            f"Expected `constraints[{index}]` to have a lower or an upper bound, got "
            f"{bounds!r}."
        )
    if len(values) == 2 and not values[0] < values[1]:
        raise InputDataError(
            f"Expected `constraints[{index}]` with its lower bound below the upper "
            f"one, got {bounds!r}."
        )
