"""Ranks beside each other: who is late or slow, at three strengths and on the threshold; whom clocks cannot fool."""

import time
import tracemalloc
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tests.support.kernel_ranks import STEP_US, job
from tests.support.kernel_traces import FP32_GEMM, real_profile
from trainguard.core.finding import Severity
from trainguard.kernels.document import AcrossRanks, RankProfile
from trainguard.kernels.join import across_ranks

EVEN = [6_000.0] * 4


def joined(ranks: list[RankProfile]) -> AcrossRanks:
    across = across_ranks(ranks)
    assert across is not None
    return across


def found(ranks: list[RankProfile]) -> dict[str, str]:
    return {each.id.removeprefix("kernels/"): each.summary for each in joined(ranks).findings}


def test_even_ranks_have_no_finding() -> None:
    across = joined(job(EVEN))
    assert across.findings == []
    assert [line.wait_ns for line in across.lines] == [0, 0, 0, 0]
    assert (across.missing, across.notes, across.compared_steps) == ([], [], 5)


@pytest.mark.parametrize(
    ("delay", "severity"), [(700.0, Severity.MEDIUM), (1_500.0, Severity.MEDIUM), (3_000.0, Severity.HIGH)]
)
def test_a_rank_that_its_host_holds_up_comes_last(delay: float, severity: Severity) -> None:
    across = joined(job(EVEN, delay_us={2: delay}))
    (finding,) = across.findings
    assert (finding.id, finding.severity) == ("kernels/LateRank", severity)
    assert finding.summary.startswith("Rank 2 comes last into")
    assert "computes as long as the others" in finding.summary
    assert finding.value == pytest.approx(delay / STEP_US, rel=0.05)
    assert finding.gain.ns_per_step == pytest.approx(delay * 1e3, rel=0.05)
    lines = {line.rank: line for line in across.lines}
    assert (lines[2].wait_ns, lines[2].last_steps) == (0, 5)
    assert lines[0].wait_ns == pytest.approx(delay * 1e3, rel=0.05)


@pytest.mark.parametrize(("delay", "fires"), [(480.0, False), (530.0, True)])
def test_the_lateness_that_counts_is_a_twentieth_of_a_step(delay: float, fires: bool) -> None:
    assert ("LateRank" in found(job(EVEN, delay_us={1: delay}))) is fires


def test_a_rank_with_more_work_comes_last_and_it_says_why_once() -> None:
    across = joined(job([6_000.0, 6_000.0, 6_000.0, 8_000.0]))
    (finding,) = across.findings
    assert finding.summary.startswith("Rank 3 comes last")
    assert "computes 1.33 times as long" in finding.summary


@pytest.mark.parametrize(
    ("work", "said"), [(5_500.0, "as long as"), (6_500.0, "as long as"), (5_000.0, "less than"), (2_000.0, "less than")]
)
def test_what_a_late_rank_computes_is_said_as_it_is(work: float, said: str) -> None:
    (late,) = joined(job([6_000.0, work, 6_000.0, 6_000.0], delay_us={1: 6_000.0})).findings
    assert f"It computes {said} the others, so something else" in late.summary


@pytest.mark.parametrize(("work", "fires"), [(6_500.0, False), (6_601.0, True)])
def test_more_work_counts_from_a_tenth_on(work: float, fires: bool) -> None:
    ranks = [replace(rank, collective_steps=[]) for rank in job([6_000.0, 6_000.0, 6_000.0, work])]
    assert ("SlowRank" in found(ranks)) is fires


@pytest.mark.parametrize(
    ("work", "severity", "value"), [(6_900.0, "medium", 1.15), (7_500.0, "medium", 1.25), (12_000.0, "high", 2.0)]
)
def test_a_slow_rank_at_three_strengths(work: float, severity: str, value: float) -> None:
    ranks = [replace(rank, collective_steps=[]) for rank in job([6_000.0, 6_000.0, 6_000.0, work])]
    (finding,) = (each for each in joined(ranks).findings if each.id == "kernels/SlowRank")
    assert finding.severity.value == severity
    assert finding.value == pytest.approx(value, abs=0.01)


