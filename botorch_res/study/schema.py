"""The tables of a study's file, and how older files become newer ones.

The schema has a version, ``PRAGMA user_version``. ``MIGRATIONS`` leads from each
version to the next: a new file starts at zero, an older one at its version.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from botorch.exceptions.errors import InputDataError, UnsupportedError

# "bres", which tells our files from other people's.
APPLICATION_ID = 0x62726573
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE study (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            space TEXT NOT NULL,
            maximize INTEGER NOT NULL,
            seed INTEGER NOT NULL,
            settings TEXT NOT NULL,
            created TEXT NOT NULL
        )""",
        """CREATE TABLE trials (
            number INTEGER PRIMARY KEY,
            state TEXT NOT NULL CHECK (state IN ('running', 'complete', 'failed')),
            point TEXT NOT NULL,
            value REAL,
            noise REAL,
            reason TEXT,
            seed INTEGER NOT NULL,
            origin TEXT NOT NULL,
            asked TEXT NOT NULL,
            finished TEXT
        )""",
        f"PRAGMA application_id = {APPLICATION_ID}",
    ),
    # Who evaluates a running trial, so that the trials of a process that has died can
    # be told from those that are under way.
    (
        "ALTER TABLE trials ADD COLUMN owner TEXT",
        "ALTER TABLE trials ADD COLUMN attempts INTEGER NOT NULL DEFAULT 1",
    ),
)
SCHEMA_VERSION = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection, path: Path | None) -> None:
    """Bring the tables of a study up to date.

    Args:
        connection: The connection, in a transaction.
        path: The file, for messages.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (version or tables):
        raise InputDataError(f"{path} is an SQLite file, but not the file of a study.")
    if version > SCHEMA_VERSION:
        raise UnsupportedError(
            f"{path} has schema version {version}; this botorch_res reads "
            f"versions up to {SCHEMA_VERSION}. Use the newer botorch_res that "
            "wrote it."
        )
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            connection.execute(statement)
    if version < SCHEMA_VERSION:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
