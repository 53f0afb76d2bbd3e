"""How a job becomes known, by its place and description: when SageMaker is asked, whose an object is, what is kept."""

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.answers.recorded import plain_fields
from tests.support.described_job import ARN, BUCKET, NAME, described_job
from tests.support.memory import MemoryJournal, MemoryWorld
from trainguard.core.job_policy import JobPolicy
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JobRecord, JobStatus, Status, StreamKey, StreamRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.job_registry import JobRegistry, describe_record, job_of_place, start_notice
from trainguard.engine.jobs.lifecycle import clear_stale_state, follow_sagemaker, job_of

NOW = 1_795_248_000.0
ROOT, COPY = ProfileRoot("", NAME), ProfileRoot("copy/", NAME)
EXPIRES = int(NOW) + 90 * 86_400
KNOWN = described_job(
    secondary_status="Training",
    instance_type="ml.p3.2xlarge",
    instance_count=2,
    created_at=1_000.0,
    started_at=1_060.0,
    profiling_interval_ms=500,
    tags={"trainguard:stop-on-fire": "allowed", "team": "vision"},
    tuning_job="tune",
)
CLAIM = JobRecord(NAME, "unknown:job", BUCKET, "")
OFF = JobPolicy(evaluated=False)


class Registered:
    """A registry on a world in memory, in which some jobs are known."""

    def __init__(self, *jobs: JobRecord, described: TrainingJobDescription | None = KNOWN) -> None:
        self.world = MemoryWorld()
        for job in jobs:
            self.world.jobs.register(job)
        if described is not None:
            self.world.training_jobs.set(described)
        self.registry = JobRegistry(self.world.services, FAMILIES, lambda: NOW)

    def ensure(self, root: ProfileRoot = ROOT, bucket: str = BUCKET, *, announced: bool = False) -> JobRecord | None:
        return self.registry.ensure(self.world.bookkeeping, bucket=bucket, root=root, announced=announced)

    def count(self, call: str) -> int:
        return self.world.faults.calls.count(call)

    @property
    def counted(self) -> dict[str, int]:
        journal = self.world.journal
        assert isinstance(journal, MemoryJournal)
        return dict(journal.totals)


@pytest.mark.parametrize(
    ("known", "root", "announced", "asked"),
    [
        (replace(CLAIM, arn=ARN), ROOT, True, 0),
        (CLAIM, ROOT, False, 0),
        (CLAIM, ROOT, True, 1),
        (replace(CLAIM, active=False), ROOT, False, 1),
        (replace(CLAIM, policy=OFF), ROOT, False, 1),
        (replace(CLAIM, policy=OFF, asked_at=NOW - 299.0), ROOT, False, 0),
        (replace(CLAIM, policy=OFF, asked_at=NOW - 300.0), ROOT, False, 1),
        (replace(CLAIM, prefix="copy/"), ROOT, False, 1),
        (replace(CLAIM, bucket="other"), ROOT, False, 1),
        (None, ROOT, False, 1),
    ],
)
def test_known_name_queries_sagemaker_where_it_may_now_know_it(
    known: JobRecord | None, root: ProfileRoot, announced: bool, asked: int
) -> None:
    registered = Registered(*([] if known is None else [known]))
    job = registered.ensure(root, announced=announced)
    assert job is not None
    assert registered.count("TrainingJobs.describe") == asked
    is_known = asked or known is None or not known.is_outside
    assert job.is_outside is (not is_known)
    recognised = known is not None and known.is_outside and asked
    assert (job.generation, registered.counted.get("jobs_recognised", 0)) == ((1, 1) if recognised else (0, 0))
    assert registered.count("Bookkeeping.admit") == (known is None)
    assert registered.count("Jobs.ask") <= asked


def test_known_job_without_an_event_queries_nothing() -> None:
    registered = Registered(CLAIM)
    registered.registry.ensure(registered.world.bookkeeping, bucket=BUCKET, root=ROOT)
    assert registered.count("TrainingJobs.describe") == 0


