"""Families of extreme truncated bivariate normals, for fuzzing; fifteen of them.

The first variable has an upper bound only. Depths reach a million standard deviations,
scales 1e-60 to 1e60.
"""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

Problem = tuple[Tensor, Tensor, Tensor, Tensor]


def _uniform(n: int, generator: Generator, *shape: int) -> Tensor:
    return torch.rand(n, *shape, generator=generator, dtype=torch.float64)


def _normal(n: int, generator: Generator, *shape: int) -> Tensor:
    return torch.randn(n, *shape, generator=generator, dtype=torch.float64)


def _sign(n: int, generator: Generator) -> Tensor:
    return 1.0 - 2.0 * torch.randint(0, 2, (n,), generator=generator).double()


def _problem(
    n: int,
    generator: Generator,
    correlation: str = "any",
    deep: bool = False,
    scaled: bool = False,
    far_mean: bool = False,
    widths: tuple[float, float] = (-2.0, 1.0),
) -> Problem:
    sigma = torch.ones(n, 2, dtype=torch.float64)
    if scaled:
        sigma = 10.0 ** (120.0 * _uniform(n, generator, 2) - 60.0)
    rho = {
        "any": lambda: 2.0 * _uniform(n, generator) - 1.0,
        "one": lambda: _sign(n, generator),
        "near one": lambda: (
            _sign(n, generator) * (1.0 - 10.0 ** (-17.0 * _uniform(n, generator)))
        ),
    }[correlation]()
    cross = rho * sigma.prod(-1)
    covariance = torch.stack(
        (sigma[:, 0].square(), cross, cross, sigma[:, 1].square()), -1
    ).unflatten(-1, (2, 2))
    mean = _normal(n, generator, 2) * sigma
    if far_mean:
        mean = mean * 10.0 ** (16.0 * _uniform(n, generator, 2) - 8.0)
    depth = 10.0 ** (6.0 * _uniform(n, generator, 2)) if deep else 3.0
    lower = mean + sigma * depth * _normal(n, generator, 2)
    exponent = widths[0] + (widths[1] - widths[0]) * _uniform(n, generator, 2)
    return mean, covariance, lower[:, 1], lower + sigma * 10.0**exponent


def _closed(problem: Problem) -> Problem:
    mean, covariance, lower, upper = problem
    upper[:, 1] = lower
    return mean, covariance, lower, upper


def _opened(problem: Problem, generator: Generator) -> Problem:
    mean, covariance, lower, upper = problem
    n = len(mean)
    lower[_uniform(n, generator) < 0.5] = -torch.inf
    upper[_uniform(n, generator, 2) < 0.5] = torch.inf
    return mean, covariance, lower, upper


def _without_variance(problem: Problem, generator: Generator) -> Problem:
    mean, covariance, lower, upper = problem
    kind = torch.randint(0, 3, (len(mean),), generator=generator)
    covariance[kind != 1, 0, 0] = 0.0
    covariance[kind != 2, 1, 1] = 0.0
    covariance[:, 0, 1] = covariance[:, 1, 0] = 0.0
    return mean, covariance, lower, upper


def _entropy_search(problem: Problem, generator: Generator) -> Problem:
    """Both variables below one bound; the lower one is often equal to it."""
    mean, covariance, lower, upper = problem
    n = len(mean)
    same = _uniform(n, generator) < 0.5
    mean[same, 0] = mean[same, 1]
    upper[:, 0] = upper[:, 1]
    empty = _uniform(n, generator) < 0.2
    lower[empty] = upper[empty, 1]
    return mean, covariance, lower, upper


NASTY = {"correlation": "near one", "deep": True, "widths": (-12.0, 7.0)}

FAMILIES: dict[str, Callable[[int, Generator], Problem]] = {
    "benign": _problem,
    "deep": lambda n, g: _problem(n, g, deep=True),
    "scaled": lambda n, g: _problem(n, g, scaled=True),
    "deep and scaled": lambda n, g: _problem(
        n, g, deep=True, scaled=True, widths=(-12.0, 7.0)
    ),
    "correlation one": lambda n, g: _problem(n, g, "one", widths=(-8.0, 2.0)),
    "correlation one, deep and scaled": lambda n, g: _problem(
        n, g, "one", deep=True, scaled=True, widths=(-12.0, 7.0)
    ),
    "correlation near one": lambda n, g: _problem(n, g, "near one", widths=(-8.0, 2.0)),
    "all at once": lambda n, g: _problem(n, g, scaled=True, **NASTY),
    "far means": lambda n, g: _problem(
        n, g, "near one", far_mean=True, widths=(-12.0, 2.0)
    ),
    "empty": lambda n, g: _closed(_problem(n, g, **NASTY)),
    "unbounded": lambda n, g: _opened(_problem(n, g, scaled=True, **NASTY), g),
    "no variance": lambda n, g: _without_variance(_problem(n, g, deep=True), g),
    "entropy search at the worst case": lambda n, g: _entropy_search(
        _problem(n, g, "one", widths=(-12.0, 2.0)), g
    ),
    "entropy search": lambda n, g: _entropy_search(
        _problem(n, g, "near one", widths=(-12.0, 2.0)), g
    ),
    "entropy search, all at once": lambda n, g: _entropy_search(
        _problem(n, g, scaled=True, **NASTY), g
    ),
}
