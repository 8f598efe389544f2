r"""How BoTorch's registry, and through it Ax, builds ``qRobustEntropySearch``.

Importing the package registers the constructor, so that
``get_acqf_input_constructor(qRobustEntropySearch)`` finds it. The domain is described
either by a ``RobustDomain`` or by plain lists, which can be saved as JSON.
"""

from __future__ import annotations

import itertools
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
from botorch_res.domain import ROUNDING, RobustDomain

Dataset = SupervisedDataset | dict[Hashable, SupervisedDataset]


@acqf_input_constructor(qRobustEntropySearch)
def construct_inputs_qRES(
    model: Model,
    training_data: Dataset | None = None,
    bounds: Sequence[tuple[float, float]] | None = None,
    domain: RobustDomain | None = None,
    uncontrollable: Sequence[int | str] | None = None,
    x_choices: Sequence[Sequence[float]] | None = None,
    theta_choices: Sequence[Sequence[float]] | None = None,
    discrete_choices: Mapping[int, Sequence[float]] | None = None,
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

    The domain is ``domain``, or it is put together from ``bounds``, ``uncontrollable``
    and at most one description of finite sets: ``x_choices`` and ``theta_choices``, or
    ``discrete_choices``. All are in the units of the model's inputs. In Ax these are
    the user's units, except for parameters on a logarithmic or logit scale, which Ax
    also gives to ordered choices of its own accord, and for choices that are not
    numbers; ``botorch_res.acquisition.ax`` therefore takes the choices from Ax.

    Args:
        model: A fitted exact single-output model.
        training_data: The data of the model, which name its columns; a dataset, or one
            for each outcome.
        bounds: The lower and upper bound of each column, ``d`` pairs.
        domain: The domain. Its bounds, or the least and largest of its choices, have
            to agree with ``bounds``. Ax cannot load it from JSON: give it lists.
        uncontrollable: The names or the indices of the uncontrollable columns.
        x_choices: ``n_x`` lists of ``d_x`` values, all the settings of a finite ``x``.
        theta_choices: ``n_theta`` lists of ``d_theta`` values, all the settings of a
            finite ``theta``.
        discrete_choices: The values of each column that is discrete, by its index. The
            choices are all their combinations.
        posterior_transform: A ``ScalarizedPosteriorTransform`` of one weight, which is
            negative for minimisation.
        X_pending: ``m x d`` points that have been submitted for evaluation.
        objective: Not supported, must be ``None``.
        constraints: Not supported, must be ``None``.
        constraints_tuple: Not supported, must be ``None``.
        num_samples: The number of function samples.
        maximize: Whether the minimum over ``theta`` is to be maximised over ``x``.
            Only without ``posterior_transform``, which would turn it round.
        target: What the information is about.
        num_features: The number of Fourier features of a sample.
        method: How samples are drawn.
        effort: Scales how thoroughly worst cases are searched for.
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
            "maximize=False: leave `maximize` out. Ax negates what is to be minimised."
        )
    dataset = training_data
    if isinstance(dataset, dict):
        dataset = next(iter(dataset.values()))
    pieces: dict[str, Any] = {
        "uncontrollable": uncontrollable,
        "x_choices": x_choices,
        "theta_choices": theta_choices,
        "discrete_choices": discrete_choices,
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
    x_choices: Sequence[Sequence[float]] | None,
    theta_choices: Sequence[Sequence[float]] | None,
    discrete_choices: Mapping[int, Sequence[float]] | None,
) -> RobustDomain:
    """Put a domain together from plain lists."""
    if bounds is None or uncontrollable is None:
        raise InputDataError(
            "Expected a `domain`, or `bounds` and `uncontrollable`, which names the "
            'uncontrollable columns, for example {"uncontrollable": ["theta"]} in '
            f"Ax's `botorch_acqf_options`; got bounds = {bounds!r} and uncontrollable "
            f"= {uncontrollable!r}."
        )
    box = RobustDomain(_bounds_tensor(bounds), _column_indices(uncontrollable, dataset))
    choices = {"x_choices": x_choices, "theta_choices": theta_choices}
    if discrete_choices is not None:
        if given := [name for name, rows in choices.items() if rows is not None]:
            raise InputDataError(
                f"Expected either `discrete_choices` or {given}, got both: in Ax, "
                "declare parameters of finitely many values as ordered choice "
                "parameters and leave these options out."
            )
        choices = {
            "x_choices": _product(box.x.columns, discrete_choices),
            "theta_choices": _product(box.theta.columns, discrete_choices),
        }
    tensors = {
        name: None if rows is None else torch.tensor(rows, dtype=torch.double)
        for name, rows in choices.items()
    }
    return RobustDomain(box.bounds, box.theta.columns, **tensors)


