"""`make destroy`: what is shown, asked and refused before anything is deleted; buckets of every kind are emptied."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from infra import teardown
from infra.teardown import MARK, OVERRIDE, BucketNotEmptiedError, Fate, empty, main, read_fate
from trainguard.cli.options import Where
from trainguard.cli.services.deployment import Deployment
from trainguard.core.errors import PortUnavailableError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET, STACK, ACCOUNT, REGION = "profiles", "TrainGuard", "111122223333", "eu-west-1"
_RESOURCES = (
    ("Profiles", "AWS::S3::Bucket", BUCKET, "CREATE_COMPLETE"),
    ("Jobs", "AWS::DynamoDB::Table", "Jobs", "CREATE_COMPLETE"),
    ("Rows", "AWS::DynamoDB::Table", "Rows", "CREATE_COMPLETE"),
    ("Old", "AWS::S3::Bucket", "gone", "DELETE_COMPLETE"),
    ("Unmade", "AWS::S3::Bucket", None, "CREATE_FAILED"),
)
_TEMPLATE = {
    "Resources": {"Jobs": {"DeletionPolicy": "Retain"}, "Rows": {"DeletionPolicy": "RetainExceptOnCreate"}, "Old": {}}
}


class _CloudFormation:
    """The two answers that say what becomes of the resources."""

    def __init__(self, template: Any) -> None:
        self._template = template

    def get_template(self, **_: str) -> dict[str, Any]:
        return {"TemplateBody": self._template}

    def get_paginator(self, _: str) -> Any:
        keys = ("LogicalResourceId", "ResourceType", "PhysicalResourceId", "ResourceStatus")
        found = [
            {key: value for key, value in zip(keys, each, strict=True) if value is not None} for each in _RESOURCES
        ]
        pages = [{"StackResourceSummaries": found[:2]}, {"StackResourceSummaries": found[2:]}]
        return SimpleNamespace(paginate=lambda **_: pages)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> "Iterator[S3Client]":
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=BUCKET)
        yield client


def left(s3: "S3Client") -> list[object]:
    listed = s3.list_object_versions(Bucket=BUCKET)
    uploads = s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
    return [*listed.get("Versions", []), *listed.get("DeleteMarkers", []), *uploads]


@pytest.mark.parametrize("versioned", [True, False])
def test_emptied_bucket_has_no_versions_markers_or_uploads(s3: "S3Client", versioned: bool) -> None:
    if versioned:
        s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    for body in (b"1", b"2"):
        s3.put_object(Bucket=BUCKET, Key="a", Body=body)
    s3.put_object(Bucket=BUCKET, Key="b", Body=b"3")
    if versioned:
        s3.delete_object(Bucket=BUCKET, Key="a")
    s3.create_multipart_upload(Bucket=BUCKET, Key="half")
    assert empty(s3, BUCKET) == (4 if versioned else 2)
    assert left(s3) == []


def test_emptying_a_missing_bucket_does_nothing(s3: "S3Client") -> None:
    assert empty(s3, "nowhere") == 0


def test_undeletable_objects_are_named_and_others_deleted(s3: "S3Client", monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [f"kept/{number}" for number in range(4)]
    for key in (*kept, "free"):
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"")
    delete = s3.delete_objects

    def refusing(*, Bucket: str, Delete: Any) -> Any:  # noqa: N803 -- named as boto3's
        free = [each for each in Delete["Objects"] if each["Key"] not in kept]
        delete(Bucket=Bucket, Delete={"Objects": free})
        return {"Errors": [{"Key": key, "Code": "AccessDenied", "Message": "locked"} for key in kept]}

    monkeypatch.setattr(s3, "delete_objects", refusing)
    with pytest.raises(BucketNotEmptiedError) as caught:
        empty(s3, BUCKET)
    told = str(caught.value)
    assert "kept/0 (AccessDenied: locked); kept/1" in told
    assert "and 1 more" in told
    assert "The stack was not deleted" in told
    assert len(left(s3)) == 4


@pytest.mark.parametrize("as_text", [True, False])
def test_retained_resources_stay_and_gone_ones_are_left_out(
    as_text: bool,
) -> None:
    client: Any = _CloudFormation(json.dumps(_TEMPLATE) if as_text else _TEMPLATE)
    fate = read_fate(client, STACK)
    assert {name for _, name in fate.stays} == {"Jobs", "Rows"}
    assert fate.buckets == (BUCKET,)
    assert len(fate.goes) == 2


@dataclass
class _Account:
    """What was done to an account in which the stack is, and what is typed when asked."""

    typed: str | None = STACK
    outputs: dict[str, str] = field(default_factory=lambda: {MARK: "/stop"})
    emptied: list[str] = field(default_factory=list)
    protections: list[dict[str, object]] = field(default_factory=list)
    commands: list[Sequence[str]] = field(default_factory=list)
    environments: list[dict[str, str]] = field(default_factory=list)
    ssm: Any = None

    def answer(self, _: str) -> str:
        if self.typed is None:
            raise EOFError
        return self.typed

    def look_up(self, where: Where) -> Deployment:
        cloudformation = SimpleNamespace(update_termination_protection=lambda **given: self.protections.append(given))
        clients: Any = SimpleNamespace(cloudformation=cloudformation, s3=None, ssm=self.ssm)
        return Deployment(
            stack=where.stack,
            status="DELETE_FAILED",
            region=where.region or REGION,
            partition="aws",
            account=ACCOUNT,
            outputs=self.outputs,
            clients=clients,
        )

    def empty(self, _: object, bucket: str) -> int:
        self.emptied.append(bucket)
        return 7

    def run(self, command: Sequence[str], *, env: dict[str, str], **_: object) -> Any:
        self.commands.append(command)
        self.environments.append(env)
        return SimpleNamespace(returncode=0)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> _Account:
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    account = _Account()
    goes = (("AWS::S3::Bucket", BUCKET), ("AWS::SQS::Queue", "q"))
    monkeypatch.setattr(teardown, "look_up", account.look_up)
    monkeypatch.setattr(teardown, "read_fate", lambda *_: Fate((("AWS::DynamoDB::Table", "Jobs"),), goes))
    monkeypatch.setattr(teardown, "empty", account.empty)
    monkeypatch.setattr("builtins.input", account.answer)
    monkeypatch.setattr(subprocess, "run", account.run)
    return account


def test_question_follows_account_region_stack_and_fate(account: _Account, capsys: pytest.CaptureFixture[str]) -> None:
    account.typed = "Other"
    assert main([]) == 1
    told = capsys.readouterr().out
    assert told.startswith("Account 111122223333, Region eu-west-1, stack TrainGuard (DELETE_FAILED)\n")
    assert "stays: AWS::DynamoDB::Table Jobs" in told
    assert f"is emptied and goes: bucket {BUCKET}" in told
    assert told.endswith("Nothing was deleted.\n")
    assert (account.emptied, account.commands, account.protections) == ([], [], [])


def test_agreed_deletion_ends_the_termination_protection(account: _Account) -> None:
    assert main([]) == 0
    assert account.protections == [{"StackName": STACK, "EnableTerminationProtection": False}]


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ("disabled", "  stays: AWS::SSM::Parameter /TrainGuard/stop-switch-override, 'disabled': a later stack"),
        (None, None),
        (
            "AccessDeniedException",
            "  stays if it is there: AWS::SSM::Parameter /TrainGuard/stop-switch-override, which",
        ),
    ],
)
def test_kept_stop_switch_override_is_named_with_its_removal(
    account: _Account, capsys: pytest.CaptureFixture[str], stored: str | None, told: str | None
) -> None:
    def get_parameter(Name: str) -> Any:  # noqa: N803 -- named as boto3's
        assert Name == "/TrainGuard/stop-switch-override"
        if stored == "disabled":
            return {"Parameter": {"Value": stored}}
        raise ClientError({"Error": {"Code": stored or "ParameterNotFound", "Message": "no"}}, "GetParameter")

    account.outputs[OVERRIDE] = "/TrainGuard/stop-switch-override"
    account.ssm = SimpleNamespace(get_parameter=get_parameter)
    assert main(["--yes"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "stop-switch-override" in line]
    assert [line[: len(told or "")] for line in lines] == ([] if told is None else [told])
    command = "`aws ssm delete-parameter --name /TrainGuard/stop-switch-override --region eu-west-1` deletes it."
    assert all(line.endswith(command) for line in lines)
    assert account.commands


def test_destroy_without_a_terminal_deletes_nothing(account: _Account, capsys: pytest.CaptureFixture[str]) -> None:
    account.typed = None
    assert main([]) == 1
    assert "--yes" in capsys.readouterr().out
    assert (account.emptied, account.commands) == ([], [])


@pytest.mark.parametrize("words", [[], ["--yes"], ["-y"], ["--force"], ["-f"]])
def test_confirmed_destroy_empties_the_bucket_and_runs_cdk_there(
    account: _Account, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    account.typed = None if words else STACK
    assert main([*words, "-c", "retain_data=false", "--profile", "prod", "--verbose"]) == 0
    assert account.emptied == [BUCKET]
    assert account.commands == [
        [
            str(teardown.CDK),
            "destroy",
            "--force",
            "-c",
            "retain_data=false",
            "--verbose",
            "--profile",
            "prod",
        ]
    ]
    assert {account.environments[0][name] for name in ("AWS_REGION", "AWS_DEFAULT_REGION")} == {REGION}


def test_destroy_in_a_region_finds_stack_and_cdk(account: _Account) -> None:
    assert main(["--yes", "--region", "ap-south-1"]) == 0
    assert account.commands == [[str(teardown.CDK), "destroy", "--force"]]
    assert account.environments[0]["AWS_REGION"] == "ap-south-1"


def test_destroy_refuses_a_stack_of_something_else(account: _Account, capsys: pytest.CaptureFixture[str]) -> None:
    account.outputs = {"JobsTable": "Jobs"}
    assert main(["--yes", "-c", "stack_name=Billing"]) == 2
    told = capsys.readouterr()
    assert "stack Billing in account 111122223333, eu-west-1, has no output StopSwitchParameter" in told.err
    assert told.out == ""
    assert (account.emptied, account.commands) == ([], [])


def test_destroy_with_profile_and_keys_asks_for_one_of_them(
    account: _Account, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "prod")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    assert main(["--yes"]) == 2
    assert "AWS_PROFILE and AWS_ACCESS_KEY_ID are both set" in capsys.readouterr().err
    assert account.commands == []
    assert main(["--yes", "--profile", "prod"]) == 0


def test_bucket_that_stays_full_does_not_run_cdk(
    account: _Account, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> int:
        raise BucketNotEmptiedError(BUCKET, ["a (AccessDenied: locked)"])

    monkeypatch.setattr(teardown, "empty", full)
    assert main(["--yes"]) == 2
    assert "a (AccessDenied: locked)" in capsys.readouterr().err
    assert account.commands == []


@pytest.mark.parametrize("words", [["-c", "retain_data=maybe"], ["-c", "stackname=Other"]])
def test_unusable_context_is_refused_without_a_traceback(
    account: _Account, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["--yes", *words]) == 2
    assert capsys.readouterr().err.startswith("make destroy: context of TrainGuard: ")
    assert account.commands == []


def test_refusing_service_raises_one_of_our_errors() -> None:
    def refuse(_: str) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "ListObjectVersions")

    client: Any = SimpleNamespace(get_paginator=refuse)
    with pytest.raises(PortUnavailableError, match=r"emptying of profiles failed: AccessDenied: no"):
        empty(client, BUCKET)
