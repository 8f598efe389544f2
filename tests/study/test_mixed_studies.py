"""Studies of names and numbers, lists and ranges, conditions and tolerances at once."""

import csv
import itertools

import numpy as np
import pytest
from botorch.exceptions.errors import InputDataError

from botorch_res import RobustOptimizer
from botorch_res.models import DefaultGP
from botorch_res.study.parameters import Choice, Integer, Range

BEST_THICKNESS = {"steel": 1.5, "aluminium": 2.0, "POM": 2.6}
OFFSET = {"steel": 0.5, "aluminium": 0.2, "POM": 0.4}
SHIFT = {"A": 0.0, "B": 0.3}
MATERIAL = Choice("material", list(BEST_THICKNESS))
THICKNESS = Range("thickness", 1, 3, unit="mm")
TEMPERATURE = Range("temperature", -20, 60, unit="°C", uncontrollable=True)
SUPPLIER = Choice("supplier", list(SHIFT), uncontrollable=True)
BRACKET = [MATERIAL, THICKNESS, TEMPERATURE, SUPPLIER]


def deflection(material, thickness, temperature=20.0, supplier="A"):
    wanted = BEST_THICKNESS[material] + SHIFT[supplier]
    warmth = (temperature - 20.0) / 40.0
    return (thickness - wanted) ** 2 + OFFSET[material] + 0.1 * warmth


def start(parameters, storage=None, **settings):
    settings = {"strategy": "random", "seed": 3, "maximize": False} | settings
    return RobustOptimizer(parameters, storage=storage, **settings)


@pytest.fixture(scope="module")
def dense():
    """All materials and suppliers at many thicknesses: the model is the function."""
    optimizer = start([SUPPLIER, THICKNESS, MATERIAL], noise=0.0)
    for supplier, thickness, material in itertools.product(
        SHIFT, np.linspace(1, 3, 7), BEST_THICKNESS
    ):
        value = deflection(material, thickness, supplier=supplier)
        optimizer.add([supplier, float(thickness), material], value)
    return optimizer


def worst_deflection(material, thickness):
    return np.maximum(
        *(deflection(material, thickness, supplier=supplier) for supplier in SHIFT)
    )


class TestRecommendation:
    def test_against_brute_force(self, dense):
        grid = np.linspace(1, 3, 2001)
        worst = {m: worst_deflection(m, grid).min() for m in BEST_THICKNESS}
        best = dense.recommend()
        assert best.x["material"] == min(worst, key=worst.get) == "aluminium"
        # The model misses the parabolas by a thousandth or so.
        assert best.value == pytest.approx(worst["aluminium"], abs=5e-3)
        assert best.x["thickness"] == pytest.approx(2.15, abs=0.02)
        assert best.theta["supplier"] in SHIFT
        assert best.worst_case == best.x | best.theta

    def test_text(self, dense):
        text = str(dense.recommend())
        assert text.startswith("thickness = 2.1")
        assert ", material = aluminium: worst case 0.22" in text
        assert text.endswith((" at supplier = A", " at supplier = B"))

    def test_curves(self, dense):
        """Along a list one value for each name; along a range many."""
        best = dense.recommend()
        curve = best.curve["material"]
        assert curve.x.tolist() == [0.0, 1.0, 2.0]
        thickness = best.x["thickness"]
        expected = [worst_deflection(m, thickness) for m in BEST_THICKNESS]
        np.testing.assert_allclose(curve.value, expected, atol=1e-2)
        # Steel is too thick for supplier A, POM too thin for B.
        assert curve.theta[[0, 2]].tolist() == [[0.0], [1.0]]
        curve = best.curve["thickness"]
        assert (curve.x[0], curve.x[-1], len(curve.x)) == (1.0, 3.0, 101)
        expected = worst_deflection("aluminium", curve.x.numpy())
        np.testing.assert_allclose(curve.value, expected, atol=1e-2)


