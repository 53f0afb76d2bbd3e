"""What step time goes into: shares that add up, and communication without the wait for slower ranks."""

import pytest
from msgspec.structs import replace

from tests.support.kernel_ranks import STEP_US, TRANSFER_US, documents, judged_document
from tests.support.kernel_traces import BF16_GEMM, LOADER, PINNED, TraceWriter, judged
from trainguard.kernels.captures.step_shares import StepShares, capture_shares, rank_shares
from trainguard.kernels.document import RankProfile

PARTS = ("compute", "copies", "communication", "peers", "loader", "host", "other")


def total(shares: StepShares) -> float:
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
    (found,) = rank_shares([judged(made.text())])
    assert (found.rank, found.ranks, found.steps) == (3, 1, 4)
    assert found.compute == pytest.approx(0.445, abs=0.001)
    assert (found.copies, found.loader) == pytest.approx((0.05, 0.3), abs=0.001)
    # The copy is launched 20 us before it starts, by a call of 5 us.
    assert (found.host, found.other) == pytest.approx((0.19, 0.015), abs=0.001)
    assert total(found) == pytest.approx(1.0, abs=1e-5)
    assert found.start_s is not None
    assert found.end_s == pytest.approx(found.start_s + 0.004)


def test_the_wait_for_a_late_rank_is_apart_from_the_transfer() -> None:
    found = {each.rank: each for each in rank_shares(ranks_of())}
    step_us = STEP_US + 1_100.0
    assert found[0].peers * step_us == pytest.approx(4_000.0, rel=0.03)
    assert found[0].communication * step_us == pytest.approx(TRANSFER_US, rel=0.1)
    assert found[2].peers == 0.0
    assert found[2].other > found[0].other + 0.3
    assert all(each.peers_known and total(each) <= 1.0 + 1e-9 for each in found.values())


def test_without_another_rank_nobody_knows_who_waits() -> None:
    (found,) = rank_shares(ranks_of()[:1])
    assert not found.peers_known
    assert found.peers == 0.0
    assert found.communication > 0.3


def test_over_all_ranks_windows_count_by_their_length() -> None:
    ranks = ranks_of()
    each, all_ranks = rank_shares(ranks), capture_shares(ranks)
    assert all_ranks is not None
    assert (all_ranks.ranks, all_ranks.rank, all_ranks.steps) == (4, None, 5)
    for part in PARTS:
        mean = sum(getattr(one, part) * rank.window_ns for one, rank in zip(each, ranks, strict=True))
        assert getattr(all_ranks, part) == pytest.approx(mean / sum(rank.window_ns for rank in ranks), abs=1e-5)


def test_a_rank_without_steps_or_work_has_no_shares() -> None:
    rank = ranks_of()[0]
    assert rank_shares([replace(rank, steps=[]), replace(rank, busy_ns=0), replace(rank, gpu_idle=None)]) == []
    assert capture_shares([]) is None
