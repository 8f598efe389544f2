"""Every strategy on every problem: ten iterations from one observation.

Small numbers and a model with fixed hyperparameters: this shows that all of them run,
not how good they are. Hartmann 3 is thinned to 100 of its 2500 x. Printed are the
seconds of processor time and the regret of the recommendation.

    python -m benchmarks.smoke
"""

import time
import warnings

import torch
from linear_operator.utils.warnings import NumericalWarning

from botorch_res.strategies import available_strategies
from tests.strategies.ten_iterations import PROBLEMS, check, quick_strategy, run


def main() -> None:
    """Run all pairs."""
    torch.set_num_threads(1)
    # BoTorch draws from the joint posterior at many close points.
    warnings.simplefilter("ignore", NumericalWarning)
    start = time.process_time()
    for problem_name, problem in PROBLEMS.items():
        for name in available_strategies():
            begin = time.process_time()
            strategy = quick_strategy(name, problem)
            X, Y = run(strategy, problem)
            seconds = time.process_time() - begin
            check(strategy, X, Y)
            value = problem.worst_case_value(strategy.recommend(X, Y).x)
            regret = abs(float(value) - problem.robust_optimal_value)
            print(
                f"{problem_name:14}{name:24}{seconds:6.1f} s  regret {regret:.3g}",
                flush=True,
            )
    print(f"all {time.process_time() - start:.0f} s")


if __name__ == "__main__":
    main()
