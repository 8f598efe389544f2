r"""Maximisation of acquisition functions over the four kinds of robust domain."""

from __future__ import annotations

from typing import Any

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.exceptions.errors import InputDataError
from botorch.optim.initializers import gen_batch_initial_conditions
from botorch.utils.sampling import manual_seed
from botorch.utils.transforms import normalize, unnormalize
from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.optim.ascent import advance, begin

# Points near the sampled robust optima are drawn with these standard deviations, in
# widths of the box.
PERTURBATIONS = (1e-3, 1e-2, 1e-1)
# How often a finite part of the domain is chosen anew before a local search.
NUM_EXCHANGES = 2
# After each heat of a search in a box, the worse half of the restarts is given up.
NUM_HEATS = 3


def optimize_robust_acqf(
    acq_function: AcquisitionFunction,
    domain: RobustDomain,
    q: int = 1,
    num_restarts: int = 8,
    raw_samples: int = 256,
    num_rounds: int = 7,
    batch_limit: int = 4096,
    seed: int | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Maximise an acquisition function over a robust domain.

    A box is searched by a quasi-Newton ascent from the best of many initial points, all
    restarts in one batch, in coordinates that make the box a unit cube. Where one part
    of the domain is a finite set, comparing all of its choices, for all restarts at
    once, and moving the other part take turns. Where both are finite, all points are
    evaluated.

    Args:
        acq_function: Any BoTorch acquisition function of ``batch_shape x 1 x d`` points
            in the user's units.
        domain: The domain to search.
        q: The number of candidates. They are found one after the other, each with its
            predecessors as pending points.
        num_restarts: The number of starting points of the local search.
        raw_samples: The number of points from which these are selected.
        num_rounds: The number of rounds of the local search.
        batch_limit: The largest number of points that are evaluated at once.
        seed: The seed of the initial points.

    Returns:
        The ``q x d`` candidates, and their acquisition values: a scalar for ``q = 1``,
        otherwise ``q`` values, each given the candidates before it.

    Example:
        >>> acqf = qRobustEntropySearch(model, domain, maximize=False, seed=0)
        >>> candidates, value = optimize_robust_acqf(acqf, domain, seed=0)
    """
    for name, value, least in (
        ("q", q, 1),
        ("num_restarts", num_restarts, 1),
        ("raw_samples", raw_samples, num_restarts),
        ("num_rounds", num_rounds, 1),
        ("batch_limit", batch_limit, 1),
    ):
        if value < least:
            raise InputDataError(f"Expected `{name}` of at least {least}, got {value}.")
    if q > 1:
        return _optimize_sequentially(
            acq_function,
            domain,
            q=q,
            num_restarts=num_restarts,
            raw_samples=raw_samples,
            num_rounds=num_rounds,
            batch_limit=batch_limit,
            seed=seed,
        )
    if domain.x_is_finite and domain.theta_is_finite:
        candidates = domain.all_pairs().flatten(0, 1).unsqueeze(-2)
        values = _evaluate(acq_function, candidates, batch_limit)
    else:
        starts = gen_robust_initial_conditions(
            acq_function,
            domain.bounds,
            q=1,
            num_restarts=num_restarts,
            raw_samples=raw_samples,
            options={"init_batch_limit": batch_limit, "seed": seed},
            domain=domain,
        )
        candidates, values = _local_search(
            acq_function, domain, starts, num_rounds, batch_limit
        )
    if values.isnan().any():
        raise RuntimeError(
            f"{int(values.isnan().sum())} of {values.numel()} values of "
            f"{type(acq_function).__name__} are NaN."
        )
    best = values.argmax()
    return candidates[best], values[best]


def gen_robust_initial_conditions(
    acq_function: AcquisitionFunction,
    bounds: Tensor,
    q: int,
    num_restarts: int,
    raw_samples: int,
    fixed_features: dict[int, float] | None = None,
    options: dict[str, Any] | None = None,
    inequality_constraints: list[tuple[Tensor, Tensor, float]] | None = None,
    equality_constraints: list[tuple[Tensor, Tensor, float]] | None = None,
    domain: RobustDomain | None = None,
) -> Tensor:
    r"""Select starting points from a Sobol sequence and the sampled robust optima.

    Usable as the ``ic_generator`` of BoTorch's ``optimize_acqf``. Three quarters of the
    raw samples fill the domain; the rest are the robust optima of the acquisition
    function's samples, if it has them, and perturbations of these.

    Args:
        acq_function: The acquisition function; ``acq_function.robust_optimizers`` are
            the ``... x d`` sampled optima.
        bounds: The ``2 x d`` bounds.
        q: The number of candidates per starting point.
        num_restarts: The number of starting points.
        raw_samples: The number of points from which these are selected.
        fixed_features: As in BoTorch.
        options: As in BoTorch, for example ``{"seed": 0, "init_batch_limit": 512}``.
        inequality_constraints: Not supported, must be ``None``.
        equality_constraints: Not supported, must be ``None``.
        domain: The domain; by default that of the acquisition function.

    Returns:
        The ``num_restarts x q x d`` starting points.

    Example:
        >>> optimize_acqf(
        ...     acqf, bounds, q=1, num_restarts=8, raw_samples=256,
        ...     ic_generator=gen_robust_initial_conditions,
        ... )
    """
    if inequality_constraints or equality_constraints:
        raise InputDataError(
            "Expected no `inequality_constraints` and no `equality_constraints`: a "
            "robust domain is a product of boxes and finite sets."
        )
    space: Any = acq_function.domain if domain is None else domain
    optima = getattr(acq_function, "robust_optimizers", None)
    seed = (options or {}).get("seed")

    def generate(n: int, q: int, seed: int | None) -> Tensor:
        filling = space.sample(n * q, seed)
        if optima is not None:
            near = _near_optima(optima.flatten(0, -2), space, filling[: n * q // 4])
            filling = torch.cat([near, filling[len(near) :]])
        points: Tensor = filling.view(n, q, -1)
        return points

    # BoTorch selects with the global generator, which is put back afterwards.
    with manual_seed(seed):
        return gen_batch_initial_conditions(
            acq_function,
            bounds,
            q=q,
            num_restarts=num_restarts,
            raw_samples=raw_samples,
            fixed_features=fixed_features,
            options=options,
            generator=generate,
        )


def _near_optima(optima: Tensor, domain: RobustDomain, filling: Tensor) -> Tensor:
    """Robust optima and points near them.

    Args:
        optima: ``batch_shape x C x d`` robust optima.
        domain: Their domain.
        filling: ``batch_shape x n x d`` points that fill the domain: where they lie in
            their box decides on the perturbation; every other point takes over their
            choice of a finite set.

    Returns:
        ``batch_shape x n x d`` points of the domain, the first ``C`` of them the
        optima.
    """
    count = optima.shape[-2]
    index = torch.arange(filling.shape[-2], device=filling.device)
    base = optima.index_select(-2, index % count)
    unit = normalize(filling, domain.bounds).clamp(1e-6, 1.0 - 1e-6)
    scale = unit.new_tensor(PERTURBATIONS)[index % len(PERTURBATIONS)].unsqueeze(-1)
    step = scale * torch.special.ndtri(unit)
    moved = normalize(base, domain.bounds) + step
    moved = unnormalize(moved.clamp(0.0, 1.0), domain.bounds)
    other = (index % 2 == 1).unsqueeze(-1)
    parts = []
    for finite, of_base, of_moved, of_filling in zip(
        (domain.x_is_finite, domain.theta_is_finite),
        domain.split(base),
        domain.split(moved),
        domain.split(filling),
        strict=True,
    ):
        parts.append(torch.where(other, of_filling, of_base) if finite else of_moved)
    first = (index < count).unsqueeze(-1)
    return torch.where(first, base, domain.join(*parts))


def _local_search(
    acq_function: AcquisitionFunction,
    domain: RobustDomain,
    starts: Tensor,
    num_rounds: int,
    batch_limit: int,
) -> tuple[Tensor, Tensor]:
    """Climb from all starts at once, and choose anew in a finite part.

    Args:
        acq_function: The acquisition function.
        domain: A domain with at least one continuous part.
        starts: ``num_restarts x 1 x d`` starting points.
        num_rounds: The number of rounds of the ascent.
        batch_limit: The largest number of points that are evaluated at once.

    Returns:
        The ``num_restarts x 1 x d`` candidates and their values.
    """
    if not (domain.x_is_finite or domain.theta_is_finite):
        return _climb(acq_function, domain, starts, (), num_rounds, NUM_HEATS)
    fixed = tuple(domain.controllable if domain.x_is_finite else domain.uncontrollable)
    candidates = starts
    for _ in range(NUM_EXCHANGES):
        chosen = _best_choice(acq_function, domain, candidates, batch_limit)
        candidates, values = _climb(
            acq_function, domain, chosen, fixed, (num_rounds + 1) // NUM_EXCHANGES, 1
        )
    return candidates, values


def _climb(
    acq_function: AcquisitionFunction,
    domain: RobustDomain,
    starts: Tensor,
    fixed: tuple[int, ...],
    num_rounds: int,
    num_heats: int,
) -> tuple[Tensor, Tensor]:
    """Climb from all starts at once, with some columns held.

    Args:
        acq_function: The acquisition function.
        domain: The domain.
        starts: ``num_restarts x 1 x d`` starting points.
        fixed: The columns that keep the values of their start.
        num_rounds: The number of rounds.
        num_heats: The rounds are so many heats. Only the better half of those who took
            part in a heat goes on to the next.

    Returns:
        The ``m x 1 x d`` candidates of the last heat and their values.
    """

    def in_unit_cube(u: Tensor) -> Tensor:
        flat: Tensor = acq_function(unnormalize(u.flatten(0, 1), domain.bounds))
        values: Tensor = flat.unflatten(0, u.shape[:2])
        return values.unsqueeze(-1)

    movable = torch.ones_like(domain.bounds[0], dtype=torch.bool)
    movable[list(fixed)] = False
    state = begin(in_unit_cube, normalize(starts, domain.bounds), movable)
    for heat in range(num_heats):
        if heat > 0:
            count = (len(starts) + 1) // 2
            index = state.values.topk(count, dim=0).indices
            state = state.select(index)
            starts = starts.take_along_dim(index.unsqueeze(-1), dim=0)
        rounds = (num_rounds + heat) // num_heats
        state = advance(in_unit_cube, state, movable, rounds)
    # What did not move is left without the rounding of the way to the cube and back.
    candidates = torch.where(movable, unnormalize(state.points, domain.bounds), starts)
    return candidates, state.values.squeeze(-1)


def _best_choice(
    acq_function: AcquisitionFunction,
    domain: RobustDomain,
    candidates: Tensor,
    batch_limit: int,
) -> Tensor:
    """Compare the choices of the finite part, all candidates at once.

    Args:
        acq_function: The acquisition function.
        domain: A domain with one finite part.
        candidates: ``n x 1 x d`` points.
        batch_limit: The largest number of points that are evaluated at once; of a
            larger set of choices than this allows, the nearest ones are compared.

    Returns:
        ``n x 1 x d`` points, each with the best choice for its continuous part.
    """
    x, theta = domain.split(candidates)
    count = max(1, batch_limit // len(candidates))
    if domain.x_choices is not None:
        near = _nearest(domain.x_choices, x, domain.x_bounds, count)
        points = domain.join(near, theta)
    else:
        assert domain.theta_choices is not None
        near = _nearest(domain.theta_choices, theta, domain.theta_bounds, count)
        points = domain.join(x, near)
    values = _evaluate(acq_function, points.flatten(0, 1).unsqueeze(-2), batch_limit)
    best = values.view(points.shape[:-1]).argmax(dim=-1)
    return points.take_along_dim(best[:, None, None], dim=1)


def _nearest(choices: Tensor, parts: Tensor, bounds: Tensor, count: int) -> Tensor:
    """The choices next to given ones.

    Args:
        choices: ``n_choices x d_part`` choices.
        parts: ``n x 1 x d_part`` parts of points.
        bounds: ``2 x d_part`` bounds, whose distance is the unit of length.
        count: The number of choices wanted.

    Returns:
        ``n x count x d_part`` choices, or fewer if there are not so many.
    """
    distance = torch.cdist(
        normalize(parts, bounds).squeeze(-2), normalize(choices, bounds)
    )
    nearest = distance.topk(min(count, len(choices)), largest=False)
    return choices[nearest.indices]


def _evaluate(
    acq_function: AcquisitionFunction, points: Tensor, batch_limit: int
) -> Tensor:
    """Evaluate an acquisition function in chunks.

    Args:
        acq_function: The acquisition function.
        points: ``n x 1 x d`` points.
        batch_limit: The largest number of points that are evaluated at once.

    Returns:
        The ``n`` values.
    """
    with torch.no_grad():
        return torch.cat([acq_function(X) for X in points.split(batch_limit)])


def _optimize_sequentially(
    acq_function: AcquisitionFunction, domain: RobustDomain, q: int, **kwargs: Any
) -> tuple[Tensor, Tensor]:
    """Find ``q`` candidates one after the other.

    Args:
        acq_function: The acquisition function; its pending points are put back.
        domain: The domain to search.
        q: The number of candidates.
        kwargs: The other arguments of ``optimize_robust_acqf``.

    Returns:
        The ``q x d`` candidates and ``q`` values.
    """
    before = acq_function.X_pending
    pending = domain.bounds[:0] if before is None else before
    found, values = [], []
    try:
        for _ in range(q):
            candidate, value = optimize_robust_acqf(acq_function, domain, q=1, **kwargs)
            found.append(candidate)
            values.append(value)
            acq_function.set_X_pending(torch.cat([pending, *found]))
    finally:
        acq_function.set_X_pending(before)
    return torch.cat(found), torch.stack(values)
