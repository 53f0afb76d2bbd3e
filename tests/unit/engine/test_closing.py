"""How streams are asked to close, and how a job ends whose profile nobody can read or that belongs elsewhere."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.delivery import Network
from tests.support.late_news import (
    arrive,
    found_by_tick,
    outside,
    settle,
    told_by_event,
)
from tests.support.small_job import BUCKET, JOB, SETTINGS, START, Upload, describe, uploads
from trainguard.adapters.memory.faults import Fault
from trainguard.engine.jobs.closing import begin_close
from trainguard.families.installed import FAMILIES
from trainguard.ports import TrainingJobDescription
from trainguard.records import JobRecord, JobStatus, StreamKey

SYSTEM_1 = [upload for upload in uploads() if "system/incremental" in upload.key and "algo-1" in upload.key]
ALGO_1 = StreamKey(JOB, "algo-1", "system")
ALLOWED = SETTINGS | {"trainguard:stop-on-fire": "allowed"}


def elsewhere(status: JobStatus = JobStatus.IN_PROGRESS) -> TrainingJobDescription:
    return replace(describe(ALLOWED, status=status), profile_uri="s3://another-bucket/profiles")


def test_given_a_job_whose_profile_lies_in_another_bucket_when_objects_bear_its_name_then_its_item_says_so() -> None:
    network = Network()
    network.world.training_jobs.set(elsewhere())
    arrive(network, SYSTEM_1[:3])
    job = network.job()
    assert (job.active, job.policy.evaluated, job.stop_allowed, job.expires_at is None) == (False, False, False, False)
    assert job.policy.why == "its profile belongs into s3://another-bucket/profiles"
    assert (network.world.nodes.of_job(JOB), network.world.rows.of_job(JOB)) == ([], [])
    assert network.world.journal.totals["not_evaluated"] == 3


def test_given_a_job_in_another_bucket_when_its_configuration_comes_to_name_this_one_then_it_is_judged() -> None:
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
def test_given_many_objects_that_are_not_judged_when_they_ring_then_sagemaker_is_asked_once_in_five_minutes(
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


def test_given_the_store_says_that_another_evaluator_asks_when_objects_ring_then_this_one_does_not() -> None:
    network = outside()
    network.world.settings.put(network.world.settings.default, '{"evaluate": "off"}')
    arrive(network, SYSTEM_1[:1])
    before = questions(network)
    network.world.faults.interleave("Jobs.ask", lambda: network.world.jobs.ask(JOB, network.now, 300.0))
    arrive(network, SYSTEM_1[1:2])
    assert questions(network) == before


@pytest.mark.parametrize(("case", "most"), [("outside", 12), ("waits", 12 + 20), ("silent", 12 + 10)])
def test_given_a_job_that_writes_nothing_for_an_hour_when_ticks_come_then_sagemaker_is_asked_every_five_minutes(
    case: str, most: int
) -> None:
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


def test_given_many_outside_jobs_when_ticks_come_then_each_asks_about_its_share_and_of_all_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainguard.engine.tick.tick.MOST_DOUBTED", 10)
    network = outside()
    for number in range(100):
        network.world.jobs.register(JobRecord(f"run-{number}", f"unknown:run-{number}", BUCKET, ""))
    asked = []
    for _ in range(12):
        before = questions(network)
        network.tick()
        asked.append(questions(network) - before)
        network.now += 60.0
    assert sum(asked) == 100
    assert max(asked) <= 20


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
    begin_close(
        job, FAMILIES, jobs=network.world.jobs, nodes=network.world.nodes, tasks=network.world.tasks, now=network.now
    )
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


@pytest.mark.parametrize("ended", [True, False])
def test_given_a_name_that_sagemaker_gave_to_a_later_job_when_it_is_told_of_then_the_first_is_closed_as_it_was(
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
