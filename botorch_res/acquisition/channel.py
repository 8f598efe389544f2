r"""The functions whose worst cases count, and what their values say about an output.

A channel is the objective, or the distance of an output ``y`` from one of its bounds,

    c(x, theta) = sign * y(x, theta) + offset,

which is positive beyond the bound. In both cases the worst case is the largest value
over theta, and what a sample says about it is an interval for one value. A channel
turns intervals for itself into intervals for its output, and the moments of the output
into its own.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from botorch_res.acquisition.targets import Intervals
from botorch_res.domain import RobustDomain
from botorch_res.optim import WorstCaseSolver
from botorch_res.sampling import BatchFunction
from botorch_res.sampling.affine import AffineFunction


class Ranked(NamedTuple):
    """Each sample's ``k`` local worst cases at ``n`` settings, the worst first.

    Attributes:
        points: ``C x batch_shape x k x n x d`` points ``(x, theta)``.
        theta: ``C x batch_shape x k x n x d_theta``.
        value: ``C x batch_shape x k x n`` values.
        depth: ``C x batch_shape x k x n``, see ``LocalMaxima``.
    """

    points: Tensor
    theta: Tensor
    value: Tensor
    depth: Tensor

    def repeated(self, m: int) -> Ranked:
        """Repeat each setting.

        Args:
            m: How often.

        Returns:
            The worst cases at ``n m`` settings.
        """
        dims = (-2, -2, -1, -1)
        parts = zip(self, dims, strict=True)
        return Ranked(*(part.repeat_interleave(m, dim=dim) for part, dim in parts))


class Channel(Module):
    """A sampled function with a search for its worst cases.

    Attributes:
        functions: The ``C x batch_shape`` functions.
        solver: The search for their worst cases.
    """

    functions: BatchFunction
    solver: WorstCaseSolver

    def __init__(
        self, functions: BatchFunction, domain: RobustDomain, effort: float
    ) -> None:
        """Make the search.

        Args:
            functions: The samples of an output, or an affine function of these.
            domain: The domain.
            effort: Scales how thorough the search is.
        """
        super().__init__()
        self.functions = functions
        self.search_in(domain, effort)

    def search_in(self, domain: RobustDomain, effort: float) -> None:
        """Make the search anew, for example after a change of dtype.

        Args:
            domain: The domain.
            effort: Scales how thorough the search is.
        """
        self.solver = WorstCaseSolver(self.functions, domain, effort)

    def worst_cases(self, points: Tensor, num_branches: int) -> Ranked:
        """Find each sample's worst cases at the controllable part of each point.

        Args:
            points: ``... x n x d`` points.
            num_branches: The number ``k`` of local worst cases.

        Returns:
            The worst cases.
        """
        domain = self.solver.domain
        x = domain.setting(points)
        (theta, value), depth = self.solver.local_worst_cases(x, num_branches)
        theta = theta.transpose(-3, -2)
        joined = domain.join(x.unsqueeze(-3), theta)
        return Ranked(joined, theta, value.mT, depth.mT)

    def of_output(self, intervals: Intervals) -> Intervals:
        """Turn intervals for values of this function into intervals for its output.

        Args:
            intervals: ``C x batch_shape x n`` bounds.

        Returns:
            The bounds of the output.
        """
        own = self.functions
        if not isinstance(own, AffineFunction):
            return intervals
        offset = own.offset.unsqueeze(-1)
        ends = [own.sign * (bound - offset) for bound in intervals]
        return Intervals(*(ends if own.sign > 0 else reversed(ends)))

    def of_moments(self, mean: Tensor) -> Tensor:
        """Turn means of the output into means of this function.

        Variances, and covariances of two values, are the same.

        Args:
            mean: ``C x batch_shape x n x 2`` means of pairs of values.

        Returns:
            The means.
        """
        own = self.functions
        if not isinstance(own, AffineFunction):
            return mean
        return own.sign * mean + own.offset[..., None, None]


def intersect(parts: list[Intervals]) -> Intervals:
    """Intersect intervals for the same values.

    Args:
        parts: ``C x batch_shape x n`` bounds each.

    Returns:
        The largest lower and the smallest upper bounds.
    """
    lower, upper = parts[0]
    for part in parts[1:]:
        lower = torch.maximum(lower, part.lower)
        upper = torch.minimum(upper, part.upper)
    return Intervals(lower, upper)
