import json
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from botorch.exceptions.errors import InputDataError, UnsupportedError

from botorch_res.study.schema import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION
from botorch_res.study.storage import (
    COMPLETE,
    FAILED,
    RUNNING,
    Storage,
    StudyRecord,
    Trial,
)

RECORD = StudyRecord({"bounds": [[0.0], [1.0]]}, True, 7, {"gamma": 0.0})


@pytest.fixture(params=["file", "memory"])
def storage(request, tmp_path):
    return Storage(tmp_path / "study.db" if request.param == "file" else None)


def new(*point, **kwargs):
    return Trial(point=point, seed=1, origin="initial", **kwargs)


class TestTrials:
    def test_life_of_a_trial(self, storage):
        assert storage.trials() == []
        assert storage.add(0, [new(0.1, 1 / 3), new(1e-300, -0.0, owner="me")])
        first, second = storage.trials()
        assert (first.number, first.state, first.point) == (0, RUNNING, (0.1, 1 / 3))
        assert (first.value, first.finished, first.owner) == (None, None, None)
        assert second.owner == "me"
        told = storage.finish(1, COMPLETE, value=1 / 7, noise=0.5)
        assert (told.number, told.state, told.value) == (1, COMPLETE, 1 / 7)
        assert told.noise == 0.5
        assert told.owner is None
        assert told.asked <= told.finished
        failed = storage.finish(0, FAILED, reason="broke")
        assert (failed.state, failed.value, failed.reason) == (FAILED, None, "broke")
        assert storage.trials() == [failed, told]

    def test_known_values_are_complete_at_once(self, storage):
        assert storage.append(new(0.5, value=2.0, noise=0.1)) == 0
        assert storage.append(new(0.6)) == 1
        first, second = storage.trials()
        assert (first.state, first.value, first.noise) == (COMPLETE, 2.0, 0.1)
        assert first.finished is not None
        assert second.state == RUNNING

    def test_numbers_are_given_once(self, storage):
        assert storage.add(0, [new(0.1), new(0.2)])
        assert not storage.add(0, [new(0.3)])
        assert not storage.add(1, [new(0.3)])
        assert not storage.add(3, [new(0.3)])
        assert [trial.point for trial in storage.trials()] == [(0.1,), (0.2,)]
        assert storage.add(2, [new(0.3)])

    def test_finish_twice(self, storage):
        storage.add(0, [new(0.1), new(0.2)])
        storage.finish(0, COMPLETE, value=1.5)
        storage.finish(1, FAILED, reason="broke")
        before = storage.trials()
        with pytest.raises(InputDataError, match=r"Trial 0 has the value 1.5 already"):
            storage.finish(0, COMPLETE, value=1.5)
        with pytest.raises(InputDataError, match=r"Trial 1 has failed.*\(broke\)"):
            storage.finish(1, COMPLETE, value=1.5)
        with pytest.raises(InputDataError, match=r"no trial 2 .* has 2 trial\(s\)"):
            storage.finish(2, COMPLETE, value=1.5)
        assert storage.trials() == before

    def test_a_trial_of_another_study(self, storage):
        storage.add(0, [new(0.1, 0.2)])
        before = storage.trials()
        with pytest.raises(
            InputDataError, match=r"is at \[0.1, 0.2\], yours is at \[0."
        ):
            storage.finish(0, COMPLETE, value=1.0, point=(0.1, 0.3))
        assert storage.trials() == before
        assert storage.finish(0, COMPLETE, value=1.0, point=(0.1, 0.2)).value == 1.0

    def test_owners(self, storage):
        storage.add(0, [new(0.1, owner="old"), new(0.2)])
        assert not storage.take_over(0, "other", "new")
        assert storage.take_over(0, "old", "new")
        assert not storage.take_over(0, "old", "newer")
        assert storage.take_over(1, None, "new")
        assert [(t.owner, t.attempts) for t in storage.trials()] == [("new", 2)] * 2
        storage.give_back(0)
        storage.finish(1, COMPLETE, value=0.0)
        storage.give_back(1)
        assert [t.owner for t in storage.trials()] == ["", None]
        assert not storage.take_over(1, None, "new")


