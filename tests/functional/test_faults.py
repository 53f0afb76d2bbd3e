"""The switchboard of the twins: what is ordered happens, once, and nothing else does."""

import threading

import pytest

from tests.functional.worlds import BUCKET
from tests.support.canary_jobs import MemoryCanaryJobs
from tests.support.faults import OPERATIONS, Crash, Fault, Faults
from tests.support.memory import MemoryProfileObjects, MemoryStopBudget, MemoryStopLimit, MemoryWorld
from trainguard.core.errors import PortUnavailableError, StateConflictError
from trainguard.core.finding import Finding
from trainguard.core.ports import ReconcileRequest, StreamTask, TrainingJobDescription
from trainguard.core.records import (
    JobRecord,
    JobStatus,
    OutboxEntry,
    RuleRow,
    Status,
    StreamKey,
    StreamRecord,
    TunedJob,
)
from trainguard.engine.settings.tag_names import PROFILE_TAG
from trainguard.stack.organisation.stop_limit import StopRequest

KEY = StreamKey("job", "algo-1", "system")
ENTRY = OutboxEntry("a", 0, 60.0, Finding("Rule", "algo-1", "It idles."))


def _use_every_operation(world: MemoryWorld) -> None:
    for reason in world.reconcile_requests.send([ReconcileRequest("job", 60.0, 5)]).values():
        raise PortUnavailableError("Scheduler", "run", reason)
    world.nodes.save(StreamRecord(KEY, outbox={"a": ENTRY}))
    world.nodes.load(KEY)
    world.nodes.mark_sent(KEY, ["a"])
    world.nodes.of_job("job")
    world.rows.publish([RuleRow("job", Finding("Rule", None, ""), Status.OK)])
    world.rows.of_job("job")
    world.rows.of_whole_job("job")
    world.rows.load("job", "Rule")
    MemoryStopBudget(faults=world.faults).take("fire", "job", now=0.0, limit=1)
    MemoryStopLimit(faults=world.faults, limit=1).ask(StopRequest("arn", "fire", "job"))
    world.jobs.register(JobRecord("job", "unknown:job", BUCKET, ""))
    world.jobs.adopt(JobRecord("job", "arn", BUCKET, ""))
    world.jobs.load("job")
    world.jobs.update_status(JobRecord("job", "arn", BUCKET, "", status=JobStatus.COMPLETED))
    world.jobs.ask("job", 1.0, 300.0)
    world.jobs.touch("job", 1.0)
    world.jobs.raise_episode("job", "Rule", 0)
    world.bookkeeping.admit(0.0, 1)
    world.jobs.admit_stream("job", 1)
    world.jobs.recount_streams("job", 1, 0)
    world.jobs.set_fast_polling("job", polled_fast=False)
    world.jobs.set_braked("job", None)
    world.jobs.set_outlook("job", "soon")
    world.jobs.active()
    world.jobs.polled_fast()
    world.jobs.polled_slowly()
    list(world.jobs.all())
    world.bookkeeping.upsert_tuned_job("tuning", "job", TunedJob(JobStatus.COMPLETED), 1)
    world.bookkeeping.tuning_job("tuning")
    world.objects.put(BUCKET, "key", b"", "")
    world.objects.get(BUCKET, "key", 1)
    world.objects.get_range(BUCKET, "key", 0, 1)
    with world.objects.open_stream(BUCKET, "key") as stream:
        stream.read(1)
    list(world.objects.list(BUCKET, "", ""))
    list(world.objects.folders(BUCKET, ""))
    world.objects.delete(BUCKET, ["no key"])
    world.settings.read(world.settings.default)
    world.executions.start("name", {})
    world.executions.find("name")
    list(world.executions.unsuccessful(0.0))
    world.training_jobs.describe("job")
    canary = MemoryCanaryJobs(world, 0.0)
    canary.mark("job")
    canary.marked()
    canary.create("job", {PROFILE_TAG: f"s3://{BUCKET}"})
    canary.status("job")
    canary.stop("job")
    world.tasks.send([StreamTask("job", "algo-1", "system", "close")])


def _effects(world: MemoryWorld) -> object:
    """Return all that a world holds."""
    return (
        world.nodes.of_job("job"),
        world.rows.of_job("job"),
        world.jobs.load("job"),
        world.bookkeeping.tuning_job("tuning"),
        list(world.objects.list(BUCKET, "", "")),
        world.executions.started,
        world.tasks.drain(),
        world.reconcile_requests.drain(),
    )


