from dataclasses import dataclass

import numpy as np
import pytest
from botorch.exceptions.errors import InputDataError

from botorch_res.checks import at_least, check_number, check_numbers


@dataclass
class Options:
    name: str
    count: int = at_least(1, 8)
    width: float = at_least(0.0, 2.0)

    def __post_init__(self):
        check_numbers(self)


def test_good_numbers():
    assert Options("any") == Options("any", count=8, width=2.0)
    Options("any", count=np.int64(1), width=0)
    check_number("raw_samples", 4, np.int64(4))


@pytest.mark.parametrize("count", [0, -3, 2.5, "2", None, True, float("nan")])
def test_not_a_count(count):
    with pytest.raises(
        InputDataError,
        match=rf"`count` to be a whole number of at least 1, got {count!r}\.",
    ):
        Options("any", count=count)


@pytest.mark.parametrize("width", [-1.0, "2", None, float("nan"), float("inf")])
def test_not_a_width(width):
    with pytest.raises(
        InputDataError,
        match=rf"`width` to be a finite number of at least 0.0, got {width!r}\.",
    ):
        Options("any", width=width)
