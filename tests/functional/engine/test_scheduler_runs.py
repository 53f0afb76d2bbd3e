"""Jobs are reconciled apart: what happens to one is no matter of the others; two that overlap do what one does."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import msgspec
import pytest

from tests.support.delivered import SYSTEM_1, deliver
from tests.support.delivery import Network
from tests.support.faults import Crash
from tests.support.memory import MemoryWorld
from tests.support.small_job import JOB, SETTINGS, Upload, describe, uploads
from trainguard.core.ports import ReconcileRequest, Timing
from trainguard.core.records import JobRecord, JobStatus, Status, StreamKey
from trainguard.engine.installed import FAMILIES
from trainguard.engine.reconcile import SCHEDULE_S, STALE_EVERY, WAVE, Reconciler, Scheduler
from trainguard.engine.streams.job_streams import JobState
from trainguard.state.codec import decode_state

JOBS, HUGE_NODES = 90, 200
DEADLY, BROKEN, HUGE = "job-017", "job-040", "job-070"
OTHERS = {f"job-{number:03}" for number in range(JOBS)} - {DEADLY, BROKEN}


def delivered(chosen: Sequence[Upload]) -> Network:
    network = Network()
    deliver(network, chosen)
    return network


def again(world: MemoryWorld) -> MemoryWorld:
    """Return a world with the same job in it."""
    job = world.jobs.load(JOB)
    assert job is not None
    other = MemoryWorld()
    other.training_jobs.set(describe(status=job.status))
    other.jobs.register(job)
    for record in world.nodes.of_job(JOB):
        other.nodes.save(replace(record, version=0))
    other.rows.publish(world.rows.of_job(JOB))
    for name, payload in world.executions.started.items():
        other.executions.start(name, payload)
    return other


def timing(now: float, has_time: Callable[[], bool] = lambda: True) -> Timing:
    return Timing(now=lambda: now, pause=lambda _: None, has_time=has_time)


def succeed(care: Reconciler, request: ReconcileRequest) -> None:
    assert care.attempt(request).failed is None


def care_of(world: MemoryWorld, now: float) -> Reconciler:
    return Reconciler(services=world.services, timing=timing(now), families=FAMILIES)


def tick_of(world: MemoryWorld, now: float, has_time: Callable[[], bool] = lambda: True) -> Scheduler:
    return Scheduler(
        jobs=world.jobs, requests=world.reconcile_requests, timing=timing(now, has_time), journal=world.journal
    )


@pytest.fixture
def fleet() -> tuple[MemoryWorld, float]:
    """Return many active jobs, one of many nodes, one whose item cannot be read, and the time."""
    network = delivered(SYSTEM_1[:3])
    world, job = network.world, network.job()
    (item,) = (each for each in world.nodes.of_job(JOB) if each.key.stream == "system")
    for number in range(JOBS):
        name = f"job-{number:03}"
        world.jobs.register(replace(job, job=name))
        for node in range(HUGE_NODES if name == HUGE else 1):
            state = b"rubbish" if name == BROKEN else item.state
            key = StreamKey(name, f"algo-{node + 1}", "system")
            world.nodes.save(replace(item, key=key, version=0, state=state))
    world.jobs.update_status(replace(job, active=False))
    return world, network.now


def invoked(world: MemoryWorld, now: float) -> Counter[str]:
    """Make every look that was asked for, each in a process of its own; return how each job's ended."""
    ends: Counter[str] = Counter()
    for look in world.reconcile_requests.drain():
        if look.job == DEADLY:
            world.faults.crash_after(2)
        try:
            outcome = care_of(world, now).attempt(look)
        except Crash:
            ends[f"{look.job} died"] += 1
        else:
            ends[look.job if outcome.failed is None else f"{look.job} failed"] += 1
        world.faults.clear()
    return ends


def test_deadly_broken_or_huge_job_does_not_starve_the_others(
    fleet: tuple[MemoryWorld, float],
) -> None:
    world, now = fleet
    for minute in range(2):
        outcome = tick_of(world, now + SCHEDULE_S * minute).run()
        assert outcome == (JOBS, {})
        assert invoked(world, now + SCHEDULE_S * minute) == Counter([*OTHERS, f"{DEADLY} died", f"{BROKEN} failed"])
    for name in OTHERS:
        assert {row.status for row in world.rows.of_whole_job(name)} >= {Status.WARMING_UP}, name


def test_huge_job_costs_the_scheduler_one_request(
    fleet: tuple[MemoryWorld, float],
) -> None:
    world, now = fleet
    before = len(world.faults.calls)
    tick_of(world, now).run()
    calls = Counter(world.faults.calls[before:])
    assert calls == {"Jobs.polled_fast": 1, "Jobs.polled_slowly": 1, "ReconcileRequests.send": JOBS}


