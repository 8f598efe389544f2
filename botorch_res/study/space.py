r"""The space that parameters span: points for the model, names for the engineer.

The engineer thinks of a ``friction`` from 0.1 to 0.2 and of a ``material``, steel or
aluminium; the model thinks of columns. A ``ParameterSpace`` translates: each parameter
is a column of a ``RobustDomain``, logarithmic if it asks for it. A parameter with a
tolerance has a setting and a deviation; a point holds what comes out, their sum.

    >>> ParameterSpace(
    ...     [
    ...         Range("friction", 0.1, 0.2),
    ...         Choice("material", ["steel", "aluminium", "POM"]),
    ...         Range("load", 1.0, 100.0, unit="kN", log=True, uncontrollable=True),
    ...     ]
    ... )
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from botorch.exceptions.errors import InputDataError
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from botorch_res.domain import DomainPart, RobustDomain
from botorch_res.study.domain_record import (
    domain_from_dict,
    domain_to_dict,
    listed_columns,
)
from botorch_res.study.parameters import Parameter, Value
from botorch_res.study.spanning import span_domain


class ParameterSpace:
    """Parameters and the domain that they span.

    Attributes:
        parameters: One parameter for each column of the domain.
        domain: The domain, in the model's coordinates and double precision.
        named: Whether the parameters were named by the user.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        """Span the domain of named parameters.

        Args:
            parameters: The parameters, at least one controllable, and at least one
                uncontrollable or with a tolerance.
        """
        self.parameters = tuple(parameters)
        self.named = True
        self.domain = span_domain(self.parameters)

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

    def decode(self, z: Tensor) -> dict[str, Value]:
        """Translate a point into parameters.

        Args:
            z: A point of shape ``d``.

        Returns:
            The value of each parameter; with a tolerance, what comes out.
        """
        values = zip(self.parameters, self.widened, z.tolist(), strict=True)
        return {
            p.name: p.named(p.evaluations.snap(wide.number(u))) for p, wide, u in values
        }

    def decode_setting(self, x: Tensor) -> dict[str, Value]:
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

    def in_own_units(self, part: DomainPart, values: Tensor) -> Tensor:
        """Translate values of a part of the domain into the parameters' units.

        Args:
            part: The part, ``domain.x`` or ``domain.theta``.
            values: An ``n x d_part`` tensor of coordinates.

        Returns:
            An ``n x d_part`` tensor. A name is its place in the parameter's list, a
            deviation is as ``decode_deviation`` returns it.
        """
        parameters = [self.parameters[i] for i in part.columns]
        decoders = [
            p.decode_deviation
            if part is self.domain.theta and not p.uncontrollable
            else p.number
            for p in parameters
        ]
        return values.new_tensor(
            [
                [decode(value) for decode, value in zip(decoders, row, strict=True)]
                for row in values.tolist()
            ]
        )

    def encode(self, values: Mapping[str, Value] | Sequence[Value] | Tensor) -> Tensor:
        """Translate parameters into a point, and check that it is in the domain.

        Args:
            values: The value of each parameter by name; or all values in the order of
                the parameters. With a tolerance, the value that came out.

        Returns:
            A point of shape ``d``.
        """
        by_name = self._by_name(values)
        for parameter in self.widened:
            parameter.check(by_name[parameter.name])
        z = torch.tensor(
            [p.encode(by_name[p.name]) for p in self.widened], dtype=torch.double
        )
        self._check_rows(z)
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
        if set(own.cat_dims) != set(domain.cat_dims):
            return False
        for mine, part in ((own.x, domain.x), (own.theta, domain.theta)):
            ends = self.in_own_units(mine, mine.bounds).to(part.bounds)
            if not torch.allclose(part.free_of(ends), part.free_bounds):
                return False
            if part.is_box:
                continue
            if not set(part.listed.tolist()) <= set(mine.listed.tolist()):
                return False
            rows = mine.combine(mine.free_bounds[:1], mine.rows)
            rows = part.listed_of(self.in_own_units(mine, rows).to(part.bounds))
            rows = part.combine(part.free_bounds[:1], rows.unique(dim=0))
            if len(rows) != len(part.rows) or not part.contains(rows).all():
                return False
        return True

    def describe(self) -> str:
        """The parameters in a few words, for messages."""
        texts = [parameter.describe() for parameter in self.parameters]
        if not self.named:
            texts += [
                f"{self._listed_names(part)} one of {len(part.rows)} choices"
                for part in (self.domain.x, self.domain.theta)
                if not part.is_box
            ]
        return ", ".join(texts)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain lists and numbers; inverted by ``from_dict``."""
        parameters = [parameter.to_dict() for parameter in self.parameters]
        return {
            "named": self.named,
            "parameters": parameters,
            **domain_to_dict(self.domain),
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
        space.parameters = tuple(Parameter(**p) for p in content["parameters"])
        space.domain = domain_from_dict(content)
        return space

    def _by_name(
        self, values: Mapping[str, Value] | Sequence[Value] | Tensor
    ) -> Mapping[str, Value]:
        """The value of each parameter by its name; raise if one is missing."""
        names = [parameter.name for parameter in self.parameters]
        if not isinstance(values, (Mapping, Iterable)) or isinstance(values, str):
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
        return values

    def _check_rows(self, z: Tensor) -> None:
        """Raise unless a point has one of the listed rows in each part."""
        for part in (self.domain.evaluations.x, self.domain.evaluations.theta):
            row, nearest = part.listed_of(part.of(z)), part.nearest(part.of(z))
            if bool(part.contains(part.combine(part.free_of(nearest), row))):
                continue
            names = [self.parameters[i].name for i in listed_columns(part)]
            raise InputDataError(
                f"{dict(zip(names, row.tolist(), strict=True))} is not one of the "
                f"{len(part.rows)} choices of the domain (in the model's "
                f"coordinates); the nearest is {part.listed_of(nearest).tolist()}."
            )

    def _listed_names(self, part: DomainPart) -> str:
        """The names of the listed columns of a part; the part's if these are all."""
        names = [self.parameters[i].name for i in listed_columns(part)]
        return part.name if part.is_finite else ", ".join(names)
