"""What happens when a writer dies or a store fails at one particular point."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.support.delivered import NODE_1, SYSTEM_1, UPLOADS, deliver, row
from tests.support.delivery import Network
from tests.support.faults import Fault
from tests.support.small_job import BUCKET, JOB, START, Upload, uploads
from trainguard.core.ports import Timing
from trainguard.core.records import Status, StreamKey
from trainguard.engine.batch import BatchProcessor
from trainguard.engine.installed import FAMILIES
from trainguard.engine.messages import Message
from trainguard.engine.profiler.system_stream import SystemState
from trainguard.state.codec import decode_state, encode_state


def started(network: Any) -> Any:
    return sorted(payload["rule"] for payload in network.world.executions.started.values() if payload["kind"] == "fire")


def test_rule_fired_by_two_draining_nodes_starts_one_execution() -> None:
    network = Network()
    twin = [
        Upload(each.at, each.key.replace("algo-1", "algo-2"), each.body.replace(b"algo-1", b"algo-2"))
        for each in SYSTEM_1
    ]
    deliver(network, sorted([*SYSTEM_1, *twin], key=lambda each: (each.at, each.key)))
    assert row(network, "LowGPUUtilization#algo-1").status is Status.FIRED
    assert row(network, "LowGPUUtilization#algo-2").status is Status.FIRED
    assert started(network) == ["LowGPUUtilization"]
    assert network.world.journal.totals["fires_already_started"] == 1


def test_persistent_condition_is_enqueued_once() -> None:
    network = Network()
    deliver(network, SYSTEM_1)
    assert row(network, "LowGPUUtilization#algo-1").violations > 3
    assert network.world.faults.calls.count("Executions.start") == 1


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
@pytest.mark.parametrize("operation", ["Executions.start", "NodeStates.mark_sent"])
def test_crash_around_the_start_still_starts_exactly_once(operation: Any, fault: Any) -> None:
    network = Network()
    network.world.faults.schedule(operation, fault)
    deliver_keeping_faults(network, SYSTEM_1)
    assert network.world.faults.pending == ()
    assert started(network) == ["LowGPUUtilization"]
    assert network.node(NODE_1).unsent == ()


def deliver_keeping_faults(network: Any, chosen: Any) -> None:
    """Deliver without forgetting orders between batches."""
    network.lasting_faults = True
    deliver(network, chosen)


def deliver_until_it_dies(network: Any, chosen: Any) -> None:
    """Deliver up to the ordered death, and lose what is under way."""
    network.lasting_faults = True
    for upload in chosen:
        network.put(upload)
        network.announce(upload, upload.at)
        network.run_until(upload.at, batch_s=0.0)
        if network.crashes:
            break
    network.queue.clear()


def test_scheduler_starts_a_fire_left_by_a_crash() -> None:
    network = Network()
    network.world.faults.schedule("Executions.start", Fault.CRASH_BEFORE)
    deliver_until_it_dies(network, SYSTEM_1)
    assert started(network) == []
    network.run_scheduler()
    assert started(network) == ["LowGPUUtilization"]


def test_redelivery_writes_the_row_after_a_crash_past_the_write() -> None:
    network = Network()
    network.world.faults.schedule("RuleStates.publish", Fault.CRASH_BEFORE)
    network.lasting_faults = True
    deliver(network, SYSTEM_1[:4], until=SYSTEM_1[3].at + 1.0)
    assert network.crashes == 1
    before = network.node(NODE_1).version
    network.run_until(SYSTEM_1[3].at + 1_000.0, batch_s=0.0)
    assert row(network, "LowGPUUtilization#algo-1").evaluated_through is not None
    assert network.node(NODE_1).version == before


def test_constant_write_conflict_returns_only_that_node() -> None:
    network = Network()
    other = Upload(SYSTEM_1[0].at, SYSTEM_1[0].key.replace("algo-1", "algo-9"), SYSTEM_1[0].body)
    network.put(SYSTEM_1[0])
    network.put(other)
    network.announce(other, 0.0)
    network.announce(SYSTEM_1[0], 0.0)
    network.world.faults.schedule("NodeStates.save", Fault.CONFLICT, nth=2, times=4)
    outcome = network.batch.process([message for _, _, message in network.queue])
    assert outcome.failed == ("m2",)
    assert network.world.journal.totals["state_conflicts_exhausted"] == 1


def test_retry_after_a_write_conflict_applies_nothing_twice() -> None:
    plain, raced = Network(), Network()
    deliver(plain, SYSTEM_1)

    def other_writer() -> None:
        raced.batch.process([Message("other", object_message(raced, SYSTEM_1[6]), 1)])

    raced.world.faults.interleave("NodeStates.save", other_writer, nth=6)
    raced.lasting_faults = True
    deliver(raced, SYSTEM_1)
    assert raced.world.faults.pending == ()
    assert raced.world.journal.totals["state_conflicts"] == 1
    assert raced.node(NODE_1).state == plain.node(NODE_1).state


def object_message(network: Any, upload: Any) -> Any:
    network.put(upload)
    network.announce(upload, 0.0)
    return network.queue.pop()[2].body


def test_object_after_the_end_yields_the_state_of_a_timely_one() -> None:
    in_time, too_late = Network(), Network()
    end = UPLOADS[-1]
    deliver(in_time, [*SYSTEM_1, end])
    deliver(too_late, [*SYSTEM_1[:-1], end])
    assert not too_late.job().active
    deliver(too_late, SYSTEM_1[-1:], until=too_late.now + 10.0)
    assert too_late.node(NODE_1).state == in_time.node(NODE_1).state
    assert row(too_late, "LowGPUUtilization#algo-1").evaluated_through == pytest.approx(
        START + 14 * 60 - 5 + 0.01, abs=0.1
    )
    assert list(too_late.world.reports.started.values()) == [{"kind": "end", "job": JOB}] * 2


def test_snapshot_continued_after_the_end_is_still_one() -> None:
    straggler = SYSTEM_1[-1].body + (
        b'{"Type":"cpu","Name":"cpu1","Dimension":"CPUUtilization","Value":99.0,"NodeId":"algo-1","Timestamp":%d.5}\n'
        % (START + 60 * 13 - 5)
    )
    last = Upload(SYSTEM_1[-1].at, SYSTEM_1[-1].key, straggler)
    in_time, too_late = Network(), Network()
    deliver(in_time, [*SYSTEM_1[:-1], last, UPLOADS[-1]])
    deliver(too_late, [*SYSTEM_1[:-1], UPLOADS[-1], last])
    assert too_late.node(NODE_1).state == in_time.node(NODE_1).state


def test_unsent_fires_of_an_undecodable_item_still_start() -> None:
    network = Network()
    network.world.faults.schedule("Executions.start", Fault.CRASH_BEFORE)
    deliver_until_it_dies(network, SYSTEM_1)
    stored = network.node(NODE_1)
    assert stored.unsent
    network.world.nodes.save(replace(stored, codec=99))
    outcome = network.batch.process([Message("m", object_message(network, SYSTEM_1[9]), 1)])
    assert outcome.failed == ("m",)
    assert "Codec 99" in str(network.world.journal.entries[-1].where["reason"])
    assert started(network) == ["LowGPUUtilization"]


def test_node_goes_on_after_a_bad_object_named_in_its_row() -> None:
    network = Network()
    bad = Upload(SYSTEM_1[2].at, SYSTEM_1[2].key, b"\x1f\x8brubbish")
    deliver(network, [*SYSTEM_1[:2], bad, *SYSTEM_1[3:]])
    record = network.node(NODE_1)
    assert record.cursors["minute"] == START + 13 * 60
    assert record.counters["bad_objects"] == 1
    assert bad.key in row(network, "LowGPUUtilization#algo-1").finding.reason
    assert network.world.journal.totals["bad_objects"] == 1


def test_deleted_object_is_counted_and_skipped() -> None:
    network = Network()
    for upload in SYSTEM_1[:6]:
        network.put(upload)
        network.announce(upload, upload.at)
    network.world.objects.remove(BUCKET, SYSTEM_1[5].key)
    network.run_until(SYSTEM_1[5].at, batch_s=0.0)
    assert network.node(NODE_1).counters["bad_objects"] == 1


def test_objects_of_the_same_name_elsewhere_are_refused() -> None:
    network = Network()
    copy = Upload(SYSTEM_1[0].at, "backup/" + SYSTEM_1[0].key, SYSTEM_1[0].body)
    deliver(network, [copy])
    assert network.world.nodes.of_job(JOB) == []
    assert network.world.journal.totals["foreign_keys"] == 1


def test_fault_returning_after_its_episode_alerts_again() -> None:
    network = Network()
    quiet = uploads(low=False)
    healthy = [upload for upload in quiet if "system/incremental" in upload.key and "algo-1" in upload.key]
    timeline = [*SYSTEM_1, *shifted(healthy, 14), *shifted(SYSTEM_1, 28)]
    for upload in timeline:
        network.put(upload)
        network.announce(upload, upload.at)
        network.run_until(upload.at, batch_s=0.0)
        network.run_scheduler()
    assert started(network).count("LowGPUUtilization") == 2
    assert network.job().episodes == {"LowGPUUtilization": 1}
    assert row(network, "LowGPUUtilization").times_fired == 2


def shifted(chosen: Any, minutes: Any, node: str = "algo-1") -> Any:
    """Return the same minutes later in the job."""
    moved = []
    for upload in chosen:
        name = upload.key.rsplit("/", 1)[1]
        minute = int(name.split(".")[0])
        body = upload.body
        for second in range(0, 60, 5):
            for suffix in (b".01", b".012", b".02", b".022"):
                old = str(minute + second).encode() + suffix + b"}"
                body = body.replace(old, str(minute + second + 60 * minutes).encode() + suffix + b"}")
        key = f"{JOB}/profiler-output/system/incremental/2026112108/{minute + 60 * minutes}.{node}.json"
        moved.append(Upload(upload.at + 60 * minutes, key, body))
    return moved


def test_nodes_left_without_time_are_returned_and_lose_nothing() -> None:
    network = Network()
    seconds = iter([True, True, False])
    network.batch = BatchProcessor(
        services=network.world.services,
        timing=Timing(now=lambda: network.now, pause=lambda _: None, has_time=lambda: next(seconds, False)),
        families=FAMILIES,
        bucket=BUCKET,
    )
    for name in ("algo-1", "algo-2", "algo-3"):
        upload = Upload(SYSTEM_1[0].at, SYSTEM_1[0].key.replace("algo-1", name), SYSTEM_1[0].body)
        network.put(upload)
        network.announce(upload, 0.0)
    outcome = network.batch.process([message for _, _, message in network.queue])
    assert outcome.failed == ("m3",)
    assert network.world.journal.totals["evaluations_unfinished"] == 1


def test_vainly_waiting_node_is_flushed_once_in_five_minutes() -> None:
    network = Network()
    chosen = [*SYSTEM_1[:4], SYSTEM_1[5]]
    for upload in chosen:
        network.put(upload)
        network.announce(upload, upload.at)
        network.run_until(upload.at, batch_s=0.0)
    assert list(network.node(NODE_1).pending.values()) == [START + 300]
    network.run_scheduler()
    sent = []
    for _ in range(4):
        network.now += 60.0
        network.clock.run()
        sent += network.world.tasks.drain()
    assert sent == []
    network.now += 60.0
    network.run_scheduler()
    network.run_until(network.now + 5.0, batch_s=0.0)
    record = network.node(NODE_1)
    assert (record.cursors["minute"], dict(record.pending), record.counters["gaps"]) == (START + 300, {}, 1)


def test_state_of_another_version_resets_its_rule_and_says_so() -> None:
    network = Network()
    for upload in SYSTEM_1[:5]:
        network.put(upload)
        network.announce(upload, upload.at)
        network.run_until(upload.at, batch_s=0.0)
    stored = network.node(NODE_1)
    state = decode_state("item", stored.codec, stored.state, SystemState)
    state.stored_rules["CPUBottleneck"].data = msgspec.msgpack.encode({"from": "another version"})
    network.world.nodes.save(replace(stored, state=encode_state(state)))
    deliver(network, SYSTEM_1[5:])
    assert row(network, "CPUBottleneck#algo-1").status is not Status.ERROR
    assert "another version" in row(network, "CPUBottleneck#algo-1").finding.reason
    assert row(network, "LowGPUUtilization#algo-1").status is Status.FIRED
    network.run_scheduler()
    assert network.world.journal.totals["reconcile_failures"] == 0


def test_scheduler_reconciles_other_jobs_when_one_fails() -> None:
    network = Network()
    deliver(network, SYSTEM_1[:5])
    broken = replace(
        network.node(NODE_1), key=StreamKey("a-broken-job", "algo-1", "system"), version=0, state=b"rubbish"
    )
    network.world.jobs.register(replace(network.job(), job="a-broken-job"))
    network.world.nodes.save(broken)
    network.run_scheduler()
    assert network.world.journal.totals["reconcile_failures"] == 1
    assert row(network, "LowGPUUtilization").status is not None


def test_scheduler_has_job_times_on_framework_objects_alone() -> None:
    network = Network()
    framework = [upload for upload in UPLOADS if "pevents" in upload.key and "70-algo-2" in upload.key]
    deliver(network, framework)
    network.run_scheduler()
    shown = row(network, "StepOutlier")
    assert shown.fired_at is not None
    assert shown.fired_at > START
    assert shown.evaluated_through is not None
