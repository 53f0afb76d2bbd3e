"""How streams are asked to close, and how a job ends whose profile nobody can read or that belongs elsewhere."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.delivery import Network
from tests.support.faults import Fault
from tests.support.late_events import (
    arrive,
    found_by_tick,
    outside,
    registry,
    row,
    settle,
    told_by_event,
)
from tests.support.small_job import BUCKET, JOB, SETTINGS, START, Upload, describe, uploads
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JobRecord, JobStatus, StreamKey
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.job_registry import JobRegistry
from trainguard.engine.jobs.lifecycle import request_close

SYSTEM_1 = [upload for upload in uploads() if "system/incremental" in upload.key and "algo-1" in upload.key]
ALGO_1 = StreamKey(JOB, "algo-1", "system")
ALLOWED = SETTINGS | {"trainguard:stop-on-fire": "allowed"}


def elsewhere(status: JobStatus = JobStatus.IN_PROGRESS) -> TrainingJobDescription:
    return replace(describe(ALLOWED, status=status), profile_uri="s3://another-bucket/profiles")


def test_item_records_that_the_profile_is_in_another_bucket() -> None:
    network = Network()
    network.world.training_jobs.set(elsewhere())
    arrive(network, SYSTEM_1[:3])
    job = network.job()
    assert (job.active, job.policy.evaluated, job.stop_allowed, job.expires_at is None) == (False, False, False, False)
    assert job.policy.why == "its profile belongs into s3://another-bucket/profiles"
    assert (network.world.nodes.of_job(JOB), network.world.rows.of_job(JOB)) == ([], [])
    assert network.world.journal.totals["not_evaluated"] == 3


def test_job_of_another_bucket_is_judged_once_it_names_this_one() -> None:
    network, known = Network(), Network()
    network.world.training_jobs.set(elsewhere())
    arrive(network, SYSTEM_1[:3])
    network.world.training_jobs.set(describe(ALLOWED))
    known.world.training_jobs.set(describe(ALLOWED))
    arrive(network, SYSTEM_1[3:])
    arrive(known, SYSTEM_1)
    assert (network.job().arn, network.job().stop_allowed, network.job().active) == (describe().arn, True, True)
    assert network.node(ALGO_1).state == known.node(ALGO_1).state


def questions(network: Network) -> int:
    """Return how often SageMaker was asked about a job so far."""
    return network.world.faults.calls.count("TrainingJobs.describe")


@pytest.mark.parametrize("case", ["another bucket", "not evaluated", "another prefix"])
def test_unjudged_objects_query_sagemaker_once_in_five_minutes(
    case: str,
) -> None:
    network = outside()
    if case == "another bucket":
        network.world.training_jobs.set(elsewhere())
    elif case == "not evaluated":
        network.world.settings.put(network.world.settings.default, '{"evaluate": "tagged"}')
    else:
        arrive(network, [Upload(START, f"own/{SYSTEM_1[0].key}", SYSTEM_1[0].body)])
    before = questions(network)
    several = [replace(each, at=each.at + second) for each in SYSTEM_1 for second in (0.0, 1.0, 2.0)]
    arrive(network, several)
    minutes = (several[-1].at - several[0].at) / 60.0
    assert len(several) > 40
    assert questions(network) - before <= minutes / 5.0 + 2.0


def test_sagemaker_query_of_another_evaluator_is_not_repeated() -> None:
    network = outside()
    network.world.settings.put(network.world.settings.default, '{"evaluate": "off"}')
    arrive(network, SYSTEM_1[:1])
    before = questions(network)
    network.world.faults.interleave("Jobs.ask", lambda: network.world.jobs.ask(JOB, network.now, 300.0))
    arrive(network, SYSTEM_1[1:2])
    assert questions(network) == before


@pytest.mark.parametrize(("case", "most"), [("outside", 12), ("waits", 12 + 20), ("silent", 12 + 10)])
def test_job_silent_for_an_hour_is_queried_every_five_minutes(case: str, most: int) -> None:
    network = outside() if case == "outside" else Network()
    if case == "waits":
        told_by_event(network)
    else:
        arrive(network, SYSTEM_1[:2])
    before = questions(network)
    settle(network, 60)
    assert most - 12 < questions(network) - before <= most
    network.world.training_jobs.set(describe(status=JobStatus.COMPLETED))
    settle(network, 5)
    assert network.job().status is JobStatus.COMPLETED


def test_runs_share_out_the_queries_of_many_external_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainguard.engine.reconcile.MOST_STALE", 6)
    network = outside()
    for number in range(60):
        network.world.jobs.register(JobRecord(f"run-{number}", f"unknown:run-{number}", BUCKET, ""))
    asked = []
    for _ in range(12):
        before = questions(network)
        network.run_scheduler()
        asked.append(questions(network) - before)
        network.now += 60.0
    assert sum(asked) == 60
    assert max(asked) <= 12


@pytest.mark.parametrize("notice", [told_by_event, found_by_tick])
def test_claim_to_a_sagemaker_job_of_another_bucket_is_closed(
    notice: Any,
) -> None:
    network = outside()
    arrive(network, SYSTEM_1[:5])
    network.world.training_jobs.set(elsewhere(JobStatus.COMPLETED))
    notice(network)
    assert network.job().closing
    network.take_tasks()
    settle(network, 3)
    job = network.job()
    assert (job.arn, job.active, job.status, job.stop_allowed) == (f"unknown:{JOB}", False, JobStatus.UNKNOWN, False)
    before = network.node(ALGO_1).state
    arrive(network, SYSTEM_1[5:])
    assert network.node(ALGO_1).state == before
    assert network.world.journal.totals["foreign_keys"] == len(SYSTEM_1[5:])


def test_job_under_another_prefix_has_its_own_place_and_ends() -> None:
    network = Network()
    network.world.training_jobs.set(replace(describe(), profile_uri=f"s3://{BUCKET}/runs"))
    arrive(network, SYSTEM_1[:3])
    assert (network.job().prefix, network.world.nodes.of_job(JOB)) == ("runs/", [])
    network.world.training_jobs.set(replace(describe(status=JobStatus.FAILED), profile_uri=f"s3://{BUCKET}/runs"))
    settle(network, 15)
    assert (network.job().active, network.job().status) == (False, JobStatus.FAILED)


def test_streams_of_an_ended_job_are_asked_ever_more_rarely() -> None:
    network = Network()
    network.world.training_jobs.set(replace(describe(status=JobStatus.COMPLETED), instance_count=1_000))
    asked = []
    for minute in range(80):
        told_by_event(network)
        network.clock.run()
        if network.world.tasks.drain():
            asked.append(minute)
        network.now += 60.0
    assert asked == [0, 5, 15, 35, 75]


def test_ended_external_job_asks_only_streams_that_wrote() -> None:
    network = outside()
    body = b'{"name": "small-job", "instance_count": 1000, "status": "%s"}'
    arrive(network, [Upload(START, f"{JOB}/job.json", body % b"InProgress"), *SYSTEM_1[:3]])
    network.world.faults.clear()
    job = network.job()
    request_close(job, JobRegistry(network.world.services, FAMILIES, lambda: network.now))
    assert [(task.node, task.stream) for task in network.world.tasks.drain()] == [("algo-1", "system")]


def test_ended_external_job_without_a_stream_is_finished_at_once() -> None:
    network = outside()
    body = b'{"name": "small-job", "instance_count": 1000, "status": "Completed"}'
    arrive(network, [Upload(START, f"{JOB}/job.json", body)])
    assert network.job().active is False
    assert network.queue == []


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
def test_unsent_tasks_are_sent_when_the_event_is_redelivered(fault: Fault) -> None:
    network = Network()
    network.world.training_jobs.set(describe(status=JobStatus.COMPLETED))
    network.world.faults.schedule("TaskQueue.send", fault)
    with pytest.raises(Exception, match="TaskQueue"):
        told_by_event(network)
    network.world.tasks.drain()
    told_by_event(network)
    assert len(network.world.tasks.drain()) == 4


@pytest.mark.parametrize("ended", [True, False])
def test_reused_sagemaker_name_closes_the_first_job_as_it_was(
    ended: bool,
) -> None:
    network = Network()
    arrive(network, SYSTEM_1[:3])
    if ended:
        network.world.training_jobs.set(describe(status=JobStatus.COMPLETED))
        told_by_event(network)
        network.take_tasks()
        settle(network, 3)
        assert network.job().active is False
    before = network.job()
    later = replace(describe(), created_at=START + 9_000.0, started_at=START + 9_100.0, instance_count=64)
    network.world.training_jobs.set(later)
    told_by_event(network)
    settle(network, 8)
    job = network.job()
    assert (job.active, job.status, job.started_at) == (False, before.status, before.started_at)
    assert (job.instance_count, job.secondary_status, job.created_at) == (2, "Training", before.created_at)
    assert network.world.journal.totals["names_given_again"] == 1
    assert len(network.world.reports.started) == 1


@pytest.mark.parametrize(("final", "hours"), [(True, 24), (False, 72)])
def test_job_with_an_unreadable_place_is_closed_out(final: bool, hours: int) -> None:
    network = Network()
    network.lasting_faults = True
    stored = registry(network).register(elsewhere(), bucket=BUCKET, root=ProfileRoot("", JOB))
    assert stored.bucket == "another-bucket"
    network.world.faults.schedule("ReadableObjects.list", Fault.FAIL_BEFORE, times=1_000_000)
    if final:
        network.world.training_jobs.set(elsewhere(JobStatus.COMPLETED))
    else:
        network.world.training_jobs.forget(JOB)
    sent = 0
    for _ in range(hours * 60):
        network.clock.run()
        sent += len(network.world.tasks.drain())
        network.now += 60.0
        if not network.job().active:
            break
    assert network.job().active is False
    assert network.world.jobs.active() == []
    assert sent == 8 * 2 * 2
    assert row(network, "LowGPUUtilization").finding.reason == "Ended without a profile: no object of it could be read."
