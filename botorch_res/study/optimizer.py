r"""Ask for the next experiment, tell its result, and get a robust recommendation.

Everything that a suggestion depends on is in the study: the data, the seed, and the
number of the trial. Nothing depends on how long a process has lived, so a study that is
interrupted and reopened goes on as if nothing had happened.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from botorch.exceptions.errors import InputDataError
from botorch.models.model import Model
from torch import Tensor

from botorch_res.acquisition import qRobustEntropySearch
from botorch_res.checks import check_number
from botorch_res.domain import RobustDomain
from botorch_res.models.diagnostics import LeaveOneOut, leave_one_out
from botorch_res.models.fitting import ModelFactory
from botorch_res.strategies import make_strategy
from botorch_res.study.observations import (
    Observations,
    check_noise,
    check_value,
    collect,
    derive_seed,
    trial_number,
)
from botorch_res.study.parameters import Parameter, Value
from botorch_res.study.recommendation import Prediction, StudyRecommendation
from botorch_res.study.running import (
    InlineExecutor,
    StudyLoop,
    check_function,
    num_workers,
    progress_bar,
)
from botorch_res.study.settings import (
    check_model,
    check_same_study,
    check_settings,
    continued,
    factory_name,
    storable,
)
from botorch_res.study.space import ParameterSpace
from botorch_res.study.stopping import StoppingRule, find_rule
from botorch_res.study.storage import (
    COMPLETE,
    FAILED,
    RUNNING,
    Storage,
    StudyRecord,
    Trial,
)
from botorch_res.study.trials import TrialTable

DEFAULT_STRATEGY = "res"


class RobustOptimizer:
    """Robust optimisation of an expensive function, one experiment at a time.

    Attributes:
        space: The parameters and the domain.
        maximize: The direction.
        seed: The study's seed.
        num_initial: The size of the initial, space-filling design.
        gamma: The probability of evaluating the current recommendation.
        strategy: What chooses the points after the initial design.
    """

    def __init__(
        self,
        domain: RobustDomain | ParameterSpace | Sequence[Parameter],
        *,
        maximize: bool,
        storage: str | Path | None = None,
        seed: int | None = None,
        strategy: str | None = None,
        strategy_options: Mapping[str, Any] | None = None,
        model: ModelFactory | None = None,
        num_initial: int | None = None,
        noise: float | None = None,
        gamma: float | None = None,
    ) -> None:
        """Start a study, or go on with one.

        Args:
            domain: The domain: named parameters, or a ``RobustDomain``.
            maximize: ``True`` to find the largest worst case (``max over x of min over
                theta``), ``False`` for the smallest. There is no default: a wrong
                guess costs a day of experiments.
            storage: The file of the study, which is created, or reopened if it is
                there. ``None`` keeps the study in memory.
            seed: The seed of all suggestions. ``None`` takes the stored one, or draws
                one, which is stored.
            strategy: The name of a strategy; see ``available_strategies()``.
            strategy_options: Further arguments of the strategy.
            model: Fits the model. ``None`` is ``DefaultGP()`` on values scaled by a
                power of ten; a factory of your own gets the values as they are.
            num_initial: The size of the initial design; twice the number of
                parameters by default.
            noise: The standard deviation of the noise of values that are told without
                their own; 0 for a deterministic simulation. If nothing is known, the
                model infers it.
            gamma: The probability with which to evaluate the current recommendation
                in place of the strategy's point; 0 by default.

        Settings that are ``None`` are taken from the study when it is reopened; others
        hold until it is closed, and do not change it. A model factory cannot be stored:
        give it again.

        Example:
            >>> optimizer = RobustOptimizer(
            ...     [
            ...         Range("friction", 0.1, 0.2),
            ...         Choice("force", [200, 300, 350], uncontrollable=True),
            ...     ],
            ...     maximize=False,
            ...     storage="study.db",
            ... )
            >>> trial = optimizer.ask()
            >>> optimizer.tell(trial, simulate(**trial.parameters))
            >>> optimizer.recommend()
        """
        self.space = _as_space(domain)
        if not isinstance(maximize, bool):
            raise InputDataError(f"Expected `maximize` to be a bool, got {maximize!r}.")
        self.maximize = maximize
        check_settings(seed, num_initial, noise, gamma)
        check_model(model, self.space.domain.cat_dims)
        defaults: dict[str, Any] = {
            "strategy": DEFAULT_STRATEGY,
            "strategy_options": {},
            "model": None,
            "num_initial": 2 * self.space.domain.dim,
            "noise": None,
            "gamma": 0.0,
        }
        given = {
            "strategy": strategy,
            "strategy_options": strategy_options and dict(strategy_options),
            "model": model and factory_name(model),
            "num_initial": num_initial,
            "noise": check_noise(noise),
            "gamma": gamma,
        }
        given = {name: value for name, value in given.items() if value is not None}
        wanted = StudyRecord(
            self.space.to_dict(), maximize, _new_seed(seed), storable(defaults | given)
        )
        # A strategy that does not exist must not leave a file behind.
        self._make_strategy(defaults | given, wanted.seed, model)
        self._storage = Storage(storage)
        stored = self._storage.create_study(wanted)
        check_same_study(stored, wanted, seed, self.storage)
        settings = continued(defaults | stored.settings, given)
        self.seed = stored.seed
        self.num_initial: int = settings["num_initial"]
        self.gamma: float = settings["gamma"]
        self._noise: float | None = settings["noise"]
        self._strategy_name: str = settings["strategy"]
        self._own_model = model is not None
        self.strategy = self._make_strategy(settings, self.seed, model)

    @classmethod
    def open(cls, storage: str | Path, **settings: Any) -> RobustOptimizer:
        """Reopen a study; its domain and direction are in the file.

        Args:
            storage: The file of the study.
            **settings: Further arguments of ``RobustOptimizer``.

        Returns:
            The optimizer.
        """
        record = Storage(storage, must_exist=True).study()
        if record is None:
            raise InputDataError(f"{storage} holds no study yet.")
        space = ParameterSpace.from_dict(record.space)
        return cls(space, maximize=record.maximize, storage=storage, **settings)

    @property
    def trials(self) -> TrialTable:
        """All trials as a table, read afresh."""
        trials = [self._named(trial) for trial in self._storage.trials()]
        return TrialTable(trials, self.space.parameters)

    @property
    def storage(self) -> Path | None:
        """The file of the study, or ``None``."""
        return self._storage.path

    def ask(self, n: int = 1) -> Trial | list[Trial]:
        """Suggest experiments, and store them as running trials.

        The points of running trials, of this and of any other process, count as
        pending, and those of failed trials too: they are not suggested again.

        Args:
            n: The number of trials.

        Returns:
            A trial for ``n = 1``, otherwise a list of trials.
        """
        check_number("n", n, 1)
        trials = self.ask_many(n)
        return trials[0] if n == 1 else trials

    def ask_many(
        self, n: int, owner: str | None = None, limit: int | None = None
    ) -> list[Trial]:
        """Suggest several experiments, on behalf of an owner and within a limit.

        Args:
            n: The number of trials.
            owner: Which process evaluates them.
            limit: The largest number of trials that the study may have.

        Returns:
            The trials; fewer than ``n`` if the limit is reached.
        """
        while True:
            known = self._storage.trials()
            first = known[-1].number + 1 if known else 0
            if limit is not None:
                n = min(n, limit - first)
            if n < 1:
                return []
            new = [replace(trial, owner=owner) for trial in self._suggest(known, n)]
            # If another process has asked in the meantime, its points are pending now
            # and the numbers are taken: think again.
            if self._storage.add(first, new):
                stored = self._storage.trials()
                return [self._named(t) for t in stored if first <= t.number < first + n]

    def take_over(self, trial: Trial, owner: str) -> Trial | None:
        """Take over a running trial whose owner is gone, to evaluate it again.

        Args:
            trial: The trial as it was read.
            owner: Which process evaluates it now.

        Returns:
            The trial with its new owner; ``None`` if another process was faster.
        """
        if not self._storage.take_over(trial.number, trial.owner, owner):
            return None
        return replace(trial, owner=owner, attempts=trial.attempts + 1)

    def give_back(self, trial: Trial) -> None:
        """Let other processes take over a trial, if it is still running.

        Args:
            trial: The trial.
        """
        self._storage.give_back(trial.number)

    def tell(
        self, trial: Trial | int, value: float, noise: float | None = None
    ) -> Trial:
        """Store the observed value of a trial. It is on disk when this returns.

        Args:
            trial: The trial, or its number.
            value: The observed value.
            noise: The standard deviation of the value's noise, in the same unit as the
                value, if it is known. Should only some trials have one, the others get
                the optimizer's ``noise``, or the root mean square of those told.

        Returns:
            The complete trial.
        """
        number, point = trial_number(trial)
        value, noise = check_value(value, f"of trial {number}"), check_noise(noise)
        found = self._storage.finish(number, COMPLETE, value, noise, point=point)
        return self._named(found)

    def fail(self, trial: Trial | int, reason: str) -> Trial:
        """Store that a trial gave no value.

        Args:
            trial: The trial, or its number.
            reason: Why.

        Returns:
            The failed trial.
        """
        if not isinstance(reason, str):
            raise InputDataError(f"Expected `reason` to be a text, got {reason!r}.")
        number, point = trial_number(trial)
        found = self._storage.finish(number, FAILED, reason=reason, point=point)
        return self._named(found)

    def add(
        self,
        parameters: Mapping[str, Value] | Sequence[Value] | Tensor,
        value: float,
        noise: float | None = None,
    ) -> Trial:
        """Store an observation that was not asked for, such as an earlier experiment.

        Args:
            parameters: The parameters by name, or all values in order. With a
                tolerance, the value that came out, not the one that was set. A name
                is told as a text, not by its place in the list.
            value: The observed value.
            noise: The standard deviation of its noise, if known.

        Returns:
            The complete trial.
        """
        point = tuple(self.space.encode(parameters).tolist())
        value, noise = check_value(value, f"at {parameters}"), check_noise(noise)
        number = self._storage.append(
            Trial(point=point, seed=0, origin="added", value=value, noise=noise)
        )
        return self.trials[number]

    @property
    def num_told(self) -> int:
        """The number of values told so far."""
        return sum(trial.state == COMPLETE for trial in self._storage.trials())

    def recommend(self, after: int | None = None) -> StudyRecommendation:
        """Recommend the setting whose worst case is predicted to be best.

        Args:
            after: Look back: use only the first so many values, in the order of their
                trials. ``None`` uses all of them.

        Returns:
            The controllable parameters, the predicted worst case of the others and of
            the deviations within tolerances, the predicted value with its uncertainty,
            and the worst-case curve.
        """
        if after is not None:
            check_number("after", after, 1)
        trials = self._storage.trials()
        told = [t for t in trials if t.state == COMPLETE]
        data = self._data(told[:after] or trials)
        best = self.strategy.recommend(*data[:3])
        model = self.strategy.fit(*data[:3])
        seed = self.strategy.seed
        return StudyRecommendation.from_prediction(
            Prediction(best, model, self.space, self.maximize, data.unit, seed)
        )

    def fit(self) -> tuple[Model, float]:
        """Fit the model to the values told so far.

        Returns:
            The model, in the coordinates of ``space.domain``, and the power of ten by
            which its predictions are to be multiplied.
        """
        data = self._data(self._storage.trials())
        return self.strategy.fit(*data[:3]), data.unit

    def acquisition(self) -> qRobustEntropySearch:
        """The information that the next trial would give about the robust optimum.

        Running and failed trials count as pending. With the strategy ``"res"`` this is
        the function that the next suggestion maximises; with others it is a diagnostic.

        Returns:
            The acquisition function, in the coordinates of ``space.domain``.
        """
        known = self._storage.trials()
        return qRobustEntropySearch(
            self.fit()[0],
            self.space.domain,
            num_samples=getattr(self.strategy, "num_samples", 16),
            target=getattr(self.strategy, "target", "optimum"),
            maximize=self.maximize,
            X_pending=self._pending(known),
            seed=derive_seed(self.seed, known[-1].number + 1),
        )

    def leave_one_out(self) -> LeaveOneOut:
        """Predict every value told so far from all the others.

        Returns:
            The predictions, in the values' own unit.
        """
        model, unit = self.fit()
        found = leave_one_out(model)
        return LeaveOneOut(
            found.observed * unit, found.mean * unit, found.variance * unit**2
        )

    def run(
        self,
        function: Callable[..., Any],
        budget: int,
        executor: Executor | None = None,
        *,
        num_parallel: int | None = None,
        progress: bool | Callable[[RobustOptimizer], str] = True,
        max_attempts: int = 3,
        max_failures: int = 10,
        stop: str | StoppingRule | None = None,
    ) -> StudyRecommendation:
        """Ask, evaluate and tell until the study has a number of trials.

        Run it again after an interruption, with the same arguments: trials whose
        evaluation was lost are evaluated again, and the rest of the budget is spent.

        Args:
            function: Called with the parameters as keywords, or, if the domain has no
                named parameters, with a point as a tensor of shape ``d``. Returns the
                value, or the value and the standard deviation of its noise. An error
                in it makes the trial fail.
            budget: The number of trials of the whole study, those that are there
                already included.
            executor: Evaluates in parallel: threads, processes, or a Dask cluster's
                ``client.get_executor()``. ``None`` evaluates one after the other here.
            num_parallel: The number of evaluations under way at the same time; as many
                as the executor has workers by default.
            progress: Whether to show a progress bar, if ``rich`` is installed; or a
                function that returns a text to show beside it.
            max_attempts: How often to start the evaluation of a trial that is lost,
                before it counts as failed.
            max_failures: The number of failures in a row after which to stop.
            stop: When to stop before the budget is spent, such as
                ``"regret < 0.01 with 95 %"`` (in the unit of the values), or a function
                of the study that returns whether to. It is asked before each new trial;
                evaluations under way are waited for.

        Returns:
            The recommendation.
        """
        rule = find_rule(stop)
        for name, number in (
            ("budget", budget),
            ("num_parallel", num_parallel),
            ("max_attempts", max_attempts),
            ("max_failures", max_failures),
        ):
            if number is not None:
                check_number(name, number, 1)
        check_function(self.space, function, executor)
        executor = InlineExecutor() if executor is None else executor
        loop = StudyLoop(self, function, executor, max_attempts, max_failures, rule)
        with progress_bar(self, budget, progress) as advance:
            loop.run(budget, num_parallel or num_workers(executor), advance)
        return self.recommend()

    def _suggest(self, known: list[Trial], n: int) -> list[Trial]:
        """Choose the points of the next trials; a function of the study alone."""
        first = known[-1].number + 1 if known else 0
        has_data = any(trial.state == COMPLETE for trial in known)
        num_design = n if not has_data else min(max(self.num_initial - first, 0), n)
        points: list[Tensor] = []
        origins: list[str] = []
        if num_design:
            seed = derive_seed(self.seed, "design")
            points += self.space.sample(first + num_design, seed)[first:]
            origins += ["initial"] * num_design
        if num_design < n:
            data = self._data(known)
            if self._exploits(first + num_design):
                best = self.strategy.recommend(*data[:3])
                points.append(self.space.domain.join(best.x, best.theta))
                origins.append("exploit")
        missing = n - len(points)
        seeds = [derive_seed(self.seed, number) for number in range(first, first + n)]
        if missing:
            proposed = self.strategy.propose(
                *data[:3],
                X_pending=self._pending(known, points),
                n=missing,
                seed=seeds[-missing],
            )
            points += proposed.detach()
            origins += [self._strategy_name] * missing
        # Nature's worst case may lie where the user does not allow evaluations.
        allowed = self.space.domain.nearest_evaluation(torch.stack(points))
        return [
            Trial(point=tuple(z.tolist()), seed=seed, origin=origin)
            for z, seed, origin in zip(allowed, seeds, origins, strict=True)
        ]

    def _pending(
        self, known: list[Trial], points: Sequence[Tensor] = ()
    ) -> Tensor | None:
        """The points not worth suggesting again: under way, failed, just chosen."""
        waiting = [t.point for t in known if t.state in (RUNNING, FAILED)]
        waiting += [tuple(z.tolist()) for z in points]
        return torch.tensor(waiting, dtype=torch.double) if waiting else None

    def _exploits(self, number: int) -> bool:
        """Whether a trial evaluates the current recommendation."""
        draw = random.Random(derive_seed(self.seed, f"exploit {number}"))
        return draw.random() < self.gamma

    def _data(self, trials: list[Trial]) -> Observations:
        """The told values, scaled for the default model."""
        return collect(trials, self._noise, rescale=not self._own_model)

    def _named(self, trial: Trial) -> Trial:
        """A trial with its parameters."""
        point = torch.tensor(trial.point, dtype=torch.double)
        return replace(trial, parameters=self.space.decode(point))

    def _make_strategy(
        self, settings: Mapping[str, Any], seed: int, model: ModelFactory | None
    ) -> Any:
        """Build the strategy."""
        return make_strategy(
            settings["strategy"],
            self.space.domain,
            maximize=self.maximize,
            model_factory=model,
            seed=derive_seed(seed, "model"),
            **settings["strategy_options"],
        )


def _as_space(
    domain: RobustDomain | ParameterSpace | Sequence[Parameter],
) -> ParameterSpace:
    """The space of whatever the user described it with."""
    if isinstance(domain, ParameterSpace):
        return domain
    if isinstance(domain, RobustDomain):
        return ParameterSpace.from_domain(domain)
    if isinstance(domain, Sequence) and all(isinstance(p, Parameter) for p in domain):
        return ParameterSpace(domain)
    raise InputDataError(
        "Expected `domain` to be a RobustDomain, a ParameterSpace or a list of "
        f"parameters (Range, Integer, Choice), got {domain!r}."
    )


def _new_seed(seed: int | None) -> int:
    """The seed, or one from the operating system."""
    return random.SystemRandom().randrange(2**31) if seed is None else int(seed)
