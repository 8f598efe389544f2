r"""Robust Entropy Search in Ax: ``pip install botorch_res[ax]``.

Ax's modular BoTorch generator builds the acquisition function. With this module it
takes the domain from Ax's search space. Ax can also save experiments that use it, and
load them again: import this module before loading.

- Declare all parameters, controllable or not, as ranges, or as *ordered* choices if
  they have finitely many values.
- The direction is that of Ax's objective: ``"-loss"`` minimises the largest loss.
- Ax's best parameters are those of the best trial, at whatever ``theta`` it had. They
  are not a robust choice. ``recommend_robust_optimum`` finds one from the data.

Example:
    >>> spec = robust_generator_spec(uncontrollable=["theta"])
    >>> node = GenerationNode(name="RES", generator_specs=[spec])
    >>> client.set_generation_strategy(GenerationStrategy(name="RES", nodes=[node]))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from ax.adapter.registry import Generators
from ax.core.search_space import SearchSpaceDigest
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generators.torch.botorch_modular.acquisition import Acquisition
from ax.generators.torch_base import TorchOptConfig
from ax.generators.winsorization_config import WinsorizationConfig
from ax.storage.botorch_modular_registry import (
    register_acquisition,
    register_acquisition_function,
)
from botorch.exceptions.errors import UnsupportedError
from botorch.generation.sampling import SamplingStrategy
from torch import Tensor

from botorch_res.acquisition.robust_entropy_search import qRobustEntropySearch
from botorch_res.optim import optimize_robust_acqf


class RobustAcquisition(Acquisition):
    """Ax's acquisition on the robust domain of Ax's search space.

    It also passes on which parameters are discrete, and finds candidates with
    ``optimize_robust_acqf``.
    """

    def __init__(
        self,
        *,
        search_space_digest: SearchSpaceDigest,
        torch_opt_config: TorchOptConfig,
        botorch_acqf_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Build the acquisition function on the domain of a search space.

        Args:
            search_space_digest: The search space after Ax's transforms.
            torch_opt_config: The objective and the constraints.
            botorch_acqf_options: The options of ``qRobustEntropySearch``, among them
                ``uncontrollable``.
            kwargs: As in Ax.
        """
        if torch_opt_config.linear_constraints or torch_opt_config.equality_constraints:
            raise UnsupportedError(
                "Expected no parameter constraints: a robust domain is a product of "
                "boxes and finite sets."
            )
        super().__init__(
            search_space_digest=search_space_digest,
            torch_opt_config=torch_opt_config,
            botorch_acqf_options={
                **(botorch_acqf_options or {}),
                "discrete_choices": search_space_digest.discrete_choices,
            },
            **kwargs,
        )

    def optimize(
        self,
        n: int,
        search_space_digest: SearchSpaceDigest,
        inequality_constraints: list[tuple[Tensor, Tensor, float]] | None = None,
        equality_constraints: list[tuple[Tensor, Tensor, float]] | None = None,
        fixed_features: dict[int, float] | None = None,
        rounding_func: Callable[[Tensor], Tensor] | None = None,
        optimizer_options: dict[str, Any] | None = None,
        candidate_set: Tensor | None = None,
        sampling_strategy: SamplingStrategy | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Find candidates, one after another.

        Args:
            n: The number of candidates.
            search_space_digest: The search space after Ax's transforms.
            inequality_constraints: Ignored: the constructor refuses them.
            equality_constraints: Ignored: the constructor refuses them.
            fixed_features: Parameters with fixed values. With these, or with a
                ``candidate_set``, Ax's own search is used.
            rounding_func: A function that is applied to the candidates.
            optimizer_options: Options of ``optimize_robust_acqf``.
            candidate_set: The candidates to select from.
            sampling_strategy: How to select from ``candidate_set``.

        Returns:
            The ``n x d`` candidates, their acquisition values and their weights.
        """
        if fixed_features or candidate_set is not None:
            return super().optimize(
                n=n,
                search_space_digest=search_space_digest,
                fixed_features=fixed_features,
                rounding_func=rounding_func,
                optimizer_options=optimizer_options,
                candidate_set=candidate_set,
                sampling_strategy=sampling_strategy,
            )
        acqf: Any = self.acqf
        candidates, values = optimize_robust_acqf(
            acqf, acqf.domain, q=n, **(optimizer_options or {})
        )
        if rounding_func is not None:
            candidates = rounding_func(candidates)
        return candidates, values, torch.ones(n, dtype=self.dtype)


def robust_generator_spec(
    uncontrollable: Sequence[str] = (),
    num_restarts: int = 8,
    raw_samples: int = 256,
    tolerances: Mapping[str, float | Sequence[float]] | None = None,
    **options: Any,
) -> GeneratorSpec:
    r"""Specify Ax's modular BoTorch generator with Robust Entropy Search.

    By default, Ax winsorises outcomes: it clips those that are worse than most. A
    robust optimiser needs exactly these, so this function switches it off.

    Args:
        uncontrollable: The names of the parameters that nature chooses.
        num_restarts: The number of starting points of the search for a candidate.
        raw_samples: The number of points from which these are selected.
        tolerances: The deviation from the setting of each range parameter that has one:
            a radius, or a lower and an upper deviation. Ax evaluates within the range.
        options: More options of ``qRobustEntropySearch``, such as ``num_samples``.

    Returns:
        A specification for a ``GenerationNode``, which Ax can save as JSON.
    """
    return GeneratorSpec(
        generator_enum=Generators.BOTORCH_MODULAR,
        generator_kwargs={
            "acquisition_class": RobustAcquisition,
            "botorch_acqf_class": qRobustEntropySearch,
            "botorch_acqf_options": {
                "uncontrollable": list(uncontrollable),
                "tolerances": None if tolerances is None else dict(tolerances),
                **options,
            },
            "transform_configs": {
                "Winsorize": {"winsorization_config": WinsorizationConfig()}
            },
        },
        generator_gen_kwargs={
            "model_gen_options": {
                "optimizer_kwargs": {
                    "num_restarts": num_restarts,
                    "raw_samples": raw_samples,
                }
            }
        },
    )


# Ax saves classes by name, and finds them in these registries.
register_acquisition(RobustAcquisition)
register_acquisition_function(qRobustEntropySearch)
