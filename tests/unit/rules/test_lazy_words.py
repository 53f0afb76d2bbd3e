"""The words of a judgement are made once, and only where somebody reads them."""

import copy
import pickle
from dataclasses import replace

from trainguard.core.records import Status
from trainguard.rules.rule_result import FactSheet, RuleResult, Words


class Text:
    """A text that notes which tense it was asked for."""

    def __init__(self) -> None:
        self.past: list[bool] = []

    def __call__(self, sheet: FactSheet) -> Words:
        """Return words of the tense."""
        self.past.append(sheet.past)
        return Words("It was so." if sheet.past else "It is so.", "Do it.", "it was so")


def test_words_are_made_once_when_they_are_read() -> None:
    text = Text()
    result = RuleResult.of(text, Status.FIRED, "kind", worst="gpu0")
    assert (result.kind, result.worst, text.past) == ("kind", "gpu0", [])
    assert (result.reason, result.clause, text.past) == ("It is so.", "it was so", [False])
    assert result.past_reason == "It was so."
    assert result.kept_texts == ("It was so.", "Do it.")
    assert text.past == [False, True]


def test_what_did_not_fire_has_no_past() -> None:
    text = Text()
    result = RuleResult.of(text, Status.OK, "kind")
    assert (result.past_advice, result.reason, text.past) == (None, "It is so.", [False])


def test_a_changed_result_keeps_its_words() -> None:
    result = replace(RuleResult.of(Text(), Status.OK, "kind"), advice="Wait.")
    assert (result.reason, result.advice) == ("It is so.", "Wait.")
    assert copy.copy(result) == result == pickle.loads(pickle.dumps(replace(result, text=None)))  # noqa: S301 -- our own


def test_words_of_ones_own_need_no_text() -> None:
    result = RuleResult(Status.OK, "Mine.")
    assert (result.reason, result.advice, result.text) == ("Mine.", None, None)
    assert (result.words, result.past_words, result.kept_texts) == (Words("Mine."), None, ("Mine.", None))
