import math
import pickle
from copy import deepcopy

import pytest
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError

from botorch_res import RobustDomain
from botorch_res.models.radial import radial_value
from botorch_res.sampling import BatchFunction, Expansion, memory, radial_kernel
from botorch_res.sampling.radial_kernel import RadialKernel
from tests.problems import unit_domain

SMOOTHNESS = [math.inf, 2.5, 1.5, 0.5]
DOMAIN = RobustDomain(unit_domain(2, 1).bounds, uncontrollable=[2, 0])


def random_expansion(batch=(), smoothness=math.inf, t=6, dtype=torch.double, **changes):
    generator = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype)

    arguments = {
        "frequencies": normal(*batch, 10, 3),
        "cosines": normal(4, *batch, 10),
        "sines": normal(4, *batch, 10),
        "centers": normal(*batch, t, 3),
        "kernel_weights": normal(4, *batch, t),
        "offset": normal(4, *batch),
        "kernel": RadialKernel([smoothness], None),
        "scale": 0.5 + normal(*batch, 1, 3).abs(),
        "shift": normal(*batch, 1, 3),
    }
    return Expansion(**{**arguments, **changes})


def by_definition(f, z, c):
    """One value of one function, from the formula in the module's docstring."""
    u = z / f.scale[0] - f.shift[0]
    phase = f.frequencies @ u
    s = (u - f.centers).square().sum(-1)
    r = (2 * f.kernel.smoothness[0] * s).sqrt()
    kernel = {
        math.inf: lambda: (-s / 2).exp(),
        2.5: lambda: (1 + r + r**2 / 3) * (-r).exp(),
        1.5: lambda: (1 + r) * (-r).exp(),
        0.5: lambda: (-r).exp(),
    }[f.kernel.smoothness[0]]()
    waves = f.cosines[c] @ phase.cos() + f.sines[c] @ phase.sin()
    return f.offset[c] + waves + f.kernel_weights[c] @ kernel


@pytest.mark.parametrize("smoothness", SMOOTHNESS)
def test_values_equal_the_definition(smoothness):
    f = random_expansion(smoothness=smoothness)
    z = torch.randn(4, 5, 3, dtype=torch.double)
    expected = torch.stack(
        [
            torch.stack([by_definition(f, z[c, i], c) for i in range(5)])
            for c in range(4)
        ]
    )
    torch.testing.assert_close(f(z), expected)
    torch.testing.assert_close(f(z[1])[1], expected[1])
    assert f.num_samples == 4


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("t", [6, 0])
@pytest.mark.parametrize("smoothness", SMOOTHNESS)
def test_closed_form_derivatives_equal_autograd(batch, t, smoothness):
    f = random_expansion(batch, smoothness, t)
    z = torch.randn(4, *batch, 5, 3, dtype=torch.double)
    for columns in ([1], [0, 2], [2, 0, 1]):
        index = torch.tensor(columns)
        closed = f.derivatives(z, index)
        autograd = BatchFunction.derivatives(f, z, index)
        for ours, theirs in zip(closed, autograd, strict=True):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("t", [6, 0])
@pytest.mark.parametrize("smoothness", SMOOTHNESS)
def test_table_equals_values_at_all_pairs(monkeypatch, batch, t, smoothness):
    f = random_expansion(batch, smoothness, t)
    thetas = torch.rand(7, 2, dtype=torch.double)
    x = torch.rand(5, 1, dtype=torch.double)
    own = torch.rand(4, *batch, 5, 1, dtype=torch.double)
    plain = BatchFunction.theta_table(f, thetas, DOMAIN)
    for limit in (2**24, 40):  # with and without room for weighted factors, and chunks
        monkeypatch.setattr(memory, "MAX_ELEMENTS", limit)
        table = f.theta_table(thetas, DOMAIN)
        torch.testing.assert_close(table(x), plain(x))
        torch.testing.assert_close(table(own), plain(own))
        shared = own[:1]
        expected = plain(shared.expand_as(own))
        torch.testing.assert_close(table(shared), expected)
        torch.testing.assert_close(plain(shared), expected)
        torch.testing.assert_close(table(shared[0]), expected)


