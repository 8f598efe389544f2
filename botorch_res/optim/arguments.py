"""What the searches ask of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.limits import check_number

# Of a search: with less there are no grids.
LEAST_EFFORT = 0.01


def check_counts(**counts: tuple[Any, int]) -> None:
    """Raise unless whole numbers are large enough.

    Args:
        **counts: The value of each argument, and the least one that makes sense.
    """
    for name, (value, least) in counts.items():
        check_number(name, value, least)


def check_effort(effort: Any) -> None:
    """Raise unless an effort is a number that leaves some points to the grids.

    Args:
        effort: The user's effort.
    """
    check_number("effort", effort, LEAST_EFFORT)


def check_tensor(**tensors: Any) -> None:
    """Raise unless arguments are tensors.

    Args:
        **tensors: The arguments.
    """
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise InputDataError(
                f"Expected `{name}` to be a tensor, got {type(value).__name__}."
            )


def check_domain(domain: RobustDomain) -> None:
    """Raise unless a domain is one.

    Args:
        domain: The user's domain.
    """
    if not isinstance(domain, RobustDomain):
        raise InputDataError(
            "Expected `domain` to be a RobustDomain, which says what is controllable, "
            f"got {type(domain).__name__}."
        )


def check_acquisition(
    acq_function: AcquisitionFunction, domain: RobustDomain, *members: int
) -> None:
    """Raise unless an acquisition function can be evaluated on a domain.

    Args:
        acq_function: The acquisition function.
        domain: The domain.
        *members: The number of members, one for each seed, if there is a batch of them.
    """
    if not isinstance(acq_function, AcquisitionFunction):
        raise InputDataError(
            "Expected `acq_function` to be an AcquisitionFunction, got "
            f"{type(acq_function).__name__}."
        )
    check_domain(domain)
    point = domain.sample(1, seed=0).expand(1, *members, 1, -1)
    value = try_out("acq_function", acq_function, point)
    if value.shape != (1, *members):
        raise BotorchTensorDimensionError(
            "Expected `acq_function` to have one value at each point"
            f"{' of each seed' if members else ''}, but it maps shape "
            f"{tuple(point.shape)} to {tuple(value.shape)}."
        )


def try_out(name: str, function: Callable[[Tensor], Tensor], point: Tensor) -> Tensor:
    """Raise unless a function accepts points of a domain.

    Args:
        name: The argument's name.
        function: The function.
        point: A point of the domain, in the shape that the function expects.

    Returns:
        The value.
    """
    try:
        with torch.no_grad():
            return function(point)
    except (RuntimeError, BotorchTensorDimensionError) as error:
        raise BotorchTensorDimensionError(
            f"Expected `{name}` to accept points of the `domain`, with as many "
            f"columns, of its dtype and on its device, but it fails at one of shape "
            f"{tuple(point.shape)}, {point.dtype}, on {point.device}: {error}"
        ) from error
