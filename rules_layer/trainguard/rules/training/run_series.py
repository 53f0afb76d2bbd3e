"""Losses and scores of a run as bounded series by mode.

A loss is a scalar of the collection ``losses``, a score one of ``metrics`` of which more is better; errors are losses
only where no loss is recorded. Where a mode has a total, as ``loss`` beside ``policy_loss``, the total alone counts.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from trainguard.core.finding import Fact
from trainguard.formats.tensors.scalars.objective import Objective, Signal, objective_of, signal_of
from trainguard.formats.tensors.step_view import Mode, StepView
from trainguard.rules.training.readings import mean, scalar, used
from trainguard.rules.training.selection import LOSSES
from trainguard.rules.training.series import Series, step_number
from trainguard.rules.training.step_rule import Check, StepState

XGBOOST_METRIC = re.compile(r"(?P<data>[A-Za-z0-9_]+)-(?P<metric>\S+)")
"""``train-rmse``: the name of an evaluation set, and that of a metric."""
XGBOOST_TRAIN = "train"


def mean_loss(state: StepState, step: StepView, tensors: Iterable[str]) -> float | None:
    means = [used(state, mean, step, tensor) for tensor in tensors]
    found = [each for each in means if each is not None]
    return sum(found) / len(found) if found else None


def by_mode(step: StepView, tensors: Iterable[str]) -> Mapping[Mode, list[str]]:
    """Return a step's loss tensors by TRAIN and EVAL; none of a step of another mode.

    In a run without modes the metrics of XGBoost are of TRAIN where they are of the set ``train``, else of EVAL.
    """
    if step.mode in (Mode.TRAIN, Mode.EVAL):
        return {step.mode: list(tensors)}
    found: dict[Mode, list[str]] = {}
    if step.mode is Mode.GLOBAL:
        for tensor in tensors:
            metric = XGBOOST_METRIC.fullmatch(tensor)
            if metric is not None:
                found.setdefault(Mode.TRAIN if metric["data"] == XGBOOST_TRAIN else Mode.EVAL, []).append(tensor)
    return found


def metric_pairs(tensors: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return for each metric of XGBoost its tensors of training and validation, where both are there."""
    names = set(tensors)
    pairs = {}
    for name in sorted(names):
        metric = XGBOOST_METRIC.fullmatch(name)
        if metric is not None and metric["data"] == XGBOOST_TRAIN:
            other = f"validation-{metric['metric']}"
            if other in names:
                pairs[metric["metric"]] = name, other
    return pairs


METRICS = "metrics"
BOUND = ("value", "of losses and scores beyond two of each in each mode")
"""What `gather` leaves out, in the words of a rule."""
MOST_SERIES = 2
"""Losses, and scores, of a mode that are kept: with 32 blocks each a state has 5 kB."""
ERROR = re.compile(
    r"(?i)(?:^|[^a-z])(?:m?error|wer|cer|mae|mse|rmse|mape|ppl|perplexity|fid|(?:m|log)?loss|rmsle|nll)(?:[^a-z]|$)"
)
REGRESSION = re.compile(
    r"(?i)(?:^|[^a-z])(?:mae|mse|rmse|mape|rmsle|msle|r2|huber|smooth_?l1)(?:[^a-z]|$)|(?:absolute|squared)_error"
)
"""Losses and metrics of regressions: where one is recorded, an accuracy beside it says nothing."""
BOOSTED_SCORE = re.compile("auc|map(?!e)|ndcg|pre|acc|f1|r2|rec|bal|spec|sens|kappa|mcc|gini|interval-regression-acc")
"""How metrics of XGBoost, and those that its users add, begin of which more is better; all others are losses."""
ACCURACY = re.compile(r"(?i)(?:^|[^a-z])(?:(?:acc|accuracy)(?:[^a-z]|$)|top_?[0-9])")
"""Shares of right answers: of no other score is it known what a guess would have."""
TOTAL = re.compile(
    r"(?i)(?:^|/)(?:(?:train|val|valid|validation|eval|test)(?:ing)?[_/])?(?:total_)?loss(?:_epoch|_step)?$"
)
"""``loss``, ``train/loss``, ``val_loss``, ``total_loss``: what is minimised, where its parts are recorded too."""

MOVING = re.compile(
    r"(?i)(?:^|[^a-z])(?:g|d|gen|generator|disc|discriminator|adv|adversarial|critic|actor|policy|value(?=_loss)|td|q|entropy|"
    r"alpha|vf|pg)(?:[^a-z]|$)"
)
"""Losses whose target moves with the model: adversaries, and reinforcement learning. Their level says little."""


