"""One job is reconciled by hand: after how long a silence what is asked of whom, and when the next run comes."""

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.support.described_job import ARN, BUCKET, NAME, described_job
from tests.support.memory import MemoryJournal, MemoryWorld
from trainguard.core.errors import PortUnavailableError
from trainguard.core.job_policy import JobPolicy
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import ReconcileRequest, StreamTask, Timing, TrainingJobDescription
from trainguard.core.records import JobRecord, JobStatus, StreamKey, StreamRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.kernels.session import CaptureState
from trainguard.engine.profiler.framework_session import FrameworkState
from trainguard.engine.profiler.system_stream import SystemState
from trainguard.engine.reconcile import ReconcileOutcome, Reconciler, Scheduler, is_turn
from trainguard.engine.streams.job_streams import JobState, Watched
from trainguard.state.codec import CODEC, encode_state

NOW = 1_795_248_000.0
JOB = JobRecord(NAME, ARN, BUCKET, "", JobStatus.IN_PROGRESS, instance_count=1, polled_fast=False)
SYSTEM, FRAMEWORK, TRACES = (StreamKey(NAME, "algo-1", stream) for stream in ("system", "framework", "kernels"))
KNOWN = described_job()
# The state of a stream before its first object.
NOTHING = {"system": encode_state(SystemState()), "framework": encode_state(FrameworkState())} | {
    "kernels": encode_state(CaptureState())
}

WAITS: Mapping[str, int] = {"key": 60}


def of(every_s: float = 180.0, source: str = "", **fields: Any) -> JobRecord:
    return replace(JOB, policy=JobPolicy(evaluation_every_s=every_s, source=source), **fields)


def item(key: StreamKey = SYSTEM, *, waits: bool = False, **fields: Any) -> StreamRecord:
    pending = WAITS if waits and key == SYSTEM else {}
    if waits and key == FRAMEWORK:
        pending = {f"{NAME}/profiler-output/framework/pevents/2026112108/60000000_7-algo-1_pythontimeline.json": 60}
    return StreamRecord(key, **{"pending": pending, "state": NOTHING[key.stream], "codec": CODEC, **fields})


@dataclass
class Polls:
    """Notes what is asked for, and whether Python searches for cycles then."""

    fails: bool = False
    asked: tuple[tuple[str, float, bool], ...] = ()

    def ask(self, job: str, at: float) -> None:
        self.asked = (*self.asked, (job, at, gc.isenabled()))
        if self.fails:
            raise PortUnavailableError("SourcePolls", "ask", "it is down")


@dataclass
class Look:
    """A look at ``NOW`` at a job whose units have written nothing for so many seconds."""

    job: JobRecord
    items: Sequence[tuple[StreamRecord, float]]
    described: TrainingJobDescription | None = KNOWN
    polls: Polls | None = None
    every: int = 1

    def __post_init__(self) -> None:
        self.world = MemoryWorld()
        self.world.jobs.register(self.job)
        if self.described is not None:
            self.world.training_jobs.set(self.described)
        own = StreamKey.own(NAME)
        records = [record for record, _ in self.items if record.key != own]
        streams = FAMILIES.open(NAME, replace(FAMILIES.plan(self.job), detailed=False), records)
        watched = {}
        for record, silent_s in self.items:
            mark = 0 if record.key == own else streams.mark_of(record.key)
            watched[record.key.node_kind] = Watched(mark, NOW - silent_s)
        for record in records:
            self.world.nodes.save(record)
        state = encode_state(JobState(watched=watched))
        self.world.nodes.save(StreamRecord(own, state=state, codec=CODEC, generation=self.job.generation))

    def make(self) -> int:
        """Make the look; return how many tasks it says that it sent."""
        services = replace(self.world.services, polls=self.polls)
        timing = Timing(now=lambda: 0.0, pause=lambda _: None, has_time=lambda: True)
        outcome = Reconciler(services=services, timing=timing, families=FAMILIES).attempt(
            ReconcileRequest(NAME, NOW, self.every)
        )
        assert outcome.failed is None
        return outcome.tasks

    @property
    def after(self) -> JobRecord:
        """The job's item."""
        stored = self.world.jobs.load(NAME)
        assert stored is not None
        return stored

    def count(self, call: str) -> int:
        return self.world.faults.calls.count(call)


