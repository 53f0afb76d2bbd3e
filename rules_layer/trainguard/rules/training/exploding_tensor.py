"""ExplodingTensor: a tensor, or a number of a log, holds NaN or infinite values. Source: AWS documentation."""

import math
from collections.abc import Mapping

import msgspec

from trainguard.core.finding import Fact
from trainguard.formats.tensors.scalars.objective import Signal, signal_of
from trainguard.formats.tensors.step_view import ReductionKind, StepView
from trainguard.rules.change import ChangeCode
from trainguard.rules.rule_result import FactSheet, Measure, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.divergence import BROKEN_ROW, FIRST_ROW
from trainguard.rules.training.readings import MetricReading, checked, measured, not_finite, not_saved
from trainguard.rules.training.selection import GRADIENT_NORM, LOSSES
from trainguard.rules.training.series import step_number
from trainguard.rules.training.step_rule import USELESS, Check, SelectingParameters, StepRule, StepState
from trainguard.rules.training.step_words import SELECTION_HELP, filled, fires, said, step_spec

NAN, INFINITE, FINE = "NaN", "infinite", "fine"


def _exploding_words(sheet: FactSheet) -> Words:
    if not fires(sheet):
        return said(sheet, filled(sheet, "none of {tensors:counted tensor} holds NaN or infinite values"))
    reduction = sheet.get("reduction_not_finite")
    found = sheet["entries_not_finite"] if reduction is None else reduction
    advice = (
        "Go back to a checkpoint before this step: NaN does not go away by itself. Look for a learning "
        "rate that is too high, a division by zero, the logarithm of zero, or NaN in the input."
    )
    if sheet.kind == INFINITE:
        advice = (
            "Lower the learning rate or clip gradients, and in float16 check the loss scale. "
            f"Infinite values turn into NaN soon: save {found.series} at earlier steps to see where they begin."
        )
    if sheet.past:
        advice = (
            f"{found.series} is finite again, so the weights survived these steps. Check that a loss scaler skipped "
            "them; if none did, look at their batches for NaN, a division by zero or the logarithm of zero."
        )
    sentence = "the saved {reduction_not_finite} of {reduction_not_finite.series} {was/is} {kind}"
    if reduction is None:
        entries = "entry that {was/is}" if found.value == 1 else "entries that {were/are}"
        sentence = (
            f"{{entries_not_finite.series}} {{held/holds}} {{entries_not_finite:.0f}} {entries} {{what}}, "
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


# Means over episodes are NaN until one has ended, an explained variance where nothing varies: neither is a fault.
_ABSENT = (Signal.REWARD, Signal.EPISODE, Signal.VALUE_FIT)


class Row(msgspec.Struct, array_like=True):
    """How many values in a row are not finite, 0 where the newest is, and whether one was before.

    ``step`` and ``at``, epoch seconds or 0 without times, are of the newest that was not.
    """

    count: int = 0
    was_finite: bool = False
    step: int = 0
    at: float = 0.0


class ExplodingTensorState(StepState, kw_only=True):
    """``held`` are tensors, by mode, whose newest value is not finite: a step of others does not end what goes on.

    ``rows`` are of the numbers of a log, by mode, from the first value on that was not finite.
    """

    held: list[str] = msgspec.field(default_factory=list)
    rows: dict[str, Row] = msgspec.field(default_factory=dict)


MOST_HELD = 256
# A loss scaler that begins at 2 to the power 32 halves it for as many steps, or some more, until gradients fit.
LONGEST_SEARCH = 40


class ExplodingTensor(StepRule[ExplodingTensorParameters, ExplodingTensorState]):
    by_default = True
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
        on_scalars=(
            "It checks every scalar but what episodes earn, or those that collection_names and tensor_regex select: "
            "log one."
        ),
        of_losses=False,
        changes={"": ChangeCode.GO_BACK, INFINITE: ChangeCode.LOWER_LEARNING_RATE},
        say=_exploding_words,
        kinds=(NAN, INFINITE, FINE),
    )

    def check(self, state: ExplodingTensorState, step: StepView, parameters: ExplodingTensorParameters) -> Check | None:
        reductions: dict[str, str] = {}
        readings = _readings(state, step, parameters, reductions)
        if step.logged and not parameters.selects:
            _pass_over_skipped(state, step, readings)

        def facts(reading: MetricReading) -> tuple[Fact]:
            if not reading.fires:
                return (Fact(name="tensors", value=len(readings)),)
            if math.isnan(reading.value):
                return (
                    Fact(name="reduction_not_finite", value=reductions[str(reading.tensor)], series=reading.tensor),
                )
            return (measured("entries_not_finite", reading),)

        return checked(step, tuple(readings.values()), facts) if _hold(state, step, readings) else None

    def at_end(self, state: ExplodingTensorState, parameters: ExplodingTensorParameters) -> Check | None:
        """Find a number that was not finite to the end, in however few values."""
        row, key = max(
            ((row, key) for key, row in state.rows.items()), key=lambda each: each[0].count, default=(None, "")
        )
        if row is None or row.count == 0 or (state.latest is not None and state.latest.fires):
            return None
        reading = MetricReading(key.partition("/")[2], 1.0, 0.0, True, 1.0, NAN)
        return Check(
            step=row.step,
            at=row.at,
            fires=True,
            tensor=reading.tensor,
            value=1.0,
            threshold=0.0,
            kind=NAN,
            facts=(step_number("step", row.step), measured("entries_not_finite", reading)),
            onset=row.at or None,
        )


