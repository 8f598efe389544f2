r"""Batches of functions that are finite expansions in cosines and kernels.

Posterior samples and posterior means of Gaussian processes with a stationary kernel
have the form

    f_c(z) = o + sum_i a_ci cos(w_i.u) + b_ci sin(w_i.u) + sum_j v_cj k(|u - u_j|),

where ``u`` is the point ``z`` in units of the lengthscales (after the model's input
transform). Values and derivatives have closed forms. The cosines and the squared
exponential kernel factorise into a part that depends on ``x`` and a part that depends
on ``theta``: with ``p = w_x.u_x`` and ``q = w_t.u_t``

    a cos(p + q) + b sin(p + q)
        = cos(p) (a cos(q) + b sin(q)) + sin(p) (b cos(q) - a sin(q)),

so that on a fixed set of thetas all values ``f_c(x_j, theta_m)`` are one matrix
product.

The weights ``a``, ``b`` and ``v`` can depend on the level of ``z``: on listed values of
some columns, see ``Levels``.

References:
.. [Rahimi2007random]
    A. Rahimi and B. Recht. Random features for large-scale kernel machines. Advances in
    Neural Information Processing Systems 20, 2007.
.. [Wilson2020efficiently]
    J. T. Wilson, V. Borovitskiy, A. Terenin, P. Mostowsky and M. P. Deisenroth.
    Efficiently sampling functions from Gaussian process posteriors. ICML 2020.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError
from torch import Tensor
from torch.nn import Module

from botorch_res.domain import RobustDomain
from botorch_res.sampling import memory
from botorch_res.sampling.batch_function import BatchFunction, Derivatives
from botorch_res.sampling.derivative_table import DerivativeTable
from botorch_res.sampling.level_table import LevelTable
from botorch_res.sampling.levels import Levels, at_levels
from botorch_res.sampling.radial_kernel import RadialKernel
from botorch_res.sampling.theta_table import ThetaTable


class Expansion(BatchFunction):
    """A batch of expansions in cosines and in a stationary kernel.

    Attributes:
        frequencies: ``batch_shape x F x d`` angular frequencies ``w``.
        cosines: ``sample_shape x F`` weights ``a``, or ``sample_shape x L x F`` if they
            depend on the level.
        sines: Weights ``b`` of the same shape.
        centers: ``batch_shape x t x d`` scaled points ``u_j``.
        kernel_weights: ``sample_shape x t`` weights ``v``, including the kernel's
            variance, or ``sample_shape x L x t``.
        offset: ``sample_shape`` constants ``o``.
        kernel: The kernel ``k``.
        levels: The levels, or ``None`` if there are none.
    """

    frequencies: Tensor
    cosines: Tensor
    sines: Tensor
    amplitudes: Tensor
    angles: Tensor
    centers: Tensor
    kernel_weights: Tensor
    offset: Tensor
    shift: Tensor
    scale: Tensor
    slope: Tensor | None

    def __init__(
        self,
        frequencies: Tensor,
        cosines: Tensor,
        sines: Tensor,
        centers: Tensor,
        kernel_weights: Tensor,
        offset: Tensor,
        kernel: RadialKernel,
        scale: Tensor | None = None,
        shift: Tensor | None = None,
        input_transform: Module | None = None,
        slope: Tensor | None = None,
        levels: Levels | None = None,
    ) -> None:
        """Store an expansion; ``u = input_transform(z) / scale - shift``.

        Args:
            frequencies: ``batch_shape x F x d`` angular frequencies.
            cosines: ``sample_shape x F`` weights of the cosines; with ``levels``,
                ``sample_shape x L x F``.
            sines: The same for the sines.
            centers: ``batch_shape x t x d`` scaled points, ``t`` may be zero.
            kernel_weights: ``sample_shape x t`` weights of the kernels; with
                ``levels``, ``sample_shape x L x t``.
            offset: ``sample_shape`` constants.
            kernel: The kernel.
            scale: ``batch_shape x 1 x d`` lengthscales; one if ``None``.
            shift: ``batch_shape x 1 x d`` origin; zero if ``None``.
            input_transform: The model's input transform.
            slope: ``batch_shape x 1 x d`` derivative of each column of ``u`` by the
                same column of ``z``. With an input transform that is not an affine map
                of each column it must be ``None``; derivatives then use autograd.
            levels: The levels on which the weights depend, if they do.
        """
        super().__init__()
        one = torch.ones_like(frequencies[..., :1, :])
        scale = one if scale is None else scale
        if input_transform is None and slope is None:
            slope = 1.0 / scale
        self.sample_shape = cosines.shape[: -1 if levels is None else -2]
        for name, tensor in (
            ("frequencies", frequencies),
            ("cosines", cosines),
            ("sines", sines),
            # a cos(p) + b sin(p) = r cos(p - e): half as many cosines to compute.
            ("amplitudes", torch.hypot(cosines, sines)),
            ("angles", torch.atan2(sines, cosines)),
            ("centers", centers),
            ("kernel_weights", kernel_weights),
            ("offset", offset.expand(self.sample_shape)),
            ("scale", scale),
            ("shift", torch.zeros_like(one) if shift is None else shift),
            ("slope", slope),
        ):
            self.register_buffer(name, tensor)
        self.kernel = kernel
        self.levels = levels
        self.input_transform = input_transform
        # A transform that is not affine can change the number of columns.
        self.dim = None if slope is None else slope.shape[-1]

    @property
    def num_samples(self) -> int:
        """The number ``C`` of functions (for each model of a batch)."""
        return self.sample_shape[0]

    @property
    def lengthscale(self) -> Tensor | None:  # type: ignore[override]
        """Distance over which the functions change, in the user's units.

        This is the smallest lengthscale of a batch of models. For Matern kernels it is
        a fraction of that, because their functions wiggle more within a lengthscale.
        """
        return None if self.slope is None else self.kernel.lengthscale(self.slope)

    @property
    def is_analytic(self) -> bool:  # type: ignore[override]
        """Whether the kernel is squared exponential, also in the user's units."""
        return self.kernel.is_analytic and self.slope is not None

    def scaled(self, z: Tensor) -> Tensor:
        """Map points to the space in which the expansion is stationary.

        Args:
            z: Points that broadcast with ``sample_shape x n x d``.

        Returns:
            The scaled points ``u``, with a ``batch_shape``.
        """
        if self.dim not in (None, z.shape[-1]) or not self.accepts(z):
            raise BotorchTensorDimensionError(
                f"Expected `z` of shape n x d or {tuple(self.sample_shape)} x n x d "
                f"with d = {self.dim}, got shape {tuple(z.shape)}."
            )
        points = z if self.input_transform is None else self.input_transform(z)
        return points / self.scale - self.shift

    def forward(self, z: Tensor) -> Tensor:
        """Evaluate the functions.

        Args:
            z: Points that broadcast with ``sample_shape x n x d``.

        Returns:
            ``sample_shape x n`` values, NaN at points that are not finite.
        """
        width = self.frequencies.shape[-2] + self.centers.shape[-2]
        rows = max(1, memory.MAX_ELEMENTS // (width * (z.shape[:-2].numel())))
        if z.shape[-2] > rows:
            return torch.cat([self(part) for part in z.split(rows, dim=-2)], dim=-1)
        u = self.scaled(z)
        # For a single sample of each model the other way computes half as many cosines.
        shared = self.levels is None and self.is_shared(z) and self.num_samples > 1
        if not shared:
            u = u.expand(*self.sample_shape, *u.shape[-2:])
        phase = u @ self.frequencies.mT
        kernel = self.kernel.value(self.kernel.distances(u, self.centers))
        if shared:
            features = torch.cat([phase.cos(), phase.sin(), kernel], dim=-1)
            weights = torch.cat([self.cosines, self.sines, self.kernel_weights], dim=-1)
            if z.ndim == 2 + len(self.sample_shape):
                features = features.squeeze(0)
            # One product for each model, of all its samples.
            values = (weights.movedim(0, -2) @ features.mT).movedim(-2, 0)
        elif self.levels is None:
            phase = phase - self.angles.unsqueeze(-2)
            features = torch.cat([phase.cos(), kernel], dim=-1)
            weights = torch.cat([self.amplitudes, self.kernel_weights], dim=-1)
            values = (features @ weights.unsqueeze(-1)).squeeze(-1)
        else:
            self.levels.check(z)
            level = self.levels.index(z.expand(*self.sample_shape, *z.shape[-2:]))
            weights = torch.cat(
                [self.angles, self.amplitudes, self.kernel_weights], dim=-1
            )
            weights = at_levels(weights, level.unsqueeze(-3)).squeeze(-4)
            angles, weights = weights.tensor_split([phase.shape[-1]], dim=-1)
            features = torch.cat([(phase - angles).cos(), kernel], dim=-1)
            values = (features * weights).sum(dim=-1)
        return self.offset.unsqueeze(-1) + values

    def derivative_table(self, columns: Tensor) -> Callable[[Tensor], Derivatives]:
        """Prepare the derivatives with respect to some columns.

        Args:
            columns: The indices of the ``k`` columns of ``z`` to differentiate by.

        Returns:
            A function of ``sample_shape x n x d`` points, each function its own, that
            returns values and derivatives.
        """
        if self.slope is None:
            return super().derivative_table(columns)
        return DerivativeTable(self, columns, self.slope)

    def derivatives(self, z: Tensor, columns: Tensor) -> Derivatives:
        """Value, gradient and Hessian with respect to some columns, in closed form.

        Args:
            z: ``sample_shape x n x d`` points, each function its own.
            columns: The indices of the ``k`` columns of ``z`` to differentiate by.

        Returns:
            The values and derivatives, detached from any graph.
        """
        if self.slope is None:
            return super().derivatives(z, columns)
        return DerivativeTable(self, columns, self.slope)(z)

    def theta_table(
        self, thetas: Tensor, domain: RobustDomain
    ) -> Callable[[Tensor], Tensor]:
        """Prepare the evaluation on a fixed set of thetas.

        Args:
            thetas: ``M x d_theta`` uncontrollable parts.
            domain: The domain, which knows the controllable columns.

        Returns:
            A function of controllable parts that broadcast with ``sample_shape x b x
            d_x``. It returns the ``sample_shape x b x M`` values at all pairs.
        """
        if self.slope is None:
            return super().theta_table(thetas, domain)
        table = ThetaTable if self.levels is None else LevelTable
        return table(self, thetas, domain, self.slope)
