import re
from pathlib import Path

import numpy as np
import pytest
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from bvn_strata import STRATA, draw
from fake_context import FakeContext
from generate_bvn_gradients import compute
from mpmath_oracle import truncated_bvn
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensorMode,
)

from botorch_res.probability import (
    TruncatedBivariateMoments,
    truncated_bvn_moments,
    truncated_normal_moments,
)
from botorch_res.probability.box_moments import BoxMoments
from tests.operation_count import OperationCount

DATA = Path(__file__).parents[1] / "data"
DOUBLE = {"dtype": torch.float64}
EPS = torch.finfo(torch.float64).eps
NAMES = ("mean", "covariance", "lower", "upper")


def load(name: str, stratum: str) -> dict[str, Tensor]:
    arrays = np.load(DATA / name)
    rows = arrays["stratum"] == stratum
    return {
        key: torch.tensor(arrays[key][rows]) for key in arrays.files if key != "stratum"
    }


def load_vectors(stratum: str) -> tuple[list[Tensor], list[Tensor]]:
    """Arguments and moments of the boxes that are, by symmetry, open on one side."""
    case = load("truncated_bvn.npz", stratum)
    assert len(case["mu"]) == 250
    is_open = (case["lb"] == -torch.inf) | (case["ub"] == torch.inf)
    case = {key: value[is_open.any(-1)] for key, value in case.items()}
    # Swap the variables where only the second is open.
    swap = ~is_open[is_open.any(-1), 0]
    for key in ("mu", "lb", "ub", "mean"):
        case[key] = torch.where(swap[:, None], case[key].flip(-1), case[key])
    for key in ("cov", "tcov"):
        swapped = case[key].flip(-1, -2)
        case[key] = torch.where(swap[:, None, None], swapped, case[key])
    # Mirror both where the first is open above.
    mirror = (case["lb"][:, :1] > -torch.inf).expand(-1, 2)
    lower, upper = case["lb"], case["ub"]
    lower, upper = (
        torch.where(mirror, -upper, lower),
        torch.where(mirror, -lower, upper),
    )
    mean, expected = (
        torch.where(mirror, -case[key], case[key]) for key in ("mu", "mean")
    )
    assert (lower[:, 0] == -torch.inf).all()
    arguments = [mean, case["cov"], lower[:, 1], upper]
    return arguments, [case["logZ"], expected, case["tcov"]]


def load_slopes(stratum: str) -> dict[str, Tensor]:
    case = load("truncated_bvn_gradients.npz", stratum)
    assert len(case["mean"]) == 100
    return open_below(case)


