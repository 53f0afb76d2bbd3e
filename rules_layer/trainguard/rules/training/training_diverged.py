"""TrainingDiverged: the loss is NaN or infinite, or has risen and does not come back."""

import math
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from trainguard.core.finding import Fact
from trainguard.core.units import counted
from trainguard.formats.tensors.step_view import Mode, StepView
from trainguard.ledger.bucket import Bucket
from trainguard.rules.rule_result import FactSheet, Measure, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.readings import step_fact
from trainguard.rules.training.risen import (
    ENDED_TAIL,
    DivergedKind,
    TrainingDivergedParameters,
    rise,
    runaway,
    score_lost,
)
from trainguard.rules.training.run_series import BOUND, RunSeries, SeriesState, gather
from trainguard.rules.training.series import first_facts, first_words, level_of, step_number
from trainguard.rules.training.step_rule import Check, StepRule
from trainguard.rules.training.step_words import step_spec

_CLAUSES = {
    DivergedKind.NOT_FINITE: "the loss became NaN or infinite",
    DivergedKind.WAS_NOT_FINITE: "the loss was NaN or infinite for a good part of the run",
    DivergedKind.UNBOUNDED: "the loss fell without bound",
    DivergedKind.SCORE_LOST: "training lost what it had learned",
}


def _words(sheet: FactSheet) -> Words:
    say = {
        DivergedKind.FINE: _fine,
        DivergedKind.NOT_FINITE: _not_finite,
        DivergedKind.WAS_NOT_FINITE: _was_not_finite,
        DivergedKind.UNBOUNDED: _unbounded,
        DivergedKind.SCORE_LOST: _score_lost,
    }.get(DivergedKind(sheet.kind), _risen)
    reason = f"Step {sheet['step'].value}: {say(sheet)}."
    if sheet.kind == DivergedKind.FINE:
        return Words(reason)
    return Words(reason, _advice(sheet.kind), _CLAUSES.get(DivergedKind(sheet.kind), "training diverged"))


def _name(sheet: FactSheet, fact: str = "loss_first") -> str:
    return str(sheet[fact].series)


def _fine(sheet: FactSheet) -> str:
    if sheet.get("loss_first") is None:
        return "no loss is broken"
    last = sheet.number("loss_last")
    return f"{_name(sheet)} is {last:.6g}, and was {first_words(sheet)}; no loss is broken or has risen for good"


def _not_finite(sheet: FactSheet) -> str:
    count = sheet["values_not_finite"]
    first, last = int(sheet.number("first_bad_step")), int(sheet.number("last_bad_step"))
    where = f"at step {first}" if first == last else f"from step {first} to {last}"
    verb = "was" if sheet.past else "is"
    return (
        f"{count.series} of mode {sheet.name('mode')} {verb} NaN or infinite {where}, "
        f"{counted(int(count.value), 'recorded value')}"
    )


def _was_not_finite(sheet: FactSheet) -> str:
    count, values = sheet["values_not_finite"], int(sheet.number("values"))
    return (
        f"{count.series} of mode {sheet.name('mode')} was NaN or infinite in {int(count.value):,} of {values:,} "
        f"recorded values, at first at step {sheet['first_bad_step'].value}"
    )


def _risen(sheet: FactSheet) -> str:
    began = f"{_name(sheet)} was {first_words(sheet)}"
    if sheet.kind == DivergedKind.LOST:
        lowest, at = sheet.number("loss_lowest"), sheet["loss_lowest_step"].value
        began += f" and {lowest:.6g} at its lowest (step {at})"
    elif sheet.kind == DivergedKind.EXPLODED:
        first, at = sheet.number("loss_at_first_step"), sheet["loss_first_step"].value
        began = f"{_name(sheet)} was {first:.6g} at step {at}"
    last, values = sheet["loss_last"], sheet.get("loss_first_values")
    least = "it was never below" if values is None else f"no mean of its groups of {values.value:,} values was below"
    return (
        f"{began}; after step {sheet['risen_after_step'].value} {least} "
        f"{sheet.number('loss_least_since'):.6g}, with a mean of {float(last.value):.6g}, above the threshold "
        f"{last.threshold:.6g}"
    )


