"""Rules over labels, images and features: what is counted, and each bound of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.support.steps import Outcome, Run, fired, observed
from trainguard.core.records import Status
from trainguard.rules.training.tensors.classes import ClassImbalanceState
from trainguard.rules.training.tensors.inputs import CheckInputImagesState


def one(tensors: Mapping[str, Any], **how: Any) -> Run:
    run = Run()
    run.add(7, tensors, **how)
    return run


def of_classes(labels: Sequence[float], predictions: Any, **given: Any) -> Outcome:
    return observed("ClassImbalance", one({"labels": labels, "predictions": predictions}), **given)


@pytest.mark.parametrize(("count", "status"), [(499, Status.OK), (500, Status.FIRED)])
def test_too_few_samples_are_counted_while_waiting(count: int, status: Status) -> None:
    result = of_classes([1.0] * count, [0.0] * count).result
    assert result.status is status
    if status is Status.OK:
        assert result.reason == "Step 7: 499 of the 500 samples that are waited for were saved."


@pytest.mark.parametrize(
    ("labels", "predictions", "given", "said"),
    [
        (
            [0, 0, 0, 1],
            [0, 0, 0, 1],
            {"threshold_imbalance": 3},
            "class 0 has 3 samples in labels and class 1 1, a ratio of 3, not above the threshold 3.",
        ),
        (
            [0, 0, 0, 1],
            [0, 0, 0, 1],
            {"threshold_imbalance": 2},
            "class 0 has 3 samples in labels and class 1 1, a ratio of 3, above the threshold 2.",
        ),
        (
            [0, 0, 1, 1],
            [0, 0, 1, 0],
            {"threshold_misprediction": 0.5},
            (
                "1 of 2 samples of class 1 were predicted wrongly (predictions), a share of 0.5, not above the "
                "threshold 0.5."
            ),
        ),
        (
            [0, 0, 1, 1],
            [0, 0, 0, 0],
            {"threshold_misprediction": 0.5, "threshold_imbalance": 0.75},
            (
                "each class has 2 samples in labels, a ratio of 1, above the threshold 0.75; 2 of 2 samples of class 1 "
                "were predicted wrongly (predictions), a share of 1, above the threshold 0.5."
            ),
        ),
        (
            [0.4, 0.6, 1.4, 0.9],
            [-0.4, 1.4, 0.6, 0.9],
            {},
            "class 1 has 3 samples in labels and class 0 1, a ratio of 3, not above the threshold 10.",
        ),
    ],
)
def test_largest_and_most_often_wrong_class_are_named(
    labels: list[float], predictions: list[float], given: dict[str, Any], said: str
) -> None:
    assert of_classes(labels, predictions, samples=4, **given).result.reason == f"Step 7: {said}"


@pytest.mark.parametrize(
    ("imbalance", "misprediction", "kind"),
    [
        (0.0, 0.5, "imbalance"),
        (0.0, 0.4, "misprediction"),
        (2.0, 0.0, "imbalance"),
        (2.5, 0.0, "imbalance"),
        (3.0, 0.0, "misprediction"),
        (2.0, 0.25, "misprediction"),
        (1.0, 0.25, "imbalance"),
        (1.0, 0.125, "misprediction"),
        (4.0, 0.5, "misprediction"),
        (4.0, 1.0, "imbalance"),
        (6.0, 0.75, "misprediction"),
        (0.0, 0.0, "imbalance"),
    ],
)
def test_class_fault_further_over_its_threshold_comes_first(imbalance: float, misprediction: float, kind: str) -> None:
    outcome = of_classes(
        [0] * 6 + [1] * 2,
        [0] * 6 + [0, 1],
        samples=8,
        threshold_imbalance=imbalance,
        threshold_misprediction=misprediction,
    )
    assert outcome.state.latest is not None
    assert outcome.state.latest.kind == kind
    assert outcome.result.measure is not None
    assert ("wrongly" in outcome.result.measure.what) is (kind == "misprediction")
    if outcome.result.advice is not None:
        assert ("of this class" in outcome.result.advice) is (kind == "misprediction")


def test_only_the_first_of_each_unpaired_tensor_counts() -> None:
    run = one({"labels": [0, 1], "more_labels": [1, 1], "predictions": [0, 1]})
    state = observed("ClassImbalance", run).state
    assert isinstance(state, ClassImbalanceState)
    assert state.counts == {0: 1, 1: 1}
    three = {f"{each}_predictions": [0, 1] for each in "abc"}
    state = observed("ClassImbalance", one({"a_labels": [0, 0], "b_labels": [1, 1], **three})).state
    assert isinstance(state, ClassImbalanceState)
    assert (state.counts, state.wrong) == ({0: 2}, {0: 1})
    two = {"a_labels": [0, 0], "b_labels": [1, 1], "a_predictions": [0, 0], "b_predictions": [0, 1]}
    state = observed("ClassImbalance", one(two)).state
    assert isinstance(state, ClassImbalanceState)
    assert (state.counts, state.wrong) == ({0: 2, 1: 2}, {1: 1})
    for alone in ({"labels": [0, 1]}, {"predictions": [0, 1]}):
        assert observed("ClassImbalance", one(alone)).result.status is Status.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("labels", "predictions", "argmax", "why"),
    [
        ([0, 1], [0, 1, 1], False, "it has 2 labels, and predictions 3 predictions"),
        ([0, np.nan], [0, 1], False, "it holds values that name no class"),
        ([0, 1], [0, np.inf], False, "it holds values that name no class"),
        (np.array(["a"], object), [0], False, "it holds values that name no class"),
        ([0, 1], [[0.5, np.nan], [0.5, 0.5]], True, "it holds no numbers, or NaN"),
        ([0, 1], np.array([["a"], ["b"]], object), True, "it holds no numbers, or NaN"),
        ([0, 1], np.empty((2, 0)), True, "it holds no numbers, or NaN"),
    ],
)
def test_tensors_that_name_no_classes_give_the_reason(labels: Any, predictions: Any, argmax: bool, why: str) -> None:
    assert why in of_classes(labels, predictions, argmax=argmax).result.reason


def test_class_is_the_highest_score_of_the_last_axis() -> None:
    scores = [[0.1, 0.9, 0.0], [np.inf, 0.0, 0.0], [0.0, 0.0, 3.0], [0.0, 5.0, 1.0]]
    state = of_classes([1, 0, 2, 0], scores, argmax=True).state
    assert isinstance(state, ClassImbalanceState)
    assert (state.counts, state.wrong) == ({0: 2, 1: 1, 2: 1}, {0: 1})


def test_single_sample_is_judged_if_it_is_enough() -> None:
    assert of_classes([1], [1], samples=1).result.status is Status.OK


def test_small_class_that_is_wrong_more_often_is_named() -> None:
    said = of_classes([0] * 10 + [1] * 2, [1] * 4 + [0] * 8, samples=12).result.reason
    assert "2 of 2 samples of class 1 were predicted wrongly" in said


def test_steps_without_samples_are_not_mentioned() -> None:
    assert of_classes([], []).result.status is Status.NOT_APPLICABLE


@pytest.mark.parametrize(("classes", "left"), [(1_024, 0), (1_025, 3)])
def test_samples_of_classes_beyond_the_kept_number_are_left_out(classes: int, left: int) -> None:
    labels = [*range(classes), 0, classes - 1, classes - 1]
    outcome = of_classes(labels, labels)
    assert isinstance(outcome.state, ClassImbalanceState)
    assert (len(outcome.state.counts), outcome.state.left_out) == (1_024, left)
    assert outcome.state.counts[0] == 2


def test_stored_states_without_counts_have_counted_nothing() -> None:
    assert msgspec.convert({}, ClassImbalanceState) == ClassImbalanceState(counts={}, wrong={})
    assert msgspec.convert({}, CheckInputImagesState).images == {}


def confused(labels: Any, predictions: Any, **given: Any) -> Outcome:
    return observed("Confusion", one({"labels": labels, "predictions": predictions}), **given)


@pytest.mark.parametrize(
    ("labels", "predictions", "given", "said"),
    [
        ([0, 1], [0, 1], {}, "of the 1 samples predicted as class 0 (predictions) a share of 1 is right, not below"),
        ([0, 0, 1], [0, 1, 1], {"min_diag": 0.5, "max_off_diag": 0.25}, "a share of 0.5 is of class 0, above the"),
        ([0, 0, 1], [0, 1, 1], {"min_diag": 0.5, "max_off_diag": 0.5}, "a share of 0.5 is right, not below the"),
        ([0, 0, 1], [0, 1, 1], {"min_diag": 0.75, "max_off_diag": 0.5}, "a share of 0.5 is right, below the"),
        ([0, 0, 1], [0, 1, 1], {"min_diag": 0.75, "max_off_diag": 0.375}, "a share of 0.5 is right, below the"),
        ([0, 0, 1], [0, 1, 1], {"min_diag": 0.75, "max_off_diag": 0.125}, "a share of 0.5 is of class 0, above the"),
        ([0, 0, 1], [0, 1, 1], {"min_diag": 0.25, "max_off_diag": 0.625}, "a share of 0.5 is of class 0, not above"),
        (
            [0, 2, 2],
            [0, 0, 0],
            {"max_off_diag": 1},
            "class 2 is a label and never predicted (predictions), a share of 0 that is right, below the threshold 0.9",
        ),
        (
            [True, False],
            [True, True],
            {"min_diag": 0},
            "of the 2 samples predicted as class 1 (predictions) a share of 0.5 is of",
        ),
        ([0.9, 1.9], [0.1, 1.1], {}, "a share of 1 is right"),
        ([[0, 1], [1, 1]], [0, 1, 1, 1], {}, "a share of 1 is right"),
        ([0, 5, 5, 5], [5, 5, 5, 0], {"min_diag": 0}, "predicted as class 0 (predictions) a share of 1 is of class 5"),
    ],
)
def test_confusion_ratio_furthest_from_its_threshold_is_named(
    labels: Any, predictions: Any, given: dict[str, Any], said: str
) -> None:
    outcome = confused(labels, predictions, **given)
    assert said in outcome.result.reason
    assert outcome.result.measure is not None
    assert ("of another one" in outcome.result.measure.what) is (" is of class" in outcome.result.reason)


@pytest.mark.parametrize(
    ("labels", "predictions", "given", "why"),
    [
        ([0, 1], [0], {}, "it has 2 labels, and predictions 1 predictions"),
        ([0, -1], [0, 0], {}, "it holds class -1, expected classes from 0"),
        ([0, 2], [0, 0], {"category_no": 2}, "it holds class 2, expected classes from 0 to 1"),
        ([0, 1], [-2, 3], {"category_no": 3}, "it holds class -2, expected classes from 0 to 2"),
        ([0, np.nan], [0, 0], {}, "it holds values that name no class"),
        (np.array(["a"], object), [0], {}, "it holds values that name no class"),
    ],
)
def test_impossible_classes_give_the_reason(labels: Any, predictions: Any, given: dict[str, Any], why: str) -> None:
    assert why in confused(labels, predictions, **given).result.reason


def test_classes_up_to_the_last_count() -> None:
    assert confused([0, 1], [0, 1], category_no=2).result.status is Status.OK
    assert confused([], []).result.status is Status.NOT_APPLICABLE
    for alone in ("labels", "predictions"):
        assert observed("Confusion", one({alone: [0, 1]})).result.status is Status.NOT_APPLICABLE
    run = one({"a": [1], "b": [0], "c": [1]}, collections={"labels": ["c", "b"], "predictions": ["a"]})
    assert observed("Confusion", run).result.worst == "a"
    assert observed("Confusion", run).result.reason.startswith("Step 7: class 0 is a label and never predicted")
    assert observed("Confusion", run, labels="c").result.status is Status.OK


def of_images(*images: Any, **given: Any) -> Outcome:
    run = Run()
    for step, values in enumerate(images):
        run.add(step, {"hybridsequential0_input_0": values})
    return observed("CheckInputImages", run, threshold_samples=2, **given)


@pytest.mark.parametrize(
    ("shape", "given", "why"),
    [
        ((2, 3), {"channel": 2}, "its shape is (2, 3), which has no axis 2"),
        ((2, 257), {}, "its axis 1 has 257 channels, expected at most 256"),
    ],
)
def test_images_of_another_shape_give_the_reason(shape: tuple[int, ...], given: dict[str, Any], why: str) -> None:
    assert why in of_images(np.zeros(shape), **given).result.reason
    assert of_images(np.zeros((2, 256))).result.status is Status.OK
    assert of_images(np.zeros((2, 3)), channel=1).result.status is Status.OK


def test_mean_of_each_image_channel_is_over_all_so_far() -> None:
    first, second = np.zeros((1, 3, 2)), np.zeros((3, 3, 2))
    first[:, 0], second[:, 2] = 0.5, -0.25
    assert of_images(first).result.reason == (
        "Step 0: the mean of channel 0 of hybridsequential0_input_0 over 1 images is 0.5, and 2 images are waited for."
    )
    assert of_images(first[:0]).result.status is Status.NOT_APPLICABLE
    assert of_images(np.full((2, 3, 2), 0.5)).result.reason.endswith("is 0.5, further from 0 than the threshold 0.2.")
    both = of_images(first, second, threshold_mean=0.1875)
    assert both.result.reason == (
        "Step 1: the mean of channel 2 of hybridsequential0_input_0 over 4 images is -0.1875, not further from 0 than "
        "the threshold 0.1875."
    )
    assert of_images(first, second, threshold_mean=0.18).steps == [1]
    assert of_images(first, second, channel=2, threshold_mean=0.01).result.reason.startswith("Step 1: the mean of cha")
    assert isinstance(both.state, CheckInputImagesState)
    kept = both.state.images["hybridsequential0_input_0"]
    assert (kept.sums, kept.values, kept.images) == ([1.0, 0.0, -1.5], 8, 4)
    other = of_images(first, np.zeros((2, 4, 2)))
    assert "has 4 channels at step 1, and had 3" in other.result.reason
    assert "it holds NaN or infinite values" in of_images(np.full((2, 3), np.nan)).result.reason
    assert "it holds NaN or infinite values" in of_images(np.full((2, 3), np.inf)).result.reason
    assert of_images(np.array([["a"]], object)).result.status is Status.NOT_APPLICABLE


@pytest.mark.parametrize(("tensors", "left"), [(8, 0), (9, 2)])
def test_inputs_beyond_the_kept_number_are_counted(tensors: int, left: int) -> None:
    run = Run()
    for step in range(2):
        run.add(step, {f"{place}_hybridsequential0_input_0": np.zeros((2, 3)) for place in range(tensors)})
    outcome = observed("CheckInputImages", run)
    assert isinstance(outcome.state, CheckInputImagesState)
    assert (len(outcome.state.images), outcome.state.left_out) == (8, left)


def test_images_saved_as_reductions_are_noted() -> None:
    run = Run()
    run.add(0, reductions={"hybridsequential0_input_0": {"mean": 0.0}}, shapes={"hybridsequential0_input_0": (2, 3)})
    assert "only reductions were saved" in observed("CheckInputImages", run).result.reason


@pytest.mark.parametrize(
    ("nfeatures", "shown"),
    [
        (1, "1 of 7 used features (feature_importance/weight/g)"),
        (2, "2 of 7 used features (feature_importance/weight/g, f)"),
        (5, "5 of 7 used features (feature_importance/weight/g, f, e, d, c)"),
        (6, "6 of 7 used features (feature_importance/weight/g, f, e, d, c, …)"),
        (9, "7 of 7 used features (feature_importance/weight/g, f, e, d, c, …)"),
    ],
)
def test_five_most_important_features_are_named(nfeatures: int, shown: str) -> None:
    run = one({f"feature_importance/weight/{name}": [2.0] for name in "abcdefg"})
    result = observed("FeatureImportanceOverweight", run, nfeatures=nfeatures, threshold=1).result
    assert f"Step 7: {shown} make up a share of {min(nfeatures, 7) / 7:.4g} of all" in result.reason
    assert fired("FeatureImportanceOverweight", run, nfeatures=7, threshold=1) == []


def test_features_without_importance_are_not_mentioned() -> None:
    run = one({"feature_importance/weight/a": [0.0], "feature_importance/weight/b": [0.0]})
    assert observed("FeatureImportanceOverweight", run).result.status is Status.NOT_APPLICABLE
