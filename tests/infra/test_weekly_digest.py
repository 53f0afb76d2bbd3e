"""The weekly digest: not there unless asked for, on its day, able to read and to publish alone."""

import json
from pathlib import Path

import pytest

from tests.infra.template import Template


@pytest.fixture
def deployed(variants: Path) -> Template:
    return Template(variants / "digest" / "TrainGuard.template.json")


def test_default_stack_has_no_weekly_digest(template: Template) -> None:
    assert not [name for name in template.of_type("AWS::Lambda::Function") if name.startswith("WeeklyDigest")]


def test_digest_is_scheduled_on_mondays_with_the_event_time(
    deployed: Template,
) -> None:
    schedule = deployed.one("AWS::Events::Rule", "WeeklyDigestEachWeek")
    (target,) = schedule["Targets"]
    assert schedule["ScheduleExpression"] == "cron(0 8 ? * MON *)"
    assert json.loads(target["InputTransformer"]["InputTemplate"].replace("<time>", '"T"')) == {"time": "T"}
    assert target["InputTransformer"]["InputPathsMap"] == {"time": "$.time"}
    assert target["DeadLetterConfig"] == {"Arn": "{IngestEventDeadLetters.Arn}"}


def test_digest_role_only_reads_and_publishes(deployed: Template) -> None:
    held = [each for role, each in deployed.role_statements() if role == "WeeklyDigestRole"]
    own = {each.sid: (each.actions, each.resources) for each in held if each.sid != "WriteLogs"}
    assert own == {
        "ReadJobs": (("dynamodb:Scan",), ("{StorageJobs.Arn}",)),
        "ReadRows": (("dynamodb:Query",), ("{StorageRuleState.Arn}",)),
        "PublishDigest": (("sns:Publish",), ("{ActionsAlerts}", "{ActionsChat}")),
        "KeepFailedEvents": (("sqs:SendMessage",), ("{IngestEventDeadLetters.Arn}",)),
    }
