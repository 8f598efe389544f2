"""Replicates as one batch against the same steps one after the other.

Run as ``python -m benchmarks.replicates [--size 32] [--points 20] [--samples 1]``. A
step fits the models, finds the next points and recommends. The batch and the single
steps take turns in one process, and are measured in CPU time on one thread.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.protocols import Objective, protocol
from benchmarks.report import RESULTS, alternate, describe_run, keep_section
from botorch_res.acquisition import qRobustEntropySearch
from botorch_res.optim import recommend_robust_optimum
from botorch_res.strategies import (
    Strategy,
    make_strategy,
    propose_replicates,
    recommend_replicates,
)

TITLE = """# Replicates as one batch

    OMP_NUM_THREADS=1 python -m benchmarks.replicates

*Ratio*: of the whole step, with fit and recommendation. *Lost*: the largest difference
of the acquisition values, by the single models, of the single steps' points and those
of the batch. *Differ*: points further apart than 1e-3 of the domain.
"""
HEAD = (
    "| problem | strategy | S | t | batch, s | single, s | ratio | proposal only | "
    "lost | differ |"
)


@dataclass
class Replicates:
    """The runs of one strategy on one problem from several seeds.

    Attributes:
        strategy: The strategy.
        X: ``S x t x d`` points.
        Y: ``S x t x 1`` values.
    """

    strategy: Strategy
    X: Tensor
    Y: Tensor

    @property
    def seeds(self) -> range:
        """The seeds."""
        return range(len(self.X))

    def forget(self) -> None:
        """Make the strategy fit anew, which it does once for each data set."""
        self.strategy._last_fit = None

    def together(self, recommend: bool = True) -> Tensor:
        """One step of all runs as a batch.

        Args:
            recommend: Whether to fit anew, and to recommend, too.

        Returns:
            ``S x d`` points.
        """
        if recommend:
            self.forget()
            recommend_replicates(self.strategy, self.X, self.Y)
        return propose_replicates(self.strategy, self.X, self.Y, self.seeds)

    def singly(self, models: list | None = None) -> Tensor:
        """One step of each run.

        Args:
            models: Fitted models; if not given, fit and recommend, too.

        Returns:
            ``S x d`` points.
        """
        points = []
        strategy = self.strategy
        for seed, X, Y in zip(self.seeds, self.X, self.Y, strict=True):
            if models is None:
                self.forget()
                model = strategy.fit(X, Y)
                recommend_robust_optimum(model, strategy.domain, strategy.maximize)
            else:
                strategy._last_fit = [X, Y], models[seed]
            points.append(strategy.propose(X, Y, seed=seed))
        return torch.cat(points)

    def lost_information(self, points: Tensor, singly: Tensor) -> Tensor:
        """What the batch's points lose against those of single steps.

        Args:
            points: ``S x d`` points of the batch.
            singly: ``S x d`` points of single steps.

        Returns:
            ``S`` differences of the acquisition function of the single models, negative
            where the batch has found a better point.
        """
        lost = []
        for seed, X, Y in zip(self.seeds, self.X, self.Y, strict=True):
            acqf = qRobustEntropySearch(
                self.strategy.fit(X, Y),
                self.strategy.domain,
                num_samples=self.strategy.num_samples,
                maximize=self.strategy.maximize,
                seed=seed,
            )
            pair = torch.stack([singly[seed], points[seed]]).unsqueeze(-2)
            with torch.no_grad():
                lost.append(-acqf(pair).diff())
        return torch.cat(lost)


def make_replicates(problem: str, strategy: str, size: int, t: int, **options: object):
    """Make runs with random points.

    Args:
        problem: The name of the problem.
        strategy: The name of the strategy.
        size: The number ``S`` of runs.
        t: The number of points of each.
        options: The options of the strategy.

    Returns:
        The runs.
    """
    rules = protocol(problem)
    objectives = [Objective(rules.make(seed), rules, seed) for seed in range(size)]
    domain = objectives[0].problem.domain
    X = torch.stack([domain.sample(t, seed=seed) for seed in range(size)])
    values = [f(own, 0) for f, own in zip(objectives, X, strict=True)]
    made = make_strategy(
        strategy,
        domain,
        maximize=not objectives[0].problem.is_minimization_problem,
        model_factory=rules.model_factory,
        **options,
    )
    return Replicates(made, X, torch.stack(values).unsqueeze(-1))


def compare(problem: str, strategy: str, size: int, t: int, repeats: int, **options):
    """Measure a batch of runs against single ones.

    Args:
        problem: The name of the problem.
        strategy: The name of the strategy.
        size: The number ``S`` of runs.
        t: The number of points of each.
        repeats: How often each is timed.
        options: The options of the strategy.

    Returns:
        A row of the table.
    """
    runs = make_replicates(problem, strategy, size, t, **options)
    batch, single = alternate(runs.together, runs.singly, repeats=repeats)
    models = [runs.strategy.fit(*data) for data in zip(runs.X, runs.Y, strict=True)]
    fitted = [runs.X, runs.Y], runs.strategy.fit(runs.X, runs.Y)

    def propose() -> Tensor:
        runs.strategy._last_fit = fitted
        return runs.together(recommend=False)

    batch_proposal, single_proposal = alternate(
        propose, lambda: runs.singly(models), repeats=repeats
    )
    points, alone = propose(), runs.singly(models)
    width = runs.strategy.domain.bounds.diff(dim=0)
    apart = ((points - alone) / width).abs().amax(dim=-1) > 1e-3
    lost = "-"
    if strategy == "res":
        lost = f"{runs.lost_information(points, alone).max():.1e}"
    cells = [
        problem,
        strategy,
        str(size),
        str(t),
        f"{batch:.2f}",
        f"{single:.2f}",
        f"{single / batch:.1f}",
        f"{single_proposal / batch_proposal:.1f}",
        lost,
        str(int(apart.sum())),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--problems", nargs="+", default=["within_model", "branin"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    size, t, samples = arguments.size, arguments.points, arguments.samples
    for problem in arguments.problems:
        lines = [HEAD, "|---|---|" + "--:|" * 8]
        for strategy in ("res", "stable_opt"):
            options = {"num_samples": samples} if strategy == "res" else {}
            row = compare(problem, strategy, size, t, arguments.repeats, **options)
            print(row, flush=True)
            lines.append(row)
        name = f"{problem}, S = {size}, t = {t}, C = {samples}"
        text = "\n".join([f"{describe_run()}\n", *lines])
        keep_section(RESULTS / "replicates.md", TITLE, name, text)


if __name__ == "__main__":
    main()