@pytest.mark.parametrize(
    ("known", "described", "named", "generation"),
    [
        (None, None, NAME, 0),
        (replace(CLAIM, prefix="copy/"), None, NAME, 1),
        (replace(CLAIM, bucket="other"), None, NAME, 1),
        (replace(CLAIM, active=False), None, NAME, 0),
        (replace(CLAIM, active=False), replace(KNOWN, arn="unknown:job"), NAME, 0),
        (replace(CLAIM, prefix="copy/"), replace(KNOWN, arn="unknown:job"), NAME, 1),
    ],
)
def test_folder_at_the_root_takes_over_a_name_met_elsewhere(
    known: JobRecord | None, described: TrainingJobDescription | None, named: str, generation: int
) -> None:
    registered = Registered(*([] if known is None else [known]), described=described)
    job = registered.ensure()
    assert job is not None
    assert (job.job, job.bucket, job.prefix, job.generation, job.is_outside) == (named, BUCKET, "", generation, True)


@pytest.mark.parametrize("known", [None, replace(CLAIM, policy=OFF), CLAIM])
def test_objects_of_a_job_with_a_profile_elsewhere_are_unjudged(
    known: JobRecord | None,
) -> None:
    registered = Registered(*([] if known is None else [known]), described=replace(KNOWN, profile_uri="s3://other"))
    job = registered.ensure(announced=True)
    if known == CLAIM:
        assert job is None
        return
    assert job is not None
    assert (job.policy.evaluated, job.is_outside) == (False, True)
    if known is None:
        assert (job.active, job.expires_at, job.asked_at) == (False, EXPIRES, NOW)
        assert job.policy.why == "its profile belongs into s3://other"


@pytest.mark.parametrize(
    ("stored", "root", "found"),
    [
        ([], ROOT, None),
        ([CLAIM], ROOT, "unknown:job"),
        ([replace(CLAIM, prefix="copy/")], COPY, "unknown:job"),
        ([CLAIM], COPY, None),
        ([replace(CLAIM, arn=ARN)], COPY, ARN),
        ([CLAIM, replace(CLAIM, job=COPY.place_name, arn="unknown:place", prefix="copy/")], COPY, "unknown:place"),
        ([replace(CLAIM, bucket="other", prefix="copy/")], COPY, None),
    ],
)
def test_plain_name_belongs_to_sagemaker_or_the_root(
    stored: list[JobRecord], root: ProfileRoot, found: str | None
) -> None:
    job = job_of_place(Registered(*stored).world.jobs, BUCKET, root)
    assert (None if job is None else job.arn) == found


def test_registered_items_hold_what_was_described() -> None:
    documents = MemoryWorld().settings
    here = describe_record(KNOWN, documents, bucket="other", root=COPY)
    assert plain_fields(here) == {
        "job": NAME,
        "arn": ARN,
        "bucket": BUCKET,
        "status": "InProgress",
        "secondary_status": "Training",
        "instance_type": "ml.p3.2xlarge",
        "instance_count": 2,
        "created_at": 1_000.0,
        "started_at": 1_060.0,
        "profiling_interval_ms": 500,
        "stop_allowed": True,
        "active": True,
        "polled_fast": True,
        "policy": plain_fields(here.policy),
        "setting_sources": {"evaluate": "stack default /TrainGuard/default-settings"},
        "tuning_job": "tune",
        "owners": {"team": "vision"},
    }
    assert here.policy.stops.rules is None
    nowhere = describe_record(replace(KNOWN, profile_uri=None), documents, bucket="other", root=COPY)
    assert (nowhere.bucket, nowhere.prefix, nowhere.policy.stops.rules, len(nowhere.setting_faults)) == (
        "other",
        "copy/",
        (),
        1,
    )
    quiet = describe_record(replace(KNOWN, profile_uri=None, tags={}), documents, bucket="other", root=COPY)
    assert (quiet.policy.stops.rules, quiet.setting_faults) == ((), ())
    outside = describe_record(replace(KNOWN, arn="unknown:job", profile_uri=None), documents, bucket="b", root=COPY)
    assert (outside.job, outside.arn, outside.setting_faults) == (COPY.place_name, f"unknown:{COPY.place_name}", ())
    unknown = describe_record(None, documents, bucket="b", root=COPY)
    assert (unknown.job, unknown.arn, unknown.bucket) == (COPY.place_name, f"unknown:{COPY.place_name}", "b")


