r"""The domain of a robust optimisation problem: which columns do we control?

A point ``z`` has ``d`` columns. Some are *controllable* (``x``): we set them, now and
later. The others are *uncontrollable* (``theta``): we set them in the lab, but later
nature chooses them, at their worst. Each of the two parts is a box, a finite set of
points, or a mixture: some of its columns are free within their bounds, and the others
take listed values.

A column can also have a *tolerance*: we set ``x`` and get ``x + delta``, with the worst
``delta`` within the tolerance. Then the column belongs to both parts, and they add up:

    z = E_x x + E_theta theta,

where ``E`` writes the values of a part into its columns and zeros into the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from torch import Tensor

from botorch_res.checks import check_points
from botorch_res.domain.arguments import (
    Choices,
    Constraints,
    read_choices,
    read_constraints,
    validated_bounds,
    validated_categories,
    validated_columns,
    validated_evaluations,
    validated_fixed,
    validated_tolerances,
)
from botorch_res.domain.part import DomainPart, Unchangeable, fill


class RobustDomain(Unchangeable):
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
        cat_dims: The listed columns of ``z`` whose values are codes of categories.
    """

    bounds: Tensor
    x: DomainPart
    theta: DomainPart
    _tolerances: dict[int, tuple[float, float]]
    evaluations: RobustDomain
    has_tolerance: Tensor
    cat_dims: tuple[int, ...]
    _nominal: Tensor
    _order: Tensor

    def __init__(
        self,
        bounds: Tensor,
        uncontrollable: Sequence[int] = (),
        x_choices: Choices | None = None,
        theta_choices: Choices | None = None,
        tolerances: Mapping[int, float | tuple[float, float]] | None = None,
        evaluation_bounds: Tensor | None = None,
        cat_dims: Sequence[int] = (),
    ) -> None:
        """Check the arguments and make the two parts.

        Args:
            bounds: A ``2 x d`` tensor with the lower and upper bound of every column.
                In a column with a tolerance, these are the bounds of the setting.
            uncontrollable: The indices of the uncontrollable columns, from 0 to
                ``d - 1``: not all, and at least one if there are no ``tolerances``.
            x_choices: The values that ``x`` can take, or ``None`` for a box. A tensor
                of shape ``n_x x d_x`` lists all of them. A dictionary lists the values
                of some columns, ``{column: values}``, or the rows of values that
                several columns take together, ``{(column, column): rows}``, and
                leaves the other columns free. The columns are those of ``z``.
            theta_choices: The same for ``theta``. In the columns with a tolerance the
                values are deviations.
            tolerances: The deviation from the setting in each controllable column that
                has one: a radius, or a lower and an upper deviation.
            evaluation_bounds: A ``2 x d`` tensor of the box in which the function can
                be evaluated. By default, these are the ``bounds``, widened by the
                tolerances. Nature's choices are not bound by it.
            cat_dims: The columns whose listed values are codes of categories, such as
                materials. Between categories there is no order and no distance, so
                the package's models use a categorical kernel for these columns.

        Example:
            >>> bounds = torch.tensor([[-5.0, 0.0], [10.0, 15.0]], dtype=torch.double)
            >>> domain = RobustDomain(bounds, uncontrollable=[1])
            >>> x, theta = domain.split(domain.sample(4, seed=0))
            >>> sloppy = RobustDomain(bounds, tolerances={0: 0.5, 1: (-0.1, 0.3)})
            >>> mixed = RobustDomain(bounds, [1], x_choices={0: [-5.0, 0.0, 2.5]})
        """
        bounds = validated_bounds(bounds)
        deviations = validated_tolerances(tolerances, bounds)
        columns = validated_columns(uncontrollable, bounds.shape[-1], deviations)
        others = [i for i in range(bounds.shape[-1]) if i not in columns]
        theta_bounds = bounds.clone()
        for column, limits in deviations.items():
            theta_bounds[:, column] = bounds.new_tensor(limits)
        x = DomainPart(
            "x", others, bounds, *read_choices("x", others, bounds, x_choices)
        )
        columns = (*deviations, *columns)
        chosen = read_choices("theta", columns, theta_bounds, theta_choices)
        theta = DomainPart("theta", columns, theta_bounds, *chosen)
        cat_dims = validated_categories(cat_dims, x, theta, deviations)
        self._set(bounds, x, theta, deviations, cat_dims)
        if deviations or evaluation_bounds is not None:
            widened = bounds.clone()
            widened[:, list(deviations)] += theta_bounds[:, list(deviations)]
            box = validated_evaluations(evaluation_bounds, widened)
            vars(self).update(evaluations=self._evaluations_in(box))

    def _set(
        self,
        bounds: Tensor,
        x: DomainPart,
        theta: DomainPart,
        tolerances: dict[int, tuple[float, float]],
        cat_dims: tuple[int, ...],
    ) -> None:
        """Store the parts, and what the nominal setting of a point depends on."""
        has_tolerance = torch.zeros_like(bounds[0], dtype=torch.bool)
        has_tolerance[list(tolerances)] = True
        # The deviation that is nearest to zero: zero, if the tolerances allow it.
        nominal = theta.embed(theta.bounds.new_zeros(theta.dim).clamp(*theta.bounds))
        vars(self).update(
            bounds=bounds,
            x=x,
            theta=theta,
            _tolerances=tolerances,
            evaluations=self,
            has_tolerance=has_tolerance,
            cat_dims=cat_dims,
            _nominal=x.of(nominal * has_tolerance),
            _order=torch.cat([x.index, theta.index]).argsort(),
        )

    def __repr__(self) -> str:
        """Show the arguments that make the same domain."""
        arguments = ", ".join(f"{k}={v}" for k, v in self._arguments().items())
        constraints = [
            (self.x.index[row != 0.0], row[row != 0.0], limit.item())
            for row, limit in zip(self.x.normals, self.x.limits, strict=True)
        ]
        cut = f".restricted(inequality_constraints={constraints})"
        return f"RobustDomain({arguments}){cut if constraints else ''}"

    def _arguments(self) -> dict[str, Any]:
        """The arguments that make the same domain, without those that are ``None``."""
        evaluations = None if self.evaluations is self else self.evaluations.bounds
        arguments = {
            "bounds": self.bounds,
            "uncontrollable": self._uncontrollable,
            "x_choices": _as_argument(self.x),
            "theta_choices": _as_argument(self.theta),
            "tolerances": self.tolerances or None,
            "evaluation_bounds": evaluations,
            "cat_dims": self.cat_dims or None,
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
    def is_listed(self) -> Tensor:
        """``d`` booleans: the columns of ``z`` in which a part lists its values."""
        mask = torch.zeros_like(self.bounds[0], dtype=torch.bool)
        for part in (self.x, self.theta):
            mask[part.index[part.listed]] = True
        return mask

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
        x = x - self._nominal
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
            shape = torch.broadcast_shapes(x.shape[:-1], theta.shape[:-1])
        except RuntimeError as error:
            raise BotorchTensorDimensionError(
                "Expected `x` and `theta` of batch shapes that broadcast, got "
                f"{tuple(x.shape[:-1])} and {tuple(theta.shape[:-1])}."
            ) from error
        if self._tolerances:
            return self.x.embed(x) + self.theta.embed(theta)
        columns = [x.expand(*shape, -1), theta.expand(*shape, -1)]
        return torch.cat(columns, dim=-1).index_select(-1, self._order)

    def restricted(
        self,
        fixed_features: Mapping[int, float] | None = None,
        inequality_constraints: Constraints | None = None,
    ) -> RobustDomain:
        """Fix some columns, and constrain the setting.

        Args:
            fixed_features: ``{column: value}``, as in BoTorch, of any columns of ``z``
                without a tolerance. A listed column must have this value in a row.
            inequality_constraints: A list of ``(indices, coefficients, rhs)``, as in
                BoTorch: ``sum_i coefficients[i] z[indices[i]] >= rhs``. All columns
                must be controllable, of numbers, and without a tolerance.

        Returns:
            A new domain, to be used like any other. Its fixed columns are listed.

        Example:
            >>> mixture = RobustDomain(bounds, [3]).restricted(
            ...     fixed_features={2: 0.2},
            ...     inequality_constraints=[([0, 1], [-1.0, -1.0], -0.8)],
            ... )  # z[2] = 0.2 and z[0] + z[1] <= 0.8
        """
        fixed = validated_fixed(fixed_features, self.bounds, self._tolerances)
        excluded = {*self._tolerances, *self.cat_dims}
        normals, limits = read_constraints(inequality_constraints, self.x, excluded)
        if not fixed and len(limits) == 0:
            return self
        x = self.x.restricted(fixed, normals, limits)
        theta = self.theta
        theta = theta.restricted(fixed, theta.normals, theta.limits)
        domain = self._with_parts(self.bounds, x, theta, self._tolerances)
        if self.evaluations is not self:
            evaluations = self.evaluations.restricted(
                fixed_features, inequality_constraints
            )
            vars(domain).update(evaluations=evaluations)
        return domain

    def inward(self, z: Tensor) -> Tensor:
        """Move points to where their setting satisfies the linear constraints.

        Args:
            z: ``batch_shape x d`` points of a domain without tolerances, which need not
                satisfy its linear constraints.

        Returns:
            The ``batch_shape x d`` points, moved only as far as necessary.
        """
        if not self.x.is_constrained:
            return z
        return self.join(self.x.inward(self.x.of(z)), self.theta.of(z))

    def settings(self) -> RobustDomain:
        """The settings alone, as a domain in which nature has no choice.

        Returns:
            A domain without tolerances, in which the uncontrollable columns are fixed.
        """
        fixed = self.theta.combine(self.theta.free_bounds[:1], self.theta.rows[:1])
        columns = self._uncontrollable
        row = self.theta.embed(fixed)[:, columns]
        theta = DomainPart("theta", columns, self.bounds, range(len(columns)), row)
        return self._with_parts(self.bounds, self.x, theta)

    def _evaluations_in(self, box: Tensor) -> RobustDomain:
        """Where the function can be evaluated, as a domain without tolerances."""
        x, theta = self.x, self.theta
        settings = x.embed(x.combine(x.free_bounds[:1], x.rows))
        deviations = theta.embed(theta.combine(theta.free_bounds[:1], theta.rows))
        # A listed setting with a free deviation is free.
        listed = {theta.columns[i] for i in theta.listed}
        free = {c for c in self._tolerances if c not in listed}
        places = [i for i in x.listed.tolist() if x.columns[i] not in free]
        points = settings.unsqueeze(1) + deviations * self.has_tolerance
        return self._with_parts(
            box,
            _restricted("x", x.columns, box, places, points.flatten(0, 1)),
            _restricted(
                "theta",
                self._uncontrollable,
                box,
                [i for i, c in enumerate(self._uncontrollable) if c in listed],
                deviations,
            ),
        )

    def _with_parts(
        self,
        bounds: Tensor,
        x: DomainPart,
        theta: DomainPart,
        tolerances: dict[int, tuple[float, float]] | None = None,
    ) -> RobustDomain:
        """Make a domain of the same columns from its parts; theta can be empty."""
        domain = object.__new__(RobustDomain)
        domain._set(bounds, x, theta, tolerances or {}, self.cat_dims)
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
        return self.evaluations.join(*fill(parts, n, seed))

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
        domain = self._with_parts(
            self.bounds.to(dtype=dtype, device=device),
            self.x.to(dtype, device),
            self.theta.to(dtype, device),
            self._tolerances,
        )
        if self.evaluations is not self:
            vars(domain).update(evaluations=self.evaluations.to(dtype, device))
        return domain


def _restricted(
    name: str, columns: Sequence[int], box: Tensor, places: list[int], points: Tensor
) -> DomainPart:
    """A part within a box, whose rows are the distinct ones of some points of ``z``."""
    if not places:
        return DomainPart(name, columns, box)
    listed = [columns[i] for i in places]
    rows, (lower, upper) = points[:, listed], box[:, listed]
    inside = ((rows >= lower) & (rows <= upper)).all(dim=-1)
    if not inside.any():
        raise InputDataError(
            f"Expected `evaluation_bounds` that contain a choice of {name}, got "
            f"{box[:, listed].tolist()} in the columns {listed}."
        )
    return DomainPart(name, columns, box, places, rows[inside].unique(dim=0))


def _as_argument(part: DomainPart) -> Choices | None:
    """The argument that lists the rows of a part, if it has any."""
    if part.is_finite and part.dim:
        return part.rows
    if part.is_box:
        return None
    return {tuple(part.columns[i] for i in part.listed): part.rows}