def test_short_runs_leave_no_job_out_for_good(
    fleet: tuple[MemoryWorld, float],
) -> None:
    world, now = fleet
    asked: set[str] = set()
    ticks = 0
    while len(asked) < JOBS:
        answers = iter([True, True, False])
        outcome = tick_of(world, now + SCHEDULE_S * ticks, lambda: next(answers)).run()  # noqa: B023 -- called at once
        looks = world.reconcile_requests.drain()
        assert (outcome[0], len(looks)) == (JOBS, 2 * WAVE)
        asked |= {look.job for look in looks}
        ticks += 1
    assert world.journal.totals["scheduler_unfinished"] == ticks <= JOBS


def test_failed_requests_are_named_and_others_are_requested(
    fleet: tuple[MemoryWorld, float],
) -> None:
    world, now = fleet
    refused = {"job-000", "job-050", "job-089"}
    for job in refused:
        world.reconcile_requests.refuse(job)
    _, failed = tick_of(world, now).run()
    assert set(failed) == refused
    assert {look.job for look in world.reconcile_requests.drain()} == {*OTHERS, DEADLY, BROKEN} - refused
    assert world.journal.totals["reconcile_failures"] == len(refused)


def test_delayed_request_uses_the_time_of_its_run() -> None:
    network = delivered(SYSTEM_1[:3])
    look = ReconcileRequest(JOB, network.now, STALE_EVERY)
    late, prompt = again(network.world), again(network.world)
    assert care_of(late, network.now + 55.0).attempt(look) == care_of(prompt, network.now).attempt(look)
    assert own_state(late) == own_state(prompt)


def own_state(world: MemoryWorld) -> JobState:
    own = world.nodes.load(StreamKey.own(JOB))
    assert own is not None
    return decode_state("own", own.codec, own.state, JobState)


@cache
def a_running_job() -> Network:
    """Return a job on which rules have fired, of which no tick has known yet."""
    return delivered(uploads()[:-1])


@cache
def a_job_that_fires_as_a_whole() -> Network:
    """Return a job of which no step was seen for too long, which no look has found yet."""
    network = Network()
    network.world.training_jobs.set(describe(SETTINGS | {"trainguard:MaxInitializationTime_threshold": "0.5"}))
    deliver(network, [upload for upload in uploads()[:-1] if "/system/" in upload.key])
    return network


@cache
def a_job_that_ends() -> Network:
    """Return a job all of whose streams have closed, before its last look."""
    network = delivered(uploads())
    network.world.training_jobs.set(describe(status=JobStatus.COMPLETED))
    network.world.jobs.update_status(replace(network.job(), active=True, closing=True, expires_at=None))
    return network


def effects(world: MemoryWorld) -> dict[str, object]:
    """Return what looks leave behind, but when: rows written, items to expire. Tasks sent twice count once."""
    own, job = own_state(world), world.jobs.load(JOB)
    assert job is not None
    rows = world.rows.of_job(JOB)
    return {
        "rows": [replace(each, expires_at=None) for each in rows],
        "alerts": world.executions.started,
        "reports": world.reports.started,
        "job": (replace(job, expires_at=None), job.expires_at is None),
        "told": own.notified,
        "episodes": {rule: stored.history for rule, stored in own.stored_rules.items()},
        "tasks": set(world.tasks.drain()),
    }


@pytest.mark.parametrize(
    "later_s", [0.0, SCHEDULE_S], ids=["the same look twice", "the next run of the scheduler's look"]
)
@pytest.mark.parametrize("situation", [a_running_job, a_job_that_fires_as_a_whole, a_job_that_ends])
def test_concurrent_runs_end_as_if_sequential(situation: Callable[[], Network], later_s: float) -> None:
    network = situation()
    first = ReconcileRequest(JOB, network.now, STALE_EVERY)
    second = msgspec.structs.replace(first, at=network.now + later_s)

    alone = again(network.world)
    before = len(alone.faults.calls)
    assert care_of(alone, first.at).attempt(first).failed is None
    requests = alone.faults.calls[before:]
    assert care_of(alone, second.at).attempt(second).failed is None
    expected = effects(alone)
    whole = any(str(name).startswith("MaxInitializationTime") for name in alone.executions.started)
    assert whole == (situation is a_job_that_fires_as_a_whole)

    for place, operation in enumerate(requests):
        world = again(network.world)
        between = care_of(world, second.at)
        nth = requests[: place + 1].count(operation)
        world.faults.interleave(operation, lambda: succeed(between, second), nth=nth)  # noqa: B023 -- called at once
        assert care_of(world, first.at).attempt(first).failed is None
        assert not world.faults.pending
        assert effects(world) == expected, f"between: {operation} {nth}"


def test_short_run_prefers_sagemaker_jobs_to_invented_ones() -> None:
    world = MemoryWorld()
    for number in range(100):
        world.jobs.register(JobRecord(f"a{number:03}@team/", "unknown:a", "profiles", "team/"))
    for number in range(15):
        world.jobs.register(JobRecord(f"job-{number}", "arn:job", "profiles", ""))
    for minute in range(2):
        tick_of(world, 6_000.0 + SCHEDULE_S * minute, iter([True, False]).__next__).run()
        names = [look.job for look in world.reconcile_requests.drain()]
        assert sum("@" not in name for name in names) == 15
        assert len(names) == 20