def _readings(
    state: ExplodingTensorState, step: StepView, parameters: ExplodingTensorParameters, reductions: dict[str, str]
) -> dict[str, MetricReading]:
    """Return what was found in each tensor by its name; ``reductions`` gets the name of the one that is not finite."""
    readings: dict[str, MetricReading] = {}
    asked: list[tuple[ReductionKind, bool]] = []
    finite: MetricReading | None = None
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
    return readings


def _pass_over_skipped(state: ExplodingTensorState, step: StepView, readings: dict[str, MetricReading]) -> None:
    """Leave out numbers of a log that are not finite for a few values in a row, or while a loss scale is searched."""
    norms = step.members(GRADIENT_NORM)
    followed = norms | step.members(LOSSES)
    for name, reading in list(readings.items()):
        key = f"{step.mode}/{name}"
        if key not in state.rows and (len(state.rows) >= MOST_HELD or not (reading.fires or name in followed)):
            continue
        row = state.rows.setdefault(key, Row())
        row.count = row.count + 1 if reading.fires else 0
        row.was_finite = row.was_finite or not reading.fires
        if reading.fires:
            row.step, row.at = step.step, step.at if step.timed else 0.0
            first = LONGEST_SEARCH if name in norms else FIRST_ROW if name in followed else BROKEN_ROW
            if row.count < (BROKEN_ROW if row.was_finite else first):
                del readings[name]
    state.evaluated += not readings  # it was checked, and says nothing yet


def _hold(state: ExplodingTensorState, step: StepView, readings: Mapping[str, MetricReading]) -> bool:
    """Remember which tensors are not finite; return False of a step that says nothing of those that still are."""
    firing = [f"{step.mode}/{tensor}" for tensor, reading in readings.items() if reading.fires]
    seen = {f"{step.mode}/{tensor}" for tensor in readings} if state.held else frozenset()
    kept = [name for name in state.held if name not in seen]
    state.held = [*kept, *firing][:MOST_HELD]
    says = bool(firing) or not kept
    state.evaluated += not says  # it was checked, and what fires goes on
    return says


def _of_entries(step: StepView, tensor: str, *, only_nan: bool) -> MetricReading | None:
    found = not_finite(step, tensor)
    if found is None:
        return None
    size, nan, infinite = found
    count = nan if only_nan else nan + infinite
    kind = (NAN if nan else INFINITE) if count else FINE
    return MetricReading(tensor, float(count), 0.0, count > 0, count / max(size, 1), kind)


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
) -> MetricReading | None:
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
        return MetricReading(tensor, 0.0, 0.0, False, 0.0, FINE)
    reductions[tensor] = nan[0] if nan else bad[0][0]
    return MetricReading(tensor, math.nan, 0.0, True, 0.0, NAN if nan else INFINITE)


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
