r"""The robust optimum ``min over x of max over theta of f(x, theta)``, batched.

The worst-case value ``g(x) = max over theta of f(x, theta)`` has kinks where two thetas
tie. Its minimum usually lies on a kink, where descent along the gradient stalls. So the
search has three stages:

1. Screening evaluates ``g`` at many ``x`` on a grid of thetas, by matrix products. The
   best ``x`` that are not neighbours of each other become the starts.
2. Descent: at each start, the local worst cases ``theta_k(x)`` give smooth branches
   ``f(x, theta_k(x))`` with known gradients and Hessians. The trial point minimises the
   largest of their quadratic models in a trust region. This finds kinks and corners as
   easily as smooth minima. The search moves there if ``g`` is smaller. A theta may be
   the worst case on the far side of a kink, but not even a local one on the near side.
   So each step also knows the worst theta of the previous, or rejected, point.
3. Verification: a new global search for the worst case at the points reached.

The numbers of starts and steps are fixed, and all functions and starts move together.
If some columns of ``x`` are listed, each row of listed values is screened on its own,
and the search moves in the free columns. In a finite set of ``x`` all of them are
compared instead. Linear constraints are constraints of the quadratic models, too.

With constraints ``max over theta of c_j(x, theta) <= 0``, each constraint has its own
global search for worst cases, and its own branches. A penalty adds the largest
violation to the value, in the screening and in the quadratic models. Of the points
found, the best feasible one counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_res.checks import check_number, check_points, check_type
from botorch_res.domain import DomainPart, RobustDomain
from botorch_res.optim.robust_optima.descent import Price, descend
from botorch_res.optim.robust_optima.robust_problem import (
    ConstrainedOptimum,
    RobustProblem,
    best_of,
)
from botorch_res.optim.tuples import join, select
from botorch_res.optim.worst_cases.product_grid import ProductGrid, grid_counts
from botorch_res.optim.worst_cases.solver import WorstCaseSolver
from botorch_res.sampling import BatchFunction

# In more dimensions the candidates are a Sobol sequence instead of a grid. A safe
# choice: in four dimensions, a grid of 4096 points has only eight along each axis.
MAX_GRID_DIMENSION = 3
# The numbers below were chosen on 80 to 480 posterior samples of each of five kinds of
# problem, from 1+1 to 3+1 columns. A miss is a robust optimum more than 1e-3 of the
# standard deviation above the best that any variant finds. There was none with these.
#
# Candidates per lengthscale. Half as many miss 0.2 % (1+1) to 1.3 % (3+1). Twice as
# many change nothing and take up to 1.4 times as long.
CANDIDATE_DENSITY = 3.75
# The largest number of candidates. A quarter of it misses 3 % of rough functions
# (Matern 5/2 in 2+1 columns).
MAX_CANDIDATES = 4096
# Starts per candidate along an axis. Half as many miss 0.3 to 1.3 %. Twice as many
# improve optima that are off by 1e-5, and take 1.2 to 1.7 times as long.
STARTS_PER_POINT = 0.25
# The largest number of starts for each column of x. On 256 functions of two and three
# columns it misses none. Half of it misses one. Twice as many take 1.5 times as long.
MAX_STARTS_PER_COLUMN = 16
# How many of the best candidates per start are looked at to find starts that are not
# neighbours. On the same functions two are as good.
POOL_PER_START = 8
# There are as many starts as for this many rows of listed values, the best of all rows,
# and at most as many candidates.
MAX_ROWS = 4
# Candidates closer than this many spacings are neighbours: the next ones along axes and
# diagonals. On the same functions it makes no difference to allow neighbours.
APART = 1.5
# The first trust region of the second descent, in units of that of the first descent.
# Without a second descent up to 1.3 % are missed. From 1/16 to 1 its size does not
# matter.
SECOND_RADIUS = 0.25
# The price of a violation in units of the standard deviations of value and violation
# over all candidates: in the screening, where the optimum can be next to a candidate
# that is not feasible, and in the descent.
SCREENING_PENALTY, PENALTY = 10.0, 100.0
# Descents aim at this share of the standard deviation of the violation below zero, so
# that what they find is feasible in spite of rounding.
MARGIN = 1e-7


class RobustOptimum(NamedTuple):
    """Robust optima of ``sample_shape`` functions.

    Attributes:
        x: ``sample_shape x d_x``, the paper's ``x*``.
        theta: ``sample_shape x d_theta``, the worst case there.
        value: ``sample_shape``, the paper's ``f*``.
    """

    x: Tensor
    theta: Tensor
    value: Tensor


Function = BatchFunction | Callable[[Tensor], Tensor] | WorstCaseSolver


def robust_optimum(
    function: Function,
    domain: RobustDomain | None = None,
    effort: float | None = None,
    num_starts: int | None = None,
    num_steps: int = 3,
    initial_x: Tensor | None = None,
) -> RobustOptimum:
    """Minimise the worst case of every function of a batch.

    Args:
        function: Posterior samples, or any differentiable callable that maps ``n x d``
            and ``sample_shape x n x d`` points to ``sample_shape x n`` values. A solver
            made for such functions works, too, and knows the domain and the effort.
        domain: The domain of the functions.
        effort: Scales the density of the grids and the number of local searches. The
            default is 1.
        num_starts: The number of starts for each function. If columns of ``x`` are
            listed, this is the largest number for one row of listed values.
        num_steps: The number of descent steps from each start.
        initial_x: ``n x d_x`` points to screen in addition.

    Returns:
        The robust optima.

    Example:
        >>> def f(z):
        ...     return (z[..., 0] - 0.1 * z[..., 1]).square()
        >>> x, theta, value = robust_optimum(f, domain)
    """
    found = constrained_robust_optimum(
        function, (), domain, effort, num_starts, num_steps, initial_x
    )
    return RobustOptimum(found.x, found.theta, found.value)


def constrained_robust_optimum(
    function: Function,
    constraints: Sequence[Function],
    domain: RobustDomain | None = None,
    effort: float | None = None,
    num_starts: int | None = None,
    num_steps: int = 3,
    initial_x: Tensor | None = None,
) -> ConstrainedOptimum:
    """Minimise the worst case of functions whose constraints hold in the worst case.

    Every constraint must be at most zero for all theta.

    Args:
        function: Functions as in ``robust_optimum``, or a solver made for them.
        constraints: As many functions for each constraint, or solvers made for them if
            ``function`` is one.
        domain: The domain of the functions.
        effort: Scales the density of the grids and the number of local searches. The
            default is 1.
        num_starts: The number of starts for each function. If columns of ``x`` are
            listed, this is the largest number for one row of listed values.
        num_steps: The number of descent steps from each start.
        initial_x: ``n x d_x`` points to screen in addition.

    Returns:
        The robust optima, and the worst case of each constraint there. If no ``x`` is
        feasible, the one with the smallest violation.

    Example:
        >>> def f(z):
        ...     return (z[..., 0] - 0.1 * z[..., 1]).square()
        >>> best = constrained_robust_optimum(f, [lambda z: 0.5 - z.sum(-1)], domain)
        >>> best.x, best.value, best.is_feasible
    """
    problem = _make_problem(function, constraints, domain, effort)
    domain = problem.objective.domain
    check_number("num_starts", 1 if num_starts is None else num_starts, 1)
    check_number("num_steps", num_steps, 1)
    if initial_x is not None:
        check_points("initial_x", initial_x, domain.x.dim, "m")
        if not bool(domain.x.contains(initial_x).all()):
            raise InputDataError(
                f"Expected `initial_x` in the domain, got {initial_x.tolist()}."
            )
    with torch.no_grad():
        if domain.x.choices is not None:
            return best_of(problem(domain.x.choices))
        candidates, spacing, typical_starts = fill(problem)
        if initial_x is not None:
            told = domain.x.free_of(initial_x)
            told = told.expand(*candidates.shape[:-2], -1, -1)
            candidates = torch.cat([candidates, told], dim=-2)
        starts, price = _screen(
            problem, candidates, spacing, num_starts or typical_starts
        )
        return _search(problem, starts, spacing, num_steps, price)


def _make_problem(
    function: Function,
    constraints: Sequence[Function],
    domain: RobustDomain | None,
    effort: float | None,
) -> RobustProblem:
    """Make the searches for worst cases, unless they are given."""
    functions = [function, *constraints]
    given = [own for own in functions if isinstance(own, WorstCaseSolver)]
    if not given:
        check_type("domain", domain, RobustDomain)
        effort = 1.0 if effort is None else effort
        given = [
            WorstCaseSolver(own, cast(RobustDomain, domain), effort)  # type: ignore[arg-type]
            for own in functions
        ]
    elif domain is not None or effort is not None:
        raise InputDataError(
            "Expected no `domain` and no `effort` beside a WorstCaseSolver, which has "
            "its own: leave them out."
        )
    elif len(given) < len(functions):
        raise InputDataError(
            "Expected `constraints` to be WorstCaseSolvers beside a `function` that is "
            "one, and functions beside a function."
        )
    return RobustProblem(given[0], given[1:])


def _search(
    problem: RobustProblem, x: Tensor, spacing: Tensor, num_steps: int, price: Price
) -> ConstrainedOptimum:
    """Descend from all starts, verify, and descend again from the better half."""
    # The second descent finds what the first one missed, because its worst cases come
    # from a new global search.
    found = problem(x)
    seen = [found]
    for radius in (spacing, SECOND_RADIUS * spacing):
        x = descend(problem, found, radius, num_steps, price)
        found = problem(x)
        seen.append(found)
        half = (x.shape[-2] + 1) // 2
        merit = price.merit(found.value, found.violation)
        found = select(found, merit.topk(half, largest=False).indices)
    return best_of(join(seen, dim=x.ndim - 2))


def fill(
    problem: RobustProblem, max_candidates: int = MAX_CANDIDATES
) -> tuple[Tensor, Tensor, int]:
    """Fill the space of the free columns of ``x`` with candidates.

    Args:
        problem: The problem.
        max_candidates: The largest number of candidates, if the effort is 1.

    Returns:
        ``n x d_free`` points, or ``rows x n x d_free`` with linear constraints; their
        ``d_free`` distances; and the number of starts that they deserve.
    """
    domain, effort = problem.objective.domain, problem.objective.effort
    bounds = domain.x.free_bounds
    width = bounds[1] - bounds[0]
    dim = len(width)
    rows = max(1.0, len(domain.x.rows) / MAX_ROWS)
    max_points = max(1, round(max_candidates * effort / rows))
    scale = problem.lengthscale(domain.x)
    counts = grid_counts(scale, width, CANDIDATE_DENSITY * effort, max_points)
    num_starts = round(math.prod(0.5 + STARTS_PER_POINT * n for n in counts))
    num_starts = min(max(4, num_starts), MAX_STARTS_PER_COLUMN * dim)
    if dim > MAX_GRID_DIMENSION:
        spacing = width * max_points ** (-1.0 / dim)
        part = domain.x.relaxed
        points = part.free_of(part.sample(max_points, seed=0))
        points = (points - bounds[0]) / width
        if scale is not None:  # the same points whatever the order of the columns
            points = points.index_select(-1, (width / scale).argsort().argsort())
        points = bounds[0] + width * points
    else:
        grid = ProductGrid(counts, bounds)
        points, spacing = bounds[0] + width * grid.points, width * grid.spacing
    if domain.x.is_constrained:
        points = domain.x.combine(points, domain.x.rows.unsqueeze(-2))
        points = domain.x.free_of(domain.x.spread(points))
    return points, spacing, num_starts


def _screen(
    problem: RobustProblem, candidates: Tensor, spacing: Tensor, num_starts: int
) -> tuple[Tensor, Price]:
    """Choose starts with a small worst case."""
    candidates = in_rows(problem.objective.domain.x, candidates)
    value, violation = problem.lower_bound(candidates.flatten(end_dim=-2))
    price = _price(problem, value, violation, SCREENING_PENALTY)
    value = price.merit(value, violation)
    price = price._replace(penalty=PENALTY / SCREENING_PENALTY * price.penalty)
    part = problem.objective.domain.x
    return select_starts(part, candidates, value, spacing, num_starts), price


def in_rows(part: DomainPart, candidates: Tensor) -> Tensor:
    """Combine candidates with every row of listed values.

    Args:
        part: The controllable part.
        candidates: ``n x d_free`` points in the free columns, or ``rows x n x d_free``.

    Returns:
        ``rows x n x d_x`` points of the part; ``n x d_x`` if nothing is listed.
    """
    return part.inward(part.combine(candidates, part.rows.unsqueeze(-2)))


def select_starts(
    part: DomainPart,
    candidates: Tensor,
    value: Tensor,
    spacing: Tensor,
    num_starts: int,
) -> Tensor:
    """Choose candidates with a small value that are not neighbours.

    Args:
        part: The controllable part.
        candidates: The points of ``in_rows``.
        value: ``batch_shape x (rows * n)`` values there.
        spacing: The ``d_free`` distances of the candidates.
        num_starts: The number of starts. If columns are listed, this is the largest
            number for one row of listed values.

    Returns:
        ``batch_shape x k x d_x`` starts.
    """
    if not part.is_box:
        value = value.unflatten(-1, candidates.shape[:2])
    pool = min(POOL_PER_START * num_starts, candidates.shape[-2])
    value, index = value.topk(pool, largest=False)
    x = candidates.expand(*value.shape[:-1], -1, -1)
    x = x.take_along_dim(index.unsqueeze(-1), dim=-2)
    # A candidate next to a better one leads to the same minimum.
    unit = part.free_of(x) / spacing
    apart = torch.cdist(unit, unit, p=math.inf)
    rank = torch.arange(x.shape[-2], device=x.device)
    shadowed = ((apart < APART) & (rank < rank.unsqueeze(-1))).any(dim=-1)
    score = rank + len(rank) * shadowed
    order = score.topk(min(num_starts, len(rank)), largest=False).indices
    x = x.take_along_dim(order.unsqueeze(-1), dim=-2)
    if part.is_box:
        return x
    value = value.gather(-1, order).flatten(-2)
    count = min(MAX_ROWS * num_starts, value.shape[-1])
    best = value.topk(count, largest=False).indices.unsqueeze(-1)
    return x.flatten(-3, -2).take_along_dim(best, dim=-2)


def _price(
    problem: RobustProblem, value: Tensor, violation: Tensor, penalty: float
) -> Price:
    """Choose the price of a violation from values and violations at many points."""
    if not problem.constraints:
        zero = torch.zeros_like(value[..., :1])
        return Price(zero, zero)
    tiny = torch.finfo(value.dtype).tiny ** 0.5
    spread = violation.std(dim=-1, keepdim=True).clamp_min(tiny)
    own = value.std(dim=-1, keepdim=True).clamp_min(tiny)
    return Price(penalty * own / spread, MARGIN * spread)
