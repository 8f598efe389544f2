"""Run the notebooks from a clean kernel, and keep what they print and draw.

``python -m tutorials.run`` runs all of them in full, in place; names select some.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
# No cell of a tutorial should take longer (in seconds).
CELL_TIMEOUT = 600


def execute(
    path: Path, folder: Path, variables: Mapping[str, str]
) -> nbformat.NotebookNode:
    """Run a notebook with this copy of the package.

    Args:
        path: The notebook.
        folder: The folder in which it runs.
        variables: Environment variables to add to those of this process.

    Returns:
        The notebook with its outputs.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    root = str(FOLDER.parent.resolve())
    client.execute(env={**os.environ, "PYTHONPATH": root, **variables})
    # The kernel's version and the like say nothing about the tutorial.
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {
                "display_name": "Python 3",
                "language": "python",
                "name": "python3",
            },
            "language_info": {"name": "python"},
        }
    )
    return notebook


def main() -> None:
    """Run notebooks in full, in place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="*", type=Path, default=NOTEBOOKS)
    for path in parser.parse_args().notebooks:
        start = time.perf_counter()
        # The numbers of a run depend on the number of threads.
        nbformat.write(execute(path, FOLDER, {"OMP_NUM_THREADS": "1"}), path)
        print(f"{path.name}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
