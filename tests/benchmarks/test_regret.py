import itertools
import json
import re
from dataclasses import replace

import pytest
import torch
from distributed import Client, LocalCluster

import benchmarks.__main__
from benchmarks import regret, workers
from benchmarks.__main__ import main, parse_seeds
from benchmarks.protocols import (
    PROTOCOLS,
    Objective,
    Protocol,
    polynomial_points,
    protocol,
)
from benchmarks.regret import in_words, run_unit
from benchmarks.units import (
    Settings,
    Unit,
    build_strategy,
    describe_model,
    locked,
    pack_units,
    parse_strategy,
    plan_units,
    read_unit,
    unit_files,
    unit_folder,
)
from botorch_res.models import BayesianGP, DefaultGP, FixedGP, MaximumLikelihoodGP
from botorch_res.strategies import available_strategies
from botorch_res.test_functions import SinusLinear

QUICK = "num_restarts=2,raw_samples=16"
RES = f"res:num_samples=1,{QUICK}"
IMPROVEMENT = f"expected_improvement:{QUICK}"
PROBLEMS = ("branin", "sinus_linear")
TIMES = ("fit_seconds", "recommendation_seconds", "acquisition_seconds")


def command(folder, strategies=(RES, IMPROVEMENT), iterations=3, seeds="2"):
    arguments = ["regret", "--problems", *PROBLEMS, "--strategies", *strategies]
    arguments += ["--seeds", seeds, "--iterations", str(iterations)]
    return [*arguments, "--folder", str(folder)]


def read_all(folder):
    """All records by file and iteration, without the times."""
    found = {}
    for path in sorted(folder.glob("*/*/*.jsonl")):
        header, records = read_unit(path)
        name = str(path.relative_to(folder))
        assert header["versions"]["torch"] == torch.__version__
        for record in records:
            kept = {key: part for key, part in record.items() if key not in TIMES}
            found[name, record["iteration"]] = kept
    return found


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    assert main(command(folder)) == 0
    return folder


def test_every_iteration_has_a_record(uninterrupted):
    records = read_all(uninterrupted)
    # A batch of two seeds for RES, two units for the other; the initial point counts.
    assert len(records) == 2 * (1 + 2) * 4
    for (name, iteration), record in records.items():
        members = 2 if name.split("/")[1].startswith("res") else 1
        assert record["iteration"] == iteration
        for part in ("points", "values", "recommended", "common_robust_regret"):
            assert len(record[part]) == members
        assert min(record["common_robust_regret"]) >= 0.0


def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(
    uninterrupted, tmp_path, capsys
):
    assert main(command(tmp_path)) == 0
    files = sorted(tmp_path.glob("*/*/*.jsonl"))
    for kept, path in enumerate(files):
        lines = path.read_bytes().splitlines(keepends=True)
        # Header only, some iterations, all of them; and a line that was cut off.
        path.write_bytes(b"".join(lines[: 1 + kept % 5]) + lines[-1][:20] * (kept < 5))
    assert main(command(tmp_path)) == 0
    assert read_all(tmp_path) == read_all(uninterrupted)
    assert "[1/" in capsys.readouterr().err
    # What is finished is left alone, and a longer run goes on from there.
    before = [path.read_bytes() for path in files]
    assert main(command(tmp_path)) == 0
    assert [path.read_bytes() for path in files] == before
    assert main(command(tmp_path, [IMPROVEMENT], iterations=4, seeds="0")) == 0
    assert len(read_unit(files[0])[1]) == 5


def test_records_are_those_of_the_problem(uninterrupted):
    for problem, strategy in itertools.product(PROBLEMS, (RES, IMPROVEMENT)):
        rules = protocol(problem)
        instance = rules.make(0)
        best = instance.robust_optimal_value

        def regrets(z, instance=instance, best=best, rules=rules):
            x, _ = instance.domain.split(z)
            values = instance.worst_case_value(x), instance(z)
            return [(value - best).abs() / rules.scale for value in values]

        for path in unit_files(unit_folder(uninterrupted, problem, strategy)):
            header, records = read_unit(path)
            assert header["optimal_values"][0] == best
            for record in records:
                points = torch.tensor(record["points"], dtype=torch.double)
                values = (instance(points) - rules.offset) / rules.scale
                assert torch.equal(values, values.new_tensor(record["values"]))
                z = torch.tensor(record["recommended"], dtype=torch.double)
                cases = {"common": regrets(z), "own": regrets(points[:, -1])}
                if strategy == RES:
                    del cases["own"]
                for name, (robust, inference) in cases.items():
                    for kind, expected in (
                        ("robust", robust),
                        ("inference", inference),
                    ):
                        found = z.new_tensor(record[f"{name}_{kind}_regret"])
                        torch.testing.assert_close(
                            found, expected, rtol=1e-4, atol=1e-6
                        )


