"""The tutorials run, and show what they are to show."""

import re
from pathlib import Path

import nbformat
import pytest

from tutorials.run import FOLDER, NOTEBOOKS, execute

LARGEST = 1_000_000  # bytes
# Where somebody's files are: nothing that a reader should see.
MACHINE_PATH = re.compile(
    r"/(home|root|tmp|usr|work|Users|private)/|[A-Z]:\\|-packages"
)

each_notebook = pytest.mark.parametrize(
    "path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS]
)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def texts(notebook):
    """All that a reader sees, but the pictures."""
    for cell in notebook.cells:
        yield cell.source
    for output in outputs(notebook):
        yield output.get("text", "")
        for kind, content in output.get("data", {}).items():
            if not kind.startswith("image/png"):
                yield content


def complaints(notebook):
    """What is printed to the standard error stream: warnings, above all."""
    return [o.text for o in outputs(notebook) if o.get("name") == "stderr"]


def pictures(notebook):
    return [o for o in outputs(notebook) if "image/png" in o.get("data", {})]


@each_notebook
def test_runs_from_a_clean_kernel(path: Path, tmp_path: Path) -> None:
    # An error in a cell is an error here.
    run = execute(
        path,
        tmp_path,
        {
            "SMOKE_TEST": "1",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            # Nobody's own settings.
            "IPYTHONDIR": str(tmp_path / "ipython"),
            "MPLCONFIGDIR": str(tmp_path / "matplotlib"),
        },
    )
    assert complaints(run) == []
    assert len(pictures(run)) == len(pictures(nbformat.read(path, as_version=4)))


@each_notebook
def test_is_committed_with_its_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    counts = [cell.execution_count for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))
    assert pictures(notebook)
    assert complaints(notebook) == []
    assert [o for o in outputs(notebook) if o.output_type == "error"] == []
    assert [t for t in texts(notebook) if MACHINE_PATH.search(t)] == []
    assert path.stat().st_size < LARGEST


def test_the_list_of_tutorials_is_complete() -> None:
    listed = re.findall(
        r"\]\(([^)]+\.ipynb)\)", (FOLDER / "README.md").read_text(encoding="utf-8")
    )
    assert listed == [path.name for path in NOTEBOOKS]
