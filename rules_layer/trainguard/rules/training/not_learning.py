"""NotLearning: the loss, and the score where there is one, stay at the level of the start or of chance.

A run that goes on may only start slowly, so that one is judged late and only while nothing improves at all
(``live_rows``). A run that has ended is judged as a whole, from ``min_rows`` recorded values on.

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
  answer to all, whatever the loss does. 0 does not count: it is the accuracy of a regression, which says nothing.
* The loss is halved and a low score of training does not gain by it: what is minimised is not what is wanted.
* Validation gets worse for good while training goes on: its loss doubled to above training's first, or a score is lost.
* Validation jumps, far from training, which converges: its normalisation is another one.
* The loss stands at the floor of a softmax over a softmax although most answers are right.
* The loss falls at an even speed and has covered little: most of its way is ahead.

The numbers were chosen on one half of 30 pairs of programs and 17 healthy ones (``tests/training/recorded``), and
measured on the other half; ``tests/verdicts/training`` measures them on other programs and on real runs.
"""

from typing import ClassVar

from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training.learned_nothing import (
    LEVEL,
    STANDS,
    UNSEEN,
    VALIDATION,
    Found,
    Limits,
    at_chance,
    loss_at_chance,
    loss_without_score,
    score_stuck,
    stands,
    validation_at_chance,
    validation_never_better,
)
from trainguard.rules.training.learned_poorly import (
    CAPPED,
    JUMPS,
    SLOW,
    WORSENS,
    capped,
    too_slow,
    validation_jumps,
    validation_worsens,
)
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.progress import NO_TREND, beginning, fall, tail
from trainguard.rules.training.run_series import RunSeries, SeriesState, gather
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule
from trainguard.rules.training.trend import z_score
from trainguard.tensors.step_view import Mode, StepView


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
MEASURES = {STANDS: FALL, LEVEL: LOSS, UNSEEN: LOSS, WORSENS: HELD_OUT, JUMPS: JUMP, CAPPED: FLOOR, SLOW: PACE}


def _clause(result: RuleResult, nodes: int) -> str:
    """Say what was found in the past tense."""
    del nodes
    if result.measure in (HELD_OUT, JUMP):
        return "what the model learned did not hold for validation"
    return {FLOOR: "the loss could not fall as far as it should", PACE: "the model learned far too slowly"}.get(
        result.measure or FALL, "the model did not learn"
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
    clause=_clause,
)

ADVICE = {
    WORSENS: (
        "Keep the checkpoint of the lowest loss of validation and stop there. Check for wrong labels, and that "
        "validation is of the same kind as training; add data, augmentation, dropout or weight decay."
    ),
    JUMPS: (
        "Check that validation runs in evaluation mode, how fast running means of batch normalisation are updated, and "
        "that batches are not too small for them."
    ),
    CAPPED: (
        "Check that the model's last layer gives logits where the loss function takes logits: remove the softmax, or "
        "the sigmoid, before it."
    ),
    SLOW: "Try a learning rate ten times higher, and check that the schedule or warm-up does not hold it down.",
}


class NotLearning(StepRule[NotLearningParameters, SeriesState]):
    """Fires when a run has learned nothing."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = NotLearningParameters
    state_type = SeriesState
    needs = "It checks losses that are single numbers: record them in the collection losses, scores in metrics."
    bound = ("value", "of losses and scores beyond two of each in each mode")

    def check(self, state: SeriesState, step: StepView, parameters: NotLearningParameters) -> Check | None:
        """Take in a step; judge it when a block is complete and the run is long enough."""
        losses = gather(state, step)
        state.waiting += bool(losses)
        main = next((mode for mode in (Mode.TRAIN, Mode.EVAL) if state.run.loss(mode)), None)
        if main is None or all(mode is not main for mode, _, _ in losses):
            return None
        series = state.run.loss(main)[0][1]
        if series.count < parameters.live_rows or series.filling != series.size:
            return None
        limits = parameters.limits()
        found = stands(state.run, main, limits) or at_chance(state.run, main, limits)
        return (
            _check(state.run, found)
            if found is not None and not _improves(state.run, main)
            else _learns(state.run, main)
        )

    def at_end(self, state: SeriesState, parameters: NotLearningParameters) -> Check | None:
        """Judge the whole run."""
        run = state.run
        main = next((mode for mode in (Mode.TRAIN, Mode.EVAL) if run.loss(mode) or run.score(mode)), None)
        if main is None:
            return None
        longest = max(each.count for _, each in (*run.loss(main), *run.score(main)))
        if longest < parameters.min_rows:
            return None
        limits = parameters.limits()
        found = (
            stands(run, main, limits)
            or at_chance(run, main, limits)
            or loss_at_chance(run, limits)
            or validation_at_chance(run, limits)
            or validation_never_better(run, limits)
            or score_stuck(run, limits)
            or loss_without_score(run, limits)
            or validation_worsens(run, limits)
            or validation_jumps(run, limits)
            or capped(run, limits)
            or too_slow(run, limits)
        )
        return _check(run, found) if found is not None else _learns(run, main)

    def measure(self, check: Check) -> Measure:
        """Say whether a loss or a score was measured."""
        return MEASURES.get(check.kind or STANDS, SCORE)

    def advice(self, check: Check, parameters: NotLearningParameters) -> str:
        """Say what to look at, by what was found."""
        del parameters
        if check.kind in ADVICE:
            return ADVICE[check.kind]
        if check.kind in (VALIDATION, UNSEEN):
            return (
                "Check that inputs and labels belong together, in training and in validation: that both are shuffled "
                "alike, and that both are prepared in the same way."
            )
        return (
            "Try to fit ten samples first: if the loss does not fall there either, check that the optimizer has the "
            "model's parameters and that they get gradients, the last activation and the loss function, the scale of "
            "the inputs, and a learning rate ten times higher and lower."
        )


def _improves(run: RunSeries, mode: Mode) -> bool:
    """Whether a loss or a score of a run that goes on has any trend for the better."""
    falls = any(z_score(loss.whole) <= -NO_TREND for _, loss in run.loss(mode))
    return falls or any(z_score(score.whole) >= NO_TREND for _, score in run.score(mode))


def _learns(run: RunSeries, mode: Mode) -> Check | None:
    name, series = (run.loss(mode) or run.score(mode))[0]
    if not series.means:
        return None
    reason = (
        f"{name} was {beginning(series)} and is {tail(series):.6g} in the last "
        f"quarter (until step {series.steps[-1]}): neither it nor a score says that nothing is learned"
    )
    return _check(run, Found(STANDS, name, series, reason, fall(series)), fires=False)


def _check(run: RunSeries, found: Found, *, fires: bool = True) -> Check:
    step = found.series.steps[-1]
    return Check(
        step=step,
        at=run.at,
        fires=fires,
        reason=f"Step {step}: {found.reason}.",
        tensor=found.name,
        value=found.value,
        threshold=found.threshold,
        kind=found.kind,
    )
