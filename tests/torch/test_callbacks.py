"""The callbacks in the trainers of transformers, Lightning and Keras; annotations; the names of smprof."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.support.run_folder import steps_of
from tests.torch.conftest import Record
from trainguard.formats.profile.columns import FrameworkEvents, read_framework_object
from trainguard_collector import callbacks, smprof
from trainguard_collector.annotations import annotate, annotation_begin, annotation_end

os.environ.setdefault("KERAS_BACKEND", "torch")
pytestmark = pytest.mark.torch
Send = Callable[[], Path]


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        found = self.layer(x)
        return {"loss": nn.functional.mse_loss(found, labels), "logits": found}


def examples(count: int) -> list[dict[str, torch.Tensor]]:
    return [{"x": torch.randn(4), "labels": torch.randn(1)} for _ in range(count)]


def counts_of(job: Path) -> dict[str, int]:
    (path,) = (job / "profiler-output/framework/pevents").rglob("*.json")
    events: FrameworkEvents = read_framework_object(
        path.name, path.read_bytes(), process="node-1-7", end_us=int(path.name[:16])
    )
    return dict(Counter(events.table.phases[row] for row in events.table.phase_index.tolist()))


def test_transformers_trainer_records_steps_evaluations_and_logs(record: Record, send: Send, tmp_path: Path) -> None:
    from transformers import Trainer, TrainingArguments

    recorder = record()
    arguments = TrainingArguments(
        str(tmp_path / "model"),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=6,
        eval_strategy="steps",
        eval_steps=3,
        logging_steps=1,
        save_strategy="steps",
        save_steps=3,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    callback = callbacks.hugging_face(recorder, watch=True, every=2)
    Trainer(
        Regression(), arguments, train_dataset=examples(64), eval_dataset=examples(16), callbacks=[callback]
    ).train()
    recorder.close()
    assert recorder.faults.newest == {}
    job = send()
    counts = counts_of(job)
    assert counts["Step:ModeKeys.TRAIN"] == 6
    assert counts["Evaluation"] == 2
    assert counts["Step:ModeKeys.EVAL"] == 4
    assert counts["Backward-SubModuleInternal"] == 12
    assert counts["Forward-SubModuleInternal"] >= 12
    assert counts["Checkpoint"] == 2
    assert not hasattr(Trainer._save_checkpoint, "__wrapped__")
    assert counts["DataLoaderIter"] >= 12
    steps = [step for step in steps_of(job / "debug-output") if step.mode == "TRAIN"]
    assert [step.mode_step for step in steps] == [0, 2, 4]
    assert "losses/loss" in steps[1].names
    assert "gradient/Regression_layer.weight" in steps[0].names


def test_lightning_trainer_records_steps_and_validations(record: Record, send: Send, tmp_path: Path) -> None:
    import lightning

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch).square().mean()

        validation_step = training_step

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    recorder = record()
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=True,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
        default_root_dir=str(tmp_path),
        callbacks=[callbacks.lightning(recorder, watch=True, every=4)],
    )
    trainer.fit(Module(), DataLoader(torch.randn(16, 4), 2), DataLoader(torch.randn(4, 4), 2))
    recorder.close()
    assert recorder.faults.newest == {}
    job = send()
    counts = counts_of(job)
    assert counts["Step:ModeKeys.TRAIN"] == 16
    assert counts["Step:ModeKeys.EVAL"] == 4
    assert counts["Evaluation"] == 2
    assert counts["DataLoaderIter"] == 20
    assert counts["Optimizer"] == 16
    assert counts["Forward-SubModuleInternal"] == counts["Backward-SubModuleInternal"] == 16
    assert counts["Checkpoint"] >= 2
    steps = [step for step in steps_of(job / "debug-output") if step.mode == "TRAIN"]
    assert [step.mode_step for step in steps] == [0, 4, 8, 12]
    assert "losses/loss" in steps[0].names


def test_keras_fit_records_batches_checkpoints_and_losses(record: Record, send: Send, tmp_path: Path) -> None:
    import keras

    recorder = record()
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    callback = callbacks.keras(recorder)
    saving = keras.callbacks.ModelCheckpoint(str(tmp_path / "model.keras"))
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    validation = {"validation_data": (x, y), "validation_batch_size": 8}
    model.fit(x, y, batch_size=4, epochs=2, **validation, callbacks=[callback, saving], verbose=0)
    model.predict(x, batch_size=4, callbacks=[callback], verbose=0)
    recorder.close()
    assert recorder.faults.newest == {}
    job = send()
    assert counts_of(job) == {
        "Checkpoint": 2,
        "Step:ModeKeys.TRAIN": 8,
        "Step:ModeKeys.EVAL": 4,
        "Step:ModeKeys.PREDICT": 4,
        "Evaluation": 2,
    }
    first, *_ = steps_of(job / "debug-output")
    assert "losses/loss" in first.members("losses")


def test_annotations_are_in_the_timeline_and_in_torch_traces(record: Record, send: Send) -> None:
    @annotate("function")
    def work(number: int) -> int:
        """Do some work."""
        return number + 1

    recorder = record()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        with annotate("outer"), annotate("gpu copy"):
            assert (work(1), work.__doc__) == (2, "Do some work.")
        first = annotation_begin("begun")
        annotation_begin("innermost")
        annotation_end()
        annotation_end(first)
        annotation_end(first)
        annotation_end()
        with pytest.raises(KeyError), annotate("raises"):
            raise KeyError
    recorder.close()
    names = {"outer", "gpu copy", "function", "begun", "innermost", "raises"}
    assert names <= {each.key for each in profile.key_averages()}
    counts = counts_of(send())
    assert counts == {"outer": 1, "Phases": 1, "function": 1, "begun": 1, "innermost": 1, "raises": 1}
    with annotate("nobody records"):
        pass


def test_script_of_the_profiler_sdk_hands_over_its_trace(record: Record, send: Send) -> None:
    recorder = record()
    profiler = smprof.SMProfiler.instance()
    config = smprof.Config()
    config.profiler = {"EnableCuda": "1"}
    profiler.configure(config)
    profiler.stop_profiling()
    profiler.start_profiling()
    profiler.start_profiling()
    with smprof.annotate("Forward"):
        nn.Linear(4, 4)(torch.randn(2, 4))
    number = smprof.annotation_begin("Backward")
    smprof.annotation_end(number)
    profiler.stop_profiling()
    recorder.close()
    assert recorder.faults.newest == {}
    assert profiler is smprof.SMProfiler.instance()
    assert len(list((send() / "kernel-traces").rglob("*.pt.trace.json.gz"))) == 1


def test_closed_loaders_leave_nothing_and_nested_count_once(record: Record, send: Send) -> None:
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    before = iterator.__next__
    recorder = record()
    recorder.time_loaders()
    assert len(list(recorder.wrap(DataLoader(torch.zeros(6, 1), 2)))) == 3
    recorder.close()
    assert iterator.__next__ is before
    assert counts_of(send()) == {"DataLoaderIterInitialize": 1, "DataLoaderIter": 3}
