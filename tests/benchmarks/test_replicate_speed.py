import torch

from benchmarks.replicates import HEAD, compare, make_replicates


def test_a_batch_is_compared_with_single_steps():
    quick = {"num_samples": 1, "num_restarts": 2, "raw_samples": 8}
    row = compare("sinus_linear", "res", 2, 3, 1, **quick).split(" | ")
    assert len(row) == len(HEAD.split(" | "))
    assert row[:4] == ["| sinus_linear", "res", "2", "3"]


def test_lost_information_is_that_of_worse_points():
    quick = {"num_samples": 1, "num_restarts": 2, "raw_samples": 8}
    runs = make_replicates("sinus_linear", "res", 2, 3, **quick)
    good, bad = runs.singly(), runs.X[:, 0]
    assert (runs.lost_information(bad, good) > 0.0).all()
    torch.testing.assert_close(
        runs.lost_information(bad, good), -runs.lost_information(good, bad)
    )
