"""Robust Entropy Search under constraints that hold in the worst case."""

import math
import pickle

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Standardize
from gpytorch.means import ZeroMean
from torch._subclasses.fake_tensor import FakeTensorMode

from botorch_res import optimize_robust_acqf, qRobustEntropySearch
from botorch_res.optim import constrained_robust_optimum, robust_optimum
from botorch_res.sampling import draw_fourier_samples
from botorch_res.sampling.affine import AffineFunction
from tests import problems
from tests.acquisition.statements import (
    NOISE,
    errors_of,
    make_acqf,
    make_list,
    make_output,
    points_of,
)
from tests.fake_device import on_fake_device
from tests.operation_count import OperationCount
from tests.problems import DOUBLE, Draws, line, make_domain, make_kernel

pytestmark = pytest.mark.filterwarnings(
    "ignore::botorch.exceptions.warnings.InputDataWarning"
)


@pytest.fixture(params=["optimum", "characteristics"])
def target(request) -> str:
    return request.param


class TestAgainstRejectionSampling:
    @pytest.mark.parametrize(
        ("limits", "num"), [((None, 0.5), 14), ((-0.5, None), 8), ((None, -0.3), 8)]
    )
    def test_conditional_variance(self, limits, num):
        errors, kinds = errors_of(limits, range(num))
        assert len(errors) >= 1.4 * num
        assert errors.median() < 0.02
        assert errors.quantile(0.9) < 0.15
        if limits == (None, -0.3):  # in some of them no setting is feasible
            assert 2 <= sum(kinds) < len(kinds)

    def test_all_characteristics(self):
        errors, _ = errors_of((None, 0.5), range(8), "characteristics")
        assert len(errors) >= 10
        assert errors.median() < 0.03

    def test_two_bounds(self):
        errors, _ = errors_of((-0.8, 0.8), range(8))
        assert len(errors) >= 10
        assert errors.median() < 0.03


class TestLimits:
    def test_no_constraints(self, target):
        """The objective of several outputs, with the numbers of the model alone."""
        model = make_list(5, 0)
        z = points_of(20, 1)
        alone = make_acqf(model.models[0], make_domain(), None, target=target)
        none = make_acqf(model, make_domain(), {}, target=target)
        assert torch.equal(alone(z), none(z))
        assert alone.robust_violations.isneginf().all()
        other = make_acqf(model, make_domain(), {}, objective_index=1, target=target)
        second = make_acqf(model.models[1], make_domain(), None, target=target)
        assert torch.equal(other(z), second(z))

    def test_a_constraint_that_always_holds(self, target):
        """The sum of the plain value and of what the constraint's output tells."""
        model, z = make_list(5, 0), points_of(20, 1)
        alone = make_acqf(model.models[0], make_domain(), None, target=target)
        far = make_acqf(model, make_domain(), {1: (-1e4, None)}, target=target)
        assert far.robust_violations.max() < 0
        torch.testing.assert_close(
            far.robust_optimal_values, alone.robust_optimal_values, rtol=0, atol=1e-6
        )
        _, (prior, conditional) = far._variances(z)
        tells = 0.5 * torch.log((prior + NOISE) / (conditional + NOISE)).mean(dim=0)
        torch.testing.assert_close(far(z), alone(z) + tells, rtol=0, atol=1e-4)
        if target == "optimum":
            assert tells.abs().max() < 1e-9

    def test_nothing_is_said_of_the_objective_without_a_feasible_setting(self):
        model, z = make_list(5, 0), points_of(20, 1)
        acqf = make_acqf(model, make_domain(), {1: (None, -50.0)})
        assert (acqf.robust_violations > 0).all()
        (prior, conditional), (_, other) = acqf._variances(z)
        torch.testing.assert_close(conditional, prior.expand(4, -1))
        assert (other < 0.99 * prior).any()

    def test_nothing_to_learn_where_both_are_known(self, target):
        model = make_list(6, 1)
        acqf = make_acqf(model, make_domain(), {1: (None, 0.3)}, target=target)
        values = acqf(points_of(200, 3))
        at_data = acqf(model.models[0].train_inputs[0].unsqueeze(-2))
        assert (values > -0.02).all()
        assert at_data.max() < values.max()


