"""What holds for every strategy: a test class inherits it, with a parameter `name`."""

import pytest
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError

from botorch_res import RobustDomain
from botorch_res.models import BayesianGP, FixedGP
from botorch_res.seeding import seeded
from botorch_res.strategies import make_strategy
from tests.problems import KINDS, make_domain, make_model, unit_domain
from tests.strategies.options import QUICK
from tests.strategies.runs import PROBLEMS, quick_strategy, run
from tests.strategies.textbook import BOUNDS as RAW_BOUNDS
from tests.strategies.textbook import BOX, MODEL, unit_cube
from tests.strategies.textbook import DOMAIN as FINITE
from tests.strategies.textbook import data as textbook_data

BOUNDS = torch.tensor([[-5.0, 0.0], [10.0, 15.0]], dtype=torch.double)
CHOICES = torch.tensor([[1 / 3, 0.0], [2 / 3, 0.47], [0.0, 1.0]], dtype=torch.double)
DOMAINS = [make_domain(kind, BOUNDS, CHOICES) for kind in KINDS]


# The fit is not what most of these tests are about.
CHEAP = FixedGP(0.3, standardize=True)


def data(domain, n=6):
    X = domain.sample(n, seed=0)
    return X, (X / 5).sin().sum(-1, keepdim=True)


class EveryStrategy:
    """Points of the domain, reproducible; bad arguments; all problems."""

    @pytest.mark.parametrize("domain", DOMAINS)
    def test_proposes_points_of_the_domain(self, name, domain):
        X, Y = data(domain)
        maximize = domain.x.is_finite
        strategy = make_strategy(
            name, domain, maximize=maximize, model_factory=CHEAP, **QUICK.get(name, {})
        )
        proposed = strategy.propose(X, Y, X_pending=X[:2] + 0.1, n=2, seed=4)
        assert proposed.shape == (2, 2)
        x, theta = domain.split(proposed)
        assert domain.x.contains(x).all()
        assert domain.theta.contains(theta).all()
        recommendation = strategy.recommend(X, Y)
        assert domain.x.contains(recommendation.x)
        assert domain.theta.contains(recommendation.theta)

    @pytest.mark.parametrize("domain", DOMAINS)
    def test_repeats_itself(self, name, domain):
        X, Y = data(domain)
        state = torch.random.get_rng_state()
        options = {"model_factory": CHEAP, "seed": 3, **QUICK.get(name, {})}
        used = make_strategy(name, domain, maximize=True, **options)
        # Other data before: one observation, with a noise of its own.
        Yvar = torch.full_like(Y, 1e-4)
        assert used.propose(X[:1], Y[:1], Yvar[:1], seed=1).shape == (1, 2)
        used.recommend(X[:1], Y[:1], Yvar[:1])
        fresh = make_strategy(name, domain, maximize=True, **options)
        wanted = {"X_pending": X[:1] + 0.1, "n": 2, "seed": 7}
        first = used.propose(X, Y, **wanted)
        assert torch.equal(state, torch.random.get_rng_state())
        with seeded(11):
            assert torch.equal(first, fresh.propose(X, Y, **wanted))

    def test_fits_one_observation(self, name):
        X, Y = data(DOMAINS[1], n=1)
        strategy = make_strategy(
            name, DOMAINS[1], maximize=False, **QUICK.get(name, {})
        )
        assert strategy.propose(X, Y, Yvar=torch.full_like(Y, 1e-4)).shape == (1, 2)
        strategy.recommend(X, Y)

    @pytest.mark.filterwarnings("ignore:The model inputs are of type torch.float32")
    def test_single_precision(self, name):
        domain = DOMAINS[1].to(dtype=torch.float)
        X, Y = data(domain)
        strategy = make_strategy(
            name, domain, maximize=False, model_factory=CHEAP, **QUICK.get(name, {})
        )
        proposed = strategy.propose(X, Y, X_pending=X[:1] + 0.1, seed=4)
        assert proposed.dtype == torch.float
        x, theta = domain.split(proposed)
        assert domain.x.contains(x).all()
        assert domain.theta.contains(theta).all()

    def test_bad_numbers(self, name):
        for option in QUICK.get(name, {}):
            for bad in (0, 2.5):
                with pytest.raises(InputDataError, match=f"`{option}` .* got {bad}"):
                    make_strategy(name, DOMAINS[0], maximize=False, **{option: bad})
        message = rf"'{name}' to be among .*\bmodel_factory\b.*, got an .* 'magic'"
        with pytest.raises(InputDataError, match=message):
            make_strategy(name, DOMAINS[0], maximize=False, magic=1)

    def test_bad_domain(self, name):
        with pytest.raises(InputDataError, match=r"RobustDomain, got Tensor"):
            make_strategy(name, BOUNDS, maximize=False)

    def test_bad_points(self, name):
        X, Y = data(DOMAINS[0])
        strategy = make_strategy(name, DOMAINS[0], maximize=False, model_factory=CHEAP)
        with pytest.raises(InputDataError, match=r"`n` .*at least 1, got 0"):
            strategy.propose(X, Y, n=0)
        if name == "random":  # which ignores the data
            return
        with pytest.raises(
            BotorchTensorDimensionError,
            match=r"`X_pending` of shape m x 2, got shape \(3, 4\)",
        ):
            strategy.propose(X, Y, X_pending=X.new_zeros(3, 4))
        with pytest.raises(
            InputDataError, match=r"`X` .*torch.float64.*, got torch.float32 on cpu"
        ):
            strategy.propose(X.float(), Y.float())

    @pytest.mark.parametrize("problem", PROBLEMS)
    def test_five_iterations(self, name, problem):
        """From one observation."""
        problem = PROBLEMS[problem]
        _, _, recommended = run(quick_strategy(name, problem), problem, iterations=5)
        assert torch.isfinite(problem.worst_case_value(recommended.x))

    def test_ensemble(self, name):
        """Robot pushing: new hyperparameters every tenth observation."""
        problem = PROBLEMS["robot_pushing"]
        factory = BayesianGP(num_samples=2, num_steps=3, refresh=10)
        strategy = quick_strategy(name, problem, factory)
        run(strategy, problem, num_initial=2, iterations=2)


