"""Each rule just below its threshold, on it and just above: whether an operator is strict is part of the contract."""

from typing import Any

import numpy as np
import pytest

from tests.support.steps import Run, fired
from trainguard.core.errors import RuleConfigError
from trainguard.formats.tensors.step_view import Mode


def one(tensors: dict[str, Any], **collections: list[str]) -> Run:
    run = Run()
    run.add(7, tensors, collections=collections)
    return run


def of_losses(losses: list[float], every: int = 10, mode: Mode = Mode.GLOBAL) -> Run:
    run = Run()
    for index, loss in enumerate(losses):
        run.add(index * every, {"loss": [loss]}, collections={"losses": ["loss"]}, mode=mode, mode_step=index * every)
    return run


def phases(*losses: tuple[Mode, float]) -> Run:
    run = Run()
    for step, (mode, loss) in enumerate(losses):
        run.add(step, {"loss": [loss]}, collections={"losses": ["loss"]}, mode=mode)
    return run


def active(nodes: int, of: int, name: str, *, inside: float = 1.0, outside: float = 0.0) -> Run:
    """Return a step of 100 samples in which some nodes are active, and the others in no sample."""
    values = np.full((100, of), outside)
    values[:, :nodes] = inside
    return one({name: values})


@pytest.mark.parametrize(
    ("value", "fires"), [(9.9e-8, True), (1e-7, False), (1.1e-7, False), (0.0, True), (np.nan, False)]
)
def test_vanishing_gradient_is_below(value: float, fires: bool) -> None:
    assert bool(fired("VanishingGradient", one({"g": [value, -value]}, gradients=["g"]))) is fires


@pytest.mark.parametrize(
    ("values", "only_nan", "fires"),
    [
        ([1.0, np.nan], False, True),
        ([1.0, np.inf], False, True),
        ([1.0, -np.inf], False, True),
        ([1.0, np.inf], True, False),
        ([np.inf, np.nan], True, True),
        ([3.4e38, -3.4e38], False, False),
    ],
)
def test_exploding_tensor_is_nan_or_infinite(values: list[float], only_nan: bool, fires: bool) -> None:
    assert bool(fired("ExplodingTensor", one({"t": np.array(values)}), only_nan=only_nan)) is fires


@pytest.mark.parametrize("values", [np.array([1, 2]), np.array([True]), np.array(["nan", "inf"], object)])
def test_exploding_tensor_passes_over_what_cannot_be_nan(values: Any) -> None:
    assert fired("ExplodingTensor", one({"t": values})) == []


@pytest.mark.parametrize(("ratio", "fires"), [(9.99, False), (10.0, False), (10.01, True)])
def test_poor_weight_initialization_variances_are_above(ratio: float, fires: bool) -> None:
    spread = np.sqrt(ratio)
    run = one({"a_relu_input": [-1.0, 1.0], "b_relu_input": [-spread, spread]})
    if ratio == 10.0:
        run = one({"a_relu_input": [-1.0, 1.0], "b_relu_input": [-4.0, 4.0]})
        assert fired("PoorWeightInitialization", run, threshold=16) == []
        return
    assert bool(fired("PoorWeightInitialization", run)) is fires


@pytest.mark.parametrize(("second", "fires"), [([0.0, 0.0], True), ([1.0, -1.0], False)])
def test_poor_weight_initialization_zero_variance_is_infinite(second: list[float], fires: bool) -> None:
    run = one({"a_relu_input": [1.0, -1.0], "b_relu_input": second})
    assert bool(fired("PoorWeightInitialization", run)) is fires
    assert fired("PoorWeightInitialization", one({"a_relu_input": [0.0, 0.0]})) == []


def test_poor_weight_initialization_gradients_are_below() -> None:
    gradient = np.array([0.0, 0.5])
    gap = float(np.subtract(*np.percentile(gradient, [95, 5])))
    run = one({"g": gradient}, gradients=["g"])
    assert fired("PoorWeightInitialization", run, distribution_range=gap) == []
    assert fired("PoorWeightInitialization", run, distribution_range=gap + 1e-9) == [7]


