"""The canary as it is deployed: its schedules, its reach that ends at its prefix, subscribers that leave it out."""

from pathlib import Path

import msgspec

from tests.infra.template import Template
from trainguard.stack.canary import FRESH_S, LOOKED_AFTER_MINUTES, CanaryCall


def test_schedule_leaves_the_step_to_the_function_with_its_time(
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
    assert due == ["plant", "look"] * 7
    assert LOOKED_AFTER_MINUTES * 60 < FRESH_S


def test_canary_role_reaches_only_canaries(template: Template) -> None:
    statements = {statement.sid: statement for role, statement in template.role_statements() if role == "CanaryRole"}
    assert statements["PlantCanaries"].resources == ("arn:{AWS::Partition}:s3:::{StorageProfiles}/trainguard-canary-*",)
    assert statements["ListCanaries"].condition == {"StringLike": {"s3:prefix": "trainguard-canary-*"}}
    assert statements["ReadRowsOfCanaries"].condition == {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": "trainguard-canary-*"}
    }


def test_canary_is_not_mailed_to_alert_subscribers(variants: Path) -> None:
    template = Template(variants / "person" / "TrainGuard.template.json")
    policies = [
        subscription.properties.get("FilterPolicy")
        for subscription in template.of_type("AWS::SNS::Subscription").values()
        if subscription.properties["TopicArn"] == "{ActionsAlerts}"
    ]
    assert policies == [{"Kind": [{"anything-but": ["canary"]}]}] * 2


def test_deployment_without_canary_has_no_trace_of_it(variants: Path) -> None:
    template = Template(variants / "without-canary" / "TrainGuard.template.json")
    assert not [resource.name for resource in template.resources if resource.name.startswith("Canary")]