def _column_indices(
    uncontrollable: Sequence[int | str], dataset: SupervisedDataset | None
) -> list[int]:
    """Replace the names of columns by their indices."""
    if isinstance(uncontrollable, str):
        raise InputDataError(
            "Expected `uncontrollable` to be a list of names or indices, got "
            f"{uncontrollable!r}: write [{uncontrollable!r}]."
        )
    names = [] if dataset is None else list(dataset.feature_names)
    unknown = [i for i in uncontrollable if isinstance(i, str) and i not in names]
    if unknown:
        raise InputDataError(
            f"Expected `uncontrollable` to name columns of the training data, {names}, "
            f"got {unknown}. Ax splits unordered choice parameters into several "
            "columns: declare them as ordered."
        )
    return [names.index(i) if isinstance(i, str) else i for i in uncontrollable]


def _product(
    columns: Sequence[int], discrete_choices: Mapping[int, Sequence[float]]
) -> list[tuple[float, ...]] | None:
    """All combinations of discrete columns' values; ``None`` if none is discrete."""
    discrete = [column for column in columns if column in discrete_choices]
    if not discrete:
        return None
    if len(discrete) < len(columns):
        raise UnsupportedError(
            f"Expected the columns {list(columns)} to be all discrete or all "
            f"continuous, as they are together controllable or uncontrollable; only "
            f"{discrete} are discrete. In Ax, transforms=Cont_X_trans + Y_trans treats "
            "discrete parameters as continuous."
        )
    return list(itertools.product(*(discrete_choices[column] for column in columns)))


def _bounds_tensor(bounds: Sequence[tuple[float, float]] | Tensor) -> Tensor:
    """Turn pairs of bounds into the ``2 x d`` tensor of a domain."""
    if isinstance(bounds, Tensor) or any(len(pair) != 2 for pair in bounds):
        # A 2 x 2 tensor of lower and upper bounds reads as well the other way round.
        raise InputDataError(
            "Expected `bounds` to be a list of one pair (lower, upper) for each "
            f"column, got {bounds!r}. A 2 x d tensor goes into a RobustDomain."
        )
    return torch.tensor(bounds, dtype=torch.double).T


def _check_extent(domain: RobustDomain, bounds: Tensor) -> None:
    """Raise unless a domain reaches just as far as the ``2 x d`` bounds."""
    # This finds choices and bounds that were given in other units than the model's.
    if domain.dim != bounds.shape[-1]:
        raise InputDataError(
            f"Expected a `domain` of as many columns as `bounds`, {bounds.shape[-1]}, "
            f"got {domain.dim}."
        )
    extents = [
        part.bounds
        if part.choices is None
        else torch.stack(part.choices.aminmax(dim=0))
        for part in (domain.x, domain.theta)
    ]
    extent = domain.join(*extents).to(bounds)
    slack = ROUNDING * (bounds[1] - bounds[0])
    for column in ((extent - bounds).abs() > slack).any(dim=0).nonzero().flatten():
        raise InputDataError(
            f"Expected a domain within the `bounds` {bounds[:, column].tolist()} of "
            f"column {int(column)} that reaches both of them, got one from "
            f"{extent[0, column]} to {extent[1, column]}. Both have to be in the units "
            "of the model's inputs. Ax has a parameter on a logarithmic scale "
            "transformed, and takes the bounds of an ordered choice parameter from its "
            "least and largest value: declare a finite set so."
        )


def _check_observed(domain: RobustDomain, X: Tensor) -> None:
    """Raise if none of the ``n x d`` observed points is in the domain's finite sets."""
    # This finds finite sets that are given here, but not to whoever proposes points.
    domain = domain.to(dtype=X.dtype, device=X.device)
    for part in (domain.x, domain.theta):
        inside = part.contains(part.of(X))
        if part.is_finite and len(X) > 0 and not inside.any():
            raise InputDataError(
                f"Expected observations at the `{part.name}_choices`, but none of "
                f"{len(X)} is at one: give the choices in the units of the model's "
                "inputs; in Ax, declare the parameters as ordered choice parameters, "
                "not as ranges."
            )
