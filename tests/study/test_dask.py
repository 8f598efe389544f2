"""A study on a Dask cluster of two worker processes over TCP."""

import functools

import pytest
from distributed import Client, LocalCluster

from botorch_res import RobustOptimizer
from botorch_res.study import running
from botorch_res.study.parameters import Choice, Range
from tests.study import study_functions as functions


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            protocol="tcp://",
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def make(path):
    parameters = [
        Range("friction", 0.1, 0.2),
        Choice("force", [200, 300, 350], unit="kN", uncontrollable=True),
    ]
    return RobustOptimizer(
        parameters, maximize=False, storage=path, seed=0, strategy="random"
    )


def test_cluster(client, tmp_path):
    executor = client.get_executor()
    assert running._num_workers(executor) == 2
    optimizer = make(tmp_path / "study.db")
    optimizer.run(functions.press, 6, executor, progress=False)
    assert [t.state for t in optimizer.trials] == ["complete"] * 6
    for trial in optimizer.trials:
        assert trial.value == functions.press(**trial.parameters)


def test_a_worker_dies(client, tmp_path):
    """Its trial is repeated by another worker, and nothing else is lost."""
    marker = tmp_path / "marker"
    function = functools.partial(functions.die_once, marker=str(marker))
    optimizer = make(tmp_path / "study.db")
    optimizer.run(function, 10, client.get_executor(), progress=False)
    assert marker.exists()  # a worker was killed
    assert [t.number for t in optimizer.trials] == list(range(10))
    assert [t.state for t in optimizer.trials] == ["complete"] * 10
    for trial in optimizer.trials:
        assert trial.value == functions.press(**trial.parameters)
