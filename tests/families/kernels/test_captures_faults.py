"""What must not go wrong: repeats, late ranks, damaged traces, functions that die, executions that fail."""

from dataclasses import replace

import pytest

from tests.support.captures import FIRST, HELD_UP, Live, capture
from tests.support.small_job import BUCKET, Upload
from trainguard.core.records import JobStatus, Status
from trainguard.engine.kernels import session
from trainguard.engine.kernels.session import AGAIN_S, MOST_ATTEMPTS, MOST_BACKLOG
from trainguard.kernels.verdict import CaptureVerdict, decode_verdict

SETTLED = FIRST + 900.0


def verdict_of(live: Live) -> CaptureVerdict:
    """Return the newest verdict as it lies in S3."""
    key = max(name for name in live.names() if name.endswith("verdict.json"))
    found = f"small-job/rule-output/TrainGuardReport/{key}"
    return decode_verdict(found, live.world.objects.get(BUCKET, found, 100_000))


def test_repeated_messages_read_once_and_fire_once() -> None:
    live = Live()
    live.write(capture(delay_us=HELD_UP), times=3)
    live.until(SETTLED + 1_800.0)
    assert len(live.machine.digested) == 4
    assert len(live.machine.ran) == 1
    assert live.fires().count("kernels/LateRank") == 1


def test_listing_has_all_ranks_after_lost_messages() -> None:
    live = Live()
    traces = capture(delay_us=HELD_UP)
    live.write(traces[:1])
    live.write(traces[1:], announced=False)
    live.until(SETTLED)
    assert verdict_of(live).traces == 4


def test_late_rank_reads_only_its_trace() -> None:
    live = Live()
    *first, last = capture(delay_us=HELD_UP)
    live.write(first)
    live.until(SETTLED)
    assert verdict_of(live).traces == 3
    digested = len(live.machine.digested)
    live.write([Upload(live.net.now, last.key, last.body)])
    live.until(live.net.now + 900.0)
    assert verdict_of(live).traces == 4
    assert live.machine.digested[digested:] == [last.key.rpartition("/")[2]]
    assert len({name.split("/")[1] for name in live.names() if name.endswith("verdict.json")}) == 1
    assert live.fires().count("kernels/LateRank") == 1


def test_damaged_trace_is_named_and_others_are_joined() -> None:
    live = Live()
    traces = capture(delay_us=HELD_UP)
    traces[3] = Upload(traces[3].at, traces[3].key, b"\x00\x01 not a trace")
    live.write(traces)
    live.until(SETTLED)
    verdict = verdict_of(live)
    assert (verdict.traces, verdict.unread, verdict.judged) == (4, 1, 3)
    assert list(verdict.unread_why) == [traces[3].key.rpartition("/")[2]]
    row = live.rows()["LateRank"]
    assert row.status is Status.FIRED
    assert "1 bad trace" in row.finding.reason
    assert live.record.counters["bad_traces"] == 1


def test_trace_that_kills_the_function_is_named() -> None:
    live = Live()
    traces = capture(delay_us=HELD_UP)
    live.machine.dies.add(traces[0].key)
    live.write(traces)
    live.until(SETTLED)
    assert list(verdict_of(live).unread_why.values()) == ["its digest failed at every attempt"]
    assert live.rows()["LateRank"].status is Status.FIRED


def test_capture_of_damaged_traces_fires_nothing_and_says_why() -> None:
    live = Live()
    live.write([Upload(each.at, each.key, b"{") for each in capture()])
    live.until(SETTLED)
    row = live.rows()["GpuBusyLow"]
    assert row.status is Status.WARMING_UP
    assert "None of 4 traces" in row.finding.reason
    assert live.fires() == []


@pytest.mark.parametrize("step", ["plan", "join"])
def test_failed_execution_is_requested_again(
    step: str,
) -> None:
    live = Live()
    live.machine.failing.add(step)
    live.write(capture(delay_us=HELD_UP))
    live.until(SETTLED)
    assert live.rows()["LateRank"].status is Status.WAITING_FOR_DATA
    live.machine.failing.clear()
    live.until(SETTLED + AGAIN_S + 900.0)
    assert len(live.machine.ran) == 2
    assert live.rows()["LateRank"].status is Status.FIRED
    assert live.record.pending == {}


