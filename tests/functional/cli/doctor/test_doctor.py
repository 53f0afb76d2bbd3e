"""`trainguard doctor` as a command: exit codes, its JSON document, and what it says where it may not look."""

import json
import re
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError
from typer.testing import CliRunner, Result

from tests.functional.cli import doctor_account
from tests.functional.cli.doctor_account import Account
from tests.functional.cli.doctor_stack import ACCOUNT, BUCKET, REGION, STACK
from trainguard.cli.doctor.diagnosis import CHECKS, JOB_CHECKS
from trainguard.cli.main import app

JOB = "resnet50"
JOB_ONLY = {name for name, _ in JOB_CHECKS}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    account = Account()
    doctor_account.install(account)
    monkeypatch.setattr("trainguard.cli.services.deployment.Session", lambda **_: doctor_account.session())
    monkeypatch.delenv("TRAINGUARD_STACK", raising=False)
    return account


def doctor(*words: str) -> Result:
    return CliRunner().invoke(app, ["doctor", "--region", REGION, *words])


def document(*words: str) -> Any:
    return json.loads(doctor(*words, "--json").stdout)


def test_healthy_stack_exits_0_with_a_line_per_check(
    account: Account,
) -> None:
    result = doctor()
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert [line.split("\t")[:2] for line in lines[:-1]] == [["OK", name] for name, _ in CHECKS]
    assert lines[-1] == f"{len(CHECKS)} OK, 0 WARN, 0 FAIL"


def test_warning_alone_exits_0(account: Account) -> None:
    account.change("sns", "ListSubscriptionsByTopic", lambda answer, _: answer.update(Subscriptions=[]))
    result = doctor()
    assert result.exit_code == 0
    assert "WARN\talert topic\tno subscription\tNobody is notified of findings" in result.stdout
    assert result.stdout.endswith(f"{len(CHECKS) - 2} OK, 2 WARN, 0 FAIL\n")


def test_failed_check_exits_1_and_ends_in_a_command(
    account: Account,
) -> None:
    account.change("s3", "GetBucketNotificationConfiguration", lambda answer, _: answer.clear())
    result = doctor()
    assert result.exit_code == 1
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("FAIL")]
    assert line.split("\t")[-1].startswith("aws s3api put-bucket-notification-configuration --bucket")
    assert doctor("--json").exit_code == 1


def test_json_output_is_one_document_of_its_shape(account: Account) -> None:
    account.change("ssm", "GetParameter", lambda answer, _: answer["Parameter"].update(Value="perhaps"))
    found = document("--bucket", BUCKET)
    findings = found.pop("findings")
    assert found == {
        "schema_version": "1",
        "stack": STACK,
        "region": REGION,
        "account": ACCOUNT,
        "job": None,
        "bucket": BUCKET,
        "examined": True,
        "healthy": False,
        "counts": {"OK": len(CHECKS) - 1, "WARN": 0, "FAIL": 1},
    }
    assert all(list(each) == ["check", "level", "found", "advice", "command"] for each in findings)
    (failed,) = [each for each in findings if each["level"] == "FAIL"]
    assert failed["command"].startswith("aws ssm put-parameter")


@pytest.mark.parametrize(
    ("code", "check", "said"),
    [
        ("ValidationError", "stack", "has no stack TrainGuard"),
        ("AccessDenied", "stack", "access denied to"),
        ("ExpiredToken", "credentials", "have expired"),
    ],
)
def test_missing_stack_exits_2_with_one_line(account: Account, code: str, check: str, said: str) -> None:
    account.refuse("cloudformation", "DescribeStacks", code)
    found = document()
    assert (found["examined"], found["healthy"], found["account"]) == (False, False, None)
    (finding,) = found["findings"]
    assert (finding["check"], finding["level"]) == (check, "FAIL")
    assert said in finding["found"]
    assert finding["advice"]
    assert doctor().exit_code == 2


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (NoCredentialsError(), "no AWS credentials"),
        (EndpointConnectionError(endpoint_url="https://nowhere"), "https://nowhere"),
    ],
)
def test_unreachable_network_exits_2(
    account: Account, monkeypatch: pytest.MonkeyPatch, fault: Exception, said: str
) -> None:
    def refused(given: object) -> dict[str, Any]:
        raise fault

    monkeypatch.setitem(account.answers, ("cloudformation", "DescribeStacks"), refused)
    result = doctor()
    assert result.exit_code == 2
    assert result.stdout.startswith("FAIL\tcredentials\t")
    assert said in result.stdout


