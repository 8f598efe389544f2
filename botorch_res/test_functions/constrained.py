r"""Problems with constraints that must hold in the worst case.

Each is ``min over x, max over theta`` of ``f(x, theta)`` among the ``x`` at which all
slacks ``s_i(x, theta)`` are at least zero for all ``theta``. The stored robust optima
were found by dense search and refined to double precision; the tests prove them by
branch and bound.

References:

.. [Bertsimas2010robust]
    D. Bertsimas, O. Nohadani, K. M. Teo. Robust Optimization for Unconstrained
    Simulation-Based Problems. Operations Research, 58(1):161-178, 2010.

.. [Coello2000use]
    C. A. Coello Coello. Use of a self-adaptive penalty approach for engineering
    optimization problems. Computers in Industry, 41(2):113-127, 2000.

.. [Wu2001safety]
    Y.-T. Wu, Y. Shin, R. Sues, M. Cesare. Safety-factor based approach for
    probability-based design optimization. AIAA Structures, Structural Dynamics, and
    Materials Conference, 2001.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from botorch.test_functions.base import ConstrainedBaseTestProblem
from torch import Tensor

from botorch_res.test_functions.base import RobustTestProblem
from botorch_res.test_functions.tolerances import TolerancePolynomial


class WorstCaseConstraints(ConstrainedBaseTestProblem, ABC):
    r"""What a robust test problem with constraints has in addition.

    As in BoTorch, a constraint holds where its slack is at least zero. Here it must
    hold for all ``theta``. A model of the problem has the objective as its output 0,
    and the slacks as its further outputs. The argument ``negate`` leaves the slacks as
    they are.

    A subclass states ``num_constraints`` and the slacks. If nature chooses from a box,
    it also says which ``theta`` can be the worst for a slack.
    """

    @property
    def constraints(self) -> dict[int, tuple[float | None, float | None]]:
        """The bounds of a model's outputs, as ``qRobustEntropySearch`` takes them."""
        return {1 + i: (0.0, None) for i in range(self.num_constraints)}

    def worst_case_slack(self, x: Tensor) -> Tensor:
        """Evaluate the smallest noise-free slacks over ``theta``.

        Args:
            x: A ``batch_shape x d_x`` tensor of controllable parts.

        Returns:
            The ``batch_shape x num_constraints`` tensor of slacks. If one of them is
            negative, ``x`` is not robustly feasible.
        """
        problem: Any = self
        points = problem.domain.join(x.unsqueeze(-2), self._worst_slack_thetas(x))
        return self.evaluate_slack(points, noise=False).amin(dim=-2)

    def _worst_slack_thetas(self, x: Tensor) -> Tensor:
        """Thetas with a worst one for each slack among them.

        Args:
            x: A ``batch_shape x d_x`` tensor of controllable parts.

        Returns:
            A tensor that broadcasts with ``batch_shape x n x d_theta``, detached.
        """
        problem: Any = self
        thetas: Tensor = problem._worst_thetas(x)
        return thetas


class ConstrainedPolynomial(WorstCaseConstraints, TolerancePolynomial):
    r"""The polynomial of [Bertsimas2010robust]_ with tolerances, in a disc.

    The same function and deviations as ``TolerancePolynomial``, where what we get must
    be in the disc of radius 1.2 around ``(1.3, 1.6)``:

        s(z) = 1.2^2 - (z_1 - 1.3)^2 - (z_2 - 1.6)^2
    """

    num_constraints = 1
    _robust_setting = (0.6540146878050366, 1.3138385282819292)
    _robust_deviation = TolerancePolynomial._theta_choices[1]
    _robust_optimal_value = 10.00490262890522
    _worst_feasible_value = 30.773727

    def _evaluate_slack_true(self, X: Tensor) -> Tensor:
        first, second = X.unbind(-1)
        distance = (first - 1.3).square() + (second - 1.6).square()
        return (1.44 - distance).unsqueeze(-1)


