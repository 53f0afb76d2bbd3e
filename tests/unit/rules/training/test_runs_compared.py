"""Rules that compare a step with others, with other ranks or another run: tables on thresholds, and their sentences."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.steps import Outcome, Run, observed, parameters
from trainguard.core.errors import RuleConfigError
from trainguard.core.records import Status
from trainguard.formats.tensors.step_view import Mode

NAN, INF = math.nan, math.inf
TRAIN, EVAL, PREDICT, GLOBAL = Mode.TRAIN, Mode.EVAL, Mode.PREDICT, Mode.GLOBAL


def said(outcome: Outcome) -> str:
    """Return the newest sentence without its step."""
    return outcome.result.reason.partition(": ")[2]


def phases(*losses: tuple[Mode, Any]) -> Run:
    run = Run()
    for step, (mode, loss) in enumerate(losses):
        saved = loss if isinstance(loss, dict) else {"loss": [loss]}
        run.add(step, saved, collections={"losses": sorted(saved)}, mode=mode)
    return run


GAP = "the mean loss of validation is {} and that of training {}, a gap of {} of it, {}"
BEST = "the loss of {} has not fallen by more than {}"
CHANGE = "w changed by {} of its norm since its saved step before, {}"
EPOCH = ((TRAIN, 2.0), (TRAIN, 4.0), (EVAL, 4.5))


@pytest.mark.parametrize(
    ("losses", "given", "steps", "sentence"),
    [
        ((*EPOCH, (TRAIN, 9.0)), {"ratio_threshold": 0.5}, [],
         "4.5; 3; 0.5; not above the threshold 0.5, by loss."),
        ((*EPOCH, (PREDICT, 99.0), (EVAL, 7.5), (TRAIN, 9.0)), {"ratio_threshold": 0.75}, [5],
         "6; 3; 1; above the threshold 0.75, by loss."),
        ((*EPOCH, *EPOCH, (TRAIN, 9.0)), {"ratio_threshold": 0.25, "patience": 2}, [6],
         "4.5; 3; 0.5; above the threshold 0.25, 2 times in a row (patience 2), by loss."),
        ((*EPOCH, (TRAIN, 1.0), (EVAL, 0.5), *EPOCH, (TRAIN, 9.0)), {"patience": 2}, [],
         "4.5; 3; 0.5; above the threshold 0.1, 1 time in a row (patience 2), by loss."),
        (((TRAIN, INF), (EVAL, 1.0), (TRAIN, 9.0)), {}, [],
         "1; inf; nan; not above the threshold 0.1, by loss."),
        (((TRAIN, -2.0), (EVAL, -1.0), (TRAIN, 9.0)), {"ratio_threshold": 0.25}, [2],
         "-1; -2; 0.5; above the threshold 0.25, by loss."),
    ],
)  # fmt: skip
def test_means_of_training_and_validation_phases_are_compared(
    losses: Sequence[tuple[Mode, float]], given: Mapping[str, Any], steps: list[int], sentence: str
) -> None:
    outcome = observed("Overfit", phases(*losses), **given)
    assert (outcome.steps, said(outcome)) == (steps, GAP.format(*sentence.split("; ")))
    counted = sum(mode is not PREDICT for mode, _ in losses)
    assert outcome.state.waiting == counted - outcome.state.evaluated


@pytest.mark.parametrize(
    ("losses", "evaluated"),
    [
        (((EVAL, 4.0), (TRAIN, 1.0), (TRAIN, 1.0)), 0),
        (((TRAIN, 0.0), (EVAL, 4.0), (TRAIN, 1.0)), 0),
        (((TRAIN, 1.0), (EVAL, 4.0)), 0),
        (((TRAIN, 1.0), (EVAL, 4.0), (TRAIN, 1.0), (TRAIN, 1.0)), 1),
        (((TRAIN, 1.0), (EVAL, {"loss": ["x"]}), (TRAIN, 1.0)), 0),
    ],
)
def test_phase_without_its_counterpart_is_not_judged(losses: Sequence[tuple[Mode, Any]], evaluated: int) -> None:
    assert observed("Overfit", phases(*losses)).state.evaluated == evaluated


def pairs(*values: tuple[float, float], metric: str = "rmse") -> list[tuple[Mode, Any]]:
    return [(GLOBAL, {f"train-{metric}": [train], f"validation-{metric}": [held]}) for train, held in values]


@pytest.mark.parametrize(
    ("losses", "given", "steps", "sentence"),
    [
        (pairs((1.0, 1.5)), {"ratio_threshold": 0.5}, [],
         "1.5; 1; 0.5; not above the threshold 0.5, by validation-rmse."),
        (pairs((1.0, 1.5), (0.0, 9.0), (4.0, 8.0)), {"patience": 2}, [2],
         "8; 4; 1; above the threshold 0.1, 2 times in a row (patience 2), by validation-rmse."),
        (pairs((1.0, 1.5), (1.0, 1.0), (1.0, 1.5)), {"patience": 2}, [],
         "1.5; 1; 0.5; above the threshold 0.1, 1 time in a row (patience 2), by validation-rmse."),
        ([(GLOBAL, {**pairs((1.0, 3.0))[0][1], **pairs((1.0, 2.0), metric="mae")[0][1], "train-auc": [1.0]})], {}, [0],
         "3; 1; 2; above the threshold 0.1, by validation-rmse (the worst of 2 such metrics, of 2 in all)."),
    ],
)  # fmt: skip
def test_each_pair_of_metrics_counts_for_itself(
    losses: Sequence[tuple[Mode, Any]], given: Mapping[str, Any], steps: list[int], sentence: str
) -> None:
    outcome = observed("Overfit", phases(*losses), **given)
    assert (outcome.steps, said(outcome)) == (steps, GAP.format(*sentence.split("; ")))


def test_metrics_that_are_no_numbers_are_left_out() -> None:
    broken = {"train-a": ["x"], "validation-a": [9.0], "train-b": [1.0], "validation-b": ["x"]}
    state: Any = observed("Overfit", phases((GLOBAL, {**broken, "train-c": [1.0], "validation-c": [1.0]}))).state
    assert (state.pairs, state.evaluated) == ({"c": 0}, 1)


@pytest.mark.parametrize(("metrics", "left_out"), [(32, 0), (33, 2), (35, 6)])
def test_pairs_beyond_the_kept_number_are_counted(metrics: int, left_out: int) -> None:
    saved = {f"{data}-m{place:02d}": [1.0] for place in range(metrics) for data in ("train", "validation")}
    state: Any = observed("Overfit", phases((GLOBAL, saved), (GLOBAL, saved))).state
    assert (len(state.pairs), state.left_out, state.evaluated) == (32, left_out, 2)


@pytest.mark.parametrize(
    ("losses", "given", "steps", "sentence"),
    [
        (((TRAIN, 1.0),), {}, [], "training (loss): 0.01 below 1 (step 0) for 0 saved steps, below the threshold 5."),
        (((TRAIN, 1.0), (TRAIN, 0.75)), {"delta": 0.25}, [],
         "training (loss): 0.25 below 1 (step 0) for 1 saved step, below the threshold 5."),
        (((TRAIN, 1.0), (TRAIN, 0.5), (TRAIN, 0.75), (TRAIN, 0.5)), {"delta": 0.25, "patience_train": 2}, [3],
         "training (loss): 0.25 below 0.5 (step 1) for 2 saved steps, not below the threshold 2."),
        (((TRAIN, 1.0), (EVAL, 1.0), (EVAL, 1.0), (TRAIN, 0.5)), {"patience_validation": 1}, [2, 3],
         "validation: 0.01 below 1 (step 1) for 1 saved step, not below the threshold 1."),
        (((TRAIN, NAN), (TRAIN, NAN), (TRAIN, 2.0), (TRAIN, NAN)), {}, [],
         "training (loss): 0.01 below 2 (step 2) for 1 saved step, below the threshold 5."),
        (((GLOBAL, {"train-a": [1.0], "test-a": [2.0]}),) * 2, {"patience_train": 2, "patience_validation": 1}, [1],
         "validation (test-a): 0.01 below 2 (step 0) for 1 saved step, not below the threshold 1."),
        (((TRAIN, 1.0), (EVAL, 1.0), (EVAL, 1.0), (EVAL, 1.0), (TRAIN, 1.0), (EVAL, 1.0), (TRAIN, 1.0)),
         {"patience_train": 2, "patience_validation": 1}, [2, 3, 4, 5, 6],
         ("validation: 0.01 below 1 (step 1) for 3 saved steps, not below the threshold 1 (the worst of 2 such losses, "
         "of 2 in all).")),
        (((TRAIN, 1.0), (EVAL, 1.0), (TRAIN, 1.0), (EVAL, 1.0)), {"patience_train": 1, "patience_validation": 1},
         [2, 3],
         ("training: 0.01 below 1 (step 0) for 1 saved step, not below the threshold 1 (the worst of 2 such "
         "losses, of 2 in all).")),
    ],
)  # fmt: skip
def test_best_loss_and_its_age_are_shown_without_improvement(
    losses: Sequence[tuple[Mode, Any]], given: Mapping[str, Any], steps: list[int], sentence: str
) -> None:
    outcome = observed("Overtraining", phases(*losses), **given)
    assert (outcome.steps, said(outcome)) == (steps, BEST.format(*sentence.split(": ")))
    assert (outcome.result.advice is not None) is ("not below" in sentence)
    delta = f"an improvement of {given.get('delta', 0.01):g} or less counts as none."
    assert (outcome.result.advice or delta).endswith(delta)


def test_steps_without_either_loss_are_not_mentioned() -> None:
    run = phases((TRAIN, {"loss": ["x"]}), (PREDICT, 1.0), (GLOBAL, 1.0))
    assert observed("Overtraining", run).state.evaluated == 0


CHECKSUM = "trainguard/checksum/"


@pytest.mark.parametrize(
    ("sums", "sentence"),
    [
        ([5.0, 5.0], "the checksums of 2 ranks are equal."),
        ([5.0, 6.0], "1 of 2 ranks has the checksum 5.0, rank 1 has 6.0."),
        ([6.0, 5.0, 5.0], "2 of 3 ranks have the checksum 5.0, rank 0 has 6.0."),
        ([0.0, 0.0, -0.0, NAN, NAN], "2 of 5 ranks have the checksum 0.0, rank 2 has -0.0, 3 has nan, 4 has nan."),
        ([1.0] * 9 + [2.0] * 6,
         "9 of 15 ranks have the checksum 1.0, rank " + ", ".join(f"{rank} has 2.0" for rank in range(9, 15)) + "."),
        ([1.0] * 10 + [2.0] * 9,
         "10 of 19 ranks have the checksum 1.0, rank " + ", ".join(f"{rank} has 2.0" for rank in range(10, 16))
         + " and 3 more differ."),
        ([5.0, [5.0, 5.0], 5.0], "the checksums of 2 ranks are equal."),
    ],
)  # fmt: skip
def test_ranks_whose_checksums_differ_from_most_are_named(sums: Sequence[Any], sentence: str) -> None:
    run = Run()
    run.add(4, {f"{CHECKSUM}{rank}": value for rank, value in enumerate(sums)} | {"other": [1.0]})
    outcome = observed("RanksOutOfSync", run)
    assert said(outcome) == sentence
    apart = [rank for rank, value in enumerate(sums) if "rank " in sentence and f"{rank} has {value}" in sentence]
    assert outcome.result.worst == (f"{CHECKSUM}{apart[0]}" if apart else None)
    assert outcome.result.threshold == 0.0
    assert (outcome.result.measured == 0.0) is (outcome.result.status is Status.OK) is ("are equal" in sentence)


def test_single_checksum_waits_for_others_and_none_does_not() -> None:
    run = Run()
    run.add(0, {"other": [1.0]})
    run.add(1, {f"{CHECKSUM}0": [1.0]})
    run.add(2, {f"{CHECKSUM}0": [1.0], f"{CHECKSUM}1": [1.0, 2.0]})
    state = observed("RanksOutOfSync", run).state
    assert (state.evaluated, state.waiting) == (0, 2)


@pytest.mark.parametrize(
    ("now", "threshold", "sentence"),
    [
        ((5.0, 4.0), {}, "0.4: not above the threshold 10."),
        ((3.0, 4.0), {}, "0: below the threshold 1e-08."),
        ((8.0, 4.0), {"large_threshold": 1}, "1: not above the threshold 1."),
        ((9.0, 4.0), {"large_threshold": 1}, "1.2: above the threshold 1."),
        ((8.0, 4.0), {"small_threshold": 1},
         "1: not below the threshold 1."),
        ((7.0, 4.0), {"small_threshold": 1}, "0.8: below the threshold 1."),
        ((8.0, 4.0), {"small_threshold": 0.5, "large_threshold": 2},
         "1: not above the threshold 2."),
        ((8.0, 4.0), {"small_threshold": 0.75, "large_threshold": 2},
         "1: not below the threshold 0.75."),
        ((5.0, 4.0), {"large_threshold": 0}, "0.4: above the threshold 0."),
        ((3.0, 4.0), {"small_threshold": 0}, "0: not below the threshold 0."),
        ((8.0, 4.0), {"small_threshold": 1, "large_threshold": 0.5}, "1: above the threshold 0.5."),
        ((8.0, 4.0), {"small_threshold": 2, "large_threshold": 0.5},
         "1: below the threshold 2."),
    ],
)  # fmt: skip
def test_changed_weight_names_the_nearer_threshold(
    now: tuple[float, float], threshold: Mapping[str, float], sentence: str
) -> None:
    run = Run()
    for step, values in enumerate([(3.0, 4.0), now]):
        run.add(step, {"w": values}, collections={"weights": ["w"]})
    outcome = observed("WeightUpdateRatio", run, epsilon=0, **threshold)
    assert said(outcome) == CHANGE.format(*sentence.split(": "))
    fires = ": above" in sentence or ": below" in sentence
    assert (outcome.result.status is Status.FIRED) is fires
    advice = "Lower the learning rate" if ": above" in sentence else "Check that the optimizer holds w "
    assert (outcome.result.advice or "").startswith(advice if fires else "")


@pytest.mark.parametrize(
    ("before", "now", "epsilon", "ratio", "kind"),
    [
        (0.0, 0.0, 0, 0.0, "small"), (0.0, 1.0, 0, None, "large"), (0.0, 2.0, 0.5, 4.0, "large"),
        (1.5, 3.0, 0.5, 0.75, "large"),
    ],
)  # fmt: skip
def test_epsilon_alone_makes_the_ratio_of_a_zero_weight_finite(
    before: float, now: float, epsilon: float, ratio: float | None, kind: str
) -> None:
    run = Run()
    for step, value in enumerate((before, now)):
        run.add(step, {"w": [value]}, collections={"weights": ["w"]})
    latest = observed("WeightUpdateRatio", run, epsilon=epsilon, large_threshold=1).state.latest
    assert latest is not None
    assert (latest.value, latest.kind) == (ratio, kind)


def test_incomparable_weights_are_counted_with_the_reason() -> None:
    run, names = Run(), ["a", "b", "new", "part", "text", "shape"]
    for step, value in enumerate((1.0, 1.5)):
        saved = {"a": [value], "b": [value], "text": np.array(["x"], object), "shape": np.ones(step + 1)}
        saved |= {"new": [1.0]} if step else {}
        run.add(step, saved, collections={"weights": names}, reductions={"part": {"mean": 1.0}})
    state = observed("WeightUpdateRatio", run).state
    assert (state.evaluated, state.waiting, state.unusable) == (1, 2, 2)
    assert said(observed("WeightUpdateRatio", run)).startswith("a changed by 0.5 of its norm")
    run.steps[0].broken = frozenset({"a", "b"})
    state = observed("WeightUpdateRatio", run).state
    assert (state.evaluated, state.unusable) == (0, 4)
    only = Run()
    for step in range(3):
        only.add(step, {"a": [2.0**step]}, collections={"weights": ["a"]})
    assert observed("WeightUpdateRatio", only).state.waiting == 1
    only.steps[1].tensors, only.steps[1].reductions = {}, {"a": {"mean": 1.0}}
    assert observed("WeightUpdateRatio", only).state.unusable == 2


@pytest.mark.parametrize(
    ("modes", "start", "steps"),
    [
        ([GLOBAL, GLOBAL, TRAIN, GLOBAL, TRAIN], 0, [1, 4]),
        ([TRAIN, GLOBAL, GLOBAL, GLOBAL, TRAIN], 1, [4]),
        ([EVAL, EVAL, GLOBAL, GLOBAL, PREDICT], 0, [3]),
    ],
)
def test_only_training_steps_count_from_the_first_on(modes: Sequence[Mode], start: int, steps: list[int]) -> None:
    run = Run()
    for step, mode in enumerate(modes):
        run.add(step, {"w": [1.0]}, collections={"weights": ["w"]}, mode=mode)
    assert observed("WeightUpdateRatio", run, start_step=start).steps == steps


@pytest.mark.parametrize(
    ("other", "fires", "sentence"),
    [
        ({"a": [1.0], "b": [4.0]}, False, "all tensors that both runs hold are the same as in run other."),
        ({"a": [1.5], "b": [4.0], "c": [1.0]}, True,
         "a differs, by 0.5; up to 1.501e-05 counts as the same."),
        ({"a": [1.25], "b": [8.0]}, True,
         "b differs, by 4; up to 8.001e-05 counts as the same (the worst of 2 such tensors, of 2 in all)."),
        ({"a": [2.0], "b": [4.0, 4.0]}, True,
         "b differs (the worst of 2 such tensors, of 2 in all)."),
        ({"b": [4.0]}, False, "all tensors that both runs hold are the same as in run other."),
        ({"z": [4.0]}, None, None),
    ],
)  # fmt: skip
def test_tensors_held_by_both_runs_are_compared(
    other: Mapping[str, Any], fires: bool | None, sentence: str | None
) -> None:
    run = Run()
    run.others["other"] = Run()
    run.add(3, {"a": [1.0], "b": [4.0]}, collections={"mine": ["b"]})
    run.add(4, {"a": [1.0]})
    run.others["other"].add(3, other)
    outcome = observed("SimilarAcrossRuns", run, other_trials="other")
    assert outcome.state.evaluated == (0 if sentence is None else 1)
    assert outcome.steps == ([3] if fires else [])
    if sentence is not None:
        assert said(outcome) == sentence.replace(" differs", " differs from that of run other at the same step")
    some = observed("SimilarAcrossRuns", run, other_trials="other", collection_names="mine")
    assert bool(some.steps) is (sentence is not None and sentence.startswith("b "))


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({}, "other_trials", "None"),
        ({"other_trials": "a,b"}, "other_trials", "'a, b'"),
        ({"other_trial": "a,b"}, "other_trial", "'a, b'"),
        ({"other_trials": "b", "other_trial_0": "a"}, "other_trials", "'a, b'"),
        ({"other_trial": "b", "other_trial_0": "a"}, "other_trial", "'a, b'"),
    ],
)
def test_missing_or_ambiguous_other_run_names_the_setting(given: Mapping[str, str], field: str, value: str) -> None:
    with pytest.raises(RuleConfigError, match=f"SimilarAcrossRuns_{field} is {value}, expected one other run"):
        parameters("SimilarAcrossRuns", **given)
    assert parameters("SimilarAcrossRuns", other_trials="a", other_trial_0="a").other_run == "a"
