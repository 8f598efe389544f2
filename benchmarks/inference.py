"""Cost and robustness of expectation propagation and of prediction with its sites.

Run as ``python -m benchmarks.inference [cost] [memory] [fuzz] [accuracy] [prediction]``
(all of them by default, in about five minutes). Times are medians of CPU time on one
core, in runs that alternate between the things compared, so that a busy machine slows
all of them down.
"""

from __future__ import annotations

import sys
import time
import warnings
import weakref
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel, ScaleKernel
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from botorch_res.inference import expectation_propagation
from botorch_res.inference.sweep import (
    Sites,
    StandardProblem,
    marginals,
    mismatch,
    project,
    transfer_precision,
)
from botorch_res.models import ExactGPView, GPStage
from tests.inference.interval_problems import (
    HARD_KINDS,
    Problem,
    box_problem,
    deviations,
    hard_problem,
    quadrature_moments,
)
from tests.operation_count import OperationCount

DOUBLE = {"dtype": torch.double}


class Operations(OperationCount):
    """Counts operations, and the bytes of all tensors alive at the same time."""

    def __init__(self) -> None:
        """Start at zero."""
        super().__init__()
        self.bytes = 0
        self.peak = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run the operation and take note of it."""
        result = super().__torch_dispatch__(func, types, args, kwargs)
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, Tensor) and value._base is None:
                size = value.numel() * value.element_size()
                self.bytes += size
                self.peak = max(self.peak, self.bytes)
                weakref.finalize(value, self._free, size)
        return result

    def _free(self, size: int) -> None:
        self.bytes -= size


def alternate(*functions: Callable[[], Any], repeats: int = 9) -> list[float]:
    """Median times in milliseconds of functions that take turns."""
    times: list[list[float]] = [[] for _ in functions]
    for repeat in range(repeats + 1):
        for function, record in zip(functions, times, strict=True):
            start = time.process_time()
            function()
            if repeat:  # the first is a warm-up
                record.append(1e3 * (time.process_time() - start))
    return [sorted(record)[len(record) // 2] for record in times]


def make_model(t: int, d: int = 2, seed: int = 0) -> SingleTaskGP:
    """A GP in the unit square, Matern 5/2, with a draw of itself as data."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(t, d, generator=generator, **DOUBLE)
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=d)).double()
    kernel.base_kernel.lengthscale = 0.3
    kernel.outputscale = 1.0
    covariance = kernel(X).to_dense().detach() + 1e-3 * torch.eye(t, **DOUBLE)
    white = torch.randn(t, 1, generator=generator, **DOUBLE)
    Y = torch.linalg.cholesky(covariance) @ white
    return SingleTaskGP(
        X, Y, torch.full_like(Y, 1e-3), covar_module=kernel, outcome_transform=None
    )


def robust_problem(
    view: ExactGPView, num_samples: int, seed: int = 0
) -> tuple[Tensor, Problem]:
    """Worst cases and constraints as Robust Entropy Search has them.

    Each sample's values at the data and at its worst cases are one joint draw; the
    worst-case value of ``x_i`` is the larger of the two there, the robust optimum the
    smallest of all worst-case values.
    """
    t = view.train_inputs.shape[-2]
    generator = torch.Generator().manual_seed(seed)
    worst = view.train_inputs.repeat(num_samples, 1, 1)
    worst[..., -1] = torch.rand(num_samples, t, generator=generator, **DOUBLE)
    mean, covariance = view.site_posterior(worst)
    root = torch.linalg.cholesky(covariance + 1e-9 * torch.eye(2 * t, **DOUBLE))
    white = torch.randn(num_samples, 2 * t, 1, generator=generator, **DOUBLE)
    at_data, at_worst = (mean + (root @ white).squeeze(-1)).chunk(2, dim=-1)
    top = torch.maximum(at_data, at_worst)
    floor = top.amin(dim=-1, keepdim=True).expand_as(top)
    lower = torch.cat([torch.full_like(top, -torch.inf), floor], dim=-1)
    return worst, Problem(mean, covariance, lower, torch.cat([top, top], dim=-1))


def standard_problem(problem: Problem) -> StandardProblem:
    """What a sweep of expectation propagation sees."""
    scale = deviations(problem.covariance)
    correlation = problem.covariance / (scale.unsqueeze(-1) * scale.unsqueeze(-2))
    widened, transferred = transfer_precision(correlation)
    lower, upper = (
        (bound - problem.mean) / scale for bound in (problem.lower, problem.upper)
    )
    return StandardProblem(
        widened, transferred, lower, upper, torch.full_like(lower, 1e-8)
    )


