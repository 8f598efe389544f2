"""Functions times a sign, plus a constant: constraints made from sampled outputs."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.sampling.batch_function import BatchFunction, Derivatives


class AffineFunction(BatchFunction):
    """A batch of functions ``sign * f + offset``.

    Attributes:
        function: The functions ``f``.
        sign: One or minus one.
        offset: ``sample_shape`` constants.
    """

    function: BatchFunction
    offset: Tensor

    def __init__(self, function: BatchFunction, sign: float, offset: Tensor) -> None:
        """Store the functions.

        Args:
            function: The functions ``f``.
            sign: One or minus one.
            offset: Constants that broadcast with the ``sample_shape`` of ``f``.
        """
        super().__init__()
        self.function = function
        self.sign = sign
        self.sample_shape = function.sample_shape
        self.dim = function.dim
        self.register_buffer("offset", offset.expand(self.sample_shape))

    @property
    def lengthscale(self) -> Tensor | None:  # type: ignore[override]
        """That of the functions."""
        return self.function.lengthscale

    @property
    def is_analytic(self) -> bool:  # type: ignore[override]
        """Whether the functions are."""
        return self.function.is_analytic

    def forward(self, z: Tensor) -> Tensor:
        """Evaluate the functions.

        Args:
            z: Points that broadcast with ``sample_shape x n x d``.

        Returns:
            ``sample_shape x n`` values.
        """
        values: Tensor = self.sign * self.function(z) + self.offset.unsqueeze(-1)
        return values

    def derivatives(self, z: Tensor, columns: Tensor) -> Derivatives:
        """Value, gradient and Hessian with respect to some columns.

        Args:
            z: ``sample_shape x n x d`` points, each function its own.
            columns: The indices of the ``k`` columns of ``z`` to differentiate by.

        Returns:
            The values and derivatives.
        """
        return self.derivative_table(columns)(z)

    def derivative_table(self, columns: Tensor) -> Callable[[Tensor], Derivatives]:
        """Prepare the derivatives with respect to some columns.

        Args:
            columns: The indices of the ``k`` columns of ``z`` to differentiate by.

        Returns:
            A function of ``sample_shape x n x d`` points, each function its own, that
            returns values and derivatives.
        """
        return AffineDerivatives(self, self.function.derivative_table(columns))

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
        return AffineValues(self, self.function.theta_table(thetas, domain))


class AffineValues:
    """The values at fixed thetas, from those of the functions."""

    def __init__(
        self, owner: AffineFunction, table: Callable[[Tensor], Tensor]
    ) -> None:
        """Store the table of the functions.

        Args:
            owner: The sign and the constants.
            table: Maps controllable parts to values.
        """
        self.owner, self.table = owner, table

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate the functions at all pairs.

        Args:
            x: Controllable parts that broadcast with ``sample_shape x b x d_x``.

        Returns:
            ``sample_shape x b x M`` values.
        """
        return self.owner.sign * self.table(x) + self.owner.offset[..., None, None]


class AffineDerivatives:
    """The derivatives, from those of the functions."""

    def __init__(
        self, owner: AffineFunction, table: Callable[[Tensor], Derivatives]
    ) -> None:
        """Store the table of the functions.

        Args:
            owner: The sign and the constants.
            table: Maps points to derivatives.
        """
        self.owner, self.table = owner, table

    def __call__(self, z: Tensor) -> Derivatives:
        """Differentiate at points.

        Args:
            z: ``sample_shape x n x d`` points, each function its own.

        Returns:
            The values and derivatives.
        """
        value, gradient, hessian = self.table(z)
        sign, offset = self.owner.sign, self.owner.offset.unsqueeze(-1)
        return Derivatives(sign * value + offset, sign * gradient, sign * hessian)
