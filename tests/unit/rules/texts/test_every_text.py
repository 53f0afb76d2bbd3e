"""The words of each rule, kind by kind: the one test that changes with a sentence, and what holds of all of them."""

import json
import os
import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from importlib import import_module

import pytest

from tests.answers.recorded import ACCEPT
from tests.unit.rules.texts.numbers_in_words import unfounded
from tests.unit.rules.texts.sheets import WORDED, Sheet, file_of, sheets_of, worded, write
from trainguard.core.records import Status
from trainguard.rules.bottlenecks.text import CoreWords
from trainguard.rules.rule_result import Text
from trainguard.rules.training.step_words import StepText

SHEETS = [sheet for rule in WORDED if file_of(rule).exists() for sheet in sheets_of(rule)]
FIRED = [sheet for sheet in SHEETS if sheet.status is Status.FIRED]

# Words that the style page replaces: clock times instead of "ago", what happened instead of what was said.
BANNED = re.compile(
    r"\b(wast(?:e|es|ed|ing)|gravest|rings?|heard|nobody|ago|so-called|basically|simply|obviously|please)\b",
    re.IGNORECASE,
)


# Kinds that are no finding, and yet say what to do.
HINTS = frozenset({"tensorflow"})

PRESENT = re.compile(r"\b(is|are|has|have|goes|holds|runs|stays|waits)\b")
# What stays true of a finding that is over.
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

UNCHECKED = re.compile(r"(Once|[\d,]+ times) a (tensor|scalar) could not be checked.*")
# Rules that say in the present tense what the step, or the capture, that they name looks like.
OF_A_STEP = frozenset({"training/NotLearning", "kernels/GpuGap"})

# Kinds of which the recorded answers have no judgement; the rules' own tests assert their words.
UNSEEN = frozenset(
    {
        *(
            "CaptureKind.CUT_OFF",
            "CaptureKind.NO_MEMORY",
            "CaptureKind.NOT_IN_SNAPSHOTS",
            "CaptureKind.UNREAD",
            "CaptureKind.WORK_LOST",
        ),
        *(
            "LowGPUUtilizationKind.IDLE_AT_FIRST",
            "HealthKind.POWER_LIMIT",
            "LowGPUUtilizationKind.SMALL_DIPS",
            "StepKind.UNREAD",
            "StragglerKind.UNEVEN",
        ),
        "training/GradientNormDrift: drifts with a moving target",
        *(
            f"training/NotLearning: {kind}"
            for kind in ("worse than a guess", "capped", "jumps", "level", "moves", "uncertain", "warm-up", "worsens")
        ),
        *(
            f"training/TrainingDiverged: {kind}"
            for kind in ("exploded", "was not finite", "breaks", "earns", "moves", "reward lost", "kl exploded")
        ),
        *(f"training/TrainingDiverged: {kind}" for kind in ("entropy gone", "generator lost", "updates too large")),
        *(
            f"training/StalledTrainingRule: {kind}"
            for kind in ("ended", "GPUs work", "newest object", "not running", "recent", "resumed", "no times")
        ),
    }
)


@pytest.mark.parametrize("rule", WORDED)
def test_a_rule_words_its_facts_as_reviewed(rule: str) -> None:
    sheets = sheets_of(rule)
    before = file_of(rule).read_text(encoding="utf-8")
    if os.environ.get(ACCEPT):
        write(rule, sheets)
        return
    for sheet, said in zip(sheets, json.loads(before), strict=True):
        assert worded(sheet) == said


def _failing(sheets: list[Sheet], holds: Callable[[Sheet], object]) -> list[str]:
    """Return the sheets of which something does not hold."""
    return [sheet.id for sheet in sheets if not holds(sheet)]


def test_each_reason_is_made_of_sentences() -> None:
    def holds(sheet: Sheet) -> bool:
        reason = sheet.words().reason
        ends = reason.endswith((".", ".)")) and reason == reason.strip()
        is_number = ("nan" in reason.split()) <= any(fact.value == "nan" for fact in sheet.facts)
        return ends and is_number and not re.search(r"\bNone\b(?! of)|  ", reason)

    assert _failing(SHEETS, holds) == []


def test_advice_comes_with_each_finding_and_nothing_else() -> None:
    unasked = [sheet for sheet in SHEETS if sheet.kind not in HINTS and sheet.status is not Status.FIRED]
    assert _failing(unasked, lambda sheet: not sheet.words().advice) == []
    assert _failing(FIRED, lambda sheet: (sheet.words().advice or "").endswith((".", ".)"))) == []


def test_each_finding_has_a_clause_that_is_no_sentence() -> None:
    assert _failing(FIRED, lambda sheet: sheet.words().clause) == []
    assert _failing(FIRED, lambda sheet: not sheet.words().clause.endswith(".")) == []


def test_each_number_of_the_words_is_a_fact() -> None:
    def of(sheet: Sheet) -> list[str]:
        now, past = sheet.words(), sheet.words(past=sheet.status is Status.FIRED)
        words = (now.reason, now.advice, now.clause, past.reason, past.advice)
        return [number for each in words for number in unfounded(each or "", sheet.facts)]

    assert {sheet.id: found for sheet in SHEETS if (found := of(sheet))} == {}


def test_a_finding_that_is_over_is_worded_in_the_past() -> None:
    def present(sheet: Sheet) -> list[str]:
        said = UNCHECKED.sub("", sheet.words(past=True).reason)
        for standing in STANDING:
            said = said.replace(standing, "")
        return PRESENT.findall(said)

    over = [sheet for sheet in FIRED if sheet.rule not in OF_A_STEP]
    assert {sheet.id: found for sheet in over if (found := present(sheet))} == {}


def test_no_word_is_banned() -> None:
    def banned(sheet: Sheet) -> list[str]:
        said = sheet.words()
        return BANNED.findall(" ".join((said.reason, said.advice or "", said.clause)))

    assert {sheet.id: found for sheet in SHEETS if (found := banned(sheet))} == {}


def _module_of(text: Text) -> str:
    """Return where the sentences of a text are written; some texts are records of functions."""
    return text.say.__module__ if isinstance(text, StepText) else text.__module__


def _kinds() -> Iterator[tuple[str, str]]:
    texts = ((name, spec.text) for name, spec in WORDED.items())
    yield from ((f"{name}: {kind}", kind) for name, text in texts if isinstance(text, StepText) for kind in text.kinds)
    functions = {
        name: spec.text
        for name, spec in WORDED.items()
        if spec.text is not None and not isinstance(spec.text, CoreWords)
    }
    modules = {name: import_module(_module_of(text)) for name, text in functions.items()}
    yield from ((f"{name}: {kind}",) * 2 for name, module in modules.items() for kind in getattr(module, "KINDS", ()))
    for module in sorted(set(modules.values()), key=lambda each: each.__name__):
        for each in vars(module).values():
            if isinstance(each, type) and issubclass(each, StrEnum) and each.__name__.endswith("Kind"):
                yield from ((f"{each.__name__}.{kind.name}", kind) for kind in each)


def test_each_kind_has_a_sheet() -> None:
    kinds = dict(_kinds())
    worded_kinds = {kind for sheet in SHEETS for kind in (sheet.kind, f"{sheet.rule}: {sheet.kind}")}
    assert {name for name, kind in kinds.items() if kind not in worded_kinds} == UNSEEN
