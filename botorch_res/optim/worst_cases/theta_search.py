r"""The search for the worst thetas at fixed ``x``, and its form for a finite set.

A search is made once for a set of thetas. It says at which thetas it wants values, and
finds the highest local maxima from these values and from derivatives. For a finite set
it compares all choices. For a box see ``box_search.py``.
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
    """Worst cases, or local ones: maxima over theta, at many points.

    Attributes:
        theta: ``... x d_theta``, the paper's ``h(x)``. Where local worst cases are
            ranked, ``... x k x d_theta``, the worst first.
        value: ``...`` or ``... x k``, the paper's ``g(x)``; minus infinity where there
            are fewer than ``k``.
    """

    theta: Tensor
    value: Tensor


class Slopes(NamedTuple):
    """Values and derivatives of functions at thetas, each with an ``x`` of its own.

    Attributes:
        by_x: A function of ``sample_shape x b x k x d_theta`` thetas that gives the
            derivatives by ``x``.
        by_theta: The same for those by theta.
        by_both: The same for those by ``x`` and then theta.
    """

    by_x: Callable[[Tensor], Derivatives]
    by_theta: Callable[[Tensor], Derivatives]
    by_both: Callable[[Tensor], Derivatives]

    def hold(self, theta: Tensor) -> Branches:
        """How values move with ``x`` while theta stays.

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
        thetas: ``M x d_theta`` thetas at which values are to be given.
    """

    thetas: Tensor

    def inside(self, values: Tensor) -> Tensor:
        """Leave out the values that lie beyond the domain.

        Args:
            values: ``... x M`` values at all of ``thetas``.

        Returns:
            Those in the domain.
        """
        return values

    def is_complete(self, k: int) -> bool:
        """Whether ``k`` branches are all thetas that there are.

        Args:
            k: The number of branches.

        Returns:
            Whether theta is one of so few.
        """
        return False

    @abstractmethod
    def maximize(self, values: Tensor, slopes: Slopes, k: int) -> WorstCase:
        """Find the highest local maxima.

        Args:
            values: ``... x M`` values at all of ``thetas``.
            slopes: The functions' derivatives.
            k: The number of maxima.

        Returns:
            The ``... x k`` maxima, the highest first.
        """

    def depth(self, values: Tensor, maxima: WorstCase) -> tuple[Tensor, Tensor]:
        """How deep the valleys between the maxima are, where that is known.

        Args:
            values: ``... x M`` values at all of ``thetas``.
            maxima: ``... x k`` maxima, the highest first.

        Returns:
            ``... x k`` depths: how far one goes down from each maximum on the way to a
            higher one. A maximum that is about to vanish has no depth. Infinite for the
            highest, and where the depth is not known. Then the ``... x (k - 1) x
            d_theta`` lowest points on these ways, of all but the highest, and
            ``... x 0 x d_theta`` if the depth is not known.
        """
        return torch.full_like(maxima.value, torch.inf), maxima.theta[..., :0, :]

    @abstractmethod
    def branches(
        self,
        values: Callable[[], Tensor],
        slopes: Slopes,
        k: int,
        known: Tensor | None,
    ) -> Branches:
        """Come near to the highest local maxima, and say how they move with ``x``.

        Args:
            values: Gives the ``... x M`` values at all of ``thetas``.
            slopes: The functions' derivatives.
            k: The number of maxima to look for.
            known: ``... x m x d_theta`` thetas near to other maxima, if any.

        Returns:
            The branches, in no order.
        """

    @abstractmethod
    def follow(self, theta: Tensor, slopes: Slopes) -> Branches:
        """How given local maxima move with ``x``.

        Args:
            theta: ``... x k x d_theta`` local maxima.
            slopes: The functions' derivatives.

        Returns:
            The branches.
        """


class FiniteSearch(ThetaSearch):
    """Compares all thetas of a finite set. They do not move with ``x``."""

    def __init__(self, choices: Tensor) -> None:
        """Store the set.

        Args:
            choices: ``M x d_theta`` thetas.
        """
        self.thetas = choices

    def is_complete(self, k: int) -> bool:
        """Whether there are no more than ``k`` choices."""
        return len(self.thetas) <= k

    def maximize(self, values: Tensor, slopes: Slopes, k: int) -> WorstCase:
        """Choose the highest values."""
        value, index = values.topk(min(k, len(self.thetas)), dim=-1)
        more = (0, k - value.shape[-1])
        return WorstCase(
            self.thetas[pad(index, more)], pad(value, more, value=-torch.inf)
        )

    def branches(
        self,
        values: Callable[[], Tensor],
        slopes: Slopes,
        k: int,
        known: Tensor | None,
    ) -> Branches:
        """The branches of the best choices."""
        return slopes.hold(self.thetas[values().topk(k, dim=-1).indices])

    def follow(self, theta: Tensor, slopes: Slopes) -> Branches:
        """How the values of given choices move with ``x``."""
        return slopes.hold(theta)
