"""decide_stop and compose_alert as they are deployed, with the inputs that the state machine gives."""

import json
import time
from typing import Any

import pytest

from tests.functional.deployment import JOB, OPTED_IN, Deployment, event
from trainguard.engine.fires import iso_time
from trainguard.errors import PortUnavailableError

ALERTS = ["compose_alert", "compose_alert_stop_refused", "compose_alert_stop_failed"]

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")


def recent_fire(*, age_s: float = 60.0) -> dict[str, Any]:
    """Return the recorded fire as if it had happened just now: the function has a clock of its own."""
    fire: dict[str, Any] = event("decide_stop")
    return fire | {"firedAt": iso_time(time.time() - age_s)}


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
    answer = deployment.function("decide_stop")(recent_fire())
    assert answer.value == {"stop": expected == "stop", "decision": expected, "why": answer.value["why"]}
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
    assert decide(recent_fire()).value["stop"] is True
    deployment.throw_stop_switch("disabled")
    assert decide(recent_fire()).value["stop"] is False


def test_given_a_fire_of_long_ago_when_it_asks_then_it_is_refused(deployment: Deployment) -> None:
    deployment.create_training_job()
    answer = deployment.function("decide_stop")(recent_fire(age_s=2 * 3600))
    assert (answer.value["stop"], answer.value["decision"]) == (False, "refused")
    assert "120 min old" in answer.value["why"]


def test_given_a_job_that_sagemaker_does_not_know_when_a_fire_asks_then_it_is_refused(deployment: Deployment) -> None:
    answer = deployment.function("decide_stop")(recent_fire())
    assert (answer.value["stop"], answer.value["decision"]) == (False, "refused")


def test_given_a_switch_that_is_gone_when_a_fire_asks_then_the_state_machine_learns_that_nothing_was_decided(
    deployment: Deployment,
) -> None:
    deployment.create_training_job()
    deployment.clients.ssm.delete_parameter(Name="/TrainGuard/stop-switch")
    with pytest.raises(PortUnavailableError, match="ParameterNotFound"):
        deployment.function("decide_stop")(recent_fire())


@pytest.mark.parametrize("name", ALERTS)
def test_given_a_fire_when_its_alert_is_composed_then_it_is_what_sns_takes(deployment: Deployment, name: str) -> None:
    given = event(name)
    alert = deployment.function("compose_alert")(given).value
    assert set(alert) == {"subject", "text", "json", "attributes", "action"}
    assert alert["subject"].isascii()
    assert alert["subject"].isprintable()
    assert len(alert["subject"]) < 100
    document = json.loads(alert["json"])
    assert (document["alert_id"], document["job"], document["rule"]) == (
        given["fire"]["fireId"],
        JOB,
        given["fire"]["rule"],
    )
    assert document["stop"]["made"] is given["stop"]["made"]
    assert given["fire"]["reason"] in alert["text"]
    assert f"\nOpen it in the console: {given['fire']['reportLink']}\n" in alert["text"]
    assert f"\nOr by a link of its own: trainguard open {JOB}\n" in alert["text"]
    assert alert["attributes"] == {
        attribute: {"DataType": "String", "StringValue": value}
        for attribute, value in {
            "AlertId": given["fire"]["fireId"],
            "Job": JOB,
            "Rule": "LowGPUUtilization",
            "Kind": "fire",
            "Stopped": "true" if given["stop"]["made"] else "false",
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
    assert f"Action: {alert['action']}\n" in alert["text"]
    assert json.loads(alert["json"])["action"] == alert["action"]
