"""Jobs whose end no event reports: closed, reported once, never alerted as stalled, and cheap."""

import os

import pytest

from tests.faults.endings import FAMILIES_OF_DATA, Ending, drawn, in_order, wrong
from tests.faults.mutants import Mutant, applied
from trainguard.engine.reconcile import ABANDONED_S
from trainguard.engine.streams.job_streams import JobStreams

# A trial has three days of scheduler runs: `make thorough` plays one for a hundred of the short ones.
TRIALS = int(os.environ.get("TRIALS", "20000")) // 100


@pytest.mark.parametrize("data", FAMILIES_OF_DATA)
@pytest.mark.parametrize("outside", [False, True])
def test_the_data_of_a_family_end_unheard(data: str, outside: bool) -> None:
    assert wrong(Ending((data,), outside, threshold_s=360)) is None


@pytest.mark.parametrize("seed", range(4))
def test_any_data_and_delivery_end_unheard(seed: int) -> None:
    assert wrong(drawn(seed)) is None, drawn(seed)


@pytest.mark.parametrize("outside", [False, True])
def test_a_watch_over_our_own_writes_is_found(outside: bool) -> None:
    mutant = Mutant("own writes", JobStreams, "mark_of", "crc32(repr(contents).encode())", "record.version", ())
    ending = Ending(("tensors",), outside, threshold_s=360)
    in_order(ending.data, outside, ending.threshold_s)
    with applied(mutant):
        assert wrong(ending) == "not closed"


@pytest.mark.thorough
@pytest.mark.parametrize("block", range(10))
def test_hundreds_of_jobs_end_unheard(block: int) -> None:
    count = -(-TRIALS // 10)
    for seed in range(100 + block * count, 100 + (block + 1) * count):
        assert wrong(drawn(seed), left_s=ABANDONED_S, hours=72) is None, drawn(seed)
