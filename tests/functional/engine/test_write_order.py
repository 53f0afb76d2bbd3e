"""What is written, in which order, and what a stream that ends leaves in its item."""

from dataclasses import replace

import pytest

from tests.support.delivered import NODE_1, SYSTEM_1, UPLOADS, deliver, row
from tests.support.delivery import Network
from tests.support.faults import Fault
from tests.support.framework_traces import START_US, read, step
from tests.support.own_rules import OwnRule, OwnState, OwnSteps, deploy
from tests.support.small_job import BUCKET, JOB, describe
from trainguard.core.ports import StreamTask, Timing
from trainguard.core.records import JobRecord, JobStatus, Status, StreamKey
from trainguard.engine.batch import BatchProcessor
from trainguard.engine.installed import FAMILIES
from trainguard.engine.messages import encode_task
from trainguard.engine.profiler.framework_session import FrameworkState, FrameworkStream
from trainguard.engine.profiler.system_stream import SystemState, SystemStream
from trainguard.formats.profile.system import read_system_object
from trainguard.rules.rule_inputs import FrameworkView, NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.state.codec import encode_state

PLAN = FAMILIES.plan(JobRecord("job", "arn", "bucket", ""))


def test_refused_node_write_leaves_no_row_ahead_of_the_store() -> None:
    network = Network()
    for upload in SYSTEM_1[:3]:
        network.put(upload)
        network.announce(upload, SYSTEM_1[2].at)
    network.world.faults.schedule("NodeStates.save", Fault.FAIL_BEFORE)
    network.run_until(SYSTEM_1[2].at, batch_s=0.0)
    assert network.world.rows.of_job(JOB) == []
    network.run_until(SYSTEM_1[2].at + 1_000.0, batch_s=0.0)
    assert row(network, "LowGPUUtilization#algo-1").evaluated_through is not None


def test_refused_job_write_leaves_no_row_ahead_of_the_store() -> None:
    network = Network()
    deliver(network, SYSTEM_1[:2], until=SYSTEM_1[1].at)
    nodes = network.world.rows.of_job(JOB)
    network.world.faults.schedule("NodeStates.save", Fault.FAIL_BEFORE)
    network.run_scheduler()
    assert network.world.rows.of_job(JOB) == nodes
    network.run_scheduler()
    assert row(network, "LowGPUUtilization").status is Status.WAITING_FOR_DATA


def test_stored_item_names_a_minute_waiting_for_the_one_before() -> None:
    network = Network()
    deliver(network, [SYSTEM_1[0], SYSTEM_1[2]], until=SYSTEM_1[2].at)
    assert list(network.node(NODE_1).pending) == [SYSTEM_1[2].key]
    deliver(network, [SYSTEM_1[1]], until=network.now)
    assert dict(network.node(NODE_1).pending) == {}


def test_late_fire_of_a_closed_item_is_stored_before_it_starts() -> None:
    network = Network()
    deliver(network, [*SYSTEM_1, UPLOADS[-1]])
    closed = network.node(NODE_1)
    assert closed.closed
    network.world.jobs.raise_episode(JOB, "LowGPUUtilization", 0, generation=0)
    network.send(encode_task(StreamTask(JOB, "algo-1", "system", "close")), network.now)
    network.world.faults.schedule("Executions.start", Fault.FAIL_BEFORE)
    network.run_until(network.now, batch_s=0.0)
    after = network.node(NODE_1)
    assert (after.state, after.cursors) == (closed.state, closed.cursors)
    assert [entry.episode for entry in after.unsent] == [1]


def test_closed_item_stays_closed_when_late_objects_time_out() -> None:
    network = Network()
    deliver(network, [*SYSTEM_1[:-3], UPLOADS[-1]])
    assert network.node(NODE_1).closed
    for upload in SYSTEM_1[-3:]:
        network.put(upload)
        network.announce(upload, network.now)
    short = Timing(now=lambda: network.now, pause=lambda _: None, has_time=iter([True, *[False] * 9]).__next__)
    BatchProcessor(services=network.world.services, timing=short, bucket=BUCKET, families=FAMILIES).process(
        [message for *_, message in network.queue]
    )
    item = network.node(NODE_1)
    assert item.pending
    assert item.closed