def test_poor_weight_initialization_waits_and_sees_first_steps() -> None:
    run = of_losses([1.0, 1.0, 1.1, 1.0, 1.2, 1.0, 1.0, 0.9, 0.9], every=500)
    assert fired("PoorWeightInitialization", run) == [2500, 3000]
    assert fired("PoorWeightInitialization", run, steps=5) == []
    assert fired("PoorWeightInitialization", run, steps=6) == [2500]


@pytest.mark.parametrize(("dead", "fires"), [(9, False), (10, False), (11, True)])
def test_dead_relu_and_saturated_activation_exceed_half_a_layer(dead: int, fires: bool) -> None:
    assert bool(fired("DeadRelu", active(20 - dead, 20, "relu_output"))) is fires
    assert bool(fired("SaturatedActivation", active(20 - dead, 20, "tanh_input", outside=10.0))) is fires


@pytest.mark.parametrize(("dead", "fires"), [(100, False), (101, True)])
def test_dead_relu_is_above_half_of_many_nodes(dead: int, fires: bool) -> None:
    assert bool(fired("DeadRelu", active(200 - dead, 200, "relu_output"))) is fires


@pytest.mark.parametrize(("samples", "fires"), [(0, True), (1, False), (2, False)])
def test_dead_relu_counts_a_node_of_less_than_one_percent(samples: int, fires: bool) -> None:
    values = np.zeros((100, 4))
    values[:samples] = 1.0
    assert bool(fired("DeadRelu", one({"relu_output": values}))) is fires
    assert bool(fired("DeadRelu", one({"relu_output": values[:, 0]}))) is fires


@pytest.mark.parametrize(
    ("name", "value", "saturated"),
    [
        ("tanh_input", 9.4999, True),
        ("tanh_input", 9.4998, False),
        ("tanh_input", -9.4999, True),
        ("Tanh_tanh_input", -9.4998, False),
        ("sigmoid_input", 16.99999, True),
        ("sigmoid_input", 16.9, False),
        ("sigmoid_input", -23.0, True),
        ("sigmoid_input", -22.9, False),
    ],
)
def test_saturated_activation_has_open_limits_by_function(name: str, value: float, saturated: bool) -> None:
    assert bool(fired("SaturatedActivation", one({name: np.full((4, 3), value)}))) is saturated


def test_saturated_activation_takes_members_of_collections_too() -> None:
    run = one({"gate": np.full((4, 3), 30.0)}, gates=["gate"])
    assert fired("SaturatedActivation", run) == []
    assert fired("SaturatedActivation", run, collection_names="gates") == [7]


@pytest.mark.parametrize(("change", "fires"), [(10.0, False), (10.1, True), (1.0, False), (0.0, True)])
def test_weight_update_ratio_is_above_or_below(change: float, fires: bool) -> None:
    run = Run()
    run.add(0, {"w": [3.0, 4.0]}, collections={"weights": ["w"]})
    run.add(9, {"w": [3.0 + 5.0 * change, 4.0]}, collections={"weights": ["w"]})
    assert bool(fired("WeightUpdateRatio", run, epsilon=0)) is fires


def test_weight_update_ratio_uses_the_earliest_step_in_reach() -> None:
    run = Run()
    for step, value in ((0, 1.0), (4, 2.0), (8, 2.0), (12, 2.0)):
        run.add(step, {"w": [value]}, collections={"weights": ["w"]})
    assert fired("WeightUpdateRatio", run) == [8, 12]
    assert fired("WeightUpdateRatio", run, num_steps=8) == [12]
    assert fired("WeightUpdateRatio", run, num_steps=12) == []


