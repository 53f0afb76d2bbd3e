"""Findings stand in the order of the time that each of them explains: each moment counts once, causes first."""

import re
from pathlib import Path

import pytest

from tests.support.kernel_ranks import documents, judged_document
from tests.support.kernel_traces import BF16_GEMM, LOADER, TraceWriter, judged
from tests.support.slow_hosts import STEP, slow_host
from trainguard.kernels.captures.capture import rule_verdicts
from trainguard.kernels.document import RankProfile
from trainguard.kernels.entries import KernelFinding
from trainguard.kernels.join import across_ranks
from trainguard.kernels.rules.registry import CAUSES_FIRST


def named(profile: RankProfile) -> dict[str, KernelFinding]:
    return {finding.id.removeprefix("kernels/"): finding for finding in profile.findings}


@pytest.mark.parametrize(
    ("loader_us", "first", "second"),
    [
        (0.0, "LaunchBound", "GpuBusyLow"),
        (12_000.0, "LoaderBound", "LaunchBound"),
        (6_000.0, "LaunchBound", "LoaderBound"),
    ],
)
def test_what_explains_most_stands_first(loader_us: float, first: str, second: str) -> None:
    found = named(slow_host(loader_us=loader_us))
    assert list(found)[:2] == [first, second]


def test_a_wait_for_data_is_no_part_of_a_slow_host() -> None:
    found = named(slow_host(loader_us=12_000.0))
    assert found["LoaderBound"].gain.share == pytest.approx(0.6, abs=0.01)
    assert found["LaunchBound"].gain.share == pytest.approx(0.4 * (1 - 60 / 200), abs=0.03)
    assert "beside the wait for data" in found["LaunchBound"].summary


def test_a_loader_alone_makes_no_host_slow_to_launch() -> None:
    found = named(slow_host(loader_us=12_000.0, work_us=180.0))
    assert next(iter(found)) == "LoaderBound"
    assert "LaunchBound" not in found


def test_many_small_kernels_do_not_claim_the_wait_for_data() -> None:
    found = named(slow_host(loader_us=15_000.0, kernels=400, work_us=3.0))
    assert next(iter(found)) == "LoaderBound"
    assert found["SmallKernelStorm"].gain.ns_per_step == 0
    assert sum(each.gain.share for each in found.values()) <= 1.0


def test_an_unsure_cause_takes_nothing_from_a_sure_finding() -> None:
    # Only the first of four steps waits for data: that may be the profiler's start.
    made = TraceWriter()
    for step in range(4):
        begin = step * STEP
        made.step(step, begin, STEP)
        if step == 0:
            made.event("user_annotation", LOADER, begin, 11_000)
        for number in range(5):
            made.kernel(BF16_GEMM, begin + 11_007 + number * 1_700, 1_600, launch=begin + 11_000 + number * 1_700)
    found = named(judged(made.text()))
    assert found["LoaderBound"].confidence == "low"
    assert found["LoaderBound"].gain.ns_per_step < 0.05 * STEP * 1_000
    assert found["GpuGap"].gain.share == pytest.approx(11_000 / (4 * STEP), abs=0.001)


def test_the_wait_for_a_late_rank_is_that_ranks() -> None:
    ranks = [judged_document(each) for each in documents([9_000.0] * 4, delay_us={2: 4_000.0})]
    rules = {each.rule: each for each in rule_verdicts(ranks, across_ranks(ranks))}
    alone = max(
        each.gain.share for rank in ranks for each in rank.findings if each.id == "kernels/ExposedCommunication"
    )
    late = rules["kernels/LateRank"].gain_share
    assert rules["kernels/ExposedCommunication"].gain_share == pytest.approx(alone - late, abs=0.001)
    assert list(rules).index("kernels/LateRank") < list(rules).index("kernels/ExposedCommunication")


def test_the_documentation_has_the_order_of_causes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text(encoding="utf-8")
    listed = re.findall(r"`(\w+)`", page.partition("causes before symptoms (")[2].partition(")")[0])
    assert listed == [rule.name.removeprefix("kernels/") for rule in CAUSES_FIRST][: len(listed)]
    assert len(listed) == 15
