r"""The search for the worst thetas at fixed ``x``, and its form for a finite set.

A search is made once for a set of thetas. It says at which thetas it needs values. From
these values and from derivatives it finds the highest local maxima. For a finite set it
compares all choices. For a box see ``box_search.py``, for mixtures ``mixed_search.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from botorch_res.optim.worst_cases.branches import Branches
from botorch_res.sampling import Derivatives


class WorstCase(NamedTuple):
    """Worst cases at many points: maxima over theta.

    Where local maxima are wanted too, there are ``k`` at each point, the worst first.

    Attributes:
        theta: ``... x d_theta`` or ``... x k x d_theta``, the paper's ``h(x)``.
        value: ``...`` or ``... x k``, the paper's ``g(x)``. Minus infinity where there
            are fewer than ``k`` local maxima.
    """

    theta: Tensor
    value: Tensor


class LocalMaxima(NamedTuple):
    """The ``k`` highest local maxima over theta at many points, the highest first.

    The depth of a maximum is how far a path to a higher one must go down. A maximum
    that is about to vanish has depth zero.

    Attributes:
        theta: ``... x k x d_theta`` maxima.
        value: ``... x k`` values, minus infinity where there are fewer maxima.
        depth: ``... x k`` depths, infinite for the highest maximum and wherever the
            depth is unknown.
        valley: ``... x (k - 1) x d_theta``, the lowest points of the paths from all
            maxima but the highest, or ``... x 0 x d_theta`` if the depth is unknown.
    """

    theta: Tensor
    value: Tensor
    depth: Tensor
    valley: Tensor


def without_depth(theta: Tensor, value: Tensor) -> LocalMaxima:
    """Make maxima whose depth is unknown.

    Args:
        theta: ``... x k x d_theta`` maxima.
        value: ``... x k`` values.

    Returns:
        The maxima.
    """
    depth = torch.full_like(value, torch.inf)
    return LocalMaxima(theta, value, depth, theta[..., :0, :])


class Slopes(NamedTuple):
    """Values and derivatives of functions at given ``x``, as functions of theta.

    Attributes:
        by_x: Maps ``sample_shape x b x k x d_theta`` thetas to derivatives by ``x``.
        by_theta: The same for derivatives by theta.
        by_both: The same for derivatives by ``x`` and then theta.
    """

    by_x: Callable[[Tensor], Derivatives]
    by_theta: Callable[[Tensor], Derivatives]
    by_both: Callable[[Tensor], Derivatives]

    def hold(self, theta: Tensor) -> Branches:
        """Tell how values change with ``x`` while theta stays fixed.

        Args:
            theta: ``sample_shape x b x k x d_theta`` thetas.

        Returns:
            The branches.
        """
        value, gradient, hessian = self.by_x(theta)
        shift = theta.new_zeros(()).expand(*theta.shape, gradient.shape[-1])
        return Branches(theta, value, gradient, hessian, shift)


class ThetaSearch(ABC):
    """Finds the highest maxima over theta of many functions.

    Attributes:
        thetas: ``M x d_theta`` thetas at which the search needs values.
    """

    thetas: Tensor

    def inside(self, values: Tensor) -> Tensor:
        """Leave out the values beyond the domain.

        Args:
            values: ``... x M`` values at all of ``thetas``.

        Returns:
            The values in the domain.
        """
        return values

    def is_complete(self, k: int) -> bool:
        """Whether ``k`` branches cover all thetas.

        Args:
            k: The number of branches.

        Returns:
            Whether theta has at most ``k`` choices.
        """
        return False

    @abstractmethod
    def maximize(self, values: Tensor, slopes: Slopes, k: int) -> LocalMaxima:
        """Find the highest local maxima, and how deep the valleys between them are.

        Args:
            values: ``... x M`` values at all of ``thetas``.
            slopes: The functions' derivatives.
            k: The number of maxima.

        Returns:
            The maxima.
        """

    @abstractmethod
    def branches(
        self,
        values: Callable[[], Tensor],
        slopes: Slopes,
        k: int,
        known: Tensor | None,
    ) -> Branches:
        """Approach the highest local maxima, and tell how they move with ``x``.

        Args:
            values: Returns the ``... x M`` values at all of ``thetas``.
            slopes: The functions' derivatives.
            k: The number of maxima to look for.
            known: ``... x m x d_theta`` thetas near other maxima, if any.

        Returns:
            The branches, in no order.
        """

    @abstractmethod
    def follow(self, theta: Tensor, slopes: Slopes) -> Branches:
        """Tell how given local maxima move with ``x``.

        Args:
            theta: ``... x k x d_theta`` local maxima.
            slopes: The functions' derivatives.

        Returns:
            The branches.
        """


class FiniteSearch(ThetaSearch):
    """Compares all thetas of a finite set, which do not move with ``x``."""

    def __init__(self, choices: Tensor) -> None:
        """Store the set.

        Args:
            choices: ``M x d_theta`` thetas.
        """
        self.thetas = choices

    def is_complete(self, k: int) -> bool:
        """Whether there are no more than ``k`` choices."""
        return len(self.thetas) <= k

    def maximize(self, values: Tensor, slopes: Slopes, k: int) -> LocalMaxima:
        """Choose the highest values."""
        value, index = values.topk(min(k, len(self.thetas)), dim=-1)
        more = (0, k - value.shape[-1])
        return without_depth(
            self.thetas[pad(index, more)], pad(value, more, value=-torch.inf)
        )

    def branches(
        self,
        values: Callable[[], Tensor],
        slopes: Slopes,
        k: int,
        known: Tensor | None,
    ) -> Branches:
        """Make the branches of the best choices."""
        return slopes.hold(self.thetas[values().topk(k, dim=-1).indices])

    def follow(self, theta: Tensor, slopes: Slopes) -> Branches:
        """Tell how the values of given choices change with ``x``."""
        return slopes.hold(theta)