def test_clocks_that_disagree_change_nothing() -> None:
    plain = joined(job(EVEN, delay_us={2: 1_500.0}))
    skewed = joined(job(EVEN, delay_us={2: 1_500.0}, clock_us={0: 9e6, 2: -7e3, 3: 4e8}))
    assert [line.wait_ns for line in skewed.lines] == pytest.approx([line.wait_ns for line in plain.lines], abs=2)
    assert [each.summary for each in skewed.findings] == [each.summary for each in plain.findings]


def test_a_rank_that_takes_turns_with_others_is_not_late() -> None:
    ranks = job(EVEN, steps=8)
    turns = []
    for place, rank in enumerate(ranks):
        (entry,) = rank.collective_steps
        total = [3_000_000 - (2_000_000 if step % 4 == place else 0) for step in range(8)]
        turns.append(replace(rank, collective_steps=[replace(entry, total_ns=total)]))
    assert found(turns) == {}


def of_two(leads_ns: Sequence[int]) -> list[RankProfile]:
    """Return two ranks of which the first comes so much later than the second in each step; earlier where it is < 0."""
    ranks = []
    for sign, rank in zip((-1, 1), job([6_000.0, 6_000.0], steps=len(leads_ns)), strict=True):
        (entry,) = rank.collective_steps
        total = [500_000 + max(sign * lead, 0) for lead in leads_ns]
        ranks.append(replace(rank, collective_steps=[replace(entry, total_ns=total)]))
    return ranks


@pytest.mark.parametrize("leads", [[2_000_000, -2_000_000] * 5, [3_000_000, -2_900_000, -3_000_000, 2_950_000] * 2])
def test_of_two_ranks_that_take_turns_none_is_late(leads: list[int]) -> None:
    assert found(of_two(leads)) == {}


@pytest.mark.parametrize(
    ("leads", "confidence"),
    [
        ([2_000_000, 1_800_000, 2_100_000], "normal"),
        ([2_000_000, 2_000_000, 0] * 3, "normal"),
        ([2_000_000, -1_500_000, 2_500_000, 300_000], "low"),
        ([3_000_000, 400_000, 900_000], "low"),
    ],
)
def test_a_rank_that_may_be_late_by_chance_is_not_sure(leads: list[int], confidence: str) -> None:
    (late,) = (each for each in joined(of_two(leads)).findings if each.id == "kernels/LateRank")
    assert late.summary.startswith("Rank 0 comes last")
    assert late.confidence == confidence
    assert confidence == "normal" or late.severity is Severity.MEDIUM


@pytest.mark.parametrize(("work", "severity"), [(120.0, Severity.LOW), (400.0, Severity.HIGH)])
def test_slow_rank_of_negligible_cost_has_low_severity(work: float, severity: Severity) -> None:
    ranks = [replace(rank, collective_steps=[]) for rank in job([work / 2, work / 2, work / 2, work])]
    (slow,) = joined(ranks).findings
    assert (slow.id, slow.severity) == ("kernels/SlowRank", severity)
    assert slow.value == pytest.approx(2.0)


@pytest.mark.parametrize("delay", [0.0, 700.0, 3_000.0])
def test_transfer_duration_and_speed_ignore_late_ranks(delay: float) -> None:
    """Each rank's kernel takes 500 us for the transfer, and its wait: the size of the last one is 1 GB."""
    ranks = []
    for rank in job(EVEN, delay_us={2: delay}):
        (entry,) = rank.collective_steps
        sized = replace(entry, name="allreduce", group_size=4, bytes=[1_000_000_000] * len(entry.steps))
        ranks.append(replace(rank, collective_steps=[sized]))
    (transfer,) = joined(ranks).transfers
    assert transfer.transfer_ns == pytest.approx(5 * 500_000, rel=1e-6)
    assert transfer.wait_ns == pytest.approx(5 * 0.75 * delay * 1_000, abs=5)
    assert (transfer.ranks, transfer.steps, transfer.bytes) == (4, 5, 5_000_000_000)
    assert (transfer.algorithm_gb_per_s, transfer.bus_gb_per_s) == (2_000.0, 3_000.0)


