r"""A robot hand pushes an object towards one of two goals.

The problem of [Wang2017max]_ with the two goals of [Weichert2024robust]_: the robot
must choose its push before it knows which of the goals counts. The push is a simulation
by the rigid-body engine pymunk, which the extra ``robot`` installs.

References:

.. [Wang2017max]
    Z. Wang, S. Jegelka. Max-value Entropy Search for Efficient Bayesian Optimization.
    International Conference on Machine Learning (ICML), 2017.

.. [Weichert2024robust]
    D. Weichert, A. Kister, S. Houben, P. Link, G. Ernis. Robust Entropy Search for
    Safe Efficient Bayesian Optimization. Conference on Uncertainty in Artificial
    Intelligence (UAI), 2024.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from botorch_res.test_functions.base import RobustTestProblem

if TYPE_CHECKING:
    import pymunk

OBJECT_RADIUS = 0.5
OBJECT_MASS = 1.0
HAND_SIZE = (0.2, 1.0)  # thickness, width
HAND_SPEED = 0.5
CONTACT_FRICTION = 0.5
GROUND_FRICTION = 0.3
GRAVITY = 9.81
TIME_STEP = 0.02
LONGEST_PUSH = 30.0
# How far the hand may sink into the object before the engine moves it out again; with
# none at all the object loses contact now and then.
CONTACT_SLOP = 1e-3

TIMES = TIME_STEP * np.arange(round(LONGEST_PUSH / TIME_STEP) + 1)


class RobotPushing(RobustTestProblem):
    r"""Five minus the distance of the pushed object to the goal.

    ``x`` is the hand's start ``(rx, ry)`` in ``[-5, 5]^2`` and the duration of its push
    in ``[1, 30]``; ``theta`` is the goal, one of two. The object, a disc, lies at the
    origin on a plane with friction; the hand faces it from its start and moves towards
    it at constant speed. What counts is where the object is at the end of the push.
    The value is to be maximised in its worst case: ``max over x, min over theta``,
    unless ``negate`` turns it round. It has no gradient with respect to ``x``.

    No push is closer than half the goals' distance to both of them, and a push to
    their midpoint is just as close: this is the robust optimum.
    """

    dim = 5
    _theta_choices: list[list[float]]
    _bounds = ((-5.0, 5.0), (-5.0, 5.0), (1.0, LONGEST_PUSH), (-7.0, 7.0), (-7.0, 7.0))
    _uncontrollable = (3, 4)
    _is_minimization_by_default = False

    def __init__(
        self,
        seed: int = 0,
        noise_std: float | None = None,
        negate: bool = False,
        dtype: torch.dtype = torch.double,
    ) -> None:
        r"""Draw the goals.

        Args:
            seed: The seed of the goals. The first is uniform in ``[-5, 5]^2``, the
                second uniform in the disc of radius 2 around it.
            noise_std: The standard deviation of the observation noise.
            negate: Whether to negate the function; then it is to be minimised.
            dtype: The dtype of the bounds and of the goals.
        """
        _pymunk()
        generator = torch.Generator().manual_seed(seed)
        u = torch.rand(4, generator=generator, dtype=torch.double)
        first = 10 * u[:2] - 5
        angle = 2 * math.pi * u[3]
        second = first + 2 * u[2].sqrt() * torch.stack([angle.cos(), angle.sin()])
        self._theta_choices = [first.tolist(), second.tolist()]
        self._robust_optimal_value = 5 - math.dist(*self._theta_choices) / 2
        super().__init__(noise_std=noise_std, negate=negate, dtype=dtype)

    @cached_property
    def _robust_optimizer(self) -> tuple[float, ...]:  # type: ignore[override]
        (x1, y1), (x2, y2) = self._theta_choices
        return *_push_to((x1 + x2) / 2, (y1 + y2) / 2), x1, y1

    def _evaluate_true(self, X: Tensor) -> Tensor:
        push, goal = X.split([3, 2], dim=-1)
        # A simulator has no batch: one simulation for each different start.
        ends = [end_position(*row) for row in push.reshape(-1, 3).tolist()]
        end = X.new_tensor(ends).reshape(goal.shape)
        distance: Tensor = torch.linalg.vector_norm(end - goal, dim=-1)
        return 5 - distance


def end_position(rx: float, ry: float, duration: float) -> tuple[float, float]:
    """Push the object.

    Args:
        rx: The first coordinate of the hand's start.
        ry: The second coordinate of the hand's start.
        duration: The duration of the push, at most ``LONGEST_PUSH``.

    Returns:
        The position of the object at the end of the push.
    """
    # Linear between two time steps, so that the value is continuous in the duration.
    x, y = (float(np.interp(duration, TIMES, along)) for along in _path(rx, ry))
    return x, y


def _push_to(x: float, y: float) -> tuple[float, float, float]:
    """Find a push ``(rx, ry, duration)`` that ends at a given position."""
    # The object moves on the line through the hand's start and the origin. At a
    # distance of 3 the start is in its box, and the object is reached after 4.8.
    heading = math.atan2(y, x)
    start = -3 * math.cos(heading), -3 * math.sin(heading)
    duration = np.interp(math.hypot(x, y), np.hypot(*_path(*start)), TIMES)
    return *start, max(float(duration), 1.0)


@lru_cache(maxsize=1024)
def _path(rx: float, ry: float) -> npt.NDArray[np.float64]:
    """The ``2 x num_times`` path of the longest push; it contains all shorter ones."""
    space, disc, _ = _scene(rx, ry)
    path = [(0.0, 0.0)]
    for _ in TIMES[1:]:
        space.step(TIME_STEP)
        path.append(disc.position)
    return np.array(path).T


def _scene(rx: float, ry: float) -> tuple[pymunk.Space, pymunk.Body, pymunk.Body]:
    """Set up the space, the object at rest and the hand that moves from its start."""
    engine = _pymunk()
    space = engine.Space()
    space.collision_slop = CONTACT_SLOP

    moment = engine.moment_for_circle(OBJECT_MASS, 0, OBJECT_RADIUS)
    disc = engine.Body(OBJECT_MASS, moment)
    disc_shape = engine.Circle(disc, OBJECT_RADIUS)
    # Seen from above there is no weight to press the object onto the plane. Joints to
    # the ground that pull back with limited force, and never correct a position, do
    # what dry friction does. The mean lever of a disc's friction is 2/3 of its radius.
    ground_force = GROUND_FRICTION * OBJECT_MASS * GRAVITY
    sliding = engine.PivotJoint(space.static_body, disc, (0, 0), (0, 0))
    turning = engine.GearJoint(space.static_body, disc, 0, 1)
    sliding.max_bias = turning.max_bias = 0
    sliding.max_force = ground_force
    turning.max_force = ground_force * OBJECT_RADIUS * 2 / 3

    hand = engine.Body(body_type=engine.Body.KINEMATIC)
    hand.position = rx, ry
    hand.angle = heading = math.atan2(-ry, -rx)
    hand.velocity = HAND_SPEED * math.cos(heading), HAND_SPEED * math.sin(heading)
    hand_shape = engine.Poly.create_box(hand, HAND_SIZE)
    disc_shape.friction = hand_shape.friction = CONTACT_FRICTION
    space.add(disc, disc_shape, sliding, turning, hand, hand_shape)
    return space, disc, hand


def _pymunk() -> ModuleType:
    """Import the physics engine."""
    try:
        import pymunk
    except ImportError as error:
        raise ImportError(
            "RobotPushing needs the physics engine pymunk; install it with the extra "
            '`robot`: pip install "botorch_res[robot]".'
        ) from error
    return pymunk
