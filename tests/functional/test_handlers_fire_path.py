"""The functions of the fire path as they are deployed, with the inputs that the state machine gives."""

import time
from datetime import datetime
from typing import Any

import pytest
from moto.ssm.exceptions import ValidationException
from moto.ssm.models import SimpleSystemManagerBackend

from tests.functional.deployment import (
    BRAKES,
    BUCKET,
    JOB,
    MAX_STOPS_PER_HOUR,
    OPTED_IN,
    PREFIX,
    STOP_SWITCH_OVERRIDE,
    Deployment,
    event,
)
from tests.functional.offline import offline_session
from tests.functional.tables import BOOKKEEPING
from tests.support.faults import Fault, Faults
from tests.support.memory import MemoryStopLimit
from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.fire_path import DynamoStopBudget
from trainguard.core.brakes import Braked, new_brake, written_brakes
from trainguard.core.errors import PortUnavailableError
from trainguard.core.finding import Finding
from trainguard.core.records import JobRecord, JobStatus, RuleRow, Status
from trainguard.core.timestamps import iso_time

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")


def recent_fire(deployment: Deployment, *, age_s: float = 60.0, name: str = "decide_stop") -> dict[str, Any]:
    """Return the recorded fire as if it had happened just now: function and SageMaker have clocks of their own."""
    fire: dict[str, Any] = event(name)
    described = deployment.world.training_jobs.describe(JOB)
    known = {} if described is None else {"jobArn": described.arn, "jobCreatedAt": iso_time(described.created_at or 0)}
    recent = fire | known | {"firedAt": iso_time(time.time() - age_s)}
    marked(deployment, recent)
    return recent


def marked(deployment: Deployment, fire: dict[str, Any]) -> None:
    """Let job and row be as the state machine finds and leaves them: registered, and named after the fire."""
    deployment.world.jobs.register(JobRecord(JOB, fire["jobArn"], BUCKET, PREFIX))
    deployment.world.update_row(
        JOB,
        fire["rule"],
        {"FireId": {"S": fire["fireId"]}, "Status": {"S": "FIRED"}, "Reason": {"S": fire["reason"]}},
    )


def publish(deployment: Deployment, rule: str, *, status: Status = Status.FIRED, node: str | None = None) -> None:
    """Let a row of the rule be as it was published half a minute ago."""
    row = RuleRow(JOB, Finding(rule, node, "low."), status, evaluated_through=time.time() - 30.0)
    deployment.world.rows.publish([row])


@pytest.mark.parametrize(
    ("tags", "status", "switch", "expected", "why"),
    [
        (OPTED_IN, "InProgress", "enabled", "stop", "which is in progress"),
        (OPTED_IN, "InProgress", "dry-run", "dry-run", "would have been stopped"),
        (OPTED_IN, "InProgress", "disabled", "refused", "the stop switch is 'disabled'"),
        (OPTED_IN, "InProgress", "Enabled", "refused", "the stop switch is 'Enabled'"),
        ({}, "InProgress", "enabled", "refused", "has no tag trainguard:stop-on-fire"),
        ({"trainguard:stop-on-fire": "Allowed"}, "InProgress", "enabled", "refused", "has the value 'Allowed'"),
        (OPTED_IN, "Completed", "enabled", "refused", "is Completed"),
        (OPTED_IN, "Failed", "enabled", "refused", "is Failed"),
        (OPTED_IN, "Stopped", "enabled", "refused", "is Stopped"),
        (OPTED_IN, "Stopping", "enabled", "refused", "is Stopping"),
        ({}, "InProgress", "dry-run", "refused", "has no tag"),
    ],
)
def test_only_an_opted_in_running_job_may_be_stopped(
    deployment: Deployment, tags: dict[str, str], status: str, switch: str, expected: str, why: str
) -> None:
    deployment.create_training_job(tags=tags, status=status)
    deployment.throw_stop_switch(switch)
    answer = deployment.function("decide_stop")(recent_fire(deployment))
    assert answer.value == {
        "stop": expected == "stop",
        "decision": expected,
        "why": answer.value["why"],
        "stopAt": None,
        "optedIn": tags == OPTED_IN,
        "kind": "",
        "action": "",
    }
    assert why in answer.value["why"]
    (line,) = answer.logged
    assert (line["message"], line["job"], line["rule"], line["decision"]) == (
        "stop decision",
        JOB,
        "LowGPUUtilization",
        expected,
    )


