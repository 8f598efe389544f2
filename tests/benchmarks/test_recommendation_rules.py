import statistics

from benchmarks.recommendation import write_comparison
from benchmarks.report import RESULTS
from benchmarks.units import read_unit, unit_files


def test_the_kept_comparison_is_that_of_the_records(tmp_path):
    folder = RESULTS / "recommendation"
    path = write_comparison(folder, RESULTS / "regret", tmp_path / "new.md")
    assert path.read_text() == (RESULTS / "recommendation.md").read_text()
    regret = []
    for file in unit_files(folder / "within_model" / "res-num_samples=16"):
        header, records = read_unit(file)
        assert header["settings"]["num_functions"] == 16
        regret += records[30]["common_robust_regret"]
    (line,) = [
        x
        for x in path.read_text().splitlines()
        if x.startswith(f"| within model | res | {len(regret)} | 30 |")
    ]
    assert f"| {statistics.median(regret):.2g} (" in line
