r"""How BoTorch's registry, and through it Ax, builds ``qRobustEntropySearch``.

Importing the package registers the constructor, so that
``get_acqf_input_constructor(qRobustEntropySearch)`` finds it. A ``RobustDomain``
describes the domain, or plain lists do, which can be saved as JSON.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.models.model import Model
from botorch.utils.datasets import SupervisedDataset
from torch import Tensor

from botorch_res.acquisition.robust_entropy_search import qRobustEntropySearch
from botorch_res.domain import RobustDomain
from botorch_res.domain.part import ROUNDING

Dataset = SupervisedDataset | dict[Hashable, SupervisedDataset]
# All values of a part of the domain, or those of some columns, by index or name.
Choices = Sequence[Sequence[float]] | Mapping[int | str, Sequence[float]]


@acqf_input_constructor(qRobustEntropySearch)
def construct_inputs_qRES(
    model: Model,
    training_data: Dataset | None = None,
    bounds: Sequence[tuple[float, float]] | None = None,
    domain: RobustDomain | None = None,
    uncontrollable: Sequence[int | str] | None = None,
    x_choices: Choices | None = None,
    theta_choices: Choices | None = None,
    discrete_choices: Mapping[int, Sequence[float]] | None = None,
    tolerances: Mapping[int | str, float | Sequence[float]] | None = None,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    objective: Any = None,
    constraints: Any = None,
    constraints_tuple: Any = None,
    num_samples: int = 16,
    maximize: bool = True,
    target: str = "optimum",
    num_features: int = 512,
    method: str = "matheron",
    effort: float = 1.0,
    max_elements: int = 2**22,
    seed: int | None = None,
) -> dict[str, Any]:
    r"""Construct the arguments of ``qRobustEntropySearch``.

    The domain is ``domain``, or it is made from ``bounds``, ``uncontrollable``,
    ``tolerances`` and at most one description of finite sets: ``x_choices`` and
    ``theta_choices``, or ``discrete_choices``. All are in the units of the model's
    inputs. In Ax these are mostly the user's units. There are two exceptions:
    parameters on a logarithmic or logit scale (which Ax can also choose for ordered
    choices), and choices that are not numbers. Therefore ``botorch_res.acquisition.ax``
    takes the choices from Ax.

    Args:
        model: A fitted exact single-output model.
        training_data: The data of the model, which name its columns: a dataset, or one
            for each outcome.
        bounds: The lower and upper bound of each column, ``d`` pairs.
        domain: The domain. Its bounds, or its smallest and largest choices, must agree
            with ``bounds``. Ax cannot load a domain from JSON: use lists there.
        uncontrollable: The names or indices of the uncontrollable columns.
        x_choices: ``n_x`` lists of ``d_x`` values, all values of a finite ``x``. Or by
            the names or indices of some columns the values of each; the others are
            free.
        theta_choices: The same for ``theta``.
        discrete_choices: The values of each discrete column, by its index. The choices
            are all combinations.
        tolerances: By the name or index of a column, the radius of the deviation from
            its setting, or a lower and an upper deviation. Settings and evaluations
            stay within ``bounds``.
        posterior_transform: A ``ScalarizedPosteriorTransform`` of one weight, negative
            for minimisation.
        X_pending: ``m x d`` points that have been submitted for evaluation.
        objective: Not supported, must be ``None``.
        constraints: Not supported, must be ``None``.
        constraints_tuple: Not supported, must be ``None``.
        num_samples: The number of function samples.
        maximize: If ``True``, maximise the minimum over ``theta``. If ``False``,
            minimise the maximum over ``theta``; not with a ``posterior_transform``,
            which has a direction of its own.
        target: What the information is about.
        num_features: The number of Fourier features of a sample.
        method: How samples are drawn.
        effort: Scales how thorough the search for worst cases is.
        max_elements: The size of the largest tensor in ``forward``.
        seed: Makes the samples reproducible.

    Returns:
        The keyword arguments of ``qRobustEntropySearch``.

    Example:
        >>> construct = get_acqf_input_constructor(qRobustEntropySearch)
        >>> inputs = construct(
        ...     model, bounds=[(-5.0, 10.0), (0.0, 15.0)], uncontrollable=[1]
        ... )
        >>> acqf = qRobustEntropySearch(**inputs)
    """
    for name, value in (
        ("objective", objective),
        ("constraints", constraints),
        ("constraints_tuple", constraints_tuple),
    ):
        if value is not None:
            raise UnsupportedError(
                f"Expected no `{name}`: qRobustEntropySearch optimises the worst case "
                f"of one outcome without outcome constraints, got {value!r}."
            )
    if posterior_transform is not None and not maximize:
        raise InputDataError(
            "Expected the direction once, got `posterior_transform` and "
            "maximize=False: leave `maximize` out. Ax negates objectives to minimise."
        )
    dataset = training_data
    if isinstance(dataset, dict):
        dataset = next(iter(dataset.values()))
    pieces: dict[str, Any] = {
        "uncontrollable": uncontrollable,
        "x_choices": x_choices,
        "theta_choices": theta_choices,
        "discrete_choices": discrete_choices,
        "tolerances": tolerances,
    }
    if domain is None:
        domain = _assemble_domain(bounds, dataset, **pieces)
    elif given := [name for name, piece in pieces.items() if piece is not None]:
        raise InputDataError(
            f"Expected either `domain` or {given}, which describe a domain, got both."
        )
    if bounds is not None:
        _check_extent(domain, _bounds_tensor(bounds))
    if dataset is not None:
        _check_observed(domain, dataset.X)
    return {
        "model": model,
        "domain": domain,
        "num_samples": num_samples,
        "maximize": maximize,
        "posterior_transform": posterior_transform,
        "X_pending": X_pending,
        "target": target,
        "num_features": num_features,
        "method": method,
        "effort": effort,
        "max_elements": max_elements,
        "seed": seed,
    }


def _assemble_domain(
    bounds: Sequence[tuple[float, float]] | None,
    dataset: SupervisedDataset | None,
    uncontrollable: Sequence[int | str] | None,
    x_choices: Choices | None,
    theta_choices: Choices | None,
    discrete_choices: Mapping[int, Sequence[float]] | None,
    tolerances: Mapping[int | str, float | Sequence[float]] | None,
) -> RobustDomain:
    """Put a domain together from plain lists."""
    if bounds is None or (uncontrollable is None and tolerances is None):
        raise InputDataError(
            "Expected a `domain`, or `bounds` and `uncontrollable`, which names the "
            'uncontrollable columns, for example {"uncontrollable": ["theta"]} in '
            f"Ax's `botorch_acqf_options`; got bounds = {bounds!r} and uncontrollable "
            f"= {uncontrollable!r}."
        )
    columns = _column_indices("uncontrollable", uncontrollable or (), dataset)
    perturbed = tolerances or {}
    indices = _column_indices("tolerances", list(perturbed), dataset)
    box = _bounds_tensor(bounds)
    options: dict[str, Any] = {"bounds": box, "uncontrollable": columns}
    if perturbed:
        pairs = zip(indices, perturbed.values(), strict=True)
        options |= {"tolerances": dict(pairs), "evaluation_bounds": box}
    parts = RobustDomain(**options)
    choices: dict[str, Any] = {"x_choices": x_choices, "theta_choices": theta_choices}
    if discrete_choices is not None:
        if given := [name for name, rows in choices.items() if rows is not None]:
            raise InputDataError(
                f"Expected either `discrete_choices` or {given}, got both: in Ax, "
                "declare parameters of finitely many values as ordered choice "
                "parameters and leave these options out."
            )
        # Where there is a tolerance, the discrete values are settings.
        for part, excluded in ((parts.x, []), (parts.theta, indices)):
            listed = [i for i in part.columns if i in discrete_choices]
            rows = {i: discrete_choices[i] for i in listed if i not in excluded}
            choices[f"{part.name}_choices"] = rows or None
    for name, rows in choices.items():
        if isinstance(rows, Mapping):
            places = _column_indices(name, list(rows), dataset)
            options[name] = dict(zip(places, rows.values(), strict=True))
        elif rows is not None:
            options[name] = torch.tensor(rows, dtype=torch.double)
    return RobustDomain(**options)


def _column_indices(
    argument: str, columns: Sequence[int | str], dataset: SupervisedDataset | None
) -> list[int]:
    """Replace the names of columns by their indices."""
    if isinstance(columns, str):
        raise InputDataError(
            f"Expected `{argument}` to be a list of names or indices, got "
            f"{columns!r}: write [{columns!r}]."
        )
    names = [] if dataset is None else list(dataset.feature_names)
    unknown = [i for i in columns if isinstance(i, str) and i not in names]
    if unknown:
        raise InputDataError(
            f"Expected `{argument}` to name columns of the training data, {names}, "
            f"got {unknown}. Ax splits unordered choice parameters into several "
            "columns: declare them as ordered."
        )
    return [names.index(i) if isinstance(i, str) else i for i in columns]


def _bounds_tensor(bounds: Sequence[tuple[float, float]] | Tensor) -> Tensor:
    """Turn pairs of bounds into the ``2 x d`` tensor of a domain."""
    if isinstance(bounds, Tensor) or any(len(pair) != 2 for pair in bounds):
        # A 2 x 2 tensor of bounds could be meant either way.
        raise InputDataError(
            "Expected `bounds` to be a list of one pair (lower, upper) for each "
            f"column, got {bounds!r}. A 2 x d tensor goes into a RobustDomain."
        )
    return torch.tensor(bounds, dtype=torch.double).T


def _check_extent(domain: RobustDomain, bounds: Tensor) -> None:
    """Raise an error unless a domain reaches exactly as far as the bounds."""
    # This finds choices and bounds that are not in the model's units.
    if domain.dim != bounds.shape[-1]:
        raise InputDataError(
            f"Expected a `domain` of as many columns as `bounds`, {bounds.shape[-1]}, "
            f"got {domain.dim}."
        )
    domain = domain.evaluations
    extents = [
        part.combine(part.free_bounds, torch.stack(part.rows.aminmax(dim=0)))
        for part in (domain.x, domain.theta)
    ]
    extent = domain.join(*extents).to(bounds)
    slack = ROUNDING * (bounds[1] - bounds[0])
    for column in ((extent - bounds).abs() > slack).any(dim=0).nonzero().flatten():
        raise InputDataError(
            f"Expected a domain within the `bounds` {bounds[:, column].tolist()} of "
            f"column {int(column)} that reaches both of them, got one from "
            f"{extent[0, column]} to {extent[1, column]}. Both must be in the units of "
            "the model's inputs. Ax transforms parameters on a logarithmic scale. "
            "Declare a finite set as an ordered choice parameter: its bounds are its "
            "smallest and largest values."
        )


def _check_observed(domain: RobustDomain, X: Tensor) -> None:
    """Raise an error if no observed point has the domain's listed values."""
    # This finds lists that the generator of the observations did not know.
    domain = domain.to(dtype=X.dtype, device=X.device).evaluations
    for part in (domain.x, domain.theta):
        inside = part.contains(part.of(X))
        if not part.is_box and len(X) > 0 and not inside.any():
            raise InputDataError(
                f"Expected observations at the `{part.name}_choices`, but none of "
                f"{len(X)} is at one: give the choices in the units of the model's "
                "inputs; in Ax, declare the parameters as ordered choice parameters, "
                "not as ranges."
            )
