"""What every robust test problem promises."""

import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from torch._subclasses.fake_tensor import FakeTensorMode

from botorch_res import RobustDomain
from botorch_res.test_functions import (
    DeepDrawing,
    GaussianValleys,
    GrowingSines,
    MotorCatalogue,
    PlateauWithCliff,
    RobotPushing,
    RobustBranin,
    RobustEggholder,
    RobustHartmann3,
    RobustPolynomial,
    RobustTestProblem,
    ShiftedSinusLinear,
    SinusLinear,
    SnapHook,
    SwitchingModes,
    TolerancePolynomial,
    ToleranceRosenbrock,
    ToleranceSinusLinear,
    WithinModel,
)

PROBLEMS = (
    RobustBranin,
    SinusLinear,
    RobustEggholder,
    RobustHartmann3,
    RobustPolynomial,
    WithinModel,
    RobotPushing,
    DeepDrawing,
    TolerancePolynomial,
    ShiftedSinusLinear,
    GaussianValleys,
    ToleranceRosenbrock,
    ToleranceSinusLinear,
    PlateauWithCliff,
    GrowingSines,
    SnapHook,
    SwitchingModes,
    MotorCatalogue,
)


@pytest.mark.parametrize("dtype", [torch.float, torch.double])
@pytest.mark.parametrize("kind", PROBLEMS)
class TestEveryProblem:
    def test_domain_follows_the_problem(self, kind, dtype):
        problem = kind().to(dtype=dtype)
        domain = problem.domain
        assert isinstance(domain, RobustDomain)
        assert domain.bounds.dtype == dtype
        assert torch.equal(domain.evaluations.bounds, problem.bounds)
        for z in (domain.sample(8, seed=0), problem.robust_optimizer):
            assert problem(z).dtype == dtype
            assert torch.isfinite(problem(z)).all()
        assert torch.equal(kind(dtype=dtype).bounds, problem.bounds)

    def test_worst_case_is_the_worst_value_at_some_theta(self, kind, dtype):
        problem = kind().to(dtype=dtype)
        x = problem.domain.x.sample(6, seed=0).view(2, 3, -1)
        worst = problem.worst_case_value(x)
        assert worst.shape == (2, 3)
        assert worst.dtype == dtype
        theta = problem.domain.theta.sample(512, seed=0)
        values = problem(problem.domain.join(x.unsqueeze(-2), theta))
        sign = 1 if problem.is_minimization_problem else -1
        excess = sign * (values - worst.unsqueeze(-1))
        # Finite sets are sampled completely, boxes densely enough to come near.
        slack = 1e-4 if dtype == torch.float else 1e-12
        assert excess.max() <= slack
        if not problem.domain.theta.is_finite:
            slack = 0.1 + 0.01 * worst.abs()
        assert (excess.amax(-1) > -slack).all()

    def test_robust_optimum(self, kind, dtype):
        problem = kind().to(dtype=dtype)
        tolerance = {torch.float: 3e-4, torch.double: 1e-11}[dtype]
        expected = pytest.approx(problem.robust_optimal_value, rel=tolerance)
        x = problem.robust_setting
        assert float(problem.worst_case_value(x)) == expected
        assert float(problem(problem.robust_optimizer)) == expected
        others = problem.worst_case_value(problem.domain.x.sample(32, seed=0))
        sign = 1 if problem.is_minimization_problem else -1
        assert (sign * (others - problem.robust_optimal_value)).min() > -1e-4

    def test_negation_turns_the_problem_round(self, kind, dtype):
        problem, negated = (
            kind(negate=negate).to(dtype=dtype) for negate in (False, True)
        )
        assert negated.is_minimization_problem != problem.is_minimization_problem
        assert negated.robust_optimal_value == -problem.robust_optimal_value
        assert torch.equal(negated.robust_optimizer, problem.robust_optimizer)
        x = problem.domain.x.sample(5, seed=1)
        assert torch.equal(negated.worst_case_value(x), -problem.worst_case_value(x))

    def test_noise_does_not_reach_the_worst_case(self, kind, dtype):
        problem, noisy = (
            kind(noise_std=noise_std).to(dtype=dtype) for noise_std in (None, 1.0)
        )
        z = problem.domain.sample(64, seed=0)
        assert 0.5 < float((noisy(z) - problem(z)).std()) < 2
        x, _ = problem.domain.split(z)
        assert torch.equal(noisy.worst_case_value(x), problem.worst_case_value(x))


def test_continuous_theta_needs_its_own_worst_case():
    class Plane(RobustTestProblem):
        dim = 2
        _bounds = ((0.0, 1.0), (0.0, 1.0))
        _uncontrollable = (0,)

        def _evaluate_true(self, X):
            return X.sum(dim=-1)

    with pytest.raises(UnsupportedError, match="Plane has no finite `theta_choices`"):
        Plane().worst_case_value(torch.rand(3, 1))


@pytest.mark.parametrize("kind", [k for k in PROBLEMS if k is not RobotPushing])
def test_evaluation_stays_on_the_device(kind):
    problem = kind()
    with FakeTensorMode():
        for name, buffer in list(problem.named_buffers()):
            fake = torch.empty(buffer.shape, dtype=buffer.dtype, device="cuda")
            setattr(problem, name, fake)
        z = torch.empty(2, 3, problem.dim, dtype=torch.double, device="cuda")
        values = problem._evaluate_true(z)
    assert values.device.type == "cuda"
    assert values.shape == (2, 3)
