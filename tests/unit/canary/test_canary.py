"""The canary: the same bytes for the same time, found by the real engine, and judged by what came of it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.delivery import Network
from tests.support.memory import MemoryWorld
from tests.support.small_job import BUCKET, Upload
from trainguard.core.canary_name import CANARY_PREFIX, canary_name, is_canary, planted_at
from trainguard.core.finding import Finding
from trainguard.core.records import JobRecord, RuleRow, Status, StopRecord
from trainguard.engine.jobs.replay_names import JOB_NAME
from trainguard.stack.canary import FRESH_S, MINUTES, RULE, Canary, canary_objects, grade_canary

AT = 1_795_248_037.0
RUN = "6f1c0a52-3a34-4f0e-9d0b-0c2a"
JOB = canary_name(AT, RUN)
REPORT = f"{JOB}/rule-output/TrainGuardReport/report.json"
ARN = "arn:aws:sagemaker:eu-west-1:111122223333:training-job/"


@pytest.fixture
def world() -> MemoryWorld:
    world = MemoryWorld()
    world.objects.now = AT
    return world


@pytest.fixture
def canary(world: MemoryWorld) -> Canary:
    return Canary(bucket=BUCKET, objects=world.objects, rows=world.rows, jobs=world.jobs, journal=world.journal)


CLOSED = JobRecord(job=JOB, arn=f"unknown:{JOB}", bucket=BUCKET, prefix="", active=False)
REFUSED = StopRecord("refused", "SageMaker does not know a training job of this name", made=False)


def keys(world: MemoryWorld) -> list[str]:
    return [each.key for each in world.objects.list(BUCKET, "", "")]


def sent(*, status: Status = Status.FIRED, fired: int = 1, alert: str | None = "f1", report: bool = True) -> RuleRow:
    """Return the row of the canary's rule as the fire path leaves it."""
    row = RuleRow(
        job=JOB, finding=Finding(rule=RULE, node=None, reason="gpu0 is low."), status=status, times_fired=fired
    )
    page = f"s3://{BUCKET}/{REPORT}" if report else None
    return replace(
        row,
        fire_id="f1",
        stop=REFUSED,
        action="Training job not stopped.",
        action_at=AT + 42.0,
        alert_id=alert,
        report_uri=page,
    )


@given(st.floats(0, 4e9))
def test_canary_name_says_when_it_was_planted(at: float) -> None:
    assert planted_at(canary_name(at, RUN)) == int(at)


@pytest.mark.parametrize(
    "job",
    [
        "my-job",
        CANARY_PREFIX,
        f"{CANARY_PREFIX}of-somebody",
        f"{JOB}-2",
        f"x{JOB}",
        f"{CANARY_PREFIX}20261332-000000",
        f"{CANARY_PREFIX}20260101-00000\u0660",
    ],
)
def test_name_merely_like_a_canary_is_no_canary(job: str) -> None:
    assert planted_at(job) is None
    assert not is_canary(job, f"unknown:{job}", True)


def test_sagemaker_job_with_a_canary_name_is_no_canary() -> None:
    assert is_canary(JOB, f"unknown:{JOB}", None)
    assert not is_canary(JOB, f"{ARN}{JOB}", None)


def test_planting_twice_at_one_time_writes_the_same_few_objects(canary: Canary, world: MemoryWorld) -> None:
    assert canary.plant(AT, RUN) == JOB
    first = {key: world.objects.get(BUCKET, key, 10**6) for key in keys(world)}
    canary.plant(AT, RUN)
    assert {key: world.objects.get(BUCKET, key, 10**6) for key in keys(world)} == first
    assert len(first) == MINUTES + 2
    assert sum(map(len, first.values())) < 200_000
    assert all(key.startswith(f"{JOB}/") for key in first)