def test_switch_changed_between_fires_applies_to_the_second(
    deployment: Deployment,
) -> None:
    deployment.create_training_job()
    decide = deployment.function("decide_stop")
    assert decide(recent_fire(deployment)).value["stop"] is True
    deployment.throw_stop_switch("disabled")
    assert decide(recent_fire(deployment)).value["stop"] is False


@pytest.mark.parametrize(
    ("override", "decision"), [("disabled", "refused"), ("dry-run", "dry-run"), ("Disabled", "refused")]
)
def test_override_forbids_stops_through_an_upgrade(deployment: Deployment, override: str, decision: str) -> None:
    deployment.create_training_job()
    deployment.throw_stop_switch("disabled")
    deployment.throw_stop_switch(override, STOP_SWITCH_OVERRIDE)
    deployment.throw_stop_switch("enabled")
    answer = deployment.function("decide_stop")(recent_fire(deployment)).value
    assert (answer["stop"], answer["decision"]) == (False, decision)
    assert answer["why"].startswith(f"its override is '{override}'")


def test_brake_forbids_stops_from_the_next_decision_on(deployment: Deployment) -> None:
    deployment.create_training_job()
    decide = deployment.function("decide_stop")
    assert decide(recent_fire(deployment)).value["stop"] is True
    brake = new_brake("b-1", Braked.STOPS, by="ada", why="an audit", now=time.time())
    deployment.clients.ssm.put_parameter(Name=BRAKES, Value=written_brakes([brake], now=time.time()), Type="String")
    answer = decide(recent_fire(deployment)).value
    assert (answer["stop"], answer["decision"]) == (False, "refused")
    assert answer["why"].startswith("an operator has braked stops on all jobs: brake b-1 of ada")


