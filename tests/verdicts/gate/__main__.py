"""How often ``trainguard gate`` is right on real repeats: ``python -m tests.verdicts.gate``."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping

from tests.verdicts.gate.trial import (
    ALLOWS,
    BASELINES,
    answers,
    chosen,
    counts_by_prior,
    groups,
    priors_without,
    spreads,
    trials,
)
from trainguard.gate.noise import Answer
from trainguard.gate.runs import Metric

_DRAWS = 2


def _line(title: str, counted: Mapping[float, Counter[Answer]]) -> str:
    cells = []
    for slower, found in sorted(counted.items()):
        shares = [100.0 * found[answer] / found.total() for answer in Answer]
        cells.append(f"{slower:.0%} " + "/".join(f"{share:.2f}" for share in shares))
    return f"{title:42} {next(iter(counted.values())).total():5}  " + "   ".join(cells)


def _lines() -> Iterator[str]:
    yield f"{len(groups())} groups, {sum(map(len, groups().values()))} runs; pass/regression/inconclusive in percent"
    for metric in (Metric.THROUGHPUT, Metric.STEP_TIME):
        known = spreads(metric)
        for count in BASELINES:
            found = list(trials(metric, count, draws=_DRAWS))
            yield _line(f"{metric}, {count} baselines", answers(metric, found))
            if count == BASELINES[0]:
                quiet = [each for each in found if known[each.group][0] <= ALLOWS]
                yield _line(f"  groups with {ALLOWS:.1%} noise or less", answers(metric, quiet))
                best = chosen(counts_by_prior(metric, found), {each.group for each in found})
                yield f"  chosen on all groups: {best}"
                for part, name in ((0, "submitter"), (-1, "training")):
                    priors = priors_without(metric, found, part)
                    yield _line(f"  prior without the {name}", answers(metric, found, priors))
                    yield f"    {len(set(priors.values()))} priors: {', '.join(map(str, set(priors.values())))}"


if __name__ == "__main__":
    for line in _lines():
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