@pytest.mark.parametrize(
    ("profiling", "tag", "expected"), [(False, None, False), (True, None, True), (False, "expected", True)]
)
def test_framework_events_are_expected_as_configured_or_tagged(
    profiling: bool, tag: str | None, expected: bool
) -> None:
    tags = {} if tag is None else {"trainguard:framework-metrics": tag}
    described = replace(KNOWN, framework_profiling=profiling, tags=tags)
    assert describe_record(described, MemoryWorld().settings, bucket=BUCKET, root=ROOT).framework_expected is expected


@pytest.mark.parametrize(
    ("faults", "shown", "more"), [(1, 1, None), (5, 5, None), (6, 5, "and 1 more"), (25, 5, "and 20 more")]
)
def test_text_has_five_faults_and_the_document_twenty(faults: int, shown: int, more: str | None) -> None:
    world = MemoryWorld()
    said = tuple(f"fault {number}: {'x' * 1_100}" for number in range(faults))
    start_notice(replace(CLAIM, arn=ARN, setting_faults=said), world.executions, NOW)
    ((name, payload),) = world.executions.started.items()
    reason = str(payload["reason"])
    assert re.fullmatch("Settings-[0-9a-f]{20}-job", name)
    assert (payload["kind"], payload["episode"], payload["node"]) == ("notice", 0, "*")
    assert reason.count("fault ") == shown
    assert reason.endswith(more or "…")
    listed = payload["faults"]
    assert isinstance(listed, list)
    assert [len(each) for each in listed] == [1_000] * min(faults, 20)


@pytest.mark.parametrize(
    ("tags", "told"),
    [
        ({"trainguard:LowGPUUtilization_patience": "soon"}, 1),
        ({}, 0),
        ({"trainguard:evaluate": "off", "trainguard:LowGPUUtilization_patience": "soon"}, 1),
    ],
)
def test_owner_is_notified_of_each_fault_once(tags: dict[str, str], told: int) -> None:
    registered = Registered(described=replace(KNOWN, tags=tags))
    job = registered.ensure()
    assert job is not None
    assert len(registered.world.executions.started) == told
    assert registered.counted.get("configuration_faults", 0) == len(job.setting_faults) == told
    assert (job.active, job.expires_at) == ((True, None) if job.policy.evaluated else (False, EXPIRES))


@pytest.mark.parametrize(
    ("stored", "described", "followed", "counted"),
    [
        (None, None, None, "unknown_jobs"),
        (None, replace(KNOWN, profile_uri=None), None, "jobs_elsewhere"),
        (None, replace(KNOWN, profile_uri="s3://other"), None, "jobs_elsewhere"),
        (CLAIM, replace(KNOWN, profile_uri="s3://other"), None, "jobs_elsewhere"),
        (None, KNOWN, (False, 0), None),
        (CLAIM, KNOWN, (False, 1), "jobs_recognised"),
        (None, replace(KNOWN, status=JobStatus.FAILED), (True, 0), None),
        (replace(CLAIM, arn=ARN, created_at=9_000.0), KNOWN, (True, 0), "names_given_again"),
    ],
)
def test_state_change_updates_its_item_and_foreign_is_counted(
    stored: JobRecord | None,
    described: TrainingJobDescription | None,
    followed: tuple[bool, int] | None,
    counted: str | None,
) -> None:
    registered = Registered(*([] if stored is None else [stored]), described=described)
    job = follow_sagemaker(NAME, BUCKET, registered.registry)
    assert (None if job is None else (job.closing, job.generation)) == followed
    assert registered.counted == ({} if counted is None else {counted: 1})
    final = described is not None and described.status.is_final
    elsewhere = stored == CLAIM and followed is None
    after = registered.world.jobs.load(NAME)
    assert bool(after and after.close_asks) is (final or elsewhere)


