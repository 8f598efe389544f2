import functools
import math
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from multiprocessing import get_context, set_forkserver_preload
from pathlib import Path

import pytest
import torch
from botorch.exceptions.errors import InputDataError

from botorch_res import RobustDomain
from botorch_res.study import running
from botorch_res.study.running import (
    LostEvaluationsError,
    RepeatedFailureError,
    process_identity,
)
from botorch_res.study.storage import NOBODY, Storage
from tests.study import study_functions as functions
from tests.study.study_functions import make

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
DOMAIN = RobustDomain(BOUNDS, [1])


def process_pool():
    """Two processes, forked from one that has imported everything once.

    Both are there from the beginning: a pool that breaks while it starts a process may
    wait for that process for ever.
    """
    set_forkserver_preload(["botorch_res.study.running"])
    pool = ProcessPoolExecutor(2, mp_context=get_context("forkserver"))
    wait([pool.submit(time.sleep, 0.2) for _ in range(2)])
    assert len(pool._processes) == 2
    return pool


def states(optimizer):
    return [trial.state for trial in optimizer.trials]


class TestSequential:
    def test_named_parameters(self):
        optimizer = make()
        found = optimizer.run(functions.press, 9, progress=False)
        assert states(optimizer) == ["complete"] * 9
        for trial in optimizer.trials:
            assert trial.value == functions.press(**trial.parameters)
            assert (trial.owner, trial.attempts) == (None, 1)
        assert set(found.x) == {"friction"}

    def test_points_and_noise(self):
        optimizer = make(domain=DOMAIN)
        optimizer.run(functions.point, 5, progress=False)
        for trial in optimizer.trials:
            point = torch.tensor(trial.point, dtype=torch.double)
            assert trial.value == float(functions.point(point))
        optimizer = make()
        optimizer.run(functions.press_with_noise, 3, progress=False)
        assert [t.noise for t in optimizer.trials] == [0.1] * 3

    def test_budget_is_that_of_the_study(self):
        optimizer = make()
        optimizer.run(functions.press, 3, progress=False)
        optimizer.run(functions.press, 5, progress=False)
        optimizer.run(functions.press, 2, progress=False)
        assert len(optimizer.trials) == 5

    def test_same_as_ask_and_tell(self):
        ran, asked = make(strategy="thompson"), make(strategy="thompson")
        ran.run(functions.press, 6, progress=False)
        for _ in range(6):
            trial = asked.ask()
            asked.tell(trial, functions.press(**trial.parameters))
        assert [t.point for t in ran.trials] == [t.point for t in asked.trials]

    def test_failures_are_reported_and_the_study_goes_on(self):
        calls = []

        def moody(friction, force):
            calls.append(friction)
            outcomes = [
                1.0,
                float("nan"),
                "text",
                torch.zeros(3),
                (1.0, -1.0),
                (1, 2, 3),
            ]
            if len(calls) == 7:
                raise ZeroDivisionError("no friction")
            return outcomes[len(calls) - 1] if len(calls) < 7 else 2.0

        optimizer = make()
        optimizer.run(moody, 8, progress=False)
        assert states(optimizer) == ["complete", *["failed"] * 6, "complete"]
        reasons = [t.reason for t in optimizer.trials[1:7]]
        for reason, expected in zip(
            reasons,
            [
                "got nan",
                "got 'text'",
                "got 3 of",
                "got -1.0",
                "got 3 things: (1, 2, 3)",
                "ZeroDivisionError: no",
            ],
            strict=True,
        ):
            assert expected in reason

    def test_stops_when_everything_fails(self):
        optimizer = make()
        with pytest.raises(
            RepeatedFailureError, match=r"4 evaluations .* trial 3, wit"
        ):
            optimizer.run(
                lambda **parameters: 1 / 0, 20, progress=False, max_failures=4
            )
        assert states(optimizer) == ["failed"] * 4
        assert optimizer.trials[0].reason == "ZeroDivisionError: division by zero"

    def test_stops_when_every_value_is_bad(self):
        optimizer = make()
        with pytest.raises(RepeatedFailureError, match=r"3 evaluations .*got nan"):
            optimizer.run(
                lambda **parameters: math.nan, 20, progress=False, max_failures=3
            )
        assert states(optimizer) == ["failed"] * 3

    def test_keyboard_interrupt_gives_the_trial_back(self):
        calls = []

        def interrupted(friction, force):
            calls.append(friction)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return functions.press(friction, force)

        optimizer = make()
        with pytest.raises(KeyboardInterrupt):
            optimizer.run(interrupted, 5, progress=False)
        assert states(optimizer) == ["complete", "complete", "running"]
        assert optimizer.trials[2].owner == NOBODY
        optimizer.run(interrupted, 5, progress=False)
        assert states(optimizer) == ["complete"] * 5
        assert optimizer.trials[2].attempts == 2
        whole = make()
        whole.run(functions.press, 5, progress=False)
        assert [t.point for t in whole.trials] == [t.point for t in optimizer.trials]

    def test_trials_of_the_user_are_left_alone(self):
        optimizer = make()
        mine = optimizer.ask()
        optimizer.run(functions.press, 3, progress=False)
        assert states(optimizer) == ["running", "complete", "complete"]
        optimizer.tell(mine, 1.0)

    def test_a_result_that_somebody_else_has_told(self):
        optimizer = make()

        def told_meanwhile(friction, force):
            optimizer.tell(len(optimizer.trials) - 1, 5.0)
            return 6.0

        with pytest.warns(UserWarning, match=r"trial 0 \(value 6.0.*has the value 5.0"):
            optimizer.run(told_meanwhile, 1, progress=False)
        assert optimizer.trials[0].value == 5.0

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"budget": 0}, InputDataError, "`budget` .* at least 1, got 0"),
            ({"budget": 2.5}, InputDataError, "`budget` .* whole number .* got 2.5"),
            ({"budget": "5"}, InputDataError, "`budget` .* whole number .* got '5'"),
            ({"num_parallel": 0}, InputDataError, "`num_parallel` .* at least 1"),
            ({"max_attempts": 0}, InputDataError, "`max_attempts`"),
            ({"max_failures": 0}, InputDataError, "`max_failures`"),
            ({"function": 3}, InputDataError, "`function` to be callable, got 3"),
            (
                {"function": lambda friction, load: 1.0},
                InputDataError,
                r"force=\.\.\.\), .* signature \(friction, load\): missing",
            ),
            (
                {"function": functions.point},
                InputDataError,
                r"signature \(z\): missing a required argument: 'z'",
            ),
        ],
    )
    def test_bad_arguments(self, arguments, error, message):
        optimizer = make()
        with pytest.raises(error, match=message):
            optimizer.run(**{"function": functions.press, "budget": 2} | arguments)
        assert len(optimizer.trials) == 0

    def test_functions_of_points_take_one_argument(self):
        optimizer = make(domain=DOMAIN)
        with pytest.raises(
            InputDataError, match=r"callable as function\(z\), but .* force"
        ):
            optimizer.run(functions.press, 2, progress=False)
        assert len(optimizer.trials) == 0
        optimizer.run(min, 2, progress=False)  # which does not tell its signature
        for trial in optimizer.trials:
            assert trial.value == min(trial.point)

    def test_functions_that_processes_cannot_get(self):
        optimizer = make()
        with (
            ProcessPoolExecutor(1) as executor,
            pytest.raises(
                InputDataError, match="in a module of its own, and import it"
            ),
        ):
            optimizer.run(lambda friction, force: 1.0, 2, executor, progress=False)
        assert len(optimizer.trials) == 0


