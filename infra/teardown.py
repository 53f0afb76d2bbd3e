"""Deletes a deployed stack: says what stays, empties the bucket that goes with it, and lets CDK do the rest.

``python -m infra.teardown`` takes the options of ``cdk destroy``; with ``--yes`` (or ``--force``) it asks nothing.
CloudFormation cannot delete a bucket that holds objects; a custom resource for it would be a function with the right to
delete every profile.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from infra.config import DeploymentConfig, DeploymentConfigError
from infra.context import of_command_line
from infra.places import PROJECT_ROOT
from trainguard.aws.aws_errors import error_code, translated
from trainguard.cli.options import Where
from trainguard.cli.output.aws_advice import advised
from trainguard.cli.services.deployment import Deployment, look_up
from trainguard.core.errors import CredentialsError, OutputMissingError, PortUnavailableError, TrainGuardError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef
    from mypy_boto3_ssm import SSMClient

CDK = PROJECT_ROOT / "node_modules" / ".bin" / "cdk"
MARK = "StopSwitchParameter"

# The outputs that name what operators have set: parameters which no deployment makes, writes or deletes.
OVERRIDE, BRAKES = "StopSwitchOverrideParameter", "BrakesParameter"

_SHOWN = 200

_RETAINED = frozenset({"Retain", "RetainExceptOnCreate"})
_BUCKET = "AWS::S3::Bucket"
_GONE = "DELETE_COMPLETE"
_FAILED, _KEPT = 2, 1
_MOST_NAMED = 3


class BucketNotEmptiedError(TrainGuardError):
    """Objects that S3 did not delete; the stack is as it was."""

    def __init__(self, bucket: str, faults: Sequence[str]) -> None:
        more = f" and {len(faults) - _MOST_NAMED} more" if len(faults) > _MOST_NAMED else ""
        super().__init__(
            f"bucket {bucket} could not be emptied: {'; '.join(faults[:_MOST_NAMED])}{more}. "
            "The stack was not deleted: repair that, and run it again"
        )


# Type of a resource of the stack, and its name in the account.
Resource = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a stack's resources when it is deleted."""

    stays: tuple[Resource, ...]
    goes: tuple[Resource, ...]

    @property
    def buckets(self) -> tuple[str, ...]:
        return tuple(name for kind, name in self.goes if kind == _BUCKET and name)


def read_fate(cloudformation: "CloudFormationClient", stack: str) -> Fate:
    """Return the fate of a stack's resources, by the deployed template and no other."""
    with translated("CloudFormation", "GetTemplate"):
        template = cloudformation.get_template(StackName=stack)["TemplateBody"]
    declared: Mapping[str, Mapping[str, object]] = (json.loads(template) if isinstance(template, str) else template)[
        "Resources"
    ]
    stays: list[Resource] = []
    goes: list[Resource] = []
    with translated("CloudFormation", "ListStackResources"):
        for page in cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack):
            for found in page["StackResourceSummaries"]:
                if found["ResourceStatus"] == _GONE:
                    continue
                kept = declared.get(found["LogicalResourceId"], {}).get("DeletionPolicy") in _RETAINED
                (stays if kept else goes).append((found["ResourceType"], found.get("PhysicalResourceId", "")))
    return Fate(tuple(stays), tuple(goes))


def empty(s3: "S3Client", bucket: str) -> int:
    """Delete all that a bucket holds; return the number of versions and markers. Raises BucketNotEmptiedError."""
    with translated("S3", f"emptying of {bucket}"):
        try:
            deleted = _delete_versions(s3, bucket)
            for page in s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket):
                for upload in page.get("Uploads", ()):
                    s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
        except ClientError as error:
            if error_code(error) != "NoSuchBucket":
                raise
            return 0
    return deleted


def _delete_versions(s3: "S3Client", bucket: str) -> int:
    deleted = 0
    faults: list[str] = []
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        found = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
        if found:
            keys: list[ObjectIdentifierTypeDef] = [
                {"Key": each["Key"], "VersionId": each["VersionId"]} for each in found
            ]
            # An answer of 200 may hold errors: each key has its own.
            answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
            refused = answer.get("Errors", [])
            faults += [f"{each.get('Key')} ({each.get('Code')}: {each.get('Message')})" for each in refused]
            deleted += len(keys) - len(refused)
    if faults:
        raise BucketNotEmptiedError(bucket, faults)
    return deleted


