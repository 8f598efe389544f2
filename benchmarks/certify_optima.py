"""Compute the robust optima that the problems store.

Run as ``python -m benchmarks.certify_optima``, in two minutes. A dense grid over
``x`` finds the cells in which the worst-case value may be lowest; then a grid around
the best point of each cell shrinks until its spacing is that of floating point numbers.
A smooth minimum, around which rounding hides all differences, is polished to the root
of the derivative. Under constraints, the conditions of optimality are solved for the
worst cases that are active at the best point of the grid. The worst case over ``theta``
is exact. The tests certify the stored values in another way.
"""

from __future__ import annotations

from typing import Any

import torch
from scipy.optimize import brentq, fsolve, minimize
from torch import Tensor

from botorch_res.test_functions import (
    Cantilever,
    ConstrainedPolynomial,
    DeepDrawing,
    GaussianValleys,
    GrowingSines,
    MotorCatalogue,
    PlateauWithCliff,
    RobustBranin,
    RobustEggholder,
    RobustHartmann3,
    RobustIslands,
    RobustPolynomial,
    RobustTestProblem,
    ShiftedSinusLinear,
    SinusLinear,
    SnapHook,
    SwingingObstacle,
    SwitchingModes,
    TolerancePolynomial,
    ToleranceRosenbrock,
    ToleranceSinusLinear,
    WeldedBeam,
    WorstCaseConstraints,
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


def under_constraints(problem: Any) -> tuple[Tensor, Tensor]:
    """Solve the conditions of optimality under constraints.

    Args:
        problem: A problem with constraints, to be minimised.

    Returns:
        The ``d_x`` tensor ``x*`` and the worst-case value.
    """
    domain = problem.domain
    points = grid(*domain.x.bounds, POINTS[domain.x.dim])
    best, value = points[0], torch.inf
    for part in points.split(100_000):
        met = (problem.worst_case_slack(part) >= 0).all(dim=-1)
        values = torch.where(met, problem.worst_case_value(part), torch.inf)
        if values.min() < value:
            best, value = part[values.argmin()], float(values.min())
    thetas = problem._worst_thetas(best).reshape(-1, domain.theta.dim)
    others = problem._worst_slack_thetas(best).reshape(-1, domain.theta.dim)

    def objective(x: Tensor) -> Tensor:
        values: Tensor = problem(domain.join(x.expand(len(thetas), -1), thetas))
        return values

    def slack(x: Tensor) -> Tensor:
        values: Tensor = problem.evaluate_slack(
            domain.join(x.expand(len(others), -1), others)
        )
        return values.flatten()

    start = [*best.tolist(), value]
    rough = minimize(
        lambda w: w[-1],
        start,
        bounds=[*domain.x.bounds.T.tolist(), (None, None)],
        constraints=[
            {
                "type": "ineq",
                "fun": lambda w: w[-1] - objective(best.new_tensor(w[:-1])),
            },
            {"type": "ineq", "fun": lambda w: slack(best.new_tensor(w[:-1]))},
        ],
        method="SLSQP",
        options={"ftol": 1e-14},
    ).x
    x = best.new_tensor(rough[:-1])
    active = objective(x) > rough[-1] - 1e-6
    tight = slack(x) < 1e-6
    counts = [int(active.sum()), int(tight.sum())]

    def conditions(point: list[float]) -> list[float]:
        at = best.new_tensor(point[: len(x)]).requires_grad_()
        level, *weights = best.new_tensor(point[len(x) :])
        own, below = objective(at)[active], slack(at)[tight]
        factor = torch.stack(weights)
        both = torch.cat([own, -below])
        slope = torch.autograd.grad(both @ factor, at)[0]
        total = factor[: counts[0]].sum() - 1.0
        return [*(own - level).tolist(), *below.tolist(), float(total), *slope.tolist()]

    first = [1.0 / counts[0]] * counts[0] + [0.1] * counts[1]
    found = fsolve(conditions, [*rough, *first], xtol=1e-12)
    x = best.new_tensor(found[: len(x)])
    print(
        "    multipliers:", found[len(x) + 1 :], "slacks:", problem.worst_case_slack(x)
    )
    return x, problem.worst_case_value(x)


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
        ConstrainedPolynomial(),
        WeldedBeam(),
        Cantilever(),
        RobustIslands(),
        SwingingObstacle(),
    ):
        is_constrained = isinstance(problem, WorstCaseConstraints)
        solve = under_constraints if is_constrained else robust_optimum
        x, value = solve(problem)
        thetas = problem._worst_thetas(x).reshape(-1, problem.domain.theta.dim)
        by_theta = problem(problem.domain.join(x, thetas))
        active = (by_theta > value - 1e-9 * value.abs()).nonzero().squeeze(-1)
        is_listed = problem.domain.theta.is_finite and not is_constrained
        if len(active) == 1 and is_listed and problem.domain.x.dim == 1:
            x = polished(problem, x, thetas[active[0]])
            value = problem.worst_case_value(x)
        kinks = len(active) == 2 and len(problem.domain.x.free) == 2
        if kinks and not is_constrained:
            x = on_the_kink(problem, x, thetas[active])
            value = problem.worst_case_value(x)
        setting, theta = x.tolist(), thetas[by_theta.argmax()].tolist()
        print(f"{type(problem).__name__}\n    setting = {setting}, theta = {theta}")
        print(f"    _robust_optimal_value = {value.tolist()!r}")
        print(f"    active choices of theta: {thetas[active].tolist()}")


if __name__ == "__main__":
    main()
