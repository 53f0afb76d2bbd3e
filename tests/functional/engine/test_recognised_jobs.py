"""Jobs that SageMaker lists after they were met: nothing from before is theirs, nothing of theirs is lost."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tests.support.delivery import Network
from tests.support.faults import Fault
from tests.support.late_events import (
    WAYS,
    arrive,
    claimed_name,
    found_by_tick,
    outside,
    registry,
    row,
    settle,
    told_by_event,
)
from tests.support.small_job import JOB, SETTINGS, START, Upload, describe, uploads
from trainguard.core.errors import StateConflictError
from trainguard.core.ports import Timing
from trainguard.core.records import JobStatus, Status, StreamKey
from trainguard.engine.batch import StreamEvaluator
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.lifecycle import REASON
from trainguard.engine.messages import StreamWork
from trainguard.engine.reconcile import STALE_EVERY

SYSTEM = [upload for upload in uploads() if "system/incremental" in upload.key]
SYSTEM_1 = [upload for upload in SYSTEM if "algo-1" in upload.key]
ARN = describe().arn
ALGO_1 = StreamKey(JOB, "algo-1", "system")
CLAIM = "elsewhere/"
ALLOWED = SETTINGS | {"trainguard:stop-on-fire": "allowed"}
MUTING = (
    b'{"name": "small-job", "status": "Completed", "settings":'
    b' {"muted": "all", "LowGPUUtilization_window": 5, "LowGPUUtilization_patience": 5}}'
)


def claim(chosen: list[Upload], prefix: str = CLAIM, node: str = "algo-1") -> list[Upload]:
    """Return the same objects under another prefix, as another node's."""
    moved = [(each.key.replace("algo-1", node), each.body.replace(b"algo-1", node.encode())) for each in chosen]
    return [Upload(each.at, prefix + key, body) for each, (key, body) in zip(chosen, moved, strict=True)]


def fires(network: Network, rule: str = "LowGPUUtilization") -> list[Any]:
    started = network.world.executions.started.values()
    return [each for each in started if each["kind"] == "fire" and each["rule"] == rule]


@pytest.mark.parametrize("notice", WAYS)
def test_recognised_job_uses_its_own_settings(notice: Any) -> None:
    network = outside()
    arrive(network, SYSTEM_1[:4])
    assert (network.job().arn, network.job().rule_settings) == (f"unknown:{JOB}", {})
    network.world.training_jobs.set(describe(ALLOWED))
    notice(network)
    job = network.job()
    assert (job.arn, job.generation, job.stop_allowed, job.status) == (ARN, 1, True, JobStatus.IN_PROGRESS)
    assert job.rule_settings == {name.removeprefix("trainguard:"): value for name, value in SETTINGS.items()}
    assert (job.instance_count, job.created_at, job.policy.stops.rules) == (2, START - 60.0, None)


@cache
def always_known(objects: int) -> Network:
    """Return a network that knew the job from the first of so many objects on: read it, change nothing."""
    network = Network()
    arrive(network, SYSTEM_1[:objects])
    settle(network, 1)
    return network


@pytest.mark.parametrize(
    ("notice", "met"), [*((each, 4) for each in WAYS), (told_by_event, 1), (found_by_tick, 1), (told_by_event, 11)]
)
def test_recognised_job_has_the_state_of_one_always_known(notice: Any, met: int) -> None:
    late, known = outside(), always_known(len(SYSTEM_1))
    arrive(late, SYSTEM_1[:met])
    late.world.training_jobs.set(describe())
    notice(late)
    arrive(late, SYSTEM_1[met:])
    settle(late, 1)
    mine, theirs = late.node(ALGO_1), known.node(ALGO_1)
    assert (mine.state, mine.cursors, mine.watermark_s) == (theirs.state, theirs.cursors, theirs.watermark_s)
    of_job = [each for each in fires(late) if each["jobArn"] == ARN]
    assert [each["fireId"] for each in of_job] == [each["fireId"] for each in fires(known)]
    assert row(late, "LowGPUUtilization").status is Status.FIRED


def attacked(notice: Any) -> Network:
    """Return a network in which a folder claimed the job's name, and which now lists the job's own place.

    An older version gave a folder below a prefix the name by itself: today's goes on with such an item.
    """
    network = outside()
    network.world.jobs.register(claimed_name(CLAIM, MUTING.replace(b"Completed", b"InProgress")))
    arrive(network, [*claim(SYSTEM_1), *claim(SYSTEM_1, node="algo-9")])
    network.run_scheduler()
    assert (network.job().prefix, network.job().policy.alerts.muted) == (CLAIM, ("all",))
    assert row(network, "LowGPUUtilization#algo-9").status is Status.FIRED
    network.world.training_jobs.set(describe(ALLOWED))
    notice(network)
    return network


