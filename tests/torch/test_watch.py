"""The tensor recorder on real models of torch, read and judged by TrainGuard."""

import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.run_folder import steps_of
from tests.torch.conftest import Record
from tests.torch.reduced import reduced
from trainguard.local.api import analyze
from trainguard_collector.recorder.tensors import processor, saving
from trainguard_collector.recorder.tensors.saving import ALLOWED, CollectionConfig

pytestmark = pytest.mark.torch
Send = Callable[[], Path]
# A tensor of several pieces, by the entries of one.
SHAPES = {processor.PIECE: (1100, 600), 50: (17, 9)}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.relu, self.last = nn.Linear(8, 16), nn.ReLU(), nn.ReLU(), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.relu(self.act(self.first(x))))


def train(recorder: Any, model: nn.Module, *, steps: int, lr: float = 0.1, loss: nn.Module | None = None) -> None:
    torch.manual_seed(0)
    criterion = loss or nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    x = torch.randn(64, 8)
    y = (x[:, 0] > 0).long()
    for _ in range(steps):
        with recorder.step():
            optimizer.zero_grad()
            logits = model(x)
            value = criterion(logits, y)
            value.backward()
            optimizer.step()
            recorder.loss(value)
            recorder.metric("accuracy", (logits.argmax(1) == y).float().mean())


def status_of(job: Path, rule: str, **parameters: Any) -> tuple[str, str]:
    found = analyze(job, parameters=parameters or None, time_lines=False).rules
    rows = dict(zip(found["rule"], zip(found["status"], found["reason"], strict=True), strict=True))
    return rows[f"training/{rule}"]


def test_tensor_rules_judge_a_healthy_recorded_run(record: Record, send: Send) -> None:
    recorder, model = record(), Net()
    recorder.watch(model, every=5, collections=["gradients", "weights", "biases", "relu_output"])
    train(recorder, model, steps=200)
    recorder.close()
    assert recorder.faults.newest == {}
    job = send()
    steps = steps_of(job / "debug-output")
    assert [step.step for step in steps] == list(range(0, 200, 5))
    assert set(steps[0].members("weights")) == {"Net_first.weight", "Net_last.weight"}
    assert set(steps[0].members("biases")) == {"Net_first.bias", "Net_last.bias"}
    assert set(steps[0].members("gradients")) == {
        f"gradient/Net_{each}" for each in ("first.weight", "first.bias", "last.weight", "last.bias")
    }
    assert set(steps[0].members("relu_output")) == {"act.relu_output_0", "relu_output_0"}
    assert set(steps[0].members("losses")) == {"losses/loss"}
    assert set(steps[0].members("learning_rate")) == {"learning_rate/0"}
    for rule in ("ExplodingTensor", "TrainingDiverged", "LossSpike", "NotLearning", "GradientNormDrift"):
        assert status_of(job, rule)[0] == "OK", rule
    assert status_of(job, "VanishingGradient", VanishingGradient_threshold="1e-9")[0] == "OK"
    assert status_of(job, "DeadRelu", DeadRelu_threshold_layer="99")[0] != "FIRED"


def test_tensor_rules_fire_on_a_diverging_recorded_run(record: Record, send: Send) -> None:
    recorder, model = record(), Net()
    recorder.watch(model, every=1, loss=(loss := nn.CrossEntropyLoss()))
    train(recorder, model, steps=40, lr=1e8, loss=loss)
    recorder.close()
    job = send()
    assert {"CrossEntropyLoss_output_0", "losses/loss"} <= set(steps_of(job / "debug-output")[0].members("losses"))
    assert status_of(job, "TrainingDiverged")[0] == "FIRED"
    assert status_of(job, "ExplodingTensor")[0] == "FIRED"


def test_part_without_gradient_has_a_vanished_gradient(record: Record, send: Send) -> None:
    recorder, model = record(), Net()
    with torch.no_grad():
        model.last.weight.zero_()
        model.first.bias.fill_(-1e3)  # each unit is dead
    recorder.watch(model, every=1, collections=["gradients", "relu_output"])
    train(recorder, model, steps=3)
    recorder.close()
    job = send()
    status, reason = status_of(job, "VanishingGradient", VanishingGradient_threshold="1e-7")
    assert (status, "first." in reason) == ("FIRED", True)
    assert status_of(job, "DeadRelu", DeadRelu_threshold_layer="50")[0] == "FIRED"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64])