@pytest.mark.parametrize(
    ("every_s", "key", "waits", "silent_s", "asked"),
    [
        (180.0, SYSTEM, True, 299.0, False),
        (180.0, SYSTEM, True, 300.0, True),
        (180.0, SYSTEM, True, 359.0, True),
        (180.0, SYSTEM, True, 479.0, True),
        (180.0, SYSTEM, True, 480.0, False),
        (180.0, SYSTEM, True, 599.0, False),
        (180.0, SYSTEM, True, 600.0, True),
        (180.0, SYSTEM, True, 3_000.0, True),
        (180.0, SYSTEM, False, 300.0, False),
        (180.0, SYSTEM, False, 419.0, False),
        (180.0, SYSTEM, False, 420.0, True),
        (180.0, SYSTEM, False, 479.0, True),
        (180.0, SYSTEM, False, 599.0, True),
        (180.0, SYSTEM, False, 600.0, False),
        (60.0, SYSTEM, False, 300.0, True),
        (60.0, SYSTEM, False, 900.0, True),
        (60.0, SYSTEM, False, 1_200.0, False),
        (180.0, FRAMEWORK, True, 299.0, False),
        (180.0, FRAMEWORK, True, 300.0, True),
        (180.0, FRAMEWORK, False, 300.0, False),
        (180.0, FRAMEWORK, False, 420.0, False),
    ],
)
def test_silent_stream_queries_s3_once_in_five_minutes(
    every_s: float, key: StreamKey, waits: bool, silent_s: float, asked: bool
) -> None:
    look = Look(of(every_s, generation=1), [(item(key, waits=waits, generation=1), silent_s)])
    assert look.make() == asked
    flush = StreamTask(NAME, "algo-1", key.stream, "flush", NOW - 300.0, 1)
    assert look.world.tasks.drain() == ([flush] if asked else [])


@pytest.mark.parametrize(("silent_s", "asked"), [(300.0, 1), (359.0, 1), (360.0, 0), (599.0, 0), (600.0, 1)])
def test_one_run_in_five_asks_about_a_silent_stream(silent_s: float, asked: int) -> None:
    assert Look(of(polled_fast=True), [(item(waits=True), silent_s)]).make() == asked


def test_closed_silent_stream_has_no_dropped_messages() -> None:
    look = Look(of(60.0), [(item(closed=True), 300.0)])
    assert (look.make(), look.world.tasks.drain()) == (0, [])


@pytest.mark.parametrize(("silent_s", "asked"), [(299.0, []), (300.0, ["framework"]), (420.0, ["system"])])
def test_open_streams_of_an_ended_job_are_asked_to_close_again(silent_s: float, asked: list[str]) -> None:
    records = [item(), item(FRAMEWORK), item(StreamKey(NAME, "algo-2", "system"), closed=True)]
    job = of(closing=True, close_asks=1, close_asked_at=NOW - 100.0)
    look = Look(job, [(record, silent_s) for record in records])
    assert look.make() == len(asked)
    tasks = look.world.tasks.drain()
    assert tasks == [StreamTask(NAME, "algo-1", stream, "close", None, 0) for stream in asked]
    assert look.count("TrainingJobs.describe") == 0
    assert look.after.close_asks == 1


def test_late_expected_streams_of_an_ended_job_are_asked_again() -> None:
    look = Look(of(closing=True, close_asks=1, close_asked_at=NOW - 300.0, instance_count=2), [(item(), 0.0)])
    assert look.make() == 0
    assert [task.node for task in look.world.tasks.drain()] == ["algo-1", "algo-2"]
    assert look.after.close_asks == 2


@pytest.mark.parametrize(
    ("job", "record", "silent_s", "polled_fast"),
    [
        (of(), item(), 0.0, False),
        (of(60.0), item(), 0.0, True),
        (of(61.0), item(), 0.0, False),
        (of(source="logs+group/stream"), item(), 0.0, True),
        (of(), item(TRACES), 0.0, True),
        (of(), item(TRACES), 1_199.0, True),
        (of(), item(TRACES), 1_200.0, False),
        (of(), item(TRACES, closed=True), 0.0, False),
        (of(), item(waits=True), 0.0, True),
        (of(), item(), 299.0, False),
        (of(), item(), 300.0, True),
        (of(), item(), 1_199.0, True),
        (of(), item(), 1_200.0, False),
        (of(), item(closed=True), 400.0, False),
        (of(), item(FRAMEWORK), 179.0, False),
        (of(), item(FRAMEWORK), 180.0, True),
        (of(), None, 1_199.0, True),
        (of(), None, 1_200.0, False),
        (of(polled_fast=True), item(), 0.0, False),
        (of(polled_fast=True), item(), 300.0, True),
    ],
)
def test_job_with_waiting_or_silent_streams_is_due_each_minute(
    job: JobRecord, record: StreamRecord | None, silent_s: float, polled_fast: bool
) -> None:
    look = Look(job, [(StreamRecord(StreamKey.own(NAME)) if record is None else record, silent_s)], polls=Polls())
    look.make()
    assert look.after.polled_fast is polled_fast
    assert look.count("Jobs.set_fast_polling") == (polled_fast is not job.polled_fast)


