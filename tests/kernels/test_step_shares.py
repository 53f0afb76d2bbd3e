"""What step time goes into: shares that add up, and communication without the wait for slower ranks."""

import pytest
from msgspec.structs import replace

from tests.support.kernel_ranks import STEP_US, TRANSFER_US, documents, judged_document
from tests.support.kernel_traces import BF16_GEMM, LOADER, PINNED, TraceWriter, judged
from trainguard.kernels.captures.capture import capture_shares
from trainguard.kernels.document import RankProfile
from trainguard.kernels.verdict import CaptureStepShares

PARTS = ("compute", "copies", "communication", "peers", "loader", "host", "other")


def total(shares: CaptureStepShares) -> float:
    return float(sum(getattr(shares, part) for part in PARTS))


def ranks_of(delay_us: float = 4_000.0) -> list[RankProfile]:
    return [judged_document(each) for each in documents([6_000.0] * 4, delay_us={2: delay_us})]


def test_the_shares_of_a_step_are_those_that_can_be_added_up() -> None:
    made = TraceWriter(rank=3)
    for step in range(4):
        begin = step * 1_000.0
        made.step(step, begin, 1_000)
        made.event("user_annotation", LOADER, begin, 300)
        made.copy(PINNED, begin + 405, 50)
        made.kernel(BF16_GEMM, begin + 555, 445, launch=begin + 550)
    found = capture_shares([judged(made.text())])
    assert found is not None
    assert (found.rank, found.ranks, found.steps) == (3, 1, 4)
    assert found.compute == pytest.approx(0.445, abs=0.001)
    assert (found.copies, found.loader) == pytest.approx((0.05, 0.3), abs=0.001)
    # The copy is launched 20 us before it starts, by a call of 5 us.
    assert (found.host, found.other) == pytest.approx((0.19, 0.015), abs=0.001)
    assert total(found) == pytest.approx(1.0, abs=1e-5)
    assert found.start_s is not None
    assert found.end_s == pytest.approx(found.start_s + 0.004)


def test_the_wait_for_a_late_rank_is_apart_from_the_transfer() -> None:
    late, even = capture_shares(ranks_of()), capture_shares(ranks_of(delay_us=0.0))
    assert late is not None
    assert even is not None
    step_us = STEP_US + 1_100.0
    # Three of four ranks wait.
    assert late.peers * step_us == pytest.approx(3_000.0, rel=0.03)
    assert late.communication * step_us == pytest.approx(TRANSFER_US, rel=0.1)
    assert late.other > even.other + 0.05
    assert all(each.peers_known and total(each) <= 1.0 + 1e-9 for each in (late, even))


def test_without_another_rank_nobody_knows_who_waits() -> None:
    found = capture_shares(ranks_of()[:1])
    assert found is not None
    assert not found.peers_known
    assert found.peers == 0.0
    assert found.communication > 0.3


def test_over_all_ranks_windows_count_by_their_length() -> None:
    ranks = ranks_of()
    ranks[0] = replace(ranks[0], window_ns=2 * ranks[0].window_ns)
    found = capture_shares(ranks)
    assert found is not None
    assert (found.ranks, found.rank, found.steps) == (4, None, 5)
    window_ns = sum(rank.window_ns for rank in ranks)
    assert found.compute == pytest.approx(sum(rank.compute_ns for rank in ranks) / window_ns, abs=1e-5)


def test_a_rank_without_steps_or_work_has_no_shares() -> None:
    rank = ranks_of()[0]
    assert capture_shares([replace(rank, steps=[]), replace(rank, busy_ns=0), replace(rank, gpu_idle=None)]) is None
    assert capture_shares([]) is None
