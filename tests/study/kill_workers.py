"""Kill processes that work on a study, at random moments; run by ``test_storage.py``.

Each worker asks and tells in a loop, and says on a pipe what it is about to do and what
is done. It is a script, started once, because forking is only safe from a process with
one thread, and because every worker would otherwise import torch again.

Usage: python kill_workers.py STUDY NUM_KILLS NUM_AT_ONCE. Prints what the workers said.
"""

import os
import random
import signal
import sys
import time

import torch

from botorch_res import RobustDomain, RobustOptimizer

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)


def open_study(path):
    domain = RobustDomain(BOUNDS, [1])
    return RobustOptimizer(
        domain, maximize=False, storage=path, seed=0, strategy="random"
    )


def work(path, pipe):
    optimizer = open_study(path)
    while True:
        trial = optimizer.ask()
        os.write(pipe, f"asked {trial.number}\n".encode())
        value = random.random()
        os.write(pipe, f"telling {trial.number} {value!r}\n".encode())
        optimizer.tell(trial, value)
        os.write(pipe, f"told {trial.number} {value!r}\n".encode())


def drain(pipe):
    """All that the workers have said and nobody has read."""
    said = b""
    while True:
        try:
            said += os.read(pipe, 65536)
        except BlockingIOError:
            return said


def main(path, num_kills, num_at_once):
    # The first draw imports more of torch; the workers shall inherit that.
    RobustDomain(BOUNDS, [1]).sample(1, seed=0)
    read, write = os.pipe()
    os.set_blocking(read, False)
    said = b""
    workers = []
    generator = random.Random(1)
    for _ in range(num_kills + num_at_once):
        while len(workers) < num_at_once:
            pid = os.fork()
            if pid == 0:
                random.seed()
                work(path, write)
            workers.append(pid)
        time.sleep(generator.uniform(0.0, 0.06))
        victim = workers.pop(generator.randrange(len(workers)))
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        said += drain(read)
        # The study reopens after every kill.
        open_study(path).trials  # noqa: B018
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    said += drain(read)
    sys.stdout.buffer.write(said)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
