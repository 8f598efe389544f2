"""When to stop a study: as soon as the recommendation is probably good enough."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botorch.exceptions.errors import InputDataError

from botorch_res.checks import check_number, check_probability

if TYPE_CHECKING:
    from botorch_res.study.optimizer import RobustOptimizer

_NUMBER = r"([0-9.]+(?:e[+-]?[0-9]+)?)"
_RULE = re.compile(rf"\s*regret\s*<=?\s*{_NUMBER}\s+with\s+{_NUMBER}\s*%\s*", re.I)


@dataclass(frozen=True)
class RegretBelow:
    """Stop when the regret of the recommendation is probably small enough.

    It never stops before the initial design is complete.

    Attributes:
        limit: The largest regret that does not matter, in the unit of the values.
        probability: How probable it must be that the regret is within the limit.
    """

    limit: float
    probability: float = 0.95

    def __post_init__(self) -> None:
        check_number("limit", self.limit, 0.0)
        check_probability("probability", self.probability)

    @classmethod
    def parse(cls, text: str) -> RegretBelow:
        """Read a rule.

        Args:
            text: Such as ``"regret < 0.01 with 95 %"``.

        Returns:
            The rule.
        """
        found = _RULE.fullmatch(text)
        try:
            if found is not None:
                limit, per_cent = (float(number) for number in found.groups())
                return cls(limit, per_cent / 100.0)
        except (ValueError, InputDataError) as error:
            raise _not_a_rule(text) from error
        raise _not_a_rule(text)

    def __call__(self, optimizer: RobustOptimizer) -> bool:
        """Decide whether to stop.

        Args:
            optimizer: The study.

        Returns:
            The decision.
        """
        if optimizer.num_told < max(1, optimizer.num_initial):
            return False
        regret = optimizer.recommend().regret
        return regret.probability(self.limit) >= self.probability

    def __str__(self) -> str:
        return f"regret < {self.limit:g} with {100.0 * self.probability:g} %"


StoppingRule = Callable[["RobustOptimizer"], bool]


def find_rule(stop: object) -> StoppingRule | None:
    """Get a stopping rule.

    Args:
        stop: A rule, a function of the study, a text, or ``None``.

    Returns:
        The rule.
    """
    if isinstance(stop, str):
        return RegretBelow.parse(stop)
    if stop is None or callable(stop):
        return stop
    raise _not_a_rule(stop)


def _not_a_rule(stop: object) -> InputDataError:
    return InputDataError(
        "Expected `stop` to be a rule such as 'regret < 0.01 with 95 %', or a function "
        f"of the study, got {stop!r}."
    )
