import math

import pytest
import torch

from botorch_res.acquisition.truncation import (
    tie_weights,
    truncate_to_characteristics,
    truncate_to_optimum,
)

DOUBLE = {"dtype": torch.double}


class TestTieWeights:
    def test_values(self):
        """One worst case alone, two within the width, two that tie, three."""
        worst = torch.tensor([[2.0] * 6, [1.9, 1.995, 2.0, 1.995, 2.0, 1.0]], **DOUBLE)
        third = torch.tensor([[1.0, 1.0, 1.0, 1.995, 2.0, -torch.inf]], **DOUBLE)
        weights = tie_weights(
            torch.cat([worst, third]), torch.full((6,), 0.01, **DOUBLE)
        )
        expected = torch.tensor([0.0, 0.2, 0.5, 0.0, 0.0, 0.0], **DOUBLE)
        assert torch.allclose(weights[1], expected, atol=1e-12)
        assert torch.allclose(weights.sum(dim=0), torch.ones(6, **DOUBLE))

    @pytest.mark.parametrize("gap", [0.0, 0.01])
    def test_no_kinks(self, gap):
        """The weight of one branch, as it rises from below another to above it."""
        rise = gap + torch.tensor([-1e-7, 1e-7], **DOUBLE)
        rise.requires_grad_()
        value = torch.stack([rise.clamp_min(0.0), rise.clamp_max(0.0)])
        value = torch.cat([value, value.new_full((1, 2), -torch.inf)])
        weights = tie_weights(value, torch.full((2,), 0.01, **DOUBLE))
        rising = torch.where(rise > 0.0, weights[0], weights[1])
        slope = torch.autograd.grad(rising.sum(), rise)[0]
        assert slope[1] == pytest.approx(float(slope[0]), abs=1e-2)
        # It goes from 1/2 to 1 over a width of 0.01.
        assert float(slope[0]) == pytest.approx(50.0 if gap == 0.0 else 0.0, abs=1e-2)


@pytest.mark.parametrize("correlation", [-0.7, 0.0, 0.6, 0.999])
def test_variances_equal_monte_carlo(correlation):
    """Of a pair whose second part, or both, are truncated."""
    mean = torch.tensor([0.3, -0.2], **DOUBLE)
    mixed = correlation * math.sqrt(1.5)
    covariance = torch.tensor([[1.5, mixed], [mixed, 1.0]], **DOUBLE)
    lower, upper = torch.tensor([[-0.1], [1.0]], **DOUBLE)
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(2_000_000, 2, generator=generator, **DOUBLE)
    draws = mean + normal @ torch.linalg.cholesky(covariance).mT
    above = draws[draws[:, 1] >= lower]
    between = above[(above <= upper).all(dim=-1)]
    for truncate, kept in (
        (truncate_to_optimum, above),
        (truncate_to_characteristics, between),
    ):
        ours = truncate(mean.unsqueeze(0), covariance.unsqueeze(0), lower, upper)
        deviations = (kept[:, 0] - kept[:, 0].mean()).square()
        error = deviations.std() / math.sqrt(len(kept))
        assert float(ours) == pytest.approx(
            float(deviations.mean()), abs=4.0 * float(error)
        )
