r"""Problems with tolerances: what we set is not what we get.

Each is ``min over x, max over theta`` of ``f(x + theta)`` for a closed-form function
``f`` of as many variables as there are settings ``x``. The plain optimum, that of ``f``
alone, has a bad worst case. The stored robust optima were found by dense search and
refined to double precision; the tests prove them by branch and bound.

References:

.. [Weichert2024robust]
    D. Weichert, A. Kister, S. Houben, P. Link, G. Ernis. Robust Entropy Search for
    Safe Efficient Bayesian Optimization. Conference on Uncertainty in Artificial
    Intelligence (UAI), 2024.

.. [Bertsimas2010robust]
    D. Bertsimas, O. Nohadani, K. M. Teo. Robust Optimization for Unconstrained
    Simulation-Based Problems. Operations Research, 58(1):161-178, 2010.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from botorch_res.checks import check_number
from botorch_res.test_functions.base import ToleranceProblem
from botorch_res.test_functions.synthetic import bertsimas_polynomial, sinus_linear

# The local maxima of a term: a grid that separates them, and how often the cell of
# each is halved.
GRID = 20_001
HALVINGS = 50


def _polar(radius: float, num: int) -> list[tuple[float, float]]:
    """The centre of a disc and ``num`` equidistant points of its edge."""
    angles = [2 * math.pi * k / num for k in range(num)]
    return [(0.0, 0.0)] + [(radius * math.cos(a), radius * math.sin(a)) for a in angles]


class TolerancePolynomial(ToleranceProblem):
    r"""The polynomial of [Bertsimas2010robust]_ in its own two variables.

    The same problem as ``RobustPolynomial``, of which it has the twelve moves, six of
    them distinct, as deviations: none, or one of length 0.5 in one of five directions.
    """

    dim = 2
    _bounds = ((-0.95, 3.2), (-0.45, 4.4))
    tolerances: Mapping[int, float | tuple[float, float]] = {0: 0.5, 1: 0.5}
    _theta_choices = _polar(0.5, 5)
    _robust_setting = (-0.19550859281379485, 0.28742884046070805)
    _robust_deviation = _theta_choices[2]
    _robust_optimal_value = 4.154913799897129

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return bertsimas_polynomial(X)


class ShiftedSinusLinear(ToleranceProblem):
    r"""A wave on a slope, whose input nature shifts by one of two amounts.

    The same problem as ``SinusLinear``, in one variable:

        f(z) = sin(5 pi z^2) + z / 2

    for ``x`` in ``[0, 1]`` and a deviation of 0.05 or 0.1, as in
    [Weichert2024robust]_.
    """

    dim = 1
    _bounds = ((0.0, 1.0),)
    tolerances: Mapping[int, float | tuple[float, float]] = {0: (0.05, 0.1)}
    _theta_choices = ((0.05,), (0.1,))
    _robust_setting = (0.47039793770199056,)
    _robust_deviation = (0.1,)
    _robust_optimal_value = -0.6365395081692663

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return sinus_linear(X.squeeze(-1))


class GaussianValleys(ToleranceProblem):
    r"""Three valleys, of which the deepest is the narrowest.

        f(z) = -sum_i h_i exp(-|z - c_i|^2 / (2 s_i^2))

    for ``x`` in the unit square, with depths of 1, 0.8 and 0.6 and widths of 0.06, 0.12
    and 0.25. The deviation is zero, or one of length 0.15 in one of eight directions.
    The robust optimum is in the widest valley.
    """

    dim = 2
    depths: Tensor
    widths: Tensor
    centres: Tensor
    _bounds = ((0.0, 1.0), (0.0, 1.0))
    tolerances: Mapping[int, float | tuple[float, float]] = {0: 0.15, 1: 0.15}
    _theta_choices = _polar(0.15, 8)
    _constants: Mapping[str, Sequence[Any]] = {
        "depths": (1.0, 0.8, 0.6),
        "widths": (0.06, 0.12, 0.25),
        "centres": ((0.8, 0.75), (0.25, 0.75), (0.4, 0.25)),
    }
    _robust_setting = (0.39994541240538756, 0.25031022907151546)
    _robust_deviation = _theta_choices[1]
    _robust_optimal_value = -0.5012334325412107

    def _evaluate_true(self, X: Tensor) -> Tensor:
        distance = (X.unsqueeze(-2) - self.centres).square().sum(dim=-1)
        return -(distance / (-2 * self.widths.square())).exp() @ self.depths


class ToleranceRosenbrock(ToleranceProblem):
    r"""Rosenbrock's valley, with a tolerance across it.

        f(z) = (1 - z_1)^2 + 100 (z_2 - z_1^2)^2

    for ``x`` in ``[-1, 1.5] x [-0.5, 1.5]``, where ``z_1`` may deviate from its setting
    by up to 0.2, and ``z_2`` not at all. The plain optimum is in the steep part of the
    valley, the robust one where it runs along ``z_1``. At the robust optimum both ends
    of the tolerance tie.
    """

    dim = 2
    _bounds = ((-1.0, 1.5), (-0.5, 1.5))
    tolerances: Mapping[int, float | tuple[float, float]] = {0: 0.2}
    _robust_setting = (0.1248894075362259, 0.020561943188041373)
    _robust_deviation = (-0.2,)
    _robust_optimal_value = 1.178124446829452

    def _evaluate_true(self, X: Tensor) -> Tensor:
        first, second = X.unbind(-1)
        across = second - first.square()
        return (1 - first).square() + 100 * across.square()

    @torch.no_grad()
    def _worst_thetas(self, x: Tensor) -> Tensor:
        # Along z_1 the function is a quartic: the worst deviation is one of the ends,
        # or the middle one of three stationary points, the roots of
        #     z^3 + p z + q,  p = 1 / 200 - z_2,  q = -1 / 200,
        # by Viete's formula. Where there is only one root this gives some other point.
        lower, upper = self.domain.theta.bounds
        first, second = x.split(1, dim=-1)
        size = (2 / math.sqrt(3)) * (second - 0.005).clamp_min(1e-9).sqrt()
        angle = (0.02 / size**3).clamp_max(1).acos() / 3
        middle = size * (angle - 2 * math.pi / 3).cos()
        inside = (middle - first).clamp(lower, upper)
        ends = torch.stack([lower, upper]).expand(*x.shape[:-1], 2, 1)
        return torch.cat([ends, inside.unsqueeze(-2)], dim=-2)


class SeparableToleranceProblem(ToleranceProblem, ABC):
    r"""The mean of one function of each variable, all with the same tolerance.

        f(z) = (h(z_1) + ... + h(z_d)) / d

    The worst deviation of each variable is one of the ends, or moves it to a local
    maximum of ``h``. The robust optimum is the same in all variables, and for any
    number of them.
    """

    _interval: tuple[float, float] = (0.0, 1.0)
    _radius: float
    _robust_term: tuple[float, float]  # the setting and the deviation of each variable
    _peaks: Tensor

    def __init__(
        self,
        dim: int | None = None,
        noise_std: float | None = None,
        negate: bool = False,
        dtype: torch.dtype = torch.double,
    ) -> None:
        r"""Initialise the problem.

        Args:
            dim: The number of variables; the problem's usual one if ``None``.
            noise_std: The standard deviation of the observation noise.
            negate: Whether to negate the function.
            dtype: The dtype of the bounds.
        """
        dim = self.dim if dim is None else dim
        check_number("dim", dim, 1)
        self.dim = dim
        self._bounds = [self._interval] * dim
        self.tolerances = dict.fromkeys(range(dim), self._radius)
        self._robust_setting = (self._robust_term[0],) * dim
        self._robust_deviation = (self._robust_term[1],) * dim
        super().__init__(noise_std=noise_std, negate=negate, dtype=dtype)
        self.register_buffer("_peaks", self._local_maxima().to(dtype))

    @abstractmethod
    def _term(self, z: Tensor) -> Tensor:
        """The function ``h``, element by element."""

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return self._term(X).mean(dim=-1)

    @torch.no_grad()
    def _worst_thetas(self, x: Tensor) -> Tensor:
        lower, upper = self.domain.theta.bounds
        ends = torch.stack([lower, upper]).expand(*x.shape[:-1], 2, self.dim)
        inside = self._peaks.unsqueeze(-1) - x.unsqueeze(-2)
        thetas = torch.cat([ends, inside.clamp(lower, upper)], dim=-2)
        worst = self._term(x.unsqueeze(-2) + thetas).argmax(dim=-2, keepdim=True)
        return thetas.gather(-2, worst)

    def _local_maxima(self) -> Tensor:
        """All local maxima of ``h`` where it can be evaluated, by bisection."""
        lower, upper = self._interval
        ends = lower - self._radius, upper + self._radius
        grid = torch.linspace(*ends, GRID, dtype=torch.double)
        rises = self._slope(grid) > 0
        first = (rises[:-1] & ~rises[1:]).nonzero().squeeze(-1)
        low, high = grid[first], grid[first + 1]
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            rises = self._slope(middle) > 0
            low, high = (
                torch.where(rises, middle, low),
                torch.where(rises, high, middle),
            )
        return low

    def _slope(self, z: Tensor) -> Tensor:
        """The derivative of ``h``."""
        with torch.enable_grad():
            leaf = z.clone().requires_grad_()
            return torch.autograd.grad(self._term(leaf).sum(), leaf)[0]


class ToleranceSinusLinear(SeparableToleranceProblem):
    r"""A wave on a slope, with a deviation to both sides.

        h(z) = sin(5 pi z^2) + z / 2

    for ``x`` in ``[0, 1]`` and deviations in ``[-0.05, 0.05]``. At the robust optimum
    both ends of the tolerance tie.
    """

    dim = 1
    _radius = 0.05
    _robust_term = (0.5434961383432841, -0.05)
    _robust_optimal_value = -0.3850728488908829

    def _term(self, z: Tensor) -> Tensor:
        return sinus_linear(z)


class PlateauWithCliff(SeparableToleranceProblem):
    r"""A plateau that descends towards a cliff.

        h(z) = (1 - z)^2 / 2 + 1 / (1 + exp((0.8 - z) / 0.02))

    for ``x`` in ``[0, 1]`` and deviations in ``[-0.2, 0.2]``. The plain optimum is at
    the brink. At the robust optimum both ends of the tolerance tie.
    """

    dim = 3
    _radius = 0.2
    _robust_term = (0.56864561243178, -0.2)
    _robust_optimal_value = 0.19930418178061318

    def _term(self, z: Tensor) -> Tensor:
        return (1 - z).square() / 2 + ((z - 0.8) / 0.02).sigmoid()


class GrowingSines(SeparableToleranceProblem):
    r"""Waves on a slope, whose frequency grows along the way down.

        h(z) = sin(8 pi z^2) + sin(16 pi z^2 + 1) / 2 - z

    for ``x`` in ``[0, 1]`` and deviations in ``[-0.03, 0.03]``. The plain optimum is in
    the last valley, which is narrow. At the robust optimum both ends of the tolerance
    tie.
    """

    dim = 4
    _radius = 0.03
    _robust_term = (0.4407971965055753, -0.03)
    _robust_optimal_value = -1.3307072516685814

    def _term(self, z: Tensor) -> Tensor:
        phase = 8 * math.pi * z.square()
        return phase.sin() + (2 * phase + 1).sin() / 2 - z
