"""Two jobs of a tuning job: what its item says about them, in whatever order and however often they are judged."""

from dataclasses import replace
from functools import cache

import pytest

from tests.support.delivery import Network
from tests.support.faults import Fault
from tests.support.small_job import JOB, Upload, describe, uploads
from trainguard.core.finding import Severity
from trainguard.core.records import JobStatus, TunedJob, TuningJobRecord

TUNE, OTHER, TELL = "tune", "other-job", "Bookkeeping.upsert_tuned_job"
LOW = [each for each in uploads() if "system/incremental" in each.key and "algo-1" in each.key][:8]
WELL = [
    Upload(each.at, each.key.replace(JOB, OTHER), each.body)
    for each in uploads(low=False)
    if "system/incremental" in each.key and "algo-1" in each.key
][:8]
ENDED = {
    JOB: TunedJob(JobStatus.COMPLETED, finished=True, findings=1, rule="LowGPUUtilization", severity=Severity.MEDIUM),
    OTHER: TunedJob(JobStatus.COMPLETED, finished=True),
}


def describe_both(network: Network, status: JobStatus = JobStatus.IN_PROGRESS, tuning_job: str | None = TUNE) -> None:
    for job in (JOB, OTHER):
        network.world.training_jobs.set(replace(describe(status=status), job=job, arn=job, tuning_job=tuning_job))


def begun(*, tuning_job: str | None = TUNE) -> Network:
    network = Network()
    describe_both(network, tuning_job=tuning_job)
    return network


def arrive(network: Network, chosen: list[Upload]) -> None:
    """Let objects appear with their events, with a run of the scheduler after each."""
    for upload in chosen:
        network.put(upload)
        network.announce(upload, max(upload.at, network.now))
        network.run_until(max(upload.at, network.now), batch_s=0.0)
        network.run_scheduler()


def settle(network: Network, minutes: int) -> None:
    for _ in range(minutes):
        network.run_until(network.now + 60.0, batch_s=0.0)
        network.run_scheduler()


def end(network: Network) -> None:
    describe_both(network, JobStatus.COMPLETED)
    settle(network, 30)


def tuning(network: Network) -> TuningJobRecord:
    found = network.world.bookkeeping.tuning_job(TUNE)
    assert found is not None
    return found


def told(network: Network) -> int:
    return network.world.faults.calls.count(TELL)


@pytest.mark.parametrize(
    "order",
    [[*LOW, *WELL], [*WELL, *LOW], sorted([*LOW, *WELL], key=lambda each: each.at)],
    ids=["one after the other", "the other way round", "at once"],
)
def test_ended_jobs_have_entries_worst_first_in_any_order(
    order: list[Upload],
) -> None:
    network = begun()
    arrive(network, order)
    end(network)
    found = tuning(network)
    assert found.jobs == ENDED
    assert [name for name, _ in found.worst_first] == [JOB, OTHER]
    assert (found.finished, found.with_findings, found.more) == (2, 1, False)


def test_fires_of_running_jobs_are_shown_before_they_end() -> None:
    network = begun()
    arrive(network, sorted([*LOW, *WELL], key=lambda each: each.at))
    found = tuning(network)
    assert found.jobs == {
        JOB: replace(ENDED[JOB], status=JobStatus.IN_PROGRESS, finished=False),
        OTHER: TunedJob(JobStatus.IN_PROGRESS),
    }
    assert found.finished == 0
    assert found.expires_at is not None
    assert 0.0 <= network.now + 90 * 86_400 - found.expires_at <= 360.0


def test_unchanged_entry_is_rewritten_every_six_minutes() -> None:
    network = begun()
    arrive(network, LOW)
    settle(network, 1)
    before, count = tuning(network), told(network)
    settle(network, 6)
    assert told(network) - count == 1
    assert tuning(network).jobs == before.jobs


def test_job_outside_any_tuning_job_writes_no_entry() -> None:
    network = begun(tuning_job=None)
    arrive(network, LOW)
    settle(network, 5)
    assert told(network) == 0


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
def test_entry_lost_in_a_crash_is_back_within_six_minutes(
    fault: Fault,
) -> None:
    network = begun()
    network.world.faults.schedule(TELL, fault)
    network.lasting_faults = True
    arrive(network, LOW[:2])
    assert network.world.faults.pending == ()
    settle(network, 6)
    assert tuning(network).jobs == {JOB: TunedJob(JobStatus.IN_PROGRESS)}


@cache
def told_undisturbed() -> int:
    reference = begun()
    arrive(reference, LOW)
    end(reference)
    return told(reference)


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.FAIL_BEFORE])
def test_last_entry_lost_in_a_crash_is_written_at_the_close(
    fault: Fault,
) -> None:
    network = begun()
    network.world.faults.schedule(TELL, fault, nth=told_undisturbed())
    network.lasting_faults = True
    arrive(network, LOW)
    describe_both(network, JobStatus.COMPLETED)
    minutes = 0
    while network.job().active:
        settle(network, 1)
        minutes += 1
        assert minutes < 30
    assert network.world.faults.pending == ()
    assert tuning(network).jobs == {JOB: ENDED[JOB]}
