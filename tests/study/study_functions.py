"""Functions to optimise in other processes, which import them from here."""

import os
import signal
import time
from pathlib import Path


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