def test_capture_is_abandoned_after_three_failed_executions() -> None:
    live = Live()
    live.machine.failing.add("join")
    live.write(capture())
    live.until(SETTLED + MOST_ATTEMPTS * (AGAIN_S + 600.0) + 900.0)
    assert len(live.machine.ran) == MOST_ATTEMPTS
    assert live.record.counters["captures_given_up"] == 1
    assert live.record.pending == {}


def test_repeated_join_keeps_the_verdict() -> None:
    live = Live()
    live.write(capture(delay_us=HELD_UP))
    live.until(SETTLED)
    before, fires = live.record.state, live.fires()
    key = max(name for name in live.names() if name.endswith("verdict.json"))
    live.until(live.net.now + 1_200.0)
    assert (live.record.state, live.fires()) == (before, fires)
    assert key in live.names()


@pytest.mark.parametrize(
    "calls", [pytest.param(each, marks=[pytest.mark.thorough] * (each % 4 > 0)) for each in range(1, 17)]
)
def test_crashed_evaluator_starts_one_execution_and_one_fire(calls: int) -> None:
    live = Live()
    live.write(capture(delay_us=HELD_UP))
    live.until(FIRST + 300.0)
    live.net.doomed = [calls] * 20
    live.until(SETTLED + 2_400.0)
    assert live.net.crashes
    assert len(live.machine.ran) == 1
    assert live.fires().count("kernels/LateRank") == 1


def test_finding_ends_with_a_newer_clean_capture_and_notifies() -> None:
    live = Live()
    live.write(capture(delay_us=HELD_UP))
    live.until(SETTLED)
    live.write(capture(at=live.net.now))
    live.until(live.net.now + 1_200.0)
    row = live.rows()["LateRank"]
    assert row.status is Status.OK
    assert row.times_fired == 1
    assert ("cleared", "kernels/LateRank") in live.alerts()


def test_finding_stands_after_a_newer_capture_of_two_steps() -> None:
    live = Live()
    live.write(capture(delay_us=HELD_UP))
    live.until(SETTLED)
    live.write(capture(at=live.net.now, steps=2))
    live.until(live.net.now + 1_200.0)
    assert live.rows()["LateRank"].status is Status.FIRED
    assert ("cleared", "kernels/LateRank") not in live.alerts()


def test_first_capture_of_two_steps_sends_no_alert() -> None:
    live = Live()
    live.write(capture(delay_us=HELD_UP, steps=2))
    live.until(SETTLED)
    assert live.fires() == []
    assert live.rows()["LateRank"].status is Status.WARMING_UP


def test_piled_up_captures_run_one_at_a_time_and_skip_old_ones() -> None:
    live = Live()
    for place in range(MOST_BACKLOG + 2):
        live.write(capture(at=FIRST + 400.0 * place)[:2], announced=place == 0)
    live.net.now = FIRST + 400.0 * (MOST_BACKLOG + 2)
    running: list[int] = []
    live.until(live.net.now + 1_800.0, lambda: running.append(len(live.world.captures.started) - len(live.machine.ran)))
    assert max(running) <= 1
    assert live.record.counters["captures_passed_over"] == 2
    assert len(live.machine.ran) == MOST_BACKLOG
    assert live.record.pending == {}


def test_capture_of_an_ended_job_is_judged_without_settling() -> None:
    live = Live()
    live.write(capture(delay_us=HELD_UP))
    live.until(FIRST + 60.0)
    described = live.world.training_jobs.describe("small-job")
    assert described is not None
    live.world.training_jobs.set(replace(described, status=JobStatus.COMPLETED))
    end = Upload(live.net.now, "small-job/profiler-output/framework/training_job_end.ts", b"")
    live.write([end])
    live.until(live.net.now + 400.0)
    assert live.rows()["LateRank"].status is Status.FIRED
    assert "kernels/LateRank" in live.fires()
    assert len(live.world.reports.started) >= 2


def test_captures_beyond_the_execution_limit_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "MOST_CAPTURE_EXECUTIONS", 2)
    live = Live()
    for number in range(4):
        live.write(capture(at=FIRST + 1_800.0 * number))
        live.until(SETTLED + 1_800.0 * number)
    live.until(live.net.now + 2_000.0)  # a row that says the same is written again within this
    assert len(live.machine.ran) == 2
    assert live.record.counters["captures_passed_over"] == 2
    assert "2 captures passed over" in live.rows()["LateRank"].finding.reason
