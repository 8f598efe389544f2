import itertools

import mpmath as mp
import numpy as np
import pytest
import torch
from botorch.exceptions.errors import InputDataError
from fake_context import FakeContext
from hypothesis import given
from hypothesis import strategies as st
from mpmath_oracle import DIGITS, truncated_normal
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from botorch_res.probability import remaining_variance, truncated_normal_moments
from botorch_res.probability.interval import StandardInterval

INF = float("inf")
EPS = torch.finfo(torch.float64).eps


def random_cases(count: int, seed: int) -> list[np.ndarray]:
    """Intervals from -40 to 40 sigmas, from 1e-12 to infinity wide."""
    rng = np.random.default_rng(seed)
    mean, variance = rng.normal(size=count), 10.0 ** rng.uniform(-6.0, 6.0, count)
    sigma = np.sqrt(variance)
    lower = mean + sigma * rng.uniform(-40.0, 40.0, count)
    upper = lower + sigma * 10.0 ** rng.uniform(-12.0, 2.0, count)
    kind = rng.integers(0, 6, count)
    lower[kind == 4], upper[kind == 5] = -INF, INF
    return [mean, variance, lower, upper]


def tensors(cases: list[np.ndarray], grad: bool = False) -> list[Tensor]:
    return [torch.tensor(case, requires_grad=grad) for case in cases]


def test_moments_equal_mpmath() -> None:
    cases = random_cases(600, seed=1)
    moments = truncated_normal_moments(*tensors(cases))
    for i, case in enumerate(zip(*cases, strict=True)):
        log_prob, mean, variance = truncated_normal(*map(float, case))
        sigma = mp.sqrt(variance)
        assert abs(moments.log_prob[i].item() - log_prob) < 1e-12 * max(1, -log_prob)
        # A mean cannot be nearer than its own rounding.
        error = abs(moments.mean[i].item() - mean)
        assert error < 1e-12 * sigma + 1.1 * EPS * abs(mean)
        assert abs(moments.variance[i].item() / variance - 1) < 1e-12


def test_gradients_equal_mpmath() -> None:
    cases = random_cases(60, seed=2)
    arguments = tensors(cases, grad=True)
    moments = truncated_normal_moments(*arguments)
    for output, values in enumerate(moments):
        gradients = torch.autograd.grad(values.sum(), arguments, retain_graph=True)
        for i, case in enumerate(zip(*cases, strict=True)):
            slopes, units, natural = mpmath_slopes(case, output)
            for gradient, slope, unit in zip(gradients, slopes, units, strict=True):
                error = abs(gradient[i].item() * unit - slope)
                assert error < 1e-8 * abs(slope) + 1e-11 * natural


def mpmath_slopes(case: tuple[float, ...], output: int) -> tuple[list, list, mp.mpf]:
    """Central differences of an output, in units of the truncated distribution."""
    with mp.workdps(DIGITS):
        variance = truncated_normal(*map(float, case))[2]
        spread, step = mp.sqrt(variance), mp.mpf(10) ** -15
        slopes, units = [], [spread, variance, spread, spread]
        for j, unit in enumerate(units):
            ends = []
            for sign in (-1, 1):
                moved = [mp.mpf(float(value)) for value in case]
                moved[j] += sign * unit * step
                ends.append(truncated_normal(*moved)[output])
            slopes.append((ends[1] - ends[0]) / (2 * step))
        return slopes, units, (1, spread, variance)[output]


def test_gradcheck() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, lower = torch.randn(2, 20, generator=generator, dtype=torch.float64)
    variance, width = torch.rand(2, 20, generator=generator, dtype=torch.float64)
    arguments = (mean, variance + 0.1, lower, lower + 3.0 * width)
    arguments = tuple(argument.requires_grad_() for argument in arguments)
    assert torch.autograd.gradcheck(
        lambda *args: tuple(truncated_normal_moments(*args)), arguments
    )


