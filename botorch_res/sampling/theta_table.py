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
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from botorch_res.checks import check_points
from botorch_res.domain import DomainPart, RobustDomain
from botorch_res.models.radial import squared_distance
from botorch_res.sampling import memory

if TYPE_CHECKING:
    from botorch_res.sampling.expansion import Expansion


# The largest exponents of factors, as a share of the largest of the dtype: a product of
# two of them, and of their inverses, is still a number.
EXPONENT_SHARE = 0.4


class Factors(NamedTuple):
    """What the factors of one part of the domain are made of.

    Attributes:
        frequencies: ``batch_shape x 1 x d_part x F`` frequencies of its columns.
        own: Places of the columns of the part in which the other one has no share, or
            ``None`` for all.
        shares: For each factor of the kernel the shares of its own columns, see
            ``RadialKernel``, or ``None`` for one.
        centers: For each factor of the kernel the ``batch_shape x 1 x t x d_own``
            centres in its own columns.
    """

    frequencies: Tensor
    own: Tensor | None
    shares: list[Tensor | None]
    centers: list[Tensor]

    def distances(self, u: Tensor, smoothness: Sequence[float]) -> list[Tensor]:
        """The part's share of the squared distances to the centres.

        Args:
            u: ``... x n x d_part`` scaled columns of the part.
            smoothness: Matern's ``nu`` of each factor of the kernel.

        Returns:
            For each factor of the kernel ``... x n x t`` squared distances.
        """
        if self.own is not None:
            u = u.index_select(-1, self.own)
        factors = zip(self.shares, self.centers, smoothness, strict=True)
        return [
            squared_distance(u if share is None else share * u, center, nu)
            for share, center, nu in factors
        ]


