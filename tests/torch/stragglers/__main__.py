"""``python -m tests.torch.stragglers COUNT [SEED [KIND…]]``: how many planted stragglers are named, and at what cost.

A KIND is a place that is late or a way to be balanced, or ``balanced``: all of these.
"""

import math
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.support.repeated_steps import straggler_of
from tests.torch.stragglers.ranks import BALANCED, PARTS, PLACES, Training, drawn, run
from trainguard.core.records import Status
from trainguard.rules.rule_result import RuleResult

# How far the cost may lie from the planted one, by a share of it.
WITHIN = 0.1
COST = f"with a cost within {WITHIN:.0%} of the planted one"


def is_right(training: Training, said: RuleResult, late_ms: float, *, within: float = WITHIN) -> bool:
    """Whether a balanced training has no finding, or the late rank is named with its part and its cost.

    ``late_ms`` is how much longer it slept than the others, by the step.
    """
    if training.is_balanced:
        return said.status is Status.OK
    facts = {each.name: each.value for each in said.facts}
    if said.status is not Status.FIRED or not str(facts["rank"]).endswith(f"rank{training.rank}"):
        return False
    said_ms = 1e3 * (float(facts["own_work"]) - float(facts["own_work_of_peers"]))
    return facts.get("late_in") == training.place and abs(said_ms / late_ms - 1.0) <= within


def main(count: int, seed: int, kinds: list[str]) -> None:
    counts: Counter[tuple[str, bool]] = Counter()
    trainings = drawn(seed, count, BALANCED if kinds == ["balanced"] else kinds or (*PLACES, *BALANCED))
    for world in sorted({each.world for each in trainings}):
        those = [each for each in trainings if each.world == world]
        with tempfile.TemporaryDirectory() as folder:
            for training, (files, late_ms) in zip(those, run(those, Path(folder)), strict=True):
                said = straggler_of(files, PARTS)
                right = is_right(training, said, late_ms, within=math.inf)
                what = "balanced ones silent" if training.is_balanced else "planted ones named with their part"
                counts[what, True] += right
                counts[what, False] += 1
                if not training.is_balanced:
                    counts[COST, True] += is_right(training, said, late_ms)
                    counts[COST, False] += 1
                verdict = f"{'right' if right else 'WRONG'} {training.name}, late by {late_ms:.1f} ms a step"
                sys.stdout.write(f"{verdict}: {said.kind}: {said.reason}\n")
        sys.stdout.flush()
    for what in dict.fromkeys(what for what, _ in counts):
        sys.stdout.write(f"{counts[what, True]} of {counts[what, False]} {what}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0, sys.argv[3:])