class TestTolerance:
    def test_against_brute_force(self):
        """A setting with a tolerance beside names that we choose, and that nature does.

        Thick steel is cheap at its best and dear beside it.
        """
        parameters = [SUPPLIER, MATERIAL, Range("thickness", 1, 3, tolerance=(-0.2, 0))]
        steepness = {"steel": 8.0, "aluminium": 1.0, "POM": 1.0}

        def cost(supplier, material, z):
            wanted = BEST_THICKNESS[material] + SHIFT[supplier]
            base = 0.0 if material == "steel" else OFFSET[material]
            return steepness[material] * (z - wanted) ** 2 + base

        optimizer = start(parameters, noise=0.0)
        for supplier, material, z in itertools.product(
            SHIFT, BEST_THICKNESS, np.linspace(0.8, 3, 9)
        ):
            value = cost(supplier, material, z)
            optimizer.add([supplier, material, float(z)], value)
        settings, shifts = np.linspace(1, 3, 801), np.linspace(-0.2, 0, 81)
        worst = {
            material: np.max(
                [cost(s, material, settings[:, None] + shifts) for s in SHIFT], (0, 2)
            )
            for material in BEST_THICKNESS
        }
        material = min(worst, key=lambda name: worst[name].min())
        best = optimizer.recommend()
        assert best.x["material"] == material == "aluminium"
        expected = settings[worst[material].argmin()]
        # The model misses the parabolas by a thousandth or so.
        assert best.x["thickness"] == pytest.approx(expected, abs=0.02)
        assert best.value == pytest.approx(worst[material].min(), abs=5e-3)
        assert best.deviation["thickness"] in (pytest.approx(-0.2), pytest.approx(0.0))
        found = cost(best.theta["supplier"], material, best.worst_case["thickness"])
        assert found == pytest.approx(best.value, abs=5e-3)
        curve = best.curve["material"]
        at = np.abs(settings - best.x["thickness"]).argmin()
        # The setting is up to 0.00125 from the grid: 16 * 0.8 * 0.00125 for steel.
        np.testing.assert_allclose(
            curve.value, [worst[name][at] for name in BEST_THICKNESS], atol=0.05
        )


