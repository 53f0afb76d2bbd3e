"""Jobs: registered once, closed once, and never back to life by a late event."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.functional.strategies import job_records, on_each_world, times
from tests.functional.worlds import MotoUnderTest, World
from trainguard.errors import StateCodecError
from trainguard.job_policy import AlertPolicy, JobPolicy, QuietHours, StopPolicy
from trainguard.records import JobRecord, JobStatus

JOB = JobRecord("job", "arn:job", "profiles", "prefix/", status=JobStatus.IN_PROGRESS)
FINAL = [status for status in JobStatus if status.is_final]
NOT_FINAL = [status for status in JobStatus if not status.is_final]


def test_given_no_item_when_loaded_then_there_is_none(world: World) -> None:
    assert world.jobs.load("job") is None


@on_each_world
@given(drawn=job_records())
def test_given_any_record_when_registered_then_it_reads_back_equal(world: World, drawn: JobRecord) -> None:
    record = replace(drawn, job=drawn.job + world.new_job())
    assert world.jobs.register(record) == record
    assert world.jobs.load(record.job) == record


def test_given_a_registered_job_when_registered_again_then_the_first_stands(world: World) -> None:
    world.jobs.register(JOB)
    assert world.jobs.register(replace(JOB, status=JobStatus.FAILED, prefix="another/")) == JOB
    assert world.jobs.load("job") == JOB


def test_given_times_between_milliseconds_when_registered_then_the_stored_one_is_returned(world: World) -> None:
    registered = world.jobs.register(replace(JOB, created_at=1.00049, last_object_at=2.0015001))
    assert registered == replace(JOB, created_at=1.0, last_object_at=2.002) == world.jobs.load("job")


def test_given_a_new_status_when_updated_then_only_what_it_covers_is_written(world: World) -> None:
    world.jobs.register(replace(JOB, secondary_status="Starting", created_at=1.0, episodes={"Rule": 1}))
    update = replace(
        JOB, status=JobStatus.COMPLETED, started_at=2.0, ended_at=3.0, active=False, closing=True, expires_at=9
    )
    world.jobs.update_status(replace(update, prefix="another/", episodes={}, stop_allowed=True, last_object_at=5.0))
    assert world.jobs.load("job") == replace(update, created_at=1.0, episodes={"Rule": 1})


@pytest.mark.parametrize("final", FINAL)
@pytest.mark.parametrize("late", NOT_FINAL)
def test_given_a_final_status_when_a_late_one_comes_then_nothing_of_it_is_written(
    world: World, final: JobStatus, late: JobStatus
) -> None:
    closed = world.jobs.register(replace(JOB, status=final, active=False, closing=True))
    world.jobs.update_status(replace(JOB, status=late, secondary_status="Training", started_at=1.0))
    assert world.jobs.load("job") == closed
    assert world.jobs.active() == []


def test_given_a_final_status_when_the_job_was_started_after_its_end_then_it_runs_again(world: World) -> None:
    ended = replace(JOB, status=JobStatus.FAILED, active=False, closing=True, ended_at=1_800_000_100.0, expires_at=9)
    world.jobs.register(ended)
    running = replace(ended, status=JobStatus.IN_PROGRESS, active=True, closing=False, ended_at=None, expires_at=None)
    world.jobs.update_status(replace(running, started_at=1_800_000_100.0))
    assert world.jobs.load("job") == ended
    world.jobs.update_status(replace(running, started_at=1_800_000_130.0))
    assert world.jobs.load("job") == replace(running, started_at=1_800_000_130.0)


@pytest.mark.parametrize("stored", JobStatus)
@pytest.mark.parametrize("final", FINAL)
def test_given_any_status_when_a_final_one_comes_then_it_is_written(
    world: World, stored: JobStatus, final: JobStatus
) -> None:
    world.jobs.register(replace(JOB, status=stored))
    world.jobs.update_status(replace(JOB, status=final, active=False))
    assert world.jobs.load("job") == replace(JOB, status=final, active=False)


@pytest.mark.parametrize("stored", NOT_FINAL)
@pytest.mark.parametrize("next_one", NOT_FINAL)
def test_given_a_status_that_is_not_final_when_another_comes_then_it_is_written(
    world: World, stored: JobStatus, next_one: JobStatus
) -> None:
    world.jobs.register(replace(JOB, status=stored))
    world.jobs.update_status(replace(JOB, status=next_one))
    assert world.jobs.load("job") == replace(JOB, status=next_one)


def test_given_a_cluster_that_grew_when_updated_then_its_size_follows_and_is_never_forgotten(world: World) -> None:
    world.jobs.register(replace(JOB, instance_count=2))
    for told, stored in ((8, 8), (None, 8)):
        world.jobs.update_status(replace(JOB, instance_count=told))
        assert getattr(world.jobs.load(JOB.job), "instance_count", None) == stored


def test_given_known_times_when_an_update_lacks_them_then_they_stay(world: World) -> None:
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
def test_given_touches_in_any_order_when_loaded_then_the_latest_stands(world: World, moments: list[float]) -> None:
    job = world.new_job()
    moments = [round(moment, 3) for moment in moments]
    world.jobs.register(replace(JOB, job=job))
    for moment in moments:
        world.jobs.touch(job, moment)
    assert world.jobs.load(job) == replace(JOB, job=job, last_object_at=max(moments))


@pytest.mark.parametrize("rule", ["LowGPUUtilization", "a.b c", "é#:1"])
def test_given_an_episode_when_raised_by_who_has_seen_it_then_it_moves_by_one(world: World, rule: str) -> None:
    world.jobs.register(replace(JOB, episodes={"Another": 7}))
    world.jobs.raise_episode("job", rule, 0)
    world.jobs.raise_episode("job", rule, 1)
    assert world.jobs.load("job") == replace(JOB, episodes={"Another": 7, rule: 2})


@pytest.mark.parametrize("seen", [0, 2])
def test_given_an_episode_when_raised_by_who_has_seen_another_then_it_stays(world: World, seen: int) -> None:
    known = world.jobs.register(replace(JOB, episodes={"Rule": 1}))
    world.jobs.raise_episode("job", "Rule", seen)
    assert world.jobs.load("job") == known


def test_given_no_episode_when_raised_from_a_later_one_then_none_appears(world: World) -> None:
    world.jobs.register(JOB)
    world.jobs.raise_episode("job", "Rule", 1)
    assert world.jobs.load("job") == JOB


def test_given_open_and_closed_jobs_when_active_ones_are_asked_for_then_they_come_in_order(world: World) -> None:
    for name in ("b", "é", "a", "Z", "a-10", "a-2"):
        world.jobs.register(replace(JOB, job=name))
    world.jobs.register(replace(JOB, job="closed", active=False))
    world.jobs.update_status(replace(JOB, job="b", active=False))
    assert world.jobs.active() == ["Z", "a", "a-10", "a-2", "é"]


def test_given_a_registered_job_when_read_in_the_console_then_columns_have_the_agreed_names(
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
        urgent=False,
        setting_sources={"LowGPUUtilization_patience": "tag x"},
        setting_faults=("first", "second"),
        rules_elsewhere={"Exploding": "a rule of tensors"},
        rule_places={"Exploding": "s3://mine/"},
        tuning_job="tune",
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
        "Active": {"S": "yes"},
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
    }
    moto_world.jobs.update_status(replace(full, active=False))
    assert "Active" not in moto_world.job("job")


def test_given_jobs_open_and_closed_when_all_are_asked_for_then_each_comes_once_as_it_is_stored(world: World) -> None:
    records = [world.jobs.register(replace(JOB, job=name, active=name != "closed")) for name in ("b", "closed", "é")]
    assert sorted(world.jobs.all(), key=lambda record: record.job) == records


def test_given_more_jobs_than_a_page_holds_when_all_are_asked_for_then_none_is_left_out(
    moto_world: MotoUnderTest,
) -> None:
    settings = {"LowGPUUtilization_patience": "9" * 100_000}  # a page ends after a megabyte
    names = {moto_world.jobs.register(replace(JOB, job=f"job-{n}", rule_settings=settings)).job for n in range(25)}
    assert {record.job for record in moto_world.jobs.all()} == names


def test_given_no_job_when_all_are_asked_for_then_there_are_none(world: World) -> None:
    assert list(world.jobs.all()) == []


def test_given_an_item_of_a_time_before_policies_when_loaded_then_nobody_has_decided_anything(
    moto_world: MotoUnderTest,
) -> None:
    moto_world.jobs.register(JOB)
    moto_world.update_job("job", removed=("Evaluated", "EvaluatedBecause", "Alerts", "Stops"))
    assert moto_world.jobs.load("job") == JOB


@pytest.mark.parametrize("damaged", ["", "[]", '{"staged": 1}', '{"quiet_hours": [{"days": []}]}'])
def test_given_a_policy_that_cannot_be_read_when_loaded_then_the_error_names_the_item(
    moto_world: MotoUnderTest, damaged: str
) -> None:
    moto_world.jobs.register(JOB)
    moto_world.update_job("job", written={"Alerts": damaged})
    with pytest.raises(StateCodecError, match=r"Jobs/job has Codec 0: Alerts is no AlertPolicy"):
        moto_world.jobs.load("job")


OUTSIDE = replace(JOB, arn="unknown:job", status=JobStatus.COMPLETED, active=False, closing=True, close_asks=2)


@on_each_world
@given(drawn=job_records())
def test_given_any_record_when_it_takes_the_place_of_an_outside_job_then_nothing_of_that_is_left(
    world: World, drawn: JobRecord
) -> None:
    job = world.new_job()
    record = replace(drawn, job=job)
    world.jobs.register(
        replace(OUTSIDE, job=job, last_object_at=1.0, episodes={"Rule": 1}, file_fault="a fault", tuning_job="t")
    )
    assert world.jobs.recognise(record) == record
    assert world.jobs.load(job) == record
    assert (job in world.jobs.active()) is record.active


def test_given_a_job_that_sagemaker_knows_when_another_is_recognised_then_the_first_stands(world: World) -> None:
    world.jobs.register(OUTSIDE)
    first = world.jobs.recognise(replace(JOB, generation=1, rule_settings={"a": "b"}))
    assert world.jobs.recognise(replace(JOB, generation=1, prefix="another/")) == first == world.jobs.load("job")


def test_given_no_item_when_a_job_is_recognised_then_it_is_there(world: World) -> None:
    assert world.jobs.recognise(JOB) == JOB == world.jobs.load("job")


@pytest.mark.parametrize("status", JobStatus)
def test_given_a_job_that_sagemaker_has_come_to_know_when_an_outside_one_is_updated_then_nothing_is_written(
    world: World, status: JobStatus
) -> None:
    known = world.jobs.register(JOB)
    world.jobs.update_status(replace(OUTSIDE, status=status, file_fault="a fault", started_at=1.0, expires_at=2))
    assert world.jobs.load("job") == known


def test_given_a_fault_and_asks_when_updated_then_they_follow_and_go(world: World) -> None:
    world.jobs.register(JOB)
    asked = replace(JOB, file_fault="a fault", close_asks=3, close_asked_at=12.0, closing=True)
    world.jobs.update_status(asked)
    assert world.jobs.load("job") == asked
    world.jobs.update_status(JOB)
    assert world.jobs.load("job") == JOB


def test_given_a_question_when_another_comes_then_it_is_asked_no_sooner_than_that(world: World) -> None:
    world.jobs.register(OUTSIDE)
    asked = [world.jobs.ask("job", at, 300.0) for at in (10.0, 10.0, 309.999, 310.0, 311.0)]
    assert asked == [True, False, False, True, False]
    assert world.jobs.load("job") == replace(OUTSIDE, asked_at=310.0)


def test_given_no_item_when_asked_then_there_is_none_after_it(world: World) -> None:
    assert not world.jobs.ask("job", 10.0, 300.0)
    assert world.jobs.load("job") is None


@pytest.mark.parametrize(("known", "seen_by"), [(0, 1), (1, 0), (2, 1)])
def test_given_a_job_registered_anew_when_an_episode_of_the_time_before_ends_then_nothing_is_raised(
    world: World, known: int, seen_by: int
) -> None:
    stored = world.jobs.register(replace(JOB, generation=known))
    world.jobs.raise_episode("job", "Rule", 0, generation=seen_by)
    assert world.jobs.load("job") == stored
    world.jobs.raise_episode("job", "Rule", 0, generation=known)
    assert world.jobs.load("job") == replace(stored, episodes={"Rule": 1})


def test_given_active_jobs_when_one_is_urgent_then_it_alone_is_found_among_the_urgent_ones(world: World) -> None:
    for name in ("a", "b"):
        world.jobs.register(replace(JOB, job=name))
    assert (world.jobs.urgent(), world.jobs.calm()) == (["a", "b"], [])
    world.jobs.set_urgent("b", urgent=False)
    world.jobs.set_urgent("unknown", urgent=True)
    assert (world.jobs.urgent(), world.jobs.calm(), world.jobs.active()) == (["a"], ["b"], ["a", "b"])
    calm = world.jobs.load("b")
    assert calm is not None
    assert not calm.urgent
    world.jobs.update_status(replace(calm, closing=True))
    world.jobs.set_urgent("b", urgent=False)
    assert world.jobs.urgent() == ["a", "b"]
    world.jobs.update_status(replace(calm, closing=True, active=False))
    world.jobs.set_urgent("b", urgent=True)
    assert world.jobs.active() == ["a"]
    assert world.jobs.load("unknown") is None


def test_given_streams_that_nobody_names_when_admitted_then_there_are_as_many_as_may_be_and_more_are_noted(
    world: World,
) -> None:
    world.jobs.register(JOB)
    assert [world.jobs.admit_stream("job", 2) for _ in range(4)] == [True, True, False, False]
    assert world.jobs.load("job") == replace(JOB, other_streams=2, streams_left_out=True)
    world.jobs.recount_streams("job", 3, 0)
    world.jobs.recount_streams("job", 2, 1)
    assert world.jobs.admit_stream("job", 2)
    assert world.jobs.load("job") == replace(JOB, other_streams=2, streams_left_out=True)


def test_given_a_job_without_an_item_when_a_stream_is_admitted_then_it_is_and_no_item_appears(world: World) -> None:
    assert world.jobs.admit_stream("job", 1)
    world.jobs.recount_streams("job", 0, 5)
    assert world.jobs.load("job") is None


def test_given_names_that_objects_bring_when_counted_then_each_hour_takes_so_many_and_no_job_appears(
    world: World,
) -> None:
    assert [world.jobs.meet(at, 2) for at in (7_200.0, 10_799.0, 10_799.0, 10_800.0)] == [True, True, False, True]
    assert (list(world.jobs.all()), world.jobs.active()) == ([], [])
    assert world.jobs.load("met-jobs/1970010102") is None
