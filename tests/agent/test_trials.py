"""Random faults on the way to a cluster's agent: no action without opt-in, twice, late, or under a brake."""

import os
from collections import Counter

import pytest

from tests.agent.trials import Trial

TRIALS = int(os.environ.get("TRIALS", "20000"))
BLOCKS = 20


def played(seed: int) -> Trial:
    trial = Trial(seed)
    trial.play()
    assert trial.wrong is None, f"seed {seed}: {trial.wrong}"
    return trial


def test_undisturbed_fire_acts_once() -> None:
    trial = Trial(0, faults=False)
    trial.play()
    assert (trial.wrong, len(trial.cluster.effects)) == (None, 1)
    assert [each.made for each in trial.results.values()] == [True]


def test_given_hundreds_of_trials_when_played_then_none_is_wrong() -> None:
    trials = [played(seed) for seed in range(400)]
    made = Counter(stop.made for trial in trials for stop in trial.results.values())
    # Trials that never act would hold everything.
    assert made[True] > 60
    assert made[False] > 20


@pytest.mark.thorough
@pytest.mark.parametrize("block", range(BLOCKS))
def test_thousands_of_trials_act_on_nothing_unallowed(block: int) -> None:
    count = -(-TRIALS // BLOCKS)
    for seed in range(1_000 + block * count, 1_000 + (block + 1) * count):
        played(seed)
