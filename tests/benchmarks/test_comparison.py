"""Statistics against values computed by hand."""

import itertools
import json

import numpy as np
import pytest

from benchmarks.comparison import (
    KINDS,
    Runs,
    holm,
    iterations_to_reach,
    paired_test,
    quartiles,
    read_runs,
)
from benchmarks.regret_figures import colour_of, label, place
from benchmarks.regret_report import (
    compare,
    kind_of,
    spread,
    write_report,
    write_summary,
    write_table,
)

VERSIONS = {"torch": "2.13"}


def make_runs(strategy, regret, seeds=None, problem="branin"):
    regret = np.asarray(regret, dtype=float)
    seconds = np.full(regret.shape, 0.5)
    return Runs(
        problem,
        strategy,
        list(range(len(regret))) if seeds is None else seeds,
        dict.fromkeys(KINDS, regret),
        seconds,
        2 * seconds,
        [{"date": "2026-01-01", "versions": VERSIONS, "machine": "none"}],
    )


def write_unit(folder, problem, strategy, seeds, rows, model="FixedGP"):
    """A file with the regrets ``rows``, one row for each iteration."""
    folder = folder / problem / strategy.replace(":", "-")
    folder.mkdir(parents=True, exist_ok=True)
    header = {"problem": problem, "strategy": strategy, "seeds": seeds}
    header["settings"] = {"model": model}
    header |= {"date": "2026-01-02", "versions": VERSIONS, "machine": "none"}
    lines = [json.dumps(header)]
    for iteration, row in enumerate(rows):
        record = {"iteration": iteration, **dict.fromkeys(KINDS, row)}
        record |= {"fit_seconds": 0.2, "acquisition_seconds": 1.0}
        lines.append(json.dumps(record))
    (folder / f"{seeds[0]:03d}-{seeds[-1]:03d}.jsonl").write_text(
        "\n".join([*lines, ""])
    )