def test_every_operation_passes_the_switchboard() -> None:
    world = MemoryWorld()
    _use_every_operation(world)
    assert set(world.faults.calls) == OPERATIONS
    assert len(world.faults.calls) == len(OPERATIONS) == 49


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_failure_before_an_operation_has_no_effect(
    operation: str,
) -> None:
    world, reference = MemoryWorld(), MemoryWorld()
    world.faults.schedule(operation, Fault.FAIL_BEFORE)
    with pytest.raises(PortUnavailableError, match=operation.replace(".", r"\.")):
        _use_every_operation(world)
    reference.faults.crash_after(world.faults.calls.index(operation))
    with pytest.raises(Crash):
        _use_every_operation(reference)
    assert _effects(world) == _effects(reference)
    assert not world.faults.pending


@pytest.mark.parametrize(
    ("fault", "error"), [(Fault.FAIL_AFTER, PortUnavailableError), (Fault.CRASH_AFTER, Crash)], ids=["fail", "crash"]
)
@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_failure_after_an_operation_keeps_its_effect(operation: str, fault: Fault, error: type[BaseException]) -> None:
    world, reference = MemoryWorld(), MemoryWorld()
    world.faults.schedule(operation, fault)
    with pytest.raises(error):
        _use_every_operation(world)
    reference.faults.crash_after(world.faults.calls.index(operation) + 1)
    with pytest.raises(Crash):
        _use_every_operation(reference)
    assert _effects(world) == _effects(reference)


def test_retried_save_after_a_lost_answer_conflicts() -> None:
    world = MemoryWorld()
    world.faults.schedule("NodeStates.save", Fault.FAIL_AFTER)
    with pytest.raises(PortUnavailableError):
        world.nodes.save(StreamRecord(KEY))
    with pytest.raises(StateConflictError):
        world.nodes.save(StreamRecord(KEY))


def test_crash_is_not_caught_by_exception_handlers() -> None:
    world = MemoryWorld()
    world.faults.schedule("Executions.start", Fault.CRASH_BEFORE)
    assert not issubclass(Crash, Exception)
    with pytest.raises(Crash, match=r"CRASH_BEFORE at Executions\.start"):
        world.executions.start("name", {})
    assert world.executions.started == {}


def test_conflicting_save_writes_nothing_and_names_the_item() -> None:
    world = MemoryWorld()
    world.faults.schedule("NodeStates.save", Fault.CONFLICT)
    with pytest.raises(StateConflictError, match="NodeState/job/algo-1#system no longer has Version 0"):
        world.nodes.save(StreamRecord(KEY))
    assert world.nodes.save(StreamRecord(KEY)).version == 1


def test_only_the_ordered_second_and_third_call_fail() -> None:
    world = MemoryWorld()
    world.jobs.active()
    world.faults.schedule("Jobs.active", Fault.FAIL_BEFORE, nth=2, times=2)
    outcomes = []
    for _ in range(4):
        try:
            outcomes.append(world.jobs.active() == [])
        except PortUnavailableError:
            outcomes.append(False)
    assert outcomes == [True, False, False, True]


def test_unmet_orders_are_pending_until_cleared() -> None:
    world = MemoryWorld()
    world.faults.schedule("Jobs.active", Fault.FAIL_BEFORE, times=2)
    world.faults.crash_after(10)
    with pytest.raises(PortUnavailableError):
        world.jobs.active()
    assert world.faults.pending == ("Jobs.active", "any")
    world.faults.clear()
    assert not world.faults.pending
    assert world.jobs.active() == []


def test_crash_at_every_call_shows_each_prefix_of_effects() -> None:
    whole = MemoryWorld()
    _use_every_operation(whole)
    for calls in range(len(whole.faults.calls)):
        world = MemoryWorld()
        world.faults.crash_after(calls)
        with pytest.raises(Crash):
            _use_every_operation(world)
        assert world.faults.calls == whole.faults.calls[:calls]
        assert not world.faults.pending


def test_raising_call_still_dies_if_a_crash_follows_it() -> None:
    world = MemoryWorld()
    world.faults.crash_after(1)
    with pytest.raises(Crash):
        world.objects.get(BUCKET, "missing", 1)


def test_interleaved_process_acts_between_load_and_save() -> None:
    world = MemoryWorld()
    world.faults.interleave("NodeStates.save", lambda: world.nodes.save(StreamRecord(KEY)))
    with pytest.raises(StateConflictError):
        world.nodes.save(StreamRecord(KEY))
    stored = world.nodes.load(KEY)
    assert stored is not None
    assert stored.version == 1