class TestGradient:
    @pytest.mark.parametrize(
        ("domain", "constraints"),
        [
            (make_domain(), {1: (None, 0.3)}),
            (make_domain("theta"), {1: (-0.3, 0.6)}),
            (make_domain(), {1: (None, 0.3), 2: (-0.4, None)}),
            (make_domain(), {1: (None, -2.5)}),
        ],
    )
    def test_finite_differences(self, domain, constraints, target):
        acqf = make_acqf(make_list(6, 3, 3), domain, constraints, target=target)
        points, step = points_of(120, 11).requires_grad_(), 3e-6
        (gradient,) = torch.autograd.grad(acqf(points).sum(), points)
        moves = step * torch.eye(2, **DOUBLE)
        with torch.no_grad():
            differences = torch.stack(
                [acqf(points + h) - acqf(points - h) for h in moves], dim=-1
            )
        differences = differences.unsqueeze(-2) / (2.0 * step)
        error = (gradient - differences).norm(dim=-1) / (
            differences.norm(dim=-1) + 0.01
        )
        assert (error < 1e-3).double().mean() >= 0.99

    def test_continuous_where_feasibility_changes(self):
        """Along a line that leaves and enters the feasible set of one sample."""
        acqf = make_acqf(
            make_list(6, 3), make_domain(), {1: (None, 0.3)}, num_samples=1
        )
        channel = acqf.outputs[1].channels[0]
        low, high = line(400)[:-1], line(400)[1:]

        def along(x):
            return torch.cat([x, torch.full_like(x, 0.45)], dim=-1)

        def met(x):
            return channel.worst_cases(along(x), 1).value.flatten() <= 0.0

        crosses = met(low) != met(high)
        assert crosses.sum() >= 1
        low, high = low[crosses], high[crosses]
        for _ in range(40):
            middle = 0.5 * (low + high)
            same = (met(middle) == met(low)).unsqueeze(-1)
            low, high = torch.where(same, middle, low), torch.where(same, high, middle)
        step = acqf(along(low).unsqueeze(-2)) - acqf(along(high).unsqueeze(-2))
        assert step.abs().max() < 1e-6


class TestInvariance:
    def test_order_of_outputs(self, target):
        """The same functions under other numbers."""
        model, z = make_list(5, 2, 3), points_of(20, 1)
        limits = {1: (None, 0.4), 2: (-0.5, 0.7)}
        first = make_acqf(model, make_domain(), limits, target=target)
        again = make_acqf(
            model, make_domain(), {2: (-0.5, 0.7), 1: (None, 0.4)}, target=target
        )
        assert torch.equal(first(z), again(z))
        drawn = [output.samples for output in first.outputs]
        order = [2, 0, 1]
        moved = make_acqf(
            ModelListGP(*(model.models[i] for i in order)),
            make_domain(),
            {order.index(i): bounds for i, bounds in limits.items()},
            objective_index=order.index(0),
            samples={order.index(i): own for i, own in enumerate(drawn)},
            target=target,
        )
        torch.testing.assert_close(moved(z), first(z), rtol=0, atol=1e-9)

    def test_lower_bounds_are_upper_bounds_of_the_negative(self, target):
        model, z = make_list(5, 2), points_of(20, 1)
        first = make_acqf(model, make_domain(), {1: (None, 0.4)}, target=target)
        own = model.models[1]
        X, Y = own.train_inputs[0], own.train_targets.unsqueeze(-1)
        negative = problems.make_model(
            X, -Y, NOISE, own.covar_module, mean_module=ZeroMean()
        )
        samples = [output.samples for output in first.outputs]
        samples[1] = AffineFunction(samples[1], -1.0, torch.zeros(4, **DOUBLE))
        second = make_acqf(
            ModelListGP(model.models[0], negative),
            make_domain(),
            {1: (-0.4, None)},
            samples=dict(enumerate(samples)),
            target=target,
        )
        torch.testing.assert_close(first(z), second(z), rtol=0, atol=1e-6)

    def test_units(self, target):
        """Bounds are in the user's units, whatever the model makes of these."""
        draws, z = Draws(5), points_of(20, 1)
        X, Y = draws.uniform(6, 2), draws.normal(6, 2)
        mean, scale = Y.mean(dim=0), Y.std(dim=0)
        kernels = [make_kernel(lengthscale=s) for s in (0.3, 0.4)]
        raw, plain = (
            ModelListGP(
                *(
                    SingleTaskGP(
                        X,
                        values[:, i : i + 1],
                        torch.full((6, 1), NOISE * float(unit[i]) ** 2, **DOUBLE),
                        covar_module=kernels[i],
                        mean_module=ZeroMean(),
                        outcome_transform=transform(),
                    )
                    for i in range(2)
                )
            )
            for values, unit, transform in (
                (Y, scale, lambda: Standardize(1)),
                ((Y - mean) / scale, torch.ones(2), lambda: None),
            )
        )
        first = make_acqf(raw, make_domain(), {1: (None, 0.5)}, target=target)
        bound = float((0.5 - mean[1]) / scale[1])
        second = make_acqf(plain, make_domain(), {1: (None, bound)}, target=target)
        torch.testing.assert_close(first(z), second(z), rtol=0, atol=1e-6)

    def test_one_model_of_several_outputs(self, target):
        draws, z = Draws(5), points_of(20, 1)
        X, Y = draws.uniform(6, 2), draws.normal(6, 2)
        both = SingleTaskGP(X, Y, outcome_transform=Standardize(2))
        parts = ModelListGP(*(both.subset_output([i]) for i in range(2)))
        limits = {0: (None, 0.5)}
        options = {"objective_index": 1, "target": target}
        first = make_acqf(both, make_domain(), limits, **options)
        second = make_acqf(parts, make_domain(), limits, **options)
        assert torch.equal(first(z), second(z))

    def test_batches_are_their_members(self, target):
        draws, z = Draws(6), points_of(8, 1)
        X, Y = draws.uniform(2, 5, 2), draws.normal(2, 2, 5, 1)
        kernel = make_kernel(lengthscale=0.3)

        def models(*member):
            return ModelListGP(
                *(
                    problems.make_model(X[member], own[member], NOISE, kernel)
                    for own in Y
                )
            )

        options = {"constraints": {1: (None, 0.3)}, "target": target}
        values = make_acqf(models(), make_domain(), seed=[3, 4], **options)(
            z.unsqueeze(-3)
        )
        for i in range(2):
            single = make_acqf(models(i), make_domain(), seed=3 + i, **options)
            torch.testing.assert_close(values[:, i], single(z), rtol=0, atol=1e-4)


