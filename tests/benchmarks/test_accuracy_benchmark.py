from benchmarks import accuracy
from tests.optim.test_accuracy import compare


def test_rows_are_of_all_models(monkeypatch):
    seeds = []

    def record(samples, domain, seed):
        assert samples.num_samples == 2
        assert domain.tolerances.keys() == {0}
        seeds.append(seed)
        return compare(samples, domain, seed)

    monkeypatch.setattr(accuracy, "compare", record)
    functions, right, off, largest, _ = accuracy.measure((1, 0, 1), 2)
    assert seeds == list(range(accuracy.NUM_MODELS))
    assert (functions, right, off) == ("10", "100.0 %", "0.0 %")
    assert 0.0 <= float(largest) < 1e-6