def one_sweep(problem: StandardProblem, sites: Sites) -> Tensor:
    """A sweep without its damping."""
    posterior = marginals(problem, sites)
    target, mean = project(problem, posterior.cavity_mean, posterior.cavity_precision)
    return mismatch(posterior, target, mean)


def cost() -> None:
    """A sweep against a batched Cholesky factorisation of the same size."""
    print("| C | t | Cholesky ms | sweep ms | ratio | sweeps med/max | EP ms |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for t in (10, 30, 100, 300):
        view = ExactGPView(make_model(t))
        for num_samples in (1, 16, 64):
            _, problem = robust_problem(view, num_samples)
            standard = standard_problem(problem)
            matrix = standard.widened_correlation + torch.eye(2 * t, **DOUBLE)
            ones = torch.ones_like(problem.mean)
            repeats = 3 if t * num_samples > 5000 else 9
            factor, sweep = alternate(
                lambda matrix=matrix: torch.linalg.cholesky_ex(matrix),
                lambda standard=standard, ones=ones: one_sweep(
                    standard, Sites(ones, ones)
                ),
                repeats=repeats,
            )
            start = time.process_time()
            result = expectation_propagation(*problem, pseudo_noise=1e-8)
            total = 1e3 * (time.process_time() - start)
            sweeps = result.num_sweeps
            print(
                f"| {num_samples} | {t} | {factor:.3f} | {sweep:.3f} | "
                f"{sweep / factor:.1f} | {int(sweeps.median())}/{int(sweeps.max())} | "
                f"{total:.0f} |",
                flush=True,
            )


def memory() -> None:
    """Peak memory and number of operations of expectation propagation."""
    print("| C | t | peak MB | in matrices C x 2t x 2t | operations per sweep |")
    print("|--:|--:|--:|--:|--:|")
    for num_samples, t in ((1, 10), (16, 10), (16, 100), (64, 100), (16, 300)):
        _, problem = robust_problem(ExactGPView(make_model(t)), num_samples)
        with Operations() as operations:
            result = expectation_propagation(*problem, pseudo_noise=1e-8)
        standard = standard_problem(problem)
        ones = torch.ones_like(problem.mean)
        with Operations() as sweep:
            one_sweep(standard, Sites(ones, ones))
        assert result.converged.all()
        matrix = 8 * num_samples * (2 * t) ** 2
        print(
            f"| {num_samples} | {t} | {operations.peak / 1e6:.1f} | "
            f"{operations.peak / matrix:.1f} | {sweep.count} |",
            flush=True,
        )


def fuzz() -> None:
    """Random hard problems: convergence, finiteness, valid covariances."""
    sizes = {1: 300, 2: 500, 3: 500, 5: 500, 10: 300, 20: 200, 40: 80, 100: 20, 400: 1}
    print(
        "| covariance | dtype | problems | converged | non-finite | sweeps 50/95/max |"
    )
    print("|:--|:--|--:|--:|--:|--:|", flush=True)
    smallest, count = 0.0, 0
    for dtype in (torch.float64, torch.float32):
        for kind in HARD_KINDS:
            if dtype == torch.float32 and kind == "mixed_scales":
                continue  # beyond the range of single precision
            results = []
            for n, num in sizes.items():
                problem = hard_problem(kind, num, n, seed=1000 + n)
                result = expectation_propagation(*(v.to(dtype) for v in problem))
                results.append(result)
                if dtype == torch.float64:
                    values = torch.linalg.eigvalsh(result.covariance)
                    relative = values[:, 0] / values[:, -1]
                    smallest = min(smallest, float(relative.min()))
            converged = torch.cat([result.converged for result in results])
            sweeps = torch.cat([result.num_sweeps for result in results]).double()
            bad = sum(
                int((~value.isfinite()).sum()) for result in results for value in result
            )
            count += len(sweeps)
            print(
                f"| {kind} | {str(dtype).removeprefix('torch.')} | {len(sweeps)} | "
                f"{100 * float(converged.double().mean()):.2f} % | {bad} | "
                f"{int(sweeps.median())}/{int(sweeps.quantile(0.95))}/"
                f"{int(sweeps.max())} |",
                flush=True,
            )
    print(f"\n{count} problems; smallest relative eigenvalue (float64) {smallest:.1e}")


def accuracy() -> None:
    """The method's own error for two variables, over a grid of boxes."""
    print("| correlation | boxes | mean, max (in deviations) | variance, max |")
    print("|--:|--:|--:|--:|")
    for correlation in (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99):
        problem = box_problem(correlation)
        mean, covariance = quadrature_moments(problem)
        result = expectation_propagation(*problem)
        sigma = deviations(covariance)
        in_mean = (result.mean - mean).abs() / sigma
        in_variance = (deviations(result.covariance) / sigma).square() - 1.0
        print(
            f"| {correlation} | {len(mean)} | {100 * float(in_mean.max()):.2f} % | "
            f"{100 * float(in_variance.abs().max()):.1f} % |",
            flush=True,
        )


def condition(view: ExactGPView, num_samples: int) -> GPStage:
    """The view with the sites of expectation propagation."""
    worst, problem = robust_problem(view, num_samples)
    result = expectation_propagation(*problem, pseudo_noise=1e-8)
    return view.with_sites(worst, result.site_precision, result.site_shift)


def conditioned_model(model: SingleTaskGP, process: GPStage) -> SingleTaskGP:
    """BoTorch's way to the same posterior: a batch of models with the sites as data."""
    worst, problem = robust_problem(process.root, process.points.shape[0])
    result = expectation_propagation(*problem, pseudo_noise=1e-8)
    samples = worst.shape[0]
    precision = result.site_precision.clamp_min(1e-8)
    data = model.train_inputs[0].repeat(samples, 1, 1)
    X = torch.cat([data, data, worst], dim=-2)
    targets = model.train_targets.repeat(samples, 1)
    Y = torch.cat([targets, result.site_shift / precision], dim=-1).unsqueeze(-1)
    noise = torch.cat([torch.full_like(targets, 1e-3), 1.0 / precision], dim=-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)  # of very small noise
        return SingleTaskGP(
            X,
            Y,
            noise.unsqueeze(-1),
            covar_module=deepcopy(model.covar_module),
            outcome_transform=None,
        )


def prediction() -> None:
    """Pairs for all samples, with sites, against BoTorch on the same points.

    Plain is one call of the posterior of the model without any site; conditioned that
    of a batch of models, one per sample, that have the sites among their data.
    """
    print(
        "| b | C | t | pairs ms | plain ms | ratio | conditioned ms | ratio |", end=""
    )
    print(" + backward ms | operations |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for b, samples, t in ((256, 16, 100), (256, 16, 30), (8, 16, 100), (256, 1, 100)):
        model = make_model(t)
        process = condition(ExactGPView(model), samples)
        conditioned = conditioned_model(model, process)
        generator = torch.Generator().manual_seed(1)
        X = torch.rand(b, 2, generator=generator, **DOUBLE)
        partners = torch.rand(samples, b, 2, generator=generator, **DOUBLE)
        pairs = torch.stack([X.expand_as(partners), partners], dim=-2)
        by_point = pairs.transpose(0, 1)

        def ours(
            process: GPStage = process, X: Tensor = X, partners: Tensor = partners
        ) -> Tensor:
            return process.pair_posterior(X, partners).covariance

        def ours_with_gradient(ours: Any = ours, X: Tensor = X) -> Tensor:
            X = X.clone().requires_grad_()
            return torch.autograd.grad(ours(X=X).sum(), X)[0]

        def plain(model: SingleTaskGP = model, pairs: Tensor = pairs) -> Tensor:
            with torch.no_grad():
                return model.posterior(pairs).distribution.covariance_matrix

        def batched(
            model: SingleTaskGP = conditioned, pairs: Tensor = by_point
        ) -> Tensor:
            with torch.no_grad():
                return model.posterior(pairs).distribution.covariance_matrix

        difference = (ours().movedim(1, 0) - batched()).abs().max()
        assert difference < 1e-4, f"not the same posterior: {difference}"
        times = alternate(ours, plain, batched, ours_with_gradient, repeats=5)
        mine, theirs, theirs_batched, gradient = times
        with Operations() as operations:
            ours()
        print(
            f"| {b} | {samples} | {t} | {mine:.1f} | {theirs:.1f} | "
            f"{theirs / mine:.1f} | {theirs_batched:.0f} | {theirs_batched / mine:.0f} "
            f"| {gradient:.1f} | {operations.count} |",
            flush=True,
        )


def main() -> None:
    """Run the parts named on the command line, or all of them."""
    torch.set_num_threads(1)
    parts = {
        "cost": cost,
        "memory": memory,
        "fuzz": fuzz,
        "accuracy": accuracy,
        "prediction": prediction,
    }
    for name in sys.argv[1:] or parts:
        print(f"\n## {name}: {parts[name].__doc__}\n", flush=True)
        parts[name]()


if __name__ == "__main__":
    main()