def outside(**fields: Any) -> JobRecord:
    return of(arn="unknown:job", **fields)


ENDED = replace(KNOWN, status=JobStatus.COMPLETED)
ELSEWHERE = replace(KNOWN, profile_uri="s3://another")


@pytest.mark.parametrize(
    ("job", "described", "silent_s", "asked", "closing"),
    [
        (of(), ENDED, 599.0, 0, False),
        (of(), ENDED, 600.0, 1, True),
        (of(), KNOWN, 600.0, 1, False),
        (of(), None, 86_399.0, 1, False),
        (of(), None, 86_400.0, 1, True),
        (outside(), None, 0.0, 1, False),
        (outside(), None, 86_400.0, 1, True),
        (outside(), ELSEWHERE, 0.0, 1, True),
    ],
)
def test_silent_streams_end_the_job_if_its_description_says_so(
    job: JobRecord, described: TrainingJobDescription | None, silent_s: float, asked: int, closing: bool
) -> None:
    look = Look(job, [(item(closed=True), silent_s), (item(FRAMEWORK, closed=True), silent_s + 1_000.0)], described)
    assert look.make() == closing
    assert look.count("TrainingJobs.describe") == asked
    assert look.after.closing is closing
    assert (look.after.close_asks, len(look.world.tasks.drain())) == ((1, 2) if closing else (0, 0))


@pytest.mark.parametrize(("silent_s", "asked"), [(0.0, 1), (1_199.0, 1), (1_200.0, 0)])
def test_job_long_without_a_stream_is_queried_only_in_turn(silent_s: float, asked: int) -> None:
    every = next(number for number in range(2, 9) if not is_turn(NAME, NOW, number))
    look = Look(of(), [(StreamRecord(StreamKey.own(NAME)), silent_s)], every=every)
    assert look.make() == 0
    assert look.count("TrainingJobs.describe") == asked
    look = Look(outside(), [(StreamRecord(StreamKey.own(NAME)), 0.0)], every=every)
    look.make()
    assert look.count("TrainingJobs.describe") == 0


@pytest.mark.parametrize(
    ("silent_s", "written_s", "closing"), [(599.0, 700.0, False), (600.0, 700.0, True), (600.0, 500.0, False)]
)
def test_external_job_with_all_collectors_silent_has_ended(silent_s: float, written_s: float, closing: bool) -> None:
    look = Look(outside(), [(item(closed=True), silent_s)], None)
    look.world.objects.now = NOW - written_s
    key = f"{ProfileRoot('', NAME).collector}a.status.json"
    look.world.objects.put(BUCKET, key, b"{}", "application/json")
    look.make()
    assert look.after.closing is closing


def test_growth_of_a_job_is_written_to_its_item_once() -> None:
    look = Look(of(), [(item(closed=True), 600.0)], replace(KNOWN, instance_count=4))
    assert (look.make(), look.after.instance_count, look.count("Jobs.update_status")) == (0, 4, 1)
    same = Look(of(), [(item(closed=True), 600.0)])
    assert (same.make(), same.count("Jobs.update_status")) == (0, 0)


@pytest.mark.parametrize(
    ("source", "polls", "asked", "counted"),
    [
        ("", Polls(), 0, 0),
        ("", None, 0, 0),
        ("logs+group/stream", Polls(), 1, 0),
        ("logs+group/stream", Polls(fails=True), 1, 1),
        ("logs+group/stream", None, 0, 1),
    ],
)
def test_job_with_a_source_is_polled_and_failures_are_counted(
    source: str, polls: Polls | None, asked: int, counted: int
) -> None:
    look = Look(of(source=source), [(item(), 0.0)], polls=polls)
    look.make()
    # A look keeps Python from searching for cycles, and leaves that as it was.
    assert (() if polls is None else polls.asked) == ((NAME, NOW, False),) * asked
    assert gc.isenabled()
    journal = look.world.journal
    assert isinstance(journal, MemoryJournal)
    assert journal.totals["sources_not_polled"] == counted


