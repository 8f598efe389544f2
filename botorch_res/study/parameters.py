"""Named parameters with units: ranges, integers and finite lists."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral

import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from torch import Tensor

from botorch_res.checks import is_number
from botorch_res.study.tolerances import Tolerance, read_tolerance

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
        tolerance: The lower and the upper deviation from a setting, in the model's
            coordinates, or ``None``.
        evaluate: The smallest and the largest value that may be evaluated, or ``None``
            for all that the tolerance can bring about.
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
        for name in ("values", "tolerance", "evaluate"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, tuple(map(float, getattr(self, name))))
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

    def deviate(self, value: float, shift: float) -> float:
        """What comes out of a setting.

        Args:
            value: The setting.
            shift: The deviation, in the model's coordinate.

        Returns:
            The value.
        """
        return _rounded(value * math.exp(shift) if self.log else value + shift)

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

    def snap(self, value: float) -> float:
        """Undo roundings at the ends of the range.

        Args:
            value: A value.

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
            steps. A range with levels is a finite list, which may stand beside
            integers and lists. ``None`` for any value.
        tolerance: How far what comes out may be from what is set: a radius (0.1), or a
            lower and an upper deviation (-0.1, 0.05). With ``log`` it is in per cent:
            ``"5%"`` is from value / 1.05 to value * 1.05, and ``("-5%", "10%")`` from
            value * 0.95 to value * 1.10. Nature then chooses the worst deviation.
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
    parameter = _with_tolerance(parameter, tolerance, evaluate)
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
    values = (parameter.lower, *map(_rounded, inner), parameter.upper)
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
    return _with_tolerance(parameter, tolerance, evaluate)


def Choice(
    name: str,
    values: Sequence[float],
    *,
    unit: str = "",
    uncontrollable: bool = False,
    log: bool = False,
    tolerance: Tolerance | None = None,
    evaluate: Sequence[float] | None = None,
) -> Parameter:
    """A parameter that takes one value of a list of numbers.

    Args:
        name: The name.
        values: The values, at least two different ones.
        unit: The unit.
        uncontrollable: Whether nature chooses it in the end.
        log: Whether equal factors count as equal steps.
        tolerance: How far what comes out may be from what is set; see ``Range``.
        evaluate: The smallest and the largest value that may be evaluated; see
            ``Range``.

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
    parameter = Parameter(
        name, lower, upper, values, unit, uncontrollable, log, integer=integer
    )
    return _with_tolerance(parameter, tolerance, evaluate)


def _with_tolerance(
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
    return replace(parameter, evaluate=(pair[0], pair[1]))


def _rounded(value: float) -> float:
    """0.15 and not 0.15000000000000002, for people."""
    return float(f"{value:.12g}")
