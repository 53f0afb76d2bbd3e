"""Finding the deployed stack: what is found, and the advice where it is not."""

import configparser
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, SSOTokenLoadError
from botocore.session import Session
from moto import mock_aws
from typer.testing import CliRunner, Result

from tests.functional.cli.cloudformation import ACCOUNT, OUTPUTS, REGION, CloudFormation, Refusal, Stack, serving
from tests.functional.offline import offline_session
from tests.functional.tables import create_tables
from tests.unit.cli.seen import judged
from trainguard.cli.main import app
from trainguard.cli.options import Where
from trainguard.cli.output.aws_advice import advised
from trainguard.cli.services.deployment import connect, find_deployment, look_up, open_stores
from trainguard.cli.services.names import ALL_RULE_NAMES
from trainguard.core.errors import (
    AccessDeniedError,
    CredentialsError,
    DeploymentError,
    OutputMissingError,
    PortUnavailableError,
    RegionError,
    StackNotFoundError,
    StackStateError,
)
from trainguard.core.records import JobRecord

NO_ACCESS = "User: arn:aws:iam::111122223333:user/ada is not authorized to perform: cloudformation:DescribeStacks on x"


def _session(profile: str | None) -> Session:
    """Return a session that shares the models of the services with the others: they take long to read."""
    session = Session(profile=profile)
    session.register_component("data_loader", offline_session().get_component("data_loader"))
    return session