def test_brakes_that_are_denied_leave_the_stop_undecided(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.create_training_job()
    decide = deployment.function("decide_stop")
    read = SimpleSystemManagerBackend.get_parameter

    def denied(backend: SimpleSystemManagerBackend, name: str) -> Any:
        if name == BRAKES:
            raise ValidationException("nobody may read it now")
        return read(backend, name)

    monkeypatch.setattr(SimpleSystemManagerBackend, "get_parameter", denied)
    with pytest.raises(PortUnavailableError, match="nobody may read it now"):
        decide(recent_fire(deployment))


def test_allowing_override_does_not_beat_a_forbidding_stack(deployment: Deployment) -> None:
    deployment.create_training_job()
    deployment.throw_stop_switch("disabled")
    deployment.throw_stop_switch("enabled", STOP_SWITCH_OVERRIDE)
    answer = deployment.function("decide_stop")(recent_fire(deployment)).value
    assert (answer["stop"], answer["why"]) == (False, "the stop switch is 'disabled'")


def test_grace_time_begins_without_taking_a_stop_of_the_hour(
    deployment: Deployment,
) -> None:
    deployment.create_training_job()
    decide = deployment.function("decide_stop")
    graced = recent_fire(deployment, name="decide_stop_final") | {"attempt": "first"}
    answer = decide(graced).value
    assert (answer["stop"], answer["decision"]) == (False, "grace")
    assert datetime.fromisoformat(answer["stopAt"]).timestamp() == pytest.approx(time.time() + 600.0, abs=20.0)
    assert deployment.world.entry("stops", "last-hour") == {}


def test_organisations_limit_has_the_last_word_and_none_is_no(deployment: Deployment) -> None:
    deployment.create_training_job()
    decide = deployment.function("decide_stop")
    faults = Faults()
    stop_limit = MemoryStopLimit(faults=faults, limit=1)
    vars(decide.module)["stop_limit"] = stop_limit
    fire = recent_fire(deployment)
    assert decide(fire).value["stop"] is True
    assert decide(fire).value["stop"] is True, "a repetition is the same stop"
    stop_limit.limit = 0
    answer = decide(fire).value
    assert (answer["stop"], answer["decision"], answer["optedIn"]) == (False, "refused", True)
    assert answer["why"] == "the organisation makes at most 0 stops an hour, and the last hour has had them"
    faults.schedule("StopLimit.ask", Fault.FAIL_BEFORE)
    with pytest.raises(PortUnavailableError):
        decide(fire)


@pytest.mark.parametrize(
    ("status", "stop", "why"),
    [(Status.FIRED, True, "which is in progress"), (Status.OK, False, "LowGPUUtilization no longer fires: low.")],
)
def test_row_after_grace_time_says_if_the_finding_remains(
    deployment: Deployment, status: Status, stop: bool, why: str
) -> None:
    deployment.create_training_job()
    fire = recent_fire(deployment, name="decide_stop_final", age_s=3_600.0)
    publish(deployment, fire["rule"], status=status)
    answer = deployment.function("decide_stop")(fire).value
    assert answer["stop"] is stop
    assert why in answer["why"]


def test_missing_row_after_grace_time_stops_nothing(deployment: Deployment) -> None:
    deployment.create_training_job()
    fire = recent_fire(deployment, name="decide_stop_final") | {"rule": "CPUBottleneck"}
    answer = deployment.function("decide_stop")(fire).value
    assert (answer["stop"], answer["why"]) == (False, "the row of CPUBottleneck is gone")


@pytest.mark.parametrize(
    ("node", "why"),
    [("algo-1", "LowGPUUtilization no longer fires on algo-1: low."), ("algo-2", "which is in progress")],
)
def test_decision_reads_the_row_published_for_the_node(deployment: Deployment, node: str, why: str) -> None:
    deployment.create_training_job()
    fire = recent_fire(deployment)
    publish(deployment, fire["rule"], status=Status.OK, node=node)
    answer = deployment.function("decide_stop")(fire).value
    assert (answer["stop"], why in answer["why"]) == (node != fire["node"], True)


def test_fire_of_the_whole_job_may_stop(deployment: Deployment) -> None:
    deployment.create_training_job()
    assert deployment.function("decide_stop")(recent_fire(deployment) | {"node": "*"}).value["stop"]


@pytest.mark.parametrize("attempt", ["first", "final"])
def test_fire_of_an_ended_episode_is_refused(deployment: Deployment, attempt: str) -> None:
    deployment.create_training_job()
    fire = recent_fire(deployment, name="decide_stop_final") | {"attempt": attempt}
    publish(deployment, fire["rule"])
    deployment.world.jobs.raise_episode(JOB, fire["rule"], fire["episode"])
    answer = deployment.function("decide_stop")(fire).value
    assert (answer["stop"], answer["why"]) == (
        False,
        f"the finding of {fire['rule']} is over: its episode {fire['episode']} has ended",
    )


def counted(deployment: Deployment) -> set[str]:
    """Return the fires whose stops the last hour has."""
    return set(deployment.world.entry("stops", "last-hour").get("Stops", {"M": {}})["M"])


def test_simultaneous_fires_of_a_job_count_one_stop(
    deployment: Deployment,
) -> None:
    deployment.create_training_job()
    decide = deployment.function("decide_stop")
    answers = []
    for number in range(MAX_STOPS_PER_HOUR + 1):
        fire = recent_fire(deployment) | {"fireId": f"fire-{number}"}
        marked(deployment, fire)
        answers += [decide(fire).value["stop"], decide(fire).value["stop"]]
    assert all(answers)
    assert counted(deployment) == {"fire-0"}


def test_fire_in_a_full_hour_is_refused_and_not_counted(
    deployment: Deployment,
) -> None:
    deployment.create_training_job()
    fire = recent_fire(deployment)
    budget = DynamoStopBudget(client=deployment.world.dynamodb, table=BOOKKEEPING)
    earlier = fire["jobArn"] + " 2026-01-01T00:00:00.000Z"
    for job in (earlier, *(f"other-{number}" for number in range(1, MAX_STOPS_PER_HOUR))):
        assert budget.take(f"of-{job}", job, now=time.time(), limit=MAX_STOPS_PER_HOUR)
    answer = deployment.function("decide_stop")(fire).value
    assert (answer["stop"], answer["decision"]) == (False, "refused")
    assert answer["why"].startswith(f"this deployment makes at most {MAX_STOPS_PER_HOUR} stops an hour")
    assert fire["fireId"] not in counted(deployment)


def test_shared_ceiling_counts_stops_in_the_other_region(
    deployment: Deployment,
) -> None:
    elsewhere = Clients(session=offline_session(), region="eu-central-1").dynamodb
    created = elsewhere.create_table(
        TableName="Other-Bookkeeping",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("Purpose", "Id")],
        KeySchema=[{"AttributeName": "Purpose", "KeyType": "HASH"}, {"AttributeName": "Id", "KeyType": "RANGE"}],
        BillingMode="PAY_PER_REQUEST",
    )
    deployment.stop_budget_table = created["TableDescription"]["TableArn"]
    others = DynamoStopBudget(client=elsewhere, table="Other-Bookkeeping")
    assert others.take("of-the-other-stack", "other-job", now=time.time(), limit=MAX_STOPS_PER_HOUR)
    deployment.create_training_job()
    assert deployment.function("decide_stop")(recent_fire(deployment)).value["stop"]
    assert not others.take("one-too-many", "one-more-job", now=time.time(), limit=MAX_STOPS_PER_HOUR)
    assert deployment.world.entry("stops", "last-hour") == {}


