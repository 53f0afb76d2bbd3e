"""The pages on security, bad input, alerts and tags: what they name is in the code, and what shows it is there."""

import json
import re

import pytest

from tests.infra.synthesis import ROOT
from tests.infra.test_docs_operations import named
from tests.unit.test_docs_parameters import table
from trainguard.core.finding import Finding
from trainguard.core.layout import RUN_URL_TAG
from trainguard.core.records import AlertKind, RuleRow, Status
from trainguard.engine.settings.job_settings import SETTING_READERS
from trainguard.engine.settings.tag_names import (
    AGENT_TAG,
    FRAMEWORK_TAG,
    NAMESPACE,
    OWNER_TAGS,
    PROFILE_TAG,
    SETTINGS_TAG,
    STOP_TAG,
)
from trainguard.stack.actions.alert import compose_alert
from trainguard.stack.actions.request import AlertRequest

THREATS = table("security.md", "threat")
_LINK = re.compile(r"\]\(([^)#]+)\)")


@pytest.mark.parametrize("row", THREATS, ids=lambda row: row[0][:40])
def test_each_threat_names_a_test_of_its_defence(row: list[str]) -> None:
    _, stands, shown = row
    files = [ROOT / "docs" / link for link in _LINK.findall(shown)]
    assert stands
    assert any("tests" in file.parts and "def test_" in file.read_text("utf-8") for file in files)


def test_counters_of_bad_input_exist_in_the_code() -> None:
    rows = table("decisions/0007-bad-input.md", "input")
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row[2])}
    code = "".join(file.read_text("utf-8") for file in (ROOT / "rules_layer" / "trainguard").rglob("*.py"))
    words = {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in listed}
    assert len(words) > 10
    assert {name for name in words if f'"{name}"' not in code} == set()


def test_page_has_every_field_and_attribute_of_an_alert() -> None:
    request = AlertRequest.read(json.loads((ROOT / "events" / "send_alert.json").read_text("utf-8")))
    alert = compose_alert(request, now=0.0)
    assert named("alerts.md", "field") == set(alert.document) - {"schema_version"}
    (stop,) = [row[1] for row in table("alerts.md", "field") if row[0].startswith("`stop`")]
    assert set(re.findall(r"`(\w+)`", stop)) == set(alert.document["stop"])
    assert named("alerts.md", "attribute") == set(alert.attributes)
    assert named("alerts.md", "kind") == {kind.value for kind in AlertKind}


def test_page_tags_are_those_that_are_read() -> None:
    listed = {name for name in named("configuration.md", "tag") if "<" not in name}
    assert listed == {
        AGENT_TAG,
        STOP_TAG,
        FRAMEWORK_TAG,
        SETTINGS_TAG,
        PROFILE_TAG,
        RUN_URL_TAG,
        *OWNER_TAGS.values(),
        *(NAMESPACE + name for name in SETTING_READERS),
    }


@pytest.mark.parametrize("status", Status)
def test_migration_page_has_the_managed_word_of_each_status(
    status: Status,
) -> None:
    said = {
        row[0].strip("`"): re.findall(r"`([A-Z_]+)`", row[1])
        for row in table("migrating.md", "managed `RuleEvaluationStatus`")
    }
    for expires_at in (None, 1):
        row = RuleRow(
            job="job", finding=Finding(rule="BatchSize", node=None, reason=""), status=status, expires_at=expires_at
        )
        assert status in said[row.debugger_status]
    fired = RuleRow(job="job", finding=Finding(rule="BatchSize", node=None, reason=""), status=Status.OK, times_fired=1)
    assert fired.debugger_status == "IssuesFound"
