import pytest
import torch
from bvn_families import FAMILIES, Problem
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from botorch_res.probability import (
    TruncatedBivariateMoments,
    truncated_bvn_moments,
    truncated_normal_moments,
)

DOUBLE = {"dtype": torch.float64}
EPS = torch.finfo(torch.float64).eps


@pytest.mark.parametrize("family", FAMILIES)
def test_fuzz(family: str) -> None:
    """All finite, no negative variance, none grown, means inside, gradients finite."""
    generator = torch.Generator().manual_seed(len(family))
    problem = FAMILIES[family](5000, generator)
    arguments = [argument.clone().requires_grad_() for argument in problem]
    moments = truncated_bvn_moments(*arguments)
    for values in moments:
        assert values.isfinite().all()
        gradients = torch.autograd.grad(values.sum(), arguments, retain_graph=True)
        assert all(gradient.isfinite().all() for gradient in gradients)
    _, covariance, lower, upper = problem
    lower = torch.stack((torch.full_like(lower, -torch.inf), lower), -1)
    before = covariance.diagonal(dim1=-2, dim2=-1)
    after = moments.covariance.diagonal(dim1=-2, dim2=-1)
    # A variance of zero counts as 1e-140.
    assert (after <= before * (1.0 + 1e-10) + 2e-140).all()
    assert (after[(lower < upper) & (before > 0.0)] > 0.0).all()
    assert ((lower <= moments.mean) & (moments.mean <= upper)).all()


