"""Named parameters with units: ranges, integers and finite lists."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real

import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from torch import Tensor

# The largest finite set that parameters with finitely many values may span.
MAX_COMBINATIONS = 10_000
# The most values that a message lists.
_MAX_LISTED = 6


@dataclass(frozen=True)
class Parameter:
    """One input of the function to optimise.

    Made by ``Range``, ``Integer`` or ``Choice``.

    Attributes:
        name: The name.
        lower: The smallest value.
        upper: The largest value.
        values: The values it may take, or ``None`` for a range.
        unit: The unit, for tables and plots.
        uncontrollable: Whether nature chooses it in the end.
        log: Whether the model sees its logarithm.
        integer: Whether its values are whole numbers.
    """

    name: str
    lower: float
    upper: float
    values: tuple[float, ...] | None = None
    unit: str = ""
    uncontrollable: bool = False
    log: bool = False
    integer: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise InputDataError(
                "Expected the name of a parameter to be a word like 'blank_force' "
                f"(letters, digits, underscores), got {self.name!r}."
            )
        for value in (self.lower, self.upper, *(self.values or ())):
            if not is_number(value) or not math.isfinite(value):
                raise InputDataError(
                    f"Expected finite numbers for parameter {self.name!r}, got "
                    f"{value!r}. A list of labels has no distances between them that a "
                    "model could use: give numbers that have."
                )
        # Numbers of other libraries cannot be stored as they are.
        number = int if self.integer else float
        for name in ("lower", "upper"):
            object.__setattr__(self, name, number(getattr(self, name)))
        if self.values is not None:
            object.__setattr__(self, "values", tuple(map(float, self.values)))
        if not self.lower < self.upper:
            raise InputDataError(
                f"Expected parameter {self.name!r} to take at least two values, got "
                f"lower = {self.lower} and upper = {self.upper}. A constant is not a "
                "parameter: leave it out."
            )
        for name, kind in (("unit", str), ("uncontrollable", bool), ("log", bool)):
            if not isinstance(getattr(self, name), kind):
                raise InputDataError(
                    f"Expected `{name}` of parameter {self.name!r} to be of type "
                    f"{kind.__name__}, got {getattr(self, name)!r}."
                )
        if self.log and not self.lower > 0:
            raise InputDataError(
                f"Expected positive values for parameter {self.name!r} with a "
                f"logarithmic scale, got lower = {self.lower}."
            )

    def encode(self, value: float) -> float:
        """Translate a value into the model's coordinate.

        Args:
            value: The value.

        Returns:
            The coordinate.
        """
        return math.log(value) if self.log else float(value)

    def decode(self, coordinate: float) -> float | int:
        """Translate the model's coordinate into a value.

        Args:
            coordinate: The coordinate.

        Returns:
            The value, of a finite list the nearest, and never outside the bounds.
        """
        value = math.exp(coordinate) if self.log else coordinate
        if self.values is not None:
            value = min(self.values, key=lambda other: abs(other - value))
        value = min(max(value, self.lower), self.upper)
        return round(value) if self.integer else float(value)

    def spread(self, unit: Tensor) -> Tensor:
        """Spread numbers over the parameter's coordinates.

        Args:
            unit: Numbers from 0 to 1.

        Returns:
            Their coordinates: a range is stretched, every value of a finite list gets
            an equal share.
        """
        if self.values is None:
            ends = [self.encode(self.lower), self.encode(self.upper)]
            lower, upper = unit.new_tensor(ends)
            return torch.lerp(lower, upper, unit)
        coordinates = unit.new_tensor([self.encode(value) for value in self.values])
        return coordinates[(unit * len(coordinates)).long()]

    def label(self) -> str:
        """The name with its unit."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name

    def describe(self) -> str:
        """The parameter in a few words, for messages."""
        where = f"from {self.lower:g} to {self.upper:g}"
        if self.values is not None:
            where += f" ({len(self.values)} values)"
            if len(self.values) <= _MAX_LISTED:
                where = f"in {{{', '.join(f'{value:g}' for value in self.values)}}}"
        return (
            f"{self.label()} {where}"
            + " (log)" * self.log
            + " (uncontrollable)" * self.uncontrollable
        )


