r"""The command line: ``botorch-res run``, ``show`` and ``plot`` (the extra ``cli``).

botorch-res run branin --iterations 20 --storage branin.db --plot branin.png
botorch-res run press:simulate --domain press.toml --storage press.db
botorch-res show press.db
"""

# Without postponed evaluation of annotations: typer reads them, and is imported late.
import math
import shlex
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import torch
from botorch.exceptions.errors import BotorchError

from botorch_res.models.diagnostics import LeaveOneOut
from botorch_res.plotting import plot_study
from botorch_res.plotting.figure import check_picture
from botorch_res.strategies import available_strategies
from botorch_res.study import RobustOptimizer
from botorch_res.study.running import (
    LostEvaluationsError,
    RepeatedFailureError,
    check_function,
)
from botorch_res.study.stopping import find_rule
from botorch_res.study.tasks import load_task
from botorch_res.study.trials import cell_text

# What a user can put right, told without a traceback.
_EXPECTED_ERRORS = (
    BotorchError,
    ImportError,
    LostEvaluationsError,
    OSError,
    RepeatedFailureError,
    ValueError,
)

HELP = """Find the setting whose worst case is best, in few experiments.

Try a built-in problem, with a picture:

    botorch-res run branin --iterations 20 --plot branin.png

Optimise a function of your own, simulate(friction, force) in press.py:

    botorch-res run press:simulate --domain press.toml --storage press.db

where press.toml says who controls what:

    direction = "minimize"

    [parameters.friction]
    lower = 0.1
    upper = 0.2

    [parameters.force]
    values = [200, 300, 350]
    unit = "kN"
    uncontrollable = true

Further keys of a range: log = true, integer = true, or a number of levels, such as
levels = 101. A list can also be of names: values = ["steel", "aluminium", "POM"].
Ranges, whole numbers and lists may stand beside each other.

A parameter that you set, but not exactly, has a tolerance = 0.1, or [-0.1, 0.05]; on a
logarithmic scale "5%" or "*1.05". The function gets what comes out, and the
recommendation says what to set.

Stop it with Ctrl-C at any time; the same command goes on where it stopped. Then:

    botorch-res show press.db

    botorch-res plot press.db --output press.png
"""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line.

    Args:
        arguments: The arguments; those of the process if ``None``.
    """
    try:
        app = build_app()
    except ImportError as error:
        sys.exit(
            f"The command line needs typer and rich ({error}). Install the extra "
            '`cli`: pip install "botorch_res[cli]".'
        )
    # With tensors this small a second thread costs more time than it saves.
    torch.set_num_threads(1)
    app(args=arguments, prog_name="botorch-res")


def build_app() -> Any:
    """Build the command line; needs typer and rich.

    Returns:
        The typer application.
    """
    import typer
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    app = typer.Typer(
        help=HELP.replace("\n\n    ", "\n\n\b\n    "),
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    console = Console()

    @contextmanager
    def errors_in_words() -> Iterator[None]:
        try:
            yield
        except _EXPECTED_ERRORS as error:
            Console(stderr=True).print(f"[red]Error:[/red] {escape(str(error))}")
            raise typer.Exit(1) from error

    def show_recommendation(optimizer: RobustOptimizer) -> None:
        direction = "largest" if optimizer.maximize else "smallest"
        console.print(f"Recommendation, for the {direction} worst case:")
        text = escape(str(optimizer.recommend()))
        console.print(f"  {text}", highlight=False, soft_wrap=True)

    @app.command()
    def run(
        problem: Annotated[
            str,
            typer.Argument(
                help="A built-in problem such as 'branin', or module:function."
            ),
        ],
        iterations: Annotated[
            int, typer.Option(min=1, help="Trials of the whole study.")
        ] = 20,
        storage: Annotated[
            Path | None,
            typer.Option(help="The file of the study. Without one nothing is kept."),
        ] = None,
        domain: Annotated[
            Path | None, typer.Option(help="The domain of module:function, in TOML.")
        ] = None,
        plot: Annotated[
            Path | None, typer.Option(help="Draw the study into this file at the end.")
        ] = None,
        strategy: Annotated[
            str | None,
            typer.Option(help=f"One of {', '.join(available_strategies())}."),
        ] = None,
        seed: Annotated[
            int | None, typer.Option(help="Makes the suggestions reproducible.")
        ] = None,
        processes: Annotated[
            int,
            typer.Option(
                min=1, help="Evaluations at the same time, each in a process."
            ),
        ] = 1,
        stop: Annotated[
            str | None,
            typer.Option(
                help="Stop earlier, such as 'regret < 0.01 with 95 %', in the unit "
                "of the values."
            ),
        ] = None,
    ) -> None:
        """Optimise a built-in problem or a function of your own.

        The same command continues an interrupted study; with more --iterations it goes
        on with a finished one.

        botorch-res run branin --iterations 20 --plot branin.png

        botorch-res run press:simulate --domain press.toml --storage press.db
        """
        try:
            with errors_in_words():
                if plot is not None:
                    check_picture(plot)
                find_rule(stop)
                task = load_task(problem, domain)
                with _executor(processes) as executor:
                    # A function that cannot be evaluated must not leave a file behind.
                    check_function(task.space, task.function, executor)
                    optimizer = RobustOptimizer(
                        task.space,
                        maximize=task.maximize,
                        storage=storage,
                        strategy=strategy,
                        seed=seed,
                    )
                    optimizer.run(
                        task.function,
                        iterations,
                        executor,
                        progress=_current_best,
                        stop=stop,
                    )
                show_recommendation(optimizer)
                if stop is not None:
                    regret = optimizer.recommend().regret
                    console.print(f"Regret: {regret}", highlight=False)
                if plot is not None:
                    plot_study(optimizer, task.problem).savefig(plot)
                    console.print(f"Picture in {escape(str(plot))}", highlight=False)
        except KeyboardInterrupt:
            kept = (
                "Nothing was kept; use --storage FILE to keep a study."
                if storage is None
                else f"The study is in {storage}. Go on with the same command:\n  "
                f"{shlex.join(['botorch-res', *sys.argv[1:]])}"
            )
            console.print(f"\nInterrupted. {escape(kept)}", highlight=False)
            raise typer.Exit(130) from None

    @app.command()
    def show(
        study: Annotated[Path, typer.Argument(help="The file of the study.")],
        csv: Annotated[
            Path | None, typer.Option(help="Also write the trials to this CSV file.")
        ] = None,
        diagnostics: Annotated[
            bool, typer.Option(help="Also say how well the model predicts.")
        ] = False,
    ) -> None:
        """Print the recommendation and the trials of a study."""
        with errors_in_words():
            optimizer = RobustOptimizer.open(study)
            trials = optimizer.trials
            rows = trials.rows()
            labels = {p.name: p.label() for p in optimizer.space.parameters}
            names = ["number", "state", *labels, "value", "origin"]
            names += [k for k in ("noise", "reason") if any(row[k] for row in rows)]
            table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
            for name in names:
                table.add_column(escape(labels.get(name, name)), overflow="fold")
            for row in rows:
                table.add_row(*(escape(cell_text(row[name])) for name in names))
            console.print(table)
            if optimizer.num_told:
                show_recommendation(optimizer)
                if diagnostics:
                    console.print(
                        _diagnosis(optimizer.leave_one_out()), highlight=False
                    )
            if csv is not None:
                trials.to_csv(csv)

    @app.command()
    def plot(
        study: Annotated[Path, typer.Argument(help="The file of the study.")],
        output: Annotated[
            Path | None,
            typer.Option(help="The picture; beside the study if not given."),
        ] = None,
        problem: Annotated[
            str | None,
            typer.Option(
                help="The built-in problem of the study, to draw its true regret."
            ),
        ] = None,
    ) -> None:
        """Draw a study: prediction, information gain, worst case and progress."""
        with errors_in_words():
            path = study.with_suffix(".png") if output is None else output
            check_picture(path)
            truth = None if problem is None else load_task(problem, None).problem
            plot_study(RobustOptimizer.open(study), truth).savefig(path)
        console.print(f"Picture in {escape(str(path))}", highlight=False)

    return app


def _executor(processes: int) -> Any:
    """Processes, or nothing where one is enough.

    They are spawned: a copy of a process with several threads, such as torch's, may
    hang. On Ctrl-C they end at once, in silence; their trials are repeated later.
    """
    if processes == 1:
        return nullcontext()
    return ProcessPoolExecutor(
        processes,
        mp_context=get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_DFL),
    )


def _current_best(optimizer: RobustOptimizer) -> str:
    """The recommendation in a few words, for the progress bar."""
    if not optimizer.num_told:
        return "no value yet"
    best = optimizer.recommend()
    values = ", ".join(f"{k} = {cell_text(v, 4)}" for k, v in best.x.items())
    return f"{values}: {best.value:.4g} at worst"


def _diagnosis(found: LeaveOneOut) -> str:
    """How well the model predicts, in words."""
    if len(found.observed) == 1 or math.isnan(found.explained):
        return "The values are all the same: nothing to predict yet."
    return (
        f"Each value predicted from all the others: {found.explained:.0%} of the "
        f"variance explained, {found.coverage:.0%} inside their 95 % interval, log "
        f"score {found.log_score:.3g}."
    )
