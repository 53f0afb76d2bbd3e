"""A training loop in PyTorch as people write it: it hands each value to a writer by name and step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.verdicts.recorded_runs.recorders.tasks import Task, digits

Schedule = Callable[[torch.optim.Optimizer, int], torch.optim.lr_scheduler.LRScheduler]
Criterion = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Event = Callable[[nn.Module, torch.optim.Optimizer], None]


class Writer(Protocol):
    """Takes a value, as SummaryWriter does."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> object: ...


def mlp(*sizes: int, act: type[nn.Module] = nn.ReLU) -> Callable[[], nn.Module]:
    """Return what makes a network of dense layers."""

    def make() -> nn.Module:
        layers: list[nn.Module] = []
        for wide, narrow in pairwise(sizes):
            layers += [nn.Linear(wide, narrow), act()]
        return nn.Sequential(*layers[:-1])

    return make


def accuracy(out: torch.Tensor, y: torch.Tensor) -> float:
    """Return the share of right answers."""
    return float((out.argmax(-1) == y).float().mean())


DENSE = mlp(64, 64, 10)


@dataclass(frozen=True)
class Loop:
    """What is trained and how; ``events`` happen before the step of their number.

    ``every`` is how many steps lie between two records of training, 0 for epochs; ``evaluate`` how many epochs lie
    between two evaluations, 0 for none.
    """

    task: Callable[[], Task] = digits
    model: Callable[[], nn.Module] = DENSE
    criterion: Criterion = functional.cross_entropy
    score: Callable[[torch.Tensor, torch.Tensor], float] | None = accuracy
    optimizer: str = "SGD"
    rate: float = 0.1
    settings: dict[str, float] = field(default_factory=dict)
    epochs: int = 30
    batch: int = 64
    every: int = 0
    evaluate: int = 1
    schedule: Schedule | None = None
    sign: float = 1.0
    zero_grad: bool = True
    one_batch: bool = False
    clip: float | None = None
    norms: bool = False
    rates: bool = False
    written: Callable[[float], float] = float
    events: dict[int, Event] = field(default_factory=dict)
    names: tuple[str, str, str, str] = ("train/loss", "train/accuracy", "val/loss", "val/accuracy")
    seed: int = 0


def train(writer: Writer, how: Loop, model: nn.Module | None = None, *, begin: int = 0) -> nn.Module:
    """Train, and hand the writer what the loop records; ``begin`` is the step before the first."""
    torch.manual_seed(how.seed)
    task = Task(*map(torch.from_numpy, how.task()))
    model = model or how.model()
    optimizer = getattr(torch.optim, how.optimizer)(model.parameters(), lr=how.rate, **how.settings)
    steps_an_epoch = -(-len(task.x) // how.batch)
    schedule = how.schedule and how.schedule(optimizer, how.epochs * steps_an_epoch)
    step, rng = begin, np.random.default_rng(how.seed)
    for epoch in range(1, how.epochs + 1):
        sums: list[tuple[float, float]] = []
        model.train()
        for batch in _batches(rng, len(task.x), how):
            if step in how.events:
                how.events[step](model, optimizer)
            values = _step(model, optimizer, how, task.x[batch], task.y[batch])
            if schedule:
                schedule.step()
            sums.append(values[:2])
            if how.every and step % how.every == 0:
                _write(writer, how, optimizer, step, values)
            step += 1
        if not how.every:
            means = np.mean(sums, axis=0)
            _write(writer, how, optimizer, epoch, (float(means[0]), float(means[1]), values[2]))
        if how.evaluate and epoch % how.evaluate == 0:
            _evaluate(writer, how, model, task, step if how.every else epoch)
    return model


def _batches(rng: np.random.Generator, samples: int, how: Loop) -> Iterator[np.ndarray]:
    order = rng.permutation(samples)
    for place in range(0, samples, how.batch):
        yield np.arange(how.batch) if how.one_batch else order[place : place + how.batch]


def _step(
    model: nn.Module, optimizer: torch.optim.Optimizer, how: Loop, x: torch.Tensor, y: torch.Tensor
) -> tuple[float, float, float]:
    out = model(x)
    loss = how.sign * how.criterion(out, y)
    if how.zero_grad:
        optimizer.zero_grad()
    if loss.requires_grad:
        loss.backward()
    largest = float("inf") if how.clip is None else how.clip
    norm = nn.utils.clip_grad_norm_(model.parameters(), largest) if how.norms or how.clip else 0.0
    optimizer.step()
    return float(loss.detach()), how.score(out, y) if how.score else 0.0, float(norm)


def _write(
    writer: Writer, how: Loop, optimizer: torch.optim.Optimizer, step: int, values: tuple[float, float, float]
) -> None:
    writer.add_scalar(how.names[0], how.written(values[0]), step)
    if how.score:
        writer.add_scalar(how.names[1], values[1], step)
    if how.norms:
        writer.add_scalar("train/grad_norm", values[2], step)
    if how.rates:
        writer.add_scalar("train/lr", optimizer.param_groups[0]["lr"], step)


def _evaluate(writer: Writer, how: Loop, model: nn.Module, task: Task, step: int) -> None:
    model.eval()
    with torch.no_grad():
        out = model(task.vx)
        writer.add_scalar(how.names[2], float(how.criterion(out, task.vy)), step)
        if how.score:
            writer.add_scalar(how.names[3], how.score(out, task.vy), step)


def scaled_rate(factor: float) -> Event:
    """Return an event that multiplies the learning rate."""

    def event(_model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            group["lr"] *= factor

    return event


def spoiled_weights(factor: float) -> Event:
    """Return an event that adds noise to all weights, as a bad batch or a damaged checkpoint does."""

    def event(model: nn.Module, _optimizer: torch.optim.Optimizer) -> None:
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(factor * torch.randn_like(weight) * weight.std().nan_to_num())

    return event
