r"""The domain of a robust optimisation problem: which columns do we control?

A point ``z`` has ``d`` columns. Some are *controllable* (``x``): we set them, now and
later. The others are *uncontrollable* (``theta``): we set them in the lab, but later
nature chooses them, at their worst. Each of the two parts is either a box or a finite
set of arbitrary points. That makes four kinds of domain.

A column can also have a *tolerance*: we set ``x`` and get ``x + delta``, with the worst
``delta`` within the tolerance. Then the column belongs to both parts, and they add up:

    z = E_x x + E_theta theta,

where ``E`` writes the values of a part into its columns and zeros into the others.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, NoReturn

import torch
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor
from torch.nn.functional import pad

from botorch_res.checks import (
    check_finite,
    check_like,
    check_number,
    check_points,
    check_seed,
    check_type,
    is_number,
    require,
)

# A point may miss the domain by this share of the distance between the bounds. It
# covers a few roundings in single precision, whose unit is 1.2e-7. A safe choice: real
# settings differ by more.
ROUNDING = 1e-6


class _Unchangeable:
    """Something on which other objects rely as it is."""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Raise an error."""
        raise AttributeError(
            f"A {type(self).__name__} cannot be changed, got a new `{name}`."
        )


class DomainPart(_Unchangeable):
    """One part of the domain, ``x`` or ``theta``: a box or a finite set of points.

    Attributes:
        name: The part's name, ``"x"`` or ``"theta"``.
        columns: Its columns of ``z``.
        index: The same columns as a tensor on the domain's device.
        bounds: The ``2 x d_part`` bounds of these columns.
        choices: The ``n x d_part`` values that the part can take; ``None`` for a box.
    """

    name: str
    columns: tuple[int, ...]
    index: Tensor
    bounds: Tensor
    choices: Tensor | None
    _slots: Tensor

    def __init__(
        self,
        name: str,
        columns: Sequence[int],
        bounds: Tensor,
        choices: Tensor | None = None,
    ) -> None:
        """Check the choices and copy all tensors.

        Args:
            name: The part's name, ``"x"`` or ``"theta"``.
            columns: Its columns of ``z``.
            bounds: The ``2 x d`` bounds of all columns of ``z``.
            choices: The ``n x d_part`` values that the part can take, or ``None`` for
                a box.
        """
        index = torch.tensor(tuple(columns), dtype=torch.long, device=bounds.device)
        # Where each column of z finds its value in the part; behind it is a zero.
        slots = torch.full_like(bounds[0], len(index), dtype=torch.long)
        slots[index] = torch.arange(len(index), device=bounds.device)
        vars(self).update(
            name=name,
            columns=tuple(columns),
            index=index,
            bounds=bounds.index_select(-1, index),
            choices=None,
            _slots=slots,
        )
        if choices is not None:
            vars(self)["choices"] = self._validated(choices)

    @property
    def dim(self) -> int:
        """The number of columns ``d_part``."""
        return len(self.columns)

    @property
    def is_finite(self) -> bool:
        """Whether the part is a finite set."""
        return self.choices is not None

    def of(self, z: Tensor) -> Tensor:
        """Take this part of points, or of any tensor with the columns of ``z``.

        Args:
            z: A ``batch_shape x d`` tensor.

        Returns:
            A ``batch_shape x d_part`` tensor.
        """
        return z.index_select(-1, self.index)

    def embed(self, values: Tensor) -> Tensor:
        """Write values into the columns of ``z``, and zeros into the others.

        Args:
            values: A ``batch_shape x d_part`` tensor.

        Returns:
            A ``batch_shape x d`` tensor.
        """
        return pad(values, (0, 1)).index_select(-1, self._slots)

    def contains(self, values: Tensor) -> Tensor:
        """Tell which values lie in this part of the domain, up to rounding.

        Args:
            values: A ``batch_shape x d_part`` tensor.

        Returns:
            A ``batch_shape`` tensor of booleans.
        """
        check_points(self.name, values, self.dim, "batch_shape")
        lower, upper = self.bounds.unbind()
        slack = ROUNDING * (upper - lower)
        if self.choices is None:
            inside = (values >= lower - slack) & (values <= upper + slack)
            return inside.all(dim=-1)
        distance = (values.unsqueeze(-2) - self.choices).abs()
        return (distance <= slack).all(dim=-1).any(dim=-1)

    def restricted_to(self, values: Tensor) -> DomainPart:
        """Restrict the part to values, as far as they lie within its bounds.

        Args:
            values: An ``n x d_part`` tensor, possibly with repetitions.

        Returns:
            A finite part.
        """
        part = copy(self)
        if self.dim == 0:
            vars(part)["choices"] = values[:1]
            return part
        inside = ((values >= self.bounds[0]) & (values <= self.bounds[1])).all(dim=-1)
        if not inside.any():
            raise InputDataError(
                f"Expected `evaluation_bounds` that contain a choice of {self.name}, "
                f"got {self.bounds.tolist()} in the columns {list(self.columns)}."
            )
        vars(part)["choices"] = values[inside].unique(dim=0)
        return part

    def nearest(self, values: Tensor) -> Tensor:
        """Move values to the nearest ones of this part.

        Args:
            values: A ``batch_shape x d_part`` tensor.

        Returns:
            A ``batch_shape x d_part`` tensor.
        """
        lower, upper = self.bounds
        if self.choices is None:
            return values.clamp(lower, upper)
        offset = (values.unsqueeze(-2) - self.choices) / (upper - lower)
        return self.choices[offset.square().sum(dim=-1).argmin(dim=-1)]

    def sample(self, n: int, seed: int | None = None) -> Tensor:
        """Draw space-filling values.

        Args:
            n: The number of values.
            seed: The seed of the scrambled Sobol sequence.

        Returns:
            An ``n x d_part`` tensor. Values from a finite set may repeat.
        """
        return _fill([self], n, seed)[0]

    @property
    def _num_free(self) -> int:
        """How many dimensions of a space-filling sequence this part uses."""
        return 1 if self.is_finite else self.dim

    def _from_unit(self, unit: Tensor) -> Tensor:
        """Map ``n x _num_free`` points of the unit cube to values of this part."""
        if self.choices is None:
            return torch.lerp(self.bounds[0], self.bounds[1], unit)
        index = (unit.squeeze(-1) * len(self.choices)).long()
        # In single precision a coordinate can round up to one.
        return self.choices[index.clamp_max(len(self.choices) - 1)]

    def _validated(self, choices: Tensor) -> Tensor:
        """Copy the user's choices, or raise an error that says what is wrong."""
        name, bounds = f"{self.name}_choices", self.bounds
        _check_float_tensor(name, choices)
        check_like(name, choices, bounds)
        if choices.ndim != 2 or choices.shape[-1] != self.dim or len(choices) < 1:
            raise BotorchTensorDimensionError(
                f"Expected `{name}` of shape n x {self.dim} (one column for each of "
                f"the columns {list(self.columns)} of z) with n of at least 1, got "
                f"shape {tuple(choices.shape)}."
            )
        lower, upper = bounds
        slack = ROUNDING * (upper - lower)
        inside = (choices >= lower - slack) & (choices <= upper + slack)
        outside = ~inside.all(dim=-1)
        if outside.any():
            row = int(outside.nonzero()[0])
            raise InputDataError(
                f"Expected `{name}` within the bounds {lower.tolist()} to "
                f"{upper.tolist()}, got {choices[row].tolist()} in row {row}."
            )
        unique, counts = choices.unique(dim=0, return_counts=True)
        if len(unique) < len(choices):
            raise InputDataError(
                f"Expected distinct rows in `{name}`, got "
                f"{unique[counts.argmax()].tolist()} {int(counts.max())} times."
            )
        return choices.detach().clone()