class TestStudy:
    def test_a_study_goes_on_as_if_nothing_had_happened(self, tmp_path):
        path = tmp_path / "bracket.db"
        for budget in (3, 8):
            resumed = start(BRACKET, path)
            resumed.run(deflection, budget, progress=False)
        whole = start(BRACKET)
        whole.run(deflection, 8, progress=False)
        assert [t.parameters for t in resumed.trials] == [
            t.parameters for t in whole.trials
        ]
        assert str(resumed.recommend()) == str(whole.recommend())
        opened = RobustOptimizer.open(path)
        assert opened.space.parameters == tuple(BRACKET)
        assert str(opened.recommend()) == str(whole.recommend())

    @pytest.mark.parametrize("tolerance", [None, 0.1])
    def test_default_strategy(self, tmp_path, tolerance):
        """All kinds of columns; resumed before and after the design."""
        thickness = Range("thickness", 1, 3, unit="mm", tolerance=tolerance)
        parameters = [MATERIAL, thickness, TEMPERATURE, SUPPLIER]
        fast = {"num_samples": 4}
        settings = {"strategy": None, "num_initial": 6, "strategy_options": fast}
        path = tmp_path / "bracket.db"
        for budget in (3, 7, 8):
            resumed = start(parameters, path, **settings)
            resumed.run(deflection, budget, progress=False)
        whole = start(parameters, **settings)
        best = whole.run(deflection, 8, progress=False)
        assert [t.point for t in resumed.trials] == [t.point for t in whole.trials]
        assert str(resumed.recommend()) == str(best)
        assert f"material = {best.x['material']}, thickness = " in str(best)
        assert f"supplier = {best.theta['supplier']}" in str(best)
        suggested = whole.trials[6:]
        assert {trial.origin for trial in suggested} == {"res"}
        for trial in suggested:
            assert trial.parameters["material"] in BEST_THICKNESS
            assert trial.parameters["supplier"] in SHIFT
        # No suggestion is repeated: each would tell the model something.
        assert len({trial.point for trial in whole.trials}) == 8

    def test_trials_have_names(self):
        optimizer = start(BRACKET)
        optimizer.run(deflection, 8, progress=False)
        for trial in optimizer.trials:
            assert trial.parameters["material"] in BEST_THICKNESS
            assert trial.parameters["supplier"] in SHIFT
            assert trial.value == deflection(**trial.parameters)
        assert {t.parameters["material"] for t in optimizer.trials} == set(OFFSET)
        text = str(optimizer.trials)
        assert "aluminium" in text
        assert "supplier" in text.splitlines()[0]

    def test_table(self, tmp_path):
        optimizer = start(BRACKET)
        optimizer.run(deflection, 3, progress=False)
        optimizer.trials.to_csv(tmp_path / "trials.csv")
        with open(tmp_path / "trials.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        for row, trial in zip(rows, optimizer.trials, strict=True):
            assert row["material"] == trial.parameters["material"]
            assert float(row["thickness"]) == trial.parameters["thickness"]
        table = optimizer.trials.to_pandas()
        assert table["supplier"].isin(SHIFT).all()

    def test_old_data(self):
        optimizer = start(BRACKET)
        values = {"material": "POM", "thickness": 2, "temperature": 0, "supplier": "B"}
        assert optimizer.add(values, 1.0).parameters == values
        message = "'supplier' to be one of 'A', 'B', got 'C'"
        with pytest.raises(InputDataError, match=message):
            optimizer.add(values | {"supplier": "C"}, 1.0)
        with pytest.raises(InputDataError, match="'steel', 'aluminium', 'POM', got 2"):
            optimizer.add(values | {"material": 2}, 1.0)

    def test_another_list_is_another_study(self, tmp_path):
        start(BRACKET, tmp_path / "bracket.db")
        other = [Choice("material", ["steel", "POM"]), *BRACKET[1:]]
        message = r"material in \{steel, aluminium, POM\}.*You gave .*\{steel, POM\}"
        with pytest.raises(InputDataError, match=message):
            start(other, tmp_path / "bracket.db")

    def test_models_must_know_of_names(self):
        def fit(X, Y, Yvar, bounds, seed=0):
            return DefaultGP()(X, Y, Yvar, bounds, seed)

        message = r"argument `cat_dims`, .* here \[0, 3\], got .*fit with X, Y, Yvar, b"
        with pytest.raises(InputDataError, match=message):
            start(BRACKET, model=fit)
        numbers = [THICKNESS, TEMPERATURE]
        assert start(numbers, model=fit).space.x_names == ["thickness"]
        seen = []

        def fit_with_names(*arguments, cat_dims):
            seen.append(cat_dims)
            return DefaultGP()(*arguments, cat_dims=cat_dims)

        optimizer = start(BRACKET, model=fit_with_names)
        optimizer.run(deflection, 4, progress=False)
        assert set(seen) == {(0, 3)}

    @pytest.mark.parametrize(
        "parameters",
        [
            [MATERIAL, SUPPLIER],
            [MATERIAL, TEMPERATURE],
            [THICKNESS, Integer("n", 1, 4), SUPPLIER],
            [Range("thickness", 1, 3, levels=5), MATERIAL, SUPPLIER, TEMPERATURE],
            [Range("thickness", 1, 3, tolerance=0.1), MATERIAL],
            [Range("thickness", 1, 3, tolerance=0.1), MATERIAL, SUPPLIER, TEMPERATURE],
            [Integer("n", 1, 4, tolerance=0.3), THICKNESS, MATERIAL, SUPPLIER],
        ],
    )
    def test_every_mixture_runs(self, parameters):
        def function(**values):
            values = {"material": "steel", "thickness": 2.0} | values
            return deflection(
                **{k: v for k, v in values.items() if k != "n"}
            ) + 0.1 * values.get("n", 1)

        optimizer = start(parameters)
        best = optimizer.run(function, 10, progress=False)
        assert set(best.worst_case) == {p.name for p in parameters}
        if "material" in best.x:
            assert best.x["material"] in BEST_THICKNESS
        for name, curve in best.curve.items():
            (parameter,) = (p for p in parameters if p.name == name)
            count = 101 if parameter.values is None else len(parameter.values)
            assert len(curve.x) == count
            assert set(curve.deviation) == set(best.deviation)