def recommend_again(folder, output, *options):
    arguments = ["recommend", "--folder", str(folder), "--output", str(output)]
    assert main([*arguments, "--problems", "branin", *options]) == 0
    return read_all(output)


def test_recommendations_are_made_anew(uninterrupted, tmp_path):
    """By the same rule they are the same; points and values never change."""
    before = {
        key: record
        for key, record in read_all(uninterrupted).items()
        if key[0].startswith("branin")
    }
    assert recommend_again(uninterrupted, tmp_path / "same") == before
    folder = tmp_path / "other"
    options = ("--num-functions", "2", "--strategies", RES)
    found = recommend_again(uninterrupted, folder, *options)
    assert sorted(found) == sorted(key for key in before if "/res" in key[0])
    assert any(found[key]["recommended"] != before[key]["recommended"] for key in found)
    for key, record in found.items():
        assert record["points"] == before[key]["points"]
    # They can be made anew again, but runs do not go on by another rule.
    header, _ = read_unit(next(folder.glob("*/*/*.jsonl")))
    assert header["settings"]["num_functions"] == 2
    assert len(recommend_again(folder, tmp_path / "third")) == 4
    with pytest.raises(SystemExit):
        main(command(folder, [RES], iterations=4))


def test_packed_units_are_read_and_gone_on_with(tmp_path):
    settings = Settings(iterations=1)
    unit = Unit("sinus_linear", "random", (0,), tmp_path, settings)
    run_unit(unit)
    (unit.path.parent / "008-008.jsonl").touch()
    before = read_unit(unit.path)
    assert pack_units(tmp_path, Settings(iterations=2)) == (0, 2)
    assert pack_units(tmp_path, settings) == (1, 1)
    (path, _) = unit_files(unit.path.parent)
    assert path.suffix == ".gz"
    assert read_unit(path) == before
    plan = ("sinus_linear", "random", [0], tmp_path)
    assert plan_units(*plan, settings) == []
    (longer,) = plan_units(*plan, Settings(iterations=2))
    assert run_unit(longer) == 1
    assert read_unit(unit.path)[1][:2] == before[1]


def test_other_settings_need_another_folder(tmp_path, capsys):
    unit = Unit("sinus_linear", "random", (0,), tmp_path, Settings(iterations=1))
    run_unit(unit)
    noisy = Settings(iterations=1, noise_std=0.1)
    units = [Unit("sinus_linear", "random", (0,), tmp_path, noisy)]
    assert workers.run_units(units) == 1
    assert "FAILED with ValueError" in capsys.readouterr().err
    # Nor are other seeds put beside them.
    # Nor other strategies, which a report would compare with them.
    message = r"000-000.jsonl was made with noise_std 0.0, not 0.1: choose another fol"
    for strategy in ("random", "thompson"):
        with pytest.raises(ValueError, match=message):
            plan_units("sinus_linear", strategy, [1], tmp_path, noisy)


def test_a_first_line_that_was_cut_off_is_written_again(tmp_path):
    unit = Unit("sinus_linear", "random", (0,), tmp_path, Settings(iterations=1))
    run_unit(unit)
    whole = read_all(tmp_path)
    unit.path.write_bytes(unit.path.read_bytes()[:100])
    planned = plan_units("sinus_linear", "random", [0], tmp_path, unit.settings)
    assert planned == [unit]
    assert run_unit(unit) == 2
    assert read_all(tmp_path) == whole


