"""decide_stop and compose_alert as they are deployed, with the inputs that the state machine gives."""

import json
import time
from datetime import datetime
from typing import Any

import pytest

from tests.functional.deployment import (
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
from tests.functional.tables import RULE_STATE
from trainguard.adapters.clients import Clients
from trainguard.adapters.dynamodb_stop_budget import DynamoStopBudget
from trainguard.errors import PortUnavailableError
from trainguard.finding import Finding
from trainguard.plain_text import LONGEST_SENTENCE, mail_line
from trainguard.records import JobRecord, RuleRow, Status
from trainguard.timestamps import iso_time

FIRES = ["compose_alert", "compose_alert_stop_refused", "compose_alert_stop_failed"]
ALERTS = [*FIRES, "compose_alert_warning", "compose_alert_escalation", "compose_alert_cleared"]

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
def test_given_a_job_and_a_switch_when_a_fire_asks_then_only_an_opted_in_running_job_may_be_stopped(
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
    }
    assert why in answer.value["why"]
    (line,) = answer.logged
    assert (line["message"], line["job"], line["rule"], line["decision"]) == (
        "stop decision",
        JOB,
        "LowGPUUtilization",
        expected,
    )


def test_given_a_switch_that_is_thrown_between_two_fires_when_asked_then_the_second_obeys_it(
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
def test_given_an_override_when_an_upgrade_writes_the_stacks_parameter_again_then_nothing_is_stopped_all_the_same(
    deployment: Deployment, override: str, decision: str
) -> None:
    deployment.create_training_job()
    deployment.throw_stop_switch("disabled")
    deployment.throw_stop_switch(override, STOP_SWITCH_OVERRIDE)
    deployment.throw_stop_switch("enabled")
    answer = deployment.function("decide_stop")(recent_fire(deployment)).value
    assert (answer["stop"], answer["decision"]) == (False, decision)
    assert answer["why"].startswith(f"its override is '{override}'")


def test_given_an_override_that_allows_when_the_stack_forbids_then_nothing_is_stopped(deployment: Deployment) -> None:
    deployment.create_training_job()
    deployment.throw_stop_switch("disabled")
    deployment.throw_stop_switch("enabled", STOP_SWITCH_OVERRIDE)
    answer = deployment.function("decide_stop")(recent_fire(deployment)).value
    assert (answer["stop"], answer["why"]) == (False, "the stop switch is 'disabled'")


def test_given_a_grace_time_when_a_fire_asks_then_it_begins_and_takes_no_stop_of_the_hour(
    deployment: Deployment,
) -> None:
    deployment.create_training_job()
    decide = deployment.function("decide_stop")
    graced = recent_fire(deployment, name="decide_stop_final") | {"attempt": "first"}
    answer = decide(graced).value
    assert (answer["stop"], answer["decision"]) == (False, "grace")
    assert datetime.fromisoformat(answer["stopAt"]).timestamp() == pytest.approx(time.time() + 600.0, abs=20.0)
    assert deployment.world.row("*", "stops") == {}


@pytest.mark.parametrize(
    ("status", "stop", "why"),
    [(Status.FIRED, True, "which is in progress"), (Status.OK, False, "LowGPUUtilization no longer fires: low.")],
)
def test_given_a_grace_time_that_is_over_when_asked_then_the_row_says_whether_the_finding_is_still_there(
    deployment: Deployment, status: Status, stop: bool, why: str
) -> None:
    deployment.create_training_job()
    fire = recent_fire(deployment, name="decide_stop_final", age_s=3_600.0)
    publish(deployment, fire["rule"], status=status)
    answer = deployment.function("decide_stop")(fire).value
    assert answer["stop"] is stop
    assert why in answer["why"]


def test_given_a_grace_time_that_is_over_when_the_row_is_gone_then_nothing_is_stopped(deployment: Deployment) -> None:
    deployment.create_training_job()
    fire = recent_fire(deployment, name="decide_stop_final") | {"rule": "CPUBottleneck"}
    answer = deployment.function("decide_stop")(fire).value
    assert (answer["stop"], answer["why"]) == (False, "the row of CPUBottleneck is gone")


@pytest.mark.parametrize(
    ("node", "why"),
    [("algo-1", "LowGPUUtilization no longer fires on algo-1: low."), ("algo-2", "which is in progress")],
)
def test_given_a_fire_when_the_row_of_its_own_node_was_published_since_then_the_decision_looks_at_it(
    deployment: Deployment, node: str, why: str
) -> None:
    deployment.create_training_job()
    fire = recent_fire(deployment)
    publish(deployment, fire["rule"], status=Status.OK, node=node)
    answer = deployment.function("decide_stop")(fire).value
    assert (answer["stop"], why in answer["why"]) == (node != fire["node"], True)


def test_given_a_fire_of_the_whole_job_when_it_asks_then_it_may_stop(deployment: Deployment) -> None:
    deployment.create_training_job()
    assert deployment.function("decide_stop")(recent_fire(deployment) | {"node": "*"}).value["stop"]


@pytest.mark.parametrize("attempt", ["first", "final"])
def test_given_an_episode_that_has_ended_when_its_fire_asks_then_it_is_refused(
    deployment: Deployment, attempt: str
) -> None:
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
    return set(deployment.world.row("*", "stops").get("Stops", {"M": {}})["M"])


def test_given_several_rules_that_fire_on_a_job_at_once_when_each_asks_then_its_stop_is_counted_once(
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


def test_given_an_hour_that_is_full_of_other_jobs_when_a_fire_asks_then_it_is_refused_and_not_counted(
    deployment: Deployment,
) -> None:
    deployment.create_training_job()
    fire = recent_fire(deployment)
    budget = DynamoStopBudget(client=deployment.world.dynamodb, table=RULE_STATE)
    earlier = fire["jobArn"] + " 2026-01-01T00:00:00.000Z"
    for job in (earlier, *(f"other-{number}" for number in range(1, MAX_STOPS_PER_HOUR))):
        assert budget.take(f"of-{job}", job, now=time.time(), limit=MAX_STOPS_PER_HOUR)
    answer = deployment.function("decide_stop")(fire).value
    assert (answer["stop"], answer["decision"]) == (False, "refused")
    assert answer["why"].startswith(f"{MAX_STOPS_PER_HOUR} stops an hour are the ceiling of this deployment")
    assert fire["fireId"] not in counted(deployment)


def test_given_a_ceiling_shared_with_a_stack_of_another_region_when_stops_are_granted_then_they_are_counted_there(
    deployment: Deployment,
) -> None:
    elsewhere = Clients(session=offline_session(), region="eu-central-1").dynamodb
    created = elsewhere.create_table(
        TableName="Other-RuleState",
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"} for name in ("TrainingJobName", "RuleTarget")
        ],
        KeySchema=[
            {"AttributeName": "TrainingJobName", "KeyType": "HASH"},
            {"AttributeName": "RuleTarget", "KeyType": "RANGE"},
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    deployment.stop_budget_table = created["TableDescription"]["TableArn"]
    others = DynamoStopBudget(client=elsewhere, table="Other-RuleState")
    assert others.take("of-the-other-stack", "other-job", now=time.time(), limit=MAX_STOPS_PER_HOUR)
    deployment.create_training_job()
    assert deployment.function("decide_stop")(recent_fire(deployment)).value["stop"]
    assert not others.take("one-too-many", "one-more-job", now=time.time(), limit=MAX_STOPS_PER_HOUR)
    assert deployment.world.row("*", "stops") == {}


@pytest.mark.parametrize("switch", ["dry-run", "disabled"])
def test_given_a_fire_that_does_not_stop_when_decided_then_it_takes_no_stop_of_the_hour(
    deployment: Deployment, switch: str
) -> None:
    deployment.create_training_job()
    deployment.throw_stop_switch(switch)
    assert deployment.function("decide_stop")(recent_fire(deployment)).value["stop"] is False
    assert deployment.world.row("*", "stops") == {}


def test_given_a_later_job_of_the_same_name_when_a_fire_of_the_first_asks_then_it_is_refused(
    deployment: Deployment,
) -> None:
    deployment.create_training_job()
    fire = recent_fire(deployment) | {"jobCreatedAt": "2026-07-14T09:19:00.000Z"}
    answer = deployment.function("decide_stop")(fire).value
    assert (answer["stop"], "another job of that name" in answer["why"]) == (False, True)


def test_given_a_fire_of_long_ago_when_it_asks_then_it_is_refused(deployment: Deployment) -> None:
    deployment.create_training_job()
    answer = deployment.function("decide_stop")(recent_fire(deployment, age_s=2 * 3600))
    assert (answer.value["stop"], answer.value["decision"]) == (False, "refused")
    assert "120 min old" in answer.value["why"]


def test_given_a_job_that_sagemaker_does_not_know_when_a_fire_asks_then_it_is_refused(deployment: Deployment) -> None:
    answer = deployment.function("decide_stop")(recent_fire(deployment))
    assert (answer.value["stop"], answer.value["decision"]) == (False, "refused")


def test_given_a_switch_that_is_gone_when_a_fire_asks_then_the_state_machine_learns_that_nothing_was_decided(
    deployment: Deployment,
) -> None:
    deployment.create_training_job()
    deployment.clients.ssm.delete_parameter(Name="/TrainGuard/stop-switch")
    with pytest.raises(PortUnavailableError, match="ParameterNotFound"):
        deployment.function("decide_stop")(recent_fire(deployment))


def test_given_a_warning_whose_stop_is_past_when_composed_then_it_is_not_sent_so_that_nothing_is_stopped(
    deployment: Deployment,
) -> None:
    answer = deployment.function("compose_alert")(event("compose_alert_warning"))
    assert answer.value["send"] is False
    assert answer.metrics == {}


@pytest.mark.parametrize("name", ALERTS)
def test_given_a_fire_when_its_alert_is_composed_then_it_is_what_sns_takes(deployment: Deployment, name: str) -> None:
    given = event(name)
    if "warning" in name:
        given["decision"]["stopAt"] = iso_time(time.time() + 600.0)
    alert = deployment.function("compose_alert")(given).value
    assert set(alert) == {
        "alertId", "subject", "text", "document", "json", "chat", "attributes", "action", "send", "waitUntil",
        "waiting",
    }  # fmt: skip
    assert json.loads(alert["json"]) == alert["document"]
    assert json.loads(alert["chat"])["source"] == "custom"
    assert (alert["send"], alert["waitUntil"]) == (True, None)
    assert alert["subject"].isascii()
    assert alert["subject"].isprintable()
    assert len(alert["subject"]) < 100
    document = json.loads(alert["json"])
    kind = given["fire"]["kind"]
    named = given["fire"]["alertId"] + ("-warning" if kind == "warning" else "")
    made = given.get("stop", {"made": False})["made"]
    assert alert["alertId"] == named
    assert (document["alert_id"], document["job"], document["rule"]) == (
        named,
        JOB,
        given["fire"]["rule"],
    )
    assert document["stop"]["made"] is made
    assert given["fire"]["reason"] in alert["text"]
    assert f"\nOpen it in the console: {given['fire']['reportLink']}\n" in alert["text"]
    assert f"\nOr with a link: trainguard open {JOB}\n" in alert["text"]
    assert alert["attributes"] == {
        attribute: {"DataType": "String", "StringValue": value}
        for attribute, value in {
            "AlertId": named,
            "Job": JOB,
            "Rule": "LowGPUUtilization",
            "Kind": kind,
            "Severity": given["fire"]["severity"],
            "Stopped": "true" if made else "false",
        }.items()
    }


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("compose_alert", "Training job stopped: "),
        ("compose_alert_stop_refused", "Training job not stopped: "),
        ("compose_alert_stop_failed", "Stopping the training job failed: SageMaker.AccessDeniedException"),
    ],
)
def test_given_what_became_of_the_stop_when_the_alert_is_composed_then_text_document_and_row_agree(
    deployment: Deployment, name: str, action: str
) -> None:
    alert = deployment.function("compose_alert")(event(name)).value
    assert alert["action"].startswith(action)
    assert mail_line(f"Action: {alert['action']}", LONGEST_SENTENCE) in alert["text"].split("\n")
    assert json.loads(alert["json"])["action"] == alert["action"]
