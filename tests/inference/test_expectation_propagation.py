import math
import warnings

import numpy as np
import pytest
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from botorch.exceptions.warnings import NumericsWarning
from botorch.utils.probability.lin_ess import LinearEllipticalSliceSampler
from interval_problems import (
    DOUBLE,
    HARD_KINDS,
    Problem,
    benign_problem,
    box_problem,
    deviations,
    exact_moments,
    gibbs_chains,
    hard_problem,
    quadrature_moments,
    sequential_ep,
    truncated_moments,
)
from torch import Tensor

from botorch_res.inference import EPResult, expectation_propagation, iteration
from tests.operation_count import OperationCount


def assert_valid(result: EPResult) -> None:
    assert all(value.isfinite().all() for value in result)
    assert (result.site_precision >= 0.0).all()
    values = torch.linalg.eigvalsh(result.covariance.double())
    assert (values[..., 0] >= -1e-10 * values[..., -1]).all()


def test_one_variable_is_exact() -> None:
    mean = torch.linspace(-3.0, 3.0, 13, **DOUBLE).repeat(5)
    variance = torch.logspace(-2.0, 2.0, 65, **DOUBLE)
    width = torch.tensor([0.1, 1.0, 7.0, math.inf, 4.0], **DOUBLE).repeat_interleave(13)
    lower = torch.full_like(mean, -0.4)
    lower[-13:] = -math.inf
    upper = torch.where(lower.isfinite(), lower + width, 1.3)
    result = expectation_propagation(*_column(mean, variance, lower, upper))
    expected = torch.tensor(
        [
            exact_moments(*map(float, numbers))
            for numbers in zip(mean, variance, lower, upper, strict=True)
        ],
        **DOUBLE,
    )
    error = (result.mean.squeeze(-1) - expected[:, 0]) / variance.sqrt()
    assert error.abs().max() < 1e-10
    assert (result.covariance.flatten() / expected[:, 1] - 1.0).abs().max() < 1e-10
    assert result.converged.all()


def _column(mean: Tensor, variance: Tensor, lower: Tensor, upper: Tensor) -> Problem:
    return Problem(
        mean.unsqueeze(-1),
        variance[..., None, None],
        lower.unsqueeze(-1),
        upper.unsqueeze(-1),
    )


def test_independent_variables_are_exact() -> None:
    problem = benign_problem(20, 6, seed=0)
    variance = problem.covariance.diagonal(dim1=-1, dim2=-2)
    # Barely touched constraints, too.
    lower = problem.lower - torch.linspace(0.0, 5.0, 6, **DOUBLE)
    result = expectation_propagation(
        problem.mean, torch.diag_embed(variance), lower, problem.upper
    )
    for member in range(20):
        expected = [
            truncated_moments(*map(float, numbers))
            for numbers in zip(
                problem.mean[member],
                variance[member],
                lower[member],
                problem.upper[member],
                strict=True,
            )
        ]
        means, variances = torch.tensor(expected, **DOUBLE).unbind(dim=-1)
        torch.testing.assert_close(result.mean[member], means, rtol=0, atol=1e-10)
        torch.testing.assert_close(
            result.covariance[member], torch.diag(variances), rtol=0, atol=1e-10
        )


# Beyond a correlation of 0.7 the error is that of the method: two constraints on nearly
# the same variable are counted as if they were two pieces of evidence.
@pytest.mark.parametrize(
    ("correlation", "mean_error", "variance_error"),
    [
        (-0.7, 0.02, 0.05),
        (-0.4, 0.02, 0.05),
        (0.2, 0.02, 0.05),
        (0.6, 0.02, 0.05),
        (0.8, 0.02, 0.07),
        (-0.9, 0.03, 0.14),
        (0.95, 0.05, 0.21),
    ],
)
def test_two_variables_against_quadrature(
    correlation: float, mean_error: float, variance_error: float
) -> None:
    problem = box_problem(correlation)
    mean, exact = quadrature_moments(problem)
    result = expectation_propagation(*problem)
    error = (result.mean - mean).abs() / deviations(exact)
    assert error.max() < mean_error
    ratio = deviations(result.covariance) ** 2 / deviations(exact) ** 2
    assert (ratio - 1.0).abs().max() < variance_error


