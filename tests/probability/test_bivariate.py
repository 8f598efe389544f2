from collections.abc import Sequence
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


def load(name: str, stratum: str) -> dict[str, Tensor]:
    arrays = np.load(DATA / name)
    rows = arrays["stratum"] == stratum
    return {
        key: torch.tensor(arrays[key][rows]) for key in arrays.files if key != "stratum"
    }


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


@pytest.mark.parametrize("stratum", STRATA)
def test_moments_equal_the_vectors(stratum: str) -> None:
    case = load("truncated_bvn.npz", stratum)
    arguments = [case[key] for key in ("mu", "cov", "lb", "ub")]
    assert len(arguments[0]) == 250
    expected = [case[key] for key in ("logZ", "mean", "tcov")]
    check_moments(truncated_bvn_moments(*arguments), *expected)
    rows = case["lb"][:, 0] == -torch.inf
    if rows.any():
        moments = truncated_bvn_moments(*(x[rows] for x in arguments), one_sided=True)
        check_moments(moments, *(x[rows] for x in expected))


@pytest.mark.parametrize("stratum", STRATA)
def test_moments_equal_mpmath_on_fresh_cases(stratum: str) -> None:
    case = load("truncated_bvn_gradients.npz", stratum)
    names = ("mean", "covariance", "lower", "upper")
    arguments = [case[name] for name in names]
    assert len(arguments[0]) >= 100
    log_prob, mean_1, mean_2, var_1, cross, var_2 = case["moments"].unbind(-1)
    expected = (
        log_prob,
        torch.stack((mean_1, mean_2), -1),
        torch.stack((var_1, cross, cross, var_2), -1).unflatten(-1, (2, 2)),
    )
    check_moments(truncated_bvn_moments(*arguments), *expected)


