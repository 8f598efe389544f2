"""The robust optimum of one function sample by nested SciPy searches."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from botorch_res.sampling import Expansion


class NestedSearch:
    """Multi-start searches for the worst case inside multi-start searches for ``x``.

    For samples of one controllable and one uncontrollable variable, in the unit square.
    """

    def __init__(
        self, samples: Expansion, index: int, num_outer: int, num_inner: int
    ) -> None:
        """Copy the sample to NumPy.

        Args:
            samples: The samples, of a squared exponential kernel.
            index: Which of them.
            num_outer: The number of starts for ``x``.
            num_inner: The number of starts for ``theta``.
        """
        self.w = samples.frequencies.numpy()
        self.r = samples.amplitudes[index].numpy()
        self.e = samples.angles[index].numpy()
        self.v = samples.kernel_weights[index].numpy()
        self.u = samples.centers.numpy()
        self.scale = samples.scale.numpy()[0]
        self.shift = samples.shift.numpy()[0]
        self.offset = samples.offset[index].item()
        self.outer = np.linspace(0.5 / num_outer, 1 - 0.5 / num_outer, num_outer)
        self.inner = np.linspace(0.0, 1.0, num_inner)

    def negative(self, theta: np.ndarray, x: float) -> tuple[float, np.ndarray]:
        """Minus the value, and minus its derivative by theta."""
        u = np.array([x, theta[0]]) / self.scale - self.shift
        phase = self.w @ u - self.e
        difference = u - self.u
        kernel = self.v * np.exp(-0.5 * (difference**2).sum(-1))
        value = self.offset + self.r @ np.cos(phase) + kernel.sum()
        slope = -(self.r * np.sin(phase)) @ self.w[:, 1] - kernel @ difference[:, 1]
        return -value, np.array([-slope / self.scale[1]])

    def worst(self, x: float) -> float:
        """The worst case by multi-start L-BFGS-B."""
        results = [
            minimize(self.negative, [s], (x,), "L-BFGS-B", jac=True, bounds=[(0, 1)])
            for s in self.inner
        ]
        return -min(result.fun for result in results)

    def solve(self) -> float:
        """The robust optimum by multi-start Nelder-Mead, which survives kinks."""
        return min(
            minimize(
                lambda x: self.worst(float(x[0])),
                [start],
                method="Nelder-Mead",
                bounds=[(0, 1)],
                options={"xatol": 1e-5, "fatol": 1e-5},
            ).fun
            for start in self.outer
        )