@pytest.mark.parametrize("n", [3, 5, 8])
def test_against_rejection_sampling(n: int) -> None:
    problem = benign_problem(12, n, seed=n)
    result = expectation_propagation(*problem)
    generator = torch.Generator().manual_seed(1)
    root = torch.linalg.cholesky(problem.covariance)
    compared = 0
    for member in range(12):
        white = torch.randn(400_000, n, generator=generator, **DOUBLE)
        draws = problem.mean[member] + white @ root[member].mT
        keep = (draws >= problem.lower[member]) & (draws <= problem.upper[member])
        kept = draws[keep.all(dim=-1)]
        if len(kept) < 2000:
            continue
        compared += 1
        sigma = kept.std(dim=0)
        error = (result.mean[member] - kept.mean(dim=0)).abs() / sigma
        assert (error < 0.03 + 4.0 / math.sqrt(len(kept))).all()
        ratio = deviations(result.covariance[member]) ** 2 / sigma**2
        assert ((ratio - 1.0).abs() < 0.08 + 6.0 / math.sqrt(len(kept))).all()
    assert compared >= 5


def assert_matches_chains(result: EPResult, chains: Tensor) -> None:
    """Compare with ``draws x chains x n`` samples; each chain is one unit."""
    count = math.sqrt(chains.shape[1])
    mean, variance = chains.mean(dim=(0, 1)), chains.var(dim=(0, 1))
    standard_error = chains.mean(dim=0).std(dim=0) / count
    error = (result.mean - mean).abs()
    assert (error < 0.03 * variance.sqrt() + 4.0 * standard_error).all()
    standard_error = (chains - mean).square().mean(dim=0).std(dim=0) / count
    error = (result.covariance.diagonal() - variance).abs()
    assert (error < 0.08 * variance + 4.0 * standard_error).all()


@pytest.mark.parametrize("n", [10, 20, 40])
def test_against_gibbs_sampling(n: int) -> None:
    problem = Problem(*(value[0] for value in benign_problem(1, n, seed=n + 1)))
    chains = gibbs_chains(problem, chains=200, burnin=100, draws=100, seed=0)
    assert_matches_chains(expectation_propagation(*problem), torch.from_numpy(chains))


def test_against_slice_sampling() -> None:
    n = 12
    problem = Problem(*(value[0] for value in benign_problem(1, n, seed=n + 1)))
    result = expectation_propagation(*problem)
    identity = torch.eye(n, **DOUBLE)
    lower, upper = problem.lower.isfinite(), problem.upper.isfinite()
    A = torch.cat([identity[upper], -identity[lower]])
    b = torch.cat([problem.upper[upper], -problem.lower[lower]])
    start = result.mean.clamp(problem.lower, problem.upper)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sampler = LinearEllipticalSliceSampler(
            inequality_constraints=(A, b.unsqueeze(-1)),
            interior_point=start.unsqueeze(-1),
            mean=problem.mean.unsqueeze(-1),
            covariance_matrix=problem.covariance,
            burnin=200,
            num_chains=200,
            thinning=0,
        )
        draws = sampler.draw(50)
    assert_matches_chains(result, draws.reshape(50, 200, n))


