"""Starting points of the search for the maximum of an acquisition function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.exceptions.errors import InputDataError
from botorch.optim.initializers import (
    gen_batch_initial_conditions,
    initialize_q_batch,
    initialize_q_batch_nonneg,
)
from botorch.utils.transforms import normalize, unnormalize
from torch import Tensor

from botorch_res.checks import check_type
from botorch_res.domain import RobustDomain
from botorch_res.optim.acquisition.multistart import evaluate
from botorch_res.seeding import seeded

# Points near the sampled robust optima have these standard deviations, in widths of the
# box. A safe choice: the maximum may lie at any of these distances.
PERTURBATIONS = (1e-3, 1e-2, 1e-1)
# As often does BoTorch draw, where a function is flat at all points.
NUM_DRAWS = 4


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

    This works as the ``ic_generator`` of BoTorch's ``optimize_acqf``. Three quarters of
    the raw samples fill the domain. The rest are the robust optima of the acquisition
    function's samples, if it has any, and points near them.

    Args:
        acq_function: The acquisition function. Its attribute ``robust_optimizers``, if
            there is one, has the ``... x d`` sampled optima.
        bounds: The ``2 x d`` bounds.
        q: The number of candidates per starting point.
        num_restarts: The number of starting points.
        raw_samples: The number of points from which these are selected.
        fixed_features: As in BoTorch.
        options: As in BoTorch, for example ``{"seed": 0, "init_batch_limit": 512}``.
        inequality_constraints: Not supported, must be ``None``.
        equality_constraints: Not supported, must be ``None``.
        domain: The domain. By default it is that of the acquisition function.

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
            "Expected no `inequality_constraints` and no `equality_constraints`, but "
            "`domain=domain.restricted(inequality_constraints=...)`."
        )
    space: Any = getattr(acq_function, "domain", None) if domain is None else domain
    check_type("domain", space, RobustDomain)
    space = space.evaluations
    if bounds.shape != space.bounds.shape or not bounds.allclose(
        space.bounds.to(bounds)
    ):
        raise InputDataError(
            f"Expected the `bounds` of the domain, {space.bounds.tolist()}, got "
            f"{bounds.tolist()}."
        )
    optima = sampled_optima(acq_function)

    def generate(n: int, q: int, seed: int | None) -> Tensor:
        return add_optima(space.sample(n * q, seed), optima, space).view(n, q, -1)

    # BoTorch uses the global generator, which is restored afterwards.
    with seeded((options or {}).get("seed")):
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


def select_starts(
    function: Callable[[Tensor], Tensor],
    domain: RobustDomain,
    optima: Tensor | None,
    seeds: Sequence[int | None],
    num_restarts: int,
    raw_samples: int,
    rows: int,
    is_nonnegative: bool,
) -> Tensor:
    """Select every member's starting points as BoTorch does for one function.

    Args:
        function: Maps ``n x m x S x d`` points to ``n x m x S`` values, one member per
            seed; see ``multistart.py``.
        domain: The domain.
        optima: ``S x C x d`` sampled optima, if there are any.
        seeds: ``S`` seeds.
        num_restarts: The number of starting points.
        raw_samples: The number of points from which these are selected. Where all of
            them have the same value, there are up to three more draws of more points.
        rows: The largest number of points of each member to evaluate at once.
        is_nonnegative: Whether the function is never negative, and zero where there is
            nothing to gain.

    Returns:
        ``num_restarts x S x d`` starting points.
    """
    choose = initialize_q_batch_nonneg if is_nonnegative else initialize_q_batch
    selected: dict[int, Tensor] = {}
    draw = 0
    while len(selected) < len(seeds):
        # Random generators have no batches. Here and in the selection, each member
        # draws its own random numbers; all other arithmetic is batched.
        own_seeds = [None if seed is None else seed + draw for seed in seeds]
        draw += 1
        n = draw * raw_samples
        raw = torch.stack([domain.sample(n, seed) for seed in own_seeds])
        raw = add_optima(raw, optima, domain)
        values = evaluate(function, raw.movedim(0, 1).unsqueeze(1), rows).squeeze(1)
        is_flat = (values.amax(dim=0) == values.amin(dim=0)).tolist()
        for i, points in enumerate(raw):
            if i not in selected and (draw == NUM_DRAWS or not is_flat[i]):
                with seeded(seeds[i]):
                    starts, _ = choose(points.unsqueeze(-2), values[:, i], num_restarts)
                selected[i] = starts.squeeze(-2)
    return torch.stack([selected[i] for i in range(len(seeds))], dim=1)


def sampled_optima(acq_function: AcquisitionFunction) -> Tensor | None:
    """Get the robust optima of an acquisition function's samples.

    Args:
        acq_function: The acquisition function, of one model or of an ensemble.

    Returns:
        ``n x d`` points, or ``None`` if it has no samples.
    """
    optima: Tensor | None = getattr(acq_function, "robust_optimizers", None)
    return None if optima is None else optima.movedim(0, -2).flatten(0, -2)


def add_optima(filling: Tensor, optima: Tensor | None, domain: RobustDomain) -> Tensor:
    """Replace a quarter of the points by robust optima and points near them.

    Args:
        filling: ``batch_shape x n x d`` points that fill the domain. Their places in
            the box determine the perturbations. In listed columns, every other point
            keeps its values.
        optima: ``batch_shape x C x d`` robust optima, if there are any.
        domain: The domain.

    Returns:
        ``batch_shape x n x d`` points of the domain. The optima come first, as far as a
        quarter of the points allows.
    """
    if optima is None:
        return filling
    filling, rest = filling.tensor_split([filling.shape[-2] // 4], dim=-2)
    count = optima.shape[-2]
    index = torch.arange(filling.shape[-2], device=filling.device)
    base = domain.nearest_evaluation(optima).index_select(-2, index % count)
    unit = normalize(filling, domain.bounds).clamp(1e-6, 1.0 - 1e-6)
    scale = unit.new_tensor(PERTURBATIONS)[index % len(PERTURBATIONS)].unsqueeze(-1)
    step = scale * torch.special.ndtri(unit)
    moved = normalize(base, domain.bounds) + step
    moved = unnormalize(moved.clamp(0.0, 1.0), domain.bounds)
    other = (index % 2 == 1).unsqueeze(-1)
    near = torch.where(domain.is_listed, torch.where(other, filling, base), moved)
    first = (index < count).unsqueeze(-1)
    near = domain.inward(torch.where(first, base, near))
    return torch.cat([near, rest], dim=-2)
