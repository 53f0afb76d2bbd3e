"""Tuning jobs: an entry a job, whoever writes first, and no item of a job."""

import itertools

import pytest
from hypothesis import given

from tests.functional.strategies import names, on_each_world, tuned_jobs
from tests.functional.tables import BOOKKEEPING
from tests.functional.worlds import MotoUnderTest, World
from trainguard.core.errors import StateCodecError
from trainguard.core.finding import Severity
from trainguard.core.records import MOST_TUNED_JOBS, JobRecord, JobStatus, TunedJob, TuningJobRecord

JOB = JobRecord("job", "arn:job", "profiles", "")
RUNNING = TunedJob(JobStatus.IN_PROGRESS)
FIRED = TunedJob(JobStatus.IN_PROGRESS, findings=2, rule="LowGPUUtilization", severity=Severity.HIGH)
ENDED = TunedJob(JobStatus.COMPLETED, finished=True, findings=1, rule="BatchSize", severity=Severity.LOW)


def test_given_no_job_of_it_when_loaded_then_there_is_none(world: World) -> None:
    assert world.bookkeeping.tuning_job("tune") is None


@on_each_world
@given(job=names, told=tuned_jobs())
def test_given_any_entry_when_told_then_it_reads_back_equal(world: World, job: str, told: TunedJob) -> None:
    name = world.new_job()
    world.bookkeeping.upsert_tuned_job(name, job, told, 9)
    world.bookkeeping.upsert_tuned_job(name, job, told, 9)
    assert world.bookkeeping.tuning_job(name) == TuningJobRecord(name, {job: told}, expires_at=9)


@pytest.mark.parametrize("order", list(itertools.permutations(("a", "b", "c.#:1"))))
def test_jobs_in_any_order_displace_none(world: World, order: tuple[str, ...]) -> None:
    for job in order:
        world.bookkeeping.upsert_tuned_job("tune", job, RUNNING, 1)
    world.bookkeeping.upsert_tuned_job("tune", "b", FIRED, 2)
    assert world.bookkeeping.tuning_job("tune") == TuningJobRecord(
        "tune", {"a": RUNNING, "b": FIRED, "c.#:1": RUNNING}, expires_at=2
    )


def test_older_notification_of_a_finished_job_is_ignored(world: World) -> None:
    world.bookkeeping.upsert_tuned_job("tune", "a", ENDED, 5)
    world.bookkeeping.upsert_tuned_job("tune", "a", FIRED, 6)
    assert world.bookkeeping.tuning_job("tune") == TuningJobRecord("tune", {"a": ENDED}, expires_at=5)


def test_last_notification_of_a_refinished_job_stands(world: World) -> None:
    again = TunedJob(JobStatus.COMPLETED, finished=True)
    for told in (RUNNING, ENDED, again):
        world.bookkeeping.upsert_tuned_job("tune", "a", told, 5)
    assert world.bookkeeping.tuning_job("tune") == TuningJobRecord("tune", {"a": again}, expires_at=5)


def fill(world: World) -> None:
    """Let a tuning job have as many jobs as are named."""
    world.bookkeeping.upsert_tuned_job("tune", "job-0", RUNNING, 1)
    others = [f"job-{number}" for number in range(1, MOST_TUNED_JOBS)]
    if isinstance(world, MotoUnderTest):
        item = world.entry("tuning-job/tune", "jobs")
        entry = item["Jobs"]["M"]["job-0"]
        jobs = {"M": dict.fromkeys(["job-0", *others], entry)}
        world.dynamodb.put_item(TableName=BOOKKEEPING, Item={**item, "Jobs": jobs})
        return
    for job in others:
        world.bookkeeping.upsert_tuned_job("tune", job, RUNNING, 1)


def test_jobs_beyond_the_named_limit_are_only_noted(world: World) -> None:
    fill(world)
    full = world.bookkeeping.tuning_job("tune")
    assert full is not None
    assert (len(full.jobs), full.more) == (MOST_TUNED_JOBS, False)
    for job, at in (("further", 2), ("further", 2), ("job-7", 3)):
        world.bookkeeping.upsert_tuned_job("tune", job, ENDED, at)
    over = world.bookkeeping.tuning_job("tune")
    assert over == TuningJobRecord("tune", {**full.jobs, "job-7": ENDED}, more=True, expires_at=3)


def test_tuning_job_is_not_listed_among_jobs(world: World) -> None:
    world.jobs.register(JOB)
    world.bookkeeping.upsert_tuned_job("job", "another", FIRED, 1)
    assert list(world.jobs.all()) == [JOB]
    assert world.jobs.active() == ["job"]
    assert world.jobs.load("job") == JOB


def test_tuning_job_has_the_agreed_console_columns(
    moto_world: MotoUnderTest,
) -> None:
    moto_world.bookkeeping.upsert_tuned_job("tune", "a", FIRED, 9)
    entry = {
        "Status": {"S": "InProgress"},
        "Finished": {"BOOL": False},
        "Findings": {"N": "2"},
        "Rule": {"S": "LowGPUUtilization"},
        "Severity": {"S": "high"},
    }
    assert moto_world.entry("tuning-job/tune", "jobs") == {
        "Purpose": {"S": "tuning-job/tune"},
        "Id": {"S": "jobs"},
        "Jobs": {"M": {"a": {"M": entry}}},
        "ExpiresAt": {"N": "9"},
    }


def test_unreadable_item_error_names_it(moto_world: MotoUnderTest) -> None:
    moto_world.bookkeeping.upsert_tuned_job("tune", "a", FIRED, 9)
    item = moto_world.entry("tuning-job/tune", "jobs")
    moto_world.dynamodb.put_item(TableName=BOOKKEEPING, Item={**item, "Jobs": {"S": "no map"}})
    with pytest.raises(StateCodecError, match="Bookkeeping/tuning-job/tune has Codec 0: there is no 'M'"):
        moto_world.bookkeeping.tuning_job("tune")