@pytest.mark.parametrize("dtype", [torch.double, torch.float])
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("t", [6, 0])
@pytest.mark.parametrize("smoothness", SMOOTHNESS[:2])
@pytest.mark.parametrize(
    ("tolerances", "uncontrollable", "scale"),
    [
        ({1: 0.1}, [0], 0.3),
        ({2: (-0.05, 0.2), 0: 0.3}, [], 0.3),
        ({2: 0.3, 0: 0.3, 1: 0.3}, [], 0.1),
        # So many lengthscales wide that exponentials would overflow.
        ({2: 0.3, 0: 0.3}, [1], 0.02),
    ],
)
def test_table_with_tolerances(
    monkeypatch, tolerances, uncontrollable, scale, smoothness, t, batch, dtype
):
    # Centres in the domain, but far from the origin.
    origin = torch.tensor([3.0, -5.0, 40.0], dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    centers = torch.rand(*batch, t, 3, generator=generator, dtype=dtype) / scale
    f = random_expansion(
        batch,
        smoothness,
        t,
        dtype,
        centers=centers,
        scale=torch.full((*batch, 1, 3), scale, dtype=dtype),
        shift=(origin / scale).expand(*batch, 1, 3),
    )
    bounds = torch.stack([origin, origin + 1.0])
    domain = RobustDomain(bounds, uncontrollable, tolerances=tolerances)
    thetas = torch.cat([domain.theta.sample(7, seed=0), domain.theta.bounds])
    x = torch.cat([domain.x.sample(5, seed=1), domain.x.bounds])
    own = domain.x.sample(28 * max(1, *batch, 1), seed=2).view(4, *batch, 7, -1)
    plain = BatchFunction.theta_table(f, thetas, domain)
    # The rounding of a phase, which grows with the distance to the origin, is in both.
    close = {"rtol": 0.0, "atol": 1e-10 if dtype == torch.double else 5e-4 / scale}
    for limit in (2**24, 40):  # with and without room for weighted factors, and chunks
        monkeypatch.setattr(memory, "MAX_ELEMENTS", limit)
        table = f.theta_table(thetas, domain)
        is_narrow = scale >= (0.1 if dtype == torch.double else 0.3)
        if t and smoothness == 2.5:
            assert table.tilt is None
        elif t and scale != 0.1:
            assert (table.tilt is not None) == is_narrow
        torch.testing.assert_close(table(x), plain(x), **close)
        torch.testing.assert_close(table(own), plain(own), **close)
        expected = plain(own[:1].expand_as(own))
        torch.testing.assert_close(table(own[:1]), expected, **close)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_points_that_the_functions_of_a_model_have_in_common(batch):
    f = random_expansion(batch)
    z = torch.randn(1, *batch, 5, 3, dtype=torch.double)
    own = z.expand(4, *batch, 5, 3)
    torch.testing.assert_close(f(z), f(own))
    torch.testing.assert_close(f(z[0]), f(own))
    columns = torch.tensor([2, 0])
    for points in (z, z[0], z.flatten(0, -3)[0]):
        alike = points.expand_as(own)
        for found, expected in zip(
            f.derivatives(points, columns), f.derivatives(alike, columns), strict=True
        ):
            torch.testing.assert_close(found, expected)
    for shape in ((3, 2, 5, 3), (4, 3, 5, 3), (4, 2, 1, 5, 3)):
        wrong = torch.rand(shape, dtype=torch.double)
        for function_of in (f, lambda z: f.derivatives(z, columns)):
            with pytest.raises(BotorchTensorDimensionError, match="`z` of shape"):
                function_of(wrong)


def test_pairs_fit_the_caches(monkeypatch):
    """Kernels that do not factorise, on a processor: small pieces, the same values."""
    f = random_expansion((), 2.5, 6)
    thetas = torch.rand(7, 2, dtype=torch.double)
    sizes = []

    def record(distance, smoothness):
        sizes.append(distance.numel())
        return radial_value(distance, smoothness)

    table = f.theta_table(thetas, DOMAIN)
    common, own = torch.rand(5, 1).double(), torch.rand(4, 5, 1).double()
    whole = [table(common), table(own)]
    monkeypatch.setattr(radial_kernel, "radial_value", record)
    monkeypatch.setattr(memory, "CACHED_ELEMENTS", 2 * 4 * 7 * 6)
    for x, expected in zip((common, own), whole, strict=True):
        torch.testing.assert_close(table(x), expected)
    assert max(sizes) == 2 * 4 * 7 * 6
    assert len(sizes) == 1 + 3


def test_chunks_do_not_change_values(monkeypatch):
    f = random_expansion()
    z = torch.randn(4, 9, 3, dtype=torch.double)
    columns = torch.tensor([0, 1])
    whole = (f(z), f(z[0]), *f.derivatives(z, columns))
    monkeypatch.setattr(memory, "MAX_ELEMENTS", 100)
    parts = (f(z), f(z[0]), *f.derivatives(z, columns))
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("batch", "points", "pieces"),
    [
        ((), 18, [(2, 9), (2, 9)]),
        ((), 30, [(3, 9), (1, 9)]),
        ((), 4, 4 * [(1, 4), (1, 4), (1, 1)]),
        ((3,), 3 * 18, [(2, 3, 9), (2, 3, 9)]),
        ((3,), 3 * 5, 4 * [(1, 3, 5), (1, 3, 4)]),
        ((3,), 1, 36 * [(1, 3, 1)]),
    ],
)
def test_derivatives_fit_the_caches(batch, points, pieces, monkeypatch):
    """On a processor; on a device that is fed, one piece as large as the memory."""
    f = random_expansion(batch)
    table = f.derivative_table(torch.tensor([0, 1]))
    z = torch.randn(4, *batch, 9, 3, dtype=torch.double)
    whole, sizes = table(z), []
    evaluate = type(table)._evaluate

    def record(self, part, level, tables):
        sizes.append(tuple(part.shape[:-1]))
        return evaluate(self, part, level, tables)

    monkeypatch.setattr(type(table), "_evaluate", record)
    features = f.frequencies.shape[-2] + f.centers.shape[-2]
    monkeypatch.setattr(memory, "CACHED_ELEMENTS", points * features)
    for part, expected in zip(table(z), whole, strict=True):
        torch.testing.assert_close(part, expected)
    assert sizes == pieces
    assert memory.piece_size(torch.device("meta")) == memory.MAX_ELEMENTS