def test_incomplete_stack_exits_2(account: Account) -> None:
    account.change(
        "cloudformation",
        "DescribeStacks",
        lambda answer, _: answer["Stacks"][0].update(StackStatus="ROLLBACK_COMPLETE"),
    )
    result = doctor()
    assert result.exit_code == 2
    assert "ROLLBACK_COMPLETE" in result.stdout


ASKED_OF_A_STACK = [
    ("sts", "GetCallerIdentity", "sts:GetCallerIdentity"),
    ("cloudformation", "ListStackResources", "cloudformation:ListStackResources"),
    ("lambda", "GetFunctionConfiguration", "lambda:GetFunctionConfiguration"),
    ("lambda", "GetFunctionConcurrency", "lambda:GetFunctionConcurrency"),
    ("lambda", "GetAccountSettings", "lambda:GetAccountSettings"),
    ("lambda", "ListEventSourceMappings", "lambda:ListEventSourceMappings"),
    ("cloudwatch", "GetMetricData", "cloudwatch:GetMetricData"),
    ("cloudwatch", "DescribeAlarms", "cloudwatch:DescribeAlarms"),
    ("sqs", "GetQueueAttributes", "sqs:GetQueueAttributes"),
    ("s3", "HeadBucket", "s3:ListBucket"),
    ("s3", "GetBucketNotificationConfiguration", "s3:GetBucketNotification"),
    ("s3", "GetBucketLifecycleConfiguration", "s3:GetLifecycleConfiguration"),
    ("s3", "GetBucketEncryption", "s3:GetEncryptionConfiguration"),
    ("iam", "SimulatePrincipalPolicy", "iam:SimulatePrincipalPolicy"),
    ("s3", "ListObjectsV2", "s3:ListBucket"),
    ("s3", "HeadObject", "s3:GetObject"),
    ("events", "DescribeRule", "events:DescribeRule"),
    ("events", "ListTargetsByRule", "events:ListTargetsByRule"),
    ("events", "TestEventPattern", "events:TestEventPattern"),
    ("dynamodb", "DescribeTable", "dynamodb:DescribeTable"),
    ("dynamodb", "DescribeTimeToLive", "dynamodb:DescribeTimeToLive"),
    ("dynamodb", "DescribeContinuousBackups", "dynamodb:DescribeContinuousBackups"),
    ("dynamodb", "GetItem", "dynamodb:GetItem"),
    ("dynamodb", "Scan", "dynamodb:Scan"),
    ("dynamodb", "Query", "dynamodb:Query"),
    ("ssm", "GetParameter", "ssm:GetParameter"),
    ("sns", "ListSubscriptionsByTopic", "sns:ListSubscriptionsByTopic"),
    ("stepfunctions", "DescribeStateMachine", "states:DescribeStateMachine"),
    ("stepfunctions", "ListExecutions", "states:ListExecutions"),
    ("sagemaker", "DescribeTrainingJob", "sagemaker:DescribeTrainingJob"),
    ("sagemaker", "ListTags", "sagemaker:ListTags"),
]


def test_doctor_makes_only_these_reads(account: Account) -> None:
    doctor()
    assert set(account.asked) == {(service, operation) for service, operation, _ in ASKED_OF_A_STACK} | {
        ("cloudformation", "DescribeStacks")
    }


@pytest.mark.parametrize(("service", "operation", "action"), ASKED_OF_A_STACK)
def test_denied_request_names_the_action_and_goes_on(
    account: Account, service: str, operation: str, action: str
) -> None:
    account.refuse(service, operation, "AccessDeniedException", 403)
    found = document()
    told = [each for each in found["findings"] if action in each["found"]]
    assert told
    assert {each["level"] for each in told} == {"WARN"}
    assert all("docs/cli.md" in each["advice"] for each in told)
    assert {each["check"] for each in found["findings"]} == {name for name, _ in CHECKS}
    assert found["counts"]["FAIL"] == 0


@pytest.mark.parametrize(("service", "operation", "action"), ASKED_OF_A_STACK[::4])
def test_throttled_request_is_reported_and_goes_on(account: Account, service: str, operation: str, action: str) -> None:
    account.refuse(service, operation, "ThrottlingException")
    found = document()
    told = [each for each in found["findings"] if "ThrottlingException" in each["found"]]
    assert told
    assert all(action in each["found"] and each["level"] == "WARN" for each in told)
    assert {each["check"] for each in found["findings"]} == {name for name, _ in CHECKS}


