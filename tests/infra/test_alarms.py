"""The alarms: what each watches, that it rings, and what silence means to it."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.infra.synthesis import ROOT
from tests.infra.template import Template

RUNBOOK = "docs/operations.md"
QUIET = "notBreaching"

WATCHED = {
    "DoorbellDeadLettersPresent": {("AWS/SQS", "ApproximateNumberOfMessagesVisible")},
    "EventDeadLettersPresent": {("AWS/SQS", "ApproximateNumberOfMessagesVisible")},
    "DoorbellsWaitTooLong": {("AWS/SQS", "ApproximateAgeOfOldestMessage")},
    "EvaluateObjectsFails": {("AWS/Lambda", "Errors")},
    "TickFails": {("AWS/Lambda", "Errors")},
    "LookAfterJobFails": {("AWS/Lambda", "Errors")},
    "JobLifecycleFails": {("AWS/Lambda", "Errors")},
    "TickDoesNotRun": {("AWS/Lambda", "Invocations")},
    "FunctionsAreThrottled": {("AWS/Lambda", "Throttles")},
    "FireExecutionsFail": {
        ("AWS/States", "ExecutionsFailed"),
        ("AWS/States", "ExecutionsTimedOut"),
        ("AWS/States", "ExecutionsAborted"),
    },
    "KernelExecutionsFail": {
        ("AWS/States", "ExecutionsFailed"),
        ("AWS/States", "ExecutionsTimedOut"),
        ("AWS/States", "ExecutionsAborted"),
    },
    "ReportExecutionsFail": {
        ("AWS/States", "ExecutionsFailed"),
        ("AWS/States", "ExecutionsTimedOut"),
        ("AWS/States", "ExecutionsAborted"),
    },
    "StateConflictsExhausted": {("TrainGuard", "StateConflictsExhausted")},
    "RuleErrors": {("TrainGuard", "RuleErrors")},
    "VerdictsLagBehind": {("TrainGuard", "EvaluationLagSeconds")},
    "JobsAreLeftOut": {
        ("TrainGuard", "TickFailures"),
        ("TrainGuard", "TicksUnfinished"),
        ("AWS/Lambda", "AsyncEventsDropped"),
    },
    "TablesAreThrottled": {("AWS/DynamoDB", "WriteThrottleEvents"), ("AWS/DynamoDB", "ReadThrottleEvents")},
    "AlertsAreNotDelivered": {("AWS/SNS", "NumberOfNotificationsFailed")},
    "CanaryFails": {("TrainGuard", "CanaryFailed"), ("AWS/Lambda", "Errors")},
    "CanaryDoesNotRun": {("TrainGuard", "CanaryPassed")},
}
WATCHES_FOR_SILENCE = {"TickDoesNotRun", "CanaryDoesNotRun"}


@pytest.fixture(scope="module")
def alarms(template: Template) -> dict[str, Any]:
    """Return the alarms by their own names."""
    found = template.of_type("AWS::CloudWatch::Alarm")
    return {name.removeprefix("Monitoring"): alarm.properties for name, alarm in found.items()}


def metrics(alarm: dict[str, Any]) -> list[dict[str, Any]]:
    if "Metrics" not in alarm:
        return [{name: alarm[name] for name in ("Namespace", "MetricName", "Dimensions")}]
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


def test_given_the_products_own_metrics_when_read_then_their_dimension_is_the_function(alarms: dict[str, Any]) -> None:
    for name in ("StateConflictsExhausted", "RuleErrors"):
        dimensions = [metric["Dimensions"] for metric in metrics(alarms[name])]
        assert dimensions == [
            [{"Name": "service", "Value": "evaluate_objects"}],
            [{"Name": "service", "Value": "look_after_job"}],
        ]


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        ("FireExecutionsFail", "{ActionsFire.Arn}"),
        ("ReportExecutionsFail", "{ReportsReport.Arn}"),
        ("KernelExecutionsFail", "{CapturesKernels.Arn}"),
    ],
)
def test_given_an_alarm_on_executions_when_read_then_it_watches_its_own_machine(
    alarms: dict[str, Any], name: str, machine: str
) -> None:
    for metric in metrics(alarms[name]):
        assert metric["Dimensions"] == [{"Name": "StateMachineArn", "Value": machine}]


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


def test_given_a_slow_evaluator_when_its_lag_is_watched_then_a_tenth_of_the_nodes_for_a_quarter_of_an_hour_rings(
    alarms: dict[str, Any],
) -> None:
    alarm = alarms["VerdictsLagBehind"]
    assert (alarm["ExtendedStatistic"], alarm["EvaluationPeriods"], alarm["Threshold"]) == ("p90", 3, 900)


def test_given_the_tables_when_throttles_are_watched_then_each_table_is(alarms: dict[str, Any]) -> None:
    tables = {metric["Dimensions"][0]["Value"] for metric in metrics(alarms["TablesAreThrottled"])}
    assert tables == {"{StorageJobs}", "{StorageRuleState}", "{StorageNodeState}"}


@pytest.mark.parametrize("name", WATCHED)
def test_given_an_alarm_when_it_rings_then_it_names_a_section_of_the_runbook_that_says_what_to_do(
    alarms: dict[str, Any], name: str
) -> None:
    assert alarms[name]["AlarmDescription"].endswith(f". What to do: {RUNBOOK}#{name.lower()}")
    _, _, rest = (ROOT / RUNBOOK).read_text(encoding="utf-8").partition(f"\n### {name}\n")
    section, _, _ = rest.partition("\n#")
    assert "**Means:**" in section
    assert "**Do:**" in section


def test_given_the_runbook_when_its_alarms_are_listed_then_there_are_no_others() -> None:
    text = (ROOT / RUNBOOK).read_text(encoding="utf-8")
    assert sorted(re.findall(r"^### (\w+)$", text, re.MULTILINE)) == sorted(WATCHED)


def test_given_a_deployment_without_canary_when_synthesised_then_no_alarm_waits_for_one(variants: Path) -> None:
    found = Template(variants / "without-canary" / "TrainGuard.template.json").of_type("AWS::CloudWatch::Alarm")
    assert {name.removeprefix("Monitoring") for name in found} == {
        name for name in WATCHED if not name.startswith("Canary")
    }
