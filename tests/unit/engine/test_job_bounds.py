"""A job's life at its bounds: which names are admitted, when streams are asked, what a description changes."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.described_job import ARN, BUCKET, NAME, described_job
from tests.support.memory import MemoryWorld
from trainguard.core.errors import RequestError, StateConflictError, TooManyNamesError
from trainguard.core.job_policy import JobPolicy
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JobRecord, JobStatus, StreamKey, StreamRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs import job_registry as admission
from trainguard.engine.jobs.job_description import (
    is_another,
    is_anothers,
    profile_place,
    reopened,
    stop_allowed,
    with_description,
)
from trainguard.engine.jobs.job_registry import (
    JobFolderIndex,
    JobRegistry,
    check_new_job,
    check_stream,
    left_out,
    recount,
)
from trainguard.engine.jobs.lifecycle import are_all_silent, given_up, request_close
from trainguard.engine.jobs.replay_names import replay_name, replayed_job
from trainguard.engine.streams.job_streams import JobState, JobStreams
from trainguard.engine.streams.session import expiry, item_of, items_of

JOB = JobRecord(NAME, ARN, BUCKET, "", JobStatus.IN_PROGRESS, instance_count=2, created_at=1_000.0)
OUTSIDE = replace(JOB, arn="unknown:job", created_at=None)
ONE, OTHER, OWN = StreamKey(NAME, "algo-1", "system"), StreamKey(NAME, "host", "system"), StreamKey.own(NAME)
NOW = 1_000_000.0


def world_with(job: JobRecord) -> MemoryWorld:
    world = MemoryWorld()
    world.jobs.register(job)
    return world


@pytest.mark.parametrize(
    ("key", "version", "others", "known_full", "asked", "admitted"),
    [
        (OTHER, 0, 0, False, 1, True),
        (OTHER, 0, 2, False, 1, True),
        (OTHER, 0, 3, False, 1, False),
        (OTHER, 0, 3, True, 0, False),
        (OTHER, 0, 2, True, 1, True),
        (OTHER, 1, 3, True, 0, True),
        (OWN, 0, 3, True, 0, True),
        (ONE, 0, 3, True, 0, True),
        (StreamKey(NAME, "algo-2", "system"), 0, 3, True, 0, True),
        (StreamKey(NAME, "algo-3", "system"), 0, 3, True, 0, False),
    ],
)
def test_new_stream_is_admitted_below_the_limit_with_no_write(
    key: StreamKey, version: int, others: int, known_full: bool, asked: int, admitted: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admission, "MOST_OTHER_STREAMS", 3)
        job = replace(JOB, other_streams=others, streams_left_out=known_full)
        world = world_with(job)
        try:
            check_stream(job, StreamRecord(key, version=version), world.jobs)
        except TooManyNamesError:
            assert not admitted
        else:
            assert admitted
        assert world.faults.calls.count("Jobs.admit_stream") == asked
        assert left_out(job) == ({"streams_left_out": 1} if known_full else {})


def test_job_of_unknown_size_has_no_node_named_by_sagemaker() -> None:
    assert not admission.is_named(replace(JOB, instance_count=None), ONE)
    assert admission.is_named(replace(JOB, instance_count=1), ONE)


def test_new_names_above_the_hourly_limit_wait_for_the_next_hour() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admission, "MOST_NEW_JOBS", 2)
        world = MemoryWorld()
        for at in (7_200.0, 10_799.0, 10_800.0):
            check_new_job(world.bookkeeping, at)
        with pytest.raises(TooManyNamesError):
            check_new_job(world.bookkeeping, 7_300.0)


@pytest.mark.parametrize(("counted", "after"), [(0, 0), (1, 1), (2, 1), (5, 1)])
def test_streams_counted_twice_are_recounted(counted: int, after: int) -> None:
    job = replace(JOB, other_streams=counted)
    world, records = world_with(job), {key: StreamRecord(key, version=1) for key in (ONE, OTHER)}
    streams = JobStreams({}, records, StreamRecord(OWN), JobState())
    recount(job, streams, world.jobs)
    stored = world.jobs.load(NAME)
    assert stored is not None
    assert stored.other_streams == after
    assert world.faults.calls.count("Jobs.recount_streams") == (counted > 1)


def close(job: JobRecord, world: MemoryWorld, now: float) -> tuple[JobRecord, list[str]]:
    asked = request_close(job, JobRegistry(world.services, FAMILIES, lambda: now))
    stored = world.jobs.load(job.job)
    assert stored is not None
    assert (stored.closing, stored.close_asks, stored.close_asked_at) == (
        True,
        asked.close_asks,
        asked.close_asked_at,
    )
    return asked, [f"{task.node}#{task.stream} {task.action} {task.generation}" for task in world.tasks.drain()]


@pytest.mark.parametrize(
    ("asks", "asked_at", "sent"),
    [
        (0, None, True),
        (1, NOW - 299.0, False),
        (1, NOW - 300.0, True),
        (2, NOW - 599.0, False),
        (2, NOW - 600.0, True),
        (4, NOW - 2_399.0, False),
        (4, NOW - 2_400.0, True),
    ],
)
def test_close_requests_are_repeated_at_doubling_intervals(asks: int, asked_at: float | None, sent: bool) -> None:
    job = replace(JOB, generation=1, close_asks=asks, close_asked_at=asked_at, instance_count=1)
    world = world_with(job)
    for key, generation in ((OWN, 1), (OTHER, 1), (StreamKey(NAME, "old", "system"), 0)):
        world.nodes.save(StreamRecord(key, generation=generation))
    asked, tasks = close(job, world, NOW)
    assert tasks == (["algo-1#system close 1", "host#system close 1"] if sent else [])
    assert (asked.close_asks, asked.close_asked_at) == ((asks + 1, NOW) if sent else (asks, asked_at))


@pytest.mark.parametrize(
    ("source", "ended_at", "sent"),
    [
        ("", NOW, 1),
        ("logs", NOW - 239.0, 0),
        ("logs", NOW - 240.0, 1),
        ("logs", None, 1),
    ],
)
def test_ended_job_with_a_source_closes_streams_after_last_poll(source: str, ended_at: float | None, sent: int) -> None:
    job = replace(JOB, policy=JobPolicy(source=source), ended_at=ended_at, instance_count=1)
    assert len(close(job, world_with(job), NOW)[1]) == sent


@pytest.mark.parametrize(
    ("asks", "ago_s", "over"),
    [(7, 90_000.0, False), (8, 300.0 * 128 - 1.0, False), (8, 300.0 * 128, True), (9, 300.0 * 256, True)],
)
def test_job_with_unanswered_close_requests_is_given_up_at_eight(asks: int, ago_s: float, over: bool) -> None:
    assert given_up(replace(JOB, close_asks=asks, close_asked_at=NOW - ago_s), NOW) == over


@pytest.mark.parametrize(("above", "found"), [(11, True), (12, True), (13, False)])
def test_lookup_far_above_an_object_asks_for_13_folders(above: int, found: bool) -> None:
    root = ProfileRoot("runs/", NAME)
    places = JobFolderIndex(world_with(replace(JOB, prefix="runs/")).jobs, BUCKET)
    assert places.root_above(BUCKET, f"runs/job/{'x/' * above}trace.json") == (root if found else None)
    assert places.root_above("other", "runs/job/trace.json") is None


def test_key_that_begins_with_the_job_asks_for_the_first_folder() -> None:
    places = JobFolderIndex(world_with(JOB).jobs, BUCKET)
    assert places.root_above(BUCKET, "job/trace.json") == ProfileRoot("", NAME)
    assert places.root_above(BUCKET, "job/not a name!/trace.json") == ProfileRoot("", NAME)


@pytest.mark.parametrize(
    ("written", "silent"),
    [
        ({}, False),
        ({"a.status.json": 600.0}, True),
        ({"a.status.json": 599.0}, False),
        ({"a.status.json": 700.0, "b.status.json": 10.0}, False),
        ({"a.status.json": 700.0, "b.status.json": 900.0}, True),
        ({"a.json": 700.0}, False),
        ({"a.status.json": 700.0, "b.json": 10.0}, True),
    ],
)
def test_nodes_without_a_status_for_ten_minutes_are_all_silent(written: dict[str, float], silent: bool) -> None:
    world, root = MemoryWorld(), ProfileRoot("", NAME)
    for name, ago_s in written.items():
        world.objects.now = NOW - ago_s
        world.objects.put(BUCKET, f"{root.collector}{name}", b"{}", "application/json")
    assert are_all_silent(world.objects, BUCKET, root, NOW) is silent


@pytest.mark.parametrize(("name", "is_valid"), [("a", True), ("a" * 40, True), ("a" * 41, False), ("-a", False)])
def test_replay_label_has_1_to_40_characters_and_names_its_owner(name: str, is_valid: bool) -> None:
    if is_valid:
        assert replayed_job(replay_name("job-1", name)) == "job-1"
    else:
        with pytest.raises(RequestError):
            replay_name("job-1", name)
    assert replayed_job(name) is None
    assert replayed_job(f"bad name@replay-{name}") is None


def said(**changed: Any) -> TrainingJobDescription:
    facts = {
        "secondary_status": "Training",
        "instance_type": "ml.p3.2xlarge",
        "instance_count": 2,
        "created_at": 1_000.0,
    }
    return described_job(**{**facts, **changed})


@pytest.mark.parametrize(
    ("stored", "described", "other"),
    [
        (1_000.0, 1_001.0, False),
        (1_000.0, 1_001.5, True),
        (1_000.0, 999.0, False),
        (1_000.0, 998.5, True),
        (None, 5.0, False),
        (5.0, None, False),
    ],
)
def test_creation_times_a_second_apart_are_of_one_job(
    stored: float | None, described: float | None, other: bool
) -> None:
    job, description = replace(JOB, created_at=stored), said(created_at=described, status=JobStatus.FAILED)
    assert is_another(job, description) is other
    assert with_description(job, description).status is (JobStatus.IN_PROGRESS if other else JobStatus.FAILED)


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        (None, None),
        ("s3://", None),
        ("http://profiles/a", None),
        ("s3://profiles", ("profiles", "")),
        ("s3://profiles/", ("profiles", "")),
        ("s3://profiles/a/b/", ("profiles", "a/b/")),
        ("s3:///a", None),
    ],
)
def test_configured_location_is_read_as_bucket_and_root(uri: str | None, place: tuple[str, str] | None) -> None:
    found = profile_place(said(profile_uri=uri))
    assert found == (None if place is None else (place[0], ProfileRoot(place[1], NAME)))


@pytest.mark.parametrize(
    ("job", "description", "other"),
    [
        (OUTSIDE, said(), False),
        (OUTSIDE, said(profile_uri="s3://another"), True),
        (OUTSIDE, said(profile_uri=None), False),
        (OUTSIDE, said(job="other"), True),
        (OUTSIDE, said(arn="unknown:job", profile_uri="s3://another"), False),
        (OUTSIDE, None, False),
        (JOB, said(profile_uri="s3://another"), False),
    ],
)
def test_external_job_elsewhere_differs_from_the_sagemaker_one(
    job: JobRecord, description: TrainingJobDescription | None, other: bool
) -> None:
    assert is_anothers(job, description) is other


@pytest.mark.parametrize(("tags", "allowed"), [({}, False), ({"trainguard:stop-on-fire": "allowed"}, True)])
def test_only_the_exact_owner_tag_allows_a_stop(tags: dict[str, str], allowed: bool) -> None:
    assert stop_allowed(said(tags=tags)) is allowed
    assert stop_allowed(said(tags=dict.fromkeys(tags, "Allowed"))) is False


ENDED = replace(
    OUTSIDE, status=JobStatus.FAILED, ended_at=500.0, active=False, closing=True, close_asks=3, close_asked_at=510.0
)
FILE = said(arn="unknown:job", created_at=None, started_at=501.0)


@pytest.mark.parametrize(
    ("job", "description", "again"),
    [
        (ENDED, FILE, True),
        (ENDED, replace(FILE, started_at=500.0), False),
        (ENDED, replace(FILE, started_at=None), False),
        (replace(ENDED, ended_at=None), FILE, False),
        (replace(ENDED, status=JobStatus.IN_PROGRESS), FILE, False),
        (replace(ENDED, arn=ARN), FILE, False),
        (ENDED, replace(FILE, arn=ARN), False),
        (ENDED, None, False),
    ],
)
def test_ended_external_job_with_a_later_start_runs_again(
    job: JobRecord, description: TrainingJobDescription | None, again: bool
) -> None:
    expected = replace(job, status=JobStatus.UNKNOWN, ended_at=None, active=True, closing=False, close_asks=0)
    assert reopened(job, description) == (replace(expected, close_asked_at=None) if again else job)


@pytest.mark.parametrize(
    ("job", "description", "changed"),
    [
        (JOB, None, {}),
        (replace(JOB, file_fault="bad"), None, {"file_fault": None}),
        (JOB, said(file_fault="bad", instance_count=9), {"file_fault": "bad"}),
        (JOB, said(instance_count=1), {"secondary_status": "Training"}),
        (JOB, said(instance_count=3), {"secondary_status": "Training", "instance_count": 3}),
        (JOB, said(instance_count=None), {"secondary_status": "Training"}),
        (replace(JOB, instance_count=None), said(), {"secondary_status": "Training", "instance_count": 2}),
        (JOB, said(started_at=5.0), {"secondary_status": "Training", "started_at": 5.0}),
        (replace(JOB, started_at=4.0, ended_at=6.0), said(), {"secondary_status": "Training"}),
        (JOB, said(created_at=9_000.0, status=JobStatus.FAILED), {"closing": True}),
        (
            JOB,
            said(status=JobStatus.COMPLETED, ended_at=7.0),
            {"secondary_status": "Training", "status": JobStatus.COMPLETED, "ended_at": 7.0, "closing": True},
        ),
        (replace(JOB, status=JobStatus.FAILED), said(), {"secondary_status": "Training", "closing": True}),
        (replace(JOB, closing=True), said(), {"secondary_status": "Training"}),
    ],
)
def test_updated_description_changes_only_what_it_says(
    job: JobRecord, description: TrainingJobDescription | None, changed: dict[str, Any]
) -> None:
    assert with_description(job, description) == replace(job, **changed)


@pytest.mark.parametrize(("watermark_s", "expected"), [(None, 100), (50.0, 100), (150.9, 150)])
def test_items_expire_90_days_after_the_last_sample_or_clock(watermark_s: float | None, expected: int) -> None:
    assert expiry(watermark_s, 100.0) == expected + 90 * 86_400


@pytest.mark.parametrize("generation", [0, 1])
def test_items_of_other_registrations_are_empty_or_left_out(
    generation: int,
) -> None:
    job, world = replace(JOB, generation=generation), MemoryWorld()
    world.nodes.save(StreamRecord(ONE, state=b"old", generation=0))
    world.nodes.save(StreamRecord(OTHER, state=b"new", generation=generation))
    old, new = item_of(job, ONE, world.nodes), item_of(job, OTHER, world.nodes)
    assert (old.state, old.version, old.generation) == (b"" if generation else b"old", 1, generation)
    assert (new.state, new.version) == (b"new", 1)
    missing = StreamKey(NAME, "algo-2", "system")
    assert item_of(job, missing, world.nodes) == StreamRecord(missing, generation=generation)
    found = items_of(job, world.nodes)
    assert found == ([new, StreamRecord(OWN, generation=1)] if generation else [old, new])
    world.nodes.save(StreamRecord(OWN, state=b"own", generation=0))
    own = next(record for record in items_of(job, world.nodes) if record.key == OWN)
    assert (own.state, own.version, own.generation) == (b"" if generation else b"own", 1, generation)
    world.nodes.save(StreamRecord(missing, generation=2))
    with pytest.raises(StateConflictError):
        items_of(job, world.nodes)
