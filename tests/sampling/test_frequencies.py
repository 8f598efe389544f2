import math

import pytest
import torch
from scipy import stats

from botorch_res.models import ExactGPView
from botorch_res.sampling.frequencies import (
    draw_plain_frequencies,
    rank_columns,
    stretch_frequencies,
)
from botorch_res.seeding import seeded
from tests.problems import Draws, make_kernel, make_model

SMOOTHNESS = [math.inf, 2.5, 1.5, 0.5]


def make_view(smoothness, dim, batch=()):
    X, Y = Draws(0).uniform(*batch, 3, dim), Draws(1).normal(*batch, 3, 1)
    kernel = make_kernel(smoothness, dim=None, batch=batch)
    return ExactGPView(make_model(X, Y, kernel=kernel))


def draw_frequencies(view, smoothness, num):
    dim = view.train_inputs.shape[-1]
    scale = view.covar_module.lengthscale
    drawn = draw_plain_frequencies(smoothness, dim, num, scale)
    (frequencies,), share = stretch_frequencies([drawn], [smoothness])
    return frequencies, share


def spectrum(smoothness, dim):
    """The spectral densities, from SciPy."""
    if math.isinf(smoothness):
        return stats.multivariate_normal(cov=torch.eye(dim).numpy())
    return stats.multivariate_t(shape=torch.eye(dim).numpy(), df=2 * smoothness)


@pytest.mark.parametrize("num", [1, 7, 8])
@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("smoothness", SMOOTHNESS)
def test_shares_are_the_ratio_of_densities(smoothness, dim, num):
    frequencies, share = draw_frequencies(make_view(smoothness, dim), smoothness, num)
    density = spectrum(smoothness, dim).pdf
    stretch = 1 + (1 if math.isinf(smoothness) else 2) * math.sqrt(2 / dim)
    points = frequencies.numpy()
    stretched = num // 2
    mixture = (num - stretched) * density(points)
    mixture = mixture + stretched * density(points / stretch) / stretch**dim
    expected = torch.as_tensor(density(points) / mixture).reshape(num)
    torch.testing.assert_close(share, expected)
    assert (share <= 2 / num + 1e-12).all()


@pytest.mark.parametrize("smoothness", SMOOTHNESS)
def test_the_kernel_is_exact_on_average(smoothness):
    view = make_view(smoothness, 2, batch=(2000,))
    frequencies, share = draw_frequencies(view, smoothness, 16)
    assert share.shape == (2000, 16)
    distance = torch.tensor([[0.0, 0.0], [0.3, 0.1], [1.0, -1.0], [4.0, 0.0]]).double()
    kernel = (share.unsqueeze(-2) * (distance @ frequencies.mT).cos()).sum(-1)
    scaled = view.covar_module.lengthscale[0] * distance
    exact = view.covar_module(scaled, torch.zeros_like(scaled[:1]))[0].to_dense()
    error = kernel.mean(0) - exact.squeeze(-1)
    assert (error.abs() < 5 * kernel.std(0) / math.sqrt(2000)).all()


@pytest.mark.parametrize("smoothness", SMOOTHNESS)
def test_frequencies_follow_the_mixture(smoothness):
    """Every other frequency has the spectral density, the rest a wider one.

    Signs do not matter, and alternate in a Sobol sequence.
    """
    view = make_view(smoothness, 2)
    frequencies, _ = draw_frequencies(view, smoothness, 4000)
    normal = math.isinf(smoothness)
    marginal = stats.norm() if normal else stats.t(df=2 * smoothness)
    stretch = 2.0 if normal else 3.0
    for part in (frequencies[::2], frequencies[1::2] / stretch):
        for column in part.abs().T:
            folded = 2 * marginal.cdf(column.numpy()) - 1
            assert stats.kstest(folded, "uniform").pvalue > 1e-4


def test_shares_of_a_product():
    """The frequencies of both factors have the product of their densities."""
    like = torch.ones(1, 1, dtype=torch.double)
    smoothness, dims = [math.inf, 1.5], [2, 1]
    with seeded(0):
        drawn = [
            draw_plain_frequencies(nu, dim, 8, like)
            for nu, dim in zip(smoothness, dims, strict=True)
        ]
    frequencies, share = stretch_frequencies(drawn, smoothness)
    near, far = torch.ones(8).double(), torch.ones(8).double()
    for points, nu, dim in zip(frequencies, smoothness, dims, strict=True):
        density = spectrum(nu, dim).pdf
        stretch = 1 + (1 if math.isinf(nu) else 2) * math.sqrt(2 / dim)
        near *= torch.as_tensor(density(points.numpy()))
        far *= torch.as_tensor(density(points.numpy() / stretch) / stretch**dim)
    torch.testing.assert_close(share, near / (4 * near + 4 * far))


def ranks(inputs, lengthscale=1.0, is_theta=None):
    inputs = torch.tensor(inputs, dtype=torch.double)
    lengthscale = torch.tensor(lengthscale, dtype=torch.double)
    lengthscale = lengthscale.expand(*inputs.shape[:-2], 1, inputs.shape[-1])
    theta = None if is_theta is None else torch.tensor(is_theta)
    return rank_columns(inputs, lengthscale, theta).tolist()


def test_ranks_of_columns():
    # By the first observation in which columns differ, in units of their ranges.
    three = [[0.0, 0.0, 1.0], [0.5, 0.2, 0.0], [1.0, 1.0, 0.3]]
    assert ranks(three) == [1, 0, 2]
    units = [[7.0, -1e6, 1e-9], [7.5, -8e5, 0.0], [8.0, 0.0, 3e-10]]
    assert ranks(units) == [1, 0, 2]
    assert ranks(three, is_theta=[True, False, False]) == [2, 0, 1]
    # Then by lengthscale, by the inputs themselves, and as they stand.
    assert ranks([[0.5, 0.5]], [2.0, 1.0]) == [1, 0]
    assert ranks([[0.7, 0.5]], [2.0, 2.0]) == [1, 0]
    assert ranks([[0.5, 0.5, 0.5]]) == [0, 1, 2]
    # Every model of a batch by itself, and whatever the rounding.
    assert ranks([three, [row[::-1] for row in three]]) == [[1, 0, 2], [2, 0, 1]]
    noisy = [[x + 1e-15 * i for i, x in enumerate(row)] for row in three]
    assert ranks(noisy) == [1, 0, 2]


@pytest.mark.parametrize("batch", [(), (4,)])
def test_ranks_follow_the_columns(batch):
    draws = Draws(0)
    for d in (1, 2, 5):
        # Few different numbers: many ties to be broken by later observations.
        inputs = torch.randint(3, (*batch, 6, d)).double()
        scale = draws.uniform(*batch, 1, d)
        rank = rank_columns(inputs, scale)
        assert torch.equal(rank.sort().values, torch.arange(d).expand(*batch, d))
        order = draws.permutation(d)
        assert torch.equal(
            rank_columns(inputs[..., order], scale[..., order]), rank[..., order]
        )