class WeldedBeam(WorstCaseConstraints, RobustTestProblem):
    r"""A beam that is welded to a wall and must carry any load of a range.

    We choose the size ``h`` of the weld, 0.1 to 0.6 inches, and its length ``l``, 2 to
    10 inches. The load ``P``, 4000 to 7000 pounds, acts at a distance ``L``, 12 to 15
    inches. With a bar of height ``t = 8`` and width ``b = 0.25``, the cost is that of
    [Coello2000use]_, and the shear stress of the weld must stay below 13600 psi:

        f = 1.10471 h^2 l + 0.04811 t b (14 + l) + P L / 10^6
        s = 1 - sqrt(p^2 + p q l / R + q^2) / 13600
        p = P / (sqrt(2) h l),  q = P (L + l / 2) R / J
        R^2 = l^2 / 4 + (h + t)^2 / 4,  J = 2 sqrt(2) h l (l^2 / 12 + (h + t)^2 / 4)

    The last term of the cost stands for wear. Stress and cost grow with the load and
    with its distance.
    """

    dim = 4
    num_constraints = 1
    _bounds = ((0.1, 0.6), (2.0, 10.0), (4000.0, 7000.0), (12.0, 15.0))
    _uncontrollable = (2, 3)
    _robust_optimizer = (0.3718752910563824, 2.3775546858380983, 7000.0, 15.0)
    _robust_optimal_value = 2.0440713997394933
    _worst_feasible_value = 6.391236

    def _evaluate_true(self, X: Tensor) -> Tensor:
        h, length, load, arm = X.unbind(-1)
        weld = 1.10471 * h.square() * length
        return weld + 0.04811 * 8.0 * 0.25 * (14.0 + length) + load * arm / 1e6

    def _evaluate_slack_true(self, X: Tensor) -> Tensor:
        h, length, load, arm = X.unbind(-1)
        height = (h + 8.0).square() / 4.0
        radius = (length.square() / 4.0 + height).sqrt()
        inertia = 2.0 * math.sqrt(2.0) * h * length * (length.square() / 12.0 + height)
        direct = load / (math.sqrt(2.0) * h * length)
        bending = load * (arm + length / 2.0) * radius / inertia
        stress = direct.square() + direct * bending * length / radius + bending.square()
        return (1.0 - stress.sqrt() / 13600.0).unsqueeze(-1)

    def _worst_thetas(self, x: Tensor) -> Tensor:
        return self.bounds[1:, 2:]


class Cantilever(WorstCaseConstraints, RobustTestProblem):
    r"""A cantilever that must neither break nor sag under any two loads of a range.

    We choose the width ``w`` and the thickness ``t``, 1.5 to 4 inches each. Nature
    chooses the horizontal load ``X``, 300 to 700 pounds, and the vertical load ``Y``,
    800 to 1200 pounds. Stress and sag are those of [Wu2001safety]_; the objective is
    the cross section, with a price on the sag ``D`` (``L = 100``, ``E = 2.9e7``):

        f = w t + D
        s_1 = 1 - (600 Y / (w t^2) + 600 X / (w^2 t)) / 40000
        s_2 = 1 - D / 2.2535,  D = 4 L^3 / (E w t) sqrt((Y / t^2)^2 + (X / w^2)^2)

    All of them are worst under the largest loads.
    """

    dim = 4
    num_constraints = 2
    _bounds = ((1.5, 4.0), (1.5, 4.0), (300.0, 700.0), (800.0, 1200.0))
    _uncontrollable = (2, 3)
    _robust_optimizer = (2.587299613263237, 3.536022749449866, 700.0, 1200.0)
    _robust_optimal_value = 11.288638085896316
    _worst_feasible_value = 16.748516

    def _sag(self, X: Tensor) -> Tensor:
        width, thickness, first, second = X.unbind(-1)
        loads = torch.hypot(second / thickness.square(), first / width.square())
        return 4e6 / 2.9e7 / (width * thickness) * loads

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return X[..., 0] * X[..., 1] + self._sag(X)

    def _evaluate_slack_true(self, X: Tensor) -> Tensor:
        width, thickness, first, second = X.unbind(-1)
        area = width * thickness
        stress = 600.0 * (second / (area * thickness) + first / (area * width))
        return torch.stack(
            [1.0 - stress / 40000.0, 1.0 - self._sag(X) / 2.2535], dim=-1
        )

    def _worst_thetas(self, x: Tensor) -> Tensor:
        return self.bounds[1:, 2:]


