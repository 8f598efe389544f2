"""Draws of one of several normal variables, given intervals for all of them."""

import torch
from torch import Tensor
from torch.distributions import Normal

from tests.problems import DOUBLE, Draws


def draws_within(
    mean: Tensor,
    covariance: Tensor,
    lower: Tensor,
    upper: Tensor,
    place: int,
    seed: int,
) -> Tensor:
    """Draws of the variable at a place; those that violate an interval are dropped.

    Variables are drawn one after the other, the most restricted first, so that most
    draws are thrown away before they are complete.
    """
    marginal = Normal(mean, covariance.diagonal().sqrt())
    order = (marginal.cdf(upper) - marginal.cdf(lower)).argsort()
    covariance = covariance[order][:, order] + 1e-9 * torch.eye(len(mean), **DOUBLE)
    root = torch.linalg.cholesky(covariance)
    draws = Draws(seed)
    position = int((order == place).nonzero())
    kept = torch.empty(0, **DOUBLE)
    for _ in range(10):
        white = torch.empty(0, 100_000, **DOUBLE)
        for i, row in enumerate(root):
            white = torch.cat([white, draws.normal(1, white.shape[1])])
            value = mean[order[i]] + row[: i + 1] @ white
            white = white[:, (value >= lower[order[i]]) & (value <= upper[order[i]])]
        kept = torch.cat([kept, mean[place] + root[position] @ white])
        # The standard error of their variance is 1 %.
        if len(kept) >= 20_000:
            break
    return kept
