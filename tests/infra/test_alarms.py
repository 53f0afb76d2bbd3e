"""The alarms: what each watches, that it fires, and what missing data mean to it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.infra.synthesis import ROOT
from tests.infra.template import Template
from tests.infra.test_dashboard import counted
from trainguard.aws.fault_points import AT_ONCE, FAULT_POINTS
from trainguard.aws.observability import ROUTINE

RUNBOOK = "docs/operations.md"
QUIET = "notBreaching"

FUNCTIONS = ("EvaluateObjects", "Scheduler", "ReconcileJob", "JobLifecycle", "Canary")
# Whose faults have an alarm of their own; those of `reconcile_job` count with the scheduler's.
FAULTY = ("EvaluateObjects", "Scheduler", "JobLifecycle", "Canary", "Undelivered")

WATCHED = {
    "DoorbellDeadLettersPresent": {("AWS/SQS", "ApproximateNumberOfMessagesVisible")},
    "EventDeadLettersPresent": {("AWS/SQS", "ApproximateNumberOfMessagesVisible")},
    "DoorbellsWaitTooLong": {("AWS/SQS", "ApproximateAgeOfOldestMessage")},
    "SchedulerDoesNotRun": {("AWS/Lambda", "Invocations")},
    **{f"FaultsFound{part}": {("TrainGuard", f"Faults{part}")} for part in FAULTY},
}
# Sections of the runbook about executions, of which a rule tells.
TOLD_WITHOUT_ALARM = ("ExecutionsFail", "FireExecutionsFail", "ReportExecutionsFail", "KernelExecutionsFail")

# Sections of the runbook about what the alarms FaultsFound… count.
FAULTS = (
    "FunctionFails",
    "StateConflictsExhausted",
    "RuleErrors",
    "VerdictsBehind",
    "ReconcileFailures",
    "PortFailures",
    "CanaryFailed",
    "CanarySilent",
    "AlertsAreNotDelivered",
)

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
WATCHES_FOR_SILENCE = {"SchedulerDoesNotRun"}
ARRIVALS = ("DoorbellDeadLettersPresent", "EventDeadLettersPresent")


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
def test_alarms_watch_their_metrics_and_use_the_operations_topic(alarms: dict[str, Any], name: str) -> None:
    alarm = alarms[name]
    assert {(metric["Namespace"], metric["MetricName"]) for metric in metrics(alarm)} == WATCHED[name]
    assert alarm["AlarmActions"] == ["{MonitoringOperations}"]


def test_end_of_an_alarm_is_told_only_after_an_alarm(alarms: dict[str, Any], template: Template) -> None:
    """A new alarm begins without data and is OK: a first deployment tells nothing."""
    assert not any("OKActions" in alarm for alarm in alarms.values())
    rule = template.one("AWS::Events::Rule", "MonitoringAlarmsEndRule")
    pattern = rule["EventPattern"]
    assert pattern["detail"] == {"state": {"value": ["OK"]}, "previousState": {"value": ["ALARM"]}}
    assert set(pattern["resources"]) == {f"{{Monitoring{name}.Arn}}" for name in set(WATCHED) - set(ARRIVALS)}
    (target,) = rule["Targets"]
    assert target["Arn"] == "{MonitoringOperations}"
    notice = json.loads(target["InputTransformer"]["InputTemplate"])
    assert (notice["version"], notice["source"], notice["content"]["textType"]) == ("1.0", "custom", "client-markdown")


@pytest.mark.parametrize("name", ARRIVALS)
def test_each_further_dead_letter_raises_the_alarm(alarms: dict[str, Any], name: str) -> None:
    alarm = alarms[name]
    (expression,) = (each["Expression"] for each in alarm["Metrics"] if "Expression" in each)
    assert expression == "DIFF(FILL(messages, 0))"
    assert (alarm["EvaluationPeriods"], alarm["Threshold"]) == (1, 1)


def test_given_the_alarms_when_listed_then_there_are_no_others(alarms: dict[str, Any]) -> None:
    assert set(alarms) == set(WATCHED)


def test_missing_run_raises_the_alarm(alarms: dict[str, Any]) -> None:
    alarm = alarms["SchedulerDoesNotRun"]
    assert alarm["TreatMissingData"] == "missing"
    assert alarm["InsufficientDataActions"] == alarm["AlarmActions"]
    assert alarm["ComparisonOperator"] == "LessThanThreshold"
    assert alarm["Threshold"] == 3


@pytest.mark.parametrize("name", sorted(set(WATCHED) - WATCHES_FOR_SILENCE))
def test_idle_deployment_raises_no_alarm(alarms: dict[str, Any], name: str) -> None:
    assert alarms[name]["TreatMissingData"] == QUIET
    assert alarms[name]["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"


def test_log_filters_sum_crashes_and_marked_lines_of_a_function(
    template: Template,
) -> None:
    filters = template.of_type("AWS::Logs::MetricFilter")
    filters.pop("MonitoringFaultsSilentCanary")
    of_functions = {f"MonitoringFaults{kind}{name}" for kind in ("Marked", "Died") for name in FUNCTIONS}
    assert set(filters) == {*of_functions, "MonitoringFaultsUndelivered"}
    points = {"Marked": "$.fault", "Died": "9", "Undelivered": "9"}
    for name, each in filters.items():
        (transformation,) = each.properties["MetricTransformations"]
        kind = re.match(r"MonitoringFaults(Marked|Died|Undelivered)", name)[1]  # type: ignore[index]  # as listed above
        function = name.removeprefix(f"MonitoringFaults{kind}")
        assert transformation == {
            "MetricName": f"Faults{'Scheduler' if function == 'ReconcileJob' else function or kind}",
            "MetricNamespace": "TrainGuard",
            "MetricValue": points[kind],
        }
        assert function in each.properties["LogGroupName"] or kind == "Undelivered"
    assert filters["MonitoringFaultsUndelivered"].properties["LogGroupName"] == "{ActionsDeliveryFailures}"


def test_log_filter_matches_crashes_and_no_words_of_a_job(
    template: Template,
) -> None:
    pattern = template.one("AWS::Logs::MetricFilter", "MonitoringFaultsDiedScheduler")["FilterPattern"]
    assert not set(pattern) & set('():"!')
    died = re.compile(pattern.strip("%"))
    assert all(died.search(line) for line in DIED)
    assert not any(died.search(line) for line in LIVED)


def test_counted_faults_raise_an_alarm_at_one_or_nine(
    alarms: dict[str, Any],
) -> None:
    alarm = alarms["FaultsFoundScheduler"]
    assert set(FAULT_POINTS) <= counted()
    assert not set(FAULT_POINTS) & ROUTINE
    assert (alarm["Threshold"], alarm["Period"], alarm["EvaluationPeriods"]) == (AT_ONCE, 900, 1)
    assert {name for name, points in FAULT_POINTS.items() if points >= alarm["Threshold"]} == {
        "rule_errors",
        "state_conflicts_exhausted",
        "canary_failed",
    }


def test_failed_execution_of_ours_notifies_the_operations_topic(
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
    # The form that a chat shows: AWS drops another one.
    notice = json.loads(target["InputTransformer"]["InputTemplate"])
    assert (notice["version"], notice["source"], notice["content"]["textType"]) == ("1.0", "custom", "client-markdown")
    assert notice["content"]["description"].endswith(f"what to do: {RUNBOOK}#executionsfail")
    assert set(target["InputTransformer"]["InputPathsMap"].values()) == {"$.detail.executionArn", "$.detail.status"}


def test_only_alarms_and_two_rules_publish_to_operations(
    template: Template,
) -> None:
    allowed = {
        str(statement.sid): (principal, statement.condition)
        for name, statement, principal in template.resource_policy_statements()
        if name == "MonitoringOperationsPolicy" and statement.effect == "Allow"
    }
    assert set(allowed) == {"AlarmsOfThisAccount", "ExecutionsFail", "AlarmsEnd"}
    for name in ("ExecutionsFail", "AlarmsEnd"):
        source = {"ArnEquals": {"aws:SourceArn": f"{{Monitoring{name}Rule.Arn}}"}}
        assert allowed[name] == ({"Service": "events.amazonaws.com"}, source)


def test_failed_alert_delivery_is_logged_for_each_protocol(
    template: Template,
) -> None:
    topic = template.one("AWS::SNS::Topic", "ActionsAlerts")
    logged = {each["Protocol"]: each for each in topic["DeliveryStatusLogging"]}
    assert set(logged) == {"http/s", "sqs", "lambda", "firehose", "application"}
    assert all(set(each) == {"Protocol", "FailureFeedbackRoleArn"} for each in logged.values())
    log = template.one("AWS::Logs::LogGroup", "ActionsDeliveryFailures")["LogGroupName"]
    assert log == "sns/{AWS::Region}/{AWS::AccountId}/{ActionsAlerts.TopicName}/Failure"


def test_message_failed_once_raises_no_alarm_before_its_retry(alarms: dict[str, Any], template: Template) -> None:
    visibility = template.one("AWS::SQS::Queue", "IngestDoorbells")["VisibilityTimeout"]
    assert alarms["DoorbellsWaitTooLong"]["Threshold"] > 2 * visibility


def test_silent_canary_counts_as_a_fault_of_the_canary(template: Template) -> None:
    found = template.one("AWS::Logs::MetricFilter", "MonitoringFaultsSilentCanary")
    assert found["FilterPattern"] == '{ $.message = "canary_silent" }'
    assert "Scheduler" in found["LogGroupName"]
    (transformation,) = found["MetricTransformations"]
    assert (transformation["MetricName"], transformation["MetricValue"]) == ("FaultsCanary", str(AT_ONCE))


@pytest.mark.parametrize("name", WATCHED)
def test_each_alarm_names_a_runbook_section(alarms: dict[str, Any], name: str) -> None:
    assert alarms[name]["AlarmDescription"].endswith(f". What to do: {RUNBOOK}#{section_of(name).lower()}")


def section_of(alarm: str) -> str:
    """Return the runbook's section: the alarms of functions share one."""
    return "FaultsFound" if alarm.startswith("FaultsFound") else alarm


