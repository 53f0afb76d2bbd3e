"""A job's life with all that can befall it: what ends early, restarts, shares instances, grows and shrinks."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.delivery import Network
from tests.support.late_events import told_by_event
from tests.support.memory import MemoryJournal
from tests.support.small_job import JOB, START, Upload, describe, uploads
from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JobRecord, JobStatus, RuleRow, Status, StreamKey

UPLOADS = uploads()
SYSTEM = [upload for upload in UPLOADS if "system/incremental" in upload.key]
SYSTEM_1 = [upload for upload in SYSTEM if "algo-1" in upload.key]
HEALTHY = [upload for upload in uploads(low=False) if "system/incremental" in upload.key and "algo-2" in upload.key]
END_MARK = UPLOADS[-1]


def follow(network: Network, description: TrainingJobDescription | None = None) -> JobRecord | None:
    """Let a state change event of the job arrive, after SageMaker lists what is described."""
    if description is not None:
        network.world.training_jobs.set(description)
    return told_by_event(network)


def arrive(network: Network, chosen: list[Upload], *, tick: bool = False) -> None:
    """Let objects appear with their events, each at its time."""
    for upload in chosen:
        network.put(upload)
        network.announce(upload, max(upload.at, network.now))
        network.run_until(upload.at, batch_s=0.0)
        if tick:
            network.run_scheduler()


def settle(network: Network, minutes: int = 30) -> None:
    """Let time pass, with a run of the scheduler every minute."""
    for _ in range(minutes):
        network.run_scheduler()
        network.run_until(network.now + 60.0, batch_s=0.0)


def row(network: Network, target: str, job: str = JOB) -> RuleRow:
    """Return a row, which must exist."""
    return next(each for each in network.world.rows.of_job(job) if each.target == target)


def alerts(network: Network, job: str = JOB) -> list[Any]:
    """Return the rules whose fires were started for a job."""
    return [each["rule"] for each in network.world.executions.started.values() if each["job"] == job]


def later(chosen: list[Upload], minutes: int, node: str) -> list[Upload]:
    """Return the same minutes of system metrics later in the job, as another node's."""
    moved = []
    for upload in chosen:
        stamp, name, _ = upload.key.rsplit("/", 1)[1].split(".")
        body = upload.body.replace(name.encode(), node.encode())
        for second in range(0, 60, 5):
            old = int(stamp) + second
            body = body.replace(f" {old}.".encode(), f" {old + 60 * minutes}.".encode())
        minute = int(stamp) + 60 * minutes
        key = f"{JOB}/profiler-output/system/incremental/2026112108/{minute}.{node}.json"
        moved.append(Upload(upload.at + 60 * minutes, key, body))
    return moved


@pytest.mark.parametrize("final", [JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.STOPPED])
def test_job_closed_before_its_first_object_has_rows_and_report(
    final: JobStatus,
) -> None:
    network = Network()
    follow(network)
    network.run_scheduler()
    assert row(network, "LowGPUUtilization").status is Status.WAITING_FOR_DATA
    follow(network, describe(status=final))
    network.run_scheduler()
    settle(network, 2)
    assert (network.job().active, network.job().status) == (False, final)
    for target in ("LowGPUUtilization", "LowGPUUtilization#algo-2", "StepOutlier", "MaxInitializationTime"):
        ended = row(network, target)
        assert (ended.status, ended.debugger_status) == (Status.NOT_APPLICABLE, "NoIssuesFound"), target
        assert ended.finding.reason == "Ended without a profile: no object of it could be read."
    assert [each["kind"] for each in network.world.reports.started.values()] == ["end"]
    assert alerts(network) == []


def test_job_closed_without_framework_metrics_keeps_its_verdict() -> None:
    network = Network()
    follow(network)
    arrive(network, SYSTEM_1)
    follow(network, describe(status=JobStatus.COMPLETED))
    settle(network, 3)
    assert row(network, "LowGPUUtilization").status is Status.FIRED
    missing = row(network, "StepOutlier")
    assert missing.status is Status.NOT_APPLICABLE
    assert missing.finding.reason.startswith("Ended without what the rule needs: ")


def test_objects_alone_carry_a_job_to_its_end_without_events() -> None:
    network = Network()
    arrive(network, SYSTEM_1, tick=True)
    assert network.job().instance_type == "ml.g5.12xlarge"
    network.world.training_jobs.set(replace(describe(status=JobStatus.COMPLETED), ended_at=START + 900.0))
    settle(network)
    job = network.job()
    assert (job.active, job.status, job.ended_at) == (False, JobStatus.COMPLETED, START + 900.0)
    assert alerts(network).count("LowGPUUtilization") == 1


