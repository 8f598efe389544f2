r"""Maximisation of acquisition functions over the four kinds of robust domain."""

from __future__ import annotations

from typing import Any

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.exceptions.errors import InputDataError
from botorch.generation.gen import gen_candidates_scipy
from botorch.optim.initializers import gen_batch_initial_conditions
from botorch.utils.sampling import manual_seed
from botorch.utils.transforms import normalize, unnormalize
from torch import Tensor

from botorch_res.domain import RobustDomain

# Points near the sampled robust optima are drawn with these standard deviations, in
# widths of the box.
PERTURBATIONS = (1e-3, 1e-2, 1e-1)


def optimize_robust_acqf(
    acq_function: AcquisitionFunction,
    domain: RobustDomain,
    q: int = 1,
    num_restarts: int = 8,
    raw_samples: int = 256,
    options: dict[str, Any] | None = None,
    batch_limit: int = 4096,
    seed: int | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Maximise an acquisition function over a robust domain.

    A box is searched by L-BFGS-B from the best of many initial points, all restarts in
    one batch, in coordinates that make the box a unit cube. Where one part of the
    domain is a finite set, each restart keeps its own choice and moves the other part.
    Where both are finite, all points are evaluated.

    Args:
        acq_function: Any BoTorch acquisition function of ``batch_shape x 1 x d`` points
            in the user's units.
        domain: The domain to search.
        q: The number of candidates. They are found one after the other, each with its
            predecessors as pending points.
        num_restarts: The number of starting points of the local search.
        raw_samples: The number of points from which these are selected.
        options: Options of ``scipy.optimize.minimize``'s ``L-BFGS-B``, for example
            ``{"maxiter": 50}``.
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
            options=options,
            batch_limit=batch_limit,
            seed=seed,
        )
    if domain.x_is_finite and domain.theta_is_finite:
        candidates = domain.all_pairs().flatten(0, 1).unsqueeze(-2)
        with torch.no_grad():
            values = torch.cat([acq_function(X) for X in candidates.split(batch_limit)])
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
        candidates, values = _local_search(acq_function, domain, starts, options)
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
        optima: ``C x d`` robust optima.
        domain: Their domain.
        filling: ``n x d`` points that fill the domain: where they lie in their box
            decides on the perturbation; every other point takes over their choice of
            a finite set.

    Returns:
        ``n x d`` points of the domain, the first ``C`` of them the optima.
    """
    index = torch.arange(len(filling), device=filling.device)
    base = optima[index % len(optima)]
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
    first = (index < len(optima)).unsqueeze(-1)
    return torch.where(first, base, domain.join(*parts))


def _local_search(
    acq_function: AcquisitionFunction,
    domain: RobustDomain,
    starts: Tensor,
    options: dict[str, Any] | None,
) -> tuple[Tensor, Tensor]:
    """Run L-BFGS-B from all starts at once; finite parts stay where they are.

    Args:
        acq_function: The acquisition function.
        domain: A domain with at least one continuous part.
        starts: ``num_restarts x 1 x d`` starting points.
        options: Options of the optimiser.

    Returns:
        The ``num_restarts x 1 x d`` candidates and their values.
    """
    fixed: tuple[int, ...] = ()
    if domain.x_is_finite:
        fixed = domain.controllable
    elif domain.theta_is_finite:
        fixed = tuple(domain.uncontrollable)
    unit = normalize(starts, domain.bounds)

    def in_unit_cube(u: Tensor) -> Any:
        return acq_function(unnormalize(u, domain.bounds))

    candidates, values = gen_candidates_scipy(
        initial_conditions=unit,
        acquisition_function=in_unit_cube,  # type: ignore[arg-type]
        lower_bounds=torch.zeros_like(domain.bounds[0]),
        upper_bounds=torch.ones_like(domain.bounds[0]),
        fixed_features={i: unit[:, 0, i] for i in fixed},
        options=options,
    )
    candidates = unnormalize(candidates, domain.bounds)
    # The choices themselves, without the rounding of the way to the cube and back.
    candidates[..., list(fixed)] = starts[..., list(fixed)]
    return candidates, values


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
