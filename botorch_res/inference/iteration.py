r"""Sweeps of expectation propagation until all members of a batch have converged.

A parallel update overshoots when many constraints speak about the same direction, so
each member has a damping factor of its own: halved when an update turns against the one
before without getting closer to the fixed point, else raised by a quarter towards one.
Members that have converged leave the batch once they are a quarter of it, so that the
slowest do not make all others wait.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from botorch_res.inference.sweep import (
    Sites,
    StandardProblem,
    marginals,
    mismatch,
    project,
)

SMALLEST_DAMPING = 0.01
# To see who has converged the host must wait for the device. On a GPU that costs more
# than sweeps, so it asks only now and then.
SWEEPS_BETWEEN_CHECKS = {"cpu": 1}
SWEEPS_BETWEEN_CHECKS_ELSEWHERE = 8


class State(NamedTuple):
    """The state of ``b`` members.

    Attributes:
        precision: ``b x n`` precisions of the sites.
        shift: ``b x n`` shifts of the sites.
        step: ``b x 2n`` the last step, in units in which all variables count alike.
        damping: ``b x 1`` the share of a step that is taken.
        distance: ``b x 1`` how far from the fixed point the member was.
        num_sweeps: ``b x 1`` the sweeps so far.
    """

    precision: Tensor
    shift: Tensor
    step: Tensor
    damping: Tensor
    distance: Tensor
    num_sweeps: Tensor


def iterate(
    problem: StandardProblem, max_sweeps: int, tolerance: float
) -> tuple[Sites, Tensor, Tensor]:
    """Sweep until all members have converged.

    Args:
        problem: The problems of all members.
        max_sweeps: The largest number of sweeps.
        tolerance: The mismatch at which a member has converged.

    Returns:
        The sites, and for each member the number of sweeps and the mismatch.
    """
    shape = problem.lower.shape
    batch_dims = len(shape) - 1
    problem = StandardProblem(
        *(part.reshape(-1, *part.shape[batch_dims:]) for part in problem)
    )
    zero = torch.zeros_like(problem.lower)
    one = torch.ones_like(zero[:, :1])
    state = State(
        precision=zero,
        shift=zero,
        step=torch.cat([zero, zero], dim=-1),
        damping=one,
        distance=math.inf * one,
        num_sweeps=torch.zeros_like(one, dtype=torch.long),
    )
    every = SWEEPS_BETWEEN_CHECKS.get(zero.device.type, SWEEPS_BETWEEN_CHECKS_ELSEWHERE)
    members = torch.arange(len(zero), device=zero.device)
    finished: list[tuple[Tensor, State]] = []
    for sweep in range(1, max_sweeps + 1):
        state = _sweep(problem, state, tolerance)
        if sweep % every == 0:
            active = (state.distance > tolerance).squeeze(-1)
            if 4 * int(active.sum()) <= 3 * len(members):
                finished.append((members[~active], _take(state, ~active)))
                members, state = members[active], _take(state, active)
                problem = StandardProblem(*(part[active] for part in problem))
            if len(members) == 0:
                break
    finished.append((members, state))
    order = torch.cat([part for part, _ in finished]).argsort()
    state = State(
        *(
            torch.cat(parts)[order]
            for parts in zip(*(part for _, part in finished), strict=True)
        )
    )
    sites = Sites(state.precision.view(shape), state.shift.view(shape))
    return sites, state.num_sweeps.view(shape[:-1]), state.distance.view(shape[:-1])


def _take(state: State, which: Tensor) -> State:
    """The state of the members chosen by ``b`` booleans."""
    return State(*(part[which] for part in state))


def _sweep(problem: StandardProblem, state: State, tolerance: float) -> State:
    """Sweep once over all members; those that had converged keep their state."""
    posterior = marginals(problem, Sites(state.precision, state.shift))
    target, mean = project(problem, posterior.cavity_mean, posterior.cavity_precision)
    distance = mismatch(posterior, target, mean)
    deviation = posterior.variance.sqrt()
    step = torch.cat(
        [
            (target.precision - state.precision) * posterior.variance,
            (target.shift - state.shift) * deviation,
        ],
        dim=-1,
    )
    overshoots = (step * state.step).sum(dim=-1, keepdim=True) < 0.0
    overshoots = overshoots & (distance > 0.9 * state.distance)
    damping = torch.where(overshoots, 0.5 * state.damping, 1.25 * state.damping)
    damping = damping.clamp(SMALLEST_DAMPING, 1.0)
    new = State(
        precision=torch.lerp(state.precision, target.precision, damping),
        shift=torch.lerp(state.shift, target.shift, damping),
        step=step,
        damping=damping,
        distance=distance,
        num_sweeps=state.num_sweeps + 1,
    )
    # A member takes its last step in the sweep that finds it converged.
    active = state.distance > tolerance
    return State(*(torch.where(active, a, b) for a, b in zip(new, state, strict=True)))
