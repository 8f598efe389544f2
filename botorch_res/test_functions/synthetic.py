r"""Synthetic functions with an adversary: five problems with certified optima.

Each is ``min over x, max over theta`` of a closed-form function, with the definitions
of [Weichert2024robust]_. The stored robust optima were found by dense search and
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
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

from botorch_res.test_functions.base import RobustTestProblem


def _equidistant(lower: float, upper: float, num: int) -> list[float]:
    """List ``num`` equidistant values, both ends among them and exact."""
    values: list[float] = torch.linspace(lower, upper, num, dtype=torch.double).tolist()
    return values


def sinus_linear(z: Tensor) -> Tensor:
    """Evaluate ``sin(5 pi z^2) + z / 2``.

    Args:
        z: A tensor.

    Returns:
        The values, element by element.
    """
    return (5 * math.pi * z.square()).sin() + z / 2


def bertsimas_polynomial(z: Tensor) -> Tensor:
    """Evaluate the polynomial of [Bertsimas2010robust]_.

    Args:
        z: A ``batch_shape x 2`` tensor.

    Returns:
        A ``batch_shape`` tensor of values.
    """
    z1, z2 = z.unbind(-1)
    first = z1 * (6.2 + z1 * (-4.7 + z1 * (-6.4 + z1 * (21.2 + z1 * (-12.2 + z1 * 2)))))
    second = z2 * (-10 + z2 * (56.9 + z2 * (-74.8 + z2 * (43.3 + z2 * (-11 + z2)))))
    mixed = z1 * z2 * (-4.1 - 0.1 * z1 * z2 + 0.4 * z2 + 0.4 * z1)
    return first + second + mixed


class RobustBranin(RobustTestProblem):
    r"""Branin, whose second variable nature picks from 20 values.

        f(x, theta) = (theta - b x^2 + c x - 6)^2 + 10 (1 - t) cos x + 10

    with ``b = 5.1 / (4 pi^2)``, ``c = 5 / pi``, ``t = 1 / (8 pi)``, for ``x`` in
    ``[-5, 10]`` and 20 equidistant ``theta`` from 0.75 to 14.25. At the robust
    optimum the smallest and the largest ``theta`` tie.
    """

    dim = 2
    _bounds = ((-5.0, 10.0), (0.75, 14.25))
    _uncontrollable = (1,)
    _theta_choices = tuple(zip(_equidistant(0.75, 14.25, 20), strict=True))
    _robust_optimizer = (-0.8796679352189769, 0.75)
    _robust_optimal_value = 61.6829542383696

    def _evaluate_true(self, X: Tensor) -> Tensor:
        x, theta = X.unbind(-1)
        ridge = theta - 5.1 / (4 * math.pi**2) * x.square() + 5 / math.pi * x - 6
        return ridge.square() + 10 * (1 - 1 / (8 * math.pi)) * x.cos() + 10


class SinusLinear(RobustTestProblem):
    r"""A wave on a slope, whose input nature shifts by one of two amounts.

        f(x, theta) = sin(5 pi z^2) + z / 2,  z = x + theta

    for ``x`` in ``[0, 1]`` and ``theta`` in ``{0.05, 0.1}``, which tie at the robust
    optimum.
    """

    dim = 2
    _bounds = ((0.0, 1.0), (0.05, 0.1))
    _uncontrollable = (1,)
    _theta_choices = ((0.05,), (0.1,))
    _robust_optimizer = (0.47039793770199056, 0.1)
    _robust_optimal_value = -0.6365395081692663

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return sinus_linear(X.sum(dim=-1))


class RobustEggholder(RobustTestProblem):
    r"""Eggholder, whose second variable nature picks from three values.

        f(x, theta) = -(theta + 47) sin(sqrt|theta + x / 2 + 47|)
                      - x sin(sqrt|x - theta - 47|)

    for ``x`` in ``[-512, 512]`` and ``theta`` in ``{-512, 0, 185}``. The robust
    optimum is a smooth minimum of the curve of ``theta = 185``. The gradient is
    infinite where one of the roots is zero.
    """

    dim = 2
    _bounds = ((-512.0, 512.0), (-512.0, 185.0))
    _uncontrollable = (1,)
    _theta_choices = ((-512.0,), (0.0,), (185.0,))
    _robust_optimizer = (234.64767131200819, 185.0)
    _robust_optimal_value = -197.46225244399088

    def _evaluate_true(self, X: Tensor) -> Tensor:
        x, theta = X.unbind(-1)
        shifted = theta + 47
        first = shifted * (shifted + x / 2).abs().sqrt().sin()
        return -first - x * (x - shifted).abs().sqrt().sin()


class RobustHartmann3(RobustTestProblem):
    r"""Hartmann's bumps in three variables, the last of which nature picks.

        f(z) = sum_i alpha_i exp(-sum_j A_ij (z_j - P_ij)^2)

    with a plus sign, so that what is minimised is the worst case of positive bumps.
    ``x``, the first two variables, lies on a 50 x 50 grid of the unit square,
    ``theta`` in ``{0.25, 0.3, ..., 0.75}``.
    """

    dim = 3
    heights: Tensor
    sharpness: Tensor
    centres: Tensor
    _bounds = ((0.0, 1.0), (0.0, 1.0), (0.25, 0.75))
    _uncontrollable = (2,)
    _x_choices = tuple(product(_equidistant(0.0, 1.0, 50), repeat=2))
    _theta_choices = tuple(zip(_equidistant(0.25, 0.75, 11), strict=True))
    _constants: Mapping[str, Sequence[Any]] = {
        "heights": (1.0, 1.2, 3.0, 3.2),
        "sharpness": ((3.0, 10.0, 30.0), (0.1, 10.0, 35.0)) * 2,
        "centres": (
            (0.3689, 0.1170, 0.2673),
            (0.4699, 0.4387, 0.7470),
            (0.1091, 0.8732, 0.5547),
            (0.0381, 0.5743, 0.8828),
        ),
    }
    _robust_optimizer = (1.0, 0.0, 0.25)
    _robust_optimal_value = 0.2616929081275204

    def _evaluate_true(self, X: Tensor) -> Tensor:
        distance = (X.unsqueeze(-2) - self.centres).square() * self.sharpness
        return distance.sum(dim=-1).neg().exp() @ self.heights


class RobustPolynomial(RobustTestProblem):
    r"""The polynomial of [Bertsimas2010robust]_ with implementation errors.

    Nature moves the point ``x`` by a vector that ``theta`` gives in polar coordinates,
    ``z = x + r (cos a, sin a)`` for ``r`` in ``{0, 0.5}`` and ``a`` in
    ``{0, 0.4 pi, ..., 2 pi}``: 12 choices, of which those with ``r = 0`` and those
    with ``a = 0`` and ``a = 2 pi`` give the same ``z``. A model sees the four inputs
    ``(x_1, x_2, r, a)``; ``x`` is in ``[-0.95, 3.2] x [-0.45, 4.4]``. At the robust
    optimum three moves tie.
    """

    dim = 4
    _bounds = ((-0.95, 3.2), (-0.45, 4.4), (0.0, 0.5), (0.0, 2 * math.pi))
    _uncontrollable = (2, 3)
    _theta_choices = tuple(product((0.0, 0.5), _equidistant(0.0, 2 * math.pi, 6)))
    _robust_optimizer = (
        -0.19550859281379485,
        0.28742884046070805,
        0.5,
        1.2566370614359172,
    )
    _robust_optimal_value = 4.154913799897129

    def _evaluate_true(self, X: Tensor) -> Tensor:
        x1, x2, radius, angle = X.unbind(-1)
        z = [x1 + radius * angle.cos(), x2 + radius * angle.sin()]
        return bertsimas_polynomial(torch.stack(z, dim=-1))
