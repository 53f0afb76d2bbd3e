"""The verdict for agents: its published schema, and a kilobyte whatever a job is called."""

import json
from pathlib import Path

import msgspec
import pytest
from jsonschema import Draft202012Validator

from tests.support.hostile_text import PHRASES
from trainguard.hangs.verdict import Culprit, HangVerdict
from trainguard.report.agents.verdict import MOST_BYTES, agent_verdict_schema, of_hang
from trainguard.report.document import encode_schema
from trainguard.rules.change import ChangeCode
from trainguard.rules.family_rules import names as of_families
from trainguard.rules.registry import OWN_NAMES, spec_of

PUBLISHED = Path(__file__).parents[3] / "docs" / "schemas" / "agent-verdict-1.json"


def test_the_published_schema_is_current() -> None:
    assert PUBLISHED.read_bytes() == encode_schema(agent_verdict_schema()), (
        "python -m trainguard.report.agents.verdict > docs/schemas/agent-verdict-1.json renews it"
    )


@pytest.mark.parametrize("text", [*PHRASES, "n" * 10_000])
def test_a_verdict_fits_whatever_names_a_job_has(text: str) -> None:
    culprit = Culprit(rank=3, kind="elsewhere", operation=text, group=text, line=text, waiting=7)
    hang = HangVerdict(
        culprits=[3],
        victims=[0, 1],
        without_dump=[5],
        ranks=8,
        operation=text,
        group=text,
        group_description=text,
        sequence=1,
        line=text,
        waiting_line=text,
        details=[culprit],
        unread={text: text},
    )
    encoded = msgspec.json.encode(of_hang(text, hang))
    assert len(encoded) <= MOST_BYTES
    Draft202012Validator(json.loads(PUBLISHED.read_text("utf-8"))).validate(json.loads(encoded))


def test_each_rule_that_fires_asks_for_a_change() -> None:
    fire = [each for each in (*OWN_NAMES, *of_families()) if not spec_of(each).informs_only]
    assert [each for each in fire if not spec_of(each).changes] == []
    assert all(change.do.endswith(".") and "{" not in change.do for change in ChangeCode)
