r"""The loop of a study: keep an executor busy, and lose no evaluation.

The loop is asynchronous: whenever an evaluation ends, its value is told and the next
point is asked for, while the others go on. Every running trial names its owner, the
process that runs the loop. A process that dies cannot give its trials back, but the
next loop sees that their owner is gone and evaluates them again.
"""

from __future__ import annotations

import inspect
import os
import pickle
import socket
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from botorch.exceptions.errors import InputDataError

from botorch_res.study.observations import check_noise, check_value
from botorch_res.study.space import ParameterSpace
from botorch_res.study.stopping import StoppingRule
from botorch_res.study.storage import NOBODY, RUNNING, Trial

if TYPE_CHECKING:
    from botorch_res.study.optimizer import RobustOptimizer

# How an executor says that it will never know the outcome.
_LOST = (BrokenExecutor, CancelledError)


class LostEvaluationsError(RuntimeError):
    """The executor broke down with evaluations under way; run again to repeat them."""


class RepeatedFailureError(RuntimeError):
    """Many evaluations in a row have failed; the function seems to be at fault."""


@dataclass
class StudyLoop:
    """A running loop.

    Attributes:
        optimizer: The study.
        function: The function; see ``RobustOptimizer.run``.
        executor: What evaluates it.
        max_attempts: How often to start the evaluation of one trial.
        max_failures: The number of failures in a row after which to stop.
        stop: Tells whether to stop before the budget is spent.
        owner: The name of this process.
        under_way: The trials that are being evaluated.
        failures: The number of failures in a row so far.
    """

    optimizer: RobustOptimizer
    function: Callable[..., Any]
    executor: Executor
    max_attempts: int
    max_failures: int
    stop: StoppingRule | None = None
    owner: str = field(default_factory=lambda: process_identity())
    under_way: dict[Future[Any], Trial] = field(default_factory=dict)
    failures: int = 0

    def run(self, budget: int, parallel: int, advance: Callable[[], None]) -> None:
        """Evaluate trials until the study has as many as the budget allows.

        Args:
            budget: The number of trials of the whole study.
            parallel: The number of evaluations under way at the same time.
            advance: Called after every evaluation.
        """
        lost = self._lost_trials()
        taken: Trial | None = None
        try:
            while True:
                while len(self.under_way) < parallel:
                    taken = next(lost, None) or self._ask(budget)
                    if taken is None:
                        break
                    self.under_way[self._submit(taken)] = taken
                    taken = None
                if not self.under_way:
                    return
                done, _ = wait(self.under_way, return_when=FIRST_COMPLETED)
                # Values first: a broken executor ends the loop.
                for future in sorted(done, key=_is_lost):
                    self._settle(future)
                    advance()
        except BrokenExecutor as error:
            raise self._breakdown(error) from error
        finally:
            # Whatever ended the loop: what has a value is told, the rest given back.
            self.max_failures = sys.maxsize
            for future, trial in list(self.under_way.items()):
                future.cancel()
                if future.done() and not _is_lost(future) and not future.exception():
                    self._settle(future)
                self.optimizer.give_back(trial)
            if taken is not None:
                self.optimizer.give_back(taken)

    def _ask(self, budget: int) -> Trial | None:
        """The next new trial, or ``None`` if there is to be none."""
        if self.stop is not None and self.stop(self.optimizer):
            return None
        trials = self.optimizer.ask_many(1, owner=self.owner, limit=budget)
        return trials[0] if trials else None

    def _lost_trials(self) -> Iterator[Trial]:
        """The trials whose owner is gone, each taken over when it is its turn."""
        for trial in self.optimizer.trials:
            if trial.state != RUNNING or trial.owner is None or _lives(trial.owner):
                continue
            taken = self.optimizer.take_over(trial, self.owner)
            if taken is None:
                continue
            if trial.attempts < self.max_attempts:
                yield taken
                continue
            self.optimizer.fail(
                trial,
                f"its evaluation was started {trial.attempts} times and never ended",
            )

    def _submit(self, trial: Trial) -> Future[Any]:
        """Start the evaluation of a trial."""
        arguments: Any = trial.parameters if self.optimizer.space.named else trial.point
        # The number and the attempt make every task different: an executor that
        # remembers results, as Dask's does, must not answer from memory.
        task = (trial.number, trial.attempts)
        return self.executor.submit(evaluate, self.function, arguments, task)

    def _settle(self, future: Future[Any]) -> None:
        """Store the outcome of an evaluation, which is under way until then."""
        trial = self.under_way[future]
        try:
            value, noise = _value_and_noise(future.result(), trial)
        except _LOST as error:
            raise self._breakdown(error) from error
        except Exception as error:
            del self.under_way[future]
            reason = f"{type(error).__name__}: {error}"
            self._store(trial, reason, self.optimizer.fail, reason)
            self.failures += 1
            if self.failures >= self.max_failures:
                raise RepeatedFailureError(
                    f"{self.failures} evaluations in a row have failed, the last one, "
                    f"trial {trial.number}, with {reason}"
                ) from error
        else:
            del self.under_way[future]
            self._store(trial, f"value {value}", self.optimizer.tell, value, noise)
            self.failures = 0

    def _breakdown(self, error: BaseException) -> LostEvaluationsError:
        """The error that says what to do when the executor is gone."""
        return LostEvaluationsError(
            f"The executor broke down ({type(error).__name__}: {error}) with "
            f"{len(self.under_way)} evaluation(s) under way. Nothing that was told is "
            "lost. Run again, with a new executor, to repeat them."
        )

    def _store(
        self, trial: Trial, outcome: str, store: Callable[..., Trial], *contents: Any
    ) -> None:
        """Store an outcome, or warn that the storage refuses it."""
        try:
            store(trial, *contents)
        except InputDataError as error:
            warnings.warn(
                f"The result of trial {trial.number} ({outcome}) could not be stored: "
                f"{error}",
                stacklevel=2,
            )


