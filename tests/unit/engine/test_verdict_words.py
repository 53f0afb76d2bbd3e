"""Words that the engine adds to a rule's: of what is over, of several nodes, of nodes that fell silent or ended."""

from collections.abc import Sequence

import pytest

from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.engine.verdicts.episodes import (
    NODES,
    NODES_FIRED,
    POINTS_JUDGED,
    POINTS_SEEN,
    SHARE_OF_POINTS,
    kept_words,
    never_judged,
    once_found,
    over_nodes,
    past_words,
    since_silent,
)
from trainguard.rules.registry import spec_of
from trainguard.rules.rule_result import FactSheet, RuleResult
from trainguard.rules.step_outlier.text import StepOutlierKind

MADE, OWN = "StepOutlier", "a deployment's own rule"
STEPS = (
    Fact(name="process", value="algo-1-7 TRAIN", node="algo-1"),
    Fact(name="steps", value=900, unit="steps"),
    Fact(name="slow_steps", value=40, unit="steps", threshold=9.0),
    Fact(name="outlier_above", value=1.5, unit="s"),
    Fact(name="median_step", value=0.5, unit="s"),
    Fact(name="slow_time_share", value=0.25, unit="share", threshold=0.1),
)


def counts(**values: float) -> list[Fact]:
    return [Fact(name=name, value=value) for name, value in values.items()]


def test_what_is_over_is_made_anew_of_its_facts() -> None:
    """A custom rule's own words stay, and so do those of a result without a kind."""
    made = past_words(MADE, StepOutlierKind.TOO_MANY, STEPS, reason="stored", advice="stored")

    assert "stored" not in made.reason
    assert "40 of 900 steps" in made.reason
    assert past_words(MADE, "", STEPS, reason="stored", advice="do it") == past_words(
        OWN, "its kind", STEPS, reason="stored", advice="do it"
    )


@pytest.mark.parametrize("facts", [STEPS[:2], ()])
def test_facts_of_an_earlier_version_stop_nothing(facts: tuple[Fact, ...]) -> None:
    found = past_words(MADE, StepOutlierKind.TOO_MANY, facts, reason="", advice=None)

    assert (MADE in found.reason, "too many" in found.reason, found.advice) == (True, True, None)


@pytest.mark.parametrize(
    ("rule", "kind", "kept"),
    [(MADE, "too_many", ("", None)), (MADE, "", ("12345", "123")), (OWN, "own", ("12345", "123"))],
)
def test_words_that_facts_make_are_not_stored(rule: str, kind: str, kept: tuple[str, str | None]) -> None:
    assert kept_words(rule, RuleResult(Status.OK, "1234567", advice="123", kind=kind), longest=5) == kept


@pytest.mark.parametrize(
    ("facts", "worst", "parts"),
    [
        (counts(**{NODES_FIRED: 2, NODES: 8}), "algo-3", ["2 of 8 nodes fire", "worst algo-3"]),
        (counts(**{NODES_FIRED: 0, NODES: 8}), "algo-3", []),
        (
            counts(**{NODES_FIRED: 0, NODES: 2, POINTS_SEEN: 50, POINTS_JUDGED: 2_000, SHARE_OF_POINTS: 0.025}),
            "algo-3",
            ["Over the judged nodes: 50 of 2,000 points (2.5 %)."],
        ),
        (counts(**{NODES: 2, POINTS_SEEN: 0, POINTS_JUDGED: 0, SHARE_OF_POINTS: 0.0}), "algo-3", []),
    ],
)
def test_the_worst_node_speaks_for_all(facts: Sequence[Fact], worst: str, parts: Sequence[str]) -> None:
    said = over_nodes("It idles.", facts, worst)

    assert all(part in said for part in (*parts, "It idles."))
    assert parts or said == "It idles."


def test_nodes_without_a_verdict_are_counted_and_named() -> None:
    said = over_nodes("It idles.", counts(**{NODES: 3}), "algo-1", ["algo-2", "algo-3"])

    assert said == "It idles. 2 of 3 nodes without a verdict: algo-2 and algo-3."


def test_silence_is_said_with_its_length() -> None:
    assert "20 min" in since_silent("It idles.", Fact(name="silent", value=1_200.0, unit="s"))


@pytest.mark.parametrize(
    ("reason", "end"),
    [
        ("No training step was seen.", ": no training step was seen."),
        ("algo-1 has no samples.", ": algo-1 has no samples."),
        ("GPU 3 has no samples.", ": GPU 3 has no samples."),
    ],
)
def test_a_rule_that_waited_until_the_end_says_for_what(reason: str, end: str) -> None:
    """In one sentence: the reason goes on after the colon."""
    assert never_judged(reason, read=True).endswith(end)
    assert reason not in never_judged(reason, read=False)


def test_what_a_rule_waits_for_holds_at_the_end_too() -> None:
    """It is the same sentence while the job runs and once it has ended: nothing comes any more."""
    text = spec_of(MADE).text
    assert text is not None
    assert "yet" not in text(FactSheet(Status.WAITING_FOR_DATA, StepOutlierKind.NO_STEPS, ())).reason


@pytest.mark.parametrize(("at", "then"), [(None, "At the end: "), (7_200.0, "By 1970-01-01 02:00 UTC: ")])
def test_what_was_found_has_its_clock_times(at: float | None, then: str) -> None:
    said = once_found("It idled.", "It works.", held=(0.0, 3_600.0), at=at)

    assert said == f"1970-01-01 00:00 to 01:00 UTC: It idled. {then}It works."
