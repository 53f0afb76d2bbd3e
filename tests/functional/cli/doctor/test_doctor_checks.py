"""`trainguard doctor` on a stack: each check is content with what is well, and fails when it should."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.functional.cli import doctor_account, healthy_answers
from tests.functional.cli.doctor_account import Account
from tests.functional.cli.doctor_stack import REGION, STACK, named, outputs
from tests.functional.cli.healthy_answers import MAPPING, NOW, Given, RefusalError, execution
from trainguard.cli.doctor import stack
from trainguard.cli.doctor.diagnosis import CHECKS, diagnose
from trainguard.cli.doctor.site import CheckLevel, CheckResult, Site
from trainguard.cli.options import Where
from trainguard.cli.services.deployment import find_deployment
from trainguard.core.brakes import Braked, new_brake, written_brakes

BRAKE = new_brake("b-1", Braked.ALERTS, by="arn:aws:iam::1:user/ada", why="a storm", now=NOW)
Change = Callable[[dict[str, Any], Given], object]


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    account = Account()
    doctor_account.install(account)
    monkeypatch.setattr("trainguard.cli.services.deployment.Session", lambda **_: doctor_account.session())
    return account


def examined(bucket: str | None = None, profile: str | None = None) -> list[CheckResult]:
    deployment = find_deployment(Where(stack=STACK, region=REGION))
    return list(diagnose(Site(deployment, now=NOW, bucket=bucket, profile=profile), None))


def of_check(findings: list[CheckResult], check: str) -> list[CheckResult]:
    return [finding for finding in findings if finding.check == check]


def test_healthy_stack_passes_every_check_once(account: Account) -> None:
    findings = examined()
    assert [finding.found for finding in findings if finding.level is not CheckLevel.OK] == []
    assert [finding.check for finding in findings] == [name for name, _ in CHECKS]
    assert all(finding.advice is None and finding.command is None for finding in findings)


def test_template_has_every_expected_output() -> None:
    assert set(stack.EXPECTED_OUTPUTS) <= set(outputs())


def replace(**columns: object) -> Change:
    """Return a change that sets columns at the top of an answer."""
    return within(**columns)


def within(*path: str | int, **columns: object) -> Change:
    """Return a change that sets columns somewhere below."""

    def change(answer: Any, given: Given) -> None:
        for step in path:
            answer = answer[step]
        answer.update(columns)

    return change


def only_for(name: str, value: str, change: Change) -> Change:
    """Return a change for the questions that end in a value."""
    return lambda answer, given: str(given[name]).endswith(value) and change(answer, given)


def metric(name: str, values: list[float]) -> Change:
    def change(answer: dict[str, Any], given: Given) -> None:
        if given["MetricDataQueries"][0]["MetricStat"]["Metric"]["MetricName"] == name:
            answer["MetricDataResults"][0]["Values"] = values

    return change


def without(kind: str) -> Change:
    def change(answer: dict[str, Any], given: Given) -> None:
        kept = [each for each in answer["StackResourceSummaries"] if each["ResourceType"] != kind]
        answer["StackResourceSummaries"] = kept

    return change


def failed_execution(hours_ago: float, wanted: str = "FAILED") -> Change:
    def change(answer: dict[str, Any], given: Given) -> None:
        if given["statusFilter"] == wanted:
            answer["executions"] = [execution(given["stateMachineArn"], hours_ago=hours_ago)]

    return change


def lacking(output: str) -> Change:
    def change(answer: dict[str, Any], given: Given) -> None:
        kept = [each for each in answer["Stacks"][0]["Outputs"] if each["OutputKey"] != output]
        answer["Stacks"][0]["Outputs"] = kept

    return change


STACKS = ("cloudformation", "DescribeStacks")
RESOURCES = ("cloudformation", "ListStackResources")
FUNCTION = ("lambda", "GetFunctionConfiguration")
RESERVED = ("lambda", "GetFunctionConcurrency")
LIMITS = ("lambda", "GetAccountSettings")
MAPPINGS = ("lambda", "ListEventSourceMappings")
METRICS = ("cloudwatch", "GetMetricData")
ALARMS = ("cloudwatch", "DescribeAlarms")
DEPTHS = ("sqs", "GetQueueAttributes")
HEAD = ("s3", "HeadBucket")
NOTIFICATIONS = ("s3", "GetBucketNotificationConfiguration")
LIFECYCLE = ("s3", "GetBucketLifecycleConfiguration")
RULE = ("events", "DescribeRule")
TARGETS = ("events", "ListTargetsByRule")
MATCHING = ("events", "TestEventPattern")
TABLE = ("dynamodb", "DescribeTable")
EXPIRY = ("dynamodb", "DescribeTimeToLive")
BACKUPS = ("dynamodb", "DescribeContinuousBackups")
SWITCH = ("ssm", "GetParameter")
SUBSCRIPTIONS = ("sns", "ListSubscriptionsByTopic")
MACHINE = ("stepfunctions", "DescribeStateMachine")
EXECUTIONS = ("stepfunctions", "ListExecutions")
FEW_MESSAGES = {"ApproximateNumberOfMessages": "3", "ApproximateNumberOfMessagesNotVisible": "1"}
OLD_RULE = {"ID": "Old", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 3}}
ICE_RULE = {
    "ID": "Ice",
    "Status": "Enabled",
    "Filter": {"Prefix": "a/"},
    "Transitions": [{"Days": 9, "StorageClass": "DEEP_ARCHIVE"}],
}
PENDING = {"SubscriptionArn": "PendingConfirmation", "Protocol": "email", "Endpoint": "bob@example.com"}

BREAKAGES: list[tuple[tuple[str, str], Change, str, CheckLevel, str]] = [
    (STACKS, within("Stacks", 0, StackStatus="UPDATE_FAILED"), "stack", CheckLevel.FAIL, "UPDATE_FAILED"),
    (STACKS, within("Stacks", 0, StackStatus="UPDATE_IN_PROGRESS"), "stack", CheckLevel.WARN, "IN_PROGRESS"),
    (STACKS, within("Stacks", 0, StackStatus="UPDATE_ROLLBACK_COMPLETE"), "stack", CheckLevel.WARN, "ROLLBACK"),
    (STACKS, lacking("AlertTopicArn"), "stack", CheckLevel.FAIL, "no output AlertTopicArn"),
    (STACKS, lacking("AlertTopicArn"), "alert topic", CheckLevel.FAIL, "no output AlertTopicArn"),
    (FUNCTION, replace(State="Pending"), "functions", CheckLevel.WARN, "scheduler is Pending"),
    (
        FUNCTION,
        replace(State="Failed", StateReason="no role"),
        "functions",
        CheckLevel.FAIL,
        "scheduler is Failed: no role",
    ),
    (FUNCTION, replace(LastUpdateStatus="InProgress"), "functions", CheckLevel.WARN, "scheduler is being updated"),
    (FUNCTION, replace(LastUpdateStatus="Failed"), "functions", CheckLevel.FAIL, "the last update of scheduler failed"),
    (RESOURCES, without("AWS::Lambda::Function"), "functions", CheckLevel.FAIL, "no function"),
    (RESOURCES, without("AWS::Lambda::Function"), "scheduler", CheckLevel.FAIL, "no function scheduler"),
    (RESERVED, replace(ReservedConcurrentExecutions=0), "concurrency", CheckLevel.FAIL, "scheduler has a reserved"),
    (LIMITS, within("AccountLimit", UnreservedConcurrentExecutions=29), "concurrency", CheckLevel.WARN, "leaves 29"),
    (MAPPINGS, replace(EventSourceMappings=[]), "queue to function", CheckLevel.FAIL, "no function is called"),
    (MAPPINGS, within("EventSourceMappings", 0, State="Disabled"), "queue to function", CheckLevel.FAIL, "Disabled"),
    (MAPPINGS, within("EventSourceMappings", 0, State="Updating"), "queue to function", CheckLevel.WARN, "Updating"),
    (
        MAPPINGS,
        within("EventSourceMappings", 0, LastProcessingResult="PROBLEM: access"),
        "queue to function",
        CheckLevel.FAIL,
        "PROBLEM: access",
    ),
    (METRICS, metric("Invocations", []), "scheduler", CheckLevel.FAIL, "ran 0 times"),
    (METRICS, metric("Invocations", [1.0] * 7), "scheduler", CheckLevel.WARN, "ran 7 times"),
    (METRICS, metric("Errors", [1.0, 0.0]), "scheduler", CheckLevel.FAIL, "1 with an error"),
    (
        METRICS,
        metric("Errors", [1.0, 0.0]),
        "reconciliations",
        CheckLevel.FAIL,
        "14 in the last 15 min, 1 ended in an error",
    ),
    (METRICS, metric("AsyncEventsDropped", [2.0]), "reconciliations", CheckLevel.WARN, "2 were dropped"),
    (METRICS, metric("ApproximateAgeOfOldestMessage", [901.0]), "message age", CheckLevel.FAIL, "15 min"),
    (
        DEPTHS,
        only_for("QueueUrl", "DoorbellDeadLettersA7B5E0C1", replace(Attributes=FEW_MESSAGES)),
        "dead letters",
        CheckLevel.FAIL,
        "4 messages failed five times",
    ),
    (
        DEPTHS,
        only_for("QueueUrl", "EventDeadLetters50DDF4F0", replace(Attributes=FEW_MESSAGES)),
        "dead letters",
        CheckLevel.FAIL,
        "4 events",
    ),
    (HEAD, replace(BucketRegion="us-east-1"), "bucket", CheckLevel.FAIL, "lies in us-east-1"),
    (NOTIFICATIONS, lambda answer, _: answer.clear(), "notifications", CheckLevel.FAIL, "does not announce"),
    (LIFECYCLE, replace(Rules=[OLD_RULE]), "lifecycle", CheckLevel.WARN, "after 3 days"),
    (LIFECYCLE, replace(Rules=[ICE_RULE]), "lifecycle", CheckLevel.WARN, "DEEP_ARCHIVE"),
    (RULE, replace(State="DISABLED"), "EventBridge rules", CheckLevel.FAIL, "is DISABLED"),
    (TARGETS, lambda answer, _: answer.clear(), "EventBridge rules", CheckLevel.FAIL, "has no target"),
    (
        RULE,
        replace(EventPattern='{"source": ["other"]}'),
        "EventBridge rules",
        CheckLevel.FAIL,
        "no rule for new objects",
    ),
    (RULE, replace(ScheduleExpression=""), "EventBridge rules", CheckLevel.FAIL, "no rule for the scheduler"),
    (RESOURCES, without("AWS::Events::Rule"), "event pattern", CheckLevel.FAIL, "no rule matches"),
    (MATCHING, replace(Result=False), "event pattern", CheckLevel.FAIL, "training_job_end.ts"),
    (TABLE, within("Table", TableStatus="ARCHIVED"), "tables", CheckLevel.FAIL, "is ARCHIVED"),
    (
        TABLE,
        within("Table", GlobalSecondaryIndexes=[{"IndexName": "ActiveJobs", "IndexStatus": "CREATING"}]),
        "tables",
        CheckLevel.FAIL,
        "index ActiveJobs",
    ),
    (EXPIRY, replace(TimeToLiveDescription={"TimeToLiveStatus": "DISABLED"}), "expiry", CheckLevel.WARN, "is DISABLED"),
    (EXPIRY, within("TimeToLiveDescription", AttributeName="Ttl"), "expiry", CheckLevel.WARN, "on Ttl"),
    (
        BACKUPS,
        within(
            "ContinuousBackupsDescription", PointInTimeRecoveryDescription={"PointInTimeRecoveryStatus": "DISABLED"}
        ),
        "backups",
        CheckLevel.WARN,
        "is DISABLED",
    ),
    (SWITCH, within("Parameter", Value="Enabled"), "stop switch", CheckLevel.FAIL, "'Enabled' counts as disabled"),
    (SUBSCRIPTIONS, replace(Subscriptions=[]), "alert topic", CheckLevel.WARN, "no subscription"),
    (SUBSCRIPTIONS, replace(Subscriptions=[]), "operations topic", CheckLevel.WARN, "no subscription"),
    (
        SUBSCRIPTIONS,
        replace(Subscriptions=[PENDING]),
        "alert topic",
        CheckLevel.WARN,
        "1 subscription not confirmed: email bob",
    ),
    (ALARMS, within("MetricAlarms", 0, StateValue="ALARM"), "alarms", CheckLevel.FAIL, "is in ALARM"),
    (ALARMS, within("MetricAlarms", 0, ActionsEnabled=False), "alarms", CheckLevel.WARN, "notifies nobody"),
    (ALARMS, replace(MetricAlarms=[]), "alarms", CheckLevel.WARN, "alarms are missing"),
    (MACHINE, replace(status="DELETING"), "state machines", CheckLevel.FAIL, "is DELETING"),
    (RESOURCES, without("AWS::StepFunctions::StateMachine"), "state machines", CheckLevel.FAIL, "no state machine"),
    (
        EXECUTIONS,
        failed_execution(23.0),
        "executions",
        CheckLevel.WARN,
        "FAILED in the last 24 h, the last fire-1 23 h ago",
    ),
    (EXECUTIONS, failed_execution(1.0, "TIMED_OUT"), "executions", CheckLevel.WARN, "TIMED_OUT"),
    (EXECUTIONS, failed_execution(1.0, "ABORTED"), "executions", CheckLevel.WARN, "ABORTED"),
]


@pytest.mark.parametrize(("question", "change", "check", "level", "said"), BREAKAGES)
def test_broken_part_is_named_with_its_remedy(
    account: Account, question: tuple[str, str], change: Change, check: str, level: CheckLevel, said: str
) -> None:
    account.change(*question, change)
    found = of_check(examined(), check)
    faults = [finding for finding in found if said in finding.found]
    assert [fault.level for fault in faults][:1] == [level], found
    assert all(finding.advice for finding in faults)
    assert CheckLevel.OK not in {finding.level for finding in found}


@pytest.mark.parametrize(
    ("question", "change"),
    [
        (METRICS, metric("Invocations", [1.0] * 8)),
        (METRICS, metric("ApproximateAgeOfOldestMessage", [900.0])),
        (METRICS, metric("ApproximateAgeOfOldestMessage", [])),
        (LIMITS, within("AccountLimit", UnreservedConcurrentExecutions=30)),
        (EXECUTIONS, failed_execution(24.1)),
        (LIFECYCLE, replace(Rules=[OLD_RULE | {"Status": "Disabled"}])),
        (LIFECYCLE, replace(Rules=[OLD_RULE | {"Expiration": {"Days": 7}}])),
        (LIFECYCLE, replace(Rules=[OLD_RULE | {"Filter": {"Prefix": "models/"}}])),
        (SWITCH, within("Parameter", Value="dry-run")),
        (SWITCH, within("Parameter", Value="disabled")),
        (TABLE, within("Table", TableStatus="UPDATING")),
        (FUNCTION, replace(State="Inactive")),
    ],
)
def test_barely_sufficient_part_has_no_finding(account: Account, question: tuple[str, str], change: Change) -> None:
    account.change(*question, change)
    assert [finding for finding in examined() if finding.level is not CheckLevel.OK] == []


def test_resource_never_created_is_left_out(account: Account) -> None:
    def change(answer: dict[str, Any], given: Given) -> None:
        unmade = {
            "LogicalResourceId": "New",
            "ResourceType": "AWS::Lambda::Function",
            "ResourceStatus": "CREATE_FAILED",
        }
        answer["StackResourceSummaries"].append(unmade | {"LastUpdatedTimestamp": healthy_answers.at(NOW)})

    account.change(*RESOURCES, change)
    assert {finding.level for finding in of_check(examined(), "functions")} == {CheckLevel.OK}


@pytest.mark.parametrize(
    ("question", "change", "check", "words"),
    [
        (
            DEPTHS,
            only_for("QueueUrl", "DoorbellDeadLettersA7B5E0C1", replace(Attributes=FEW_MESSAGES)),
            "dead letters",
            "aws sqs start-message-move-task --source-arn arn:aws:sqs:eu-west-1:111122223333:TrainGuard-Ingest",
        ),
        (RULE, replace(State="DISABLED"), "EventBridge rules", "aws events enable-rule --name TrainGuard-"),
        (
            MAPPINGS,
            within("EventSourceMappings", 0, State="Disabled"),
            "queue to function",
            f"aws lambda update-event-source-mapping --uuid {MAPPING} --enabled",
        ),
        (SWITCH, within("Parameter", Value=""), "stop switch", "aws ssm put-parameter --overwrite --name /TrainGuard/"),
    ],
)
def test_command_for_a_broken_part_has_region_and_profile(
    account: Account, question: tuple[str, str], change: Change, check: str, words: str
) -> None:
    account.change(*question, change)
    command = str(of_check(examined(profile="my team"), check)[0].command)
    assert command.startswith(words)
    assert command.endswith(" --region eu-west-1 --profile 'my team'")


@pytest.mark.parametrize(
    ("override", "level", "found"),
    [
        (
            "disabled",
            CheckLevel.OK,
            "disabled: nothing is stopped (the stack's value is enabled, the override disabled)",
        ),
        (
            "dry-run",
            CheckLevel.OK,
            "dry-run: nothing is stopped; the alert says what would have been (the stack's value",
        ),
        ("enabled", CheckLevel.OK, "enabled: a fire stops its job"),
        ("off", CheckLevel.FAIL, "the override 'off' counts as disabled"),
    ],
)
def test_stop_switch_override_shows_both_values(account: Account, override: str, level: CheckLevel, found: str) -> None:
    before = account.answers[SWITCH]

    def answer(given: Given) -> dict[str, Any]:
        named = given["Name"] == "/TrainGuard/stop-switch-override"
        return {"Parameter": {"Name": given["Name"], "Value": override}} if named else before(given)

    account.answers[SWITCH] = answer
    (finding,) = of_check(examined(), "stop switch")
    assert finding.level is level
    assert finding.found.startswith(found)
    if level is CheckLevel.FAIL:
        words = "aws ssm put-parameter --overwrite --name /TrainGuard/stop-switch-override --value disabled "
        assert str(finding.command).startswith(words)


@pytest.mark.parametrize(
    ("document", "level", "found"),
    [
        ("[]", CheckLevel.OK, "none is on"),
        (written_brakes([BRAKE], now=NOW), CheckLevel.WARN, "alerts on all jobs are held back: brake b-1 of ada until"),
        ("[7]", CheckLevel.FAIL, "brake 1 of 1 cannot be read"),
    ],
)
def test_brakes_in_force_are_warnings(account: Account, document: str, level: CheckLevel, found: str) -> None:
    before = account.answers[SWITCH]

    def answer(given: Given) -> dict[str, Any]:
        named = given["Name"] == "/TrainGuard/brakes"
        return {"Parameter": {"Name": given["Name"], "Value": document, "Version": 3}} if named else before(given)

    account.answers[SWITCH] = answer
    (finding,) = of_check(examined(), "brakes")
    assert finding.level is level
    assert finding.found.startswith(found)
    assert level is not CheckLevel.WARN or finding.advice == "`trainguard brake release b-1` ends it."


def test_failed_fire_execution_says_how_to_see_unsent_alerts(
    account: Account,
) -> None:
    account.change(*EXECUTIONS, failed_execution(1.0))
    advice = [str(finding.advice) for finding in of_check(examined(), "executions")]
    assert sorted("`trainguard alerts list`" in each for each in advice) == [False, False, True]


def test_hundreds_of_alarms_are_all_queried(account: Account) -> None:
    def change(answer: dict[str, Any], given: Given) -> None:
        alarm = {"ResourceType": "AWS::CloudWatch::Alarm", "ResourceStatus": "CREATE_COMPLETE"}
        for number in range(150):
            name = f"Alarm{number}"
            ids = {
                "LogicalResourceId": name,
                "PhysicalResourceId": name,
                "LastUpdatedTimestamp": healthy_answers.at(NOW),
            }
            answer["StackResourceSummaries"].append(alarm | ids)

    def described(given: Given) -> dict[str, Any]:
        if len(given["AlarmNames"]) > 100:
            raise RefusalError("ValidationError")
        return {"MetricAlarms": [{"AlarmName": name, "StateValue": "OK"} for name in given["AlarmNames"]]}

    account.change(*RESOURCES, change)
    account.answers[ALARMS] = described
    (finding,) = of_check(examined(), "alarms")
    assert finding.found == f"{150 + len(named('AWS::CloudWatch::Alarm'))} alarms, none of them in alarm"


@pytest.mark.parametrize(
    ("own", "deployed", "level"),
    [("1.2", None, CheckLevel.OK), ("1.2", "1.2", CheckLevel.OK), ("1.2", "1.1", CheckLevel.WARN)],
)
def test_version_difference_is_reported(own: str, deployed: str | None, level: CheckLevel) -> None:
    assert stack.grade_version(own, deployed).level is level
