r"""Named parameters with units, and the domain that they span.

The engineer thinks of ``friction`` from 0.1 to 0.2 and of a ``force`` of 200, 300 or
350 kN; the model thinks of columns. A ``ParameterSpace`` translates: each parameter is
a column of a ``RobustDomain``, logarithmic if it asks for it.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from torch import Tensor

from botorch_res.domain import RobustDomain

# The largest finite set that parameters with finitely many values may span.
MAX_COMBINATIONS = 10_000


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
            if not _is_number(value) or not math.isfinite(value):
                raise InputDataError(
                    f"Expected finite numbers for parameter {self.name!r}, got "
                    f"{value!r}. A list of labels has no distances between them that a "
                    "model could use: give numbers that have."
                )
        if not self.lower < self.upper:
            raise InputDataError(
                f"Expected parameter {self.name!r} to take at least two values, got "
                f"lower = {self.lower} and upper = {self.upper}. A constant is not a "
                "parameter: leave it out."
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

    def label(self) -> str:
        """The name with its unit."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name


def Range(
    name: str,
    lower: float,
    upper: float,
    *,
    unit: str = "",
    uncontrollable: bool = False,
    log: bool = False,
) -> Parameter:
    """A parameter that may take any value in an interval.

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
        >>> Range("speed", 1, 100, unit="mm/s", log=True)
    """
    return Parameter(
        name, lower, upper, unit=unit, uncontrollable=uncontrollable, log=log
    )


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
        raise TypeError(
            f"Expected whole numbers as bounds of the integer parameter {name!r}, got "
            f"{lower!r} and {upper!r}."
        ) from error
    if upper - lower >= MAX_COMBINATIONS:
        raise UnsupportedError(
            f"Expected the integer parameter {name!r} to take at most "
            f"{MAX_COMBINATIONS} values, got {upper - lower + 1}. Use a `Range` and "
            "round inside the function."
        )
    values = tuple(float(value) for value in range(lower, upper + 1))
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
    values = tuple(values)
    if not values:
        raise InputDataError(f"Expected values for parameter {name!r}, got none.")
    if any(not _is_number(value) for value in values):
        lower = upper = next(value for value in values if not _is_number(value))
    else:
        lower, upper = min(values), max(values)
    if len(set(values)) < len(values):
        raise InputDataError(
            f"Expected distinct values for parameter {name!r}, got {list(values)}."
        )
    integer = all(isinstance(value, int) for value in values)
    return Parameter(
        name, lower, upper, values, unit, uncontrollable, log, integer=integer
    )


