r"""Trials on disk: an SQLite file that survives crashes and serves several processes.

A trial is written before ``ask`` returns and its value before ``tell`` returns. The
file uses SQLite's rollback journal with ``synchronous=EXTRA``, so that what has been
committed is on the disk itself, also if the machine loses power a moment later, and
all of it is in one file that can be copied (a write-ahead log would be a second one).
Every operation is one transaction on a connection of its own; nothing is shared between
threads or inherited by forked processes.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from botorch.exceptions.errors import InputDataError

from botorch_res.study.schema import migrate

RUNNING, COMPLETE, FAILED = "running", "complete", "failed"
# The owner of a running trial that was given back.
NOBODY = ""

# Seconds to wait for another process's transaction.
_TIMEOUT = 60.0
# What SQLite says of a file, and what it means for a study.
_FILE_ERRORS = {
    "not a database": "is not the file of a study",
    "malformed": "is damaged. Go on with a backup; `sqlite3 FILE .recover` may save "
    "what is readable",
    "readonly": "cannot be written. A study needs that even to be read: copy it to a "
    "folder of yours",
    "locked": f"has been locked by another program for {_TIMEOUT:.0f} s. Close it",
}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One evaluation: asked for, under way, and told or failed.

    Attributes:
        number: The number, counted from 0.
        state: ``"running"``, ``"complete"`` or ``"failed"``.
        point: The ``d`` coordinates in the domain.
        value: The observed value, once told.
        noise: The standard deviation of the value's noise, if it was told.
        reason: Why the trial failed.
        seed: The seed with which the point was chosen.
        origin: What chose the point: ``"initial"``, ``"exploit"``, ``"added"`` or the
            name of a strategy.
        asked: When the trial was asked for (ISO 8601, UTC).
        finished: When it was told or failed.
        owner: Which process evaluates it, if ``RobustOptimizer.run`` does.
        attempts: How often its evaluation has been started.
        parameters: The values of the parameters by name; with a tolerance, what is
            evaluated: the setting and its deviation.
    """

    number: int = -1
    state: str = RUNNING
    point: tuple[float, ...]
    value: float | None = None
    noise: float | None = None
    reason: str | None = None
    seed: int
    origin: str
    asked: str = ""
    finished: str | None = None
    owner: str | None = None
    attempts: int = 1
    parameters: Mapping[str, float | str] | None = None


_COLUMNS = [name for name in Trial.__dataclass_fields__ if name != "parameters"]


@dataclass(frozen=True)
class StudyRecord:
    """What a study is about.

    Attributes:
        space: The parameters and the domain, as ``ParameterSpace.to_dict`` gives them.
        maximize: The direction.
        seed: The seed.
        settings: Further settings of the optimizer.
    """

    space: dict[str, Any]
    maximize: bool
    seed: int
    settings: dict[str, Any]


