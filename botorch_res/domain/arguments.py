"""The arguments of a domain: checks, and the forms that users can give them."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from torch import Tensor

from botorch_res.checks import (
    check_finite,
    check_like,
    check_type,
    is_number,
    require,
)
from botorch_res.domain.part import ROUNDING, DomainPart

# What users give for choices: the rows of all columns of a part, or a dictionary of the
# values of some columns, or of the rows of some tuples of columns.
Choices = Tensor | Mapping[Any, Any]
# Linear constraints: indices, coefficients and a right-hand side of each.
Constraints = Sequence[tuple[Tensor | Sequence[int], Tensor | Sequence[float], float]]


def read_choices(
    part: str, columns: Sequence[int], bounds: Tensor, choices: Choices | None
) -> tuple[list[int], Tensor | None]:
    """Read the values that a part of the domain can take.

    Args:
        part: The part's name, ``"x"`` or ``"theta"``.
        columns: Its columns of ``z``.
        bounds: The ``2 x d`` bounds of all columns of ``z``.
        choices: The user's argument.

    Returns:
        The places of the listed columns among those of the part, in increasing order,
        and their ``n x d_listed`` rows.
    """
    name = f"{part}_choices"
    if choices is None:
        return [], None
    if isinstance(choices, Tensor):
        rows = _validated_rows(name, choices, columns, bounds)
        return list(range(len(columns))), rows
    if not isinstance(choices, Mapping) or not choices:
        raise InputDataError(
            f"Expected `{name}` to be a tensor of the rows of all columns of {part}, "
            f"or a dictionary from columns to their values, got {choices!r}."
        )
    groups = [
        (key if isinstance(key, tuple) else (key,), key, values)
        for key, values in choices.items()
    ]
    listed = [column for group, _, _ in groups for column in group]
    unknown = [c for c in listed if type(c) is not int or c not in columns]
    if unknown or len(set(listed)) < len(listed) or not all(g for g, _, _ in groups):
        raise InputDataError(
            f"Expected `{name}` of the columns {list(columns)}, each at most once, got "
            f"the keys {list(choices)}."
        )
    tables = []
    for group, key, values in groups:
        rows = _as_rows(f"{name}[{key!r}]", values, bounds, isinstance(key, tuple))
        tables.append(_validated_rows(f"{name}[{key!r}]", rows, group, bounds))
    index = torch.cartesian_prod(*(torch.arange(len(rows)) for rows in tables))
    index = index.view(-1, len(tables)).to(bounds.device)
    chosen = [rows[i] for rows, i in zip(tables, index.unbind(-1), strict=True)]
    places = [list(columns).index(column) for column in listed]
    order = sorted(range(len(places)), key=places.__getitem__)
    return sorted(places), torch.cat(chosen, dim=-1)[:, order]


def _as_rows(name: str, values: Any, bounds: Tensor, is_group: bool) -> Tensor:
    """Turn the listed values of a column, or rows of several, into a matrix."""
    if not isinstance(values, Tensor):
        try:
            values = bounds.new_tensor(values)
        except (TypeError, ValueError, RuntimeError) as error:
            kind = "rows of numbers" if is_group else "numbers"
            raise InputDataError(
                f"Expected `{name}` to be a list of {kind}, got {values!r}."
            ) from error
    rows: Tensor = values if is_group or values.ndim != 1 else values.unsqueeze(-1)
    return rows


def _validated_rows(
    name: str, rows: Tensor, columns: Sequence[int], bounds: Tensor
) -> Tensor:
    """Copy the user's rows, or raise an error that says what is wrong."""
    _check_float_tensor(name, rows)
    check_like(name, rows, bounds)
    if rows.ndim != 2 or rows.shape[-1] != len(columns) or len(rows) < 1:
        raise BotorchTensorDimensionError(
            f"Expected `{name}` of shape n x {len(columns)} (one column for each of "
            f"the columns {list(columns)} of z) with n of at least 1, got "
            f"shape {tuple(rows.shape)}."
        )
    lower, upper = bounds[:, list(columns)]
    slack = ROUNDING * (upper - lower)
    outside = ~((rows >= lower - slack) & (rows <= upper + slack)).all(dim=-1)
    if outside.any():
        row = int(outside.nonzero()[0])
        raise InputDataError(
            f"Expected `{name}` within the bounds {lower.tolist()} to "
            f"{upper.tolist()}, got {rows[row].tolist()} in row {row}."
        )
    unique, counts = rows.unique(dim=0, return_counts=True)
    if len(unique) < len(rows):
        raise InputDataError(
            f"Expected distinct rows in `{name}`, got "
            f"{unique[counts.argmax()].tolist()} {int(counts.max())} times."
        )
    return rows.detach().clone()