class TestStudy:
    def test_the_first_one_stays(self, storage):
        assert storage.study() is None
        assert storage.create_study(RECORD) == RECORD
        other = StudyRecord({}, False, 8, {})
        assert storage.create_study(other) == RECORD
        assert storage.study() == RECORD

    def test_an_error_rolls_back(self, storage):
        with pytest.raises(sqlite3.IntegrityError):
            storage.add(0, [new(0.1), Trial(point=(0.2,), seed=None, origin="")])
        assert storage.trials() == []


class TestFile:
    def test_survives(self, tmp_path):
        storage = Storage(str(tmp_path / "study.db"))
        storage.create_study(RECORD)
        storage.add(0, [new(0.1)])
        again = Storage(tmp_path / "study.db", must_exist=True)
        assert again.study() == RECORD
        assert again.trials() == storage.trials()
        assert [path.name for path in tmp_path.iterdir()] == ["study.db"]

    def test_commits_reach_the_disk(self, tmp_path, monkeypatch):
        seen = []

        class Spy(sqlite3.Connection):
            def execute(self, statement, *args):
                cursor = super().execute(statement, *args)
                if statement == "COMMIT":
                    for name in ("synchronous", "journal_mode"):
                        (value,) = super().execute(f"PRAGMA {name}").fetchone()
                        seen.append(value)
                return cursor

        connect = sqlite3.connect
        monkeypatch.setattr(
            sqlite3, "connect", lambda *a, **k: connect(*a, **k, factory=Spy)
        )
        Storage(tmp_path / "study.db").add(0, [new(0.1)])
        assert set(zip(seen[::2], seen[1::2], strict=True)) == {(3, "delete")}

    def test_what_is_not_a_study(self, tmp_path):
        text = tmp_path / "notes.txt"
        text.write_text("not a database at all, but long enough to be read " * 20)
        with pytest.raises(InputDataError, match="not the file of a study"):
            Storage(text)
        assert text.read_text().startswith("not a database")
        other = tmp_path / "other.db"
        with sqlite3.connect(other) as connection:
            connection.execute("CREATE TABLE things (name TEXT)")
        connection.close()
        with pytest.raises(InputDataError, match="SQLite file, but not the file of"):
            Storage(other)
        with pytest.raises(InputDataError, match=r"no study at .*missing\.db"):
            Storage(tmp_path / "missing.db", must_exist=True)
        with pytest.raises(InputDataError, match="Does its folder exist"):
            Storage(tmp_path / "nowhere" / "study.db")

    def test_a_damaged_file(self, tmp_path):
        storage = Storage(tmp_path / "study.db")
        for _ in range(100):
            storage.append(new(0.1, value=1.0))
        content = storage.path.read_bytes()
        storage.path.write_bytes(content[: len(content) // 2])
        with pytest.raises(InputDataError, match=r"study\.db is damaged. Go on with"):
            Storage(storage.path)

    def test_a_locked_file(self, tmp_path, monkeypatch):
        storage = Storage(tmp_path / "study.db")
        monkeypatch.setattr("botorch_res.study.storage._TIMEOUT", 0.01)
        with closing(sqlite3.connect(storage.path)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            with pytest.raises(InputDataError, match="locked by another program"):
                storage.append(new(0.1))
        assert storage.append(new(0.1)) == 0

    def test_a_file_that_cannot_be_written(self, tmp_path, monkeypatch):
        storage = Storage(tmp_path / "study.db")
        connect = sqlite3.connect
        monkeypatch.setattr(
            sqlite3,
            "connect",
            lambda path, **k: connect(f"file:{path}?mode=ro", uri=True, **k),
        )
        with pytest.raises(InputDataError, match=r"cannot be written\. .*copy it to a"):
            storage.append(new(0.1))

    def test_other_errors_pass(self, tmp_path):
        storage = Storage(tmp_path / "study.db")
        with sqlite3.connect(storage.path) as connection:
            connection.execute("DROP TABLE trials")
        connection.close()
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            storage.trials()


class TestSchema:
    def hand_made(self, path, version):
        """A file as a former release wrote it, by statements of its own."""
        connection = sqlite3.connect(path)
        connection.executescript(
            f"""
            CREATE TABLE study (
                id INTEGER PRIMARY KEY CHECK (id = 1), space TEXT NOT NULL,
                maximize INTEGER NOT NULL, seed INTEGER NOT NULL,
                settings TEXT NOT NULL, created TEXT NOT NULL);
            CREATE TABLE trials (
                number INTEGER PRIMARY KEY, state TEXT NOT NULL,
                point TEXT NOT NULL, value REAL, noise REAL, reason TEXT,
                seed INTEGER NOT NULL, origin TEXT NOT NULL, asked TEXT NOT NULL,
                finished TEXT);
            INSERT INTO study VALUES (1, '{json.dumps(RECORD.space)}', 1, 7,
                '{json.dumps(RECORD.settings)}', '2026-01-01T00:00:00+00:00');
            INSERT INTO trials VALUES (0, 'complete', '[0.25, 0.5]', 1.75, 0.125, NULL,
                11, 'initial', '2026-01-01T00:00:00+00:00',
                '2026-01-01T00:12:00+00:00');
            INSERT INTO trials VALUES (1, 'running', '[0.75, 0.5]', NULL, NULL, NULL,
                12, 'initial', '2026-01-01T00:00:01+00:00', NULL);
            PRAGMA application_id = {APPLICATION_ID};
            PRAGMA user_version = {version};
            """
        )
        connection.close()

    def test_version_one_is_read_and_brought_up_to_date(self, tmp_path):
        path = tmp_path / "old.db"
        self.hand_made(path, 1)
        storage = Storage(path)
        assert storage.study() == RECORD
        told, running = storage.trials()
        assert (told.point, told.value, told.noise) == ((0.25, 0.5), 1.75, 0.125)
        assert (told.owner, told.attempts) == (None, 1)
        storage.finish(running.number, COMPLETE, value=3.0)
        assert storage.append(new(0.1, 0.1)) == 2
        connection = sqlite3.connect(path)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.close()
        assert version == SCHEMA_VERSION == len(MIGRATIONS)
        assert len(Storage(path).trials()) == 3

    def test_a_newer_file_is_left_alone(self, tmp_path):
        path = tmp_path / "newer.db"
        self.hand_made(path, SCHEMA_VERSION + 1)
        before = path.read_bytes()
        with pytest.raises(UnsupportedError, match=r"version 3; this .* up to 2"):
            Storage(path)
        assert path.read_bytes() == before


class TestManyAtOnce:
    def test_threads(self, storage):
        def work():
            for _ in range(5):
                number = storage.append(new(0.5))
                storage.finish(number, COMPLETE, value=float(number))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [t.value for t in storage.trials()] == [float(i) for i in range(20)]

    def test_killed_processes_lose_nothing(self, tmp_path):
        """Kill 100 workers, two at work at any time, at random moments."""
        path = tmp_path / "study.db"
        script = Path(__file__).with_name("kill_workers.py")
        output = subprocess.run(
            [sys.executable, str(script), str(path), "100", "2"],
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        ).stdout
        said = {"asked": [], "telling": [], "told": []}
        for line in output.splitlines():
            word, number, *value = line.split()
            said[word].append((int(number), *map(float, value)))
        assert len(said["told"]) > 50  # the workers did work between the kills

        trials = Storage(path, must_exist=True).trials()
        assert [t.number for t in trials] == list(range(len(trials)))
        stored = {t.number: t for t in trials}
        # No trial was given out twice, and none that was given out is missing.
        asked = Counter(number for (number,) in said["asked"])
        assert max(asked.values()) == 1
        assert set(asked) <= set(stored)
        # Every value that was told is there; a value that is there was at least on
        # its way, and belongs to its trial.
        for number, value in said["told"]:
            assert (stored[number].state, stored[number].value) == (COMPLETE, value)
        on_the_way = dict(said["telling"])
        for trial in trials:
            assert (trial.state == COMPLETE) == (trial.value is not None)
            if trial.value is not None:
                assert on_the_way[trial.number] == trial.value
        # A worker dies between ask and tell with at most one trial in its hands.
        running = sum(trial.state == RUNNING for trial in trials)
        assert running <= 102
