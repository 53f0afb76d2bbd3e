"""Losses and scores of a run as bounded series by mode, and what its learning rate shows: a warm-up, a fine-tune.

A loss is a scalar of the collection ``losses``, a score one of ``metrics`` of which more is better, an error one of
which less is: errors are losses where the run has none. Where a mode has a total, as ``loss`` beside ``mask_loss``, the
total alone counts; a part that only regularises, as ``kl_loss``, counts where nothing else is recorded.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from trainguard.core.finding import Fact
from trainguard.formats.tensors.scalars.names import ERRORS, METRICS, has_meaning, is_score
from trainguard.formats.tensors.scalars.objective import Objective, Signal, objective_of, signal_of
from trainguard.formats.tensors.step_view import Mode, StepView
from trainguard.rules.training.readings import mean, scalar, used
from trainguard.rules.training.selection import LEARNING_RATE, LOSSES
from trainguard.rules.training.series import FEWEST, NO_TREND, Series, fall, step_number, z_score
from trainguard.rules.training.step_rule import Check, StepState

# ``train-rmse``: the name of an evaluation set, and that of a metric.
XGBOOST_METRIC = re.compile(r"(?P<data>[A-Za-z0-9_]+)-(?P<metric>\S+)")

XGBOOST_TRAIN = "train"


def mean_loss(state: StepState, step: StepView, tensors: Iterable[str]) -> float | None:
    means = [used(state, mean, step, tensor) for tensor in tensors]
    found = [each for each in means if each is not None]
    return sum(found) / len(found) if found else None


def by_mode(step: StepView, tensors: Iterable[str]) -> Mapping[Mode, list[str]]:
    """Return a step's loss tensors by TRAIN and EVAL; none of a step of another mode.

    In a run without modes the metrics of XGBoost are of TRAIN where they are of the set ``train``, else of EVAL.
    """
    found: dict[Mode, list[str]] = {}
    for tensor in tensors:
        mode = _mode(step, tensor)
        if mode is not None and (step.mode is not Mode.GLOBAL or XGBOOST_METRIC.fullmatch(tensor)):
            found.setdefault(mode, []).append(tensor)
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


# What `gather` leaves out, in the words of a rule.
BOUND = ("value", "of losses and scores beyond two of each in each mode")
# A share of a least fall: with less than the fifth of it, a trend does not matter.
CLEAR_TREND = 5.0
# Losses, and scores, of a mode that are kept: with 32 blocks each a state has 5 kB.
MOST_SERIES = 2
# Losses and metrics of regressions: where one is recorded, an accuracy beside it says nothing.
REGRESSION = re.compile(
    r"(?i)(?:^|[^a-z])(?:mae|mse|rmse|mape|rmsle|msle|r2|huber|smooth_?l1)(?:[^a-z]|$)|(?:absolute|squared)_error"
)
# Shares of right answers: of no other score is it known what a guess would have.
ACCURACY = re.compile(r"(?i)(?:^|[^a-z])(?:(?:acc|accuracy)(?:[^a-z]|$)|top_?[0-9])")
# Scores without a range, of which a trend says more than a share of it.
UNBOUNDED = re.compile(r"(?i)(?:^|[^a-z])(?:margins|elbo|psnr|snr|si_?sdr|cider|dcg)(?:[^a-z]|$)")
# ``loss``, ``train/loss``, ``val_loss``, ``total_loss``, ``vae_loss``: what is minimised, beside its parts.
TOTAL = re.compile(
    r"(?i)(?:^|/)(?:(?:reduced_|avg_|global_avg_)?(?:(?:train|val|valid|validation|eval|test)(?:ing)?[_/])?(?:total_)?"
    r"loss(?:_epoch|_step|_total)?|(?:loss|losses)/(?:(?:train|val|valid|validation|eval|test)/)?total|lm[ _]loss)$|"
    r"(?:^|[^a-z])(?:vae[ _/-]?loss|loss[ _/-](?:[a-z]{1,8}_)?vae|n?elbo(?:[ _/-]?loss)?)$"
)
# A bound of the likelihood, of which more is better; many scripts give its negative that name, which is above 0.
LOWER_BOUND = re.compile(r"(?i)(?:^|[^a-z])elbo(?:[^a-z]|$)")
# Losses that regularise: they may stand, or rise, while a model learns.
PART = re.compile(
    r"(?i)(?:^|[^a-z])(?:aux|auxiliary|balance|balancing|z|reg|regulari[sz]ation|penalty|commit|commitment)(?:[^a-z]|$)"
)
# Losses whose target moves with the model: adversaries, and reinforcement learning. Their level says little.
MOVING = re.compile(
    r"(?i)(?<!cross)(?:^|[^a-z])(?:g|d|gen|generator|disc|discriminator|adv|adversarial|critic|actor|policy|"
    r"value(?=_loss)|td|q|entropy|alpha|vf|pg)(?:[^a-z]|$)"
)


class RunSeries(msgspec.Struct):
    """Series by mode, TRAIN or EVAL, and name.

    ``regression`` says that an error of a regression was recorded; ``signals`` are those of all scalars, sorted.
    """

    losses: dict[Mode, dict[str, Series]] = msgspec.field(default_factory=dict)
    scores: dict[Mode, dict[str, Series]] = msgspec.field(default_factory=dict)
    at: float = 0.0
    regression: bool = False
    signals: list[Signal] = msgspec.field(default_factory=list)
    errors: dict[Mode, dict[str, Series]] = msgspec.field(default_factory=dict)

    @property
    def objective(self) -> Objective:
        labelled = any(ACCURACY.search(name) for of_mode in self.scores.values() for name in of_mode)
        return objective_of(self.signals, has_labels=labelled or Mode.EVAL in self.losses or bool(self.errors))

    def moves(self, *names: str) -> bool:
        """Whether the level of losses, or of scores, says little: the run's own do not, or one has a moving target."""
        return not self.objective.level_means_something or any(map(MOVING.search, names))

    def has_to_fall(self, *names: str) -> bool:
        """Whether losses that do not fall are a fault, whatever their level says."""
        return self.objective.loss_has_to_fall and not any(map(MOVING.search, names))

    def taken(self, mode: Mode) -> dict[str, Series]:
        """Return the losses of a mode that are kept, those that do not count too; errors where the run has no loss."""
        return (self.losses or self.errors).get(mode, {})

    def loss(self, mode: Mode) -> list[tuple[str, Series]]:
        """Return the losses of a mode that count; beside the total of a variational model what it reconstructs."""
        of_mode = self.taken(mode)
        best = min(map(rank_of, of_mode), default=_WHOLE)
        counting = [(name, each) for name, each in of_mode.items() if rank_of(name) == best]
        if best != _WHOLE:
            return counting
        beside = self.objective is Objective.VARIATIONAL
        return counting[:1] + [(name, each) for name, each in of_mode.items() if beside and rank_of(name) == _PIECE]

    def improves_otherwise(self, least: float) -> bool:
        """Whether an error fell by a share of its start, or a score without a range rose, with a trend."""
        scores = [score for _, name, score in self.all_scores if UNBOUNDED.search(name)]
        falls = any(_falls(each, least) for _, each in self.all_errors)
        return falls or any(z_score(each.whole) >= NO_TREND for each in scores)

    def score(self, mode: Mode) -> list[tuple[str, Series]]:
        return [(name, each) for name, each in self.scores.get(mode, {}).items() if each.means]

    def accuracy(self, mode: Mode) -> list[tuple[str, Series]]:
        """Return the shares of right answers among classes of which the loss is the cross entropy.

        A contrast has as many classes as its batch or queue; the loss of preferences is one of pairs, not of tokens.
        """
        known = self.objective is Objective.SUPERVISED
        return [(name, each) for name, each in self.score(mode) if known and ACCURACY.search(name)]

    @property
    def all_errors(self) -> list[tuple[str, Series]]:
        return [(name, each) for of_mode in self.errors.values() for name, each in of_mode.items() if each.means]

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
    seen: list[tuple[Mode, str, float]] = []
    for mode, name, of_role, value in _scalars(state, step):
        of_mode = of_role.setdefault(mode, {})
        if name not in of_mode:
            if len(of_mode) >= MOST_SERIES and not (of_role is run.losses and _give_up_a_lesser(of_mode, name)):
                state.left_out += 1
                continue
            of_mode[name] = Series()
        if math.isfinite(value):
            of_mode[name].add(step.step, value, step.at if step.timed else None)
        if of_role is not run.scores:
            seen.append((mode, name, value))
    return [each for each in seen if each[1] in run.taken(each[0])]


