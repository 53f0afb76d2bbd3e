"""TrainingDiverged: the loss is NaN or infinite, or has risen and does not come back.

A loss that is not finite fires at once, in training and in validation, and clears with the next finite one of its name.

A rise is judged on the losses of training. Two are a divergence, if all values of the last fifth of the run lie above:

* The fall is lost: the loss had fallen by a fifth or more, and more than ``lost`` of that is gone.
* The loss blows up: it is ``blow_up`` times its size at the start.

The last fifth has at least 50 values in a run that goes on and three in one that has ended, so that a restart of the
learning rate, or one bad batch, has the time to recover. A score that is as good as before says that there is no
divergence. A loss whose target moves, of adversaries or of reinforcement learning, may rise while training goes well:
its rise is not judged.

The numbers were chosen on one half of the recorded programs (``tests/training/recorded``) and measured on the other.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import ClassVar

import msgspec

from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.run_series import MOVING, RunSeries, SeriesState, gather
from trainguard.rules.training.series import Series, level, noise, smoothed
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule
from trainguard.tensors.step_view import Mode, StepView

NOT_FINITE, LOST, BLOWN_UP = "not finite", "lost", "blown up"
TAIL = 0.2
REAL_FALL = 0.2
"""A fall of less than a fifth of the start is too small to be lost."""
CLEAR_NOISE = 4.0
SAME_SCORE = 0.05
LIVE_TAIL = 50
ENDED_TAIL = 3
FEWEST_BLOCKS = 5


class TrainingDivergedParameters(StepParameters, frozen=True, kw_only=True):
    """``lost`` is a share of the fall, ``blow_up`` a multiple of the size at the start."""

    rule_name: ClassVar[str] = "TrainingDiverged"

    lost: NonNegative = 0.5
    blow_up: NonNegative = 3.0
    live_rows: PositiveInt = 250


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
    measures=(Measure("loss"), Measure("values in a row that are not finite")),
    counts=STEPS,
    parameters={
        "lost": ParameterHelp("", "a larger share of the fall that is gone again is a divergence"),
        "blow_up": ParameterHelp("", "a loss of so many times its size at the start is a divergence"),
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
    bound = "values of further losses and scores are not used: two of each count, in each mode."

    def check(
        self, state: TrainingDivergedState, step: StepView, parameters: TrainingDivergedParameters
    ) -> Check | None:
        """Look for values that are not finite; look for a rise when a block is complete."""
        losses = gather(state, step)
        if not losses:
            return None
        for mode, name, value in losses:
            _note(state, f"{mode}/{name}", step.step, finite=math.isfinite(value))
        broken = _not_finite(state, step.step, step.at)
        if broken is not None:
            return broken
        if any(mode is Mode.TRAIN for mode, _, _ in losses):
            main = state.run.loss(Mode.TRAIN)[0][1]
            if main.count >= parameters.live_rows and main.filling == main.size:
                return _rise(state.run, parameters, LIVE_TAIL) or _calm(state.run, step.step)
        if state.latest is not None and state.latest.fires and state.latest.kind != NOT_FINITE:
            return None
        return _calm(state.run, step.step)

    def at_end(self, state: TrainingDivergedState, parameters: TrainingDivergedParameters) -> Check | None:
        """Judge the whole run."""
        if state.latest is None:
            return None
        return (
            _not_finite(state, state.latest.step, state.latest.at)
            or _rise(state.run, parameters, ENDED_TAIL)
            or _calm(state.run, state.latest.step)
        )

    def measure(self, check: Check) -> Measure:
        """Say whether a loss was measured, or how often it was none."""
        return SPEC.measures[1] if check.kind == NOT_FINITE else SPEC.measures[0]

    def advice(self, check: Check, parameters: TrainingDivergedParameters) -> str:
        """Say what to do, by what was found."""
        del parameters
        if check.kind == NOT_FINITE:
            return (
                "Stop and go back to a checkpoint before these steps: NaN does not go away by itself. Scale inputs and "
                "targets to about 1, lower the learning rate, clip gradients, and look for NaN in the data, a division "
                "by zero or the logarithm of zero."
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
    elif len(state.broken) < 2 * len(Mode):
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
        reason=f"Step {step}: {name} of mode {mode} is NaN or infinite {where}, {broken.count:,} recorded values.",
        tensor=name,
        value=float(broken.count),
        threshold=0.0,
        kind=NOT_FINITE,
    )


def _rise(run: RunSeries, parameters: TrainingDivergedParameters, fewest: int) -> Check | None:
    """Return a check that fires where all losses of training have risen for good."""
    losses = run.loss(Mode.TRAIN)
    found = [_risen(loss, name, parameters, fewest) for name, loss in losses]
    rises = [each for each in found if each is not None]
    if not losses or len(rises) < len(losses) or _score_holds(run):
        return None
    (name, loss), (kind, lowest, threshold) = losses[0], rises[0]
    tail = level(loss.means, TAIL, end=True)
    place = loss.means.index(min(loss.means))
    reason = (
        f"Step {loss.steps[-1]}: {name} was {loss.means[0]:.6g} at the start (step {loss.begins}) and {lowest:.6g} at "
        f"its lowest (step {loss.steps[place]}); after step {loss.steps[-_tail(loss) - 1]} it was never below "
        f"{min(loss.means[-_tail(loss) :]):.6g}, with a mean of {tail:.6g}, above the threshold {threshold:.6g}."
    )
    return Check(
        step=loss.steps[-1],
        at=run.at,
        fires=True,
        reason=reason,
        tensor=name,
        value=tail,
        threshold=threshold,
        kind=kind,
    )


def _risen(
    loss: Series, name: str, parameters: TrainingDivergedParameters, fewest: int
) -> tuple[str, float, float] | None:
    """Return how a loss has risen, its lowest level and the threshold; None where it has not."""
    count = _tail(loss)
    if len(loss.means) < FEWEST_BLOCKS or count * loss.size < fewest or MOVING.search(name):
        return None
    start, before, tail = loss.means[0], smoothed(loss.means[:-count]), loss.means[-count:]
    lowest, clear = _lowest(before, count), CLEAR_NOISE * noise(before)
    blown_up = start + max((parameters.blow_up - 1.0) * abs(start), clear)
    if min(tail) > blown_up:
        return BLOWN_UP, lowest, blown_up
    fallen = start - lowest
    lost = lowest + max(parameters.lost * fallen, clear)
    if fallen >= REAL_FALL * abs(start) and fallen > clear and min(tail) > lost:
        return LOST, lowest, lost
    return None


def _lowest(values: Sequence[float], count: int) -> float:
    """Return the lowest mean of as many values in a row as the tail has: like is compared with like."""
    count = min(count, len(values))
    return min(fmean(values[place : place + count]) for place in range(len(values) - count + 1))


def _tail(loss: Series) -> int:
    return max(math.ceil(TAIL * len(loss.means)), 1 if loss.size > 1 else ENDED_TAIL)


def _score_holds(run: RunSeries) -> bool:
    """Whether a score of training is still about as good as it ever was, and better than at the start."""
    for _, score in run.score(Mode.TRAIN):
        values = smoothed(score.means)
        reach = max(values) - min(values)
        tail = level(values, TAIL, end=True)
        if reach > 0.0 and tail >= max(values) - max(SAME_SCORE * reach, noise(values)) and tail > values[0]:
            return True
    return False


def _calm(run: RunSeries, step: int) -> Check | None:
    losses = run.loss(Mode.TRAIN) or run.loss(Mode.EVAL)
    if not losses:
        return None
    name, loss = losses[0]
    value = loss.last if loss.count else None
    said = "has no finite value yet" if value is None else f"is {value:.6g}, and {loss.means[0]:.6g} was the start"
    return Check(
        step=step,
        at=run.at,
        fires=False,
        reason=f"Step {step}: {name} {said}; no loss is broken or has risen for good.",
        tensor=name,
        value=value,
    )
