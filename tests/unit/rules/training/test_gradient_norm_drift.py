"""Norms of gradients that drift apart, and the first layer that does."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tests.support.steps import Outcome, Run, observed
from tests.unit.rules.training.test_trusted_rules import NAN
from trainguard.core.records import Status
from trainguard.formats.tensors.step_view import Mode


def drifting(norms: Mapping[str, Sequence[float]], losses: Sequence[float], *, reductions: bool = False) -> Outcome:
    run = Run()
    for step, loss in enumerate(losses):
        at = {name: values[step] for name, values in norms.items()}
        tensors: dict[str, Any] = {"loss": [loss]} | ({} if reductions else {name: [at[name]] for name in at})
        saved = {name: {"l2": value} for name, value in at.items()} if reductions else {}
        collections = {"losses": ["loss"], "gradients" if reductions else "gradient_norm": sorted(at)}
        run.add(step, tensors, mode=Mode.TRAIN, reductions=saved, collections=collections)
    return observed("GradientNormDrift", run)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("reductions", [True, False])
def test_first_layer_is_named_if_norms_drift_without_a_fall(sign: int, reductions: bool) -> None:
    norms = {
        "gradient/a": [10.0 ** (sign * max(0, step - 30) * 0.2) for step in range(80)],
        "gradient/b": [10.0 ** (sign * max(0, step - 10) * 0.2) for step in range(80)],
        "gradient/c": [1.0] * 80,
    }
    outcome = drifting(norms, [2.3] * 80, reductions=reductions)
    assert (outcome.result.status, outcome.result.worst) == (Status.FIRED, "gradient/b")
    assert "the first of 2 that drifted" in outcome.result.reason
    assert drifting(norms, [2.3 * 0.95**step for step in range(80)]).result.status is Status.OK


def test_late_tensor_of_160_that_drifts_first_is_named() -> None:
    norms = {
        f"gradient/layer{place:03d}": [
            10.0 ** (0.2 * max(0, step - (10 if place == 140 else 30))) for step in range(80)
        ]
        for place in range(160)
    }
    outcome = drifting(norms, [2.3] * 80, reductions=True)
    assert outcome.result.worst == "gradient/layer140"
    assert "the first of 160 that drifted" in outcome.result.reason
    assert outcome.state.left_out == 0


@pytest.mark.parametrize(("length", "kept"), [(20, 512), (400, 100)])
def test_state_of_many_norms_is_bounded_and_others_are_counted(length: int, kept: int) -> None:
    norms = {f"{place:0{length}d}": [1.5] * 2 for place in range(600)}
    outcome = drifting(norms, [2.3] * 2, reductions=True)
    assert outcome.state.left_out == 2 * (600 - kept)
    assert len(msgspec.msgpack.encode(outcome.state)) <= 64_000


@pytest.mark.parametrize(("after", "found"), [(990.0, False), (1100.0, True), (0.0, True), (NAN, False)])
def test_norm_drifts_beyond_three_decades(after: float, found: bool) -> None:
    outcome = drifting({"norm": [1.0] * 8 + [after] * 200}, [1.0] * 208)
    assert (outcome.result.status is Status.FIRED) is found
