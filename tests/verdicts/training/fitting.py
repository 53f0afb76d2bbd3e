"""Losses, optimizers, and a loop that trains and records what trainers record."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from tests.verdicts.training.network import Array, Model, Parameter, softmax

# Of an output and its targets: the mean loss, and its gradient by the output.
Loss = Callable[[Array, Array], tuple[float, Array]]

Score = Callable[[Array, Array], float]
TINY = 1e-7


class Task(NamedTuple):
    """Inputs and targets of training, and of validation."""

    x: Array
    y: Array
    vx: Array
    vy: Array


@dataclass
class Log:
    """Series by name: of each epoch, and of each step."""

    epochs: dict[str, list[float]] = field(default_factory=dict)
    steps: dict[str, list[float]] = field(default_factory=dict)


def cross_entropy(output: Array, y: Array) -> tuple[float, Array]:
    """Of logits, and classes as numbers."""
    rows, classes = np.arange(len(y)), y.astype(int)
    chances = softmax(output)
    gradient = chances.copy()
    gradient[rows, classes] -= 1.0
    highest = output.max(-1)
    logs = output[rows, classes] - highest - np.log(np.exp(output - highest[:, None]).sum(-1))
    return float(-logs.mean()), gradient / len(y)


def cross_entropy_of_chances(output: Array, y: Array) -> tuple[float, Array]:
    """Of chances that are scaled to 1 and kept away from 0, as Keras does."""
    rows, classes = np.arange(len(y)), y.astype(int)
    sums = output.sum(-1, keepdims=True)
    chance = np.clip(output[rows, classes] / np.where(sums == 0.0, TINY, sums)[:, 0], TINY, 1.0 - TINY)
    gradient = np.tile(1.0 / np.where(sums == 0.0, TINY, sums), (1, output.shape[1]))
    inside = (chance > TINY) & (chance < 1.0 - TINY)
    gradient[rows, classes] -= 1.0 / np.maximum(output[rows, classes], TINY)
    return float(-np.log(chance).mean()), gradient * inside[:, None] / len(y)


def plain_log(output: Array, y: Array) -> tuple[float, Array]:
    """Of chances, by a logarithm that nothing keeps away from 0."""
    rows, classes = np.arange(len(y)), y.astype(int)
    gradient = np.zeros_like(output)
    gradient[rows, classes] = -1.0 / output[rows, classes]
    picked = np.zeros_like(output)
    picked[rows, classes] = 1.0
    return float(-(picked * np.log(output)).sum(-1).mean()), gradient / len(y)


def binary_cross_entropy(output: Array, y: Array) -> tuple[float, Array]:
    """Of chances (batch, 1), kept away from 0 and 1."""
    chance = np.clip(output, TINY, 1.0 - TINY)
    inside = (output > TINY) & (output < 1.0 - TINY)
    gradient = (chance - y) / (chance * (1.0 - chance)) * inside
    return float(-(y * np.log(chance) + (1.0 - y) * np.log(1.0 - chance)).mean()), gradient / y.size


def squared_error(output: Array, y: Array) -> tuple[float, Array]:
    return float(((output - y) ** 2).mean()), 2.0 * (output - y) / output.size


def one_hot(loss: Loss, classes: int) -> Loss:
    return lambda output, y: loss(output, np.eye(classes)[y.astype(int)])


def accuracy(output: Array, y: Array) -> float:
    return float((output.argmax(-1) == y).mean())


def binary_accuracy(output: Array, y: Array) -> float:
    return float(((output > 0.5) == y).mean())


def absolute_error(output: Array, y: Array) -> float:
    return float(np.abs(output - y).mean())


class Optimizer(Protocol):
    rate: float

    def step(self, parameters: list[Parameter]) -> None: ...


class Sgd:
    def __init__(self, rate: float, *, momentum: float = 0.0, decay: float = 0.0):
        self.rate, self._momentum, self._decay = rate, momentum, decay
        self._speeds: dict[int, Array] = {}

    def step(self, parameters: list[Parameter]) -> None:
        for each in parameters:
            gradient = each.gradient + self._decay * each.value
            speed = self._momentum * self._speeds.get(id(each), np.zeros_like(each.value)) - self.rate * gradient
            self._speeds[id(each)] = speed
            each.value += speed


class Adam:
    def __init__(self, rate: float, *, first: float = 0.9, second: float = 0.999):
        self.rate, self._first, self._second = rate, first, second
        self._moments: dict[int, tuple[Array, Array]] = {}
        self._steps = 0

    def step(self, parameters: list[Parameter]) -> None:
        self._steps += 1
        for each in parameters:
            zero = np.zeros_like(each.value)
            mean, square = self._moments.get(id(each), (zero, zero))
            mean = self._first * mean + (1.0 - self._first) * each.gradient
            square = self._second * square + (1.0 - self._second) * each.gradient**2
            self._moments[id(each)] = mean, square
            unbiased = mean / (1.0 - self._first**self._steps)
            each.value -= self.rate * unbiased / (np.sqrt(square / (1.0 - self._second**self._steps)) + 1e-8)


@dataclass(kw_only=True)
class Fit:
    """How a model is trained; ``schedule`` gives the learning rate of a step."""

    loss: Loss
    optimizer: Optimizer
    epochs: int = 20
    batch: int = 32
    scores: Mapping[str, Score] = field(default_factory=dict)
    schedule: Callable[[int], float] | None = None
    sign: float = 1.0
    zero_gradient: bool = True
    clip: float | None = None
    shuffle: bool = True
    validation_input: Callable[[Array], Array] = lambda x: x


def fit(rng: np.random.Generator, model: Model, task: Task, how: Fit) -> Log:
    """Train; record means over each epoch and validation after it, and each step's loss, gradient norm and rate."""
    log, step = Log(), 0
    trained = [each for each in model.parameters if each.trains]
    with np.errstate(all="ignore"):
        for _ in range(how.epochs):
            order = rng.permutation(len(task.x)) if how.shuffle else np.arange(len(task.x))
            rows = []
            for start in range(0, len(order) - how.batch + 1, how.batch):
                part = order[start : start + how.batch]
                if how.schedule is not None:
                    how.optimizer.rate = how.schedule(step)
                rows.append(_step(model, task.x[part], task.y[part], trained, how, log))
                step += 1
            output = model.forward(how.validation_input(task.vx), training=False)
            row = {name: float(np.mean([each[name] for each in rows])) for name in rows[0]}
            row["val_loss"] = how.loss(output, task.vy)[0] * how.sign
            row |= {f"val_{name}": score(output, task.vy) for name, score in how.scores.items()}
            for name, value in row.items():
                log.epochs.setdefault(name, []).append(value)
    return log


def _step(model: Model, x: Array, y: Array, trained: list[Parameter], how: Fit, log: Log) -> dict[str, float]:
    output = model.forward(x, training=True)
    loss, gradient = how.loss(output, y)
    if how.zero_gradient:
        for each in model.parameters:
            each.gradient[...] = 0.0
    model.backward(how.sign * gradient)
    norm = float(np.sqrt(sum((each.gradient**2).sum() for each in model.parameters)))
    if how.clip is not None and norm > how.clip:
        for each in model.parameters:
            each.gradient *= how.clip / norm
    for name, value in (("loss", how.sign * loss), ("grad_norm", norm), ("lr", how.optimizer.rate)):
        log.steps.setdefault(name, []).append(value)
    how.optimizer.step(trained)
    return {"loss": how.sign * loss} | {name: score(output, y) for name, score in how.scores.items()}
