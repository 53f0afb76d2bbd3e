"""What a digest keeps of a run, whatever its size, and what it reads for that."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from tests.support.steps import Run, Step
from tests.support.tensor_trials import trial_files, trial_steps, trials
from trainguard.errors import TelemetryFormatError
from trainguard.report.training.budget import ReadBudget
from trainguard.report.training.build import training_report
from trainguard.report.training.digest import MOST_SERIES, Digester, TrainingDigest, decode_digest, encode_digest
from trainguard.report.training.fires import RuleFires
from trainguard.report.training.heat_map import MOST_ROWS
from trainguard.report.training.read import RunPart, decode_part, encode_part, read_on
from trainguard.rules.training.step_rule import Check
from trainguard.tensors.step_view import Mode, Tensor

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


def test_given_losses_of_two_modes_when_folded_then_each_has_a_series() -> None:
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
def test_given_any_trial_when_folded_then_it_is_the_same_from_json_in_two_halves(name: str) -> None:
    steps = trial_steps(name)
    whole, first = Digester(), Digester()
    for step in steps:
        whole.fold(step)
    for step in steps[: len(steps) // 2]:
        first.fold(step)
    second = Digester(decode_digest(encode_digest(first.done()), name))
    for step in steps[len(steps) // 2 :]:
        second.fold(step)
    one, other = whole.done(), second.done()
    one.budget, other.budget = ReadBudget(), ReadBudget()
    assert encode_digest(other) == encode_digest(one)


def test_given_weights_when_a_run_is_read_a_step_at_a_time_then_each_finds_the_step_before() -> None:
    files = trial_files("vanishing_gradient")
    whole, part = read_on(files, "run", RunPart()), RunPart()
    while not part.done:
        part = read_on(files, "run", decode_part(encode_part(part), "part"), has_time=lambda: False)
    assert whole.digest.layers.updates.read == 3
    assert encode_digest(part.digest) == encode_digest(whole.digest)


def test_given_a_digest_of_another_version_when_decoded_then_the_error_names_it() -> None:
    body = encode_digest(TrainingDigest(format=99))
    with pytest.raises(TelemetryFormatError, match=r"part-1.*format 99, expected 1"):
        decode_digest(body, "part-1")
    with pytest.raises(TelemetryFormatError, match="part-1"):
        decode_digest(b"[]", "part-1")


def test_given_a_saved_reduction_when_folded_then_no_entry_is_read() -> None:
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


def test_given_gradients_when_folded_then_they_are_as_computed_by_hand() -> None:
    run = Run()
    run.add(0, {"gradient/a": [1.0, -3.0], "gradient/b": [math.inf, 0.0]}, collections=GRADIENTS, mode=Mode.TRAIN)
    run.add(1, {"gradient/a": [9.0, -9.0]}, collections=GRADIENTS, mode=Mode.EVAL)
    digest = folded(run)
    assert values_of(digest, "gradient/a") == [2.0]
    assert digest.layers.gradients.undefined == [(1, 0)]


def test_given_weights_when_folded_then_updates_are_relative_to_the_norm_before() -> None:
    run = Run()
    for step, value in enumerate([[3.0, 4.0], [3.0, 4.0], [9.0, 12.0]]):
        run.add(step, {"a": value}, collections=WEIGHTS)
    assert folded(run).layers.updates.values == [[0.0, pytest.approx(2.0)]]


def test_given_activations_when_folded_then_shares_are_as_computed_by_hand() -> None:
    run = Run()
    run.add(0, {"net_tanh_input_0": [0.0, 10.0, -20.0, 2.0], "net_relu_output_0": [0.0, 0.0, 0.0, 8.0]})
    layers = folded(run).layers
    assert layers.activation_zeros.rows == ["net_relu_output_0", "net_tanh_input_0"]
    assert layers.activation_zeros.values == [[0.75], [0.25]]
    assert layers.activation_mean.values == [[2.0], [-2.0]]
    assert (layers.activation_saturated.rows, layers.activation_saturated.values) == (["net_tanh_input_0"], [[0.5]])


def test_given_tensors_that_no_section_shows_when_folded_then_none_is_read() -> None:
    folded(run_of(5, {"embedding0_input_0": np.zeros(10), "conv0": np.zeros(10)}, collections={"other": ["conv0"]}))
    assert READ == []


def test_given_ten_thousand_gradients_when_folded_then_few_are_read_and_the_rest_is_named() -> None:
    names = [f"gradient/layer{number}.weight" for number in range(10_000)]
    tensors = {name: np.ones(2) for name in names}
    run = run_of(2, tensors, collections={"gradients": names})
    digest = folded(run, wanted={"gradient/layer9999.weight"})
    assert len(READ) == 2 * MOST_ROWS
    assert "gradient/layer9999.weight" in digest.layers.gradients.rows
    assert len(encode_digest(digest)) < 40_000
    said = training_report(digest, {}).left_out
    assert any("100 or more tensors of gradients" in each for each in said)


def test_given_ten_thousand_losses_when_folded_then_some_have_a_series_and_the_rest_is_named() -> None:
    names = [f"loss{number}" for number in range(10_000)]
    digest = folded(run_of(2, dict.fromkeys(names, 1.0), collections={"losses": names}))
    assert len(digest.series) == MOST_SERIES
    assert len(READ) == 2 * MOST_SERIES
    assert any("losses and metrics" in each for each in training_report(digest, {}).left_out)


def test_given_very_many_steps_when_folded_then_reads_of_layers_grow_ever_slower() -> None:
    digest = folded(run_of(3_000, {"gradient/a": np.ones(3)}, collections=GRADIENTS))
    assert len(READ) < 500
    assert digest.layers.gradients.seen == 3_000
    assert "Of 3,000 steps with gradients" in " ".join(training_report(digest, {}).left_out)


def test_given_a_tensor_over_the_cap_when_folded_then_it_is_not_read_and_that_is_said() -> None:
    run = run_of(1, {"gradient/a": np.ones(4_000), "gradient/b": np.ones(2)}, collections=GRADIENTS)
    digest = folded(run, TrainingDigest(budget=ReadBudget(bytes_left=320_000)))
    assert READ == [(0, "gradient/b")]
    assert values_of(digest, "gradient/a") == [None]
    assert digest.budget.bytes_left == 320_000 - 8
    assert any("1 tensor would have taken too much" in each for each in training_report(digest, {}).left_out)


def test_given_no_more_single_numbers_may_be_read_then_a_series_reads_what_it_shows() -> None:
    run = run_of(2_000, {"loss": 1.0}, collections={"losses": ["loss"]})
    digest = folded(run, TrainingDigest(budget=ReadBudget(scalars_left=1_000)))
    (series,) = digest.series
    assert 1_000 < series.read < 1_600
    assert series.seen == 2_000
    assert any("were read" in each for each in training_report(digest, {}).left_out)


def test_given_a_broken_tensor_when_folded_then_the_others_go_on_and_it_is_said() -> None:
    run = Run()
    run.add(0, {"gradient/a": [1.0], "gradient/b": [2.0]}, collections=GRADIENTS, broken={"gradient/a"})
    digest = folded(run)
    assert (values_of(digest, "gradient/a"), values_of(digest, "gradient/b")) == ([None], [2.0])
    assert any("the frame is cut off" in each for each in training_report(digest, {}).left_out)


def test_given_fires_when_reported_then_they_are_in_order_of_steps() -> None:
    late = Check(step=9, at=9.0, fires=True, reason="late", tensor="t")
    early = Check(step=2, at=2.0, fires=True, reason="early")
    report = training_report(
        TrainingDigest(),
        {"training/A": RuleFires(late, late.reason, (9,)), "training/B": RuleFires(early, early.reason, (2, 7))},
    )
    assert [(each.rule, each.step, each.tensor) for each in report.fires] == [
        ("training/B", 2, None),
        ("training/A", 9, "t"),
    ]