@pytest.mark.parametrize("stratum", STRATA)
def test_moments_equal_mpmath_now(stratum: str) -> None:
    rng = np.random.default_rng(7)
    for _ in range(3):
        case = draw(stratum, rng)
        exact = truncated_bvn(*case)
        var_1, cross, var_2 = map(float, exact.covariance)
        check_moments(
            truncated_bvn_moments(*map(torch.tensor, case)),
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


def check_slopes(
    arguments: Sequence[Tensor],
    steps: Sequence[Tensor],
    slopes: Tensor,
    one_sided: bool = False,
    floor: float = 1e-9,
) -> None:
    """Compare the derivatives along steps, ``n x num_steps x ...``, with slopes.

    The floor is in units of the truncated distribution.
    """
    arguments = [argument.clone().requires_grad_() for argument in arguments]
    outputs = flat(truncated_bvn_moments(*arguments, one_sided=one_sided))
    var_1, var_2 = outputs[3].detach(), outputs[5].detach()
    sigma_1, sigma_2 = var_1.sqrt(), var_2.sqrt()
    one = torch.ones_like(var_1)
    natural = (one, sigma_1, sigma_2, var_1, sigma_1 * sigma_2, var_2)
    for i, output in enumerate(outputs):
        gradients = torch.autograd.grad(output.sum(), arguments, retain_graph=True)
        found = sum(
            (gradient.unsqueeze(1) * step).flatten(2).sum(-1)
            for gradient, step in zip(gradients, steps, strict=True)
        )
        error = (found - slopes[..., i]).abs()
        allowed = 1e-7 * slopes[..., i].abs() + floor * natural[i].unsqueeze(-1)
        assert (error <= allowed).all(), (i, (error / allowed).max())


@pytest.mark.parametrize("stratum", STRATA)
def test_gradients_equal_mpmath(stratum: str) -> None:
    case = load("truncated_bvn_gradients.npz", stratum)
    names = ("mean", "covariance", "lower", "upper")
    arguments = [case[name] for name in names]
    steps = [case[f"step_{name}"] for name in names]
    # Where both are 1e-8 wide, rounding is a thousandth of what moves the moments.
    floor = 1e-7 if stratum == "g_nasty" else 1e-9
    check_slopes(arguments, steps, case["slopes"], floor=floor)
    rows = case["lower"][:, 0] == -torch.inf
    if rows.any():
        check_slopes(
            [argument[rows] for argument in arguments],
            [step[rows] for step in steps],
            case["slopes"][rows],
            one_sided=True,
            floor=floor,
        )


@pytest.mark.parametrize("stratum", STRATA)
def test_gradients_equal_mpmath_now(stratum: str) -> None:
    rng = np.random.default_rng(8)
    case = {
        k: torch.tensor(v[None]) for k, v in compute(draw(stratum, rng), rng).items()
    }
    names = ("mean", "covariance", "lower", "upper")
    steps = [case[f"step_{name}"] for name in names]
    check_slopes([case[name] for name in names], steps, case["slopes"])


def benign(n: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(n, 2, 2, generator=generator, **DOUBLE)
    mean, shift = torch.randn(2, n, 2, generator=generator, **DOUBLE)
    lower = mean + shift - 1.0
    upper = lower + 3.0 * torch.rand(n, 2, generator=generator, **DOUBLE) + 0.05
    return mean, root @ root.mT + 0.1 * torch.eye(2, **DOUBLE), lower, upper


@pytest.mark.parametrize("one_sided", [False, True])
def test_gradcheck(one_sided: bool) -> None:
    mean, covariance, lower, upper = benign(10)
    lower[:, 0] = -torch.inf if one_sided else lower[:, 0]

    def moments(
        mean: Tensor, covariance: Tensor, lower_2: Tensor, upper: Tensor
    ) -> tuple[Tensor, ...]:
        return truncated_bvn_moments(
            mean,
            0.5 * (covariance + covariance.mT),
            torch.stack((lower[:, 0], lower_2), -1),
            upper,
            one_sided=one_sided,
        )

    arguments = (mean, covariance, lower[:, 1].clone(), upper)
    assert torch.autograd.gradcheck(
        moments, [argument.requires_grad_() for argument in arguments], atol=1e-6
    )


def test_gradients_of_infinite_bounds_are_zero() -> None:
    mean, covariance, lower, upper = benign(4)
    lower[:, 0], upper[:, 1] = -torch.inf, torch.inf
    lower.requires_grad_()
    upper.requires_grad_()
    sum(
        x.sum() for x in truncated_bvn_moments(mean, covariance, lower, upper)
    ).backward()
    assert (lower.grad[:, 0] == 0.0).all()
    assert (upper.grad[:, 1] == 0.0).all()
    assert (lower.grad[:, 1] != 0.0).all()


def test_one_sided_equals_the_general_path() -> None:
    mean, covariance, lower, upper = benign(200)
    lower[:, 0] = -torch.inf
    general = truncated_bvn_moments(mean, covariance, lower, upper)
    special = truncated_bvn_moments(mean, covariance, lower, upper, one_sided=True)
    for a, b in zip(general, special, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)
    # Unchecked, the first lower bound is not looked at.
    lower[:, 0] = torch.nan
    blind = truncated_bvn_moments(
        mean, covariance, lower, upper, one_sided=True, validate_args=False
    )
    torch.testing.assert_close(blind.covariance, special.covariance, rtol=0, atol=0)


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
    case = load("truncated_bvn.npz", stratum)
    arguments = [case[key].float() for key in ("mu", "cov", "lb", "ub")]
    # What is left of these problems in single precision counts as exact.
    arguments[3] = torch.maximum(arguments[2], arguments[3])
    limit = arguments[1].diagonal(dim1=-2, dim2=-1).prod(-1).sqrt()
    rows = (arguments[1][:, 0, 1].abs() < limit) & (arguments[2] < arguments[3]).all(-1)
    arguments = [argument[rows] for argument in arguments]
    assert rows.sum() > 50
    single = truncated_bvn_moments(*arguments)
    double = truncated_bvn_moments(*(x.double() for x in arguments))
    for low, high in zip(single, double, strict=True):
        torch.testing.assert_close(low.double(), high, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("one_sided", [False, True])
def test_operations_do_not_depend_on_the_batch(one_sided: bool) -> None:
    counts = []
    for n in (2, 1, 300):  # the first call makes the tables of constants
        mean, covariance, lower, upper = benign(n)
        arguments = [x.requires_grad_() for x in (mean, covariance, lower, upper)]
        with OperationCount() as counter:
            moments = truncated_bvn_moments(
                *arguments, one_sided=one_sided, validate_args=False
            )
            torch.autograd.grad(sum(x.sum() for x in moments), arguments)
        counts.append(counter.count)
    assert counts[1] == counts[2]


@pytest.mark.parametrize("one_sided", [False, True])
def test_runs_on_a_device_without_waiting_for_it(one_sided: bool) -> None:
    with FakeTensorMode():
        mean, lower, upper = torch.rand(3, 5, 2, device="cuda").unbind()
        covariance = torch.rand(5, 2, 2, device="cuda")
        moments = truncated_bvn_moments(
            mean, covariance, lower, upper, one_sided=one_sided, validate_args=False
        )
        assert all(values.device.type == "cuda" for values in moments)
        # Autograd's engine needs a real device: its part is called by hand.
        context = FakeContext()
        problem = torch.rand(12, 5, device="cuda").double()
        outputs = BoxMoments.forward(context, one_sided, *problem.unbind())
        gradients = BoxMoments.backward(context, *outputs)[1:9]
        assert all(
            gradient.device.type == "cuda"
            for gradient in gradients
            if gradient is not None
        )


def test_a_host_synchronisation_would_be_noticed() -> None:
    with FakeTensorMode():
        mean, lower, upper = torch.rand(3, 5, 2, device="cuda").unbind()
        covariance = torch.rand(5, 2, 2, device="cuda")
        with pytest.raises(DataDependentOutputException):
            truncated_bvn_moments(mean, covariance, lower, upper)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("mean", [0.0, torch.nan], "`mean` to be finite"),
        ("covariance", [[1.0, torch.inf], [0.0, 1.0]], "`covariance` to be finite"),
        ("lower", [-1.0, torch.nan], "`lower` to be a number"),
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
        "lower": -torch.ones(2, **DOUBLE),
        "upper": torch.ones(2, **DOUBLE),
    }
    arguments[name] = torch.tensor(value, **DOUBLE)
    with pytest.raises(InputDataError, match=message):
        truncated_bvn_moments(**arguments)


def test_errors_of_shapes_and_promises() -> None:
    mean, covariance, lower, upper = benign(3)
    with pytest.raises(
        BotorchTensorDimensionError, match=r"`mean` .*\(2,\).* \(3, 1\)"
    ):
        truncated_bvn_moments(mean[:, :1], covariance, lower, upper)
    with pytest.raises(InputDataError, match=r"minus infinity with `one_sided`"):
        truncated_bvn_moments(mean, covariance, lower, upper, one_sided=True)


def test_rounding_past_a_correlation_of_one_is_accepted() -> None:
    mean = torch.zeros(2, **DOUBLE)
    covariance = torch.full((2, 2), 1.0 + 1e-12, **DOUBLE)
    covariance[0, 0] = covariance[1, 1] = 1.0
    bound = torch.ones(2, **DOUBLE)
    moments = truncated_bvn_moments(mean, covariance, -bound, bound)
    single = truncated_normal_moments(*(x[0] for x in (mean, bound, -bound, bound)))
    torch.testing.assert_close(
        moments.covariance, single.variance.expand(2, 2), rtol=1e-7, atol=0
    )
