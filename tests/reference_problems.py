"""Thirty random problems, and the numbers that the package gives for them.

``python -m tests.reference_problems`` writes the numbers to ``tests/data``. They are
kept to see whether a change of the code changes a result; whether results are right is
for the oracles of the other tests to say.

Processors round differently, and a search magnifies that: which of two equal optima it
names may change, and a gradient through it by 1e-4. So the numbers are computed in a
process of its own, in which torch and MKL use the instructions that all processors of
one kind have. ``arithmetic`` tells whether two machines agree to the last bit.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_res import (
    RobustDomain,
    StableOpt,
    optimize_robust_acqf,
    qRobustEntropySearch,
    recommend_robust_optimum,
)
from botorch_res.optim import robust_optimum, worst_case
from botorch_res.sampling import draw_fourier_samples

PATH = Path(__file__).parent / "data" / "reference_values.npz"
NUM_PROBLEMS = 30
KINDS = ("box", "theta", "x", "both")
SHAPES = ((1, 1), (2, 1), (1, 2), (2, 2), (1, 1))
KERNELS = (None, 2.5, None, 1.5, None, None, 2.5)
NUM_SAMPLES = 3


class Problem:
    """A random model, and a random domain of one of the four kinds.

    Every sixth model is a batch of two. Columns are in a random order.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.generator = torch.Generator().manual_seed(1000 + seed)
        x_dim, theta_dim = SHAPES[seed % len(SHAPES)]
        self.dim = x_dim + theta_dim
        self.maximize = seed % 3 == 1
        self.target = "characteristics" if seed % 4 == 3 else "optimum"
        self.batch = (2,) if seed % 6 == 5 else ()
        lower = 10.0 * self.uniform(self.dim) - 5.0
        bounds = torch.stack([lower, lower + 0.5 + 4.0 * self.uniform(self.dim)])
        order = torch.randperm(self.dim, generator=self.generator).tolist()
        theta = order[:theta_dim]
        x = sorted(order[theta_dim:])
        kind = KINDS[(seed // 2) % len(KINDS)]
        choices: dict[str, Tensor] = {}
        for name, columns, n in (("x", x, 7), ("theta", theta, 9)):
            if kind in (name, "both"):
                unit = self.uniform(n, len(columns))
                choices[f"{name}_choices"] = torch.lerp(*bounds[:, columns], unit)
        self.domain = RobustDomain(bounds, theta, **choices)
        self.model = self.make_model(KERNELS[seed % len(KERNELS)])

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator, dtype=torch.double)

    def points(self, n: int) -> Tensor:
        """Points of the domain, which share no structure with its own sequences."""
        x, theta = self.domain.split(
            torch.lerp(*self.domain.bounds, self.uniform(n, self.dim))
        )
        return self.domain.join(
            *(
                part if choices is None else choices[torch.arange(n) % len(choices)]
                for part, choices in (
                    (x, self.domain.x.choices),
                    (theta, self.domain.theta.choices),
                )
            )
        )

    def make_model(self, smoothness: float | None) -> SingleTaskGP:
        t = 3 + self.seed % 8
        unit = self.uniform(*self.batch, t, self.dim)
        X = torch.lerp(*self.domain.bounds, unit)
        if self.domain.x.choices is not None and self.domain.theta.choices is not None:
            pairs = self.domain.all_pairs().flatten(0, 1)
            X = pairs[(unit[..., 0] * len(pairs)).long()]
        Y = 3.0 + 2.0 * torch.sin(3.0 * unit.sum(-1, keepdim=True) + self.seed)
        Y = Y + self.uniform(*self.batch, t, 1)
        base = (
            RBFKernel(ard_num_dims=self.dim)
            if smoothness is None
            else MaternKernel(smoothness, ard_num_dims=self.dim)
        )
        base.lengthscale = 0.2 + 0.6 * self.uniform(self.dim)
        model = SingleTaskGP(
            X,
            Y,
            train_Yvar=torch.full_like(Y, 1e-3),
            covar_module=ScaleKernel(base).double(),
            input_transform=Normalize(self.dim, bounds=self.domain.bounds),
            outcome_transform=Standardize(1, batch_shape=torch.Size(self.batch)),
        )
        return model.eval()


def solve(seed: int) -> dict[str, Tensor]:
    """All numbers of one problem: values, gradients, worst cases, optima."""
    problem = Problem(seed)
    model, domain = problem.model, problem.domain
    acqf = qRobustEntropySearch(
        model,
        domain,
        num_samples=NUM_SAMPLES,
        maximize=problem.maximize,
        target=problem.target,
        X_pending=problem.points(2) if seed % 5 == 2 else None,
        seed=seed,
    )
    X = problem.points(6).requires_grad_()
    value = acqf(X.view(6, *[1] * len(problem.batch), 1, -1))
    (gradient,) = torch.autograd.grad(value.sum(), X)
    samples = draw_fourier_samples(model, NUM_SAMPLES, seed=seed)
    x, _ = domain.split(problem.points(4))
    worst = worst_case(samples, x, domain)
    optimum = robust_optimum(samples, domain)
    result = {
        "value": value.detach(),
        "gradient": gradient,
        "sampled_optimizers": acqf.robust_optimizers,
        "sampled_values": acqf.robust_optimal_values,
        "worst_theta": worst.theta,
        "worst_value": worst.value,
        "optimal_x": optimum.x,
        "optimal_theta": optimum.theta,
        "optimal_value": optimum.value,
    }
    if not problem.batch:
        best = recommend_robust_optimum(model, domain, problem.maximize, num_samples=0)
        result |= {f"recommended_{k}": v for k, v in best._asdict().items()}
        if seed % 2 == 0:
            found = optimize_robust_acqf(
                acqf, domain, num_restarts=2, raw_samples=16, num_rounds=4, seed=seed
            )
            result |= dict(zip(("candidate", "candidate_value"), found, strict=True))
            found = StableOpt(model, domain, maximize=problem.maximize).optimize()
            result |= dict(zip(("stable_opt", "stable_opt_value"), found, strict=True))
    return result


def arithmetic() -> str:
    """A digest of basic operations' results, whose last bits depend on the machine."""
    unit = torch.rand(3, 40, 40, generator=torch.Generator().manual_seed(0)).double()
    gram = unit @ unit.mT + torch.eye(40, dtype=torch.double)
    factor = torch.linalg.cholesky(gram)
    functions = (torch.exp, torch.log, torch.sin, torch.cos, torch.erfc, torch.sqrt)
    results = [
        *(function(10.0 * unit) for function in functions),
        gram,
        factor,
        torch.linalg.solve_triangular(factor, unit, upper=False),
        torch.cholesky_solve(unit, factor),
    ]
    return hashlib.sha256(torch.stack(results).numpy().tobytes()).hexdigest()


def save(path: str) -> None:
    """Write the numbers of all problems to a file."""
    numbers = {
        f"{seed}/{name}": tensor.detach().numpy()
        for seed in range(NUM_PROBLEMS)
        for name, tensor in solve(seed).items()
    }
    np.savez_compressed(path, arithmetic=arithmetic(), **numbers)


def save_on_plain_processor(path: Path) -> None:
    """Write the numbers, computed without what is special to this processor."""
    plain = {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "OMP_NUM_THREADS": "1",
    }
    command = f"from tests.reference_problems import save; save({str(path)!r})"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", command],
        env=os.environ | plain,
        cwd=Path(__file__).parents[1],
        check=True,
    )


if __name__ == "__main__":
    save_on_plain_processor(PATH)
