"""Robust Branin: how far the plain optimum is from the robust one.

Branin is to be minimised over ``x``; its second variable ``theta`` takes one of 20
values, and nature picks the worst of them. The script compares the ``x`` of the plain
minimum with the ``x`` whose worst case is best, and draws the figure of the README.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from botorch_res.plotting import plot_problem
from botorch_res.test_functions import RobustBranin


def describe(name: str, problem: RobustBranin, point: Tensor) -> None:
    """Print what a point promises and what its ``x`` may cost.

    Args:
        name: The point's name.
        problem: The problem.
        point: The point ``(x, theta)``.
    """
    x, theta = point.tolist()
    print(
        f"  {name}  x = {x:6.3f}, theta = {theta:.2f}: "
        f"promises {problem(point):6.2f}, "
        f"costs {problem.worst_case_value(point[:1]):6.2f} at worst"
    )


def main() -> None:
    """Print the two optima and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", type=Path, default=Path("robust_branin.png"))
    path = parser.parse_args().plot

    problem = RobustBranin()
    x = torch.linspace(-5.0, 10.0, 3001, dtype=torch.double).view(-1, 1, 1)
    points = problem.domain.join(x, problem.theta_choices).flatten(0, 1)
    print(f"Robust Branin, with {len(problem.theta_choices)} values of theta")
    describe("plain optimum ", problem, points[problem(points).argmin()])
    describe("robust optimum", problem, problem.robust_optimizer)
    plot_problem(problem).savefig(path)
    print(f"Picture: {path}")


if __name__ == "__main__":
    main()
