"""The kinds of parameters: ranges, whole numbers, lists of numbers and of names."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError

from botorch_res.checks import is_number
from botorch_res.study.parameters.parameter import Parameter, Value, rounded
from botorch_res.study.parameters.tolerances import Tolerance, with_tolerance

# The largest finite set that parameters with finitely many values may span.
MAX_COMBINATIONS = 10_000


def Range(
    name: str,
    lower: float,
    upper: float,
    *,
    unit: str = "",
    uncontrollable: bool = False,
    log: bool = False,
    levels: int | None = None,
    tolerance: Tolerance | None = None,
    evaluate: Sequence[float] | None = None,
) -> Parameter:
    """A parameter that may take any value in an interval.

    Args:
        name: The name.
        lower: The smallest value.
        upper: The largest value.
        unit: The unit.
        uncontrollable: Whether nature chooses it in the end.
        log: Whether equal factors count as equal steps.
        levels: The number of values that it may take, both ends among them, in equal
            steps. ``None`` for any value.
        tolerance: How far what comes out may be from what is set: a radius (0.1), or a
            lower and an upper deviation (-0.1, 0.05). With ``log`` it is a factor or in
            per cent: ``"*1.05"`` and ``"5%"`` are from value / 1.05 to value * 1.05,
            ``("/1.05", "*1.1")`` is from value / 1.05 to value * 1.1, and ``("-5%",
            "10%")`` from value * 0.95 to value * 1.10. Nature then chooses the worst
            deviation.
        evaluate: The smallest and the largest value that may be evaluated, if not all
            that the tolerance can bring about may be.

    Returns:
        The parameter.

    Example:
        >>> Range("speed", 1, 100, unit="mm/s", log=True)
        >>> Range("thickness", 1, 3, unit="mm", tolerance=0.1)
    """
    parameter = Parameter(
        name, lower, upper, unit=unit, uncontrollable=uncontrollable, log=log
    )
    if levels is not None:
        parameter = replace(parameter, values=_equal_steps(parameter, levels))
    return with_tolerance(parameter, tolerance, evaluate)


def Integer(
    name: str,
    lower: int,
    upper: int,
    *,
    unit: str = "",
    uncontrollable: bool = False,
    log: bool = False,
    tolerance: Tolerance | None = None,
    evaluate: Sequence[float] | None = None,
) -> Parameter:
    """A parameter that may take any whole number in an interval.

    Args:
        name: The name.
        lower: The smallest value.
        upper: The largest value.
        unit: The unit.
        uncontrollable: Whether nature chooses it in the end.
        log: Whether equal factors count as equal steps.
        tolerance: How far what comes out may be from what is set; see ``Range``.
        evaluate: The smallest and the largest value that may be evaluated; see
            ``Range``.

    Returns:
        The parameter.

    Example:
        >>> Integer("layers", 1, 8)
    """
    try:
        lower, upper = operator.index(lower), operator.index(upper)
    except TypeError as error:
        raise InputDataError(
            f"Expected `lower` and `upper` of parameter {name!r} to be whole numbers, "
            f"got {lower!r} and {upper!r}."
        ) from error
    if upper - lower >= MAX_COMBINATIONS:
        raise UnsupportedError(
            f"Expected the integer parameter {name!r} to take at most "
            f"{MAX_COMBINATIONS} values, got {upper - lower + 1}. Use a `Range` and "
            "round inside the function, or a `Choice` of fewer values."
        )
    values = tuple(range(lower, upper + 1))
    parameter = Parameter(
        name, lower, upper, values, unit, uncontrollable, log, integer=True
    )
    return with_tolerance(parameter, tolerance, evaluate)


def Choice(
    name: str,
    values: Sequence[Value],
    *,
    unit: str = "",
    uncontrollable: bool = False,
    log: bool = False,
    tolerance: Tolerance | None = None,
    evaluate: Sequence[float] | None = None,
) -> Parameter:
    """A parameter that takes one value of a list of numbers or of names.

    Between names there is no order and no distance. Give numbers if the outcome depends
    on them: a yield strength tells the model more than the name of a steel.

    Args:
        name: The name.
        values: The values, at least two different ones: all numbers, or all names.
        unit: The unit.
        uncontrollable: Whether nature chooses it in the end.
        log: Whether equal factors count as equal steps.
        tolerance: How far what comes out may be from what is set; see ``Range``. Names
            have none.
        evaluate: The smallest and the largest value that may be evaluated; see
            ``Range``.

    Returns:
        The parameter.

    Example:
        >>> Choice("force", [200, 300, 350], unit="kN", uncontrollable=True)
        >>> Choice("material", ["steel", "aluminium", "POM"])
    """
    is_list = isinstance(values, Iterable) and not isinstance(values, str)
    listed: tuple[Any, ...] = tuple(values) if is_list else ()
    names = tuple(value for value in listed if isinstance(value, str))
    if not listed:
        raise InputDataError(
            f"Expected `values` of parameter {name!r} to be a list of numbers or of "
            f"names, got {values!r}."
        )
    if names and len(names) < len(listed):
        raise InputDataError(
            f"Expected `values` of parameter {name!r} to be all numbers or all names, "
            f"got {list(listed)}."
        )
    # The parameter itself says what is wrong with a value that is not a number.
    wrong = [value for value in listed if not is_number(value) and not names]
    # Nobody can tell names apart by the blanks around them.
    shown = [value.strip() if isinstance(value, str) else value for value in listed]
    if not wrong and len(set(shown)) < len(shown):
        raise InputDataError(
            f"Expected `values` of parameter {name!r} to be distinct, got "
            f"{list(listed)}."
        )
    if names:
        _check_names(name, names, log, tolerance)
    numbers = tuple(range(len(names))) or listed
    parameter = Parameter(
        name,
        min(wrong[:1] or numbers),
        max(wrong[:1] or numbers),
        numbers,
        unit,
        uncontrollable,
        log,
        integer=all(isinstance(number, Integral) for number in numbers),
        names=names or None,
    )
    return with_tolerance(parameter, tolerance, evaluate)


def _check_names(
    name: str, values: Sequence[str], log: bool, tolerance: Tolerance | None
) -> None:
    """Raise if names are blank, or are to be what only numbers can be."""
    if not all(value.strip() for value in values):
        raise InputDataError(
            f"Expected the names in `values` of parameter {name!r} not to be blank, "
            f"got {list(values)}."
        )
    for argument, value in (("log", log or None), ("tolerance", tolerance)):
        if value is not None:
            raise InputDataError(
                f"Expected no `{argument}` of parameter {name!r}, whose values are "
                f"names, got {value!r}. There is no distance between names."
            )


def _equal_steps(parameter: Parameter, levels: int) -> tuple[float, ...]:
    """The values of a range with levels, in equal steps of its coordinate."""
    name, lower, upper = parameter.name, parameter.lower, parameter.upper
    whole = hasattr(levels, "__index__") and not isinstance(levels, bool)
    if not whole or not 2 <= levels <= MAX_COMBINATIONS:
        raise InputDataError(
            f"Expected `levels` of parameter {name!r} to be a whole number from 2 to "
            f"{MAX_COMBINATIONS}, got {levels!r}."
        )
    steps = torch.linspace(*parameter.ends, levels, dtype=torch.double).tolist()
    inner = [math.exp(step) if parameter.log else step for step in steps[1:-1]]
    values = (lower, *map(rounded, inner), upper)
    if any(after <= before for before, after in itertools.pairwise(values)):
        raise InputDataError(
            f"The {levels} levels of parameter {name!r} from {lower} to {upper} differ "
            "by less than 12 digits show. Count from another zero, or use fewer levels."
        )
    return values