class Tilt(NamedTuple):
    """What a squared exponential kernel needs besides factors, with tolerances.

    Attributes:
        product: The product of the factors, one for each centre.
        places: ``k`` places of the columns with a tolerance among those of ``x``.
        middle: ``batch_shape x 1 x 1 x k`` scaled middle of the ``k`` columns with a
            tolerance.
        deviation: ``batch_shape x 1 x M x k`` scaled deviations in these columns.
    """

    product: FactorProduct
    places: Tensor
    middle: Tensor
    deviation: Tensor


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
        self.offset = expansion.offset[..., None, None]
        points = domain.theta.embed(thetas)
        kernel = expansion.kernel
        is_smooth = kernel.shares is None and kernel.is_analytic
        self.separable = is_smooth and not domain.tolerances
        # A deviation is a difference of points, and scales as one.
        u = expansion.scaled(points)
        if domain.tolerances:
            u = torch.where(domain.has_tolerance, slope * points, u)
        self.x, self.theta = map(self._make_factors, (domain.x, domain.theta))
        self.u = domain.theta.of(u).unsqueeze(-3)
        self.distances = self.theta.distances(self.u, kernel.smoothness)
        names = ["cosines", "sines"] + ["kernel_weights"] * self.separable
        self.waves = self._make_product(names, self._features(self.u, self.theta))
        self.tilt = self._make_tilt() if domain.tolerances and is_smooth else None

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate the functions at all pairs.

        Args:
            x: Controllable parts that broadcast with ``sample_shape x b x d_x``.

        Returns:
            ``sample_shape x b x M`` values.
        """
        return self._evaluate(x, None)

    def _evaluate(self, x: Tensor, level: Tensor | None) -> Tensor:
        """Evaluate the functions, at ``x`` of given levels if there are levels."""
        shared = self.expansion.is_shared(x)
        u = self.domain.x.of(self.expansion.scaled(self.domain.x.embed(x)))
        # A model's samples stand next to the points, so that all of them are one large
        # product; before the models they would make it many small ones.
        has_samples = x.ndim == 2 + len(self.expansion.sample_shape)
        u = u.movedim(0, -3) if has_samples else u.unsqueeze(-3)
        values = self.waves(self._features(u, self.x), shared, level)
        if self.tilt is not None:
            values = values + self._tilted_kernel(self.tilt, u, shared, level)
        elif not self.separable and self.expansion.centers.shape[-2]:
            values = values + self._kernel(u, shared, level)
        return values.movedim(-3, 0) + self.offset

    def _make_factors(self, part: DomainPart) -> Factors:
        """Prepare the factors of one part."""
        expansion, tolerances = self.expansion, self.domain.tolerances
        frequencies = part.of(expansion.frequencies).unsqueeze(-3).mT
        places = [i for i, c in enumerate(part.columns) if c not in tolerances]
        own = None if not tolerances else part.index.new_tensor(places)
        columns = part.index if own is None else part.index[own]
        shares: list[Tensor | None] = [None]
        if expansion.kernel.shares is not None:
            selected = expansion.kernel.shares.index_select(-1, columns)
            shares = list(selected.unsqueeze(-3))
        center = expansion.centers.index_select(-1, columns).unsqueeze(-3)
        centers = [center if share is None else share * center for share in shares]
        return Factors(frequencies, own, shares, centers)

    def _features(self, u: Tensor, part: Factors) -> Tensor:
        """Compute the cosines, sines and, if separable, kernels of one part."""
        phase = u @ part.frequencies
        factors = [phase.cos(), phase.sin()]
        if self.separable:
            kernel = self.expansion.kernel
            factors.append(kernel.value(part.distances(u, kernel.smoothness)))
        return torch.cat(factors, dim=-1)

    def _make_product(self, names: Sequence[str], factors: Tensor) -> FactorProduct:
        """Make the product with factors of the thetas and weights of the samples."""
        weights = [getattr(self.expansion, name).movedim(0, -2) for name in names]
        waves = self.expansion.frequencies.shape[-2] if "cosines" in names else 0
        return FactorProduct(factors, torch.cat(weights, dim=-1).unsqueeze(-2), waves)

    def _make_tilt(self) -> Tilt | None:
        """Factorise the kernel in the columns with a tolerance, if that is possible."""
        expansion, domain = self.expansion, self.domain
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
        factors = (product - 0.5 * norm - 0.5 * self.distances[0]).exp()
        places = [domain.x.columns.index(column) for column in columns]
        return Tilt(
            self._make_product(["kernel_weights"], factors),
            domain.x.index.new_tensor(places),
            middle,
            deviation,
        )

    def _tilted_kernel(
        self, tilt: Tilt, u: Tensor, shared: bool, level: Tensor | None
    ) -> Tensor:
        """The squared exponential kernel's part, by a product and a factor of pairs."""
        kernel = self.expansion.kernel
        centers = self.domain.x.of(self.expansion.centers).unsqueeze(-3)
        own = kernel.value([squared_distance(u, centers, kernel.smoothness[0])])
        setting = u.index_select(-1, tilt.places)
        exponent = (tilt.middle - setting) @ tilt.deviation.mT
        product: Tensor = tilt.product(own, shared, level) * exponent.exp()
        return product

    def _kernel(self, u: Tensor, shared: bool, level: Tensor | None) -> Tensor:
        """The kernel's part of the sum, pair by pair, in chunks of bounded memory."""
        pairs = u.shape[:-2].numel() * self.distances[0].shape[-2:].numel()
        rows = max(1, memory.piece_size(u.device) // pairs)
        chunks = []
        for i in range(0, u.shape[-2], rows):
            own = None if level is None else level[..., i : i + rows]
            kernel = self._pairs(u[..., i : i + rows, :])
            chunks.append(self._sum_pairs(kernel, shared, own))
        return torch.cat(chunks, dim=-2)

    def _sum_pairs(self, kernel: Tensor, shared: bool, level: Tensor | None) -> Tensor:
        """Sum ``... x b x M x t`` kernels of pairs with the weights of the samples."""
        weights = self.expansion.kernel_weights.movedim(0, -2)
        # One product for all samples of a model, or distances for each sample.
        if shared:
            values = kernel.squeeze(-4) @ weights.mT[..., None, :, :]
            return values.movedim(-1, -3)
        return (kernel @ weights[..., None, :, None]).squeeze(-1)

    def _pairs(self, u: Tensor) -> Tensor:
        """The ``... x n x M x t`` kernels of all pairs and all centres."""
        kernel, domain = self.expansion.kernel, self.domain
        distances = [
            own.unsqueeze(-2) + other.unsqueeze(-3)
            for own, other in zip(
                self.x.distances(u, kernel.smoothness), self.distances, strict=True
            )
        ]
        for column in domain.tolerances:
            center = self.expansion.centers[..., None, None, :, column]
            setting = u[..., domain.x.columns.index(column), None] - center
            deviation = self.u[..., domain.theta.columns.index(column), None]
            gap = setting.unsqueeze(-2) + deviation.unsqueeze(-3)
            shares = [1.0] if kernel.shares is None else kernel.shares[..., column]
            for i, share in enumerate(shares):
                own = (
                    share if isinstance(share, float) else share[..., None, None, None]
                )
                distances[i] = distances[i] + (own * gap).square()
        return kernel.value(distances)


class FactorProduct:
    """Multiplies factors of ``x`` and of fixed thetas, one side with weights.

    Attributes:
        factors: ``batch_shape x 1 x M x F`` factors of the thetas.
        weights: ``batch_shape x C x 1 x F`` weights of the samples.
        waves: The number of cosines among the factors, with as many sines behind them.
        weighted: ``batch_shape x C M x F`` factors of the thetas with weights; ``None``
            if they would be too large.
    """

    weighted: Tensor | None

    def __init__(self, factors: Tensor, weights: Tensor, waves: int) -> None:
        """Multiply the factors of the thetas by the weights, if they fit in memory.

        Args:
            factors: ``batch_shape x 1 x M x F`` factors of the thetas.
            weights: ``batch_shape x C x 1 x F`` weights of the samples.
            waves: The number of cosines among the factors.
        """
        self.factors = factors
        self.weights = weights
        self.waves = waves
        self.weighted = None
        if factors.numel() * weights.shape[-3] <= memory.MAX_ELEMENTS:
            self.weighted = self.weigh(factors, weights).flatten(-3, -2)

    def __call__(self, own: Tensor, shared: bool, level: Tensor | None) -> Tensor:
        """Multiply with the factors of ``x``.

        Args:
            own: ``batch_shape x C x b x F`` factors; with ``1`` for ``C`` if shared.
            shared: Whether all samples of a model share them.
            level: Ignored.

        Returns:
            ``batch_shape x C x b x M`` values.
        """
        if shared and self.weighted is not None:
            shape = (self.weights.shape[-3], -1)
            product = (own.squeeze(-3) @ self.weighted.mT).unflatten(-1, shape)
            values: Tensor = product.transpose(-2, -3)
        else:
            own = self.weigh(own, self.weights)
            product = own.flatten(-3, -2) @ self.factors.squeeze(-3).mT
            values = product.unflatten(-2, own.shape[-3:-1])
        return values

    def weigh(self, factors: Tensor, weights: Tensor) -> Tensor:
        """Multiply factors by weights.

        Args:
            factors: ``... x F`` factors, cosines and sines first.
            weights: ``... x F`` weights that broadcast with them.

        Returns:
            ``... x F`` weighted factors. Products with the factors of the other part
            are the terms of the functions.
        """
        if self.waves == 0:
            return weights * factors
        sizes = [self.waves, self.waves, factors.shape[-1] - 2 * self.waves]
        cosine, sine, kernel = factors.split(sizes, dim=-1)
        a, b, v = weights.split(sizes, dim=-1)
        parts = [a * cosine + b * sine, b * cosine - a * sine]
        if sizes[-1]:
            parts.append(v * kernel)
        return torch.cat(parts, dim=-1)