def test_a_transfer_without_a_size_has_no_speed() -> None:
    ranks = job(EVEN)
    (entry,) = ranks[1].collective_steps
    ranks[1] = replace(ranks[1], collective_steps=[replace(entry, bytes=[7, 7, -1, 7, 7])])
    (transfer,) = joined(ranks).transfers
    assert (transfer.bytes, transfer.algorithm_gb_per_s, transfer.bus_gb_per_s) == (None, None, None)
    older = [
        replace(rank, collective_steps=[replace(each, bytes=[]) for each in rank.collective_steps]) for rank in ranks
    ]
    assert joined(older).transfers[0].transfer_ns == transfer.transfer_ns


def test_two_windows_of_a_rank_are_not_two_ranks() -> None:
    """Each rank has two traces, the second one 400 s later and with a rank that is slow."""
    first = [replace(rank, trace=f"{rank.rank}.1", start_unix_ns=10**18) for rank in job(EVEN[:3])]
    second = [
        replace(rank, trace=f"{rank.rank}.2", start_unix_ns=10**18 + 400 * 10**9)
        for rank in job([6_000.0, 6_000.0, 12_000.0])
    ]
    across = joined([*second, *first])
    assert [line.trace for line in across.lines] == ["0.1", "1.1", "2.1"]
    assert across.findings == []
    assert "Ranks have several traces: those of one window are compared, 3 others are not." in across.notes
    assert [line.trace for line in joined([*first[:2], *second]).lines] == ["0.2", "1.2", "2.2"]
    assert across_ranks([first[0], second[0]]) is None


def test_a_cut_rank_without_a_whole_step_is_not_compared() -> None:
    ranks = job([6_000.0, 6_000.0, 9_000.0])
    ranks[2] = replace(ranks[2], quality=replace(ranks[2].quality, is_whole=False))
    across = joined(ranks)
    assert (len(across.lines), across.findings, across.missing) == (2, [], [])
    assert across.notes == ["1 trace lacks work of the GPU, and is not compared."]


def test_only_like_ranks_are_compared() -> None:
    across = joined(job([6_000.0, 6_000.0, 9_000.0, 9_000.0], gemms={2: FP32_GEMM, 3: FP32_GEMM}))
    assert [line.like for line in across.lines] == [0, 0, 1, 1]
    assert across.findings == []
    assert any("2 different sets of kernels" in note for note in across.notes)


def test_ranks_without_a_trace_are_named() -> None:
    across = joined(job([6_000.0, 6_000.0], world_size=300))
    assert (across.world_size, across.missing_count, len(across.missing), across.missing[:2]) == (300, 298, 100, [2, 3])
    assert any("298 ranks have no trace" in note for note in across.notes)


def test_few_steps_are_said_to_be_few() -> None:
    (finding,) = joined(job(EVEN, delay_us={2: 3_000.0}, steps=2)).findings
    assert (finding.confidence, finding.severity) == ("low", Severity.MEDIUM)


def test_the_real_pair_has_a_rank_that_computes_longer() -> None:
    ranks = [real_profile("pair_rank-0"), real_profile("pair_rank-1")]
    across = joined(ranks)
    assert [line.compute_ns for line in across.lines] == [
        round(rank.compute_ns / max(len(rank.steps), 1)) for rank in ranks
    ]
    assert set(found(ranks)) == {"SlowRank"}
    assert across_ranks(ranks[:1]) is None


def test_a_thousand_ranks_are_joined_in_seconds_and_megabytes() -> None:
    one, late = job([6_000.0, 6_000.0], delay_us={1: 2_000.0}, steps=50)
    ranks = [replace(late if number == 777 else one, rank=number, world_size=1_000) for number in range(1_000)]
    tracemalloc.start()
    begun = time.process_time()
    across = joined(ranks)
    assert time.process_time() - begun < 20.0
    assert tracemalloc.get_traced_memory()[1] < 64e6
    tracemalloc.stop()
    assert across.findings[0].summary.startswith("Rank 777 comes last")