def test_weight_update_ratio_prefers_training_steps() -> None:
    run = Run()
    for step, mode in enumerate((Mode.TRAIN, Mode.EVAL, Mode.GLOBAL, Mode.TRAIN, Mode.EVAL, Mode.GLOBAL)):
        run.add(step, {"w": [1.0]}, collections={"weights": ["w"]}, mode=mode)
    assert fired("WeightUpdateRatio", run) == [3]


@pytest.mark.parametrize(
    ("zeros", "threshold", "fires"), [(4, 100, True), (3, 100, False), (3, 75, True), (2, 75, False)]
)
def test_all_zero_is_not_below(zeros: int, threshold: float, fires: bool) -> None:
    values = np.arange(4) >= zeros
    for kind in (np.float32, np.int64, np.bool_):
        run = one({"t": values.astype(kind)}, mine=["t"])
        assert bool(fired("AllZero", run, collection_names="mine", threshold=threshold)) is fires


def test_all_zero_is_of_all_entries_and_of_selected_tensors() -> None:
    run = one({"t": [0.0, 0.0]}, mine=["t"])
    assert fired("AllZero", run, collection_names="mine") == [7]
    with pytest.raises(RuleConfigError, match="AllZero_collection_names"):
        fired("AllZero", run)


@pytest.mark.parametrize(("ones", "fires"), [(91, False), (90, True)])
def test_class_imbalance_is_above(ones: int, fires: bool) -> None:
    labels = np.array([0] * 910 + [1] * ones)
    assert bool(fired("ClassImbalance", one({"labels": labels, "predictions": labels}))) is fires


@pytest.mark.parametrize(("missed", "fires"), [(70, False), (71, True)])
def test_class_imbalance_misprediction_is_above(missed: int, fires: bool) -> None:
    labels, predictions = np.zeros(100), np.arange(100) < missed
    run = one({"labels": labels, "predictions": predictions.astype(float)})
    assert bool(fired("ClassImbalance", run, samples=100)) is fires
    assert fired("ClassImbalance", run, samples=101) == []


def test_class_imbalance_takes_scores() -> None:
    labels, scores = np.array([0, 1, 2, 2]), np.eye(3)[[0, 1, 2, 1]]
    run = one({"labels": labels, "predictions": scores})
    assert fired("ClassImbalance", run, samples=4, argmax="True", threshold_misprediction=0.5) == []
    assert fired("ClassImbalance", run, samples=4, argmax="true", threshold_misprediction=0.49) == [7]


@pytest.mark.parametrize(
    ("loss", "fires"),
    [
        (1.0, True),
        (0.9991, True),
        (0.999, False),
        (0.9, False),
        (1.04, False),
        (1.05, False),
        (1.0501, True),
        (np.nan, False),
    ],
)
def test_loss_not_decreasing_is_below_a_fall_and_above_a_rise(loss: float, fires: bool) -> None:
    assert bool(fired("LossNotDecreasing", of_losses([1_000.0, 1_000.0 * loss]))) is fires


@pytest.mark.parametrize(("loss", "fires"), [(0.0, True), (1.0, True), (-1.0, False)])
def test_loss_not_decreasing_from_zero(loss: float, fires: bool) -> None:
    assert bool(fired("LossNotDecreasing", of_losses([0.0, loss]))) is fires
    assert fired("LossNotDecreasing", of_losses([0.0, loss]), diff_percent=0) == []


def test_loss_not_decreasing_checks_once_in_so_many_steps() -> None:
    run = Run()
    for step in range(0, 46, 3):
        run.add(step, {"loss": [1.0]}, collections={"losses": ["loss"]})
    assert fired("LossNotDecreasing", run) == [12, 24, 36]