class RobustDomain(_Unchangeable):
    r"""The domain of ``min over x, max over theta`` of ``f(z)``, ``z = (x, theta)``.

    Everything is in the user's units. The columns of ``x`` are those that are not
    ``uncontrollable``, in increasing order. The columns of ``theta`` are those with
    ``tolerances``, then those in ``uncontrollable``, each in the order given. In a
    column with a tolerance, ``x`` is the setting, ``theta`` the deviation from it, and
    ``z`` their sum. The domain copies all tensors, so later changes to the arguments do
    not affect it.

    Attributes:
        bounds: The ``2 x d`` bounds of the settings and of the uncontrollable columns.
        x: The controllable part.
        theta: The uncontrollable part: what nature chooses.
        has_tolerance: ``d`` booleans: which columns have a tolerance.
        evaluations: The domain of the points ``z`` at which the function can be
            evaluated: this one, or without tolerances the box that is widened by them.
    """

    bounds: Tensor
    x: DomainPart
    theta: DomainPart
    _tolerances: dict[int, tuple[float, float]]
    evaluations: RobustDomain
    has_tolerance: Tensor
    _usual: Tensor

    def __init__(
        self,
        bounds: Tensor,
        uncontrollable: Sequence[int] = (),
        x_choices: Tensor | None = None,
        theta_choices: Tensor | None = None,
        tolerances: Mapping[int, float | tuple[float, float]] | None = None,
        evaluation_bounds: Tensor | None = None,
    ) -> None:
        """Check the arguments and make the two parts.

        Args:
            bounds: A ``2 x d`` tensor with the lower and upper bound of every column.
                In a column with a tolerance, these are the bounds of the setting.
            uncontrollable: The indices of the uncontrollable columns, from 0 to
                ``d - 1``: not all, and at least one if there are no ``tolerances``.
            x_choices: An ``n_x x d_x`` tensor of the values that ``x`` can take, or
                ``None`` for a box.
            theta_choices: An ``n_theta x d_theta`` tensor of the values that ``theta``
                can take, or ``None`` for a box. In the columns with a tolerance they
                are deviations.
            tolerances: The deviation from the setting in each controllable column that
                has one: a radius, or a lower and an upper deviation.
            evaluation_bounds: A ``2 x d`` tensor of the box in which the function can
                be evaluated. By default, these are the ``bounds``, widened by the
                tolerances. Nature's choices are not bound by it.

        Example:
            >>> bounds = torch.tensor([[-5.0, 0.0], [10.0, 15.0]], dtype=torch.double)
            >>> domain = RobustDomain(bounds, uncontrollable=[1])
            >>> x, theta = domain.split(domain.sample(4, seed=0))
            >>> sloppy = RobustDomain(bounds, tolerances={0: 0.5, 1: (-0.1, 0.3)})
        """
        bounds = _validated_bounds(bounds)
        deviations = _validated_tolerances(tolerances, bounds)
        columns = _validated_columns(uncontrollable, bounds.shape[-1], deviations)
        others = [i for i in range(bounds.shape[-1]) if i not in columns]
        theta_bounds = bounds.clone()
        for column, limits in deviations.items():
            theta_bounds[:, column] = bounds.new_tensor(limits)
        x = DomainPart("x", others, bounds, x_choices)
        theta = DomainPart(
            "theta", (*deviations, *columns), theta_bounds, theta_choices
        )
        self._set(bounds, x, theta, deviations)
        if deviations or evaluation_bounds is not None:
            widened = bounds.clone()
            widened[:, list(deviations)] += theta_bounds[:, list(deviations)]
            box = _validated_evaluations(evaluation_bounds, widened)
            vars(self).update(evaluations=self._evaluations_in(box))

    def _set(
        self,
        bounds: Tensor,
        x: DomainPart,
        theta: DomainPart,
        tolerances: dict[int, tuple[float, float]],
    ) -> None:
        """Store the parts, and what the nominal setting of a point depends on."""
        has_tolerance = torch.zeros_like(bounds[0], dtype=torch.bool)
        has_tolerance[list(tolerances)] = True
        # The deviation that is nearest to zero: zero, if the tolerances allow it.
        usual = theta.embed(theta.bounds.new_zeros(theta.dim).clamp(*theta.bounds))
        vars(self).update(
            bounds=bounds,
            x=x,
            theta=theta,
            _tolerances=tolerances,
            evaluations=self,
            has_tolerance=has_tolerance,
            _usual=x.of(usual * has_tolerance),
        )

    def __repr__(self) -> str:
        """Show the arguments that make the same domain."""
        arguments = ", ".join(f"{k}={v}" for k, v in self._arguments().items())
        return f"RobustDomain({arguments})"

    def _arguments(self) -> dict[str, Any]:
        """The arguments that make the same domain, without those that are ``None``."""
        evaluations = None if self.evaluations is self else self.evaluations.bounds
        arguments = {
            "bounds": self.bounds,
            "uncontrollable": self._uncontrollable,
            "x_choices": self.x.choices,
            "theta_choices": self.theta.choices,
            "tolerances": self.tolerances or None,
            "evaluation_bounds": evaluations,
        }
        return {k: v for k, v in arguments.items() if v is not None}

    @property
    def _uncontrollable(self) -> list[int]:
        """The columns that are not controllable, not even up to a tolerance."""
        return [i for i in self.theta.columns if i not in self.tolerances]

    @property
    def dim(self) -> int:
        """The number of columns ``d`` of ``z``."""
        return self.bounds.shape[-1]

    @property
    def tolerances(self) -> dict[int, tuple[float, float]]:
        """The lower and upper deviation of each column that has a tolerance."""
        return dict(self._tolerances)

    def split(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Split points into their controllable and uncontrollable parts.

        In a column with a tolerance, a point does not tell from which setting it came.
        The result is the nominal one: the setting that is nearest to the point, and the
        deviation from it.

        Args:
            z: A ``batch_shape x d`` tensor of points.

        Returns:
            The ``batch_shape x d_x`` tensor ``x`` and the ``batch_shape x d_theta``
            tensor ``theta``.
        """
        x = self.setting(z)
        return x, self.theta.of(z - self.x.embed(x) if self.tolerances else z)

    def setting(self, z: Tensor) -> Tensor:
        """Take the controllable part of points alone; see ``split``.

        Args:
            z: A ``batch_shape x d`` tensor of points.

        Returns:
            The ``batch_shape x d_x`` tensor ``x``.
        """
        check_points("z", z, self.dim, "batch_shape")
        x = self.x.of(z)
        if not self.tolerances:
            return x
        x = x - self._usual
        return torch.where(self.x.of(self.has_tolerance), self.x.nearest(x), x)

    def join(self, x: Tensor, theta: Tensor) -> Tensor:
        """Join controllable and uncontrollable parts into points.

        This inverts ``split``. In columns with a tolerance the parts are added.

        Args:
            x: A ``batch_shape_x x d_x`` tensor.
            theta: A ``batch_shape_theta x d_theta`` tensor.

        Returns:
            The ``batch_shape x d`` tensor ``z``. Its ``batch_shape`` is
            ``batch_shape_x`` and ``batch_shape_theta``, broadcast together.
        """
        check_points("x", x, self.x.dim, "batch_shape")
        check_points("theta", theta, self.theta.dim, "batch_shape")
        try:
            torch.broadcast_shapes(x.shape[:-1], theta.shape[:-1])
        except RuntimeError as error:
            raise BotorchTensorDimensionError(
                "Expected `x` and `theta` of batch shapes that broadcast, got "
                f"{tuple(x.shape[:-1])} and {tuple(theta.shape[:-1])}."
            ) from error
        return self.x.embed(x) + self.theta.embed(theta)

    def settings(self) -> RobustDomain:
        """The settings alone, as a domain in which nature has no choice.

        Returns:
            A domain without tolerances, in which the uncontrollable columns are fixed.
        """
        theta = DomainPart("theta", self._uncontrollable, self.bounds)
        fixed = (
            self.theta.bounds[0]
            if self.theta.choices is None
            else self.theta.choices[0]
        )
        theta = theta.restricted_to(theta.of(self.theta.embed(fixed)).unsqueeze(0))
        return self._with_parts(self.bounds, self.x, theta)

    def _evaluations_in(self, box: Tensor) -> RobustDomain:
        """Where the function can be evaluated, as a domain without tolerances."""
        x = DomainPart("x", self.x.columns, box)
        theta = DomainPart("theta", self._uncontrollable, box)
        settings, deviations = self.x.choices, self.theta.choices
        if deviations is not None:
            theta = theta.restricted_to(theta.of(self.theta.embed(deviations)))
        elif theta.dim == 0:
            theta = theta.restricted_to(box.new_zeros(1, 0))
        has_tolerance = self.x.of(self.has_tolerance)
        if settings is not None and (deviations is not None or not self.tolerances):
            if deviations is not None:
                shifts = self.x.of(self.theta.embed(deviations)) * has_tolerance
                settings = (settings.unsqueeze(-2) + shifts).flatten(0, 1)
            x = x.restricted_to(settings)
        elif settings is not None and not has_tolerance.all():
            raise UnsupportedError(
                "Expected `theta_choices`, or `tolerances` of all columns of x, beside "
                f"`x_choices` and `tolerances`, got tolerances of the columns "
                f"{list(self.tolerances)}."
            )
        return self._with_parts(box, x, theta)

    @staticmethod
    def _with_parts(bounds: Tensor, x: DomainPart, theta: DomainPart) -> RobustDomain:
        """Make a domain without tolerances from its parts; theta can be empty."""
        domain = object.__new__(RobustDomain)
        domain._set(bounds, x, theta, {})
        return domain

    def nearest_evaluation(self, z: Tensor) -> Tensor:
        """Move points to where the function can be evaluated.

        Args:
            z: A ``batch_shape x d`` tensor of points.

        Returns:
            The nearest ``batch_shape x d`` points of ``evaluations``.
        """
        x, theta = self.evaluations.x, self.evaluations.theta
        parts = (part.nearest(part.of(z)) for part in (x, theta))
        return self.evaluations.join(*parts)

    def all_pairs(self) -> Tensor:
        """List every point of a domain whose two parts are finite.

        Returns:
            An ``n_x x n_theta x d`` tensor of all points ``(x, theta)``.
        """
        if self.x.choices is None or self.theta.choices is None:
            parts = (self.x, self.theta)
            missing = [f"{part.name}_choices" for part in parts if not part.is_finite]
            raise UnsupportedError(
                "Only a domain with finite `x_choices` and `theta_choices` has a list "
                f"of all its points; this one has no {' and no '.join(missing)}."
            )
        return self.join(self.x.choices.unsqueeze(-2), self.theta.choices)

    def sample(self, n: int, seed: int | None = None) -> Tensor:
        """Draw points that fill the space of ``z``.

        Args:
            n: The number of points.
            seed: The seed of the scrambled Sobol sequence.

        Returns:
            An ``n x d`` tensor. Values from a finite set may repeat.
        """
        parts = [self.evaluations.x, self.evaluations.theta]
        return self.evaluations.join(*_fill(parts, n, seed))

    def to(
        self, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> RobustDomain:
        """Move the domain to a dtype and device.

        Args:
            dtype: The new floating-point dtype, or ``None`` to keep the old one.
            device: The new device, or ``None`` to keep the old one.

        Returns:
            A new domain.
        """
        arguments = self._arguments()
        for name, value in arguments.items():
            if isinstance(value, Tensor):
                arguments[name] = value.to(dtype=dtype, device=device)
        return RobustDomain(**arguments)


def _fill(parts: list[DomainPart], n: int, seed: int | None) -> list[Tensor]:
    """Draw ``n`` values of each part from one Sobol sequence."""
    # A box uses one dimension of the sequence for each column. A finite set uses a
    # single dimension, cut into one equal piece for each choice, so that all choices
    # are drawn about equally often.
    check_number("n", n, 1)
    check_seed(seed)
    seed = None if seed is None else int(seed)  # torch wants a Python int
    widths = [part._num_free for part in parts]
    unit_cube = parts[0].bounds.new_tensor([[0.0], [1.0]]).expand(2, sum(widths))
    unit = draw_sobol_samples(unit_cube, n=n, q=1, seed=seed).squeeze(-2)
    pieces = unit.split(widths, dim=-1)
    return [part._from_unit(u) for part, u in zip(parts, pieces, strict=True)]


def _validated_bounds(bounds: Tensor) -> Tensor:
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


def _validated_evaluations(evaluation_bounds: Tensor | None, widest: Tensor) -> Tensor:
    """The box of evaluations, or an error that says what is wrong with the user's."""
    if evaluation_bounds is None:
        return widest
    box = _validated_bounds(evaluation_bounds)
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


def _validated_tolerances(
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


def _validated_columns(
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


def _check_float_tensor(name: str, value: Tensor) -> None:
    """Raise an error unless an argument is a tensor of floats."""
    check_type(name, value, Tensor)
    if not value.is_floating_point():
        raise InputDataError(
            f"Expected `{name}` to hold floats, for example torch.double, got "
            f"{value.dtype}."
        )
