"""Rules over samples in a window: patience and window in seconds or in points, and words without a verdict.

Both default to durations: the documented points are those of the managed service's 500 ms sampling. A rule's own text
is decorated by `or_undecided`.
"""

from abc import abstractmethod
from collections.abc import Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec
import numpy as np

from trainguard.core.errors import RuleConfigError
from trainguard.core.finding import Fact, Patience
from trainguard.core.records import Status
from trainguard.formats.profile.snapshots import BoolArray, FloatArray, points_in
from trainguard.render.details import NodeDetails
from trainguard.rules.protocol import MAX_WINDOW_POINTS, MIN_WINDOW_POINTS, RuleParameters, SystemRule
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import FactSheet, JudgedKind, RuleResult, Text, Words
from trainguard.state.sample_window import WORK_S

MIN_SAMPLED_SHARE = 0.25
# What is seen in one window must hold while the window moves on by so many windows.
LASTING_WINDOWS = 2


class PatienceParameters(RuleParameters, frozen=True, kw_only=True):
    """Parameters with a patience, in seconds or in points.

    A rule declares the fields itself, in the order in which people see its parameters, both None by default. Seconds
    win over points. Where neither is given, ``default_patience_s`` seconds are waited for, and at least
    ``default_points`` points. A class without that default gives its fields a value.
    """

    if TYPE_CHECKING:
        patience: int | None
        patience_s: float | None

    default_patience_s: ClassVar[float | None] = None
    default_points: ClassVar[int] = MIN_WINDOW_POINTS

    def patience_points(self, interval_s: float) -> int:
        """Return how many points are waited for before the first verdict."""
        if self.patience_s is not None:
            return points_in(self.patience_s, interval_s)
        if self.patience is not None:
            return self.patience
        return max(points_in(self.default_patience_s or 0.0, interval_s), self.default_points)

    @classmethod
    def completed(cls, values: dict[str, Any]) -> dict[str, Any]:
        for span in ("patience", "window"):
            if f"{span}_s" in values and values[span] is None and values[f"{span}_s"] is None:
                values[f"{span}_s"] = getattr(cls, f"default_{span}_s")
        return values


class WindowParameters(PatienceParameters, frozen=True, kw_only=True):
    """Parameters with a patience and a window, each in seconds or in points; declared as there."""

    if TYPE_CHECKING:
        window: int | None
        window_s: float | None

    default_window_s: ClassVar[float | None] = None

    def window_duration_s(self, interval_s: float) -> float:
        """Return how long the window is meant to be, seconds: where few points fall into it, more are looked at."""
        if self.window_s is not None:
            return self.window_s
        if self.window is not None:
            return max(self.window, MIN_WINDOW_POINTS) * interval_s
        return self.default_window_s or 0.0


P = TypeVar("P", bound=PatienceParameters)
W = TypeVar("W", bound=WindowParameters)
S = TypeVar("S", bound=msgspec.Struct)


class SampledRule(SystemRule[P, S], Generic[P, S]):
    """A rule over the samples of a node's GPUs: it judges once there are samples, of GPUs that it can judge."""

    # Whether it judges a node of which all GPUs are partitioned (MIG).
    judges_instances: ClassVar[bool] = False

    def judge(self, state: S, view: NodeView, parameters: P) -> RuleResult:
        if view.watermark_s is None:
            return waiting(view)
        if not view.gpu_names and not (self.judges_instances and view.mig_names):
            return lacks_utilization(view)
        return self.judge_samples(state, view, parameters)

    @abstractmethod
    def judge_samples(self, state: S, view: NodeView, parameters: P) -> RuleResult:
        """Say what ``state`` means of a node with samples and GPUs; pure."""


