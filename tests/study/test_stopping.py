import math

import pytest
from botorch.exceptions.errors import InputDataError

from botorch_res import RobustOptimizer
from botorch_res.study.parameters import Range
from botorch_res.study.stopping import RegretBelow, find_rule

PARAMETERS = [Range("x", 0, 1), Range("load", 0, 1, uncontrollable=True)]


def easy(x, load):
    """Its best worst case, 0.51 at x = 0.4, is soon found."""
    return 1e3 * ((x - 0.4) ** 2 + 0.5 * math.sin(load + 0.5) + 0.02)


def study():
    return RobustOptimizer(PARAMETERS, maximize=False, seed=0, noise=0.0)


def test_the_rule_stops_a_run():
    optimizer = study()
    found = optimizer.run(easy, 30, progress=False, stop="regret < 5 with 90 %")
    assert optimizer.num_initial < optimizer.num_told < 30
    assert found.regret.probability(5.0) >= 0.9
    # It would not have stopped one trial earlier, and it was right: in these units.
    before = optimizer.recommend(after=optimizer.num_told - 1)
    assert before.regret.probability(5.0) < 0.9
    worst = 1e3 * ((found.x["x"] - 0.4) ** 2)
    assert worst < 5.0
    # Another run with the same rule has nothing to do.
    count = optimizer.num_told
    optimizer.run(easy, 30, progress=False, stop="regret < 5 with 90 %")
    assert optimizer.num_told == count


def test_a_function_of_the_user_stops_a_run():
    optimizer = study()
    optimizer.run(easy, 9, progress=False, stop=lambda own: own.num_told == 3)
    assert optimizer.num_told == 3


def test_the_initial_design_is_always_complete():
    optimizer = study()
    optimizer.run(easy, 30, progress=False, stop="regret < 1e9 with 50 %")
    assert optimizer.num_told == optimizer.num_initial


@pytest.mark.parametrize(
    "text",
    ["regret < 0.01 with 95 %", "Regret<1e-2 with 95%", " regret <= .01  with 95.0 % "],
)
def test_rules_as_text(text):
    assert RegretBelow.parse(text) == RegretBelow(0.01, 0.95)
    assert str(RegretBelow.parse(text)) == "regret < 0.01 with 95 %"


@pytest.mark.parametrize(
    "stop",
    [
        "regret",
        "regret < 0.01",
        "regret < -1 with 95 %",
        "regret < 0.01 with 195 %",
        "regret < 1.2.3 with 95 %",
        0.01,
    ],
)
def test_what_is_no_rule(stop):
    with pytest.raises(InputDataError, match=r"a rule such as 'regret < 0\.01 with"):
        find_rule(stop)
    optimizer = study()
    with pytest.raises(InputDataError, match="`stop`"):
        optimizer.run(easy, 3, progress=False, stop=stop)
    assert optimizer.num_told == 0
