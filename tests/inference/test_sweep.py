import mpmath
import pytest
import torch
from interval_problems import DOUBLE, hard_problem
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from botorch_res.inference.sweep import (
    Sites,
    StandardProblem,
    marginals,
    mismatch,
    moments_with_sites,
    project,
    transfer_precision,
)


def make_problem(kind: str, n: int, seed: int = 0) -> tuple[Tensor, StandardProblem]:
    _, covariance, lower, upper = (
        value[0] for value in hard_problem(kind, 1, n, seed=seed)
    )
    scale = covariance.diagonal().sqrt()
    correlation = covariance / (scale.unsqueeze(-1) * scale)
    widened, transferred = transfer_precision(correlation)
    noise = torch.full((n,), 1e-8, **DOUBLE)
    problem = StandardProblem(widened, transferred, lower / scale, upper / scale, noise)
    return correlation, problem


@pytest.mark.parametrize("kind", ["wishart", "kernel", "repeated", "nearly_equal"])
def test_marginals_keep_their_digits(kind: str) -> None:
    n = 8
    correlation, problem = make_problem(kind, n)
    # From flat to as tight as the pseudo-noise allows.
    precision = torch.tensor([0.0, 1e-12, 1e-3, 1.0, 1e2, 1e4, 1e8, 1e8], **DOUBLE)
    shift = precision * torch.linspace(-2.0, 2.0, n, **DOUBLE)
    found = marginals(problem, Sites(precision, shift))
    with mpmath.workdps(50):
        prior = mpmath.matrix(correlation.tolist())
        for i in range(n):
            for cavity in (False, True):
                tau, nu = list(map(mpmath.mpf, precision.tolist())), shift.tolist()
                if cavity:
                    tau[i], nu[i] = mpmath.mpf(0), 0.0
                posterior = (
                    mpmath.inverse(mpmath.eye(n) + prior * mpmath.diag(tau)) * prior
                )
                mean = float((posterior * mpmath.matrix(nu))[i])
                variance = float(posterior[i, i])
                if cavity:
                    moments = found.cavity_mean[i], 1.0 / found.cavity_precision[i]
                else:
                    moments = found.mean[i], found.variance[i]
                # Two tight sites contradict each other here, at distances of 1e4 of
                # their deviations; the textbook form has not one correct digit.
                assert abs(float(moments[0]) - mean) < 3e-4 * variance**0.5
                assert abs(float(moments[1]) / variance - 1.0) < 1e-5


def test_sweep_stays_on_its_device() -> None:
    with FakeTensorMode():
        rows = torch.empty(3, 5, device="cuda", **DOUBLE)
        widened, transferred = transfer_precision(
            torch.empty(3, 5, 5, device="cuda", **DOUBLE)
        )
        problem = StandardProblem(widened, transferred, rows, rows, rows)
        sites = Sites(rows, rows)
        posterior = marginals(problem, sites)
        target, mean = project(
            problem, posterior.cavity_mean, posterior.cavity_precision
        )
        distance = mismatch(posterior, target, mean)
        moments = moments_with_sites(problem, target)
        for value in (*posterior, *target, distance, *moments):
            assert value.device.type == "cuda"
