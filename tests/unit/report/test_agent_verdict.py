"""The verdict for agents: its published schema, and a kilobyte whatever a job is called."""

import json
from pathlib import Path

import msgspec
import pytest
from jsonschema import Draft202012Validator

from tests.support.hostile_text import PHRASES
from trainguard.core.finding import Severity
from trainguard.hangs.verdict import Culprit, HangVerdict
from trainguard.report.agents.foreign import foreign
from trainguard.report.agents.verdict import (
    MOST_BYTES,
    AgentFinding,
    AgentPlace,
    AgentVerdict,
    agent_verdict_schema,
    bounded,
    of_hang,
)
from trainguard.report.document import encode_schema
from trainguard.report.verdict_document import VerdictWord
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


@pytest.mark.parametrize("text", ["\U0001f600" * 64, '"' * 64, "\x01" * 64], ids=["bytes", "quotes", "control"])
def test_long_names_with_many_facts_leave_the_codes(text: str) -> None:
    name, facts = foreign(text), {f"{number}{'f' * 40}": 1.2345e-10 for number in range(6)}
    verdict = AgentVerdict(
        schema_version="1",
        job=name,
        status="InProgress",
        verdict=VerdictWord.WASTED,
        change=ChangeCode.FEED_FASTER,
        do=ChangeCode.FEED_FASTER.do,
        confidence="medium",
        finding=AgentFinding(rule="HungJob", kind="k" * 48, severity=Severity.CRITICAL, facts=facts, names={"n": name}),
        place=AgentPlace(node=name, device=name, process=name, operator=name, line=name),
        unread={f"kind_of_an_unread_part_{number}": 1_234_567 for number in range(8)},
        next=["explain", "what_if", "ledger", "kernels", "series"],
    )
    found = bounded(verdict)
    assert len(msgspec.json.encode(found)) <= MOST_BYTES
    assert (found.change, found.unread) == (verdict.change, verdict.unread)


def test_each_rule_that_fires_asks_for_a_change() -> None:
    fire = [each for each in (*OWN_NAMES, *of_families()) if not spec_of(each).informs_only]
    assert [each for each in fire if not spec_of(each).changes] == []
    assert all(change.do.endswith(".") and "{" not in change.do for change in ChangeCode)