def test_damaged_files_are_named(tmp_path):
    settings = Settings(iterations=2)
    unit = Unit("sinus_linear", "random", (0,), tmp_path, settings)
    run_unit(unit)
    lines = unit.path.read_bytes().splitlines(keepends=True)
    for damaged, message in (
        ([*lines[:2], b'{"iteration": 1, "val\n', lines[3]], "Unterminated string"),
        ([*lines[:2], lines[3]], r"it has the iterations \[0, 2\]"),
    ):
        unit.path.write_bytes(b"".join(damaged))
        with pytest.raises(ValueError, match=f"000-000.jsonl is damaged: .*{message}"):
            plan_units("sinus_linear", "random", [0], tmp_path, settings)
    unit.path.write_bytes(b"".join(lines))
    pack_units(tmp_path, settings)
    (packed,) = unit_files(tmp_path)
    packed.write_bytes(packed.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"000-000.jsonl.gz is damaged: Compressed"):
        run_unit(unit)


def test_a_file_that_was_being_packed_counts_once(tmp_path, monkeypatch):
    settings = Settings(iterations=1)
    unit = Unit("sinus_linear", "random", (0,), tmp_path, settings)
    run_unit(unit)
    before = read_all(tmp_path)
    for pack in (lambda: pack_units(tmp_path, settings), lambda: run_unit(unit)):
        # The process ends before the old file is removed, or before the new one is
        # in its place.
        for name in ("unlink", "replace"):
            with monkeypatch.context() as patch:
                patch.setattr(f"pathlib.Path.{name}", lambda *_: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    pack()
            assert len(unit_files(tmp_path)) == 1
        pack()
        (path,) = unit_files(tmp_path)
        assert len(read_unit(path)[1]) == 2
    assert read_all(tmp_path) == before


def test_a_unit_belongs_to_one_process(tmp_path):
    unit = Unit("sinus_linear", "random", (0,), tmp_path, Settings(iterations=1))
    unit.path.parent.mkdir(parents=True)
    with locked(unit.path), pytest.raises(RuntimeError, match="Another proc"):
        run_unit(unit)


def test_units_of_another_block_are_taken_up(tmp_path):
    settings = Settings(iterations=1)
    plan = ("sinus_linear", "random", list(range(5)), tmp_path, settings)
    assert [unit.seeds for unit in plan_units(*plan, block=3)] == [(0, 1, 2), (3, 4)]
    first = plan_units(*plan, block=2)[1]
    run_unit(first)
    lines = first.path.read_bytes().splitlines(keepends=True)
    first.path.write_bytes(b"".join(lines[:-1]))
    blocks = [unit.seeds for unit in plan_units(*plan, block=3)]
    assert blocks == [(2, 3), (0, 1, 4)]
    run_unit(first)
    assert [unit.seeds for unit in plan_units(*plan, block=3)] == [(0, 1, 4)]
    # A file without a complete first line says nothing.
    (first.path.parent / "009-009.jsonl").write_bytes(b'{"seeds": [0')
    assert [unit.seeds for unit in plan_units(*plan, block=3)] == [(0, 1, 4)]


def test_progress_of_a_long_unit(tmp_path, monkeypatch):
    monkeypatch.setattr(regret, "PROGRESS_INTERVAL", -1.0)
    lines = []
    unit = Unit("sinus_linear", "random", (0,), tmp_path, Settings(iterations=2))
    assert run_unit(unit, lines.append) == 3
    assert len(lines) == 3
    assert lines[-1] == (
        "sinus_linear, random, seeds 0 to 0: 2 of 2 iterations, about 0 s left"
    )


def test_local_processes_and_dask_do_the_same(tmp_path):
    settings = Settings(iterations=1)
    outcomes = []
    for kind in ("inline", "process", "dask"):
        plan = ("sinus_linear", "random", [0, 1], tmp_path / kind, settings)
        units = plan_units(*plan, block=1)
        if kind == "dask":
            with (
                LocalCluster(
                    n_workers=1,
                    threads_per_worker=1,
                    processes=False,
                    dashboard_address=None,
                ) as cluster,
                Client(cluster),
            ):
                failures = workers.run_units(units, dask=cluster.scheduler_address)
        else:
            failures = workers.run_units(units, workers=int(kind == "process"))
        assert failures == 0
        outcomes.append(read_all(tmp_path / kind))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_dask_workers_have_one_thread(tmp_path):
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
        ) as cluster,
        pytest.raises(ValueError, match="one thread each, got 2"),
    ):
        workers.run_units([], dask=cluster.scheduler_address)


