import statistics

from benchmarks.report import RESULTS
from benchmarks.tolerances import write_comparison
from benchmarks.units import read_unit, unit_files


def test_the_kept_comparison_is_that_of_the_records(tmp_path):
    folder = RESULTS / "tolerances"
    path = write_comparison(folder, RESULTS / "regret", tmp_path / "new.md")
    assert path.read_text() == (RESULTS / "tolerances.md").read_text()
    lines = path.read_text().splitlines()
    for problem in ("polynomial", "sinus_linear"):
        regret = []
        for file in unit_files(folder / f"{problem}_tolerance"):
            _, records = read_unit(file)
            regret += records[-1]["common_robust_regret"]
        name = problem.replace("_", " ")
        (line,) = [x for x in lines if x.startswith(f"| {name} | with tolerances")]
        assert f"| {len(regret)} |" in line
        assert f"| {statistics.median(regret):.2g} (" in line
