import pytest

from benchmarks.report import Table, read_rows, run_sections


class Interrupted(Exception):
    pass


def make_table(calls, stop_at=None):
    def measure(name, n):
        if n == stop_at:
            raise Interrupted
        calls.append((name, n))
        return [10 * n]

    rows = {
        (name, n): lambda name=name, n=n: measure(name, n)
        for name in ("box", "4-D")
        for n in (1, 2)
    }
    return Table("What it is.", ["domain", "t"], ["seconds"], rows)


def test_an_interrupted_table_goes_on_with_what_is_missing(tmp_path):
    path, calls = tmp_path / "results.md", []
    sections = {
        "steps": lambda: make_table(calls, stop_at=2),
        "words": lambda: ["one", "two"],
    }
    with pytest.raises(Interrupted):
        run_sections(sections, ["steps"], path, "# Title\n")
    assert calls == [("box", 1)]
    run_sections(sections, ["words"], path, "# Title\n")
    sections["steps"] = lambda: make_table(calls)
    run_sections(sections, ["steps"], path, "# Title\n")
    run_sections(sections, ["steps"], path, "# Title\n")
    assert calls == [("box", 1), ("box", 2), ("4-D", 1), ("4-D", 2)]
    heads = ["domain", "t", "seconds", "measured, load"]
    rows = read_rows(path, "steps", heads, 2)
    assert [line[:3] for line in rows.values()] == [
        ["box", "1", "10"],
        ["box", "2", "20"],
        ["4-D", "1", "10"],
        ["4-D", "2", "20"],
    ]
    assert read_rows(path, "steps", heads[1:], 2) == {}
    assert "\n## words\n" in path.read_text()
    assert path.read_text().startswith("# Title\n")
    # A row that was deleted is measured anew, and takes its old place.
    text = "\n".join(x for x in path.read_text().split("\n") if "| box | 2 |" not in x)
    path.write_text(text)
    run_sections(sections, ["steps"], path, "# Title\n")
    assert calls[4:] == [("box", 2)]
    assert list(read_rows(path, "steps", heads, 2)) == list(rows)


def test_without_a_file_nothing_is_kept(tmp_path, capsys):
    calls = []
    sections = {"steps": lambda: make_table(calls), "words": lambda: ["one"]}
    run_sections(sections, [], None, "# Title\n")
    assert len(calls) == 4
    assert "| 4-D | 2 | 20 |" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"among \['steps', 'words'\], got \['x'\]"):
        run_sections(sections, ["x"], None, "# Title\n")
