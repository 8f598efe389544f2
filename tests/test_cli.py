import os
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ProcessPoolExecutor

import pytest
from botorch.exceptions.errors import InputDataError
from typer.testing import CliRunner

from botorch_res import RobustOptimizer, cli
from botorch_res.plotting import plot_progress
from botorch_res.study import Choice, Range, tasks
from botorch_res.test_functions import RobustBranin

TOML = """
direction = "maximize"

[parameters.friction]
lower = 0.1
upper = 0.2
log = true

[parameters.force]
values = [200, 300, 350]
unit = "kN"
uncontrollable = true
"""
PRESS = """
import glob, os, time

def simulate(friction, force):
    if os.path.exists("interrupt"):
        os.remove("interrupt")
        raise KeyboardInterrupt
    return 100 * friction - force / 100

def slow(friction, force):
    earlier = len(glob.glob("slow-*"))
    with open(f"slow-{friction}", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600 if earlier >= 3 else 0.5)
    return simulate(friction, force)

def alone(friction):
    return friction

def bracket(material, thickness, supplier):
    assert material in ("steel", "[red] POM") and supplier in ("A", "B")
    return thickness - 0.1 * len(material)

def broken(friction, force):
    raise ZeroDivisionError("no press")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder with a module and its domain."""
    (tmp_path / "press.toml").write_text(TOML)
    (tmp_path / "press_module.py").write_text(PRESS)
    (tmp_path / "faulty_module.py").write_text("def simulate(:")
    (tmp_path / "needy_module.py").write_text("import no_such_module")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    yield tmp_path
    sys.modules.pop("press_module", None)


def call(*arguments):
    result = CliRunner().invoke(cli.build_app(), list(arguments))
    unexpected = result.exception
    if unexpected is not None and not isinstance(unexpected, SystemExit):
        raise unexpected
    return result


RANDOM = ("--strategy", "random", "--seed", "1")
PRESS_RUN = ("run", "press_module:simulate", "--domain", "press.toml", *RANDOM)


