import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from botorch.exceptions.errors import InputDataError

from botorch_res import RobustDomain, RobustOptimizer
from botorch_res.models import BayesianGP
from botorch_res.plotting import (
    plot_acquisition,
    plot_posterior,
    plot_progress,
    plot_study,
    plot_worst_case,
    slices,
)
from botorch_res.study.parameters import Choice, Integer, Range
from botorch_res.test_functions import DeepDrawing, RobustBranin, RobustTestProblem

FRICTION = Range("friction", 1e-3, 1e-1, log=True)
FORCE = Choice("force", [200, 300, 350], unit="kN", uncontrollable=True)
UNIT_SQUARE = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    monkeypatch.setattr(slices, "_NUM_VALUES", 7)


def press(friction, force):
    return 100 * friction - force / 100


@pytest.fixture(scope="module")
def study():
    """Six values, a failure and a running trial."""
    optimizer = RobustOptimizer(
        [FRICTION, FORCE], maximize=False, seed=0, strategy="random"
    )
    optimizer.run(press, 6, progress=False)
    optimizer.fail(optimizer.ask(), "broke")
    optimizer.ask()
    return optimizer


def colours(axes):
    """The values behind the colours of a map, and the centres of its cells."""
    (mesh,) = axes.collections
    corners = mesh.get_coordinates()
    return mesh.get_array(), corners


def labelled(axes):
    return {
        line.get_label(): np.array(line.get_data(), dtype=float)
        for line in axes.get_lines()
        if not line.get_label().startswith("_")
    }


def legend(figure):
    figure.canvas.draw()
    (found,) = figure.legends
    return [text.get_text() for text in found.get_texts()]


def grid(optimizer):
    """The points of the map of the study of a press."""
    friction = np.geomspace(1e-3, 1e-1, 7)
    return torch.tensor(
        [
            optimizer.space.encode({"friction": x, "force": force}).tolist()
            for force in (200, 300, 350)
            for x in friction.clip(1e-3, 1e-1)
        ],
        dtype=torch.double,
    )


