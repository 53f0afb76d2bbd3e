"""Sheets of facts by rule, each with the words that its text makes of it: a JSON file a rule, of real judgements.

A change of a sentence changes one text and the one file beside this module: `make snapshot` rewrites it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.rules.family_rules import OTHER_FAMILIES
from trainguard.rules.registry import SPECS
from trainguard.rules.rule_result import FactSheet, Words
from trainguard.rules.spec import RuleSpec

FOLDER = Path(__file__).parent / "words"
_SPECS: Mapping[str, RuleSpec] = {
    name: spec
    for family in (SPECS, *(each.specs() for each in OTHER_FAMILIES))
    for name, spec in family.items()
    if spec.text is not None
}
_FIRST = {id(spec.text): name for name, spec in reversed(list(_SPECS.items()))}
# One rule over kernel profiles stands for all: another test has the words of their kinds, and they share the others.
_KERNELS = "kernels/GpuGap"
# The rules whose words are made of facts; of those that share a text, the first.
WORDED: Mapping[str, RuleSpec] = {
    name: spec
    for name, spec in _SPECS.items()
    if _FIRST[id(spec.text)] == name and (spec.family != "kernels" or name == _KERNELS)
}


@dataclass(frozen=True)
class Sheet:
    """A judgement of a rule: its status, kind and facts."""

    rule: str
    status: Status
    kind: str
    facts: tuple[Fact, ...]

    @property
    def id(self) -> str:
        """A name for a test."""
        return f"{self.rule} {self.status.name} {self.kind}"

    def words(self, *, past: bool = False) -> Words:
        """Return what the rule's text makes of it."""
        text = WORDED[self.rule].text
        assert text is not None
        return text(FactSheet(self.status, self.kind, self.facts, past=past))


def file_of(rule: str) -> Path:
    """Return a rule's file."""
    return FOLDER / f"{rule.replace('/', '-')}.json"


def sheets_of(rule: str) -> list[Sheet]:
    """Return the sheets of a rule."""
    return [_sheet(rule, each) for each in json.loads(file_of(rule).read_text(encoding="utf-8"))]


def _sheet(rule: str, said: Mapping[str, Any]) -> Sheet:
    return Sheet(rule, Status[said["status"]], said["kind"], msgspec.convert(said["facts"], tuple[Fact, ...]))


def worded(sheet: Sheet) -> dict[str, Any]:
    """Return a sheet with its words, as its file has it."""
    now, past = sheet.words(), sheet.words(past=True)
    said: dict[str, Any] = {
        "status": sheet.status.name,
        "kind": sheet.kind,
        "facts": list(msgspec.to_builtins(sheet.facts)),
    }
    said |= {"reason": now.reason}
    if sheet.status is Status.FIRED:
        said |= {"advice": now.advice, "clause": now.clause, "past_reason": past.reason}
        said |= {"past_advice": past.advice} if past.advice != now.advice else {}
    return said


def write(rule: str, sheets: list[Sheet]) -> None:
    """Write a rule's file: each fact on a line of its own, so that a diff is read."""
    parts = []
    for said in map(worded, sheets):
        facts = ",\n".join(f"   {json.dumps(fact, ensure_ascii=False)}" for fact in said.pop("facts"))
        lines = [f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in said.items()]
        lines.insert(2, f'  "facts": [\n{facts}\n  ]' if facts else '  "facts": []')
        parts.append(" {\n" + ",\n".join(lines) + "\n }")
    FOLDER.mkdir(exist_ok=True)
    file_of(rule).write_text("[\n" + ",\n".join(parts) + "\n]\n", encoding="utf-8")