class ParameterSpace:
    """Parameters and the domain that they span.

    Attributes:
        parameters: One parameter for each column of the domain.
        domain: The domain, in the model's coordinates and double precision.
        named: Whether the parameters were named by the user.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        """Span the domain of named parameters.

        The controllable parameters must be ranges, all of them, or have finitely many
        values, all of them; and so must the uncontrollable ones.

        Args:
            parameters: The parameters, at least one controllable and one not.
        """
        self.parameters = tuple(parameters)
        self.named = True
        names = [parameter.name for parameter in self.parameters]
        if len(set(names)) < len(names):
            raise InputDataError(f"Expected distinct parameter names, got {names}.")
        theta = [i for i, p in enumerate(self.parameters) if p.uncontrollable]
        x = [i for i, p in enumerate(self.parameters) if not p.uncontrollable]
        if not theta or not x:
            missing = "controllable" if theta else "uncontrollable"
            raise InputDataError(
                f"Expected at least one {missing} parameter, got none among {names}. "
                "Mark the parameters that nature chooses with `uncontrollable=True`."
            )
        bounds = torch.tensor(
            [
                [p.encode(p.lower) for p in self.parameters],
                [p.encode(p.upper) for p in self.parameters],
            ],
            dtype=torch.double,
        )
        self.domain = RobustDomain(
            bounds,
            theta,
            _combinations("controllable", [self.parameters[i] for i in x]),
            _combinations("uncontrollable", [self.parameters[i] for i in theta]),
        )

    @classmethod
    def from_domain(cls, domain: RobustDomain) -> ParameterSpace:
        """Name the columns of a domain ``x1, x2, ...`` and ``theta1, theta2, ...``.

        Args:
            domain: The domain.

        Returns:
            The space.
        """
        space = cls.__new__(cls)
        space.domain = domain.to(dtype=torch.double, device="cpu")
        space.named = False
        names = dict(
            itertools.chain(
                ((i, f"x{k}") for k, i in enumerate(domain.controllable, 1)),
                ((i, f"theta{k}") for k, i in enumerate(domain.uncontrollable, 1)),
            )
        )
        lower, upper = space.domain.bounds.tolist()
        space.parameters = tuple(
            Parameter(
                names[i], lower[i], upper[i], uncontrollable=i in domain.uncontrollable
            )
            for i in range(domain.dim)
        )
        return space

    @property
    def x_names(self) -> list[str]:
        """The names of the controllable parameters, in the order of ``x``."""
        return [self.parameters[i].name for i in self.domain.controllable]

    @property
    def theta_names(self) -> list[str]:
        """The names of the uncontrollable parameters, in the order of ``theta``."""
        return [self.parameters[i].name for i in self.domain.uncontrollable]

    def decode(self, z: Tensor) -> dict[str, float]:
        """Translate a point into parameters.

        Args:
            z: A point of shape ``d``.

        Returns:
            The value of each parameter.
        """
        return {
            parameter.name: parameter.decode(coordinate)
            for parameter, coordinate in zip(self.parameters, z.tolist(), strict=True)
        }

    def encode(self, values: Mapping[str, float] | Sequence[float] | Tensor) -> Tensor:
        """Translate parameters into a point, and check that it is in the domain.

        Args:
            values: The value of each parameter by name; or all values in the order of
                the parameters.

        Returns:
            A point of shape ``d``.
        """
        names = [parameter.name for parameter in self.parameters]
        if not isinstance(values, Mapping):
            listed = values.tolist() if isinstance(values, Tensor) else list(values)
            if len(listed) != len(names):
                raise InputDataError(
                    f"Expected {len(names)} values, for {', '.join(names)}, got "
                    f"{len(listed)}."
                )
            values = dict(zip(names, listed, strict=True))
        if set(values) != set(names):
            raise InputDataError(
                f"Expected values of the parameters {', '.join(names)}, got "
                f"{', '.join(map(str, values)) or 'none'}."
            )
        for p in self.parameters:
            value = values[p.name]
            if not _is_number(value):
                raise TypeError(f"Expected a number for {p.name!r}, got {value!r}.")
            if not p.lower <= value <= p.upper:
                raise InputDataError(
                    f"{p.label()} = {value} lies outside the domain, {p.lower} to "
                    f"{p.upper}. Correct the value, or start a new study with a wider "
                    "domain."
                )
            if p.values is not None and not any(
                math.isclose(value, other) for other in p.values
            ):
                nearest = sorted(p.values, key=lambda other: abs(other - value))[:2]
                raise InputDataError(
                    f"{p.label()} = {value} is not one of its {len(p.values)} values; "
                    f"the nearest are {nearest[0]:g} and {nearest[1]:g}."
                )
        z = torch.tensor(
            [p.encode(values[p.name]) for p in self.parameters], dtype=torch.double
        )
        self._check_choices(z)
        return z

    def describe(self) -> str:
        """The parameters in a few words, for messages."""
        return ", ".join(
            f"{p.label()} from {p.lower:g} to {p.upper:g}"
            + f" ({len(p.values or ())} values)" * (p.values is not None)
            + " (log)" * p.log
            + " (uncontrollable)" * p.uncontrollable
            for p in self.parameters
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain lists and numbers; inverted by ``from_dict``."""
        domain = self.domain
        return {
            "named": self.named,
            "parameters": [
                asdict(p) | {"values": None if p.values is None else list(p.values)}
                for p in self.parameters
            ],
            "bounds": domain.bounds.tolist(),
            "uncontrollable": list(domain.uncontrollable),
            "x_choices": _listed(domain.x_choices),
            "theta_choices": _listed(domain.theta_choices),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ParameterSpace:
        """Build a space from what ``to_dict`` returned.

        Args:
            content: The dictionary, possibly read from JSON.

        Returns:
            The space.
        """
        space = cls.__new__(cls)
        space.named = content["named"]
        space.parameters = tuple(
            Parameter(
                **{**p, "values": None if p["values"] is None else tuple(p["values"])}
            )
            for p in content["parameters"]
        )
        bounds, x, theta = (
            None if rows is None else torch.tensor(rows, dtype=torch.double)
            for rows in (
                content["bounds"],
                content["x_choices"],
                content["theta_choices"],
            )
        )
        assert bounds is not None
        space.domain = RobustDomain(bounds, content["uncontrollable"], x, theta)
        return space

    def _check_choices(self, z: Tensor) -> None:
        """Raise unless a point is one of the choices where the domain is finite."""
        for names, part, inside, choices in zip(
            (self.x_names, self.theta_names),
            self.domain.split(z),
            (self.domain.contains_x, self.domain.contains_theta),
            (self.domain.x_choices, self.domain.theta_choices),
            strict=True,
        ):
            if choices is None or bool(inside(part)):
                continue
            nearest = choices[(choices - part).square().sum(-1).argmin()]
            raise InputDataError(
                f"{dict(zip(names, part.tolist(), strict=True))} is not one of the "
                f"{len(choices)} choices of the domain (in the model's coordinates); "
                f"the nearest is {nearest.tolist()}."
            )


def _combinations(part: str, parameters: list[Parameter]) -> Tensor | None:
    """All combinations of finitely many values, or ``None`` for ranges."""
    ranges = [p.name for p in parameters if p.values is None]
    finite = {p.name: p.values for p in parameters if p.values is not None}
    if not finite:
        return None
    if ranges:
        raise UnsupportedError(
            f"The {part} parameters mix ranges ({', '.join(ranges)}) with finite lists "
            f"({', '.join(finite)}). Give the ranges as lists of values, or the lists "
            "as ranges and round inside the function."
        )
    count = math.prod(len(values) for values in finite.values())
    if count > MAX_COMBINATIONS:
        raise UnsupportedError(
            f"The {part} parameters {', '.join(finite)} have {count} combinations, "
            f"more than {MAX_COMBINATIONS}. Use coarser lists, or ranges and round "
            "inside the function."
        )
    grid = itertools.product(*finite.values())
    return torch.tensor(
        [
            [p.encode(value) for p, value in zip(parameters, row, strict=True)]
            for row in grid
        ],
        dtype=torch.double,
    )


def _listed(choices: Tensor | None) -> list[list[float]] | None:
    """The rows of a tensor, or ``None``."""
    return None if choices is None else choices.tolist()


def _is_number(value: object) -> bool:
    """Whether a value is a real number, and not a truth value."""
    return isinstance(value, Real) and not isinstance(value, bool)
