"""Quadrature rules and polynomials. Their numbers are copied to a device only once."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_ON_DEVICE: dict[tuple[tuple[float, ...], torch.device], Tensor] = {}


def constants(values: tuple[float, ...], like: Tensor) -> Tensor:
    """Make a float64 vector of ``values``, copied to a device once and kept there.

    Otherwise every call would wait for a copy from the host. Tensor subclasses (fake
    tensors) and traced tensors belong to the mode that made them and are not kept.

    Args:
        values: The numbers.
        like: A tensor on the device to use.

    Returns:
        The numbers as a tensor. Do not write to it.
    """
    key = (values, like.device)
    if type(like) is not Tensor or torch.compiler.is_compiling():
        return torch.tensor(values, dtype=torch.float64, device=like.device)
    if key not in _ON_DEVICE:
        with torch.inference_mode(False):
            _ON_DEVICE[key] = torch.tensor(
                values, dtype=torch.float64, device=like.device
            )
    return _ON_DEVICE[key]


def column(values: tuple[float, ...], like: Tensor) -> Tensor:
    """Put ``constants`` into a new first dimension that broadcasts against ``like``.

    Everywhere, nodes come first and batches last. The inner loops of all operations
    then run along the batch, several times as fast on a CPU as along the nodes.

    Args:
        values: The numbers.
        like: The tensor to broadcast against, on the device to use.

    Returns:
        The numbers, ``len(values) x 1 x ... x 1``.
    """
    return constants(values, like).view(-1, *(1,) * like.dim())


def gauss_legendre(num_nodes: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Make the Gauss-Legendre rule on the unit interval.

    Args:
        num_nodes: The number of nodes.

    Returns:
        Nodes in (0, 1), and weights that sum to one.
    """
    nodes, weights = np.polynomial.legendre.leggauss(num_nodes)
    return tuple((0.5 + 0.5 * nodes).tolist()), tuple((0.5 * weights).tolist())


def horner(coefficients: Tensor, x: Tensor) -> Tensor:
    """Evaluate a polynomial by Horner's rule, with one fused operation per degree.

    Args:
        coefficients: The coefficients, lowest order first.
        x: The argument, of any shape.

    Returns:
        The value, of the shape of ``x``.
    """
    *lower, second, first = coefficients.unbind()
    value = torch.addcmul(second, first, x)
    for coefficient in reversed(lower):
        torch.addcmul(coefficient, value, x, out=value)
    return value


def transplanted_gauss_legendre(
    num_nodes: int,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Make a Gauss-Legendre rule on the unit interval with nodes spread more evenly.

    Gauss-Legendre nodes crowd at the ends, which bell-shaped integrands do not need.
    The map ``(120 x + 20 x^3 + 9 x^5) / 149`` undoes much of it [Hale2008new]_. Here it
    saves an eighth to a quarter of the nodes.

    Args:
        num_nodes: The number of nodes.

    Returns:
        Nodes in (0, 1), and weights.
    """
    x, weights = np.polynomial.legendre.leggauss(num_nodes)
    nodes = (120.0 * x + 20.0 * x**3 + 9.0 * x**5) / 149.0
    weights = weights * (120.0 + 60.0 * x**2 + 45.0 * x**4) / 149.0
    return tuple((0.5 + 0.5 * nodes).tolist()), tuple((0.5 * weights).tolist())
