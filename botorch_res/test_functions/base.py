r"""The base class of robust test problems.

A robust test problem is one of BoTorch's test problems that also says who controls
what, and what the best worst case is, so that regret is exact.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.test_functions.base import BaseTestProblem
from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.domain.arguments import Choices


class RobustTestProblem(BaseTestProblem, ABC):
    r"""A test problem ``f(z)``, ``z = (x, theta)``, whose ``theta`` nature chooses.

    Called on points, it behaves like any of BoTorch's test problems. What it returns
    is to be minimised over ``x`` in its largest value over ``theta``, if
    ``is_minimization_problem``, and otherwise to be maximised over ``x`` in its
    smallest value over ``theta``. The argument ``negate`` flips the sign of every
    value and with it the direction, so the robust optimizer stays in place:
    ``min max f`` becomes ``max min -f``, ``worst_case_value`` becomes
    ``min over theta of -f`` and ``robust_optimal_value`` changes its sign.

    A subclass states ``dim``, ``_bounds``, ``_uncontrollable``, the listed values if
    there are any, which of them are codes of categories, the constants of its formula
    that follow its dtype and device, and the robust optimum of ``f`` before ``negate``.
    If nature chooses from a box, it also says which ``theta`` can be the worst. Points
    between the choices of a finite set can be evaluated too.

    Attributes:
        x_choices: The argument of ``RobustDomain``: the rows of a finite set, a
            dictionary of the listed values of some columns, or ``None``.
        theta_choices: The same for ``theta``.
    """

    num_objectives: int = 1
    bounds: Tensor
    x_choices: Choices | None
    theta_choices: Choices | None
    _bounds: Sequence[tuple[float, float]]  # type: ignore[assignment]
    # The uncontrollable columns, and the rows of the finite sets of either part, or the
    # listed values of some columns; the columns of categories.
    _uncontrollable: Sequence[int] = ()
    _x_choices: Sequence[Sequence[float]] | Mapping[Any, Any] | None = None
    _theta_choices: Sequence[Sequence[float]] | Mapping[Any, Any] | None = None
    _cat_dims: Sequence[int] = ()
    # What else becomes a buffer: nested lists of numbers, by the buffer's name.
    _constants: Mapping[str, Sequence[Any]] = {}
    # The robust optimum of ``f`` before ``negate``.
    _robust_optimizer: Sequence[float]
    _robust_optimal_value: float

    def __init__(
        self,
        noise_std: float | None = None,
        negate: bool = False,
        dtype: torch.dtype = torch.double,
    ) -> None:
        r"""Initialise a robust test problem.

        Args:
            noise_std: The standard deviation of the observation noise.
            negate: Whether to negate the function; then its worst case over
                ``theta`` is its smallest value, to be maximised over ``x``.
            dtype: The dtype of the bounds and of the finite sets.
        """
        self.categorical_inds = list(self._cat_dims)
        self.continuous_inds = [i for i in range(self.dim) if i not in self._cat_dims]
        super().__init__(noise_std=noise_std, negate=negate, dtype=dtype)
        choices = {"x_choices": self._x_choices, "theta_choices": self._theta_choices}
        for name, rows in (choices | dict(self._constants)).items():
            if isinstance(rows, Mapping):  # numbers, which fit every dtype
                setattr(self, name, rows)
                continue
            value = None if rows is None else torch.tensor(rows, dtype=dtype)
            self.register_buffer(name, value)

    @property
    def domain(self) -> RobustDomain:
        """The domain, in the problem's present dtype and on its device."""
        return RobustDomain(
            self.bounds,
            self._uncontrollable,
            self.x_choices,
            self.theta_choices,
            cat_dims=self._cat_dims,
        )

    @property
    def robust_optimizer(self) -> Tensor:
        """The point ``z* = (x*, theta*)`` of shape ``d`` with the best worst case.

        Where several ``theta`` tie at ``x*``, as they do at a kink of the worst-case
        value, it is one of them.
        """
        return self.bounds.new_tensor(self._robust_optimizer)

    @property
    def robust_setting(self) -> Tensor:
        """The controllable part ``x*`` of the robust optimizer, of shape ``d_x``."""
        return self.domain.split(self.robust_optimizer)[0]

    @property
    def robust_optimal_value(self) -> float:
        """The best worst-case value ``f*``, in the direction that ``negate`` sets."""
        sign = -1 if self.negate else 1
        return sign * self._robust_optimal_value

    def worst_case_value(self, x: Tensor) -> Tensor:
        """Evaluate the noise-free worst case over ``theta``.

        Args:
            x: A ``batch_shape x d_x`` tensor of controllable parts.

        Returns:
            The ``batch_shape`` tensor of worst-case values, the largest over
            ``theta``, or the smallest if the problem is to be maximised.
        """
        points = self.domain.join(x.unsqueeze(-2), self._worst_thetas(x))
        values: Tensor = self(points, noise=False)
        return values.amax(-1) if self.is_minimization_problem else values.amin(-1)

    def _worst_thetas(self, x: Tensor) -> Tensor:
        """Thetas with a worst one among them.

        Args:
            x: A ``batch_shape x d_x`` tensor of controllable parts.

        Returns:
            A tensor that broadcasts with ``batch_shape x n x d_theta``, detached: the
            gradient of the worst case is that at a worst theta, which may as well stay
            where it is.
        """
        if not isinstance(self.theta_choices, Tensor):
            raise UnsupportedError(
                f"{type(self).__name__} has no finite `theta_choices`, so it must "
                "define `_worst_thetas` itself."
            )
        return self.theta_choices


