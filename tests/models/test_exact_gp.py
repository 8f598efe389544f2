import pickle

import pytest
import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.models import (
    KroneckerMultiTaskGP,
    MixedSingleTaskGP,
    SingleTaskGP,
    SingleTaskVariationalGP,
)
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.map_saas import EnsembleMapSaasSingleTaskGP
from botorch.models.robust_relevance_pursuit_model import (
    RobustRelevancePursuitSingleTaskGP,
)
from botorch.models.transforms.input import (
    AppendFeatures,
    ChainedInputTransform,
    Log10,
    Normalize,
    Round,
    Warp,
)
from botorch.models.transforms.outcome import (
    ChainedOutcomeTransform,
    Log,
    Standardize,
    StratifiedStandardize,
)
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import (
    LinearKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean, ZeroMean
from gpytorch.models import ExactGP
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from botorch_res.models import ExactGPView
from tests.problems import DOUBLE, Draws, make_kernel

# BoTorch's advice to scale the data, which some of these are on purpose not.
pytestmark = pytest.mark.filterwarnings(
    "ignore::botorch.exceptions.warnings.InputDataWarning"
)


def make_data(
    *batch: int, t: int = 6, scale: float = 10.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    X = 1.0 + scale * Draws(seed).uniform(*batch, t, 2)
    Y = 3.0 + 5.0 * (X * torch.tensor([0.7, 1.1])).sin().sum(-1, keepdim=True)
    return X, Y


def randomise(model: torch.nn.Module, seed: int = 1) -> None:
    """Move every hyperparameter away from its default."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        noise = 0.3 * torch.randn(parameter.shape, generator=generator, **DOUBLE)
        noise = noise.to(parameter)
        # A factor keeps those without a transform within their bounds.
        parameter.data.mul_(noise.exp()).add_(noise * (parameter.data == 0.0))


def assert_same_posterior(
    model: SingleTaskGP, X: Tensor, tolerance: float = 1e-8
) -> None:
    view = ExactGPView(model)
    mean, covariance = view.joint_posterior(view.transform_inputs(X))
    posterior = model.posterior(X)
    scale = view.outcome_scale.unsqueeze(-1)
    expected = posterior.distribution
    assert mean.shape == expected.mean.shape
    torch.testing.assert_close(
        view.untransform_outcomes(mean),
        expected.mean.detach(),
        rtol=tolerance,
        atol=tolerance,
    )
    torch.testing.assert_close(
        scale.square() * covariance,
        expected.covariance_matrix.detach(),
        rtol=tolerance,
        atol=tolerance,
    )
    torch.testing.assert_close(
        view.variance(view.transform_inputs(X)),
        covariance.diagonal(dim1=-1, dim2=-2),
        rtol=tolerance,
        atol=1e-2 * tolerance,
    )


KERNELS = {
    "default": lambda batch: None,
    "rbf": lambda batch: make_kernel(outputscale=0.7, batch=batch),
    "isotropic": lambda batch: make_kernel(dim=None, batch=batch),
    "matern12": lambda batch: make_kernel(0.5, outputscale=0.7, dim=None, batch=batch),
    "matern32": lambda batch: make_kernel(1.5, batch=batch),
    "matern52": lambda batch: make_kernel(2.5, outputscale=0.7, batch=batch),
    "active": lambda batch: ScaleKernel(
        RBFKernel(active_dims=[1], batch_shape=batch), batch_shape=batch
    ),
    "rational": lambda batch: RQKernel(batch_shape=batch),
    "sum": lambda batch: RBFKernel(batch_shape=batch) + LinearKernel(batch_shape=batch),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("fixed_noise", [False, True])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_posterior_equals_botorch(
    kernel: str, fixed_noise: bool, batch: tuple[int, ...]
) -> None:
    X, Y = make_data(*batch)
    model = SingleTaskGP(
        X,
        Y,
        0.01 + 0.1 * torch.rand_like(Y) if fixed_noise else None,
        covar_module=KERNELS[kernel](torch.Size(batch)),
        input_transform=Normalize(2, batch_shape=torch.Size(batch)),
    )
    randomise(model)
    new, _ = make_data(*batch, t=4, seed=5)
    assert_same_posterior(model, new)
    assert_same_posterior(model, torch.stack([new, 0.5 * new]))


TRANSFORMS = {
    "none": {"input_transform": None, "outcome_transform": None},
    "standardize": {"outcome_transform": Standardize(1)},
    "chained outcome": {
        "outcome_transform": ChainedOutcomeTransform(a=Standardize(1), b=Standardize(1))
    },
    "log": {
        "input_transform": ChainedInputTransform(
            log=Log10(indices=[0]), normalize=Normalize(2)
        )
    },
    "round": {
        "input_transform": ChainedInputTransform(
            round=Round(integer_indices=[0]), normalize=Normalize(2)
        )
    },
    "eval only": {
        "input_transform": Round(
            integer_indices=[0], transform_on_train=False, transform_on_eval=True
        )
    },
    "warp": {
        "input_transform": ChainedInputTransform(
            normalize=Normalize(2, bounds=torch.tensor([[0.0, 0.0], [12.0, 12.0]])),
            warp=Warp(d=2, indices=[0, 1]),
        )
    },
    "linear mean": {"mean_module": LinearMean(2), "input_transform": Normalize(2)},
    "zero mean": {"mean_module": ZeroMean(), "input_transform": Normalize(2)},
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_transforms_in_either_mode(name: str, mode: str) -> None:
    X, Y = make_data()
    model = SingleTaskGP(X, Y, **TRANSFORMS[name])
    randomise(model)
    getattr(model, mode)()
    new, _ = make_data(t=4, seed=5)
    assert_same_posterior(model, new)
    # After ``posterior`` the model is in evaluation mode with transformed inputs.
    assert_same_posterior(model, new)


def test_models_beyond_the_plain_one() -> None:
    X, Y = make_data()
    new, _ = make_data(t=4, seed=5)
    ensemble = EnsembleMapSaasSingleTaskGP(
        X, Y, input_transform=Normalize(2), taus=torch.rand(3, **DOUBLE), num_taus=3
    )
    randomise(ensemble)
    view = ExactGPView(ensemble)
    assert view.batch_shape == torch.Size([3])
    mean, covariance = view.joint_posterior(view.transform_inputs(new))
    expected = ensemble.posterior(new).distribution
    torch.testing.assert_close(view.untransform_outcomes(mean), expected.mean.detach())
    torch.testing.assert_close(
        view.outcome_scale.unsqueeze(-1).square() * covariance,
        expected.covariance_matrix.detach(),
    )
    X[:, 0] = X[:, 0].round()
    assert_same_posterior(
        MixedSingleTaskGP(X / 10, Y, cat_dims=[0]), torch.cat([X[:2] / 10, X[1:3] / 10])
    )


def test_conditioned_model_keeps_its_data() -> None:
    X, Y = make_data()
    model = SingleTaskGP(X, Y, torch.full_like(Y, 0.1), input_transform=Normalize(2))
    new, values = make_data(t=3, seed=5)
    model.posterior(new)
    model = model.condition_on_observations(
        new, (values - 3.0) / 5.0, noise=torch.full_like(values, 0.2)
    )
    assert ExactGPView(model).noise.shape == torch.Size([9])
    assert_same_posterior(model, X[:2] + 0.3)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_model_is_left_as_found(mode: str) -> None:
    X, Y = make_data()
    model = SingleTaskGP(X, Y, input_transform=Normalize(2))
    getattr(model, mode)()
    modes = [module.training for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    inputs, targets = model.train_inputs[0], model.train_targets
    learn = model.input_transform.learn_coefficients
    view = ExactGPView(model)
    view.joint_posterior(view.transform_inputs(100.0 * X))
    assert [module.training for module in model.modules()] == modes
    assert model.train_inputs[0] is inputs
    assert model.train_targets is targets
    assert model.prediction_strategy is None
    assert model.input_transform.learn_coefficients is learn
    assert all(parameter.requires_grad for parameter in model.parameters())
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name])


def test_view_is_a_frozen_copy() -> None:
    X, Y = make_data()
    model = SingleTaskGP(X, Y, input_transform=Normalize(2))
    view = ExactGPView(model)
    new = torch.rand(3, 2, **DOUBLE)
    before = view.joint_posterior(new)
    randomise(model)
    model.set_train_data(X + 1.0, model.train_targets + 1.0, strict=False)
    after = view.joint_posterior(new)
    assert torch.equal(before.mean, after.mean)
    assert torch.equal(before.covariance, after.covariance)
    assert not after.covariance.requires_grad
    restored = pickle.loads(pickle.dumps(view))
    assert torch.equal(restored.joint_posterior(new).mean, after.mean)


def test_gradients() -> None:
    X, Y = make_data(2)
    new = torch.rand(3, 2, 2, 2, **DOUBLE, requires_grad=True)
    for name in ("rbf", "matern12", "matern32", "matern52", "rational"):
        model = SingleTaskGP(
            X,
            Y,
            covar_module=KERNELS[name](torch.Size([2])),
            input_transform=Normalize(2, batch_shape=torch.Size([2])),
        )
        view = ExactGPView(model)
        assert torch.autograd.gradcheck(view.joint_posterior, new)
        assert torch.autograd.gradcheck(view.variance, new)


@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32", "matern52"])
def test_gradient_is_finite_at_coinciding_points(name: str) -> None:
    X, Y = make_data()
    model = SingleTaskGP(X, Y, covar_module=KERNELS[name](torch.Size()))
    view = ExactGPView(model)
    new = X[:2].clone().requires_grad_()
    mean, covariance = view.joint_posterior(new)
    pair = view.pair_posterior(new, X[:2])
    total = mean.sum() + covariance.sum() + pair.mean.sum() + pair.covariance.sum()
    (gradient,) = torch.autograd.grad(total, new)
    assert torch.isfinite(gradient).all()


def test_noise_and_factors() -> None:
    X, Y = make_data()
    variances = 0.01 + torch.rand_like(Y)
    model = SingleTaskGP(X, Y, variances, outcome_transform=None)
    model.likelihood = FixedNoiseGaussianLikelihood(
        variances.squeeze(-1), learn_additional_noise=True
    ).double()
    view = ExactGPView(model)
    second = model.likelihood.second_noise.detach()
    torch.testing.assert_close(view.noise, variances.squeeze(-1) + second)
    torch.testing.assert_close(view.observation_noise, view.noise.mean())
    torch.testing.assert_close(
        view.cholesky @ view.cholesky.mT,
        view.prior_covariance(view.train_inputs, view.train_inputs)
        + torch.diag(view.noise),
    )
    torch.testing.assert_close(view.whitener @ view.cholesky, torch.eye(6, **DOUBLE))
    torch.testing.assert_close(
        view.residual, Y.squeeze(-1) - model.mean_module.constant.detach()
    )


def test_repair_of_the_covariance_is_announced() -> None:
    X, Y = make_data()
    X[1] = X[0]
    model = SingleTaskGP(X, Y, torch.full_like(Y, 0.1), input_transform=Normalize(2))
    model.likelihood.noise_covar.noise = torch.zeros(6, **DOUBLE)
    with pytest.warns(NumericalWarning, match=r"added jitter of 1\.0e-08"):
        ExactGPView(model)


def test_single_precision() -> None:
    X, Y = make_data()
    model = SingleTaskGP(X.float(), Y.float(), input_transform=Normalize(2))
    exact = SingleTaskGP(X, Y, input_transform=Normalize(2))
    new = torch.rand(4, 2)
    rough = ExactGPView(model).joint_posterior(new)
    assert rough.covariance.dtype == torch.float32
    fine = ExactGPView(exact).joint_posterior(new.double())
    torch.testing.assert_close(rough.mean.double(), fine.mean, rtol=0, atol=1e-4)
    torch.testing.assert_close(
        rough.covariance.double(), fine.covariance, rtol=0, atol=1e-4
    )


def test_unsupported_models() -> None:
    X, Y = make_data()
    unsupported = {
        "exact GP such as SingleTaskGP, but got SingleTaskVariationalGP": (
            SingleTaskVariationalGP(X, Y)
        ),
        r"or a MultiTaskGP, but got SingleTaskGP with 2 output\(s\)": SingleTaskGP(
            X, torch.cat([Y, -Y], dim=-1)
        ),
        r"KroneckerMultiTaskGP with 2 output\(s\)": KroneckerMultiTaskGP(
            X, torch.cat([Y, -Y], dim=-1)
        ),
        "but got SparseOutlierGaussianLikelihood": RobustRelevancePursuitSingleTaskGP(
            X, Y
        ),
        "one point to one point, but got AppendFeatures": SingleTaskGP(
            X, Y, input_transform=AppendFeatures(torch.rand(2, 1, **DOUBLE))
        ),
        "affine outcome transform such as Standardize, but got Log": SingleTaskGP(
            X, Y.abs() + 1.0, outcome_transform=Log()
        ),
        "but got ChainedOutcomeTransform": SingleTaskGP(
            X,
            Y.abs() + 1.0,
            outcome_transform=ChainedOutcomeTransform(a=Log(), b=Standardize(1)),
        ),
        "but got StratifiedStandardize": SingleTaskGP(
            torch.cat([X, torch.zeros(6, 1, **DOUBLE)], dim=-1),
            Y,
            outcome_transform=StratifiedStandardize(
                stratification_idx=-1, all_task_values=torch.tensor([0])
            ),
        ),
    }
    for message, model in unsupported.items():
        with pytest.raises(UnsupportedError, match=message):
            ExactGPView(model)
    unfitted = SingleTaskGP(X, Y)
    unfitted.covar_module = None
    with pytest.raises(UnsupportedError, match=r"covar_module to be a module"):
        ExactGPView(unfitted)


class PlainGP(ExactGP, GPyTorchModel):
    """A model as a user writes it."""

    num_outputs = 1

    def __init__(self, X: Tensor, Y: Tensor, factor: float, offset: float) -> None:
        super().__init__(X, Y.squeeze(-1), GaussianLikelihood())
        self.mean_module, self.covar_module = ConstantMean(), RBFKernel()
        self.factor, self.offset = factor, offset
        self.to(X)

    def forward(self, X: Tensor) -> MultivariateNormal:
        return MultivariateNormal(
            self.mean_module(X) + self.offset, self.factor * self.covar_module(X)
        )


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_models_with_a_forward_of_their_own(mode: str) -> None:
    X, Y = make_data(scale=2.0)
    model = PlainGP(X, Y, factor=1.0, offset=0.0)
    getattr(model, mode)()
    new, _ = make_data(t=4, scale=2.0, seed=5)
    assert_same_posterior(model, new)
    for factor, offset in ((2.0, 0.0), (1.0, 0.5)):
        with pytest.raises(UnsupportedError, match=r"PlainGP\.forward to give"):
            ExactGPView(PlainGP(X, Y, factor, offset))


def test_bad_data() -> None:
    X, Y = make_data()
    empty = SingleTaskGP(X, Y)
    empty.train_targets = None
    with pytest.raises(InputDataError, match="with training data, but SingleTaskGP"):
        ExactGPView(empty)
    none = SingleTaskGP(X[:0], Y[:0], outcome_transform=None)
    with pytest.raises(InputDataError, match="with training data, but SingleTaskGP"):
        ExactGPView(none)
    broken = SingleTaskGP(X, Y)
    broken.train_targets[2] = float("nan")
    with pytest.raises(
        InputDataError, match=r"`train_targets` to be finite, got .*\(1 of 6 "
    ):
        ExactGPView(broken)


class TestUnits:
    @pytest.mark.parametrize("mode", ["train", "eval"])
    def test_original_inputs(self, mode):
        X, Y = make_data()
        model = SingleTaskGP(X, Y, input_transform=Normalize(2))
        getattr(model, mode)()
        assert torch.equal(ExactGPView(model).original_inputs, X)
        assert torch.equal(ExactGPView(SingleTaskGP(X, Y)).original_inputs, X)

    def test_negation_is_the_model_of_negative_data(self):
        X, Y = make_data()
        model, twin = SingleTaskGP(X, Y), SingleTaskGP(X, -Y)
        randomise(model)
        randomise(twin)
        twin.mean_module.raw_constant.data.neg_()
        view, other = ExactGPView(model, negate=True), ExactGPView(twin)
        for name, value in other.named_buffers():
            assert torch.equal(view.get_buffer(name), value), name
        points = 1.0 + 10.0 * torch.rand(5, 2, **DOUBLE)
        for left, right in zip(
            view.joint_posterior(points), other.joint_posterior(points), strict=True
        ):
            assert torch.equal(left, right)
        mean = view.untransform_outcomes(view.joint_posterior(points).mean)
        expected = -model.posterior(points).mean.squeeze(-1)
        assert torch.allclose(mean, expected, rtol=1e-10, atol=0.0)

    def test_model_units(self):
        X, Y = make_data()
        model = SingleTaskGP(X, Y)
        view = ExactGPView(model, model_units=True)
        values = torch.tensor([-1.5, 2.0], **DOUBLE)
        assert torch.equal(view.untransform_outcomes(values), values)
        assert torch.equal(view.whitener, ExactGPView(model).whitener)