class InvariantStrategy:
    """The direction and the units do not matter; pending points do."""

    @pytest.mark.parametrize("domain", [BOX, FINITE])
    def test_maximising_is_minimising_the_negative(self, name, domain):
        X, Y = textbook_data()
        first, second = (
            make_strategy(
                name,
                domain,
                maximize=maximize,
                model_factory=MODEL,
                **QUICK.get(name, {}),
            ).propose(X, sign * Y, X_pending=X[:1] + 0.01, n=2, seed=1)
            for maximize, sign in ((True, 1.0), (False, -1.0))
        )
        width = RAW_BOUNDS[1] - RAW_BOUNDS[0]
        torch.testing.assert_close(first / width, second / width, rtol=0, atol=1e-6)

    @pytest.mark.parametrize("scale", [1e-9, 1e9])
    def test_units_do_not_matter(self, name, scale):
        # Raw data and those of the unit cube, with outcomes of another size, say the
        # same.
        X, Y = textbook_data()
        width = RAW_BOUNDS[1] - RAW_BOUNDS[0]
        unit = RobustDomain(
            unit_domain(2, 1).bounds,
            [0],
            theta_choices=(FINITE.theta.choices - RAW_BOUNDS[0, :1]) / width[:1],
        )
        raw = RobustDomain(RAW_BOUNDS, [0], theta_choices=FINITE.theta.choices)
        first, second = (
            make_strategy(
                name, domain, maximize=False, model_factory=MODEL, **QUICK.get(name, {})
            ).propose(points, values, seed=5)
            for domain, points, values in (
                (raw, X, Y),
                (unit, unit_cube(X), scale * (Y - 50.0)),
            )
        )
        torch.testing.assert_close(unit_cube(first), second, rtol=0, atol=1e-4)

    def test_pending_points_are_not_proposed_again(self, name):
        X, Y = textbook_data()
        strategy = make_strategy(
            name, FINITE, maximize=True, model_factory=MODEL, **QUICK.get(name, {})
        )
        first = strategy.propose(X, Y, seed=0)
        second = strategy.propose(X, Y, X_pending=first, seed=0)
        assert not torch.equal(first, second)
        assert torch.equal(
            strategy.propose(X, Y, n=2, seed=0), torch.cat([first, second])
        )

    def test_model_without_transforms(self, name):
        # A factory may return a model of the user's units.
        unit = unit_domain()
        X = unit.sample(5, seed=0)
        Y = X.sin().sum(-1, keepdim=True)

        def plain(X, Y, Yvar, bounds, seed=0):
            kernel = FixedGP(0.4)(X, Y, Yvar, bounds).covar_module
            return make_model(X, Y, kernel=kernel).eval().requires_grad_(False)

        strategy = make_strategy(
            name, unit, maximize=False, model_factory=plain, **QUICK.get(name, {})
        )
        proposed = strategy.propose(X, Y, seed=0)
        assert ((proposed >= 0) & (proposed <= 1)).all()
