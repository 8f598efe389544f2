import math

import pytest
import torch

from botorch_res.acquisition.truncation import (
    tie_weights,
    truncate_to_characteristics,
    truncate_to_optimum,
)

DOUBLE = {"dtype": torch.double}


def weights_at(*rows, depth=None):
    """Weights of three worst cases with given values, and a width of 0.01."""
    value = torch.tensor(rows, **DOUBLE)
    depth = torch.full_like(value, torch.inf) if depth is None else depth
    return tie_weights(value, depth, torch.full_like(value[0], 0.01))


class TestTieWeights:
    def test_values(self):
        """One worst case alone, two within the width, two that tie, three."""
        weights = weights_at(
            [2.0] * 6,
            [1.9, 1.995, 2.0, 1.995, 2.0, 1.0],
            [1.0, 1.0, 1.0, 1.995, 2.0, -torch.inf],
        )
        expected = torch.tensor([0.0, 0.2, 0.5, 0.0, 0.0, 0.0], **DOUBLE)
        assert torch.allclose(weights[1], expected, atol=1e-12)
        assert torch.allclose(weights.sum(dim=0), torch.ones(6, **DOUBLE))

    def test_depth_of_the_second(self):
        """Half the gap, all of it, none: a shallow one counts within its depth only."""
        depth = torch.tensor([[torch.inf] * 4, [0.01, 0.006, 0.003, 0.0]], **DOUBLE)
        depth = torch.cat([depth, depth[:1]])
        rows = [[2.0] * 4, [1.997] * 4, [1.0] * 4]
        ratio = weights_at(*rows, depth=depth)
        expected = torch.tensor([0.7, 0.5, 0.0, 0.0], **DOUBLE).square()
        assert torch.allclose(ratio[1] / ratio[0], expected, atol=1e-12)
        tie = weights_at(rows[0], rows[0], rows[2], depth=depth)
        assert torch.allclose(tie, torch.full_like(tie, 0.5))

    def test_depth_of_the_third(self):
        """It counts fully where it ties with the second, not at all without depth."""
        depth = torch.full((3, 4), torch.inf, **DOUBLE)
        depth[2] = torch.tensor([0.0, 0.002, 0.004, 0.004], **DOUBLE)
        rows = [[2.0] * 4, [1.997] * 4, [1.995, 1.995, 1.995, 1.997]]
        ratio = weights_at(*rows, depth=depth)
        # The third is at a gap of 0.5 widths, moved away by none, all or half of it.
        expected = torch.tensor([0.7, 0.7, 0.45 / 0.75, 0.0], **DOUBLE).square()
        assert torch.allclose(ratio[1] / ratio[0], expected, atol=1e-12)

    @pytest.mark.parametrize("gap", [0.0, 0.01])
    def test_no_kinks(self, gap):
        """The weight of one branch, as it rises from below another to above it."""
        rise = gap + torch.tensor([-1e-7, 1e-7], **DOUBLE)
        rise.requires_grad_()
        value = torch.stack([rise.clamp_min(0.0), rise.clamp_max(0.0)])
        value = torch.cat([value, value.new_full((1, 2), -torch.inf)])
        depth = torch.full_like(value, torch.inf)
        weights = tie_weights(value, depth, torch.full((2,), 0.01, **DOUBLE))
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
        pair = mean.unsqueeze(0), covariance.unsqueeze(0)
        ours = truncate(*pair, lower, upper, lambda: upper)
        deviations = (kept[:, 0] - kept[:, 0].mean()).square()
        error = deviations.std() / math.sqrt(len(kept))
        assert float(ours) == pytest.approx(
            float(deviations.mean()), abs=4.0 * float(error)
        )


@pytest.mark.parametrize("truncate", [truncate_to_optimum, truncate_to_characteristics])
@pytest.mark.parametrize("gap", [-0.01, 0.5])
def test_gradients_by_all_arguments(truncate, gap):
    """Where the worst case is below the sampled optimum, the least width is left."""
    mean = torch.tensor([[0.3, 0.1]], **DOUBLE).requires_grad_()
    root = torch.tensor([[3.0, 0.0], [0.2, 0.1]], **DOUBLE).requires_grad_()
    worst = torch.tensor([0.15], **DOUBLE).requires_grad_()
    optimal = worst.detach() - gap

    def variance(mean, root, worst):
        covariance = (root @ root.mT).unsqueeze(0)
        return truncate(mean, covariance, optimal, worst, lambda: worst)

    assert torch.autograd.gradcheck(
        variance, (mean, root, worst), eps=1e-7, atol=1e-6, rtol=1e-6
    )
