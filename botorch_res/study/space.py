r"""The space that parameters span: points for the model, names for the engineer.

The engineer thinks of ``friction`` from 0.1 to 0.2 and of a ``force`` of 200, 300 or
350 kN; the model thinks of columns. A ``ParameterSpace`` translates: each parameter is
a column of a ``RobustDomain``, logarithmic if it asks for it. A parameter with a
tolerance has a setting and a deviation; a point holds what comes out, their sum.

    >>> ParameterSpace(
    ...     [
    ...         Range("friction", 0.1, 0.2, levels=101),  # beside an integer: a list
    ...         Integer("layers", 1, 4),
    ...         Range("load", 1.0, 100.0, unit="kN", log=True, uncontrollable=True),
    ...     ]
    ... )
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from botorch_res.checks import is_number
from botorch_res.domain import DomainPart, RobustDomain
from botorch_res.study.parameters import MAX_COMBINATIONS, Parameter
from botorch_res.study.trials import OTHER_COLUMNS

# The largest number of pairs where both parts of a space are finite. A suggestion
# compares all pairs, at about 0.1 ms for each of them.
MAX_PAIRS = 1_000_000
# The numbers of levels that a message proposes.
_LEVELS = (101, 51, 21, 11, 5)


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
        values, all of them; and so must the uncontrollable ones. Ranges that stand
        beside integers or lists take ``levels``.

        Args:
            parameters: The parameters, at least one controllable, and at least one
                uncontrollable or with a tolerance.
        """
        self.parameters = tuple(parameters)
        self.named = True
        names = [parameter.name for parameter in self.parameters]
        if len(set(names)) < len(names):
            raise InputDataError(f"Expected distinct parameter names, got {names}.")
        if taken := [name for name in names if name in OTHER_COLUMNS]:
            raise InputDataError(
                f"The table of trials has a column {taken[0]!r} already. Give the "
                f"parameter another name, such as '{taken[0]}_setting'."
            )
        theta = [p for p in self.parameters if p.uncontrollable]
        x = [p for p in self.parameters if not p.uncontrollable]
        tolerant = [p for p in x if p.tolerance is not None]
        if not (theta or tolerant) or not x:
            missing = "controllable" if theta else "uncontrollable"
            raise InputDataError(
                f"Expected at least one {missing} parameter, got none among {names}. "
                "Mark the parameters that nature chooses with `uncontrollable=True`, "
                "and give those that you set, but not exactly, a `tolerance`."
            )
        _check_tolerances(x, theta, tolerant)
        self.domain = RobustDomain(
            _bounds(self.parameters),
            [i for i, p in enumerate(self.parameters) if p.uncontrollable],
            _combinations("controllable", x),
            _combinations("uncontrollable", theta),
            {
                i: p.tolerance
                for i, p in enumerate(self.parameters)
                if p.tolerance is not None
            },
            _bounds([p.evaluations for p in self.parameters]) if tolerant else None,
        )
        choices = (self.domain.x.choices, self.domain.theta.choices)
        sizes = [1 if rows is None else len(rows) for rows in choices]
        if math.prod(sizes) > MAX_PAIRS:
            raise UnsupportedError(
                f"The {sizes[0]} combinations of controllable and the {sizes[1]} of "
                f"uncontrollable parameters make {math.prod(sizes)} pairs, more than "
                f"{MAX_PAIRS}. Use fewer levels or coarser lists, or only ranges, "
                "without levels, for one of the two."
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
        evaluations = space.domain.evaluations
        names = {
            column: f"{part.name}{number}"
            for part in (evaluations.x, evaluations.theta)
            for number, column in enumerate(part.columns, 1)
        }
        lower, upper = space.domain.bounds.tolist()
        evaluated = evaluations.bounds.mT.tolist()
        space.parameters = tuple(
            Parameter(
                names[i],
                lower[i],
                upper[i],
                uncontrollable=i in evaluations.theta.columns,
                tolerance=domain.tolerances.get(i),
                evaluate=None if evaluations is space.domain else evaluated[i],
            )
            for i in range(domain.dim)
        )
        return space

    @property
    def x_names(self) -> list[str]:
        """The names of the controllable parameters, in the order of ``x``."""
        return [self.parameters[i].name for i in self.domain.x.columns]

    @property
    def theta_names(self) -> list[str]:
        """The names of the uncontrollable parameters, in the order of ``theta``."""
        columns = self.domain.evaluations.theta.columns
        return [self.parameters[i].name for i in columns]

    @property
    def tolerance_names(self) -> list[str]:
        """The names of the parameters with a tolerance, in the order of ``theta``."""
        return [self.parameters[i].name for i in self.domain.tolerances]

    @cached_property
    def widened(self) -> tuple[Parameter, ...]:
        """What can come out in each column: the parameters, widened by tolerances."""
        return tuple(p.widened for p in self.parameters)

    def sample(self, n: int, seed: int) -> Tensor:
        """Draw points to evaluate that fill the space jointly, in every parameter.

        Args:
            n: The number of points.
            seed: The seed of the scrambled Sobol sequence.

        Returns:
            An ``n x d`` tensor. Values of finite lists may repeat.
        """
        if not self.named:
            return self.domain.sample(n, seed)
        # Columns in the order in which a domain draws them.
        evaluations = self.domain.evaluations
        columns = (*evaluations.x.columns, *evaluations.theta.columns)
        cube = torch.tensor([[0.0], [1.0]], dtype=torch.double).expand(2, len(columns))
        unit = draw_sobol_samples(cube, n=n, q=1, seed=seed).squeeze(-2)
        z = torch.empty_like(unit)
        for column, u in zip(columns, unit.unbind(-1), strict=True):
            z[:, column] = self.parameters[column].evaluations.spread(u)
        return z

    def decode(self, z: Tensor) -> dict[str, float]:
        """Translate a point into parameters.

        Args:
            z: A point of shape ``d``.

        Returns:
            The value of each parameter; with a tolerance, what comes out.
        """
        values = zip(self.parameters, self.widened, z.tolist(), strict=True)
        return {p.name: p.evaluations.snap(wide.decode(u)) for p, wide, u in values}

    def decode_setting(self, x: Tensor) -> dict[str, float]:
        """Translate the controllable part into parameters.

        Args:
            x: A controllable part of shape ``d_x``.

        Returns:
            What to set each controllable parameter to.
        """
        parameters = [self.parameters[i] for i in self.domain.x.columns]
        return {
            parameter.name: parameter.decode(coordinate)
            for parameter, coordinate in zip(parameters, x.tolist(), strict=True)
        }

    def decode_deviation(self, theta: Tensor) -> dict[str, float]:
        """Translate the deviations from the setting.

        Args:
            theta: An uncontrollable part of shape ``d_theta``.

        Returns:
            The deviation of each parameter with a tolerance, in its unit; on a
            logarithmic scale relative to the setting.
        """
        shifts = dict(zip(self.domain.theta.columns, theta.tolist(), strict=True))
        parameters = [(self.parameters[i], shifts[i]) for i in self.domain.tolerances]
        return {p.name: p.decode_deviation(shift) for p, shift in parameters}

    def encode(self, values: Mapping[str, float] | Sequence[float] | Tensor) -> Tensor:
        """Translate parameters into a point, and check that it is in the domain.

        Args:
            values: The value of each parameter by name; or all values in the order of
                the parameters. With a tolerance, the value that came out.

        Returns:
            A point of shape ``d``.
        """
        names = [parameter.name for parameter in self.parameters]
        if not isinstance(values, (Mapping, Iterable)):
            raise InputDataError(
                f"Expected values of the parameters {', '.join(names)}, by name or in "
                f"this order, got {values!r}."
            )
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
        for p in self.widened:
            value = values[p.name]
            if not is_number(value):
                raise InputDataError(
                    f"Expected a number for {p.name!r}, got {value!r}."
                )
            if not p.lower <= p.snap(value) <= p.upper:
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
            [p.encode(values[p.name]) for p in self.widened], dtype=torch.double
        )
        self._check_choices(z)
        return z

    def spans(self, domain: RobustDomain) -> bool:
        """Whether the parameters, in their own units, span a domain.

        Args:
            domain: The domain. A grid of values may stand for one of its boxes.

        Returns:
            Whether columns, bounds and finite sets are the same.
        """
        own = self.domain
        if (own.dim, own.theta.columns) != (domain.dim, domain.theta.columns):
            return False
        # On a logarithmic scale a deviation is a factor, not a shift in its own unit.
        has_factor = any(self.parameters[i].log for i in own.tolerances)
        if has_factor or list(own.tolerances) != list(domain.tolerances):
            return False
        for mine, part in ((own.x, domain.x), (own.theta, domain.theta)):
            if part.choices is None:
                ends = self._in_own_units(mine, mine.bounds).to(part.bounds)
                if not torch.allclose(ends, part.bounds):
                    return False
            elif mine.choices is None or len(mine.choices) != len(part.choices):
                return False
            else:
                rows = self._in_own_units(mine, mine.choices).to(part.bounds)
                if not part.contains(rows).all():
                    return False
        return True

    def describe(self) -> str:
        """The parameters in a few words, for messages."""
        texts = [parameter.describe() for parameter in self.parameters]
        if not self.named:
            texts += [
                f"{part.name} one of {len(part.choices)} choices"
                for part in (self.domain.x, self.domain.theta)
                if part.choices is not None
            ]
        return ", ".join(texts)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain lists and numbers; inverted by ``from_dict``."""
        domain = self.domain
        content = {
            "named": self.named,
            "parameters": [_as_dict(p) for p in self.parameters],
            "bounds": domain.bounds.tolist(),
            "uncontrollable": list(domain.evaluations.theta.columns),
            "x_choices": _listed(domain.x.choices),
            "theta_choices": _listed(domain.theta.choices),
        }
        if domain.evaluations is not domain:
            content["tolerances"] = [
                [i, *ends] for i, ends in domain.tolerances.items()
            ]
            content["evaluation_bounds"] = domain.evaluations.bounds.tolist()
        return content

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
        space.parameters = tuple(Parameter(**p) for p in content["parameters"])
        tensors: dict[str, Any] = {
            name: torch.tensor(content[name], dtype=torch.double)
            for name in ("bounds", "x_choices", "theta_choices", "evaluation_bounds")
            if content.get(name) is not None
        }
        space.domain = RobustDomain(
            uncontrollable=content["uncontrollable"],
            tolerances={i: tuple(ends) for i, *ends in content.get("tolerances", [])},
            **tensors,
        )
        return space

    def _in_own_units(self, part: DomainPart, rows: Tensor) -> Tensor:
        """Values of a part of the domain in the parameters' units."""
        parameters = [self.parameters[i] for i in part.columns]
        is_deviation = [
            part is self.domain.theta and not p.uncontrollable for p in parameters
        ]
        decoders = [
            p.decode_deviation if deviates else p.decode
            for p, deviates in zip(parameters, is_deviation, strict=True)
        ]
        return rows.new_tensor(
            [
                [decode(value) for decode, value in zip(decoders, row, strict=True)]
                for row in rows.tolist()
            ]
        )

    def _check_choices(self, z: Tensor) -> None:
        """Raise unless a point is one of the choices where the domain is finite."""
        for part in (self.domain.evaluations.x, self.domain.evaluations.theta):
            value = part.of(z)
            if part.choices is None or bool(part.contains(value)):
                continue
            nearest = part.choices[(part.choices - value).square().sum(-1).argmin()]
            names = [self.parameters[i].name for i in part.columns]
            raise InputDataError(
                f"{dict(zip(names, value.tolist(), strict=True))} is not one of the "
                f"{len(part.choices)} choices of the domain (in the model's "
                f"coordinates); the nearest is {nearest.tolist()}."
            )