class TestPendingPoints:
    def test_observations_of_each_sample(self, target):
        model, pending = make_list(4, 3), points_of(2, 4).squeeze(-2)
        acqf = make_acqf(model, make_domain(), {1: (None, 0.3)}, target=target)
        before = acqf(pending.unsqueeze(-2))
        acqf.set_X_pending(pending)
        z = points_of(6, 9).squeeze(-2)
        for own, output, (prior, _) in zip(
            model.models, acqf.outputs, acqf._variances(z.unsqueeze(-2)), strict=True
        ):
            own.posterior(z)
            richer = own.condition_on_observations(
                pending,
                torch.zeros(2, 1, **DOUBLE),
                noise=torch.full((2, 1), NOISE, **DOUBLE),
            )
            expected = richer.posterior(z).variance.squeeze(-1)
            torch.testing.assert_close(prior, expected, rtol=1e-5, atol=1e-8)
            # Each is conditioned on its own values.
            at_pending = output.process.joint_posterior(pending).mean
            error = (at_pending - output.samples(pending)).abs()
            assert error.max() < 0.3
        assert (acqf(pending.unsqueeze(-2)) < before).all()

    def test_batches_of_candidates(self):
        acqf = make_acqf(make_list(4, 3), make_domain(), {1: (None, 0.3)})
        found, value = optimize_robust_acqf(
            acqf, make_domain(), q=2, num_restarts=2, raw_samples=32, seed=0
        )
        assert found.shape == (2, 2)
        assert (found[0] - found[1]).abs().max() > 1e-3
        assert value[0] >= acqf(points_of(60, 2)).max() - 1e-3


class TestOutputsWithTheirOwnData:
    def test_values(self):
        """One output was observed once more: its own variance, and its own sites."""
        first, second = make_output(4, 1), make_output(6, 2)
        acqf = make_acqf(ModelListGP(first, second), make_domain(), {1: (None, 0.3)})
        sizes = [output.view.original_inputs.shape[-2] for output in acqf.outputs]
        assert sizes == [4, 6]
        z = points_of(6, 9)
        for model, (prior, _) in zip((first, second), acqf._variances(z), strict=True):
            expected = model.posterior(z.squeeze(-2)).variance.squeeze(-1)
            torch.testing.assert_close(prior, expected.detach(), rtol=1e-6, atol=1e-9)
        assert acqf(z).isfinite().all()


class TestHandedIn:
    def test_samples_and_optima(self):
        model, z = make_list(4, 3), points_of(10, 1)
        drawn = make_acqf(model, make_domain(), {1: (None, 0.3)})
        samples = {i: own.samples for i, own in enumerate(drawn.outputs)}
        solvers = [c.solver for own in drawn.outputs for c in own.channels]
        optima = constrained_robust_optimum(solvers[0], solvers[1:], num_steps=2)
        options = {"constraints": {1: (None, 0.3)}, "samples": samples}
        known = make_acqf(model, make_domain(), optima=optima, **options)
        assert torch.equal(known(z), drawn(z))
        options |= {"model": model, "domain": make_domain(), "maximize": False}
        plain = robust_optimum(samples[0], make_domain())
        with pytest.raises(InputDataError, match="`optima` to be a ConstrainedOptimum"):
            qRobustEntropySearch(optima=plain, **options)
        wrong = optima._replace(constraint_value=optima.constraint_value[:, :0])
        with pytest.raises(
            BotorchTensorDimensionError, match=r"`optima.constraint_value` of shape"
        ):
            qRobustEntropySearch(optima=wrong, **options)
        with pytest.raises(InputDataError, match=r"`samples` of the outputs \[0, 1\]"):
            qRobustEntropySearch(**(options | {"samples": {0: samples[0]}}))
        with pytest.raises(InputDataError, match="`samples` to be a Mapping"):
            qRobustEntropySearch(**(options | {"samples": samples[0]}))


