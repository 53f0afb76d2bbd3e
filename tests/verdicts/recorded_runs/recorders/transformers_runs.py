"""Hugging Face's Trainer on tiny models with random weights: ``trainer_state.json`` as it saves it."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    logging,
)

from tests.verdicts.recorded_runs.recorders import tasks

logging.set_verbosity_error()
# Checkpoints lie there, if any.
OUT = str(Path(tempfile.gettempdir()) / "trainer-out")

Item = dict[str, torch.Tensor]


class Rows(Dataset):
    """Rows of letters with a label each."""

    def __init__(self, letters: np.ndarray, labels: np.ndarray) -> None:
        self.letters, self.labels = torch.from_numpy(letters), torch.from_numpy(labels)

    def __len__(self) -> int:
        return len(self.letters)

    def __getitem__(self, row: int) -> Item:
        return {"input_ids": self.letters[row], "labels": self.labels[row]}


def marked(samples: int = 1200, classes: int = 3, wrong: float = 0.05) -> tuple[Rows, Rows]:
    """The class is the letter of 1, 2, 3 that is most frequent; a share of the labels is wrong."""
    rng = np.random.default_rng(0)
    letters = rng.integers(classes + 1, 30, (samples, 16))
    labels = rng.integers(0, classes, samples)
    for row, label in zip(letters, labels, strict=True):
        row[rng.choice(16, 3, replace=False)] = label + 1
    spoiled = np.where(rng.random(samples) < wrong, rng.integers(0, classes, samples), labels)
    cut = samples * 4 // 5
    return Rows(letters[:cut], spoiled[:cut]), Rows(letters[cut:], spoiled[cut:])


def random_labels(samples: int = 1200) -> tuple[Rows, Rows]:
    return marked(samples, wrong=1.0)


def text(samples: int = 1500) -> tuple[Rows, Rows]:
    """Windows of source code; a model for text shifts the labels itself."""
    parts = tasks.characters(24, samples)
    return Rows(parts.x, parts.x), Rows(parts.vx, parts.vx)


def masked(samples: int = 800) -> tuple[Rows, Rows]:
    """All labels are -100: the loss is the mean over nothing."""
    train, test = text(samples)
    return Rows(train.letters.numpy(), np.full_like(train.labels, -100)), test


def bert(seed: int = 0) -> BertForSequenceClassification:
    """A classifier of two small layers."""
    torch.manual_seed(seed)
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=32,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=16,
            num_labels=3,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )


def gpt(seed: int = 0) -> GPT2LMHeadModel:
    """A model for text of one small layer."""
    torch.manual_seed(seed)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=96, n_positions=32, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    )


def scores(found: Any) -> dict[str, float]:
    answers = found.predictions.argmax(-1)
    return {"accuracy": float((answers == found.label_ids).mean())}


class RateJumps(TrainerCallback):
    """Multiplies the learning rate from a step on."""

    def __init__(self, step: int, factor: float) -> None:
        self.step, self.factor = step, factor

    def on_step_begin(self, args: Any, state: Any, control: Any, *, optimizer: Any = None, **_: Any) -> None:
        if state.global_step >= self.step:
            for group in optimizer.param_groups:
                group["lr"] *= self.factor


class Spoils(TrainerCallback):
    """Writes NaN into a weight before a step, as an overflow does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, *, model: Any = None, **_: Any) -> None:
        if state.global_step == self.step:
            with torch.no_grad():
                next(model.parameters()).fill_(float("nan"))


