"""One batch of messages: what each is for, what is given back, refused and counted, and which job is closed by it."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.delivery import object_message
from tests.support.faults import Fault
from tests.support.memory import MemoryJournal, MemoryWorld
from tests.support.small_job import BUCKET, JOB, START, Upload, describe, uploads
from tests.unit.engine.test_doorbells import created, messages, notified, record, system
from trainguard.core.errors import MessageError, PortUnavailableError
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import StreamTask, Timing
from trainguard.core.records import JobRecord, JobStatus, StreamKey
from trainguard.engine.batch import BatchOutcome, BatchProcessor, StreamEvaluator
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs import job_registry as admission
from trainguard.engine.messages import CreatedObject, JobMessages, Message, created_objects, encode_task, sort_messages

UPLOADS = uploads()
SYSTEM_1 = [each for each in UPLOADS if "system/incremental" in each.key and "algo-1" in each.key]
END_MARK = UPLOADS[-1]
SYSTEM = StreamKey("job", "algo-1", "system")
CLOSE = StreamTask("job", "algo-1", "system", "close")


def sorted_jobs(*bodies: str, deliveries: int = 1) -> list[JobMessages]:
    jobs, refusals = sort_messages(messages(*bodies, deliveries=deliveries), FAMILIES)
    assert refusals == []
    return jobs


@pytest.mark.parametrize(
    ("tasks", "close", "before"),
    [
        ([CLOSE], True, None),
        ([replace(CLOSE, action="flush", flush_before=5.0)], False, 5.0),
        ([replace(CLOSE, flush_before=5.0)], True, None),
        ([CLOSE, replace(CLOSE, action="flush", flush_before=5.0)], True, 5.0),
        ([replace(CLOSE, action="flush", flush_before=at) for at in (5.0, 7.0, 6.0)], False, 7.0),
    ],
)
def test_tasks_for_one_stream_are_merged_into_one_piece_of_work(
    tasks: list[StreamTask], close: bool, before: float | None
) -> None:
    (job,) = sorted_jobs(*map(encode_task, tasks))
    work = job.nodes[SYSTEM]
    assert (work.close, work.modified_before, work.repeated, list(work.messages)) == (close, before, False, [])
    assert (job.source, job.generation) == (None, 0)


@pytest.mark.parametrize(("deliveries", "repeated"), [(1, False), (2, True), (3, True)])
def test_redelivered_messages_repeat_the_work(deliveries: int, repeated: bool) -> None:
    (job,) = sorted_jobs(created(system()), deliveries=deliveries)
    assert job.nodes[SYSTEM].repeated is repeated
    (job,) = sorted_jobs(encode_task(CLOSE), deliveries=deliveries)
    assert job.nodes[SYSTEM].repeated is repeated
    bodies = [Message("a", created(system()), deliveries), Message("b", created(system(minute=1_795_248_060)), 1)]
    for order in (bodies, bodies[::-1]):
        (joined,), _ = sort_messages(order, FAMILIES)
        assert joined.nodes[SYSTEM].repeated is repeated
        assert len(joined.nodes[SYSTEM].messages) == 2


def test_tasks_of_two_registrations_and_objects_are_separate() -> None:
    jobs = sorted_jobs(encode_task(CLOSE), encode_task(replace(CLOSE, generation=2)), created(system()))
    assert [(job.generation, job.source is None) for job in jobs] == [(0, True), (2, True), (0, False)]


def test_task_without_a_registration_is_for_the_first_one() -> None:
    named = {"trainguard": "task", "job": "job", "node": "algo-1", "stream": "system", "action": "close"}
    (job,), _ = sort_messages([Message("m", json.dumps(named))], FAMILIES)
    assert (job.generation, job.nodes[SYSTEM].repeated) == (0, False)


def test_message_that_names_its_task_late_is_no_task() -> None:
    body = json.loads(created(system()))
    far = json.dumps({"padding": "x" * 100} | body | {"task": "task"})
    assert len(sorted_jobs(far)) == 1
    near_threshold = json.dumps({"a": "task"} | body)
    _, (refusal,) = sort_messages(messages(near_threshold), FAMILIES)
    assert (refusal.what, refusal.is_delivered_again) == ("malformed_messages", False)


def failing(error: Exception) -> Callable[[str, str], ProfileRoot | None]:
    def place(_bucket: str, _key: str) -> ProfileRoot | None:
        raise error

    return place


@pytest.mark.parametrize(
    ("error", "what"),
    [(PortUnavailableError("Jobs", "load", "down"), "port_failures"), (KeyError("odd"), "evaluation_failures")],
)
def test_unanswering_table_retries_only_the_affected_message(error: Exception, what: str) -> None:
    trace = created("team/job/logs/n.pt.trace.json")
    (job,), (refusal,) = sort_messages(messages(trace, created(system())), FAMILIES, failing(error))
    assert job.message_ids == ["m1"]
    assert (refusal.message_id, refusal.what, refusal.is_delivered_again) == ("m0", what, True)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (created("a b+c%20"), [("a b+c%20", True)]),
        (notified(record("a b"), record("c+d")), [("a b", False), ("c+d", False)]),
        (notified(record("k", name="ObjectCreated:Copy")), [("k", False)]),
        (json.dumps({"Event": "s3:TestEvent"}), []),
        (notified(), []),
    ],
)
def test_body_of_a_message_names_its_objects_unchanged(body: str, found: list[tuple[str, bool]]) -> None:
    objects = [each for each in created_objects(body) if isinstance(each, CreatedObject)]
    assert [(each.key, each.is_filtered) for each in objects] == found
    assert all(each.bucket == "profiles" and each.at.timestamp() == START + 60.0 for each in objects)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("z" * 300, 200),
        (notified({"eventName": "z" * 300}), 200 - len('{"eventName": "')),
        (notified(record("k", name="ObjectRemoved:" + "z" * 300)), 200 - len("ObjectRemoved:")),
    ],
)
def test_invalid_object_is_shown_by_its_first_200_characters(body: str, shown: int) -> None:
    (fault,) = created_objects(body)
    assert isinstance(fault, MessageError)
    assert str(fault).count("z") == shown


class Batch:
    """A processor on a world in memory, in which nothing fails unless it is set to."""

    def __init__(self, *, known: bool = True, has_time: bool = True) -> None:
        self.world = MemoryWorld()
        if known:
            self.world.training_jobs.set(describe())
        timing = Timing(now=lambda: START + 900.0, pause=lambda _: None, has_time=lambda: has_time)
        self.processor = BatchProcessor(services=self.world.services, timing=timing, bucket=BUCKET, families=FAMILIES)

    def put(self, *chosen: Upload) -> list[str]:
        for upload in chosen:
            self.world.objects.now = upload.at
            self.world.objects.put(BUCKET, upload.key, upload.body, "application/json")
        return [object_message(upload) for upload in chosen]

    def process(self, *bodies: str) -> BatchOutcome:
        return self.processor.process(messages(*bodies))

    @property
    def job(self) -> JobRecord:
        stored = self.world.jobs.load(JOB)
        assert stored is not None
        return stored

    @property
    def counted(self) -> dict[str, int]:
        journal = self.world.journal
        assert isinstance(journal, MemoryJournal)
        return {what: amount for what, amount in journal.totals.items() if what != "objects_applied"}


def test_failing_table_of_one_job_returns_only_its_messages() -> None:
    batch = Batch()
    batch.world.faults.schedule("Jobs.load", Fault.FAIL_BEFORE)
    other = replace(SYSTEM_1[0], key=SYSTEM_1[0].key.replace(JOB, "other-job"))
    outcome = batch.process(*batch.put(other), *batch.put(SYSTEM_1[0]), "rubbish")
    assert outcome == BatchOutcome(failed=("m0",), refused=("m2",), nodes=2)
    assert batch.counted == {"port_failures": 1, "malformed_messages": 1}


def test_batch_without_time_returns_each_message_once() -> None:
    batch = Batch(has_time=False)
    two = replace(SYSTEM_1[0], key=SYSTEM_1[0].key.replace("algo-1", "algo-2"))
    outcome = batch.process(notified(record(SYSTEM_1[0].key), record(two.key)))
    assert outcome == BatchOutcome(failed=("m0",), refused=(), nodes=2)
    assert batch.counted == {"evaluations_unfinished": 2}


@pytest.mark.parametrize(
    ("task", "generation", "counted"),
    [
        (CLOSE, 0, {"foreign_keys": 1}),
        (replace(CLOSE, job=JOB), 0, {}),
        (replace(CLOSE, job=JOB), 1, {"outdated_tasks": 1}),
        (replace(CLOSE, job=JOB, generation=1), 1, {}),
        (replace(CLOSE, job=JOB, generation=1), 0, {"outdated_tasks": 1}),
    ],
)
def test_task_of_a_reregistered_job_is_skipped_and_counted(
    task: StreamTask, generation: int, counted: dict[str, int]
) -> None:
    batch = Batch()
    arn = describe().arn
    batch.world.jobs.register(JobRecord(JOB, arn, BUCKET, "", instance_count=1, generation=generation))
    assert batch.process(encode_task(task)) == BatchOutcome(failed=(), refused=(), nodes=1)
    assert batch.counted == counted
    closed = batch.world.nodes.load(replace(SYSTEM, job=JOB))
    assert (closed is not None and closed.closed) is (counted == {})
    # Its only stream has closed: the job is finished.
    assert (batch.job.active, len(batch.world.reports.started)) == ((False, 1) if counted == {} else (True, 0))
    reasons = [str(each.where["reason"]) for each in batch.world.journal.entries if each.what == "foreign_keys"]
    assert reasons == (["a task names job 'job', which is not known"] if "foreign_keys" in counted else [])


@pytest.mark.parametrize(
    ("bucket", "prefix", "counted"),
    [("other", "", "foreign_keys"), (BUCKET, "copy/", "foreign_keys"), (BUCKET, "", None)],
)
def test_objects_outside_the_job_location_are_counted_not_judged(bucket: str, prefix: str, counted: str | None) -> None:
    batch = Batch()
    batch.put(SYSTEM_1[0])
    outcome = batch.process(created(prefix + SYSTEM_1[0].key, bucket=bucket, time="2026-11-21T08:01:00Z"))
    assert outcome.failed == ()
    assert batch.counted == ({} if counted is None else {counted: 1})
    assert len(batch.world.nodes.of_job(JOB)) == (counted is None)
    reasons = [str(each.where["reason"]) for each in batch.world.journal.entries if each.what == "foreign_keys"]
    place = f"objects under s3://{bucket}/{prefix} name job '{JOB}', whose profile lies elsewhere"
    assert reasons == ([] if counted is None else [place])


@pytest.mark.parametrize(
    ("known", "status", "file", "closing", "final"),
    [
        (True, JobStatus.IN_PROGRESS, None, False, False),
        (True, JobStatus.COMPLETED, None, True, True),
        (False, JobStatus.UNKNOWN, None, True, False),
        (False, JobStatus.UNKNOWN, "InProgress", False, False),
        (False, JobStatus.UNKNOWN, "Failed", True, True),
    ],
)
@pytest.mark.parametrize("rings", ["mark", "file"])
def test_end_mark_or_job_file_closes_by_the_state_of_the_job(
    known: bool, status: JobStatus, file: str | None, closing: bool, final: bool, rings: str
) -> None:
    batch = Batch(known=known)
    batch.process(*batch.put(SYSTEM_1[0]))
    if known:
        batch.world.training_jobs.set(describe(status=status))
    said = Upload(START, f"{JOB}/job.json", json.dumps({"name": JOB} | ({"status": file} if file else {})).encode())
    batch.put(said)
    asks = batch.job.close_asks
    outcome = batch.process(*(batch.put(END_MARK) if rings == "mark" else [object_message(said)]))
    assert outcome.failed == ()
    # A file that leaves the end open closes nothing; a mark of the end does.
    expected = closing and (rings == "mark" or final)
    assert (batch.job.closing, batch.job.status.is_final) == (expected, final)
    assert (batch.job.close_asks - asks, bool(batch.world.tasks.drain())) == (int(expected), expected)


@pytest.mark.parametrize(("file", "registered"), [(b'{"name": "small-job"}', True), (b"{", False), (None, False)])
def test_job_file_alone_registers_the_job_if_it_is_usable(file: bytes | None, registered: bool) -> None:
    batch = Batch(known=False)
    upload = Upload(START, f"{JOB}/job.json", b"" if file is None else file)
    if file is not None:
        batch.put(upload)
    batch.process(object_message(upload))
    assert (batch.world.jobs.load(JOB) is not None) is registered


@pytest.mark.parametrize(("closing", "summarised"), [(True, True), (False, False)])
def test_object_of_an_ending_job_summarises_it_at_once(closing: bool, summarised: bool) -> None:
    batch = Batch()
    batch.process(*batch.put(SYSTEM_1[0]))
    batch.world.jobs.update_status(replace(batch.job, closing=closing))
    batch.process(*batch.put(SYSTEM_1[1]))
    assert any(row.node is None for row in batch.world.rows.of_job(JOB)) is summarised


def test_failed_summary_of_an_ending_job_returns_messages_once() -> None:
    batch = Batch()
    batch.process(*batch.put(SYSTEM_1[0]))
    batch.world.jobs.update_status(replace(batch.job, closing=True))
    batch.world.faults.schedule("RuleStates.publish", Fault.FAIL_BEFORE, nth=2)
    assert batch.process(*batch.put(SYSTEM_1[1])).failed == ("m0",)
    assert batch.counted == {"port_failures": 1}


@pytest.mark.parametrize(
    ("operation", "fault", "what"),
    [
        ("NodeStates.load", Fault.FAIL_BEFORE, "port_failures"),
        ("NodeStates.save", Fault.CONFLICT, "state_conflicts_exhausted"),
    ],
)
def test_failing_store_returns_stream_messages_and_is_counted(operation: str, fault: Fault, what: str) -> None:
    batch = Batch()
    batch.world.faults.schedule(operation, fault, times=4)
    assert batch.process(*batch.put(SYSTEM_1[0])).failed == ("m0",)
    assert {name: count for name, count in batch.counted.items() if name != "state_conflicts"} == {what: 1}
    (entry,) = [each for each in batch.world.journal.entries if each.what == what]
    assert (entry.where["job"], entry.where["node"]) == (JOB, "algo-1#system")


def test_internal_error_in_a_stream_returns_its_messages() -> None:
    batch = Batch()

    def broken(*_: Any) -> bool:
        raise ZeroDivisionError("odd")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StreamEvaluator, "evaluate", broken)
        assert batch.process(*batch.put(SYSTEM_1[0])).failed == ("m0",)
    assert batch.counted == {"evaluation_failures": 1}


def test_internal_error_in_a_job_lookup_returns_all_its_messages() -> None:
    batch = Batch()

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("odd")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchProcessor, "_job_of", broken)
        assert batch.process(*batch.put(*SYSTEM_1[:2])).failed == ("m0", "m1")
    assert batch.counted == {"evaluation_failures": 1}


@pytest.mark.parametrize(
    ("limit", "key", "counted"),
    [
        ("MOST_NEW_JOBS", SYSTEM_1[0].key, "jobs_refused"),
        ("MOST_OTHER_STREAMS", SYSTEM_1[0].key.replace("algo-1", "host"), "streams_refused"),
    ],
)
def test_names_beyond_a_limit_are_counted_and_acknowledged(limit: str, key: str, counted: str) -> None:
    batch = Batch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admission, limit, 0)
        outcome = batch.process(*batch.put(replace(SYSTEM_1[0], key=key)))
    assert (outcome.failed, outcome.refused) == ((), ())
    assert batch.counted == {counted: 1}


def test_updated_job_file_changes_the_item_and_is_written_once() -> None:
    batch = Batch(known=False)
    batch.process(*batch.put(SYSTEM_1[0]))
    for _ in range(2):
        body = json.dumps({"name": JOB, "instance_count": 8}).encode()
        assert batch.process(*batch.put(Upload(START, f"{JOB}/job.json", body))).failed == ()
        assert (batch.job.instance_count, batch.job.closing) == (8, False)
        assert batch.world.faults.calls.count("Jobs.update_status") == 1


def test_failed_end_query_returns_only_its_end_mark() -> None:
    batch = Batch()
    batch.process(*batch.put(SYSTEM_1[0]))
    batch.world.faults.schedule("TrainingJobs.describe", Fault.FAIL_BEFORE)
    assert batch.process(*batch.put(END_MARK), *batch.put(SYSTEM_1[1])).failed == ("m0",)
    assert batch.counted == {"port_failures": 1}
    assert not batch.job.closing


def test_job_unknown_at_its_end_mark_is_recognised_later() -> None:
    batch = Batch(known=False)
    batch.process(*batch.put(SYSTEM_1[0]))
    known = describe(status=JobStatus.COMPLETED)
    batch.world.faults.interleave("TrainingJobs.describe", lambda: batch.world.training_jobs.set(known), nth=2)
    assert batch.process(*batch.put(END_MARK)).failed == ()
    assert (batch.job.is_outside, batch.job.closing, batch.job.status) == (True, False, JobStatus.UNKNOWN)
