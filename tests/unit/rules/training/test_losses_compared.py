"""Losses that are compared over a number of steps: of which mode, with what, and which of them is the worst."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from tests.support.steps import RULES, Run, observed
from trainguard.core.records import Status
from trainguard.formats.tensors.step_view import Mode


def losses_of(names: Sequence[str], mode: Mode, values: Sequence[float], run: Run | None = None) -> Run:
    run = Run() if run is None else run
    for step, value in enumerate(values):
        of_step = {name: [value] for name in names}
        run.add(100 * len(run.steps), of_step, mode=mode, mode_step=step, collections={"losses": list(names)})
    return run


@pytest.mark.parametrize(("tensors", "left"), [(32, 0), (33, 3)])
def test_losses_beyond_the_kept_number_are_counted(tensors: int, left: int) -> None:
    run = losses_of([f"loss{place:02d}" for place in range(tensors)], Mode.TRAIN, [3.0, 2.0, 1.0])
    outcome = observed("LossNotDecreasing", run, num_steps=1)
    assert outcome.state.left_out == left
    assert outcome.state.evaluated == 2


@pytest.mark.parametrize(
    ("mode", "fires_in"), [(None, "EVAL"), ("TRAIN", "TRAIN"), ("EVAL", "EVAL"), ("PREDICT", "PREDICT")]
)
def test_loss_of_the_selected_mode_is_checked(mode: str | None, fires_in: str) -> None:
    run = Run()
    for each in (Mode.EVAL, Mode.TRAIN, Mode.PREDICT, Mode.GLOBAL):
        losses_of(["loss"], each, [1.0, 1.0, 1.5], run)
    outcome = observed("LossNotDecreasing", run, num_steps=2, **({} if mode is None else {"mode": mode}))
    modes = {step.step: step.mode for step in run.steps}
    assert [modes[step].value for step in outcome.steps] == [fires_in]
    assert outcome.state.first is not None
    assert f"loss rose by 50 % since step 0 of mode {fires_in}, from 1 to 1.5, above the threshold 5 %" in (
        RULES["LossNotDecreasing"].said(outcome.state.first)
    )
    run.add(9_999, {"text": np.array(["a"], object)})
    outcome = observed("LossNotDecreasing", run, num_steps=2, **({} if mode is None else {"mode": mode}))
    assert outcome.state.waiting == 11


@pytest.mark.parametrize(
    ("losses", "worst", "kind"),
    [
        ({"a": (0.0, 0.0), "b": (100.0, 105.5)}, "a", "flat"),
        ({"a": (0.0, 0.0), "b": (100.0, 106.5)}, "b", "risen"),
        ({"a": (0.0, -1.0), "b": (1000.0, 991.5)}, "b", "falls"),
        ({"a": (0.0, -1.0), "b": (1000.0, 984.5)}, "a", "falls"),
        ({"a": (100.0, 98.0), "b": (100.0, 101.0)}, "a", "falls"),
        ({"a": (100.0, 92.0), "b": (100.0, 101.0)}, "b", "rose little"),
        ({"a": (100.0, 97.0), "b": (100.0, 98.0)}, "b", "falls"),
    ],
)
def test_loss_furthest_over_its_threshold_is_named(
    losses: Mapping[str, Sequence[float]], worst: str, kind: str
) -> None:
    run = Run()
    for step in range(2):
        run.add(step, {name: [values[step]] for name, values in losses.items()}, collections={"losses": ["a", "b"]})
    outcome = observed("LossNotDecreasing", run, num_steps=1)
    assert outcome.state.latest is not None
    assert (outcome.state.latest.tensor, outcome.state.latest.kind) == (worst, kind)
    assert outcome.result.measure is not None
    assert outcome.result.measure.what == (
        "rise of the loss" if kind in ("risen", "rose little") else "fall of the loss"
    )
    if outcome.result.advice is not None:
        assert ("warm-up" in outcome.result.advice) is (kind == "risen")


def test_losses_before_the_range_are_its_reference() -> None:
    run = losses_of(["loss"], Mode.GLOBAL, [2.0, 1.0, 1.0])
    outcome = observed("LossNotDecreasing", run, num_steps=1, start_step=200)
    assert outcome.steps == [200]
    assert (
        outcome.result.reason == "Step 200: loss did not change since step 1, from 1 to 1, below the threshold 0.1 %."
    )


def test_all_scalars_are_losses_if_no_collection_or_selection() -> None:
    run = Run()
    for step in range(3):
        run.add(step, {"a": [1.0], "b": [2.0, 2.0], "c": [1.0]}, collections={"mine": ["c"], "losses": ["x"]})
    assert "(the worst of 2 such losses, of 2 in all)" in observed("LossNotDecreasing", run, num_steps=1).result.reason
    of_mine = observed("LossNotDecreasing", run, num_steps=1, collection_names="mine").result
    assert (of_mine.worst, "such losses" in of_mine.reason) == ("c", False)
    absent = observed("LossNotDecreasing", run, num_steps=1, tensor_regex="nothing").result
    assert absent.status is Status.NOT_APPLICABLE
    both = Run()
    for step in range(2):
        both.add(step, {"a": [1.0], "c": [1.0]}, collections={"mine": ["c"], "losses": ["a"]})
    given = {"num_steps": 1, "collection_names": "mine"}
    assert "of 2 in all" in observed("LossNotDecreasing", both, **given).result.reason
    alone = observed("LossNotDecreasing", both, use_losses_collection=False, **given).result
    assert (alone.worst, "in all" in alone.reason) == ("c", False)
