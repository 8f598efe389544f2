import statistics

import pytest

from benchmarks.comparison import read_runs
from benchmarks.report import RESULTS
from benchmarks.tolerances import PEERS, STRATEGY, write_comparison
from benchmarks.units import read_unit, unit_files, unit_folder


def test_the_kept_comparison_is_that_of_the_records(tmp_path):
    folder = RESULTS / "tolerances"
    path = write_comparison(folder, RESULTS / "regret", tmp_path / "new.md")
    assert path.read_text() == (RESULTS / "tolerances.md").read_text()
    lines = path.read_text().splitlines()
    for problem in ("polynomial", "sinus_linear"):
        regret = []
        own = unit_folder(folder, f"{problem}_tolerance", STRATEGY)
        for file in unit_files(own):
            _, records = read_unit(file)
            regret += records[-1]["common_robust_regret"]
        name = problem.replace("_", " ")
        (line,) = [x for x in lines if x.startswith(f"| {name} | with tolerances")]
        assert f"| {len(regret)} |" in line
        assert f"| {statistics.median(regret):.2g} (" in line
    rows = [line.split(" | ") for line in lines if line.startswith("| ")]
    rows = {tuple(row[:2]): row for row in rows if row[1] in PEERS.values()}
    for runs in read_runs(folder):
        row = rows["| " + runs.problem.replace("_", " "), PEERS[runs.strategy]]
        assert row[2:4] == [str(runs.iterations), str(len(runs.seeds))]
        last = runs.regret["common_robust_regret"][:, -1].tolist()
        assert row[5].startswith(f"{statistics.median(last):.2g} (")
        seconds = runs.seconds[:, 1:].mean()
        assert float(row[6].rstrip(" |")) == pytest.approx(seconds, rel=0.05)
