"""How streams are asked to close, and how a job ends whose profile nobody can read or that belongs elsewhere."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.delivery import Network
from tests.support.late_news import (
    arrive,
    found_by_tick,
    outside,
    registrar,
    row,
    settle,
    told_by_event,
)
from tests.support.small_job import BUCKET, JOB, SETTINGS, START, Upload, describe, uploads
from trainguard.adapters.memory.faults import Fault
from trainguard.engine.closing import begin_close
from trainguard.ports import TrainingJobDescription
from trainguard.records import JobStatus, NodeKey
from trainguard.telemetry.keys import ProfileRoot

SYSTEM_1 = [upload for upload in uploads() if "system/incremental" in upload.key and "algo-1" in upload.key]
ALGO_1 = NodeKey(JOB, "algo-1", "system")
ALLOWED = SETTINGS | {"trainguard:stop-on-fire": "allowed"}


def elsewhere(status: JobStatus = JobStatus.IN_PROGRESS) -> TrainingJobDescription:
    return replace(describe(ALLOWED, status=status), profile_uri="s3://another-bucket/profiles")


def test_given_a_job_whose_profile_lies_in_another_bucket_when_objects_bear_its_name_then_nothing_is_stored() -> None:
    network = Network()
    network.world.training_jobs.set(elsewhere())
    arrive(network, SYSTEM_1[:3])
    assert network.world.jobs.load(JOB) is None
    assert network.world.nodes.of_job(JOB) == []
    assert network.world.journal.totals["foreign_keys"] == 3


@pytest.mark.parametrize("notice", [told_by_event, found_by_tick])
def test_given_a_claim_to_the_name_of_a_job_in_another_bucket_when_sagemaker_knows_it_then_the_claim_is_closed(
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


def test_given_a_job_under_another_prefix_when_objects_bear_its_name_then_it_has_its_own_place_and_ends() -> None:
    network = Network()
    network.world.training_jobs.set(replace(describe(), profile_uri=f"s3://{BUCKET}/runs"))
    arrive(network, SYSTEM_1[:3])
    assert (network.job().prefix, network.world.nodes.of_job(JOB)) == ("runs/", [])
    network.world.training_jobs.set(replace(describe(status=JobStatus.FAILED), profile_uri=f"s3://{BUCKET}/runs"))
    settle(network, 15)
    assert (network.job().active, network.job().status) == (False, JobStatus.FAILED)


@pytest.mark.parametrize(("final", "hours"), [(True, 24), (False, 72)])
def test_given_a_job_stored_with_a_place_that_nobody_can_read_when_it_ends_or_is_forgotten_then_it_is_closed_out(
    final: bool, hours: int
) -> None:
    network = Network()
    network.lasting_faults = True
    stored = registrar(network).register(elsewhere(), bucket=BUCKET, root=ProfileRoot("", JOB))
    assert stored.bucket == "another-bucket"
    network.world.faults.schedule("ProfileObjects.list", Fault.FAIL_BEFORE, times=1_000_000)
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
    assert row(network, "LowGPUUtilization").reason == "Ended without a profile: no object of it could be read."


def test_given_a_job_that_has_ended_when_ticks_and_events_repeat_then_streams_are_asked_ever_more_rarely() -> None:
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


def test_given_an_outside_job_that_names_many_instances_when_it_ends_then_only_streams_that_wrote_are_asked() -> None:
    network = outside()
    body = b'{"name": "small-job", "instance_count": 1000, "status": "%s"}'
    arrive(network, [Upload(START, f"{JOB}/job.json", body % b"InProgress"), *SYSTEM_1[:3]])
    network.world.faults.clear()
    job = network.job()
    begin_close(job, jobs=network.world.jobs, nodes=network.world.nodes, tasks=network.world.tasks, now=network.now)
    assert [(task.node, task.stream) for task in network.world.tasks.drain()] == [("algo-1", "system")]


def test_given_an_outside_job_without_a_stream_when_it_ends_then_it_is_finished_at_once() -> None:
    network = outside()
    body = b'{"name": "small-job", "instance_count": 1000, "status": "Completed"}'
    arrive(network, [Upload(START, f"{JOB}/job.json", body)])
    assert network.job().active is False
    assert network.queue == []


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
def test_given_tasks_that_could_not_be_sent_when_the_event_comes_again_then_they_are(fault: Fault) -> None:
    network = Network()
    network.world.training_jobs.set(describe(status=JobStatus.COMPLETED))
    network.world.faults.schedule("TaskQueue.send", fault)
    with pytest.raises(Exception, match="TaskQueue"):
        told_by_event(network)
    network.world.tasks.drain()
    told_by_event(network)
    assert len(network.world.tasks.drain()) == 4
