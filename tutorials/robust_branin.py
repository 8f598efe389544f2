"""Robust Branin: how far the plain optimum is from the robust one.

Branin is to be minimised over ``x``; its second variable ``theta`` takes one of 20
values, and nature picks the worst of them. The script compares the ``x`` of the plain
minimum with the ``x`` whose worst case is best, and draws the figure of the README.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from botorch_res import RobustDomain

WORST, PLAIN, ROBUST = "#c1272d", "#f5a623", "#ffffff"


def branin(z: Tensor) -> Tensor:
    """Evaluate Branin.

    Args:
        z: A ``batch_shape x 2`` tensor of points ``(x, theta)``.

    Returns:
        The ``batch_shape`` values.
    """
    x, theta = z.unbind(-1)
    ridge = theta - 5.1 / (4 * math.pi**2) * x.square() + 5 / math.pi * x - 6
    return ridge.square() + 10 * (1 - 1 / (8 * math.pi)) * x.cos() + 10


def main() -> None:
    """Solve the problem by brute force, print the result and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", type=Path, default=Path("robust_branin.png"))
    path = parser.parse_args().plot

    bounds = torch.tensor([[-5.0, 0.75], [10.0, 14.25]], dtype=torch.double)
    thetas = torch.linspace(0.75, 14.25, 20, dtype=torch.double).unsqueeze(-1)
    xs = torch.linspace(-5.0, 10.0, 3001, dtype=torch.double).unsqueeze(-1)
    domain = RobustDomain(bounds, [1], x_choices=xs, theta_choices=thetas)

    points = domain.all_pairs()
    values = branin(points)
    worst_values, worst_index = values.max(dim=-1)
    robust = worst_values.argmin()
    plain, plain_theta = divmod(int(values.argmin()), len(thetas))

    print(f"Robust Branin: {len(xs)} x {len(thetas)} points (x, theta)")
    for name, i, value in (
        ("plain optimum ", plain, values[plain, plain_theta]),
        ("robust optimum", int(robust), worst_values[robust]),
    ):
        print(
            f"  {name}  x = {xs[i, 0]:6.3f}   promises {value:7.2f}   "
            f"worst case {worst_values[i]:7.2f} (at theta = "
            f"{thetas[worst_index[i], 0]:.2f})"
        )
    draw(points, values, plain, plain_theta, path)
    print(f"Picture: {path}")


def draw(
    points: Tensor, values: Tensor, plain: int, plain_theta: int, path: Path
) -> None:
    """Draw the surface, the worst case of every ``x`` and the two optima.

    Args:
        points: The ``n_x x n_theta x 2`` points.
        values: Their ``n_x x n_theta`` values.
        plain: The index of the plain optimum's ``x``.
        plain_theta: The index of the plain optimum's ``theta``.
        path: The picture's file.
    """
    x, theta = points.unbind(-1)
    worst, index = values.max(dim=-1)
    worst_theta = theta.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    robust = int(worst.argmin())
    # A line across a jump of the worst case would show points that are none.
    jump = worst_theta.diff(prepend=worst_theta[:1]).abs() > 1.0
    line = worst_theta.masked_fill(jump, math.nan)

    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(6.4, 5.4), sharex=True, height_ratios=[1.15, 1], dpi=160
    )
    levels = torch.linspace(0, 200, 21).tolist()
    image = top.contourf(x, theta, values, levels=levels, cmap="viridis", extend="max")
    top.plot(
        x[:, 0], line, color=WORST, lw=4, clip_on=False, label="worst theta of each x"
    )
    top.set_ylabel("theta (uncontrollable)")
    top.margins(0)

    bottom.plot(x[:, 0], worst, color=WORST, lw=2)
    bottom.plot(x[:, 0], values.amin(-1), color="0.6", lw=1.5)
    bottom.text(-4.2, 212, "worst case", color=WORST)
    bottom.text(7.2, 30, "best case", color="0.45")
    bottom.set(ylim=(-8, 250), xlabel="x (controllable)", ylabel="f(x, theta)")

    for name, i, theta_i, marker, color in (
        ("plain", plain, theta[plain, plain_theta], {"marker": "o", "ms": 11}, PLAIN),
        ("robust", robust, worst_theta[robust], {"marker": "*", "ms": 16}, ROBUST),
    ):
        style = marker | {"color": color, "mec": "black", "ls": "none"}
        top.plot(
            x[i, 0], theta_i, label=f"{name} optimum", clip_on=False, zorder=5, **style
        )
        bottom.axvline(x[i, 0], color="0.85", lw=1, zorder=0)
        bottom.plot(x[i, 0], worst[i], zorder=5, **style)
        bottom.annotate(
            f"{name}: {worst[i]:.0f} at worst",
            (x[i, 0], worst[i]),
            textcoords="offset points",
            xytext=(10, -14),
        )
    for axes in (top, bottom):
        axes.spines[["top", "right"]].set_visible(False)
    top.legend(loc="upper center", ncols=3, bbox_to_anchor=(0.5, 1.22), frameon=False)
    figure.colorbar(image, ax=(top, bottom), label="f(x, theta)", fraction=0.04)
    figure.savefig(path, bbox_inches="tight")


if __name__ == "__main__":
    main()