def test_run_keeps_garbage_collection_disabled() -> None:
    gc.disable()
    try:
        Look(of(), [(item(), 0.0)]).make()
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("job", "cleared"),
    [
        (replace(JOB, active=False), False),
        (JOB, False),
        (replace(JOB, policy=JobPolicy(evaluated=False)), False),
        (replace(JOB, policy=JobPolicy(evaluated=False), generation=1), True),
    ],
)
def test_run_of_a_job_not_to_be_judged_clears_old_state_only(job: JobRecord, cleared: bool) -> None:
    look = Look(job, [(item(state=b"old"), 400.0)] if job.generation else [])
    tasks = look.make()
    judged = job.active and job.policy.evaluated
    assert tasks == 0
    assert (look.count("NodeStates.of_job") > 0) == (judged or cleared)
    assert look.after.active is (job.active and not cleared)
    assert bool(look.world.rows.of_job(NAME)) == (judged or cleared)


@pytest.mark.parametrize("closing", [True, False])
def test_damaged_item_fails_the_run_and_requests_its_stream(
    closing: bool,
) -> None:
    look = Look(of(closing=closing), [(item(state=b"rubbish"), 0.0)])
    timing = Timing(now=lambda: 0.0, pause=lambda _: None, has_time=lambda: True)
    care = Reconciler(services=look.world.services, timing=timing, families=FAMILIES)
    action, before = ("close", None) if closing else ("flush", NOW - 300.0)
    care_tasks = [StreamTask(NAME, "algo-1", "system", action, before, 0)]
    failed = care.send([ReconcileRequest(NAME, NOW, 1), ReconcileRequest("unknown", NOW, 1)])
    assert list(failed) == [NAME]
    assert look.world.tasks.drain() == care_tasks
    assert care.attempt(ReconcileRequest(NAME, NOW, 1)) == ReconcileOutcome(tasks=0, failed=failed[NAME])
    assert failed[NAME].startswith("StateDamagedError: ")


def test_run_recounts_streams_that_were_counted_twice() -> None:
    look = Look(of(other_streams=3), [(item(StreamKey(NAME, "host", "system")), 0.0)])
    look.make()
    assert look.after.other_streams == 1


def ticked(polled_fast: int, polled_slowly: int, at: float) -> tuple[list[ReconcileRequest], int]:
    """Let a run of the scheduler come; return the looks that were asked for, and how many active jobs it saw."""
    world = MemoryWorld()
    for number in range(polled_fast + polled_slowly):
        world.jobs.register(replace(JOB, job=f"job-{number:04}", polled_fast=number < polled_fast))
    timing = Timing(now=lambda: at, pause=lambda _: None, has_time=lambda: True)
    Scheduler(jobs=world.jobs, requests=world.reconcile_requests, timing=timing, journal=world.journal).run()
    return world.reconcile_requests.drain(), world.journal.totals["active_jobs"]


@pytest.mark.parametrize(
    ("jobs", "every"), [(1, 6), (100, 6), (101, 6), (600, 6), (601, 9), (900, 9), (901, 12), (1_201, 15)]
)
def test_scheduler_queries_sagemaker_for_a_hundred_jobs_at_most(jobs: int, every: int) -> None:
    looks, active = ticked(jobs, 0, 6_000.0)
    assert (len(looks), active) == (jobs, jobs)
    assert {look.stale_every for look in looks} == {every}
    assert {look.at for look in looks} == {6_000.0}


def test_scheduler_asks_for_a_third_of_the_calm_jobs_in_turn() -> None:
    seen: list[str] = []
    firsts = []
    for minute in range(3):
        looks, active = ticked(2, 30, 6_000.0 + 60.0 * minute)
        names = [look.job for look in looks]
        assert active == 32
        assert {"job-0000", "job-0001"} <= set(names)
        assert all(is_turn(name, looks[0].at, 3) for name in names if name > "job-0001")
        seen += [name for name in names if name > "job-0001"]
        firsts.append(sorted(names).index(names[0]))
        assert firsts[-1] == int(looks[0].at // 60.0) % len(names)
    assert sorted(seen) == [f"job-{number:04}" for number in range(2, 32)]
    assert ticked(0, 0, 6_000.0) == ([], 0)
