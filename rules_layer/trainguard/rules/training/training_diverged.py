"""TrainingDiverged: the loss is NaN or infinite, or has risen and does not come back.

A loss that is not finite fires at once, in training and in validation, and clears with the next finite one of its name;
at the end it fires again where a twentieth of its values, and five at least, were not finite.

The rest is judged on losses and scores of training. It is a divergence if all values of the last fifth of the run say:

* The fall is lost: the loss had fallen by a fifth or more, and more than ``lost`` of that is gone.
* The loss blows up: it is ``blow_up`` times its size at the start, or 100 times its very first value.
* The loss falls without bound: below 0, it is ten times as large as it ever was in the first half, or a hundred times
  as large as its first value after falls that only grow.
* The score is lost: it is ``score_lost`` of its range below its best level, and the loss rose.

The last fifth has at least 50 values in a run that goes on and three in one that has ended, so that a restart of the
learning rate, or one bad batch, has the time to recover. A score that is as good as before says that there is no
divergence, unless the loss is ten times its start and the score that of a guess. A loss whose target moves, of
adversaries or of reinforcement learning, may rise while training goes well: its rise is not judged.

The numbers were chosen on one half of the recorded programs (``tests/training/recorded``) and measured on the other.
"""

import math
from typing import ClassVar

import msgspec

from trainguard.finding import Fact
from trainguard.ledger.bucket import Bucket
from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training.diverged_kinds import DivergedKind
from trainguard.rules.training.loss_facts import first_facts, level, step
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.readings import step_fact
from trainguard.rules.training.risen import ENDED_TAIL, Limits, rise, runaway, score_lost
from trainguard.rules.training.run_series import RunSeries, SeriesState, gather
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule
from trainguard.rules.training.training_diverged_text import BOUND, NEEDS, text
from trainguard.tensors.step_view import Mode, StepView

LIVE_TAIL = 50
MANY, SHARE = 5, 0.05
"""So many values that were not finite, and so large a share of all, are a broken run although the last was finite."""
CRITICAL = 100.0


class TrainingDivergedParameters(StepParameters, frozen=True, kw_only=True):
    """``lost`` is a share of the fall, ``blow_up`` a multiple of the size at the start."""

    rule_name: ClassVar[str] = "TrainingDiverged"

    lost: NonNegative = 0.5
    blow_up: NonNegative = 3.0
    score_lost: NonNegative = 0.2
    live_rows: PositiveInt = 250

    def limits(self) -> Limits:
        """Return what the conditions over a run need."""
        return Limits(self.lost, self.blow_up, self.score_lost)


class Broken(msgspec.Struct, array_like=True):
    """How often a loss was not finite: in a row that goes on (``count``, 0 where none does), and ever (``total``).

    ``first`` and ``last`` are the steps at which the row begins and ends, and ``first_ever`` is the first of all; times
    are epoch seconds, None of steps without.
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


SPEC = RuleSpec(
    name="training/TrainingDiverged",
    family="training",
    title="Training that diverges",
    looks_at="the losses of training and of validation",
    fires_when="one is NaN or infinite, or has risen and does not come back",
    condition=(
        "a loss is not finite; or over the last fifth of the run it lies above its lowest level by more than {lost} of "
        "its fall, or at {blow_up} times its size at the start"
    ),
    measures=(Measure("loss"), Measure("values in a row that are not finite"), Measure("score")),
    counts=STEPS,
    parameters={
        "lost": ParameterHelp("", "a larger share of the fall that is gone again is a divergence"),
        "blow_up": ParameterHelp("", "a loss of so many times its size at the start is a divergence"),
        "score_lost": ParameterHelp("", "a score that fell by a larger share of its range below its best is lost"),
        "live_rows": ParameterHelp("values", "as many recorded losses are needed to judge a rise while a run goes on"),
        **RANGE_HELP,
    },
    text=text,
    claims={kind: (Bucket.BROKEN,) for kind in DivergedKind if kind is not DivergedKind.FINE},
)


class TrainingDiverged(StepRule[TrainingDivergedParameters, TrainingDivergedState]):
    """Fires while a loss is not finite, or stays far above what it was."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = TrainingDivergedParameters
    state_type = TrainingDivergedState
    needs = NEEDS
    bound = BOUND

    def check(
        self, state: TrainingDivergedState, step: StepView, parameters: TrainingDivergedParameters
    ) -> Check | None:
        """Look for values that are not finite; look for a rise when a block is complete."""
        losses = gather(state, step)
        if not losses:
            return None
        for mode, name, value in losses:
            _note(state, f"{mode}/{name}", step, finite=math.isfinite(value))
        # A part of a loss gives way to its total: nobody would see that it is finite again.
        kept = {f"{mode}/{name}" for mode, of_mode in state.run.losses.items() for name in of_mode}
        state.broken = {key: each for key, each in state.broken.items() if key in kept}
        now = step_fact(step)
        broken = _not_finite(state, now, step.at)
        if broken is not None:
            return broken
        if any(mode is Mode.TRAIN for mode, _, _ in losses):
            main = state.run.loss(Mode.TRAIN)[0][1]
            if main.count >= parameters.live_rows and main.filling == main.size:
                return _judged(state.run, parameters, LIVE_TAIL) or _calm(state.run, now)
        if state.latest is not None and state.latest.fires and state.latest.kind != DivergedKind.NOT_FINITE:
            return None
        return _calm(state.run, now)

    def at_end(self, state: TrainingDivergedState, parameters: TrainingDivergedParameters) -> Check | None:
        """Judge the whole run."""
        if state.latest is None:
            return None
        now = state.latest.facts[0]
        return (
            _not_finite(state, now, state.latest.at)
            or _was_not_finite(state, now)
            or _judged(state.run, parameters, ENDED_TAIL)
            or _calm(state.run, now)
        )

    def measure(self, check: Check) -> Measure:
        """Say whether a loss was measured, or how often it was none."""
        places = {DivergedKind.NOT_FINITE: 1, DivergedKind.WAS_NOT_FINITE: 1, DivergedKind.SCORE_LOST: 2}
        return SPEC.measures[places.get(DivergedKind(check.kind or DivergedKind.FINE), 0)]

    def score(self, check: Check) -> float:
        """Return the highest score: from there on the run computes garbage."""
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


