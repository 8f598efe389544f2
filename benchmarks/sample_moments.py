"""Means and covariances of function samples against the exact posterior."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from botorch.sampling.pathwise import gen_kernel_features
from torch import Tensor

from benchmarks.random_problems import NOISE_VARIANCE, random_model
from botorch_res.models import ExactGPView
from botorch_res.sampling import draw_fourier_samples
from botorch_res.sampling.fourier import read_space
from botorch_res.sampling.frequencies import stretch_frequencies


def run_statistics(quick: bool) -> Iterator[str]:
    """Mean and covariance of many samples against the exact posterior."""
    yield (
        "Deviations in Monte-Carlo standard errors over independent seeds of 64 "
        "samples each, at 8 points: rms 1 is expected, and a maximum of 3 of 36 "
        "covariances."
    )
    yield ""
    yield (
        "| kernel | method | t | mean: rms z | mean: max z | cov: rms z | cov: max z |"
        " data: max dev / noise sd |"
    )
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    num_seeds = 16 if quick else 128
    for kernel, method, t in [
        *(("rbf", "matheron", t) for t in (1, 10, 100, 500)),
        *(("2.5", "matheron", t) for t in (1, 10, 100, 500)),
        *(("rbf", "weight", t) for t in (1, 5, 10)),
        *(("2.5", "weight", t) for t in (1, 5, 10)),
    ]:
        model = random_model(2, seed=t, kernel=kernel, t=t)
        Z = random_points(8, 2)
        with torch.no_grad():
            exact = model.posterior(Z)
            mean = exact.mean.squeeze(-1)
            covariance = exact.distribution.covariance_matrix
        means, covariances, deviations = [], [], []
        for seed in range(num_seeds):
            samples = draw_fourier_samples(model, 64, method=method, seed=seed)
            residual = samples(Z) - mean
            means.append(residual.mean(0))
            covariances.append(residual.mT @ residual / len(residual))
            at_data = samples(model.train_inputs[0]) - model.train_targets
            deviations.append(at_data.abs().max() / math.sqrt(NOISE_VARIANCE))
        scores = []
        for draws, target in ((means, torch.zeros(8)), (covariances, covariance)):
            stacked = torch.stack(draws)
            error = stacked.std(0) / math.sqrt(num_seeds)
            z = (stacked.mean(0) - target) / error
            scores += [z.square().mean().sqrt().item(), z.abs().max().item()]
        yield (
            f"| {kernel} | {method} | {t} | "
            + " | ".join(f"{score:.2f}" for score in scores)
            + f" | {torch.stack(deviations).max():.1f} |"
        )


def run_frequencies(quick: bool) -> Iterator[str]:
    """Error of the variance for one set of frequencies, in closed form."""
    yield (
        "Relative error (rms over points, problems and seeds) of the variance of "
        "infinitely many Matheron samples that share one set of 256 frequencies: all "
        "of the kernel's spectral density, or half of them stretched."
    )
    yield ""
    yield "| kernel | d | t | spectral density | half stretched |"
    yield "|---|--:|--:|--:|--:|"
    num_problems = 2 if quick else 6
    for kernel in ("rbf", "2.5", "0.5"):
        for dim in (2, 3, 6):
            for t in (3, 30, 200):
                plain, stretched = [], []
                for seed in range(num_problems):
                    model = random_model(dim, seed, kernel, t)
                    errors = variance_errors(ExactGPView(model), 8)
                    plain.append(errors[0])
                    stretched.append(errors[1])
                before, after = (
                    torch.cat(e).square().mean().sqrt() for e in (plain, stretched)
                )
                yield f"| {kernel} | {dim} | {t} | {before:.3f} | {after:.3f} |"


def variance_errors(view: ExactGPView, num_seeds: int) -> tuple[Tensor, Tensor]:
    """Relative errors of the variance, for plain and for stretched frequencies."""
    dim = view.train_inputs.shape[-1]
    space = read_space(view, view.stationary_kernel)
    Z = random_points(16, dim)
    with torch.no_grad():
        exact = view.joint_posterior(Z)[1].diagonal()
        gain = view.prior_covariance(Z, view.train_inputs)
        gain = gain @ view.whitener.mT @ view.whitener
        noise = gain.square() @ view.noise
        results: tuple[list[Tensor], list[Tensor]] = ([], [])
        for seed in range(num_seeds):
            torch.manual_seed(seed)
            plain = gen_kernel_features(
                view.covar_module, num_inputs=dim, num_outputs=512
            ).weight
            share = torch.full_like(plain[:, 0], 1 / 256)
            draws = ((plain, share), stretch_frequencies(plain, space.smoothness))
            for (frequencies, share), errors in zip(draws, results, strict=True):
                points = torch.cat([Z / space.scale - space.shift, space.centers])
                phase = points @ frequencies.mT
                features = torch.cat([phase.cos(), phase.sin()], -1)
                features = (space.variance * share).sqrt().tile(2) * features
                rest = features[:16] - gain @ features[16:]
                errors.append((rest.square().sum(-1) + noise) / exact - 1)
    return torch.cat(results[0]), torch.cat(results[1])


def random_points(n: int, dim: int) -> Tensor:
    """Points of the unit cube."""
    generator = torch.Generator().manual_seed(7)
    return torch.rand(n, dim, generator=generator, dtype=torch.double)
