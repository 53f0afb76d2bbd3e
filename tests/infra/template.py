"""Reads a synthesised template: resources by type and name, references as text, permissions by role."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Of a version also that of its function.
_HASH = re.compile(r"[0-9A-F]{8}([0-9a-f]{32})?$")


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource under its name without CDK's hash, with every reference as text such as ``{StorageJobs.Arn}``."""

    name: str
    type: str
    properties: Mapping[str, Any]
    deletion_policy: str | None


@dataclass(frozen=True, slots=True)
class Statement:
    """A policy statement with lists where a template may hold single values."""

    sid: str | None
    effect: str
    actions: tuple[str, ...]
    not_actions: tuple[str, ...]
    resources: tuple[str, ...]
    condition: Mapping[str, Mapping[str, Any]]
    not_resources: tuple[str, ...] = ()

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "Statement":
        return cls(
            sid=document.get("Sid"),
            effect=document["Effect"],
            actions=_listed(document.get("Action")),
            not_actions=_listed(document.get("NotAction")),
            resources=_listed(document.get("Resource")),
            condition=document.get("Condition", {}),
            not_resources=_listed(document.get("NotResource")),
        )


class Template:
    """A synthesised template."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.document: dict[str, Any] = json.loads(self.text)
        self.outputs = {name: as_text(output["Value"]) for name, output in self.document["Outputs"].items()}
        self.resources = [
            Resource(
                name=_HASH.sub("", logical_id),
                type=body["Type"],
                properties=as_text(body.get("Properties", {})),
                deletion_policy=body.get("DeletionPolicy"),
            )
            for logical_id, body in self.document["Resources"].items()
        ]

    def of_type(self, kind: str) -> dict[str, Resource]:
        """Return the resources of a type by name."""
        return {resource.name: resource for resource in self.resources if resource.type == kind}

    def one(self, kind: str, name: str) -> Mapping[str, Any]:
        """Return the properties of a resource."""
        return self.of_type(kind)[name].properties

    def role_statements(self) -> Iterator[tuple[str, Statement]]:
        """Yield each statement that a role of the stack holds, with the role's name."""
        for role in self.of_type("AWS::IAM::Role").values():
            for policy in role.properties.get("Policies", []):
                for statement in policy["PolicyDocument"]["Statement"]:
                    yield role.name, Statement.read(statement)

    def resource_policy_statements(self) -> Iterator[tuple[str, Statement, Any]]:
        """Yield each statement of a queue's, topic's or bucket's policy, with the policy's name and the principal."""
        for resource in self.resources:
            if resource.type in {"AWS::SQS::QueuePolicy", "AWS::SNS::TopicPolicy", "AWS::S3::BucketPolicy"}:
                for statement in resource.properties["PolicyDocument"]["Statement"]:
                    yield resource.name, Statement.read(statement), statement["Principal"]


def as_text(value: Any) -> Any:
    """Return ``value`` with CloudFormation's references replaced by text."""
    if isinstance(value, list):
        return [as_text(part) for part in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"Ref"}:
        return "{" + _HASH.sub("", value["Ref"]) + "}"
    if set(value) == {"Fn::GetAtt"}:
        logical_id, attribute = value["Fn::GetAtt"]
        return "{" + _HASH.sub("", logical_id) + "." + attribute + "}"
    if set(value) == {"Fn::Join"}:
        separator, parts = value["Fn::Join"]
        return separator.join(str(as_text(part)) for part in parts)
    return {name: as_text(part) for name, part in value.items()}


def _listed(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)