def own_object(network: Network) -> None:
    arrive(network, SYSTEM_1[:1])


@pytest.mark.parametrize("notice", [told_by_event, found_by_tick, own_object])
def test_recognised_job_is_judged_by_its_own_objects(
    notice: Any,
) -> None:
    network = attacked(notice)
    job = network.job()
    assert (job.arn, job.prefix, job.policy.alerts.muted, job.active) == (ARN, "", (), True)
    arrive(network, SYSTEM_1[:6])
    settle(network, 6)
    alone = always_known(6)
    assert network.node(ALGO_1).state == alone.node(ALGO_1).state
    for target in ("LowGPUUtilization", "LowGPUUtilization#algo-1"):
        mine, theirs = row(network, target), row(alone, target)
        assert (mine.status, mine.evaluated_through) == (theirs.status, theirs.evaluated_through)
    assert [each for each in fires(network) if each["jobArn"] == ARN] == []
    arrive(network, claim(SYSTEM_1[6:]))
    assert network.node(ALGO_1).state == alone.node(ALGO_1).state


def test_rows_of_a_claim_are_cleared_once_the_job_is_recognised() -> None:
    network = attacked(told_by_event)
    settle(network, 1)
    left = row(network, "LowGPUUtilization#algo-9")
    assert (left.status, left.finding.reason, left.generation) == (Status.NOT_APPLICABLE, REASON, 1)
    assert left.expires_at is not None
    written = network.world.faults.calls.count("RuleStates.publish")
    network.run_scheduler()
    assert network.world.faults.calls.count("RuleStates.publish") == written
    assert network.node(StreamKey(JOB, "algo-9", "system")).state == b""


def test_waiting_fire_of_a_claim_never_starts_for_the_job() -> None:
    network = outside()
    network.lasting_faults = True
    network.world.faults.schedule("Executions.start", Fault.FAIL_BEFORE, times=1_000)
    arrive(network, [Upload(START, f"{JOB}/job.json", MUTING.replace(b"Completed", b"InProgress"))])
    arrive(network, SYSTEM_1)
    assert network.node(ALGO_1).unsent
    network.world.faults.clear()
    network.world.training_jobs.set(describe({**ALLOWED, "trainguard:LowGPUUtilization_threshold_p95": "1"}))
    told_by_event(network)
    arrive(network, SYSTEM_1[-1:])
    settle(network, 12)
    assert network.job().arn == ARN
    assert fires(network) == []


def test_job_runs_on_after_a_claim_that_says_it_has_ended() -> None:
    network = outside()
    arrive(network, [Upload(START, f"{JOB}/job.json", MUTING)])
    arrive(network, SYSTEM_1[:2])
    settle(network, 2)
    assert network.job().active is False
    network.world.training_jobs.set(describe())
    arrive(network, SYSTEM_1[2:4])
    job = network.job()
    assert (job.arn, job.active, job.closing, job.status) == (ARN, True, False, JobStatus.IN_PROGRESS)
    assert network.node(ALGO_1).closed is False


def test_late_writer_of_a_claim_changes_nothing_of_the_job() -> None:
    network = attacked(told_by_event)
    arrive(network, SYSTEM_1[:4])
    old = replace(network.job(), arn=f"unknown:{JOB}", prefix=CLAIM, generation=0, rule_settings={})
    before = network.node(ALGO_1), network.job()
    services = network.world.services
    timing = Timing(now=lambda: network.now, pause=lambda _: None, has_time=lambda: True)
    with pytest.raises(StateConflictError):
        StreamEvaluator(services=services, timing=timing, families=FAMILIES).evaluate(
            old, StreamWork(ALGO_1, modified_before=network.now)
        )
    services.jobs.update_status(replace(old, status=JobStatus.COMPLETED, active=False))
    assert (network.node(ALGO_1), network.job()) == before


def test_redelivery_judges_right_after_overtaken_recognition() -> None:
    network, known = outside(), always_known(len(SYSTEM_1))
    arrive(network, SYSTEM_1[:6])
    network.world.training_jobs.set(describe())
    network.world.faults.interleave("NodeStates.save", lambda: told_by_event(network))
    arrive(network, SYSTEM_1[6:8])
    assert network.job().arn == ARN
    arrive(network, SYSTEM_1[8:])
    network.run_until(network.now + 3_600.0, batch_s=0.0)
    assert network.node(ALGO_1).state == known.node(ALGO_1).state


