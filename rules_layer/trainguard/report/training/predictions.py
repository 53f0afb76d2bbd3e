"""Labels and predictions of a run: their distribution, and how well they fit: confusion matrix, scores, ROC, residuals.

A class of which nothing was predicted has precision 0, as one without samples has recall 0.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from trainguard.core.errors import TensorUnusableError
from trainguard.formats.tensors.step_view import StepView, is_numeric
from trainguard.report.training.heat_map import HeatMap, ReadBudget
from trainguard.rules.training.readings import float64

MOST_CLASSES = 100
MOST_BINS = 200
CURVE_POINTS = 50
ROC_POINTS = 200

Floats = NDArray[np.float64]


class ConfusionMatrix(msgspec.Struct, frozen=True, kw_only=True):
    """How often each class was taken for each.

    step: The step that it is of.
    classes: Those that labels or predictions name, ascending.
    counts: By label, then by prediction.
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


class ClassScores(msgspec.Struct, frozen=True, kw_only=True):
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


def evaluation(matrix: ConfusionMatrix) -> ClassScores:
    counts = np.asarray(matrix.counts, np.float64)
    hits, of_label, of_prediction = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
    precision, recall = _ratio(hits, of_prediction), _ratio(hits, of_label)
    f1 = _ratio(2.0 * precision * recall, precision + recall)
    scores = np.stack([precision, recall, f1], axis=1).tolist()
    accuracy = float(hits.sum() / counts.sum())
    weights = of_label / of_label.sum()
    return ClassScores(
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


REGRESSION, BINARY, MULTICLASS = "reg:squarederror", "binary:logistic", "multi:softmax"
PROBABILITIES = "multi:softprob"
KNOWN = (REGRESSION, BINARY, MULTICLASS, PROBABILITIES)
_HALF = 0.5


def row_wise(objective: str | None, samples: int, predictions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return one prediction a sample (float64[N]): of each row of ``multi:softprob`` the class of the highest."""
    if objective != PROBABILITIES or not samples or predictions.size % samples or predictions.size == samples:
        return predictions
    highest: NDArray[np.float64] = predictions.reshape(samples, -1).argmax(axis=1).astype(np.float64)
    return highest


def classes_of(
    objective: str | None, labels: NDArray[np.float64], predictions: NDArray[np.float64]
) -> NDArray[np.int64] | None:
    """Return the classes (int64[N]) that predictions name; None where they name none.

    A probability above one half is class 1. Without an objective, whole numbers of labels and predictions are classes.
    """
    if objective == BINARY:
        return (predictions > _HALF).astype(np.int64) if _are_whole(labels) else None
    if objective in (MULTICLASS, PROBABILITIES, None):
        return predictions.astype(np.int64) if _are_whole(labels) and _are_whole(predictions) else None
    return None


def _are_whole(values: NDArray[np.float64]) -> bool:
    return bool((np.abs(values) < 2.0**53).all() and (values == np.trunc(values)).all())


DEFAULT_NAMES = {each: each for each in ("labels", "predictions", "labels_collection", "predictions_collection")}

# More values are counted in bins.
MOST_VALUES = 100

LABEL_BINS = 10
CONFUSION = "training/Confusion"
MOST_STEPS = 480


class LabelCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many samples have a label, or one from ``label`` up to ``until``."""

    label: float
    samples: int
    until: float | None = None


class Predictions(msgspec.Struct, kw_only=True):
    """What is kept of labels and predictions; each label is counted once, at the newest step.

    step: The newest step at which both could be compared.
    classes: Whether labels name classes.
    accuracy: For each class the share of its samples that were predicted as it.
    error_edges: Of ten bins of labels of a regression.
    errors: For each bin the mean absolute error.
    why_not: Why the newest labels and predictions could not be compared.
    ``confusion``, ``roc`` and ``residuals`` are of the newest step, None where they do not apply.
    """

    step: int | None = None
    labels: list[LabelCount] = msgspec.field(default_factory=list)
    classes: bool = False
    confusion: ConfusionMatrix | None = None
    roc: Roc | None = None
    residuals: Residuals | None = None
    accuracy: HeatMap = msgspec.field(
        default_factory=lambda: HeatMap(measure="class_accuracy", keeps="newest", most_columns=MOST_STEPS)
    )
    error_edges: list[float] = msgspec.field(default_factory=list)
    errors: HeatMap = msgspec.field(
        default_factory=lambda: HeatMap(measure="absolute_error", keeps="newest", most_columns=MOST_STEPS)
    )
    why_not: str | None = None

    def fold(
        self, step: StepView, objective: str | None, budget: ReadBudget, names: Mapping[str, str] = DEFAULT_NAMES
    ) -> None:
        """Take in the labels and predictions of a step; one without labels is passed over."""
        label_name = _tensor(step, names["labels"], names["labels_collection"])
        prediction_name = _tensor(step, names["predictions"], names["predictions_collection"])
        if label_name is None or not self.accuracy.is_next():
            return
        allowance = budget.of_step()
        labels = budget.tensor(_numbers, step, label_name, allowance)
        if labels is None:
            return
        self.labels = _counts(labels)
        predictions = None if prediction_name is None else budget.tensor(_numbers, step, prediction_name, allowance)
        if predictions is None:
            return
        self.why_not = None
        predictions = row_wise(objective, labels.size, predictions)
        if labels.shape != predictions.shape:
            self.why_not = f"step {step.step} holds {labels.size:,} labels and {predictions.size:,} predictions"
            return
        finite = np.isfinite(labels) & np.isfinite(predictions)
        self._compare(step.step, labels[finite], predictions[finite], objective)

    def _compare(self, step: int, labels: Floats, predictions: Floats, objective: str | None) -> None:
        predicted = classes_of(objective, labels, predictions)
        self.classes = predicted is not None
        if not labels.size:
            self.why_not = f"step {step} holds no finite labels and predictions"
            return
        self.step = step
        if predicted is None:
            self._regress(step, labels, predictions, objective)
            return
        actual = labels.astype(np.int64)
        self.confusion = confusion(step, actual, predicted)
        if self.confusion is None:
            self.why_not = "labels and predictions name more than 100 classes"
        self.residuals = residuals(step, labels, predicted.astype(np.float64))
        self.roc = roc(step, actual, predictions) if objective == BINARY else None
        self._note_accuracy(step)

    def _regress(self, step: int, labels: Floats, predictions: Floats, objective: str | None) -> None:
        self.confusion = None
        self.residuals = residuals(step, labels, predictions)
        if objective != REGRESSION:
            return
        if not self.error_edges:
            self.error_edges = np.linspace(labels.min(), labels.max(), LABEL_BINS + 1).tolist()
        self.errors.begin(step)
        places = np.clip(np.searchsorted(self.error_edges, labels, side="right") - 1, 0, LABEL_BINS - 1)
        apart = np.abs(predictions - labels)
        names = [f"bin {place}" for place in range(LABEL_BINS)]
        self.errors.rows_of(names)
        for place, name in enumerate(names):
            inside = apart[places == place]
            if inside.size:
                self.errors.put(name, float(inside.mean()))

    def _note_accuracy(self, step: int) -> None:
        matrix = self.confusion
        if matrix is None:
            return
        self.accuracy.begin(step)
        shown = set(self.accuracy.rows_of([str(each) for each in matrix.classes]))
        for place, (name, row) in enumerate(zip(matrix.classes, matrix.counts, strict=True)):
            if sum(row) and str(name) in shown:
                self.accuracy.put(str(name), row[place] / sum(row))


def names_of(given: Mapping[str, object]) -> dict[str, str]:
    return {name: str(given[name]) for name in DEFAULT_NAMES if name in given}


def _tensor(step: StepView, name: str, collection: str) -> str | None:
    return name if name in step.names else min(step.members(collection), default=None)


def _numbers(step: StepView, name: str) -> Floats:
    values = step.value(name)
    if not (is_numeric(values) or values.dtype == np.bool_):
        raise TensorUnusableError(name, step.step, "it holds no numbers")
    found: Floats = float64(values).reshape(-1)
    return found


def _counts(labels: Floats) -> list[LabelCount]:
    """Count each value, of very many in ten equal bins."""
    finite = labels[np.isfinite(labels)]
    values, counts = np.unique(finite, return_counts=True)
    if values.size <= MOST_VALUES:
        return [LabelCount(label=float(value), samples=int(count)) for value, count in zip(values, counts, strict=True)]
    counts, edges = np.histogram(finite, bins=LABEL_BINS)
    return [
        LabelCount(label=float(edges[place]), until=float(edges[place + 1]), samples=int(count))
        for place, count in enumerate(counts)
    ]
