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
    if domain is None:
        domain = _assemble_domain(
            bounds, uncontrollable, x_choices, theta_choices, discrete_choices, dataset
        )
    else:
        pieces = {
            "uncontrollable": uncontrollable,
            "x_choices": x_choices,
            "theta_choices": theta_choices,
            "discrete_choices": discrete_choices,
        }
        given = [name for name, piece in pieces.items() if piece is not None]
        if given:
            raise InputDataError(
                f"Expected either `domain` or {given}, which describe a domain, got "
                "both."
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
    uncontrollable: Sequence[int | str] | None,
    x_choices: Sequence[Sequence[float]] | None,
    theta_choices: Sequence[Sequence[float]] | None,
    discrete_choices: Mapping[int, Sequence[float]] | None,
    dataset: SupervisedDataset | None,
) -> RobustDomain:
    """Put a domain together from plain lists.

    Args:
        bounds: The lower and upper bound of each column.
        uncontrollable: The names or the indices of the uncontrollable columns.
        x_choices: The settings of a finite ``x``.
        theta_choices: The settings of a finite ``theta``.
        discrete_choices: The values of each discrete column.
        dataset: The data, which name the columns.

    Returns:
        The domain.
    """
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
        given = [name for name, choice in choices.items() if choice is not None]
        if given:
            raise InputDataError(
                f"Expected either `discrete_choices` or {given}, got both: in Ax, "
                "declare parameters of finitely many values as ordered choice "
                "parameters and leave these options out."
            )
        choices = {
            "x_choices": _product(box.x.columns, discrete_choices),
            "theta_choices": _product(box.theta.columns, discrete_choices),
        }
    return RobustDomain(
        box.bounds,
        box.theta.columns,
        **{
            name: None if choice is None else torch.tensor(choice, dtype=torch.double)
            for name, choice in choices.items()
        },
    )


def _column_indices(
    uncontrollable: Sequence[int | str], dataset: SupervisedDataset | None
) -> list[int]:
    """Replace the names of columns by their indices.

    Args:
        uncontrollable: Names or indices.
        dataset: The data, which name the columns.

    Returns:
        The indices, still to be validated.
    """
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
    """All combinations of the values of discrete columns.

    Args:
        columns: The columns of one part of the domain.
        discrete_choices: The values of each discrete column.

    Returns:
        The combinations, or ``None`` if the columns are continuous.
    """
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
    """Turn pairs of bounds into the ``2 x d`` tensor of a domain.

    Args:
        bounds: The lower and upper bound of each column.

    Returns:
        The ``2 x d`` tensor.
    """
    if isinstance(bounds, Tensor) or any(len(pair) != 2 for pair in bounds):
        # A 2 x 2 tensor of lower and upper bounds reads as well the other way round.
        raise InputDataError(
            "Expected `bounds` to be a list of one pair (lower, upper) for each "
            f"column, got {bounds!r}. A 2 x d tensor belongs into a RobustDomain."
        )
    return torch.tensor(bounds, dtype=torch.double).T


def _check_extent(domain: RobustDomain, bounds: Tensor) -> None:
    """Raise unless a domain reaches just as far as the space that is searched.

    This finds choices and bounds that were given in other units than the model's.

    Args:
        domain: The domain.
        bounds: The ``2 x d`` bounds of the search.
    """
    if domain.dim != bounds.shape[-1]:
        raise InputDataError(
            f"Expected a `domain` of as many columns as `bounds`, {bounds.shape[-1]}, "
            f"got {domain.dim}."
        )
    extents = [
        part if choices is None else torch.stack(choices.aminmax(dim=0))
        for part, choices in (
            (domain.x.bounds, domain.x.choices),
            (domain.theta.bounds, domain.theta.choices),
        )
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
    """Raise if no observation belongs to the domain's finite sets.

    This finds finite sets that are given here, but not to the one who proposes points.

    Args:
        domain: The domain.
        X: The ``n x d`` observed points.
    """
    domain = domain.to(dtype=X.dtype, device=X.device)
    x, theta = domain.split(X)
    for name, choices, inside in (
        ("x_choices", domain.x.choices, domain.x.contains(x)),
        ("theta_choices", domain.theta.choices, domain.theta.contains(theta)),
    ):
        if choices is not None and len(X) > 0 and not inside.any():
            raise InputDataError(
                f"Expected observations at the `{name}`, but none of {len(X)} is at "
                "one: give the choices in the units of the model's inputs; in Ax, "
                "declare the parameters as ordered choice parameters, not as ranges."
            )
