"""ClassImbalance: classes differ too much in number of samples, or one is mostly predicted wrongly.

Source: AWS documentation of ClassImbalance; samples are counted over all steps, from the first one on.
"""

from typing import ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from trainguard.errors import TensorUnusableError
from trainguard.finding import Fact
from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import NonNegative, NonNegativeInt
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training import data_text
from trainguard.rules.training.data_text import RATIO, WRONG_SHARE, BalanceKind
from trainguard.rules.training.folds import float64
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.readings import Reading, checked, rank, step_fact, used
from trainguard.rules.training.selection import matching
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.tensor_words import measured
from trainguard.tensors.step_view import StepView, Tensor, is_numeric

MOST_CLASSES = 1_024

Classes = NDArray[np.int64]


class ClassImbalanceParameters(StepParameters, frozen=True, kw_only=True):
    """``samples`` is how many are waited for; ``argmax`` says that predictions are scores of all classes."""

    rule_name: ClassVar[str] = "ClassImbalance"
    regex_fields: ClassVar[tuple[str, ...]] = ("labels_regex", "predictions_regex")

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


SPEC = RuleSpec(
    name="training/ClassImbalance",
    family="training",
    title="Class imbalance",
    looks_at="labels and predictions",
    fires_when="classes differ too much in size, or one is mostly predicted wrongly",
    condition=(
        "after {samples} samples the largest class has more than {threshold_imbalance} times those of the smallest, or "
        "more than a share of {threshold_misprediction} of a class is predicted wrongly"
    ),
    measures=(Measure("ratio of the largest to the smallest class"), Measure("share of a class predicted wrongly")),
    counts=STEPS,
    parameters={
        "threshold_imbalance": ParameterHelp("", "a ratio of the largest to the smallest class above it is too high"),
        "threshold_misprediction": ParameterHelp("", "a share of a class predicted wrongly above it is too high"),
        "samples": ParameterHelp("samples", "how many are waited for"),
        "argmax": ParameterHelp("", "whether predictions are scores of all classes along their last axis"),
        "labels_regex": ParameterHelp("pattern", "a regular expression that names of labels match"),
        "predictions_regex": ParameterHelp("pattern", "a regular expression that names of predictions match"),
        **RANGE_HELP,
    },
    text=data_text.class_imbalance,
)


class ClassImbalance(StepRule[ClassImbalanceParameters, ClassImbalanceState]):
    """Fires while classes are out of balance, or one is mostly predicted wrongly."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = ClassImbalanceParameters
    state_type = ClassImbalanceState
    needs = data_text.CLASSES_NEEDS
    bound = data_text.CLASSES_BOUND

    def check(self, state: ClassImbalanceState, step: StepView, parameters: ClassImbalanceParameters) -> Check | None:
        """Add the step's samples, and judge all so far once they are enough."""
        labels = matching(step, parameters.labels_regex)
        predictions = matching(step, parameters.predictions_regex)
        pairs = list(zip(labels, predictions, strict=False))
        if len(labels) != len(predictions):
            pairs = pairs[:1]
        added = [used(state, _Adding(state, of, parameters.argmax), step, name) for name, of in pairs]
        if not any(added):
            return None
        total = sum(state.counts.values())
        if total < parameters.samples:
            waits = Fact(name="samples", value=total, threshold=float(parameters.samples))
            facts = (step_fact(step), waits)
            return Check(step=step.step, at=step.at, fires=False, kind=BalanceKind.WAITS, facts=facts)
        readings = _readings(state, labels[0], predictions[0], parameters)
        worst = max(readings, key=rank)
        shown = [each for each in readings if each.fires] or [worst]
        return checked(step, [worst], lambda _: [fact for each in shown for fact in _facts(state, each)])

    def measure(self, check: Check) -> Measure:
        """Say which of the two conditions was measured."""
        return SPEC.measures[1] if check.kind == BalanceKind.MISPREDICTION else SPEC.measures[0]


class _Adding:
    """Adds the samples of a pair of tensors; True where there was at least one."""

    def __init__(self, state: ClassImbalanceState, predictions: str, argmax: bool) -> None:
        self._state = state
        self._predictions = predictions
        self._argmax = argmax

    def __call__(self, step: StepView, tensor: str) -> bool:
        labels = _classes(step, tensor, step.value(tensor))
        scores = step.value(self._predictions)
        if self._argmax:
            if not is_numeric(scores) or not scores.size or np.isnan(float64(scores)).any():
                raise TensorUnusableError(self._predictions, step.step, "it holds no numbers, or NaN")
            predicted: Classes = np.argmax(scores, axis=-1).ravel().astype(np.int64)
        else:
            predicted = _classes(step, self._predictions, scores)
        if labels.size != predicted.size:
            reason = f"it has {labels.size:,} labels, and {self._predictions} {predicted.size:,} predictions"
            raise TensorUnusableError(tensor, step.step, reason)
        state = self._state
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


def _classes(step: StepView, tensor: str, values: Tensor) -> Classes:
    """Return the classes (int64[N]) that a tensor names, rounded to whole numbers."""
    if not is_numeric(values) or not np.isfinite(float64(values)).all():
        raise TensorUnusableError(tensor, step.step, "it holds values that name no class")
    return np.rint(float64(values)).ravel().astype(np.int64)


def _readings(
    state: ClassImbalanceState, labels: str, predictions: str, parameters: ClassImbalanceParameters
) -> list[Reading]:
    most, least = parameters.threshold_imbalance, parameters.threshold_misprediction
    ratio = max(state.counts.values()) / min(state.counts.values())
    share = max(state.wrong.get(found, 0) / count for found, count in state.counts.items())
    return [
        Reading(labels, ratio, most, ratio > most, ratio / most if most else 1.0, BalanceKind.IMBALANCE),
        Reading(predictions, share, least, share > least, share / least if least else 1.0, BalanceKind.MISPREDICTION),
    ]


def _facts(state: ClassImbalanceState, reading: Reading) -> list[Fact]:
    counts = state.counts
    if reading.kind == BalanceKind.IMBALANCE:
        largest, smallest = max(counts, key=lambda each: counts[each]), min(counts, key=lambda each: counts[each])
        facts = [measured(RATIO, reading), Fact(name="largest_class_samples", value=counts[largest])]
        if largest != smallest:
            facts.append(Fact(name="largest_class", value=largest))
            facts.append(Fact(name="smallest_class", value=smallest))
            facts.append(Fact(name="smallest_class_samples", value=counts[smallest]))
        return facts
    worst = max(counts, key=lambda each: state.wrong.get(each, 0) / counts[each])
    return [
        measured(WRONG_SHARE, reading, "share"),
        Fact(name="class", value=worst),
        Fact(name="class_samples", value=counts[worst]),
        Fact(name="samples_predicted_wrongly", value=state.wrong.get(worst, 0)),
    ]