@pytest.mark.parametrize("operation", ["Jobs.adopt", "SettingDocuments.read", "Executions.start"])
def test_concurrent_recognition_makes_one_item_and_one_notice(
    operation: str,
) -> None:
    network = outside()
    arrive(network, SYSTEM_1[:2])
    claimed = network.job()
    description = describe({"trainguard:LowGPUUtilization_window": "-1"})
    network.world.faults.interleave(operation, lambda: registry(network).adopt(claimed, description))
    second = registry(network).adopt(claimed, description)
    assert second == network.job() == registry(network).adopt(network.job(), description)
    assert (second.arn, second.generation) == (ARN, 1)
    notices = [each for each in network.world.executions.started.values() if each["kind"] == "notice"]
    assert len(notices) == 1


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
def test_recognition_is_complete_after_a_store_failure_and_retry(fault: Fault) -> None:
    network = outside()
    arrive(network, SYSTEM_1[:2])
    network.world.training_jobs.set(describe())
    network.world.faults.schedule("Jobs.adopt", fault)
    for _ in range(STALE_EVERY * 2):
        network.clock.run()
        network.now += 60.0
    job = network.job()
    assert (job.arn, job.generation, job.rule_settings["LowGPUUtilization_window"]) == (ARN, 1, "20")


def test_job_registered_during_the_query_is_recognised() -> None:
    network = outside()
    network.world.faults.interleave("Jobs.register", lambda: arrive(network, SYSTEM_1[:1]))
    network.world.faults.interleave("TrainingJobs.describe", lambda: network.world.training_jobs.set(describe()), nth=1)
    network.world.faults.interleave("TrainingJobs.describe", lambda: network.world.training_jobs.forget(JOB), nth=2)
    told_by_event(network)
    assert (network.job().arn, network.job().rule_settings["LowGPUUtilization_window"]) == (ARN, "20")


def test_recognised_job_that_is_not_judged_clears_its_claim() -> None:
    network = outside()
    arrive(network, SYSTEM_1)
    network.run_scheduler()
    assert row(network, "LowGPUUtilization").status is not Status.NOT_APPLICABLE
    network.world.training_jobs.set(describe({"trainguard:evaluate": "off"}))
    told_by_event(network)
    network.run_scheduler()
    job = network.job()
    assert (job.policy.evaluated, job.active, job.arn) == (False, False, ARN)
    assert job.expires_at is not None
    for target in ("LowGPUUtilization", "LowGPUUtilization#algo-1", "ProfilerReport"):
        assert (row(network, target).status, row(network, target).finding.reason) == (Status.NOT_APPLICABLE, REASON)
    started = len(network.world.executions.started)
    arrive(network, [replace(SYSTEM_1[-1], at=network.now)])
    network.run_scheduler()
    assert len(network.world.executions.started) == started


def test_late_tasks_of_a_claim_close_no_stream_of_the_job() -> None:
    network = outside()
    arrive(network, [Upload(START, f"{JOB}/job.json", MUTING.replace(b"Completed", b"InProgress")), *SYSTEM_1[:2]])
    network.put(Upload(network.now, f"{JOB}/job.json", MUTING))
    network.announce(Upload(network.now, f"{JOB}/job.json", MUTING), network.now)
    network.run_until(network.now, batch_s=0.0)
    assert [message.body for _, _, message in network.queue], "the task to close is under way"
    network.world.training_jobs.set(describe())
    told_by_event(network)
    arrive(network, SYSTEM_1[2:4])
    network.run_until(network.now + 10.0, batch_s=0.0)
    assert network.world.journal.totals["outdated_tasks"] == 1
    assert (network.node(ALGO_1).closed, network.job().closing) == (False, False)


def test_earlier_framework_objects_alone_are_read_at_the_end() -> None:
    framework = [each for each in uploads() if "pevents" in each.key and "algo-1" in each.key]
    network = outside()
    arrive(network, [*SYSTEM_1[:2], *framework[:4]])
    network.world.training_jobs.set(replace(describe(), framework_profiling=False))
    told_by_event(network)
    arrive(network, SYSTEM_1[2:])
    network.world.training_jobs.set(replace(describe(status=JobStatus.COMPLETED), framework_profiling=False))
    told_by_event(network)
    network.take_tasks()
    settle(network, 3)
    stream = network.node(StreamKey(JOB, "algo-1", "framework"))
    assert (network.job().active, stream.closed, stream.generation) == (False, True, 1)
    assert stream.cursors["newest"] >= max(int(each.key.rsplit("/", 1)[1].split("_")[0]) for each in framework[:4])


@pytest.mark.parametrize("ticked", [True, False])
def test_item_of_a_recognised_job_is_kept_between_runs(ticked: bool) -> None:
    network = outside()
    arrive(network, SYSTEM_1[:3])
    if ticked:
        network.run_scheduler()
    network.world.training_jobs.set(describe())
    told_by_event(network)
    arrive(network, SYSTEM_1)
    key = StreamKey(JOB, "*", "job")
    network.run_scheduler()
    own = network.node(key)
    assert (own.generation, bool(own.state)) == (1, True)
    network.run_scheduler()
    assert network.node(key).state == own.state
