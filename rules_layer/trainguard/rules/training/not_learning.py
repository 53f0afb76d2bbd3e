"""NotLearning: the loss, and the score where there is one, stay at the level of the start or of chance.

A run that goes on may only start slowly, so that one is judged late and only while nothing improves at all
(``live_rows``). A run that has ended is judged as a whole, from ``min_rows`` recorded values on; from ten on where one
loss is all there is. A run whose learning rate has only risen is still in its warm-up, and not judged. A loss without a
score that stands low at a learning rate of fine-tunes (5e-4 at most) is not judged either: such a model has learned
before.

Eleven conditions, each scale-free; the last four are in ``learned_poorly``:

* The loss stands. Between its first values and the last quarter of the run it fell by less than ``min_fall``, or by
  less than its noise, and Mann and Kendall's test finds no fall (5 % on two sides); or it fell by less than a fifth of
  ``min_fall``, whatever the test says: a loss of full batches has no noise, and any fall is significant. A loss of
  training that only rises stands too. The score does not rise by ``min_gain``, and it is not good already. A loss that
  changes its sign is not judged: its level says nothing.
* The score is at chance. Who guesses among k classes is right in a share 1/k and has a cross entropy of ln k, so that
  share x exp(loss) is 1. Learned models lie above: 1.5 at 60 % of 10 classes. It is at chance below 1.2, where the
  share is below 0.65 (above it, a good model comes near 1 too) and never rose by ``min_gain``. Where the loss fell by a
  tenth, it has to be above 0.8 too: then the loss fell from a bad start to chance. A score that never changes at all is
  at chance where the loss, cross entropy or squared error, is within 5 % of that of the frequency of one of two
  classes.
* The loss is at chance: it came to ln k, of k up to ten, in the first quarter of the run, and stands there.
* The score of validation is at chance although training goes on, between 0.8 and 1.2 at the lowest loss that validation
  had: what is learned does not hold for other data. Labels that do not belong to their inputs look like this.
* The loss of validation is never better than at its start, nor than that of training at its start, although training
  learns: inputs of validation are prepared in another way.
* A score is the same number at every step, at least ten, to the last digit, and no score gains: the model gives one
  answer to all. 0 does not count, nor any accuracy beside the errors of a regression, a loss that is above 100 and
  stays above 12, or one that still falls in the end: the score is none of what is learned then.
* The loss is halved and a low score of training does not gain by it: what is minimised is not what is wanted.
* Validation gets worse for good while training goes on: its loss doubled to above training's first, or a score is lost.
* Validation jumps, far from training, which converges: its normalisation is another one.
* The loss stands at the floor of a softmax over a softmax although most answers are right.
* The loss falls at an even speed and has covered little: most of its way is ahead.

The numbers were chosen on one half of 30 pairs of programs and 17 healthy ones (``tests/training/recorded``), and
measured on the other half; ``tests/verdicts/training`` measures them on other programs and on real runs.
"""

from collections.abc import Callable
from typing import ClassVar

import msgspec

from trainguard.finding import Fact, Progress
from trainguard.ledger.bucket import Bucket
from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training.folds import scalar
from trainguard.rules.training.learned_nothing import (
    Found,
    Limits,
    at_chance,
    loss_at_chance,
    loss_without_score,
    score_facts,
    score_stuck,
    stands,
    validation_at_chance,
    validation_never_better,
)
from trainguard.rules.training.learned_poorly import capped, too_slow, validation_jumps, validation_worsens
from trainguard.rules.training.loss_facts import first_facts, last_facts, step
from trainguard.rules.training.not_learning_kinds import NOTHING_LEARNED, LearningKind
from trainguard.rules.training.not_learning_text import BOUND, NEEDS, text
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.progress import NO_TREND, fall
from trainguard.rules.training.readings import used
from trainguard.rules.training.run_series import RunSeries, SeriesState, gather
from trainguard.rules.training.selection import LEARNING_RATE
from trainguard.rules.training.step_rule import Check, RunView, StepParameters, StepRule
from trainguard.rules.training.trend import z_score
from trainguard.tensors.step_view import Mode, StepView

FEWEST_ALONE = 10
"""Of one loss alone, fewer values may be the first steps of a run that crashed."""
RISEN_RATE = 2.0
FINE_TUNES, LOW_LOSS = 5e-4, 5.0
"""A learning rate of fine-tunes, and a loss that language models begin above."""
CRITICAL, HIGH = 90.0, 40.0