def _not_finite(state: TrainingDivergedState, now: Fact, at: float) -> Check | None:
    open_rows = {key: each for key, each in state.broken.items() if each.count}
    if not open_rows:
        return None
    key, broken = max(open_rows.items(), key=lambda each: each[1].count)
    mode, _, name = key.partition("/")
    return Check(
        step=int(now.value),
        at=at,
        fires=True,
        tensor=name,
        value=float(broken.count),
        threshold=0.0,
        kind=DivergedKind.NOT_FINITE,
        facts=(
            now,
            Fact(name="values_not_finite", value=broken.count, series=name),
            Fact(name="mode", value=mode),
            step("first_bad_step", broken.first),
            step("last_bad_step", broken.last),
        ),
        onset=broken.at,
    )


def _was_not_finite(state: TrainingDivergedState, now: Fact) -> Check | None:
    many = {key: each for key, each in state.broken.items() if each.total >= max(MANY, SHARE * each.values)}
    if not many:
        return None
    key, broken = max(many.items(), key=lambda each: each[1].total)
    mode, _, name = key.partition("/")
    return Check(
        step=int(now.value),
        at=state.run.at,
        fires=True,
        tensor=name,
        value=float(broken.total),
        threshold=0.0,
        kind=DivergedKind.WAS_NOT_FINITE,
        facts=(
            now,
            Fact(name="values_not_finite", value=broken.total, series=name),
            Fact(name="values", value=broken.values, series=name),
            Fact(name="mode", value=mode),
            step("first_bad_step", broken.first_ever),
        ),
        onset=broken.ever_at,
    )


def _judged(run: RunSeries, parameters: TrainingDivergedParameters, fewest: int) -> Check | None:
    """Return a check that fires where the run has got worse for good."""
    limits = parameters.limits()
    found = runaway(run, fewest) or rise(run, limits, fewest) or score_lost(run, limits, fewest)
    if found is None:
        return None
    last = found.series.steps[-1]
    return Check(
        step=last,
        at=run.at,
        fires=True,
        tensor=found.name,
        value=found.value,
        threshold=found.threshold,
        kind=found.kind,
        facts=(step("step", last), *found.facts),
        onset=found.onset,
    )


def _calm(run: RunSeries, now: Fact) -> Check:
    name, loss = (run.loss(Mode.TRAIN) or run.loss(Mode.EVAL))[0]
    known = (*first_facts(name, loss), level("loss_last", name, loss.last)) if loss.means else ()
    return Check(
        step=int(now.value),
        at=run.at,
        fires=False,
        tensor=name,
        value=loss.last,
        kind=DivergedKind.FINE,
        facts=(now, *known),
    )
