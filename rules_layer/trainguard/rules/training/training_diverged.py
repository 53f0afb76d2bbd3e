"""TrainingDiverged: the loss is NaN or infinite, or has risen and does not come back.

A loss that is not finite fires at once, in training and in validation, and clears with the next finite one of its name.

The rest is judged on losses and scores of training. It is a divergence if all values of the last fifth of the run say:

* The fall is lost: the loss had fallen by a fifth or more, and more than ``lost`` of that is gone.
* The loss blows up: it is ``blow_up`` times its size at the start, or 1,000 times its very first value.
* The loss falls without bound: below 0, it is ten times as large as it ever was in the first half.
* The score is lost: it is ``score_lost`` of its range below its best level, and the loss rose.

The last fifth has at least 50 values in a run that goes on and three in one that has ended, so that a restart of the
learning rate, or one bad batch, has the time to recover. A score that is as good as before says that there is no
divergence. A loss whose target moves, of adversaries or of reinforcement learning, may rise while training goes well:
its rise is not judged.

The numbers were chosen on one half of the recorded programs (``tests/training/recorded``) and measured on the other.
"""

import math
from typing import ClassVar

import msgspec

from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.progress import beginning
from trainguard.rules.training.risen import ENDED_TAIL, SCORE_LOST, UNBOUNDED, Limits, rise, runaway, score_lost
from trainguard.rules.training.run_series import RunSeries, SeriesState, gather
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule
from trainguard.rules.units import counted
from trainguard.tensors.step_view import Mode, StepView

NOT_FINITE = "not finite"
LIVE_TAIL = 50


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
    """How many values of a loss in a row are not finite, and at which steps they begin and end."""

    first: int
    last: int
    count: int


class TrainingDivergedState(SeriesState, kw_only=True):
    """Series, and losses whose newest value is not finite, by mode and name."""

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
    clause="training diverged",
)


class TrainingDiverged(StepRule[TrainingDivergedParameters, TrainingDivergedState]):
    """Fires while a loss is not finite, or stays far above what it was."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = TrainingDivergedParameters
    state_type = TrainingDivergedState
    needs = "It checks losses that are single numbers: record them with CollectionConfig(name='losses')."
    bound = ("value", "of losses and scores beyond two of each in each mode")

    def check(
        self, state: TrainingDivergedState, step: StepView, parameters: TrainingDivergedParameters
    ) -> Check | None:
        """Look for values that are not finite; look for a rise when a block is complete."""
        losses = gather(state, step)
        if not losses:
            return None
        for mode, name, value in losses:
            _note(state, f"{mode}/{name}", step.step, finite=math.isfinite(value))
        # A part of a loss gives way to its total: nobody would see that it is finite again.
        kept = {f"{mode}/{name}" for mode, of_mode in state.run.losses.items() for name in of_mode}
        state.broken = {key: each for key, each in state.broken.items() if key in kept}
        broken = _not_finite(state, step.step, step.at)
        if broken is not None:
            return broken
        if any(mode is Mode.TRAIN for mode, _, _ in losses):
            main = state.run.loss(Mode.TRAIN)[0][1]
            if main.count >= parameters.live_rows and main.filling == main.size:
                return _judged(state.run, parameters, LIVE_TAIL) or _calm(state.run, step.step)
        if state.latest is not None and state.latest.fires and state.latest.kind != NOT_FINITE:
            return None
        return _calm(state.run, step.step)

    def at_end(self, state: TrainingDivergedState, parameters: TrainingDivergedParameters) -> Check | None:
        """Judge the whole run."""
        if state.latest is None:
            return None
        return (
            _not_finite(state, state.latest.step, state.latest.at)
            or _judged(state.run, parameters, ENDED_TAIL)
            or _calm(state.run, state.latest.step)
        )

    def measure(self, check: Check) -> Measure:
        """Say whether a loss was measured, or how often it was none."""
        return SPEC.measures[{NOT_FINITE: 1, SCORE_LOST: 2}.get(check.kind or "", 0)]

    def advice(self, check: Check, parameters: TrainingDivergedParameters) -> str:
        """Say what to do, by what was found."""
        del parameters
        if check.kind == NOT_FINITE:
            return (
                "Stop and go back to a checkpoint before these steps: NaN does not go away by itself. Scale inputs and "
                "targets to about 1, lower the learning rate, clip gradients, and look for NaN in the data, a division "
                "by zero or the logarithm of zero."
            )
        if check.kind == UNBOUNDED:
            return (
                "A loss with a minimum does not do that. Check its sign, that targets lie in the range that the loss "
                "expects, and that what it gets are chances or logits, as it expects."
            )
        return (
            "Go back to a checkpoint before the rise. Lower the learning rate or its peak after a restart, lengthen "
            "the warm-up, clip gradients, and check the data of these steps."
        )


def _note(state: TrainingDivergedState, key: str, step: int, *, finite: bool) -> None:
    if finite:
        state.broken.pop(key, None)
        return
    if key in state.broken:
        state.broken[key].last = step
        state.broken[key].count += 1
    else:
        state.broken[key] = Broken(step, step, 1)


def _not_finite(state: TrainingDivergedState, step: int, at: float) -> Check | None:
    if not state.broken:
        return None
    key, broken = max(state.broken.items(), key=lambda each: each[1].count)
    mode, _, name = key.partition("/")
    where = f"at step {broken.first}" if broken.first == broken.last else f"from step {broken.first} to {broken.last}"
    return Check(
        step=step,
        at=at,
        fires=True,
        reason=(
            f"Step {step}: {name} of mode {mode} is NaN or infinite {where}, {counted(broken.count, 'recorded value')}."
        ),
        tensor=name,
        value=float(broken.count),
        threshold=0.0,
        kind=NOT_FINITE,
    )


def _judged(run: RunSeries, parameters: TrainingDivergedParameters, fewest: int) -> Check | None:
    """Return a check that fires where the run has got worse for good."""
    limits = parameters.limits()
    found = rise(run, limits, fewest) or runaway(run, fewest) or score_lost(run, limits, fewest)
    if found is None:
        return None
    step = found.series.steps[-1]
    return Check(
        step=step,
        at=run.at,
        fires=True,
        reason=f"Step {step}: {found.reason}.",
        tensor=found.name,
        value=found.value,
        threshold=found.threshold,
        kind=found.kind,
    )


def _calm(run: RunSeries, step: int) -> Check:
    name, loss = (run.loss(Mode.TRAIN) or run.loss(Mode.EVAL))[0]
    said = f"is {loss.last:.6g}, and was {beginning(loss)}"
    return Check(
        step=step,
        at=run.at,
        fires=False,
        reason=f"Step {step}: {name} {said}; no loss is broken or has risen for good.",
        tensor=name,
        value=loss.last,
    )
