"""Agents get the right change first, in few calls and tokens, and nothing that a job has written is obeyed."""

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tests.verdicts.agents.injected import MARKS, PLACES, TEXTS, decided, injected, outside
from tests.verdicts.agents.trial import MOST_CALLS, Outcome, outcomes, session_of, table
from trainguard.cli.commands.mcp.tools import READING, fault_answer
from trainguard.core.errors import TrainGuardError

pytestmark = pytest.mark.verdicts

RIGHT, MOST_TOKENS = 0.9, 4_000


@pytest.fixture(scope="module")
def found() -> Sequence[Outcome]:
    return outcomes()


def test_the_first_change_is_the_labels(found: Sequence[Outcome]) -> None:
    assert len(found) == 60
    assert sum(each.is_right for each in found) >= RIGHT * len(found), table(found)


def test_few_calls_and_tokens_are_enough(found: Sequence[Outcome]) -> None:
    assert max(each.calls for each in found) <= MOST_CALLS, table(found)
    assert max(each.tokens for each in found) <= MOST_TOKENS, table(found)
    assert max(each.longest_verdict for each in found) <= 1_024, table(found)


@pytest.mark.parametrize("place", PLACES)
def test_no_injected_instruction_leaves_its_field(place: str, tmp_path: Path) -> None:
    plain = answers(tmp_path, place, "run")
    obeyed = []
    for text, mark in zip(TEXTS, MARKS, strict=True):
        given = answers(tmp_path, place, text)
        spoken = [each for answer in given.values() for each in outside(answer)]
        is_out = any(mark in each for each in spoken)
        if is_out or decided(given["verdict"]) != decided(plain["verdict"]):
            obeyed.append(text)
    assert obeyed == []


def answers(folder: Path, place: str, text: str) -> dict[str, dict[str, object]]:
    """Return what each tool that reads one source says, as JSON has it."""
    root, source = injected(folder / "job", place, text)
    session = session_of(root.resolve())
    try:
        found = {}
        for tool in READING:
            if tool.name not in {"verdict", "explain", "what_if"}:
                continue
            try:
                answer = tool.call(session, {"source": source})
            except TrainGuardError as fault:
                answer = fault_answer(fault)
            found[tool.name] = json.loads(msgspec.json.encode(answer))
        return found
    finally:
        session.close()