def signals(step: StepView) -> Iterator[tuple[Signal, str]]:
    """Return which signals the single numbers of a step measure, with their names."""
    for name in step.names:
        signal = signal_of(name)
        if signal is not None and math.prod(step.shape(name) or (0,)) == 1:
            yield signal, name


_WHOLE, _PIECE, _LESSER = range(3)


@lru_cache(maxsize=8_192)
def rank_of(name: str) -> int:
    """Return how little a loss counts beside others: 0 of a total, 2 of a part that only regularises."""
    if TOTAL.search(name):
        return _WHOLE
    return _LESSER if PART.search(name) or signal_of(name) in (Signal.KL, Signal.ENTROPY) else _PIECE


def _give_up_a_lesser(series: dict[str, Series], name: str) -> bool:
    """Make room for a loss that counts more than one of those that are kept; the first of the least is given up."""
    worst = max(series, key=rank_of)
    if rank_of(worst) <= rank_of(name):
        return False
    del series[worst]
    return True


def _falls(error: Series, least: float) -> bool:
    fallen = fall(error)
    if len(error.whole) < FEWEST:
        return fallen >= least
    return fallen >= least / CLEAR_TREND and z_score(error.whole) <= -NO_TREND


def _scalars(state: SeriesState, step: StepView) -> Iterator[tuple[Mode, str, dict[Mode, dict[str, Series]], float]]:
    """Iterate over mode, name and value of losses, errors and scores, with the series that they belong to."""
    run, losses, metrics, errors = state.run, step.members(LOSSES), step.members(METRICS), step.members(ERRORS)
    for name in step.names:
        if name not in losses and name not in metrics:
            continue
        run.regression = run.regression or REGRESSION.search(name) is not None
        mode = _mode(step, name)
        value = used(state, scalar, step, name) if mode is not None else None
        if mode is not None and value is not None:
            is_loss = name in losses and not _is_bound(run, mode, name, value)
            yield mode, name, _role(run, step, name, is_loss=is_loss, is_error=name in errors), value


