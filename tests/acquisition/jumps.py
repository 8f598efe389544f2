"""Jumps of an acquisition function along a line."""

import torch
from botorch.acquisition import AcquisitionFunction


@torch.no_grad()
def largest_jump(acqf: AcquisitionFunction) -> float:
    """The largest jump on the line ``(x, 0.45)``, by bisection of its steepest parts.

    Args:
        acqf: A function on the unit square.

    Returns:
        The change between neighbours that are about 1e-13 apart.
    """

    def along(x):
        points = torch.stack([x, torch.full_like(x, 0.45)], dim=-1)
        return acqf(points.unsqueeze(-2))

    line = torch.linspace(0.0, 1.0, 1001, dtype=torch.double)
    place = along(line).diff().abs().topk(40).indices
    low, high = line[place], line[place + 1]
    for _ in range(34):
        middle = 0.5 * (low + high)
        values = along(torch.cat([low, middle, high])).unflatten(0, (3, -1))
        first, second = values.diff(dim=0).abs()
        low = torch.where(first > second, low, middle)
        high = torch.where(first > second, middle, high)
    return float((along(high) - along(low)).abs().max())