@pytest.mark.parametrize("piece", [processor.PIECE, 50])
@pytest.mark.filterwarnings("ignore:overflow")
def test_given_tensors_when_reduced_then_as_numpy_does(
    dtype: torch.dtype, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "PIECE", piece)
    torch.manual_seed(1)
    tensors = [(torch.randn(shape) * 2 + 0.5).to(dtype) for shape in [(5,), (4, 6), (2, 3, 4), (24,), SHAPES[piece]]]
    kinds = sorted(ALLOWED)
    found = [value for row in reduced(tensors, kinds).tolist() for value in row]
    expected = []
    for tensor in tensors:
        array = tensor.double().numpy()
        for kind in kinds:
            values, name = (np.abs(array), kind[4:]) if kind.startswith("abs_") else (array, kind)
            norms = {"l1": lambda v: np.abs(v).sum(), "l2": lambda v: np.sqrt(np.square(v).sum())}
            function = norms.get(name) or {"variance": np.var}.get(name) or getattr(np, name)
            expected.append(float(function(values)))
    tolerance = {torch.bfloat16: 2e-2, torch.float16: 2e-3}.get(dtype, 1e-5)
    assert found == pytest.approx(expected, rel=tolerance, abs=tolerance)


def test_deviation_of_values_far_from_zero_keeps_its_digits() -> None:
    torch.manual_seed(4)
    tensors = [torch.randn(size) * 1e-2 + 100.0 for size in (512, 300_000)]
    for tensor, value in zip(tensors, reduced(tensors, ("std",)), strict=True):
        assert value.item() == pytest.approx(float(tensor.double().std(correction=0)), rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.bool])
