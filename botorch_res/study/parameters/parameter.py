"""A named parameter: what it can be, in the user's words and for the model."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_res.checks import is_number

# What a parameter can be: a number, or one of the names of a list.
Value = float | str

# The most numbers that a message lists.
_MAX_LISTED = 6


@dataclass(frozen=True)
class Parameter:
    """One input of the function to optimise.

    Made by ``Range``, ``Integer`` or ``Choice``. The model sees a *coordinate*: the
    number, or its logarithm; of a name the place in the list, counted from 0.

    Attributes:
        name: The name.
        lower: The smallest number.
        upper: The largest number.
        values: The numbers it may be, or ``None`` for a range.
        unit: The unit, for tables and plots.
        uncontrollable: Whether nature chooses it in the end.
        log: Whether the model sees its logarithm.
        integer: Whether its numbers are whole.
        tolerance: The lower and the upper deviation from a setting, in the model's
            coordinates, or ``None``.
        evaluate: The smallest and the largest value that may be evaluated, or ``None``
            for all that the tolerance can bring about.
        names: The names that the numbers 0, 1, 2, ... stand for, or ``None``.
    """

    name: str
    lower: float
    upper: float
    values: tuple[float, ...] | None = None
    unit: str = ""
    uncontrollable: bool = False
    log: bool = False
    integer: bool = False
    tolerance: tuple[float, float] | None = None
    evaluate: tuple[float, float] | None = None
    names: tuple[str, ...] | None = None

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
                    f"{value!r}."
                )
        # Numbers of other libraries cannot be stored as they are.
        number = int if self.integer else float
        for name in ("lower", "upper"):
            object.__setattr__(self, name, number(getattr(self, name)))
        for name in ("values", "tolerance", "evaluate"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, tuple(map(float, getattr(self, name))))
        if self.names is not None:
            object.__setattr__(self, "names", tuple(map(str, self.names)))
        if not self.lower < self.upper:
            raise InputDataError(
                f"Expected parameter {self.name!r} to take at least two values, got "
                f"{self.describe()}. A constant is not a parameter: leave it out."
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

    @property
    def widened(self) -> Parameter:
        """What can come out: the same, widened by the tolerance."""
        if self.tolerance is None:
            return self
        ends = zip((self.lower, self.upper), self.tolerance, strict=True)
        lower, upper = (self.deviate(end, shift) for end, shift in ends)
        return replace(
            self,
            lower=lower,
            upper=upper,
            values=None,
            integer=False,
            tolerance=None,
            evaluate=None,
        )

    @property
    def evaluations(self) -> Parameter:
        """What may be evaluated: all that can come out, or what the user allows."""
        if self.evaluate is None:
            return self.widened
        lower, upper = self.evaluate
        return replace(self.widened, lower=lower, upper=upper, evaluate=None)

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest coordinate."""
        return self._coordinate(self.lower), self._coordinate(self.upper)

    @property
    def coordinates(self) -> list[float]:
        """The coordinates of a parameter with finitely many values."""
        return [self._coordinate(value) for value in self.values or ()]

    def deviate(self, value: float, shift: float) -> float:
        """What comes out of a setting.

        Args:
            value: The setting.
            shift: The deviation, in the model's coordinate.

        Returns:
            The value.
        """
        return rounded(value * math.exp(shift) if self.log else value + shift)

    def decode_deviation(self, shift: float) -> float:
        """Translate a deviation in the model's coordinate for people.

        Args:
            shift: The deviation, in the model's coordinate.

        Returns:
            The deviation in the parameter's unit; on a logarithmic scale the relative
            one, 0.05 for five per cent.
        """
        return math.expm1(shift) if self.log else shift

    def show_deviation(self, deviation: float) -> str:
        """Write a deviation for people.

        Args:
            deviation: The deviation, as ``decode_deviation`` returns it.

        Returns:
            The text, ``"+0.05"`` or ``"+5%"``.
        """
        return f"{100 * deviation:+.3g}%" if self.log else f"{deviation:+.4g}"

    def check(self, value: object) -> None:
        """Raise unless the parameter can have a value.

        Args:
            value: The value: a number, or one of the names.
        """
        if self.names is not None:
            if not isinstance(value, str) or value not in self.names:
                raise InputDataError(
                    f"Expected {self.name!r} to be one of {_quoted(self.names)}, got "
                    f"{value!r}."
                )
            return
        if not is_number(value):
            raise InputDataError(f"Expected a number for {self.name!r}, got {value!r}.")
        number: float = value  # type: ignore[assignment]
        if not self.lower <= self.snap(number) <= self.upper:
            raise InputDataError(
                f"{self.label()} = {number} lies outside the domain, {self.lower} to "
                f"{self.upper}. Correct the value, or start a new study with a wider "
                "domain."
            )
        if self.values is not None and not any(
            math.isclose(number, other) for other in self.values
        ):
            nearest = sorted(self.values, key=lambda other: abs(other - number))[:2]
            raise InputDataError(
                f"{self.label()} = {number} is not one of its {len(self.values)} "
                f"values; the nearest are {nearest[0]:g} and {nearest[1]:g}."
            )

    def encode(self, value: Value) -> float:
        """Translate a value into the model's coordinate.

        Args:
            value: The value: a number, or one of the names.

        Returns:
            The coordinate.
        """
        return self._coordinate(self.number_of(value))

    def decode(self, coordinate: float) -> Value:
        """Translate the model's coordinate into a value.

        Args:
            coordinate: The coordinate.

        Returns:
            The value, of a finite list the nearest, and never outside the bounds.
        """
        return self.named(self.number(coordinate))

    def number(self, coordinate: float) -> float:
        """Translate the model's coordinate into a number, also where it has a name.

        Args:
            coordinate: The coordinate.

        Returns:
            The number, of a finite list the nearest, and never outside the bounds.
        """
        value = math.exp(coordinate) if self.log else coordinate
        if self.values is not None:
            value = min(self.values, key=lambda other: abs(other - value))
        value = min(max(value, self.lower), self.upper)
        return round(value) if self.integer else float(value)

    def number_of(self, value: Value) -> float:
        """The number of a value: of a name its place in the list.

        Args:
            value: The value.

        Returns:
            The number.
        """
        return float(value if self.names is None else self.names.index(str(value)))

    def named(self, number: float) -> Value:
        """The name that a number stands for; the number itself if there are no names.

        Args:
            number: The number.

        Returns:
            The value.
        """
        return number if self.names is None else self.names[int(number)]

    def snap(self, value: float) -> float:
        """Undo roundings at the ends of the range.

        Args:
            value: A number.

        Returns:
            The end, if the value differs from it by rounding only; else the value.
        """
        ends = (self.lower, self.upper)
        return next((e for e in ends if math.isclose(value, e, rel_tol=1e-9)), value)

    def spread(self, unit: Tensor) -> Tensor:
        """Spread numbers over the parameter's coordinates.

        Args:
            unit: Numbers from 0 to 1.

        Returns:
            Their coordinates: a range is stretched, every value of a finite list gets
            an equal share.
        """
        if self.values is None:
            lower, upper = unit.new_tensor(self.ends)
            return torch.lerp(lower, upper, unit)
        coordinates = unit.new_tensor(self.coordinates)
        return coordinates[(unit * len(coordinates)).long()]

    def label(self) -> str:
        """The name with its unit."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name

    def describe(self) -> str:
        """The parameter in a few words, for messages."""
        where = f"from {self.lower:g} to {self.upper:g}"
        if self.names is not None:
            where = f"in {{{', '.join(self.names)}}}"
        elif self.values is not None:
            where += f" ({len(self.values)} values)"
            if len(self.values) <= _MAX_LISTED:
                where = f"in {{{', '.join(f'{value:g}' for value in self.values)}}}"
        if self.tolerance is not None:
            shown = map(self.show_deviation, map(self.decode_deviation, self.tolerance))
            where += f" with a tolerance of {' to '.join(shown)}"
        if self.evaluate is not None:
            where += f", evaluated from {self.evaluate[0]:g} to {self.evaluate[1]:g}"
        return (
            f"{self.label()} {where}"
            + " (log)" * self.log
            + " (uncontrollable)" * self.uncontrollable
        )

    def to_dict(self) -> dict[str, Any]:
        """The arguments as plain lists and numbers, as a file reads them back."""
        content = asdict(self)
        for name in ("values", "tolerance", "evaluate", "names"):
            if content[name] is not None:
                content[name] = list(content[name])
            elif name != "values":  # As in files from before there was such a thing.
                del content[name]
        return content

    def _coordinate(self, number: float) -> float:
        """The model's coordinate of a number."""
        return math.log(number) if self.log else float(number)


def rounded(value: float) -> float:
    """Write 0.15 and not 0.15000000000000002, for people.

    Args:
        value: A number.

    Returns:
        The number with twelve digits.
    """
    return float(f"{value:.12g}")


def _quoted(names: tuple[str, ...]) -> str:
    """Names in a row, for messages."""
    return ", ".join(map(repr, names))