@pytest.mark.parametrize(("mode", "steps"), [(None, [6]), ("TRAIN", [3]), ("EVAL", [6]), ("GLOBAL", [])])
def test_loss_not_decreasing_prefers_validation(mode: str | None, steps: list[int]) -> None:
    run = phases(
        (Mode.TRAIN, 1.0), (Mode.EVAL, 1.0), (Mode.EVAL, 0.5), (Mode.TRAIN, 1.0), (Mode.TRAIN, 0.5),
        (Mode.TRAIN, 0.2), (Mode.EVAL, 0.5), (Mode.TRAIN, 0.1),
    )  # fmt: skip
    assert fired("LossNotDecreasing", run, num_steps=1, **({} if mode is None else {"mode": mode})) == steps


@pytest.mark.parametrize(("validation", "fires"), [(1.25, False), (1.26, True), (0.5, False)])
def test_overfit_is_above(validation: float, fires: bool) -> None:
    run = phases((Mode.TRAIN, 1.0), (Mode.EVAL, validation), (Mode.TRAIN, 9.0))
    assert fired("Overfit", run, ratio_threshold=0.25) == ([2] if fires else [])


def test_overfit_counts_phases_in_a_row_and_resets_after_a_fire() -> None:
    epoch = ((Mode.TRAIN, 1.0), (Mode.EVAL, 2.0))
    run = phases(*epoch, *epoch, (Mode.TRAIN, 1.0), (Mode.EVAL, 1.0), *epoch, *epoch, (Mode.TRAIN, 1.0))
    assert fired("Overfit", run) == [2, 4, 8, 10]
    assert fired("Overfit", run, patience=2) == [4, 10]


def test_overfit_collects_before_its_range_and_fires_within() -> None:
    run = phases(*((Mode.TRAIN, 1.0), (Mode.EVAL, 2.0)) * 3, (Mode.TRAIN, 1.0))
    assert fired("Overfit", run, patience=2, start_step=4) == [4, 6]


def test_overfit_needs_training_before_and_after_validation() -> None:
    assert fired("Overfit", phases((Mode.EVAL, 9.0), (Mode.TRAIN, 1.0), (Mode.EVAL, 2.0))) == []
    assert fired("Overfit", phases((Mode.TRAIN, 0.0), (Mode.EVAL, 2.0), (Mode.TRAIN, 1.0))) == []


def test_overfit_takes_a_loss_below_zero_by_its_size() -> None:
    better = phases((Mode.TRAIN, -2.0), (Mode.EVAL, -3.0), (Mode.TRAIN, -2.0))
    worse = phases((Mode.TRAIN, -2.0), (Mode.EVAL, -1.0), (Mode.TRAIN, -2.0))
    assert (fired("Overfit", better), fired("Overfit", worse)) == ([], [2])


def test_overtraining_needs_more_than_delta_and_either_patience() -> None:
    train = phases((Mode.TRAIN, 1.0), *((Mode.TRAIN, 0.75) for _ in range(5)))
    assert fired("Overtraining", train, delta=0.25) == [5]
    assert fired("Overtraining", train, delta=0.24) == []
    assert fired("Overtraining", phases(*((Mode.EVAL, 1.0) for _ in range(11)))) == [10]


@pytest.mark.parametrize(("gap", "fires"), [(1800.0, False), (1800.5, True)])
def test_stalled_training_rule_is_above(gap: float, fires: bool) -> None:
    run = Run()
    run.add(2, at=90.0)
    run.add(3, at=100.0)
    run.add(4, at=100.0 + gap)
    assert fired("StalledTrainingRule", run) == ([3] if fires else [])


@pytest.mark.parametrize(
    ("limits", "fires"),
    [({"max_threshold": 1}, False), ({"max_threshold": 0.99}, True), ({"min_threshold": 1}, False),
     ({"min_threshold": 1.01}, True), ({}, False), ({"max_threshold": 5, "min_threshold": 0.5}, False)],
)  # fmt: skip
def test_tensor_variance_is_above_or_below(limits: dict[str, float], fires: bool) -> None:
    assert bool(fired("TensorVariance", one({"t": [-1.0, 1.0]}), tensor_regex="t", **limits)) is fires


