import math
import pickle

import pytest
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError
from botorch.models.transforms.input import Normalize
from gpytorch.kernels import RQKernel
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from botorch_res.inference import expectation_propagation
from botorch_res.models import ExactGPView, GPStage
from tests.fake_device import on_fake_device
from tests.operation_count import OperationCount
from tests.problems import DOUBLE, Draws, make_kernel, make_model


def make_view(
    *batch: int, t: int = 4, seed: int = 0, noise: float = 1e-2, kernel: str = "matern"
) -> ExactGPView:
    draws, shape = Draws(seed), torch.Size(batch)
    X, Y = draws.uniform(*batch, t, 2), draws.normal(*batch, t, 1)
    covar_module = {
        "default": None,
        "matern": make_kernel(2.5, 0.7, 0.7, batch=batch),
        "rational": RQKernel(batch_shape=shape),
    }[kernel]
    normalize = Normalize(2, batch_shape=shape)
    model = make_model(X, Y, noise, covar_module, input_transform=normalize)
    model.mean_module.constant.data.fill_(0.3)
    return ExactGPView(model)


def textbook(
    view: ExactGPView,
    points: Tensor,
    precision: Tensor,
    shift: Tensor,
    X: Tensor,
) -> tuple[Tensor, Tensor]:
    """Condition the joint Gaussian of [points, X] on Gaussian factors at the points."""
    n = points.shape[-2]
    mean, covariance = view.joint_posterior(torch.cat([points, X], dim=-2))
    factor, pull = (
        torch.nn.functional.pad(value, (0, mean.shape[-1] - n))
        for value in (precision, shift)
    )
    identity = torch.eye(mean.shape[-1], **DOUBLE)
    posterior = torch.linalg.solve(
        identity + covariance * factor.unsqueeze(-2), covariance
    )
    residual = (pull - factor * mean).unsqueeze(-1)
    mean = mean + (posterior @ residual).squeeze(-1)
    return mean[..., n:], posterior[..., n:, n:]


def expand(view: ExactGPView, *shape: int) -> Tensor:
    return view.train_inputs.expand(*shape, *view.train_inputs.shape)


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("kernel", ["matern", "rational"])
def test_sites_equal_the_textbook(batch: tuple[int, ...], kernel: str) -> None:
    view = make_view(*batch, kernel=kernel)
    draws = Draws(1)
    extra = draws.uniform(3, *batch, 5, 2)
    precision = 10.0 ** (6.0 * draws.uniform(3, *batch, 9) - 3.0)
    precision[..., 4] = 0.0
    shift = precision * draws.normal(3, *batch, 9)
    gp = view.with_sites(extra, precision, shift)
    X = draws.uniform(7, 3, *batch, 6, 2)
    points = torch.cat([expand(view, 3), extra], dim=-2)
    torch.testing.assert_close(gp.known_points, points)
    mean, covariance = gp.joint_posterior(X)
    expected = textbook(view, points.expand(7, *points.shape), precision, shift, X)
    torch.testing.assert_close(mean, expected[0], rtol=0, atol=1e-8)
    torch.testing.assert_close(covariance, expected[1], rtol=0, atol=1e-8)
    torch.testing.assert_close(
        gp.variance(X), covariance.diagonal(dim1=-1, dim2=-2), rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("batch", [(), (2,)])
def test_sites_at_new_points_only(batch: tuple[int, ...]) -> None:
    view = make_view(*batch)
    draws = Draws(1)
    extra = draws.uniform(3, *batch, 6, 2)
    precision = 1e4 * draws.uniform(3, *batch, 6)
    shift = precision * draws.normal(3, *batch, 6)
    X = draws.uniform(*batch, 5, 2)
    known = view.train_inputs.shape[-2]
    none = torch.zeros(3, *batch, known, **DOUBLE)
    some = view.with_sites(extra, precision, shift)
    padded = view.with_sites(
        extra, torch.cat([none, precision], -1), torch.cat([none, shift], -1)
    )
    for ours, expected in zip(
        some.joint_posterior(X), padded.joint_posterior(X), strict=True
    ):
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-9)


