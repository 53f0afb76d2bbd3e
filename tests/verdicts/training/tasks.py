"""Small data sets that the programs train on, drawn for each run."""

import numpy as np

from tests.verdicts.training.fitting import Task
from tests.verdicts.training.network import Array


def split(x: Array, y: Array, share: float = 0.75) -> Task:
    cut = int(len(x) * share)
    return Task(x[:cut], y[:cut], x[cut:], y[cut:])


def pixels(rng: np.random.Generator, n: int = 600, side: int = 8, noise: float = 0.25) -> Task:
    """Six classes of images from 0 to 1: bright bars and squares that move by a pixel."""
    y = rng.integers(0, 6, n)
    images = np.zeros((n, side, side))
    for image, label, i, j in zip(images, y, rng.integers(0, 2, n), rng.integers(0, 2, n), strict=True):
        if label < 2:
            image[1 + 4 * label + i] = 1.0
        elif label < 4:
            image[:, 1 + 4 * (label - 2) + j] = 1.0
        elif label == 4:
            image[2 + i : 5 + i, 2 + j : 5 + j] = 1.0
        else:
            np.fill_diagonal(image[:, j:], 1.0)
    images = np.clip(images + noise * rng.normal(size=images.shape), 0.0, 1.0)
    return split(images.reshape(n, -1), y.astype(float))


def flowers(rng: np.random.Generator, n: int = 450, spread: float = 0.5) -> Task:
    """Three classes of four lengths in centimetres, of which two overlap."""
    centres = np.array([[5.0, 3.4, 1.5, 0.2], [5.9, 2.8, 4.3, 1.3], [6.6, 3.0, 5.6, 2.0]])
    y = rng.integers(0, 3, n)
    return split(centres[y] + spread * rng.normal(size=(n, 4)), y.astype(float))


def patients(rng: np.random.Generator, n: int = 600) -> Task:
    """Two classes by raw measures: age, pressure, glucose, income; 8 % of the labels are wrong."""
    x = rng.normal([50.0, 120.0, 100.0, 40_000.0], [15.0, 15.0, 25.0, 15_000.0], (n, 4))
    risk = (x[:, 0] - 50) / 15 + (x[:, 1] - 120) / 15 + (x[:, 2] - 100) / 25
    y = (risk > 0) ^ (rng.random(n) < 0.08)
    return split(x, y[:, None].astype(float))


def moons(rng: np.random.Generator, n: int = 480, noise: float = 0.12) -> Task:
    y = rng.integers(0, 2, n)
    turn = np.pi * rng.random(n)
    x = np.stack([np.cos(turn) * (1 - 2 * y) + y, np.sin(turn) * (1 - 2 * y) + 0.4 * y], 1)
    return split(x + noise * rng.normal(size=x.shape), y[:, None].astype(float))


def exclusive_or(rng: np.random.Generator, n: int = 480) -> Task:
    x = rng.uniform(-1.0, 1.0, (n, 2))
    return split(x, ((x[:, 0] > 0) ^ (x[:, 1] > 0))[:, None].astype(float))


def flats(rng: np.random.Generator, n: int = 480) -> Task:
    """Rents of about 1,200 from raw area, rooms, year and distance."""
    x = np.stack([rng.uniform(25, 160, n), rng.integers(1, 7, n), rng.uniform(1900, 2020, n), rng.uniform(0, 30, n)], 1)
    rent = 9.0 * x[:, 0] + 60.0 * x[:, 1] + 2.0 * (x[:, 2] - 1900) - 8.0 * x[:, 3] + 60.0 * rng.normal(size=n)
    return split(x, rent[:, None])


def wave(rng: np.random.Generator, n: int = 480, noise: float = 0.1) -> Task:
    """A smooth function of one number, between -1 and 1."""
    x = rng.uniform(-3.0, 3.0, (n, 1))
    return split(x, np.sin(2.0 * x) + noise * rng.normal(size=x.shape))


def surface(rng: np.random.Generator, n: int = 600, noise: float = 0.1) -> Task:
    """A function of six standardised features."""
    x = rng.normal(size=(n, 6))
    y = x[:, 0] * x[:, 1] + np.tanh(x[:, 2]) - 0.5 * x[:, 3]
    return split(x, (y + noise * rng.normal(size=n))[:, None])


def words(rng: np.random.Generator, n: int = 600, vocabulary: int = 60) -> Task:
    """Four topics of texts as counts of words; a quarter of the words belongs to a topic."""
    y = rng.integers(0, 4, n)
    chances = np.full((4, vocabulary), 1.0)
    for topic in range(4):
        chances[topic, topic * 8 : topic * 8 + 8] = 4.0
    chances /= chances.sum(1, keepdims=True)
    return split(np.stack([rng.multinomial(30, chances[topic]) for topic in y]).astype(float), y.astype(float))


def sequences(rng: np.random.Generator, n: int = 480, length: int = 24) -> Task:
    """Series of noise whose mean is the target, times 3."""
    x = rng.normal(0.0, 0.3, (n, length, 1)) + rng.uniform(-1.0, 1.0, (n, 1, 1))
    return split(x, 3.0 * x.mean(1))


def defects(rng: np.random.Generator, n: int = 800, share: float = 0.08) -> Task:
    """Two classes, the second of which is rare."""
    y = rng.random(n) < share
    x = rng.normal(size=(n, 5)) + 1.6 * y[:, None] * np.array([1.0, -1.0, 0.6, 0.0, 0.0])
    return split(x, y[:, None].astype(float))


def standard(task: Task, *, targets: bool = False) -> Task:
    """Scale inputs, and targets if asked to, to mean 0 and deviation 1 of training."""
    mean, deviation = task.x.mean(0), task.x.std(0)
    x, vx = (task.x - mean) / deviation, (task.vx - mean) / deviation
    if not targets:
        return Task(x, task.y, vx, task.vy)
    middle, width = task.y.mean(), task.y.std()
    return Task(x, (task.y - middle) / width, vx, (task.vy - middle) / width)
