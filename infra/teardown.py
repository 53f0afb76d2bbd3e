"""Deletes a deployed stack: says what stays, empties the bucket that goes with it, and lets CDK do the rest.

``python -m infra.teardown`` takes the options of ``cdk destroy``; ``--force`` asks nothing. CloudFormation by itself
cannot delete a bucket that holds objects; that the template has no custom resource for it keeps a function with the
right to delete every profile out of the account.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import boto3

from infra.bundling import PROJECT_ROOT
from infra.config import DeploymentConfig

CDK = PROJECT_ROOT / "node_modules" / ".bin" / "cdk"

_RETAIN = "Retain"
_BUCKET = "AWS::S3::Bucket"


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of the stack, by its type and its name in the account."""

    type: str
    name: str


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a stack's resources when it is deleted."""

    stays: tuple[Resource, ...]
    goes: tuple[Resource, ...]

    @property
    def buckets(self) -> tuple[str, ...]:
        """Buckets that go, and so must be empty."""
        return tuple(resource.name for resource in self.goes if resource.type == _BUCKET)


def read_fate(cloudformation: Any, stack: str) -> Fate:
    """Return what becomes of a stack's resources, by the deployed template and no other."""
    template = cloudformation.get_template(StackName=stack)["TemplateBody"]
    declared: Mapping[str, Any] = (json.loads(template) if isinstance(template, str) else template)["Resources"]
    stays: list[Resource] = []
    goes: list[Resource] = []
    for page in cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack):
        for found in page["StackResourceSummaries"]:
            resource = Resource(found["ResourceType"], found.get("PhysicalResourceId", ""))
            kept = declared.get(found["LogicalResourceId"], {}).get("DeletionPolicy") == _RETAIN
            (stays if kept else goes).append(resource)
    return Fate(tuple(stays), tuple(goes))


def empty(s3: Any, bucket: str) -> int:
    """Delete all that a bucket holds: objects, older versions, uploads half done; return how many objects."""
    deleted = 0
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        found = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
        keys = [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in found]
        if keys:
            s3.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
            deleted += len(keys)
    for page in s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket):
        for upload in page.get("Uploads", ()):
            s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    return deleted


def describe(stack: str, fate: Fate) -> str:
    """Say in words what will happen."""
    lines = [f"Stack {stack}: {len(fate.goes)} resources go, {len(fate.stays)} stay."]
    lines += [f"  stays: {resource.type} {resource.name}" for resource in fate.stays]
    lines += [f"  is emptied and goes: bucket {bucket} with every profile and report" for bucket in fate.buckets]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Tell, ask, empty, destroy; return the exit status."""
    parser = argparse.ArgumentParser(prog="make destroy", description="Delete a deployed stack.")
    parser.add_argument("-c", "--context", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--profile")
    parser.add_argument("--force", action="store_true")
    known, _ = parser.parse_known_args(arguments)
    stack = DeploymentConfig.from_context(_context(known.context)).stack_name
    session = boto3.Session(profile_name=known.profile)
    fate = read_fate(session.client("cloudformation"), stack)
    _say(describe(stack, fate))
    if not known.force and input("Type the stack's name to delete it: ") != stack:
        _say("Nothing was deleted.")
        return 1
    for bucket in fate.buckets:
        _say(f"{bucket}: {empty(session.client('s3'), bucket)} objects deleted")
    passed = [argument for argument in arguments if argument != "--force"]
    command = [str(CDK), "destroy", "--force", *passed]
    return subprocess.run(command, cwd=PROJECT_ROOT, check=False).returncode  # noqa: S603 -- no shell


def _context(pairs: Sequence[str]) -> dict[str, object]:
    """Return the context as CDK puts it together: of ``cdk.json``, and on top of it what the command line says."""
    stored = json.loads((PROJECT_ROOT / "cdk.json").read_text(encoding="utf-8")).get("context", {})
    return {**stored, **dict(pair.partition("=")[::2] for pair in pairs)}


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