@pytest.fixture
def cloudformation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CloudFormation]:
    """Return a service that the machine's AWS configuration leads to, and nothing else of that configuration."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN", "TRAINGUARD_STACK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setattr("trainguard.cli.services.deployment.Session", _session)
    with serving() as service:
        monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDFORMATION", service.url)
        yield service


def test_deployed_stack_has_a_known_place_and_outputs(
    cloudformation: CloudFormation,
) -> None:
    deployment = find_deployment(Where(stack="TrainGuard", region=REGION))
    assert (deployment.region, deployment.partition, deployment.account) == (REGION, "aws", ACCOUNT)
    assert (deployment.stack, deployment.status) == ("TrainGuard", "CREATE_COMPLETE")
    assert deployment.outputs == OUTPUTS
    clients = deployment.clients
    assert clients.s3.meta.region_name == clients.s3_links.meta.region_name == REGION


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_region_is_taken_from_the_environment(
    cloudformation: CloudFormation, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "ap-south-1")
    assert find_deployment(Where(stack="TrainGuard")).region == "ap-south-1"
    assert find_deployment(Where(stack="TrainGuard", region=REGION)).region == REGION


def test_named_profile_gives_region_and_credentials(cloudformation: CloudFormation, tmp_path: Path) -> None:
    config = configparser.ConfigParser()
    config["profile prod"] = {"region": "eu-north-1", "aws_access_key_id": "own", "aws_secret_access_key": "key"}
    with (tmp_path / "config").open("w", encoding="utf-8") as file:
        config.write(file)
    deployment = find_deployment(Where(stack="TrainGuard", profile="prod"))
    assert deployment.region == "eu-north-1"
    credentials = deployment.clients.session.get_credentials()
    assert credentials is not None
    assert credentials.access_key == "own"
    with pytest.raises(CredentialsError, match=r"none.*could not be found.*--profile"):
        find_deployment(Where(stack="TrainGuard", profile="none"))


def test_region_precedence_follows_aws_and_cdk(
    cloudformation: CloudFormation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text("[default]\nregion = eu-north-1\n", encoding="utf-8")
    found = [find_deployment(Where(stack="TrainGuard")).region]
    for name, region in (("AWS_DEFAULT_REGION", "us-west-2"), ("AWS_REGION", "ap-south-1")):
        monkeypatch.setenv(name, region)
        found.append(find_deployment(Where(stack="TrainGuard")).region)
    monkeypatch.setenv("AWS_REGION", "")
    found.append(find_deployment(Where(stack="TrainGuard")).region)
    assert found == ["eu-north-1", "us-west-2", "ap-south-1", "us-west-2"]


def test_stack_with_a_failed_deletion_is_found_with_its_reason(
    cloudformation: CloudFormation,
) -> None:
    cloudformation.stacks["TrainGuard"] = Stack(status="DELETE_FAILED", reason="The bucket is not empty")
    deployment = look_up(Where(stack="TrainGuard", region=REGION))
    assert (deployment.status, deployment.account, deployment.why) == (
        "DELETE_FAILED",
        ACCOUNT,
        "The bucket is not empty",
    )


def test_missing_region_error_says_how_to_set_one(
    cloudformation: CloudFormation,
) -> None:
    with pytest.raises(RegionError, match=r"no Region is set\. Pass --region, or set AWS_REGION"):
        find_deployment(Where(stack="TrainGuard"))


def test_missing_credentials_error_says_how_to_get_some(
    cloudformation: CloudFormation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(CredentialsError, match=r"no AWS credentials were found .*aws configure"):
        find_deployment(Where(stack="TrainGuard", region=REGION))


@pytest.mark.parametrize(
    ("refusal", "kind", "said"),
    [
        (Refusal("ExpiredToken", "The security token is expired"), CredentialsError, r"have expired .*aws sso login"),
        (Refusal("InvalidClientTokenId", "The token is invalid"), CredentialsError, r"does not accept .*Log in again"),
        (
            Refusal("AccessDenied", NO_ACCESS),
            AccessDeniedError,
            r"denied to cloudformation:DescribeStacks .*policy that allows cloudformation:DescribeStacks",
        ),
        (Refusal("AccessDenied", "No."), AccessDeniedError, r"denied to DescribeStacks \(No\)"),
        (Refusal("LimitExceeded", "Too many", 400), PortUnavailableError, "LimitExceeded: Too many"),
    ],
)
def test_refusal_error_says_what_to_do(
    cloudformation: CloudFormation, refusal: Refusal, kind: type[Exception], said: str
) -> None:
    cloudformation.refusals["DescribeStacks"] = refusal
    with pytest.raises(kind, match=said):
        find_deployment(Where(stack="TrainGuard", region=REGION))


def test_missing_stack_error_names_similar_ones(
    cloudformation: CloudFormation,
) -> None:
    cloudformation.stacks["trainguard-dev"] = Stack(description="")
    cloudformation.stacks["Watch"] = Stack()
    cloudformation.stacks["Website"] = Stack(description="A website")
    cloudformation.stacks["OldTrainGuard"] = Stack(status="DELETE_COMPLETE")
    with pytest.raises(StackNotFoundError) as raised:
        find_deployment(Where(stack="TrainGard", region=REGION))
    assert "Region eu-west-1 has no stack TrainGard" in str(raised.value)
    assert "Perhaps you mean TrainGuard or Watch or trainguard-dev: pass --stack" in str(raised.value)
    assert "Website" not in str(raised.value)


def test_missing_stack_is_reported_without_list_permission(
    cloudformation: CloudFormation,
) -> None:
    cloudformation.refusals["ListStacks"] = Refusal("AccessDenied", "no")
    with pytest.raises(StackNotFoundError, match=r"has no stack Other.*Pass --region"):
        find_deployment(Where(stack="Other", region=REGION))


@pytest.mark.parametrize(
    "status", ["CREATE_IN_PROGRESS", "CREATE_FAILED", "ROLLBACK_COMPLETE", "DELETE_FAILED", "REVIEW_IN_PROGRESS"]
)
def test_incomplete_stack_is_reported_with_state_and_reason(cloudformation: CloudFormation, status: str) -> None:
    cloudformation.stacks["TrainGuard"] = Stack(status=status, reason="Resource limit")
    with pytest.raises(StackStateError, match=rf"is {status} \(Resource limit\)\. Wait"):
        find_deployment(Where(stack="TrainGuard", region=REGION))


@pytest.mark.parametrize("status", ["UPDATE_COMPLETE", "UPDATE_IN_PROGRESS", "UPDATE_ROLLBACK_COMPLETE"])
def test_updated_or_updating_stack_is_usable(cloudformation: CloudFormation, status: str) -> None:
    cloudformation.stacks["TrainGuard"] = Stack(status=status)
    assert find_deployment(Where(stack="TrainGuard", region=REGION)).status == status


def test_stack_without_tables_names_the_missing_output(
    cloudformation: CloudFormation,
) -> None:
    cloudformation.stacks["TrainGuard"] = Stack(outputs={"BucketName": "b"})
    with pytest.raises(OutputMissingError, match="no output BookkeepingTable, its outputs: BucketName"):
        open_stores(find_deployment(Where(stack="TrainGuard", region=REGION)))


def test_deployment_stores_are_the_tables_of_its_outputs(
    cloudformation: CloudFormation,
) -> None:
    with mock_aws():
        connection = connect(Where(stack="TrainGuard", region=REGION))
        create_tables(connection.clients.dynamodb)
        record = connection.stores.jobs.register(JobRecord("job", "arn", "profiles", ""))
        assert list(connection.stores.jobs.all()) == [record]
        assert connection.stores.nodes.of_job("job") == []
        assert connection.stores.rows.of_job("job") == []


def test_empty_deployment_lists_jobs_end_to_end(
    cloudformation: CloudFormation, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloudformation.stacks["Mine"] = cloudformation.stacks.pop("TrainGuard")
    monkeypatch.setenv("TRAINGUARD_STACK", "Mine")
    with mock_aws():
        create_tables(connect(Where(stack="Mine", region=REGION)).clients.dynamodb)
        result = CliRunner().invoke(app, ["jobs", "--region", REGION])
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "No job matches.\n")


def test_commands_answer_from_tables_of_a_judged_job(
    cloudformation: CloudFormation,
) -> None:
    record, rows, _ = judged()

    def run(*words: str) -> Result:
        return CliRunner().invoke(app, [*words, "--region", "us-east-1"])

    with mock_aws():
        connection = connect(Where(stack="TrainGuard", region="us-east-1"))
        create_tables(connection.clients.dynamodb)
        connection.clients.s3.create_bucket(Bucket=record.bucket)
        key = f"{record.job}/rule-output/TrainGuardReport/report.html"
        connection.stores.objects.put(record.bucket, key, b"<html>", "text/html")
        connection.stores.jobs.register(record)
        connection.stores.rows.publish(rows)
        lines = json.loads(run("jobs", "--json").stdout)["jobs"]
        rules = json.loads(run("status", record.job, "--json").stdout)["rules"]
        explained = json.loads(run("explain", record.job, "cpu", "--json").stdout)
        link = run("open", record.job).stdout
        active = run("status").stdout
    assert [(line["job"], line["finding"]) for line in lines] == [(record.job, "LowGPUUtilization")]
    assert len(rules) == len(ALL_RULE_NAMES)
    assert explained["patience"]["left"] == 846
    assert f"/{key}?" in link
    assert active.startswith(f"{record.job}\tInProgress\t")


def test_signed_link_leads_to_the_custom_endpoint(
    cloudformation: CloudFormation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:4566")
    clients = find_deployment(Where(stack="TrainGuard", region=REGION)).clients
    link = clients.s3_links.generate_presigned_url("get_object", Params={"Bucket": "profiles", "Key": "a b"})
    assert link.startswith("http://127.0.0.1:4566/profiles/a%20b?X-Amz-Algorithm=AWS4-HMAC-SHA256")


def test_denied_table_names_the_action_and_exits_2(
    cloudformation: CloudFormation,
) -> None:
    cloudformation.refusals["DescribeStacks"] = Refusal("AccessDenied", NO_ACCESS)
    result = CliRunner().invoke(app, ["jobs", "--region", REGION, "--json"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("trainguard: access denied to cloudformation:DescribeStacks")
    assert result.stderr.count("\n") == 1


def _denied(message: str) -> ClientError:
    return ClientError({"Error": {"Code": "AccessDeniedException", "Message": message}}, "Query")


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (_denied("User: u is not authorized to perform: dynamodb:Query on resource: t"), AccessDeniedError),
        (SSOTokenLoadError(error_msg="none"), CredentialsError),
        (EndpointConnectionError(endpoint_url="http://nowhere"), RegionError),
    ],
)
def test_unavailable_store_is_advised_by_its_cause(cause: Exception, kind: type[DeploymentError]) -> None:
    fault = PortUnavailableError("DynamoDB", "Query", "x")
    fault.__cause__ = cause
    assert isinstance(advised(fault), kind)


def test_other_fault_is_passed_through() -> None:
    fault = PortUnavailableError("DynamoDB", "Query", "x")
    fault.__cause__ = ClientError({"Error": {"Code": "InternalServerError", "Message": "x"}}, "Query")
    assert advised(fault) is fault
