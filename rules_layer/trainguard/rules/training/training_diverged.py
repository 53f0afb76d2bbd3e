"""TrainingDiverged: the loss is NaN or infinite, or has risen and does not come back."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from trainguard.core.finding import Fact, Patience
from trainguard.formats.tensors.scalars.objective import Signal
from trainguard.formats.tensors.step_view import Mode, StepView
from trainguard.ledger.bucket import Bucket
from trainguard.rules.change import ChangeCode
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.divergence import (
    BROKEN_ROW,
    ENDED_TAIL,
    FIRST_ROW,
    FOLLOWED,
    TrainingDivergedParameters,
    off_course,
    rise,
    runaway,
    score_lost,
)
from trainguard.rules.training.learned_nothing import GOOD_SCORE
from trainguard.rules.training.readings import scalar, step_fact, used
from trainguard.rules.training.run_series import BOUND, RunSeries, SeriesState, gather, series_check, signals
from trainguard.rules.training.series import Series, end_facts, first_facts, level_of, step_number, unit
from trainguard.rules.training.step_rule import Check, RunView, StepRule
from trainguard.rules.training.step_words import step_spec
from trainguard.rules.training.training_diverged_text import NO_FINDING, SAID, diverged_words

LIVE_TAIL = 50
# A loss that was above this share of its start a moment ago did not come near 0 by itself.
JUMPED = 0.05
# So many values that were not finite, and so large a share of all, are a broken run although the last was finite.
MANY, SHARE = 5, 0.05

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

    @property
    def needed(self) -> int:
        """How many values in a row are a finding: more of a loss that was never finite."""
        return FIRST_ROW if self.total == self.values else BROKEN_ROW


class Zeros(msgspec.Struct, array_like=True):
    """Values of a loss that are exactly 0, in a row that goes on; ``before`` is the last that was not, 0 of none."""

    before: float = 0.0
    first: int = 0
    last: int = 0
    at: float | None = None
    count: int = 0


class TrainingDivergedState(SeriesState, kw_only=True):
    """Series, losses that were not finite, by mode and name, and the first series of each signal that is followed."""

    broken: dict[str, Broken] = msgspec.field(default_factory=dict)
    zeros: dict[str, Zeros] = msgspec.field(default_factory=dict)
    measured: dict[Signal, tuple[str, Series]] = msgspec.field(default_factory=dict)


class TrainingDiverged(StepRule[TrainingDivergedParameters, TrainingDivergedState]):
    by_default = True
    spec = step_spec(
        "TrainingDiverged",
        title="Training that diverges",
        looks_at="the losses of training and of validation",
        fires_when="one is NaN or infinite, or has risen and does not come back",
        condition=(
            "a loss is not finite; or over the last fifth of the run it lies above its lowest level by more than "
            "{lost} of its fall, or at {blow_up} times its size at the start"
        ),
        measures=(
            Measure("loss"),
            Measure("values in a row that are not finite"),
            Measure("score"),
            Measure("reward"),
            Measure("divergence from the reference"),
            Measure("entropy of the policy"),
            Measure("values in a row that are 0"),
        ),
        parameters={
            "lost": ParameterHelp("", "a larger share of the fall that is gone again is a divergence"),
            "blow_up": ParameterHelp("", "a loss of so many times its size at the start is a divergence"),
            "score_lost": ParameterHelp("", "a score that fell by a larger share of its range below its best is lost"),
            "live_rows": ParameterHelp(
                "values", "as many recorded losses are needed to judge a rise while a run goes on"
            ),
        },
        needs="It checks losses that are single numbers: record them with CollectionConfig(name='losses').",
        on_scalars="It checks losses: log one.",
        changes={"": ChangeCode.GO_BACK},
        say=diverged_words,
        kinds=tuple(SAID),
        bound=BOUND,
        claims={kind: (Bucket.BROKEN,) for kind in SAID if kind not in NO_FINDING},
    )

    measures_by_kind: ClassVar[Mapping[str, Measure]] = {
        **dict.fromkeys(("not finite", "was not finite", "breaks"), spec.measures[1]),
        "score lost": spec.measures[2],
        "reward lost": spec.measures[3],
        "earns": spec.measures[3],
        "kl exploded": spec.measures[4],
        "updates too large": spec.measures[4],
        "entropy gone": spec.measures[5],
        "zero": spec.measures[6],
    }

    def check(
        self, state: TrainingDivergedState, step: StepView, parameters: TrainingDivergedParameters
    ) -> Check | None:
        losses = gather(state, step)
        _measure(state, step)
        if not losses:
            return None if state.run.losses or state.run.errors else _of_policy(state, step)
        for mode, name, value in losses:
            _note(state, f"{mode}/{name}", step, finite=math.isfinite(value))
            if mode is Mode.TRAIN:
                _note_zero(state.zeros.setdefault(name, Zeros()), step, value)
        # A part of a loss gives way to its total: nobody would see that it is finite again.
        kept = {f"{mode}/{name}" for mode in Mode for name in state.run.taken(mode)}
        state.broken = {key: each for key, each in state.broken.items() if key in kept}
        state.zeros = {name: each for name, each in state.zeros.items() if name in state.run.losses.get(Mode.TRAIN, {})}
        now = step_fact(step)
        if (broken := _broken(state, now, step.at, _kind_of_break(state))) is not None:
            return broken
        if (zero := _zero(state, now)) is not None:
            return zero
        if any(mode is Mode.TRAIN for mode, _, _ in losses):
            main = state.run.loss(Mode.TRAIN)[0][1]
            if main.count >= parameters.live_rows and main.filling == main.size:
                return _judged(state, parameters, LIVE_TAIL) or _without_finding(state, now)
        if state.latest is not None and state.latest.fires and state.latest.kind != "not finite":
            return None
        return _without_finding(state, now)

    def at_end(self, state: TrainingDivergedState, parameters: TrainingDivergedParameters) -> Check | None:
        if state.latest is None:
            return None
        now = state.latest.facts[0]
        return (
            _broken(state, now, state.latest.at, "not finite")
            or _broken(state, now, state.run.at, "was not finite")
            or _zero(state, now)
            or _judged(state, parameters, ENDED_TAIL)
            or _without_finding(state, now)
        )

    def score(self, check: Check) -> float:
        return CRITICAL

    def progress(
        self, state: TrainingDivergedState, view: RunView, parameters: TrainingDivergedParameters
    ) -> Patience | None:
        row = max(state.broken.values(), key=lambda each: each.count, default=None)
        if row is None or not row.count:
            return None
        return Patience(seen=row.count, needed=row.needed, counts="values that are not finite")


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
        series = state.run.taken(Mode(mode)).get(name)
        values = 1 + (0 if series is None else series.count)
        state.broken[key] = Broken(step.step, step.step, at, step.step, at, 1, 1, values)


def _note_zero(zeros: Zeros, step: StepView, value: float) -> None:
    if value != 0.0:
        zeros.before, zeros.count = (value if math.isfinite(value) else zeros.before), 0
        return
    if zeros.count == 0:
        zeros.first, zeros.at = step.step, step.at if step.timed else None
    zeros.last = step.step
    zeros.count += 1


def _kind_of_break(state: TrainingDivergedState) -> str:
    """Return whether losses are broken for good: of one mode for a row of values, or of training and validation."""
    rows = {key.partition("/")[0]: each for key, each in state.broken.items() if each.count}
    is_sure = len(rows) > 1 or any(each.count >= each.needed for each in state.broken.values())
    return "not finite" if is_sure else "breaks"


def _zero(state: TrainingDivergedState, now: Fact) -> Check | None:
    """Return the check of a loss that jumped to exactly 0 and stays there: one that converges gets small before.

    A model of NaN has no finite loss of validation beside it, and no good score.
    """
    for name, zeros in state.zeros.items():
        loss = state.run.losses[Mode.TRAIN][name]
        jumped = loss.means and zeros.before > JUMPED * abs(loss.means[0]) > 0.0
        if min(zeros.count, loss.count - zeros.count) < MANY or not jumped or state.run.moves(name):
            continue
        if _works_since(state.run, zeros.first):
            continue
        facts = (
            Fact(name="zeros", value=zeros.count, series=name),
            level_of("loss_before_zero", name, zeros.before),
            step_number("first_bad_step", zeros.first),
            step_number("last_bad_step", zeros.last),
        )
        seen = {"at": state.run.at, "onset": zeros.at}
        return _check(now, name, "zero", facts, float(zeros.count), fires=True, threshold=float(MANY), **seen)
    return None


def _check(now: Fact, name: str, kind: str, facts: tuple[Fact, ...], value: float, **more: Any) -> Check:
    """Return the check of a loss at the step ``now``; ``more`` are its other fields."""
    return Check(step=int(now.value), tensor=name, kind=kind, facts=(now, *facts), value=value, **more)


def _works_since(run: RunSeries, step: int) -> bool:
    """Whether a model gave a finite loss of validation, or a good score, at a later step."""
    held = any(loss.last != 0.0 for _, loss in run.loss(Mode.EVAL) if loss.steps and loss.steps[-1] > step)
    return held or any(
        score.last / unit(score) >= GOOD_SCORE for _, _, score in run.all_scores if score.steps[-1] > step
    )


def _broken(state: TrainingDivergedState, now: Fact, at: float, kind: str) -> Check | None:
    """Return the check of the loss that was most often not finite: in a row that goes on, or over a good part."""
    ever = kind == "was not finite"
    counts = {
        key: each.total if ever else each.count
        for key, each in state.broken.items()
        if (each.total >= max(MANY, SHARE * each.values) if ever else each.count)
    }
    if not counts:
        return None
    key = max(counts, key=lambda each: counts[each])
    broken, (mode, _, name) = state.broken[key], key.partition("/")
    needed = broken.needed if kind == "breaks" else None
    facts = (
        Fact(name="values_not_finite", value=counts[key], series=name, threshold=needed),
        *([Fact(name="values", value=broken.values, series=name)] if ever else []),
        Fact(name="mode", value=mode),
        step_number("first_bad_step", broken.first_ever if ever else broken.first),
        *([] if ever else [step_number("last_bad_step", broken.last)]),
    )
    seen = {"at": at, "onset": broken.ever_at if ever else broken.at}
    return _check(now, name, kind, facts, float(counts[key]), fires=kind != "breaks", threshold=0.0, **seen)


def _measure(state: TrainingDivergedState, step: StepView) -> None:
    if step.mode not in (Mode.TRAIN, Mode.GLOBAL):
        return
    for signal, name in signals(step):
        if signal in FOLLOWED and state.measured.setdefault(signal, (name, Series()))[0] == name:
            value = used(state, scalar, step, name)
            if value is not None and math.isfinite(value):
                state.measured[signal][1].add(step.step, value, step.at if step.timed else None)


def _judged(state: TrainingDivergedState, parameters: TrainingDivergedParameters, fewest: int) -> Check | None:
    run = state.run
    if not run.objective.loss_has_to_fall:
        return off_course(run, state.measured, parameters, fewest)
    return runaway(run, fewest) or rise(run, parameters, fewest) or score_lost(run, parameters, fewest)


def _of_policy(state: TrainingDivergedState, step: StepView) -> Check | None:
    """Return the check of a step of a run that records what a policy earns, and no loss."""
    reward = state.measured.get(Signal.REWARD)
    if reward is None or state.run.objective.loss_has_to_fall or reward[1].steps[-1] != step.step:
        return None
    return _without_finding(state, step_fact(step))


def _without_finding(state: TrainingDivergedState, now: Fact) -> Check:
    run = state.run
    losses = run.loss(Mode.TRAIN) or run.loss(Mode.EVAL)
    if not losses:
        name, reward = state.measured[Signal.REWARD]
        facts = end_facts(name, reward, "reward")
        return series_check(run, "earns", (name, reward), facts, reward.last, fires=False)
    name, loss = losses[0]
    kind = "fine"
    known: tuple[Fact, ...] = ()
    if not run.objective.level_means_something:
        kind, known = "moves", (Fact(name="objective", value=run.objective, series=name),)
    elif loss.means:
        known = (*first_facts(name, loss), level_of("loss_last", name, loss.last))
        known += tuple(
            fact
            for key, each in state.broken.items()
            if key.partition("/")[2] == name
            for fact in (
                Fact(name="values_not_finite", value=each.total, series=name),
                step_number("first_bad_step", each.first_ever),
            )
        )[:2]
    return _check(now, name, kind, known, loss.last, at=run.at, fires=False)
