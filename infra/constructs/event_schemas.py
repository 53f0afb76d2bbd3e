"""The schemas of TrainGuard's events in a registry of EventBridge, of which IDEs and code bindings are made.

Registry and `docs/schemas` are written by the same functions. EventBridge reads JSON Schema in draft 4.
"""

import json
from collections.abc import Mapping
from typing import Any

from aws_cdk import aws_eventschemas as eventschemas
from constructs import Construct

from trainguard.aws import alert_channels
from trainguard.report.verdict_document import verdict_schema
from trainguard.stack.actions.document import alert_schema
from trainguard.stack.organisation import statement

_DRAFT = "http://json-schema.org/draft-04/schema#"
_RENAMED = {"$defs": "definitions", "$id": "id"}


def build_event_schemas(stack: Construct, stack_name: str) -> None:
    """Build the registry, named as the stack: both events, and the verdict that `trainguard verdict` answers."""
    scope = Construct(stack, "EventSchemas")
    registry = eventschemas.CfnRegistry(
        scope, "Registry", registry_name=stack_name, description="Events and documents of TrainGuard"
    )
    held = {
        alert_channels.EVENT_TYPE: of_event(alert_channels.EVENT_TYPE, alert_schema()),
        statement.EVENT_TYPE: of_event(statement.EVENT_TYPE, statement.statement_schema()),
        "TrainGuard Verdict": in_draft_4(verdict_schema()),
    }
    for title, schema in held.items():
        name = title.replace(" ", "")
        eventschemas.CfnSchema(
            scope,
            name,
            registry_name=registry.attr_registry_name,
            schema_name=f"{alert_channels.EVENT_SOURCE}@{name}",
            type="JSONSchemaDraft4",
            description=str(schema["title"]),
            content=json.dumps(schema, separators=(",", ":")),
        )


def of_event(detail_type: str, detail: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an event whose ``detail`` has a schema, as EventBridge's own schemas are made."""
    document = in_draft_4(detail)
    definitions = document.pop("definitions")
    reference = document.pop("$ref")
    texts = ("version", "id", "account", "time", "region", "source", "detail-type")
    return {
        "$schema": _DRAFT,
        "title": document["title"],
        "definitions": definitions,
        "x-amazon-events-source": alert_channels.EVENT_SOURCE,
        "x-amazon-events-detail-type": detail_type,
        "type": "object",
        "required": [*texts, "resources", "detail"],
        "properties": {
            **{name: {"type": "string"} for name in texts},
            "resources": {"type": "array", "items": {"type": "string"}},
            "detail": {"$ref": reference},
        },
    }


def in_draft_4(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of the published draft with the names that draft 4 has; all else means the same in both."""
    return {**_renamed(schema), "$schema": _DRAFT}


def _renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {_RENAMED.get(name, name): _renamed(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_renamed(part) for part in value]
    return value.replace("#/$defs/", "#/definitions/") if isinstance(value, str) else value
