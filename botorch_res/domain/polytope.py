r"""Linear constraints ``A x >= b`` on points of which some columns are listed.

In each row of listed values, the constraints leave a polytope of the free columns. Each
polytope has a center, where the product of the distances from all faces is largest, and
axes, which turn a ball into an ellipsoid of its form. Points move along the rays from
the center. Where a ray leaves the polytope tells how far. Columns without a constraint
do not move.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from botorch.exceptions.errors import InputDataError
from scipy import optimize
from torch import Tensor

# The error of a listed row in a constraint, relative to the sum of the coefficients'
# sizes times the columns' widths. A safe choice: many roundings.
ROUNDING = 1e-9
# Steps of Newton's method from the center of the largest ball to that of the polytope.
# In a strip of width 1e-6 the ball may lie at one end. From there, 30 are too few, and
# 60 are enough.
NUM_STEPS = 100
# A polytope that contains no larger ball has no volume, up to rounding.
LEAST_RADIUS = 1e-7
# A polytope without volume that is no longer than this is a point, up to the error of
# its ends, which is the solver's tolerance. In units of the bounds' widths.
POINT_LENGTH = 1e-5


class Polytopes(NamedTuple):
    """Parts of a box.

    Attributes:
        center: ``... x d`` centers.
        axes: ``... x d x d`` matrices that map the box about its middle to a body about
            the center that is about as wide as the polytope in each direction, up to
            one factor for all directions. Zero if the polytope is a point.
    """

    center: Tensor
    axes: Tensor


def centers(
    normals: Tensor, limits: Tensor, bounds: Tensor
) -> tuple[Polytopes, Tensor, Tensor]:
    """Find the centers and axes of polytopes, which have the same normals.

    Args:
        normals: The ``m x d`` coefficients ``A``.
        limits: ``n x m`` right-hand sides ``b``, those of each polytope.
        bounds: The ``2 x d`` bounds of a box that contains the polytopes.

    Returns:
        The ``n`` polytopes, and twice ``n`` booleans: whether each has a point, and
        whether it has several points but no volume. Then its axes are not known.
    """
    unique, index = limits.unique(dim=0, return_inverse=True)
    width = bounds[1] - bounds[0]
    A = (normals * width).double().cpu()
    b = (unique - normals @ bounds[0]).double().cpu()
    d = A.shape[-1]
    # The largest ball has radius r, with A c - |A| r >= b and r <= c <= 1 - r.
    eye = torch.eye(d, dtype=A.dtype)
    table = torch.cat([-A, -eye, eye])
    length = torch.cat([A.norm(dim=-1), torch.ones(2 * d, dtype=A.dtype)])
    table = torch.cat([table, length.unsqueeze(-1)], dim=-1)
    goal = [0.0] * d + [-1.0]
    slack = ROUNDING * A.abs().sum(dim=-1)
    ball, is_feasible = torch.zeros(len(b), d + 1, dtype=A.dtype), []
    for i, own in enumerate(b):
        right = torch.cat(
            [slack - own, torch.zeros_like(eye[0]), torch.ones_like(eye[0])]
        )
        result = _minimum(goal, table, right)
        is_feasible.append(result.status == 0)
        if is_feasible[-1]:
            ball[i] = torch.as_tensor(result.x)
    center, radius = ball[:, :d], ball[:, d]
    is_solid = radius > LEAST_RADIUS
    # A polytope without volume may be a single point, its center.
    is_flat = [
        feasible and not solid and not _is_point(A, own)
        for feasible, solid, own in zip(
            is_feasible, is_solid.tolist(), b - slack, strict=True
        )
    ]
    edges = torch.cat([b, -torch.ones_like(center), 0.0 * center], dim=-1)
    normals = torch.cat([A, -eye, eye])
    center[is_solid] = _analytic_centers(center[is_solid], normals, edges[is_solid])
    axes = torch.zeros(len(b), d, d, dtype=A.dtype)
    axes[is_solid] = _axes(center[is_solid], normals, edges[is_solid])
    axes = width.unsqueeze(-1) * axes.to(bounds) / width
    found = Polytopes(bounds[0] + width * center.to(bounds), axes)
    feasible, flat = index.new_tensor([is_feasible, is_flat]).bool()
    return Polytopes(*(part[index] for part in found)), feasible[index], flat[index]


def _minimum(goal: list[float], table: Tensor, right: Tensor) -> Any:
    """Minimise a linear function over ``table @ u <= right`` in the unit cube."""
    solve: Any = optimize.linprog  # type: ignore[attr-defined]
    return solve(goal, table.numpy(), right.numpy(), bounds=(0.0, 1.0))


def _is_point(normals: Tensor, limits: Tensor) -> bool:
    """Tell whether a part of the unit cube is one point in all constrained columns."""
    eye = torch.eye(normals.shape[-1], dtype=normals.dtype)
    used = eye[(normals != 0.0).any(dim=0)]
    lowest = [_minimum(goal, -normals, -limits).fun for goal in used.tolist()]
    highest = [-_minimum(goal, -normals, -limits).fun for goal in (-used).tolist()]
    lengths = [high - low for low, high in zip(lowest, highest, strict=True)]
    return max(lengths, default=0.0) <= POINT_LENGTH


def _analytic_centers(start: Tensor, normals: Tensor, limits: Tensor) -> Tensor:
    """Maximise the sum of the logarithms of all slacks by damped Newton steps."""
    point = start
    tiny = torch.finfo(start.dtype).tiny ** 0.5
    for _ in range(NUM_STEPS):
        scaled = normals / (point @ normals.mT - limits).clamp_min(tiny).unsqueeze(-1)
        gradient = scaled.sum(dim=-2)
        hessian = scaled.mT @ scaled
        step = torch.linalg.solve(hessian, gradient.unsqueeze(-1)).squeeze(-1)
        decrement = (step * gradient).sum(dim=-1, keepdim=True).clamp_min(0.0).sqrt()
        point = point + step / (1.0 + decrement)
    return point


def _axes(center: Tensor, normals: Tensor, limits: Tensor) -> Tensor:
    """The inverse root of the Hessian of the logarithms of all slacks."""
    scaled = normals / (center @ normals.mT - limits).unsqueeze(-1)
    value, vector = torch.linalg.eigh(scaled.mT @ scaled)
    axes: Tensor = vector * value.rsqrt().unsqueeze(-2) @ vector.mT
    return axes


def feasible_rows(normals: Tensor, limits: Tensor, scale: Tensor) -> Tensor:
    """Tell which rows satisfy constraints on listed columns alone.

    Args:
        normals: ``m x d`` coefficients; only the constraints count that are all zero.
        limits: ``n x m`` right-hand sides that are left for the free columns.
        scale: The ``m`` sizes of the constraints.

    Returns:
        ``n`` booleans.
    """
    done = (normals == 0.0).all(dim=-1)
    return ((limits <= ROUNDING * scale) | ~done).all(dim=-1)


def inward(points: Tensor, cut: Polytopes, normals: Tensor, room: Tensor) -> Tensor:
    """Move points towards the center until they satisfy the constraints.

    Args:
        points: ``... x d`` points.
        cut: ``...`` polytopes.
        normals: The ``m x d`` coefficients.
        room: The ``... x m`` slacks of the constraints at the centers.

    Returns:
        The ``... x d`` points.
    """
    offset = (points - cut.center) * (normals != 0.0).any(dim=-2)
    share = _leaving(-(offset @ normals.mT), room)
    return torch.where(share > 1.0, points - offset * (1.0 - 1.0 / share), points)


def spread(
    points: Tensor, cut: Polytopes, normals: Tensor, room: Tensor, bounds: Tensor
) -> Tensor:
    """Map a box to its part that satisfies the constraints, ray by ray.

    Without a constraint, points would stay where they are. In a thin strip, most of
    them are far from its center.

    Args:
        points: ``... x d`` points of the box.
        cut: ``...`` polytopes.
        normals: The ``m x d`` coefficients.
        room: The ``... x m`` slacks of the constraints at the centers.
        bounds: The ``2 x d`` bounds of the box.

    Returns:
        The ``... x d`` points.
    """
    used = (normals != 0.0).any(dim=-2)
    half = 0.5 * (bounds[1] - bounds[0])
    offset = (points - bounds[0] - half) * used
    in_box = (offset / half).abs().amax(dim=-1, keepdim=True)
    offset = (cut.axes @ offset.unsqueeze(-1)).squeeze(-1)
    change = torch.cat([-(offset @ normals.mT), offset, -offset], dim=-1)
    sides = [bounds[1] - cut.center, cut.center - bounds[0]]
    share = _leaving(change, torch.cat([room, *sides], dim=-1))
    tiny = torch.finfo(points.dtype).tiny ** 0.5
    moved = cut.center + offset * (in_box / share.clamp_min(tiny))
    return torch.where(used, moved.clamp(*bounds), points)


def _leaving(change: Tensor, room: Tensor) -> Tensor:
    """The largest share of its room that an offset takes: one on the boundary."""
    tiny = torch.finfo(change.dtype).tiny ** 0.5
    return (change / room.clamp_min(tiny)).amax(dim=-1, keepdim=True)


def no_such_point(normals: Tensor, limits: Tensor) -> InputDataError:
    """The error for constraints that no point satisfies.

    Args:
        normals: The ``m x d`` coefficients.
        limits: The ``m`` right-hand sides.

    Returns:
        The error.
    """
    return InputDataError(
        "Expected `inequality_constraints` that some point of the domain satisfies, "
        f"got coefficients {normals.tolist()} of the columns of x, and right-hand "
        f"sides {limits.tolist()}."
    )


def no_volume(normals: Tensor, limits: Tensor) -> InputDataError:
    """The error for constraints that leave a polytope without volume.

    Args:
        normals: The ``m x d`` coefficients of the free columns.
        limits: The ``n x m`` right-hand sides, those of each row.

    Returns:
        The error.
    """
    return InputDataError(
        "Expected `inequality_constraints` that leave some volume of the free columns, "
        f"or a single point, got coefficients {normals.tolist()} of these columns, and "
        f"right-hand sides {limits.tolist()} beside each row of listed values. If one "
        "column follows from others, as the last share of a mixture, leave it out."
    )