class Storage:
    """A study and its trials, in a file or in memory.

    Attributes:
        path: The file, or ``None``.
    """

    def __init__(self, path: str | Path | None, must_exist: bool = False) -> None:
        """Open or create a file, and bring its schema up to date.

        Args:
            path: The file, or ``None`` to keep the study in memory.
            must_exist: Whether a missing file is an error.
        """
        self.path = None if path is None else Path(path)
        self._memory: sqlite3.Connection | None = None
        self._lock = threading.RLock()
        if self.path is None:
            self._memory = sqlite3.connect(
                ":memory:", isolation_level=None, check_same_thread=False
            )
            weakref.finalize(self, self._memory.close)
        elif must_exist and not self.path.exists():
            raise InputDataError(f"There is no study at {self.path}.")
        with self._transaction() as connection:
            migrate(connection, self.path)

    def study(self) -> StudyRecord | None:
        """Read what the study is about; ``None`` if nobody has said so yet."""
        with self._transaction() as connection:
            return _read_study(connection)

    def create_study(self, record: StudyRecord) -> StudyRecord:
        """Store what the study is about, unless somebody has done so before.

        Args:
            record: The study.

        Returns:
            The study as it is stored: this one, or an earlier one.
        """
        with self._transaction() as connection:
            stored = _read_study(connection)
            if stored is not None:
                return stored
            connection.execute(
                "INSERT INTO study VALUES (1, ?, ?, ?, ?, ?)",
                (
                    json.dumps(record.space),
                    record.maximize,
                    record.seed,
                    json.dumps(record.settings),
                    _now(),
                ),
            )
        return record

    def trials(self) -> list[Trial]:
        """Read all trials, in the order of their numbers."""
        with self._transaction() as connection:
            return _read_trials(connection, "ORDER BY number")

    def add(self, first: int, trials: Sequence[Trial]) -> bool:
        """Store new trials, if their numbers are still free.

        Args:
            first: The number of the first of them, which must be the next one.
            trials: The trials.

        Returns:
            Whether they were stored; if not, another process has been faster.
        """
        with self._transaction() as connection:
            if first != _next_number(connection):
                return False
            for number, trial in enumerate(trials, first):
                _insert(connection, number, trial)
        return True

    def append(self, trial: Trial) -> int:
        """Store a new trial under the next number.

        Args:
            trial: The trial.

        Returns:
            The number.
        """
        with self._transaction() as connection:
            number = _next_number(connection)
            _insert(connection, number, trial)
        return number

    def finish(
        self,
        number: int,
        state: str,
        value: float | None = None,
        noise: float | None = None,
        reason: str | None = None,
        point: tuple[float, ...] | None = None,
    ) -> Trial:
        """Store the end of a running trial.

        Args:
            number: The trial's number.
            state: ``"complete"`` or ``"failed"``.
            value: The value.
            noise: The standard deviation of its noise.
            reason: Why it failed.
            point: The trial's point, if it is known, which must be the stored one.

        Returns:
            The trial.
        """
        with self._transaction() as connection:
            _check_running(connection, number, point)
            connection.execute(
                "UPDATE trials SET state = ?, value = ?, noise = ?, reason = ?, "
                "finished = ?, owner = NULL WHERE number = ?",
                (state, value, noise, reason, _now(), number),
            )
            (trial,) = _read_trials(connection, "WHERE number = ?", number)
        return trial

    def take_over(self, number: int, from_owner: str | None, owner: str) -> bool:
        """Become the owner of a running trial whose owner is gone.

        Args:
            number: The trial's number.
            from_owner: The former owner.
            owner: The new owner.

        Returns:
            Whether the trial was still the former owner's.
        """
        with self._transaction() as connection:
            cursor = connection.execute(
                "UPDATE trials SET owner = ?, attempts = attempts + 1 "
                "WHERE number = ? AND state = 'running' AND owner IS ?",
                (owner, number, from_owner),
            )
        return cursor.rowcount == 1

    def give_back(self, number: int) -> None:
        """Give up a trial, if it is running, so that others can take it over.

        Args:
            number: The trial's number.
        """
        with self._transaction() as connection:
            connection.execute(
                "UPDATE trials SET owner = ? WHERE number = ? AND state = 'running'",
                (NOBODY, number),
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is committed at the end, or rolled back on an error."""
        if self._memory is not None:
            with self._lock, _committing(self._memory) as connection:
                yield connection
            return
        assert self.path is not None
        try:
            opened = sqlite3.connect(self.path, timeout=_TIMEOUT, isolation_level=None)
        except sqlite3.OperationalError as error:
            raise InputDataError(
                f"Cannot open {self.path} as the file of a study ({error}). Does its "
                "folder exist, and may you write there?"
            ) from error
        with closing(opened) as connection:
            try:
                connection.execute("PRAGMA synchronous = EXTRA")
                with _committing(connection):
                    yield connection
            except sqlite3.DatabaseError as error:
                for cause, consequence in _FILE_ERRORS.items():
                    if cause in str(error):
                        raise InputDataError(
                            f"{self.path} {consequence} ({error})."
                        ) from error
                raise


@contextmanager
def _committing(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Run a transaction that takes the right to write at its beginning."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _read_study(connection: sqlite3.Connection) -> StudyRecord | None:
    """Read the study's only row."""
    row = connection.execute(
        "SELECT space, maximize, seed, settings FROM study"
    ).fetchone()
    if row is None:
        return None
    return StudyRecord(json.loads(row[0]), bool(row[1]), row[2], json.loads(row[3]))


def _read_trials(
    connection: sqlite3.Connection, clause: str, *values: object
) -> list[Trial]:
    """Read the trials that a clause selects."""
    rows = connection.execute(
        f"SELECT {', '.join(_COLUMNS)} FROM trials {clause}", values
    )
    contents = (dict(zip(_COLUMNS, row, strict=True)) for row in rows)
    return [
        Trial(**content | {"point": tuple(json.loads(content["point"]))})
        for content in contents
    ]


def _next_number(connection: sqlite3.Connection) -> int:
    """The number of the next trial."""
    (count,) = connection.execute(
        "SELECT COALESCE(MAX(number) + 1, 0) FROM trials"
    ).fetchone()
    return int(count)


def _insert(connection: sqlite3.Connection, number: int, trial: Trial) -> None:
    """Store a trial."""
    now = _now()
    state, finished = (RUNNING, None) if trial.value is None else (COMPLETE, now)
    stored = replace(trial, number=number, state=state, asked=now, finished=finished)
    content = vars(stored) | {"point": json.dumps(trial.point)}
    connection.execute(
        f"INSERT INTO trials ({', '.join(_COLUMNS)}) "
        f"VALUES ({', '.join('?' * len(_COLUMNS))})",
        [content[name] for name in _COLUMNS],
    )


def _check_running(
    connection: sqlite3.Connection, number: int, point: tuple[float, ...] | None
) -> None:
    """Raise unless a trial is running, at the given point."""
    found = _read_trials(connection, "WHERE number = ?", number)
    if not found:
        raise InputDataError(
            f"There is no trial {number} in this study; it has "
            f"{_next_number(connection)} trial(s). Tell a trial that `ask` returned, "
            "or use `add` for a point of your own."
        )
    (trial,) = found
    if point is not None and point != trial.point:
        raise InputDataError(
            f"Trial {number} of this study is at {list(trial.point)}, yours is at "
            f"{list(point)}: it belongs to another study. Use `add` to store its value "
            "here, too."
        )
    if trial.state == COMPLETE:
        raise InputDataError(
            f"Trial {number} has the value {trial.value} already, told at "
            f"{trial.finished}. Use `add` for a second observation of the same point."
        )
    if trial.state == FAILED:
        raise InputDataError(
            f"Trial {number} has failed already ({trial.reason}). Use `add` if it has "
            "a value after all."
        )


def _now() -> str:
    """The time, for people to read."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
