"""The registry of EventBridge has the published schemas, in the draft that it reads, and accepts real events."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft4Validator

from infra.constructs.event_schemas import in_draft_4
from tests.infra.synthesis import ROOT
from tests.infra.template import Template
from tests.unit.actions.test_send_alert import CALL, NOW
from trainguard.stack.actions.alert import compose_alert
from trainguard.stack.actions.request import AlertRequest

FILES = {"TrainGuardFinding": "alert-1", "TrainGuardStatement": "statement-1", "TrainGuardVerdict": "verdict-1"}
ENVELOPE = dict.fromkeys(("version", "id", "account", "time", "region", "source", "detail-type"), "x")


@pytest.fixture
def schemas(variants: Path) -> dict[str, Any]:
    """Return the registered schemas by name."""
    template = Template(variants / "opsgenie" / "TrainGuard.template.json")
    found = [each.properties for each in template.of_type("AWS::EventSchemas::Schema").values()]
    assert {each["RegistryName"] for each in found} == {"{EventSchemasRegistry.RegistryName}"}
    return {each["SchemaName"].removeprefix("trainguard@"): json.loads(each["Content"]) for each in found}


def test_registry_has_the_published_schemas(schemas: dict[str, Any]) -> None:
    assert schemas.keys() == FILES.keys()
    for name, file in FILES.items():
        published = in_draft_4(json.loads((ROOT / "docs" / "schemas" / f"{file}.json").read_text("utf-8")))
        held = schemas[name]
        Draft4Validator.check_schema(held)
        assert len(json.dumps(held)) < 100_000
        assert held["definitions"] == published["definitions"]
        assert (held.get("$ref") or held["properties"]["detail"]["$ref"]) == published["$ref"]


def test_event_of_an_alert_is_valid_and_a_broken_one_is_not(schemas: dict[str, Any]) -> None:
    detail = json.loads(json.dumps(compose_alert(AlertRequest.read(CALL), now=NOW).document))
    check = Draft4Validator(schemas["TrainGuardFinding"])
    check.validate({**ENVELOPE, "resources": [], "detail": detail})
    assert not check.is_valid({**ENVELOPE, "resources": [], "detail": {**detail, "job": 7}})
    assert not check.is_valid({**ENVELOPE, "resources": []})
