import statistics

import torch

from benchmarks.mixed import PROBLEMS, write_comparison
from benchmarks.protocols import in_levels, protocol
from benchmarks.report import RESULTS
from benchmarks.units import read_unit, unit_files
from botorch_res import RobustDomain
from tests.problems import DOUBLE


def test_the_kept_comparison_is_that_of_the_records(tmp_path):
    folder = RESULTS / "mixed"
    path = write_comparison(folder, tmp_path / "new.md")
    assert path.read_text() == (RESULTS / "mixed.md").read_text()
    lines = path.read_text().splitlines()
    for problem in PROBLEMS:
        seeds = set(range(100))
        for form in (f"{problem}_levels/res", f"{problem}/random"):
            headers = [read_unit(file)[0] for file in unit_files(folder / form)]
            seeds &= {seed for header in headers for seed in header["seeds"]}
        regret = []
        for file in unit_files(folder / problem / "res"):
            header, records = read_unit(file)
            pairs = zip(
                header["seeds"], records[-1]["common_robust_regret"], strict=True
            )
            regret += [value for seed, value in pairs if seed in seeds]
        name = problem.replace("_", " ")
        (line,) = [x for x in lines if x.startswith(f"| {name} | RES, ranges")]
        assert f"| {len(regret)} |" in line
        assert f"| {statistics.median(regret):.2g} (" in line


def test_levels():
    bounds = torch.tensor([[0.0, -2.0, 5.0, 0.0], [1.0, 2.0, 6.0, 3.0]], **DOUBLE)
    rows = [[0.5, 0.0], [1.0, 3.0]]
    domain = RobustDomain(bounds, [2, 1], {(0, 3): rows}, {2: [5.5]}, cat_dims=[3])
    found = in_levels(domain, 5)
    assert found.x.choices.tolist() == rows
    expected = [[5.5, value] for value in (-2.0, -1.0, 0.0, 1.0, 2.0)]
    assert found.theta.choices.tolist() == expected
    assert found.cat_dims == (3,)


def test_the_regret_in_levels_is_that_of_the_problem():
    for name in PROBLEMS:
        plain, levels = (protocol(n).make(0) for n in (name, f"{name}_levels"))
        x = levels.domain.x.sample(20, seed=0)
        assert torch.equal(levels.worst_case_value(x), plain.worst_case_value(x))
        assert levels.domain.x.is_finite
        assert levels.domain.theta.is_finite
        assert levels.robust_optimal_value == plain.robust_optimal_value
