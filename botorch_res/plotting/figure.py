"""What all pictures share: an empty figure, styles, coordinates and broken lines."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORST_COLOR = "#c1272d"
WORST_LABEL = "predicted worst case"
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": "small", "handlelength": 1.6}
LEGEND_ABOVE = LEGEND | {"loc": "outside upper center", "columnspacing": 1.5}
# Marks have no line between them and are whole even at the edge of a panel.
MARKS: dict[str, Any] = {"ls": "none", "clip_on": False}
OPTIMUM = MARKS | {"mec": "black", "zorder": 5}
ROBUST_OPTIMUM = OPTIMUM | {"marker": "*", "color": "white"}
# Screen pixels for an inch in a notebook: fewer than are drawn, for a sharp picture.
SCREEN_DPI = 100
# A worst case that moves by more than this part of the range has jumped.
JUMP = 0.08


def new_figure(width: float, height: float) -> Figure:
    """Make an empty figure that a notebook shows even without pyplot.

    Args:
        width: The width in inches.
        height: The height in inches.

    Returns:
        The figure.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib; install it with the extra `plot`: "
            'pip install "botorch_res[plot]".'
        ) from error
    figure = Figure(figsize=(width, height), dpi=160, layout="constrained")
    figure._repr_png_ = partial(_shown, figure)  # type: ignore[attr-defined]
    return figure


def _shown(figure: Figure) -> tuple[bytes, dict[str, int]]:
    """Draw a figure for a notebook: the picture, and how wide to show it."""
    picture = BytesIO()
    figure.savefig(picture, format="png")
    return picture.getvalue(), {"width": round(SCREEN_DPI * figure.get_figwidth())}


def check_picture(path: Path) -> None:
    """Raise unless a picture could be written, before the work that it shows.

    Args:
        path: The file.
    """
    kinds = new_figure(1, 1).canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in kinds:
        raise InputDataError(
            f"Expected a picture's name to end with one of {', '.join(sorted(kinds))}, "
            f"got {path}."
        )
    if not path.parent.is_dir():
        raise InputDataError(f"There is no folder {path.parent} for {path.name}.")


def broken_at_jumps(x: Tensor, y: Tensor, span: float) -> tuple[Tensor, Tensor]:
    """Break a line where it jumps: there are no points between the ends of a jump.

    Args:
        x: The ``n`` first coordinates.
        y: The ``n`` second coordinates.
        span: The width of the interval in which ``y`` lies.

    Returns:
        Both coordinates, with not-a-number in every gap.
    """
    jumps = (y.diff().abs() > JUMP * span).nonzero().squeeze(-1)
    gap = y.new_tensor([torch.nan])

    def broken(line: Tensor) -> Tensor:
        parts = line.tensor_split(jumps.cpu() + 1)
        return torch.cat([torch.cat([part, gap]) for part in parts]).cpu()

    return broken(x), broken(y)


def equidistant(bounds: Tensor, num: int) -> Tensor:
    """List equidistant values, both bounds among them.

    Args:
        bounds: The smallest and the largest value.
        num: The number of values.

    Returns:
        The ``num`` values.
    """
    steps = torch.linspace(0, 1, num, dtype=bounds.dtype, device=bounds.device)
    return torch.lerp(bounds[0], bounds[1], steps)
