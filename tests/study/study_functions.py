"""A press to optimise, and its study; other processes import the functions."""

import os
import signal
import time
from pathlib import Path

from botorch_res import RobustOptimizer
from botorch_res.study.parameters import Choice, Range

PARAMETERS = [
    Range("friction", 0.1, 0.2),
    Choice("force", [200, 300, 350], unit="kN", uncontrollable=True),
]


def make(storage=None, domain=PARAMETERS, **settings):
    """A study that takes no time to think."""
    settings = {"seed": 0, "strategy": "random"} | settings
    return RobustOptimizer(domain, maximize=False, storage=storage, **settings)


def press(friction, force):
    return (friction - 0.15) ** 2 * 1e3 + force / 100


def press_with_noise(friction, force):
    return press(friction, force), 0.1


def point(z):
    return (z[0] - 0.3) ** 2 - (z[1] - 0.7) ** 2


def slow_press(friction, force):
    time.sleep(0.05)
    return press(friction, force)


def die_once(friction, force, marker):
    """Kill the worker on the first call, of all processes together."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        time.sleep(0.05)
    else:
        os.kill(os.getpid(), signal.SIGKILL)
    return press(friction, force)
