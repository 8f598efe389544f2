"""The trials of a study as a table: for people, for pandas and for CSV files."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

from botorch_res.study.parameters import Parameter
from botorch_res.study.storage import Trial

# Columns on either side of the parameters.
_BEFORE = ("number", "state")
_AFTER = ("value", "noise", "reason", "origin", "seed", "attempts", "asked", "finished")
OTHER_COLUMNS = (*_BEFORE, *_AFTER)


class TrialTable(Sequence[Trial]):
    """A snapshot of all trials; a sequence of ``Trial`` that prints as a table."""

    def __init__(
        self, trials: Sequence[Trial], parameters: Sequence[Parameter]
    ) -> None:
        """Store the trials.

        Args:
            trials: The trials, with their ``parameters``.
            parameters: The parameters of the study.
        """
        self._trials = list(trials)
        self._parameters = list(parameters)

    @overload
    def __getitem__(self, index: int) -> Trial: ...
    @overload
    def __getitem__(self, index: slice) -> TrialTable: ...
    def __getitem__(self, index: int | slice) -> Trial | TrialTable:
        if isinstance(index, slice):
            return TrialTable(self._trials[index], self._parameters)
        return self._trials[index]

    def __len__(self) -> int:
        return len(self._trials)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [*_BEFORE, *(p.name for p in self._parameters), *_AFTER]

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each trial, with the table's columns as keys."""
        contents = [vars(trial) | dict(trial.parameters or {}) for trial in self]
        return [{name: row[name] for name in self.columns} for row in contents]

    def to_csv(self, path: str | Path) -> None:
        """Write the table to a CSV file.

        Args:
            path: The file. Floats are written so that they read back exactly.
        """
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self.columns)
            writer.writeheader()
            writer.writerows(self.rows())

    def to_pandas(self) -> Any:
        """The table as a ``pandas.DataFrame``, indexed by the trials' numbers."""
        try:
            pd: Any = importlib.import_module("pandas")
        except ImportError as error:
            raise ImportError(
                "A table for pandas needs pandas: pip install pandas. `rows()` and "
                "`to_csv()` work without it."
            ) from error
        return pd.DataFrame(self.rows(), columns=self.columns).set_index("number")

    def __str__(self) -> str:
        names = [*_BEFORE, *(p.name for p in self._parameters), "value", "reason"]
        labels = {p.name: p.label() for p in self._parameters}
        lines = [[labels.get(name, name) for name in names]]
        lines += [[cell_text(row[name]) for name in names] for row in self.rows()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell.rjust(width) for cell, width in zip(line, widths, strict=True)
            ).rstrip()
            for line in lines
        )


def cell_text(value: object, digits: int = 6) -> str:
    """Write a value of the table for people.

    Args:
        value: The value.
        digits: How many digits of a float to write.

    Returns:
        The text; nothing for ``None``.
    """
    if value is None:
        return ""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