@dataclass(frozen=True)
class Run:
    """What is trained and how; ``settings`` are those of TrainingArguments."""

    data: Callable[[], tuple[Rows, Rows]] = marked
    model: Callable[[], Any] = bert
    scored: bool = True
    callbacks: Callable[[], list[TrainerCallback]] = list
    first: Mapping[str, Any] | None = None
    sittings: tuple[int, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


ARGUMENTS = {
    "per_device_train_batch_size": 32,
    "per_device_eval_batch_size": 128,
    "num_train_epochs": 10,
    "learning_rate": 2e-3,
    "logging_steps": 5,
    "eval_strategy": "epoch",
    "save_strategy": "no",
    "report_to": [],
    "use_cpu": True,
    "disable_tqdm": True,
    "seed": 0,
}


def _fit(run: Run, folder: Path, model: Any, settings: Mapping[str, Any], resume: bool = False) -> Trainer:
    train, test = run.data()
    trainer = Trainer(
        model,
        TrainingArguments(OUT, **(ARGUMENTS | dict(settings))),
        train_dataset=train,
        eval_dataset=test,
        compute_metrics=scores if run.scored else None,
        callbacks=run.callbacks(),
    )
    trainer.train(resume_from_checkpoint=resume or None)
    return trainer


def record(run: Run, folder: Path) -> None:
    """Train, and save the state of the last training. ``first`` are settings of a training before, not recorded."""
    model = run.model()
    if run.first:
        model = _fit(run, folder, model, run.first).model
    for place, epochs in enumerate(run.sittings):
        settings = run.settings | {"num_train_epochs": epochs, "save_strategy": "epoch", "save_total_limit": 1}
        trainer = _fit(run, folder, model, settings, resume=place > 0)
    if not run.sittings:
        trainer = _fit(run, folder, model, run.settings)
    trainer.state.save_to_json(str(folder / "trainer_state.json"))


def _with(base: Run, **settings: Any) -> Run:
    return replace(base, settings=base.settings | settings)


CLASSES = Run()
TEXT = Run(text, gpt, scored=False, settings={"num_train_epochs": 6, "learning_rate": 5e-3})
RUN_TABLE: Mapping[str, Run] = {
    "hf-classes": CLASSES,
    "hf-classes-epochs": _with(CLASSES, logging_strategy="epoch", num_train_epochs=20),
    "hf-classes-every-step": _with(CLASSES, logging_steps=1, num_train_epochs=6, per_device_train_batch_size=8),
    "hf-classes-label-smoothing": _with(CLASSES, label_smoothing_factor=0.3, num_train_epochs=12),
    "hf-classes-cosine-restarts": _with(
        CLASSES,
        lr_scheduler_type="cosine_with_restarts",
        lr_scheduler_kwargs={"num_cycles": 4},
        num_train_epochs=16,
    ),
    "hf-classes-late-evaluation": _with(CLASSES, eval_strategy="steps", eval_steps=150),
    "hf-classes-five-steps": _with(CLASSES, max_steps=5, logging_steps=1, eval_strategy="no"),
    "hf-classes-warm-up-only": _with(CLASSES, max_steps=60, warmup_steps=6000, logging_steps=2, eval_strategy="no"),
    "hf-classes-fine-tune": replace(
        CLASSES,
        first={"num_train_epochs": 15, "eval_strategy": "no"},
        settings={"learning_rate": 1e-5, "num_train_epochs": 3, "eval_strategy": "no", "logging_steps": 2},
    ),
    "hf-text": TEXT,
    "hf-text-resumed": replace(TEXT, sittings=(3, 6)),
    "hf-text-bf16": _with(TEXT, bf16=True, num_train_epochs=4),
    "hf-text-accumulated": _with(TEXT, gradient_accumulation_steps=4, logging_steps=2, num_train_epochs=10),
    "hf-classes-rate-1": _with(CLASSES, learning_rate=1.0),
    "hf-classes-rate-0": _with(CLASSES, learning_rate=0.0),
    "hf-classes-labels-random": replace(_with(CLASSES, num_train_epochs=6), data=random_labels),
    "hf-classes-by-heart": replace(
        _with(CLASSES, num_train_epochs=60, logging_strategy="epoch", per_device_train_batch_size=16),
        data=partial(random_labels, 300),
    ),
    "hf-text-rate-3": _with(TEXT, learning_rate=3.0, max_grad_norm=0.0),
    "hf-text-labels-masked": replace(TEXT, data=masked),
    "hf-text-labels-masked-unfiltered": replace(_with(TEXT, logging_nan_inf_filter=False), data=masked),
    "hf-text-nan": replace(TEXT, callbacks=lambda: [Spoils(120)]),
    "hf-text-nan-unfiltered": replace(_with(TEXT, logging_nan_inf_filter=False), callbacks=lambda: [Spoils(120)]),
    "hf-text-rate-jumps": replace(_with(TEXT, max_grad_norm=0.0), callbacks=lambda: [RateJumps(110, 500.0)]),
    "hf-classes-fine-tune-forgets": replace(
        CLASSES,
        first={"num_train_epochs": 15, "eval_strategy": "no"},
        settings={"learning_rate": 0.5, "num_train_epochs": 6, "lr_scheduler_type": "constant"},
    ),
}
RUNS: dict[str, Callable[[Path], None]] = {name: partial(record, run) for name, run in RUN_TABLE.items()}