class TestRun:
    def test_built_in_problem_with_a_picture(self, folder):
        result = call("run", "branin", "--iterations", "5", *RANDOM, "--plot", "b.png")
        assert result.exit_code == 0
        assert "5/5" in result.output
        assert "at worst" in result.output  # the recommendation beside the bar
        assert "for the smallest worst case:\n  x1 = " in result.output
        assert (folder / "b.png").read_bytes().startswith(b"\x89PNG")

    def test_function_of_the_user_is_resumed(self, folder):
        arguments = (*PRESS_RUN, "--storage", "press.db")
        assert call(*arguments, "--iterations", "3").exit_code == 0
        result = call(*arguments, "--iterations", "6")
        assert result.exit_code == 0
        assert "largest worst case:\n  friction = " in result.output
        trials = RobustOptimizer.open("press.db").trials
        assert len(trials) == 6
        for trial in trials:
            assert trial.value == pytest.approx(
                100 * trial.parameters["friction"] - trial.parameters["force"] / 100
            )

    def test_stops_early(self, folder):
        rule = "regret < 1e9 with 50 %"
        arguments = (*PRESS_RUN, "--storage", "press.db", "--iterations", "30")
        result = call(*arguments, "--stop", rule)
        assert result.exit_code == 0
        assert "Regret: " in result.output
        assert " on average, at most " in result.output
        optimizer = RobustOptimizer.open("press.db")
        assert optimizer.num_told == optimizer.num_initial

    def test_several_processes(self, folder):
        """Ctrl-C ends them all at once, and the rest is done later."""
        arguments = ("run", "press_module:slow", "--domain", "press.toml", *RANDOM)
        arguments += ("--storage", "press.db", "--iterations", "6")
        script = "from botorch_res.cli import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments, "--processes", "2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # a terminal's Ctrl-C reaches the whole group
            # Tests that run in the background ignore Ctrl-C, and so would this.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        deadline = time.monotonic() + 120
        # The first evaluations are quick, the fourth and later ones are not.
        while len(list(folder.glob("slow-*"))) < 5 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=30)
        assert process.returncode == 130, output
        assert "Go on with the same command:" in output
        assert "Traceback" not in output
        trials = RobustOptimizer.open("press.db").trials
        assert [t.state for t in trials] == ["complete"] * 3 + ["running"] * 2
        workers = {path.read_text() for path in folder.glob("slow-*")}
        assert len(workers) == 2
        assert str(os.getpid()) not in workers
        for path in folder.glob("slow-*"):
            path.unlink()
        assert call(*arguments).exit_code == 0
        states = [t.state for t in RobustOptimizer.open("press.db").trials]
        assert states == ["complete"] * 6

    def test_processes_are_spawned(self):
        with cli._executor(2) as pool:
            assert isinstance(pool, ProcessPoolExecutor)
            assert pool._max_workers == 2
            assert pool._mp_context.get_start_method() == "spawn"
        with cli._executor(1) as nothing:
            assert nothing is None

    def test_interrupt_says_how_to_resume(self, folder, monkeypatch):
        (folder / "interrupt").touch()
        arguments = (*PRESS_RUN, "--storage", "press.db", "--iterations", "3")
        monkeypatch.setattr(sys, "argv", ["botorch-res", *arguments])
        result = call(*arguments)
        assert result.exit_code == 130
        output = " ".join(result.output.split())
        assert "The study is in press.db. Go on with the same command:" in output
        assert shlex.join(["botorch-res", *arguments]) in output
        assert [t.state for t in RobustOptimizer.open("press.db").trials] == ["running"]
        assert call(*arguments).exit_code == 0
        states = [t.state for t in RobustOptimizer.open("press.db").trials]
        assert states == ["complete"] * 3

    def test_interrupt_without_storage(self, folder):
        (folder / "interrupt").touch()
        result = call(*PRESS_RUN)
        assert result.exit_code == 130
        assert "use --storage FILE" in result.output

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("run", "magic"), "built-in problem (branin"),
            (("run", "branin", "--domain", "press.toml"), "has its own domain"),
            (("run", "press_module:simulate"), "needs a domain: --domain"),
            (
                ("run", "nothing:simulate", "--domain", "press.toml"),
                "no module 'nothing' for nothing:simulate. Run the command in the fol",
            ),
            (
                ("run", "faulty_module:simulate", "--domain", "press.toml"),
                "'faulty_module' cannot be imported: SyntaxError: invalid syntax",
            ),
            (
                ("run", "needy_module:simulate", "--domain", "press.toml"),
                "cannot be imported: ModuleNotFoundError: No module named 'no_such",
            ),
            (
                ("run", "press_module:simulat", "--domain", "press.toml"),
                "press_module.py. Is it simulate?",
            ),
            (
                ("run", "press_module:nothing", "--domain", "press.toml"),
                "There is no function 'nothing' in",
            ),
            (
                ("run", "press_module:broken", "--domain", "press.toml", *RANDOM),
                "10 evaluations in a row have failed",
            ),
            (
                ("run", "press_module:alone", "--domain", "press.toml"),
                "but it has the signature (friction): got an unexpected keyword argu",
            ),
            (("run", "branin", "--strategy", "magic"), "got 'magic'"),
            (("run", "branin", "--stop", "soon"), "with 95 %', or a function"),
            (
                ("run", "branin", "--plot", "no/b.png"),
                "There is no folder no for b.png",
            ),
            (("run", "branin", "--plot", "b.foo"), "got b.foo"),
            (("run", "branin", "--storage", "no/b.db"), "Does its folder exist"),
            (("show", "missing.db"), "There is no study at missing.db"),
            (("plot", "missing.db"), "There is no study at missing.db"),
        ],
    )
    def test_errors(self, folder, arguments, message):
        result = call(*arguments)
        assert result.exit_code == 1
        # Long paths are broken anywhere.
        assert "".join(message.split()) in "".join(result.output.split())
        assert "Traceback" not in result.output

    @pytest.mark.parametrize(
        "arguments",
        [
            ("run", "press_module:alone", "--domain", "press.toml"),
            ("run", "press_module:simulate", "--domain", "press.toml", "--strategy=x"),
        ],
    )
    def test_refused_runs_leave_no_file(self, folder, arguments):
        before = set(folder.glob("*.db"))
        assert call(*arguments, "--storage", "press.db").exit_code == 1
        assert set(folder.glob("*.db")) == before == set()

    def test_another_domain(self, folder):
        storage = ("--storage", "press.db", "--iterations", "1")
        assert call(*PRESS_RUN, *storage).exit_code == 0
        (folder / "press.toml").write_text(TOML.replace("upper = 0.2", "upper = 0.3"))
        result = call(*PRESS_RUN, *storage)
        assert result.exit_code == 1
        output = " ".join(result.output.split())
        assert "The study in press.db has another domain" in output
        assert "To go on with this one, describe it as before" in output


