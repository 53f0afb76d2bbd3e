"""What a digest keeps of a run, whatever its size, and what it reads for that."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.support.steps import Run, Step
from tests.support.tensor_trials import trial_files, trial_steps, trials
from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.tensors.step_view import Mode, Tensor
from trainguard.report.training.digest import MOST_SERIES, Digester, TrainingDigest
from trainguard.report.training.document import first_fire, training_report
from trainguard.report.training.heat_map import MOST_ROWS, ReadBudget
from trainguard.report.training.read import RunPart, decode_part, encode_part, read_on
from trainguard.rules.training.step_rule import Check

GRADIENTS = {"gradients": ["gradient/a", "gradient/b"]}
WEIGHTS = {"weights": ["a"]}


class Counted(Step):
    """A step that counts the tensors that are read of it."""

    def blocks(self, name: str) -> Iterator[Tensor]:
        READ.append((self.step, name))
        return super().blocks(name)


READ: list[tuple[int, str]] = []


@pytest.fixture(autouse=True)
def _nothing_read() -> None:
    READ.clear()


def folded(run: Run, digest: TrainingDigest | None = None, **how: Any) -> TrainingDigest:
    digester = Digester(digest, **how)
    for step in run.steps:
        step.__class__ = Counted
        digester.fold(step)
    return digester.done()


def values_of(digest: TrainingDigest, layer: str) -> list[float | None]:
    return digest.layers.gradients.values[digest.layers.gradients.rows.index(layer)]


def run_of(steps: int, tensors: Mapping[str, Any], **how: Any) -> Run:
    run = Run()
    for step in range(steps):
        run.add(step, tensors, **how)
    return run


def test_losses_of_two_modes_have_a_series_each() -> None:
    digest = TrainingDigest()
    for step in trial_steps("overtraining"):
        Digester(digest).fold(step)
    assert [(each.name, each.mode, each.kind, len(each.steps)) for each in digest.series] == [
        ("loss", "TRAIN", "loss", 30),
        ("loss", "EVAL", "loss", 30),
    ]
    assert digest.series[0].mean[:3] == pytest.approx([1.0, 0.9, 0.8])
    assert digest.series[1].steps[:3] == [1, 3, 5]
    assert (digest.steps, digest.first_step, digest.last_step) == (60, 0, 59)
    assert digest.modes == {"TRAIN": 30, "EVAL": 30}


@pytest.mark.parametrize("name", sorted(trials()))
def test_digest_by_json_in_two_halves_is_the_same(name: str) -> None:
    steps = trial_steps(name)
    whole, first = Digester(), Digester()
    for step in steps:
        whole.fold(step)
    for step in steps[: len(steps) // 2]:
        first.fold(step)
    second = Digester(decode_part(encode_part(RunPart(digest=first.done())), name).digest)
    for step in steps[len(steps) // 2 :]:
        second.fold(step)
    one, other = whole.done(), second.done()
    one.budget, other.budget = ReadBudget(), ReadBudget()
    assert msgspec.json.encode(other) == msgspec.json.encode(one)


def test_weights_find_the_step_before_when_read_step_by_step() -> None:
    files = trial_files("vanishing_gradient")
    whole, part = read_on(files, "run", RunPart()), RunPart()
    while not part.done:
        part = read_on(files, "run", decode_part(encode_part(part), "part"), has_time=lambda: False)
    assert whole.digest.layers.updates.read == 3
    assert msgspec.json.encode(part.digest) == msgspec.json.encode(whole.digest)


def test_digest_of_another_version_is_named_in_the_error() -> None:
    body = encode_part(RunPart(digest=TrainingDigest(format=99)))
    with pytest.raises(TelemetryFormatError, match=r"part-1.*format 99, expected 2"):
        decode_part(body, "part-1")
    with pytest.raises(TelemetryFormatError, match="part-1"):
        decode_part(b"[]", "part-1")


def test_saved_reduction_is_used_without_reading_entries() -> None:
    run = run_of(
        3,
        {"gradient/a": np.full(100, 9.0)},
        collections=GRADIENTS,
        reductions={"gradient/a": {"abs_mean": 0.5}, "gradient/b": {"abs_mean": 0.25}},
    )
    digest = folded(run)
    assert values_of(digest, "gradient/a") == [0.5, 0.5, 0.5]
    assert values_of(digest, "gradient/b") == [0.25, 0.25, 0.25]
    assert digest.layers.gradients.measure == "abs_mean"
    assert READ == []


def test_given_only_l2_norms_when_folded_then_the_map_is_of_them() -> None:
    digest = folded(run_of(2, {}, collections=GRADIENTS, reductions={"gradient/a": {"l2": 3.0}}))
    assert (digest.layers.gradients.measure, values_of(digest, "gradient/a")) == ("l2", [3.0, 3.0])


def test_gradients_match_a_manual_calculation() -> None:
    run = Run()
    run.add(0, {"gradient/a": [1.0, -3.0], "gradient/b": [math.inf, 0.0]}, collections=GRADIENTS, mode=Mode.TRAIN)
    run.add(1, {"gradient/a": [9.0, -9.0]}, collections=GRADIENTS, mode=Mode.EVAL)
    digest = folded(run)
    assert values_of(digest, "gradient/a") == [2.0]
    assert digest.layers.gradients.undefined == [(1, 0)]


def test_weight_updates_are_relative_to_the_previous_norm() -> None:
    run = Run()
    for step, value in enumerate([[3.0, 4.0], [3.0, 4.0], [9.0, 12.0]]):
        run.add(step, {"a": value}, collections=WEIGHTS)
    assert folded(run).layers.updates.values == [[0.0, pytest.approx(2.0)]]


def test_activation_shares_match_a_manual_calculation() -> None:
    run = Run()
    run.add(0, {"net_tanh_input_0": [0.0, 10.0, -20.0, 2.0], "net_relu_output_0": [0.0, 0.0, 0.0, 8.0]})
    layers = folded(run).layers
    assert layers.activation_zeros.rows == ["net_relu_output_0", "net_tanh_input_0"]
    assert layers.activation_zeros.values == [[0.75], [0.25]]
    assert layers.activation_mean.values == [[2.0], [-2.0]]
    assert (layers.activation_saturated.rows, layers.activation_saturated.values) == (["net_tanh_input_0"], [[0.5]])


def test_tensors_of_no_section_are_not_read() -> None:
    folded(run_of(5, {"embedding0_input_0": np.zeros(10), "conv0": np.zeros(10)}, collections={"other": ["conv0"]}))
    assert READ == []


def test_few_of_ten_thousand_gradients_are_read_others_named() -> None:
    names = [f"gradient/layer{number}.weight" for number in range(10_000)]
    tensors = {name: np.ones(2) for name in names}
    run = run_of(2, tensors, collections={"gradients": names})
    digest = folded(run, wanted={"gradient/layer9999.weight"})
    assert len(READ) == 2 * MOST_ROWS
    assert "gradient/layer9999.weight" in digest.layers.gradients.rows
    assert len(msgspec.json.encode(digest)) < 40_000
    said = training_report(digest, []).left_out
    assert any("100 or more tensors of gradients" in each for each in said)


def test_some_of_ten_thousand_losses_have_series_others_named() -> None:
    names = [f"loss{number}" for number in range(10_000)]
    digest = folded(run_of(2, dict.fromkeys(names, 1.0), collections={"losses": names}))
    assert len(digest.series) == MOST_SERIES
    assert len(READ) == 2 * MOST_SERIES
    assert any("losses and metrics" in each for each in training_report(digest, []).left_out)


def test_layer_reads_become_ever_rarer_over_very_many_steps() -> None:
    digest = folded(run_of(3_000, {"gradient/a": np.ones(3)}, collections=GRADIENTS))
    assert len(READ) < 500
    assert digest.layers.gradients.seen == 3_000
    assert "Of 3,000 steps with gradients" in " ".join(training_report(digest, []).left_out)


def test_tensor_over_the_cap_is_noted_and_not_read() -> None:
    run = run_of(1, {"gradient/a": np.ones(4_000), "gradient/b": np.ones(2)}, collections=GRADIENTS)
    digest = folded(run, TrainingDigest(budget=ReadBudget(bytes_left=320_000)))
    assert READ == [(0, "gradient/b")]
    assert values_of(digest, "gradient/a") == [None]
    assert digest.budget.bytes_left == 320_000 - 8
    assert any("1 tensor would have taken too much" in each for each in training_report(digest, []).left_out)


def test_series_reads_only_shown_scalars_at_the_read_limit() -> None:
    run = run_of(2_000, {"loss": 1.0}, collections={"losses": ["loss"]})
    digest = folded(run, TrainingDigest(budget=ReadBudget(scalars_left=1_000)))
    (series,) = digest.series
    assert 1_000 < series.read < 1_600
    assert series.seen == 2_000
    assert any("were read" in each for each in training_report(digest, []).left_out)


def test_broken_tensor_is_noted_and_the_others_continue() -> None:
    run = Run()
    run.add(0, {"gradient/a": [1.0], "gradient/b": [2.0]}, collections=GRADIENTS, broken={"gradient/a"})
    digest = folded(run)
    assert (values_of(digest, "gradient/a"), values_of(digest, "gradient/b")) == ([None], [2.0])
    assert any("the frame is cut off" in each for each in training_report(digest, []).left_out)


def test_reported_fires_are_in_order_of_steps() -> None:
    late = Check(step=9, at=9.0, fires=True, kind="late", tensor="t")
    early = Check(step=2, at=2.0, fires=True, kind="early")
    report = training_report(
        TrainingDigest(),
        [
            first_fire("training/A", late, str(late.kind), [9]),
            first_fire("training/B", early, str(early.kind), [2, 7]),
        ],
    )
    assert [(each.rule, each.step, each.tensor) for each in report.fires] == [
        ("training/B", 2, None),
        ("training/A", 9, "t"),
    ]
