"""The recommendation of a study, in the names and units of its parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from botorch.models.model import Model
from torch import Tensor

from botorch_res.optim import Regret, predict_regret
from botorch_res.strategies.recommendation import Recommendation, worst_case_band
from botorch_res.study.parameters import Value
from botorch_res.study.space import ParameterSpace

_NUM_POINTS = 101


@dataclass(frozen=True)
class WorstCaseCurve:
    """The predicted worst-case value as a function of one controllable parameter.

    The other controllable parameters stay where they are recommended. The tensors hold
    numbers. A name is its place in the parameter's list, counted from 0.

    Attributes:
        name: The parameter's name.
        x: ``n`` values of the parameter, in its unit, increasing.
        theta: ``n x d_theta`` predicted worst cases of the uncontrollable parameters,
            in their units.
        value: ``n`` predicted worst-case values: the medians of their distributions.
        lower: ``n`` lower ends of the 95 % interval of the worst-case value.
        upper: ``n`` upper ends.
        deviation: The ``n`` predicted worst deviations of each parameter with a
            tolerance, as in ``StudyRecommendation``.
    """

    name: str
    x: Tensor
    theta: Tensor
    value: Tensor
    lower: Tensor
    upper: Tensor
    deviation: dict[str, Tensor]


@dataclass(frozen=True)
class Prediction:
    """A strategy's recommendation, and what is needed to draw curves through it.

    Attributes:
        best: The recommendation, in the domain's coordinates.
        model: The model behind it.
        space: The parameters.
        maximize: The direction.
        unit: The power of ten in which the model counts values.
        seed: The seed of the functions that give the curves' intervals.
    """

    best: Recommendation
    model: Model
    space: ParameterSpace
    maximize: bool
    unit: float
    seed: int


@dataclass(frozen=True, eq=False)
class StudyRecommendation:
    """The setting whose worst case is predicted to be best.

    Attributes:
        x: The recommended controllable parameters: what to set.
        theta: The predicted worst case of the uncontrollable ones.
        deviation: The predicted worst deviation of each parameter with a tolerance,
            from its setting in ``x`` and in its unit; on a logarithmic scale relative
            to the setting, 0.05 for five per cent.
        worst_case: All parameters as they come out in the predicted worst case.
        value: The predicted worst-case value at ``x``, the largest (or smallest) value
            over all theta: the median of its posterior distribution. Another theta may
            be worse than the predicted one, and the prediction allows for that.
        lower: The lower end of its central 95 % posterior interval. It trusts the
            model: after few values it is often too narrow (see
            ``benchmarks/results/intervals.md`` for the measured coverage).
        upper: The upper end.
        standard_deviation: The model's standard deviation at the worst case.
    """

    x: dict[str, Value]
    theta: dict[str, Value]
    deviation: dict[str, float]
    worst_case: dict[str, Value]
    value: float
    lower: float
    upper: float
    standard_deviation: float
    _prediction: Prediction = field(repr=False)

    @classmethod
    def from_prediction(cls, prediction: Prediction) -> StudyRecommendation:
        """Translate a recommendation into the parameters' names and units.

        Args:
            prediction: The recommendation of a strategy.

        Returns:
            The recommendation of the study.
        """
        best, space, unit = prediction.best, prediction.space, prediction.unit
        values = space.decode(space.domain.join(best.x, best.theta))
        return cls(
            x=space.decode_setting(best.x),
            theta={name: values[name] for name in space.theta_names},
            deviation=space.decode_deviation(best.theta),
            worst_case=values,
            value=best.value * unit,
            lower=best.lower * unit,
            upper=best.upper * unit,
            standard_deviation=best.standard_deviation * unit,
            _prediction=prediction,
        )

    @property
    def point(self) -> Tensor:
        """The predicted worst case in the domain's coordinates, of shape ``d``."""
        best = self._prediction.best
        return self._prediction.space.domain.join(best.x, best.theta)

    @cached_property
    def regret(self) -> Regret:
        """How much better the worst case of the best setting may be.

        It is predicted by functions that agree with the trials, and is known as well as
        the model knows the function.
        """
        prediction = self._prediction
        regret = predict_regret(
            prediction.model,
            prediction.space.domain,
            prediction.best.x,
            prediction.maximize,
            seed=prediction.seed,
        )
        return regret.scaled(prediction.unit)

    @cached_property
    def curve(self) -> dict[str, WorstCaseCurve]:
        """The worst-case curve along each controllable parameter, by its name."""
        names = self._prediction.space.x_names
        return {name: _curve(self._prediction, i) for i, name in enumerate(names)}

    def __str__(self) -> str:
        value, lower, upper = (
            _shown(number, self.upper - self.lower)
            for number in (self.value, self.lower, self.upper)
        )
        settings = self._listed(self.x)
        worst = [self._listed(self.theta)] if self.theta else []
        worst += [
            f"{self._listed({name: self.worst_case[name]})} ({self._deviated(name)})"
            for name in self.deviation
        ]
        return (
            f"{'set ' if self.deviation else ''}{settings}: worst case {value} "
            f"(95 %: {lower} to {upper}) at {', '.join(worst)}"
        )

    def _listed(self, values: dict[str, Value]) -> str:
        """Values of parameters, for people."""
        parameters = {p.name: p for p in self._prediction.space.parameters}
        widths = [parameters[name].upper - parameters[name].lower for name in values]
        return ", ".join(
            f"{name} = {_shown(value, 1e-2 * width)}"
            for (name, value), width in zip(values.items(), widths, strict=True)
        )

    def _deviated(self, name: str) -> str:
        """The worst deviation of a parameter, for people."""
        (p,) = (p for p in self._prediction.space.parameters if p.name == name)
        return p.show_deviation(self.deviation[name])


def _shown(value: Value, resolution: float) -> str:
    """A number with six digits, or as many as show two digits of the resolution."""
    if isinstance(value, str):
        return value
    digits = 6
    if value != 0 and resolution > 0:
        digits = max(digits, math.ceil(math.log10(abs(value) / resolution)) + 2)
    return f"{value:.{min(digits, 16)}g}"


def _curve(prediction: Prediction, position: int) -> WorstCaseCurve:
    """The curve along one column of ``x``."""
    space, domain = prediction.space, prediction.space.domain
    x, part = prediction.best.x, domain.x
    if position in part.free:
        lower, upper = part.bounds[:, position].tolist()
        points = x.repeat(_NUM_POINTS, 1)
        points[:, position] = torch.linspace(lower, upper, _NUM_POINTS).to(x)
    else:
        # The rows that differ from the recommendation in this column only.
        same = (part.rows == part.listed_of(x)) | (part.listed == position)
        points = part.combine(part.free_of(x), part.rows[same.all(dim=-1)])
        points = points[points[:, position].argsort()]
    band = worst_case_band(
        prediction.model, domain, points, prediction.maximize, prediction.seed
    )
    theta = space.in_own_units(domain.theta, band.theta)
    # The deviations come first.
    names = space.tolerance_names
    return WorstCaseCurve(
        name=space.x_names[position],
        x=space.in_own_units(part, band.x)[:, position],
        theta=theta[:, len(names) :],
        value=band.value * prediction.unit,
        lower=band.lower * prediction.unit,
        upper=band.upper * prediction.unit,
        deviation=dict(zip(names, theta[:, : len(names)].T, strict=True)),
    )