class TestLostTrials:
    def test_only_those_of_the_dead_are_repeated(self):
        optimizer = make()
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        host, boot, _, _ = process_identity().split("/")
        alive = process_identity()
        dead = f"{host}/{boot}/{gone.pid}/1"
        rebooted = f"{host}/another-boot/{os.getpid()}/1"
        elsewhere = f"other-{host}/{boot}/{gone.pid}/1"
        for owner in (alive, dead, rebooted, elsewhere, NOBODY, None):
            optimizer.ask_many(1, owner=owner)
        optimizer.run(functions.press, 6, progress=False)
        lost = [t.number for t in optimizer.trials if t.state == "complete"]
        assert lost == [1, 2, 4]
        assert [t.attempts for t in optimizer.trials] == [1, 2, 2, 1, 2, 1]

    def test_a_trial_that_kills_every_time(self):
        optimizer = make()
        optimizer.ask_many(1, owner=NOBODY)
        for _ in range(2):
            optimizer.take_over(optimizer.trials[0], NOBODY)
        optimizer.run(functions.press, 2, progress=False)
        assert states(optimizer) == ["failed", "complete"]
        assert "started 3 times and never ended" in optimizer.trials[0].reason

    def test_somebody_else_was_faster(self, monkeypatch):
        optimizer = make()
        optimizer.ask_many(1, owner=NOBODY)
        monkeypatch.setattr(optimizer, "take_over", lambda *args: None)
        optimizer.run(functions.press, 2, progress=False)
        assert states(optimizer) == ["running", "complete"]

    def test_a_trial_is_taken_over_once(self):
        optimizer = make()
        (trial,) = optimizer.ask_many(1, owner=NOBODY)
        taken = optimizer.take_over(trial, "first")
        assert taken == optimizer.trials[0]
        assert (taken.owner, taken.attempts) == ("first", 2)
        assert optimizer.take_over(trial, "second") is None
        assert optimizer.trials[0] == taken
        optimizer.give_back(taken)
        assert optimizer.trials[0].owner == NOBODY

    def test_without_proc(self, monkeypatch):
        """Where the system says nothing about processes but their numbers."""
        monkeypatch.setattr(running, "_boot_identity", lambda: "")
        monkeypatch.setattr(running, "_start", lambda pid: "")
        host = process_identity().split("/")[0]
        assert running._lives(f"{host}//{os.getpid()}/")
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        assert not running._lives(f"{host}//{gone.pid}/")
        monkeypatch.setattr(
            os, "kill", lambda *args: (_ for _ in ()).throw(PermissionError)
        )
        assert running._lives(f"{host}//{gone.pid}/")
        monkeypatch.setattr(os, "name", "nt")
        assert running._lives(f"{host}//{gone.pid}/")

    def test_boot_identity(self, monkeypatch):
        monkeypatch.setattr(Path, "exists", lambda path: False)
        assert running._boot_identity() == ""

    def test_a_killed_run_is_resumed(self, tmp_path):
        """SIGKILL in the middle of a run; the next one finishes it as if unbroken."""
        path = tmp_path / "study.db"
        script = (
            "import sys; from tests.study import test_running as t;"
            "t.make(sys.argv[1]).run(t.functions.slow_press, 12, progress=False)"
        )
        command = [sys.executable, "-c", script, str(path)]
        process = subprocess.Popen(command, cwd=Path(__file__).parents[1])
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if path.exists() and len(Storage(path).trials()) >= 5:
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        before = make(path).trials
        assert 5 <= len(before) < 12
        make(path).run(functions.press, 12, progress=False)
        after = make(path).trials
        assert states(make(path)) == ["complete"] * 12
        for old, new in zip(before, after, strict=False):
            assert old.point == new.point
            assert old.state == "running" or old == new
        whole = make()
        whole.run(functions.press, 12, progress=False)
        assert [t.point for t in whole.trials] == [t.point for t in after]


