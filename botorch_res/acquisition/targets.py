r"""The targets of Robust Entropy Search: what it wants information about.

Suppose that the target of a function is known. What do we then know about the function
at the data, at its robust optimum, and at a candidate? A target answers this with
intervals for single values of the function. A new target is a new class here, with a
name in ``TARGETS``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_res.acquisition.truncation import (
    truncate_to_characteristics,
    truncate_to_optimum,
)


class Intervals(NamedTuple):
    """Bounds on values of the function.

    Attributes:
        lower: ``C x batch_shape x n`` lower bounds.
        upper: ``C x batch_shape x n`` upper bounds.
    """

    lower: Tensor
    upper: Tensor


class LocalWorstCases(NamedTuple):
    """The local worst cases of each sample at its robust optimum.

    There are ``k = d_x + 1``, as many as can tie at a robust optimum.

    Attributes:
        points: ``C x batch_shape x k x d`` points ``(x*_c, theta)``.
        value: ``C x batch_shape x k`` values there, minus infinity where there are
            fewer local worst cases.
        tie_width: ``C x batch_shape x k`` differences below which values tie.
    """

    points: Tensor
    value: Tensor
    tie_width: Tensor


class Target(ABC):
    """What is known of a function once the target is known.

    Attributes:
        name: The name by which users choose the target.
    """

    name: str

    def at_observations(self, worst_value: Tensor) -> Intervals | None:
        """What is known about ``f(z_i)`` at the data.

        Args:
            worst_value: ``C x batch_shape x n`` worst-case values ``g_c(x_i)``,
                infinite where theta is outside the domain.

        Returns:
            Bounds, or ``None`` if nothing is known.
        """
        return None

    @abstractmethod
    def at_worst_cases(self, optimal_value: Tensor, worst_value: Tensor) -> Intervals:
        """What is known about ``f(x_i, h_c(x_i))`` at the data.

        Args:
            optimal_value: ``C x batch_shape x n`` optimal values ``f*_c``, minus
                infinity where ``x_i`` is outside the domain.
            worst_value: ``C x batch_shape x n`` worst-case values ``g_c(x_i)``.

        Returns:
            Bounds.
        """

    def at_optimum(
        self, worst_cases: Callable[[], LocalWorstCases], optimal_value: Tensor
    ) -> tuple[Tensor, Intervals] | None:
        """What is known at the robust optimum.

        Args:
            worst_cases: Finds the local worst cases there.
            optimal_value: ``C x batch_shape x 1`` optimal values ``f*_c``.

        Returns:
            ``C x batch_shape x k x d`` points and bounds on the values there, or
            ``None`` if nothing is known.
        """
        return None

    @abstractmethod
    def at_candidate(
        self,
        mean: Tensor,
        covariance: Tensor,
        optimal_value: Tensor,
        worst_value: Tensor,
        own_bound: Callable[[], Tensor],
    ) -> Tensor:
        """The variance of ``f(x, theta)`` given what is known at a candidate.

        Args:
            mean: ``... x n x 2`` means of the pairs ``[f(x, theta), f(x, h_c(x))]``.
            covariance: ``... x n x 2 x 2`` their covariances.
            optimal_value: ``... x 1`` optimal values ``f*_c``.
            worst_value: ``... x n`` worst-case values ``g_c(x)``.
            own_bound: Gives ``... x n`` upper bounds of ``f(x, theta)``: ``g_c(x)``,
                and infinity if nature cannot choose ``theta``.

        Returns:
            ``... x n`` variances.
        """


class Optimum(Target):
    """The robust optimum ``(x*_c, theta*_c, f*_c)`` alone."""

    name = "optimum"
    at_candidate = staticmethod(truncate_to_optimum)

    def at_worst_cases(self, optimal_value: Tensor, worst_value: Tensor) -> Intervals:
        """No worst case is better than the optimum.

        Args:
            optimal_value: ``C x batch_shape x n`` optimal values.
            worst_value: ``C x batch_shape x n`` worst-case values.

        Returns:
            Bounds.
        """
        return Intervals(optimal_value, torch.full_like(optimal_value, math.inf))

    def at_optimum(
        self, worst_cases: Callable[[], LocalWorstCases], optimal_value: Tensor
    ) -> tuple[Tensor, Intervals] | None:
        """The worst case, and those that tie with it, have the value ``f*_c``.

        Other local worst cases have at most this value.

        Args:
            worst_cases: Finds the local worst cases there.
            optimal_value: ``C x batch_shape x 1`` optimal values.

        Returns:
            Points and bounds.
        """
        points, value, tie_width = worst_cases()
        lower = torch.where(value > optimal_value - tie_width, value, -math.inf)
        # There may be fewer local worst cases.
        upper = torch.where(value.isinf(), math.inf, optimal_value)
        return points, Intervals(torch.minimum(lower, upper), upper)


class Characteristics(Target):
    """All worst cases ``h_c``, their values ``g_c`` and the optimal value ``f*_c``."""

    name = "characteristics"
    at_candidate = staticmethod(truncate_to_characteristics)

    def at_observations(self, worst_value: Tensor) -> Intervals | None:
        """No value exceeds the worst case at the same ``x``.

        Args:
            worst_value: ``C x batch_shape x n`` worst-case values.

        Returns:
            Bounds.
        """
        return Intervals(torch.full_like(worst_value, -math.inf), worst_value)

    def at_worst_cases(self, optimal_value: Tensor, worst_value: Tensor) -> Intervals:
        """Values lie between the optimal value and the sample's own worst case.

        Args:
            optimal_value: ``C x batch_shape x n`` optimal values.
            worst_value: ``C x batch_shape x n`` worst-case values.

        Returns:
            Bounds.
        """
        return Intervals(optimal_value, worst_value)


TARGETS: dict[str, Target] = {
    target.name: target for target in (Optimum(), Characteristics())
}


def find_target(target: str | Target) -> Target:
    """Find a target by its name.

    Args:
        target: A name, or a target itself.

    Returns:
        The target.
    """
    if isinstance(target, Target):
        return target
    if target not in list(TARGETS):
        raise InputDataError(
            f"Expected a `target` among {', '.join(TARGETS)}, or a Target object, got "
            f"{target!r}."
        )
    return TARGETS[target]
