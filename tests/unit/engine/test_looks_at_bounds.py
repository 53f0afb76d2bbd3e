"""One look at a job made by hand: after how long a silence what is asked of whom, and when the next look comes."""

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.support.described_job import ARN, BUCKET, NAME, described_job
from trainguard.adapters.memory.observability import MemoryJournal
from trainguard.adapters.memory.world import MemoryWorld
from trainguard.engine.streams.job_streams import JobState, Watched
from trainguard.engine.tick.at_once import LooksAtOnce
from trainguard.engine.tick.job_care import JobCare, LookOutcome
from trainguard.engine.tick.tick import Tick, is_turn
from trainguard.errors import PortUnavailableError
from trainguard.families.installed import FAMILIES
from trainguard.families.kernels.stream import CaptureState
from trainguard.families.profiler.framework_stream import FrameworkState
from trainguard.families.profiler.system_stream import SystemState
from trainguard.job_policy import JobPolicy
from trainguard.layout import ProfileRoot
from trainguard.ports import JobLook, NodeTask, Timing, TrainingJobDescription
from trainguard.records import JobRecord, JobStatus, NodeRecord, StreamKey
from trainguard.state.codec import CODEC, encode_state

NOW = 1_795_248_000.0
JOB = JobRecord(NAME, ARN, BUCKET, "", JobStatus.IN_PROGRESS, instance_count=1, urgent=False)
SYSTEM, FRAMEWORK, TRACES = (StreamKey(NAME, "algo-1", stream) for stream in ("system", "framework", "kernels"))
KNOWN = described_job()
NOTHING = {"system": encode_state(SystemState()), "framework": encode_state(FrameworkState())} | {
    "kernels": encode_state(CaptureState())
}
"""The state of a stream before its first object."""

WAITS: Mapping[str, int] = {"key": 60}


def of(every_s: float = 180.0, source: str = "", **fields: Any) -> JobRecord:
    return replace(JOB, policy=JobPolicy(evaluation_every_s=every_s, source=source), **fields)


def item(key: StreamKey = SYSTEM, *, waits: bool = False, **fields: Any) -> NodeRecord:
    pending = WAITS if waits and key == SYSTEM else {}
    if waits and key == FRAMEWORK:
        pending = {f"{NAME}/profiler-output/framework/pevents/2026112108/60000000_7-algo-1_pythontimeline.json": 60}
    return NodeRecord(key, **{"pending": pending, "state": NOTHING[key.stream], "codec": CODEC, **fields})


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
    items: Sequence[tuple[NodeRecord, float]]
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
        self.world.nodes.save(NodeRecord(own, state=state, codec=CODEC, generation=self.job.generation))

    def make(self) -> int:
        """Make the look; return how many tasks it says that it sent."""
        services = replace(self.world.services, polls=self.polls)
        timing = Timing(now=lambda: 0.0, pause=lambda _: None, has_time=lambda: True)
        outcome = JobCare(services=services, timing=timing, families=FAMILIES).attempt(JobLook(NAME, NOW, self.every))
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
def test_given_a_silent_stream_when_looked_at_then_s3_is_asked_for_what_waits_or_was_dropped_once_in_five_minutes(
    every_s: float, key: StreamKey, waits: bool, silent_s: float, asked: bool
) -> None:
    look = Look(of(every_s, generation=1), [(item(key, waits=waits, generation=1), silent_s)])
    assert look.make() == asked
    flush = NodeTask(NAME, "algo-1", key.stream, "flush", NOW - 300.0, 1)
    assert look.world.tasks.drain() == ([flush] if asked else [])


@pytest.mark.parametrize(("silent_s", "asked"), [(300.0, 1), (359.0, 1), (360.0, 0), (599.0, 0), (600.0, 1)])
def test_one_look_in_five_asks_about_a_silent_stream(silent_s: float, asked: int) -> None:
    assert Look(of(urgent=True), [(item(waits=True), silent_s)]).make() == asked