def test_estimate_counts_what_is_left(tmp_path, monkeypatch):
    settings = Settings(iterations=3)
    units = [Unit("sinus_linear", "random", (s,), tmp_path, settings) for s in range(3)]
    other = Unit("sinus_linear", "thompson", (0, 1), tmp_path, settings)
    now = [100.0]
    monkeypatch.setattr(workers.time, "monotonic", lambda: now[0])
    estimate = workers.Estimate([*units, other])
    assert estimate.seconds_left() == 0.0
    write_times(units[0], 4, seconds=1.5)
    estimate.finish(units[0])
    now[0] = 110.0
    assert estimate.num_finished == 1
    # 4 iterations took 10 s in all; 16 are left, and none of the other strategy known.
    assert estimate.seconds_left() == pytest.approx(40.0)
    # It is 4 times as slow for each seed; of its 8 iterations 4 are made.
    write_times(other, 2, seconds=12.0)
    assert estimate.seconds_left() == pytest.approx(10.0 * (8 + 16) / (4 + 16))


def write_times(unit, iterations, seconds):
    """The file of a unit, as far as the estimate reads it."""
    unit.path.parent.mkdir(parents=True, exist_ok=True)
    times = dict.fromkeys(TIMES, seconds / len(TIMES))
    lines = [{"seeds": list(unit.seeds)}]
    lines += [{"iteration": iteration, **times} for iteration in range(iterations)]
    unit.path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_noise_depends_on_seed_and_iteration():
    rules = Protocol(lambda seed: SinusLinear(), FixedGP(0.3), noise_std=0.5)
    X = SinusLinear().domain.sample(400, seed=0)
    first, second = (Objective(SinusLinear(), rules, seed) for seed in (0, 1))
    noise = first(X, 3) - SinusLinear()(X)
    assert noise.std() == pytest.approx(0.5, rel=0.15)
    torch.testing.assert_close(first(X, 3), first(X, 3))
    assert not torch.equal(first(X, 3), first(X, 4))
    assert not torch.equal(first(X, 3), second(X, 3))


def test_the_noise_of_the_model_can_be_changed():
    settings = Settings(noise_variance=1e-5)
    changed = settings.apply("branin")
    assert changed.model_factory.noise_variance == 1e-5
    assert changed.scale == protocol("branin").scale
    # That of a model which would infer it, too.
    assert protocol("robot_pushing").model_factory.noise_variance is None
    factory = settings.apply("robot_pushing").model_factory
    assert factory.noise_variance == 1e-5
    # Records from before there was such a setting can be taken up.
    without = "BayesianGP(num_samples=16, num_steps=100, refresh=10, min_noise=1e-06"
    assert describe_model(factory) == f"{without}, noise_variance=1e-05)"
    assert describe_model(protocol("robot_pushing").model_factory) == f"{without})"
    for name in PROTOCOLS:
        factory = protocol(name).model_factory
        if not isinstance(factory, BayesianGP | DefaultGP):
            assert describe_model(factory) == repr(factory)