class TestMaps:
    def test_posterior(self, study):
        figure = plot_posterior(study, value_label="strain [%]")
        mean, deviation, mean_bar, deviation_bar = figure.axes
        assert mean.get_xlabel() == "friction"
        assert mean.get_ylabel() == "force [kN]"
        assert mean_bar.get_ylabel() == "predicted strain [%]"
        assert deviation_bar.get_ylabel() == "standard deviation of strain [%]"
        assert (mean.get_xscale(), mean.get_yscale()) == ("log", "linear")
        assert [label.get_text() for label in mean.get_yticklabels()] == [
            *("200", "300", "350")
        ]
        assert mean.get_title() == ""
        model, unit = study.fit()
        posterior = model.posterior(grid(study))
        for axes, values in (
            (mean, posterior.mean * unit),
            (deviation, posterior.variance.sqrt() * unit),
        ):
            drawn, _ = colours(axes)
            expected = values.detach().reshape(3, 7).numpy()
            np.testing.assert_allclose(drawn.reshape(3, 7), expected, rtol=1e-5)

    def test_trials_and_recommendation(self, study):
        figure = plot_posterior(study)
        lines = labelled(figure.axes[0])
        for label, state in (
            ("told", "complete"),
            ("running", "running"),
            ("failed", "failed"),
        ):
            rows = [t.parameters for t in study.trials if t.state == state]
            expected = [[r["friction"] for r in rows], [r["force"] for r in rows]]
            np.testing.assert_allclose(lines[label], expected)
        best = study.recommend()
        expected = [[best.x["friction"]], [best.theta["force"]]]
        np.testing.assert_allclose(lines["recommended"], expected)
        _, theta = lines["predicted worst case"]
        gaps = np.isnan(theta)
        np.testing.assert_allclose(theta[~gaps], best.curve["friction"].theta[:, 0])
        assert set(legend(figure)) == set(lines)

    def test_acquisition(self, study):
        figure = plot_acquisition(study)
        axes, bar = figure.axes
        assert bar.get_ylabel() == "information gain [nats]"
        with torch.no_grad():
            gain = study.acquisition()(grid(study).unsqueeze(-2)).reshape(3, 7)
        drawn, _ = colours(axes)
        np.testing.assert_allclose(drawn.reshape(3, 7), gain, rtol=1e-6)
        row, column = divmod(int(gain.argmax()), 7)
        x, theta = labelled(axes)["most to learn"]
        assert theta == (200, 300, 350)[row]
        assert x == pytest.approx(np.geomspace(1e-3, 1e-1, 7)[column])

    def test_slices_of_more_parameters(self):
        parameters = [
            Integer("layers", 1, 3),
            Choice("size", [0.5, 1.0, 2.0], log=True, unit="mm"),
            Range("load", 0.0, 1.0, uncontrollable=True),
        ]
        optimizer = RobustOptimizer(
            parameters, maximize=True, seed=0, strategy="random"
        )
        optimizer.run(
            lambda layers, size, load: layers - size * load, 5, progress=False
        )
        figure = plot_posterior(optimizer)
        best = optimizer.recommend()
        maps = [axes for axes in figure.axes if axes.get_title()]
        assert [axes.get_xlabel() for axes in maps] == [
            *("layers", "layers", "size [mm]", "size [mm]")
        ]
        assert [axes.get_title() for axes in maps[::2]] == [
            f"at size = {best.x['size']:.4g} mm",
            f"at layers = {best.x['layers']:.4g}",
        ]
        drawn, _ = colours(maps[0])
        model, unit = optimizer.fit()
        z = optimizer.space.encode({"layers": 2, "size": best.x["size"], "load": 1.0})
        expected = float(model.posterior(z.unsqueeze(0)).mean) * unit
        assert drawn.reshape(7, 3)[-1, 1] == pytest.approx(expected, rel=1e-5)

    def test_many_pairs(self):
        """The slices along which the prediction varies most are kept."""
        bounds = torch.tensor([[0.0] * 6, [1.0] * 6], dtype=torch.double)
        domain = RobustDomain(bounds, [3, 4, 5])
        optimizer = RobustOptimizer(domain, maximize=False, seed=0, strategy="random")
        optimizer.run(lambda z: z[0] + z[4] + 0.1 * z[1], 20, progress=False)
        best = optimizer.recommend()
        chosen = slices.make_slices(optimizer, best)
        pairs = [(one.x.name, one.y.name) for one in chosen]
        assert len(pairs) == 6
        assert {("x1", f"theta{k}") for k in (1, 2, 3)} <= set(pairs)
        assert {(f"x{k}", "theta2") for k in (1, 2, 3)} <= set(pairs)
        assert pairs == sorted(pairs)

    def test_worst_theta_is_a_curve_with_one_theta_only(self, study):
        bounds = torch.tensor([[0.0] * 3, [1.0] * 3], dtype=torch.double)
        optimizer = RobustOptimizer(
            RobustDomain(bounds, [1, 2]), maximize=False, seed=0, strategy="random"
        )
        optimizer.run(lambda z: z[0] * z[1] - z[2], 4, progress=False)
        with_two = [axes for axes in plot_posterior(optimizer).axes if axes.get_title()]
        assert len(with_two) == 4
        curves = [len(axes.lines) for axes in with_two]
        with_one = plot_posterior(study).axes[0]
        assert len(with_one.lines) > max(curves)

    def test_ensemble(self):
        domain = RobustDomain(UNIT_SQUARE, [1])
        model = BayesianGP(num_samples=3, num_steps=20)
        optimizer = RobustOptimizer(
            domain, maximize=False, seed=0, model=model, strategy="random"
        )
        optimizer.run(lambda z: z[0] - z[1], 4, progress=False)
        figure = plot_posterior(optimizer)
        point = torch.tensor([[0.0, 1.0]], dtype=torch.double)
        posterior = optimizer.fit()[0].posterior(point)
        for axes, value in (
            (figure.axes[0], posterior.mixture_mean),
            (figure.axes[1], posterior.mixture_variance.sqrt()),
        ):
            drawn = colours(axes)[0].reshape(7, 7)[-1, 0]
            assert drawn == pytest.approx(float(value), rel=1e-4)