class TestShowAndPlot:
    def test_show(self, folder):
        call(*PRESS_RUN, "--storage", "press.db", "--iterations", "4")
        result = call("show", "press.db", "--csv", "press.csv", "--diagnostics")
        assert result.exit_code == 0
        assert "Recommendation, for the largest worst case" in result.output
        assert "variance explained" in " ".join(result.output.split())
        assert result.output.count("complete") >= 4
        assert len((folder / "press.csv").read_text().splitlines()) == 5
        assert "variance" not in call("show", "press.db").output
        # Every digit is there, in a narrow terminal too, and no empty column.
        for trial in RobustOptimizer.open("press.db").trials:
            assert f"{trial.parameters['friction']:.6g}" in result.output
            assert f"{trial.value:.6g}" in result.output
        assert "noise" not in result.output
        assert "reason" not in result.output
        result = call("show", "press.db", "--csv", "no/press.csv")
        assert result.exit_code == 1
        assert "No such file or directory: 'no/press.csv'" in result.output

    def test_tolerance(self, folder):
        """The trials are what was evaluated, the recommendation what to set."""
        (folder / "sloppy.toml").write_text(
            'direction = "minimize"\n[parameters.friction]\nlower = 1\nupper = 2\n'
            'unit = "mm"\ntolerance = [-0.3, 0.1]\nevaluate = [0.8, 2.0]\n'
        )
        run = ["run", "press_module:alone", "--domain", "sloppy.toml", "--seed", "0"]
        call(*run, "--iterations", "3", "--storage", "press.db", "--plot", "press.png")
        assert (folder / "press.png").stat().st_size > 10_000
        optimizer = RobustOptimizer.open("press.db")
        best = optimizer.recommend()
        text = call("show", "press.db").output
        assert str(best) in text
        assert f"set friction = {best.x['friction']:.6g}: worst case" in text
        values = [trial.parameters["friction"] for trial in optimizer.trials]
        assert all(0.8 <= value <= 2.0 for value in values)
        for value in values:
            assert f"{value:.6g}" in text

    def test_names(self, folder):
        """Names are names in the run, the table, the CSV file and the pictures."""
        (folder / "bracket.toml").write_text(
            'direction = "minimize"\n'
            '[parameters.material]\nvalues = ["steel", "[red] POM"]\n'
            "[parameters.thickness]\nlower = 1\nupper = 3\n"
            '[parameters.supplier]\nvalues = ["A", "B"]\nuncontrollable = true\n'
        )
        run = ("run", "press_module:bracket", "--domain", "bracket.toml", *RANDOM)
        result = call(*run, "--iterations", "8", "--storage", "bracket.db")
        assert result.exit_code == 0
        assert "material = [red] POM, thickness = 1: 0." in result.output
        result = call("show", "bracket.db", "--csv", "bracket.csv")
        assert str(RobustOptimizer.open("bracket.db").recommend()) in result.output
        rows = (folder / "bracket.csv").read_text().splitlines()
        names = [row.split(",")[2] for row in rows]
        assert names[0] == "material"
        assert sorted(set(names[1:])) == ["[red] POM", "steel"]
        assert all(name in result.output for name in names)
        (folder / "bracket.toml").write_text(
            (folder / "bracket.toml").read_text().replace("steel", "brass")
        )
        result = call(*run, "--storage", "bracket.db")
        assert result.exit_code == 1
        assert "material in {steel, [red] POM}" in " ".join(result.output.split())

    def test_show_without_values(self, folder):
        space, maximize = tasks.read_domain(folder / "press.toml")
        optimizer = RobustOptimizer(space, maximize=maximize, storage="press.db")
        optimizer.fail(optimizer.ask(), "[red]broke")
        assert cli._current_best(optimizer) == "no value yet"
        result = call("show", "press.db")
        assert result.exit_code == 0
        assert "failed" in result.output
        assert "Recommendation" not in result.output

    def test_show_equal_values(self, folder):
        space, maximize = tasks.read_domain(folder / "press.toml")
        optimizer = RobustOptimizer(space, maximize=maximize, storage="press.db")
        for _ in range(2):
            optimizer.tell(optimizer.ask(), 3.0)
            output = call("show", "press.db", "--diagnostics").output
            assert "all the same: nothing to predict yet" in " ".join(output.split())

    def test_plot(self, folder):
        call(*PRESS_RUN, "--storage", "press.db", "--iterations", "4")
        assert call("plot", "press.db").exit_code == 0
        assert (folder / "press.png").exists()

    def test_plot_with_the_regret(self, folder, monkeypatch):
        drawn = []

        def spy(optimizer, problem=None):
            drawn.append(problem)
            return plot_progress(optimizer, problem)

        monkeypatch.setattr(cli, "plot_study", spy)
        call("run", "branin", "--iterations", "3", *RANDOM, "--storage", "b.db")
        arguments = ("plot", "b.db", "--output", "b.pdf")
        assert call(*arguments, "--problem", "branin").exit_code == 0
        assert call(*arguments).exit_code == 0
        assert isinstance(drawn[0], RobustBranin)
        assert drawn[1] is None
        assert (folder / "b.pdf").exists()
        result = call(*arguments, "--problem", "eggholder")
        assert result.exit_code == 1
        assert "Expected a study of RobustEggholder" in " ".join(result.output.split())


