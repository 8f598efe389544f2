r"""Who controls what: the domain of an adversarially robust optimisation problem.

A point ``z`` of the problem has ``d`` columns. Some of them are *controllable*
(``x``: ours to set, now and later), the others *uncontrollable* (``theta``: ours to
set in the lab only, later chosen by nature at its worst). Each of the two parts is
either a box or a finite set of arbitrary points, which makes four kinds of domain.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import NoReturn

import torch
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from botorch_res.checks import (
    check_finite,
    check_like,
    check_number,
    check_points,
    check_seed,
    check_type,
    require,
)

# A point counts as part of the domain within this share of the bounds' distance.
ROUNDING = 1e-6


class DomainPart:
    """One part of the domain, ``x`` or ``theta``: a box or a finite set of points.

    Attributes:
        name: The part's name, ``"x"`` or ``"theta"``.
        columns: Its columns of ``z``.
        index: The same as a tensor, on the domain's device.
        bounds: The ``2 x d_part`` bounds of these columns.
        choices: The ``n x d_part`` values that the part may take; ``None`` for a box.
    """

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
            choices: The ``n x d_part`` values that the part may take, if it is
                restricted to a finite set.
        """
        self.name = name
        self.columns = tuple(columns)
        self.index = torch.tensor(self.columns, device=bounds.device)
        self.bounds = bounds.index_select(-1, self.index)
        self.choices = None if choices is None else self._checked(choices)

    @property
    def dim(self) -> int:
        """The number of columns ``d_part``."""
        return len(self.columns)

    @property
    def is_finite(self) -> bool:
        """Whether the part is restricted to a finite set."""
        return self.choices is not None

    def of(self, z: Tensor) -> Tensor:
        """This part of points, or of anything with a column for each column of ``z``.

        Args:
            z: A ``batch_shape x d`` tensor.

        Returns:
            A ``batch_shape x d_part`` tensor.
        """
        return z.index_select(-1, self.index)

    def contains(self, values: Tensor) -> Tensor:
        """Which values belong to this part of the domain, up to rounding.

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

    def sample(self, n: int, seed: int | None = None) -> Tensor:
        """Draw space-filling values.

        Args:
            n: The number of values.
            seed: The seed of the scrambled Sobol sequence.

        Returns:
            An ``n x d_part`` tensor. Choices of a finite set may repeat.
        """
        return _fill([self], n, seed)[0]

    @property
    def _num_free(self) -> int:
        """The dimensions that a space-filling sequence takes for this part."""
        return 1 if self.is_finite else self.dim

    def _from_unit(self, unit: Tensor) -> Tensor:
        """Carry ``n x _num_free`` points of the unit cube to values of this part."""
        if self.choices is None:
            return torch.lerp(self.bounds[0], self.bounds[1], unit)
        index = (unit.squeeze(-1) * len(self.choices)).long()
        # In single precision a coordinate may round up to one.
        return self.choices[index.clamp_max(len(self.choices) - 1)]

    def _checked(self, choices: Tensor) -> Tensor:
        """A copy of the user's choices, or an error that says what is wrong."""
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
        outside = ~((choices >= lower) & (choices <= upper)).all(dim=-1)
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