class TestExecutors:
    def test_threads_do_not_wait_for_a_slow_one(self):
        release = threading.Event()
        order = []

        def first_is_slow(friction, force):
            if not order:
                order.append("slow")
                assert release.wait(60)
            else:
                order.append("fast")
                if len(order) == 7:
                    release.set()
            return functions.press(friction, force)

        optimizer = make()
        with ThreadPoolExecutor(2) as executor:
            optimizer.run(first_is_slow, 7, executor, progress=False)
        assert states(optimizer) == ["complete"] * 7
        slow, *fast = optimizer.trials
        # The last of them releases the slow one, and both end together.
        assert all(t.finished <= slow.finished for t in fast[:-1])

    def test_number_of_parallel_evaluations(self):
        under_way, most, lock = [0], [0], threading.Lock()

        def counted(friction, force):
            with lock:
                under_way[0] += 1
                most[0] = max(most[0], under_way[0])
            time.sleep(0.02)
            with lock:
                under_way[0] -= 1
            return 1.0

        with ThreadPoolExecutor(4) as executor:
            make().run(counted, 10, executor, progress=False, num_parallel=2)
        assert most[0] <= 2
        assert running.num_workers(running.InlineExecutor()) == 1
        with ThreadPoolExecutor(3) as executor:
            assert running.num_workers(executor) == 3
        assert running.num_workers(Executor()) == os.cpu_count()

    def test_processes(self, tmp_path):
        optimizer = make(tmp_path / "study.db")
        with process_pool() as executor:
            optimizer.run(functions.press, 8, executor, progress=False)
            points = make(domain=DOMAIN)
            points.run(functions.point, 4, executor, progress=False)
        assert states(optimizer) == ["complete"] * 8
        for trial in optimizer.trials:
            assert trial.value == functions.press(**trial.parameters)
        assert states(points) == ["complete"] * 4

    def test_a_process_dies(self, tmp_path):
        function = functools.partial(
            functions.die_once, marker=str(tmp_path / "marker")
        )
        optimizer = make(tmp_path / "study.db")
        optimizer.run(functions.press, 3, progress=False)
        with (
            process_pool() as executor,
            pytest.raises(LostEvaluationsError, match="Run again, with a new executor"),
        ):
            optimizer.run(function, 8, executor, progress=False)
        assert states(optimizer)[:3] == ["complete"] * 3
        assert {t.owner for t in optimizer.trials if t.state == "running"} == {NOBODY}
        with process_pool() as executor:
            optimizer.run(function, 8, executor, progress=False)
        assert states(optimizer) == ["complete"] * 8

    def test_values_are_told_before_a_breakdown_is_reported(self):
        class Fragile(Executor):
            """Two evaluations end at the same time: one lost, one with a value."""

            _max_workers = 2
            lost, good = Future(), Future()

            def submit(self, fn, /, *args, **kwargs):
                if not self.lost.done():
                    self.lost.set_exception(BrokenExecutor("gone"))
                    return self.lost
                if self.good.done():
                    raise BrokenExecutor("gone for good")
                self.good.set_result(fn(*args, **kwargs))
                return self.good

        executor = Fragile()
        optimizer = make()
        with pytest.raises(LostEvaluationsError, match=r"gone\) with 1 evaluation"):
            optimizer.run(functions.press, 9, executor, progress=False)
        assert states(optimizer) == ["running", "complete"]
        with pytest.raises(LostEvaluationsError, match="gone for good"):
            optimizer.run(functions.press, 9, executor, progress=False)
        assert states(optimizer) == ["running", "complete"]
        assert optimizer.trials[0].owner == NOBODY

    def test_finished_values_survive_an_interrupt(self):
        class Interrupting(Executor):
            _max_workers = 2
            count = 0

            def submit(self, fn, /, *args, **kwargs):
                self.count += 1
                if self.count == 2:
                    raise KeyboardInterrupt
                future = Future()
                future.set_result(fn(*args, **kwargs))
                return future

        optimizer = make()
        with pytest.raises(KeyboardInterrupt):
            optimizer.run(functions.press, 9, Interrupting(), progress=False)
        assert states(optimizer) == ["complete", "running"]

    def test_several_loops_share_a_study(self, tmp_path):
        path = tmp_path / "study.db"
        make(path)
        loops = [
            threading.Thread(
                target=lambda: make(path).run(functions.press, 15, progress=False)
            )
            for _ in range(3)
        ]
        for loop in loops:
            loop.start()
        for loop in loops:
            loop.join()
        optimizer = make(path)
        assert states(optimizer) == ["complete"] * 15
        assert [t.number for t in optimizer.trials] == list(range(15))
        assert len({t.point for t in optimizer.trials}) == 15


class TestProgress:
    def test_bar(self, capsys):
        optimizer = make()
        optimizer.run(
            functions.press, 3, progress=lambda o: f"seen {len(o.trials)} of them"
        )
        shown = capsys.readouterr().out
        assert "3/3" in shown
        assert "seen 3 of them" in shown
        optimizer.run(functions.press, 4)
        assert "4/4" in capsys.readouterr().out

    def test_without_rich(self, monkeypatch, capsys):
        monkeypatch.setitem(sys.modules, "rich", None)
        make().run(functions.press, 2)
        assert capsys.readouterr().out == ""
