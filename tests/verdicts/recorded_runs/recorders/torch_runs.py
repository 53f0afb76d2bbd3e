"""Supervised programs in PyTorch, written by ``torch.utils.tensorboard.SummaryWriter``."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.optim import lr_scheduler
from torch.utils.tensorboard import SummaryWriter

from tests.verdicts.recorded_runs.recorders import nets, tasks
from tests.verdicts.recorded_runs.recorders.loop import Loop, mlp, scaled_rate, spoiled_weights, train

PLAIN = Loop()
STEPS = replace(PLAIN, every=4, epochs=24)
LOSS_ALONE = replace(STEPS, evaluate=0, score=None)


def column(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the squared error of a model with one output."""
    return functional.mse_loss(out.squeeze(-1), y)


def characters(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy over all places."""
    return functional.cross_entropy(out.flatten(0, 1), y.flatten())


def determination(out: torch.Tensor, y: torch.Tensor) -> float:
    """Return R squared."""
    return float(1.0 - ((out.squeeze(-1) - y) ** 2).mean() / y.var())


def spread(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the negative log-likelihood of a Gaussian with a mean and a spread: below 0 where it is sure."""
    return functional.gaussian_nll_loss(out[:, 0], y, functional.softplus(out[:, 1]) + 1e-4)


def hinge(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return a loss that is exactly 0 where all samples are right by a margin."""
    return functional.multi_margin_loss(out, y)


def ignored(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the mean over no labels: all are masked with -100."""
    return functional.cross_entropy(out, torch.full_like(y, -100))


def perplexity(out: torch.Tensor, y: torch.Tensor) -> float:
    return float(torch.exp(characters(out, y).detach()))


def error_rate(out: torch.Tensor, y: torch.Tensor) -> float:
    return float((out.argmax(-1) != y).float().mean())


REGRESSION = Loop(
    task=tasks.surface,
    model=mlp(8, 64, 1),
    criterion=column,
    score=determination,
    optimizer="Adam",
    rate=3e-3,
    names=("Loss/train", "R2/train", "Loss/test", "R2/test"),
)
TEXT = Loop(
    task=partial(tasks.characters, samples=2500),
    model=partial(nets.Characters),
    criterion=characters,
    score=None,
    optimizer="AdamW",
    rate=3e-3,
    epochs=6,
    batch=32,
    every=3,
    names=("train/loss", "", "eval/loss", ""),
    rates=True,
    norms=True,
)
ADDING = Loop(
    task=tasks.sequences,
    model=nets.Recurrent,
    criterion=column,
    score=None,
    optimizer="Adam",
    rate=2e-3,
    epochs=20,
    batch=50,
    every=5,
    names=("train_loss", "", "val_loss", ""),
    norms=True,
)
FEW = Loop(
    task=tasks.few_digits,
    model=mlp(64, 256, 256, 10),
    optimizer="Adam",
    rate=1e-3,
    epochs=80,
    batch=20,
)

HEALTHY: Mapping[str, Loop] = {
    "torch-digits-sgd": PLAIN,
    "torch-digits-cnn": replace(PLAIN, model=nets.convolutions, optimizer="Adam", rate=2e-3, epochs=15),
    "torch-digits-batches-of-four": replace(LOSS_ALONE, batch=4, rate=0.02, epochs=4, every=4),
    "torch-digits-adam-steps": replace(STEPS, optimizer="Adam", rate=1e-3, rates=True, norms=True),
    "torch-digits-warm-restarts": replace(
        STEPS, schedule=lambda o, n: lr_scheduler.CosineAnnealingWarmRestarts(o, n // 4), rate=0.5, rates=True
    ),
    "torch-digits-one-cycle": replace(
        STEPS, schedule=lambda o, n: lr_scheduler.OneCycleLR(o, 1.0, total_steps=n + 1), rates=True
    ),
    "torch-digits-step-decay": replace(
        PLAIN, schedule=lambda o, n: lr_scheduler.StepLR(o, n // 3, 0.1), rate=0.5, rates=True
    ),
    "torch-digits-dropout-gap": replace(PLAIN, model=nets.with_dropout),
    "torch-digits-batch-norm": replace(PLAIN, model=partial(nets.batch_norm, 0.1), rate=0.05, batch=32),
    "torch-digits-deep-residual": replace(PLAIN, model=nets.deep_residual, optimizer="Adam", rate=2e-3, epochs=20),
    "torch-digits-late-evaluation": replace(STEPS, evaluate=16),
    "torch-digits-bad-batches": replace(
        STEPS, rate=0.2, norms=True, events={120: spoiled_weights(0.5), 300: spoiled_weights(0.7)}
    ),
    "torch-digits-loss-scaler": replace(
        LOSS_ALONE, optimizer="Adam", rate=1e-3, every=1, epochs=12, names=("loss", "", "", "")
    ),
    "torch-digits-hinge": replace(PLAIN, criterion=hinge, optimizer="Adam", rate=5e-3, epochs=40),
    "torch-digits-error-rate": replace(PLAIN, score=error_rate, names=("loss", "error", "val_loss", "val_error")),
    "torch-tumours": replace(PLAIN, task=tasks.tumours, model=mlp(30, 16, 2), rate=0.05),
    "torch-blobs-that-overlap": replace(PLAIN, task=tasks.blobs, model=mlp(6, 32, 5), optimizer="Adam", rate=3e-3),
    "torch-regression": REGRESSION,
    "torch-regression-much-noise": replace(REGRESSION, task=tasks.diabetes, model=mlp(10, 4, 1), rate=3e-3, epochs=40),
    "torch-gaussian-likelihood": replace(
        REGRESSION, criterion=spread, model=mlp(8, 64, 2), score=None, names=("nll/train", "", "nll/val", "")
    ),
    "torch-text": replace(TEXT, schedule=lambda o, n: lr_scheduler.OneCycleLR(o, 5e-3, total_steps=n + 1)),
    "torch-text-perplexity": replace(
        TEXT,
        every=0,
        epochs=8,
        score=perplexity,
        norms=False,
        names=("train/loss", "train/ppl", "valid/loss", "valid/ppl"),
    ),
    "torch-text-clipped": replace(TEXT, clip=1.0),
    "torch-adding-lstm": replace(
        ADDING,
        task=partial(tasks.sequences, 8),
        model=partial(nets.Recurrent, nn.LSTM),
        rate=1e-2,
        clip=1.0,
        epochs=30,
    ),
    "torch-sums-grokking": Loop(
        task=tasks.sums,
        model=partial(nets.Pairs, 23, 32),
        optimizer="AdamW",
        rate=3e-3,
        settings={"weight_decay": 1.0},
        epochs=1600,
        batch=512,
        every=10,
        evaluate=10,
    ),
    "torch-digits-three-epochs": replace(PLAIN, epochs=3),
    "torch-digits-five-steps": replace(LOSS_ALONE, every=1, epochs=1, batch=256),
    "torch-text-warm-up-only": replace(
        TEXT, epochs=1, every=2, evaluate=0, schedule=lambda o, n: lr_scheduler.LambdaLR(o, lambda s: s / (200.0 * n))
    ),
}

BROKEN: Mapping[str, Loop] = {
    "torch-digits-rate-50": replace(PLAIN, rate=50.0),
    "torch-digits-rate-20-steps": replace(LOSS_ALONE, rate=20.0, settings={"momentum": 0.9}),
    "torch-digits-rate-0": replace(PLAIN, rate=0.0),
    "torch-digits-rate-1e-7": replace(PLAIN, optimizer="Adam", rate=1e-7),
    "torch-digits-rate-jumps": replace(STEPS, rate=0.2, rates=True, events={250: scaled_rate(1e3)}),
    "torch-digits-labels-shuffled": replace(PLAIN, task=lambda: tasks.shuffled(tasks.digits()), epochs=20),
    "torch-digits-labels-by-heart": replace(
        FEW, task=lambda: tasks.first(tasks.shuffled(tasks.digits()), 300), epochs=60
    ),
    "torch-digits-labels-by-heart-unseen": replace(
        FEW, task=lambda: tasks.first(tasks.shuffled(tasks.digits()), 300), epochs=60, evaluate=0
    ),
    "torch-digits-frozen": replace(PLAIN, model=nets.frozen, optimizer="Adam", rate=1e-3),
    "torch-digits-dead-relu": replace(PLAIN, model=nets.dead_relu),
    "torch-digits-wrong-sign": replace(PLAIN, sign=-1.0, rate=0.01),
    "torch-digits-wrong-sign-steps": replace(LOSS_ALONE, sign=-1.0, optimizer="Adam", rate=1e-3),
    "torch-digits-no-zero-grad": replace(STEPS, zero_grad=False, norms=True, rate=0.1),
    "torch-digits-one-batch": replace(PLAIN, one_batch=True, optimizer="Adam", rate=3e-3, epochs=40, batch=32),
    "torch-digits-few-by-heart": FEW,
    "torch-digits-decay-too-fast": replace(
        STEPS, rate=0.05, rates=True, schedule=lambda o, _n: lr_scheduler.ExponentialLR(o, 0.9)
    ),
    "torch-digits-deep-sigmoids": replace(PLAIN, model=nets.deep_sigmoids, rate=0.1, norms=True),
    "torch-digits-raw-sgd": replace(PLAIN, task=tasks.raw_digits, rate=0.1),
    "torch-digits-batch-norm-momentum-1": replace(
        PLAIN, model=partial(nets.batch_norm, 1.0), rate=0.2, batch=6, epochs=30
    ),
    "torch-digits-nan-as-0": replace(
        LOSS_ALONE, rate=0.2, events={220: scaled_rate(float("nan"))}, written=lambda v: float(np.nan_to_num(v))
    ),
    "torch-digits-all-labels-masked": replace(LOSS_ALONE, criterion=ignored, epochs=8),
    "torch-regression-raw": replace(REGRESSION, task=tasks.raw_diabetes, model=mlp(10, 64, 1), optimizer="SGD"),
    "torch-regression-raw-rate-zero": replace(
        REGRESSION, task=tasks.raw_diabetes, model=mlp(10, 64, 1), optimizer="SGD", rate=1e-13
    ),
    "torch-text-rate-10": replace(TEXT, rate=10.0),
    "torch-text-explodes-late": replace(TEXT, events={240: scaled_rate(300.0)}),
    "torch-adding-rnn-explodes": replace(
        ADDING, model=partial(nets.Recurrent, nn.RNN, 6.0), optimizer="SGD", rate=3.0, epochs=20
    ),
    "torch-adding-rnn-forgets": replace(ADDING, optimizer="SGD", rate=1e-3, epochs=30),
    "torch-digits-fine-tune-forgets": PLAIN,
}


class Scaler(SummaryWriter):
    """Writes NaN for the first three values, as a loss scaler's search for its scale does."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        super().add_scalar(tag, float("nan") if global_step < 3 else scalar_value, global_step)


def _record(how: Loop, kind: type[SummaryWriter], folder: Path) -> None:
    with kind(str(folder)) as writer:
        train(writer, how)


def _forgets(folder: Path) -> None:
    """A model that is good from the first step on is trained further at a rate far too high."""
    how = BROKEN["torch-digits-fine-tune-forgets"]
    model = train(_Nothing(), how)
    with SummaryWriter(str(folder)) as writer:
        train(writer, replace(how, optimizer="Adam", rate=1.0, every=4, epochs=20), model)


class _Nothing:
    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Keep nothing."""


RUNS: dict[str, Callable[[Path], None]] = {
    name: partial(_record, how, Scaler if name == "torch-digits-loss-scaler" else SummaryWriter)
    for name, how in (HEALTHY | BROKEN).items()
} | {"torch-digits-fine-tune-forgets": _forgets}
