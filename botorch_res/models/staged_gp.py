r"""Gaussian processes conditioned in stages, from factors made once.

A stage adds pseudo-observations ``a f(p) + N(0, r) = y`` at points ``p``: training
data, pending observations, or the scalar Gaussian sites of expectation propagation
(``a = sqrt(tau)``, ``r = 1``, ``y = nu / sqrt(tau)``). Let ``k(z)`` be the prior
covariances of ``f(z)`` with all points known so far. Each stage keeps a matrix ``W``
(the *whitener*) and a vector ``u`` such that

    mean(z) = m(z) + sum_stages u^T W k(z)
    cov(z, z') = k(z, z') - sum_stages (W k(z))^T (W k(z'))

For the training data ``W = L^-1`` and ``u = L^-1 (y - m)`` with ``L`` the Cholesky
factor of the noisy covariance. A later stage is one more block of rows of the same
factorisation, so a prediction is kernel vectors times cached matrices: no system is
solved and nothing is inverted. Each stage takes a sum of squares away, so no stage can
enlarge a variance, not even by rounding. Stages may differ from sample to sample
(leading dimensions, called ``sample_shape`` here) while earlier ones are shared.

Shapes: the model's ``batch_shape`` stands directly before the ``n x d`` of a set of
points, ``sample_shape`` before that. The fast layout puts many points along ``n``.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import pad

if TYPE_CHECKING:
    from botorch_res.models.exact_gp import ExactGPView


class JointPosterior(NamedTuple):
    """Moments of the noise-free function at sets of points, in the model's space.

    Attributes:
        mean: ``... x batch_shape x n``.
        covariance: ``... x batch_shape x n x n``.
    """

    mean: Tensor
    covariance: Tensor


class PairPosterior(NamedTuple):
    """Moments of the noise-free function at ``n`` pairs of points.

    Attributes:
        mean: ``sample_shape x batch_shape x n x 2``.
        covariance: ``sample_shape x batch_shape x n x 2 x 2``.
        previous_variance: Variance at the first point of each pair before the last
            stage; ``batch_shape x n``, with ``sample_shape`` if earlier stages have it.
    """

    mean: Tensor
    covariance: Tensor
    previous_variance: Tensor


class StagedGP(Module):
    """What all stages have in common: prediction, and adding the next stage.

    Attributes:
        parent: The process without this stage; ``None`` for the training data.
        points: ``... x batch_shape x m x d`` the points that this stage adds.
        whitener: ``... x batch_shape x r x known`` the matrix ``W`` of this stage, over
            all points known to it.
        whitened_residual: ``... x batch_shape x r`` its vector ``u``.
    """

    parent: StagedGP | None
    points: Tensor
    whitener: Tensor
    whitened_residual: Tensor

    @property
    def stages(self) -> list[StagedGP]:
        """All stages, from the training data to this one."""
        return [self] if self.parent is None else [*self.parent.stages, self]

    @property
    def root(self) -> ExactGPView:
        """The first stage, which knows the prior and the training data."""
        return cast("ExactGPView", self.stages[0])

    def _project(self, X: Tensor) -> list[list[Tensor]]:
        """Per stage, whitener times prior covariances with ``... x n x d`` points.

        Each product ``... x batch_shape x r x n`` is a list of blocks of rows.
        """
        covariances, whitened = [], []
        for stage in self.stages:
            covariances.append(self.root.prior_covariance(stage.points, X))
            whitened.append(_blockwise_product(stage.whitener, covariances))
        return whitened

    @property
    def num_known(self) -> int:
        """The number of points known so far."""
        return sum(stage.points.shape[-2] for stage in self.stages)

    @property
    def known_points(self) -> Tensor:
        """All points known so far, ``sample_shape x batch_shape x m x d``."""
        return self._known_points_and()

    def _known_points_and(self, *new: Tensor) -> Tensor:
        """All points known so far, followed by new ones."""
        sets = [*(stage.points for stage in self.stages), *new]
        shape = torch.broadcast_shapes(*(points.shape[:-2] for points in sets))
        return torch.cat([points.expand(*shape, -1, -1) for points in sets], dim=-2)

    def joint_posterior(self, X: Tensor) -> JointPosterior:
        """Joint posterior moments of the noise-free function, differentiable in ``X``.

        Args:
            X: ``... x batch_shape x n x d`` points in the model's space.

        Returns:
            The moments of each of the ``... x batch_shape`` sets of ``n`` points.
        """
        whitened = self._project(X)
        covariance = self.root.prior_covariance(X, X)
        for block in chain.from_iterable(whitened):
            covariance = covariance - block.mT @ block
        return JointPosterior(self._mean(X, whitened), covariance)

    def variance(self, X: Tensor) -> Tensor:
        """Posterior variance of the noise-free function at each point.

        Args:
            X: ``... x batch_shape x n x d`` points in the model's space.

        Returns:
            ``... x batch_shape x n`` variances; rounding may leave one below zero by
            about 1e-15 of the prior variance.
        """
        variance = self.root.prior_variance(X)
        for blocks in self._project(X):
            variance = variance - _squared_norm(blocks)
        return variance

    def pair_posterior(self, X: Tensor, partners: Tensor) -> PairPosterior:
        """Posterior of the pairs ``[f(X_j), f(partners_j)]``.

        Every sample has its own partners, while the first points are common to all of
        them, so that their covariances with the training data are computed once.

        Args:
            X: ``batch_shape x n x d`` points in the model's space.
            partners: ``sample_shape x batch_shape x kn x d`` partners: one for each
                point, then another one for each point, and so on.

        Returns:
            The moments of each of the ``kn`` pairs.
        """
        n = X.shape[-2]
        k = partners.shape[-2] // max(n, 1) or 1
        first = self._project(X)
        second = self._project(partners)
        own = self.root.prior_variance(X)
        repeated = _repeat(X.mT, k).mT
        previous, cross = own, self.root.prior_pair_covariance(repeated, partners)
        other = self.root.prior_variance(partners)
        for left, right in zip(first, second, strict=True):
            previous, own = own, own - _squared_norm(left)
            other = other - _squared_norm(right)
            for block, partner in zip(left, right, strict=True):
                product = block.unsqueeze(-2) * partner.unflatten(-1, (k, n))
                cross = cross - product.sum(dim=-3).flatten(-2)
        own_mean = _repeat(self._mean(X, first), k)
        mean = _stack([own_mean, self._mean(partners, second)])
        covariance = _stack([_repeat(own, k), cross, cross, other])
        return PairPosterior(
            mean, covariance.unflatten(-1, (2, 2)), _repeat(previous, k)
        )

    def with_observations(self, X: Tensor, Y: Tensor, noise: Tensor) -> GPStage:
        """Add observations at new points.

        Args:
            X: ``... x batch_shape x m x d`` points in the model's space.
            Y: ``... x batch_shape x m`` values in the model's space.
            noise: ``... x batch_shape x m`` noise variances; zero means exact.

        Returns:
            This process, conditioned on the observations. Its means vary over the
            leading dimensions of ``Y``, its covariances only over those of ``X`` and
            ``noise``.
        """
        _check_last_dimension("Y", Y, X.shape[-2])
        _check_last_dimension("noise", noise, X.shape[-2])
        known = self.num_known
        return GPStage(self, X, known, torch.ones_like(noise), noise, Y)

    def site_posterior(self, X: Tensor) -> JointPosterior:
        """Joint posterior at all known points followed by new ones.

        Args:
            X: ``... x batch_shape x m x d`` points in the model's space.

        Returns:
            Moments of the vector that ``with_sites`` speaks of.
        """
        return self.joint_posterior(self._known_points_and(X))

    def with_sites(
        self, X: Tensor, site_precision: Tensor, site_shift: Tensor
    ) -> GPStage:
        """Add one scalar Gaussian site at each new point, and at each known one.

        A site is the factor ``exp(-tau f^2 / 2 + nu f)``.

        Args:
            X: ``... x batch_shape x m x d`` new points in the model's space.
            site_precision: ``... x batch_shape x (known + m)`` precisions ``tau >= 0``
                at all known points followed by ``X``, or ``... x batch_shape x m`` at
                ``X`` only; zero means no site.
            site_shift: The shifts ``nu``, of the same shape.

        Returns:
            This process, conditioned on the sites.
        """
        known = self.num_known
        first = known if site_precision.shape[-1:] == X.shape[-2:-1] else 0
        total = known - first + X.shape[-2]
        _check_last_dimension("site_precision", site_precision, total)
        _check_last_dimension("site_shift", site_shift, total)
        scale = site_precision.sqrt()
        target = torch.where(scale > 0.0, site_shift / scale, 0.0)
        return GPStage(self, X, first, scale, torch.ones_like(scale), target)

    def _mean(self, X: Tensor, whitened: list[list[Tensor]]) -> Tensor:
        """Posterior mean from the projection of the points."""
        mean = self.root.prior_mean(X)
        for blocks, stage in zip(whitened, self.stages, strict=True):
            sizes = [block.shape[-2] for block in blocks]
            parts = stage.whitened_residual.split(sizes, dim=-1)
            for block, part in zip(blocks, parts, strict=True):
                mean = mean + (part.unsqueeze(-2) @ block).squeeze(-2)
        return mean


class GPStage(StagedGP):
    """A process with one more stage than its parent."""

    def __init__(
        self,
        parent: StagedGP,
        X: Tensor,
        first: int,
        scale: Tensor,
        noise: Tensor,
        target: Tensor,
    ) -> None:
        """Add pseudo-observations ``scale * f(p) + N(0, noise) = target``.

        Args:
            parent: The process to condition.
            X: ``... x batch_shape x m x d`` new points in the model's space.
            first: Index of the first observed point among the known points followed
                by ``X``; all from there on are observed.
            scale: ``... x batch_shape x r`` the factors ``a``.
            noise: ``... x batch_shape x r`` variances.
            target: ``... x batch_shape x r`` values.
        """
        super().__init__()
        self.parent = parent
        points = parent._known_points_and(X)
        total = points.shape[-2]
        observed = points[..., first:, :]
        whitened = parent._project(observed)
        mean = parent._mean(observed, whitened)
        covariance = parent.root.prior_covariance(observed, observed)
        rows = torch.eye(total, dtype=X.dtype, device=X.device)[first:]
        for blocks, stage in zip(whitened, parent.stages, strict=True):
            block = torch.cat(blocks, dim=-2)
            covariance = covariance - block.mT @ block
            missing = total - stage.whitener.shape[-1]
            rows = rows - block.mT @ pad(stage.whitener, (0, missing))
        column = scale.unsqueeze(-1)
        # A repair is announced by ``psd_safe_cholesky`` with the jitter it took.
        cholesky = psd_safe_cholesky(
            column * covariance * column.mT + torch.diag_embed(noise)
        )
        solve = torch.linalg.solve_triangular
        whitener = solve(cholesky, column * rows, upper=False)
        residual = (target - scale * mean).unsqueeze(-1)
        residual = solve(cholesky, residual, upper=False)
        if first == 0:
            # Any orthogonal matrix times ``W`` and ``u`` will do; this one makes ``W``
            # triangular, which saves a part of every product with it.
            rotation, whitener = torch.linalg.qr(whitener)
            residual = rotation.mT @ residual
        self.register_buffer("points", X)
        self.register_buffer("whitener", whitener)
        self.register_buffer("whitened_residual", residual.squeeze(-1))


def _blockwise_product(whitener: Tensor, covariances: list[Tensor]) -> list[Tensor]:
    """Multiply a whitener and covariances."""
    if len(covariances) == 1:
        return [whitener @ covariances[0]]
    sizes = [covariance.shape[-2] for covariance in covariances]
    # A square whitener over several sets of known points is upper triangular.
    square = whitener.shape[-2] == whitener.shape[-1]
    result = []
    for first, rows in enumerate(
        whitener.split(sizes if square else whitener.shape[-2], dim=-2)
    ):
        factors = rows.split(sizes, dim=-1)[first:]
        pairs = zip(factors, covariances[first:], strict=True)
        terms = [factor @ covariance for factor, covariance in pairs]
        result.append(sum(terms[1:], start=terms[0]))
    return result


def _squared_norm(blocks: list[Tensor]) -> Tensor:
    """Sum of squares of each column of a matrix in blocks of rows."""
    squares = [block.square().sum(dim=-2) for block in blocks]
    return sum(squares[1:], start=squares[0])


def _repeat(values: Tensor, times: int) -> Tensor:
    """Repeat values along the last dimension, all of them after all of them."""
    return values.unsqueeze(-2).expand(*values.shape[:-1], times, -1).flatten(-2)


def _stack(tensors: list[Tensor]) -> Tensor:
    """Broadcast tensors and stack them along a new last dimension."""
    return torch.stack(torch.broadcast_tensors(*tensors), dim=-1)


def _check_last_dimension(name: str, value: Tensor, expected: int) -> None:
    """Raise unless a tensor has one entry per point."""
    if value.ndim == 0 or value.shape[-1] != expected:
        raise BotorchTensorDimensionError(
            f"Expected {name} of shape `... x {expected}`, one value per point, but "
            f"got {tuple(value.shape)}."
        )
