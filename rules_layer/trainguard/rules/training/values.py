"""AllZero, TensorVariance and ExplodingTensor: a tensor's zeros, variance, NaN. Source: AWS documentation."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import msgspec

from trainguard.core.finding import Fact
from trainguard.formats.tensors.scalars.objective import Signal, signal_of
from trainguard.formats.tensors.step_view import ReductionKind, StepView
from trainguard.rules.protocol import Percent
from trainguard.rules.rule_result import FactSheet, Measure, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.readings import Reading, checked, known, measured, not_finite, not_saved, variance, zeros
from trainguard.rules.training.step_rule import USELESS, Check, SelectingParameters, StepRule, StepState
from trainguard.rules.training.step_words import SELECTION_HELP, filled, fires, said, step_spec, worded

ZERO_KINDS = ("zeros", "fine")
HIGH, LOW, UNSET = "high", "low", "no threshold"
"""Which threshold TensorVariance compares with; the status says whether it is crossed."""
_VARIANCE = "the variance of {variance.series} {was|is} {variance}"


_of_variance = worded(
    {
        HIGH: f"{_VARIANCE}, {{variance:against above|not above}}",
        LOW: f"{_VARIANCE}, {{variance:against below|not below}}",
        UNSET: f"{_VARIANCE}, and no threshold is set",
    },
    {
        HIGH: "Look at the scale of what enters {variance.series}: inputs, initialisation, normalisation, "
        "learning rate.",
        LOW: "All entries of {variance.series} are nearly the same: look at the initialisation and at dead inputs.",
    },
    "the variance of a tensor left its range",
)


def _variance_words(sheet: FactSheet) -> Words:
    """Say on which side of its threshold a variance is; NaN may be compared with one that is not set."""
    return _of_variance(replace(sheet, kind=UNSET) if sheet["variance"].threshold is None else sheet)


class AllZeroParameters(SelectingParameters, frozen=True, kw_only=True):
    required: ClassVar[bool] = True

    threshold: Percent = 100.0


class AllZero(StepRule[AllZeroParameters, StepState]):
    spec = step_spec(
        "AllZero",
        title="Zero tensors",
        looks_at="the selected tensors",
        fires_when="all entries of one are zero, or the given share of them",
        condition="{threshold} % of a tensor's entries or more are zero",
        measures=(Measure("share of zeros", "%"),),
        parameters={
            **SELECTION_HELP,
            "threshold": ParameterHelp("%", "a tensor with this share of zeros, or more, counts"),
        },
        needs=(
            "It checks the tensors that collection_names and tensor_regex select: record them with a CollectionConfig, "
            "in full unless the threshold is 100 %."
        ),
        say=worded(
            "{zeros} % of {zeros.series} {was|is} zero, {zeros:against not below|below} %",
            "Check that {zeros.series} is reached and updated: initialisation, masks, activations that are always "
            "negative before a ReLU, input that was not filled.",
            "a tensor was zero",
        ),
        kinds=ZERO_KINDS,
    )

    def check(self, state: StepState, step: StepView, parameters: AllZeroParameters) -> Check | None:
        threshold = parameters.threshold

        def percent_of(view: StepView, tensor: str) -> float | None:
            return _percent(state, view, tensor, threshold)

        found = known(state, percent_of, step, parameters.tensors(step))
        first: dict[float, Reading] = {}
        readings = [
            first.setdefault(percent, Reading(tensor, percent, threshold, percent >= threshold, percent))
            for percent, tensor in found
        ]
        return checked(step, readings, lambda reading: (measured("zeros", reading, "%"),), kinds=ZERO_KINDS)


def _percent(state: StepState, step: StepView, tensor: str, threshold: float) -> float | None:
    if step.has_value(tensor):
        return zeros(step, tensor)
    size = step.reduction(tensor, "mean", absolute=True)
    if size is None:
        size = step.reduction(tensor, "l1")
    if size == 0.0:
        return 100.0
    # A size that is not zero leaves open how many entries are; one that is undefined says nothing.
    if size is not None and not math.isnan(size) and threshold >= 100.0:
        return 0.0
    share = _found_by_extremes(step, tensor, threshold)
    if share is None:
        not_saved(state, step, tensor)
    return share


def _found_by_extremes(step: StepView, tensor: str, threshold: float) -> float | None:
    least, most = step.reduction(tensor, "min"), step.reduction(tensor, "max")
    highest = step.reduction(tensor, "max", absolute=True)
    lowest = step.reduction(tensor, "min", absolute=True)
    if highest == 0.0 or (least == 0.0 and most == 0.0):
        return 100.0
    if any(each is not None and each > 0.0 for each in (lowest, least)) or (most is not None and most < 0.0):
        return 0.0
    some_entry = highest is not None or (least is not None and most is not None)
    return 0.0 if some_entry and threshold >= 100.0 else None


class TensorVarianceParameters(SelectingParameters, frozen=True, kw_only=True):
    required: ClassVar[bool] = True

    max_threshold: float | None = None
    min_threshold: float | None = None


class TensorVariance(StepRule[TensorVarianceParameters, StepState]):
    spec = step_spec(
        "TensorVariance",
        title="Variance of tensors",
        looks_at="the selected tensors",
        fires_when="the variance of one is above the one threshold or below the other",
        condition="the variance of a tensor is above {max_threshold} or below {min_threshold}",
        measures=(Measure("variance"),),
        parameters={
            **SELECTION_HELP,
            "max_threshold": ParameterHelp("", "a variance above it is too high; None leaves it out"),
            "min_threshold": ParameterHelp("", "a variance below it is too low; None leaves it out"),
        },
        needs=(
            "It checks the tensors that collection_names and tensor_regex select: record them, in full or as reduction "
            "variance, with a CollectionConfig."
        ),
        say=_variance_words,
        kinds=(HIGH, LOW, UNSET),
    )

    def check(self, state: StepState, step: StepView, parameters: TensorVarianceParameters) -> Check | None:
        def variance_of(view: StepView, tensor: str) -> float | None:
            saved = view.reduction(tensor, "variance")
            if saved is not None:
                return saved
            if view.reduction(tensor, "std") is None and not_saved(state, view, tensor):
                return None
            return variance(view, tensor)

        most, least = parameters.max_threshold, parameters.min_threshold
        readings = []
        for value, tensor in known(state, variance_of, step, parameters.tensors(step)):
            above = -math.inf if most is None else value - most
            below = -math.inf if least is None else least - value
            if above >= below:
                readings.append(Reading(tensor, value, most, above > 0.0, above, UNSET if most is None else HIGH))
            else:
                readings.append(Reading(tensor, value, least, below > 0.0, below, LOW))
        return checked(step, readings, lambda reading: (measured("variance", reading),))


NAN, INFINITE, FINE = "NaN", "infinite", "fine"


def _exploding_words(sheet: FactSheet) -> Words:
    if not fires(sheet):
        return said(sheet, filled(sheet, "none of {tensors:counted tensor} holds NaN or infinite values"))
    reduction = sheet.get("reduction_not_finite")
    found = sheet["entries_not_finite"] if reduction is None else reduction
    advice = (
        "Stop and go back to a checkpoint before this step: NaN does not go away by itself. Look for a learning "
        "rate that is too high, a division by zero, the logarithm of zero, or NaN in the input."
    )
    if sheet.kind == INFINITE:
        advice = (
            "Lower the learning rate or clip gradients, and in float16 check the loss scale. "
            f"Infinite values turn into NaN soon: save {found.series} at earlier steps to see where they begin."
        )
    sentence = "the saved {reduction_not_finite} of {reduction_not_finite.series} {was|is} {kind}"
    if reduction is None:
        entries = "entry that {was|is}" if found.value == 1 else "entries that {were|are}"
        sentence = (
            f"{{entries_not_finite.series}} {{held|holds}} {{entries_not_finite:.0f}} {entries} {{what}}, "
            "{entries_not_finite:against above|}"
        )
    what = "NaN or infinite" if sheet.kind == NAN else "infinite"
    return said(sheet, filled(sheet, sentence, kind=sheet.kind, what=what), advice, "values became NaN or infinite")


_TREES = "trees/"
_SUMS: tuple[tuple[ReductionKind, bool], ...] = tuple(
    (kind, absolute) for kind in ("mean", "std", "variance", "l2", "l1", "sum") for absolute in (True, False)
)


class ExplodingTensorParameters(SelectingParameters, frozen=True, kw_only=True):
    only_nan: bool = False


_ABSENT = (Signal.REWARD, Signal.EPISODE, Signal.VALUE_FIT)
"""Means over episodes are NaN until one has ended, an explained variance where nothing varies: neither is a fault."""


class ExplodingTensorState(StepState, kw_only=True):
    """``held`` are tensors, by mode, whose newest value is not finite: a step of others does not end what goes on."""

    held: list[str] = msgspec.field(default_factory=list)


MOST_HELD = 256


class ExplodingTensor(StepRule[ExplodingTensorParameters, ExplodingTensorState]):
    spec = step_spec(
        "ExplodingTensor",
        title="NaN and infinite values",
        looks_at="the selected tensors; where nothing is selected, all",
        fires_when="one holds NaN or an infinite value",
        condition="a tensor holds NaN, or an infinite value unless only NaN counts (only_nan: {only_nan})",
        measures=(Measure("entries that are not finite"),),
        parameters={**SELECTION_HELP, "only_nan": ParameterHelp("", "whether infinite values are left alone")},
        needs=(
            "It checks numbers of any tensor: record at least the losses, with CollectionConfig(name='losses'), "
            "or those that collection_names and tensor_regex select."
        ),
        say=_exploding_words,
        kinds=(NAN, INFINITE, FINE),
    )

    def check(self, state: ExplodingTensorState, step: StepView, parameters: ExplodingTensorParameters) -> Check | None:
        readings: dict[str, Reading] = {}
        reductions: dict[str, str] = {}
        asked: list[tuple[ReductionKind, bool]] = []
        finite: Reading | None = None
        numbers = (name for name in step.names if not name.startswith(_TREES) and signal_of(name) not in _ABSENT)
        for tensor in parameters.tensors(step) if parameters.selects else numbers:
            try:
                if step.has_value(tensor):
                    reading = _of_entries(step, tensor, only_nan=parameters.only_nan)
                else:
                    if finite is not None and _has_finite_sum(step, tensor, asked):
                        readings[tensor] = finite
                        continue
                    reading = _of_reductions(state, step, tensor, reductions, only_nan=parameters.only_nan)
                    if finite is None and reading is not None and not reading.fires:
                        finite = reading
            except USELESS as fault:
                state.leave_out(str(fault))
                continue
            if reading is not None:
                readings[tensor] = reading

        def facts(reading: Reading) -> tuple[Fact]:
            if not reading.fires:
                return (Fact(name="tensors", value=len(readings)),)
            if math.isnan(reading.value):
                return (
                    Fact(name="reduction_not_finite", value=reductions[str(reading.tensor)], series=reading.tensor),
                )
            return (measured("entries_not_finite", reading),)

        return checked(step, tuple(readings.values()), facts) if _hold(state, step, readings) else None


def _hold(state: ExplodingTensorState, step: StepView, readings: Mapping[str, Reading]) -> bool:
    """Remember which tensors are not finite; return False of a step that says nothing of those that still are."""
    firing = [f"{step.mode}/{tensor}" for tensor, reading in readings.items() if reading.fires]
    seen = {f"{step.mode}/{tensor}" for tensor in readings} if state.held else frozenset()
    kept = [name for name in state.held if name not in seen]
    state.held = [*kept, *firing][:MOST_HELD]
    says = bool(firing) or not kept
    state.evaluated += not says  # it was checked, and what fires goes on
    return says


def _of_entries(step: StepView, tensor: str, *, only_nan: bool) -> Reading | None:
    found = not_finite(step, tensor)
    if found is None:
        return None
    size, nan, infinite = found
    count = nan if only_nan else nan + infinite
    kind = (NAN if nan else INFINITE) if count else FINE
    return Reading(tensor, float(count), 0.0, count > 0, count / max(size, 1), kind)


def _has_finite_sum(step: StepView, tensor: str, asked: list[tuple[ReductionKind, bool]]) -> bool:
    """Whether a saved sum is finite; that which the tensor before had is ``asked`` for first."""
    for kind, absolute in (*asked, *_SUMS):
        value = step.reduction(tensor, kind, absolute=absolute)
        if value is not None:
            asked[:] = [(kind, absolute)]
            return math.isfinite(value)
    return False


def _of_reductions(
    state: StepState, step: StepView, tensor: str, reductions: dict[str, str], *, only_nan: bool
) -> Reading | None:
    """Judge by what was saved; the value is then not a count, so that it stays open."""
    saved = _telling(step, tensor)
    if not saved:
        product = step.reduction(tensor, "prod")
        if product is None or not math.isfinite(product):
            not_saved(state, step, tensor)
            return None
    bad = [(name, value) for name, value in saved if not math.isfinite(value)]
    nan = [name for name, value in bad if math.isnan(value)]
    if not bad or (only_nan and not nan):
        return Reading(tensor, 0.0, 0.0, False, 0.0, FINE)
    reductions[tensor] = nan[0] if nan else bad[0][0]
    return Reading(tensor, math.nan, 0.0, True, 0.0, NAN if nan else INFINITE)


def _telling(step: StepView, tensor: str) -> list[tuple[str, float]]:
    """Return the saved reductions that tell whether all entries are finite; none where only a product was saved.

    A finite sum has finite entries only. Another may have overflowed, unless the extremes say so too.
    """
    sums = []
    for kind, absolute in _SUMS:
        value = step.reduction(tensor, kind, absolute=absolute)
        if value is None:
            continue
        if math.isfinite(value):
            return [(kind, value)]
        sums.append((f"{kind} of absolute values" if absolute else kind, value))
    least, most = step.reduction(tensor, "min"), step.reduction(tensor, "max")
    highest = step.reduction(tensor, "max", absolute=True)
    if least is not None and most is not None:
        return [("min", least), ("max", most)]
    if highest is not None:
        return [("max of absolute values", highest)]
    lowest = step.reduction(tensor, "min", absolute=True)
    others = (("min", least), ("max", most), ("min of absolute values", lowest))
    return [*sums, *((name, value) for name, value in others if value is not None)]