def test_repeated_events_write_nothing_again() -> None:
    registered = Registered()
    follow_sagemaker(NAME, BUCKET, registered.registry)
    writes = registered.count("Jobs.update_status")
    follow_sagemaker(NAME, BUCKET, registered.registry)
    assert registered.count("Jobs.update_status") == writes == 0
    registered.world.training_jobs.set(replace(KNOWN, instance_count=3))
    follow_sagemaker(NAME, BUCKET, registered.registry)
    after = registered.world.jobs.load(NAME)
    assert after is not None
    assert (after.instance_count, registered.count("Jobs.update_status")) == (3, 1)
    closed = Registered(replace(CLAIM, active=False), described=replace(KNOWN, profile_uri="s3://other"))
    assert follow_sagemaker(NAME, BUCKET, closed.registry) is None
    assert closed.count("Jobs.update_status") == 0


@pytest.mark.parametrize(
    ("event", "name"),
    [
        ({"detail": {"TrainingJobName": "a"}}, "a"),
        ({"detail": {}}, None),
        ({}, None),
        ({"detail": {"TrainingJobName": 7}}, None),
    ],
)
def test_event_names_its_job_or_is_counted(event: Any, name: str | None) -> None:
    journal = MemoryJournal()
    assert job_of(event, journal) == name
    assert journal.totals["malformed_events"] == (name is None)


@pytest.mark.parametrize("evaluated", [True, False])
def test_clearing_empties_rows_and_items_of_a_registration(
    evaluated: bool,
) -> None:
    world = MemoryWorld()
    job = replace(CLAIM, arn=ARN, generation=1, policy=JobPolicy(evaluated=evaluated))
    world.jobs.register(job)
    keys = {name: StreamKey(NAME, name, "system") for name in ("old", "empty", "own", "later")}
    odd = StreamKey(NAME, "rank-1", "unheard")
    for key, state, generation in (
        (keys["old"], b"s", 0),
        (keys["empty"], b"", 0),
        (keys["own"], b"s", 1),
        (odd, b"s", 0),
    ):
        world.nodes.save(StreamRecord(key, state=state, generation=generation))
    for _ in range(2):
        clear_stale_state(job, world.services, FAMILIES, now=NOW)
    states = {record.key.node: (record.state, record.closed, record.expires_at) for record in world.nodes.of_job(NAME)}
    gone = (b"", True, EXPIRES)
    assert states == {"old": gone, "empty": (b"", False, None), "own": (b"s", False, None), "rank-1": gone}
    rows = world.rows.of_job(NAME)
    assert {row.node for row in rows} == ({"old"} if evaluated else {"old", None})
    assert {(row.status, row.expires_at, row.generation) for row in rows} == {(Status.NOT_APPLICABLE, EXPIRES, 1)}
    after = world.jobs.load(NAME)
    assert after is not None
    assert (after.active, after.expires_at) == ((True, None) if evaluated else (False, EXPIRES))


@pytest.mark.parametrize(
    ("named", "settings", "faults"), [("llm", {"BatchSize_patience": "7"}, 0), ("none", {}, 1), ("no name!", {}, 1)]
)
def test_tag_naming_settings_applies_them_or_reports_the_fault(
    named: str, settings: dict[str, str], faults: int
) -> None:
    world = MemoryWorld()
    world.settings.put(f"{world.settings.path}llm", '{"BatchSize_patience": 7}')
    described = replace(KNOWN, tags={"trainguard:settings": named})
    job = describe_record(described, world.settings, bucket=BUCKET, root=ROOT)
    assert (dict(job.rule_settings), len(job.setting_faults)) == (settings, faults)


def test_sagemaker_job_gets_an_item_apart_from_that_of_the_place() -> None:
    place = replace(CLAIM, job=COPY.place_name, arn="unknown:place", prefix="copy/")
    registered = Registered(place)
    job = registered.registry.adopt(place, KNOWN)
    assert (job.job, job.arn, job.generation) == (NAME, ARN, 0)
    assert registered.world.jobs.load(COPY.place_name) == place
    assert registered.registry.adopt(place, None) == place
