"""What the synthesised template deploys, by the names and ARNs that it has in an account."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
REGION, ACCOUNT, STACK = "eu-west-1", "111122223333", "TrainGuard"
BUCKET = "trainguard-profiles"
PSEUDO = {"AWS::Partition": "aws", "AWS::Region": REGION, "AWS::AccountId": ACCOUNT}


@cache
def template() -> Mapping[str, Any]:
    """Return the template that the stack is deployed from."""
    document: Mapping[str, Any] = json.loads((ROOT / "tests/infra/TrainGuard.snapshot.json").read_text("utf-8"))
    return document


def name_of(logical: str) -> str:
    """Return what its service calls a resource of the template."""
    kind = template()["Resources"][logical]["Type"]
    if kind == "AWS::S3::Bucket":
        return BUCKET
    if kind == "AWS::SQS::Queue":
        return f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{STACK}-{logical}"
    if kind in {"AWS::SNS::Topic", "AWS::StepFunctions::StateMachine"}:
        return arn_of(logical)
    return (
        str(template()["Resources"][logical]["Properties"]["Name"])
        if kind == "AWS::SSM::Parameter"
        else f"{STACK}-{logical}"
    )


def arn_of(logical: str) -> str:
    """Return the ARN of a resource of the template."""
    if template()["Resources"][logical]["Type"] == "AWS::S3::Bucket":
        return f"arn:aws:s3:::{BUCKET}"
    if template()["Resources"][logical]["Type"] == "AWS::IAM::Role":
        return f"arn:aws:iam::{ACCOUNT}:role/{STACK}-{logical}"
    service, prefix = {
        "AWS::SQS::Queue": ("sqs", ""),
        "AWS::SNS::Topic": ("sns", ""),
        "AWS::StepFunctions::StateMachine": ("states", "stateMachine:"),
        "AWS::Lambda::Function": ("lambda", "function:"),
        "AWS::DynamoDB::Table": ("dynamodb", "table/"),
    }.get(template()["Resources"][logical]["Type"], ("other", ""))
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{prefix}{STACK}-{logical}"


def resolved(value: Any) -> Any:
    """Return a value of the template with its references as a deployment fills them in."""
    if isinstance(value, list):
        return [resolved(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "Ref" in value:
        known = value["Ref"] in template()["Resources"]
        return name_of(value["Ref"]) if known else PSEUDO.get(value["Ref"], value["Ref"])
    if "Fn::GetAtt" in value:
        return arn_of(value["Fn::GetAtt"][0])
    if "Fn::Join" in value:
        return value["Fn::Join"][0].join(resolved(value["Fn::Join"][1]))
    return {name: resolved(each) for name, each in value.items()}


def named(kind: str) -> dict[str, Any]:
    """Return the properties of all resources of a kind by their names."""
    resources = template()["Resources"].items()
    return {
        name_of(logical): resolved(each.get("Properties", {})) for logical, each in resources if each["Type"] == kind
    }


def outputs() -> dict[str, str]:
    """Return the stack's outputs."""
    return {name: resolved(output["Value"]) for name, output in template()["Outputs"].items()}