def test_the_model_can_be_the_default_one(tmp_path, capsys):
    for name in PROTOCOLS:
        changed = Settings(default_model=True, iterations=3).apply(name)
        assert changed.model_factory == DefaultGP()
        assert changed == replace(
            protocol(name), model_factory=DefaultGP(), iterations=3
        )
    # It is another setting, and has a folder of its own.
    arguments = command(tmp_path, strategies=["random"], iterations=0)
    assert main([*arguments, "--default-model"]) == 0
    header, _ = read_unit(next(tmp_path.rglob("*.jsonl")))
    assert header["settings"]["model"].startswith("DefaultGP(")
    with pytest.raises(SystemExit):
        main(arguments)
    message = "was made with model DefaultGP(.*), not MaximumLikelihoodGP(.*): choose"
    assert re.search(message, capsys.readouterr().err)
    both = Settings(default_model=True, noise_variance=1e-5).apply("branin")
    assert both.model_factory == DefaultGP(noise_variance=1e-5)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_protocols(name):
    rules = protocol(name)
    problem = rules.make(0)
    domain = problem.domain
    numbers = {
        "within_model": (1, 50, 50),
        "branin": (1, 50, 50),
        "sinus_linear": (1, 60, 50),
        "eggholder": (1, 80, 50),
        "hartmann3": (1, 50, 100),
        "polynomial": (10, 100, 100),
        "robot_pushing": (2, 100, 30),
        "deep_drawing": (1, 25, 30),
        "polynomial_tolerance": (10, 100, 100),
        "sinus_linear_tolerance": (1, 60, 50),
        "sinus_linear_interval": (1, 60, 50),
        "gaussian_valleys": (5, 40, 10),
        "tolerance_rosenbrock": (5, 40, 10),
        "plateau_with_cliff": (5, 30, 10),
    }.get(name, (5, 25, 10))
    assert (rules.num_initial, rules.iterations, rules.num_seeds) == numbers
    other = rules.make(1).domain
    same = str(domain.theta.choices) == str(other.theta.choices)
    assert same == rules.same_domain
    has_units_of_another = name == "sinus_linear_tolerance"
    if (
        isinstance(rules.model_factory, MaximumLikelihoodGP)
        and not has_units_of_another
    ):
        values = Objective(problem, rules, 0)(domain.sample(2048, seed=5), 0)
        assert values.mean() == pytest.approx(0.0, abs=0.05)
        assert values.std() == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("name", ["polynomial", "sinus_linear"])
def test_forms_with_tolerances_have_the_same_units(name):
    rules, other = protocol(name), protocol(f"{name}_tolerance")
    for field in ("offset", "scale", "num_initial", "iterations", "num_seeds"):
        assert getattr(rules, field) == getattr(other, field)
    assert rules.make(0).robust_optimal_value == other.make(0).robust_optimal_value


@pytest.mark.parametrize("name", ["sinus_linear_tolerance", "sinus_linear_interval"])
def test_regret_with_tolerances_is_that_of_the_recommended_setting(name, tmp_path):
    rules = protocol(name)
    problem = rules.make(0)
    settings = Settings(iterations=2, default_model=True)
    for seeds in ((0,), (0, 1)):
        unit = Unit(name, RES, seeds, tmp_path, settings)
        assert run_unit(unit) == 3
        _, records = read_unit(unit.path)
        X, values = (
            torch.tensor([record[key] for record in records], dtype=torch.double)
            for key in ("points", "values")
        )
        changed = settings.apply(name)
        strategy = build_strategy(unit, Objective(problem, changed, 0))
        for seed in seeds:
            best = strategy.recommend(X[:, seed, 0], values[:, seed])
            worst = problem.worst_case_value(best.x)
            regret = (worst - problem.robust_optimal_value) / rules.scale
            found = records[-1]["common_robust_regret"][seed]
            assert found == pytest.approx(float(regret), rel=1e-2)


@pytest.mark.parametrize("name", ["polynomial", "polynomial_tolerance"])
def test_hyperparameters_of_the_polynomial_are_of_greatest_likelihood(name):
    rules = protocol(name)
    X, Y = polynomial_points(rules.make(0))
    assert len(X) == 500
    assert Y.max() < 15.0
    fixed = rules.model_factory
    bounds = rules.make(0).domain.evaluations.bounds

    def log_likelihood(factor, column):
        unit = (X - bounds[0]) / (bounds[1] - bounds[0])
        scale = torch.tensor(fixed.lengthscale, dtype=torch.double)
        scale[column] *= factor
        distance = torch.cdist(unit / scale, unit / scale).square()
        noise = fixed.noise_variance * torch.eye(len(X), dtype=torch.double)
        covariance = fixed.signal_variance * (-distance / 2).exp() + noise
        values = (Y - rules.offset) / rules.scale
        normal = torch.distributions.MultivariateNormal(
            torch.zeros_like(values), covariance
        )
        return normal.log_prob(values)

    for column in range(len(fixed.lengthscale)):
        best = log_likelihood(1.0, column)
        assert best > log_likelihood(1.05, column)
        assert best > log_likelihood(0.95, column)


