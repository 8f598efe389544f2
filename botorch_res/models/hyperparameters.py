r"""Hyperparameters of a Gaussian process: their posterior, its maximum, its samples.

The process has zero mean and a squared exponential kernel with one lengthscale for
each input (ARD); inputs live in the unit cube and outcomes are of order one. An input
whose values are codes of categories has a factor of its own, which is one for equal
values and ``exp(-1 / lengthscale)`` for different ones. All
hyperparameters are handled by their logarithms, in the order: ``d`` lengthscales,
signal standard deviation and, when the noise is inferred, noise variance. With flat
priors the posterior is the marginal likelihood.

Everything is batched: over data sets, over restarts of the maximisation and over the
walkers of the sampler, which is emcee's [ForemanMackey2013emcee]_ (the extra
``bayes``). It is computed in double precision, whatever the data's dtype.

References:
.. [Rasmussen2006gaussian]
    C. E. Rasmussen and C. K. I. Williams. Gaussian Processes for Machine Learning.
    MIT Press, 2006. Equation 5.8.
.. [ForemanMackey2013emcee]
    D. Foreman-Mackey, D. W. Hogg, D. Lang and J. Goodman. emcee: The MCMC Hammer.
    Publications of the Astronomical Society of the Pacific, 125, 2013.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from botorch.exceptions.errors import InputDataError
from botorch.optim.batched_lbfgs_b import fmin_l_bfgs_b_batched
from numpy.random import MT19937
from torch import Tensor
from torch.quasirandom import SobolEngine

# A density of minus infinity would stop the line search of L-BFGS-B; this value only
# makes it turn back.
_WORST_LOG_DENSITY = -1e10
# Two maxima closer than this are the same one: the start at the prior's centre wins,
# so that directions about which the data say nothing stay where the prior puts them.
_TIE = 1e-6
_MAX_ITERATIONS = 200
# Restarts reach a factor of exp(2.5), about twelve, beyond the centre.
_START_REACH = 2.5
# emcee asks for at least two walkers for each hyperparameter.
_WALKERS_PER_PARAMETER = 4


@dataclass(frozen=True)
class LogNormalPrior:
    """A log-normal prior of one kind of hyperparameter, restricted to an interval.

    Attributes:
        median: The median, and the first starting point of a maximisation.
        spread: The standard deviation of the logarithm; infinite for a flat prior of
            the logarithm.
        lower: The lower end of the interval.
        upper: The upper end of the interval.
    """

    median: float
    spread: float
    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not (0 < self.lower <= self.median <= self.upper < math.inf):
            raise InputDataError(
                "Expected `lower`, `median` and `upper` to be positive, finite and in "
                f"this order, got {self.lower}, {self.median} and {self.upper}."
            )
        if not self.spread > 0:
            raise InputDataError(
                f"Expected `spread` to be positive, got {self.spread}."
            )


@dataclass(frozen=True)
class Hyperparameters:
    """Hyperparameters in natural units, for unit-cube inputs and scaled outcomes.

    Attributes:
        lengthscale: ``batch_shape x d`` lengthscales, categories' among them.
        signal_variance: ``batch_shape`` prior variances.
        noise_variance: ``batch_shape`` noise variances, or ``None`` when every
            observation brings its own.
    """

    lengthscale: Tensor
    signal_variance: Tensor
    noise_variance: Tensor | None

    def __str__(self) -> str:
        parts = [
            f"lengthscales ({_rounded(self.lengthscale)})",
            f"signal standard deviation {_rounded(self.signal_variance.sqrt())}",
        ]
        if self.noise_variance is not None:
            parts.append(f"noise variance {_rounded(self.noise_variance)}")
        return ", ".join(parts)


class HyperparameterPosterior:
    """The posterior density of the logarithms of the hyperparameters.

    Attributes:
        batch_shape: The batch shape of the data sets.
        lower: ``p`` lower ends of the logarithms.
        upper: ``p`` upper ends of the logarithms.
        centre: ``p`` logarithms of the priors' medians.
        is_category: ``d`` booleans: the columns of categories.
    """

    def __init__(
        self,
        X: Tensor,
        y: Tensor,
        noise: Tensor | None,
        lengthscale_prior: LogNormalPrior,
        signal_prior: LogNormalPrior,
        noise_prior: LogNormalPrior,
        cat_dims: Sequence[int] = (),
        category_prior: LogNormalPrior | None = None,
    ) -> None:
        """Prepare the density.

        Args:
            X: A ``batch_shape x n x d`` tensor of unit-cube inputs, and codes of
                categories.
            y: A ``batch_shape x n`` tensor of scaled outcomes.
            noise: A ``batch_shape x n`` tensor of the variances of the noise in
                ``y``, or ``None`` to infer one variance for all.
            lengthscale_prior: The prior of every lengthscale.
            signal_prior: The prior of the signal's standard deviation.
            noise_prior: The prior of the noise variance, used when it is inferred.
            cat_dims: The columns of categories.
            category_prior: The prior of the lengthscales of these, by default that of
                all others.
        """
        n, self._dim = X.shape[-2:]
        self.batch_shape = y.shape[:-1]
        X = X.detach().double().expand(*self.batch_shape, n, self._dim)
        self.is_category = torch.zeros(self._dim, dtype=torch.bool, device=X.device)
        self.is_category[list(cat_dims)] = True
        differences = X.unsqueeze(-2) - X.unsqueeze(-3)
        distances = torch.where(
            self.is_category, differences.ne(0).to(X), differences.square()
        )
        self._distances = distances.reshape(-1, n, n, self._dim)
        self._y = y.detach().double().reshape(-1, n)
        self._noise = noise
        if noise is not None:
            self._noise = noise.detach().double().expand_as(y).reshape(-1, n)
        priors = [
            (category_prior or lengthscale_prior)
            if i in cat_dims
            else lengthscale_prior
            for i in range(self._dim)
        ]
        priors.append(signal_prior)
        if noise is None:
            priors.append(noise_prior)
        table = X.new_tensor([[p.median, p.spread, p.lower, p.upper] for p in priors])
        median, self._spread, lower, upper = table.unbind(-1)
        self.centre, self.lower, self.upper = median.log(), lower.log(), upper.log()

    def natural(self, parameters: Tensor) -> Hyperparameters:
        """Translate logarithms into hyperparameters.

        Args:
            parameters: A ``... x p`` tensor.

        Returns:
            The hyperparameters.
        """
        values = parameters.exp()
        return Hyperparameters(
            lengthscale=values[..., : self._dim],
            signal_variance=values[..., self._dim].square(),
            noise_variance=None if self._noise is not None else values[..., -1],
        )

    def log_density(self, parameters: Tensor) -> Tensor:
        """Log marginal likelihood plus log prior, up to a constant.

        Args:
            parameters: A ``... x batch_shape x p`` tensor of logarithms.

        Returns:
            The ``... x batch_shape`` densities; minus infinity where the covariance
            matrix is singular in double precision.
        """
        shape = parameters.shape[:-1]
        members = torch.arange(len(self._y), device=self._y.device)
        members = members.repeat(math.prod(shape) // len(self._y))
        density = self._log_density(parameters.reshape(len(members), -1), members)
        return density.reshape(shape)

    def maximize(self, num_restarts: int, seed: int) -> tuple[Tensor, Tensor]:
        """Find the mode, from the priors' centre and from points around it.

        Args:
            num_restarts: The number of starting points.
            seed: The seed of the starting points.

        Returns:
            The ``batch_shape x p`` mode and the ``batch_shape`` densities there.
        """
        starts = self.starting_points(num_restarts, seed)
        device = starts.device

        def objective(points: Any, batch_indices: list[int]) -> tuple[Any, Any]:
            parameters = torch.as_tensor(points, device=device).requires_grad_(True)
            members = torch.tensor(batch_indices, device=device) % len(self._y)
            density = self._log_density(parameters, members)
            (gradient,) = torch.autograd.grad(density.sum(), parameters)
            bad = ~torch.isfinite(density)
            value = -density.detach().masked_fill(bad, _WORST_LOG_DENSITY)
            gradient = -gradient.masked_fill(bad.unsqueeze(-1), 0.0)
            return value.cpu().numpy(), gradient.cpu().numpy()

        points, _, _ = fmin_l_bfgs_b_batched(
            objective,
            starts.reshape(-1, starts.shape[-1]).cpu().numpy(),
            bounds=list(zip(self.lower.tolist(), self.upper.tolist(), strict=True)),
            maxiter=_MAX_ITERATIONS,
            pass_batch_indices=True,
        )
        modes = torch.as_tensor(points, device=device).reshape(starts.shape)
        density = self.log_density(modes)
        preferred = density.clone()
        preferred[0] += _TIE
        best = preferred.argmax(dim=0, keepdim=True)
        mode = modes.take_along_dim(best.unsqueeze(-1), dim=0).squeeze(0)
        return mode, density.take_along_dim(best, dim=0).squeeze(0)

    def sample(self, num_samples: int, num_steps: int, seed: int) -> Tensor:
        """Draw hyperparameters of one data set with emcee's ensemble sampler.

        The walkers start from the normal approximation at the mode, which is close to
        the posterior already. The samples are the last positions of different walkers
        and not positions along one walk, so that they are nearly independent.

        Args:
            num_samples: The number of samples.
            num_steps: The number of steps of every walker.
            seed: The seed.

        Returns:
            A ``num_samples x p`` tensor.
        """
        emcee = _import_emcee()
        dim, device = len(self.centre), self.centre.device
        num_walkers = max(num_samples, _WALKERS_PER_PARAMETER * dim)

        def log_density(points: Any) -> Any:
            parameters = torch.as_tensor(points, device=device)
            inside = (parameters >= self.lower) & (parameters <= self.upper)
            density = self.log_density(parameters.clamp(self.lower, self.upper))
            return density.masked_fill(~inside.all(-1), -math.inf).cpu().numpy()

        start = self._draw_around_mode(num_walkers, seed)
        # Differential evolution: differences of walkers lead from mode to mode.
        sampler = emcee.EnsembleSampler(
            num_walkers, dim, log_density, moves=emcee.moves.DEMove(), vectorize=True
        )
        state = emcee.State(start.cpu().numpy(), random_state=MT19937(seed).state)
        last = sampler.run_mcmc(state, num_steps, store=False)
        return torch.as_tensor(last.coords[:num_samples], device=device)

    def starting_points(self, num_points: int, seed: int) -> Tensor:
        """Points from which to look for the mode.

        Args:
            num_points: The number of points.
            seed: The seed of the scrambled Sobol sequence.

        Returns:
            A ``num_points x batch_shape x p`` tensor. The first point is the priors'
            centre; the others fill a box around it, inside the bounds.
        """
        dim = len(self.centre)
        unit = SobolEngine(dim, scramble=True, seed=seed).draw(num_points)
        unit = unit.to(self.centre)
        reach = self._spread.clamp_max(1.0) * _START_REACH
        lower = torch.maximum(self.lower, self.centre - reach)
        upper = torch.minimum(self.upper, self.centre + reach)
        points = torch.lerp(lower, upper, unit)
        points[0] = self.centre
        return points.expand(*self.batch_shape, -1, -1).movedim(-2, 0)

    def _draw_around_mode(self, num_points: int, seed: int) -> Tensor:
        """Draw ``num_points x p`` points of the normal approximation at the mode."""
        mode, _ = self.maximize(num_restarts=2, seed=seed)
        # In units of the prior, than which the posterior is not wider: where the mode
        # lies at a bound, the curvature there says nothing.
        unit = torch.minimum(self._spread, self.upper - self.lower)
        curvature = -torch.autograd.functional.hessian(self.log_density, mode)
        precision, axes = torch.linalg.eigh(unit * curvature * unit.unsqueeze(-1))
        generator = torch.Generator(mode.device).manual_seed(seed)
        steps = mode.new_empty(num_points, len(mode)).normal_(generator=generator)
        points = mode + unit * (steps / precision.clamp_min(1.0).sqrt() @ axes.mT)
        # Points beyond a bound are reflected: on it they would share a coordinate.
        points = self.lower + (points - self.lower).abs()
        points = self.upper - (self.upper - points).abs()
        return torch.maximum(points, self.lower)

    def _log_density(self, parameters: Tensor, members: Tensor) -> Tensor:
        """The densities of ``k x p`` parameters, each of the data set it names."""
        values = self.natural(parameters)
        weights = torch.where(
            self.is_category,
            -values.lengthscale.reciprocal(),
            values.lengthscale.square().reciprocal() / -2,
        )
        if len(self._y) == 1:  # one matrix product, no copies of the distances
            exponent = (self._distances[0] @ weights.mT).movedim(-1, 0)
        else:
            exponent = torch.einsum("kijd,kd->kij", self._distances[members], weights)
        covariance = values.signal_variance[:, None, None] * exponent.exp()
        y = self._y[members]
        if self._noise is None:
            assert values.noise_variance is not None
            noise = values.noise_variance.unsqueeze(-1).expand_as(y)
        else:
            noise = self._noise[members]
        cholesky, info = torch.linalg.cholesky_ex(covariance + torch.diag_embed(noise))
        white = torch.linalg.solve_triangular(cholesky, y.unsqueeze(-1), upper=False)
        log_determinant = 2 * cholesky.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        log_likelihood = -(white.square().sum((-2, -1)) + log_determinant) / 2
        log_prior = -((parameters - self.centre) / self._spread).square().sum(-1) / 2
        density: Tensor = log_likelihood + log_prior
        return density.masked_fill(info != 0, -math.inf)


def _import_emcee() -> Any:
    """The sampler's library, which is not among the core dependencies."""
    try:
        import emcee
    except ImportError as error:
        raise ImportError(
            "Sampling hyperparameters needs emcee; install it with the extra `bayes`: "
            'pip install "botorch_res[bayes]".'
        ) from error
    return emcee


def _rounded(values: Tensor) -> str:
    """Numbers for a message: three digits each."""
    return ", ".join(f"{value:.3g}" for value in values.reshape(-1).tolist())
