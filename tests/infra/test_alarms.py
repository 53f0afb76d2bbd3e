"""The alarms: what each watches, that it rings, and what silence means to it."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.infra.synthesis import ROOT
from tests.infra.template import Template
from tests.infra.test_dashboard import counted
from trainguard.adapters.fault_points import AT_ONCE, FAULT_POINTS
from trainguard.adapters.observability import ROUTINE

RUNBOOK = "docs/operations.md"
QUIET = "notBreaching"

WATCHED = {
    "DoorbellDeadLettersPresent": {("AWS/SQS", "ApproximateNumberOfMessagesVisible")},
    "EventDeadLettersPresent": {("AWS/SQS", "ApproximateNumberOfMessagesVisible")},
    "DoorbellsWaitTooLong": {("AWS/SQS", "ApproximateAgeOfOldestMessage")},
    "TickDoesNotRun": {("AWS/Lambda", "Invocations")},
    "FaultsFound": {("TrainGuard", "Faults")},
    "CanaryDoesNotRun": {("AWS/Lambda", "Invocations")},
}
TOLD_WITHOUT_ALARM = ("ExecutionsFail", "FireExecutionsFail", "ReportExecutionsFail", "KernelExecutionsFail")
"""Sections of the runbook about executions, of which a rule tells."""

FAULTS = (
    "FunctionFails",
    "StateConflictsExhausted",
    "RuleErrors",
    "VerdictsBehind",
    "TickFailures",
    "PortFailures",
    "CanaryFailed",
    "AlertsAreNotDelivered",
)
"""Sections of the runbook about what the alarm FaultsFound counts."""

FUNCTIONS = ("EvaluateObjects", "Tick", "LookAfterJob", "JobLifecycle", "Canary")
DIED = (
    "[ERROR] KeyError: 'job'\nTraceback (most recent call last):",
    "[ERROR] Runtime.ImportModuleError: Unable to import module 'handler': No module named 'numpy'",
    "2026-08-01T06:00:59.123Z 3f0c7a1e-5f4c-4c53-9a9f-7d1c1f1f8d10 Task timed out after 60.06 seconds",
    "RequestId: 3f0c7a1e-5f4c-4c53-9a9f-7d1c1f1f8d10 Error: Runtime exited with error: signal: killed",
)
LIVED = (
    "START RequestId: 3f0c7a1e-5f4c-4c53-9a9f-7d1c1f1f8d10 Version: $LATEST",
    "REPORT RequestId: 3f0c7a1e-5f4c-4c53-9a9f-7d1c1f1f8d10 Duration: 12.01 ms Billed Duration: 13 ms",
    '{"level":"WARNING","message":"bad_objects","key":"x/[ERROR] /y"}',
    '{"level":"WARNING","message":"bad_objects","key":"x 1 Task timed out after 2 "}',
    '{"level":"WARNING","message":"late","reason":"RequestId: 1 Error: Runtime exited "}',
)
WATCHES_FOR_SILENCE = {"TickDoesNotRun", "CanaryDoesNotRun"}


@pytest.fixture(scope="module")
def alarms(template: Template) -> dict[str, Any]:
    """Return the alarms by their own names."""
    found = template.of_type("AWS::CloudWatch::Alarm")
    return {name.removeprefix("Monitoring"): alarm.properties for name, alarm in found.items()}


def metrics(alarm: dict[str, Any]) -> list[dict[str, Any]]:
    if "Metrics" not in alarm:
        return [{name: alarm[name] for name in ("Namespace", "MetricName")}]
    return [entry["MetricStat"]["Metric"] for entry in alarm["Metrics"] if "MetricStat" in entry]


@pytest.mark.parametrize("name", WATCHED)
def test_given_an_alarm_when_read_then_it_watches_its_metrics_and_rings_on_the_operations_topic(
    alarms: dict[str, Any], name: str
) -> None:
    alarm = alarms[name]
    assert {(metric["Namespace"], metric["MetricName"]) for metric in metrics(alarm)} == WATCHED[name]
    assert alarm["AlarmActions"] == ["{MonitoringOperations}"]


@pytest.mark.parametrize("name", WATCHED)
def test_given_an_alarm_that_is_over_when_it_says_so_then_the_same_people_read_it_and_what_ok_means(
    alarms: dict[str, Any], name: str
) -> None:
    """CloudWatch sends one description with every state, so it must not read as if all were wrong."""
    alarm = alarms[name]
    assert alarm["OKActions"] == alarm["AlarmActions"]
    states = "ALARM or INSUFFICIENT_DATA" if "InsufficientDataActions" in alarm else "ALARM"
    assert re.match(rf"{states}: [A-Z].+\. OK: that is over\. ", alarm["AlarmDescription"])


def test_given_the_alarms_when_listed_then_there_are_no_others(alarms: dict[str, Any]) -> None:
    assert set(alarms) == set(WATCHED)


def test_given_a_tick_that_never_runs_when_no_data_come_then_the_alarm_rings(alarms: dict[str, Any]) -> None:
    alarm = alarms["TickDoesNotRun"]
    assert alarm["TreatMissingData"] == "breaching"
    assert alarm["ComparisonOperator"] == "LessThanThreshold"
    assert alarm["Threshold"] == 3


@pytest.mark.parametrize("name", sorted(set(WATCHED) - WATCHES_FOR_SILENCE))
def test_given_an_idle_deployment_when_no_data_come_then_the_alarm_is_quiet(alarms: dict[str, Any], name: str) -> None:
    assert alarms[name]["TreatMissingData"] == QUIET
    assert alarms[name]["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"


def test_given_the_logs_when_their_filters_are_read_then_deaths_and_marked_lines_add_up_to_one_metric(
    template: Template,
) -> None:
    filters = template.of_type("AWS::Logs::MetricFilter")
    of_functions = {f"MonitoringFaults{kind}{name}" for kind in ("Marked", "Died") for name in FUNCTIONS}
    assert set(filters) == {*of_functions, "MonitoringFaultsUndelivered"}
    points = {"Marked": "$.fault", "Died": "9", "Undelivered": "9"}
    for name, each in filters.items():
        (transformation,) = each.properties["MetricTransformations"]
        kind = re.match(r"MonitoringFaults(Marked|Died|Undelivered)", name)[1]  # type: ignore[index]  # as listed above
        assert transformation == {
            "MetricName": "Faults",
            "MetricNamespace": "TrainGuard",
            "MetricValue": points[kind],
        }
        function = name.removeprefix(f"MonitoringFaults{kind}")
        assert function in each.properties["LogGroupName"] or kind == "Undelivered"
    assert filters["MonitoringFaultsUndelivered"].properties["LogGroupName"] == "{ActionsDeliveryFailures}"


def test_given_a_log_when_lines_are_filtered_then_those_of_deaths_match_and_no_words_of_a_job_do(
    template: Template,
) -> None:
    pattern = template.one("AWS::Logs::MetricFilter", "MonitoringFaultsDiedTick")["FilterPattern"]
    assert not set(pattern) & set('():"!')
    died = re.compile(pattern.strip("%"))
    assert all(died.search(line) for line in DIED)
    assert not any(died.search(line) for line in LIVED)


def test_given_what_is_counted_when_it_is_a_fault_then_the_code_counts_it_and_one_or_nine_are_reason_for_an_alarm(
    alarms: dict[str, Any],
) -> None:
    alarm = alarms["FaultsFound"]
    assert set(FAULT_POINTS) <= counted()
    assert not set(FAULT_POINTS) & ROUTINE
    assert (alarm["Threshold"], alarm["Period"], alarm["EvaluationPeriods"]) == (AT_ONCE, 900, 1)
    assert {name for name, points in FAULT_POINTS.items() if points >= alarm["Threshold"]} == {
        "rule_errors",
        "state_conflicts_exhausted",
        "canary_failed",
    }


def test_given_an_execution_that_fails_when_its_machine_is_ours_then_a_rule_tells_the_operations_topic(
    template: Template,
) -> None:
    rule = template.one("AWS::Events::Rule", "MonitoringExecutionsFailRule")
    assert rule["EventPattern"] == {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {
            "stateMachineArn": [f"{{{name}.Arn}}" for name in ("ActionsFire", "ReportsReport", "CapturesKernels")],
            "status": ["FAILED", "TIMED_OUT", "ABORTED"],
        },
    }
    (target,) = rule["Targets"]
    assert target["Arn"] == "{MonitoringOperations}"
    assert target["DeadLetterConfig"] == {"Arn": "{IngestEventDeadLetters.Arn}"}
    assert f"what to do: {RUNBOOK}#executionsfail" in target["InputTransformer"]["InputTemplate"]
    assert set(target["InputTransformer"]["InputPathsMap"].values()) == {"$.detail.executionArn", "$.detail.status"}


def test_given_the_operations_topic_when_its_policy_is_read_then_alarms_and_that_rule_alone_may_publish(
    template: Template,
) -> None:
    allowed = {
        str(statement.sid): (principal, statement.condition)
        for name, statement, principal in template.resource_policy_statements()
        if name == "MonitoringOperationsPolicy" and statement.effect == "Allow"
    }
    assert set(allowed) == {"AlarmsOfThisAccount", "ExecutionsFail"}
    source = {"ArnEquals": {"aws:SourceArn": "{MonitoringExecutionsFailRule.Arn}"}}
    assert allowed["ExecutionsFail"] == ({"Service": "events.amazonaws.com"}, source)


def test_given_the_alert_topic_when_a_delivery_fails_then_it_is_logged_for_every_protocol_that_can_be(
    template: Template,
) -> None:
    topic = template.one("AWS::SNS::Topic", "ActionsAlerts")
    logged = {each["Protocol"]: each for each in topic["DeliveryStatusLogging"]}
    assert set(logged) == {"http/s", "sqs", "lambda", "firehose", "application"}
    assert all(set(each) == {"Protocol", "FailureFeedbackRoleArn"} for each in logged.values())
    log = template.one("AWS::Logs::LogGroup", "ActionsDeliveryFailures")["LogGroupName"]
    assert log == "sns/{AWS::Region}/{AWS::AccountId}/{ActionsAlerts.TopicName}/Failure"


def test_given_a_doorbell_that_failed_once_when_it_waits_then_no_alarm_rings_before_its_return(
    alarms: dict[str, Any], template: Template
) -> None:
    visibility = template.one("AWS::SQS::Queue", "IngestDoorbells")["VisibilityTimeout"]
    assert alarms["DoorbellsWaitTooLong"]["Threshold"] > 2 * visibility


def test_given_no_canary_yet_when_the_stack_is_new_then_silence_is_no_alarm_but_is_told_once_one_has_run(
    alarms: dict[str, Any],
) -> None:
    alarm = alarms["CanaryDoesNotRun"]
    assert alarm["TreatMissingData"] == "missing"
    assert alarm["InsufficientDataActions"] == ["{MonitoringOperations}"]
    assert alarm["Period"] * alarm["EvaluationPeriods"] > 24 * 3600


@pytest.mark.parametrize("name", WATCHED)
def test_given_an_alarm_when_it_rings_then_it_names_a_section_of_the_runbook(alarms: dict[str, Any], name: str) -> None:
    assert alarms[name]["AlarmDescription"].endswith(f". What to do: {RUNBOOK}#{name.lower()}")


@pytest.mark.parametrize("name", [*WATCHED, *TOLD_WITHOUT_ALARM, *FAULTS])
def test_given_what_is_told_when_its_section_of_the_runbook_is_read_then_it_says_what_it_means_and_what_to_do(
    name: str,
) -> None:
    _, _, rest = (ROOT / RUNBOOK).read_text(encoding="utf-8").partition(f"\n### {name}\n")
    section, _, _ = rest.partition("\n#")
    assert "**Means:**" in section
    assert "**Do:**" in section


def test_given_the_runbook_when_its_sections_are_listed_then_there_are_no_others() -> None:
    text = (ROOT / RUNBOOK).read_text(encoding="utf-8")
    told = sorted([*WATCHED, *TOLD_WITHOUT_ALARM, *FAULTS])
    assert sorted(re.findall(r"^### (\w+)$", text, re.MULTILINE)) == told
    _, _, listed = text.partition("\n### FaultsFound\n")
    assert set(re.findall(r"`(\w+)` \|", listed.partition("\n### ")[0])) >= set(FAULT_POINTS)


def test_given_a_deployment_without_canary_when_synthesised_then_no_alarm_waits_for_one(variants: Path) -> None:
    found = Template(variants / "without-canary" / "TrainGuard.template.json").of_type("AWS::CloudWatch::Alarm")
    assert {name.removeprefix("Monitoring") for name in found} == {
        name for name in WATCHED if not name.startswith("Canary")
    }