@pytest.mark.parametrize("n", [2, 5, 12])
def test_fixed_point_is_consistent(n: int) -> None:
    problem = benign_problem(10, n, seed=n)
    result = expectation_propagation(*problem)
    variance = deviations(result.covariance) ** 2
    cavity = 1.0 / variance - result.site_precision
    cavity_mean = (result.mean / variance - result.site_shift) / cavity
    for index in np.ndindex(10, n):
        mean, spread = truncated_moments(
            float(cavity_mean[index]),
            float(1.0 / cavity[index]),
            float(problem.lower[index]),
            float(problem.upper[index]),
        )
        sigma = float(variance[index].sqrt())
        assert abs(mean - float(result.mean[index])) < 2e-6 * sigma
        assert abs(spread / sigma**2 - 1.0) < 2e-6
    # The sites and the prior make the posterior.
    precision = torch.linalg.inv(problem.covariance)
    posterior = torch.linalg.inv(precision + torch.diag_embed(result.site_precision))
    torch.testing.assert_close(result.covariance, posterior, rtol=1e-8, atol=1e-10)
    shift = (precision @ problem.mean.unsqueeze(-1)).squeeze(-1) + result.site_shift
    torch.testing.assert_close(
        result.mean, (posterior @ shift.unsqueeze(-1)).squeeze(-1), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("n", [2, 4, 10, 25])
def test_agrees_with_sequential_ep(n: int) -> None:
    problem = benign_problem(6, n, seed=10 + n)
    result = expectation_propagation(*problem, tolerance=1e-8)
    for member in range(6):
        expected = sequential_ep(*(value[member].numpy() for value in problem))
        found = (
            result.mean,
            result.covariance,
            result.site_precision,
            result.site_shift,
        )
        for value, reference in zip(found, expected, strict=True):
            np.testing.assert_allclose(value[member].numpy(), reference, atol=1e-6)


def test_site_without_bounds_stays_flat() -> None:
    problem = benign_problem(4, 5, seed=3)
    lower, upper = problem.lower.clone(), problem.upper.clone()
    lower[:, 2], upper[:, 2] = -math.inf, math.inf
    result = expectation_propagation(problem.mean, problem.covariance, lower, upper)
    assert (result.site_precision[:, 2] == 0.0).all()
    assert (result.site_shift[:, 2] == 0.0).all()
    free = torch.full_like(lower, math.inf)
    result = expectation_propagation(problem.mean, problem.covariance, -free, free)
    torch.testing.assert_close(result.mean, problem.mean)
    torch.testing.assert_close(result.covariance, problem.covariance)
    assert (result.num_sweeps == 1).all()


def test_members_do_not_feel_each_other() -> None:
    problem = hard_problem("kernel", 30, 8, seed=2)
    together = expectation_propagation(*problem)
    assert together.num_sweeps.unique().numel() > 3
    for member in range(30):
        alone = expectation_propagation(*(value[member] for value in problem))
        assert alone.num_sweeps == together.num_sweeps[member]
        for name in ("site_precision", "mean"):
            value, expected = getattr(alone, name), getattr(together, name)[member]
            assert (value - expected).abs().max() <= 1e-6 * expected.abs().max()
    nested = expectation_propagation(*(value.unflatten(0, (5, 6)) for value in problem))
    assert nested.converged.shape == (5, 6)
    assert torch.equal(nested.mean.flatten(0, 1), together.mean)


def test_looking_now_and_then_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU the host asks for convergence every few sweeps only."""
    problem = hard_problem("kernel", 30, 8, seed=2)
    often = expectation_propagation(*problem)
    monkeypatch.setattr(iteration, "SWEEPS_BETWEEN_CHECKS", {})
    seldom = expectation_propagation(*problem)
    assert torch.equal(seldom.num_sweeps, often.num_sweeps)
    assert (seldom.mean - often.mean).abs().max() <= 1e-9 * often.mean.abs().max()


def test_converged_members_stop_changing() -> None:
    easy, hard = benign_problem(2, 6, seed=1), hard_problem("repeated", 20, 6, seed=0)
    results = []
    for slowest in (Problem(*(value[1:] for value in easy)), hard):
        problem = [
            torch.cat([own[:1], other])
            for own, other in zip(easy, slowest, strict=True)
        ]
        # So coarse that one more sweep would show.
        results.append(expectation_propagation(*problem, tolerance=1e-2))
    assert results[1].num_sweeps.max() > results[0].num_sweeps.max() + 5
    for alone, beside in zip(*results, strict=True):
        torch.testing.assert_close(alone[0], beside[0], rtol=1e-12, atol=1e-14)


def test_order_of_the_variables_does_not_matter() -> None:
    # The pivots of this matrix are all above 0.05, its smallest eigenvalue is 3e-8.
    n = 15
    root = torch.eye(n, **DOUBLE) - 0.9 * torch.ones(n, n, **DOUBLE).tril(-1)
    covariance = root @ root.mT
    scale = covariance.diagonal().sqrt()
    covariance = (covariance / scale / scale.unsqueeze(-1)).expand(8, n, n)
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(8, n, generator=generator, **DOUBLE)
    lower = mean + torch.linspace(1.0, 30.0, 8, **DOUBLE).unsqueeze(-1)
    upper = torch.full_like(mean, math.inf)
    result = expectation_propagation(mean, covariance, lower, upper)
    flipped = expectation_propagation(
        mean.flip(-1), covariance.flip(-1, -2), lower.flip(-1), upper
    )
    for each in (result, flipped):
        assert_valid(each)
        assert each.converged.all()
    torch.testing.assert_close(result.mean, flipped.mean.flip(-1), rtol=1e-5, atol=0)


@pytest.mark.parametrize("kind", HARD_KINDS)
@pytest.mark.parametrize("n", [1, 2, 7, 30])
def test_hard_problems(kind: str, n: int) -> None:
    problem = hard_problem(kind, 60, n, seed=n)
    result = expectation_propagation(*problem)
    assert_valid(result)
    assert result.converged.all()
    before, after = deviations(problem.covariance), deviations(result.covariance)
    assert (after <= before * (1.0 + 1e-9)).all()


def test_many_variables() -> None:
    for kind in ("kernel", "repeated"):
        result = expectation_propagation(*hard_problem(kind, 1, 400, seed=0))
        assert_valid(result)
        assert result.converged.all()


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_scales_and_far_boxes(scale: float, shift: float) -> None:
    problem = benign_problem(10, 4, seed=0)
    offset = shift * deviations(problem.covariance)
    base = expectation_propagation(
        problem.mean, problem.covariance, problem.lower + offset, problem.upper + offset
    )
    assert_valid(base)
    assert base.converged.all()
    scaled = expectation_propagation(
        scale * problem.mean,
        scale**2 * problem.covariance,
        scale * (problem.lower + offset),
        scale * (problem.upper + offset),
    )
    torch.testing.assert_close(scaled.mean, scale * base.mean, rtol=1e-6, atol=0)
    torch.testing.assert_close(
        deviations(scaled.covariance),
        scale * deviations(base.covariance),
        rtol=1e-6,
        atol=0,
    )


def test_narrow_interval_pins_its_variable() -> None:
    problem = benign_problem(10, 5, seed=1)
    lower, upper = torch.full((2, 10, 5), math.inf, **DOUBLE)
    lower = -lower
    pinned = problem.mean[:, 0] + torch.linspace(-30.0, 30.0, 10, **DOUBLE)
    lower[:, 0], upper[:, 0] = pinned, pinned + 1e-8
    result = expectation_propagation(problem.mean, problem.covariance, lower, upper)
    assert result.converged.all()
    gain = problem.covariance[:, :, 0] / problem.covariance[:, :1, 0]
    distance = (pinned - problem.mean[:, 0]).unsqueeze(-1)
    torch.testing.assert_close(
        result.mean, problem.mean + gain * distance, rtol=0, atol=1e-6
    )
    torch.testing.assert_close(
        result.covariance,
        problem.covariance - gain.unsqueeze(-1) * problem.covariance[:, :1],
        rtol=0,
        atol=1e-9,
    )


def test_variables_without_variance() -> None:
    covariance = torch.zeros(3, 3, **DOUBLE)
    covariance[0, 0] = 1.0
    mean = torch.tensor([0.0, 0.3, 0.3], **DOUBLE)
    lower = torch.tensor([0.0, 0.0, -math.inf], **DOUBLE)
    upper = torch.tensor([math.inf, 1.0, 0.5], **DOUBLE)
    result = expectation_propagation(mean, covariance, lower, upper)
    assert_valid(result)
    torch.testing.assert_close(result.mean[1:], mean[1:])
    torch.testing.assert_close(
        result.mean[0], torch.tensor(math.sqrt(2.0 / math.pi), **DOUBLE)
    )


def test_unchecked_arguments_give_the_same() -> None:
    problem = benign_problem(3, 4, seed=0)
    checked = expectation_propagation(*problem)
    unchecked = expectation_propagation(*problem, validate_args=False)
    assert torch.equal(checked.mean, unchecked.mean)


def test_pseudo_noise_softens() -> None:
    one, zero = torch.ones(1, **DOUBLE), torch.zeros(1, **DOUBLE)
    for noise in (0.25, 0.25 * one, 0.25 * one[0], 1):
        result = expectation_propagation(zero, torch.eye(1), zero, 3 * one, noise)
        # The constraint is on the sum of the variable and the noise.
        p = float(noise)
        mean, variance = truncated_moments(0.0, 1.0 + p, 0.0, 3.0)
        torch.testing.assert_close(result.mean, one * mean / (1.0 + p))
        torch.testing.assert_close(
            result.covariance.flatten(),
            one * (p / (1.0 + p) + variance / (1.0 + p) ** 2),
        )


def test_precision_of_the_covariance_counts() -> None:
    problem = benign_problem(4, 6, seed=4)
    rounded = problem.covariance.float()
    result = expectation_propagation(
        problem.mean, rounded, problem.mean, problem.mean + 1e-9
    )
    assert result.mean.dtype == torch.double
    variance = rounded.double().diagonal(dim1=-1, dim2=-2)
    assert (1.0 / result.site_precision > 1e-6 * variance).all()


def test_single_precision() -> None:
    problem = benign_problem(10, 6, seed=4)
    exact = expectation_propagation(*problem)
    result = expectation_propagation(*(value.float() for value in problem))
    assert result.mean.dtype == result.covariance.dtype == torch.float32
    torch.testing.assert_close(result.mean.double(), exact.mean, rtol=0, atol=1e-4)
    torch.testing.assert_close(
        result.covariance.double(), exact.covariance, rtol=0, atol=1e-4
    )
    for kind in HARD_KINDS:
        if kind == "mixed_scales":  # beyond the range of single precision
            continue
        hard = hard_problem(kind, 40, 12, seed=5)
        result = expectation_propagation(*(value.float() for value in hard))
        assert all(value.isfinite().all() for value in result)
        assert result.converged.all()


def test_result_carries_no_gradient() -> None:
    problem = benign_problem(2, 3, seed=0)
    leaves = [value.clone().requires_grad_() for value in problem]
    result = expectation_propagation(*leaves)
    assert not any(value.requires_grad for value in result)
    assert torch.equal(result.mean, expectation_propagation(*problem).mean)


def test_missing_convergence_is_reported() -> None:
    problem = hard_problem("repeated", 20, 10, seed=0)
    with pytest.warns(
        NumericsWarning,
        match=r"not converged after 3 sweeps in \d+ of 20 members: the largest "
        r"mismatch is \d\.\de[+-]\d+, the tolerance 1\.0e-06",
    ) as record:
        result = expectation_propagation(*problem, max_sweeps=3)
    assert record[0].filename == __file__
    assert not result.converged.all()
    assert (result.mismatch[~result.converged] > 1e-6).all()
    assert (result.num_sweeps <= 3).all()


def indefinite_problem(n: int, eigenvalue: float) -> Problem:
    """Singular correlations, two of which are a little above one; and the identity."""
    generator = torch.Generator().manual_seed(n)
    root = torch.randn(n, max(1, n // 2), generator=generator, **DOUBLE)
    root[1] = root[0]
    root = root / root.norm(dim=-1, keepdim=True)
    covariance = root @ root.mT
    covariance[0, 1] = covariance[1, 0] = 1.0 - eigenvalue
    zero = torch.zeros(2, n, **DOUBLE)
    covariance = torch.stack([covariance, torch.eye(n, **DOUBLE)])
    return Problem(zero, covariance, zero + 0.3, zero + 0.3)


@pytest.mark.parametrize("width", [0.0, 1e-9, 1e-3, 1.0])
@pytest.mark.parametrize("n", [2, 6, 20])
def test_covariance_that_is_indefinite_by_rounding(n: int, width: float) -> None:
    for eigenvalue in (-1e-13, -1e-12, -1e-10, -1e-9):
        mean, covariance, lower, upper = indefinite_problem(n, eigenvalue)
        result = expectation_propagation(mean, covariance, lower, upper + width)
        assert_valid(result)
        assert result.converged.all()


@pytest.mark.parametrize("width", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("n", [2, 6, 20])
@pytest.mark.parametrize("eigenvalue", [-1e-6, -1e-4, -1e-2])
def test_indefinite_covariance_is_repaired_loudly(
    n: int, width: float, eigenvalue: float
) -> None:
    mean, covariance, lower, upper = indefinite_problem(n, eigenvalue)
    upper = upper + width
    with pytest.warns(
        NumericsWarning, match="1 of 2 covariances are not pos"
    ) as record:
        result = expectation_propagation(mean, covariance, lower, upper)
    assert record[0].filename == __file__
    assert_valid(result)
    assert result.converged.all()
    size = float(str(record[0].message).split("up to ")[-1].split()[0])
    assert -eigenvalue <= 1.01 * size < -20.0 * eigenvalue
    # The sound member is as if alone.
    alone = expectation_propagation(mean[1], covariance[1], lower[1], upper[1])
    torch.testing.assert_close(result.mean[1], alone.mean, rtol=1e-12, atol=0)
    # It is no surprise if the error is known.
    known = expectation_propagation(mean, covariance, lower, upper, -20.0 * eigenvalue)
    assert_valid(known)


def test_covariance_far_from_definite() -> None:
    with pytest.raises(InputDataError, match="eigenvalue -2"):
        expectation_propagation(*indefinite_problem(2, -2.0))


def test_bad_shapes() -> None:
    mean, covariance, lower, upper = benign_problem(3, 2, seed=0)
    with pytest.raises(
        BotorchTensorDimensionError, match=r"`covariance` to have the shape \(3, 2"
    ):
        expectation_propagation(mean, covariance[:2], lower, upper)
    with pytest.raises(BotorchTensorDimensionError, match=r"`upper` .* got \(3, 1\)"):
        expectation_propagation(mean, covariance, lower, upper[:, :1])
    with pytest.raises(BotorchTensorDimensionError, match=r"`mean` to have .*\(3, 0\)"):
        expectation_propagation(mean[:, :0], covariance, lower, upper)
    with pytest.raises(
        InputDataError, match=r"`max_sweeps` to be .* at least 1, got 0"
    ):
        expectation_propagation(mean, covariance, lower, upper, max_sweeps=0)
    with pytest.raises(
        BotorchTensorDimensionError, match=r"`pseudo_noise` .* got \(2,\)"
    ):
        expectation_propagation(mean, covariance, lower, upper, torch.ones(2))


def test_integers_are_refused() -> None:
    mean, covariance, lower, upper = benign_problem(3, 2, seed=0)
    with pytest.raises(InputDataError, match=r"`mean` to .* got torch\.int64"):
        expectation_propagation(mean.long(), covariance, lower, upper)
    with pytest.raises(InputDataError, match=r"`covariance` to .* got torch\.int64"):
        expectation_propagation(mean, covariance.long(), lower, upper)


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        (
            "mean",
            math.nan,
            "`mean` to be finite, got nan at index \\(1, 0\\) \\(1 of 6",
        ),
        ("covariance", math.inf, "`covariance` to be finite"),
        ("lower", math.nan, "`lower` to be less than infinity, got nan"),
        ("lower", math.inf, "`lower` to be less than infinity, got inf"),
        ("upper", -math.inf, "`upper` to be greater than minus infinity, got -inf"),
        ("upper", -100.0, "`lower` to be at most `upper`"),
        ("covariance", -1.0, "diagonal of `covariance` to be at least 0, got -1.0"),
        ("pseudo_noise", -1e-8, "`pseudo_noise` to be at least 0"),
        ("pseudo_noise", math.inf, "`pseudo_noise` to be finite"),
    ],
)
def test_bad_values(argument: str, value: float, message: str) -> None:
    arguments = benign_problem(3, 2, seed=0)._asdict()
    arguments["lower"] = torch.zeros(3, 2, **DOUBLE)
    arguments["upper"] = torch.ones(3, 2, **DOUBLE)
    arguments["pseudo_noise"] = torch.zeros(3, 2, **DOUBLE)
    tensor = arguments[argument].clone()
    tensor[(1, 0, 0) if tensor.ndim == 3 else (1, 0)] = value
    with pytest.raises(InputDataError, match=message):
        expectation_propagation(**{**arguments, argument: tensor})


def test_asymmetry_by_rounding_is_averaged() -> None:
    mean, covariance, lower, upper = benign_problem(3, 4, seed=0)
    asymmetric = covariance.clone()
    asymmetric[..., 0, 1] += 1e-3
    asymmetric[..., 1, 0] -= 1e-3
    result = expectation_propagation(mean, asymmetric, lower, upper)
    expected = expectation_propagation(mean, covariance, lower, upper)
    torch.testing.assert_close(result.mean, expected.mean)
    torch.testing.assert_close(result.covariance, expected.covariance)


def test_factor_in_place_of_a_covariance() -> None:
    mean, covariance, lower, upper = benign_problem(3, 4, seed=0)
    factor = torch.linalg.cholesky(covariance)
    with pytest.raises(InputDataError, match="Expected `covariance` to be symmetric"):
        expectation_propagation(mean, factor, lower, upper)


def test_number_of_operations_does_not_grow() -> None:
    counts = set()
    for num, n in ((1, 2), (5, 2), (5, 9)):
        problem = benign_problem(num, n, seed=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumericsWarning)
            with OperationCount() as short:
                expectation_propagation(*problem, max_sweeps=2, tolerance=0.0)
            with OperationCount() as long:
                expectation_propagation(*problem, max_sweeps=4, tolerance=0.0)
        counts.add((long.count - short.count) / 2)
    assert len(counts) == 1
