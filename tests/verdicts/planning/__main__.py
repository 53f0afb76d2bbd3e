"""``python -m tests.verdicts.planning``: how far forecasts of time, cost and end are from what MLPerf's jobs took."""

import sys
from collections.abc import Iterator, Sequence
from statistics import median

import numpy as np

from tests.verdicts.planning.finishing import forecasts, logged, runs, warned_at
from tests.verdicts.planning.scaling import Judged, fitted, judged, sizes, sorts

NEAR = 4.6
PARTS = (0.3, 0.5, 0.7)
LIMITS = (0.7, 0.8, 0.9, 0.95, 1.0, 1.02, 1.05, 1.1)


def lines() -> Iterator[str]:
    yield f"Fitted to all: {fitted(sizes(), sorts())}"
    yield "Each benchmark by a fit to the others, in both directions; errors are of the time:"
    found = judged()
    of_sizes = [each for each in found if each.pair.gpus != 1.0]
    near = [each for each in of_sizes if 1.0 / NEAR < each.pair.gpus < NEAR]
    others = [each for each in found if each.pair.gpus == 1.0]
    for name, group in (("other sizes", of_sizes), ("up to 4.5 times as many GPUs", near), ("other GPUs", others)):
        yield f"  {name}: {_figures(group)}"
        for benchmark in dict.fromkeys(each.pair.benchmark for each in group):
            yield f"    {benchmark}: {_figures([each for each in group if each.pair.benchmark == benchmark])}"
    for part in PARTS:
        made = list(forecasts(runs(), part))
        known = [each for each in made if each.error is not None]
        errors = np.abs([each.error or 0.0 for each in known])
        yield (
            f"The end at {part:.0%} of the time: {len(known)} of {len(made)} runs have logged enough; within 10 % "
            f"{np.mean(errors <= 0.1):.0%}, median error {np.median(errors):.2%}, 90 % below "
            f"{np.quantile(errors, 0.9):.2%}, intervals hold {np.mean([each.held for each in known]):.0%}, "
            f"half as wide as {median([each.half or 0.0 for each in known]):.2%}"
        )
    for limit in LIMITS:
        at = [warned_at(run, limit) for run in logged()]
        early = [each for each in at if each is not None and each <= limit - 0.04]
        yield (
            f"A limit at {limit:.0%} of the time: {sum(each is not None for each in at)} of {len(at)} runs that log 12 "
            f"times or more are warned of, {len(early)} at least 4 % of their time before it"
        )


def _figures(group: Sequence[Judged]) -> str:
    errors = np.abs([each.error for each in group])
    of_each = [
        [each.held for each in group if each.pair.benchmark == name] for name in {x.pair.benchmark for x in group}
    ]
    return (
        f"{len(group)} forecasts, median error {np.median(errors):.1%}, 90 % below {np.quantile(errors, 0.9):.1%}, "
        f"intervals hold {np.mean([each.held for each in group]):.0%}, each benchmark with the same weight "
        f"{np.mean([np.mean(each) for each in of_each]):.0%}"
    )


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in lines()))
