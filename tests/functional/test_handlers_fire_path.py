"""decide_stop, compose_alert and build_report as they are deployed, with the inputs that the state machine gives."""

import json
import time
from typing import Any

import pytest
from moto.s3.models import FakeKey, S3Backend

from tests.functional.deployment import (
    BUCKET,
    JOB,
    OPTED_IN,
    PREFIX,
    Deployment,
    doorbell,
    event,
    recorded_objects,
    ringing,
)
from trainguard.engine.fires import iso_time
from trainguard.errors import PortUnavailableError, UnknownJobError
from trainguard.rules.registry import RULE_NAMES

REPORT = f"{PREFIX}{JOB}/rule-output/TrainGuardReport/"
REPORT_URI = f"s3://{BUCKET}/{REPORT}report.json"
MANAGED_FIELDS = ["RuleTriggered", "Violations", "Details", "Datapoints", "RuleParameters"]
RULES = sorted(RULE_NAMES)
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


@pytest.fixture
def evaluated(deployment: Deployment) -> Deployment:
    """Return a deployment that has evaluated the recorded job up to its fire."""
    deployment.create_training_job()
    seen = [each for each in recorded_objects() if each.appears_at < 1_784_022_181]
    deployment.put(seen)
    deployment.function("evaluate_objects")(ringing([doorbell(each.key, at=each.appears_at) for each in seen]))
    return deployment


def body(deployment: Deployment, key: str) -> Any:
    return json.loads(deployment.world.objects.get(BUCKET, key, 10_000_000))


def test_given_a_fire_when_the_report_is_built_then_every_rule_has_the_managed_service_s_five_fields(
    evaluated: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    put = S3Backend.put_object

    def put_object(self: S3Backend, bucket_name: str, key_name: str, *rest: Any, **named: Any) -> FakeKey:
        written.append(key_name)
        return put(self, bucket_name, key_name, *rest, **named)

    monkeypatch.setattr(S3Backend, "put_object", put_object)
    answer = evaluated.function("build_report")(event("build_report_fire"))
    assert answer.value == {"reportUri": REPORT_URI, "files": 12}
    assert answer.value["reportUri"] == event("build_report_fire")["reportUri"]
    assert written == [*(f"{REPORT}profiler-reports/{rule}.json" for rule in RULES), f"{REPORT}report.json"]
    for rule in RULES:
        assert list(body(evaluated, f"{REPORT}profiler-reports/{rule}.json")) == MANAGED_FIELDS
    fired = body(evaluated, f"{REPORT}profiler-reports/LowGPUUtilization.json")
    assert (fired["RuleTriggered"], fired["Violations"] > 0, fired["Datapoints"] > 0) == (1, True, True)
    assert "threshold_p95:70" in fired["RuleParameters"]
    document = body(evaluated, f"{REPORT}report.json")
    assert (document["job"]["name"], document["final"], document["healthy"]) == (JOB, False, False)
    assert document["fired"] == [finding["rule"] for finding in document["findings"]] == ["LowGPUUtilization"]
    (finding,) = document["findings"]
    assert document["verdict"].startswith(f"LowGPUUtilization ({finding['severity']}): {finding['reason']}")
    assert finding["advice"]
    assert 0.0 < finding["cost"]["lost"] < finding["cost"]["spent"] == document["cost"]["spent"]
    assert "us-east-1" in document["cost"]["note"]


def test_given_the_end_of_a_job_when_the_report_is_built_then_it_is_final_and_takes_the_first_one_s_place(
    evaluated: Deployment,
) -> None:
    evaluated.function("build_report")(event("build_report_fire"))
    evaluated.set_status("Completed")
    evaluate = evaluated.function("evaluate_objects")
    evaluate(event("sqs_training_job_end"))
    evaluate(evaluated.tasks())
    assert evaluated.function("build_report")(event("build_report_end")).value["reportUri"] == REPORT_URI
    assert body(evaluated, f"{REPORT}report.json")["final"] is True


def test_given_a_report_s_key_when_it_rings_then_it_is_no_profile(evaluated: Deployment) -> None:
    uri = evaluated.function("build_report")(event("build_report_fire")).value["reportUri"]
    key = uri.removeprefix(f"s3://{BUCKET}/")
    answer = evaluated.function("evaluate_objects")(ringing([doorbell(key, at=1_784_022_200)]))
    assert answer.metrics == {"ForeignKeys": 1}


def test_given_a_job_that_is_not_known_when_its_report_is_asked_for_then_the_error_names_it(
    deployment: Deployment,
) -> None:
    with pytest.raises(UnknownJobError, match=JOB):
        deployment.function("build_report")(event("build_report_end"))
