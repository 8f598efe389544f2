import pytest
import torch

from botorch_res import RobustDomain
from botorch_res.optimizer import RobustOptimizer
from botorch_res.study.parameters import Choice, Integer, Range
from botorch_res.study.plots import plot_study

FRICTION = Range("friction", 1e-3, 1e-1, log=True)
FORCE = Choice("force", [200, 300, 350], unit="kN", uncontrollable=True)


def press(friction, force):
    return 100 * friction - force / 100


def test_two_parameters():
    optimizer = RobustOptimizer(
        [FRICTION, FORCE], maximize=False, seed=0, strategy="random"
    )
    optimizer.run(press, 6, progress=False)
    optimizer.fail(optimizer.ask(), "broke")
    optimizer.ask()
    figure = plot_study(optimizer)
    mean, curve, history, _ = figure.axes  # and the colour bar
    assert mean.get_xlabel() == "friction"
    assert mean.get_ylabel() == "force [kN]"
    assert (mean.get_xscale(), mean.get_yscale()) == ("log", "linear")
    assert len(mean.lines) == 8 + 1  # trials and the recommendation
    best = optimizer.recommend()
    star = mean.lines[-1]
    assert float(star.get_xdata()[0]) == best.x["friction"]
    assert float(star.get_ydata()[0]) == best.theta["force"]
    assert curve.lines[0].get_ydata().tolist() == best.curve["friction"].value.tolist()
    assert history.lines[0].get_xdata().tolist() == [1, 2, 3, 4, 5, 6]
    assert history.lines[0].get_ydata()[-1] == pytest.approx(best.value)


def test_slices_of_more_parameters(tmp_path):
    parameters = [
        Integer("layers", 1, 3),
        Choice("size", [0.5, 1.0, 2.0], log=True),
        Range("load", 0.0, 1.0, uncontrollable=True),
    ]
    optimizer = RobustOptimizer(parameters, maximize=True, seed=0, strategy="random")
    optimizer.run(lambda layers, size, load: layers - size * load, 4, progress=False)
    figure = plot_study(optimizer, history=False)
    assert [axes.get_xlabel() for axes in figure.axes] == ["layers", "size"]
    figure.savefig(tmp_path / "study.png")


def test_long_histories_are_thinned():
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
    choices = bounds[:, :1]
    domain = RobustDomain(bounds, [1], choices, choices)
    optimizer = RobustOptimizer(domain, maximize=False, seed=0)
    for i in range(30):
        optimizer.add([i % 2, (i // 2) % 2], float(i % 4))
    history = plot_study(optimizer).axes[2]
    counts = history.lines[0].get_xdata().tolist()
    assert counts == [*range(1, 30, 2), 30]
    assert history.lines[0].get_ydata()[0] == pytest.approx(
        optimizer.recommend(after=1).value
    )
