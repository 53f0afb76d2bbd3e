"""What all rules over steps have in common: ranges, what a state counts, and what is said where nothing was checked."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.steps import RULES, Run, Step, fired, observed, parameters
from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.formats.tensors.name_patterns import NamePatternError
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.rule_result import FactSheet
from trainguard.rules.training.overfit import FINE as FITS
from trainguard.rules.training.readings import MetricReading, checked, not_saved, worst_of
from trainguard.rules.training.selection import matching, selected
from trainguard.rules.training.step_rule import Check, RunView, SelectingParameters, StepState, remember
from trainguard.rules.training.step_words import FoundScalars, StepText, several_words

RULE = RULES["VanishingGradient"]
NEEDS = "It checks the tensors of the collection gradients: "
UNKNOWN = " Parameter VanishingGradient_x is unknown and not used."
FINE = (
    Fact(name="step", value=1),
    Fact(name="loss_validation", value=1.0),
    Fact(name="loss_training", value=1.0),
    Fact(name="gap", value=0.0, series="loss", threshold=0.1),
)
FOUND = FoundScalars(names=("lr", "acc"))


def gradients(values: Sequence[float]) -> Run:
    run = Run()
    for step, value in enumerate(values):
        run.add(step, {"g": [value]}, collections={"gradients": ["g"]})
    return run


def step_of(names: Sequence[str], **collections: Sequence[str]) -> Step:
    return Run().add(5, dict.fromkeys(names, 0.0), collections=collections)


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"start_step": 2}, [2, 3, 4, 5]),
        ({"end_step": 4}, [0, 1, 2, 3]),
        ({"start_step": 2, "end_step": 4}, [2, 3]),
        ({"start_step": 0, "end_step": 0}, []),
    ],
)
def test_range_includes_its_first_step_and_excludes_its_end(given: Mapping[str, int], steps: list[int]) -> None:
    assert fired("VanishingGradient", gradients([0.0] * 6), **given) == steps


@pytest.mark.parametrize(("count", "kept"), [(99, 99), (100, 100), (101, 100), (105, 100)])
def test_hundred_of_many_firing_steps_are_named_and_all_counted(count: int, kept: int) -> None:
    state = observed("VanishingGradient", gradients([1.0, *[0.0] * count])).state
    assert (state.steps, state.fired, state.evaluated) == (list(range(1, kept + 1)), count, count + 1)
    assert state.onsets == [1]


@pytest.mark.parametrize(
    ("values", "onsets", "first", "onset"),
    [
        ([1.0], [], None, None),
        ([0.0], [0], 0, 1_000.0),
        ([1.0, 0.0], [1], 1, 1_001.0),
        ([0.0, 0.0], [0], 0, 1_000.0),
        ([0.0, 1.0], [0], 0, None),
        ([0.0, 1.0, 0.0], [0, 2], 0, 1_002.0),
    ],
)
def test_beginnings_and_onset_of_checks_are_kept(
    values: list[float], onsets: list[int], first: int | None, onset: float | None
) -> None:
    outcome = observed("VanishingGradient", gradients(values))
    state = outcome.state
    assert (state.onsets, state.first and state.first.step, outcome.result.onset) == (onsets, first, onset)
    assert (state.firing.step if state.firing else None) == max(state.steps, default=None)
    assert (outcome.result.advice is None) is bool(values[-1])
    assert outcome.result.data_points == len(values)


def test_beginnings_of_32_of_33_episodes_are_kept() -> None:
    state = observed("VanishingGradient", gradients([0.0, 1.0] * 33)).state
    assert state.onsets == list(range(0, 64, 2))


FACTS = (
    Fact(name="step", value=1, unit="steps"),
    Fact(name="mean_absolute_gradient", value="nan", series="x", threshold=1.0),
)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_non_finite_numbers_are_left_out_of_the_result(number: float) -> None:
    state = StepState()
    remember(state, Check(step=1, at=2.0, fires=True, facts=FACTS, value=number, threshold=number))
    result = RULE.judge(state, RunView(1), parameters("VanishingGradient"))
    assert (result.measured, result.threshold, result.status) == (None, None, Status.FIRED)
    remember(state, Check(step=2, at=2.0, fires=False, facts=FACTS, value=0.0, threshold=2.5))
    result = RULE.judge(state, RunView(1), parameters("VanishingGradient"))
    assert (result.measured, result.threshold, result.status) == (0.0, 2.5, Status.OK)


@pytest.mark.parametrize(
    ("state", "view", "status", "reason"),
    [
        ({"unusable": 1, "unusable_why": "x is broken"}, RunView(3), Status.ERROR,
         "No step could be checked: x is broken."),
        ({"waiting": 1}, RunView(0), Status.WARMING_UP, "No step was saved."),
        ({}, RunView(1), Status.NOT_APPLICABLE, f"None of 1 saved step holds what the rule checks. {NEEDS}"),
        ({}, RunView(2), Status.NOT_APPLICABLE, f"None of 2 saved steps hold what the rule checks. {NEEDS}"),
        ({}, RunView(0, closed=True), Status.NOT_APPLICABLE,
         f"None of 0 saved steps hold what the rule checks. {NEEDS}"),
        ({"waiting": 1}, RunView(1), Status.WARMING_UP,
         f"1 saved step holds what the rule checks, too few to compare. {NEEDS}"),
        ({"waiting": 2, "left_out": 1_234}, RunView(2, closed=True), Status.NOT_APPLICABLE,
         f"2 saved steps hold what the rule checks, too few to compare. {NEEDS}"),
        ({}, RunView(0, closed=True, scalars=FOUND), Status.NOT_APPLICABLE,
         ("No step was found in the files of scalars: they are empty, hold a header alone or lines without a loss, "
         "or could not be read.")),
        ({}, RunView(1, closed=True, scalars=FOUND), Status.NOT_APPLICABLE,
         "None of 1 saved step holds what the rule checks. The files of scalars hold lr, acc, and no tensors. It "),
        ({"waiting": 3}, RunView(3, scalars=FOUND), Status.WARMING_UP,
         "3 saved steps hold what the rule checks, too few to compare. The files of scalars hold lr, acc, and no "),
    ],
)  # fmt: skip
def test_nothing_checked_gives_the_reason_and_what_to_do(
    state: dict[str, Any], view: RunView, status: Status, reason: str
) -> None:
    result = RULE.judge(StepState(**state), view, parameters("VanishingGradient", x=1))
    assert result.status is status
    assert result.reason.startswith(reason)
    assert result.reason.endswith(UNKNOWN)
    assert (" 1,234 " in result.reason) is ("left_out" in state)


@pytest.mark.parametrize(
    ("state", "notes"),
    [
        ({}, ""),
        ({"unusable": 1, "unusable_why": "it is y"}, " Once a tensor could not be checked, because it is y."),
        ({"unusable": 2, "unusable_why": "it is y"},
         " 2 times a tensor could not be checked, the last time because it is y."),
        ({"unusable": 1_000, "unusable_why": "it is y", "left_out": 1},
         (" 1,000 times a tensor could not be checked, the last time because it is y. Left out: 1 value of "
         "metrics beyond the first 32.")),
        ({"left_out": 2_000}, " Left out: 2,000 values of metrics beyond the first 32."),
    ],
)  # fmt: skip
def test_notes_say_how_often_and_why_data_was_not_used(state: dict[str, Any], notes: str) -> None:
    fine = Check(step=1, at=1.0, fires=False, kind=FITS, facts=FINE)
    kept = StepState(**state, latest=fine)
    said = RULES["Overfit"].said(fine)
    for given, ignored in (
        ({}, ""),
        ({"a": 1}, " Parameter Overfit_a is unknown and not used."),
        ({"a": 1, "b": 1}, " Parameters Overfit_a, Overfit_b are unknown and not used."),
    ):
        result = RULES["Overfit"].judge(kept, RunView(1), parameters("Overfit", **given))
        assert result.reason == f"{said}{notes}{ignored}"


@pytest.mark.parametrize(
    ("rule", "found", "said"),
    [
        ("Confusion", FoundScalars(), "Record labels."),
        ("LossSpike", FoundScalars(), "It checks the loss of training: log one."),
        ("Confusion", FOUND, "The files of scalars hold lr, acc, and no tensors. Record labels."),
        ("LossSpike", FoundScalars(("loss",), ("loss",), more=True),
         "The files of scalars hold loss and others; taken for losses: loss. It checks the loss of training: log one."),
        ("LossSpike", FoundScalars(("acc", "b/x", "lr")),
         ("The files of scalars hold acc, b/x, lr; none of these names is taken for a loss. If one is the loss, set "
         "ScalarNames_losses to a regular expression that is found in it, for example ScalarNames_losses=b/x.")),
        ("LossSpike", FoundScalars(("episode_reward", "total_steps")),
         ("The files of scalars hold episode_reward, total_steps; none of these names is taken for a loss. If one is "
         "the loss, set ScalarNames_losses to a regular expression that is found in it.")),
        ("ExplodingTensor", FoundScalars(("acc",)),
         ("The files of scalars hold acc. It checks every scalar but what episodes earn, or those that "
         "collection_names and tensor_regex select: log one.")),
        ("StalledTrainingRule", FoundScalars(("acc", "x", "y"), ("x", "y")),
         ("The files of scalars hold acc, x, y; taken for losses: x, y. It checks when steps are saved: log scalars "
         "with TensorBoard, whose files have times.")),
    ],
)  # fmt: skip
def test_scalar_files_without_a_finding_say_what_they_hold(rule: str, found: FoundScalars, said: str) -> None:
    text = RULES[rule].text
    assert isinstance(text, StepText)
    assert replace(text, needs="Record labels.").scalar_needs(found) == said


def reading(tensor: str, value: float, fires: bool, over: float) -> MetricReading:
    return MetricReading(tensor, value, 7.0, fires, over, "kind")


@pytest.mark.parametrize(
    ("given", "tensor", "value", "more"),
    [
        ([reading("a", 1.0, False, 0.5), reading("b", 2.0, False, 0.75)], "b", 2.0, ""),
        ([reading("a", 1.0, False, 9.0), reading("b", 2.0, True, 0.75)], "b", 2.0, ""),
        ([reading("a", 1.0, True, 2.0), reading("b", 2.0, True, 2.0), reading("c", 1.0, False, 3.0)], "a", 1.0,
         " (the worst of 2 such things, of 3 in all)"),
        ([reading("a", math.nan, True, math.nan), reading("b", math.inf, True, 0.5)], "b", None,
         " (the worst of 2 such things, of 2 in all)"),
        ([reading("a", math.nan, True, math.nan), reading("b", 1.0, True, -math.inf)], "a", None,
         " (the worst of 2 such things, of 2 in all)"),
    ],
)  # fmt: skip
def test_check_is_of_the_reading_furthest_over(
    given: list[MetricReading], tensor: str, value: float | None, more: str
) -> None:
    check = checked(step_of([]), given, lambda each: (Fact(name="bad", value=str(each.tensor)),))
    assert check is not None
    sheet = FactSheet(Status.FIRED, "", check.facts)
    assert (sheet.number("step"), sheet.name("bad")) == (5, tensor)
    assert several_words(sheet, "things") == more
    assert (check.tensor, check.value, check.threshold, check.kind) == (tensor, value, 7.0, "kind")
    assert (check.step, check.at, check.fires) == (5, 1_005.0, any(each.fires for each in given))
    assert worst_of(given).tensor == tensor


def test_check_counts_all_judged_tensors_beyond_its_readings() -> None:
    two = [reading("a", 1.0, True, 1.0), reading("b", 1.0, True, 2.0)]
    check = checked(step_of([]), two, lambda _: (), judged=9)
    assert check is not None
    assert several_words(FactSheet(Status.FIRED, "", check.facts)) == " (the worst of 2 such tensors, of 9 in all)"
    assert checked(step_of([]), [], lambda _: ()) is None


def test_tensor_with_reductions_but_no_entries_is_named() -> None:
    state, step = StepState(), Run().add(4, {"full": [1.0]}, reductions={"part": {"mean": 1.0}})
    assert (not_saved(state, step, "full"), state.unusable) == (False, 0)
    assert (not_saved(state, step, "part"), state.unusable) == (True, 1)
    assert state.unusable_why == "of tensor part at step 4 only reductions were saved"


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("ab", ("xab", "xabc")), (".*ab", ("xab", "xabc")), ("ab.*", ("xab", "xabc")), (".*.*ab.*.*", ("xab", "xabc")),
        (".*", ("a.", "b", "xab", "xabc")), (".*?ab", ("xab", "xabc")), (".*+", ("a.", "b", "xab", "xabc")),
        (r"a\.*$", ("a.",)), (r"a\.*", ("a.", "xab", "xabc")), (".*c|a\\.", ("a.", "xabc")), ("c|^b.*", ("b", "xabc")),
        (".{1}b.*", ("xab", "xabc")), (".*{", ()), ("b$.*", ("b", "xab")), ("z.*", ()),
    ],
)  # fmt: skip
def test_names_that_match_a_pattern_are_returned(pattern: str, found: tuple[str, ...]) -> None:
    assert matching(step_of(["xab", "a.", "b", "xabc"]), pattern) == found


@pytest.mark.parametrize("pattern", ["loss", ".*loss", "loss.*", ".*loss.*", ".*.*loss.*.*"])
def test_wildcards_around_a_word_cost_no_more_than_the_word(
    pattern: str,
) -> None:
    name = "x" * 20_000 + "loss"
    assert matching(step_of([name]), pattern) == (name,)


def test_costly_pattern_over_too_many_names_is_refused() -> None:
    names = [f"{place:01999d}" for place in range(1_001)]
    assert matching(step_of(names[:1_000]), "a.*b") == ()
    with pytest.raises(NamePatternError, match=r"'a\.\*b' could take too long in the 1,001 names of a step"):
        matching(step_of(names), "a.*b")


@pytest.mark.parametrize(
    ("collections", "patterns", "found"),
    [
        (None, None, ()),
        (("one",), None, ("a", "c")),
        (("one", "two"), None, ("a", "b", "c")),
        (None, ("b", "d"), ("b", "d")),
        (("one",), ("d",), ("a", "c", "d")),
        (("none",), ("z",), ()),
    ],
)
def test_selected_tensors_are_the_sorted_union_without_repeats(
    collections: tuple[str, ...] | None, patterns: tuple[str, ...] | None, found: tuple[str, ...]
) -> None:
    step = step_of(["d", "a", "b", "c"], one=["a", "c", "gone"], two=["b", "c"])
    assert selected(step, collections, patterns) == found
    chosen = SelectingParameters(collection_names=collections, tensor_regex=patterns)
    assert (chosen.tensors(step), chosen.selects) == (found, bool(collections or patterns))


def test_broken_tensors_of_a_step_out_of_range_are_not_counted() -> None:
    run = Run()
    run.add(1, {"g": np.zeros(2)}, collections={"gradients": ["g"]}, broken={"g"}, mode=Mode.TRAIN)
    outcome = observed("VanishingGradient", run, start_step=2)
    assert (outcome.state.unusable, outcome.result.status) == (0, Status.NOT_APPLICABLE)