class RobustDomain:
    r"""The domain of ``min over x, max over theta`` of ``f(z)``, ``z = (x, theta)``.

    Everything is in the user's units. The columns of ``x`` are the controllable
    columns of ``z`` in increasing order; the columns of ``theta`` are those listed in
    ``uncontrollable``, in the order in which they are listed. All tensors are copies:
    later changes of the arguments do not reach the domain.

    Attributes:
        bounds: The ``2 x d`` bounds of every column of ``z``.
        x: The controllable part.
        theta: The uncontrollable part.
    """

    bounds: Tensor
    x: DomainPart
    theta: DomainPart
    _order: Tensor

    def __init__(
        self,
        bounds: Tensor,
        uncontrollable: Sequence[int],
        x_choices: Tensor | None = None,
        theta_choices: Tensor | None = None,
    ) -> None:
        """Check the arguments and make the two parts.

        Args:
            bounds: A ``2 x d`` tensor of lower and upper bounds of every column.
            uncontrollable: The indices of the uncontrollable columns, each in
                ``0, ..., d - 1``, at least one of them and not all.
            x_choices: An ``n_x x d_x`` tensor of the values that ``x`` may take, if it
                is restricted to a finite set, otherwise ``None``.
            theta_choices: An ``n_theta x d_theta`` tensor of the values that ``theta``
                may take, if it is restricted to a finite set, otherwise ``None``.

        Example:
            >>> bounds = torch.tensor([[-5.0, 0.0], [10.0, 15.0]], dtype=torch.double)
            >>> domain = RobustDomain(bounds, uncontrollable=[1])
            >>> x, theta = domain.split(domain.sample(4, seed=0))
        """
        bounds = _validated_bounds(bounds)
        columns = _validated_columns(uncontrollable, bounds.shape[-1])
        others = [i for i in range(bounds.shape[-1]) if i not in columns]
        x = DomainPart("x", others, bounds, x_choices)
        theta = DomainPart("theta", columns, bounds, theta_choices)
        order = torch.cat([x.index, theta.index]).argsort()
        vars(self).update(bounds=bounds, x=x, theta=theta, _order=order)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: what has looked at a domain relies on it."""
        raise AttributeError(f"A RobustDomain cannot be changed, got a new `{name}`.")

    def __repr__(self) -> str:
        """The arguments from which the domain can be made again."""
        return (
            f"RobustDomain({self.bounds}, {list(self.theta.columns)}, "
            f"x_choices={self.x.choices}, theta_choices={self.theta.choices})"
        )

    @property
    def dim(self) -> int:
        """The number of columns ``d`` of ``z``."""
        return self.bounds.shape[-1]

    def split(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Split points into their controllable and uncontrollable parts.

        Args:
            z: A ``batch_shape x d`` tensor of points.

        Returns:
            The ``batch_shape x d_x`` tensor ``x`` and the ``batch_shape x d_theta``
            tensor ``theta``.
        """
        check_points("z", z, self.dim, "batch_shape")
        return self.x.of(z), self.theta.of(z)

    def join(self, x: Tensor, theta: Tensor) -> Tensor:
        """Join controllable and uncontrollable parts into points; inverts ``split``.

        Args:
            x: A ``batch_shape_x x d_x`` tensor.
            theta: A ``batch_shape_theta x d_theta`` tensor.

        Returns:
            The ``batch_shape x d`` tensor ``z``, where ``batch_shape`` is
            ``batch_shape_x`` and ``batch_shape_theta`` broadcast together.
        """
        check_points("x", x, self.x.dim, "batch_shape")
        check_points("theta", theta, self.theta.dim, "batch_shape")
        try:
            batch_shape = torch.broadcast_shapes(x.shape[:-1], theta.shape[:-1])
        except RuntimeError as error:
            raise BotorchTensorDimensionError(
                "Expected `x` and `theta` of batch shapes that broadcast, got "
                f"{tuple(x.shape[:-1])} and {tuple(theta.shape[:-1])}."
            ) from error
        parts = [part.expand(*batch_shape, -1) for part in (x, theta)]
        return torch.cat(parts, dim=-1).index_select(-1, self._order)

    def all_pairs(self) -> Tensor:
        """List every point of a domain in which both parts are finite.

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
        """Draw points that fill the space of ``z`` jointly.

        Args:
            n: The number of points.
            seed: The seed of the scrambled Sobol sequence.

        Returns:
            An ``n x d`` tensor. Choices of a finite set may repeat.
        """
        return self.join(*_fill([self.x, self.theta], n, seed))

    def to(
        self, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> RobustDomain:
        """Move the domain to a dtype and device.

        Args:
            dtype: The new floating point dtype, or ``None`` to keep the present one.
            device: The new device, or ``None`` to keep the present one.

        Returns:
            A new domain.
        """
        return RobustDomain(
            self.bounds.to(dtype=dtype, device=device),
            self.theta.columns,
            *(
                choices if choices is None else choices.to(dtype=dtype, device=device)
                for choices in (self.x.choices, self.theta.choices)
            ),
        )


def _fill(parts: list[DomainPart], n: int, seed: int | None) -> list[Tensor]:
    """Draw ``n`` values of each part from one Sobol sequence."""
    # A box takes one dimension of the sequence for each of its columns. A finite set
    # takes a single dimension, cut into as many equal pieces as there are choices, so
    # that all choices are drawn about equally often.
    check_number("n", n, 1)
    check_seed(seed)
    seed = None if seed is None else int(seed)  # torch wants a Python int
    widths = [part._num_free for part in parts]
    unit_cube = parts[0].bounds.new_tensor([[0.0], [1.0]]).expand(2, sum(widths))
    unit = draw_sobol_samples(unit_cube, n=n, q=1, seed=seed).squeeze(-2)
    pieces = unit.split(widths, dim=-1)
    return [part._from_unit(u) for part, u in zip(parts, pieces, strict=True)]


def _validated_bounds(bounds: Tensor) -> Tensor:
    """A copy of the user's bounds, or an error that says what is wrong."""
    _check_float_tensor("bounds", bounds)
    if bounds.ndim != 2 or bounds.shape[0] != 2 or bounds.shape[1] < 2:
        raise BotorchTensorDimensionError(
            "Expected `bounds` of shape 2 x d with d of at least 2 (one controllable "
            f"and one uncontrollable column), got shape {tuple(bounds.shape)}."
        )
    check_finite(bounds=bounds)
    lower, upper = bounds
    require(lower < upper, "lower `bounds` to be less than upper ones", lower, upper)
    return bounds.detach().clone()


def _validated_columns(uncontrollable: Sequence[int], dim: int) -> tuple[int, ...]:
    """The user's columns as integers, or an error that says what is wrong."""
    try:
        columns = tuple(operator.index(i) for i in uncontrollable)
    except TypeError:
        columns = ()
    distinct = set(columns)
    if len(distinct) < len(columns) or not set() < distinct < set(range(dim)):
        raise InputDataError(
            f"Expected `uncontrollable` to list distinct column indices from 0 to "
            f"{dim - 1}, at least one and at most {dim - 1} of them, got "
            f"{uncontrollable!r}."
        )
    return columns


def _check_float_tensor(name: str, value: Tensor) -> None:
    """Raise unless an argument is a tensor of floats."""
    check_type(name, value, Tensor)
    if not value.is_floating_point():
        raise InputDataError(
            f"Expected `{name}` to hold floats, for example torch.double, got "
            f"{value.dtype}."
        )
