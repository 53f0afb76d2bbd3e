"""No job is called healthy while a good part of what was paid for went unused and nobody says why."""

from dataclasses import replace

import numpy as np
import pytest

from tests.support.judged_jobs import HOUR_S, START, Node, ended, judged_job
from tests.support.slow_hosts import slow_host
from tests.support.verdicts import over, quiet
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.families.kernels.family import KERNEL_PROFILES
from trainguard.families.kernels.streams import CaptureStreams
from trainguard.families.profiler.system_stream import SystemStream
from trainguard.finding import Episode, clock_times
from trainguard.kernels.captures.capture import CaptureHead, capture_verdict
from trainguard.kernels.captures.keys import ALL_RANKS, KERNELS
from trainguard.records import NodeRecord, StreamKey
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.report.unexplained import unexplained
from trainguard.report.verdict import verdict_of
from trainguard.rules.registry import RULE_NAMES
from trainguard.state.use_by_time import UseByTime
from trainguard.timestamps import iso_time

FINE = tuple(quiet(rule) for rule in RULE_NAMES)


def job_with(use: list[tuple[float, float]], *verdicts: Verdict, active_from_h: float = 0.0) -> EvaluatedJob:
    """Return a job of ten hours that has ended, whose GPU was so busy (percent) for so many hours, one by one."""
    judged = judged_job(*(verdicts or FINE), job=ended(), nodes=(Node(use=80.0, closed=True),))
    values = [percent for hours, percent in use for _ in range(round(hours * 60))]
    (stream,) = judged.profiler.system.values()
    assert isinstance(stream, SystemStream)
    stream.state.use = UseByTime()
    stream.state.use.add(
        START + 60.0 * np.arange(len(values), dtype=np.float64), np.array(values, dtype=np.float64)[:, None]
    )
    stream.state.kept.first_active_at = START + active_from_h * HOUR_S
    return judged


def test_given_two_idle_hours_of_ten_when_no_rule_fires_then_the_job_is_not_healthy_and_it_is_said_when() -> None:
    verdict = verdict_of(job_with([(4.0, 90.0), (2.0, 5.0), (4.0, 90.0)]))

    assert verdict.level == "attention"
    when = clock_times(iso_time(START + 4.0 * HOUR_S), iso_time(START + 6.0 * HOUR_S))
    assert f"no rule says why the GPUs of algo-1 were less than 50 % busy {when} (20 % of the paid" in verdict.health
    assert verdict.change.startswith("Find out what the job did then:")


@pytest.mark.parametrize("use", [[(9.0, 90.0), (1.0, 5.0)], [(10.0, 60.0)]])
def test_given_a_little_idle_time_or_half_busy_gpus_when_no_rule_fires_then_nothing_is_left_unexplained(
    use: list[tuple[float, float]],
) -> None:
    assert unexplained(job_with(use)) is None


def test_given_start_up_when_no_rule_fires_then_it_is_start_up() -> None:
    assert unexplained(job_with([(3.0, 0.0), (7.0, 90.0)], active_from_h=3.0)) is None


def test_given_a_finding_for_one_of_two_idle_times_when_judged_then_the_other_is_named() -> None:
    low = over("LowGPUUtilization", wasted=0.2)
    found = replace(low, merged=(Episode(START + 2.0 * HOUR_S, START + 4.0 * HOUR_S, nodes=("algo-1",)),))
    left = unexplained(job_with([(2.0, 90.0), (2.0, 5.0), (2.0, 90.0), (2.0, 5.0), (2.0, 90.0)], found))

    assert left is not None
    assert left.share == pytest.approx(0.2, abs=0.03)
    assert [(round((start - START) / HOUR_S), round((end - START) / HOUR_S)) for start, end in left.spans] == [(6, 8)]


def test_given_a_finding_on_another_node_when_judged_then_it_accounts_for_nothing_here() -> None:
    low = over("LowGPUUtilization", wasted=0.2)
    found = replace(low, merged=(Episode(START, START + 10.0 * HOUR_S, nodes=("algo-2",)),))

    assert unexplained(job_with([(8.0, 90.0), (2.0, 5.0)], found)) is not None


@pytest.mark.parametrize(("missing_h", "level"), [(0.4, "healthy"), (0.6, "unknown")])
def test_given_time_without_samples_when_no_rule_fires_then_much_of_it_is_no_all_clear(
    missing_h: float, level: str
) -> None:
    gap = (START + 2.0 * HOUR_S, START + (2.0 + missing_h) * HOUR_S)
    last = {"minute": int(START + 10.0 * HOUR_S) - 60}
    node = Node(use=80.0, closed=True, cursors=last, missing_s=missing_h * HOUR_S, gaps=(gap,))
    verdict = verdict_of(judged_job(*FINE, job=ended(), nodes=(node,)))
    assert verdict.level == level
    said = "algo-1 has no samples for 36 min of its 10 h (2026-11-21 10:00 to 10:36 UTC)"
    assert (said in verdict.health) == (level == "unknown")


def test_given_an_object_that_could_not_be_read_when_no_rule_fires_then_it_is_no_all_clear() -> None:
    judged = judged_job(*FINE, job=ended(), nodes=(Node(use=80.0, closed=True, counters={"bad_objects": 2}),))
    verdict = verdict_of(judged)

    assert verdict.level == "unknown"
    assert "2 objects could not be read" in verdict.health


def with_profile(judged: EvaluatedJob, kernel_us: float, loader_us: float = 0.0) -> EvaluatedJob:
    """Return a job with a kernel profile, whose steps of 20 ms launch 40 kernels of so many microseconds."""
    rank = slow_host(work_us=kernel_us, loader_us=loader_us)
    head = CaptureHead(capture="c", version="v", run="r", folder="f/", at=START, traces=1)
    record = NodeRecord(StreamKey(judged.job.job, ALL_RANKS, KERNELS))
    stream = KERNEL_PROFILES.open_stream(record, judged.plan)
    stream.apply(capture_verdict(head, [rank], None, {}))
    families = {**judged.streams.families, KERNELS: CaptureStreams({record.key: record}, {record.key: stream})}
    return replace(judged, streams=replace(judged.streams, families=families))


@pytest.mark.parametrize("loader_us", [0.0, 12_000.0])
def test_a_kernel_profile_that_says_why_leaves_nothing_open(loader_us: float) -> None:
    judged = job_with([(10.0, 35.0)])
    assert unexplained(judged) is not None
    assert unexplained(with_profile(judged, 150.0 if not loader_us else 100.0, loader_us)) is None


def test_a_kernel_profile_of_busy_gpus_explains_no_idle_hours() -> None:
    judged = with_profile(job_with([(6.0, 90.0), (4.0, 5.0)]), 490.0)
    assert unexplained(judged) is not None


def test_a_kernel_profile_explains_no_time_in_which_gpus_do_less() -> None:
    judged = with_profile(job_with([(6.0, 35.0), (4.0, 2.0)]), 200.0)
    left = unexplained(judged)
    assert left is not None
    assert left.share == pytest.approx(0.4, abs=0.03)