def _bounds(parameters: Sequence[Parameter]) -> Tensor:
    """The bounds of parameters in the model's coordinates."""
    ends = [(p.encode(p.lower), p.encode(p.upper)) for p in parameters]
    return torch.tensor(ends, dtype=torch.double).T.contiguous()


def _check_tolerances(
    x: list[Parameter], theta: list[Parameter], tolerant: list[Parameter]
) -> None:
    """Raise if finite lists stand beside tolerances, within which anything can be."""
    lists = [p.name for p in theta if p.values is not None]
    exact = [p.name for p in x if p.values is not None and p.tolerance is None]
    names = ", ".join(p.name for p in tolerant)
    if tolerant and lists:
        raise UnsupportedError(
            f"The uncontrollable parameters {', '.join(lists)} take values of a list, "
            f"but within the tolerance of {names} any deviation is possible. Give the "
            "uncontrollable parameters as ranges without levels."
        )
    if tolerant and exact:
        raise UnsupportedError(
            f"The parameters {', '.join(exact)} take values of a list without a "
            f"tolerance, beside {names} with one. Give all of them a tolerance, or "
            "give the lists as ranges without levels."
        )


def _as_dict(parameter: Parameter) -> dict[str, Any]:
    """A parameter as plain lists and numbers, as a file reads it back."""
    content = asdict(parameter)
    for name in ("values", "tolerance", "evaluate"):
        if content[name] is not None:
            content[name] = list(content[name])
        elif name != "values":  # As in files from before there were tolerances.
            del content[name]
    return content


