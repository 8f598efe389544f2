"""Tolerances as the user gives them, and as deviations in the model's coordinates.

On a linear scale a deviation is added to the setting: 0.1 mm. On a logarithmic scale it
is a factor, given in per cent, which is added to the setting's logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from botorch.exceptions.errors import InputDataError

from botorch_res.checks import is_number
from botorch_res.domain.part import ROUNDING

Tolerance = float | str | Sequence[float] | Sequence[str]


def read_tolerance(
    name: str, tolerance: Tolerance, ends: tuple[float, float], log: bool
) -> tuple[float, float]:
    """Read a tolerance, or raise an error that says what is wrong with it.

    Args:
        name: The parameter's name.
        tolerance: A radius, or a lower and an upper deviation: numbers on a linear
            scale, percentages on a logarithmic one.
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
                f"Expected {whose}, whose scale is logarithmic, to be a percentage "
                f"like '5%', or a lower and an upper one like ('-5%', '10%'), got "
                f"{tolerance!r}."
            )
        raise InputDataError(
            f"Expected {whose} to be a number, or a lower and an upper deviation like "
            f"(-0.1, 0.05), got {tolerance!r}. A percentage needs a logarithmic scale "
            "(`log`)."
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


def _number(value: Any) -> float | None:
    """A finite number; ``None`` for anything else."""
    number = float(value) if is_number(value) else math.nan
    return number if math.isfinite(number) else None


def _factor(value: object) -> float | None:
    """The factor of a percentage, 1.05 for ``"5%"``; ``None`` for anything else."""
    if not isinstance(value, str) or not value.strip().endswith("%"):
        return None
    try:
        factor = 1 + float(value.strip().removesuffix("%")) / 100
    except ValueError:
        return None
    return factor if 0 < factor < math.inf else None
