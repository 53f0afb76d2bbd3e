"""Plateau: the loss stopped falling early and far from done, and the rest of the run gained nothing."""

from trainguard.core.finding import Fact, Patience
from trainguard.formats.tensors.step_view import Mode, StepView
from trainguard.rules.change import ChangeCode
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import FactSheet, Measure, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.run_series import BOUND, RatedState, RunSeries, gather_rated, is_fine_tune, series_check
from trainguard.rules.training.series import (
    NO_TREND,
    Series,
    first_facts,
    level,
    level_of,
    smoothed,
    step_number,
    unit,
    z_score,
)
from trainguard.rules.training.step_rule import Check, RunView, StepParameters, StepRule
from trainguard.rules.training.step_words import ROWS_HELP, filled, said, step_spec

FINE, NEVER_FELL, PLATEAU = "fine", "never fell", "plateau"


_FELL = (
    "{loss_first.series} was {loss_first:began} and fell to {loss_lowest:.6g}, by {change:fall}; nine tenths of that "
    "were reached at step {most_reached_step}, after {share_of_run:percent} of the run"
)
_SENTENCES = {
    NEVER_FELL: "{loss_first.series} was {loss_first:began} and was never lower",
    FINE: _FELL,
    PLATEAU: f"{_FELL}, and nothing was gained since",
}


def _words(sheet: FactSheet) -> Words:
    rated = "" if sheet.get("learning_rate") is None else "; the learning rate is {learning_rate}"
    return said(
        sheet,
        filled(sheet, _SENTENCES[sheet.kind] + rated),
        "Stop earlier, or change what limits the model: another learning rate or schedule, a larger model, other "
        "features. A learning rate that is far below its first value explains a plateau by itself.",
        "training stopped to improve early",
    )


MOST = 0.9
GAINED = 0.05
LEAST_FALL = 0.05


class PlateauParameters(StepParameters, frozen=True, kw_only=True):
    min_rows: PositiveInt = 20
    live_rows: PositiveInt = 1000
    early: NonNegative = 0.25
    far: NonNegative = 0.25
    low_score: NonNegative = 0.7


class Plateau(StepRule[PlateauParameters, RatedState]):
    by_default = True
    spec = step_spec(
        "Plateau",
        title="Plateau",
        looks_at="the loss and the scores of training, and the learning rate",
        fires_when="training stopped early, far from done",
        condition=(
            "nine tenths of the fall of the loss lie in the first {early} of at least {min_rows} values, there is no "
            "trend since, the whole fall is below {far} of the first loss, and a score is below {low_score}"
        ),
        measures=(Measure("share of its first value by which the loss fell"),),
        parameters={
            **ROWS_HELP,
            "early": ParameterHelp("", "the share of the run in which the loss fell"),
            "far": ParameterHelp("", "a loss that fell by a larger share is not far from done"),
            "low_score": ParameterHelp("", "a score above, as a share of its range, is not far from done"),
        },
        needs="It checks losses of training: record them in the collection losses, scores in metrics.",
        on_scalars="It checks losses of training: log one.",
        changes={"": ChangeCode.CHANGE_LEARNING_RATE},
        say=_words,
        kinds=(FINE, NEVER_FELL, PLATEAU),
        bound=BOUND,
    )

    def check(self, state: RatedState, step: StepView, parameters: PlateauParameters) -> Check | None:
        losses = gather_rated(state, step)
        if all(mode is not Mode.TRAIN for mode, _, _ in losses):
            return None
        series = state.run.loss(Mode.TRAIN)[0][1]
        if series.count < parameters.live_rows or series.filling != series.size:
            return None
        return _judged(state, parameters)

    def at_end(self, state: RatedState, parameters: PlateauParameters) -> Check | None:
        losses = state.run.loss(Mode.TRAIN)
        return _judged(state, parameters) if losses and losses[0][1].count >= parameters.min_rows else None

    def progress(self, state: RatedState, view: RunView, parameters: PlateauParameters) -> Patience | None:
        seen = next((loss.count for _, loss in state.run.loss(Mode.TRAIN)), 0)
        return Patience(seen=seen, needed=parameters.min_rows if view.closed else parameters.live_rows, counts="values")


def _judged(state: RatedState, parameters: PlateauParameters) -> Check:
    name, loss = state.run.loss(Mode.TRAIN)[0]
    values = smoothed(loss.means)
    start, best = loss.means[0], min(values)
    fallen = (start - best) / abs(start) if start else 0.0
    reached = next(place for place, value in enumerate(values) if value <= start - MOST * (start - best))
    share = reached / len(values)
    fires = (
        LEAST_FALL <= fallen < parameters.far
        and share <= parameters.early
        and loss.least >= 0.0
        and not state.run.moves(name)
        and not is_fine_tune(state.rate, state.run, start)
        and _stands_since(loss, reached, start - best)
        and _score_is_low(state.run, share, parameters)
    )
    facts = (
        *first_facts(name, loss),
        level_of("loss_lowest", name, best),
        Fact(name="change", value=-fallen, unit="share", series=name, threshold=-parameters.far),
        step_number("most_reached_step", loss.steps[reached]),
        Fact(name="share_of_run", value=share, unit="share", threshold=parameters.early),
        *([] if state.rate is None else [Fact(name="learning_rate", value=state.rate.newest)]),
    )
    kind = PLATEAU if fires else FINE if fallen > 0.0 else NEVER_FELL
    onset = loss.begin_of(reached)
    return series_check(
        state.run, kind, (name, loss), facts, fallen, threshold=parameters.far, onset=onset, fires=fires
    )


def _falls_since(error: Series, share: float) -> bool:
    since = error.means[round(share * len(error.means)) :]
    return bool(since) and (z_score(since) <= -NO_TREND or level(since, 0.25, end=True) < (1.0 - LEAST_FALL) * since[0])


def _stands_since(loss: Series, reached: int, fallen: float) -> bool:
    since = loss.means[reached + 1 :]
    if len(since) < 10 or z_score(since) <= -NO_TREND:
        return False
    return level(since, 0.25) - level(since, 0.25, end=True) <= GAINED * fallen


def _score_is_low(run: RunSeries, share: float, parameters: PlateauParameters) -> bool:
    """Whether no score is high, or gains since a share of the run, and no error of classes or texts falls."""
    if run.losses and not run.regression and any(_falls_since(error, share) for _, error in run.all_errors):
        return False
    for _, _, score in run.all_scores:
        since = score.means[round(share * len(score.means)) :]
        if level(score.means, 0.25, end=True) / unit(score) >= parameters.low_score or z_score(since) >= NO_TREND:
            return False
    return True
