"""Pictures of problems and studies, drawn with matplotlib (the extra ``plot``).

Every function returns a ``Figure`` that belongs to the caller: no state of pyplot and
no default of matplotlib is touched. ``figure.savefig(path)`` writes it to a file, and
a notebook shows it.
"""

from botorch_res.plotting.problem import plot_problem
from botorch_res.plotting.study import (
    plot_acquisition,
    plot_posterior,
    plot_progress,
    plot_study,
    plot_worst_case,
)

__all__ = [
    "plot_acquisition",
    "plot_posterior",
    "plot_problem",
    "plot_progress",
    "plot_study",
    "plot_worst_case",
]