class RobustIslands(WorstCaseConstraints, RobustTestProblem):
    r"""A robustly feasible set of four intervals.

        f = 3 (x - 0.3)^2 + 0.4 cos(6 x + 2 theta)
        s = cos(6 pi x + theta) - 0.2

    for ``x`` in ``[0, 1]`` and ``theta`` in ``[-0.5, 0.5]``. The best ``x`` without the
    constraint is in the gap between two of them.
    """

    dim = 2
    num_constraints = 1
    _bounds = ((0.0, 1.0), (-0.5, 0.5))
    _uncontrollable = (1,)
    _robust_optimizer = (0.3794584733431883, -0.5)
    _robust_optimal_value = 0.13487152195022922
    _worst_feasible_value = 1.87

    def _evaluate_true(self, X: Tensor) -> Tensor:
        x, theta = X.unbind(-1)
        return 3.0 * (x - 0.3).square() + 0.4 * (6.0 * x + 2.0 * theta).cos()

    def _evaluate_slack_true(self, X: Tensor) -> Tensor:
        x, theta = X.unbind(-1)
        return ((6.0 * math.pi * x + theta).cos() - 0.2).unsqueeze(-1)

    @torch.no_grad()
    def _worst_thetas(self, x: Tensor) -> Tensor:
        # The ends, and where the cosine has the peak next to the middle.
        peak = 2.0 * math.pi * (3.0 * x / math.pi).round()
        return self._with_ends(peak / 2.0 - 3.0 * x)

    @torch.no_grad()
    def _worst_slack_thetas(self, x: Tensor) -> Tensor:
        trough = math.pi * (2.0 * (3.0 * x - 0.5).round() + 1.0)
        return self._with_ends(trough - 6.0 * math.pi * x)

    def _with_ends(self, theta: Tensor) -> Tensor:
        """The ends of the range of theta, and another value in it."""
        lower, upper = self.bounds[:, 1:]
        ends = torch.stack([lower, upper]).expand(*theta.shape[:-1], 2, 1)
        return torch.cat([ends, theta.clamp(lower, upper).unsqueeze(-2)], dim=-2)


class SwingingObstacle(WorstCaseConstraints, RobustTestProblem):
    r"""A place that an obstacle must not hit in any of its five positions.

    We choose a place ``x`` in the unit square. The obstacle is at ``p_k`` if nature
    chooses the position ``k``, of 0 to 4, and the target at ``a_k``:

        f = |x - a_k|^2,  s = |x - p_k|^2 - 0.15^2

    The best place without the constraint is hit in one of the positions only.
    """

    dim = 3
    num_constraints = 1
    targets: Tensor
    obstacles: Tensor
    _bounds = ((0.0, 1.0), (0.0, 1.0), (0.0, 4.0))
    _uncontrollable = (2,)
    _theta_choices = ((0.0,), (1.0,), (2.0,), (3.0,), (4.0,))
    _constants: Mapping[str, Sequence[Any]] = {
        "targets": ((0.2, 0.3), (0.3, 0.7), (0.8, 0.6), (0.7, 0.2), (0.5, 0.5)),
        "obstacles": ((0.1, 0.1), (0.1, 0.9), (0.55, 0.5), (0.9, 0.9), (0.9, 0.1)),
    }
    _robust_optimizer = (32 / 65, 47 / 130, 1.0)
    _robust_optimal_value = 197 / 1300
    _worst_feasible_value = 1.13

    def _distance(self, X: Tensor, places: Tensor) -> Tensor:
        """Squared distances from the place of each position, linear between them."""
        position = X[..., 2:]
        weight = (1.0 - (position - torch.arange(5).to(X)).abs()).clamp_min(0.0)
        return (X[..., :2] - weight @ places).square().sum(dim=-1)

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return self._distance(X, self.targets)

    def _evaluate_slack_true(self, X: Tensor) -> Tensor:
        return (self._distance(X, self.obstacles) - 0.0225).unsqueeze(-1)