def test_observations_equal_a_larger_model() -> None:
    view = make_view()
    draws = Draws(1)
    extra = draws.uniform(3, 2)
    values = draws.normal(5, 3)
    noise = torch.tensor([0.1, 0.0, 0.03], **DOUBLE)
    gp = view.with_observations(extra, values, noise)
    X = draws.uniform(6, 2)
    mean, covariance = gp.joint_posterior(X)
    assert mean.shape == (5, 6)
    assert covariance.shape == (6, 6)

    points = torch.cat([view.train_inputs, extra])
    total = view.prior_covariance(points, points)
    total = total + torch.diag(torch.cat([view.noise, noise]))
    cross = view.prior_covariance(X, points)
    gain = torch.linalg.solve(total, cross.mT).mT
    torch.testing.assert_close(
        covariance, view.prior_covariance(X, X) - gain @ cross.mT, rtol=0, atol=1e-9
    )
    targets = torch.cat([view.train_targets.expand(5, 4), values], dim=-1)
    residual = targets - view.prior_mean(points)
    torch.testing.assert_close(
        mean, view.prior_mean(X) + residual @ gain.mT, rtol=0, atol=1e-8
    )
    # An exact observation is reproduced.
    at_exact = gp.joint_posterior(extra[1:2])
    torch.testing.assert_close(at_exact.mean, values[:, 1:2], rtol=0, atol=1e-8)
    assert at_exact.covariance.abs().max() < 1e-10