def validated_bounds(bounds: Tensor) -> Tensor:
    """Copy the user's bounds, or raise an error that says what is wrong."""
    _check_float_tensor("bounds", bounds)
    if bounds.ndim != 2 or bounds.shape[0] != 2 or bounds.shape[1] < 1:
        raise BotorchTensorDimensionError(
            "Expected `bounds` of shape 2 x d with d of at least 1, got shape "
            f"{tuple(bounds.shape)}."
        )
    check_finite(bounds=bounds)
    lower, upper = bounds
    require(lower < upper, "lower `bounds` to be less than upper ones", lower, upper)
    return bounds.detach().clone()


def validated_evaluations(evaluation_bounds: Tensor | None, widest: Tensor) -> Tensor:
    """The box of evaluations, or an error that says what is wrong with the user's."""
    if evaluation_bounds is None:
        return widest
    box = validated_bounds(evaluation_bounds)
    check_like("evaluation_bounds", box, widest)
    if box.shape != widest.shape:
        raise BotorchTensorDimensionError(
            f"Expected `evaluation_bounds` of shape {tuple(widest.shape)}, got shape "
            f"{tuple(box.shape)}."
        )
    slack = ROUNDING * (widest[1] - widest[0])
    outside = (box[0] < widest[0] - slack) | (box[1] > widest[1] + slack)
    if outside.any():
        raise InputDataError(
            "Expected `evaluation_bounds` within the bounds, widened by the "
            f"tolerances, {widest.tolist()}, got {box.tolist()}."
        )
    return box


def validated_tolerances(
    tolerances: Mapping[int, float | tuple[float, float]] | None, bounds: Tensor
) -> dict[int, tuple[float, float]]:
    """The lower and upper deviations, or an error that says what is wrong."""
    if tolerances is None:
        return {}
    check_type("tolerances", tolerances, Mapping)
    dim = bounds.shape[-1]
    limits: dict[int, tuple[float, float]] = {}
    for column, tolerance in tolerances.items():
        if type(column) is not int or not 0 <= column < dim:
            raise InputDataError(
                f"Expected `tolerances` of columns from 0 to {dim - 1}, got {column!r}."
            )
        pair = tolerance if isinstance(tolerance, Sequence) else (tolerance,)
        wrong = [v for v in pair if not is_number(v) or not math.isfinite(v)]
        name = f"tolerances[{column}]"
        if len(pair) not in (1, 2) or wrong:
            raise InputDataError(
                f"Expected `{name}` to be a radius, or a lower and an upper deviation, "
                f"got {tolerance!r}."
            )
        if len(pair) == 1 and not pair[0] > 0:
            raise InputDataError(
                f"Expected `{name}` to be a positive radius, got {tolerance!r}."
            )
        lower, upper = (-pair[0], pair[0]) if len(pair) == 1 else pair
        width = float(bounds[1, column] - bounds[0, column])
        if not lower < upper:
            raise InputDataError(
                f"Expected `{name}` to be a lower and then an upper deviation, got "
                f"{tolerance!r}."
            )
        if upper - lower > (1.0 + ROUNDING) * width:
            raise InputDataError(
                f"Expected `{name}` not to be wider than the bounds of its column, "
                f"{bounds[:, column].tolist()}, got {lower} to {upper}."
            )
        limits[column] = (float(lower), float(upper))
    return limits


def validated_columns(
    uncontrollable: Sequence[int], dim: int, tolerances: dict[int, tuple[float, float]]
) -> tuple[int, ...]:
    """Read the user's columns, or raise an error that says what is wrong."""
    try:
        columns = tuple(operator.index(i) for i in uncontrollable)
    except TypeError:
        columns = (-1,)
    distinct = set(columns)
    is_enough = bool(distinct) or bool(tolerances)
    is_right = len(distinct) == len(columns) and distinct < set(range(dim))
    if not (is_enough and is_right):
        raise InputDataError(
            "Expected `uncontrollable` to list distinct column indices from 0 to "
            f"{dim - 1}, at least one (or none beside `tolerances`) and at most "
            f"{dim - 1} of them, got {uncontrollable!r}."
        )
    both = sorted(distinct & set(tolerances))
    if both:
        raise InputDataError(
            f"Expected `tolerances` of controllable columns only, got one of the "
            f"uncontrollable columns {both}."
        )
    return columns