def test_tensor_variance_of_one_number_is_zero() -> None:
    assert fired("TensorVariance", one({"t": [5.0]}), tensor_regex="t", min_threshold=1e-30) == [7]


@pytest.mark.parametrize(("mean", "fires"), [(0.25, False), (0.26, True), (-0.26, True)])
def test_check_input_images_is_further_from_zero(mean: float, fires: bool) -> None:
    images = np.zeros((500, 3, 2, 2))
    images[:, 2] = mean
    run = one({"hybridsequential0_input_0": images})
    assert bool(fired("CheckInputImages", run, threshold_mean=0.25)) is fires
    assert fired("CheckInputImages", run, threshold_mean=0.25, threshold_samples=501) == []


@pytest.mark.parametrize(("pads", "fires"), [(50, False), (51, True)])
def test_nlp_sequence_ratio_is_above(pads: int, fires: bool) -> None:
    tokens = np.ones(100, int)
    tokens[:pads] = 0
    assert bool(fired("NLPSequenceRatio", one({"embedding0_input_0": tokens}))) is fires
    assert (
        bool(fired("NLPSequenceRatio", one({"embedding0_input_0": tokens}), token_thresholds_percent="50,50")) is fires
    )


@pytest.mark.parametrize(("right", "steps"), [(90, []), (89, [7])])
def test_confusion_takes_ratios_of_what_was_predicted(right: int, steps: list[int]) -> None:
    run = one({"labels": [1] * right + [0] * (100 - right) + [0], "predictions": [1] * 100 + [0]})
    assert fired("Confusion", run, max_off_diag=1) == steps
    assert fired("Confusion", run, min_diag=0) == steps
    assert fired("Confusion", run, min_diag=0, max_off_diag=1) == []


def test_confusion_takes_a_never_predicted_class_as_never_right() -> None:
    run = one({"labels": [0, 1, 1], "predictions": [1, 1, 1]})
    assert fired("Confusion", run, min_diag=0.1, max_off_diag=1) == [7]
    assert fired("Confusion", run, min_diag=0, max_off_diag=1) == []


@pytest.mark.parametrize(("share", "fires"), [(0.75, False), (0.76, True)])
def test_feature_importance_overweight_is_above(share: float, fires: bool) -> None:
    values = {"a": share - 0.5, "b": 0.25, "c": 0.25, "d": 1.0 - share}
    run = one({f"feature_importance/weight/{name}": [value] for name, value in values.items()})
    assert bool(fired("FeatureImportanceOverweight", run, threshold=0.75)) is fires


def test_feature_importance_overweight_fires_with_few_features() -> None:
    run = one({f"feature_importance/weight/f{each}": [0.25] for each in range(3)})
    assert fired("FeatureImportanceOverweight", run) == [7]


@pytest.mark.parametrize(("node", "fires"), [(0, False), (30, False), (31, False), (32, True), (62, True)])
def test_tree_depth_is_above(node: int, fires: bool) -> None:
    assert bool(fired("TreeDepth", one({"trees/Node": np.arange(node + 1)}))) is fires


def test_tree_depth_follows_branches_where_asked() -> None:
    depth = 6
    ids = [f"0-{each}" for each in range(2 * depth + 1)]
    yes = [f"0-{2 * (each // 2) + 1}" if each % 2 == 0 and each < 2 * depth else "nan" for each in range(2 * depth + 1)]
    no = [f"0-{2 * (each // 2) + 2}" if each % 2 == 0 and each < 2 * depth else "nan" for each in range(2 * depth + 1)]
    tree = {"ID": ids, "Yes": yes, "No": no}
    run = one(
        {
            "trees/Node": np.arange(2 * depth + 1),
            **{f"trees/{name}": np.array(text, object) for name, text in tree.items()},
        }
    )
    assert fired("TreeDepth", run) == []
    assert fired("TreeDepth", run, true_depth="True") == [7]
    assert fired("TreeDepth", run, true_depth="True", depth=6) == []
