"""Compute the robust optima that the problems store.

Run as ``python -m benchmarks.certify_optima``, in a minute. A dense grid over
``x`` finds the cells in which the worst-case value may be lowest; then a grid around
the best point of each cell shrinks until its spacing is that of floating point numbers.
A smooth minimum, around which rounding hides all differences, is polished to the root
of the derivative. The worst case over ``theta`` is exact. The tests certify the stored
values in another way.
"""

from __future__ import annotations

import torch
from scipy.optimize import brentq, fsolve
from torch import Tensor

from botorch_res.test_functions import (
    DeepDrawing,
    GaussianValleys,
    GrowingSines,
    MotorCatalogue,
    PlateauWithCliff,
    RobustBranin,
    RobustEggholder,
    RobustHartmann3,
    RobustPolynomial,
    RobustTestProblem,
    ShiftedSinusLinear,
    SinusLinear,
    SnapHook,
    SwitchingModes,
    TolerancePolynomial,
    ToleranceRosenbrock,
    ToleranceSinusLinear,
)

POINTS = {1: 1_000_001, 2: 1201}  # along every side, by dimension of x
STARTS = 50


def grid(lower: Tensor, upper: Tensor, num: int) -> Tensor:
    """Lay a grid over boxes.

    Args:
        lower: A ``batch_shape x d`` tensor.
        upper: A ``batch_shape x d`` tensor.
        num: The number of points along every side.

    Returns:
        A ``batch_shape x num^d x d`` tensor.
    """
    axis = torch.linspace(0, 1, num, dtype=lower.dtype)
    unit = torch.cartesian_prod(*[axis] * lower.shape[-1]).reshape(-1, lower.shape[-1])
    return torch.lerp(lower.unsqueeze(-2), upper.unsqueeze(-2), unit)


def robust_optimum(problem: RobustTestProblem) -> tuple[Tensor, Tensor]:
    """Search for the robust optimum of a problem whose worst case is exact.

    Args:
        problem: The problem, to be minimised.

    Returns:
        The ``d_x`` tensor ``x*`` and the worst-case value.
    """
    part = problem.domain.x
    if part.choices is not None:
        values = problem.worst_case_value(part.choices)
        return part.choices[values.argmin()], values.min()
    found = [best_of_row(problem, row) for row in part.rows]
    return min(found, key=lambda pair: float(pair[1]))


def best_of_row(problem: RobustTestProblem, row: Tensor) -> tuple[Tensor, Tensor]:
    """Search the free columns of the settings that have one of the listed rows.

    Args:
        problem: The problem, to be minimised.
        row: The values of the listed columns, which may be none.

    Returns:
        The ``d_x`` tensor with the best worst case, and its value.
    """
    part = problem.domain.x

    def value(free: Tensor) -> Tensor:
        return problem.worst_case_value(part.combine(free, row))

    lower, upper = part.free_bounds
    num = POINTS[len(part.free)]
    points = grid(lower, upper, num)
    values = torch.cat([value(x) for x in points.split(100_000)])
    x = points[values.topk(STARTS, largest=False).indices]
    radius = 10 * (upper - lower) / (num - 1)
    while (radius > 1e-17 * (upper - lower)).all():
        low, high = torch.maximum(x - radius, lower), torch.minimum(x + radius, upper)
        around = torch.cat([x.unsqueeze(-2), grid(low, high, 41)], dim=-2)
        values, best = value(around).min(dim=-1)
        x = around[torch.arange(STARTS), best]
        radius = radius / 2
    return part.combine(x[values.argmin()], row), values.min()


def polished(problem: RobustTestProblem, x: Tensor, theta: Tensor) -> Tensor:
    """Solve for a stationary point in one variable.

    Args:
        problem: The problem.
        x: The approximate minimum, of shape 1.
        theta: The only active worst case, of shape 1.

    Returns:
        The stationary point, of shape 1.
    """

    def slope(value: float) -> float:
        at = x.new_tensor([value]).requires_grad_()
        point = problem.domain.join(at, theta)
        return float(torch.autograd.grad(problem(point), at)[0])

    return x.new_tensor([brentq(slope, float(x) - 1e-4, float(x) + 1e-4, xtol=1e-13)])


def on_the_kink(problem: RobustTestProblem, x: Tensor, thetas: Tensor) -> Tensor:
    """Solve for the best tie of two worst cases of two variables.

    Along a kink the search by shrinking grids stalls before the minimum.

    Args:
        problem: The problem.
        x: The approximate minimum, of shape 2.
        thetas: The two active worst cases.

    Returns:
        The point where they tie and a mean of their gradients is zero.
    """

    def conditions(point: list[float]) -> list[float]:
        at = x.new_tensor(point[:2]).expand(2, 2).clone().requires_grad_()
        values = problem(problem.domain.join(at, thetas))
        first, second = torch.autograd.grad(values.sum(), at)[0]
        slope = point[2] * first + (1 - point[2]) * second
        return [float((values[0] - values[1]).detach()), *slope.tolist()]

    return x.new_tensor(fsolve(conditions, [*x.tolist(), 0.5], xtol=1e-13)[:2])


def main() -> None:
    """Print the optima of all problems that store one."""
    for problem in (
        RobustBranin(),
        SinusLinear(),
        RobustEggholder(),
        RobustHartmann3(),
        RobustPolynomial(),
        DeepDrawing(),
        TolerancePolynomial(),
        ShiftedSinusLinear(),
        GaussianValleys(),
        ToleranceRosenbrock(),
        ToleranceSinusLinear(),
        # All variables of these have the same optimum.
        PlateauWithCliff(dim=1),
        GrowingSines(dim=1),
        SnapHook(),
        SwitchingModes(),
        MotorCatalogue(),
    ):
        x, value = robust_optimum(problem)
        thetas = problem._worst_thetas(x).reshape(-1, problem.domain.theta.dim)
        by_theta = problem(problem.domain.join(x, thetas))
        active = (by_theta > value - 1e-9 * value.abs()).nonzero().squeeze(-1)
        is_listed = problem.domain.theta.is_finite
        if len(active) == 1 and is_listed and problem.domain.x.dim == 1:
            x = polished(problem, x, thetas[active[0]])
            value = problem.worst_case_value(x)
        if len(active) == 2 and len(problem.domain.x.free) == 2:
            x = on_the_kink(problem, x, thetas[active])
            value = problem.worst_case_value(x)
        setting, theta = x.tolist(), thetas[by_theta.argmax()].tolist()
        print(f"{type(problem).__name__}\n    setting = {setting}, theta = {theta}")
        print(f"    _robust_optimal_value = {value.tolist()!r}")
        print(f"    active choices of theta: {thetas[active].tolist()}")


if __name__ == "__main__":
    main()
