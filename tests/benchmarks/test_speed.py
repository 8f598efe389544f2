import pytest
import torch

from benchmarks.report import markdown_table
from benchmarks.speed import draw_growth, wall
from benchmarks.workload import Size, Work, compare_halves, count, make_work


def test_operations_do_not_grow_with_the_number_of_points():
    few, many = (make_work(Size(t=4, C=2, b=b)) for b in (32, 64))
    few.evaluate()  # makes constants that are kept
    assert count(few.evaluate) == count(many.evaluate) > 100


@pytest.mark.filterwarnings("ignore:The model inputs are of type torch.float32")
def test_work_in_single_precision():
    work = make_work(Size(t=4, C=2, b=4), torch.float)
    (gradient,) = work.evaluate()
    assert gradient.dtype == torch.float
    assert gradient.isfinite().all()


def test_times_are_those_of_the_functions():
    slow, quick = wall(lambda: torch.randn(10**6).sort(), lambda: None, repeats=2)
    assert slow > quick >= 0.0


def test_tables_and_curves(tmp_path):
    assert (
        markdown_table(["a", "b"], [[1, 2.5]])
        == "| a | b |\n| --- | --- |\n| 1 | 2.5 |\n"
    )
    curves = {"t": [(10, 1.0, 1.0), (20, 2.0, 1.5)], "C": [(1, 0.5, 0.5)]}
    draw_growth(curves, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 5_000


def test_steps_are_compared_half_by_half(monkeypatch):
    seconds = {"own": 3.0, "slow": 8.0, "other": 2.0, "base": 4.0}
    monkeypatch.setattr(
        "benchmarks.workload.alternate",
        lambda *halves, repeats: [seconds[half()] for half in halves],
    )
    work = Work(lambda: "own", lambda: "slow")
    base = Work(lambda: "other", lambda: "base")
    assert compare_halves(work, base, repeats=1) == [(3.0, 1.5), (8.0, 2.0)]
