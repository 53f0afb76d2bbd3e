"""What a report shows of a run's tensors, folded from one complete step after another into a bounded size."""

import math
import re
from collections.abc import Collection, Mapping
from typing import Literal, TypeVar

import msgspec

from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.tensors.step_view import Mode, StepView
from trainguard.report.training.heat_map import LONGEST_NAME, ReadBudget, leave_out
from trainguard.report.training.layers import Layers
from trainguard.report.training.predictions import DEFAULT_NAMES, Predictions
from trainguard.rules.training.readings import mean, scalar
from trainguard.rules.training.run_series import XGBOOST_METRIC
from trainguard.rules.training.selection import LOSSES

IMPORTANCE = "feature_importance/"
HYPERPARAMETERS = "hyperparameters/"
# Tensors so named are written by the hook of XGBoost alone.
MARKS = (IMPORTANCE, HYPERPARAMETERS, "trees/")

TYPES = ("weight", "gain", "cover")
MOST_FEATURES = 1_000
MOST_SETTINGS = 64
LONGEST = 300


class Model(msgspec.Struct, kw_only=True):
    """An XGBoost model.

    settings: Its hyperparameters.
    importance_step: The newest step with importance of features.
    importance: By type the features, in order of their numbers, with their shares (0 to 1) of all importance.
    features_left_out: Features of that step beyond the first thousand.
    """

    objective: str | None = None
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    importance_step: int | None = None
    importance: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    features_left_out: int = 0

    def fold(self, step: StepView, budget: ReadBudget) -> None:
        for name in step.names:
            if name.startswith(HYPERPARAMETERS):
                value = budget.scalar(_setting, step, name)
                key = name.removeprefix(HYPERPARAMETERS)[:LONGEST]
                has_room = len(self.settings) < MOST_SETTINGS or key in self.settings or key == "objective"
                if value is not None and has_room:
                    self.settings[key] = value
        self.objective = self.settings.get("objective", self.objective)

    def keep_importance(self, step: StepView, budget: ReadBudget) -> None:
        found: dict[str, dict[str, float]] = {}
        left_out = 0
        for kind in TYPES:
            prefix = f"{IMPORTANCE}{kind}/"
            names = sorted((name for name in step.names if name.startswith(prefix)), key=feature_order)
            left_out = max(left_out, len(names) - MOST_FEATURES)
            features = {}
            for name in names[:MOST_FEATURES]:
                share = budget.scalar(scalar, step, name)
                if share is not None:
                    features[name.removeprefix(prefix)[:LONGEST]] = share
            if features:
                found[kind] = features
        if found:
            self.importance, self.importance_step, self.features_left_out = found, step.step, left_out


def feature_order(name: str) -> tuple[int, str]:
    """Order features by the number at the end of their names: f2 before f10."""
    digits = len(name) - len(name.rstrip("0123456789"))
    number = name[len(name) - digits :] if digits else ""
    return (int(number[:18]) if number.isascii() and number else 0, name)


def _setting(step: StepView, name: str) -> str:
    entries = step.value(name).reshape(-1)
    return str(entries[0])[:LONGEST] if entries.size else ""


# Even, so that all points have a neighbour to be joined with.
MOST_POINTS = 400

Kind = Literal["loss", "metric"]
N = TypeVar("N", int, float)