@pytest.mark.parametrize(
    ("service", "operation", "code", "checks"),
    [
        (
            "lambda",
            "GetFunctionConfiguration",
            "ResourceNotFoundException",
            {"functions", "network", "concurrency", "scheduler", "reconciliations", "roles"},
        ),
        ("events", "DescribeRule", "ResourceNotFoundException", {"EventBridge rules", "event pattern"}),
        ("dynamodb", "DescribeTable", "ResourceNotFoundException", {"tables"}),
        (
            "sqs",
            "GetQueueAttributes",
            "AWS.SimpleQueueService.NonExistentQueue",
            {"evaluation queue", "dead letters", "notifications"},
        ),
        ("ssm", "GetParameter", "ParameterNotFound", {"stop switch"}),
        ("sns", "ListSubscriptionsByTopic", "NotFound", {"alert topic", "operations topic"}),
        ("stepfunctions", "DescribeStateMachine", "StateMachineDoesNotExist", {"state machines", "roles"}),
    ],
)
def test_manually_deleted_resource_fails_its_checks(
    account: Account, service: str, operation: str, code: str, checks: set[str]
) -> None:
    account.refuse(service, operation, code)
    failed = [each for each in document()["findings"] if each["level"] == "FAIL"]
    assert {each["check"] for each in failed} == checks
    assert all(code in each["found"] and "deleted" in each["advice"] for each in failed)


def test_malformed_response_fails_its_check_and_others_go_on(
    account: Account,
) -> None:
    account.change("ssm", "GetParameter", lambda answer, _: answer.clear())
    findings = document()["findings"]
    (told,) = [each for each in findings if each["level"] != "OK"]
    assert (told["check"], told["level"]) == ("stop switch", "WARN")
    assert re.fullmatch(r"the check itself failed \(KeyError in aws/ssm\.py:\d+: 'Parameter'\)", told["found"])
    assert {each["check"] for each in findings} == {name for name, _ in CHECKS}


@pytest.mark.parametrize(("operation", "check"), [("HeadBucket", "bucket"), ("HeadObject", "permissions")])
def test_denial_without_a_body_is_recognized(account: Account, operation: str, check: str) -> None:
    account.refuse("s3", operation, "403", 403)
    told = [each for each in document()["findings"] if each["level"] == "WARN"]
    assert {each["check"] for each in told} == {check}
    assert all("docs/cli.md" in each["advice"] for each in told)


def test_foreign_text_cannot_control_the_terminal(account: Account) -> None:
    evil = {"SubscriptionArn": "PendingConfirmation", "Protocol": "email", "Endpoint": "\x1b[2J[red]x\ty"}
    account.change("sns", "ListSubscriptionsByTopic", lambda answer, _: answer.update(Subscriptions=[evil]))
    shown = doctor().stdout
    assert "\x1b" not in shown
    assert "email \\x1b[2J[red]x y\t" in shown


def test_unknown_job_has_a_line_for_each_job_check(account: Account) -> None:
    found = document("--job", JOB)
    lines = {each["check"]: each for each in found["findings"] if each["check"] in JOB_ONLY}
    assert found["job"] == JOB
    assert lines.keys() == JOB_ONLY - {"profiler"}
    assert lines["training job"]["found"] == f"SageMaker does not know a training job {JOB}"
    assert "nothing lies below s3://trainguard-profiles/resnet50/profiler-output/" in lines["objects"]["found"]


@pytest.mark.parametrize(
    ("service", "operation", "action", "check"),
    [
        ("sagemaker", "DescribeTrainingJob", "DescribeTrainingJob", "training job"),
        ("s3", "ListObjectsV2", "ListObjectsV2", "objects"),
        ("dynamodb", "Query", "Query", "evaluation"),
        ("ssm", "GetParameter", "ssm:GetParameter", "stop"),
    ],
)
def test_denied_request_about_a_job_is_named_by_its_check(
    account: Account, service: str, operation: str, action: str, check: str
) -> None:
    account.refuse(service, operation, "AccessDeniedException", 403)
    lines = {each["check"]: each for each in document("--job", JOB)["findings"]}
    assert lines[check]["level"] == "WARN"
    assert action in lines[check]["found"]
    assert lines.keys() >= JOB_ONLY - {"profiler"}


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("resnet50@replay-x", "It is a replay: examine resnet50."), ("../x", "Give its name as SageMaker has it.")],
)
def test_no_training_job_exits_2_without_requests(account: Account, name: str, remedy: str) -> None:
    result = doctor("--job", name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"trainguard: {name!r} is no name of a training job. {remedy}\n"