class TestCurves:
    def test_worst_case(self, study):
        figure = plot_worst_case(study, value_label="strain")
        (axes,) = figure.axes
        curve = study.recommend().curve["friction"]
        lines = labelled(axes)
        assert axes.get_ylabel() == "worst-case\nstrain"
        np.testing.assert_allclose(
            lines["predicted worst case"], [curve.x, curve.value]
        )
        (band,) = axes.collections
        corners = band.get_paths()[0].vertices
        assert corners[:, 1].max() == pytest.approx(float(curve.upper.max()))
        assert corners[:, 1].min() == pytest.approx(float(curve.lower.min()))
        assert legend(figure) == [
            *("95 % interval", "predicted worst case", "recommended")
        ]

    def test_finite_parameters(self):
        """Few values have markers and whole numbers below, many have a line."""
        parameters = [
            Range("friction", 0.1, 0.2, levels=101),
            Integer("layers", 1, 3),
            FORCE,
        ]
        optimizer = RobustOptimizer(parameters, maximize=False, seed=0)
        optimizer.add([0.1, 1, 200], 1.0)
        optimizer.add([0.2, 3, 300], 2.0)
        friction, layers = plot_worst_case(optimizer).axes
        assert friction.lines[0].get_marker() == "None"
        assert layers.lines[0].get_marker() == "o"
        assert layers.get_xticks().tolist() == [1, 2, 3]
        assert [label.get_text() for label in layers.get_xticklabels()] == list("123")
        along_friction, _, along_layers, _ = plot_posterior(optimizer).axes[:4]
        assert along_friction.lines[0].get_marker() in ("", "None")
        # There is nothing between few values.
        assert along_layers.lines[0].get_marker() == "s"
        assert along_layers.lines[0].get_linestyle() == "None"

    def test_progress(self, study):
        (axes,) = plot_progress(study).axes
        count, value = labelled(axes)["predicted worst case"]
        assert count.tolist() == [1, 2, 3, 4, 5, 6]
        assert value[-1] == pytest.approx(study.recommend().value)
        assert value[2] == pytest.approx(study.recommend(after=3).value)
        assert axes.get_ylabel() == "recommended worst-case\nvalue"

    @pytest.mark.parametrize(
        ("first", "later", "limits"),
        [
            # The first interval would leave a tenth of the height to the others.
            ((-50.0, 50.0), (-4.0, 4.0), (-4.4, 4.4)),
            # It is not much wider than they are: shown whole, with the usual margin.
            ((-10.0, 10.0), (-4.0, 4.0), (-11.0, 11.0)),
            # Nothing is to be seen of the later ones: shown whole.
            ((-50.0, 50.0), (0.0, 0.0), (-55.0, 55.0)),
        ],
    )
    def test_early_intervals_do_not_flatten_the_rest(
        self, study, monkeypatch, first, later, limits
    ):
        found = study.recommend()

        def recommend(after):
            lower, upper = first if after == 1 else later
            return replace(found, value=0.0, lower=lower, upper=upper)

        monkeypatch.setattr(study, "recommend", recommend)
        (axes,) = plot_progress(study).axes
        assert axes.get_ylim() == pytest.approx(limits)

    def test_states_have_their_own_markers(self, study):
        axes = plot_posterior(study).axes[0]
        lines = {line.get_label(): line for line in axes.lines}
        states = [lines[label] for label in ("told", "running", "failed")]
        assert len({line.get_marker() for line in states}) == 3

    def test_long_histories_are_thinned(self, monkeypatch):
        choices = UNIT_SQUARE[:, :1]
        domain = RobustDomain(UNIT_SQUARE, [1], choices, choices)
        optimizer = RobustOptimizer(domain, maximize=False, seed=0)
        for i in range(30):
            optimizer.add([i % 2, (i // 2) % 2], float(i % 4))
        seen = []
        found = optimizer.recommend()
        monkeypatch.setattr(
            optimizer, "recommend", lambda after=None: seen.append(after) or found
        )
        (axes,) = plot_progress(optimizer).axes
        assert seen == [*range(1, 30, 2), 30]
        assert labelled(axes)["predicted worst case"][0].tolist() == seen


class Steps(RobustTestProblem):
    """Two choices of each part; the robust optimum is met exactly."""

    dim = 2
    _bounds = ((0.0, 1.0), (0.0, 1.0))
    _uncontrollable = (1,)
    _x_choices = ((0.0,), (1.0,))
    _theta_choices = ((0.0,), (1.0,))
    _robust_optimizer = (1.0, 1.0)
    _robust_optimal_value = 1.0

    def _evaluate_true(self, X):
        x, theta = X.unbind(-1)
        return theta + 3 * (1 - x)


class TestRegret:
    @pytest.mark.parametrize("negate", [False, True])
    def test_of_a_known_problem(self, negate):
        problem = RobustBranin(negate=negate)
        optimizer = RobustOptimizer(
            problem.domain, maximize=negate, seed=0, strategy="random"
        )
        optimizer.run(problem, 4, progress=False)
        (axes,) = plot_progress(optimizer, problem).axes
        (line,) = axes.lines
        assert axes.get_yscale() == "log"
        assert axes.get_ylabel() == "regret of worst-case\nvalue"
        x = torch.tensor([optimizer.recommend().x["x1"]], dtype=torch.double)
        expected = abs(
            float(problem.worst_case_value(x) - problem.robust_optimal_value)
        )
        assert line.get_ydata()[-1] == pytest.approx(expected)
        assert min(line.get_ydata()) > 0

    def test_of_zero(self):
        optimizer = RobustOptimizer(Steps().domain, maximize=False, seed=0)
        for x in (0.0, 1.0):
            for theta in (0.0, 1.0):
                optimizer.add([x, theta], theta + 3 * (1 - x))
        figure = plot_study(optimizer, Steps())
        axes = figure.axes[3]
        assert axes.get_yscale() == "symlog"
        assert axes.lines[0].get_ydata()[-1] == 0.0
        figure.canvas.draw()

    def test_of_named_parameters(self):
        """The names, a unit and a logarithmic scale change nothing about a problem."""
        problem = DeepDrawing()
        optimizer = RobustOptimizer(
            [
                Range("friction", 0.1, 0.2, log=True),
                Choice("force", [350, 200, 300], unit="kN", uncontrollable=True),
            ],
            maximize=False,
            seed=0,
            strategy="random",
        )
        optimizer.run(
            lambda friction, force: problem(
                torch.tensor([friction, force], dtype=torch.double)
            ).item(),
            4,
            progress=False,
        )
        for axes in (
            plot_progress(optimizer, problem).axes[0],
            plot_study(optimizer, problem).axes[3],
        ):
            (line,) = axes.lines
            assert axes.get_ylabel() == "regret of worst-case\nvalue"
            for count, regret in enumerate(line.get_ydata(), 1):
                friction = optimizer.recommend(after=count).x["friction"]
                x = torch.tensor([friction], dtype=torch.double)
                worst = max(
                    float(problem(torch.tensor([friction, force]).to(x)))
                    for force in (200, 300, 350)
                )
                assert regret == pytest.approx(worst - problem.robust_optimal_value)

    @pytest.mark.parametrize(
        "x", [Range("x", -5, 10, levels=4), Integer("x", -5, 10)], ids=["levels", "int"]
    )
    def test_of_a_grid_in_a_box(self, x):
        problem = RobustBranin()
        thetas = Choice("t", problem.theta_choices[:, 0].tolist(), uncontrollable=True)
        optimizer = RobustOptimizer([x, thetas], maximize=False, strategy="random")
        optimizer.run(lambda x, t: x + t, 2, progress=False)
        (axes,) = plot_progress(optimizer, problem).axes
        assert axes.get_ylabel() == "regret of worst-case\nvalue"

    @pytest.mark.parametrize(
        "parameters",
        [
            [Range("x", -5, 9), Choice("t", [0.75, 14.25], uncontrollable=True)],
            [Range("x", -5, 10), Choice("t", [0.75, 14.25], uncontrollable=True)],
            [Range("x", -5, 10), Range("t", 0.75, 14.25, uncontrollable=True)],
            [
                Range("x", -5, 10),
                Choice("t", torch.linspace(1, 14, 20).tolist(), uncontrollable=True),
            ],
            [Range("t", -5, 10, uncontrollable=True), Range("x", 0.75, 14.25)],
            [Range("x", -5, 10), Range("y", 0, 1), replace(FORCE, name="t")],
        ],
        ids=["bounds", "fewer", "a box", "other values", "order", "columns"],
    )
    def test_of_other_parameters(self, parameters):
        optimizer = RobustOptimizer(parameters, maximize=False)
        with pytest.raises(
            InputDataError, match=r"a study of RobustBranin .*its order"
        ):
            plot_progress(optimizer, RobustBranin())

    def test_of_another_problem(self, study):
        for plot in (plot_study, plot_progress):
            with pytest.raises(
                InputDataError, match=r"a study of RobustBranin .*force"
            ):
                plot(study, RobustBranin())
        turned = RobustOptimizer(RobustBranin().domain, maximize=True)
        with pytest.raises(InputDataError, match=r"maximize=False.*maximize=True"):
            plot_progress(turned, RobustBranin())


class TestStudy:
    def test_all_in_one(self, study, tmp_path):
        figure = plot_study(study)
        titles = [axes.get_ylabel() for axes in figure.axes]
        assert titles == [
            "force [kN]",
            "force [kN]",
            "worst-case\nvalue",
            "recommended worst-case\nvalue",
            "predicted value",
            "information gain [nats]",
        ]
        assert len(legend(figure)) == 7
        figure.savefig(tmp_path / "study.pdf")

    def test_without_history(self, study):
        figure = plot_study(study, history=False)
        assert len(figure.axes) == 3 + 2  # an odd number of panels leaves no empty one

    def test_nothing_overlaps(self, study):
        figure = plot_study(study)
        figure.canvas.draw()
        boxes = [axes.get_tightbbox() for axes in figure.axes]
        boxes.append(figure.legends[0].get_window_extent())
        for i, one in enumerate(boxes):
            for other in boxes[:i]:
                # The corners of the tick labels may touch.
                shrunk = one.padded(-2)
                assert not shrunk.overlaps(other.padded(-2))
        assert all(math.isfinite(box.width) for box in boxes)