def _is_bound(run: RunSeries, mode: Mode, name: str, value: float) -> bool:
    """Whether a scalar is a lower bound to be raised, by its name and the first value."""
    if LOWER_BOUND.search(name) is None or name in run.losses.get(mode, {}):
        return False
    return value < 0.0 or name in run.scores.get(mode, {})


def _role(run: RunSeries, step: StepView, name: str, *, is_loss: bool, is_error: bool) -> dict[Mode, dict[str, Series]]:
    if is_error:
        return run.errors
    if step.mode is Mode.GLOBAL and XGBOOST_METRIC.fullmatch(name):
        return run.scores if is_score(name) else run.losses
    if is_loss:
        return run.losses
    return run.errors if has_meaning(LOSSES, name) and not LOWER_BOUND.search(name) else run.scores


def _mode(step: StepView, name: str) -> Mode | None:
    if step.mode is not Mode.GLOBAL:
        return step.mode if step.mode in (Mode.TRAIN, Mode.EVAL) else None
    boosted = XGBOOST_METRIC.fullmatch(name)
    return Mode.EVAL if boosted is not None and boosted["data"] != XGBOOST_TRAIN else Mode.TRAIN


# A rate that rises is this many times its first value, and has not stood for such a share of its values.
RISEN_RATE, STOOD = 2.0, 0.1
# A learning rate of fine-tunes, and a loss that language models begin above.
FINE_TUNES, LOW_LOSS = 5e-4, 5.0
# Scores of a language model, of which its data, not its training, decides how high they can be.
OF_TOKENS = re.compile(r"(?i)token")


class Rate(msgspec.Struct, array_like=True):
    """The first learning rate that was recorded, the highest and the newest; it rose up to the value ``risen``."""

    first: float
    highest: float
    newest: float
    values: int = 1
    risen: int = 1

    def take(self, rate: float) -> None:
        self.newest, self.values = rate, self.values + 1
        if rate > self.highest:
            self.highest, self.risen = rate, self.values

    @property
    def warms_up(self) -> bool:
        """Whether it still rises: the newest is the highest, far above the first, and did not stand before."""
        rises = self.values - self.risen <= STOOD * self.values
        return rises and self.newest >= self.highest and self.newest > RISEN_RATE * self.first


class RatedState(SeriesState, kw_only=True):
    rate: Rate | None = None


def gather_rated(state: RatedState, step: StepView) -> list[tuple[Mode, str, float]]:
    """Take in a step as `gather` does, and the first of its learning rates; it waits for the judgement of the whole."""
    losses = gather(state, step)
    state.waiting += bool(losses)
    for name in sorted(step.members(LEARNING_RATE))[:1]:
        rate = used(state, scalar, step, name)
        if rate is not None and state.rate is None:
            state.rate = Rate(rate, rate, rate)
        elif rate is not None and state.rate is not None:
            state.rate.take(rate)
    return losses


def is_fine_tune(rate: Rate | None, run: RunSeries, first: float) -> bool:
    """Whether a run goes on with a trained language model: by its rate and its first loss, without scores of classes.

    Its loss falls early by a little, and then stands about what the data leaves.
    """
    judged = [name for _, name, _ in run.all_scores if not OF_TOKENS.search(name)]
    return rate is not None and 0.0 < rate.highest <= FINE_TUNES and 0.0 <= first < LOW_LOSS and not judged
