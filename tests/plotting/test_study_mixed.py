"""Pictures of studies with names, and of lists beside ranges."""

import itertools

import numpy as np
import pytest
import torch

from botorch_res import RobustDomain, RobustOptimizer
from botorch_res.plotting import (
    plot_acquisition,
    plot_posterior,
    plot_progress,
    plot_study,
    plot_worst_case,
    predictions,
    slices,
)
from botorch_res.study.parameters import Choice, Integer, Range
from botorch_res.test_functions import SnapHook

MATERIAL = Choice("material", ["steel", "aluminium", "POM"])
THICKNESS = Range("thickness", 1, 3, unit="mm")
SLOPPY = Range("thickness", 1, 3, unit="mm", tolerance=0.1)
SUPPLIER = Choice("supplier", ["A", "B"], uncontrollable=True)
LOAD = Range("load", 1, 2, uncontrollable=True)


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    monkeypatch.setattr(slices, "_NUM_VALUES", 25)
    monkeypatch.setattr(predictions, "NUM_VALUES", 13)


def cost(material="steel", thickness=2.0, supplier="A", load=1.0, layers=1):
    wanted = {"steel": 1.4, "aluminium": 2.0, "POM": 2.6}.get(material, 2.0)
    shift = 0.4 if supplier == "B" else 0.0
    return load * (thickness - wanted - shift) ** 2 + 0.1 * layers


def study_of(*parameters, num=12):
    optimizer = RobustOptimizer(
        list(parameters), maximize=False, seed=0, strategy="random"
    )
    optimizer.run(cost, num, progress=False)
    return optimizer


def texts(labels):
    return [label.get_text() for label in labels]


def labelled(axes):
    return {
        artist.get_label(): artist
        for artist in (*axes.lines, *axes.patches, *axes.collections)
        if not artist.get_label().startswith("_")
    }


def gaps(axes):
    """The white lines between the stripes of categories."""
    return [
        line
        for line in axes.lines
        if (line.get_color(), line.get_linewidth()) == ("white", 3)
    ]


class TestMaps:
    def test_names_have_stripes_with_gaps(self):
        optimizer = study_of(MATERIAL, THICKNESS, LOAD)
        figure = plot_posterior(optimizer)
        over_names, _, over_numbers = figure.axes[:3]
        assert (over_names.get_xlabel(), over_names.get_ylabel()) == (
            "material",
            "load",
        )
        assert texts(over_names.get_xticklabels()) == ["steel", "aluminium", "POM"]
        assert over_names.get_xticks().tolist() == [0.0, 1.0, 2.0]
        assert [gap.get_xdata()[0] for gap in gaps(over_names)] == [0.5, 1.5]
        # A stripe for each name, with the prediction of just that name.
        colours = over_names.collections[0].get_array()
        assert colours.shape == (25, 3)
        model, unit = optimizer.fit()
        best = optimizer.recommend()
        for material in range(3):
            z = torch.tensor([[material, best.x["thickness"], 1.5]]).double()
            expected = unit * float(model.posterior(z).mean)
            # Two ways to solve with a covariance whose condition is 1e7 or so.
            assert colours[12, material] == pytest.approx(expected, abs=1e-6)
        # The trials are in the middle of their stripes.
        told = labelled(over_names)["told"].get_xydata()
        place = MATERIAL.names.index
        assert told[:, 0].tolist() == [
            place(trial.parameters["material"]) for trial in optimizer.trials
        ]
        assert over_numbers.get_title() == f"at material = {best.x['material']}"
        assert gaps(over_numbers) == []

    def test_worst_name_jumps(self):
        """Between two names there is no line, however many names there are."""
        names = [f"batch {i}" for i in range(30)]
        batch = Choice("batch", names, uncontrollable=True)
        optimizer = RobustOptimizer(
            [THICKNESS, batch], maximize=False, seed=0, strategy="random", noise=0.0
        )
        for thickness in np.linspace(1, 3, 9):
            for i in (14, 15):
                value = (thickness - 2) * (1 if i == 14 else -1)
                optimizer.add([float(thickness), names[i]], value)
        axes = plot_posterior(optimizer).axes[0]
        y = labelled(axes)["predicted worst case"].get_ydata()
        assert {14.0, 15.0} <= set(y[~np.isnan(y)])
        for before, after in itertools.pairwise(y):
            assert np.isnan(before) or np.isnan(after) or before == after
        assert axes.get_ylim()[0] < 0
        assert texts(axes.get_yticklabels()) == names

    def test_names_on_both_axes(self):
        figure = plot_acquisition(study_of(MATERIAL, SUPPLIER))
        axes = figure.axes[0]
        assert texts(axes.get_yticklabels()) == ["A", "B"]
        assert axes.collections[0].get_array().shape == (2, 3)
        assert len(gaps(axes)) == 3

    def test_lists_beside_ranges(self):
        """A map never shows what nobody can choose."""
        axes = plot_posterior(study_of(Integer("layers", 1, 4), THICKNESS, LOAD)).axes
        assert axes[0].collections[0].get_array().shape == (25, 4)
        assert axes[2].collections[0].get_array().shape == (25, 25)
        assert gaps(axes[0]) == []

    def test_tolerance_beside_names(self):
        """The frame covers what comes out: all suppliers, but one material."""
        optimizer = study_of(SLOPPY, MATERIAL, SUPPLIER)
        best = optimizer.recommend()
        for axes in plot_posterior(optimizer).axes[:4:2]:
            drawn = labelled(axes)
            if axes.get_xlabel() == "thickness [mm]":
                frame = drawn["within tolerance"].get_xy()
                left, bottom = frame.min(axis=0)
                right, top = frame.max(axis=0)
                setting = best.x["thickness"]
                assert (left, right) == pytest.approx((setting - 0.1, setting + 0.1))
                assert (bottom, top) == (-0.4, 1.4)
            else:
                assert "within tolerance" not in drawn
        optimizer = study_of(SLOPPY, MATERIAL)
        place = MATERIAL.names.index(optimizer.recommend().x["material"])
        frame = labelled(plot_posterior(optimizer).axes[0])["within tolerance"].get_xy()
        assert frame.min(axis=0)[1] == pytest.approx(place - 0.4)
        assert frame.max(axis=0)[1] == pytest.approx(place + 0.4)

    def test_codes_of_a_plain_domain(self):
        """Categories without names have their codes, and no line between them."""
        bounds = torch.tensor([[0.0, 0.0], [5.0, 1.0]], dtype=torch.double)
        codes = {0: [0.0, 1.0, 5.0]}
        domain = RobustDomain(bounds, [1], x_choices=codes, cat_dims=[0])
        optimizer = RobustOptimizer(domain, maximize=False, seed=0, strategy="random")
        optimizer.run(lambda z: float(z.sum()), 6, progress=False)
        (axes,) = plot_worst_case(optimizer).axes
        assert texts(axes.get_xticklabels()) == ["0", "1", "5"]
        assert labelled(axes)["predicted worst case"].get_linestyle() == "None"