def describe(stack: str, fate: Fate) -> str:
    lines = [f"Stack {stack}: {len(fate.goes)} resources go, {len(fate.stays)} stay."]
    lines += [f"  stays: {kind} {name}" for kind, name in fate.stays]
    lines += [f"  is emptied and goes: bucket {bucket} with every profile and report" for bucket in fate.buckets]
    return "\n".join(lines)


def describe_kept(ssm: "SSMClient", deployment: Deployment, output: str) -> str | None:
    """Say that an operators' parameter stays, for it outlives every deployment; None where there is none."""
    name = deployment.outputs.get(output)
    if name is None:
        return None
    delete = f"`aws ssm delete-parameter --name {name} --region {deployment.region}` deletes it"
    try:
        with translated("ssm", "GetParameter"):
            value = ssm.get_parameter(Name=name)["Parameter"]["Value"]
    except PortUnavailableError as fault:
        if isinstance(fault.__cause__, ClientError) and error_code(fault.__cause__) == "ParameterNotFound":
            return None
        return f"  stays if it is there: AWS::SSM::Parameter {name}, which could not be read ({fault}). {delete}."
    return f"  stays: AWS::SSM::Parameter {name}, {value[:_SHOWN]!r}: a later stack of this name obeys it. {delete}."


def main(arguments: Sequence[str]) -> int:
    """Warn, ask, empty, destroy; return the exit status: CDK's, 1 when it was declined, 2 when it could not be done."""
    parser = argparse.ArgumentParser(prog="make destroy", description="Delete a deployed stack.", allow_abbrev=False)
    parser.add_argument("-c", "--context", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--profile")
    parser.add_argument("--region", help="else that of the environment, or of the profile")
    parser.add_argument("-y", "--yes", "-f", "--force", dest="asks", action="store_false", help="ask nothing")
    known, passed = parser.parse_known_args(arguments)
    try:
        stack = DeploymentConfig.from_context(of_command_line(known.context, PROJECT_ROOT / "cdk.json")).stack_name
        return _tear_down(stack, known, passed)
    except TrainGuardError as fault:
        sys.stderr.write(f"make destroy: {advised(fault)}\n")
    except DeploymentConfigError as fault:
        sys.stderr.write(f"make destroy: {fault}\n")
    return _FAILED


def _tear_down(stack: str, known: argparse.Namespace, passed: Sequence[str]) -> int:
    # CDK and the AWS client library read differently whose credentials count.
    if known.profile is None and os.environ.get("AWS_PROFILE") and os.environ.get("AWS_ACCESS_KEY_ID"):
        raise CredentialsError(
            "AWS_PROFILE and AWS_ACCESS_KEY_ID are both set, and may be of two accounts",
            "Unset one of them, or pass --profile.",
        )
    deployment = look_up(Where(stack=stack, region=known.region, profile=known.profile))
    clients = deployment.clients
    if MARK not in deployment.outputs:
        raise OutputMissingError(
            f"stack {stack} in account {deployment.account}, {deployment.region}, has no output {MARK}",
            "It is no stack of TrainGuard's, or was never whole: `npx cdk destroy` deletes one that failed to create.",
        )
    fate = read_fate(clients.cloudformation, stack)
    _say(f"Account {deployment.account}, Region {deployment.region}, stack {stack} ({deployment.status})")
    _say(describe(stack, fate))
    for output in (OVERRIDE, BRAKES):
        if stays := describe_kept(clients.ssm, deployment, output):
            _say(stays)
    if known.asks and not _agreed(stack):
        _say("Nothing was deleted.")
        return _KEPT
    clients.cloudformation.update_termination_protection(StackName=stack, EnableTerminationProtection=False)
    for bucket in fate.buckets:
        _say(f"{bucket}: {empty(clients.s3, bucket)} objects deleted")
    words = [*(word for pair in known.context for word in ("-c", pair)), *passed]
    words += [] if known.profile is None else ["--profile", known.profile]
    # CDK chooses the Region by rules of its own: pass it the one that was shown.
    told = {**os.environ, "AWS_REGION": deployment.region, "AWS_DEFAULT_REGION": deployment.region}
    command = [str(CDK), "destroy", "--force", *words]
    return subprocess.run(command, cwd=PROJECT_ROOT, env=told, check=False).returncode  # noqa: S603 -- no shell


def _agreed(stack: str) -> bool:
    try:
        return input("Type the stack's name to delete it: ").strip() == stack
    except EOFError:
        _say("\nNobody is there to ask: --yes deletes without asking.")
        return False


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