def _combinations(part: str, parameters: list[Parameter]) -> Tensor | None:
    """All combinations of finitely many values, or ``None`` for ranges."""
    ranges = [p.name for p in parameters if p.values is None]
    finite = {p.name: p.values for p in parameters if p.values is not None}
    if not finite:
        return None
    count = math.prod(len(values) for values in finite.values())
    if ranges:
        levels = next(
            (n for n in _LEVELS if count * n ** len(ranges) <= MAX_COMBINATIONS),
            _LEVELS[-1],
        )
        raise UnsupportedError(
            f"The {part} parameters mix ranges ({', '.join(ranges)}) with finite lists "
            f"({', '.join(finite)}). Give each of the ranges a number of levels, such "
            f"as levels={levels}, which makes {count * levels ** len(ranges)} "
            f"combinations (at most {MAX_COMBINATIONS} are possible); or give the "
            "lists as ranges and round inside the function."
        )
    if count > MAX_COMBINATIONS:
        sizes = " x ".join(f"{len(values)}" for values in finite.values())
        raise UnsupportedError(
            f"The {part} parameters {', '.join(finite)} have {sizes} = {count} "
            f"combinations, more than {MAX_COMBINATIONS}. Use fewer levels or coarser "
            "lists, or only ranges, without levels, and round inside the function."
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
