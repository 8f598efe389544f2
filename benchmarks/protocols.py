"""The problems of the regret benchmark, and how each is run.

The numbers are those of the paper [Weichert2024robust]_; every one of them is a field
of ``Protocol`` or an option of the command line. Where the paper scales the outputs of
a problem to mean 0 and variance 1, its values and regrets are in these units.

References:
.. [Weichert2024robust]
    D. Weichert, A. Kister, S. Houben, P. Link and G. Ernis. Robust Entropy Search for
    Safe Efficient Bayesian Optimization. Uncertainty in Artificial Intelligence, 2024.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from botorch_res.domain import DomainPart, RobustDomain
from botorch_res.models import (
    BayesianGP,
    DefaultGP,
    FixedGP,
    MaximumLikelihoodGP,
    ModelFactory,
)
from botorch_res.test_functions import (
    DeepDrawing,
    GaussianValleys,
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
    ToleranceProblem,
    ToleranceRosenbrock,
    ToleranceSinusLinear,
    WithinModel,
)

# Points from which the mean and the spread of a problem are computed.
NUM_POINTS = 4096


@dataclass(frozen=True)
class Protocol:
    """How a problem is run.

    Attributes:
        make: Makes the problem of a seed.
        model_factory: The model.
        num_initial: The number of random points to start from.
        iterations: The number of points that a strategy then chooses.
        num_seeds: The number of runs.
        same_domain: Whether all seeds have the same domain, so that their runs can be
            one batch.
        offset: Subtracted from the outputs.
        scale: The outputs are then divided by it.
        noise_std: The standard deviation of noise that is added to the outputs.
        num_functions: The number of functions behind a recommendation. If it is 0, the
            robust optimum of the posterior mean is recommended, as in the paper.
    """

    make: Callable[[int], RobustTestProblem]
    model_factory: ModelFactory
    num_initial: int = 1
    iterations: int = 50
    num_seeds: int = 50
    same_domain: bool = True
    offset: float = 0.0
    scale: float = 1.0
    noise_std: float = 0.0
    num_functions: int = 0


@dataclass
class Objective:
    """One run's problem in the units of its protocol.

    Attributes:
        problem: The problem.
        protocol: The protocol.
        seed: The seed of the problem, of the initial points and of the noise.
    """

    problem: RobustTestProblem
    protocol: Protocol
    seed: int

    def __call__(self, X: Tensor, iteration: int) -> Tensor:
        """Evaluate the problem.

        Args:
            X: ``n x d`` points.
            iteration: The number of the evaluation, which decides on the noise.

        Returns:
            ``n`` values.
        """
        generator = torch.Generator().manual_seed(1000 * self.seed + iteration)
        noise = torch.randn(len(X), generator=generator, dtype=X.dtype)
        return self._scaled(self.problem(X)) + self.protocol.noise_std * noise

    def robust_regret(self, x: Tensor) -> Tensor:
        """How far the worst case of ``x`` is from the best one, ``|g(x) - f*|``.

        Args:
            x: ``n x d_x`` controllable parts.

        Returns:
            ``n`` regrets.
        """
        value = self.problem.worst_case_value(x)
        return (value - self.problem.robust_optimal_value).abs() / self.protocol.scale

    def inference_regret(self, z: Tensor) -> Tensor:
        """How far the value at ``z`` is from the best worst case, ``|f(z) - f*|``.

        Args:
            z: ``n x d`` points.

        Returns:
            ``n`` regrets.
        """
        value = self.problem(z, noise=False)
        return (value - self.problem.robust_optimal_value).abs() / self.protocol.scale

    def _scaled(self, values: Tensor) -> Tensor:
        return (values - self.protocol.offset) / self.protocol.scale


def standardised(problem: type[RobustTestProblem], **settings: object) -> Protocol:
    """The protocol of a problem whose outputs have mean 0 and variance 1.

    Args:
        problem: The class of the problem.
        settings: The other fields of ``Protocol``.

    Returns:
        The protocol, with hyperparameters by maximum likelihood in every iteration.
    """
    instance = problem()
    values = instance(instance.domain.sample(NUM_POINTS, seed=0))
    return Protocol(
        make=lambda seed: instance,
        model_factory=MaximumLikelihoodGP(noise_variance=1e-3, standardize=False),
        offset=float(values.mean()),
        scale=float(values.std()),
        **settings,  # type: ignore[arg-type]
    )


def polynomial_points(
    problem: RobustPolynomial | TolerancePolynomial,
) -> tuple[Tensor, Tensor]:
    """The 500 points below 15 on which the polynomial's hyperparameters were fitted.

    Args:
        problem: The polynomial in either form.

    Returns:
        The points and their values.
    """
    X = problem.domain.sample(NUM_POINTS, seed=0)
    Y = problem(X)
    low = (Y < 15.0).nonzero().squeeze(-1)[:500]
    return X[low], Y[low]


def polynomial() -> Protocol:
    """The protocol of the polynomial: hyperparameters fixed beforehand.

    They are the best of 16 local searches for the maximum likelihood of
    ``polynomial_points``, which takes ``MaximumLikelihoodGP`` about 15 s.

    Returns:
        The protocol.
    """
    instance = RobustPolynomial()
    _, Y = polynomial_points(instance)
    return Protocol(
        make=lambda seed: instance,
        model_factory=FixedGP([0.1092, 0.0643, 0.5536, 0.2333], 1.3874, 1e-3),
        num_initial=10,
        iterations=100,
        num_seeds=100,
        offset=float(Y.mean()),
        scale=float(Y.std()),
    )


def with_tolerances(
    name: str, problem: ToleranceProblem, factory: ModelFactory | None = None
) -> Protocol:
    """The protocol of a problem in the form with tolerances, in the same units.

    Args:
        name: A key of ``PROTOCOLS``, the problem in two parts.
        problem: The same problem with tolerances.
        factory: Another model than that of the problem in two parts.

    Returns:
        The protocol.
    """
    rules = protocol(name)
    factory = rules.model_factory if factory is None else factory
    return replace(rules, make=lambda seed: problem, model_factory=factory)


def from_literature(kind: type[ToleranceProblem], iterations: int = 40) -> Protocol:
    """The protocol of a problem with tolerances that the paper does not have.

    Args:
        kind: The class of the problem.
        iterations: The number of iterations.

    Returns:
        The protocol.
    """
    return standardised(kind, num_initial=5, iterations=iterations, num_seeds=10)


def with_categories(kind: type[RobustTestProblem], num_levels: int = 0) -> Protocol:
    """The protocol of a mixed problem, with the package's defaults.

    Args:
        kind: The class of the problem.
        num_levels: The number of levels into which ranges are cut for a strategy;
            they stay ranges if it is 0. Regret is that of the problem itself.

    Returns:
        The protocol.
    """
    instance = kind()
    values = instance(instance.domain.sample(NUM_POINTS, seed=0))
    if num_levels > 0:
        domain = in_levels(instance.domain, num_levels)
        name, members = f"{kind.__name__}InLevels", {"domain": domain}
        instance = type(name, (kind,), members)()
    return Protocol(
        make=lambda seed: instance,
        model_factory=DefaultGP(),
        num_initial=5,
        iterations=25,
        num_seeds=10,
        num_functions=16,
        offset=float(values.mean()),
        scale=float(values.std()),
    )


def in_levels(domain: RobustDomain, num_levels: int) -> RobustDomain:
    """Cut the ranges of a domain without tolerances into levels.

    Args:
        domain: The domain.
        num_levels: The number of values in each range, both ends among them.

    Returns:
        A domain of two finite sets.
    """

    def choices(part: DomainPart) -> dict[tuple[int, ...], Tensor]:
        rows = {tuple(part.columns[i] for i in part.listed.tolist()): part.rows}
        for i in part.free.tolist():
            lower, upper = part.bounds[:, i].tolist()
            levels = torch.linspace(lower, upper, num_levels, dtype=torch.double).to(
                part.bounds
            )
            rows[(part.columns[i],)] = levels.unsqueeze(-1)
        return {columns: values for columns, values in rows.items() if columns}

    return RobustDomain(
        domain.bounds,
        domain.theta.columns,
        choices(domain.x),
        choices(domain.theta),
        cat_dims=domain.cat_dims,
    )


# Made when they are asked for: some of them evaluate their problem first.
PAPER_PROTOCOLS: dict[str, Callable[[], Protocol]] = {
    "within_model": lambda: Protocol(
        make=lambda seed: WithinModel(seed=seed),
        model_factory=FixedGP(0.1, 1.0, 1e-3),
    ),
    "branin": lambda: standardised(RobustBranin),
    "sinus_linear": lambda: standardised(SinusLinear, iterations=60),
    "eggholder": lambda: standardised(RobustEggholder, iterations=80),
    "hartmann3": lambda: standardised(RobustHartmann3, num_seeds=100),
    "polynomial": polynomial,
    "robot_pushing": lambda: Protocol(
        make=lambda seed: RobotPushing(seed=seed),
        model_factory=BayesianGP(refresh=10),
        num_initial=2,
        iterations=100,
        num_seeds=30,
        same_domain=False,
    ),
    "deep_drawing": lambda: standardised(DeepDrawing, iterations=25, num_seeds=30),
}
PROTOCOLS = PAPER_PROTOCOLS | {
    # Its hyperparameters are fitted as those of the polynomial are, with the signal
    # bounded as in the paper.
    "polynomial_tolerance": lambda: with_tolerances(
        "polynomial",
        TolerancePolynomial(),
        FixedGP([0.1553, 0.1396], 100.0, 1e-3),
    ),
    "sinus_linear_tolerance": lambda: with_tolerances(
        "sinus_linear", ShiftedSinusLinear()
    ),
    "sinus_linear_interval": lambda: standardised(ToleranceSinusLinear, iterations=60),
    "gaussian_valleys": lambda: from_literature(GaussianValleys),
    "tolerance_rosenbrock": lambda: from_literature(ToleranceRosenbrock),
    "plateau_with_cliff": lambda: from_literature(PlateauWithCliff, iterations=30),
    "snap_hook": lambda: with_categories(SnapHook),
    "snap_hook_levels": lambda: with_categories(SnapHook, 21),
    "switching_modes": lambda: with_categories(SwitchingModes),
    "switching_modes_levels": lambda: with_categories(SwitchingModes, 21),
    "motor_catalogue": lambda: with_categories(MotorCatalogue),
    "motor_catalogue_levels": lambda: with_categories(MotorCatalogue, 21),
}


@cache
def protocol(name: str) -> Protocol:
    """The protocol of a problem.

    Args:
        name: A key of ``PROTOCOLS``.

    Returns:
        The protocol.
    """
    if name not in PROTOCOLS:
        raise ValueError(
            f"Expected a problem among {', '.join(PROTOCOLS)}, got {name!r}."
        )
    return PROTOCOLS[name]()
