"""Domains as plain lists and numbers, as the file of a study keeps them.

What there has not always been is left out where there is none of it, so that a study
reads the same as when it was begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from botorch_res.domain import DomainPart, RobustDomain


def domain_to_dict(domain: RobustDomain) -> dict[str, Any]:
    """Write down a domain; inverted by ``domain_from_dict``.

    Args:
        domain: The domain.

    Returns:
        Its arguments as lists and numbers.
    """
    content = {
        "bounds": domain.bounds.tolist(),
        "uncontrollable": list(domain.evaluations.theta.columns),
        "x_choices": _rows_as_lists(domain.x),
        "theta_choices": _rows_as_lists(domain.theta),
    }
    if domain.cat_dims:
        content["cat_dims"] = list(domain.cat_dims)
    if domain.evaluations is not domain:
        content["tolerances"] = [[i, *ends] for i, ends in domain.tolerances.items()]
        content["evaluation_bounds"] = domain.evaluations.bounds.tolist()
    return content


def domain_from_dict(content: Mapping[str, Any]) -> RobustDomain:
    """Build a domain from what ``domain_to_dict`` returned.

    Args:
        content: The dictionary, possibly read from JSON, and with further keys.

    Returns:
        The domain, in double precision.
    """
    tensors = {
        name: torch.tensor(content[name], dtype=torch.double)
        for name in ("bounds", "evaluation_bounds")
        if name in content
    }
    return RobustDomain(
        uncontrollable=content["uncontrollable"],
        x_choices=_choices(content["x_choices"]),
        theta_choices=_choices(content["theta_choices"]),
        tolerances={i: tuple(ends) for i, *ends in content.get("tolerances", [])},
        cat_dims=content.get("cat_dims", []),
        **tensors,
    )


def listed_columns(part: DomainPart) -> list[int]:
    """The columns of ``z`` that a part lists.

    Args:
        part: The part.

    Returns:
        The columns, in the order of its rows.
    """
    return [part.columns[i] for i in part.listed.tolist()]


def _rows_as_lists(part: DomainPart) -> Any:
    """The rows of a part: of all its columns, or with the columns if only of some."""
    if part.is_box:
        return None
    if part.is_finite:
        return part.rows.tolist()
    return {"columns": listed_columns(part), "rows": part.rows.tolist()}


def _choices(content: Any) -> Any:
    """The argument of a domain that ``_rows_as_lists`` gave."""
    if content is None:
        return None
    if isinstance(content, list):
        return torch.tensor(content, dtype=torch.double)
    rows = torch.tensor(content["rows"], dtype=torch.double)
    return {tuple(content["columns"]): rows}