def test_full_tensors_are_read_back_bit_for_bit(dtype: torch.dtype, record: Record, send: Send) -> None:
    model = nn.Module()
    model.register_parameter("weight", nn.Parameter(torch.randn(5, 3).mul(2).to(dtype).t(), requires_grad=False))
    expected = model.weight.detach().clone().numpy()
    recorder = record()
    recorder.watch(model, every=1, collections=[CollectionConfig("weights", {"save_raw_tensor": "True"})])
    with recorder.step():
        pass
    model.weight.zero_()
    recorder.close()
    assert recorder.faults.newest == {}
    (step,) = steps_of(send() / "debug-output")
    found = step.value("Module_weight")
    assert (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


def test_scaled_gradients_are_recorded_unscaled(record: Record, send: Send) -> None:
    recorder, model = record(), nn.Linear(3, 1, bias=False)
    recorder.watch(model, every=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    x = torch.tensor([[1.0, 2.0, 3.0]])
    for _ in range(2):
        with recorder.step():
            optimizer.zero_grad()
            scaler.scale(model(x).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    recorder.close()
    for step in steps_of(send() / "debug-output"):
        assert step.reduction("gradient/Linear_weight", "max") == 3.0
        assert step.reduction("gradient/Linear_weight", "mean", absolute=True) == 2.0
        assert step.value("gradient_norm/total")[0] == pytest.approx(14**0.5)


def test_gradients_of_a_self_unscaling_optimizer_are_unscaled(record: Record, send: Send) -> None:
    recorder, model = record(), nn.Linear(3, 1, bias=False)
    kinds = "min,max,mean,std,variance,l2,prod"
    recorder.watch(model, every=1, collections=[CollectionConfig("gradients", {"reductions": kinds})])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with recorder.step():
        scaler.scale(model(torch.tensor([[1.0, 2.0, 3.0]])).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    recorder.close()
    (step,) = steps_of(send() / "debug-output")
    found = {kind: step.reduction("gradient/Linear_weight", kind) for kind in ("max", "mean", "variance", "prod")}
    assert found == {"max": 3.0, "mean": 2.0, "variance": pytest.approx(2 / 3), "prod": 6.0}
    assert step.value("gradient_norm/total")[0] == pytest.approx(14**0.5)


def test_save_step_without_an_update_saves_the_next_update(record: Record, send: Send) -> None:
    recorder, model = record(), Net()
    recorder.watch(model, every=2, collections=["gradients"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(8):
        with recorder.step():
            model(torch.randn(4, 8)).sum().backward()
            if number % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
    recorder.close()
    with_gradients = [step.step for step in steps_of(send() / "debug-output") if step.members("gradients")]
    assert with_gradients == [3, 7]


def test_gradients_of_both_optimizers_in_a_step_are_saved(record: Record, send: Send) -> None:
    recorder, model = record(), nn.ModuleDict({"g": nn.Linear(1, 1, bias=False), "d": nn.Linear(1, 1, bias=False)})
    recorder.watch(model, every=1, collections=["gradients"])
    optimizers = [torch.optim.SGD(model[name].parameters(), lr=lr) for name, lr in (("g", 0.5), ("d", 0.25))]
    with recorder.step():
        for optimizer, name, x in zip(optimizers, "gd", (3.0, 4.0), strict=True):
            model[name](torch.tensor([[x]])).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    recorder.close()
    (step,) = steps_of(send() / "debug-output")
    assert step.reduction("gradient/ModuleDict_g.weight", "max") == 3.0
    assert step.reduction("gradient/ModuleDict_d.weight", "max") == 4.0
    assert step.value("gradient_norm/total")[0] == pytest.approx(5.0)
    assert [step.value(f"learning_rate/{number}")[0] for number in range(2)] == [0.5, 0.25]


@pytest.mark.parametrize("most_copied", [saving.MOST_COPIED, 100, 0])
def test_outputs_changed_in_place_are_recorded_as_returned(
    most_copied: int, record: Record, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "MOST_COPIED", most_copied)
    recorder, model = record(), nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 4))
    recorder.watch(model, every=1, collections=["activations"])
    x = torch.randn(5, 8)
    with recorder.step():
        model(x)
    recorder.close()
    (step,) = steps_of(send() / "debug-output")
    first = model[0](x).detach()
    assert step.reduction("0_output_0", "min") == pytest.approx(float(first.min()))
    assert step.reduction("1.relu_output_0", "min") == 0.0
    assert step.reduction("2_output_0", "std") == pytest.approx(float(model(x).std(correction=0).detach()), rel=1e-5)


def test_steps_that_are_not_saved_add_no_tensor_hooks(
    record: Record,
) -> None:
    recorder, model = record(), Net()
    recorder.watch(model, every=3, collections=["activations"])
    counts = []
    for _ in range(4):
        with recorder.step():
            counts.append(len(model.act._forward_hooks))
    assert (counts, len(model.act._forward_hooks)) == ([1, 0, 0, 1], 0)


def test_timed_model_has_all_phases_and_leaves_no_hooks(record: Record, send: Send) -> None:
    before = torch.autograd.backward
    recorder, model = record(), Net()
    recorder.attach(model)
    recorder.attach(model)
    train(recorder, model, steps=6)
    with pytest.raises(RuntimeError), recorder.step():
        model(torch.randn(4, 9))
    with recorder.step(), torch.no_grad():
        model(torch.randn(4, 8))
    recorder.close()
    assert torch.autograd.backward is before
    assert not model._forward_hooks
    assert recorder.faults.newest == {}
    (file,) = (send() / "profiler-output").rglob("*_pythontimeline.json")
    names = Counter(
        line.split('"')[3] for line in gzip.decompress(file.read_bytes()).decode().splitlines() if '"ph":"X"' in line
    )
    assert names == {"forward": 7, "backward": 6, "optimizer": 6, "Step:ModeKeys.TRAIN": 8}  # one forward raised


def test_script_goes_on_when_its_model_cannot_be_watched(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = record()
    recorder.watch("no model")
    recorder.watch(Net(), collections=["no such collection"])
    recorder.watch(Net(), every=0)
    with recorder.step():
        recorder.loss("no number")
    recorder.close()
    assert not recorder.at_end
    assert recorder.faults.counts == {"watch": 3, "loss": 1}
    assert all(line.startswith("trainguard-collector: ") for line in capsys.readouterr().err.splitlines())


def test_two_watched_models_of_one_class_are_both_recorded(record: Record, send: Send) -> None:
    recorder, one, other = record(), nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    recorder.watch(one, every=1, collections=["weights"])
    recorder.watch(other)
    with recorder.step():
        pass
    recorder.close()
    (step,) = steps_of(send() / "debug-output")
    assert set(step.members("weights")) == {"Linear_weight", "Linear2_weight"}
    assert (step.reduction("Linear2_weight", "max"), step.reduction("Linear_weight", "min")) == (
        float(other.weight.detach().max()),
        float(one.weight.detach().min()),
    )


def test_compiled_model_records_gradients_and_weights(record: Record, send: Send) -> None:
    recorder, model = record(), Net()
    compiled = torch.compile(model, backend="eager")
    recorder.watch(compiled, every=1)
    train(recorder, compiled, steps=3)
    recorder.close()
    assert recorder.faults.newest == {}
    steps = steps_of(send() / "debug-output")
    assert len(steps) == 3
    assert "gradient/Net_first.weight" in steps[0].names


def test_resumed_run_numbers_its_steps_from_there(record: Record, send: Send) -> None:
    recorder, model = record(first_step=1_000), Net()
    recorder.watch(model, every=500)
    train(recorder, model, steps=3)
    recorder.close()
    assert [step.step for step in steps_of(send() / "debug-output")] == [1_000]
