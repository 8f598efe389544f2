"""Constraints that hold in the worst case: accuracy by brute force, and what they cost.

    OMP_NUM_THREADS=1 python -m benchmarks.constrained [--quick]

Steps take turns in one process, in CPU time on one thread. Rows that are in
``results/constrained.md`` are not measured again.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import torch
from botorch.exceptions.warnings import BotorchWarning
from botorch.models import ModelListGP, SingleTaskGP
from torch import Tensor

from benchmarks.report import RESULTS, Table, alternate, run_sections
from botorch_res import (
    RobustDomain,
    optimize_robust_acqf,
    qRobustEntropySearch,
    test_functions,
)
from botorch_res.optim import constrained_robust_optimum
from botorch_res.strategies import make_strategy
from tests.acquisition.statements import errors_of
from tests.constrained_problems import compare, random_pair
from tests.problems import make_kernel, unit_domain

DOUBLE = {"dtype": torch.double}
TITLE = """# Constraints that hold in the worst case

    OMP_NUM_THREADS=1 python -m benchmarks.constrained
"""
NUM_STEPS, NUM_SEEDS = 20, 20
PROBLEMS = (
    "RobustIslands",
    "SwingingObstacle",
    "ConstrainedPolynomial",
    "WeldedBeam",
    "Cantilever",
)
STRATEGIES = ("res", "stable_opt", "thompson", "worst_case_nei", "random")
NUM_FUNCTIONS = 8
NUM_DATA = 20
NUM_THETAS = 12


def make_domain(x_dim: int, thetas: str, seed: int = 0) -> RobustDomain:
    """The unit cube, with a box or a finite set of thetas.

    Args:
        x_dim: The number of columns of ``x``.
        thetas: The number of columns of theta, or ``finite`` for one with few values.
        seed: The seed of these values.

    Returns:
        The domain.
    """
    if thetas != "finite":
        return unit_domain(x_dim, int(thetas))
    generator = torch.Generator().manual_seed(seed)
    rows = torch.rand(NUM_THETAS, 1, generator=generator).double()
    return unit_domain(x_dim, 1, theta_choices=rows)


def count_hits(x_dim: int, thetas: str, num_batches: int) -> list[str]:
    """Compare robust optima of pairs of functions with brute force.

    Args:
        x_dim: The number of columns of ``x``.
        thetas: See ``make_domain``.
        num_batches: The number of models. Each has several functions.

    Returns:
        The number of pairs, how many have a feasible ``x``, the share of optima that
        are right, the share that is at most 1e-3 too high, and the largest violation.
    """
    found = []
    for seed in range(num_batches):
        domain = make_domain(x_dim, thetas, seed)
        f, c = random_pair(domain, seed, NUM_FUNCTIONS)
        optimum = constrained_robust_optimum(f, [c], domain)
        own = compare(f, c, domain, optimum)
        own["flag"] = optimum.is_feasible
        found.append(own)
    parts = {key: torch.cat([own[key] for own in found]) for key in found[0]}
    possible = parts["is_possible"]
    near = parts["excess"] < 1e-3
    met = parts["flag"] & (parts["violation"] < 1e-6)
    least = ~parts["flag"] & (parts["violation"] - parts["least"] < 1e-3)
    right = torch.where(possible, near & met, least)
    worst = parts["violation"][possible & parts["flag"]].max().clamp_min(0.0)
    return [
        str(len(possible)),
        str(int(possible.sum())),
        f"{100 * float(right.double().mean()):.1f} %",
        f"{100 * float(near[possible].double().mean()):.1f} %",
        f"{float(worst):.1e}",
    ]


def compare_variances(lower: float | None, upper: float | None, num: int) -> list[str]:
    """Compare conditional variances with rejection sampling.

    Args:
        lower: The lower bound of the second output.
        upper: Its upper bound.
        num: The number of problems.

    Returns:
        The number of variances, and the median and 90 % quantile of their errors.
    """
    errors, _ = errors_of((lower, upper), range(num))
    quantiles = errors.quantile(torch.tensor([0.5, 0.9], dtype=errors.dtype))
    return [str(len(errors)), *(f"{100 * float(q):.1f} %" for q in quantiles)]


def make_model(domain: RobustDomain, num_outputs: int) -> ModelListGP:
    """Models of smooth functions, with fixed hyperparameters.

    Args:
        domain: The domain.
        num_outputs: The number of outputs.

    Returns:
        The models.
    """
    X = domain.sample(NUM_DATA, seed=0)
    models = []
    for i in range(num_outputs):
        Y = ((5.0 + i) * X + i).sin().sum(-1, keepdim=True)
        Y = (Y - Y.mean()) / Y.std()
        kernel = make_kernel(lengthscale=0.3, dim=domain.dim)
        noise = torch.full_like(Y, 1e-3)
        models.append(
            SingleTaskGP(X, Y, noise, covar_module=kernel, outcome_transform=None)
        )
    return ModelListGP(*models).eval()


def evaluate(acqf: qRobustEntropySearch) -> tuple[Tensor, ...]:
    """Evaluate an acquisition function at some points, with its gradient.

    Args:
        acqf: The acquisition function.

    Returns:
        The gradient.
    """
    leaf = acqf.domain.sample(64, seed=1).unsqueeze(-2).requires_grad_()
    return torch.autograd.grad(acqf(leaf).sum(), leaf)


def measure(x_dim: int, thetas: str, num_constraints: int, repeats: int) -> list[str]:
    """A row of the table of times.

    Args:
        x_dim: The number of columns of ``x``.
        thetas: See ``make_domain``.
        num_constraints: The number of constrained outputs.
        repeats: How often each is timed.

    Returns:
        The seconds of the step with constraints and without, and the ratios of
        construction, evaluation and step.
    """
    domain = make_domain(x_dim, thetas)
    model = make_model(domain, 1 + num_constraints)
    limits = {1 + i: (None, 0.3) for i in range(num_constraints)}

    def make(constraints: dict[int, tuple[None, float]]) -> qRobustEntropySearch:
        return qRobustEntropySearch(
            model, domain, maximize=False, seed=0, constraints=constraints
        )

    def search(constraints: dict[int, tuple[None, float]]) -> object:
        return optimize_robust_acqf(make(constraints), domain, seed=0)

    def turns(function: Callable[..., object], *own: object) -> list[float]:
        return alternate(*(partial(function, part) for part in own), repeats=repeats)

    step = turns(search, limits, {})
    parts = [turns(make, limits, {}), turns(evaluate, make(limits), make({})), step]
    ratios = [f"{a / b:.2f}" for a, b in parts]
    return [f"{step[0]:.2f}", f"{step[1]:.2f}", *ratios]


def run(problem: Any, name: str, seed: int) -> tuple[float, float]:
    """Run a strategy on a problem with constraints.

    Args:
        problem: The problem.
        name: The strategy.
        seed: The seed of the run.

    Returns:
        How much worse the recommended setting is than the robust optimum, and how much
        it violates the constraints in the worst case; both at least zero.
    """
    domain = problem.domain
    strategy = make_strategy(
        name, domain, maximize=False, constraints=problem.constraints, seed=seed
    )
    start = 2 * domain.dim
    X = domain.sample(start, seed=seed)

    def evaluate(points: Tensor) -> Tensor:
        values = problem(points).unsqueeze(-1)
        return torch.cat([values, problem.evaluate_slack(points)], dim=-1)

    # A sequence of random points, and not the first one of many.
    others = domain.sample(start + NUM_STEPS, seed=seed)[start:]
    for i in range(NUM_STEPS):
        if name == "random":
            new = others[i : i + 1]
        else:
            new = strategy.propose(X, evaluate(X), seed=1000 * seed + i)
        X = torch.cat([X, new])
    with warnings.catch_warnings():
        # If no setting is probable enough, the closest one counts.
        warnings.simplefilter("ignore", BotorchWarning)
        x = strategy.recommend(X, evaluate(X)).x
    regret = float(problem.worst_case_value(x)) - problem.robust_optimal_value
    violation = -float(problem.worst_case_slack(x).min())
    return max(0.0, regret), max(0.0, violation)


def compare_strategies(problem: str, name: str, num_seeds: int) -> list[str]:
    """A row of the table of regret.

    Args:
        problem: The name of the problem.
        name: The strategy.
        num_seeds: The number of runs.

    Returns:
        The median and the 90 % quantile of the regret and of the violation, and how
        many of the settings are robustly feasible.
    """
    make = getattr(test_functions, problem)
    found = torch.tensor([run(make(), name, seed) for seed in range(num_seeds)]).T
    levels = torch.tensor([0.5, 0.9])
    cells = [f"{float(q):.2g}" for part in found for q in part.quantile(levels)]
    return [*cells, f"{int((found[1] == 0.0).sum())} of {num_seeds}"]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sections", nargs="*", metavar="section")
    parser.add_argument("--quick", action="store_true", help="few settings, no file")
    arguments = parser.parse_args()
    quick = arguments.quick
    kinds = [(1, "1"), (2, "1"), (1, "2"), (1, "finite"), (2, "finite")]
    # A little over a hundred pairs of each kind.
    batches, problems, repeats = (1, 4, 1) if quick else (13, 20, 5)
    sizes = [(*kind, n) for kind in kinds for n in ((1,) if quick else (1, 2))]
    run_sections(
        {
            "robust optima": lambda: Table(
                "Robust optima of pairs of functions, objective and constraint, "
                "against grids that shrink around the best feasible points. Right: at "
                "most 1e-3 too high and violated by less than 1e-6, or, where no x is "
                "feasible, recognised and a violation at most 1e-3 too high. (Standard "
                "deviations of the functions are about one.)",
                ["d_x", "theta"],
                ["pairs", "feasible", "right", "value", "largest violation"],
                {kind: partial(count_hits, *kind, batches) for kind in kinds},
            ),
            "variances": lambda: Table(
                "Conditional variances v_c of both outputs against rejection sampling: "
                "one x, five thetas, 3 or 4 observations, one sample each.",
                ["lower", "upper"],
                ["variances", "median error", "90 %"],
                {
                    limits: partial(compare_variances, *limits, problems)
                    for limits in ((None, 0.5), (-0.5, None), (None, -0.3), (-0.8, 0.8))
                },
            ),
            "cost": lambda: Table(
                f"Medians of CPU time of a step (construction and one candidate, t = "
                f"{NUM_DATA}, C = 16) with constraints and without, and ratios: of the "
                "construction, of an evaluation at 64 points with its gradient, and of "
                "the step.",
                ["d_x", "theta", "constraints"],
                ["step, s", "without, s", "construct", "evaluate", "step"],
                {size: partial(measure, *size, repeats) for size in sizes},
            ),
            "regret": lambda: Table(
                f"What is recommended after {NUM_STEPS} steps (before these, twice as "
                f"many points as columns), in {NUM_SEEDS} runs without noise: medians "
                "and 90 % quantiles of the regret, zero if the worst case is better "
                "than the robust optimum, and of the violation, and how many settings "
                "are robustly feasible. The probability asked for is 0.95.",
                ["problem", "strategy"],
                ["regret", "90 %", "violation", "90 %", "feasible"],
                {
                    key: partial(compare_strategies, *key, NUM_SEEDS)
                    for key in product(PROBLEMS[: 1 if quick else None], STRATEGIES)
                },
            ),
        },
        arguments.sections,
        None if quick else RESULTS / "constrained.md",
        TITLE,
    )


if __name__ == "__main__":
    main()
