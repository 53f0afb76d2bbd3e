"""``python -m tests.torch.stragglers COUNT [SEED [KIND…]]``: how many planted stragglers are named, and at what cost.

A KIND is a place that is late or a way to be balanced, or ``balanced``: all of these.
"""

import sys
import tempfile
from pathlib import Path

from tests.support.repeated_steps import straggler_of
from tests.torch.stragglers.ranks import BALANCED, PLACES, Training, drawn, run
from trainguard.core.records import Status
from trainguard.rules.rule_result import RuleResult

# How far the cost may lie from the planted one, by a share of it.
WITHIN = 0.1


def is_right(training: Training, said: RuleResult, *, within: float = WITHIN) -> bool:
    """Whether a balanced training has no finding, or the late rank is named with its part and its cost."""
    if training.is_balanced:
        return said.status is Status.OK
    facts = {each.name: each.value for each in said.facts}
    if said.status is not Status.FIRED or not str(facts["rank"]).endswith(f"rank{training.rank}"):
        return False
    late_ms = 1e3 * (float(facts["own_work"]) - float(facts["own_work_of_peers"]))
    return facts.get("late_in") == training.place and abs(late_ms / training.late_ms - 1.0) <= within


def main(count: int, seed: int, kinds: list[str]) -> None:
    counts = {True: [0, 0], False: [0, 0]}
    trainings = drawn(seed, count, BALANCED if kinds == ["balanced"] else kinds or (*PLACES, *BALANCED))
    for world in sorted({each.world for each in trainings}):
        those = [each for each in trainings if each.world == world]
        with tempfile.TemporaryDirectory() as folder:
            for training, files in zip(those, run(those, Path(folder)), strict=True):
                said = straggler_of(files)
                right = is_right(training, said)
                counts[training.is_balanced][0] += right
                counts[training.is_balanced][1] += 1
                sys.stdout.write(f"{'right' if right else 'WRONG'} {training.name} {said.kind}: {said.reason}\n")
        sys.stdout.flush()
    for balanced, what in ((False, "planted ones named"), (True, "balanced ones silent")):
        sys.stdout.write(f"{counts[balanced][0]} of {counts[balanced][1]} {what}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0, sys.argv[3:])
