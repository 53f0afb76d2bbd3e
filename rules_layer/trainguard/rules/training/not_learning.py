"""NotLearning: the loss, and the score where there is one, stay at the level of the start or of chance.

A run that goes on may only start slowly, so that one is judged late and only while nothing improves at all
(``live_rows``). A run that has ended is judged as a whole, from ``min_rows`` recorded values on.

Four conditions, each scale-free:

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
* The score of validation is at chance although training goes on, between 0.8 and 1.2 at the lowest loss that validation
  had: what is learned does not hold for other data. Labels that do not belong to their inputs look like this.
* A score is the same number at every step, at least ten, to the last digit, and no score gains: the model gives one
  answer to all, whatever the loss does. 0 does not count: it is the accuracy of a regression, which says nothing.

The numbers were chosen on one half of 30 pairs of programs and 17 healthy ones (``tests/training/recorded``), and
measured on the other half.
"""

import math
from statistics import fmean
from typing import ClassVar

from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.run_series import MOVING, RunSeries, SeriesState, gather
from trainguard.rules.training.series import Series, level, noise, smoothed
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule
from trainguard.rules.training.trend import z_score
from trainguard.tensors.step_view import Mode, StepView

STANDS, CHANCE, VALIDATION, STUCK = "stands", "chance", "validation", "stuck"
NO_TREND = 1.96
CLEAR_TREND = 5.0
"""A share of ``min_fall``: with a fall below the fifth of it, a trend does not matter."""
NOISE, MOST_NOISE = 2.0, 0.2
"""Without a trend a fall within two standard deviations of the values is none, up to a fifth of the first loss."""
SURE, MISSED_FALL = 1.64, 0.15
"""A straight fall that is larger would have been seen, at 95 %: by ``min_fall`` where the loss is the only witness, by
so much where a score stands too. The standard error of the change along a line through k values is their deviation
times the root of 12 / k."""
TAIL = 0.25
GOOD_SCORE, HIGH_SCORE = 0.8, 0.9
"""A score as high is not that of a run that learned nothing; one that never changes has to be higher still."""
CHANCE_BELOW = 0.65
AT_CHANCE = 1.2
NEAR_CHANCE = 0.8
NEAR_GUESS = 0.05
LEARNED = 0.1


class NotLearningParameters(StepParameters, frozen=True, kw_only=True):
    """``min_fall`` and ``min_gain`` are shares: of the first loss, and of the score's range."""

    rule_name: ClassVar[str] = "NotLearning"

    min_rows: PositiveInt = 5
    live_rows: PositiveInt = 500
    min_fall: NonNegative = 0.05
    min_gain: NonNegative = 0.05


SPEC = RuleSpec(
    name="training/NotLearning",
    family="training",
    title="Training that learns nothing",
    looks_at="losses, and scores as the accuracy, of training and of validation",
    fires_when="they stay at the level of the start or of chance",
    condition=(
        "over at least {min_rows} recorded values of a run that has ended, or {live_rows} of one that goes on, the "
        "loss falls by less than {min_fall} of its first value without a trend and the score gains less than "
        "{min_gain}, or the score stays at chance"
    ),
    measures=(Measure("share of its first value by which the loss fell"), Measure("score")),
    counts=STEPS,
    parameters={
        "min_rows": ParameterHelp("values", "as many recorded losses are needed to judge a run that has ended"),
        "live_rows": ParameterHelp("values", "as many are needed to judge one that goes on"),
        "min_fall": ParameterHelp("", "a smaller fall, as a share of the first loss, is none without a trend"),
        "min_gain": ParameterHelp("", "a smaller gain, as a share of the score's range, is none"),
        **RANGE_HELP,
    },
    clause="the model did not learn",
)