def test_nothing_is_ever_infinite() -> None:
    bounds = (-INF, -1e66, -1e6, -1.0, -1e-60, 0.0, 1e-60, 1.0, 1.0 + EPS, 1e66, INF)
    cases = [
        case
        for case in itertools.product(
            (0.0, 1e60, -3.0, 1e-60), (0.0, 1e-120, 1e-12, 1.0, 1e120), bounds, bounds
        )
        if case[2] <= case[3]
    ]
    arguments = tensors(list(np.array(cases).T), grad=True)
    moments = truncated_normal_moments(*arguments)
    for values in moments:
        assert values.isfinite().all()
        gradients = torch.autograd.grad(values.sum(), arguments, retain_graph=True)
        assert all(gradient.isfinite().all() for gradient in gradients)
    assert (moments.variance >= 0.0).all()
    # Infinite bounds count as 1e100.
    lower, upper = (bound.clamp(-1e100, 1e100) for bound in arguments[2:])
    assert ((lower <= moments.mean) & (moments.mean <= upper)).all()


def test_limits() -> None:
    one = torch.ones((), dtype=torch.float64)
    free = truncated_normal_moments(3.0 * one, 2.0 * one, -INF * one, INF * one)
    torch.testing.assert_close(
        torch.stack(free), torch.tensor([0.0, 3.0, 2.0]).double()
    )
    point = truncated_normal_moments(0.0 * one, one, 2.0 * one, 2.0 * one)
    assert point.mean == 2.0
    assert point.variance < 1e-199
    assert point.log_prob < -230.0
    for mean, expected in ((0.5, 0.5), (-1.0, 0.0), (7.0, 1.0)):
        certain = truncated_normal_moments(mean * one, 0.0 * one, 0.0 * one, one)
        assert abs(certain.mean - expected) < 1e-100
        assert certain.variance < 1e-199
    # Rounding may have made a variance negative.
    rounded = truncated_normal_moments(
        0.5 * one, -1e-20 * one, 0.0 * one, one, validate_args=False
    )
    assert rounded.mean == 0.5


def test_gradient_where_the_mean_meets_a_bound() -> None:
    mean = torch.zeros((), dtype=torch.float64, requires_grad=True)
    lower = torch.zeros((), dtype=torch.float64, requires_grad=True)
    one = torch.ones((), dtype=torch.float64)
    truncated_normal_moments(mean, one, lower, INF * one).mean.backward()
    # The half-normal: shifting both shifts the result, d mean / d lower = 2 / pi.
    assert lower.grad is not None
    torch.testing.assert_close(mean.grad + lower.grad, one)
    torch.testing.assert_close(lower.grad, 2.0 * one / torch.pi)


@given(
    st.floats(-1e3, 1e3),
    st.floats(1e-6, 1e6),
    st.floats(-50.0, 50.0),
    st.floats(0.0, 50.0),
    st.floats(1e-3, 1e3),
)
def test_invariants(
    mean: float, sigma: float, left: float, width: float, factor: float
) -> None:
    lower = mean + sigma * left
    upper = max(lower, lower + sigma * width)
    arguments = [
        torch.tensor(x, dtype=torch.float64) for x in (mean, sigma**2, lower, upper)
    ]
    moments = truncated_normal_moments(*arguments)
    assert lower <= moments.mean <= upper
    assert moments.variance <= arguments[1] * (1.0 + 1e-14)
    wider = truncated_normal_moments(*arguments[:3], arguments[3] + sigma)
    assert wider.log_prob >= moments.log_prob - 1e-12 * moments.log_prob.abs()
    # A power of two scales without rounding.
    factor = 2.0 ** round(np.log2(factor))
    scaled = truncated_normal_moments(
        arguments[0] * factor,
        arguments[1] * factor**2,
        arguments[2] * factor,
        arguments[3] * factor,
    )
    torch.testing.assert_close(scaled.log_prob, moments.log_prob, rtol=1e-12, atol=0)
    torch.testing.assert_close(scaled.mean, moments.mean * factor, rtol=1e-12, atol=0)
    torch.testing.assert_close(
        scaled.variance, moments.variance * factor**2, rtol=1e-12, atol=0
    )
    mirrored = truncated_normal_moments(
        -arguments[0], arguments[1], -arguments[3], -arguments[2]
    )
    torch.testing.assert_close(mirrored.mean, -moments.mean, rtol=1e-13, atol=0)
    torch.testing.assert_close(mirrored.variance, moments.variance, rtol=1e-13, atol=0)