class ToleranceProblem(RobustTestProblem, ABC):
    """A test problem with tolerances: ``f(x + theta)``, ``theta`` the deviation.

    A subclass states ``tolerances``, and ``_bounds`` of the settings. Since a point
    does not tell from which setting it came, it states the setting and the deviation of
    the robust optimum, in place of the point.

    Attributes:
        bounds: The ``2 x d`` bounds of the points that can be evaluated.
        setting_bounds: The ``2 x d`` bounds of the settings.
        tolerances: The radius, or the lower and the upper deviation, of each column
            that has a tolerance.
    """

    setting_bounds: Tensor
    _bounds: Sequence[tuple[float, float]]  # type: ignore[assignment]
    tolerances: Mapping[int, float | tuple[float, float]]
    # The lower and the upper deviations. Deviations to choose from are tensors, too:
    # in another dtype both round alike.
    _limits: Tensor
    # The robust optimum of ``f``: ``x*``, and a worst deviation from it.
    _robust_setting: Sequence[float]
    _robust_deviation: Sequence[float]

    def __init__(
        self,
        noise_std: float | None = None,
        negate: bool = False,
        dtype: torch.dtype = torch.double,
    ) -> None:
        r"""Initialise a test problem with tolerances.

        Args:
            noise_std: The standard deviation of the observation noise.
            negate: Whether to negate the function; then its worst case over
                ``theta`` is its smallest value, to be maximised over ``x``.
            dtype: The dtype of the bounds and of the finite sets.
        """
        super().__init__(noise_std=noise_std, negate=negate, dtype=dtype)
        self.register_buffer("setting_bounds", self.bounds)
        limits = [
            limit if isinstance(limit, Sequence) else (-limit, limit)
            for limit in self.tolerances.values()
        ]
        self.register_buffer("_limits", torch.tensor(limits, dtype=dtype))
        self.bounds = self.domain.evaluations.bounds

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        # The sums of settings and deviations round otherwise in another dtype.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.bounds = self.domain.evaluations.bounds
        return self

    @property
    def domain(self) -> RobustDomain:
        """The domain, in the problem's present dtype and on its device."""
        return RobustDomain(
            self.setting_bounds,
            self._uncontrollable,
            self.x_choices,
            self.theta_choices,
            dict(zip(self.tolerances, map(tuple, self._limits.tolist()), strict=True)),
        )

    @property
    def robust_optimizer(self) -> Tensor:
        """The point ``z* = x* + theta*`` of shape ``d`` with the best worst case.

        Where several deviations tie at ``x*``, as they do at a kink of the worst-case
        value, it is that of one of them.
        """
        deviation = self.bounds.new_tensor(self._robust_deviation)
        return self.domain.join(self.robust_setting, deviation)

    @property
    def robust_setting(self) -> Tensor:
        """The setting ``x*`` with the best worst case, of shape ``d_x``."""
        return self.bounds.new_tensor(self._robust_setting)