class ScalarSeries(msgspec.Struct, kw_only=True):
    """A loss or a metric over global steps.

    steps: The first step of each point.
    at: When that was saved, epoch seconds.
    mean, low, high: Over the finite values of a point; None where there are none.
    counts: How many values a point stands for.
    undefined: How many of them were NaN or infinite.
    width: How many values a point holds before the next one begins.
    seen: How many steps held the tensor, read or not.
    """

    name: str
    mode: str
    kind: Kind
    steps: list[int] = msgspec.field(default_factory=list)
    at: list[float] = msgspec.field(default_factory=list)
    mean: list[float | None] = msgspec.field(default_factory=list)
    low: list[float | None] = msgspec.field(default_factory=list)
    high: list[float | None] = msgspec.field(default_factory=list)
    counts: list[int] = msgspec.field(default_factory=list)
    undefined: list[int] = msgspec.field(default_factory=list)
    width: int = 1
    seen: int = 0

    @property
    def read(self) -> int:
        return sum(self.counts)

    def add(self, step: int, at: float, value: float) -> None:
        """Take in the value of a step, which comes after those before."""
        finite = value if math.isfinite(value) else None
        if self.counts and self.counts[-1] < self.width:
            self._join(len(self.steps) - 1, finite, finite, finite, 1, int(finite is None))
            return
        if len(self.steps) >= MOST_POINTS:
            self._halve()
        self.steps.append(step)
        self.at.append(at)
        self.mean.append(finite)
        self.low.append(finite)
        self.high.append(finite)
        self.counts.append(1)
        self.undefined.append(int(finite is None))

    def _halve(self) -> None:
        for place in range(0, len(self.steps), 2):
            self._join(
                place,
                self.mean[place + 1],
                self.low[place + 1],
                self.high[place + 1],
                self.counts[place + 1],
                self.undefined[place + 1],
            )
        for column in (self.steps, self.at, self.mean, self.low, self.high, self.counts, self.undefined):
            del column[1::2]
        self.width *= 2

    def _join(
        self, place: int, mean: float | None, low: float | None, high: float | None, count: int, undefined: int
    ) -> None:
        own, own_count = self.mean[place], self.counts[place] - self.undefined[place]
        if own is None:
            self.mean[place], self.low[place], self.high[place] = mean, low, high
        elif mean is not None:
            share = (count - undefined) / (own_count + count - undefined)
            self.mean[place] = own * (1.0 - share) + mean * share
            self.low[place] = least(self.low[place], low)
            self.high[place] = most(self.high[place], high)
        self.counts[place] += count
        self.undefined[place] += undefined


def least(one: N | None, other: N | None) -> N | None:
    return min((each for each in (one, other) if each is not None), default=None)


def most(one: N | None, other: N | None) -> N | None:
    return max((each for each in (one, other) if each is not None), default=None)


_OF_DATA = re.compile(r"^scalar/|^(?:val|eval|valid|validation|train|test)[_/]")


def quantity_of(name: str) -> str:
    """Return what a loss or metric measures, whatever data it is of: ``loss`` for ``val_loss``, ``rmse`` for others."""
    found = XGBOOST_METRIC.fullmatch(name)
    return found["metric"] if found else _OF_DATA.sub("", name)


METRICS = ("metrics", "scalars", "sm_metrics")
MOST_SERIES = 24
FORMAT = 2


class TrainingDigest(msgspec.Struct, kw_only=True):
    """What is kept of a run.

    Steps are complete ones of all modes, times epoch seconds. ``series_left_out`` holds the first hundred names;
    ``unread`` counts steps without a readable index.
    """

    format: int = FORMAT
    steps: int = 0
    first_step: int | None = None
    last_step: int | None = None
    last_at: float | None = None
    modes: dict[str, int] = msgspec.field(default_factory=dict)
    series: list[ScalarSeries] = msgspec.field(default_factory=list)
    series_left_out: list[str] = msgspec.field(default_factory=list)
    layers: Layers = msgspec.field(default_factory=Layers)
    predictions: Predictions = msgspec.field(default_factory=Predictions)
    model: Model | None = None
    budget: ReadBudget = msgspec.field(default_factory=ReadBudget)
    unread: int = 0
    unread_why: str | None = None

    def note_unread(self, fault: Exception) -> None:
        self.unread += 1
        self.unread_why = str(fault)[:LONGEST_NAME]


