"""Labels and predictions of a run: their distribution, and at each step how well they fit."""

from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from trainguard.core.errors import TensorUnusableError
from trainguard.formats.tensors.step_view import StepView, is_numeric
from trainguard.report.training.heat_map import HeatMap, ReadBudget
from trainguard.report.training.scores import ConfusionMatrix, Floats, Residuals, Roc, confusion, residuals, roc
from trainguard.rules.training.readings import float64

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

MOST_VALUES = 100
"""More values are counted in bins."""

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

    Attributes
    ----------
    step : int or None
        The newest step at which both could be compared.
    labels : list of LabelCount
    classes : bool
        Whether labels name classes.
    confusion, roc, residuals
        Of the newest step; None where they do not apply.
    accuracy : HeatMap
        For each class the share of its samples that were predicted as it.
    error_edges : list of float
        Of ten bins of labels of a regression.
    errors : HeatMap
        For each bin the mean absolute error.
    why_not : str or None
        Why the newest labels and predictions could not be compared.
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
