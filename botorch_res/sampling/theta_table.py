r"""All values of a batch of expansions on a fixed set of thetas, as a matrix product.

A feature of ``z = (x, theta)`` is a sum of products of a factor in ``x`` and a factor
in ``theta`` (see the module of ``Expansion``). The factors of the fixed thetas are
computed once. The weights of the samples multiply one side. If all samples of a model
are evaluated at the same ``x``, and the memory suffices, they multiply the factors of
the thetas, once and for all. Otherwise they multiply the factors of ``x``.

Matern kernels do not factorise. Their part of the sum is evaluated pair by pair, from
squared distances that are sums over the two parts. In a column with a tolerance, where
``x`` and the deviation ``e`` add up, the squared exponential kernel factorises but for
one term, which does not depend on the centre ``c``:

    exp(-(x + e - c)^2 / 2) = exp(-(x - c)^2 / 2) exp(e c - e^2 / 2) exp(-e x).

All coordinates are from the middle of the settings. If the exponents are too large even
so, because a tolerance is many lengthscales wide, this kernel goes pair by pair, too.
Otherwise the factors neither overflow nor underflow where they matter, and since all
errors are relative to the terms of the sum, nothing is lost.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import Tensor

from botorch_res.checks import check_points
from botorch_res.domain import DomainPart, RobustDomain
from botorch_res.models.radial import radial_value, squared_distance
from botorch_res.sampling import memory

if TYPE_CHECKING:
    from botorch_res.sampling.expansion import Expansion


# The largest exponents of factors, as a share of the largest of the dtype: a product of
# two of them, and of their inverses, is still a number.
EXPONENT_SHARE = 0.4


class Tilt(NamedTuple):
    """The factors of the deviations for a squared exponential kernel.

    Attributes:
        places: ``k`` places of the columns with a tolerance among those of ``x``.
        middle: ``batch_shape x 1 x 1 x k`` scaled middle of the ``k`` columns with a
            tolerance.
        deviation: ``batch_shape x 1 x M x k`` scaled deviations in these columns.
        factors: ``batch_shape x 1 x M x t`` factors, one for each centre, with those of
            the other columns of theta.
    """

    places: Tensor
    middle: Tensor
    deviation: Tensor
    factors: Tensor


class ThetaTable:
    """Evaluates ``sample_shape`` expansions at all pairs of ``x`` and fixed thetas."""

    def __init__(
        self,
        expansion: Expansion,
        thetas: Tensor,
        domain: RobustDomain,
        slope: Tensor,
    ) -> None:
        """Compute the factors of the thetas.

        Args:
            expansion: The functions. Their input transform must be affine.
            thetas: ``M x d_theta`` uncontrollable parts.
            domain: Says which columns are controllable.
            slope: ``batch_shape x 1 x d`` derivative of each scaled column by the
                user's column.
        """
        check_points("theta", thetas, domain.theta.dim, "M")
        self.expansion = expansion
        self.domain = domain
        self.separable = math.isinf(expansion.smoothness) and not domain.tolerances
        points = domain.theta.embed(thetas)
        scaled = expansion.scaled(points)
        # A deviation is a difference of points, and scales as one.
        u = torch.where(domain.has_tolerance, slope * points, scaled)
        tolerances = domain.tolerances
        self.own = {
            part.name: part.index.new_tensor(
                [i for i, column in enumerate(part.columns) if column not in tolerances]
            )
            for part in (domain.x, domain.theta)
        }
        u = domain.theta.of(u).unsqueeze(-3)
        self.u = u
        self.factors = self._features(u, domain.theta)
        self.distance = self._distance(u, domain.theta)
        self.tilt = self._make_tilt() if domain.tolerances else None
        self.weighted = None
        if self.factors.numel() * expansion.num_samples <= memory.MAX_ELEMENTS:
            self.weighted = self._weigh(self.factors).flatten(-3, -2)

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate the functions at all pairs.

        Args:
            x: Controllable parts that broadcast with ``sample_shape x b x d_x``.

        Returns:
            ``sample_shape x b x M`` values.
        """
        shared = self.expansion.is_shared(x)
        u = self.domain.x.of(self.expansion.scaled(self.domain.x.embed(x)))
        # A model's samples stand next to the points, so that all of them are one large
        # product; before the models they would make it many small ones.
        has_samples = x.ndim == 2 + len(self.expansion.sample_shape)
        u = u.movedim(0, -3) if has_samples else u.unsqueeze(-3)
        features = self._features(u, self.domain.x)
        if shared and self.weighted is not None:
            values: Tensor = features.squeeze(-3) @ self.weighted.mT
            shape = (self.expansion.num_samples, -1)
            values = values.unflatten(-1, shape).transpose(-2, -3)
        else:
            weighted = self._weigh(features)
            values = weighted.flatten(-3, -2) @ self.factors.squeeze(-3).mT
            values = values.unflatten(-2, weighted.shape[-3:-1])
        if self.tilt is not None:
            values = values + self._tilted_kernel(u, shared)
        elif not self.separable and self.expansion.centers.shape[-2]:
            values = values + self._kernel(u, shared)
        return values.movedim(-3, 0) + self.expansion.offset[..., None, None]

    def _features(self, u: Tensor, part: DomainPart) -> Tensor:
        """Compute the cosines, sines and, if separable, kernels of one part."""
        phase = u @ part.of(self.expansion.frequencies).unsqueeze(-3).mT
        factors = [phase.cos(), phase.sin()]
        if self.separable:
            distance = self._distance(u, part)
            factors.append(radial_value(distance, self.expansion.smoothness))
        return torch.cat(factors, dim=-1)

    def _distance(self, u: Tensor, part: DomainPart) -> Tensor:
        """One part's share of the ``... x n x t`` squared distances to the centres."""
        # Without the columns with a tolerance, in which both parts have a share.
        own = self.own[part.name]
        centers = part.of(self.expansion.centers).index_select(-1, own).unsqueeze(-3)
        u = u.index_select(-1, own)
        return squared_distance(u, centers, self.expansion.smoothness)

    def _weigh(self, factors: Tensor) -> Tensor:
        """Multiply the factors of one part by the weights of the samples."""
        a, b, v = (
            weights.movedim(0, -2).unsqueeze(-2)
            for weights in (
                self.expansion.cosines,
                self.expansion.sines,
                self.expansion.kernel_weights,
            )
        )
        waves = a.shape[-1]
        cosine, sine = factors[..., :waves], factors[..., waves : 2 * waves]
        weighted = [a * cosine + b * sine, b * cosine - a * sine]
        if self.separable:
            weighted.append(v * factors[..., 2 * waves :])
        return torch.cat(weighted, dim=-1)

    def _make_tilt(self) -> Tilt | None:
        """Factorise the kernel in the columns with a tolerance, if that is possible."""
        expansion, domain = self.expansion, self.domain
        if not math.isinf(expansion.smoothness):
            return None
        columns = list(domain.tolerances)
        lower, upper = domain.bounds
        middle = expansion.scaled(torch.lerp(lower, upper, 0.5).unsqueeze(-2))
        middle = middle[..., columns].unsqueeze(-3)
        # Theta's first columns are those with a tolerance, in the same order.
        deviation = self.u[..., : len(columns)]
        center = expansion.centers[..., columns].unsqueeze(-3) - middle
        corner = expansion.scaled(torch.stack([lower, upper]))
        corner = corner[..., columns].unsqueeze(-3) - middle
        norm = deviation.square().sum(dim=-1, keepdim=True)
        product = deviation @ center.mT
        sizes = [norm, product, deviation.abs() @ corner.abs().mT]
        largest = torch.stack([size.abs().amax() for size in sizes if size.numel()])
        limit = EXPONENT_SHARE * math.log(torch.finfo(norm.dtype).max)
        if not bool((largest <= limit).all()):
            return None
        factors = (product - 0.5 * norm - 0.5 * self.distance).exp()
        places = [domain.x.columns.index(column) for column in columns]
        return Tilt(domain.x.index.new_tensor(places), middle, deviation, factors)

    def _tilted_kernel(self, u: Tensor, shared: bool) -> Tensor:
        """The squared exponential kernel's part, by a product and a factor of pairs."""
        tilt, part = cast(Tilt, self.tilt), self.domain.x
        weights = self.expansion.kernel_weights.movedim(0, -2).unsqueeze(-2)
        centers = part.of(self.expansion.centers).unsqueeze(-3)
        smoothness = self.expansion.smoothness
        kernel = radial_value(squared_distance(u, centers, smoothness), smoothness)
        if shared and self.weighted is not None:
            weighted = (weights * tilt.factors).flatten(-3, -2)
            values = kernel.squeeze(-3) @ weighted.mT
            shape = (self.expansion.num_samples, -1)
            values = values.unflatten(-1, shape).transpose(-2, -3)
        else:
            weighted = weights * kernel
            values = weighted.flatten(-3, -2) @ tilt.factors.squeeze(-3).mT
            values = values.unflatten(-2, weighted.shape[-3:-1])
        setting = u.index_select(-1, tilt.places)
        exponent = (tilt.middle - setting) @ tilt.deviation.mT
        product: Tensor = values * exponent.exp()
        return product

    def _kernel(self, u: Tensor, shared: bool) -> Tensor:
        """The kernel's part of the sum, pair by pair, in chunks of bounded memory."""
        weights = self.expansion.kernel_weights.movedim(0, -2)
        # One product for all samples of a model, or distances for each sample.
        if shared:
            weights = weights.mT[..., None, None, :, :]
        else:
            weights = weights[..., None, :, None]
        pairs = u.shape[:-2].numel() * self.distance.shape[-2:].numel()
        rows = max(1, memory.piece_size(u.device) // pairs)
        chunks = []
        for part in u.split(rows, dim=-2):
            kernel = radial_value(self._pairs(part), self.expansion.smoothness)
            chunks.append(kernel @ weights)
        values = torch.cat(chunks, dim=-3)
        return values.squeeze(-4).movedim(-1, -3) if shared else values.squeeze(-1)

    def _pairs(self, u: Tensor) -> Tensor:
        """The ``... x n x M x t`` squared distances of all pairs to the centres."""
        x, theta = self.domain.x, self.domain.theta
        distance = self._distance(u, x).unsqueeze(-2) + self.distance.unsqueeze(-3)
        for column in self.domain.tolerances:
            center = self.expansion.centers[..., None, None, :, column]
            setting = u[..., x.columns.index(column), None] - center
            deviation = self.u[..., theta.columns.index(column), None]
            total = setting.unsqueeze(-2) + deviation.unsqueeze(-3)
            distance = distance + total.square()
        return distance