def test_gradients_of_single_precision_saturate() -> None:
    generator = torch.Generator().manual_seed(0)
    problem = FAMILIES["no variance"](500, generator)
    arguments = [argument.float().requires_grad_() for argument in problem]
    moments = truncated_bvn_moments(*arguments, validate_args=False)
    for values in moments:
        gradients = torch.autograd.grad(values.sum(), arguments, retain_graph=True)
        assert all(gradient.isfinite().all() for gradient in gradients)
        assert all(gradient.dtype == torch.float32 for gradient in gradients)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Any correlation, boxes to 12 sigmas off, of any width, some without bounds."""
    sigma = [10.0 ** draw(st.floats(-3.0, 3.0)) for _ in range(2)]
    rho = draw(st.sampled_from((-1.0, 1.0))) * (
        1.0 - 10.0 ** draw(st.floats(-12.0, 0.0))
    )
    cross = rho * sigma[0] * sigma[1]
    covariance = [[sigma[0] ** 2, cross], [cross, sigma[1] ** 2]]
    mean = [draw(st.floats(-3.0, 3.0)) * s for s in sigma]
    lower = [
        m + s * draw(st.floats(-12.0, 12.0)) for m, s in zip(mean, sigma, strict=True)
    ]
    upper = [
        x + s * 10.0 ** draw(st.floats(-6.0, 1.0))
        for x, s in zip(lower, sigma, strict=True)
    ]
    for i in range(2):
        if draw(st.booleans()):
            upper[i] = torch.inf
    lower_2 = -torch.inf if draw(st.booleans()) else lower[1]
    return tuple(torch.tensor(x, **DOUBLE) for x in (mean, covariance, lower_2, upper))


def check_same(
    found: TruncatedBivariateMoments,
    log_prob: Tensor,
    mean: Tensor,
    covariance: Tensor,
    tolerance: float = 1e-9,
) -> None:
    sigma = covariance.diagonal(dim1=-2, dim2=-1).sqrt()
    assert (found.log_prob - log_prob).abs() <= tolerance * log_prob.abs().clamp_min(
        1.0
    )
    assert (
        (found.mean - mean).abs() <= tolerance * sigma + 8.0 * EPS * mean.abs()
    ).all()
    scale = sigma.unsqueeze(-1) * sigma.unsqueeze(-2)
    assert ((found.covariance - covariance).abs() <= tolerance * scale).all()


@given(problems(), st.integers(-20, 20), st.integers(-20, 20))
def test_scale_and_reflection(problem: Problem, first: int, second: int) -> None:
    # Powers of two scale without rounding.
    mean, covariance, lower, upper = problem
    moments = truncated_bvn_moments(*problem)
    scale = torch.tensor([2.0**first, 2.0**second], **DOUBLE)
    matrix = scale.unsqueeze(-1) * scale
    scaled = truncated_bvn_moments(
        mean * scale, covariance * matrix, lower * scale[1], upper * scale
    )
    check_same(
        scaled, moments.log_prob, moments.mean * scale, moments.covariance * matrix
    )
    signs = torch.tensor([1.0, -1.0], **DOUBLE)
    reflected = truncated_bvn_moments(
        mean * signs,
        covariance * signs.unsqueeze(-1) * signs,
        -upper[1],
        torch.stack((upper[0], -lower)),
    )
    check_same(
        reflected,
        moments.log_prob,
        moments.mean * signs,
        moments.covariance * signs.unsqueeze(-1) * signs,
    )


@given(problems())
def test_two_upper_bounds_can_be_swapped(problem: Problem) -> None:
    mean, covariance, lower, upper = problem
    lower = torch.full_like(lower, -torch.inf)
    moments = truncated_bvn_moments(mean, covariance, lower, upper)
    swapped = truncated_bvn_moments(
        mean.flip(0), covariance.flip(0, 1), lower, upper.flip(0)
    )
    check_same(
        swapped, moments.log_prob, moments.mean.flip(0), moments.covariance.flip(0, 1)
    )


@given(problems(), st.integers(-1000, 1000))
def test_shift(problem: Problem, steps: int) -> None:
    # Multiples of a power of two are added without rounding.
    mean, covariance, lower, upper = problem
    grid = 2.0**-30 * covariance.diagonal().sqrt().log2().ceil().exp2()
    mean, upper = ((x / grid).round() * grid for x in (mean, upper))
    lower = (lower / grid[1]).round() * grid[1]
    upper[1] = torch.maximum(upper[1], lower + grid[1])
    moments = truncated_bvn_moments(mean, covariance, lower, upper)
    shift = steps * 2.0**10 * grid
    shifted = truncated_bvn_moments(
        mean + shift, covariance, lower + shift[1], upper + shift
    )
    torch.testing.assert_close(shifted.log_prob, moments.log_prob, rtol=1e-11, atol=0)
    torch.testing.assert_close(
        shifted.covariance, moments.covariance, rtol=1e-9, atol=0
    )
    error = (shifted.mean - moments.mean - shift).abs()
    assert (error <= 8.0 * EPS * (moments.mean.abs() + shift.abs())).all()


@given(problems(), st.floats(0.0, 3.0), st.sampled_from(("lower", 0, 1)))
def test_a_larger_box_is_more_probable(
    problem: Problem, growth: float, which: str | int
) -> None:
    mean, covariance, lower, upper = problem
    moments = truncated_bvn_moments(*problem)
    step = growth * covariance.diagonal().sqrt()
    upper = upper.clone()
    if which == "lower":
        lower = lower - step[1]
    else:
        upper[which] += step[which]
    grown = truncated_bvn_moments(mean, covariance, lower, upper)
    slack = 1e-12 * moments.log_prob.abs().clamp_min(1.0)
    assert grown.log_prob >= moments.log_prob - slack
    assert grown.log_prob <= 1e-12


@given(problems())
def test_variances_shrink_and_means_stay_inside(problem: Problem) -> None:
    _, covariance, lower, upper = problem
    moments = truncated_bvn_moments(*problem)
    after = moments.covariance.diagonal()
    assert (after > 0.0).all()
    assert (after <= covariance.diagonal() * (1.0 + 1e-11)).all()
    assert moments.covariance[0, 1] == moments.covariance[1, 0]
    assert moments.covariance[0, 1].square() <= after.prod() * (1.0 + 1e-9)
    assert (moments.mean <= upper).all()
    assert lower <= moments.mean[1]


def test_no_bounds_return_the_input() -> None:
    mean = torch.tensor([3.0, -5.0], **DOUBLE)
    for rho in (0.0, 0.5, -0.999999, 1.0):
        covariance = torch.tensor([[4.0, 6.0 * rho], [6.0 * rho, 9.0]], **DOUBLE)
        covariance.requires_grad_()
        infinite = torch.full((2,), torch.inf, **DOUBLE)
        moments = truncated_bvn_moments(mean, covariance, -infinite[1], infinite)
        assert moments.log_prob.abs() < 1e-13
        torch.testing.assert_close(moments.mean, mean, rtol=1e-14, atol=0)
        torch.testing.assert_close(
            moments.covariance, covariance, rtol=1e-10, atol=1e-11
        )
        # Even where the matrix is singular the derivative is that of the identity.
        (slope,) = torch.autograd.grad(moments.covariance[0, 0], covariance)
        expected = torch.tensor([[1.0, 0.0], [0.0, 0.0]], **DOUBLE)
        torch.testing.assert_close(slope, expected, rtol=1e-7, atol=1e-7)


def test_zero_width_gives_the_conditional() -> None:
    mean = torch.tensor([1.0, 2.0], **DOUBLE)
    covariance = torch.tensor([[4.0, 1.5], [1.5, 1.0]], **DOUBLE)
    upper = torch.tensor([3.0, 2.5], **DOUBLE)
    single = truncated_normal_moments(
        mean[0] + 1.5 * 0.5, covariance[0, 0] - 1.5**2, -torch.inf * upper[0], upper[0]
    )
    moments = truncated_bvn_moments(mean, covariance, upper[1], upper)
    torch.testing.assert_close(moments.mean[0], single.mean, rtol=1e-13, atol=0)
    torch.testing.assert_close(
        moments.covariance[0, 0], single.variance, rtol=1e-12, atol=0
    )
    assert moments.mean[1] == 2.5
    assert moments.covariance[1, 1] < 1e-199


@pytest.mark.parametrize("rho", [1.0, -1.0])
def test_correlation_one_gives_the_single_variable(rho: float) -> None:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(50, 2, generator=generator, **DOUBLE)
    lower = mean + torch.randn(50, 2, generator=generator, **DOUBLE)
    upper = lower + 3.0 * torch.rand(50, 2, generator=generator, **DOUBLE)
    # The second variable is twice the first, up to its sign and the means.
    covariance = torch.tensor([[1.0, 2.0 * rho], [2.0 * rho, 4.0]], **DOUBLE)
    sides = ((lower - mean)[:, 1] / (2.0 * rho), (upper - mean)[:, 1] / (2.0 * rho))
    low = mean[:, 0] + torch.minimum(*sides)
    high = torch.minimum(upper[:, 0], mean[:, 0] + torch.maximum(*sides))
    rows = low + 1e-3 < high
    assert rows.sum() > 10
    one = torch.ones((), **DOUBLE)
    single = truncated_normal_moments(mean[rows, 0], one, low[rows], high[rows])
    moments = truncated_bvn_moments(mean[rows], covariance, lower[rows, 1], upper[rows])
    # The determinant is held at 1e-16, so the ridge is 1e-8 wide.
    torch.testing.assert_close(moments.log_prob, single.log_prob, rtol=0, atol=1e-4)
    torch.testing.assert_close(moments.mean[:, 0], single.mean, rtol=0, atol=1e-7)
    torch.testing.assert_close(
        moments.covariance[:, 0, 0], single.variance, rtol=1e-4, atol=0
    )
    torch.testing.assert_close(
        moments.covariance[:, 1, 1], 4.0 * single.variance, rtol=1e-4, atol=0
    )


# Torch's compiler uses what torch itself deprecates.
TORCH_ALONE = "ignore:.*(should not be instantiated|script_method):DeprecationWarning"


@pytest.mark.filterwarnings(TORCH_ALONE)
def test_compiled_values_are_the_same() -> None:
    generator = torch.Generator().manual_seed(3)
    problem = FAMILIES["correlation near one"](64, generator)

    def variance(*arguments: Tensor) -> Tensor:
        moments = truncated_bvn_moments(*arguments, validate_args=False)
        return moments.covariance[..., 0, 0]

    with torch.no_grad():
        compiled = torch.compile(variance, fullgraph=True)(*problem)
        torch.testing.assert_close(compiled, variance(*problem), rtol=1e-9, atol=0)


@pytest.mark.filterwarnings(TORCH_ALONE)
def test_captured_gradients_are_the_same() -> None:
    generator = torch.Generator().manual_seed(3)
    problem = FAMILIES["correlation near one"](64, generator)

    def total(*arguments: Tensor) -> Tensor:
        moments = truncated_bvn_moments(*arguments, validate_args=False)
        return sum(values.sum() for values in moments)

    # The graph's capture is ours to get right; its translation takes a minute.
    compiled = torch.compile(total, fullgraph=True, backend="aot_eager")
    arguments = [argument.clone().requires_grad_() for argument in problem]
    found = torch.autograd.grad(compiled(*arguments), arguments)
    expected = torch.autograd.grad(total(*arguments), arguments)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