def test_holm_by_hand():
    # Sorted: 0.01 x 4, 0.02 x 3, 0.03 x 2 = 0.06 (as before), 0.9 x 1.
    assert holm([0.03, 0.01, 0.9, 0.02]) == pytest.approx([0.06, 0.04, 0.9, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_wilcoxon_by_enumeration():
    differences = np.array([-1.0, -2.5, 0.5, -4.0, -3.0, 2.0])
    ours = make_runs("res", np.stack([np.zeros(6), 10.0 + differences], axis=1))
    theirs = make_runs("random", np.stack([np.zeros(6), np.full(6, 10.0)], axis=1))
    p_value, median = paired_test(ours, theirs, KINDS[0])
    ranks = np.abs(differences).argsort().argsort() + 1
    # Under the null hypothesis every sign is as likely as the other.
    sums = [
        sum(rank for rank, sign in zip(ranks, signs, strict=True) if sign)
        for signs in itertools.product([False, True], repeat=6)
    ]
    statistic = ranks[differences > 0].sum()
    exact = 2 * np.mean(np.array(sums) <= statistic)
    assert p_value == pytest.approx(exact)
    assert median == -1.75


def test_pairs_are_those_of_common_seeds_and_iterations():
    ours = make_runs("res", [[0, 5], [0, 1], [0, 2]], seeds=[1, 4, 7])
    theirs = make_runs("random", [[0, 2, 9], [0, 1, 9]], seeds=[7, 4])
    assert paired_test(ours, theirs, KINDS[0]) == (1.0, 0.0)


def test_quartiles_and_their_text():
    np.testing.assert_allclose(
        quartiles(np.array([4.0, 1.0, 2.0, 3.0, 5.0])), [2, 3, 4]
    )
    assert spread(np.array([4.0, 1.0, 2.0, 3.0, 5.0])) == "3 (2, 4)"


def test_iterations_to_reach_a_part_of_the_initial_regret():
    regret = np.array([[8.0, 0.5, 3.0, 0.7, 0.9], [10.0, 0.5, 3.0, 0.7, 0.9]])
    # The median is 9, 0.5, 3, 0.7, 0.9: it is below 0.9 first, but does not stay there.
    assert iterations_to_reach(regret, 0.1) == 3
    assert iterations_to_reach(regret, 0.01) is None
    assert iterations_to_reach(regret, 1.0) == 0


def test_units_are_put_together(tmp_path):
    write_unit(tmp_path, "branin", "random", [2, 3], [[1, 2], [3, 4], [5, 6]])
    write_unit(tmp_path, "branin", "random", [0], [[7], [8], [9]])
    write_unit(tmp_path, "branin", "random", [9], [[7], [8]])  # under way
    (tmp_path / "branin" / "random" / "empty.jsonl").touch()
    (runs,) = read_runs(tmp_path)
    assert (runs.seeds, runs.iterations) == ([0, 2, 3], 2)
    np.testing.assert_allclose(runs.regret[KINDS[0]], [[7, 8, 9], [1, 3, 5], [2, 4, 6]])
    # The seconds of a batch are divided among its members.
    np.testing.assert_allclose(runs.acquisition, [[1] * 3, [0.5] * 3, [0.5] * 3])
    np.testing.assert_allclose(runs.seconds, 1.2 * runs.acquisition)


def test_later_seeds():
    runs = make_runs("res", [[0, 5], [0, 1], [0, 2]], seeds=[1, 20, 27])
    fresh = runs.from_seed(20)
    assert fresh.seeds == [20, 27]
    np.testing.assert_allclose(fresh.regret[KINDS[0]], [[0, 1], [0, 2]])
    assert fresh.seconds.shape == fresh.acquisition.shape == (2, 2)


def test_runs_with_different_settings_are_not_mixed(tmp_path):
    write_unit(tmp_path, "branin", "random", [0], [[1], [0.5]])
    write_unit(tmp_path, "eggholder", "random", [0], [[1], [0.5]], model="DefaultGP")
    assert len(read_runs(tmp_path)) == 2
    write_unit(tmp_path, "branin", "thompson", [1], [[1], [0.5]], model="DefaultGP")
    message = r"thompson.001-001.jsonl was made with .*DefaultGP.*random.*FixedGP"
    with pytest.raises(ValueError, match=message):
        read_runs(tmp_path)


def test_runs_are_counted_once(tmp_path):
    write_unit(tmp_path, "branin", "random", [0, 1], [[1, 1], [0.5, 0.5]])
    write_unit(tmp_path, "branin", "random", [1], [[1], [0.5]])
    with pytest.raises(ValueError, match=r"several records of .* \[0, 1, 1\]"):
        read_runs(tmp_path)


def test_table_of_a_problem():
    rng = np.random.default_rng(0)
    good = np.stack([np.full(12, 2.0), rng.uniform(0.001, 0.01, 12)], axis=1)
    runs = [
        make_runs("res:num_samples=1", good),
        make_runs("random", good + np.array([[0.0, 1.0]])),
        make_runs("stable_opt:sqrt_beta=2", good - np.array([[0.0, 1e-4]])),
    ]
    # Twelve differences of one sign: p = 2 / 2^12, for the two peers.
    cells = compare(runs[0], runs, KINDS[0])
    assert cells == ["", f"{4 / 2**12:.2g} +", f"{4 / 2**12:.2g} -"]
    table = write_table(runs).splitlines()
    assert table[0] == "### branin"
    assert table[4].startswith("| RES, C = 1 | 12 | 1 | ")
    assert "| 1 | 1 | 0.5, 0.5 |  |" in table[4]
    assert "| - | - | 0.5, 0.5 |" in table[5]


def test_summary_of_all_problems():
    rng = np.random.default_rng(0)
    good = np.stack([np.full(12, 2.0), rng.uniform(0.001, 0.01, 12)], axis=1)
    swapped = good.copy()  # other seeds are lucky: not to be told apart
    swapped[:, 1] = good[::-1, 1] + 1e-5
    runs = [
        make_runs("random", good + np.array([[0.0, 1.0]])),
        make_runs("res:num_samples=1", good),
        make_runs("stable_opt:sqrt_beta=2", swapped),
        make_runs("thompson", good[:, :1]),  # not finished
    ]
    text = write_summary(runs, "Summary")
    regrets, bad = text.split("\nRuns with a final regret above 0.05:\n")
    *_, search, stable, thompson, random = regrets.splitlines()
    median, high = np.median(good[:, 1]), np.quantile(good[:, 1], 0.9)
    assert search == f"| RES, C = 1 | **{median:.2g} / {high:.2g}** |"
    assert stable.startswith("| StableOpt, √β = 2 | **")
    assert thompson == "| Thompson | - |"
    assert random == f"| random | {1 + median:.2g} / {1 + high:.2g} |"
    *_, search, stable, thompson, random = bad.splitlines()
    assert search == "| RES, C = 1 | 0 of 12 |"
    assert stable == "| StableOpt, √β = 2 | 0 of 12 |"
    assert thompson == "| Thompson | - |"
    assert random == "| random | 12 of 12 |"


def test_bad_runs_are_those_of_the_kind_of_regret_in_the_table():
    for kind, problem in (
        ("common_inference_regret", "within_model"),
        ("common_robust_regret", "branin"),
    ):
        runs = make_runs("random", [[1.0, 0.05]] * 3, problem=problem)
        runs.regret[kind] = np.array([[1.0, 0.05], [1.0, 0.051], [0.01, 3.0]])
        assert (
            write_summary([runs], "Summary").splitlines()[-1] == "| random | 2 of 3 |"
        )


def test_names_for_people():
    assert label("res:num_samples=16") == "RES, C = 16"
    assert label("res:num_samples=1,target=characteristics") == "RES, C = 1 (paper)"
    assert label("stable_opt:sqrt_beta=2") == "StableOpt, √β = 2"
    assert label("random") == "random"
    names = ["random", "res:num_samples=16", "mine", "thompson", "res:num_samples=4"]
    assert sorted(names, key=place) == [
        "res:num_samples=4",
        "res:num_samples=16",
        "thompson",
        "random",
        "mine",
    ]
    assert kind_of("within_model", "own") == "own_inference_regret"
    assert kind_of("branin") == "common_robust_regret"
    colours = colour_of(["res:num_samples=1", "thompson", "joint_entropy_search"])
    assert len(set(colours.values())) == 3


def test_report(tmp_path):
    with pytest.raises(FileNotFoundError, match="no records"):
        write_report(tmp_path, tmp_path / "out")
    records = tmp_path / "regret"
    for problem in ("within_model", "branin", "eggholder", "hartmann3", "polynomial"):
        for strategy in ("res:num_samples=1", "random"):
            write_unit(records, problem, strategy, [0, 1], [[1, 2], [0.5, 0], [0.1, 0]])
    (records / "analysis.md").write_text("## Why\n\nBecause.\n")
    path = write_report(records, tmp_path / "out")
    text = path.read_text()
    assert text.count("### ") == 5
    assert "## Fresh seeds" not in text
    assert "## Less noise" not in text
    write_unit(records, "branin", "random", [20], [[1], [0.5], [0.25]])
    quiet = tmp_path / "less_noise"
    write_unit(quiet, "eggholder", "random", [3], [[1], [0.5], [0.125]])
    fresh = write_report(records, tmp_path / "out").read_text()
    _, section = fresh.split("## Less noise\n\nThe evaluations have no noise")
    assert "| random | **0.12 / 0.12** |" in section.split("##")[0]
    assert "## Default model" not in text
    assert "## Less noise" not in write_report(quiet, tmp_path / "quiet").read_text()
    write_unit(
        tmp_path / "default_model", "branin", "random", [3, 4], [[1, 1], [0.05, 0.06]]
    )
    fresh = write_report(records, tmp_path / "out").read_text()
    _, section = fresh.split("## Default model\n\nThe paper's hyperpar")
    assert "| random | 1 of 2 |" in section.split("##")[0]
    _, section = fresh.split("## Fresh seeds\n\nSeeds from 20 on, which")
    assert "| random | **0.25 / 0.25** |" in section.split("##")[0]
    assert text.index("## Summary") < text.index("## Why") < text.index("## Figures")
    assert "Records from 2026-01-02 to 2026-01-02, on none; torch 2.13." in text
    for name in ("regret", "regret_own", "regret_time"):
        assert (tmp_path / "out" / f"{name}.png").stat().st_size > 10_000
        assert f"![]({name}.png)" in text