class TestHelp:
    def test_teaches_by_example(self):
        result = call("--help")
        assert result.exit_code == 0
        for line in cli.HELP.splitlines():
            if line.startswith("    "):
                assert line.strip() in result.output
        assert "--iterations" in call("run", "--help").output

    def test_its_domain_file_works(self, tmp_path):
        example = cli.HELP.split("who controls what:")[1].split("Further keys")[0]
        path = tmp_path / "press.toml"
        path.write_text(textwrap.dedent(example))
        space, maximize = tasks.read_domain(path)
        assert not maximize
        assert space.x_names == ["friction"]
        assert space.theta_names == ["force"]

    def test_without_the_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "typer", None)
        with pytest.raises(SystemExit, match=r"botorch_res\[cli\]"):
            cli.main([])

    def test_main(self, capsys):
        with pytest.raises(SystemExit) as end:
            cli.main(["--help"])
        assert end.value.code == 0
        assert capsys.readouterr().out.startswith("Usage: botorch-res ")


class TestTasks:
    def test_built_in_problems(self):
        problems = tasks.built_in_problems()
        assert problems["branin"] is RobustBranin
        assert len(problems) == 18
        task = tasks.load_task("Branin", None)
        assert not task.maximize

    def test_toml(self, tmp_path):
        path = tmp_path / "domain.toml"
        path.write_text(
            'direction = "minimize"\n'
            "[parameters]\n"
            "layers = {lower = 1, upper = 4, integer = true}\n"
            "size = {lower = 0.5, upper = 2.5, levels = 5}\n"
            "load = {lower = 1.0, upper = 9.0, uncontrollable = true, log = true}\n"
        )
        space, maximize = tasks.read_domain(path)
        assert not maximize
        layers, size, load = space.parameters
        assert size.values == (0.5, 1.0, 1.5, 2.0, 2.5)
        assert len(space.domain.x.choices) == 20
        assert layers.integer
        assert layers.values == (1.0, 2.0, 3.0, 4.0)
        assert (load.log, load.uncontrollable, load.values) == (True, True, None)

    def test_toml_with_names_beside_a_range(self, tmp_path):
        path = tmp_path / "domain.toml"
        path.write_text(
            'direction = "maximize"\n'
            "[parameters]\n"
            'material = {values = ["steel", "POM"]}\n'
            "thickness = {lower = 0.5, upper = 2.5}\n"
            'speed = {lower = 1, upper = 9, log = true, tolerance = "*1.05"}\n'
        )
        space, _ = tasks.read_domain(path)
        assert space.parameters == (
            Choice("material", ["steel", "POM"]),
            Range("thickness", 0.5, 2.5),
            Range("speed", 1, 9, log=True, tolerance="5%"),
        )

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (
                'direction = "minimize"\n[parameters.a]\nvalues = ["A", 2]',
                r"'a' to be all numbers or all names, got \['A', 2\]",
            ),
            ('direction = "minimize"\n[parameters.a]\nvalues = "A"', "got 'A'"),
            ("direction = ", "is not a TOML file"),
            ("[parameters]", "got direction = None"),
            ('direction = "down"', "got direction = 'down'"),
            ('direction = "minimize"\nextra = 1', r"keys \['direction', 'extra'\]"),
            ('direction = "minimize"', "at least one uncontrollable"),
            (
                'direction = "minimize"\n[parameters.a]\nlower = 1',
                r"\[parameters.a\] to have either `values`, .* it lacks 'upper'",
            ),
            (
                'direction = "minimize"\n[parameters.a]\nvalues = [1, 2]\nlevels = 3',
                "it has no use for 'levels'",
            ),
            (
                'direction = "minimize"\n[parameters.a]\nvalues = [1, 2]\n'
                "integer = true",
                "it lacks 'lower', 'upper'",
            ),
            (
                'direction = "minimize"\n[parameters.a]\nlower = 1\nupper = 2\n'
                "levels = 2\ninteger = true",
                "it has no use for 'levels'",
            ),
            (
                'direction = "minimize"\n[parameters.a]\nlower = 1\nupper = 2\n'
                "integer = 1",
                "`integer` is 1",
            ),
            ('direction = "minimize"\n[parameters]\na = 3', "it is 3"),
            ('direction = "minimize"\nparameters = 3', "got parameters = 3"),
            (
                'direction = "minimize"\n[parameters.a]\nvalues = [1, 2]\nslow = 1',
                "it has no use for 'slow'",
            ),
            (
                'direction = "minimize"\n'
                "[parameters.a]\nvalues = [1, 2]\nlower = 1\nupper = 2",
                "it has no use for 'lower', 'upper'",
            ),
        ],
    )
    def test_bad_files(self, tmp_path, content, message):
        path = tmp_path / "domain.toml"
        path.write_text(content)
        with pytest.raises(InputDataError, match=message):
            tasks.read_domain(path)

    def test_missing_file(self, tmp_path):
        with pytest.raises(InputDataError, match="Cannot read the domain file"):
            tasks.read_domain(tmp_path / "missing.toml")