def _unbounded(sheet: FactSheet) -> str:
    verb, now = ("fell", "was") if sheet.past else ("falls", "is")
    return (
        f"{_name(sheet)} {verb} without bound: it was {first_words(sheet)} and {sheet.number('loss_half_way'):.6g} "
        f"half-way (step {sheet['half_way_step'].value}), and {now} {sheet.number('loss_last'):.6g}"
    )


def _score_lost(sheet: FactSheet) -> str:
    most = sheet["score_most_since"]
    return (
        f"{most.series} had a mean of {sheet.number('score_best'):.4g} over its best fifth of the run; after step "
        f"{sheet['fallen_after_step'].value} it was never above {float(most.value):.4g}, below the threshold "
        f"{most.threshold:.4g}, and the loss rose"
    )


def _advice(kind: str) -> str:
    if kind in (DivergedKind.NOT_FINITE, DivergedKind.WAS_NOT_FINITE):
        return (
            "Stop and go back to a checkpoint before these steps: NaN does not go away by itself. Scale inputs and "
            "targets to about 1, lower the learning rate, clip gradients, and look for NaN in the data, a division "
            "by zero or the logarithm of zero."
        )
    if kind == DivergedKind.UNBOUNDED:
        return (
            "A loss with a minimum does not do that. Check its sign, that targets lie in the range that the loss "
            "expects, and that what it gets are probabilities or logits, as it expects."
        )
    return (
        "Go back to a checkpoint before the rise. Lower the learning rate or its peak after a restart, lengthen "
        "the warm-up, clip gradients, and check the data of these steps."
    )


LIVE_TAIL = 50
MANY, SHARE = 5, 0.05
"""So many values that were not finite, and so large a share of all, are a broken run although the last was finite."""
CRITICAL = 100.0


class Broken(msgspec.Struct, array_like=True):
    """How often a loss was not finite: in a row that goes on (``count``, 0 where none does), and ever (``total``).

    ``first`` and ``last`` are the steps of the row, ``first_ever`` is the first of all; times are epoch seconds or
    None.
    """

    first: int
    last: int
    at: float | None
    first_ever: int
    ever_at: float | None
    count: int = 0
    total: int = 0
    values: int = 0


class TrainingDivergedState(SeriesState, kw_only=True):
    """Series, and losses that were not finite, by mode and name."""

    broken: dict[str, Broken] = msgspec.field(default_factory=dict)


class TrainingDiverged(StepRule[TrainingDivergedParameters, TrainingDivergedState]):
    spec = step_spec(
        "TrainingDiverged",
        title="Training that diverges",
        looks_at="the losses of training and of validation",
        fires_when="one is NaN or infinite, or has risen and does not come back",
        condition=(
            "a loss is not finite; or over the last fifth of the run it lies above its lowest level by more than "
            "{lost} of its fall, or at {blow_up} times its size at the start"
        ),
        measures=(Measure("loss"), Measure("values in a row that are not finite"), Measure("score")),
        parameters={
            "lost": ParameterHelp("", "a larger share of the fall that is gone again is a divergence"),
            "blow_up": ParameterHelp("", "a loss of so many times its size at the start is a divergence"),
            "score_lost": ParameterHelp("", "a score that fell by a larger share of its range below its best is lost"),
            "live_rows": ParameterHelp(
                "values", "as many recorded losses are needed to judge a rise while a run goes on"
            ),
        },
        needs="It checks losses that are single numbers: record them with CollectionConfig(name='losses').",
        say=_words,
        bound=BOUND,
        claims={kind: (Bucket.BROKEN,) for kind in DivergedKind if kind is not DivergedKind.FINE},
    )

    measures_by_kind: ClassVar[Mapping[str, Measure]] = {
        **dict.fromkeys((DivergedKind.NOT_FINITE, DivergedKind.WAS_NOT_FINITE), spec.measures[1]),
        DivergedKind.SCORE_LOST: spec.measures[2],
    }

    def check(
        self, state: TrainingDivergedState, step: StepView, parameters: TrainingDivergedParameters
    ) -> Check | None:
        losses = gather(state, step)
        if not losses:
            return None
        for mode, name, value in losses:
            _note(state, f"{mode}/{name}", step, finite=math.isfinite(value))
        # A part of a loss gives way to its total: nobody would see that it is finite again.
        kept = {f"{mode}/{name}" for mode, of_mode in state.run.losses.items() for name in of_mode}
        state.broken = {key: each for key, each in state.broken.items() if key in kept}
        now = step_fact(step)
        if (broken := _broken(state, now, step.at, DivergedKind.NOT_FINITE)) is not None:
            return broken
        if any(mode is Mode.TRAIN for mode, _, _ in losses):
            main = state.run.loss(Mode.TRAIN)[0][1]
            if main.count >= parameters.live_rows and main.filling == main.size:
                return _judged(state.run, parameters, LIVE_TAIL) or _without_finding(state.run, now)
        if state.latest is not None and state.latest.fires and state.latest.kind != DivergedKind.NOT_FINITE:
            return None
        return _without_finding(state.run, now)

    def at_end(self, state: TrainingDivergedState, parameters: TrainingDivergedParameters) -> Check | None:
        if state.latest is None:
            return None
        now = state.latest.facts[0]
        return (
            _broken(state, now, state.latest.at, DivergedKind.NOT_FINITE)
            or _broken(state, now, state.run.at, DivergedKind.WAS_NOT_FINITE)
            or _judged(state.run, parameters, ENDED_TAIL)
            or _without_finding(state.run, now)
        )

    def score(self, check: Check) -> float:
        del check
        return CRITICAL


