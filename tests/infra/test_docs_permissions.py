"""The page on permissions: services and other accounts that are let in are those of the template."""

import re
from pathlib import Path

from infra.constructs.ingest import rule_id
from infra.constructs.writers import WRITTEN_BY_JOBS
from tests.infra.done_by_services import ROLES
from tests.infra.synthesis import ROOT
from tests.infra.template import Template
from tests.infra.test_keys import EXPECTED as KEYED
from tests.infra.variants import WRITERS
from tests.unit.test_docs_parameters import table
from trainguard.engine.installed import FAMILIES

PAGE = (ROOT / "docs" / "permissions.md").read_text("utf-8")
LET_IN = table("permissions.md", "who")


def row(who: str, may: str) -> list[str]:
    (found,) = [each for each in LET_IN if each[0] == who and each[1].startswith(may)]
    return found


def sources(template: Template, policy: str) -> set[str]:
    """Return what EventBridge's rules are called that a queue takes messages of."""
    return {
        str(source)
        for name, statement, principal in template.resource_policy_statements()
        if name == policy and principal == {"Service": "events.amazonaws.com"}
        for test in statement.condition.values()
        for source in test.values()
    }


def test_page_names_the_rules_that_send_to_a_queue(template: Template) -> None:
    assert "all rules of the stack" in row("EventBridge", "send to the event dead letters")[2]
    any_rule = "arn:{AWS::Partition}:events:{AWS::Region}:{AWS::AccountId}:rule/*"
    assert sources(template, "IngestDoorbellsPolicy") == {any_rule}
    told = row("EventBridge", "send to the evaluation queue")[2]
    assert told.startswith("the rules on job files and on each family's objects")
    assert told.endswith("rules of this account and Region")


def test_only_rules_send_for_an_existing_bucket_and_not_s3(variants: Path) -> None:
    existing = Template(variants / "their-bucket" / "TrainGuard.template.json")
    of_objects = ["{IngestJobFileCreated.Arn}", *(f"{{Ingest{rule_id(family)}.Arn}}" for family in FAMILIES)]
    assert sources(existing, "IngestDoorbellsPolicy") == {str(of_objects)}
    principals = [who for name, _, who in existing.resource_policy_statements() if name == "IngestDoorbellsPolicy"]
    assert {"Service": "s3.amazonaws.com"} not in principals


def test_only_s3_sends_for_an_existing_notifying_bucket(
    variants: Path,
) -> None:
    notified = Template(variants / "everything" / "Everything.template.json")
    assert not [each for each in notified.of_type("AWS::Events::Rule") if "ObjectCreated" in each or "JobFile" in each]
    assert sources(notified, "IngestDoorbellsPolicy") == set()
    (allowed,) = (
        statement
        for name, statement, _ in notified.resource_policy_statements()
        if name == "IngestDoorbellsPolicy" and statement.effect == "Allow"
    )
    assert (allowed.actions, allowed.condition) == (
        ("sqs:SendMessage",),
        {
            "StringEquals": {"aws:SourceAccount": "{AWS::AccountId}"},
            "ArnEquals": {"aws:SourceArn": "arn:{AWS::Partition}:s3:::our-profiles"},
        },
    )
    assert row("S3", "send to the evaluation queue")[2] == "buckets of this account; of existing ones, the named one"


def test_page_lists_functions_invoked_by_rules(template: Template) -> None:
    invoked = {each.properties["FunctionName"] for each in template.of_type("AWS::Lambda::Permission").values()}
    functions = template.of_type("AWS::Lambda::Function").items()
    names = {
        function.properties["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"]
        for name, function in functions
        if f"{{{name}.Arn}}" in invoked
    }
    assert len(names) == len(invoked) == 3
    assert set(re.findall(r"`(\w+)`", row("EventBridge", "invoke")[1])) == names


def test_rights_of_other_accounts_on_the_page_match_the_policy(
    variants: Path,
) -> None:
    template = Template(variants / "writers" / "TrainGuard.template.json")
    allowed = [
        (statement.actions, statement.resources)
        for name, statement, _ in template.resource_policy_statements()
        if name == "StorageProfilesPolicy" and statement.effect == "Allow"
    ]
    assert allowed == [(("s3:PutObject",), (f"{{StorageProfiles.Arn}}/{account}/*",)) for account in WRITERS]
    (elsewhere,) = (
        statement.not_resources
        for name, statement, _ in template.resource_policy_statements()
        if name == "StorageProfilesPolicy" and statement.not_resources
    )
    assert elsewhere == tuple(f"{{StorageProfiles.Arn}}/*/{keys}" for keys in WRITTEN_BY_JOBS)
    section = PAGE.partition("## What lets other accounts in")[2].partition("\n## ")[0]
    assert "`s3:PutObject`" in section
    assert set(re.findall(r"`<account>/([^`]+)`", section)) == set(WRITTEN_BY_JOBS)


def test_users_of_a_bucket_key_on_the_page_are_right() -> None:
    names = {
        **ROLES,
        "ReportsReportRole": "the report state machine",
        "CapturesKernelsRole": "the kernels state machine",
    }
    said = {
        name.strip("` "): tuple(re.findall(r"`([\w:]+)`", actions))
        for who, actions, _ in table("permissions.md", "who uses a bucket's key")
        for name in who.split(",")
    }
    assert said == {names[role]: actions for role, actions in KEYED.items()}
