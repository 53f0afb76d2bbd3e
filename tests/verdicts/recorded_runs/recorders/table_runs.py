"""Tables of fastai's CSVLogger, and of the columns that timm's ``update_summary`` writes, in ``summary.csv``."""

import csv
import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fastai.basics import DataLoader, DataLoaders, Learner
from fastai.callback.progress import CSVLogger
from fastai.metrics import accuracy, error_rate
from torch import nn
from torch.nn import functional
from torch.optim import lr_scheduler
from torch.utils.data import TensorDataset

from tests.verdicts.recorded_runs.recorders import nets, tasks
from tests.verdicts.recorded_runs.recorders.loop import DENSE, Loop, mlp, train
from tests.verdicts.recorded_runs.recorders.tasks import Task
from tests.verdicts.recorded_runs.recorders.torch_runs import FEW

importlib.import_module("fastai.callback.schedule")  # It gives Learner its schedules.


def fitted(
    folder: Path,
    *,
    task: Callable[[], Task] = tasks.digits,
    model: Callable[[], nn.Module] = DENSE,
    fit: Callable[[Learner], Any],
    loss: Any = functional.cross_entropy,
    scores: tuple[Any, ...] = (accuracy,),
    batch: int = 64,
) -> None:
    """Fit by fastai, whose logger writes ``history.csv``."""
    torch.manual_seed(0)
    parts = Task(*map(torch.from_numpy, task()))
    loaders = DataLoaders(
        DataLoader(TensorDataset(parts.x, parts.y), batch, shuffle=True),
        DataLoader(TensorDataset(parts.vx, parts.vy), 256),
        device=torch.device("cpu"),
    )
    learner = Learner(loaders, model(), loss_func=loss, metrics=list(scores), path=folder, cbs=CSVLogger())
    with learner.no_bar(), learner.no_logging():
        fit(learner)


class Summary:
    """A row for each epoch: epoch, train_loss, eval_loss, eval_top1, lr, as timm writes them."""

    def __init__(self, folder: Path, rate: Callable[[int], float]) -> None:
        self.file, self.rate, self.rows = folder / "summary.csv", rate, {}

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self.rows.setdefault(global_step, {})[tag] = scalar_value

    def write(self) -> None:
        names = ("train_loss", "eval_loss", "eval_top1")
        with self.file.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["epoch", *names, "lr"])
            for epoch, row in sorted(self.rows.items()):
                writer.writerow([epoch - 1, *(row[name] for name in names), self.rate(epoch)])


def per_cent(out: torch.Tensor, y: torch.Tensor) -> float:
    return 100.0 * float((out.argmax(-1) == y).float().mean())


def summary(how: Loop, folder: Path) -> None:
    """Train by a loop, and write its epochs as timm does."""
    writer = Summary(folder, lambda _: how.rate)
    train(writer, replace(how, score=per_cent, names=("train_loss", "train_top1", "eval_loss", "eval_top1")))
    writer.write()


def gap_task() -> Task:
    """A regression whose targets hold a missing value."""
    task = tasks.surface()
    task.y[100] = float("nan")
    return task


IMAGES = Loop(model=nets.convolutions, optimizer="AdamW", rate=2e-3, epochs=20)
SUMMARIES: Mapping[str, Loop] = {
    "timm-digits": IMAGES,
    "timm-digits-smoothed-restarts": replace(
        IMAGES,
        epochs=30,
        criterion=partial(functional.cross_entropy, label_smoothing=0.2),
        schedule=lambda o, n: lr_scheduler.CosineAnnealingWarmRestarts(o, n // 3),
    ),
    "timm-digits-rate-30": replace(IMAGES, optimizer="SGD", rate=30.0),
    "timm-digits-adam-rate-2": replace(IMAGES, rate=2.0),
    "timm-digits-labels-shuffled": replace(IMAGES, task=lambda: tasks.shuffled(tasks.digits())),
    "timm-digits-by-heart": replace(FEW, epochs=60),
    "timm-digits-rate-1e-9": replace(IMAGES, rate=1e-9),
}
RUNS: dict[str, Callable[[Path], None]] = {
    "fastai-digits": partial(fitted, fit=lambda learner: learner.fit_one_cycle(20, 5e-3)),
    "fastai-digits-error-rate": partial(fitted, fit=lambda learner: learner.fit(15, 1e-3), scores=(error_rate,)),
    "fastai-digits-fit-flat-cosine": partial(fitted, fit=lambda learner: learner.fit_flat_cos(15, 1e-3)),
    "fastai-digits-two-epochs": partial(fitted, fit=lambda learner: learner.fit_one_cycle(2, 5e-3)),
    "fastai-digits-rate-10": partial(fitted, fit=lambda learner: learner.fit(20, 10.0)),
    "fastai-digits-rate-1e-9": partial(fitted, fit=lambda learner: learner.fit(20, 1e-9)),
    "fastai-digits-by-heart": partial(
        fitted,
        task=lambda: tasks.few_digits(150),
        model=mlp(64, 256, 256, 10),
        fit=lambda learner: learner.fit(60, 1e-3),
        batch=16,
    ),
    "fastai-regression-nan": partial(
        fitted,
        task=gap_task,
        model=mlp(8, 64, 1),
        loss=lambda out, y: functional.mse_loss(out.squeeze(-1), y),
        scores=(),
        fit=lambda learner: learner.fit(15, 1e-3),
    ),
} | {name: partial(summary, how) for name, how in SUMMARIES.items()}
