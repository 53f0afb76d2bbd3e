"""How well predictions fit labels: confusion matrix, precision and recall, ROC, residuals.

A class of which nothing was predicted has precision 0, as one without samples has recall 0.
"""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

MOST_CLASSES = 100
MOST_BINS = 200
CURVE_POINTS = 50
ROC_POINTS = 200

Floats = NDArray[np.float64]


class ConfusionMatrix(msgspec.Struct, frozen=True, kw_only=True):
    """How often each class was taken for each.

    Attributes
    ----------
    step : int
        The step that it is of.
    classes : list of int
        Those that labels or predictions name, ascending.
    counts : list of list of int
        By label, then by prediction.
    """

    step: int
    classes: list[int]
    counts: list[list[int]]

    @property
    def total(self) -> int:
        return sum(map(sum, self.counts))

    @property
    def accuracy(self) -> float:
        """Share of samples that were predicted as what they are."""
        return sum(row[place] for place, row in enumerate(self.counts)) / self.total


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Precision, recall and F1, each from 0 to 1."""

    precision: float
    recall: float
    f1_score: float


class ClassScore(Score, frozen=True, kw_only=True):
    """Those of one class, and how many samples are of it."""

    name: int
    support: int


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of all classes, and their averages: over samples, over classes, and over classes by their samples."""

    accuracy: float
    classes: list[ClassScore]
    micro: Score
    macro: Score
    weighted: Score


class Roc(msgspec.Struct, frozen=True, kw_only=True):
    """The curve of true over false positive rate (both 0 to 1), and the area below it."""

    step: int
    false_positive: list[float]
    true_positive: list[float]
    auc: float


class Residuals(msgspec.Struct, frozen=True, kw_only=True):
    """A histogram of prediction minus label, and the normal distribution of the same mean and deviation.

    ``edges`` are one more than ``hist``; ``x`` are 50 places of the curve.
    """

    step: int
    hist: list[int]
    edges: list[float]
    x: list[float]
    mu: float
    sigma: float


def confusion(step: int, labels: NDArray[np.int64], predicted: NDArray[np.int64]) -> ConfusionMatrix | None:
    """Return the matrix of int64[N] labels and predictions; None of none, and of more classes than can be shown."""
    if not labels.size:
        return None
    classes, places = np.unique(np.concatenate([labels, predicted]), return_inverse=True)
    if classes.size > MOST_CLASSES:
        return None
    places = places.reshape(-1)
    cells = places[: labels.size] * classes.size + places[labels.size :]
    counts = np.bincount(cells, minlength=classes.size**2).reshape(classes.size, classes.size)
    return ConfusionMatrix(step=step, classes=classes.tolist(), counts=counts.tolist())


def evaluation(matrix: ConfusionMatrix) -> Evaluation:
    counts = np.asarray(matrix.counts, np.float64)
    hits, of_label, of_prediction = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
    precision, recall = _ratio(hits, of_prediction), _ratio(hits, of_label)
    f1 = _ratio(2.0 * precision * recall, precision + recall)
    scores = np.stack([precision, recall, f1], axis=1).tolist()
    accuracy = float(hits.sum() / counts.sum())
    weights = of_label / of_label.sum()
    return Evaluation(
        accuracy=accuracy,
        classes=[
            ClassScore(name=name, precision=p, recall=r, f1_score=both, support=sum(row))
            for name, row, (p, r, both) in zip(matrix.classes, matrix.counts, scores, strict=True)
        ],
        micro=Score(precision=accuracy, recall=accuracy, f1_score=accuracy),
        macro=Score(precision=float(precision.mean()), recall=float(recall.mean()), f1_score=float(f1.mean())),
        weighted=Score(
            precision=float(precision @ weights), recall=float(recall @ weights), f1_score=float(f1 @ weights)
        ),
    )


def roc(step: int, labels: NDArray[np.int64], scores: Floats) -> Roc | None:
    """Return the curve of int64[N] labels 0 and 1 and float64[N] scores; None of one class alone.

    The area is that of all points; of very many points the curve keeps an even choice.
    """
    positives = int(labels.sum())
    negatives = labels.size - positives
    if not positives or not negatives:
        return None
    order = np.argsort(-scores, kind="stable")
    ranked, sorted_scores = labels[order], scores[order]
    last = np.append(np.flatnonzero(np.diff(sorted_scores)), labels.size - 1)
    hits = np.cumsum(ranked)[last]
    true = np.concatenate([[0.0], hits / positives])
    false = np.concatenate([[0.0], (last + 1 - hits) / negatives])
    area = float(np.sum(np.diff(false) * (true[1:] + true[:-1]) / 2.0))
    kept = np.unique(np.linspace(0, true.size - 1, min(true.size, ROC_POINTS)).round().astype(int))
    return Roc(step=step, false_positive=false[kept].tolist(), true_positive=true[kept].tolist(), auc=area)


def residuals(step: int, labels: Floats, predictions: Floats) -> Residuals | None:
    """Return the residuals of float64[N] labels and predictions; None of none."""
    apart = predictions - labels
    apart = apart[np.isfinite(apart)]
    if not apart.size:
        return None
    counts, edges = np.histogram(apart, bins=_bins(apart))
    low, high = float(apart.min()), float(apart.max())
    return Residuals(
        step=step,
        hist=counts.tolist(),
        edges=edges.tolist(),
        x=np.linspace(low, high, CURVE_POINTS).tolist(),
        mu=float(apart.mean()),
        sigma=float(apart.std()),
    )


def _bins(values: Floats) -> int | Floats:
    """Return the edges between whole numbers, else numpy's "auto" number of bins, bounded."""
    span = float(np.ptp(values))
    if span < MOST_BINS and (values == np.trunc(values)).all():
        return np.arange(values.min() - 0.5, values.max() + 1.0)
    if not span > 0.0:
        return 1
    low, high = np.percentile(values, [25.0, 75.0])
    sturges = span / (np.log2(values.size) + 1.0)
    spread = 2.0 * float(high - low) / values.size ** (1.0 / 3.0)
    width = min(sturges, spread) if spread > 0.0 else sturges
    return int(min(np.ceil(span / width), MOST_BINS))


def _ratio(part: NDArray[Any], whole: NDArray[Any]) -> Floats:
    found: Floats = np.divide(part, whole, out=np.zeros_like(whole, dtype=np.float64), where=whole > 0.0)
    return found