@pytest.mark.parametrize("again", [1, 3])
def test_repeated_end_event_adds_no_report_and_no_task(
    again: int,
) -> None:
    network = Network()
    arrive(network, SYSTEM_1)
    follow(network, describe(status=JobStatus.COMPLETED))
    settle(network, 3)
    before = (network.job(), dict(network.world.reports.started))
    for _ in range(again):
        follow(network)
    follow(network, describe())
    assert network.world.tasks.drain() == []
    settle(network, 3)
    assert (network.job(), dict(network.world.reports.started)) == (
        replace(before[0], secondary_status=network.job().secondary_status),
        before[1],
    )


def test_reordered_first_event_closes_the_job_once() -> None:
    network = Network()
    arrive(network, SYSTEM_1)
    follow(network, describe(status=JobStatus.COMPLETED))
    follow(network)
    settle(network, 3)
    assert network.job().active is False
    assert len(network.world.reports.started) == 1


def interrupted(secondary: str) -> TrainingJobDescription:
    return replace(describe(), secondary_status=secondary)


def test_spot_restart_on_the_same_nodes_is_one_job_over_the_gap() -> None:
    network = Network()
    arrive(network, SYSTEM, tick=True)
    follow(network, interrupted("Interrupted"))
    arrive(network, [END_MARK])
    settle(network, 30)
    job = network.job()
    assert (job.active, job.closing, job.secondary_status) == (True, False, "Interrupted")
    follow(network, interrupted("Restarting"))
    follow(network, interrupted("Training"))
    again = sorted([*later(SYSTEM_1, 60, "algo-1"), *later(SYSTEM_1, 60, "algo-2")], key=lambda each: each.at)
    arrive(network, again, tick=True)
    assert network.node(StreamKey(JOB, "algo-1", "system")).cursors["minute"] == START + (60 + 13) * 60
    assert row(network, "LowGPUUtilization#algo-2").status is Status.FIRED
    assert "MaxInitializationTime" not in alerts(network)
    follow(network, describe(status=JobStatus.COMPLETED))
    settle(network, 3)
    assert network.job().active is False
    assert len(network.world.reports.started) == 1


def test_warm_pool_jobs_with_shared_names_stay_separate() -> None:
    network = Network()
    alone = Network()
    second = "next-job"
    next_uploads = [
        Upload(each.at, each.key.replace(JOB, second), each.body)
        for each in [*later(HEALTHY, 20, "algo-1"), *later(HEALTHY, 20, "algo-2")]
    ]
    straggler = SYSTEM_1[-1]
    for world in (network, alone):
        arn = describe().arn.replace(JOB, second)
        world.world.training_jobs.set(replace(describe(), job=second, arn=arn, started_at=START + 1_200.0))
    arrive(network, SYSTEM_1[:-1], tick=True)
    mixed = sorted([*next_uploads, replace(straggler, at=next_uploads[3].at)], key=lambda each: each.at)
    arrive(network, mixed, tick=True)
    arrive(alone, sorted(next_uploads, key=lambda each: each.at), tick=True)
    for node in ("algo-1", "algo-2"):
        key = StreamKey(second, node, "system")
        assert network.node(key).state == alone.node(key).state
        assert network.node(key).counters == alone.node(key).counters
    assert alerts(network, second) == []
    assert alerts(network) == ["LowGPUUtilization"]
    assert network.node(StreamKey(JOB, "algo-1", "system")).cursors["minute"] == START + 13 * 60


def test_nodes_added_to_a_growing_cluster_are_all_closed() -> None:
    network = Network()
    arrive(network, SYSTEM)
    follow(network, replace(describe(), instance_count=4))
    arrive(network, later(HEALTHY, 14, "algo-3"), tick=True)
    follow(network, replace(describe(), instance_count=1))
    assert network.job().instance_count == 4
    follow(network, describe(status=JobStatus.COMPLETED))
    closed = {task.node for task in network.world.tasks.drain() if task.stream == "system"}
    assert closed == {"algo-1", "algo-2", "algo-3", "algo-4"}


def test_late_and_early_leaving_nodes_are_each_judged() -> None:
    network = Network()
    arrive(network, SYSTEM, tick=True)
    arrive(network, later(SYSTEM_1, 20, "algo-9"), tick=True)
    assert row(network, "LowGPUUtilization#algo-9").status is Status.FIRED
    follow(network, describe(status=JobStatus.COMPLETED))
    settle(network, 3)
    assert network.job().active is False
    assert row(network, "LowGPUUtilization").worst == "algo-9/gpu0"
    assert isinstance(network.world.journal, MemoryJournal)
    assert network.world.journal.totals["reconcile_failures"] == 0
