from benchmarks import constrained
from benchmarks.constrained import (
    compare_strategies,
    compare_variances,
    count_hits,
    measure,
)


def test_rows_of_the_tables(monkeypatch):
    monkeypatch.setattr(constrained, "NUM_FUNCTIONS", 4)
    monkeypatch.setattr(constrained, "NUM_DATA", 4)
    pairs, feasible, right, near, worst = count_hits(1, "finite", 1)
    assert (pairs, right, near) == ("4", "100.0 %", "100.0 %")
    assert 0 < int(feasible) <= 4
    assert float(worst) < 1e-6
    count, median, _ = compare_variances(None, 0.5, 2)
    assert int(count) >= 2
    assert float(median.removesuffix(" %")) < 10.0
    cells = [float(cell) for cell in measure(1, "finite", 1, 1)]
    assert len(cells) == 5
    assert min(cells) > 0


def test_runs_of_strategies(monkeypatch):
    monkeypatch.setattr(constrained, "NUM_STEPS", 2)
    for name in ("random", "thompson"):
        *cells, feasible = compare_strategies("SwingingObstacle", name, 2)
        assert all(float(cell) >= 0 for cell in cells)
        assert feasible.endswith(" of 2")