def test_given_a_closed_stream_when_it_is_silent_then_nothing_of_it_can_have_been_dropped() -> None:
    look = Look(of(60.0), [(item(closed=True), 300.0)])
    assert (look.make(), look.world.tasks.drain()) == (0, [])


@pytest.mark.parametrize(("silent_s", "asked"), [(299.0, []), (300.0, ["framework"]), (420.0, ["system"])])
def test_given_a_job_that_ends_when_its_streams_do_not_close_then_each_that_is_open_is_asked_again(
    silent_s: float, asked: list[str]
) -> None:
    records = [item(), item(FRAMEWORK), item(StreamKey(NAME, "algo-2", "system"), closed=True)]
    job = of(closing=True, close_asks=1, close_asked_at=NOW - 100.0)
    look = Look(job, [(record, silent_s) for record in records])
    assert look.make() == len(asked)
    tasks = look.world.tasks.drain()
    assert tasks == [NodeTask(NAME, "algo-1", stream, "close", None, 0) for stream in asked]
    assert look.count("TrainingJobs.describe") == 0
    assert look.after.close_asks == 1


def test_given_a_job_that_ends_when_expected_streams_have_not_answered_in_time_then_all_are_asked_again() -> None:
    look = Look(of(closing=True, close_asks=1, close_asked_at=NOW - 300.0, instance_count=2), [(item(), 0.0)])
    assert look.make() == 0
    assert [task.node for task in look.world.tasks.drain()] == ["algo-1", "algo-2"]
    assert look.after.close_asks == 2


@pytest.mark.parametrize(
    ("job", "record", "silent_s", "urgent"),
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
        (of(urgent=True), item(), 0.0, False),
        (of(urgent=True), item(), 300.0, True),
    ],
)
def test_given_a_job_when_looked_at_then_it_is_looked_at_each_minute_while_something_waits_or_falls_silent(
    job: JobRecord, record: NodeRecord | None, silent_s: float, urgent: bool
) -> None:
    look = Look(job, [(NodeRecord(StreamKey.own(NAME)) if record is None else record, silent_s)], polls=Polls())
    look.make()
    assert look.after.urgent is urgent
    assert look.count("Jobs.set_urgent") == (urgent is not job.urgent)


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
def test_given_a_job_when_its_streams_are_silent_then_what_is_said_of_it_decides_whether_it_has_ended(
    job: JobRecord, described: TrainingJobDescription | None, silent_s: float, asked: int, closing: bool
) -> None:
    look = Look(job, [(item(closed=True), silent_s), (item(FRAMEWORK, closed=True), silent_s + 1_000.0)], described)
    assert look.make() == closing
    assert look.count("TrainingJobs.describe") == asked
    assert look.after.closing is closing
    assert (look.after.close_asks, len(look.world.tasks.drain())) == ((1, 2) if closing else (0, 0))


@pytest.mark.parametrize(("silent_s", "asked"), [(0.0, 1), (1_199.0, 1), (1_200.0, 0)])
def test_given_a_job_without_a_stream_when_it_has_long_been_so_then_it_is_asked_about_in_its_turn_alone(
    silent_s: float, asked: int
) -> None:
    every = next(number for number in range(2, 9) if not is_turn(NAME, NOW, number))
    look = Look(of(), [(NodeRecord(StreamKey.own(NAME)), silent_s)], every=every)
    assert look.make() == 0
    assert look.count("TrainingJobs.describe") == asked
    look = Look(outside(), [(NodeRecord(StreamKey.own(NAME)), 0.0)], every=every)
    look.make()
    assert look.count("TrainingJobs.describe") == 0


@pytest.mark.parametrize(
    ("silent_s", "written_s", "closing"), [(599.0, 700.0, False), (600.0, 700.0, True), (600.0, 500.0, False)]
)
def test_given_a_job_outside_when_all_its_collectors_are_silent_then_it_has_ended(
    silent_s: float, written_s: float, closing: bool
) -> None:
    look = Look(outside(), [(item(closed=True), silent_s)], None)
    look.world.objects.now = NOW - written_s
    key = f"{ProfileRoot('', NAME).collector}a.status.json"
    look.world.objects.put(BUCKET, key, b"{}", "application/json")
    look.make()
    assert look.after.closing is closing