@pytest.mark.parametrize("batch", [(), (2,)])
def test_sites_after_observations(batch: tuple[int, ...]) -> None:
    view = make_view(*batch)
    draws = Draws(1)
    pending = draws.uniform(*batch, 2, 2)
    values = draws.normal(3, *batch, 2)
    noise = torch.full((*batch, 2), 0.05, **DOUBLE)
    stage = view.with_observations(pending, values, noise)
    extra = draws.uniform(3, *batch, 4, 2)
    precision = draws.uniform(3, *batch, 10)
    shift = draws.normal(3, *batch, 10)
    gp = stage.with_sites(extra, precision, shift)
    X = draws.uniform(3, *batch, 5, 2)

    # An observation is a site whose precision is that of the noise.
    pull = torch.zeros(3, *batch, 10, **DOUBLE)
    weight = torch.zeros_like(pull)
    weight[..., 4:6] = 20.0
    pull[..., 4:6] = 20.0 * values
    points = torch.cat([expand(view, 3), pending.expand(3, *pending.shape), extra], -2)
    mean, covariance = gp.joint_posterior(X)
    expected = textbook(view, points, precision + weight, shift + pull, X)
    torch.testing.assert_close(mean, expected[0], rtol=0, atol=1e-9)
    torch.testing.assert_close(covariance, expected[1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("kernel", ["matern", "default", "rational"])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_pairs_equal_joint_posteriors(kernel: str, batch: tuple[int, ...]) -> None:
    view = make_view(*batch, kernel=kernel)
    draws = Draws(1)
    extra = draws.uniform(3, *batch, 4, 2)
    precision = 1e4 * draws.uniform(3, *batch, 8)
    gp = view.with_sites(extra, precision, 0.5 * precision)
    X = draws.uniform(*batch, 6, 2)
    partners = draws.uniform(3, *batch, 6, 2)
    partners[..., 0, :] = X[..., 0, :]  # a candidate that is its own worst case
    pair = gp.pair_posterior(X, partners)
    assert pair.mean.shape == (3, *batch, 6, 2)
    assert pair.covariance.shape == (3, *batch, 6, 2, 2)
    both = torch.stack([X.expand(3, *X.shape), partners], dim=-2)
    both = both.movedim(-3, 0)  # points x samples x batch x 2 x d
    mean, covariance = gp.joint_posterior(both)
    torch.testing.assert_close(pair.mean, mean.movedim(0, -2), rtol=0, atol=1e-8)
    torch.testing.assert_close(
        pair.covariance, covariance.movedim(0, -3), rtol=0, atol=1e-8
    )
    torch.testing.assert_close(pair.previous_variance, view.variance(X))
    own = pair.covariance[..., 0, 0]
    assert (own <= pair.previous_variance + 1e-12).all()
    # A second partner for every point.
    others = partners.flip(-2)
    second = gp.pair_posterior(X, others)
    twice = gp.pair_posterior(X, torch.cat([partners, others], dim=-2))
    for one, other, ours, dim in zip(pair, second, twice, (-2, -3, -1), strict=True):
        torch.testing.assert_close(ours, torch.cat([one, other], dim=dim))


def test_coinciding_points_lose_nothing() -> None:
    view = make_view(noise=1e-6)
    extra = view.train_inputs.clone()
    precision = torch.full((8,), 1e8, **DOUBLE)
    gp = view.with_sites(extra, precision, precision * 0.3)
    X = Draws(0).uniform(50, 2)
    X = torch.cat([X, extra])
    variance = gp.variance(X)
    assert (variance > -1e-13).all()
    assert (variance <= view.variance(X) + 1e-13).all()
    assert gp.joint_posterior(X).mean.isfinite().all()


def test_repair_is_announced() -> None:
    view = make_view()
    extra = torch.full((2, 2), 0.7, **DOUBLE)  # twice the same point
    noise = torch.full((2,), -1e-12, **DOUBLE)  # stands for unlucky rounding
    with pytest.warns(NumericalWarning, match="added jitter"):
        view.with_observations(extra, torch.zeros(2, **DOUBLE), noise)


def test_flat_sites_change_nothing() -> None:
    view = make_view()
    extra = Draws(0).uniform(3, 4, 2)
    flat = torch.zeros(3, 8, **DOUBLE)
    gp = view.with_sites(extra, flat, flat)
    X = Draws(1).uniform(20, 2)
    pair = gp.pair_posterior(X, X.expand(3, 20, 2))
    expected = view.variance(X).expand(3, 20)
    # To the bit: what is learned from nothing is exactly nothing.
    assert torch.equal(pair.covariance[..., 0, 0], expected)
    assert torch.equal(pair.previous_variance, expected[0])


def test_gradients() -> None:
    for kernel in ("matern", "default"):
        view = make_view(2, kernel=kernel)
        draws = Draws(1)
        extra = draws.uniform(3, 2, 4, 2)
        precision = draws.uniform(3, 2, 8)
        gp = view.with_sites(extra, precision, precision)
        X = draws.uniform(2, 3, 2).requires_grad_()
        partners = draws.uniform(3, 2, 3, 2)
        assert torch.autograd.gradcheck(
            gp.pair_posterior, (X, partners.requires_grad_())
        )
        assert torch.autograd.gradcheck(gp.joint_posterior, X)
        assert torch.autograd.gradcheck(gp.variance, X)


def test_stages_pickle_and_move() -> None:
    view = make_view()
    gp = view.with_sites(
        torch.rand(2, 3, 2, **DOUBLE), torch.ones(2, 7, **DOUBLE), torch.ones(2, 7)
    )
    X = torch.rand(4, 2, **DOUBLE)
    restored = pickle.loads(pickle.dumps(gp))
    assert isinstance(restored, GPStage)
    assert restored.root is not view
    assert torch.equal(restored.variance(X), gp.variance(X))
    assert restored.to(torch.float32).variance(X.float()).dtype == torch.float32


def test_bad_shapes() -> None:
    view = make_view()
    X = torch.rand(3, 2, **DOUBLE)
    with pytest.raises(
        BotorchTensorDimensionError, match=r"Y of shape `... x 3`.*\(2,"
    ):
        view.with_observations(X, torch.zeros(2), torch.zeros(3))
    with pytest.raises(BotorchTensorDimensionError, match=r"noise of .* got \(\)"):
        view.with_observations(X, torch.zeros(3), torch.tensor(0.1))
    with pytest.raises(BotorchTensorDimensionError, match=r"site_precision .* x 7`"):
        view.with_sites(X, torch.zeros(4), torch.zeros(7))
    with pytest.raises(BotorchTensorDimensionError, match=r"site_shift .* x 3`"):
        view.with_sites(X, torch.zeros(3), torch.zeros(7))
    with pytest.raises(BotorchTensorDimensionError, match="site_shift"):
        view.with_sites(X, torch.zeros(7), torch.zeros(3))


def robust_constraints(
    view: ExactGPView, samples: int, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Worst cases and bounds as Robust Entropy Search has them.

    For each sample: one more point beside each of the data, not below their values, and
    values between a common floor and those of the sample.
    """
    t = view.train_inputs.shape[-2]
    draws = Draws(seed)
    worst = view.train_inputs.expand(samples, t, 2).clone()
    worst[..., 1] = draws.uniform(samples, t)
    moments = view.site_posterior(worst)
    jitter = 1e-8 * torch.eye(2 * t, **DOUBLE)
    root = torch.linalg.cholesky(moments.covariance + jitter)
    white = draws.normal(samples, 2 * t, 1)
    draw = moments.mean + (root @ white).squeeze(-1)
    top = torch.maximum(draw[:, :t], draw[:, t:]) + 0.2
    floor = draw[:, t:].amin(dim=-1, keepdim=True) - 0.3
    lower = torch.cat([torch.full_like(top, -math.inf), floor.expand_as(top)], dim=-1)
    return worst, lower, torch.cat([top, top], dim=-1)


@pytest.mark.parametrize("t", [2, 3, 4, 5])
def test_constraints_against_monte_carlo(t: int) -> None:
    compared = 0
    for seed in range(6):
        view = make_view(t=t, seed=seed, noise=0.05)
        worst, lower, upper = robust_constraints(view, samples=1, seed=seed)
        moments = view.site_posterior(worst)
        result = expectation_propagation(*moments, lower, upper, pseudo_noise=1e-8)
        gp = view.with_sites(worst, result.site_precision, result.site_shift)
        torch.testing.assert_close(
            gp.joint_posterior(gp.known_points).mean, result.mean, rtol=0, atol=1e-5
        )
        draws = Draws(100 + seed)
        X = draws.uniform(4, 2)
        mean, covariance = gp.joint_posterior(X)

        joint = view.joint_posterior(torch.cat([gp.known_points[0], X]))
        size = joint.mean.shape[-1]
        root = torch.linalg.cholesky(
            joint.covariance + 1e-9 * torch.eye(size, **DOUBLE)
        )
        values = joint.mean + draws.normal(200_000, size) @ root.mT
        inside = (values[:, : 2 * t] >= lower) & (values[:, : 2 * t] <= upper)
        kept = values[inside.all(dim=-1)][:, 2 * t :]
        if len(kept) < 1000:
            continue
        compared += 1
        centred = kept - kept.mean(dim=0)
        expected = centred.mT @ centred / (len(kept) - 1)
        sigma = expected.diagonal().sqrt()
        error = 4.0 / math.sqrt(len(kept))
        assert ((mean[0] - kept.mean(dim=0)).abs() < (0.06 + error) * sigma).all()
        scale = sigma.unsqueeze(-1) * sigma
        assert ((covariance[0] - expected).abs() < (0.1 + 1.5 * error) * scale).all()
    assert compared >= 5


def test_number_of_operations_does_not_grow() -> None:
    counts = set()
    for samples, t, n in ((1, 2, 1), (4, 2, 1), (4, 6, 1), (4, 6, 30)):
        view = make_view(t=t)
        sites = torch.ones(samples, 2 * t, **DOUBLE)
        gp = view.with_sites(torch.rand(samples, t, 2, **DOUBLE), sites, sites)
        X, partners = torch.rand(n, 2, **DOUBLE), torch.rand(samples, n, 2, **DOUBLE)
        with OperationCount() as counter:
            gp.pair_posterior(X, partners)
        counts.add(counter.count)
    assert len(counts) == 1


def test_prediction_stays_on_its_device() -> None:
    view = make_view()
    gp = view.with_sites(
        torch.rand(3, 4, 2, **DOUBLE), torch.ones(3, 8, **DOUBLE), torch.ones(3, 8)
    )
    with FakeTensorMode(allow_non_fake_inputs=False) as mode:
        gp = on_fake_device(gp, "cuda")
        X = torch.empty(6, 2, device="cuda", **DOUBLE)
        partners = torch.empty(3, 6, 2, device="cuda", **DOUBLE)
        values = [*gp.pair_posterior(X, partners), gp.variance(X)]
        assert mode is not None
        assert all(value.device.type == "cuda" for value in values)
