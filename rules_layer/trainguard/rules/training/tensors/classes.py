"""ClassImbalance and Confusion: classes that differ too much in size, or are predicted wrongly.

Source: AWS documentation of both. Confusion's ratios are of the samples predicted as a class: with the published sum
over the diagonal even perfect predictions would fire.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from trainguard.core.errors import TensorUnusableError
from trainguard.core.finding import Fact
from trainguard.formats.tensors.step_view import StepView, Tensor, is_numeric
from trainguard.rules.change import ChangeCode
from trainguard.rules.protocol import NonNegative, NonNegativeInt
from trainguard.rules.rule_result import FactSheet, Measure, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.readings import MetricReading, checked, float64, measured, rank, step_check, used
from trainguard.rules.training.selection import matching
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.step_words import filled, filled_each, said, step_spec, worded

# Which condition of ClassImbalance is nearest to firing; the status says whether it holds.
IMBALANCE, MISPREDICTION, WAITS = "imbalance", "misprediction", "too few samples"
# Which share of a predicted class Confusion reports; the status says whether its threshold is crossed.
IS_RIGHT, IS_WRONG, NEVER = "right", "wrong", "never predicted"

_MISPREDICTED = (
    "{samples_predicted_wrongly:,} of {class_samples:,} samples of class {class} were predicted wrongly "
    "({share_predicted_wrongly.series}), a share of {share_predicted_wrongly}, "
    "{share_predicted_wrongly:against above|not above}"
)


def _balance(sheet: FactSheet) -> Words:
    if sheet.kind == WAITS:
        return said(
            sheet, filled(sheet, "{samples:,} of the {samples.threshold:,.0f} samples that are waited for were saved")
        )
    advice = "Draw the classes more evenly, or weight the loss by class; judge the model by each class's own recall."
    if sheet.kind == MISPREDICTION:
        advice = "Look at samples and labels of this class: too few, mislabelled, or too like another class."
    which, than = "each class", ""
    if sheet.get("smallest_class") is not None:
        which, than = "class {largest_class}", " and class {smallest_class} {smallest_class_samples:,}"
    ratio = (
        f"{which} {{had/has}} {{largest_class_samples:,}} samples in {{class_ratio.series}}{than}, a ratio of "
        "{class_ratio}, {class_ratio:against above|not above}"
    )
    sentence = filled_each(sheet, {"class_ratio": ratio, "share_predicted_wrongly": _MISPREDICTED})
    return said(sheet, sentence, advice, "classes were out of balance")


_RIGHT = "right, {share_right:against below|not below}"
_PREDICTED = "of the {predicted_samples:,} samples predicted as class {predicted_class} "


MOST_CLASSES = 1_024
Classes = NDArray[np.int64]


class ClassImbalanceParameters(StepParameters, frozen=True, kw_only=True):
    threshold_imbalance: NonNegative = 10.0
    threshold_misprediction: NonNegative = 0.7
    samples: NonNegativeInt = 500
    argmax: bool = False
    labels_regex: str = ".*labels"
    predictions_regex: str = ".*predictions"


class ClassImbalanceState(StepState, kw_only=True):
    """Samples of each class, and those of them that were predicted wrongly; at most 1,024 classes."""

    counts: dict[int, int] = msgspec.field(default_factory=dict)
    wrong: dict[int, int] = msgspec.field(default_factory=dict)


class ClassImbalance(StepRule[ClassImbalanceParameters, ClassImbalanceState]):
    spec = step_spec(
        "ClassImbalance",
        title="Class imbalance",
        looks_at="labels and predictions",
        fires_when="classes differ too much in size, or one is mostly predicted wrongly",
        condition=(
            "after {samples} samples the largest class has more than {threshold_imbalance} times those of the "
            "smallest, or more than a share of {threshold_misprediction} of a class is predicted wrongly"
        ),
        measures=(Measure("ratio of the largest to the smallest class"), Measure("share of a class predicted wrongly")),
        parameters={
            "threshold_imbalance": ParameterHelp(
                "", "a ratio of the largest to the smallest class above it is too high"
            ),
            "threshold_misprediction": ParameterHelp("", "a share of a class predicted wrongly above it is too high"),
            "samples": ParameterHelp("samples", "how many are waited for"),
            "argmax": ParameterHelp("", "whether predictions are scores of all classes along their last axis"),
            "labels_regex": ParameterHelp("pattern", "a regular expression that names of labels match"),
            "predictions_regex": ParameterHelp("pattern", "a regular expression that names of predictions match"),
        },
        needs=(
            "It checks labels and predictions saved at the same step: record both in full, with "
            "CollectionConfig(name='labels', parameters={'include_regex': '.*labels'}) and the same for predictions."
        ),
        changes={"": ChangeCode.BALANCE_CLASSES},
        say=_balance,
        kinds=(IMBALANCE, MISPREDICTION, WAITS),
        bound=("sample", "of classes beyond the first 1,024"),
    )

    def check(self, state: ClassImbalanceState, step: StepView, parameters: ClassImbalanceParameters) -> Check | None:
        labels = matching(step, parameters.labels_regex)
        predictions = matching(step, parameters.predictions_regex)
        pairs = list(zip(labels, predictions, strict=False))
        if len(labels) != len(predictions):
            pairs = pairs[:1]
        added = [used(state, partial(_add, state, parameters, of), step, name) for name, of in pairs]
        if not any(added):
            return None
        total = sum(state.counts.values())
        if total < parameters.samples:
            samples = Fact(name="samples", value=total, threshold=float(parameters.samples))
            return step_check(step, [samples], fires=False, kind=WAITS)
        readings = _balance_readings(state, labels[0], predictions[0], parameters)
        worst = max(readings, key=rank)
        shown = [each for each in readings if each.fires] or [worst]
        return checked(step, [worst], lambda _: [fact for each in shown for fact in _balance_facts(state, each)])

    measures_by_kind: ClassVar[Mapping[str, Measure]] = {MISPREDICTION: spec.measures[1]}


def _add(
    state: ClassImbalanceState, parameters: ClassImbalanceParameters, predictions: str, step: StepView, tensor: str
) -> bool:
    labels = _rounded_classes(step, tensor, step.value(tensor))
    scores = step.value(predictions)
    if parameters.argmax:
        if not is_numeric(scores) or not scores.size or np.isnan(float64(scores)).any():
            raise TensorUnusableError(predictions, step.step, "it holds no numbers, or NaN")
        predicted: Classes = np.argmax(scores, axis=-1).ravel().astype(np.int64)
    else:
        predicted = _rounded_classes(step, predictions, scores)
    if labels.size != predicted.size:
        reason = f"it has {labels.size:,} labels, and {predictions} {predicted.size:,} predictions"
        raise TensorUnusableError(tensor, step.step, reason)
    for found in np.unique(labels).tolist():
        of_class = labels == found
        count = int(np.count_nonzero(of_class))
        if found not in state.counts and len(state.counts) >= MOST_CLASSES:
            state.left_out += count
            continue
        state.counts[found] = state.counts.get(found, 0) + count
        missed = int(np.count_nonzero(predicted[of_class] != found))
        if missed:
            state.wrong[found] = state.wrong.get(found, 0) + missed
    return labels.size > 0


def _rounded_classes(step: StepView, tensor: str, values: Tensor) -> Classes:
    if not is_numeric(values) or not np.isfinite(float64(values)).all():
        raise TensorUnusableError(tensor, step.step, "it holds values that name no class")
    return np.rint(float64(values)).ravel().astype(np.int64)


def _balance_readings(
    state: ClassImbalanceState, labels: str, predictions: str, parameters: ClassImbalanceParameters
) -> list[MetricReading]:
    most, least = parameters.threshold_imbalance, parameters.threshold_misprediction
    ratio = max(state.counts.values()) / min(state.counts.values())
    share = max(state.wrong.get(found, 0) / count for found, count in state.counts.items())
    return [
        MetricReading(labels, ratio, most, ratio > most, ratio / most if most else 1.0, IMBALANCE),
        MetricReading(predictions, share, least, share > least, share / least if least else 1.0, MISPREDICTION),
    ]


def _balance_facts(state: ClassImbalanceState, reading: MetricReading) -> list[Fact]:
    counts = state.counts
    if reading.kind == IMBALANCE:
        largest, smallest = max(counts, key=lambda each: counts[each]), min(counts, key=lambda each: counts[each])
        facts = [measured("class_ratio", reading), Fact(name="largest_class_samples", value=counts[largest])]
        if largest != smallest:
            facts.append(Fact(name="largest_class", value=largest))
            facts.append(Fact(name="smallest_class", value=smallest))
            facts.append(Fact(name="smallest_class_samples", value=counts[smallest]))
        return facts
    worst = max(counts, key=lambda each: state.wrong.get(each, 0) / counts[each])
    return [
        measured("share_predicted_wrongly", reading, "share"),
        Fact(name="class", value=worst),
        Fact(name="class_samples", value=counts[worst]),
        Fact(name="samples_predicted_wrongly", value=state.wrong.get(worst, 0)),
    ]


class ConfusionParameters(StepParameters, frozen=True, kw_only=True):
    category_no: Annotated[int, msgspec.Meta(ge=2)] | None = None
    labels: str = "labels"
    predictions: str = "predictions"
    labels_collection: str = "labels"
    predictions_collection: str = "predictions"
    min_diag: NonNegative = 0.9
    max_off_diag: NonNegative = 0.1


# The worst ratio of its kind, of how many samples, and the classes that it is of: the label and the predicted one.
Cell = tuple[float, int, int, int]


class Confusion(StepRule[ConfusionParameters, StepState]):
    spec = step_spec(
        "Confusion",
        title="Confusion of classes",
        looks_at="labels and predictions of a step",
        fires_when="too few of the samples predicted as a class are of it",
        condition=(
            "of the samples predicted as a class less than a share of {min_diag} are of it, or more than "
            "{max_off_diag} of one other class"
        ),
        measures=(
            Measure("share of a predicted class that is right"),
            Measure("share of a predicted class of another one"),
        ),
        parameters={
            "category_no": ParameterHelp("classes", "how many there are; None for as many as a step shows"),
            "labels": ParameterHelp("name", "the tensor of the labels"),
            "predictions": ParameterHelp("name", "the tensor of the predictions"),
            "labels_collection": ParameterHelp("name", "the collection of the labels, where no tensor is so named"),
            "predictions_collection": ParameterHelp("name", "the collection of the predictions, likewise"),
            "min_diag": ParameterHelp("", "less than this share of a predicted class being right counts"),
            "max_off_diag": ParameterHelp("", "more than this share of a predicted class being of one other counts"),
        },
        needs=(
            "It checks labels and predictions saved at the same step: record both in full, in collections labels and "
            "predictions, or name them by the parameters labels and predictions."
        ),
        changes={"": ChangeCode.BALANCE_CLASSES},
        say=worded(
            {
                IS_RIGHT: _PREDICTED + "({share_right.series}) a share of {share_right} {was/is} " + _RIGHT,
                IS_WRONG: _PREDICTED + "({share_of_another_class.series}) a share of {share_of_another_class} "
                "{was/is} of class {label_class}, {share_of_another_class:against above|not above}",
                NEVER: "class {label_class} {was/is} a label and never predicted ({share_right.series}), a share of 0 "
                "that {was/is} " + _RIGHT,
            },
            "Look at samples of the classes that are confused, and at their labels. Early steps, and steps with few "
            "samples a class, confuse easily: set start_step, or save larger batches.",
            "classes were confused",
        ),
        kinds=(IS_RIGHT, IS_WRONG, NEVER),
    )

    def check(self, state: StepState, step: StepView, parameters: ConfusionParameters) -> Check | None:
        labels = _tensor(step, parameters.labels, parameters.labels_collection)
        predictions = _tensor(step, parameters.predictions, parameters.predictions_collection)
        if labels is None or predictions is None:
            return None
        cells = used(state, lambda view, name: _worst(view, name, predictions, parameters.category_no), step, labels)
        if cells is None:
            return None
        right, wrong = cells
        (ratio, samples, *_), least, most = right, parameters.min_diag, parameters.max_off_diag
        kind = IS_RIGHT if samples else NEVER
        readings = [MetricReading(predictions, ratio, least, ratio < least, least - ratio, kind)]
        if wrong is not None:
            readings.append(MetricReading(predictions, wrong[0], most, wrong[0] > most, wrong[0] - most, IS_WRONG))
        worst = max(readings, key=rank)

        def facts(reading: MetricReading) -> list[Fact]:
            is_other = reading.kind == IS_WRONG and wrong is not None
            _, samples, label, predicted = wrong if is_other and wrong is not None else right
            return [
                measured("share_of_another_class" if is_other else "share_right", reading, "share"),
                Fact(name="label_class", value=label),
                Fact(name="predicted_class", value=predicted),
                Fact(name="predicted_samples", value=samples),
            ]

        return checked(step, [worst], facts)

    measures_by_kind: ClassVar[Mapping[str, Measure]] = {IS_WRONG: spec.measures[1]}


def _tensor(step: StepView, name: str, collection: str) -> str | None:
    if name in step.names:
        return name
    return min(step.members(collection), default=None)


def _worst(step: StepView, labels: str, predictions: str, category_no: int | None) -> tuple[Cell, Cell | None] | None:
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
    right = float(ratios[least]), int(totals[least]), int(classes[least]), int(classes[least])
    missed = of_label != of_prediction
    if not missed.any():
        return right, None
    pairs, counts = np.unique(of_label[missed] * classes.size + of_prediction[missed], return_counts=True)
    shares = counts / totals[pairs % classes.size]
    most = int(np.argmax(shares))
    label, prediction = divmod(int(pairs[most]), classes.size)
    return right, (float(shares[most]), int(totals[prediction]), int(classes[label]), int(classes[prediction]))


def _classes(step: StepView, tensor: str, category_no: int | None) -> NDArray[np.int64]:
    values = step.value(tensor)
    if not (is_numeric(values) or values.dtype == np.bool_) or not np.isfinite(float64(values)).all():
        raise TensorUnusableError(tensor, step.step, "it holds values that name no class")
    classes: NDArray[np.int64] = values.ravel().astype(np.int64)
    if classes.size and (classes.min() < 0 or (category_no is not None and classes.max() >= category_no)):
        found = int(classes.min()) if classes.min() < 0 else int(classes.max())
        expected = "from 0" if category_no is None else f"from 0 to {category_no - 1}"
        raise TensorUnusableError(tensor, step.step, f"it holds class {found}, expected classes {expected}")
    return classes