class NotLearningParameters(StepParameters, frozen=True, kw_only=True):
    """``min_fall`` and ``min_gain`` are shares: of the first loss, and of the score's range."""

    rule_name: ClassVar[str] = "NotLearning"

    min_rows: PositiveInt = 5
    live_rows: PositiveInt = 500
    min_fall: NonNegative = 0.05
    min_gain: NonNegative = 0.05

    def limits(self) -> Limits:
        """Return what the conditions need."""
        return Limits(self.min_rows, self.min_fall, self.min_gain)


FALL, SCORE = Measure("share of its first value by which the loss fell"), Measure("score")
LOSS, HELD_OUT = Measure("loss"), Measure("loss of validation")
JUMP = Measure("change of the loss of validation from value to value, as a share")
FLOOR = Measure("loss that cannot fall further")
PACE = Measure("share of its first value by which the loss fell, at an even speed")
MEASURES = {
    LearningKind.STANDS: FALL,
    LearningKind.LEARNS: FALL,
    LearningKind.WARM_UP: FALL,
    LearningKind.LEVEL: LOSS,
    LearningKind.UNSEEN: LOSS,
    LearningKind.WORSENS: HELD_OUT,
    LearningKind.JUMPS: JUMP,
    LearningKind.CAPPED: FLOOR,
    LearningKind.SLOW: PACE,
}
WHOLE: tuple[Callable[[RunSeries, Limits], Found | None], ...] = (
    loss_at_chance,
    validation_at_chance,
    validation_never_better,
    score_stuck,
    loss_without_score,
    validation_worsens,
    validation_jumps,
    capped,
    too_slow,
)


SPEC = RuleSpec(
    name="training/NotLearning",
    family="training",
    title="Training that learns nothing",
    looks_at="losses, and scores as the accuracy, of training and of validation",
    fires_when="they stay at the start or at chance, validation is lost, or the loss has a floor or is far too slow",
    condition=(
        "over at least {min_rows} recorded values of a run that has ended, or {live_rows} of one that goes on, the "
        "loss falls by less than {min_fall} of its first value without a trend and the score gains less than "
        "{min_gain}, or the score stays at chance; or validation gets worse for good or jumps, the loss has the floor "
        "of two softmaxes, or it falls far too slowly"
    ),
    measures=(FALL, SCORE, LOSS, HELD_OUT, JUMP, FLOOR, PACE),
    counts=STEPS,
    parameters={
        "min_rows": ParameterHelp("values", "as many recorded losses are needed to judge a run that has ended"),
        "live_rows": ParameterHelp("values", "as many are needed to judge one that goes on"),
        "min_fall": ParameterHelp("", "a smaller fall, as a share of the first loss, is none without a trend"),
        "min_gain": ParameterHelp("", "a smaller gain, as a share of the score's range, is none"),
        **RANGE_HELP,
    },
    text=text,
    claims=dict.fromkeys(NOTHING_LEARNED, (Bucket.BROKEN,)),
)


class Rate(msgspec.Struct, array_like=True):
    """The first learning rate that was recorded, the highest and the newest."""

    first: float
    highest: float
    newest: float

    @property
    def warms_up(self) -> bool:
        """Whether it has only risen: the newest is the highest, and far above the first."""
        return self.newest >= self.highest and self.newest > RISEN_RATE * self.first


class NotLearningState(SeriesState, kw_only=True):
    """Series, and the learning rate."""

    rate: Rate | None = None