class NotLearning(StepRule[NotLearningParameters, SeriesState]):
    """Fires when a run has learned nothing."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = NotLearningParameters
    state_type = SeriesState
    needs = "It checks losses that are single numbers: record them in the collection losses, scores in metrics."
    bound = "values of further losses and scores are not used: two of each count, in each mode."

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
        found = _stands(state.run, main, parameters) or _at_chance(state.run, main, parameters)
        if found is not None and _improves(state.run, main):
            found = None
        return found or _learns(state.run, main)

    def at_end(self, state: SeriesState, parameters: NotLearningParameters) -> Check | None:
        """Judge the whole run."""
        run = state.run
        main = next((mode for mode in (Mode.TRAIN, Mode.EVAL) if run.loss(mode) or run.score(mode)), None)
        if main is None:
            return None
        longest = max(each.count for _, each in (*run.loss(main), *run.score(main)))
        if longest < parameters.min_rows:
            return None
        found = _stands(run, main, parameters) or _at_chance(run, main, parameters)
        return found or _validation_at_chance(run, parameters) or _stuck(run, parameters) or _learns(run, main)

    def measure(self, check: Check) -> Measure:
        """Say whether a loss or a score was measured."""
        return SPEC.measures[0] if check.kind == STANDS else SPEC.measures[1]

    def advice(self, check: Check, parameters: NotLearningParameters) -> str:
        """Say what to look at, by what was found."""
        del parameters
        if check.kind == VALIDATION:
            return (
                "Check that inputs and labels belong together, in training and in validation: that both are shuffled "
                "alike, and that both are prepared in the same way."
            )
        return (
            "Try to fit ten samples first: if the loss does not fall there either, check that the optimizer has the "
            "model's parameters and that they get gradients, the last activation and the loss function, the scale of "
            "the inputs, and a learning rate ten times higher and lower."
        )


def _stands(run: RunSeries, mode: Mode, parameters: NotLearningParameters) -> Check | None:
    """Return a check that fires where all losses of a mode stand, and no score has risen or is high."""
    losses = run.loss(mode)
    has_score = bool(run.score(Mode.TRAIN) or run.score(Mode.EVAL))
    if not losses or not all(_loss_stands(name, each, mode, parameters, has_score=has_score) for name, each in losses):
        return None
    for where in (Mode.TRAIN, Mode.EVAL):
        for _, score in run.score(where):
            high = HIGH_SCORE if score.least == score.most else GOOD_SCORE
            if gain(score) >= parameters.min_gain or _tail(score) / unit(score) >= high:
                return None
    name, loss = losses[0]
    fallen = fall(loss)
    reason = (
        f"{name} stands: from {loss.means[0]:.6g} at the start (step {loss.begins}) to {_tail(loss):.6g} in the last "
        f"quarter (until step {loss.steps[-1]}), {_moved(fallen)}{_score_words(run, mode)}"
    )
    return _check(run, loss, name, reason, fallen, parameters.min_fall, STANDS)


def _loss_stands(name: str, loss: Series, mode: Mode, parameters: NotLearningParameters, *, has_score: bool) -> bool:
    if loss.count < parameters.min_rows or loss.least < 0.0 < loss.most or MOVING.search(name):
        return False
    start, fallen = abs(loss.means[0]), fall(loss)
    if fallen < parameters.min_fall / CLEAR_TREND and fallen >= 0.0:
        return True
    least = max(parameters.min_fall * start, min(NOISE * noise(loss.means), MOST_NOISE * start))
    if fallen * start < -least:
        return mode is Mode.TRAIN and loss.means[0] - min(smoothed(loss.means)) < parameters.min_fall * start
    missed = SURE * noise(loss.means) * math.sqrt(12.0 / len(loss.means))
    sure = fallen * start + missed < (MISSED_FALL if has_score else parameters.min_fall) * start
    return sure and fallen * start < least and z_score(loss.whole) > -NO_TREND


def _at_chance(run: RunSeries, mode: Mode, parameters: NotLearningParameters) -> Check | None:
    for score_name, score in run.score(mode):
        for _, loss in run.loss(mode)[:1]:
            if min(score.count, loss.count) < parameters.min_rows or gain(score) >= parameters.min_gain:
                continue
            share, left = _tail(score) / unit(score), _tail(loss)
            guessed = _guesses(share, left) if fall(loss) < LEARNED else _guesses_exactly(share, left)
            if guessed or (score.least == score.most and _says_one_thing(share, left)):
                reason = (
                    f"{score_name} stays at the level of chance: {score.means[0]:.4g} at the start (step "
                    f"{score.begins}), {_tail(score):.4g} in the last quarter (until step {score.steps[-1]}), with a "
                    f"loss of {left:.4g} there"
                )
                return _check(run, score, score_name, reason, _tail(score), None, CHANCE)
    return None


def _validation_at_chance(run: RunSeries, parameters: NotLearningParameters) -> Check | None:
    if not run.loss(Mode.TRAIN):
        return None
    for name, score in run.score(Mode.EVAL):
        for _, loss in run.loss(Mode.EVAL)[:1]:
            share, lowest = fmean(score.means) / unit(score), min(smoothed(loss.means))
            if min(score.count, loss.count) < parameters.min_rows or not _guesses_exactly(share, lowest):
                continue
            if gain(score) < parameters.min_gain:
                reason = (
                    f"{name} stays at the level of chance: {score.means[0]:.4g} at the start (step {score.begins}), "
                    f"{_tail(score):.4g} in the last quarter (until step {score.steps[-1]}); the loss of validation "
                    f"was never below {lowest:.4g}"
                )
                return _check(run, score, name, reason, _tail(score), None, VALIDATION)
    return None


def _stuck(run: RunSeries, parameters: NotLearningParameters) -> Check | None:
    scores = [(mode, *each) for mode in (Mode.TRAIN, Mode.EVAL) for each in run.score(mode)]
    if not scores or any(gain(score) >= parameters.min_gain for _, _, score in scores):
        return None
    for mode, name, score in scores:
        highest = HIGH_SCORE if mode is Mode.TRAIN else CHANCE_BELOW
        is_constant = score.least == score.most and score.count >= 2 * parameters.min_rows
        if is_constant and 0.0 < score.least / unit(score) < highest:
            reason = (
                f"{name} is {score.least:.4g} at each of {score.count:,} steps, from step {score.begins} to "
                f"{score.steps[-1]}, whatever the loss does"
            )
            return _check(run, score, name, reason, score.least, None, STUCK)
    return None


def _guesses(share: float, loss: float) -> bool:
    """Whether a share of right answers is no better than its cross entropy says of a guess, or worse."""
    return 0.0 <= share < CHANCE_BELOW and share * math.exp(min(loss, 50.0)) <= AT_CHANCE


def _guesses_exactly(share: float, loss: float) -> bool:
    return _guesses(share, loss) and share * math.exp(loss) >= NEAR_CHANCE


def _says_one_thing(share: float, loss: float) -> bool:
    """Whether a share and a loss are those of who gives every sample the frequency of one of two classes."""
    if not 0.5 <= share < HIGH_SCORE:
        return False
    entropy = -share * math.log(share) - (1.0 - share) * math.log(1.0 - share)
    return any(abs(loss / guess - 1.0) <= NEAR_GUESS for guess in (entropy, share * (1.0 - share)))


def _improves(run: RunSeries, mode: Mode) -> bool:
    """Whether a loss or a score of a run that goes on has any trend for the better."""
    falls = any(z_score(loss.whole) <= -NO_TREND for _, loss in run.loss(mode))
    return falls or any(z_score(score.whole) >= NO_TREND for _, score in run.score(mode))


def _learns(run: RunSeries, mode: Mode) -> Check | None:
    name, series = (run.loss(mode) or run.score(mode))[0]
    if not series.means:
        return None
    reason = (
        f"{name} was {series.means[0]:.6g} at the start (step {series.begins}) and is {_tail(series):.6g} in the last "
        f"quarter (until step {series.steps[-1]}): neither it nor a score says that nothing is learned"
    )
    return _check(run, series, name, reason, fall(series), None, None)


def _check(
    run: RunSeries, series: Series, name: str, reason: str, value: float, threshold: float | None, kind: str | None
) -> Check:
    return Check(
        step=series.steps[-1],
        at=run.at,
        fires=kind is not None,
        reason=f"Step {series.steps[-1]}: {reason}.",
        tensor=name,
        value=value,
        threshold=threshold,
        kind=kind or STANDS,
    )


def _tail(series: Series) -> float:
    return level(series.means, TAIL, end=True)


def fall(loss: Series) -> float:
    """Return by which share of its size at the start a loss fell until the last quarter; below 0 for a rise."""
    start = loss.means[0]
    return (start - _tail(loss)) / abs(start) if start else 0.0


def unit(score: Series) -> float:
    """Return the range of a score: 100 of one in per cent, else 1."""
    return 100.0 if score.most > 1.5 else 1.0


def gain(score: Series) -> float:
    """Return by which share of its range a score rose above its start at most, but for single values."""
    best = max(smoothed(score.means))
    tail = fmean(score.means[-max(1, len(score.means) // 4) :])
    return (max(best if z_score(score.whole) > NO_TREND else tail, tail) - score.means[0]) / unit(score)


def _moved(fallen: float) -> str:
    return f"{'a fall' if fallen >= 0.0 else 'a rise'} of {100.0 * abs(fallen):.3g} %"


def _score_words(run: RunSeries, mode: Mode) -> str:
    scores = run.score(mode)
    if not scores:
        return ""
    name, score = scores[0]
    return f"; {name} was {score.means[0]:.4g} and is {_tail(score):.4g}"