def open_below(case: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same case with the lower bound of the second variable alone."""
    assert (case["lower"][:, 0] == -torch.inf).all()
    lower = {key: case[key][..., 1] for key in ("lower", "step_lower")}
    return {**case, **lower}


def check_moments(
    moments: TruncatedBivariateMoments,
    log_prob: Tensor,
    mean: Tensor,
    covariance: Tensor,
    scale: float = 1.0,
) -> None:
    """Compare with exact moments, to the tolerances of float64 times a scale."""
    found = moments.covariance
    sigma = covariance.diagonal(dim1=-2, dim2=-1).sqrt()
    assert (found[..., 0, 0] / covariance[..., 0, 0] - 1.0).abs().max() < 1e-11 * scale
    assert (found[..., 1, 1] / covariance[..., 1, 1] - 1.0).abs().max() < 1e-10 * scale
    correlation = covariance[..., 0, 1] / sigma.prod(-1)
    found_correlation = (
        found[..., 0, 1] / found.diagonal(dim1=-2, dim2=-1).prod(-1) ** 0.5
    )
    assert (found_correlation - correlation).abs().max() < 1e-10 * scale
    # A mean cannot be nearer than a few of its own roundings.
    error = (moments.mean - mean).abs() - 4.0 * EPS * mean.abs()
    assert (error / sigma).max() < 1e-10 * scale
    error = (moments.log_prob - log_prob).abs() / log_prob.abs().clamp_min(1.0)
    assert error.max() < 1e-12 * scale


# No benign box is open.
@pytest.mark.parametrize("stratum", STRATA[1:])
def test_moments_equal_the_vectors(stratum: str) -> None:
    arguments, expected = load_vectors(stratum)
    assert len(arguments[0]) > 90
    check_moments(truncated_bvn_moments(*arguments), *expected)


@pytest.mark.parametrize("stratum", STRATA)
def test_moments_equal_mpmath_on_fresh_cases(stratum: str) -> None:
    case = load_slopes(stratum)
    log_prob, mean_1, mean_2, var_1, cross, var_2 = case["moments"].unbind(-1)
    expected = (
        log_prob,
        torch.stack((mean_1, mean_2), -1),
        torch.stack((var_1, cross, cross, var_2), -1).unflatten(-1, (2, 2)),
    )
    check_moments(truncated_bvn_moments(*(case[name] for name in NAMES)), *expected)


@pytest.mark.parametrize("stratum", STRATA)
def test_moments_equal_mpmath_now(stratum: str) -> None:
    rng = np.random.default_rng(7)
    for _ in range(3):
        case = draw(stratum, rng)
        exact = truncated_bvn(*case)
        var_1, cross, var_2 = map(float, exact.covariance)
        mean, covariance, lower, upper = map(torch.tensor, case)
        check_moments(
            truncated_bvn_moments(mean, covariance, lower[1], upper),
            torch.tensor(float(exact.log_prob), **DOUBLE),
            torch.tensor([float(x) for x in exact.mean], **DOUBLE),
            torch.tensor([[var_1, cross], [cross, var_2]], **DOUBLE),
        )


def flat(moments: TruncatedBivariateMoments) -> list[Tensor]:
    covariance = moments.covariance
    pairs = ((0, 0), (0, 1), (1, 1))
    return [
        moments.log_prob,
        *moments.mean.unbind(-1),
        *(covariance[..., i, j] for i, j in pairs),
    ]


def check_slopes(case: dict[str, Tensor], floor: float = 1e-9) -> None:
    """Compare the derivatives along steps, ``n x num_steps x ...``, with slopes.

    The floor is in units of the truncated distribution.
    """
    arguments = [case[name].clone().requires_grad_() for name in NAMES]
    steps = [case[f"step_{name}"] for name in NAMES]
    slopes = case["slopes"]
    outputs = flat(truncated_bvn_moments(*arguments))
    var_1, var_2 = outputs[3].detach(), outputs[5].detach()
    sigma_1, sigma_2 = var_1.sqrt(), var_2.sqrt()
    one = torch.ones_like(var_1)
    natural = (one, sigma_1, sigma_2, var_1, sigma_1 * sigma_2, var_2)
    for i, output in enumerate(outputs):
        gradients = torch.autograd.grad(output.sum(), arguments, retain_graph=True)
        found = sum(
            (gradient.unsqueeze(1) * step).reshape(*step.shape[:2], -1).sum(-1)
            for gradient, step in zip(gradients, steps, strict=True)
        )
        error = (found - slopes[..., i]).abs()
        allowed = 1e-7 * slopes[..., i].abs() + floor * natural[i].unsqueeze(-1)
        assert (error <= allowed).all(), (i, (error / allowed).max())


@pytest.mark.parametrize("stratum", STRATA)
def test_gradients_equal_mpmath(stratum: str) -> None:
    # Where both are 1e-8 wide, rounding is a thousandth of what moves the moments.
    check_slopes(load_slopes(stratum), 1e-7 if stratum == "g_nasty" else 1e-9)


@pytest.mark.parametrize("stratum", STRATA)
def test_gradients_equal_mpmath_now(stratum: str) -> None:
    rng = np.random.default_rng(8)
    case = compute(draw(stratum, rng), rng)
    check_slopes(open_below({k: torch.tensor(v[None]) for k, v in case.items()}))


def benign(n: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(n, 2, 2, generator=generator, **DOUBLE)
    mean, shift = torch.randn(2, n, 2, generator=generator, **DOUBLE)
    lower = mean + shift - 1.0
    upper = lower + 3.0 * torch.rand(n, 2, generator=generator, **DOUBLE) + 0.05
    covariance = root @ root.mT + 0.1 * torch.eye(2, **DOUBLE)
    return mean, covariance, lower[:, 1].clone(), upper


def test_gradcheck() -> None:
    def moments(
        mean: Tensor, covariance: Tensor, *bounds: Tensor
    ) -> tuple[Tensor, ...]:
        return truncated_bvn_moments(mean, 0.5 * (covariance + covariance.mT), *bounds)

    arguments = [argument.requires_grad_() for argument in benign(10)]
    assert torch.autograd.gradcheck(moments, arguments, atol=1e-6)


def test_gradients_of_infinite_bounds_are_zero() -> None:
    mean, covariance, lower, upper = benign(4)
    lower[:2], upper[1:, 1] = -torch.inf, torch.inf
    lower.requires_grad_()
    upper.requires_grad_()
    moments = truncated_bvn_moments(mean, covariance, lower, upper)
    sum(x.sum() for x in moments).backward()
    assert torch.equal(lower.grad == 0.0, lower.isinf())
    assert torch.equal(upper.grad == 0.0, upper.isinf())


def test_broadcasting_and_dtype() -> None:
    mean, covariance, lower, upper = (x.float() for x in benign(4))
    moments = truncated_bvn_moments(
        mean.view(4, 1, 2), covariance[0], lower[0] - 1.0, upper[:3].amax(0) + 1.0
    )
    assert moments.log_prob.shape == (4, 1)
    assert moments.mean.shape == (4, 1, 2)
    assert moments.covariance.shape == (4, 1, 2, 2)
    assert all(values.dtype == torch.float32 for values in moments)
    single = truncated_bvn_moments(mean[0], covariance[0], lower[0], upper[0])
    assert single.covariance.shape == (2, 2)


@pytest.mark.parametrize("stratum", STRATA)
def test_float32_is_right_to_its_digits(stratum: str) -> None:
    rng = np.random.default_rng(9)
    draws = zip(*(draw(stratum, rng) for _ in range(250)), strict=True)
    mean, covariance, lower, upper = (torch.tensor(np.array(x)).float() for x in draws)
    lower = lower[:, 1]
    # What is left of these problems in single precision counts as exact.
    limit = covariance.diagonal(dim1=-2, dim2=-1).prod(-1).sqrt()
    rows = (covariance[:, 0, 1].abs() < limit) & (lower < upper[:, 1])
    arguments = [x[rows] for x in (mean, covariance, lower, upper)]
    assert rows.sum() > 50
    single = truncated_bvn_moments(*arguments)
    double = truncated_bvn_moments(*(x.double() for x in arguments))
    for low, high in zip(single, double, strict=True):
        torch.testing.assert_close(low.double(), high, rtol=1e-6, atol=1e-37)


def test_operations_do_not_depend_on_the_batch() -> None:
    counts = []
    for n in (2, 1, 300):  # the first call makes the tables of constants
        arguments = [x.requires_grad_() for x in benign(n)]
        with OperationCount() as counter:
            moments = truncated_bvn_moments(*arguments, validate_args=False)
            torch.autograd.grad(sum(x.sum() for x in moments), arguments)
        counts.append(counter.count)
    assert counts[1] == counts[2]


def on_a_device() -> list[Tensor]:
    shapes = ((5, 2), (5, 2, 2), (5,), (5, 2))
    return [torch.rand(shape, device="cuda") for shape in shapes]


def test_runs_on_a_device_without_waiting_for_it() -> None:
    with FakeTensorMode():
        moments = truncated_bvn_moments(*on_a_device(), validate_args=False)
        assert all(values.device.type == "cuda" for values in moments)
        # Autograd's engine needs a real device: its part is called by hand.
        context = FakeContext()
        problem = torch.rand(8, 5, device="cuda").double()
        outputs = BoxMoments.forward(context, *problem.unbind())
        gradients = BoxMoments.backward(context, *outputs)[:6]
        assert all(gradient.device.type == "cuda" for gradient in gradients)


def test_a_host_synchronisation_would_be_noticed() -> None:
    with FakeTensorMode(), pytest.raises(DataDependentOutputException):
        truncated_bvn_moments(*on_a_device())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("mean", [0.0, torch.nan], "`mean` to be finite"),
        ("covariance", [[1.0, torch.inf], [0.0, 1.0]], "`covariance` to be finite"),
        ("lower", torch.nan, "`lower` to be a number"),
        ("upper", [torch.nan, 1.0], "`upper` to be a number"),
        ("upper", [1.0, -2.0], "`lower` to be at most `upper`, got -1.0 and -2.0"),
        ("covariance", [[-1.0, 0.0], [0.0, 1.0]], "diagonal .* at least 0, got -1.0"),
        ("covariance", [[1.0, 0.5], [0.4, 1.0]], "symmetric.* 0.5 and 0.4"),
        ("covariance", [[1.0, 2.1], [2.1, 4.0]], "semi-definite.* 2.1 and 2.0"),
    ],
)
def test_errors_quote_the_value(name: str, value: list, message: str) -> None:
    arguments = {
        "mean": torch.zeros(2, **DOUBLE),
        "covariance": torch.eye(2, **DOUBLE),
        "lower": -torch.ones((), **DOUBLE),
        "upper": torch.ones(2, **DOUBLE),
    }
    arguments[name] = torch.tensor(value, **DOUBLE)
    with pytest.raises(InputDataError, match=message):
        truncated_bvn_moments(**arguments)


@pytest.mark.parametrize("name", ["mean", "covariance", "upper"])
def test_errors_of_shapes(name: str) -> None:
    arguments = dict(zip(NAMES, benign(3), strict=True))
    arguments[name] = arguments[name][..., :1]
    shape = re.escape(str(tuple(arguments[name].shape)))
    with pytest.raises(
        BotorchTensorDimensionError, match=rf"`{name}` to end .*{shape}"
    ):
        truncated_bvn_moments(**arguments)


def test_rounding_past_a_correlation_of_one_is_accepted() -> None:
    mean = torch.zeros(2, **DOUBLE)
    covariance = torch.full((2, 2), 1.0 + 1e-12, **DOUBLE)
    covariance[0, 0] = covariance[1, 1] = 1.0
    bound = torch.ones(2, **DOUBLE)
    moments = truncated_bvn_moments(mean, covariance, -bound[1], bound)
    single = truncated_normal_moments(*(x[0] for x in (mean, bound, -bound, bound)))
    torch.testing.assert_close(
        moments.covariance, single.variance.expand(2, 2), rtol=1e-7, atol=0
    )