class WindowedRule(SampledRule[W, S], Generic[W, S]):
    """A rule over the samples of a node's GPUs that looks back on the newest window of kept points."""

    def window_points(self, parameters: W, interval_s: float) -> int:
        """Return the window in points, 20 to 2,500; RuleConfigError where a given ``window_s`` is longer."""
        points = points_in(parameters.window_duration_s(interval_s), interval_s)
        if points > MAX_WINDOW_POINTS and parameters.window_s is not None:
            expected = (
                f"at most {MAX_WINDOW_POINTS * interval_s:g} s, which are {MAX_WINDOW_POINTS:,} points at the sampling "
                f"interval of {interval_s:g} s"
            )
            raise RuleConfigError(self.name, "window_s", parameters.window_s, expected)
        return min(max(points, MIN_WINDOW_POINTS), MAX_WINDOW_POINTS)

    def lasting_points(self, parameters: W, interval_s: float) -> int:
        """Return for how many points more a window must show the same before it counts: LASTING_WINDOWS windows."""
        return points_in(LASTING_WINDOWS * parameters.window_duration_s(interval_s), interval_s)

    def clear_after_s(self, parameters: W, interval_s: float) -> float:
        return 3.0 * self.window_points(parameters, interval_s) * interval_s


def sampled_enough(window: FloatArray, least: int = MIN_WINDOW_POINTS) -> BoolArray:
    """Tell which columns of a window (float64[K, G]) can be judged: numbers at ``least`` and a quarter of it."""
    missing, needed = np.isnan(window), max(least, MIN_SAMPLED_SHARE * len(window))
    # Of most windows no number is missing, and to see that is quicker than to count them.
    counts = len(window) - (np.count_nonzero(missing, axis=0) if missing.any() else np.zeros(window.shape[1]))
    enough: BoolArray = counts >= needed
    return enough


# Where patience that was given in points lasts longer, seconds are the better choice, and the reason says so.
LONG_PATIENCE_S = 3_600.0

SERIES_IN_WORDS: Mapping[str, str] = {
    "CPUUtilization": "CPU utilization",
    "I/OWaitPercentage": "I/O wait",
    "GPUMemoryUtilization": "GPU memory activity",
}


class WarmUpKind(JudgedKind):
    """Why a rule over samples has no verdict on a node."""

    WAITING = "waiting", Status.WAITING_FOR_DATA
    WARMING_UP = "warming_up", Status.WARMING_UP
    TOO_SHORT = "too_short", Status.WARMING_UP
    TOO_FEW_SAMPLES = "too_few_samples", Status.WARMING_UP
    START_UP = "start_up", Status.WARMING_UP
    NEVER_ACTIVE = "never_active", Status.WARMING_UP
    NOT_SEEN_ACTIVE = "not_seen_active", Status.WARMING_UP
    NEVER_COLLECTED = "never_collected", Status.NOT_APPLICABLE
    NO_UTILIZATION = "no_utilization", Status.NOT_APPLICABLE
    PARTITIONED = "partitioned", Status.NOT_APPLICABLE


def waiting(view: NodeView) -> RuleResult:
    none = (view.fact("samples", 0),)
    return RuleResult.of_kind(undecided_text, WarmUpKind.WAITING, none)


def warming_up(
    points: int, needed: int, view: NodeView, details: NodeDetails, progress: Patience | None = None
) -> RuleResult:
    """Return the judgement of a node with ``points`` of the ``needed`` ones."""
    if view.first_active_at is None:
        kind, facts = never_active(view)
    else:
        kind = WarmUpKind.TOO_FEW_SAMPLES
        facts = (
            view.work_fact("points", points, threshold=float(needed)),
            view.fact("sampling_interval", view.interval_s, unit="s"),
            view.fact("patience", needed * view.interval_s, unit="s"),
            *stream_end(view),
        )
        if points <= needed and view.closed:
            kind = WarmUpKind.TOO_SHORT
        elif points <= needed:
            kind, left_s = WarmUpKind.WARMING_UP, (needed + 1 - points) * view.interval_s
            facts = (*facts, view.fact("time_left", left_s, unit="s"))
    return RuleResult.of_kind(
        undecided_text,
        kind,
        facts,
        data_points=points,
        progress=progress or Patience(seen=points, needed=needed),
        details=details,
    )


def never_collected(series: str, view: NodeView) -> RuleResult:
    facts = (view.fact("samples", 0, series=series),)
    kind = WarmUpKind.NEVER_COLLECTED
    return RuleResult.of_kind(undecided_text, kind, facts, data_points=view.kept_total)


