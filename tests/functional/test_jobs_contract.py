"""Jobs: registered once, closed once, and never back to life by a late event."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.functional.strategies import job_records, on_each_world, times
from tests.functional.worlds import MotoUnderTest, World
from trainguard.core.errors import StateCodecError
from trainguard.core.job_policy import AlertPolicy, JobPolicy, QuietHours, StopPolicy
from trainguard.core.records import JobRecord, JobStatus

JOB = JobRecord("job", "arn:job", "profiles", "prefix/", status=JobStatus.IN_PROGRESS)
FINAL = [status for status in JobStatus if status.is_final]
NOT_FINAL = [status for status in JobStatus if not status.is_final]


def test_brake_is_kept_in_the_item_until_it_is_taken_off(world: World) -> None:
    world.jobs.register(JobRecord("braked", "arn:braked", "profiles", ""))
    world.jobs.set_braked("unknown", "why")
    world.jobs.set_outlook("unknown", "soon")
    assert world.jobs.load("unknown") is None
    for why in ("Not evaluated since noon.", "for another reason", None):
        world.jobs.set_braked("braked", why)
        assert world.jobs.load("braked") == JobRecord("braked", "arn:braked", "profiles", "", braked=why)
    world.jobs.set_outlook("braked", "soon")
    assert world.jobs.load("braked") == JobRecord("braked", "arn:braked", "profiles", "", outlook="soon")


def test_given_no_item_when_loaded_then_there_is_none(world: World) -> None:
    assert world.jobs.load("job") is None


@on_each_world
@given(drawn=job_records())
def test_registered_record_round_trips(world: World, drawn: JobRecord) -> None:
    record = replace(drawn, job=drawn.job + world.new_job())
    assert world.jobs.register(record) == record
    assert world.jobs.load(record.job) == record


def test_repeated_registration_keeps_the_first(world: World) -> None:
    world.jobs.register(JOB)
    assert world.jobs.register(replace(JOB, status=JobStatus.FAILED, prefix="another/")) == JOB
    assert world.jobs.load("job") == JOB


def test_registration_returns_times_rounded_to_milliseconds(world: World) -> None:
    registered = world.jobs.register(replace(JOB, created_at=1.00049, last_object_at=2.0015001))
    assert registered == replace(JOB, created_at=1.0, last_object_at=2.002) == world.jobs.load("job")


def test_status_update_writes_only_what_it_covers(world: World) -> None:
    world.jobs.register(replace(JOB, secondary_status="Starting", created_at=1.0, episodes={"Rule": 1}))
    update = replace(
        JOB, status=JobStatus.COMPLETED, started_at=2.0, ended_at=3.0, active=False, closing=True, expires_at=9
    )
    world.jobs.update_status(replace(update, prefix="another/", episodes={}, stop_allowed=True, last_object_at=5.0))
    assert world.jobs.load("job") == replace(update, created_at=1.0, episodes={"Rule": 1})


def test_a_late_status_changes_nothing_of_a_final_one(world: World) -> None:
    for number, (final, late) in enumerate(product(FINAL, NOT_FINAL)):
        job = replace(JOB, job=f"job-{number}")
        closed = world.jobs.register(replace(job, status=final, active=False, closing=True))
        world.jobs.update_status(replace(job, status=late, secondary_status="Training", started_at=1.0))
        assert world.jobs.load(job.job) == closed
    assert world.jobs.active() == []


def test_job_restarted_after_its_end_runs_again(world: World) -> None:
    ended = replace(JOB, status=JobStatus.FAILED, active=False, closing=True, ended_at=1_800_000_100.0, expires_at=9)
    world.jobs.register(ended)
    running = replace(ended, status=JobStatus.IN_PROGRESS, active=True, closing=False, ended_at=None, expires_at=None)
    world.jobs.update_status(replace(running, started_at=1_800_000_100.0))
    assert world.jobs.load("job") == ended
    world.jobs.update_status(replace(running, started_at=1_800_000_130.0))
    assert world.jobs.load("job") == replace(running, started_at=1_800_000_130.0)


def test_a_final_status_is_written_over_any(world: World) -> None:
    for number, (stored, final) in enumerate(product(JobStatus, FINAL)):
        job = replace(JOB, job=f"job-{number}", status=stored)
        world.jobs.register(job)
        world.jobs.update_status(replace(job, status=final, active=False))
        assert world.jobs.load(job.job) == replace(job, status=final, active=False)


def test_a_status_is_written_over_one_that_is_not_final(world: World) -> None:
    for number, (stored, following) in enumerate(product(NOT_FINAL, NOT_FINAL)):
        job = replace(JOB, job=f"job-{number}", status=stored)
        world.jobs.register(job)
        world.jobs.update_status(replace(job, status=following))
        assert world.jobs.load(job.job) == replace(job, status=following)


def test_cluster_size_grows_and_is_never_forgotten(world: World) -> None:
    world.jobs.register(replace(JOB, instance_count=2))
    for told, stored in ((8, 8), (None, 8)):
        world.jobs.update_status(replace(JOB, instance_count=told))
        assert getattr(world.jobs.load(JOB.job), "instance_count", None) == stored


def test_update_without_known_times_keeps_them(world: World) -> None:
    known = world.jobs.register(replace(JOB, created_at=1.0, started_at=2.0, ended_at=3.0, active=False, expires_at=9))
    world.jobs.update_status(replace(JOB, active=False))
    assert world.jobs.load("job") == known


def test_a_job_that_goes_on_does_not_expire(world: World) -> None:
    world.jobs.register(JOB)
    left = replace(JOB, closing=True, left_at=12.0, active=False, expires_at=9)
    world.jobs.update_status(left)
    assert world.jobs.load("job") == left
    world.jobs.update_status(JOB)
    assert world.jobs.load("job") == JOB


def test_given_no_item_when_changed_then_none_appears(world: World) -> None:
    world.jobs.update_status(JOB)
    world.jobs.update_status(replace(JOB, status=JobStatus.COMPLETED))
    world.jobs.touch("job", 60.0)
    world.jobs.raise_episode("job", "Rule", 0)
    assert world.jobs.load("job") is None


@on_each_world
@given(moments=st.lists(times, min_size=1, max_size=6))
def test_latest_touch_in_any_order_stands(world: World, moments: list[float]) -> None:
    job = world.new_job()
    moments = [round(moment, 3) for moment in moments]
    world.jobs.register(replace(JOB, job=job))
    for moment in moments:
        world.jobs.touch(job, moment)
    assert world.jobs.load(job) == replace(JOB, job=job, last_object_at=max(moments))


@pytest.mark.parametrize("rule", ["LowGPUUtilization", "a.b c", "é#:1"])
def test_current_episode_is_raised_by_one(world: World, rule: str) -> None:
    world.jobs.register(replace(JOB, episodes={"Another": 7}))
    world.jobs.raise_episode("job", rule, 0)
    world.jobs.raise_episode("job", rule, 1)
    assert world.jobs.load("job") == replace(JOB, episodes={"Another": 7, rule: 2})


@pytest.mark.parametrize("seen", [0, 2])
def test_episode_raised_from_another_stays(world: World, seen: int) -> None:
    known = world.jobs.register(replace(JOB, episodes={"Rule": 1}))
    world.jobs.raise_episode("job", "Rule", seen)
    assert world.jobs.load("job") == known


def test_missing_episode_raised_from_a_later_one_stays_missing(world: World) -> None:
    world.jobs.register(JOB)
    world.jobs.raise_episode("job", "Rule", 1)
    assert world.jobs.load("job") == JOB


def test_active_jobs_are_listed_in_order(world: World) -> None:
    for name in ("b", "é", "a", "Z", "a-10", "a-2"):
        world.jobs.register(replace(JOB, job=name))
    world.jobs.register(replace(JOB, job="closed", active=False))
    world.jobs.update_status(replace(JOB, job="b", active=False))
    assert world.jobs.active() == ["Z", "a", "a-10", "a-2", "é"]


def test_registered_job_has_the_agreed_console_columns(
    moto_world: MotoUnderTest,
) -> None:
    full = replace(
        JOB,
        secondary_status="Training",
        instance_type="ml.p4d.24xlarge",
        instance_count=2,
        created_at=1_700_000_000.25,
        started_at=1_700_000_060.0,
        profiling_interval_ms=500,
        rule_settings={"LowGPUUtilization_patience": "500"},
        last_object_at=1_700_000_120.0,
        policy=JobPolicy(
            evaluated=False,
            why="tag trainguard:evaluate says off",
            alerts=AlertPolicy(
                staged=("BatchSize",),
                quiet_hours=(QuietHours(days=("sat",), start="22:00", end="07:00", timezone="Europe/Berlin"),),
            ),
            stops=StopPolicy(rules=("StepOutlier",), grace_s=600.0, dry_run=True),
            evaluation_every_s=120.0,
        ),
        polled_fast=False,
        setting_sources={"LowGPUUtilization_patience": "tag x"},
        setting_faults=("first", "second"),
        rules_elsewhere={"Exploding": "a rule of tensors"},
        rule_places={"Exploding": "s3://mine/"},
        tuning_job="tune",
        time_limit_s=86_400.0,
        total_steps=20_000,
    )
    moto_world.jobs.register(full)
    assert moto_world.job("job") == {
        "TrainingJobName": {"S": "job"},
        "TrainingJobArn": {"S": "arn:job"},
        "Bucket": {"S": "profiles"},
        "Prefix": {"S": "prefix/"},
        "Status": {"S": "InProgress"},
        "SecondaryStatus": {"S": "Training"},
        "InstanceType": {"S": "ml.p4d.24xlarge"},
        "InstanceCount": {"N": "2"},
        "CreatedAt": {"S": "2023-11-14T22:13:20.250Z"},
        "StartedAt": {"S": "2023-11-14T22:14:20.000Z"},
        "ProfilingIntervalMs": {"N": "500"},
        "FrameworkExpected": {"BOOL": False},
        "RuleSettings": {"M": {"LowGPUUtilization_patience": {"S": "500"}}},
        "StopAllowed": {"BOOL": False},
        "Episodes": {"M": {}},
        "Active": {"S": "slow"},
        "Closing": {"BOOL": False},
        "LastObjectAt": {"S": "2023-11-14T22:15:20.000Z"},
        "EvaluationEveryS": {"N": "120.0"},
        "Evaluated": {"BOOL": False},
        "EvaluatedBecause": {"S": "tag trainguard:evaluate says off"},
        "Alerts": {
            "S": '{"staged":["BatchSize"],"muted":[],"quiet_hours":'
            '[{"days":["sat"],"start":"22:00","end":"07:00","timezone":"Europe/Berlin"}]}'
        },
        "Stops": {"S": '{"rules":["StepOutlier"],"grace_s":600.0,"dry_run":true}'},
        "SettingSources": {"M": {"LowGPUUtilization_patience": {"S": "tag x"}}},
        "ConfigurationFaults": {"L": [{"S": "first"}, {"S": "second"}]},
        "RulesElsewhere": {"M": {"Exploding": {"S": "a rule of tensors"}}},
        "RulePlaces": {"M": {"Exploding": {"S": "s3://mine/"}}},
        "TuningJob": {"S": "tune"},
        "TimeLimitS": {"N": "86400.0"},
        "TotalSteps": {"N": "20000"},
    }
    moto_world.jobs.update_status(replace(full, active=False))
    assert "Active" not in moto_world.job("job")


def test_all_jobs_are_listed_once_as_stored(world: World) -> None:
    records = [world.jobs.register(replace(JOB, job=name, active=name != "closed")) for name in ("b", "closed", "é")]
    assert sorted(world.jobs.all(), key=lambda record: record.job) == records


def test_all_jobs_are_listed_beyond_one_page(
    moto_world: MotoUnderTest,
) -> None:
    settings = {"LowGPUUtilization_patience": "9" * 100_000}  # a page ends after a megabyte
    names = {moto_world.jobs.register(replace(JOB, job=f"job-{n}", rule_settings=settings)).job for n in range(25)}
    assert {record.job for record in moto_world.jobs.all()} == names


def test_given_no_job_when_all_are_asked_for_then_there_are_none(world: World) -> None:
    assert list(world.jobs.all()) == []


def test_item_older_than_policies_has_no_decision(
    moto_world: MotoUnderTest,
) -> None:
    moto_world.jobs.register(JOB)
    moto_world.update_job("job", removed=("Evaluated", "EvaluatedBecause", "Alerts", "Stops"))
    assert moto_world.jobs.load("job") == JOB


@pytest.mark.parametrize("damaged", ["", "[]", '{"staged": 1}', '{"quiet_hours": [{"days": []}]}'])
def test_unreadable_policy_error_names_the_item(moto_world: MotoUnderTest, damaged: str) -> None:
    moto_world.jobs.register(JOB)
    moto_world.update_job("job", written={"Alerts": damaged})
    with pytest.raises(StateCodecError, match=r"Jobs/job has Codec 0: Alerts is .*: no AlertPolicy"):
        moto_world.jobs.load("job")


OUTSIDE = replace(JOB, arn="unknown:job", status=JobStatus.COMPLETED, active=False, closing=True, close_asks=2)


@on_each_world
@given(drawn=job_records())
def test_record_replacing_an_outside_job_leaves_nothing_of_it(world: World, drawn: JobRecord) -> None:
    job = world.new_job()
    record = replace(drawn, job=job)
    world.jobs.register(
        replace(OUTSIDE, job=job, last_object_at=1.0, episodes={"Rule": 1}, file_fault="a fault", tuning_job="t")
    )
    assert world.jobs.adopt(record) == record
    assert world.jobs.load(job) == record
    assert (job in world.jobs.active()) is record.active


def test_job_known_to_sagemaker_is_kept_over_a_recognized_one(world: World) -> None:
    world.jobs.register(OUTSIDE)
    first = world.jobs.adopt(replace(JOB, generation=1, rule_settings={"a": "b"}))
    assert world.jobs.adopt(replace(JOB, generation=1, prefix="another/")) == first == world.jobs.load("job")


def test_given_no_item_when_a_job_is_recognised_then_it_is_there(world: World) -> None:
    assert world.jobs.adopt(JOB) == JOB == world.jobs.load("job")


def test_an_outside_job_writes_nothing_over_one_of_sagemakers(world: World) -> None:
    known = world.jobs.register(JOB)
    for status in JobStatus:
        world.jobs.update_status(replace(OUTSIDE, status=status, file_fault="a fault", started_at=1.0, expires_at=2))
        assert world.jobs.load("job") == known


def test_fault_and_requests_follow_the_updates(world: World) -> None:
    world.jobs.register(JOB)
    asked = replace(JOB, file_fault="a fault", close_asks=3, close_asked_at=12.0, closing=True)
    world.jobs.update_status(asked)
    assert world.jobs.load("job") == asked
    world.jobs.update_status(JOB)
    assert world.jobs.load("job") == JOB


def test_job_is_asked_again_only_after_the_interval(world: World) -> None:
    world.jobs.register(OUTSIDE)
    asked = [world.jobs.ask("job", at, 300.0) for at in (10.0, 10.0, 309.999, 310.0, 311.0)]
    assert asked == [True, False, False, True, False]
    assert world.jobs.load("job") == replace(OUTSIDE, asked_at=310.0)


def test_given_no_item_when_asked_then_there_is_none_after_it(world: World) -> None:
    assert not world.jobs.ask("job", 10.0, 300.0)
    assert world.jobs.load("job") is None


@pytest.mark.parametrize(("known", "seen_by"), [(0, 1), (1, 0), (2, 1)])
def test_ended_earlier_episode_does_not_raise_a_reregistered_job(world: World, known: int, seen_by: int) -> None:
    stored = world.jobs.register(replace(JOB, generation=known))
    world.jobs.raise_episode("job", "Rule", 0, generation=seen_by)
    assert world.jobs.load("job") == stored
    world.jobs.raise_episode("job", "Rule", 0, generation=known)
    assert world.jobs.load("job") == replace(stored, episodes={"Rule": 1})


def test_only_the_urgent_active_job_is_listed_as_urgent(world: World) -> None:
    for name in ("a", "b"):
        world.jobs.register(replace(JOB, job=name))
    assert (world.jobs.polled_fast(), world.jobs.polled_slowly()) == (["a", "b"], [])
    world.jobs.set_fast_polling("b", polled_fast=False)
    world.jobs.set_fast_polling("unknown", polled_fast=True)
    assert (world.jobs.polled_fast(), world.jobs.polled_slowly(), world.jobs.active()) == (["a"], ["b"], ["a", "b"])
    polled_slowly = world.jobs.load("b")
    assert polled_slowly is not None
    assert not polled_slowly.polled_fast
    world.jobs.update_status(replace(polled_slowly, closing=True))
    world.jobs.set_fast_polling("b", polled_fast=False)
    assert world.jobs.polled_fast() == ["a", "b"]
    world.jobs.update_status(replace(polled_slowly, closing=True, active=False))
    world.jobs.set_fast_polling("b", polled_fast=True)
    assert world.jobs.active() == ["a"]
    assert world.jobs.load("unknown") is None


def test_streams_beyond_the_limit_are_noted_but_not_admitted(
    world: World,
) -> None:
    world.jobs.register(JOB)
    assert [world.jobs.admit_stream("job", 2) for _ in range(4)] == [True, True, False, False]
    assert world.jobs.load("job") == replace(JOB, other_streams=2, streams_left_out=True)
    world.jobs.recount_streams("job", 3, 0)
    world.jobs.recount_streams("job", 2, 1)
    assert world.jobs.admit_stream("job", 2)
    assert world.jobs.load("job") == replace(JOB, other_streams=2, streams_left_out=True)


def test_stream_is_admitted_without_creating_a_job_item(world: World) -> None:
    assert world.jobs.admit_stream("job", 1)
    world.jobs.recount_streams("job", 0, 5)
    assert world.jobs.load("job") is None


def test_names_per_hour_are_limited_and_create_no_job(
    world: World,
) -> None:
    assert [world.bookkeeping.admit(at, 2) for at in (7_200.0, 10_799.0, 10_799.0, 10_800.0)] == [
        True,
        True,
        False,
        True,
    ]
    assert (list(world.jobs.all()), world.jobs.active()) == ([], [])