@pytest.mark.parametrize("switch", ["dry-run", "disabled"])
def test_fire_without_a_stop_takes_none_of_the_hour(deployment: Deployment, switch: str) -> None:
    deployment.create_training_job()
    deployment.throw_stop_switch(switch)
    assert deployment.function("decide_stop")(recent_fire(deployment)).value["stop"] is False
    assert deployment.world.entry("stops", "last-hour") == {}


def test_fire_of_an_earlier_job_of_the_name_is_refused(
    deployment: Deployment,
) -> None:
    deployment.create_training_job()
    fire = recent_fire(deployment) | {"jobCreatedAt": "2026-07-14T09:19:00.000Z"}
    answer = deployment.function("decide_stop")(fire).value
    assert (answer["stop"], "another job of that name" in answer["why"]) == (False, True)


def test_old_fire_is_refused(deployment: Deployment) -> None:
    deployment.create_training_job()
    answer = deployment.function("decide_stop")(recent_fire(deployment, age_s=2 * 3600))
    assert (answer.value["stop"], answer.value["decision"]) == (False, "refused")
    assert "120 min old" in answer.value["why"]


def test_fire_of_a_job_unknown_to_sagemaker_is_refused(deployment: Deployment) -> None:
    answer = deployment.function("decide_stop")(recent_fire(deployment))
    assert (answer.value["stop"], answer.value["decision"]) == (False, "refused")


def test_missing_switch_is_reported_as_undecided(
    deployment: Deployment,
) -> None:
    deployment.create_training_job()
    deployment.clients.ssm.delete_parameter(Name="/TrainGuard/stop-switch")
    with pytest.raises(PortUnavailableError, match="ParameterNotFound"):
        deployment.function("decide_stop")(recent_fire(deployment))


def stop(deployment: Deployment, fire: dict[str, Any]) -> Any:
    """Let a decision to stop be carried out."""
    decision = {"stop": True, "decision": "stop", "why": "the tag allows it", "stopAt": None, "optedIn": True}
    return deployment.function("stop_job")({"fire": fire, "decision": decision}).value


def test_opted_in_job_is_stopped_and_the_row_says_so(deployment: Deployment) -> None:
    deployment.create_training_job()
    fire = recent_fire(deployment)
    assert stop(deployment, fire)["stop"] == {"made": True, "error": None, "pending": False}
    described = deployment.world.training_jobs.describe(JOB)
    assert described is not None
    assert described.status is not JobStatus.IN_PROGRESS
    row = deployment.world.row(JOB, fire["rule"])
    assert (row["StopMade"], row["StopDecision"], row["StopFireId"]["S"]) == (
        {"BOOL": True},
        {"S": "stop"},
        fire["fireId"],
    )


def test_job_that_is_gone_is_not_said_to_be_stopped(deployment: Deployment) -> None:
    fire = event("decide_stop")
    marked(deployment, fire)
    answer = stop(deployment, fire)
    assert answer["stop"]["made"] is None
    assert answer["faults"][0].startswith("StopJob: SageMaker.StopTrainingJob failed: ")
    assert deployment.world.row(JOB, fire["rule"])["StopMade"] == {"NULL": True}


def test_fire_is_marked_and_its_report_and_alert_recorded(deployment: Deployment) -> None:
    fire = event("send_alert")["fire"]
    record = deployment.function("record_fire")
    for written in ({}, {"alert": {"action": "sent", "alertId": "a"}}, {"reportUri": "s3://page"}):
        assert record({"fire": fire} | written).value == {}
    row = deployment.world.row(JOB, fire["rule"])
    said = {name: row[name]["S"] for name in ("Status", "FireId", "Action", "AlertId", "ReportUri")}
    assert [*said.values()] == ["FIRED", fire["fireId"], "sent", "a", "s3://page"]


@pytest.mark.parametrize("kind", ["notice", "deadline"])
def test_what_is_about_no_rule_has_no_row(deployment: Deployment, kind: str) -> None:
    fire = event("send_alert")["fire"] | {"kind": kind}
    deployment.function("record_fire")({"fire": fire, "alert": {"action": "sent"}})
    assert deployment.world.row(JOB, fire["rule"]) == {}