def _note(state: TrainingDivergedState, key: str, step: StepView, *, finite: bool) -> None:
    at = step.at if step.timed else None
    if key in state.broken:
        broken = state.broken[key]
        broken.values += 1
        if finite:
            broken.count = 0
            return
        if broken.count == 0:
            broken.first, broken.at = step.step, at
        broken.last = step.step
        broken.count += 1
        broken.total += 1
    elif not finite:
        mode, _, name = key.partition("/")
        series = state.run.losses.get(Mode(mode), {}).get(name)
        values = 1 + (0 if series is None else series.count)
        state.broken[key] = Broken(step.step, step.step, at, step.step, at, 1, 1, values)


def _broken(state: TrainingDivergedState, now: Fact, at: float, kind: DivergedKind) -> Check | None:
    """Return the check of the loss that was most often not finite: in a row that goes on, or over a good part."""
    ever = kind is DivergedKind.WAS_NOT_FINITE
    counts = {
        key: each.total if ever else each.count
        for key, each in state.broken.items()
        if (each.total >= max(MANY, SHARE * each.values) if ever else each.count)
    }
    if not counts:
        return None
    key = max(counts, key=lambda each: counts[each])
    broken, (mode, _, name) = state.broken[key], key.partition("/")
    facts = (
        now,
        Fact(name="values_not_finite", value=counts[key], series=name),
        *([Fact(name="values", value=broken.values, series=name)] if ever else []),
        Fact(name="mode", value=mode),
        step_number("first_bad_step", broken.first_ever if ever else broken.first),
        *([] if ever else [step_number("last_bad_step", broken.last)]),
    )
    return Check(
        step=int(now.value),
        at=at,
        fires=True,
        tensor=name,
        value=float(counts[key]),
        threshold=0.0,
        kind=kind,
        facts=facts,
        onset=broken.ever_at if ever else broken.at,
    )


def _judged(run: RunSeries, parameters: TrainingDivergedParameters, fewest: int) -> Check | None:
    found = runaway(run, fewest) or rise(run, parameters, fewest) or score_lost(run, parameters, fewest)
    return None if found is None else found.check(run)


def _without_finding(run: RunSeries, now: Fact) -> Check:
    name, loss = (run.loss(Mode.TRAIN) or run.loss(Mode.EVAL))[0]
    known = (*first_facts(name, loss), level_of("loss_last", name, loss.last)) if loss.means else ()
    return Check(
        step=int(now.value),
        at=run.at,
        fires=False,
        tensor=name,
        value=loss.last,
        kind=DivergedKind.FINE,
        facts=(now, *known),
    )