class Digester:
    """Folds steps into a digest, which may be one that an earlier call has begun.

    ``wanted`` are tensors to show first where there is no room for all. ``confusion`` names labels and predictions as
    parameters of Confusion do.
    """

    def __init__(
        self,
        digest: TrainingDigest | None = None,
        *,
        wanted: Collection[str] = (),
        confusion: Mapping[str, str] | None = None,
    ) -> None:
        self._digest = TrainingDigest() if digest is None else digest
        self._wanted = frozenset(wanted)
        self._series = {(each.name, each.mode): each for each in self._digest.series}
        self._newest_features: StepView | None = None
        self._names = {**DEFAULT_NAMES, **(confusion or {})}

    def fold(self, step: StepView) -> None:
        """Take in a step, which comes after those before."""
        digest = self._digest
        at = self._time_of(step)
        digest.steps += 1
        digest.modes[step.mode] = digest.modes.get(step.mode, 0) + 1
        digest.last_step, digest.last_at = step.step, at
        if digest.first_step is None:
            digest.first_step = step.step
        self._fold_scalars(step, at)
        digest.layers.fold(step, digest.budget, self._wanted)
        if digest.model is None and self._is_of_xgboost(step):
            digest.model = Model()
        if digest.model is not None:
            digest.model.fold(step, digest.budget)
        objective = None if digest.model is None else digest.model.objective
        digest.predictions.fold(step, objective, digest.budget, self._names)
        if any(name.startswith(IMPORTANCE) for name in step.names):
            self._newest_features = step

    def done(self) -> TrainingDigest:
        """Read what is shown of the newest step alone, and return the digest."""
        if self._newest_features is not None and self._digest.model is not None:
            self._digest.model.keep_importance(self._newest_features, self._digest.budget)
            self._newest_features = None
        return self._digest

    def _time_of(self, step: StepView) -> float:
        """Return when a step was saved; where it does not say, when the step before was."""
        try:
            return step.at
        except TelemetryFormatError:
            return self._digest.last_at or 0.0

    def _is_of_xgboost(self, step: StepView) -> bool:
        if any(name.startswith(MARKS) for name in step.names):
            return True
        metrics = step.members("metrics") if step.mode is Mode.GLOBAL else ()
        return any(XGBOOST_METRIC.fullmatch(name) and name.startswith(("train-", "validation-")) for name in metrics)

    def _fold_scalars(self, step: StepView, at: float) -> None:
        losses = step.members(LOSSES)
        names = frozenset(losses).union(*(step.members(each) for each in METRICS))
        for name in sorted(names):
            series = self._series_of(name, step.mode, "loss" if name in losses else "metric")
            if series is None:
                continue
            series.seen += 1
            if not self._digest.budget.scalars_left and (series.seen - 1) % series.width:
                continue
            value = self._digest.budget.scalar(mean, step, name)
            if value is not None:
                series.add(step.step, at, value)

    def _series_of(self, name: str, mode: Mode, kind: Kind) -> ScalarSeries | None:
        """Return a tensor's series of a mode; None where there is no room for it."""
        known = self._series.get((name, mode))
        if known is not None:
            return known
        digest = self._digest
        if len(digest.series) >= MOST_SERIES or len(name) > LONGEST_NAME:
            leave_out(digest.series_left_out, name)
            return None
        made = ScalarSeries(name=name, mode=mode, kind=kind)
        digest.series.append(made)
        self._series[(name, mode)] = made
        return made


def joined(tensors: TrainingDigest, scalars: TrainingDigest) -> TrainingDigest:
    """Return a digest of debug-output with the losses and metrics that files of scalars have beside it."""
    if not scalars.steps:
        return tensors
    if not tensors.steps:
        scalars.unread += tensors.unread
        scalars.unread_why = tensors.unread_why or scalars.unread_why
        return scalars
    known = {(each.name, each.mode) for each in tensors.series}
    for each in scalars.series:
        if (each.name, each.mode) in known:
            each.name = f"{each.name} (file)"
        if len(tensors.series) < MOST_SERIES:
            tensors.series.append(each)
        else:
            leave_out(tensors.series_left_out, each.name)
    for name in scalars.series_left_out:
        leave_out(tensors.series_left_out, name)
    tensors.steps += scalars.steps
    tensors.first_step = least(tensors.first_step, scalars.first_step)
    tensors.last_step = most(tensors.last_step, scalars.last_step)
    for mode, steps in scalars.modes.items():
        tensors.modes[mode] = tensors.modes.get(mode, 0) + steps
    tensors.unread += scalars.unread
    tensors.unread_why = scalars.unread_why or tensors.unread_why
    return tensors