def test_earlier_parts_of_a_failed_operation_stand() -> None:
    world = MemoryWorld()
    rows = [RuleRow("job", Finding(rule, None, ""), Status.OK) for rule in ("A", "B", "C")]
    world.faults.schedule("RuleStates.publish", Fault.CRASH_BEFORE, nth=2)
    with pytest.raises(Crash):
        world.rows.publish(rows)
    world.faults.schedule("TaskQueue.send", Fault.FAIL_BEFORE, nth=2)
    tasks = [StreamTask("job", f"algo-{number}", "system", "close") for number in range(11)]
    with pytest.raises(PortUnavailableError):
        world.tasks.send(tasks)
    assert [row.rule for row in world.rows.of_job("job")] == ["A"]
    assert world.tasks.drain() == tasks[:10]


def test_first_page_is_seen_if_the_second_fails() -> None:
    faults = Faults()
    objects = MemoryProfileObjects(faults=faults, page_size=2)
    for key in "abc":
        objects.put(BUCKET, key, b"", "")
    faults.schedule("ReadableObjects.list", Fault.FAIL_BEFORE, nth=2)
    listing = objects.list(BUCKET, "", "")
    assert [next(listing).key, next(listing).key] == ["a", "b"]
    with pytest.raises(PortUnavailableError):
        next(listing)


def test_objects_carry_the_moved_clock_time_of_writing() -> None:
    world = MemoryWorld()
    world.objects.now = 60.0
    world.objects.put(BUCKET, "a", b"", "")
    world.objects.now = 120.0
    world.objects.put(BUCKET, "b", b"", "")
    assert [entry.last_modified for entry in world.objects.list(BUCKET, "", "")] == [60.0, 120.0]
    world.objects.remove(BUCKET, "a")
    assert [entry.key for entry in world.objects.list(BUCKET, "", "")] == ["b"]


def test_outside_tag_changes_do_not_reach_the_twin() -> None:
    world = MemoryWorld()
    tags = {"team": "vision"}
    world.training_jobs.set(
        TrainingJobDescription("job", "arn", JobStatus.STOPPED, None, None, None, None, None, None, None, False, tags)
    )
    tags["team"] = "speech"
    described = world.training_jobs.describe("job")
    assert described is not None
    assert described.tags == {"team": "vision"}


@pytest.mark.parametrize(
    ("operation", "fault", "nth", "times", "message"),
    [
        ("NodeStates.sav", Fault.FAIL_BEFORE, 1, 1, "operation 'NodeStates.sav' is unknown"),
        ("Jobs.touch", Fault.CONFLICT, 1, 1, "operation 'Jobs.touch' cannot conflict"),
        ("Jobs.touch", Fault.FAIL_AFTER, 0, 1, "nth is 0"),
        ("Jobs.touch", Fault.FAIL_AFTER, 1, 0, "times is 0"),
    ],
)
def test_order_that_can_never_be_met_is_refused(
    operation: str, fault: Fault, nth: int, times: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Faults().schedule(operation, fault, nth=nth, times=times)


def test_negative_call_count_of_a_crash_is_refused() -> None:
    with pytest.raises(ValueError, match="calls is -1"):
        Faults().crash_after(-1)


def test_concurrent_writers_with_retries_lose_no_update() -> None:
    world = MemoryWorld()

    def add_ten(partition: str) -> None:
        for _ in range(10):
            while True:
                record = world.nodes.load(KEY) or StreamRecord(KEY)
                cursors = {**record.cursors, partition: record.cursors.get(partition, 0) + 1}
                try:
                    world.nodes.save(StreamRecord(KEY, version=record.version, cursors=cursors))
                except StateConflictError:
                    continue
                break

    writers = [threading.Thread(target=add_ten, args=(f"lane-{number}",)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    stored = world.nodes.load(KEY)
    assert stored is not None
    assert stored.cursors == {f"lane-{number}": 10 for number in range(4)}
    assert stored.version == 40


def test_journal_counts_add_up_and_name_their_origin() -> None:
    world = MemoryWorld()
    world.journal.count("late", 2, job="job")
    world.journal.count("late", node="algo-1")
    assert world.journal.totals == {"late": 3}
    assert [dict(entry.where) for entry in world.journal.entries] == [{"job": "job"}, {"node": "algo-1"}]