def _is_lost(future: Future[Any]) -> bool:
    """Whether the outcome of an evaluation that is over will never be known."""
    return future.cancelled() or isinstance(future.exception(), _LOST)


def check_function(
    space: ParameterSpace, function: Callable[..., Any], executor: Executor | None
) -> None:
    """Raise if a function cannot be evaluated anywhere, before a trial is spent.

    Args:
        space: The parameters.
        function: The function.
        executor: What will evaluate it, or ``None``.
    """
    if not callable(function):
        raise InputDataError(f"Expected `function` to be callable, got {function!r}.")
    names = [parameter.name for parameter in space.parameters]
    try:
        signature = inspect.signature(function)
    except ValueError:  # Some functions written in C do not tell.
        signature = None
    if signature is not None:
        try:
            if space.named:
                signature.bind(**dict.fromkeys(names))
            else:
                signature.bind(None)
        except TypeError as error:
            call = ", ".join(f"{name}=..." for name in names)
            raise InputDataError(
                "Expected `function` to be callable as "
                f"function({call if space.named else 'z'}), but it has the "
                f"signature {signature}: {error}."
            ) from error
    if isinstance(executor, ProcessPoolExecutor):
        try:
            pickle.dumps(function)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputDataError(
                "Expected `function` to be one that other processes can import, got "
                f"{function!r} ({error}). Define it with `def` in a module of its own, "
                "and import it."
            ) from error


def _value_and_noise(result: Any, trial: Trial) -> tuple[float, float | None]:
    """What a function returned, checked."""
    if not isinstance(result, tuple):
        result = (result, None)
    if len(result) != 2:
        raise InputDataError(
            "Expected the function to return the value, or the value and the standard "
            f"deviation of its noise, got {len(result)} things: {result!r}."
        )
    value, noise = result
    return check_value(value, f"of trial {trial.number}"), check_noise(noise)


def evaluate(
    function: Callable[..., Any],
    arguments: Mapping[str, float] | tuple[float, ...],
    task: tuple[int, int],
) -> Any:
    """Evaluate the user's function; runs in the worker.

    Args:
        function: The function.
        arguments: Its keyword arguments, or the coordinates of a point.
        task: Makes the call different from all others.

    Returns:
        What the function returns, with tensors of one element as floats.
    """
    if isinstance(arguments, Mapping):
        result = function(**arguments)
    else:
        result = function(torch.tensor(arguments, dtype=torch.double))
    return tuple(map(_plain, result)) if isinstance(result, tuple) else _plain(result)


def _plain(result: Any) -> Any:
    """A tensor of one element as a float, anything else as it is."""
    is_one = isinstance(result, torch.Tensor) and result.numel() == 1
    return result.item() if is_one else result


class InlineExecutor(Executor):
    """Evaluates at once, in this thread."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function and wrap its outcome."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def process_identity() -> str:
    """Host, start of the machine, number and start of this process.

    The number alone is not enough: after a reboot another process may have it.
    """
    pid = os.getpid()
    return "/".join([socket.gethostname(), _boot_identity(), str(pid), _start(pid)])


def _lives(owner: str) -> bool:
    """Whether an owner may still be at work; true if that cannot be known."""
    if owner == NOBODY:
        return False
    host, boot, pid, start = owner.split("/")
    if host != socket.gethostname():
        return True
    if boot != _boot_identity():
        return False
    if start:
        return start == _start(int(pid))
    if os.name != "posix":
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # Somebody else's process.
        return True
    return True


def _boot_identity() -> str:
    """What tells this start of the machine from others, where Linux says so."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def _start(pid: int) -> str:
    """When a process started, where Linux says so; empty if it is gone."""
    try:
        content = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The name, in brackets, may contain blanks. A zombie does no work.
    state, *fields = content.rpartition(")")[2].split()
    return "" if state in "ZX" else fields[18]


def num_workers(executor: Executor) -> int:
    """Count the evaluations that an executor can do at the same time.

    Args:
        executor: The executor.

    Returns:
        Their number.
    """
    if isinstance(executor, InlineExecutor):
        return 1
    workers = getattr(executor, "_max_workers", None)
    if workers is None and hasattr(executor, "_client"):  # Dask's
        workers = sum(executor._client.nthreads().values())
    return workers or os.cpu_count() or 1


@contextmanager
def progress_bar(
    optimizer: RobustOptimizer,
    budget: int,
    progress: bool | Callable[[RobustOptimizer], str],
) -> Iterator[Callable[[], None]]:
    """Show a progress bar, if that is wanted and possible.

    Args:
        optimizer: The study.
        budget: The number of trials of the whole study.
        progress: Whether to show a bar, or a function that gives its text.

    Yields:
        The function that advances the bar.
    """
    try:
        from rich import progress as rich_progress
    except ImportError:
        progress = False
    if progress is False:
        yield lambda: None
        return

    def completed() -> int:
        return sum(trial.state != RUNNING for trial in optimizer.trials)

    with rich_progress.Progress(
        *rich_progress.Progress.get_default_columns()[:2],
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TextColumn("{task.fields[text]}", markup=False),
    ) as bar:
        task = bar.add_task("Trials", total=budget, completed=completed(), text="")

        def advance() -> None:
            text = progress(optimizer) if callable(progress) else ""
            bar.update(task, completed=completed(), text=text)

        yield advance