class RunSeries(msgspec.Struct):
    """Series by mode, TRAIN or EVAL, and name.

    ``regression`` says that an error of a regression was recorded; ``signals`` are those of all scalars, sorted.
    """

    losses: dict[Mode, dict[str, Series]] = msgspec.field(default_factory=dict)
    scores: dict[Mode, dict[str, Series]] = msgspec.field(default_factory=dict)
    at: float = 0.0
    regression: bool = False
    signals: list[Signal] = msgspec.field(default_factory=list)

    @property
    def objective(self) -> Objective:
        return objective_of(self.signals)

    def moves(self, *names: str) -> bool:
        """Whether the level of losses, or of scores, says little: the run's own do not, or one has a moving target."""
        return not self.objective.loss_has_to_fall or any(MOVING.search(name) for name in names)

    def loss(self, mode: Mode) -> list[tuple[str, Series]]:
        of_mode = self.losses.get(mode, {})
        totals = [(name, each) for name, each in of_mode.items() if TOTAL.search(name)]
        return totals[:1] or list(of_mode.items())

    def score(self, mode: Mode) -> list[tuple[str, Series]]:
        return [(name, each) for name, each in self.scores.get(mode, {}).items() if each.means]

    def accuracy(self, mode: Mode) -> list[tuple[str, Series]]:
        return [(name, each) for name, each in self.score(mode) if ACCURACY.search(name)]

    @property
    def all_scores(self) -> list[tuple[Mode, str, Series]]:
        """The scores of training, then those of evaluation."""
        return [(mode, name, score) for mode in (Mode.TRAIN, Mode.EVAL) for name, score in self.score(mode)]


class SeriesState(StepState, kw_only=True):
    run: RunSeries = msgspec.field(default_factory=RunSeries)


def series_check(
    run: RunSeries,
    kind: str,
    of: tuple[str, Series],
    facts: tuple[Fact, ...],
    value: float,
    *,
    fires: bool = True,
    onset: float | None = None,
    **more: Any,
) -> Check:
    """Return what was found in a series, given with its name, as the check of its last step; ``more`` are its fields.

    ``onset`` is in epoch seconds, None where it is not known.
    """
    name, series = of
    last = series.steps[-1]
    more = {**more, "tensor": name, "value": value, "onset": onset if fires else None}
    return Check(step=last, at=run.at, fires=fires, kind=kind, facts=(step_number("step", last), *facts), **more)


def gather(state: SeriesState, step: StepView) -> list[tuple[Mode, str, float]]:
    """Take in a step's losses and scores; return its losses, those that are not finite among them."""
    run = state.run
    run.at = step.at
    run.signals = sorted({*run.signals, *(signal for signal, _ in signals(step))})
    seen = []
    for mode, name, is_score, value in _scalars(state, step):
        of_mode = (run.scores if is_score else run.losses).setdefault(mode, {})
        if name not in of_mode:
            if len(of_mode) >= MOST_SERIES and not (TOTAL.search(name) and _give_up_a_part(of_mode)):
                state.left_out += 1
                continue
            of_mode[name] = Series()
        if math.isfinite(value):
            of_mode[name].add(step.step, value, step.at if step.timed else None)
        if not is_score:
            seen.append((mode, name, value))
    return seen


def signals(step: StepView) -> Iterator[tuple[Signal, str]]:
    """Return which signals the single numbers of a step measure, with their names."""
    for name in step.names:
        signal = signal_of(name)
        if signal is not None and math.prod(step.shape(name) or (0,)) == 1:
            yield signal, name


def _give_up_a_part(series: dict[str, Series]) -> bool:
    part = next((name for name in series if not TOTAL.search(name)), None)
    if part is None:
        return False
    del series[part]
    return True


def _scalars(state: SeriesState, step: StepView) -> Iterator[tuple[Mode, str, bool, float]]:
    losses, metrics = step.members(LOSSES), step.members(METRICS)
    errors_count = not losses
    for name in step.names:
        if name not in losses and name not in metrics:
            continue
        state.run.regression = state.run.regression or REGRESSION.search(name) is not None
        mode = _mode(step, name)
        is_score = name not in losses and not ERROR.search(name)
        boosted = XGBOOST_METRIC.fullmatch(name) if step.mode is Mode.GLOBAL else None
        if boosted is not None:
            is_score = BOOSTED_SCORE.match(boosted["metric"]) is not None
        elif name not in losses and not is_score and not errors_count:
            continue
        value = used(state, scalar, step, name) if mode is not None else None
        if mode is not None and value is not None:
            yield mode, name, is_score, value


def _mode(step: StepView, name: str) -> Mode | None:
    if step.mode is not Mode.GLOBAL:
        return step.mode if step.mode in (Mode.TRAIN, Mode.EVAL) else None
    boosted = XGBOOST_METRIC.fullmatch(name)
    return Mode.EVAL if boosted is not None and boosted["data"] != XGBOOST_TRAIN else Mode.TRAIN