class Cube(torch.nn.Module):
    """A transform that is not affine."""

    def forward(self, z):
        return z**3


def test_transforms_that_are_not_affine_take_autograd():
    f = random_expansion(input_transform=Cube())
    plain = random_expansion()
    z = torch.rand(4, 5, 3, dtype=torch.double)
    torch.testing.assert_close(f(z), plain(z**3))
    assert f.lengthscale is None
    assert f.dim is None
    columns = torch.tensor([1])
    value, gradient, hessian = f.derivatives(z, columns)
    inner = plain.derivatives(z**3, columns)
    y = z[..., 1:2]
    torch.testing.assert_close(value, inner.value)
    torch.testing.assert_close(gradient, 3 * y**2 * inner.gradient)
    bent = (3 * y**2) ** 2 * inner.hessian[..., 0] + 6 * y * inner.gradient
    torch.testing.assert_close(hessian[..., 0], bent)
    thetas = torch.rand(3, 2, dtype=torch.double)
    x = torch.rand(2, 1, dtype=torch.double)
    values = plain.theta_table(thetas**3, DOMAIN)(x**3)
    torch.testing.assert_close(f.theta_table(thetas, DOMAIN)(x), values)


def test_lengthscale_is_in_the_users_units():
    f = random_expansion((2,))
    expected = f.scale.amin(dim=0).squeeze(0)
    torch.testing.assert_close(f.lengthscale, expected)
    rough = random_expansion((2,), smoothness=0.5)
    assert (rough.lengthscale < expected).all()


def test_copies_and_single_precision():
    f = random_expansion()
    z = torch.rand(3, 3, dtype=torch.double)
    for copy in (deepcopy(f), pickle.loads(pickle.dumps(f))):
        assert torch.equal(copy(z), f(z))
    single = deepcopy(f).float()
    assert single(z.float()).dtype == torch.float
    torch.testing.assert_close(single(z.float()).double(), f(z), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(3, 2), (5, 4, 3), (3,)])
def test_wrong_shapes(shape):
    f = random_expansion()
    with pytest.raises(BotorchTensorDimensionError, match=r"\(4,\) x n x d with d = 3"):
        f.scaled(torch.rand(shape, dtype=torch.double))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("smoothness", SMOOTHNESS)
def test_points_that_are_not_finite_spoil_no_others(smoothness, bad):
    f = random_expansion(smoothness=smoothness)
    z = torch.rand(5, 3, dtype=torch.double)
    expected = f(z)
    z[2, 1] = bad
    for values in (f(z), f(z.expand(4, 5, 3))):
        assert values[:, 2].isnan().all()
        torch.testing.assert_close(values[:, [0, 1, 3, 4]], expected[:, [0, 1, 3, 4]])


def test_tables_of_a_domain_with_other_columns():
    thetas = torch.rand(3, 1, dtype=torch.double)
    with pytest.raises(
        BotorchTensorDimensionError, match=r"with d = 3, got shape \(3, 2"
    ):
        random_expansion().theta_table(thetas, unit_domain())
    with pytest.raises(BotorchTensorDimensionError, match=r"`theta` of shape .* x 2"):
        random_expansion().theta_table(thetas, DOMAIN)
