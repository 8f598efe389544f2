"""Expansions with several factors, and with weights for each level."""

import math

import pytest
import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError

from botorch_res import RobustDomain
from botorch_res.sampling import BatchFunction, Expansion, memory
from botorch_res.sampling.levels import Levels
from botorch_res.sampling.radial_kernel import RadialKernel
from tests.problems import DOUBLE, Draws, line

# Columns 0 and 2 are x, the others theta. Columns 0 and 3 are listed, and 4, too.
BOUNDS = line(2).repeat(1, 5)
X_CHOICES = {0: [0.0, 0.25, 1.0]}
THETA_CHOICES = {(3, 4): [[0.0, 0.3], [1.0, 0.3], [0.5, 0.7]]}
DOMAIN = RobustDomain(BOUNDS, [4, 1, 3], X_CHOICES, THETA_CHOICES)
SLOPPY = RobustDomain(BOUNDS, [4, 1, 3], X_CHOICES, THETA_CHOICES, tolerances={2: 0.1})
# Known from data only.
OUTSIDE = torch.tensor([[0.5, 0.1, 0.2, 0.25, 0.3]], **DOUBLE)
LEVELS = {"none": [], "x": [0], "theta": [3, 4], "some of theta": [4], "both": [0, 3]}
KERNELS = {
    "rbf": ([math.inf], False),
    "matern": ([2.5], False),
    "several": ([math.inf, 2.5, 1.5], True),
}


def make_expansion(levels="both", kernel="rbf", batch=(), t=6, waves=5):
    draws = Draws(1)
    smoothness, is_product = KERNELS[kernel]
    table = Levels(DOMAIN, LEVELS[levels], OUTSIDE) if LEVELS[levels] else None
    own = () if table is None else (len(table),)
    scale = 0.5 + draws.uniform(*batch, 1, 5)
    listed = [i for i in LEVELS[levels] if i != 3]
    scale[..., listed] = math.inf
    shares = None
    if is_product:
        shares = draws.uniform(3, *batch, 1, 5).clamp_min(0.2)
        shares[1, ..., :2] = 0.0
        shares[..., listed] = 0.0
    return Expansion(
        frequencies=draws.normal(*batch, waves, 5),
        cosines=draws.normal(4, *batch, *own, waves),
        sines=draws.normal(4, *batch, *own, waves),
        centers=draws.normal(*batch, t, 5),
        kernel_weights=draws.normal(4, *batch, *own, t),
        offset=draws.normal(4, *batch),
        kernel=RadialKernel(smoothness, shares),
        scale=scale,
        shift=draws.uniform(*batch, 1, 5),
        levels=table,
    )


def profile(s, nu):
    r = (2 * nu * s).sqrt()
    values = {
        math.inf: lambda: (-s / 2).exp(),
        2.5: lambda: (1 + r + r**2 / 3) * (-r).exp(),
        1.5: lambda: (1 + r) * (-r).exp(),
    }
    return values[nu]()


def by_definition(f, z, c):
    """One value of one function."""
    level = ()
    if f.levels is not None:
        rows = f.levels.points(torch.zeros(5, **DOUBLE))
        columns = torch.cat([f.levels.x.columns, f.levels.theta.columns])
        same = (rows[:, columns] == z[columns]).all(-1).nonzero()
        assert same.shape == (1, 1)
        level = (int(same),)
    u = z / f.scale[0] - f.shift[0]
    waves = [f.frequencies @ u, f.cosines[(c, *level)], f.sines[(c, *level)]]
    kernel = torch.ones(len(f.centers), **DOUBLE)
    shares = [torch.ones(1, 5)] if f.kernel.shares is None else f.kernel.shares
    for nu, share in zip(f.kernel.smoothness, shares, strict=True):
        kernel *= profile((share * (u - f.centers)).square().sum(-1), nu)
    value = waves[1] @ waves[0].cos() + waves[2] @ waves[0].sin()
    return f.offset[c] + value + f.kernel_weights[(c, *level)] @ kernel


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("levels", LEVELS)
def test_values_equal_the_definition(levels, kernel):
    f = make_expansion(levels, kernel)
    z = torch.cat([DOMAIN.sample(6, seed=0), OUTSIDE])
    expected = torch.stack(
        [torch.stack([by_definition(f, z[i], c) for i in range(7)]) for c in range(4)]
    )
    torch.testing.assert_close(f(z), expected)
    torch.testing.assert_close(f(z.expand(4, 7, 5)), expected)


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("t", [6, 0])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("levels", LEVELS)
def test_closed_form_derivatives_equal_autograd(monkeypatch, levels, kernel, t, batch):
    f = make_expansion(levels, kernel, batch, t)
    count = 5 * 4 * math.prod(batch)
    z = DOMAIN.sample(count, seed=0).view(4, *batch, 5, 5)
    for columns in ([1], [2, 0, 1, 3]):
        index = torch.tensor(columns)
        expected = BatchFunction.derivatives(f, z, index)
        for limit in (2**24, 40):
            monkeypatch.setattr(memory, "MAX_ELEMENTS", limit)
            for ours, theirs in zip(f.derivatives(z, index), expected, strict=True):
                torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("domain", [DOMAIN, SLOPPY], ids=["box", "tolerance"])
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("levels", LEVELS)
def test_table_equals_values_at_all_pairs(monkeypatch, levels, kernel, batch, domain):
    f = make_expansion(levels, kernel, batch)
    # Rows of theta in no order, one more often than the others.
    thetas = domain.theta.sample(7, seed=0)
    thetas = torch.cat([thetas, thetas[:1] * 1.0])
    x = domain.x.sample(5, seed=1)
    own = domain.x.sample(20 * math.prod(batch), seed=2).view(4, *batch, 5, 2)
    plain = BatchFunction.theta_table(f, thetas, domain)
    for limit in (2**24, 40):  # with and without room for weighted factors, and chunks
        monkeypatch.setattr(memory, "MAX_ELEMENTS", limit)
        table = f.theta_table(thetas, domain)
        torch.testing.assert_close(table(x), plain(x))
        torch.testing.assert_close(table(own), plain(own))
        expected = plain(own[:1].expand_as(own))
        torch.testing.assert_close(table(own[:1]), expected)
        torch.testing.assert_close(table(own[0]), expected)


def test_levels():
    levels = Levels(DOMAIN, [0, 3], OUTSIDE)
    assert len(levels) == 4 * 4
    points = levels.points(torch.full((5,), 0.1, **DOUBLE))
    assert torch.equal(levels.index(points), torch.arange(16))
    assert points[:, [1, 2, 4]].eq(0.1).all()
    assert levels.x.values.flatten().tolist() == [0.0, 0.25, 0.5, 1.0]
    levels.check(points + 1e-15)
    points[3, 3] = 0.4
    with pytest.raises(
        InputDataError, match=r"listed values of the columns \[0, 3\], got \[0\.0, 0\.4"
    ):
        levels.check(points)
    with pytest.raises(InputDataError, match="exist only for the listed values"):
        make_expansion()(points)
    single = make_expansion().to(torch.float32)
    assert single(points[:2].float()).dtype == torch.float32


def test_too_many_levels(monkeypatch):
    monkeypatch.setattr("botorch_res.sampling.levels.MAX_LEVELS", 8)
    # Three rows of x and as many of theta, and those of the data.
    with pytest.raises(UnsupportedError, match=r"\[0, 3\], .* 16 instead of at most 8"):
        Levels(DOMAIN, [0, 3], OUTSIDE)