def test_broadcasting_and_dtype() -> None:
    mean = torch.zeros(3, 1)
    moments = truncated_normal_moments(
        mean, torch.ones(()), torch.full((2, 1, 1), -1.0), torch.ones(4)
    )
    assert all(values.shape == (2, 3, 4) for values in moments)
    assert all(values.dtype == torch.float32 for values in moments)


def test_float32_is_right_to_its_digits() -> None:
    cases = [case.astype(np.float32) for case in random_cases(500, seed=3)]
    cases[3] = np.maximum(cases[2], cases[3])
    single = truncated_normal_moments(*tensors(cases))
    double = truncated_normal_moments(*(x.double() for x in tensors(cases)))
    for low, high in zip(single, double, strict=True):
        torch.testing.assert_close(low.double(), high, rtol=1e-6, atol=1e-37)


def test_runs_on_a_device_without_waiting_for_it() -> None:
    with FakeTensorMode():
        arguments = [torch.rand(5, device="cuda") for _ in range(4)]
        moments = truncated_normal_moments(*arguments, validate_args=False)
        assert all(values.device.type == "cuda" for values in moments)
        # Autograd's engine needs a real device: its part is called by hand.
        context = FakeContext()
        near, width = (torch.rand(5, device="cuda").double() for _ in range(2))
        StandardInterval.forward(context, near, width)
        gradients = StandardInterval.backward(context, near, near, near)
        assert all(gradient.device.type == "cuda" for gradient in gradients)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": float("nan")}, "`mean` to be finite, got nan"),
        ({"variance": INF}, "`variance` to be finite, got inf"),
        ({"variance": -2.0}, "`variance` to be at least 0, got -2.0 .*1 of 1"),
        ({"lower": float("nan")}, "`lower` to be a number, got nan"),
        ({"upper": -3.0}, "`lower` to be at most `upper`, got -1.0 and -3.0"),
    ],
)
def test_errors_quote_the_value(change: dict[str, float], message: str) -> None:
    values = {"mean": 0.0, "variance": 1.0, "lower": -1.0, "upper": 1.0} | change
    arguments = {name: torch.tensor([value]) for name, value in values.items()}
    with pytest.raises(InputDataError, match=message):
        truncated_normal_moments(**arguments)


class TestRemainingVariance:
    def test_equals_mpmath(self) -> None:
        mean, variance, lower, _ = random_cases(300, seed=5)
        share = remaining_variance(*tensors([mean, variance, lower]))
        for i, case in enumerate(zip(mean, variance, lower, strict=True)):
            exact = truncated_normal(*map(float, case), INF)[2] / mp.mpf(case[1])
            assert abs(share[i].item() / exact - 1) < 1e-12

    def test_gradients_are_those_of_the_moments(self) -> None:
        mean, variance, lower, _ = tensors(random_cases(300, seed=6), grad=True)
        share = remaining_variance(mean, variance, lower)
        upper = torch.full_like(lower, INF)
        expected = truncated_normal_moments(mean, variance, lower, upper).variance
        arguments = (mean, variance, lower)
        slopes = torch.autograd.grad(share.sum(), arguments)
        others = torch.autograd.grad((expected / variance).sum(), arguments)
        sigma = variance.detach().sqrt()
        for ours, theirs, unit in zip(
            slopes, others, (sigma, sigma.square(), sigma), strict=True
        ):
            torch.testing.assert_close(unit * ours, unit * theirs, rtol=0.0, atol=1e-12)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_limits(self, dtype: torch.dtype) -> None:
        mean = torch.zeros(8, dtype=dtype, requires_grad=True)
        variance = torch.tensor(
            [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, -1e-9], dtype=dtype, requires_grad=True
        )
        lower = torch.tensor(
            [-INF, INF, 0.0, -INF, INF, -1.0, 1.0, 0.0], dtype=dtype, requires_grad=True
        )
        share = remaining_variance(mean, variance, lower)
        half = 1.0 - 2.0 / np.pi
        expected = torch.tensor([1.0, 0.0, half, 1.0, 0.0, 1.0, 0.0, half], dtype=dtype)
        assert share.dtype == dtype
        torch.testing.assert_close(share, expected)
        assert share[0] == 1.0
        share[:-1].sum().backward()
        for argument in (mean, variance, lower):
            assert argument.grad is not None
            assert argument.grad.isfinite().all()
