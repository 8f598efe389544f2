"""Pictures of studies with tolerances."""

import numpy as np
import pytest
import torch

from botorch_res import RobustOptimizer
from botorch_res.plotting import (
    plot_acquisition,
    plot_posterior,
    plot_study,
    plot_worst_case,
    predictions,
    slices,
)
from botorch_res.study.parameters import Range

A = Range("a", 0, 1, tolerance=(-0.1, 0.2))
B = Range("b", 1, 100, unit="mm", log=True, tolerance="10%")


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    monkeypatch.setattr(slices, "_NUM_VALUES", 7)
    monkeypatch.setattr(predictions, "NUM_VALUES", 13)


def make_study(*parameters):
    optimizer = RobustOptimizer(
        list(parameters), maximize=False, seed=0, strategy="random"
    )
    optimizer.run(lambda **values: sum(values.values()), 5, progress=False)
    optimizer.fail(optimizer.ask(), "broke")
    optimizer.ask()
    return optimizer


@pytest.fixture(scope="module")
def line():
    return make_study(A)


@pytest.fixture(scope="module")
def plane():
    return make_study(A, B)


def labelled(axes):
    return {
        artist.get_label(): artist
        for artist in (*axes.lines, *axes.patches, *axes.collections)
        if not artist.get_label().startswith("_")
    }


def corners(patch):
    box = patch.get_path().transformed(patch.get_patch_transform()).get_extents()
    return box.x0, box.x1, box.y0, box.y1


class TestOneParameter:
    def test_curve(self, line):
        best = line.recommend()
        figures = plot_posterior(line), plot_worst_case(line)
        for figure in figures:
            (axes,) = figure.axes
            drawn = labelled(axes)
            x, y = drawn["predicted worst case"].get_data()
            np.testing.assert_allclose(x, best.curve["a"].x)
            np.testing.assert_allclose(y, best.curve["a"].value)
            # The band is what comes out of the recommended setting.
            left, right, _, _ = corners(drawn["within tolerance"])
            setting = best.x["a"]
            assert (left, right) == pytest.approx((setting - 0.1, setting + 0.2))
            assert drawn["recommended"].get_xydata() == pytest.approx(
                np.array([[setting, best.value]])
            )
            assert drawn["worst within tolerance"].get_xydata() == pytest.approx(
                np.array([[best.worst_case["a"], best.value]])
            )
            assert (axes.get_xlabel(), axes.get_ylabel()) == ("a", "value")
            assert axes.get_title() == ""

    def test_prediction(self, line):
        """The mean and its interval over all that can come out."""
        (axes,) = plot_posterior(line).axes
        drawn = labelled(axes)
        x, mean = drawn["prediction"].get_data()
        np.testing.assert_allclose(x, np.linspace(-0.1, 1.2, 13), atol=1e-12)
        model, unit = line.fit()
        posterior = model.posterior(torch.as_tensor(x).unsqueeze(-1))
        expected = (posterior.mean * unit).detach().squeeze(-1)
        np.testing.assert_allclose(mean, expected)
        vertices = drawn["95 % of the prediction"].get_paths()[0].vertices
        deviation = (posterior.variance.sqrt() * unit).detach().squeeze(-1)
        top = expected + 1.96 * deviation
        assert vertices[:, 1].max() == pytest.approx(float(top.max()))

    def test_trials(self, line):
        (axes,) = plot_posterior(line).axes
        drawn = labelled(axes)
        told = [t for t in line.trials if t.state == "complete"]
        expected = [[t.parameters["a"], t.value] for t in told]
        np.testing.assert_allclose(drawn["told"].get_xydata(), expected)
        for state in ("running", "failed"):
            (trial,) = (t for t in line.trials if t.state == state)
            marked = drawn[state].get_xydata()
            np.testing.assert_allclose(marked, [[trial.parameters["a"], 0.0]])

    def test_information(self, line):
        for figure, position in ((plot_acquisition(line), 0), (plot_study(line), 1)):
            axes = figure.axes[position]
            curve, most = axes.lines
            # The grid of what may be evaluated.
            x = torch.linspace(-0.1, 1.2, 201, dtype=torch.double)
            gain = line.acquisition()(x[::40, None, None]).detach()
            np.testing.assert_allclose(curve.get_ydata()[::40], gain, rtol=1e-6)
            assert most.get_ydata()[0] == curve.get_ydata().max()
            assert axes.get_ylabel() == "information gain [nats]"

    def test_overview(self, line):
        labels = [axes.get_ylabel() for axes in plot_study(line).axes]
        assert labels == [
            "value",
            "information gain [nats]",
            "recommended worst-case\nvalue",
        ]


class TestMaps:
    def test_two_tolerances(self, plane):
        """A frame around all that can come out, with the worst in it."""
        best = plane.recommend()
        for axes in plot_posterior(plane).axes[:2]:
            assert (axes.get_xlabel(), axes.get_ylabel()) == ("a", "b [mm]")
            drawn = labelled(axes)
            a, b = best.x["a"], best.x["b"]
            expected = (a - 0.1, a + 0.2, b / 1.1, b * 1.1)
            assert corners(drawn["within tolerance"]) == pytest.approx(expected)
            assert drawn["recommended"].get_xydata()[0] == pytest.approx([a, b])
            worst = [best.worst_case["a"], best.worst_case["b"]]
            assert drawn["worst within tolerance"].get_xydata()[0] == pytest.approx(
                worst
            )

    def test_curves(self, plane):
        best = plane.recommend()
        along_a, along_b = plot_worst_case(plane).axes
        assert along_b.get_xscale() == "log"
        assert along_a.get_title().startswith("prediction at b = ")
        drawn = labelled(along_b)
        z, mean = drawn["prediction"].get_data()
        assert (z[0], z[-1]) == pytest.approx((1 / 1.1, 110.0))
        assert "95 % interval" in drawn
        model, unit = plane.fit()
        points = [
            plane.space.encode({"a": best.worst_case["a"], "b": value}).tolist()
            for value in z
        ]
        posterior = model.posterior(torch.tensor(points, dtype=torch.double))
        expected = (posterior.mean * unit).detach().squeeze(-1)
        np.testing.assert_allclose(mean, expected, rtol=1e-6)

    def test_an_exact_parameter(self):
        study = make_study(A, Range("exact", 0, 1))
        best = study.recommend()
        axes, _, _, _ = plot_posterior(study).axes
        a, exact = best.x["a"], best.x["exact"]
        found = corners(labelled(axes)["within tolerance"])
        assert found == pytest.approx((a - 0.1, a + 0.2, exact, exact))
        along_a, along_exact = plot_worst_case(study).axes
        assert "prediction" in labelled(along_a)
        assert "prediction" not in labelled(along_exact)
        assert along_exact.get_ylabel() == "worst-case\nvalue"

    def test_beside_an_uncontrollable_parameter(self):
        load = Range("load", 1, 2, uncontrollable=True)
        study = make_study(A, Range("exact", 0, 1), load)
        best = study.recommend()
        over_a, _, over_exact, *_ = plot_posterior(study).axes
        a = best.x["a"]
        found = corners(labelled(over_a)["within tolerance"])
        assert found == pytest.approx((a - 0.1, a + 0.2, 1, 2))
        assert "within tolerance" not in labelled(over_exact)
        assert "predicted worst case" in labelled(over_a)
        star = labelled(over_a)["recommended"].get_xydata()[0]
        assert star == pytest.approx([a, best.theta["load"]])
