"""The pictures show what they should, and nothing global changes."""

import builtins

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from matplotlib.figure import Figure

from botorch_res.plotting import plot_problem
from botorch_res.test_functions import (
    DeepDrawing,
    PlateauWithCliff,
    RobustBranin,
    RobustEggholder,
    RobustHartmann3,
    RobustTestProblem,
    ShiftedSinusLinear,
    SinusLinear,
    ToleranceSinusLinear,
    WithinModel,
)


class Saddle(RobustTestProblem):
    """``theta`` comes first, and both parts are finite and in disorder."""

    dim = 2
    _bounds = ((-1.0, 1.0), (-2.0, 2.0))
    _uncontrollable = (0,)
    _theta_choices = ((1.0,), (-1.0,), (0.0,), (0.5,), (-0.5,))
    _x_choices = ((1.0,), (-2.0,), (0.5,), (2.0,))
    _robust_optimizer = (1.0, 0.5)
    _robust_optimal_value = 1.25

    def _evaluate_true(self, X):
        theta, x = X.unbind(-1)
        return x.square() + theta.square() + 0.1 * theta * (x - 0.5)


def small(problem):
    return plot_problem(problem, num_x=41, num_theta=31)


def lines(axes):
    """The labelled lines of a panel."""
    return {
        line.get_label(): np.array(line.get_data(), dtype=float)
        for line in axes.get_lines()
        if not line.get_label().startswith("_")
    }


def markers(axes):
    """The points that a panel marks, by the form of the marker."""
    return {
        line.get_marker(): np.array(line.get_data(), dtype=float).ravel()
        for line in axes.get_lines()
        if line.get_marker() in ("o", "*")
    }


@pytest.mark.parametrize(
    "problem",
    [
        RobustBranin(),
        SinusLinear(negate=True),
        RobustEggholder(noise_std=100.0),
        WithinModel(num_points=100),
        WithinModel(num_points=100, negate=True),
        DeepDrawing().to(dtype=torch.float),
        Saddle(),
    ],
)
class TestEveryProblem:
    def test_cases(self, problem):
        figure = small(problem)
        assert isinstance(figure, Figure)
        figure.canvas.draw()
        top, bottom = figure.axes[:2]
        x, drawn = lines(bottom)["worst case"]
        at = problem.bounds.new_tensor(x).unsqueeze(-1)
        np.testing.assert_allclose(drawn, problem.worst_case_value(at), rtol=1e-5)
        # The line of worst cases leads to these values.
        x, theta = lines(top)["worst theta of each x"]
        points = problem.domain.join(
            problem.bounds.new_tensor(x).unsqueeze(-1),
            problem.bounds.new_tensor(theta).unsqueeze(-1),
        )
        points = points[~torch.isnan(points).any(dim=-1)]
        assert len(points) == len(drawn)
        spread = np.ptp(drawn)
        np.testing.assert_allclose(
            problem(points, noise=False), drawn, atol=0.02 * spread
        )

    def test_optima(self, problem):
        top, bottom = small(problem).axes[:2]
        domain = problem.domain
        robust_x, robust_theta = map(float, domain.split(problem.robust_optimizer))
        value = problem.robust_optimal_value
        np.testing.assert_allclose(markers(top)["*"], [robust_x, robust_theta])
        np.testing.assert_allclose(markers(bottom)["*"], [robust_x, value], rtol=1e-4)
        plain_x, plain_theta = problem.bounds.new_tensor(markers(top)["o"]).split(1)
        sign = 1 if problem.is_minimization_problem else -1
        plain = sign * problem(domain.join(plain_x, plain_theta), noise=False)
        # No other point is better.
        x = domain.x.sample(256, seed=0).unsqueeze(-2)
        theta = domain.theta.sample(256, seed=0)
        others = sign * problem(domain.join(x, theta), noise=False)
        assert plain <= others.min() + 1e-4 * (others.max() - others.min())
        cost = float(problem.worst_case_value(plain_x))
        expected = [float(plain_x), cost]
        np.testing.assert_allclose(markers(bottom)["o"], expected, rtol=1e-6)