class TestDevice:
    def test_pickle_and_move(self):
        model, z = make_list(4, 3), points_of(10, 1)
        acqf = make_acqf(
            model, make_domain(), {1: (None, 0.3)}, X_pending=points_of(1, 2)[0]
        )
        values = acqf(z)
        assert torch.equal(pickle.loads(pickle.dumps(acqf))(z), values)
        moved = acqf.to(torch.float)
        assert torch.allclose(moved(z.float()).double(), values, atol=0.05)

    def test_stays_on_the_device(self, target):
        acqf = make_acqf(
            make_list(4, 3), make_domain(), {1: (-0.5, 0.3)}, target=target
        )
        with FakeTensorMode(allow_non_fake_inputs=True):
            fake = on_fake_device(acqf, "meta")
            X = torch.empty(5, 1, 2, device="meta", requires_grad=True, **DOUBLE)
            values = fake(X)
            values.sum().backward()
            assert values.device.type == X.grad.device.type == "meta"

    def test_operations_do_not_depend_on_sizes(self):
        counts = set()
        for b, num_samples in ((4, 3), (64, 3), (4, 24)):
            acqf = make_acqf(
                make_list(4, 3),
                make_domain(),
                {1: (None, 0.3)},
                num_samples=num_samples,
            )
            X = points_of(b, seed=2).requires_grad_()
            acqf(X).sum().backward()
            with OperationCount() as operations:
                acqf(X).sum().backward()
            counts.add(operations.count)
        assert len(counts) == 1


class TestBadInput:
    @pytest.mark.parametrize(
        ("constraints", "message"),
        [
            ({2: (None, 1.0)}, r"outputs among \[1\] .* output 0 of 2\), got 2"),
            ({0: (None, 1.0)}, r"outputs among \[1\] .* got 0"),
            ({"stress": (None, 1.0)}, "by their numbers, got 'stress'"),
            ({True: (None, 1.0)}, "got True"),
            ({1: (None, None)}, r"`constraints\[1\]` to have a lower or an upper"),
            ({1: (2.0, 1.0)}, r"with its lower bound below .* got \(2.0, 1.0\)"),
            ({1: (1.0, 1.0)}, "with its lower bound below"),
            ({1: (None, math.nan)}, "finite numbers or None, got"),
            ({1: (None, math.inf)}, "finite numbers or None, got"),
            ({1: (None, "1")}, "finite numbers or None, got"),
            ({1: 1.0}, "a lower and an upper bound, finite numbers or None, got 1.0"),
            ({1: (1.0,)}, "a lower and an upper bound"),
            ([(None, 1.0)], "`constraints` to be a Mapping, got list"),
        ],
    )
    def test_constraints(self, constraints, message):
        with pytest.raises(InputDataError, match=message):
            make_acqf(make_list(3, 0), make_domain(), constraints)

    @pytest.mark.parametrize("index", [2, -1, 0.5, True])
    def test_objective_index(self, index):
        with pytest.raises(InputDataError, match=r"`objective_index` .* from 0 to 1"):
            make_acqf(make_list(3, 0), make_domain(), {}, objective_index=index)

    def test_models(self):
        with pytest.raises(UnsupportedError, match="no `posterior_transform` beside"):
            make_acqf(
                make_list(3, 0),
                make_domain(),
                {1: (None, 1.0)},
                posterior_transform=ScalarizedPosteriorTransform(torch.ones(1)),
            )
        batch = problems.make_model(
            Draws(0).uniform(2, 4, 2), Draws(1).normal(2, 4, 1), NOISE
        )
        with pytest.raises(BotorchTensorDimensionError, match="the same batch shape"):
            make_acqf(
                ModelListGP(make_output(4, 0), batch), make_domain(), {1: (None, 1.0)}
            )


def test_other_seeds_for_other_outputs():
    """Two outputs with the same model have independent samples."""
    own = make_output(3, 0)
    acqf = make_acqf(ModelListGP(own, own), make_domain(), {1: (None, 0.5)})
    z = points_of(50, 0).squeeze(-2)
    first, second = (output.samples(z) for output in acqf.outputs)
    plain = draw_fourier_samples(own, 4, seed=0, domain=make_domain())
    assert torch.equal(first, plain(z))
    assert (first - second).abs().max() > 0.5
