"""StalledTrainingRule on a job that runs: the scheduler's clock, and what S3 says when it is asked."""

from dataclasses import replace

import pytest

from tests.families.training.runs import DEBUG, arrive, fires_of, network_of, rows_of, run_files, uploads_of
from tests.families.training.step_rules import HIGH_LOSS, RULES
from tests.support.delivery import Network
from tests.support.small_job import JOB, describe
from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JobStatus, Status
from trainguard.engine.diagnosis.case import job_verdicts
from trainguard.engine.family import Families
from trainguard.engine.profiler.family import PROFILER
from trainguard.engine.streams.job_streams import JobMoment
from trainguard.engine.training.family import TrainingFamily
from trainguard.engine.training.stream import STALLED
from trainguard.rules.training.stalled_training import StalledTrainingRule

FAMILIES = Families(PROFILER, TrainingFamily([*RULES, StalledTrainingRule()], [STALLED]))
THRESHOLD_S = 1_800.0


def ticked(network: Network, minutes: int) -> None:
    """Let the scheduler run each minute, and what it asks for be done."""
    for _ in range(minutes):
        network.now += 60.0
        network.run_scheduler()
        network.run_until(network.now + 5.0, batch_s=0.0)


def stalled(network: Network) -> list[object]:
    return [unit for rule, unit, _ in fires_of(network) if rule == STALLED]


def test_job_without_saves_fires_once_after_the_threshold() -> None:
    network = network_of(uploads_of(run_files([1.0, 1.0])), FAMILIES)
    ticked(network, 29)
    assert stalled(network) == []
    assert rows_of(network)[STALLED].status is Status.OK
    ticked(network, 15)
    assert stalled(network) == ["*"]
    row = rows_of(network)[STALLED]
    assert row.status is Status.FIRED
    assert row.finding.measured is not None
    assert row.finding.measured > THRESHOLD_S
    ticked(network, 60)
    assert stalled(network) == ["*"]


def test_messages_stuck_in_the_queue_fire_nothing() -> None:
    uploads = uploads_of(run_files([1.0] * 8))
    network = network_of(uploads[:3], FAMILIES)
    for minute, upload in enumerate(uploads[3:]):
        network.world.objects.now = network.now
        for _ in range(10):
            network.now += 60.0
            network.run_scheduler()
            network.run_until(network.now + 5.0, batch_s=0.0)
        network.put(type(upload)(network.now, upload.key, upload.body))
        assert minute >= 0
    assert stalled(network) == []


def test_stall_ends_with_training_and_the_next_fires_again() -> None:
    uploads = uploads_of(run_files([1.0, 1.0, 1.0]))
    network = network_of(uploads[:5], FAMILIES)
    ticked(network, 45)
    assert stalled(network) == ["*"]
    for upload in uploads[5:]:
        arrive(network, type(upload)(network.now, upload.key, upload.body))
    ticked(network, 2)
    assert rows_of(network)[STALLED].status is Status.OK
    assert network.job().episodes[STALLED] == 1
    ticked(network, 45)
    assert stalled(network) == ["*", "*"]


def test_long_model_upload_after_the_end_mark_fires_nothing() -> None:
    network = network_of(uploads_of(run_files([1.0, 1.0], ended=True)), FAMILIES)
    ticked(network, 60)
    assert stalled(network) == []
    assert rows_of(network)[STALLED].finding.reason == "Training has ended."


@pytest.mark.parametrize("secondary", ["Uploading", "Interrupted", "Starting"])
def test_job_not_training_fires_nothing_without_saves(secondary: str) -> None:
    network = network_of([], FAMILIES)
    network.world.training_jobs.set(_described(secondary_status=secondary))
    for upload in uploads_of(run_files([1.0, 1.0])):
        arrive(network, upload)
    ticked(network, 60)
    assert stalled(network) == []


def test_job_unknown_to_sagemaker_is_not_stalled() -> None:
    network = network_of([], FAMILIES)
    network.world.training_jobs.forget(JOB)
    for upload in uploads_of(run_files([1.0, 1.0])):
        arrive(network, upload)
    ticked(network, 60)
    assert stalled(network) == []
    assert rows_of(network)[STALLED].status is Status.NOT_APPLICABLE


def test_stall_stands_if_judged_without_a_clock() -> None:
    network = network_of(uploads_of(run_files([1.0, 1.0])), FAMILIES)
    ticked(network, 45)
    job = network.job()
    plan = FAMILIES.plan(job)
    streams = FAMILIES.open(job.job, plan, network.world.nodes.of_job(JOB))
    verdict = next(
        each for each in job_verdicts(job, plan, streams, moment=JobMoment(streams.closed))[0] if each.rule == STALLED
    )
    assert verdict.result.status is Status.FIRED
    assert verdict.history.is_open


def test_event_times_show_a_gap_without_a_clock() -> None:
    """A job that has ended is judged by the times of its steps."""
    files = run_files([1.0, 1.0, 1.0])
    network = network_of(uploads_of(files), FAMILIES)
    plan = FAMILIES.plan(network.job())
    assert STALLED not in network.node(DEBUG).counters
    stream = FAMILIES.of(DEBUG).open_stream(network.node(DEBUG), replace(plan, by_event_time=True))
    assert [verdict.rule for verdict in stream.verdicts(closed=False)] == [STALLED]
    live = FAMILIES.of(DEBUG).open_stream(network.node(DEBUG), plan)
    assert live.verdicts(closed=False) == []
    assert HIGH_LOSS not in plan.rules


def _described(**changed: object) -> TrainingJobDescription:
    return replace(describe(status=JobStatus.IN_PROGRESS), **changed)  # type: ignore[arg-type]