def validated_categories(
    cat_dims: Sequence[int],
    x: DomainPart,
    theta: DomainPart,
    tolerances: dict[int, tuple[float, float]],
) -> tuple[int, ...]:
    """Read the columns of categories, or raise an error that says what is wrong."""
    listed = {part.columns[i] for part in (x, theta) for i in part.listed.tolist()}
    possible = sorted(listed - set(tolerances))
    try:
        columns = tuple(operator.index(i) for i in cat_dims)
    except TypeError:
        columns = (-1,)
    if len(set(columns)) < len(columns) or not set(columns) <= set(possible):
        raise InputDataError(
            "Expected `cat_dims` to be distinct columns with listed values and without "
            f"a tolerance, here some of {possible}, got {cat_dims!r}."
        )
    return columns


def validated_fixed(
    fixed_features: Mapping[int, float] | None,
    bounds: Tensor,
    tolerances: dict[int, tuple[float, float]],
) -> dict[int, float]:
    """Read the values of fixed columns, or raise an error that says what is wrong."""
    if fixed_features is None:
        return {}
    check_type("fixed_features", fixed_features, Mapping)
    fixed = {}
    for column, value in fixed_features.items():
        _check_columns("fixed_features", [column], range(bounds.shape[-1]), tolerances)
        name = f"fixed_features[{column}]"
        lower, upper = bounds[:, column].tolist()
        slack = ROUNDING * (upper - lower)
        if not is_number(value) or not lower - slack <= value <= upper + slack:
            raise InputDataError(
                f"Expected `{name}` to be a number within the bounds {lower} to "
                f"{upper}, got {value!r}."
            )
        fixed[column] = float(value)
    return fixed


def read_constraints(
    constraints: Constraints | None,
    x: DomainPart,
    excluded: Collection[int],
) -> tuple[Tensor, Tensor]:
    """Read linear constraints on the setting.

    Args:
        constraints: The user's argument.
        x: The controllable part.
        excluded: The columns with a tolerance or of categories.

    Returns:
        The ``m x d_x`` coefficients and the ``m`` right-hand sides.
    """
    name = "inequality_constraints"
    normals, limits = [], []
    check_type(name, [] if constraints is None else constraints, Sequence)
    for i, constraint in enumerate(constraints or []):
        item = f"{name}[{i}]"
        if not isinstance(constraint, Sequence) or len(constraint) != 3:
            raise InputDataError(
                f"Expected `{item}` to be (indices, coefficients, rhs), got "
                f"{constraint!r}."
            )
        try:
            indices = torch.as_tensor(constraint[0]).tolist()
            coefficients = torch.as_tensor(constraint[1]).to(x.bounds)
            limit = float(constraint[2])
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputDataError(
                f"Expected `{item}` to be (indices, coefficients, rhs) of numbers, got "
                f"{constraint!r}."
            ) from error
        shape = tuple(coefficients.shape)
        if not isinstance(indices, list) or shape != (len(indices),) or not indices:
            raise BotorchTensorDimensionError(
                f"Expected `{item}` to have as many coefficients as indices, one or "
                f"more, got {constraint!r}."
            )
        _check_columns(item, indices, x.columns, excluded)
        is_finite = bool(coefficients.isfinite().all()) and math.isfinite(limit)
        if not is_finite or not coefficients.any():
            raise InputDataError(
                f"Expected finite numbers in `{item}`, and coefficients that are not "
                f"all zero, got {constraint!r}."
            )
        normal = torch.zeros_like(x.bounds[0])
        normal[[x.columns.index(column) for column in indices]] = coefficients
        normals.append(normal)
        limits.append(limit)
    return (
        torch.stack(normals) if normals else x.normals[:0],
        x.bounds.new_tensor(limits),
    )


def _check_columns(
    name: str,
    columns: Sequence[Any],
    allowed: Sequence[int],
    excluded: Collection[int],
) -> None:
    """Raise an error unless columns are distinct, and can be fixed or constrained."""
    possible = [column for column in allowed if column not in excluded]
    wrong = [c for c in columns if type(c) is not int or c not in possible]
    if wrong or len(set(columns)) < len(columns):
        is_constraint = name.startswith("inequality")
        kind = "controllable columns of numbers" if is_constraint else "columns"
        raise InputDataError(
            f"Expected `{name}` of distinct {kind} without a tolerance, here some of "
            f"{possible}, got {list(columns)}."
        )


def _check_float_tensor(name: str, value: Tensor) -> None:
    """Raise an error unless an argument is a tensor of floats."""
    check_type(name, value, Tensor)
    if not value.is_floating_point():
        raise InputDataError(
            f"Expected `{name}` to hold floats, for example torch.double, got "
            f"{value.dtype}."
        )