def test_planted_canary_has_the_last_whole_minutes() -> None:
    minutes = [int(key.rpartition("/")[2].partition(".")[0]) for key, _ in canary_objects(AT, RUN)[1:-1]]
    assert minutes == [1_795_247_980 // 60 * 60 - 60 * back for back in reversed(range(MINUTES))]
    assert minutes[-1] + 60 <= AT


def test_planting_removes_earlier_canaries_and_nothing_else(canary: Canary, world: MemoryWorld) -> None:
    others = [f"{CANARY_PREFIX}of-somebody/profiler-output/x.json", "my-job/model.tar.gz", f"{JOB}-2/x.json"]
    for key in others:
        world.objects.put(BUCKET, key, b"", "application/json")
    canary.plant(AT - 86_400.0, RUN)
    world.objects.put(
        BUCKET, f"{canary_name(AT - 86_400.0, RUN)}/rule-output/TrainGuardReport/report.json", b"", "text/html"
    )
    canary.plant(AT, RUN)
    assert {key for key in keys(world) if not key.startswith(f"{JOB}/")} == set(others)
    assert len(keys(world)) == len(others) + MINUTES + 2


@pytest.mark.parametrize("reordered", [False, True])
def test_doorbells_of_a_canary_fire_one_rule_once_and_close_it(
    reordered: bool,
) -> None:
    network = Network()
    planted = [Upload(AT, key, body) for key, body in canary_objects(AT, RUN)]
    for upload in planted:
        network.put(upload)
    for number, upload in enumerate(reversed(planted) if reordered else planted):
        network.announce(upload, AT + 1.0 + (number if reordered else 0.0))
    network.run_until(AT + 120.0, batch_s=1.0 if reordered else 20.0)
    network.run_scheduler()
    network.run_until(AT + 240.0, batch_s=20.0)
    network.run_scheduler()
    rows = {row.rule: row for row in network.world.rows.of_job(JOB) if row.node is None}
    (payload,) = (each for each in network.world.executions.started.values() if each["job"] == JOB)
    job = network.world.jobs.load(JOB)
    assert (payload["kind"], payload["rule"]) == ("fire", RULE)
    assert is_canary(JOB, str(payload["jobArn"]), None)
    assert rows[RULE].debugger_status == "IssuesFound"
    assert {row.rule for row in rows.values() if row.times_fired} <= {RULE, "ProfilerReport"}
    assert job is not None
    assert (job.active, job.setting_faults, job.stop_allowed) == (False, (), False)
    assert job.expires_at is not None


@pytest.mark.parametrize("default", ['{"evaluate": "off"}', '{"evaluate": "tagged", "alerts": {"staged": "all"}}'])
def test_canary_is_found_and_alerted_though_the_default_is_off(
    default: str,
) -> None:
    network = Network()
    network.world.settings.put(network.world.settings.default, default)
    for upload in (Upload(AT, key, body) for key, body in canary_objects(AT, RUN)):
        network.put(upload)
        network.announce(upload, AT + 1.0)
    network.run_until(AT + 120.0, batch_s=20.0)
    job = network.world.jobs.load(JOB)
    assert job is not None
    assert job.policy.evaluated
    assert not job.policy.alerts.is_staged(RULE)
    assert [each["rule"] for each in network.world.executions.started.values()] == [RULE]


def test_alerted_and_reported_canary_passes_with_its_latency(canary: Canary, world: MemoryWorld) -> None:
    canary.plant(AT, RUN)
    world.objects.put(BUCKET, REPORT, b"{}", "application/json")
    world.rows.record(sent())
    world.jobs.register(CLOSED)
    verdict = canary.look(AT + 900.0)
    assert (verdict.job, verdict.passed) == (JOB, True)
    assert world.journal.totals == {"canary_passed": 1}
    assert world.journal.times == (("canary_latency_seconds", 42.0 + AT % 1.0),)


def test_check_on_a_canary_of_yesterday_fails_as_none_planted(canary: Canary, world: MemoryWorld) -> None:
    canary.plant(AT, RUN)
    world.objects.put(BUCKET, REPORT, b"{}", "application/json")
    world.rows.record(sent())
    world.jobs.register(CLOSED)
    assert canary.look(AT + FRESH_S).passed
    late = canary.look(AT + FRESH_S + 1.0)
    assert late.missing == ("no canary was planted in the last 60 min",)
    assert world.journal.totals == {"canary_passed": 1, "canary_failed": 1}


def test_given_no_canary_when_looked_at_then_it_fails(canary: Canary, world: MemoryWorld) -> None:
    assert canary.look(AT).missing == ("no canary was planted in the last 60 min",)
    assert world.journal.entries[-1].where["reason"] == "no canary was planted in the last 60 min"


@pytest.mark.parametrize(
    ("stored", "keys", "said"),
    [
        (replace(sent(), stop=None), [REPORT], "nothing was decided about a stop"),
        (replace(sent(), stop=replace(REFUSED, decision="stop", made=True)), [REPORT], "stop is stop: SageMaker"),
        (None, [REPORT], "has no row"),
        (sent(status=Status.OK, fired=0), [REPORT], "says OK"),
        (sent(alert=None), [REPORT], "alert was not sent: Training job not stopped."),
        (sent(report=False), [REPORT], "report is not there"),
        (sent(), [f"{JOB}/job.json"], "report is not there"),
    ],
)
def test_single_missing_outcome_fails_the_check_and_is_named(
    stored: RuleRow | None, keys: list[str], said: str
) -> None:
    verdict = grade_canary(JOB, AT, stored, CLOSED, keys)
    (missing,) = verdict.missing
    assert said in missing
    assert (verdict.latency_s is None) == (stored is None or stored.alert_id is None)


def test_canary_passes_with_a_rule_that_fired_and_is_over() -> None:
    over = replace(sent(), status=Status.OK)
    assert grade_canary(JOB, AT, over, CLOSED, [REPORT]).passed


@pytest.mark.parametrize("record", [None, replace(CLOSED, active=True)])
def test_canary_whose_job_is_still_open_fails(record: JobRecord | None) -> None:
    (missing,) = grade_canary(JOB, AT, sent(), record, [REPORT]).missing
    assert "was not closed" in missing


def test_canary_names_of_one_second_are_unpredictable() -> None:
    names = {canary_name(AT, run) for run in (RUN, f"{RUN}1", "")}
    assert len(names) == 3
    assert all(len(name) <= 63 and JOB_NAME.fullmatch(name) for name in names)
    old = f"{CANARY_PREFIX}20261121-080037"
    assert (planted_at(old), old in names) == (AT, False)
    assert is_canary(old, f"unknown:{old}", None), "canaries of older versions still have rows"


@pytest.mark.parametrize("prefix", ["", "attacker/"])
def test_job_files_under_guessable_names_do_not_hide_a_canary(
    prefix: str,
) -> None:
    network = Network()
    muting = b'{"name": "%s", "status": "Completed", "settings": {"evaluate": "off", "muted": "all"}}'
    foretold = [f"{CANARY_PREFIX}20261121-0800{second}" for second in range(30, 45)] + ([JOB] if prefix else [])
    planted = [Upload(AT, key, body) for key, body in canary_objects(AT, RUN)]
    for upload in [
        *(Upload(AT - 60.0, f"{prefix}{name}/job.json", muting % name.encode()) for name in foretold),
        *planted,
    ]:
        network.put(upload)
        network.announce(upload, upload.at + 1.0)
    network.run_until(AT + 120.0, batch_s=20.0)
    job = network.world.jobs.load(JOB)
    assert job is not None
    assert (job.prefix, job.policy.evaluated, job.policy.alerts.muted) == ("", True, ())
    assert [each["job"] for each in network.world.executions.started.values() if each["kind"] == "fire"] == [JOB]


def test_folders_named_like_newer_canaries_hide_no_passed_one(canary: Canary, world: MemoryWorld) -> None:
    canary.plant(AT, RUN)
    world.objects.put(BUCKET, REPORT, b"{}", "application/json")
    world.rows.record(sent())
    world.jobs.register(CLOSED)
    for at in (AT + 1.0, AT + 600.0, AT + 3_000.0, AT + 86_400.0):
        world.objects.put(BUCKET, f"{canary_name(at, 'fake')}/job.json", b"{}", "application/json")
    assert (canary.look(AT + 900.0).job, canary.look(AT + 900.0).passed) == (JOB, True)
    world.rows.record(sent(status=Status.OK, fired=0))
    failed = canary.look(AT + 900.0)
    assert (failed.job, failed.passed) == (canary_name(AT + 600.0, "fake"), False)
