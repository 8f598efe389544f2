"""Figures of benchmarks: times measured in turns, and the files they are kept in."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import botorch
import gpytorch
import torch

RESULTS = Path(__file__).parent / "results"


def alternate(*functions: Callable[[], object], repeats: int) -> list[float]:
    """Median CPU seconds of each function, measured in turns after a warm-up.

    CPU time on one thread: a busy machine slows all of them down alike.

    Args:
        functions: The functions.
        repeats: How often each is called, beside the warm-up.

    Returns:
        The medians.
    """
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats + 1):
        for function, record in zip(functions, times, strict=True):
            start = time.process_time()
            function()
            record.append(time.process_time() - start)
    return [statistics.median(record[1:]) for record in times]


def describe_run() -> str:
    """The date, the versions and the state of the machine."""
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, one thread of {os.cpu_count()} "
        f"{platform.machine()} cores, load average {load}; Python "
        f"{platform.python_version()}, torch {torch.__version__}, BoTorch "
        f"{botorch.__version__}, GPyTorch {gpytorch.__version__}, float64."
    )


def keep_section(path: Path, title: str, name: str, text: str) -> None:
    """Put a section into a file of results, in place of an older one of its name.

    Args:
        path: The Markdown file.
        title: The file's heading and introduction, for a new file.
        name: The section's heading.
        text: The section's text.
    """
    old = path.read_text() if path.exists() else title
    head, *sections = old.split("\n## ")
    kept = {section.split("\n", 1)[0]: section for section in sections}
    kept[name] = f"{name}\n\n{text.strip()}\n"
    path.write_text("\n## ".join([head, *kept.values()]))
