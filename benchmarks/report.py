"""Figures of benchmarks: times measured in turns, and the files they are kept in."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import botorch
import gpytorch
import torch

RESULTS = Path(__file__).parent / "results"


class Table(NamedTuple):
    """A section that can be measured in pieces, row by row.

    Attributes:
        intro: What the rows are.
        keys: The heads of the columns that say which row it is.
        heads: The heads of the columns that are measured.
        rows: For the cells of each row's keys what measures the others.
    """

    intro: str
    keys: Sequence[str]
    heads: Sequence[str]
    rows: Mapping[tuple[object, ...], Callable[[], Sequence[object]]]


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
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, load average {load}; "
        f"{describe_versions()}"
    )


def describe_versions() -> str:
    """The versions of what is measured, and the kind of machine."""
    return (
        f"One thread of {os.cpu_count()} {platform.machine()} cores; Python "
        f"{platform.python_version()}, torch {torch.__version__}, BoTorch "
        f"{botorch.__version__}, GPyTorch {gpytorch.__version__}, float64."
    )


def markdown_table(heads: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown.

    Args:
        heads: The heads of the columns.
        rows: The cells.

    Returns:
        The table.
    """
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(map(row, lines)) + "\n"


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


def run_sections(
    sections: Mapping[str, Callable[[], Iterable[str] | Table]],
    names: Sequence[str],
    path: Path | None,
    title: str,
) -> None:
    """Run the sections of a benchmark, print them and keep them in a file.

    The rows of a ``Table`` that the file has already are not measured again: a run
    that was interrupted goes on with what is missing. To measure rows anew, delete
    them from the file. Other sections are kept when they are complete.

    Args:
        sections: What makes the lines, or the table, of each section.
        names: The sections to run; all of them if empty.
        path: The Markdown file; nothing is read or kept if ``None``.
        title: The file's heading and introduction, for a new file.
    """
    unknown = sorted(set(names) - set(sections))
    if unknown:
        raise SystemExit(f"expected sections among {list(sections)}, got {unknown}")
    torch.set_num_threads(1)
    for name in names or sections:
        print(f"## {name}\n", flush=True)
        section = sections[name]()
        if isinstance(section, Table):
            fill_table(section, name, path, title)
        else:
            lines = [describe_run(), ""]
            for line in section:
                lines.append(line)
                print(line, flush=True)
            if path is not None:
                keep_section(path, title, name, "\n".join(lines))
        print(flush=True)


def fill_table(table: Table, name: str, path: Path | None, title: str) -> None:
    """Measure the rows of a table that are missing, and keep each at once.

    Args:
        table: The table.
        name: The section's heading.
        path: The Markdown file; nothing is read or kept if ``None``.
        title: The file's heading and introduction, for a new file.
    """
    heads = [*table.keys, *table.heads, "measured, load"]
    known = {} if path is None else read_rows(path, name, heads, len(table.keys))
    lines = [f"{describe_versions()} {table.intro}", "", row(heads)]
    lines.append(row(["---"] * len(heads)))
    for key, measure in table.rows.items():
        cells = tuple(map(str, key))
        if cells not in known:
            stamp = f"{datetime.now(UTC):%Y-%m-%d %H:%M}, {os.getloadavg()[0]:.1f}"
            known[cells] = [*cells, *map(str, measure()), stamp]
            if path is not None:
                # In the table's order, whatever the order of measuring.
                order = [tuple(map(str, key)) for key in table.rows]
                kept = [row(known[cells]) for cells in order if cells in known]
                keep_section(path, title, name, "\n".join(lines + kept))
        print(row(known[cells]), flush=True)


def row(cells: Iterable[object]) -> str:
    """A row of a table in Markdown.

    Args:
        cells: The cells.

    Returns:
        The line.
    """
    return f"| {' | '.join(map(str, cells))} |"


def read_rows(
    path: Path, name: str, heads: Sequence[str], num_keys: int
) -> dict[tuple[str, ...], list[str]]:
    """The rows of a table in a file of results.

    Args:
        path: The Markdown file, which need not exist.
        name: The section's heading.
        heads: The heads of the table; the rows of one with others are not read.
        num_keys: The number of cells that say which row it is.

    Returns:
        The cells of each row, by its keys.
    """
    text = path.read_text() if path.exists() else ""
    found = [part for part in text.split("\n## ") if part.split("\n", 1)[0] == name]
    head = f"\n{row(heads)}\n"
    if not found or head not in found[0]:
        return {}
    _, body = found[0].split(head, 1)
    lines = body.strip().splitlines()[1:]
    cells = [line.strip("|").split("|") for line in lines if line.startswith("|")]
    rows = [[cell.strip() for cell in line] for line in cells]
    return {tuple(line[:num_keys]): line for line in rows}
