"""Tolerances as the user gives them, and as deviations in the model's coordinates.

On a linear scale a deviation is added to the setting: 0.1 mm. On a logarithmic scale it
is a factor, ``"*1.05"`` or in per cent, whose logarithm is added to the setting's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from botorch.exceptions.errors import InputDataError

from botorch_res.checks import is_number
from botorch_res.domain.part import ROUNDING
from botorch_res.study.parameters.parameter import Parameter

Tolerance = float | str | Sequence[float] | Sequence[str]


def read_tolerance(
    name: str, tolerance: Tolerance, ends: tuple[float, float], log: bool
) -> tuple[float, float]:
    """Read a tolerance, or raise an error that says what is wrong with it.

    Args:
        name: The parameter's name.
        tolerance: A radius, or a lower and an upper deviation: numbers on a linear
            scale, factors or percentages on a logarithmic one.
        ends: The parameter's smallest and largest value.
        log: Whether the scale is logarithmic.

    Returns:
        The lower and the upper deviation in the model's coordinates.
    """
    whose = f"`tolerance` of parameter {name!r}"
    pair = tuple(tolerance) if isinstance(tolerance, (list, tuple)) else (tolerance,)
    numbers = [_factor(value) if log else _number(value) for value in pair]
    known = [number for number in numbers if number is not None]
    if len(known) < len(pair) or len(pair) not in (1, 2):
        if log:
            raise InputDataError(
                f"Expected {whose}, whose scale is logarithmic, to be a factor like "
                "'*1.05' or a percentage like '5%', or a lower and an upper one like "
                f"('/1.05', '*1.1') or ('-5%', '10%'), got {tolerance!r}."
            )
        raise InputDataError(
            f"Expected {whose} to be a number, or a lower and an upper deviation like "
            f"(-0.1, 0.05), got {tolerance!r}. A percentage or a factor needs a "
            "logarithmic scale (`log`)."
        )
    if len(known) == 1 and not known[0] > (1.0 if log else 0.0):
        raise InputDataError(
            f"Expected {whose} to be positive, or a lower and an upper deviation, got "
            f"{tolerance!r}."
        )
    shifts = [math.log(number) for number in known] if log else known
    lower, upper = (-shifts[0], shifts[0]) if len(shifts) == 1 else shifts
    if not lower < upper:
        raise InputDataError(
            f"Expected {whose} to be a lower and then an upper deviation, got "
            f"{tolerance!r}."
        )
    width = math.log(ends[1] / ends[0]) if log else ends[1] - ends[0]
    if upper - lower > (1.0 + ROUNDING) * width:
        raise InputDataError(
            f"Expected {whose} not to be wider, from lower to upper deviation, than "
            f"its range, {ends[0]:g} to {ends[1]:g}, got {tolerance!r}."
        )
    return lower, upper


def with_tolerance(
    parameter: Parameter,
    tolerance: Tolerance | None,
    evaluate: Sequence[float] | None,
) -> Parameter:
    """Give a parameter a tolerance, or raise an error that says why it cannot have it.

    Args:
        parameter: The parameter.
        tolerance: The tolerance, or ``None`` for none.
        evaluate: The smallest and the largest value that may be evaluated, or ``None``
            for all that the tolerance can bring about.

    Returns:
        The parameter.
    """
    name, ends = parameter.name, (parameter.lower, parameter.upper)
    if tolerance is None:
        if evaluate is not None:
            raise InputDataError(
                f"Expected `evaluate` beside a `tolerance` only, got {evaluate!r} for "
                f"parameter {name!r} without one. Narrow its values instead."
            )
        return parameter
    if parameter.uncontrollable:
        raise InputDataError(
            f"Expected a `tolerance` of controllable parameters only, got {tolerance!r}"
            f" for {name!r}, which nature chooses. Widen its values instead."
        )
    deviations = read_tolerance(name, tolerance, ends, parameter.log)
    parameter = replace(parameter, tolerance=deviations)
    if evaluate is None:
        return parameter
    wide = parameter.widened
    pair = tuple(evaluate) if isinstance(evaluate, Iterable) else ()
    if all(map(is_number, pair)):
        pair = tuple(map(wide.snap, pair))
    in_order = len(pair) == 2 and all(map(is_number, pair)) and pair[0] < pair[1]
    if not in_order or not wide.lower <= pair[0] < pair[1] <= wide.upper:
        raise InputDataError(
            f"Expected `evaluate` of parameter {name!r} to be the smallest and the "
            f"largest value that may be evaluated, within {wide.lower:g} to "
            f"{wide.upper:g}, which its tolerance can bring about, got {evaluate!r}."
        )
    if parameter.values is not None and not any(
        parameter.deviate(value, deviations[0]) <= pair[1]
        and pair[0] <= parameter.deviate(value, deviations[1])
        for value in parameter.values
    ):
        raise InputDataError(
            f"Expected `evaluate` of parameter {name!r} to contain a value that can "
            f"come out of {parameter.describe()}, got {evaluate!r}."
        )
    return replace(parameter, evaluate=(pair[0], pair[1]))


def _number(value: Any) -> float | None:
    """A finite number; ``None`` for anything else."""
    number = float(value) if is_number(value) else math.nan
    return number if math.isfinite(number) else None


def _factor(value: object) -> float | None:
    """The factor of ``"*1.05"``, ``"/1.05"`` or ``"5%"``; ``None`` for others."""
    text = value.strip() if isinstance(value, str) else ""
    try:
        if text.endswith("%"):
            factor = 1 + float(text[:-1]) / 100
        elif text[:1] in ("*", "/"):
            number = float(text[1:])
            factor = number if text[0] == "*" else 1 / number
        else:
            return None
    except (ValueError, ZeroDivisionError):
        return None
    return factor if 0 < factor < math.inf else None