class NotLearning(StepRule[NotLearningParameters, NotLearningState]):
    """Fires when a run has learned nothing."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = NotLearningParameters
    state_type = NotLearningState
    needs = NEEDS
    bound = BOUND

    def check(self, state: NotLearningState, step: StepView, parameters: NotLearningParameters) -> Check | None:
        """Take in a step; judge it when a block is complete and the run is long enough."""
        losses = gather(state, step)
        _take_rate(state, step)
        state.waiting += bool(losses)
        main = next((mode for mode in (Mode.TRAIN, Mode.EVAL) if state.run.loss(mode)), None)
        if main is None or all(mode is not main for mode, _, _ in losses):
            return None
        series = state.run.loss(main)[0][1]
        if series.count < parameters.live_rows or series.filling != series.size:
            return None
        if state.rate is not None and state.rate.warms_up:
            return _warm_up(state.run, main, state.rate)
        limits = parameters.limits()
        found = _stands(state, main, limits) or at_chance(state.run, main, limits)
        if found is not None and not _improves(state.run, main):
            return _check(state.run, found)
        return _learns(state.run, main)

    def at_end(self, state: NotLearningState, parameters: NotLearningParameters) -> Check | None:
        """Judge the whole run."""
        run = state.run
        main = next((mode for mode in (Mode.TRAIN, Mode.EVAL) if run.loss(mode) or run.score(mode)), None)
        if main is None or _longest(run, main) < _least_rows(run, parameters):
            return None
        if state.rate is not None and state.rate.warms_up:
            return _warm_up(run, main, state.rate)
        limits = parameters.limits()
        found = _stands(state, main, limits) or at_chance(run, main, limits)
        found = found or next((each for judge in WHOLE if (each := judge(run, limits)) is not None), None)
        return _check(run, found) if found is not None else _learns(run, main)

    def measure(self, check: Check) -> Measure:
        """Say whether a loss or a score was measured."""
        return MEASURES.get(LearningKind(check.kind or LearningKind.LEARNS), SCORE)

    def score(self, check: Check) -> float:
        """Return how grave it is: a run that learned nothing is lost, of others something may be kept."""
        return CRITICAL if check.kind in NOTHING_LEARNED else HIGH

    def progress(self, state: NotLearningState, view: RunView, parameters: NotLearningParameters) -> Progress | None:
        """Say how many values were seen of those that are needed."""
        seen = max((_longest(state.run, mode) for mode in (Mode.TRAIN, Mode.EVAL)), default=0)
        needed = _least_rows(state.run, parameters) if view.closed else parameters.live_rows
        return Progress(seen=seen, needed=needed, counts="values")


def _take_rate(state: NotLearningState, step: StepView) -> None:
    for name in sorted(step.members(LEARNING_RATE))[:1]:
        rate = used(state, scalar, step, name)
        if rate is not None and state.rate is None:
            state.rate = Rate(rate, rate, rate)
        elif rate is not None and state.rate is not None:
            state.rate.highest, state.rate.newest = max(state.rate.highest, rate), rate


def _longest(run: RunSeries, mode: Mode) -> int:
    return max((each.count for _, each in (*run.loss(mode), *run.score(mode))), default=0)


def _least_rows(run: RunSeries, parameters: NotLearningParameters) -> int:
    """Return how many values are needed: more where one loss is all that was recorded."""
    alone = len([mode for mode in (Mode.TRAIN, Mode.EVAL) if run.loss(mode)]) <= 1 and not _has_score(run)
    return max(parameters.min_rows, FEWEST_ALONE) if alone else parameters.min_rows


def _has_score(run: RunSeries) -> bool:
    return bool(run.score(Mode.TRAIN) or run.score(Mode.EVAL))


def _stands(state: NotLearningState, mode: Mode, limits: Limits) -> Found | None:
    """Find that the loss stands; of a fine-tune without a score that is no sign."""
    found = stands(state.run, mode, limits)
    if found is None or _has_score(state.run) or state.rate is None:
        return found
    fine_tune = 0.0 < state.rate.highest <= FINE_TUNES and 0.0 <= found.series.means[0] < LOW_LOSS
    return None if fine_tune and found.value > -limits.min_fall else found


def _improves(run: RunSeries, mode: Mode) -> bool:
    """Whether a loss or a score of a run that goes on has any trend for the better."""
    falls = any(z_score(loss.whole) <= -NO_TREND for _, loss in run.loss(mode))
    return falls or any(z_score(score.whole) >= NO_TREND for _, score in run.score(mode))


def _learns(run: RunSeries, mode: Mode) -> Check | None:
    losses = run.loss(mode)
    name, series = (losses or run.score(mode))[0]
    if not series.means:
        return None
    prefix = "loss" if losses else "score"
    facts = (*first_facts(name, series, prefix), *last_facts(name, series, prefix))
    change = Fact(name="change", value=-fall(series), unit="share", series=name)
    facts = (*facts, change, *(score_facts(run, mode) if losses else ()))
    return _check(run, Found(LearningKind.LEARNS, name, series, facts, fall(series)), fires=False)


def _warm_up(run: RunSeries, mode: Mode, rate: Rate) -> Check | None:
    name, series = (run.loss(mode) or run.score(mode))[0]
    if not series.means:
        return None
    facts = (Fact(name="learning_rate", value=rate.newest), Fact(name="learning_rate_first", value=rate.first))
    return _check(run, Found(LearningKind.WARM_UP, name, series, facts, fall(series)), fires=False)


def _check(run: RunSeries, found: Found, *, fires: bool = True) -> Check:
    last = found.series.steps[-1]
    return Check(
        step=last,
        at=run.at,
        fires=fires,
        tensor=found.name,
        value=found.value,
        threshold=found.threshold,
        kind=found.kind,
        facts=(step("step", last), *found.facts),
        onset=found.onset if fires else None,
    )
