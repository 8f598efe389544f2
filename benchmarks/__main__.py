"""Benchmarks of Robust Entropy Search: ``python -m benchmarks COMMAND``.

- ``regret`` runs strategies on problems; run it again to go on where it stopped.
- ``recommend`` makes the recommendations of recorded runs anew.
- ``report`` draws the figures and writes the tables of what has been run.
- ``pack`` compresses the records of finished runs, to keep them.
- ``speed`` measures how long a step takes, and how that grows.
"""

from __future__ import annotations

import argparse
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any

from botorch.exceptions.errors import InputDataError

from benchmarks.protocols import PAPER_PROTOCOLS, PROTOCOLS, protocol
from benchmarks.regret import recommend_again
from benchmarks.regret_report import write_report
from benchmarks.report import RESULTS
from benchmarks.speed import measure
from benchmarks.units import (
    Settings,
    pack_units,
    plan_units,
    read_header,
    unit_files,
)
from benchmarks.workers import run_units
from botorch_res.checks import check_number

STRATEGIES = (
    "res:num_samples=1",
    "res:num_samples=16",
    "stable_opt:sqrt_beta=1",
    "stable_opt:sqrt_beta=2",
    "stable_opt:sqrt_beta=4",
    "worst_case_nei",
    "thompson",
    "expected_improvement",
    "max_value_entropy",
    "joint_entropy_search",
    "random",
)


def parse_seeds(text: str) -> list[int]:
    """Read a list of seeds.

    Args:
        text: A positive number of seeds, or ranges such as ``0-9,20-29``; 0 is the
            seed 0.

    Returns:
        The seeds, each once.
    """
    if text.isdecimal() and int(text) > 0:
        return list(range(int(text)))
    seeds: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not dash:
            last = first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            raise ArgumentTypeError(
                f"expected a number of seeds, or ranges such as 0-9,20-29, got {text!r}"
            )
        seeds.update(range(int(first), int(last) + 1))
    return sorted(seeds)


def number(kind: type, least: float) -> Callable[[str], Any]:
    """A reader of numbers that are large enough.

    Args:
        kind: ``int`` or ``float``.
        least: The least number that makes sense.

    Returns:
        A function that reads a number from a text.
    """

    def read(text: str) -> Any:
        try:
            value = kind(text)
            check_number("value", value, kind(least))
        except (ValueError, InputDataError):
            words = {int: "a whole number", float: "a number"}[kind]
            raise ArgumentTypeError(
                f"expected {words} of at least {least}, got {text!r}"
            ) from None
        return value

    return read


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    regret = commands.add_parser("regret", help="run strategies on problems")
    regret.add_argument(
        "--problems",
        nargs="+",
        default=list(PAPER_PROTOCOLS),
        choices=list(PROTOCOLS),
        help="all of the paper's if not given",
    )
    regret.add_argument(
        "--strategies",
        nargs="+",
        default=list(STRATEGIES),
        help="such as random or stable_opt:sqrt_beta=1; all of them if not given",
    )
    regret.add_argument(
        "--seeds",
        type=parse_seeds,
        help="their number, or ranges such as 0-9,20-29; the paper's if not given",
    )
    regret.add_argument(
        "--iterations", type=number(int, 0), help="the paper's if not given"
    )
    regret.add_argument(
        "--noise-std",
        type=number(float, 0),
        help="of the evaluations; they have no noise if not given",
    )
    regret.add_argument(
        "--noise-variance",
        type=number(float, 0),
        help="that the model assumes, with --default-model relative to the variance of "
        "the outcomes; the paper's if not given",
    )
    regret.add_argument(
        "--default-model",
        action="store_true",
        help="the model of the package, with priors, in place of the paper's",
    )
    regret.add_argument(
        "--block",
        type=number(int, 1),
        default=10,
        help="most seeds to run as one batch",
    )
    where = regret.add_mutually_exclusive_group()
    where.add_argument(
        "--workers",
        type=number(int, 0),
        default=0,
        help="local processes; 0: work in this one",
    )
    where.add_argument("--dask", metavar="ADDRESS", help="of a Dask scheduler")
    records = {"type": Path, "default": RESULTS / "regret", "help": "of the records"}
    regret.add_argument("--folder", **records)
    recommend = commands.add_parser("recommend", help="recommend anew in recorded runs")
    recommend.add_argument("--folder", **records)
    recommend.add_argument("--problems", nargs="+", choices=list(PROTOCOLS))
    recommend.add_argument("--strategies", nargs="+", help="all of them if not given")
    recommend.add_argument(
        "--num-functions",
        type=number(int, 0),
        help="behind a recommendation, 0 for the mean; the protocol's if not given",
    )
    recommend.add_argument(
        "--default-model", action="store_true", help="if the runs had this model"
    )
    recommend.add_argument(
        "--output", type=Path, help="another folder for the new records"
    )
    report = commands.add_parser("report", help="figures and tables of the regret")
    report.add_argument("--folder", **records)
    written = {"type": Path, "default": RESULTS, "help": "folder to write to"}
    report.add_argument("--output", **written)
    pack = commands.add_parser("pack", help="compress the records of finished runs")
    pack.add_argument("--folder", **records)
    speed = commands.add_parser("speed", help="how long a step takes")
    speed.add_argument("--quick", action="store_true", help="few settings, one repeat")
    speed.add_argument("--output", **written)
    return parser


def run_regret(arguments: argparse.Namespace) -> int:
    """Run strategies on problems.

    Args:
        arguments: The arguments of the command ``regret``.

    Returns:
        The number of units that failed.
    """
    settings = Settings(
        arguments.iterations,
        arguments.noise_std,
        arguments.noise_variance,
        arguments.default_model,
    )
    # The workers of a cluster may have another working directory.
    folder = arguments.folder.resolve()
    units = []
    for problem in dict.fromkeys(arguments.problems):
        seeds = arguments.seeds or list(range(protocol(problem).num_seeds))
        for strategy in dict.fromkeys(arguments.strategies):
            units += plan_units(
                problem, strategy, seeds, folder, settings, arguments.block
            )
    if not units:
        print(f"All these runs are finished: their records are in {folder}.")
    return run_units(units, arguments.workers, arguments.dask)


def run_recommend(arguments: argparse.Namespace) -> None:
    """Recommend anew in recorded runs.

    Args:
        arguments: The arguments of the command ``recommend``.
    """
    settings = Settings(
        default_model=arguments.default_model, num_functions=arguments.num_functions
    )
    for path in unit_files(arguments.folder):
        header = read_header(path) or {}
        wanted = (
            names is None or header.get(name) in names
            for name, names in (
                ("problem", arguments.problems),
                ("strategy", arguments.strategies),
            )
        )
        if all(wanted):
            folder = arguments.output or arguments.folder
            print(recommend_again(path, folder, settings), flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: The command line; that of the process if ``None``.

    Returns:
        The exit code.
    """
    parser = make_parser()
    parsed = parser.parse_args(arguments)
    try:
        if parsed.command == "regret":
            return min(1, run_regret(parsed))
        if parsed.command == "recommend":
            run_recommend(parsed)
        elif parsed.command == "report":
            print(write_report(parsed.folder, parsed.output))
        elif parsed.command == "pack":
            packed, left = pack_units(parsed.folder)
            print(
                f"{packed} files of finished runs packed, {left} left, which have "
                "fewer iterations than the protocol"
            )
        else:
            print(measure(parsed.output, quick=parsed.quick))
    except (ValueError, InputDataError, OSError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("Interrupted. The same command goes on from here.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