def Range(
    name: str,
    lower: float,
    upper: float,
    *,
    unit: str = "",
    uncontrollable: bool = False,
    log: bool = False,
    levels: int | None = None,
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
            steps. A range with levels is a finite list, which may stand beside
            integers and lists. ``None`` for any value.

    Returns:
        The parameter.

    Example:
        >>> Range("speed", 1, 100, unit="mm/s", log=True)
    """
    parameter = Parameter(
        name, lower, upper, unit=unit, uncontrollable=uncontrollable, log=log
    )
    if levels is None:
        return parameter
    whole = hasattr(levels, "__index__") and not isinstance(levels, bool)
    if not whole or not 2 <= levels <= MAX_COMBINATIONS:
        raise InputDataError(
            f"Expected `levels` of parameter {name!r} to be a whole number from 2 to "
            f"{MAX_COMBINATIONS}, got {levels!r}."
        )
    ends = (parameter.encode(lower), parameter.encode(upper))
    steps = torch.linspace(*ends, levels, dtype=torch.double).tolist()
    inner = [math.exp(step) if log else step for step in steps[1:-1]]
    # 0.15 and not 0.15000000000000002, for people.
    rounded = [float(f"{value:.12g}") for value in inner]
    values = (parameter.lower, *rounded, parameter.upper)
    if any(after <= before for before, after in itertools.pairwise(values)):
        raise InputDataError(
            f"The {levels} levels of parameter {name!r} from {lower} to {upper} differ "
            "by less than 12 digits show. Count from another zero, or use fewer levels."
        )
    return replace(parameter, values=values)


def Integer(
    name: str,
    lower: int,
    upper: int,
    *,
    unit: str = "",
    uncontrollable: bool = False,
    log: bool = False,
) -> Parameter:
    """A parameter that may take any whole number in an interval.

    Args:
        name: The name.
        lower: The smallest value.
        upper: The largest value.
        unit: The unit.
        uncontrollable: Whether nature chooses it in the end.
        log: Whether equal factors count as equal steps.

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
    return Parameter(
        name, lower, upper, values, unit, uncontrollable, log, integer=True
    )


def Choice(
    name: str,
    values: Sequence[float],
    *,
    unit: str = "",
    uncontrollable: bool = False,
    log: bool = False,
) -> Parameter:
    """A parameter that takes one value of a list of numbers.

    Args:
        name: The name.
        values: The values, at least two different ones.
        unit: The unit.
        uncontrollable: Whether nature chooses it in the end.
        log: Whether equal factors count as equal steps.

    Returns:
        The parameter.

    Example:
        >>> Choice("force", [200, 300, 350], unit="kN", uncontrollable=True)
    """
    if not isinstance(values, Iterable) or not (values := tuple(values)):
        raise InputDataError(
            f"Expected `values` of parameter {name!r} to be a list of numbers, got "
            f"{values!r}."
        )
    # The parameter itself says what is wrong with a value that is not a number.
    wrong = [value for value in values if not is_number(value)]
    if not wrong and len(set(values)) < len(values):
        raise InputDataError(
            f"Expected `values` of parameter {name!r} to be distinct, got "
            f"{list(values)}."
        )
    lower, upper = min(wrong[:1] or values), max(wrong[:1] or values)
    integer = all(isinstance(value, Integral) for value in values)
    return Parameter(
        name, lower, upper, values, unit, uncontrollable, log, integer=integer
    )


def is_number(value: object) -> bool:
    """Whether a value is a real number, and not a truth value.

    Args:
        value: The value.

    Returns:
        The answer.
    """
    return isinstance(value, Real) and not isinstance(value, bool)
