"""What AWS refuses whatever IAM allows: sizes, counts and names, for each choice that a person may make."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.infra.states_language import state_names
from tests.infra.template import Resource, Template
from tests.infra.variants import CENTRAL, CONTEXTS

VARIANTS = [name for name in CONTEXTS if name != "emulator"]

QUEUE_POLICY_BYTES, QUEUE_POLICY_STATEMENTS, QUEUE_POLICY_CONDITIONS, QUEUE_POLICY_ACTIONS = 8_192, 20, 10, 7
ROLE_POLICY_CHARACTERS = 10_240
ENVIRONMENT_BYTES = 4_096
NEW_ACCOUNTS_MEMORY_MIB = 3_008
ALARM_METRICS = 10
SHORT_ALARM_S, LONG_ALARM_S = 86_400, 604_800
EVENT_PATTERN_CHARACTERS = 2_048
DEFINITION_BYTES = 1_048_576
TEMPLATE_BYTES, TEMPLATE_RESOURCES = 1_000_000, 500
STATE_MACHINE_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
STATE_NAME_CHARACTERS = 80
# The central stack's policy of its dead letters.
UNDELIVERED = "UndeliveredPolicy"
DASHBOARD_METRICS = 2_500


@pytest.fixture(scope="module", params=VARIANTS)
def choice(request: pytest.FixtureRequest) -> str:
    """Return the name of each choice."""
    return str(request.param)


@pytest.fixture(scope="module")
def template(choice: str, variants: Path) -> Template:
    """Return the template of each choice."""
    (path,) = (variants / choice).glob("*.template.json")
    return Template(path)


def of_type(template: Template, kind: str) -> Iterator[Resource]:
    found = list(template.of_type(kind).values())
    assert found
    yield from found


@pytest.mark.parametrize("name", [*VARIANTS, *CENTRAL])
def test_queue_policies_of_each_choice_are_valid_for_sqs(variants: Path, name: str) -> None:
    """The event dead letters' policy has a statement for all rules and one a topic: SQS takes ten conditions."""
    (path,) = (variants / name).glob("*.template.json")
    for policy in of_type(Template(path), "AWS::SQS::QueuePolicy"):
        document = policy.properties["PolicyDocument"]
        tests = [key for entry in document["Statement"] for test in entry.get("Condition", {}).values() for key in test]
        actions = [entry["Action"] for entry in document["Statement"] if isinstance(entry["Action"], list)]
        assert len(json.dumps(document)) <= QUEUE_POLICY_BYTES
        assert len(document["Statement"]) <= QUEUE_POLICY_STATEMENTS
        assert len(tests) <= QUEUE_POLICY_CONDITIONS
        assert all(len(each) <= QUEUE_POLICY_ACTIONS for each in actions)


@pytest.mark.parametrize("name", ["production", *VARIANTS, *CENTRAL])
def test_dead_letters_admit_all_rules_of_the_stack_alone(variants: Path, name: str) -> None:
    (path,) = (variants / name).glob("*.template.json")
    template = Template(path)
    (admitted,) = (
        statement
        for policy, statement, principal in template.resource_policy_statements()
        if principal == {"Service": "events.amazonaws.com"} and policy in {"IngestEventDeadLettersPolicy", UNDELIVERED}
    )
    rules = template.of_type("AWS::Events::Rule")
    assert (admitted.actions, list(admitted.condition)) == (("sqs:SendMessage",), ["ArnEquals"])
    assert sorted(admitted.condition["ArnEquals"]["aws:SourceArn"]) == sorted(f"{{{rule}.Arn}}" for rule in rules)


def test_role_policies_of_each_choice_are_short_enough(template: Template) -> None:
    for role in of_type(template, "AWS::IAM::Role"):
        assert len(json.dumps(role.properties["Policies"])) <= ROLE_POLICY_CHARACTERS


def test_lambda_quotas_of_a_new_account_are_enough(choice: str, template: Template) -> None:
    """Reserved concurrency must leave an account unreserved executions, of which a new one has none to spare."""
    asked_for = "reconcile_concurrency" in CONTEXTS[choice]
    for function in of_type(template, "AWS::Lambda::Function"):
        reserves = asked_for and function.name == "EvaluationReconcileJobFunction"
        assert ("ReservedConcurrentExecutions" in function.properties) == reserves
        assert function.properties["MemorySize"] <= NEW_ACCOUNTS_MEMORY_MIB
        assert len(json.dumps(function.properties["Environment"]["Variables"])) <= ENVIRONMENT_BYTES
    for mapping in of_type(template, "AWS::Lambda::EventSourceMapping"):
        assert mapping.properties["ScalingConfig"]["MaximumConcurrency"] >= 2