def test_names_and_numbers_of_the_command_line():
    assert parse_seeds("3") == [0, 1, 2]
    assert parse_seeds("0") == [0]
    assert parse_seeds("4-6,9,5") == [4, 5, 6, 9]
    assert parse_strategy("res:num_samples=4,x=0.5") == (
        "res",
        {"num_samples": 4, "x": 0.5},
    )
    assert parse_strategy("res:target=optimum")[1] == {"target": "optimum"}
    assert parse_strategy("random")[0] in available_strategies()
    with pytest.raises(ValueError, match="'res:4'"):
        parse_strategy("res:4")
    with pytest.raises(ValueError, match="got 'banana'"):
        protocol("banana")
    assert in_words(30) == "about 30 s"
    assert in_words(90) == "about 1.5 min"
    assert in_words(7200) == "about 2.0 h"
    assert in_words(2 * 86400) == "about 2.0 d"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "5-2"], "--seeds: expected a number of seeds, or .* got '5-2'"),
        (["--seeds", "-3"], "--seeds: expected .* got '-3'"),
        (["--seeds", "few"], "--seeds: expected .* got 'few'"),
        (["--block", "0"], "--block: expected a whole number of at least 1, got '0'"),
        (["--iterations", "-1"], "--iterations: expected a whole .* got '-1'"),
        (["--iterations", "1.5"], "--iterations: expected a whole .* got '1.5'"),
        (["--noise-std", "-1"], "--noise-std: expected a number of at least 0, got"),
        (["--noise-variance", "nan"], "--noise-variance: expected .* got 'nan'"),
        (["--workers", "-1"], "--workers: expected a whole number of at least 0"),
        (["--strategies", "magic"], "'magic'"),
        (
            ["--strategies", "res:magic=1"],
            "'res' to be among .*num_samples.* 'magic'",
        ),
        (["--seeds", "²"], "--seeds: expected .* got '²'"),
        (["--strategies", "res:num_samples=0"], "`num_samples` .* at least 1, got 0"),
    ],
)
def test_wrong_arguments_are_explained(arguments, message, tmp_path, capsys):
    common = ["regret", "--problems", "sinus_linear", "--folder", str(tmp_path)]
    with pytest.raises(SystemExit):
        main([*common, *arguments])
    assert re.search(message, capsys.readouterr().err)
    assert not list(tmp_path.iterdir())


def test_nothing_to_recommend(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(ValueError, match=r"no records in .*empty\.jsonl"):
        regret.recommend_again(tmp_path / "empty.jsonl", tmp_path, Settings())


def test_wrong_folders_are_explained(tmp_path, capsys):
    file = tmp_path / "file"
    file.touch()
    records = tmp_path / "records"
    run_unit(Unit("sinus_linear", "random", (0,), records, Settings(iterations=1)))
    for arguments, message in (
        (["pack", "--folder", str(tmp_path / "none")], "There is no folder .*none"),
        (["report", "--folder", str(file)], "There are no records in .*file"),
        (["report", "--folder", str(records), "--output", str(file)], "'.*file"),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert re.search(message, capsys.readouterr().err)


def test_interruption(tmp_path, capsys, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(benchmarks.__main__, "run_units", interrupt)
    assert main(command(tmp_path, strategies=["random", "random"])) == 130
    assert capsys.readouterr().err.startswith("Interrupted. The same command goes on")


def test_strategies_are_run_once(tmp_path, monkeypatch):
    planned = []

    def keep(units, *where):
        planned.extend(units)
        return 0

    monkeypatch.setattr(benchmarks.__main__, "run_units", keep)
    arguments = [*command(tmp_path, strategies=["random", "random"]), "--block", "1"]
    position = arguments.index("--problems") + 1
    main([*arguments[:position], PROBLEMS[0], *arguments[position:]])
    assert len(planned) == len(set(planned)) == 2 * len(PROBLEMS)


def test_nothing_left_to_do(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = command("records", strategies=["random"], iterations=1)
    assert main(arguments) == 0
    assert capsys.readouterr().out == ""
    assert main(arguments) == 0
    folder = tmp_path / "records"
    assert f"finished: their records are in {folder}." in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["report", "--folder", "elsewhere"])
    assert "There are no records in elsewhere" in capsys.readouterr().err