class TestCurves:
    def test_names_have_points_and_ranges_lines(self):
        optimizer = study_of(MATERIAL, THICKNESS, SUPPLIER)
        best = optimizer.recommend()
        over_names, over_numbers = plot_worst_case(optimizer).axes
        drawn = labelled(over_names)
        points = drawn["predicted worst case"]
        assert (points.get_linestyle(), points.get_marker()) == ("None", "o")
        np.testing.assert_allclose(points.get_ydata(), best.curve["material"].value)
        bars = [path.vertices for path in drawn["95 % interval"].get_paths()]
        ends = np.array(bars)
        assert ends[:, 0, 0].tolist() == [0.0, 1.0, 2.0]
        np.testing.assert_allclose(ends[:, 0, 1], best.curve["material"].lower)
        np.testing.assert_allclose(ends[:, 1, 1], best.curve["material"].upper)
        assert texts(over_names.get_xticklabels()) == list(MATERIAL.names)
        assert labelled(over_numbers)["predicted worst case"].get_linestyle() == "-"
        star = drawn["recommended"].get_xydata()[0]
        assert star[0] == MATERIAL.names.index(best.x["material"])

    def test_whole_numbers_with_a_tolerance_are_a_list(self):
        optimizer = study_of(Integer("layers", 1, 4, tolerance=0.5), THICKNESS)
        axes = plot_worst_case(optimizer).axes[0]
        line = labelled(axes)["predicted worst case"]
        assert line.get_xdata().tolist() == [1.0, 2.0, 3.0, 4.0]
        assert line.get_marker() == "o"

    def test_long_names_are_turned(self):
        names = [f"a rather long name {i}" for i in range(4)]
        optimizer = RobustOptimizer(
            [Choice("grade", names), LOAD], maximize=False, seed=0, strategy="random"
        )
        optimizer.run(lambda grade, load: load, 6, progress=False)
        (axes,) = plot_worst_case(optimizer).axes
        assert all(label.get_rotation() == 90 for label in axes.get_xticklabels())


class TestRegret:
    def test_of_names(self):
        """The study has names, the problem codes: both mean the same hook."""
        problem = SnapHook()
        optimizer = RobustOptimizer(
            [
                Choice("material", SnapHook.materials),
                Range("thickness", 1.5, 2.5, unit="mm"),
                Range("temperature", -20, 60, uncontrollable=True),
                Choice("supplier", SnapHook.suppliers, uncontrollable=True),
            ],
            maximize=False,
            seed=0,
            strategy="random",
        )
        for z in optimizer.space.sample(5, seed=0):
            optimizer.add(list(optimizer.space.decode(z).values()), float(problem(z)))
        (axes,) = plot_progress(optimizer, problem).axes
        x = optimizer.recommend().x
        code = SnapHook.materials.index(x["material"])
        setting = torch.tensor([code, x["thickness"]], dtype=torch.double)
        regret = problem.worst_case_value(setting) - problem.robust_optimal_value
        assert axes.lines[0].get_ydata()[-1] == pytest.approx(float(regret))


class TestStudy:
    @pytest.mark.parametrize(
        ("parameters", "num_panels"),
        [
            ([SLOPPY], 3),
            ([SLOPPY, MATERIAL], 5),
            ([MATERIAL, THICKNESS, SUPPLIER], 7),
            ([THICKNESS, SUPPLIER], 4),
        ],
    )
    def test_no_corner_is_empty(self, parameters, num_panels):
        figure = plot_study(study_of(*parameters, num=5))
        panels = figure.axes[:num_panels]
        assert panels[-1].get_xlabel() == "number of values"
        cells = [axes.get_subplotspec() for axes in panels]
        covered = [
            (row, column)
            for cell in cells
            for row in cell.rowspan
            for column in cell.colspan
        ]
        assert sorted(covered) == [
            (row, column) for row in range(-(-num_panels // 2)) for column in range(2)
        ]
