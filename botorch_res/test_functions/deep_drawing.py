r"""Calibrating the friction coefficient of a deep-drawing simulation.

A round blank is drawn into a cylindrical cup. The simulation needs one friction
coefficient ``mu``; the experiments were made with three blank-holder forces, and the
simulation should be right for the worst of them. The simulation is the slab-method
formula for the punch force [Siebel1955]_, and the experiment is the same formula with
a friction coefficient that falls with the holder's pressure, plus measurement noise:
no single ``mu`` fits all three forces.

References:

.. [Siebel1955]
    E. Siebel, H. Beisswaenger. Tiefziehen. Hanser, 1955.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from botorch_res.test_functions.base import RobustTestProblem

# The tool and the blank, in mm: a steel sheet of 1 mm, drawing ratio 200 / 101.
BLANK_DIAMETER = 200.0
MEAN_CUP_DIAMETER = 101.0
THICKNESS = 1.0
DIE_RADIUS = 8.0
# Swift hardening of a mild deep-drawing steel: K in MPa, strain offset, exponent.
STRENGTH = 550.0
STRAIN_OFFSET = 0.008
HARDENING_EXPONENT = 0.22
# Friction in the experiment: its value at the reference pressure (MPa), its decay.
REFERENCE_FRICTION = 0.18
REFERENCE_PRESSURE = 10.0
FRICTION_DECAY = 0.2
# Measurements at every millimetre of the stroke (mm), with this noise (kN). The cup
# has formed by then, and a flange is still held at the end.
FIRST_STROKE, LAST_STROKE = 5, 60
MEASUREMENT_NOISE = 0.5


def _measurement_noise(num_forces: int, num_strokes: int) -> list[list[float]]:
    """Draw ``num_forces x num_strokes`` errors in kN, the same for all time."""
    # Python promises to keep the sequence of random() for a given seed for good.
    uniform = random.Random(0).random
    normal = NormalDist(sigma=MEASUREMENT_NOISE)
    return [
        [normal.inv_cdf(uniform()) for _ in range(num_strokes)]
        for _ in range(num_forces)
    ]


def _along_the_stroke() -> dict[str, list[float]]:
    """The terms of the punch force that depend on the stroke alone."""
    stroke = torch.arange(FIRST_STROKE, LAST_STROKE + 1, dtype=torch.double)
    flange = (BLANK_DIAMETER**2 - 4 * MEAN_CUP_DIAMETER * stroke).sqrt()
    # The ring that passes the die's radius now had this diameter in the blank, since
    # the flange's volume is constant.
    origin = (BLANK_DIAMETER**2 - flange**2 + MEAN_CUP_DIAMETER**2).sqrt()
    at_rim = (BLANK_DIAMETER / flange).log()
    at_die = (origin / MEAN_CUP_DIAMETER).log()
    # Swift's hardening law at the flange's mean strain and at the die's radius.
    flange_stress, die_stress = (
        STRENGTH * (STRAIN_OFFSET + strain) ** HARDENING_EXPONENT
        for strain in ((at_rim + at_die) / 2, at_die)
    )
    section = math.pi * MEAN_CUP_DIAMETER * THICKNESS / 1000  # N -> kN
    ratio = flange / MEAN_CUP_DIAMETER
    terms = {
        "stroke": stroke,
        "_drawing": 1.1 * section * flange_stress * ratio.log(),
        "_bending": section * die_stress * THICKNESS / (2 * DIE_RADIUS),
        "_holding": 2 * MEAN_CUP_DIAMETER / flange,
        "_flange_area": math.pi / 4 * (flange**2 - MEAN_CUP_DIAMETER**2) / 1000,
    }
    return {name: term.tolist() for name, term in terms.items()}


class DeepDrawing(RobustTestProblem):
    r"""The largest error of a simulated punch force, in kN.

        f(mu, FN) = max over the stroke h of |F_experiment(h, FN) - F(h, mu, FN)|

    for a friction coefficient ``mu`` in ``[0.1, 0.2]`` and a blank-holder force ``FN``
    in ``{200, 300, 350}`` kN. With the flange's diameter
    ``D(h) = sqrt(D0^2 - 4 dm h)`` the punch force is

        F = pi dm s0 (1.1 kf1 ln(D / dm) e^(mu pi / 2) + kf2 s0 / (2 rM))
            + 2 mu FN (dm / D) e^(mu pi / 2)

    with ``kf = K (e0 + phi)^n`` at the flange's mean strain (``kf1``) and at the die's
    radius (``kf2``). The experiment has ``mu = mu0 (p / p0)^-q`` with the pressure
    ``p`` of ``FN`` on the flange. Its noise is the same in every instance; between the
    three forces it is interpolated linearly, so that any ``FN`` can be evaluated.
    At the robust optimum the smallest and the largest force tie.

    Attributes:
        stroke: The ``num_strokes`` positions of the punch, in mm, at which forces are
            measured.
    """

    dim = 2
    theta_choices: Tensor
    stroke: Tensor
    _drawing: Tensor
    _bending: Tensor
    _holding: Tensor
    _flange_area: Tensor
    _noise: Tensor
    _bounds = ((0.1, 0.2), (200.0, 350.0))
    _uncontrollable = (1,)
    _theta_choices = ((200.0,), (300.0,), (350.0,))
    _constants: Mapping[str, Sequence[Any]] = {
        **_along_the_stroke(),
        "_noise": _measurement_noise(3, LAST_STROKE + 1 - FIRST_STROKE),
    }
    _robust_optimizer = (0.14110465369376055, 200.0)
    _robust_optimal_value = 20.54033574320394

    def _evaluate_true(self, X: Tensor) -> Tensor:
        friction, holder_force = X.split(1, dim=-1)
        simulated = self.simulated_force(friction, holder_force)
        return (self.measured_force(holder_force) - simulated).abs().amax(-1)

    def measured_force(self, holder_force: Tensor) -> Tensor:
        """The punch force of the experiment, along ``stroke``.

        Args:
            holder_force: A ``batch_shape x 1`` tensor in kN.

        Returns:
            A ``batch_shape x num_strokes`` tensor in kN.
        """
        pressure = holder_force / self._flange_area / REFERENCE_PRESSURE
        friction = REFERENCE_FRICTION * pressure**-FRICTION_DECAY
        # Hat functions of the three measured forces interpolate their noise.
        low, middle, high = self.theta_choices.squeeze(-1)
        rising = ((holder_force - low) / (middle - low)).clamp(0, 1)
        falling = ((holder_force - middle) / (high - middle)).clamp(0, 1)
        weights = torch.cat([1 - rising, rising - falling, falling], dim=-1)
        return self.simulated_force(friction, holder_force) + weights @ self._noise

    def simulated_force(self, friction: Tensor, holder_force: Tensor) -> Tensor:
        """The punch force of the simulation, along ``stroke``.

        Args:
            friction: A ``batch_shape x 1`` tensor, or one value for each stroke.
            holder_force: A ``batch_shape x 1`` tensor in kN.

        Returns:
            A ``batch_shape x num_strokes`` tensor in kN.
        """
        wrap = (friction * (math.pi / 2)).exp()
        holding = friction * holder_force * self._holding
        return wrap * (self._drawing + holding) + self._bending