def lacks_utilization(view: NodeView, details: "NodeDetails | None" = None) -> RuleResult:
    """Say that a node has no samples of GPUs: it has none, only partitioned ones, or nobody measured them."""
    kind = WarmUpKind.PARTITIONED if view.mig_names else WarmUpKind.NO_UTILIZATION
    facts = (
        view.fact("gpus", 0, series="GPUUtilization"),
        view.fact("instances", len(view.mig_names)),
    )
    return RuleResult.of_kind(undecided_text, kind, facts, details=details or {})


def never_active(view: NodeView) -> tuple[WarmUpKind, tuple[Fact, ...]]:
    """Return why there is no verdict on a node that had not worked before its watermark or its stream's end."""
    ended = stream_end(view)
    if view.ever_active.any():
        return WarmUpKind.START_UP, (view.fact("work_needed", WORK_S, unit="s"), *ended)
    since_first_s = max((view.watermark_s or 0.0) - (view.first_sample_at or 0.0), 0.0)
    unseen = view.idle_run_s <= 0.0 and view.first_sample_at is not None and since_first_s >= view.interval_s
    kind = WarmUpKind.NOT_SEEN_ACTIVE if unseen else WarmUpKind.NEVER_ACTIVE
    return kind, (view.fact("idle_time", since_first_s, unit="s", series="GPUUtilization"), *ended)


def or_undecided(text: Text) -> Text:
    """Return a rule's text that also says why there is no verdict, of a judgement of one of the shared kinds."""

    @wraps(text)
    def words(sheet: FactSheet) -> Words:
        return undecided_text(sheet) if sheet.kind in _KINDS else text(sheet)

    return words


def undecided_text(sheet: FactSheet) -> Words:
    kind, ended = WarmUpKind(sheet.kind), sheet.get("stream_end") is not None
    if kind in {WarmUpKind.WARMING_UP, WarmUpKind.TOO_SHORT}:
        has = sheet.say("{points.value:,} of the {points.limit:point} of patience")
        of_patience = has if sheet["points"].threshold else "no point that can be judged"
        long = kind is WarmUpKind.WARMING_UP and sheet.number("patience") > LONG_PATIENCE_S
        return Words(sheet.say(_REASONS[kind], of_patience=of_patience, more=sheet.say(_IN_SECONDS) if long else ""))
    if kind is WarmUpKind.NEVER_ACTIVE and ended:
        return Words(sheet.say("no GPU of {node} was active in the {idle_time} until its stream ended."))
    series = sheet.facts[0].series or ""
    until = "until its stream ended" if ended else "yet"
    return Words(sheet.say(_REASONS[kind], until=until, series=SERIES_IN_WORDS.get(series, series)))


def stream_end(view: NodeView) -> tuple[Fact, ...]:
    if not view.closed or view.watermark_s is None:
        return ()
    return (Fact(name="stream_end", value=view.watermark_s, unit="time", node=view.node),)


_IN_SECONDS = (
    " ({points.limit:point} are {patience} at a sampling interval of {sampling_interval.value:g} s: better give "
    "patience_s, and window_s where the rule has one, in seconds)"
)
_REASONS: Mapping[WarmUpKind, str] = {
    WarmUpKind.WAITING: "no system metrics of {node} were written.",
    WarmUpKind.WARMING_UP: "{node} has {of_patience}, about {time_left} left{more}.",
    WarmUpKind.TOO_SHORT: "{node} has {of_patience}; its stream has ended, too early for a verdict.",
    WarmUpKind.TOO_FEW_SAMPLES: "too few of the newest points of {node} have GPU samples.",
    WarmUpKind.START_UP: (
        "{node} has not finished its start-up: its GPUs were not active for {work_needed.value:g} s in all {until}."
    ),
    WarmUpKind.NEVER_ACTIVE: "no GPU of {node} has been active yet, {idle_time} after its first sample.",
    WarmUpKind.NOT_SEEN_ACTIVE: (
        "no GPU of {node} was seen active, and its newest points have no sample of GPU utilization."
    ),
    WarmUpKind.NEVER_COLLECTED: "no {series} of {node} was collected, which the rule needs.",
    WarmUpKind.NO_UTILIZATION: "no utilization of GPUs was recorded on {node}: it has none, or they were not measured.",
    WarmUpKind.PARTITIONED: "the GPUs of {node} are partitioned (MIG), so utilization is not measured.",
}
_KINDS = frozenset(WarmUpKind)