def test_alarms_of_each_choice_are_valid_for_cloudwatch(template: Template) -> None:
    for alarm in of_type(template, "AWS::CloudWatch::Alarm"):
        metrics = [each for each in alarm.properties.get("Metrics", []) if "MetricStat" in each]
        assert len(metrics) <= ALARM_METRICS
        periods = {each["MetricStat"]["Period"] for each in metrics} or {alarm.properties["Period"]}
        (period,) = periods
        most = LONG_ALARM_S if period >= 3_600 else SHORT_ALARM_S
        assert period * alarm.properties["EvaluationPeriods"] <= most


def test_dashboard_searches_name_the_namespace_for_cloudwatch(choice: str, template: Template) -> None:
    """A namespace with a hyphen, as a stack's name may have, must stand in quotation marks."""
    dashboards = template.of_type("AWS::CloudWatch::Dashboard").values()
    assert len(dashboards) == ("dashboard" in CONTEXTS[choice])
    for dashboard in dashboards:
        searches = re.findall(r"SEARCH\('\{(.+?),", dashboard.properties["DashboardBody"])
        assert searches
        assert all(re.fullmatch(r'\\"[A-Za-z0-9-]+\\"', each) for each in searches)
        assert dashboard.properties["DashboardBody"].count('"stat"') <= DASHBOARD_METRICS


def test_rule_patterns_of_each_choice_are_short_enough(template: Template) -> None:
    for rule in of_type(template, "AWS::Events::Rule"):
        assert len(json.dumps(rule.properties.get("EventPattern", {}))) <= EVENT_PATTERN_CHARACTERS


def test_machine_names_and_definitions_are_short_enough(
    template: Template,
) -> None:
    for machine in of_type(template, "AWS::StepFunctions::StateMachine"):
        assert len(machine.properties["DefinitionString"].encode()) <= DEFINITION_BYTES
        assert STATE_MACHINE_NAME.fullmatch(machine.properties.get("StateMachineName", "given"))


def test_state_names_are_unique_in_each_machine(template: Template) -> None:
    """Not even in two branches or maps: Step Functions answers with ``DUPLICATE_STATE_NAME``."""
    for machine in of_type(template, "AWS::StepFunctions::StateMachine"):
        names = list(state_names(json.loads(machine.properties["DefinitionString"])))
        assert len(names) == len(set(names)) > 5
        assert all(len(name) <= STATE_NAME_CHARACTERS for name in names)


def test_machine_logs_need_no_line_in_the_account_policy(
    template: Template,
) -> None:
    """The account has 5,120 characters for the log groups that services write to, but for names that begin so."""
    groups = template.of_type("AWS::Logs::LogGroup")
    for machine in of_type(template, "AWS::StepFunctions::StateMachine"):
        (destination,) = machine.properties["LoggingConfiguration"]["Destinations"]
        arn = destination["CloudWatchLogsLogGroup"]["LogGroupArn"]
        name: Any = groups[arn.strip("{}").removesuffix(".Arn")].properties["LogGroupName"]
        assert name.startswith("/aws/vendedlogs/states/")
        assert "{AWS::StackId}" in name, "a log that outlived its stack would be in the way of the next of that name"


def test_template_of_each_choice_is_within_cloudformation_limits(template: Template) -> None:
    assert len(template.text.encode()) <= TEMPLATE_BYTES
    assert len(template.resources) <= TEMPLATE_RESOURCES


def test_each_resource_policy_admits_one_source(
    template: Template,
) -> None:
    """Without, the rules and topics of every account could send: a service that is let in serves all of them."""
    let_in = [
        entry
        for _, entry, principal in template.resource_policy_statements()
        if entry.effect == "Allow" and "Service" in principal
    ]
    assert let_in
    for statement in let_in:
        assert {key for test in statement.condition.values() for key in test} & {"aws:SourceArn", "aws:SourceAccount"}
        assert len(statement.actions) == 1