def test_given_a_job_that_has_grown_when_it_is_asked_about_then_its_item_says_so_and_nothing_is_written_twice() -> None:
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
def test_given_a_job_that_names_a_source_when_looked_at_then_it_is_polled_and_a_failure_is_counted(
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


def test_given_a_process_that_searches_for_no_cycles_when_a_look_is_made_then_it_goes_on_so() -> None:
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
def test_given_a_job_that_is_not_to_be_judged_when_looked_at_then_only_what_stood_before_it_is_cleared(
    job: JobRecord, cleared: bool
) -> None:
    look = Look(job, [(item(state=b"old"), 400.0)] if job.generation else [])
    tasks = look.make()
    judged = job.active and job.policy.evaluated
    assert tasks == 0
    assert (look.count("NodeStates.of_job") > 0) == (judged or cleared)
    assert look.after.active is (job.active and not cleared)
    assert bool(look.world.rows.of_job(NAME)) == (judged or cleared)


@pytest.mark.parametrize("closing", [True, False])
def test_given_a_damaged_item_when_its_job_is_looked_at_then_its_stream_is_asked_for_and_the_look_fails(
    closing: bool,
) -> None:
    look = Look(of(closing=closing), [(item(state=b"rubbish"), 0.0)])
    timing = Timing(now=lambda: 0.0, pause=lambda _: None, has_time=lambda: True)
    care = JobCare(services=look.world.services, timing=timing, families=FAMILIES)
    action, before = ("close", None) if closing else ("flush", NOW - 300.0)
    care_tasks = [NodeTask(NAME, "algo-1", "system", action, before, 0)]
    failed = LooksAtOnce(care).send([JobLook(NAME, NOW, 1), JobLook("unknown", NOW, 1)])
    assert list(failed) == [NAME]
    assert look.world.tasks.drain() == care_tasks
    assert care.attempt(JobLook(NAME, NOW, 1)) == LookOutcome(tasks=0, failed=failed[NAME])
    assert failed[NAME].startswith("StateDamagedError: ")


def test_given_a_job_that_counted_streams_twice_when_looked_at_then_it_counts_those_that_it_has() -> None:
    look = Look(of(other_streams=3), [(item(StreamKey(NAME, "host", "system")), 0.0)])
    look.make()
    assert look.after.other_streams == 1


def ticked(urgent: int, calm: int, at: float) -> tuple[list[JobLook], int]:
    """Let a tick come; return the looks that were asked for, and how many active jobs it saw."""
    world = MemoryWorld()
    for number in range(urgent + calm):
        world.jobs.register(replace(JOB, job=f"job-{number:04}", urgent=number < urgent))
    timing = Timing(now=lambda: at, pause=lambda _: None, has_time=lambda: True)
    Tick(jobs=world.jobs, looks=world.looks, timing=timing, journal=world.journal).run()
    return world.looks.drain(), world.journal.totals["active_jobs"]


@pytest.mark.parametrize(
    ("jobs", "every"), [(1, 6), (100, 6), (101, 6), (600, 6), (601, 9), (900, 9), (901, 12), (1_201, 15)]
)
def test_given_many_jobs_when_a_tick_comes_then_sagemaker_is_asked_about_a_hundred_of_them_at_most(
    jobs: int, every: int
) -> None:
    looks, active = ticked(jobs, 0, 6_000.0)
    assert (len(looks), active) == (jobs, jobs)
    assert {look.doubted_every for look in looks} == {every}
    assert {look.at for look in looks} == {6_000.0}


def test_given_jobs_when_ticks_come_then_a_third_of_the_calm_ones_is_looked_at_and_each_tick_begins_elsewhere() -> None:
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