class TestTolerance:
    @pytest.mark.parametrize(
        "problem",
        [
            ToleranceSinusLinear(),
            ShiftedSinusLinear(negate=True),
            PlateauWithCliff(dim=1),
        ],
        ids=lambda problem: type(problem).__name__,
    )
    def test_curves_and_optima_against_brute_force(self, problem):
        (axes,) = plot_problem(problem, num_x=201).axes
        drawn = lines(axes)
        z, values = drawn["function"]
        np.testing.assert_allclose(values, problem(torch.tensor(z).unsqueeze(-1)))
        lower, upper = problem.domain.tolerances[0]
        deviations = np.linspace(lower, upper, 2001)
        if problem.domain.theta.is_finite:
            deviations = problem.domain.theta.choices[:, 0].numpy()
        sign = 1 if problem.is_minimization_problem else -1

        def cost(points):
            points = torch.as_tensor(points).unsqueeze(-1)
            return sign * problem(points, noise=False).numpy()

        x, worst = drawn["worst within tolerance of each setting"]
        expected = cost(x[:, None] + deviations).max(axis=1)
        # The steepest cliff falls by 12.5 over a unit: 1e-4 between deviations.
        np.testing.assert_allclose(sign * worst, expected, atol=2e-3)
        points = {
            line.get_label().split(":")[0]: np.array(line.get_data()).ravel()
            for line in axes.get_lines()
            if ":" in line.get_label()
        }
        at, value = points["robust optimum"]
        assert at == pytest.approx(float(problem.robust_setting))
        assert value == pytest.approx(problem.robust_optimal_value)
        assert sign * value <= (sign * worst).min() + 1e-12
        at, value = points["plain optimum"]
        inside = x[(x >= z.min()) & (x <= z.max())]
        assert cost(np.array([at])) == pytest.approx(cost(inside).min(), abs=1e-12)
        spread = cost(at + deviations)
        assert sign * value == pytest.approx(spread.max(), abs=2e-3)
        bands = [patch.get_extents() for patch in axes.patches]
        bands = [b.transformed(axes.transData.inverted()) for b in bands]
        settings = points["plain optimum"][0], points["robust optimum"][0]
        for band, setting in zip(bands, settings, strict=True):
            assert band.x0 == pytest.approx(setting + lower)
            assert band.x1 == pytest.approx(setting + upper)
        crosses = [m for m in axes.get_lines() if m.get_marker() == "X"]
        for cross, setting in zip(crosses, settings, strict=True):
            (x_worst,), (y_worst,) = cross.get_data()
            assert setting + lower - 1e-9 <= x_worst <= setting + upper + 1e-9
            assert sign * y_worst == pytest.approx(cost([x_worst])[0], abs=2e-3)

    def test_labels(self):
        (axes,) = plot_problem(ToleranceSinusLinear()).axes
        assert axes.get_xlabel() == "what is set, and what comes out"
        assert axes.get_ylabel() == "f"
        figure = plot_problem(ToleranceSinusLinear(), x_label="h", value_label="cost")
        assert figure.axes[0].get_xlabel() == "h"
        assert figure.axes[0].get_ylabel() == "cost"


def test_line_is_broken_at_a_jump():
    top = small(RobustBranin()).axes[0]
    x, theta = lines(top)["worst theta of each x"]
    gaps = np.isnan(theta)
    # One jump, from the smallest to the largest theta, and the end.
    assert gaps.sum() == 2
    assert set(theta[~gaps]) == {0.75, 14.25}
    (jump,) = np.flatnonzero(gaps[:-1])
    assert x[jump - 1] <= RobustBranin().robust_optimizer[0] <= x[jump + 1]


def test_few_choices_have_curves_and_many_a_best_case():
    few, many = (
        lines(small(DeepDrawing()).axes[1]),
        lines(small(RobustBranin()).axes[1]),
    )
    assert set(few) == {"worst case", "theta = 200", "theta = 300", "theta = 350"}
    assert set(many) == {"worst case", "best case"}
    x, best = many["best case"]
    points = torch.cartesian_prod(
        torch.from_numpy(x), RobustBranin().theta_choices.squeeze(-1)
    )
    expected = RobustBranin()(points.clamp_max(14.25)).view(len(x), -1).amin(-1)
    np.testing.assert_allclose(best, expected, rtol=1e-9)


def test_best_case_of_a_maximised_problem_is_its_largest_value():
    curves = lines(small(RobustBranin(negate=True)).axes[1])
    assert (curves["best case"][1] >= curves["worst case"][1]).all()


def test_labels():
    top, bottom, _ = plot_problem(
        SinusLinear(), "friction", "force", "error", num_x=11, num_theta=5
    ).axes
    assert bottom.get_xlabel() == "friction"
    assert top.get_ylabel() == "force"
    assert bottom.get_ylabel() == "error"


def test_nothing_global_changes():
    def state():
        # To read the backend would choose one.
        settings = {k: v for k, v in mpl.rcParams.items() if k != "backend"}
        return settings, plt.get_fignums()

    before = state()
    small(SinusLinear()).canvas.draw()
    assert state() == before


class Named(Saddle):
    _cat_dims = (0,)


def test_only_one_plus_one_numbers():
    with pytest.raises(UnsupportedError, match="RobustHartmann3 has 2 and 1, and 0 "):
        plot_problem(RobustHartmann3())
    with pytest.raises(UnsupportedError, match="Named has 1 and 1, and 1 of categ"):
        plot_problem(Named())


def test_error_without_matplotlib(monkeypatch):
    real_import = builtins.__import__

    def without_matplotlib(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(f"No module named {name!r}")
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    with pytest.raises(ImportError, match=r"pip install \"botorch_res\[plot\]\""):
        small(SinusLinear())
