"""What a study predicts at the points of a picture, in the values' own unit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from botorch_res.acquisition import qRobustEntropySearch
from botorch_res.models.moments import posterior_moments
from botorch_res.optim import mean_function
from botorch_res.plotting.axis import Axis
from botorch_res.plotting.figure import equidistant
from botorch_res.study import RobustOptimizer
from botorch_res.study.recommendation import StudyRecommendation
from botorch_res.study.space import ParameterSpace
from botorch_res.study.trials import cell_text

# The most points that are predicted jointly, to bound the memory.
_CHUNK = 256
# The number of values of a profile.
NUM_VALUES = 201


@dataclass(frozen=True)
class Predictions:
    """Points of a study, and what it predicts there.

    Attributes:
        optimizer: The study.
        points: ``shape x d`` points in the domain's coordinates.
    """

    optimizer: RobustOptimizer
    points: Tensor

    def mean(self) -> Tensor:
        """The predicted values, of shape ``shape``."""
        model, unit = self.optimizer.fit()
        return unit * self._evaluate(mean_function(model))

    def standard_deviation(self) -> Tensor:
        """The standard deviations of the predictions, of shape ``shape``."""
        model, unit = self.optimizer.fit()

        def variance(points: Tensor) -> Tensor:
            return posterior_moments(model.posterior(points))[1].squeeze(-1)

        return unit * self._evaluate(variance).clamp_min(0.0).sqrt()

    def information_gain(self, acqf: qRobustEntropySearch) -> Tensor:
        """What a value would tell about the robust optimum, of shape ``shape``.

        Args:
            acqf: The study's acquisition function.

        Returns:
            The information.
        """
        setting = acqf.domain.setting(self.points)
        if torch.equal(setting, setting[..., :1, :].expand_as(setting)):
            return acqf.at_one_setting(self.points).cpu()
        return self._evaluate(lambda points: acqf(points.unsqueeze(-2)))

    def _evaluate(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Evaluate a function at the points."""
        flat = self.points.flatten(0, -2)
        with torch.no_grad():
            parts = [function(part).reshape(-1).cpu() for part in flat.split(_CHUNK)]
        return torch.cat(parts).reshape(self.points.shape[:-1])


@dataclass(frozen=True)
class Profile(Predictions):
    """Points along a parameter; the others are as in the recommended worst case.

    Attributes:
        x: The axis of the parameter, as it comes out.
        others: The values of the other parameters, in words.
    """

    x: Axis
    others: str


def make_profile(
    optimizer: RobustOptimizer,
    best: StudyRecommendation,
    column: int,
    axis: Axis | None = None,
) -> Profile:
    """Make the profile along a column of the domain.

    Args:
        optimizer: The study.
        best: The recommendation, through whose worst case the profile goes.
        column: The column.
        axis: The values along it; by default many of all that can come out.

    Returns:
        The profile.
    """
    space = optimizer.space
    if axis is None:
        wide = space.widened[column]
        ends = best.point.new_tensor(wide.ends)
        axis = Axis(wide, equidistant(ends, NUM_VALUES))
    points = best.point.repeat(len(axis.along), 1)
    points[:, column] = axis.along
    return Profile(optimizer, points, axis, other_values(space, best, (column,)))


def other_values(
    space: ParameterSpace, best: StudyRecommendation, columns: Sequence[int]
) -> str:
    """Write down the recommended worst case, without some columns.

    Args:
        space: The parameters.
        best: The recommendation.
        columns: The columns to leave out.

    Returns:
        The values of the others with their units.
    """
    return ", ".join(
        f"{p.name} = {cell_text(best.worst_case[p.name], 4)} {p.unit}".strip()
        for i, p in enumerate(space.parameters)
        if i not in columns
    )
