"""A study on a Dask cluster of two worker processes over TCP."""

import functools

import pytest
from distributed import Client, LocalCluster

from botorch_res.study import running
from tests.study import study_functions as functions
from tests.study.study_functions import make


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


def test_cluster(client, tmp_path):
    executor = client.get_executor()
    assert running.num_workers(executor) == 2
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