SECTIONS = tuple(dict.fromkeys(map(section_of, WATCHED)))


@pytest.mark.parametrize("name", [*SECTIONS, *TOLD_WITHOUT_ALARM, *FAULTS])
def test_runbook_sections_say_meaning_and_remedy(
    name: str,
) -> None:
    _, _, rest = (ROOT / RUNBOOK).read_text(encoding="utf-8").partition(f"\n### {name}\n")
    section, _, _ = rest.partition("\n#")
    means, _, do = section.partition("**Do:**")
    assert means.strip()
    assert do.strip()


def test_runbook_has_no_other_sections() -> None:
    text = (ROOT / RUNBOOK).read_text(encoding="utf-8")
    told = sorted([*SECTIONS, *TOLD_WITHOUT_ALARM, *FAULTS])
    assert sorted(re.findall(r"^### (\w+)$", text, re.MULTILINE)) == told
    _, _, listed = text.partition("\n### FaultsFound\n")
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", listed.partition("\n### ")[0], re.MULTILINE)
    points = {name: int(number) for number, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert points == dict(FAULT_POINTS)


def test_deployment_without_canary_has_no_alarm_for_one(variants: Path) -> None:
    found = Template(variants / "without-canary" / "TrainGuard.template.json").of_type("AWS::CloudWatch::Alarm")
    assert {name.removeprefix("Monitoring") for name in found} == {name for name in WATCHED if "Canary" not in name}
