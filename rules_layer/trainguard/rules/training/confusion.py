"""Confusion: too many samples of a predicted class are of another one.

Source: AWS documentation of Confusion. Both ratios are of the samples that were predicted as a class: with the
published sum over the diagonal even perfect predictions would fire.
"""

from typing import Annotated, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from trainguard.errors import TensorUnusableError
from trainguard.finding import Fact
from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import NonNegative
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training import data_text
from trainguard.rules.training.data_text import OTHER, RIGHT, ConfusionKind
from trainguard.rules.training.folds import float64
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.readings import Reading, checked, rank, used
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.tensor_words import measured
from trainguard.tensors.step_view import StepView, is_numeric


class ConfusionParameters(StepParameters, frozen=True, kw_only=True):
    """``category_no`` None takes the greatest class of a step; ratios from 0 to 1."""

    rule_name: ClassVar[str] = "Confusion"

    category_no: Annotated[int, msgspec.Meta(ge=2)] | None = None
    labels: str = "labels"
    predictions: str = "predictions"
    labels_collection: str = "labels"
    predictions_collection: str = "predictions"
    min_diag: NonNegative = 0.9
    max_off_diag: NonNegative = 0.1


SPEC = RuleSpec(
    name="training/Confusion",
    family="training",
    title="Confusion of classes",
    looks_at="labels and predictions of a step",
    fires_when="too few of the samples predicted as a class are of it",
    condition=(
        "of the samples predicted as a class less than a share of {min_diag} are of it, or more than {max_off_diag} of "
        "one other class"
    ),
    measures=(
        Measure("share of a predicted class that is right"),
        Measure("share of a predicted class of another one"),
    ),
    counts=STEPS,
    parameters={
        "category_no": ParameterHelp("classes", "how many there are; None for as many as a step shows"),
        "labels": ParameterHelp("name", "the tensor of the labels"),
        "predictions": ParameterHelp("name", "the tensor of the predictions"),
        "labels_collection": ParameterHelp("name", "the collection of the labels, where no tensor is so named"),
        "predictions_collection": ParameterHelp("name", "the collection of the predictions, likewise"),
        "min_diag": ParameterHelp("", "less than this share of a predicted class being right counts"),
        "max_off_diag": ParameterHelp("", "more than this share of a predicted class being of one other counts"),
        **RANGE_HELP,
    },
    text=data_text.confusion,
)


class _Cell(msgspec.Struct, frozen=True):
    """The worst ratio of its kind, of how many samples, and the classes that it is of."""

    ratio: float
    samples: int
    label: int
    predicted: int


class Confusion(StepRule[ConfusionParameters, StepState]):
    """Fires while a step's predictions confuse classes."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = ConfusionParameters
    state_type = StepState
    needs = data_text.CONFUSION_NEEDS

    def check(self, state: StepState, step: StepView, parameters: ConfusionParameters) -> Check | None:
        """Compare labels with predictions, class by class."""
        labels = _tensor(step, parameters.labels, parameters.labels_collection)
        predictions = _tensor(step, parameters.predictions, parameters.predictions_collection)
        if labels is None or predictions is None:
            return None
        cells = used(state, lambda view, name: _worst(view, name, predictions, parameters.category_no), step, labels)
        if cells is None:
            return None
        right, wrong = cells
        readings = [_right(right, predictions, parameters.min_diag)]
        if wrong is not None:
            readings.append(_wrong(wrong, predictions, parameters.max_off_diag))
        worst = max(readings, key=rank)
        return checked(step, [worst], lambda reading: _facts(reading, right, wrong))

    def measure(self, check: Check) -> Measure:
        """Say which of the two ratios was measured."""
        return SPEC.measures[1] if check.kind == ConfusionKind.WRONG else SPEC.measures[0]


def _tensor(step: StepView, name: str, collection: str) -> str | None:
    if name in step.names:
        return name
    return min(step.members(collection), default=None)


def _worst(step: StepView, labels: str, predictions: str, category_no: int | None) -> tuple[_Cell, _Cell | None] | None:
    """Return the least share of right samples of a class, and the greatest share of another class, if there is one."""
    actual, predicted = _classes(step, labels, category_no), _classes(step, predictions, category_no)
    if actual.size != predicted.size:
        reason = f"it has {actual.size:,} labels, and {predictions} {predicted.size:,} predictions"
        raise TensorUnusableError(labels, step.step, reason)
    if not actual.size:
        return None
    classes, indexes = np.unique(np.concatenate([actual, predicted]), return_inverse=True)
    indexes = indexes.ravel()
    of_label, of_prediction = indexes[: actual.size], indexes[actual.size :]
    totals = np.bincount(of_prediction, minlength=classes.size)
    hits = np.bincount(of_prediction[of_label == of_prediction], minlength=classes.size)
    ratios = hits / np.maximum(totals, 1)
    least = int(np.argmin(ratios))
    right = _Cell(float(ratios[least]), int(totals[least]), int(classes[least]), int(classes[least]))
    missed = of_label != of_prediction
    if not missed.any():
        return right, None
    pairs, counts = np.unique(of_label[missed] * classes.size + of_prediction[missed], return_counts=True)
    shares = counts / totals[pairs % classes.size]
    most = int(np.argmax(shares))
    label, prediction = divmod(int(pairs[most]), classes.size)
    return right, _Cell(float(shares[most]), int(totals[prediction]), int(classes[label]), int(classes[prediction]))


def _classes(step: StepView, tensor: str, category_no: int | None) -> NDArray[np.int64]:
    """Return the classes (int64[N]) that a tensor names, cut to whole numbers."""
    values = step.value(tensor)
    if not (is_numeric(values) or values.dtype == np.bool_) or not np.isfinite(float64(values)).all():
        raise TensorUnusableError(tensor, step.step, "it holds values that name no class")
    classes: NDArray[np.int64] = values.ravel().astype(np.int64)
    if classes.size and (classes.min() < 0 or (category_no is not None and classes.max() >= category_no)):
        found = int(classes.min()) if classes.min() < 0 else int(classes.max())
        expected = "from 0" if category_no is None else f"from 0 to {category_no - 1}"
        raise TensorUnusableError(tensor, step.step, f"it holds class {found}, expected classes {expected}")
    return classes


def _right(cell: _Cell, tensor: str, threshold: float) -> Reading:
    kind = ConfusionKind.RIGHT if cell.samples else ConfusionKind.NEVER
    return Reading(tensor, cell.ratio, threshold, cell.ratio < threshold, threshold - cell.ratio, kind)


def _wrong(cell: _Cell, tensor: str, threshold: float) -> Reading:
    return Reading(tensor, cell.ratio, threshold, cell.ratio > threshold, cell.ratio - threshold, ConfusionKind.WRONG)


def _facts(reading: Reading, right: _Cell, wrong: _Cell | None) -> list[Fact]:
    is_other = reading.kind == ConfusionKind.WRONG and wrong is not None
    cell = wrong if is_other and wrong is not None else right
    return [
        measured(OTHER if is_other else RIGHT, reading, "share"),
        Fact(name="label_class", value=cell.label),
        Fact(name="predicted_class", value=cell.predicted),
        Fact(name="predicted_samples", value=cell.samples),
    ]
