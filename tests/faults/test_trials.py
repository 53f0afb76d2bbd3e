"""Random faults at every place of the protocol: the state of an undisturbed run, each fire once, nothing lost.

``TRIALS`` says how many trials ``make thorough`` plays; each has a seed of its own.
"""

import os

import pytest

from tests.faults.jobs import Shape
from tests.faults.oracle import undisturbed, wrong
from tests.faults.play import played
from tests.faults.trial import DEADLY, KINDS, PORTS, Fault, Trial, drawn, shown, shrunk

TRIALS = int(os.environ.get("TRIALS", "20000"))
# The trials of `make thorough` are played in so many parts, which go to the workers as these have time.
BLOCKS = 40

FIRST_THOROUGH = 1_000


def check(seeds: range) -> None:
    """Play the trials of some seeds; the first one that is wrong is shown shrunken."""
    for seed in seeds:
        trial = drawn(seed)
        if wrong(trial) is not None:
            least = shrunk(trial, lambda smaller: wrong(smaller) is not None)
            pytest.fail(f"{shown(least)}\n{wrong(least)}")


@pytest.mark.parametrize(("kind", "rules"), [("one", 1), ("grid", 1), ("lanes", 2)])
def test_job_without_faults_fires_its_findings_once(kind: str, rules: int) -> None:
    assert undisturbed(Shape(kind))["fires"] == [("LowGPUUtilization", "0"), ("StepOutlier", "0")][:rules]


def test_trials_call_exactly_the_operations_that_can_fail() -> None:
    trials = [Trial(Shape(kind)) for kind in ("one", "grid", "lanes")]
    reached = set().union(*(played(trial).reached for trial in trials))
    assert sorted(reached) == sorted(PORTS)
    assert reached.issuperset(DEADLY)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_one_kind_of_fault_loses_and_repeats_nothing(kind: str) -> None:
    for seed in range(2):
        trial = drawn(seed, [kind])
        assert wrong(trial) is None, shown(trial)


@pytest.mark.parametrize("block", range(2))
def test_given_fifty_trials_when_played_then_none_is_wrong(block: int) -> None:
    check(range(25 * block, 25 * (block + 1)))


@pytest.mark.thorough
@pytest.mark.parametrize("block", range(BLOCKS))
def test_thousands_of_trials_are_all_right(block: int) -> None:
    count = -(-TRIALS // BLOCKS)
    check(range(FIRST_THOROUGH + block * count, FIRST_THOROUGH + (block + 1) * count))


@pytest.mark.parametrize("item", [0, 1, 2])
def test_damaged_item_is_rebuilt_from_s3(item: int) -> None:
    trial = Trial(Shape("grid"), (Fault("damaged item", item, 310.0, 300),))
    assert wrong(trial) is None


def test_shrunk_trial_keeps_only_the_relevant_faults() -> None:
    trial = Trial(Shape("one"), tuple(Fault("crash", which) for which in range(5)))
    least = shrunk(trial, lambda smaller: {2, 4} <= {fault.which for fault in smaller.faults})
    assert [fault.which for fault in least.faults] == [2, 4]
