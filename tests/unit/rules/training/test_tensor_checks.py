"""Rules over tensors: what each measures, on its threshold and beside it, and the sentence with its numbers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.steps import Outcome, Run, observed, parameters
from trainguard.core.errors import RuleConfigError, TensorMissingError, TensorUnusableError
from trainguard.core.records import Status
from trainguard.rules.training.tensors.activations import inactive_percent

NAN, INF = math.nan, math.inf


def one(tensors: Mapping[str, Any], **how: Any) -> Run:
    run = Run()
    run.add(7, tensors, **how)
    return run


def said(outcome: Outcome) -> str:
    """Return the newest sentence without its step."""
    return outcome.result.reason.partition(": ")[2]


TOKENS = {"embedding0_input_0": [0, 0, 0, 1, 1, 2, 3, 4]}


@pytest.mark.parametrize(
    ("given", "fires", "sentence"),
    [
        ({}, False, "token 0 makes up 37.5 % of embedding0_input_0, not above the threshold 50 %."),
        ({"token_thresholds_percent": "37.5"}, False,
         "token 0 makes up 37.5 % of embedding0_input_0, not above the threshold 37.5 %."),
        ({"token_thresholds_percent": "37"}, True,
         "token 0 makes up 37.5 % of embedding0_input_0, above the threshold 37 %."),
        ({"token_values": "0,1,9", "token_thresholds_percent": "30,10,0"}, True,
         ("token 1 makes up 25 % of embedding0_input_0, above the threshold 10 % (the worst of 2 such shares "
          "of tokens, of 3 in all).")),
        ({"token_values": "1,9", "token_thresholds_percent": "30,2.5"}, False,
         "token 9 makes up 0 % of embedding0_input_0, not above the threshold 2.5 %."),
    ],
)  # fmt: skip
def test_each_token_has_its_own_threshold(given: Mapping[str, str], fires: bool, sentence: str) -> None:
    outcome = observed("NLPSequenceRatio", one(TOKENS), **given)
    assert (bool(outcome.steps), said(outcome)) == (fires, sentence)


def test_sequences_without_numbers_or_entries_are_not_judged() -> None:
    texts = {"embedding0_input_0": np.array(["a"], object), "b_embedding0_input_0": np.zeros(0, int)}
    run = one(texts, reductions={"c_embedding0_input_0": {"mean": 1.0}})
    state = observed("NLPSequenceRatio", run).state
    assert (state.evaluated, state.unusable) == (0, 1)
    assert observed("NLPSequenceRatio", one({**texts, "d_embedding0_input_0": [0] * 9})).state.evaluated == 1


@pytest.mark.parametrize(
    ("values", "thresholds", "works"),
    [
        ("0", "50,50", True), ("0", "50,51", False), ("0", "51,50", False), ("0", "50,50,50", False),
        ("0,1", "50", False), ("0,1", "50,50", True), ("0,1,2", "50,50", False),
    ],
)  # fmt: skip
def test_each_token_needs_a_threshold_but_for_the_old_default(values: str, thresholds: str, works: bool) -> None:
    given = {"token_values": values, "token_thresholds_percent": thresholds}
    if works:
        assert parameters("NLPSequenceRatio", **given)
    else:
        with pytest.raises(RuleConfigError, match="one threshold for each of the"):
            parameters("NLPSequenceRatio", **given)


@pytest.mark.parametrize(
    ("rule", "given"),
    [("NLPSequenceRatio", {}), ("SimilarAcrossRuns", {"other_trial": "x"}), ("TensorVariance", {"min_threshold": 1})],
)
def test_invalid_pattern_is_refused(rule: str, given: Mapping[str, Any]) -> None:
    with pytest.raises(RuleConfigError, match=f"{rule}_tensor_regex"):
        parameters(rule, tensor_regex="(", **given)


def test_share_of_nodes_over_batches_is_that_of_the_whole_array() -> None:
    shapes = [(4,), (4, 1), (4, 3), (4, 7), (8, 5), (4, 2, 4), (4, 14), (8, 20), (4, 3, 9), (4, 40), (4, 1, 1), (1, 30)]
    for seed in range(8):
        draw = np.random.default_rng(seed)
        for shape in shapes:
            values = draw.random(shape) < draw.random(shape[1:])
            shares = values.reshape(shape[0], -1).mean(axis=0)
            for threshold in (0.0, 25.0, 37.5, 50.0, 100.0):
                plain = 100.0 * float((100.0 * shares < threshold).mean())
                found = inactive_percent(
                    one({"t": values.astype(float)}).steps[0], "t", lambda each: each > 0, threshold
                )
                assert found == pytest.approx(plain), (shape, threshold)


@pytest.mark.parametrize(
    ("values", "share"), [(np.array(1.0), 0.0), (np.zeros((0, 3)), None), (np.zeros((3, 0)), None)]
)
def test_arrays_without_batch_or_nodes_have_shares_of_numbers(values: Any, share: float | None) -> None:
    assert inactive_percent(one({"t": values}).steps[0], "t", lambda each: each > 0, 50.0) == share
    assert inactive_percent(one({"t": np.array(["x"], object)}).steps[0], "t", lambda each: each > 0, 50.0) is None


@pytest.mark.parametrize(
    ("shape", "fault", "words"),
    [
        (None, TensorUnusableError, "its shape was not saved"),
        ((9, 8_000, 1_000), TensorMissingError, "tensor t"),
        ((9, 8_000_001), TensorUnusableError, "it has 8,000,001 nodes, expected at most 8,000,000"),
    ],
)
def test_nodes_beyond_the_counted_limit_are_noted(
    shape: tuple[int, ...] | None, fault: type[Exception], words: str
) -> None:
    run = one({}, reductions={"t": {"mean": 1.0}}, shapes={} if shape is None else {"t": shape})
    with pytest.raises(fault, match=words):
        inactive_percent(run.steps[0], "t", lambda each: each > 0, 50.0)


@pytest.mark.parametrize(
    ("saved", "share"),
    [
        ({"min": 1.0, "max": 5.0}, 100.0), ({"min": 1.0}, 100.0), ({"min": 0.5, "max": 1.0}, None),
        ({"min": 0.5}, None), ({"min": -5.0, "max": -2.0}, 100.0), ({"max": -2.0}, 100.0),
        ({"min": -2.0, "max": 0.5}, None), ({"max": 0.5}, None), ({"min": -1.5, "max": 0.5}, 0.0),
        ({"mean": 9.0}, None), ({"min": -5.0, "max": 5.0}, None),
    ],
)  # fmt: skip
def test_extremes_decide_if_inputs_are_all_within_or_beyond(saved: Mapping[str, float], share: float | None) -> None:
    given = {"threshold_tanh_min": -2, "threshold_tanh_max": 1}
    outcome = observed("SaturatedActivation", one({}, reductions={"tanh_input": saved}), **given)
    assert (outcome.result.measured, outcome.state.unusable) == (share, int(share is None))
    none = observed("SaturatedActivation", one({}, reductions={"tanh_input": saved}), threshold_inactivity=0, **given)
    assert none.result.measured == (share and 0.0)


@pytest.mark.parametrize(
    ("beyond", "threshold", "sentence"),
    [
        (0, 0, "0 % of the nodes of tanh_input are saturated, not above the threshold 0 %."),
        (2, 50, "50 % of the nodes of tanh_input are saturated, not above the threshold 50 %."),
        (2, 49, "50 % of the nodes of tanh_input are saturated, above the threshold 49 %."),
    ],
)
def test_saturated_layers_have_share_and_threshold_in_sentence(beyond: int, threshold: float, sentence: str) -> None:
    run = one({"tanh_input": [[99.0] * beyond + [0.0] * (4 - beyond)] * 3})
    outcome = observed("SaturatedActivation", run, threshold_layer=threshold)
    assert said(outcome) == sentence
    assert (outcome.result.advice is not None) is bool(outcome.steps)


@pytest.mark.parametrize(
    ("given", "fires", "sentence"),
    [
        ({}, False, "the variance of t is 1, and no threshold is set."),
        ({"max_threshold": 1}, False, "the variance of t is 1, not above the threshold 1."),
        ({"max_threshold": 0.5}, True, "the variance of t is 1, above the threshold 0.5."),
        ({"min_threshold": 1}, False, "the variance of t is 1, not below the threshold 1."),
        ({"min_threshold": 1.5}, True, "the variance of t is 1, below the threshold 1.5."),
        ({"min_threshold": 0, "max_threshold": 2}, False, "the variance of t is 1, not above the threshold 2."),
        ({"min_threshold": 0.5, "max_threshold": 2}, False, "the variance of t is 1, not below the threshold 0.5."),
        ({"min_threshold": 2, "max_threshold": 0.5}, True, "the variance of t is 1, below the threshold 2."),
    ],
)
@pytest.mark.parametrize("saved", [None, {"variance": 1.0}, {"std": 1.0}])
def test_variance_names_the_nearer_threshold(
    saved: Mapping[str, float] | None, given: Mapping[str, float], fires: bool, sentence: str
) -> None:
    run = one({"t": [-1.0, 1.0]}) if saved is None else one({}, reductions={"t": saved})
    outcome = observed("TensorVariance", run, tensor_regex="t", **given)
    assert (bool(outcome.steps), said(outcome)) == (fires, sentence)
    assert outcome.result.measure is None
    advice = "All entries of t are nearly the same" if "below" in sentence else "Look at the scale of what enters t:"
    assert (outcome.result.advice or advice).startswith(advice)


def test_missing_variance_among_other_reductions_is_counted() -> None:
    outcome = observed("TensorVariance", one({}, reductions={"t": {"mean": 1.0}}), tensor_regex="t", max_threshold=1)
    assert outcome.result.reason == ("No step could be checked: of tensor t at step 7 only reductions were saved.")
    texts = observed("TensorVariance", one({"t": np.array(["a"], object)}), tensor_regex="t", max_threshold=1)
    assert texts.result.status is Status.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("values", "given", "sentence"),
    [
        ([[1.0], [1.0], [1.0]], {}, "t is the same at its last 3 saved steps, which is the threshold."),
        ([[2.0], [1.0], [1.0]], {}, "t changed: it is the same at 2 of the 3 saved steps that count."),
        ([[1.0], [1.0], [2.0]], {}, "t changed: it is the same at 1 of the 3 saved steps that count."),
        ([[1.0], [1.0]], {}, None),
        ([[1.0], [1.0]], {"num_steps": 2}, "t is the same at its last 2 saved steps, which is the threshold."),
        ([[9.0], [1.0], [1.0], [1.0]], {}, "t is the same at its last 3 saved steps, which is the threshold."),
        ([[NAN]] * 3, {}, "t changed: it is the same at 1 of the 3 saved steps that count."),
        ([[NAN]] * 3, {"equal_nan": "true"}, "t is the same at its last 3 saved steps, which is the threshold."),
        ([[1.0], [1.00002], [1.00002]], {}, "t changed: it is the same at 2 of the 3 saved steps that count."),
        ([[1.5], [1.0], [1.0]], {"atol": 0.5}, "t is the same at its last 3 saved steps, which is the threshold."),
        ([[2.0], [1.0], [1.0]], {"rtol": 1}, "t is the same at its last 3 saved steps, which is the threshold."),
        ([[0.0], [3e-8], [3e-8]], {}, "t changed: it is the same at 2 of the 3 saved steps that count."),
    ],
)  # fmt: skip
def test_number_of_steps_with_an_unchanged_tensor_is_shown(
    values: Sequence[Any], given: Mapping[str, Any], sentence: str | None
) -> None:
    run = Run()
    for step, value in enumerate(values):
        run.add(step, {"t": value})
    outcome = observed("UnchangedTensor", run, tensor_regex="t", **given)
    needed = given.get("num_steps", 3)
    changed = sentence is not None and "changed" in sentence
    assert outcome.state.waiting == len(values)
    if sentence is None:
        assert outcome.state.evaluated == 0
    else:
        assert (said(outcome), outcome.result.threshold) == (sentence, needed)
        assert (outcome.result.advice is None) is changed
        assert (outcome.result.advice or "Check that t is meant").startswith("Check that t is meant")


def test_longest_of_several_unchanged_tensors_is_named() -> None:
    run = Run()
    for step in range(3):
        run.add(step, {"a": [1.0], "b": [float(step)], "c": [2.0], "d": [5.0 if step else 4.0]})
    run.steps[-1].tensors["new"] = np.ones(1)
    outcome = observed("UnchangedTensor", run, tensor_regex=".")
    assert said(outcome) == (
        "a is the same at its last 3 saved steps, which is the threshold (the worst of 2 such tensors, of 4 in all)."
    )


@pytest.mark.parametrize(
    ("values", "threshold", "sentence"),
    [
        ({"a": [0.5], "b": [0.25], "c": [NAN]}, 0.25,
         "the mean absolute value of b is 0.25, not below the threshold 0.25."),
        ({"a": [0.5], "b": [-0.125, 0.125], "c": [NAN]}, 0.25,
         "the mean absolute value of b is 0.125, below the threshold 0.25."),
        ({"a": [0.125], "b": [0.0], "c": [NAN]}, 0.25,
         "the mean absolute value of b is 0, below the threshold 0.25 (the worst of 2 such tensors, of 3 in all)."),
        ({"a": [NAN], "b": [NAN]}, 0.25, "the mean absolute value of a is nan, not below the threshold 0.25."),
        ({"a": [0.0]}, 0.0, "the mean absolute value of a is 0, not below the threshold 0."),
        ({"a": [0.5], "b": [0.5]}, 0.25, "the mean absolute value of a is 0.5, not below the threshold 0.25."),
    ],
)  # fmt: skip
def test_least_gradient_is_named_and_nan_is_below_nothing(
    values: Mapping[str, Any], threshold: float, sentence: str
) -> None:
    run = one({**values, "text": np.array(["x"], object)}, collections={"gradients": [*values, "text"]})
    outcome = observed("VanishingGradient", run, threshold=threshold)
    assert said(outcome) == sentence
    advice = "Check that b has a path to the loss" if " is 0, below" in sentence else "Use activations that do not"
    assert (outcome.result.advice or "").startswith(advice if ", below" in sentence else "")
    assert (outcome.result.advice is not None) is (", below" in sentence)


@pytest.mark.parametrize(
    ("nodes", "depth", "sentence"),
    [
        ([0], 0, "the tree in trees/Node has 0 levels below its root, not above the threshold 0."),
        ([0, 1], 0, "the tree in trees/Node has 0 levels below its root, not above the threshold 0."),
        ([0, 1, 2], 0, "the tree in trees/Node has 1 level below its root, above the threshold 0."),
        ([3], 1, "the tree in trees/Node has 1 level below its root, not above the threshold 1."),
        ([4.0], 1.5, "the tree in trees/Node has 2 levels below its root, above the threshold 1.5."),
        ([31], None, "the tree in trees/Node has 4 levels below its root, not above the threshold 4."),
        ([32], None, "the tree in trees/Node has 5 levels below its root, above the threshold 4."),
    ],
)
def test_depth_of_a_tree_is_that_of_its_greatest_node_number(nodes: Any, depth: float | None, sentence: str) -> None:
    outcome = observed("TreeDepth", one({"trees/Node": nodes}), **({} if depth is None else {"depth": depth}))
    assert said(outcome) == sentence


def tree(ids: Any, yes: Any, no: Any) -> Run:
    names = {"trees/Node": [0], "trees/ID": ids, "trees/Yes": yes, "trees/No": no}
    return one({name: np.array(values, object) if name != "trees/Node" else values for name, values in names.items()})


@pytest.mark.parametrize(
    ("ids", "yes", "no", "depth"),
    [
        (["r"], ["nan"], ["nan"], 0),
        (["r", "a", "b"], ["a", "", ""], ["b", "", ""], 1),
        (["b", "a", "r", "c"], ["c", "", "a", ""], ["x", "", "b", ""], 2),
        ([b"r", b"a", b"b"], ["a", "", ""], [b"b", "", ""], 1),
        (["r", "a", "b"], ["a"], ["b"], 0),
        (["r", "a", "b"], ["a", "b", "a"], ["", "", ""], 2),
        (["r", "a", "s", "b", "c"], ["a", "", "b", "c", ""], ["", "", "", "", ""], 2),
        ([["r", "a"], ["b", "c"]], [["a", "b"], ["c", ""]], [["", ""], ["", ""]], 3),
        ([], [], [], None),
    ],
)
def test_depth_is_the_longest_way_down_the_branches(ids: Any, yes: Any, no: Any, depth: int | None) -> None:
    outcome = observed("TreeDepth", tree(ids, yes, no), true_depth="true")
    assert outcome.result.measured == depth


@pytest.mark.parametrize(
    ("run", "given", "words"),
    [
        (tree(["a", "b"], ["b", "a"], ["", ""]), {"true_depth": "true"}, "its branches lead in a circle"),
        (one({"trees/Node": [-1]}), {}, "it holds no node numbers"),
        (one({"trees/Node": [INF]}), {}, "it holds no node numbers"),
        (one({"trees/Node": np.array(["7"], object)}), {}, "it holds no node numbers"),
    ],
)
def test_given_what_is_no_tree_when_measured_then_it_is_said(run: Run, given: Mapping[str, Any], words: str) -> None:
    assert words in observed("TreeDepth", run, **given).result.reason
    assert observed("TreeDepth", one({"trees/Node": []})).state.evaluated == 0
    assert observed("TreeDepth", one({"trees/ID": [1]})).result.status is Status.NOT_APPLICABLE
