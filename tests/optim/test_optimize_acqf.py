import pytest
import torch
from botorch.acquisition import (
    PosteriorMean,
    UpperConfidenceBound,
    qLogNoisyExpectedImprovement,
)
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.exceptions.warnings import BadInitialCandidatesWarning
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from botorch_res import RobustDomain, qRobustEntropySearch
from botorch_res.optim import (
    gen_robust_initial_conditions,
    optimize_replicates,
    optimize_robust_acqf,
)
from botorch_res.optim.acquisition import optimize_acqf as optimize_acqf_module
from tests import problems
from tests.brute_force import pairs
from tests.problems import DOUBLE, KINDS
from tests.problems import RAW as BOUNDS

CHOICES = torch.tensor([[0.03], [0.21], [0.5], [0.66], [0.97]], **DOUBLE)


def make_domain(kind: str) -> RobustDomain:
    return problems.make_domain(kind, BOUNDS, CHOICES)


def make_model(*batch_shape: int) -> SingleTaskGP:
    X = make_domain("box").sample(8, seed=1).expand(*batch_shape, 8, 2)
    Y = (0.3 * X[..., :1]).sin() + (X[..., 1:] / 60.0).cos()
    return problems.make_model(X, Y, bounds=BOUNDS)


def unit(X: Tensor) -> Tensor:
    return (X - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])


def on_grid(function: AcquisitionFunction, domain: RobustDomain) -> Tensor:
    with torch.no_grad():
        return function(pairs(domain).flatten(0, 1).unsqueeze(-2))


class Bumps(AcquisitionFunction):
    """A function with many local maxima, in the unit cube's coordinates."""

    def __init__(self) -> None:
        super().__init__(model=None)
        self.X_pending = None
        self.largest = 0

    @t_batch_mode_transform(expected_q=1, assert_output_shape=False)
    def forward(self, X: Tensor) -> Tensor:
        self.largest = max(self.largest, len(X))
        u = unit(X).squeeze(-2)
        value = (9.0 * u).sin().prod(dim=-1) + 0.3 * (u[..., 0] - u[..., 1])
        if self.X_pending is not None:
            distance = u.unsqueeze(-2) - unit(self.X_pending)
            distance = distance.square().sum(dim=-1)
            value = value - (-20.0 * distance).exp().sum(dim=-1)
        return value


@pytest.mark.parametrize("kind", KINDS)
def test_finds_the_maximum(kind):
    domain, function = make_domain(kind), Bumps()
    best = on_grid(function, domain).max()
    candidates, value = optimize_robust_acqf(function, domain, seed=0)
    assert candidates.shape == (1, 2)
    assert value.shape == ()
    assert best - 1e-6 <= float(value) <= best + 1e-3
    assert torch.allclose(function(candidates), value)
    x, theta = domain.split(candidates)
    if domain.x.is_finite:
        assert (x == domain.x.choices).any()
    if domain.theta.is_finite:
        assert (theta == domain.theta.choices).any()


class Spike(Bumps):
    """Zero but for one narrow peak, like expected improvement late in a run."""

    def forward(self, X: Tensor) -> Tensor:
        distance = (unit(X).squeeze(-2) - 0.62).square().sum(dim=-1)
        return (0.01 - distance).clamp_min(0.0)


@pytest.mark.parametrize("is_nonnegative", [False, True])
def test_draws_more_points_where_a_function_is_flat(is_nonnegative, monkeypatch):
    monkeypatch.setattr(
        optimize_acqf_module, "is_nonnegative", lambda function: is_nonnegative
    )
    domain = make_domain("box")
    options = {"num_restarts": 2, "raw_samples": 16}
    found = []
    for seed in range(4):
        first = domain.sample(16, seed).unsqueeze(-2)
        assert Spike()(first).max() == 0.0
        found.append(optimize_robust_acqf(Spike(), domain, seed=seed, **options)[1])
    # A draw of 16, 32, 48 or 64 points hits 3 % of the area nearly always.
    assert torch.stack(found).gt(0.009).sum() >= 3
    # There is nothing to find here.
    function = Spike()
    function.forward = lambda X: 0.0 * X[:, 0, 0]
    with pytest.warns(BadInitialCandidatesWarning):
        optimize_robust_acqf(function, domain, seed=0, **options)


