"""The words of each rule, kind by kind: the one test that changes with a sentence, and what holds of all of them."""

import json
import os
import re
from collections.abc import Iterator
from enum import StrEnum
from importlib import import_module

import pytest

from tests.answers.recorded import ACCEPT
from tests.unit.rules.texts.numbers_in_words import unfounded
from tests.unit.rules.texts.sheets import WORDED, Sheet, file_of, sheets_of, worded, write
from trainguard.kernels.findings.text import KernelKind
from trainguard.records import Status

SHEETS = [sheet for rule in WORDED if file_of(rule).exists() for sheet in sheets_of(rule)]
FIRED = [sheet for sheet in SHEETS if sheet.status is Status.FIRED]
EACH = pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.id)
EACH_FIRED = pytest.mark.parametrize("sheet", FIRED, ids=lambda sheet: sheet.id)

BANNED = re.compile(
    r"\b(wast(?:e|es|ed|ing)|gravest|rings?|heard|nobody|ago|so-called|basically|simply|obviously|please)\b",
    re.IGNORECASE,
)
"""Words that the style page replaces: clock times instead of "ago", what happened instead of what was heard."""


HINTS = frozenset({"tensorflow"})
"""Kinds that are no finding, and yet say what to do."""

PRESENT = re.compile(r"\b(is|are|has|have|goes|holds|runs|stays|waits)\b")
STANDING = (
    "the distance of their histograms is",
    "that are plausible",
    "the GPU has fallen off the bus",
    "in waits for data",
    "of the other GPUs have",
    "is not measured, since its GPUs are partitioned",
    "which is the threshold",
    "that is above the threshold",
)
"""What stays true of a finding that is over."""

UNCHECKED = re.compile(r"(Once|[\d,]+ times) a (tensor|scalar) could not be checked.*")
OF_A_STEP = frozenset({"training/NotLearning", "kernels/GpuBusyLow"})
"""Rules that say in the present tense what the step, or the capture, that they name looks like."""

UNSEEN = frozenset(
    {
        *(f"KernelKind.{kind.name}" for kind in KernelKind if kind is not KernelKind.GPU_GAP),
        *("CaptureKind.CUT_OFF", "CaptureKind.UNREAD", "DivergedKind.EXPLODED", "DivergedKind.WAS_NOT_FINITE"),
        *("HealthKind.POWER_LIMIT", "LowGPUUtilizationKind.SMALL_DIPS"),
        *(f"LearningKind.{name}" for name in ("CAPPED", "JUMPS", "LEVEL", "WARM_UP", "WORSENS")),
        *(f"StallKind.{name}" for name in ("ENDED", "NEWEST", "NOT_RUNNING", "RECENT", "RESUMED", "UNTIMED")),
    }
)
"""Kinds of which the recorded answers have no judgement; the rules' own tests assert their words."""


@pytest.mark.parametrize("rule", WORDED)
def test_given_facts_when_a_rule_words_them_then_the_words_are_those(rule: str) -> None:
    sheets = sheets_of(rule)
    before = file_of(rule).read_text(encoding="utf-8")
    if os.environ.get(ACCEPT):
        write(rule, sheets)
        return
    for sheet, said in zip(sheets, json.loads(before), strict=True):
        assert worded(sheet) == said


@EACH
def test_given_any_kind_when_worded_then_its_reason_is_of_sentences(sheet: Sheet) -> None:
    reason = sheet.words().reason
    assert reason.endswith((".", ".)"))
    assert reason == reason.strip()
    assert not re.search(r"\bNone\b(?! of)|  ", reason)
    assert ("nan" in reason.split()) <= any(fact.value == "nan" for fact in sheet.facts)


@EACH
def test_given_any_kind_when_worded_then_advice_comes_with_a_finding(sheet: Sheet) -> None:
    said = sheet.words()
    if sheet.kind not in HINTS:
        assert bool(said.advice) == (sheet.status is Status.FIRED)
    if sheet.status is Status.FIRED:
        assert said.advice is not None
        assert said.advice.endswith((".", ".)"))
        assert said.clause
        assert not said.clause.endswith(".")


@EACH
def test_given_any_kind_when_worded_then_each_number_is_a_facts(sheet: Sheet) -> None:
    now, past = sheet.words(), sheet.words(past=sheet.status is Status.FIRED)
    for words in (now.reason, now.advice, now.clause, past.reason, past.advice):
        assert unfounded(words or "", sheet.facts) == []


@EACH_FIRED
def test_given_a_finding_when_it_is_over_then_its_words_are_of_the_past(sheet: Sheet) -> None:
    if sheet.rule in OF_A_STEP:
        return
    said = UNCHECKED.sub("", sheet.words(past=True).reason)
    for standing in STANDING:
        said = said.replace(standing, "")
    assert PRESENT.findall(said) == []


@EACH
def test_given_any_kind_when_worded_then_no_word_is_banned(sheet: Sheet) -> None:
    said = sheet.words()
    assert BANNED.findall(" ".join((said.reason, said.advice or "", said.clause))) == []


def _kinds() -> Iterator[tuple[str, StrEnum]]:
    modules = {import_module(spec.text.__module__) for spec in WORDED.values() if spec.text is not None}
    for module in sorted(modules, key=lambda each: each.__name__):
        for each in vars(module).values():
            if isinstance(each, type) and issubclass(each, StrEnum) and each.__name__.endswith("Kind"):
                yield from ((f"{each.__name__}.{kind.name}", kind) for kind in each)


@pytest.mark.parametrize(("name", "kind"), dict(_kinds()).items())
def test_given_an_enumeration_when_read_then_each_kind_has_a_sheet(name: str, kind: StrEnum) -> None:
    assert any(sheet.kind == kind for sheet in SHEETS) != (name in UNSEEN)