def minute(index: int) -> bytes:
    """Return a minute of one GPU and one core, every five seconds and one second before the minute's end."""
    lines = []
    for second in (*range(0, 60, 5), 59):
        at = START_US // 1_000_000 + 60 * index + second
        for kind, name, dimension in (("gpu", "gpu0", "GPUUtilization"), ("cpu", "cpu0", "CPUUtilization")):
            lines.append(
                f'{{"Type":"{kind}","Name":"{name}","Dimension":"{dimension}","Value":50.0,"NodeId":"algo-1","Timestamp":{at}}}'
            )
    return "\n".join(lines).encode()


def test_finishing_a_copy_leaves_the_system_stream_as_it_was() -> None:
    stream = SystemStream("algo-1", SystemState(), PLAN)
    for index in range(3):
        at = START_US // 1_000_000 + 60 * index
        stream.apply(read_system_object("key", minute(index), node="algo-1", minute=at))
    stored = encode_state(stream.store())
    last = stream.finished()
    last.finish()
    assert encode_state(stream.store()) == stored
    assert encode_state(last.store()) != stored


def test_finishing_a_copy_leaves_the_framework_stream_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deploy(monkeypatch, EndSteps())
    stream = FrameworkStream("algo-1", FrameworkState(), FAMILIES.plan(JobRecord("job", "arn", "bucket", "")))
    stream.apply(read([step(number, number, 0.5) for number in range(9)]), START_US + 10_000_000)
    stored = encode_state(stream.store())
    last = stream.finished()
    assert [fire.verdict.rule for fire in last.finish()] == ["OwnSteps"]
    assert encode_state(stream.store()) == stored
    assert encode_state(last.store()) != stored


class EndSteps(OwnSteps):
    """A rule over framework events that fires only when they have ended."""

    def judge(self, state: OwnState, view: FrameworkView, parameters: object) -> RuleResult:
        del parameters
        return RuleResult(Status.FIRED if view.closed else Status.OK, f"{state.minutes} batches of steps.")


def at_the_end(state: OwnState, view: NodeView) -> RuleResult:
    return RuleResult(Status.FIRED if view.closed else Status.OK, f"{state.minutes} minutes.")


@pytest.mark.parametrize("stream", ["system", "framework"])
def test_row_of_an_ended_job_knows_the_fire_at_the_stream_end(monkeypatch: pytest.MonkeyPatch, stream: str) -> None:
    rule = OwnRule(judging=at_the_end) if stream == "system" else EndSteps()
    deploy(monkeypatch, rule)
    network = Network()
    network.world.training_jobs.set(replace(describe(), instance_count=1))
    chosen = [each for each in UPLOADS if "algo-2" not in each.key]
    for upload in chosen:
        network.put(upload)
        network.announce(upload, upload.at)
        network.run_until(upload.at, batch_s=0.0)
    network.world.training_jobs.set(replace(describe(status=JobStatus.COMPLETED), instance_count=1))
    for _ in range(30):
        network.run_until(network.now + 60.0, batch_s=0.0)
        network.run_scheduler()
    assert not network.job().active
    shown = row(network, rule.name)
    assert (shown.status, shown.times_fired) == (Status.FIRED, 1)
    assert network.node(StreamKey(JOB, "algo-1", "system")).closed


@pytest.mark.parametrize("closed", [False, True])
def test_a_released_stream_is_viewed_as_it_was(closed: bool) -> None:
    stream, again = SystemStream("algo-1", SystemState(), PLAN), SystemStream("algo-1", SystemState(), PLAN)
    before = stream.view(closed=closed)
    stream.release(lambda: again)
    after = stream.view(closed=closed)
    assert (after.closed, after.watermark_s, after.idle_time) == (closed, before.watermark_s, before.idle_time)
    assert after.kept_times.tolist() == before.kept_times.tolist()
    assert (before.idle_time.quiet_s, before.idle_time.run_mean) == (0.0, 0.0)
