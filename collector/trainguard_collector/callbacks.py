"""Callbacks that put a recorder into training loops that the script does not write itself."""

import sys
from importlib import import_module
from typing import Any, Callable, Optional

from trainguard_collector.recorder.recorder import Recorder


def hugging_face(recorder: Recorder, *, watch: bool = False, **options: Any) -> Any:
    """Return a callback for ``Trainer(callbacks=[…])`` of transformers; raises ImportError without it.

    A step is one update of the parameters, with all the batches that it accumulates. Evaluations and checkpoints are
    phases. With ``watch`` the model's tensors are recorded; ``options`` are those of `Recorder.watch`.
    """
    base = import_module("transformers").TrainerCallback

    class TrainGuardCallback(base):  # type: ignore[misc, valid-type]
        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            if recorder.is_on and state.global_step:
                recorder.resume(state.global_step)
            _watch(recorder, given.get("model"), watch, options)
            recorder.time_checkpoints(import_module("transformers").Trainer, "_save_checkpoint")

        def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            recorder.end_phase("evaluation")
            recorder.begin_step()

        on_step_end = _ends(recorder)

        def on_prediction_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            recorder.end_step()
            if not recorder.is_in("evaluation"):
                recorder.begin_phase("evaluation")
            recorder.begin_step()

        def on_evaluate(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            recorder.end_step()
            recorder.end_phase("evaluation")

        on_predict = on_evaluate

        def on_log(self, args: Any, state: Any, control: Any, logs: Optional[Any] = None, **given: Any) -> None:
            _log(recorder, logs)

        def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            recorder.end_step()
            recorder.end_phase("evaluation")
            recorder.forget_timed()

    return TrainGuardCallback()


def lightning(recorder: Recorder, *, watch: bool = False, **options: Any) -> Any:
    """Return a callback for ``Trainer(callbacks=[…])`` of Lightning, as `hugging_face`; raises ImportError."""
    name = "pytorch_lightning" if "pytorch_lightning" in sys.modules else "lightning.pytorch"
    base = import_module(name).Callback

    class TrainGuardCallback(base):  # type: ignore[misc, valid-type]
        def on_train_start(self, trainer: Any, module: Any) -> None:
            if trainer.global_step:
                recorder.resume(trainer.global_step)
            _watch(recorder, module, watch, options)
            recorder.time_forward(module, "training_step")
            recorder.time_checkpoints(trainer, "save_checkpoint")

        on_train_batch_start = _begins(recorder)

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            if loss is not None:
                recorder.loss(loss)
            recorder.end_step()

        def on_validation_start(self, trainer: Any, module: Any) -> None:
            recorder.begin_phase("evaluation")

        on_validation_batch_start = _begins(recorder)
        on_validation_batch_end = on_exception = on_train_end = _ends(recorder)

        def on_validation_end(self, trainer: Any, module: Any) -> None:
            recorder.end_step()
            recorder.end_phase("evaluation")

        def teardown(self, trainer: Any, module: Any, stage: str) -> None:
            recorder.forget_timed()

    return TrainGuardCallback()


def keras(recorder: Recorder) -> Any:
    """Return a callback for ``fit``, ``evaluate`` and ``predict`` of Keras 3; raises ImportError without it."""
    base = import_module("keras").callbacks.Callback

    class TrainGuardCallback(base):  # type: ignore[misc, valid-type]
        def on_train_begin(self, logs: Optional[Any] = None) -> None:
            recorder.time_checkpoints(self.model, "save", "save_weights")

        def on_train_end(self, logs: Optional[Any] = None) -> None:
            recorder.forget_timed()

        on_train_batch_begin = _begins(recorder, "TRAIN")
        on_test_batch_begin = _begins(recorder, "EVAL")
        on_predict_batch_begin = _begins(recorder, "PREDICT")

        def on_train_batch_end(self, batch: int, logs: Optional[Any] = None) -> None:
            _log(recorder, logs)
            recorder.end_step()

        def on_epoch_end(self, epoch: int, logs: Optional[Any] = None) -> None:
            _log(recorder, {name: value for name, value in (logs or {}).items() if name.startswith("val_")})
            rate = getattr(getattr(self.model, "optimizer", None), "learning_rate", None)
            _log(recorder, {"learning_rate": rate})

        def on_test_begin(self, logs: Optional[Any] = None) -> None:
            recorder.begin_phase("evaluation")

        on_test_batch_end = on_predict_batch_end = _ends(recorder)

        def on_test_end(self, logs: Optional[Any] = None) -> None:
            recorder.end_phase("evaluation")

    return TrainGuardCallback()


def _begins(recorder: Recorder, mode: Optional[str] = None) -> Callable[..., None]:
    """Return a method that begins a step, whatever the framework gives it."""
    return lambda *_, **__: recorder.begin_step(mode)


def _ends(recorder: Recorder) -> Callable[..., None]:
    return lambda *_, **__: recorder.end_step()


def _watch(recorder: Recorder, model: Any, watch: bool, options: "dict[str, Any]") -> None:
    recorder.time_loaders()
    if model is None:
        return
    if watch:
        recorder.watch(model, **options)
    else:
        recorder.attach(model)


def _log(recorder: Recorder, logs: Any) -> None:
    """Save names with "loss" as losses, other numbers as metrics."""
    for name, value in (logs or {}).items():
        is_array = hasattr(value, "__float__") and getattr(value, "size", None) == 1
        if not isinstance(value, bool) and (isinstance(value, (int, float)) or is_array):
            if "loss" in str(name):
                recorder.loss(value, str(name))
            else:
                recorder.metric(str(name), value)
