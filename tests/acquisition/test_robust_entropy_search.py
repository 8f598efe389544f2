import pickle

import pytest
import torch
from botorch.acquisition.objective import (
    ExpectationPosteriorTransform,
    ScalarizedPosteriorTransform,
)
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.models import SingleTaskGP
from botorch.models.map_saas import EnsembleMapSaasSingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import (
    optimize_acqf,
    optimize_acqf_discrete,
    optimize_acqf_mixed,
)
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.means import ZeroMean
from torch import Tensor

from botorch_res import RobustDomain
from botorch_res.acquisition import qRobustEntropySearch

DOUBLE = {"dtype": torch.double}
UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], **DOUBLE)

pytestmark = pytest.mark.filterwarnings(
    "ignore::botorch.exceptions.warnings.InputDataWarning"
)


def make_domain(kind: str = "box", bounds: Tensor = UNIT) -> RobustDomain:
    """A domain of one controllable and one uncontrollable column."""
    unit = torch.linspace(0.0, 1.0, 6, **DOUBLE).unsqueeze(-1)
    lower, upper = bounds
    choices = {
        "box": {},
        "theta": {"theta_choices": lower[1:] + (upper - lower)[1:] * unit},
        "x": {"x_choices": lower[:1] + (upper - lower)[:1] * unit},
    }
    choices["both"] = choices["theta"] | choices["x"]
    return RobustDomain(bounds, [1], **choices[kind])


KINDS = ("box", "theta", "x", "both")


def make_model(
    t: int, seed: int, noise: float = 1e-3, lengthscale: float = 0.3, d: int = 2
) -> SingleTaskGP:
    """A zero-mean, unit-variance GP whose data are a draw from its own prior."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(t, d, generator=generator, **DOUBLE)
    kernel = ScaleKernel(RBFKernel(ard_num_dims=d))
    kernel.outputscale = 1.0
    kernel.base_kernel.lengthscale = lengthscale
    covariance = kernel.double()(X).to_dense().detach()
    root = torch.linalg.cholesky(covariance + noise * torch.eye(t, **DOUBLE))
    Y = root @ torch.randn(t, 1, generator=generator, **DOUBLE)
    return SingleTaskGP(
        X,
        Y,
        train_Yvar=torch.full_like(Y, noise),
        mean_module=ZeroMean(),
        covar_module=kernel,
        outcome_transform=None,
    )


def random_points(n: int, seed: int, d: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, 1, d, generator=generator, **DOUBLE)


@torch.no_grad()
def monte_carlo_variance(
    model: SingleTaskGP, acqf: qRobustEntropySearch, z: Tensor, seed: int
) -> tuple[float, int]:
    """The variance of ``f(z)`` under the exact constraints, by rejection.

    The joint posterior over the data, their worst cases and the candidate pair comes
    from BoTorch; draws that violate a constraint are thrown away.
    """
    X = model.train_inputs[0]
    x, theta = acqf.domain.split(torch.cat([X, z]))
    worst_theta, worst_value = acqf.solver(x)
    optimum = torch.minimum(acqf.robust_optimal_values[0], worst_value[0].min())
    partners = acqf.domain.join(x, worst_theta[0])
    joint = model.posterior(torch.cat([X, z, partners]))
    n = len(x)
    root = torch.linalg.cholesky(
        joint.mvn.covariance_matrix + 1e-9 * torch.eye(2 * n, **DOUBLE)
    )
    generator = torch.Generator().manual_seed(seed)
    kept = []
    for _ in range(20):
        normal = torch.randn(100_000, 2 * n, generator=generator, **DOUBLE)
        draws = joint.mean.squeeze(-1) + normal @ root.T
        at_theta, at_worst = draws[:, :n], draws[:, n:]
        valid = (at_theta <= worst_value[0]) & (at_worst <= worst_value[0])
        valid &= at_worst >= optimum
        kept.append(at_theta[valid.all(dim=-1), n - 1])
    values = torch.cat(kept)
    return float(values.var()), len(values)


class TestAgainstMonteCarlo:
    def test_conditional_variance(self):
        errors, gaps = [], []
        for seed in range(40):
            model = make_model(t=2 + seed % 3, seed=seed, noise=1e-2)
            acqf = qRobustEntropySearch(
                model, make_domain(), num_samples=1, maximize=False, seed=seed
            )
            z = random_points(1, seed)
            expected, count = monte_carlo_variance(model, acqf, z[0], seed)
            # Below, the Monte Carlo error itself would be more than 5 %.
            if count < 1000:
                continue
            prior, conditional = acqf._variances(z.squeeze(-2))
            assert conditional[0, 0] <= prior[0]
            errors.append(abs(float(conditional[0, 0]) / expected - 1.0))
            gain = 0.5 * torch.log((prior[0] + 1e-2) / (expected + 1e-2))
            gaps.append(abs(float(gain - acqf(z))))
        assert len(errors) >= 30
        errors, gaps = torch.tensor(errors), torch.tensor(gaps)
        print(errors.median(), errors.max(), gaps.max(), len(errors))
        assert errors.median() < 0.03
        assert errors.max() < 0.15
        assert gaps.max() < 0.05
