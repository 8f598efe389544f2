"""The report of the regret runs: figures, and tables in ``RESULTS.md``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.comparison import (
    Runs,
    holm,
    iterations_to_reach,
    paired_test,
    quartiles,
    read_runs,
)
from benchmarks.protocols import PROTOCOLS
from benchmarks.regret_figures import draw_panels, label, place
from benchmarks.report import markdown_table

HEAD = """# Regret of robust strategies

How far the recommended setting is from the robust optimum, after how many evaluations,
and after how much time. Lines are medians over seeds, bands the quartiles.

The **common** recommendation is the robust optimum of the posterior mean, for every
strategy. The **own** one is the paper's protocol: the same for RES, the point evaluated
last for all others. Regret is robust regret `|g(x) - f*|`; for the within-model
problem, as in the paper, inference regret `|f(x, theta) - f*|`. It is in standard
deviations of the function over its domain: for the polynomial, of its values below 15;
for robot pushing, which is not scaled, in units of length.

RES informs about the robust optimum alone (`target="optimum"`); where noted, *(paper)*,
it is the paper's acquisition function (`target="characteristics"`).

Commands: `python -m benchmarks regret` makes the records in `regret/`, and goes on
where it stopped; `python -m benchmarks report` makes this file and the figures.
"""
# The default target and number of samples were chosen on the seeds before.
FIRST_FRESH_SEED = 20
# Runs that differ from the paper's protocol: their folder, the heading, what differs.
VARIANTS = (
    (
        "default_model",
        "Default model",
        "The paper's hyperparameters are those of the maximum likelihood, which a few "
        "points hardly determine, and it assumes a noise. Here all models are the "
        "package's default, whose hyperparameters have priors, and which infers the "
        "noise, by `python -m benchmarks regret --default-model --folder "
        "benchmarks/results/default_model`. ",
    ),
    (
        "less_noise",
        "Less noise",
        "The evaluations have no noise, but the paper's models assume a variance of "
        "1e-3, and that of robot pushing infers one. Here all are told 1e-6, by "
        "`python -m benchmarks regret --noise-variance 1e-6 --folder "
        "benchmarks/results/less_noise`. ",
    ),
)
# A final regret above this is that of a bad run: much more than the median of any good
# strategy, and much less than that of a wrong basin.
BAD = 0.05
# Fewer differences are never significant at 5 %.
LEAST_PAIRS = 6
COLUMNS = (
    "strategy",
    "seeds",
    "iterations",
    "final regret, common",
    "final regret, own",
    "to 10 %",
    "to 1 %",
    "s per step",
)


def kind_of(problem: str, recommendation: str = "common") -> str:
    """The kind of regret by which the paper judges a problem.

    Args:
        problem: The name of the problem.
        recommendation: ``"common"`` or ``"own"``.

    Returns:
        The name in the records.
    """
    kind = "inference" if problem == "within_model" else "robust"
    return f"{recommendation}_{kind}_regret"


def write_report(folder: Path, output: Path) -> Path:
    """Write figures and tables.

    Args:
        folder: The folder of the records, with an ``analysis.md`` if there is one, and
            beside it those of ``VARIANTS``.
        output: The folder of the report.

    Returns:
        The file of the tables.
    """
    runs = sorted_runs(folder)
    if not runs:
        raise FileNotFoundError(f"There are no records in {folder}.")
    fresh = [run.from_seed(FIRST_FRESH_SEED) for run in runs]
    analysis = folder / "analysis.md"
    output.mkdir(parents=True, exist_ok=True)
    draw_panels(runs, output / "regret.png", kind_of)
    draw_panels(runs, output / "regret_own.png", lambda name: kind_of(name, "own"))
    draw_panels(runs, output / "regret_time.png", kind_of, over_time=True)
    parts = [
        HEAD,
        describe_records(runs),
        write_summary(runs, "Summary"),
        write_summary(
            [run for run in fresh if run.seeds],
            "Fresh seeds",
            f"Seeds from {FIRST_FRESH_SEED} on, which no default was chosen on. ",
        ),
        *(
            write_summary(sorted_runs(folder.resolve().with_name(name)), title, intro)
            for name, title, intro in VARIANTS
            if name != folder.resolve().name
        ),
        analysis.read_text() if analysis.exists() else "",
        "## Figures\n\nCommon recommendation, over iterations:\n\n![](regret.png)\n\n"
        "Own recommendation, over iterations:\n\n![](regret_own.png)\n\n"
        "Common recommendation, over the CPU time of fits and proposals; that of a "
        "batch of runs is divided among them:\n\n![](regret_time.png)\n",
        "## Tables\n\nRegrets are medians over the seeds, with quartiles. *To 10 %, 1 "
        "%*: iterations after which the median regret of the common recommendation "
        "stays below this part of the initial one. *s per step*: median and 90 % "
        "quantile of the CPU seconds to find a point, without the fit. *p*: Wilcoxon's "
        "signed-rank test of the final regrets (common recommendation), paired by "
        "seed, with Holm's correction for the number of peers; + if RES is better, "
        "- if it is worse in the median of the differences.\n",
    ]
    parts += [
        write_table([run for run in runs if run.problem == problem])
        for problem in dict.fromkeys(run.problem for run in runs)
    ]
    path = output / "RESULTS.md"
    path.write_text("\n".join(parts))
    return path


def sorted_runs(folder: Path) -> list[Runs]:
    """All runs, in the order of the tables.

    Args:
        folder: The folder of the records, which need not exist.

    Returns:
        The runs.
    """
    known = list(PROTOCOLS)
    return sorted(
        read_runs(folder),
        key=lambda run: (known.index(run.problem), *place(run.strategy)),
    )


def write_summary(runs: list[Runs], title: str, intro: str = "") -> str:
    """The final regrets of all strategies on all problems, and how many are bad.

    Args:
        runs: All runs.
        title: The heading.
        intro: What runs these are.

    Returns:
        A section in Markdown, empty if there are no runs.
    """
    if not runs:
        return ""
    problems = list(dict.fromkeys(run.problem for run in runs))
    strategies = sorted({run.strategy for run in runs}, key=place)
    heads = ["strategy", *(problem.replace("_", " ") for problem in problems)]
    cells = {name: ["-"] * len(problems) for name in strategies}
    bad = {name: ["-"] * len(problems) for name in strategies}
    for column, problem in enumerate(problems):
        own = [run for run in runs if run.problem == problem]
        longest = max(run.iterations for run in own)
        finished = [run for run in own if run.iterations == longest]
        best = min(finished, key=lambda run: _final(run, 0.5))
        for run in finished:
            p_value, _ = paired_test(run, best, kind_of(problem))
            text = f"{_final(run, 0.5):.2g} / {_final(run, 0.9):.2g}"
            # Not to be told apart from the best one, if there are pairs enough to tell.
            common = set(run.seeds) & set(best.seeds)
            is_best = run is best or (p_value > 0.05 and len(common) >= LEAST_PAIRS)
            cells[run.strategy][column] = f"**{text}**" if is_best else text
            count = (run.regret[kind_of(problem)][:, -1] > BAD).sum()
            bad[run.strategy][column] = f"{count} of {len(run.seeds)}"
    tables = [
        markdown_table(heads, ([label(name), *row] for name, row in rows.items()))
        for rows in (cells, bad)
    ]
    return (
        f"## {title}\n\n{intro}Final regret of the common recommendation, median / "
        "90 % quantile over the seeds. Bold: the lowest median, and those that a "
        "paired Wilcoxon test (not corrected, p > 0.05) with at least "
        f"{LEAST_PAIRS} common seeds cannot tell from it. Runs that are not finished "
        "are left out.\n\n"
        f"{tables[0]}\nRuns with a final regret above {BAD}:\n\n{tables[1]}"
    )


def _final(run: Runs, level: float) -> float:
    """A quantile of the final regrets."""
    return float(np.quantile(run.regret[kind_of(run.problem)][:, -1], level))


def describe_records(runs: list[Runs]) -> str:
    """Say when the records were made, and with which versions.

    Args:
        runs: All runs.

    Returns:
        A paragraph.
    """
    headers = [header for run in runs for header in run.headers]
    dates = sorted(header["date"] for header in headers)
    versions = {
        ", ".join(f"{name} {number}" for name, number in header["versions"].items())
        for header in headers
    }
    machines = {header["machine"] for header in headers}
    return (
        f"Records from {dates[0]} to {dates[-1]}, on {'; '.join(sorted(machines))}; "
        f"{'; '.join(sorted(versions))}.\n"
    )


def write_table(runs: list[Runs]) -> str:
    """The table of a problem.

    Args:
        runs: The runs of all strategies on it.

    Returns:
        A section in Markdown.
    """
    problem = runs[0].problem
    kind = kind_of(problem)
    searches = [run for run in runs if run.strategy.startswith("res")]
    tests = [compare(search, runs, kind) for search in searches]
    heads = [*COLUMNS, *(f"p of {label(search.strategy)}" for search in searches)]
    rows = []
    for i, run in enumerate(runs):
        typical, slow = np.quantile(run.acquisition[:, 1:], [0.5, 0.9])
        row = [
            label(run.strategy),
            str(len(run.seeds)),
            str(run.iterations),
            spread(run.regret[kind][:, -1]),
            spread(run.regret[kind_of(problem, "own")][:, -1]),
            *(
                "-" if count is None else str(count)
                for count in (
                    iterations_to_reach(run.regret[kind], fraction)
                    for fraction in (0.1, 0.01)
                )
            ),
            f"{typical:.2g}, {slow:.2g}",
            *(test[i] for test in tests),
        ]
        rows.append(row)
    return f"### {problem.replace('_', ' ')}\n\n{markdown_table(heads, rows)}"


def compare(search: Runs, runs: list[Runs], kind: str) -> list[str]:
    """Test a strategy against each of its peers.

    Args:
        search: The runs of the strategy.
        runs: The runs of all strategies on the problem.
        kind: The kind of regret.

    Returns:
        For each of ``runs`` the corrected p-value and the direction; nothing for
        other variants of the same strategy.
    """
    peers = [run for run in runs if not run.strategy.startswith("res")]
    results = [paired_test(search, peer, kind) for peer in peers]
    corrected = holm([p_value for p_value, _ in results])
    texts = {
        peer.strategy: f"{p_value:.2g} {'+' if difference < 0 else '-'}"
        for peer, p_value, (_, difference) in zip(
            peers, corrected, results, strict=True
        )
    }
    return [texts.get(run.strategy, "") for run in runs]


def spread(values: np.ndarray) -> str:
    """The median with the quartiles.

    Args:
        values: The values.

    Returns:
        Such as ``0.12 (0.1, 0.3)``.
    """
    low, median, high = quartiles(values)
    return f"{median:.2g} ({low:.2g}, {high:.2g})"
