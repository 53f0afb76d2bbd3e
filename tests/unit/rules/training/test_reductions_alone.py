"""What rules say about tensors of which reductions alone were saved: only what those tell for sure."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.support.steps import Outcome, Run, Step, observed
from trainguard.core.records import Status
from trainguard.formats.tensors.step_view import Tensor
from trainguard.rules.training.readings import abs_mean, mean, moments_of, not_finite, scalar, variance, zeros

NAN, INF = math.nan, math.inf
Reductions = Mapping[str, float]


def of(*tensors: Reductions, name: str = "t", shape: tuple[int, ...] = (2, 2), **given: Any) -> Run:
    """Return one step of tensors ``t0``, ``t1`` with these reductions."""
    run, names = Run(), [f"{name}{place}" for place in range(len(tensors))]
    shapes = dict.fromkeys(names, shape)
    run.add(4, reductions=dict(zip(names, tensors, strict=True)), shapes=shapes, collections={"mine": names}, **given)
    return run


def percent(outcome: Outcome) -> float | None:
    """Return the share that was found; None where the reductions do not answer."""
    assert outcome.state.unusable == (outcome.result.status is Status.ERROR)
    if outcome.result.status is Status.ERROR:
        assert "only reductions were saved" in outcome.result.reason
        return None
    return outcome.result.measured


@pytest.mark.parametrize(
    ("reductions", "all_of_them", "half"),
    [
        ({"abs_mean": 0.0}, 100.0, 100.0),
        ({"abs_mean": 0.5}, 0.0, None),
        ({"abs_mean": NAN}, None, None),
        ({"l1": 0.0}, 100.0, 100.0),
        ({"l1": 0.5}, 0.0, None),
        ({"abs_mean": 0.5, "l1": 0.0}, 0.0, None),
        ({"mean": 0.0}, None, None),
        ({"abs_max": 0.0}, 100.0, 100.0),
        ({"abs_max": 0.5}, 0.0, None),
        ({"min": 0.0, "max": 0.0}, 100.0, 100.0),
        ({"min": 0.0}, None, None),
        ({"max": 0.0}, None, None),
        ({"min": 0.0, "max": 0.5}, 0.0, None),
        ({"min": -0.5, "max": 0.0}, 0.0, None),
        ({"min": -0.5, "max": 0.5}, 0.0, None),
        ({"min": -0.5}, None, None),
        ({"max": 0.5}, None, None),
        ({"abs_min": 0.5}, 0.0, 0.0),
        ({"abs_min": 0.0}, None, None),
        ({"min": 0.5}, 0.0, 0.0),
        ({"max": -0.5}, 0.0, 0.0),
        ({"abs_mean": 0.5, "min": 0.25}, 0.0, 0.0),
        ({"abs_mean": 0.5, "abs_min": 0.0, "abs_max": 2.0}, 0.0, None),
        ({}, None, None),
    ],
)
def test_zeros_in_reductions_are_stated_only_where_certain(
    reductions: Reductions, all_of_them: float | None, half: float | None
) -> None:
    for threshold, expected in ((100, all_of_them), (99, half), (50, half)):
        outcome = observed("AllZero", of(reductions), collection_names="mine", threshold=threshold)
        assert percent(outcome) == expected
        assert bool(outcome.steps) is (expected == 100.0)


@pytest.mark.parametrize(
    ("reductions", "dead", "dead_of_none"),
    [
        ({"max": 0.0}, 100.0, 0.0),
        ({"max": -1.0}, 100.0, 0.0),
        ({"max": 0.5}, None, None),
        ({"min": 0.5}, 0.0, 0.0),
        ({"min": 0.0}, None, None),
        ({"min": 0.0, "max": 0.5}, None, None),
        ({"min": 0.5, "max": 2.0}, 0.0, 0.0),
    ],
)
def test_dead_units_in_reductions_are_stated_only_where_certain(
    reductions: Reductions, dead: float | None, dead_of_none: float | None
) -> None:
    for inactivity, expected in ((1.0, dead), (1e-6, dead), (0.0, dead_of_none)):
        outcome = observed("DeadRelu", of(reductions, name="relu_output"), threshold_inactivity=inactivity)
        assert percent(outcome) == expected
        assert bool(outcome.steps) is (expected == 100.0)


FINE = {"abs_mean": 1.0}
SAYS_NOTHING = "of tensor t0 at step 4 only reductions were saved"


@pytest.mark.parametrize(
    ("tensors", "said", "only_nan_said"),
    [
        ([FINE, FINE, FINE], "none of 3 tensors holds", "none of 3 tensors holds"),
        ([{"max": 1.0}], "none of 1 tensor holds", "none of 1 tensor holds"),
        ([FINE, {"max": NAN}], "the saved max of t1 is NaN", "the saved max of t1 is NaN"),
        ([{"max": NAN}, FINE, FINE], "the saved max of t0 is NaN.", "the saved max of t0 is NaN."),
        ([FINE, {"min": -INF}], "the saved min of t1 is infinite", "none of 2 tensors holds"),
        ([{"abs_mean": NAN}], "the saved mean of absolute values of t0 is NaN", "the saved mean of absolute values"),
        ([{"mean": NAN}], "the saved mean of t0 is NaN", "the saved mean of t0 is NaN"),
        ([{"abs_l2": INF}], "the saved l2 of absolute values of t0 is infinite", "none of 1 tensor holds"),
        ([{"sum": INF, "std": NAN}], "the saved std of t0 is NaN", "the saved std of t0 is NaN"),
        ([{"sum": INF, "l1": INF}], "the saved l1 of t0 is infinite", "none of 1 tensor holds"),
        ([{"abs_sum": INF, "sum": 2.0}], "none of 1 tensor holds", "none of 1 tensor holds"),
        ([{"variance": INF, "min": -1.0, "max": 1.0}], "none of 1 tensor holds", "none of 1 tensor holds"),
        ([{"variance": INF, "min": -1.0, "max": INF}], "the saved max of t0 is infinite", "none of 1 tensor holds"),
        ([{"variance": INF, "min": NAN, "max": INF}], "the saved min of t0 is NaN", "the saved min of t0 is NaN"),
        ([{"variance": INF, "abs_max": 3.0}], "none of 1 tensor holds", "none of 1 tensor holds"),
        ([{"variance": INF, "abs_max": INF}], "the saved max of absolute values of t0 is inf", "none of 1 tensor hol"),
        ([{"variance": INF, "min": 1.0}], "the saved variance of t0 is infinite", "none of 1 tensor holds"),
        ([{"variance": INF, "max": NAN}], "the saved max of t0 is NaN", "the saved max of t0 is NaN"),
        ([{"abs_min": INF}], "the saved min of absolute values of t0 is infinite", "none of 1 tensor holds"),
        ([{"prod": 2.0}], "none of 1 tensor holds", "none of 1 tensor holds"),
        ([{"prod": INF}], SAYS_NOTHING, SAYS_NOTHING),
        ([{}], SAYS_NOTHING, SAYS_NOTHING),
        ([{"max": INF}, {"max": NAN}], "the saved max of t0 is infinite (the worst", "the saved max of t1 is NaN."),
        ([FINE, {"sum": 1.0}, {"abs_mean": INF}, FINE], "the saved mean of absolute values of t2 is", "none of 4"),
    ],
)
def test_reduction_that_reveals_a_nan_is_named(tensors: list[Reductions], said: str, only_nan_said: str) -> None:
    for only_nan, expected in ((False, said), (True, only_nan_said)):
        outcome = observed("ExplodingTensor", of(*tensors), only_nan=only_nan)
        assert expected in outcome.result.reason
        assert bool(outcome.steps) is ("the saved" in expected)
        assert outcome.result.measured == (0.0 if "none of" in expected else None)
        if "none of" in expected:
            assert outcome.result.worst == "t0"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0, NAN], "t holds 1 entry that is NaN or infinite, above the threshold 0"),
        ([INF, NAN], "t holds 2 entries that are NaN or infinite"),
        ([INF, 1.0], "t holds 1 entry that is infinite"),
        ([1.0], "none of 1 tensor holds NaN or infinite values"),
    ],
)
def test_non_finite_entries_are_counted(values: list[float], said: str) -> None:
    run = Run()
    run.add(0, {"t": values})
    result = observed("ExplodingTensor", run).result
    assert said in result.reason
    if result.advice is not None:
        assert ("save t at earlier steps" in result.advice) is said.endswith("is infinite")


def test_larger_share_of_non_finite_entries_is_worst() -> None:
    run = Run()
    run.add(0, {"a": [NAN, 1.0, NAN, NAN], "b": [NAN], "c": np.empty(0)})
    assert observed("ExplodingTensor", run).result.worst == "b"
    run.add(1, {"b": [NAN, 1.0]}, reductions={"a": {"max": NAN}})
    assert observed("ExplodingTensor", run).result.worst == "b"


def test_nan_in_tree_columns_is_ignored_without_a_selection() -> None:
    run = Run()
    run.add(0, {"trees/Split": [NAN]}, collections={"trees": ["trees/Split"]})
    assert observed("ExplodingTensor", run).steps == []
    assert observed("ExplodingTensor", run, collection_names="trees").steps == [0]


def test_unreadable_tensor_leaves_the_others_checked_for_nan() -> None:
    run = of({"max": NAN}, {"max": NAN}, broken={"t0"})
    outcome = observed("ExplodingTensor", run)
    assert (outcome.state.unusable, outcome.result.worst) == (1, "t1")


def step_with(reductions: Reductions, values: Any = None, shape: tuple[int, ...] | None = None) -> Step:
    tensors, shapes = {} if values is None else {"t": values}, {} if shape is None else {"t": shape}
    return Run().add(0, tensors, reductions={"t": reductions}, shapes=shapes)


def test_reductions_replace_missing_entries() -> None:
    assert abs_mean(step_with({"abs_mean": 0.5}), "t") == 0.5
    assert abs_mean(step_with({"abs_mean": 0.5}, [3.0]), "t") == 0.5
    assert mean(step_with({"mean": 0.5}), "t") == 0.5
    assert mean(step_with({"mean": 0.5}, [3.0, 4.0]), "t") == 3.5
    assert variance(step_with({"variance": 0.5}), "t") == 0.5
    assert variance(step_with({"std": 3.0}), "t") == 9.0
    assert variance(step_with({"std": 3.0}, [3.0, 5.0]), "t") == 1.0
    assert scalar(step_with({"mean": 0.5}, shape=(1,)), "t") == 0.5
    assert scalar(step_with({"mean": 0.5}, shape=()), "t") == 0.5
    assert scalar(step_with({"mean": 0.5}, shape=(2,)), "t") is None
    assert scalar(step_with({"mean": 0.5}), "t") is None
    assert scalar(step_with({"sum": 0.5}, shape=(1,)), "t") is None


@pytest.mark.parametrize("values", [np.empty(0), np.empty((2, 0))])
def test_tensor_without_entries_has_no_number(values: Tensor) -> None:
    step = step_with({}, values)
    assert (abs_mean(step, "t"), mean(step, "t"), moments_of(step, "t"), variance(step, "t")) == (None,) * 4
    assert (scalar(step, "t"), zeros(step, "t"), not_finite(step, "t")) == (None, None, (0, 0, 0))


def test_moments_and_counts_of_folded_blocks_are_exact() -> None:
    values = np.array([1.0, 3.0] * 7 + [5.0, 7.0] * 7)
    assert moments_of(step_with({}, values), "t") == (4.0, 5.0)
    assert moments_of(step_with({}, [0.1]), "t") == (0.1, 0.0)
    assert abs_mean(step_with({}, np.array([1.0, -3.0] * 7 + [5.0, -7.0] * 7)), "t") == 4.0
    assert zeros(step_with({}, np.array([0, 1, 0, 2] * 5)), "t") == 50.0
    assert zeros(step_with({}, np.array(["0"], object)), "t") is None
    assert not_finite(step_with({}, np.array([1, 2])), "t") is None
    assert scalar(step_with({}, [[7.0]]), "t") == 7.0
