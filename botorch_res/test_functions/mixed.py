r"""Problems with categories: three mixtures of free and listed columns.

The columns of categories hold codes 0, 1, 2 and so on; the classes name the categories
in this order. The worst cases have closed forms. The stored robust optima were found by
dense search and refined to double precision; the tests prove them by branch and bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding

from botorch_res.test_functions.base import RobustTestProblem


def _rows(table: Tensor, codes: Tensor) -> Sequence[Tensor]:
    """The columns of a table, each in the row of the code."""
    return embedding(codes.detach().round().long(), table).unbind(-1)


class SnapHook(RobustTestProblem):
    r"""A snap hook that should hold with 20 N, whatever its temperature and supplier.

    We choose the ``material`` (steel, aluminium or POM) and the ``thickness`` ``h``,
    1.5 to 2.5 mm. Nature chooses the ``temperature`` ``T``, -20 to 60 degrees Celsius,
    and the ``supplier`` (A, B or C). The hook is a cantilever of width ``b`` that is
    bent by ``y``; its length ``L`` is usual for its material. Then

        P = s E (1 - beta (T - 20)) b h^3 y / (4 L^3)
        u = 3 h y / (2 L^2) / (r e (1 + gamma (T - 20)))
        f = (P / 20 N - 1)^2 + u^2

    where ``P`` is the force, ``u`` the strain as a share of the permissible one, and
    the supplier changes stiffness and strength by the factors ``s`` and ``r``. The
    worst temperature is one of the ends. At 20 degrees, from supplier A, a hook of POM
    is best; it is not the robust choice.

    Attributes:
        materials: The names of the codes of the material.
        suppliers: The names of the codes of the supplier.
    """

    dim = 4
    materials = ("steel", "aluminium", "POM")
    suppliers = ("A", "B", "C")
    _bounds = ((0.0, 2.0), (1.5, 2.5), (-20.0, 60.0), (0.0, 2.0))
    _uncontrollable = (2, 3)
    _x_choices: Mapping[int, Sequence[float]] = {0: (0.0, 1.0, 2.0)}
    _theta_choices: Mapping[int, Sequence[float]] = {3: (0.0, 1.0, 2.0)}
    _cat_dims = (0, 3)
    _hooks: Tensor
    _quality: Tensor
    # In the order of the materials.
    _constants: Mapping[str, Sequence[Any]] = {
        # E in MPa, L in mm, beta in 1 / K, e, gamma in 1 / K.
        "_hooks": (
            (210e3, 60.0, 0.0003, 0.0018, 0.0005),
            (70e3, 40.0, 0.0006, 0.0035, 0.0010),
            (2800.0, 15.0, 0.0060, 0.0400, 0.0040),
        ),
        # s and r of the suppliers of each material.
        "_quality": (
            *((1.00, 1.00), (1.04, 0.92), (0.95, 1.05)),
            *((1.00, 1.00), (1.10, 0.85), (0.91, 1.10)),
            *((1.00, 1.00), (1.12, 0.80), (0.90, 1.15)),
        ),
    }
    _robust_optimizer = (0.0, 1.92381200940605, -20.0, 1.0)
    _robust_optimal_value = 0.2519401230121386

    def _evaluate_true(self, X: Tensor) -> Tensor:
        material, thickness, temperature, supplier = X.unbind(-1)
        modulus, length, softening, strain, toughening = _rows(self._hooks, material)
        pair = 3 * material.detach().round() + supplier.detach().round()
        stiffness, strength = _rows(self._quality, pair)
        warming = temperature - 20.0
        width, bend = 10.0, 1.0
        modulus = stiffness * modulus * (1 - softening * warming)
        force = modulus * width * thickness**3 * bend / (4 * length**3)
        permissible = strength * strain * (1 + toughening * warming)
        share = 3 * thickness * bend / (2 * length.square()) / permissible
        return (force / 20.0 - 1).square() + share.square()

    def _worst_thetas(self, x: Tensor) -> Tensor:
        """Both ends of the temperature, with all suppliers.

        Args:
            x: A ``batch_shape x d_x`` tensor of controllable parts.

        Returns:
            A ``6 x 2`` tensor.
        """
        return x.new_tensor(list(product((-20.0, 60.0), (0.0, 1.0, 2.0))))


class SwitchingModes(RobustTestProblem):
    r"""Four modes of operation, each the best one for some ``theta``.

        f(u, c, theta) = b_c + sin(w_c u + v_c) / 4 + a_c cos(pi (theta - p_c - q_c u))

    for a setting ``u`` and ``theta`` in ``[0, 1]`` and a mode ``c`` of four. The worst
    ``theta`` is that nearest to ``p_c + q_c u``, for most settings an inner one.
    """

    dim = 3
    _bounds = ((0.0, 1.0), (0.0, 3.0), (0.0, 1.0))
    _uncontrollable = (2,)
    _x_choices: Mapping[int, Sequence[float]] = {1: (0.0, 1.0, 2.0, 3.0)}
    _cat_dims = (1,)
    _modes: Tensor
    _constants: Mapping[str, Sequence[Any]] = {
        # b, w, v, a, p and q.
        "_modes": (
            (0.15, 12.0, 1.0, 0.9, -0.3, 0.5),
            (0.00, 11.0, 5.0, 1.1, 0.0, 0.6),
            (0.35, 11.0, 2.0, 0.6, 0.6, 0.8),
            (0.00, 11.0, 5.0, 0.7, 0.8, -0.6),
        ),
    }
    _robust_optimizer = (0.5450522079603887, 3.0, 0.47296867522376684)
    _robust_optimal_value = 0.45

    def _evaluate_true(self, X: Tensor) -> Tensor:
        u, mode, theta = X.unbind(-1)
        level, frequency, phase, height, place, shift = _rows(self._modes, mode)
        wave = (frequency * u + phase).sin() / 4
        ridge = (math.pi * (theta - place - shift * u)).cos()
        return level + wave + height * ridge

    def _worst_thetas(self, x: Tensor) -> Tensor:
        """The top of the ridge, or what is nearest to it.

        Args:
            x: A ``batch_shape x d_x`` tensor of controllable parts.

        Returns:
            A ``batch_shape x 1 x 1`` tensor.
        """
        u, mode = x.detach().unbind(-1)
        *_, place, shift = _rows(self._modes, mode)
        return (place + shift * u).clamp(0.0, 1.0)[..., None, None]


class MotorCatalogue(RobustTestProblem):
    r"""Which motor of a catalogue accelerates a load best, whatever the load?

    We choose one of 15 motors. Each has a ``maker`` (a category), a ``torque`` ``M``
    and an ``inertia`` ``J``. Nature chooses the ``load`` ``L`` from 1 to 5 and the
    ``friction`` ``R`` from 0 to 1. The time to full speed, with what a resonance of the
    maker's controller adds, is

        f = (J + L) / (k M - R) + r (1 - ((L - l) / w)^2)

    where ``k``, ``r``, ``l`` and ``w`` belong to the maker. The worst friction is the
    largest one, and the worst load is inside for most motors. The ``x`` of this problem
    takes listed rows of three columns, and its ``theta`` is a box.

    Attributes:
        makers: The names of the codes of the maker.
    """

    dim = 5
    makers = ("Arc", "Bolt", "Coil")
    _bounds = ((0.0, 2.0), (3.0, 9.0), (0.2, 3.0), (1.0, 5.0), (0.0, 1.0))
    _uncontrollable = (3, 4)
    _x_choices = (
        (0.0, 3.0, 0.2),
        (0.0, 4.5, 0.6),
        (0.0, 6.0, 1.1),
        (0.0, 7.5, 1.9),
        (0.0, 9.0, 3.0),
        (1.0, 3.5, 0.3),
        (1.0, 4.2, 0.4),
        (1.0, 5.4, 0.8),
        (1.0, 6.6, 1.5),
        (1.0, 8.4, 2.6),
        (2.0, 3.2, 0.2),
        (2.0, 4.8, 0.5),
        (2.0, 6.3, 1.3),
        (2.0, 7.8, 1.8),
        (2.0, 8.7, 2.2),
    )
    _cat_dims = (0,)
    _controllers: Tensor
    _constants: Mapping[str, Sequence[Any]] = {
        # k, r, l and w.
        "_controllers": (
            (1.00, 0.30, 2.0, 2.5),
            (0.90, 0.10, 4.0, 2.0),
            (1.10, 0.45, 1.5, 2.0),
        ),
    }
    _robust_optimizer = (2.0, 8.7, 2.2, 2.0186049526772982, 1.0)
    _robust_optimal_value = 0.9119956215097607

    def _evaluate_true(self, X: Tensor) -> Tensor:
        maker, torque, inertia, load, friction = X.unbind(-1)
        gain, height, place, width = _rows(self._controllers, maker)
        time = (inertia + load) / (gain * torque - friction)
        return time + height * (1 - ((load - place) / width).square())

    def _worst_thetas(self, x: Tensor) -> Tensor:
        """The load on top of the parabola, or the nearest one, and all friction.

        Args:
            x: A ``batch_shape x d_x`` tensor of controllable parts.

        Returns:
            A ``batch_shape x 1 x 2`` tensor.
        """
        maker, torque, _ = x.detach().unbind(-1)
        gain, height, place, width = _rows(self._controllers, maker)
        top = place + width.square() / (2 * height * (gain * torque - 1.0))
        theta = [top.clamp(1.0, 5.0), torch.ones_like(top)]
        return torch.stack(theta, dim=-1).unsqueeze(-2)
