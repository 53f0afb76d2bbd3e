"""Small tasks that need no download, split into training and validation. Values are float32, classes int64."""

import argparse
import inspect
from typing import NamedTuple

import numpy as np
from sklearn import datasets


class Task(NamedTuple):
    """Inputs and targets of training and of validation."""

    x: np.ndarray
    y: np.ndarray
    vx: np.ndarray
    vy: np.ndarray


def split(x: np.ndarray, y: np.ndarray, seed: int = 0, held_out: float = 0.3) -> Task:
    """Return samples in another order, the last share held out."""
    order = np.random.default_rng(seed).permutation(len(x))
    x, y = x[order].astype(np.float32), y[order]
    y = y.astype(np.float32 if y.dtype.kind == "f" else np.int64)
    first = len(x) - int(held_out * len(x))
    return Task(x[:first], y[:first], x[first:], y[first:])


def digits() -> Task:
    """1,797 images of 8 x 8 pixels, ten classes."""
    x, y = datasets.load_digits(return_X_y=True)
    return split(x / 16.0, y)


def raw_digits() -> Task:
    """The same, not scaled, and from 0 to 4,080."""
    x, y = datasets.load_digits(return_X_y=True)
    return split(x * 255.0, y)


def few_digits(samples: int = 120, wrong: float = 0.3) -> Task:
    """The same with few samples to train on, of which a share has a wrong label."""
    task, rng = digits(), np.random.default_rng(1)
    y = task.y[:samples].copy()
    bad = rng.random(samples) < wrong
    y[bad] = rng.integers(0, 10, bad.sum())
    return Task(task.x[:samples], y, task.vx, task.vy)


def shuffled(task: Task) -> Task:
    """Return the task with targets of other samples, in both parts."""
    rng = np.random.default_rng(2)
    return Task(task.x, rng.permutation(task.y), task.vx, rng.permutation(task.vy))


def first(task: Task, samples: int) -> Task:
    """Return the task with the first samples to train on."""
    return Task(task.x[:samples], task.y[:samples], task.vx, task.vy)


def tumours() -> Task:
    """569 samples of 30 measures, standardised, two classes."""
    x, y = datasets.load_breast_cancer(return_X_y=True)
    return split((x - x.mean(0)) / x.std(0), y)


def diabetes() -> Task:
    """442 samples, ten measures, a standardised target."""
    x, y = datasets.load_diabetes(return_X_y=True)
    return split(x / x.std(0), (y - y.mean()) / y.std())


def raw_diabetes() -> Task:
    """The same with measures of thousands and targets from 25 to 346, as in the file."""
    x, y = datasets.load_diabetes(return_X_y=True)
    return split(x / x.std(0) * 1000.0, y.astype(float))


def surface(samples: int = 1500) -> Task:
    """A regression of eight inputs with little noise (Friedman's first)."""
    x, y = datasets.make_friedman1(samples, n_features=8, noise=0.5, random_state=3)
    return split(x, (y - y.mean()) / y.std())


def blobs(classes: int = 5, samples: int = 1500, noise: float = 6.0) -> Task:
    """Clouds of points that overlap."""
    x, y = datasets.make_blobs(samples, n_features=6, centers=classes, cluster_std=noise, random_state=4)
    return split(x / 6.0, y)


def moons(samples: int = 1200) -> Task:
    """Two half moons."""
    x, y = datasets.make_moons(samples, noise=0.2, random_state=5)
    return split(x, y)


def characters(length: int = 24, samples: int = 4000) -> Task:
    """Windows of Python's source, and the character after each position; the alphabet has 96 letters."""
    text = inspect.getsource(argparse)
    codes = np.clip(np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.int64) - 32, 0, 95)
    places = np.random.default_rng(6).integers(0, len(codes) - length - 1, samples)
    x = np.stack([codes[place : place + length] for place in places])
    y = np.stack([codes[place + 1 : place + length + 1] for place in places])
    cut = int(0.8 * samples)
    return Task(x[:cut], y[:cut], x[cut:], y[cut:])


def sums(modulus: int = 23, share: float = 0.8) -> Task:
    """All pairs of numbers and their sum modulo a prime, of which a share is trained on."""
    a, b = np.divmod(np.arange(modulus * modulus), modulus)
    order = np.random.default_rng(7).permutation(len(a))
    x, y = np.stack([a, b], 1)[order], ((a + b) % modulus)[order]
    cut = int(share * len(x))
    return Task(x[:cut], y[:cut], x[cut:], y[cut:])


def sequences(length: int = 30, samples: int = 1500) -> Task:
    """The adding problem: the sum of the two marked numbers of a sequence."""
    rng = np.random.default_rng(8)
    x = np.zeros((samples, length, 2), np.float32)
    x[:, :, 0] = rng.random((samples, length))
    for row in x:
        row[rng.choice(length, 2, replace=False), 1] = 1.0
    return split(x, (x[:, :, 0] * x[:, :, 1]).sum(1).astype(float))
