"""Coverage of the interval that ``RobustOptimizer.recommend`` states.

How often does the stated 95 % interval hold the true worst-case value of the
recommended setting? Run one section, or several:

    OMP_NUM_THREADS=1 python -m benchmarks.intervals within_model branin
    OMP_NUM_THREADS=1 python -m benchmarks.intervals searched --seeds 40

``within_model``: objectives drawn from the prior of the model, hyperparameters known,
observed with noise at space-filling points. Whatever the interval misses beyond 5 % is
a mistake of its computation. ``two_thetas`` is the same with two uncontrollable
variables. ``branin``: the default model and the one that averages over hyperparameters,
noise-free values. ``searched``: as above, but the points are chosen by Robust Entropy
Search, so that the intervals are narrow.
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import Tensor

from botorch_res import RobustOptimizer
from botorch_res.domain import RobustDomain
from botorch_res.models import BayesianGP, DefaultGP, FixedGP
from botorch_res.test_functions import RobustBranin, WithinModel

NOISE_VARIANCE = 1e-3


class PriorDraw:
    """A draw from a GP prior with one ``x`` and two thetas, by many features."""

    lengthscale = 0.3

    def __init__(self, seed: int, num_features: int = 4000) -> None:
        bounds = torch.tensor([[0.0] * 3, [1.0] * 3], dtype=torch.double)
        self.domain = RobustDomain(bounds, [1, 2])
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.double)

        self.frequencies = normal(3, num_features) / self.lengthscale
        self.weights = normal(2, num_features) / math.sqrt(num_features)

    def __call__(self, z: Tensor) -> Tensor:
        """Evaluate the function."""
        phase = z @ self.frequencies
        return phase.cos() @ self.weights[0] + phase.sin() @ self.weights[1]

    def worst_case_value(self, x: Tensor) -> Tensor:
        """A grid over theta, zoomed in on its best point."""
        centre, radius = torch.full((2,), 0.5, dtype=torch.double), 0.5
        for _ in range(4):
            steps = radius * torch.linspace(-1, 1, 61, dtype=torch.double)
            theta = (centre + torch.cartesian_prod(steps, steps)).clamp(0, 1)
            values = self(self.domain.join(x.expand(len(theta), 1), theta))
            centre, radius = theta[values.argmax()], radius / 20
        return values.max()


def observe(problem, model, n, seed, strategy, noise):
    """Whether the truth is inside the interval, below or above it, and its width."""
    optimizer = RobustOptimizer(
        problem.domain,
        maximize=False,
        seed=seed,
        model=model,
        strategy=strategy,
        noise=noise,
    )
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        trial = optimizer.ask()
        z = torch.tensor([trial.point], dtype=torch.double)
        error = torch.randn(1, generator=generator, dtype=torch.double)
        optimizer.tell(trial, float(problem(z)) + (noise or 0.0) * float(error))
    best = optimizer.recommend()
    x = torch.tensor([best.x["x1"]], dtype=torch.double)
    truth = float(problem.worst_case_value(x))
    return truth < best.lower, truth > best.upper, best.upper - best.lower


def report(name, make_problem, model, n, seeds, strategy="random", noise=None):
    """Print the coverage over several seeds."""
    table = torch.tensor(
        [observe(make_problem(s), model, n, s, strategy, noise) for s in range(seeds)],
        dtype=torch.double,
    )
    below, above = table[:, :2].sum(0).tolist()
    inside = 1 - (below + above) / seeds
    error = math.sqrt(max(inside * (1 - inside), 0.0475 / seeds) / seeds)
    print(
        f"{name:40s} n = {n:3d}: {inside:6.1%} +- {error:.1%} inside, {below:.0f} "
        f"below, {above:.0f} above of {seeds}; median width {table[:, 2].median():.3g}",
        flush=True,
    )


def within_model(seeds: int, strategy: str = "random", sizes=(5, 15, 40)) -> None:
    """The model is right."""
    for n in sizes:
        model = FixedGP(0.1, noise_variance=NOISE_VARIANCE)
        report(
            f"within model, {strategy}",
            lambda seed: WithinModel(seed, num_points=500),
            model,
            n,
            seeds,
            strategy,
            math.sqrt(NOISE_VARIANCE),
        )


def two_thetas(seeds: int, strategy: str = "random", sizes=(5, 20, 60)) -> None:
    """The model is right, with two uncontrollable variables."""
    for n in sizes:
        model = FixedGP(PriorDraw.lengthscale, noise_variance=NOISE_VARIANCE)
        noise = math.sqrt(NOISE_VARIANCE)
        name = f"two thetas, {strategy}"
        report(name, PriorDraw, model, n, seeds, strategy, noise)


def branin(seeds: int, strategy: str = "random", sizes=(12, 24, 6)) -> None:
    """The hyperparameters are fitted."""
    for name, model in (("default", DefaultGP()), ("ensemble", BayesianGP())):
        for n in sizes:
            report(
                f"branin, {name}, {strategy}",
                lambda seed: RobustBranin(),
                model,
                n,
                seeds,
                strategy,
            )


def searched(seeds: int) -> None:
    """Points of Robust Entropy Search."""
    report("branin, default, res", lambda s: RobustBranin(), None, 12, seeds, "res")
    within_model(seeds, "res", (20,))
    two_thetas(seeds, "res", (15,))


SECTIONS = (within_model, two_thetas, branin, searched)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    names = {section.__name__: section for section in SECTIONS}
    parser.add_argument("sections", nargs="*", default=list(names))
    parser.add_argument("--seeds", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for section in arguments.sections:
        names[section](arguments.seeds)