def test_one_model_for_all_replicates():
    acqf = qRobustEntropySearch(make_model(), make_domain("box"), 3, seed=0)
    z, values = optimize_replicates(acqf, make_domain("box"), [0, 1])
    for i in range(2):
        alone = optimize_robust_acqf(acqf, make_domain("box"), seed=i)
        torch.testing.assert_close(z[i : i + 1], alone[0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(values[i], alone[1])


@pytest.mark.parametrize("kind", KINDS)
def test_candidates_one_after_the_other(kind):
    domain, function = make_domain(kind), Bumps()
    earlier = domain.sample(1, seed=5)
    function.set_X_pending(earlier)
    candidates, values = optimize_robust_acqf(function, domain, q=3, seed=0)
    assert candidates.shape == (3, 2)
    assert values.shape == (3,)
    assert torch.equal(function.X_pending, earlier)
    for i in range(3):
        function.set_X_pending(torch.cat([earlier, candidates[:i]]))
        assert torch.allclose(function(candidates[i : i + 1]), values[i])
        assert float(values[i]) >= on_grid(function, domain).max() - 1e-3


def test_pending_points_are_put_back_after_an_error():
    class Broken(Bumps):
        def forward(self, X):
            if self.X_pending is not None:
                raise ArithmeticError
            return super().forward(X)

    function = Broken()
    with pytest.raises(ArithmeticError):
        optimize_robust_acqf(function, make_domain("both"), q=2)
    assert function.X_pending is None


@pytest.mark.parametrize("kind", KINDS)
def test_chunks(kind):
    domain, function = make_domain(kind), Bumps()
    _, value = optimize_robust_acqf(
        function, domain, num_restarts=4, raw_samples=64, batch_limit=16, seed=0
    )
    # Whole settings of a finite set, or three step lengths for each of four restarts.
    assert 12 < function.largest <= 16
    assert value > 0.5 * on_grid(function, domain).max()


def test_seed():
    domain, function = make_domain("theta"), Bumps()
    state = torch.random.get_rng_state()
    settings = {"num_restarts": 1, "raw_samples": 4, "num_rounds": 1}
    first, second, other = (
        optimize_robust_acqf(function, domain, seed=seed, **settings)[0]
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(state, torch.random.get_rng_state())


def test_any_acquisition_function():
    model, domain = make_model(), make_domain("theta")
    for acqf in (
        PosteriorMean(model),
        UpperConfidenceBound(model, beta=4.0),
        qLogNoisyExpectedImprovement(model, X_baseline=domain.sample(8, seed=1)),
    ):
        candidate, value = optimize_robust_acqf(acqf, domain, seed=0)
        values = on_grid(acqf, domain)
        spread = float(values.max() - values.min())
        assert float(value) >= float(values.max()) - 1e-3 * spread
        assert (candidate[0, 1] == domain.theta.choices).any()


class TestInitialConditions:
    def test_optima_and_their_neighbours(self):
        class Informed(Bumps):
            domain = make_domain("theta")
            robust_optimizers = torch.tensor([[2.0, 106.0], [7.0, 232.0]], **DOUBLE)

        function = Informed()
        seen = []
        original = function.forward
        function.forward = lambda X: seen.append(X) or original(X)
        starts = gen_robust_initial_conditions(
            function, BOUNDS, q=1, num_restarts=6, raw_samples=64, options={"seed": 0}
        )
        assert starts.shape == (6, 1, 2)
        raw = torch.cat(seen).squeeze(-2)
        assert raw.shape == (64, 2)
        assert torch.equal(raw[:2], function.robust_optimizers)
        assert function.domain.theta.contains(raw[:, 1:]).all()
        near = raw[2:16, :1] - function.robust_optimizers[:, 0]
        # A quarter are neighbours, at three scales of the box's width of 15.
        assert (near.abs().amin(dim=-1) < 5.0).all()
        assert (near.abs().amin(dim=-1) < 0.5).sum() >= 6
        assert ((starts == raw.unsqueeze(-2).unsqueeze(-2)).all(-1).any(0)).all()

    def test_in_botorch(self):
        class Informed(Bumps):
            domain = make_domain("box")

        function = Informed()
        candidate, value = optimize_acqf(
            function,
            BOUNDS,
            q=1,
            num_restarts=4,
            raw_samples=64,
            ic_generator=gen_robust_initial_conditions,
            options={"seed": 0},
        )
        assert float(value) >= on_grid(function, function.domain).max() - 1e-3
        assert candidate.shape == (1, 2)

    @pytest.mark.parametrize("bounds", [BOUNDS + 1.0, BOUNDS[:, :1]])
    def test_other_bounds_than_those_of_the_domain_are_refused(self, bounds):
        sizes = {"q": 1, "num_restarts": 2, "raw_samples": 4}
        with pytest.raises(
            InputDataError, match=r"Expected the `bounds` of the domain"
        ):
            gen_robust_initial_conditions(
                Bumps(), bounds, domain=make_domain("box"), **sizes
            )
        with pytest.raises(InputDataError, match=r"a RobustDomain, got NoneType"):
            gen_robust_initial_conditions(Bumps(), BOUNDS, **sizes)

    def test_constraints_are_refused(self):
        with pytest.raises(InputDataError, match="no `inequality_constraints`"):
            gen_robust_initial_conditions(
                Bumps(),
                BOUNDS,
                q=1,
                num_restarts=2,
                raw_samples=4,
                equality_constraints=[(torch.tensor([0]), torch.ones(1), 0.0)],
                domain=make_domain("box"),
            )


@pytest.mark.parametrize(
    ("argument", "value", "least"),
    [
        ("q", 0, 1),
        ("q", 1.0, 1),
        ("num_restarts", 0, 1),
        ("num_restarts", None, 1),
        ("raw_samples", 7, 8),
        ("num_rounds", 0, 1),
        ("num_rounds", "7", 1),
        ("batch_limit", 0, 1),
    ],
)
def test_bad_numbers(argument, value, least):
    message = f"`{argument}` to be a whole number of at least {least}, got {value!r}"
    with pytest.raises(InputDataError, match=message):
        optimize_robust_acqf(Bumps(), make_domain("box"), **{argument: value})


class TestBadArguments:
    def test_kinds(self):
        function, domain = Bumps(), make_domain("box")
        with pytest.raises(InputDataError, match="AcquisitionFunction, got Robust"):
            optimize_robust_acqf(domain, function)
        with pytest.raises(InputDataError, match=r"a RobustDomain, got Tensor"):
            optimize_robust_acqf(function, BOUNDS)
        for seed in (0.5, "a"):
            with pytest.raises(InputDataError, match=f"`seed` .* got {seed!r}"):
                optimize_robust_acqf(function, domain, seed=seed)

    def test_number_of_columns(self):
        model = make_model()
        wide = RobustDomain(torch.cat([BOUNDS, BOUNDS], dim=-1), [1])
        for function in (
            Bumps(),
            PosteriorMean(model),
            qRobustEntropySearch(model, make_domain("box"), num_samples=1, seed=0),
        ):
            with pytest.raises(
                BotorchTensorDimensionError,
                match=r"`acq_function` to accept .* a point of shape \(1, 1, 4\)",
            ):
                optimize_robust_acqf(function, wide)

    def test_batch_of_models(self):
        function = PosteriorMean(make_model(3))
        with pytest.raises(
            BotorchTensorDimensionError, match=r"maps shape \(1, 1, 2\) to \(3,\)"
        ):
            optimize_robust_acqf(function, make_domain("box"))

    def test_functions_without_pending_points(self):
        function = PosteriorMean(make_model())
        with pytest.raises(UnsupportedError, match=r"as PosteriorMean .* got 2"):
            optimize_robust_acqf(function, make_domain("box"), q=2)


def test_values_that_are_no_numbers():
    class Broken(Bumps):
        def forward(self, X):
            return super().forward(X) * float("nan")

    with pytest.raises(RuntimeError, match="25 of 25 values of Broken are NaN"):
        optimize_robust_acqf(Broken(), make_domain("both"))


class Ridge(Bumps):
    """A curved ridge, along which an ascent needs gradients for many rounds."""

    @t_batch_mode_transform(expected_q=1, assert_output_shape=False)
    def forward(self, X: Tensor) -> Tensor:
        u = unit(X).squeeze(-2)
        x, theta = (3.0 * u - 1.0).unbind(dim=-1)
        return -((1.0 - x).square() + 20.0 * (theta - x.square()).square())


def test_all_heats_climb():
    """The gradients of one heat lead on in the next one."""
    domain = make_domain("box")
    start = {"num_restarts": 8, "raw_samples": 8, "seed": 0}
    few, many = (
        optimize_robust_acqf(Ridge(), domain, num_rounds=rounds, **start)[1]
        for rounds in (9, 36)
    )
    assert few < -1e-4
    assert many == pytest.approx(0.0, abs=1e-10)
