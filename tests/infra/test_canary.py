"""The canary as it is deployed: its schedules, its reach that ends at its prefix, subscribers that leave it out."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from infra.constructs.canary import CANARY_KIND, CANARY_PREFIX
from tests.infra.states_language import Ending
from tests.infra.template import Template
from tests.infra.test_fire_machine import ALERT, FIRE, REFUSED, execute, machine
from trainguard import canary_name as name
from trainguard.canary.call import LOOKED_AFTER_MINUTES, CanaryCall
from trainguard.canary.run import FRESH_S

__all__ = ["machine"]

CANARY = {**FIRE, "job": "trainguard-canary-20260801-060000", "jobArn": "unknown:trainguard-canary-20260801-060000"}
ATTRIBUTE = {"DataType": "String", "StringValue": "canary"}


def test_given_the_canarys_names_when_compared_then_stack_and_code_agree() -> None:
    assert (CANARY_PREFIX, CANARY_KIND) == (name.CANARY_PREFIX, name.CANARY_KIND)


def test_given_the_schedule_when_it_comes_then_it_leaves_the_step_to_the_function_with_its_own_time(
    template: Template,
) -> None:
    schedule = template.one("AWS::Events::Rule", "CanaryDaily")
    (target,) = schedule["Targets"]
    assert schedule["ScheduleExpression"] == "cron(0,15 6 * * ? *)"
    assert target["InputTransformer"]["InputPathsMap"] == {"time": "$.time"}
    assert target["DeadLetterConfig"] == {"Arn": "{IngestEventDeadLetters.Arn}"}
    days = [f"2026-08-{day:02}T06:{minute:02}:00Z" for day in range(3, 10) for minute in (0, 15)]
    asked = [target["InputTransformer"]["InputTemplate"].replace("<time>", f'"{time}"') for time in days]
    due = [msgspec.json.decode(each, type=CanaryCall).due for each in asked]
    assert due == ["plant", "look", *[None] * 12]
    assert LOOKED_AFTER_MINUTES * 60 < FRESH_S


def test_given_the_canarys_role_when_read_then_it_reaches_canaries_alone(template: Template) -> None:
    statements = {statement.sid: statement for role, statement in template.role_statements() if role == "CanaryRole"}
    assert statements["PlantCanaries"].resources == ("arn:{AWS::Partition}:s3:::{StorageProfiles}/trainguard-canary-*",)
    assert statements["ListCanaries"].condition == {"StringLike": {"s3:prefix": "trainguard-canary-*"}}
    assert statements["ReadRowsOfCanaries"].condition == {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": "trainguard-canary-*"}
    }


def test_given_people_who_get_alerts_by_mail_when_a_canary_is_told_then_they_are_left_out(variants: Path) -> None:
    template = Template(variants / "person" / "TrainGuard.template.json")
    policies = [
        subscription.properties.get("FilterPolicy")
        for subscription in template.of_type("AWS::SNS::Subscription").values()
        if subscription.properties["TopicArn"] == "{ActionsAlerts}"
    ]
    assert policies == [{"Kind": [{"anything-but": ["canary"]}]}] * 2


def test_given_a_deployment_without_canary_when_synthesised_then_nothing_of_it_is_there(variants: Path) -> None:
    template = Template(variants / "without-canary" / "TrainGuard.template.json")
    assert not [resource.name for resource in template.resources if resource.name.startswith("Canary")]


def test_given_a_canary_when_its_fire_is_handled_then_the_topic_is_told_and_no_chat(machine: dict[str, Any]) -> None:
    attributes: Any = ALERT["attributes"]
    told = ALERT | {"attributes": attributes | {"Kind": ATTRIBUTE}}
    execution, ending = execute(machine, CANARY, decision=REFUSED, alert=told)
    names = {name for name, _ in execution.calls}
    assert ending == Ending("SUCCEEDED")
    assert {"PublishAlert", "EmitEvent", "RecordOutcome", "RecordReport"} <= names
    assert "PublishChat" not in names


@pytest.mark.parametrize(
    ("job", "arn", "kind"),
    [
        (CANARY["job"], CANARY["jobArn"], "canary"),
        (CANARY["job"], f"arn:aws:sagemaker:eu-west-1:111122223333:training-job/{CANARY['job']}", "fire"),
        (FIRE["job"], FIRE["jobArn"], "fire"),
    ],
)
def test_given_an_alert_that_could_not_be_composed_when_it_is_sent_bare_then_it_still_says_whether_it_is_a_canarys(
    machine: dict[str, Any], job: str, arn: str, kind: str
) -> None:
    execution, _ = execute(machine, {**FIRE, "job": job, "jobArn": arn}, decision=REFUSED, failing=("ComposeAlert",))
    (published,) = execution.arguments_of("PublishAlert")
    assert published["MessageAttributes"]["Kind"]["StringValue"] == kind
    assert ("PublishChat" in {name for name, _ in execution.calls}) == (kind != "canary")
