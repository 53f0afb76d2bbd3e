"""When a node's GPUs do nothing, or next to nothing: never used, stopped, nearly idle, idle in part, or in pauses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np

from trainguard.core.finding import Fact
from trainguard.formats.profile import snapshots as names
from trainguard.rules.low_gpu_utilization.devices import Held, HeldMemory, held_memory, memory_of
from trainguard.rules.low_gpu_utilization.text import HOLDING_SUFFIX, NAMES, text
from trainguard.rules.low_gpu_utilization.usage import (
    COSTLY_SHARE,
    HELD_TIME,
    IDLE_SHARE,
    IDLE_TIME,
    PART_S,
    PAUSED,
    QUIET_MEAN,
    UTILIZATION,
    WEAK_MEAN,
    Kind,
    MeanUse,
    UsagePart,
    mean_use,
    noted,
    parts_since,
    stream_end,
)
from trainguard.rules.rule_inputs import NodeMinute, NodeView, share_of_paid
from trainguard.rules.rule_result import IdleNode, RuleResult
from trainguard.rules.sample_statistics import sampled
from trainguard.state.gpu_time import ACTIVE_PERCENT, QUIET_PERCENT, is_chance

# A node that is idle for so long is a finding of its own; up to here it is start-up, a pause or the tail.
IDLE_FINDING_S = 1_200.0
# Of the time in which a node was nearly idle, so much in one run of idle snapshots is silence after the last work.
ONE_RUN = 0.8
# A node is judged as idle in part once the samples from its first work to its newest cover so long.
IN_PART_S = 1_800.0
# It is idle in part where no GPU was active in so many of them, and until that is so in fewer than the second.
IN_PART_SHARE, NO_MORE_SHARE = 0.5, 0.4
# Regular pauses that are so much of its idle time say more of such a node.
MOST_OF_IT = 0.8
# And where so many lie in pauses: GPUs that idle between steps alone are judged one by one.
PAUSED_SHARE = 0.15

MIN_BREAKS, MIN_PERIOD_S = 3, 120.0
# Breaks are regular where most of the times between them are within a quarter of their median.
REGULAR, ALIKE_SHARE = 0.25, 0.7

Look = Literal["unused", "silent", "quiet", "weak"]


@dataclass(frozen=True, slots=True)
class Idleness:
    """How a node idles, for how many ``seconds``, and since when, epoch seconds.

    ``look`` is "unused" where no GPU was ever active, "silent" since the last work, "quiet" where they are nearly idle
    on average, and "weak" where they are under-used.
    """

    look: Look
    seconds: float
    at_start: bool
    since: float

    @property
    def kind(self) -> IdleNode | None:
        """What the finding is called: a node without work since its start was never used; None of one that works."""
        if self.look == "weak":
            return None
        return "never used" if self.at_start else "idle"


def idleness_of(view: NodeView) -> Idleness | None:
    """Say how a node idles; None where it works, or has not idled for long enough."""
    if view.watermark_s is None:
        return None
    at_start = view.first_active_at is None
    seen = view.kept_total + view.idle_time.paused
    chance = not at_start and is_chance(view.idle_run_s / view.interval_s, view.idle_time.samples, seen)
    silent_s = 0.0 if chance else view.idle_run_s
    resumed = not view.closed and view.idle_time.newest_mean >= QUIET_PERCENT
    quiet_s = 0.0 if resumed else view.idle_time.quiet_s
    if max(silent_s, quiet_s) <= 0.0:
        return None
    silent = silent_s >= ONE_RUN * quiet_s
    # A snapshot stands for the time until the next one.
    seconds = (silent_s if silent else quiet_s) + view.interval_s
    if seconds < IDLE_FINDING_S:
        return None
    look: Look = "silent" if silent and not at_start else "quiet"
    if silent and view.idle_time.run_mean >= QUIET_PERCENT:
        look = "weak"
    elif at_start and not view.ever_active.any():
        look = "unused"
    return Idleness(look, seconds, at_start, view.watermark_s + view.interval_s - seconds)


class InPart(msgspec.Struct, array_like=True):
    """State of a node that idles in part: snapshots idle in a row at the end, and in pauses until now.

    ``pauses`` are snapshots by the ordinal of the part of the clock in which the pause ended. ``onset`` is epoch
    seconds, None while it is not idle in part; ``lost_s`` is the GPUs' loss in all such times, in seconds of the node.
    """

    open: int = 0
    paused: int = 0
    pauses: list[tuple[int, int]] = msgspec.field(default_factory=list)
    onset: float | None = None
    lost_s: float = 0.0

    def fold(self, parts: Sequence[UsagePart], minute: NodeMinute) -> None:
        """Take in a minute, which ``parts`` have already."""
        view, snapshots = minute.view, minute.snapshots
        if minute.restarted:
            self.onset, self.lost_s = None, 0.0
        parts = parts_since(parts, view.first_active_at)
        if not parts or not len(snapshots):
            return
        active = np.flatnonzero(minute.active)
        self.open = self.open + len(snapshots) if not active.size else len(snapshots) - 1 - int(active[-1])
        # At a reading a minute nobody can tell a pause from readings that are zero by chance: both are idle time.
        paused = view.idle_time.paused + view.idle_time.chance
        over, self.paused = paused - self.paused, paused
        kept = [each for each in self.pauses if each[0] >= parts[0].part]
        self.pauses = [*kept, (parts[-1].part, over)] if over > 0 else kept
        before, use = self.onset, self._idle_in_part(parts, view)
        if use is None:
            self.onset = None
        elif before is None:
            self.onset = use.start
            self.lost_s += use.samples * view.interval_s * (1.0 - use.mean / 100.0)
        else:
            values = sampled(snapshots.gpu_utilization)
            undone = 1.0 - float(values.mean()) / 100.0 if values.size else 0.0
            self.lost_s += len(snapshots) * view.interval_s * undone

    def _idle_in_part(self, parts: Sequence[UsagePart], view: NodeView) -> MeanUse | None:
        use = use_at_work(parts, view)
        if use is None:
            return None
        # The run that goes on is a pause or the end of work, still unknown. One that was a finding was reported.
        told = sum(amount for _, amount in self.pauses if amount * view.interval_s >= IDLE_FINDING_S)
        samples, idle = use.samples - self.open - told, use.idle - self.open - told
        if samples * view.interval_s < IN_PART_S:
            return None
        least = IN_PART_SHARE if self.onset is None else NO_MORE_SHARE
        pauses = sum(amount for _, amount in self.pauses) - told >= PAUSED_SHARE * samples
        return use if idle >= least * samples and (pauses or self.onset is not None) else None


def use_at_work(parts: Sequence[UsagePart], view: NodeView) -> MeanUse | None:
    """Return the use over all samples since the first work, of an hour at most; None before it."""
    return None if view.first_active_at is None else mean_use(parts_since(parts, view.first_active_at), view)


@dataclass(frozen=True, slots=True)
class RegularBreaks:
    """Pauses that come back, from ``since`` to ``until``: medians in s; ``of_paid`` is all breaks' share, 0 to 1."""

    since: float
    until: float
    length_s: float
    period_s: float
    of_paid: float
    go_on: bool

    @property
    def share(self) -> float:
        return self.length_s / self.period_s

    @property
    def is_costly(self) -> bool:
        return self.go_on and self.share >= COSTLY_SHARE


def regular_breaks(view: NodeView) -> RegularBreaks | None:
    """Return the breaks of a node where they come back regularly; None where they do not."""
    newest = view.idle_time.breaks
    if len(newest) < MIN_BREAKS or view.watermark_s is None or view.first_sample_at is None:
        return None
    starts, lengths = np.array(newest).T
    periods = np.diff(starts)
    period_s, length_s = float(np.median(periods)), float(np.median(lengths))
    alike = np.abs(periods - period_s) <= REGULAR * period_s
    if period_s < MIN_PERIOD_S or np.count_nonzero(alike) < ALIKE_SHARE * len(periods):
        return None
    return RegularBreaks(
        since=float(starts[0]),
        until=min(float(starts[-1] + lengths[-1]), view.watermark_s),
        length_s=length_s,
        period_s=period_s,
        of_paid=min(view.idle_time.breaks_s / (view.watermark_s - view.first_sample_at + view.interval_s), 1.0),
        go_on=view.watermark_s - float(starts[-1]) <= 2.0 * period_s,
    )


Finding = Mapping[str, Any]
_LOOKS: Mapping[Look, Kind] = {"unused": Kind.NEVER_USED, "silent": Kind.STOPPED, "quiet": Kind.NEARLY_IDLE}


def _idle_facts(view: NodeView, idleness: Idleness, use: MeanUse | None, threshold: float) -> tuple[Fact, ...]:
    times = {"start": idleness.since, "end": view.watermark_s}
    facts = (
        view.fact("idle_time", idleness.seconds, "s", series=UTILIZATION, threshold=IDLE_FINDING_S, **times),
        view.fact("idle_since", idleness.since, "time", series=UTILIZATION),
        view.fact("first_sample", view.first_sample_at or 0.0, "time"),
        view.fact("gpus", len(view.gpu_names), "GPUs"),
        *stream_end(view),
    )
    if use is None:
        return facts
    mean = {"series": UTILIZATION, "device": use.busiest, "start": use.start, "end": use.end, "threshold": threshold}
    return (*facts, view.fact("highest_mean_utilization", use.means[use.busiest], "%", **mean))


def _newest_use(view: NodeView, parts: Sequence[UsagePart], idle_since: float) -> MeanUse:
    """Return the use of the newest 20 to 30 minutes since ``idle_since``; without parts that of the view's means."""
    oldest = (view.watermark_s or 0.0) - IDLE_FINDING_S
    newest = [each for each in parts if PART_S * (each.part + 1) > oldest]
    found = mean_use(parts_since(newest, idle_since) or newest[-1:], view)
    if found is not None:
        return found
    mean = view.idle_time.run_mean if view.idle_run_s else view.idle_time.highest_mean
    return MeanUse(idle_since, view.watermark_s or idle_since, 0, 0, dict.fromkeys(view.gpu_names, mean))


def judge_weak(
    view: NodeView, idleness: Idleness, sign: tuple[Fact, ...], parts: Sequence[UsagePart], common: Finding
) -> RuleResult:
    """Report that a node without an active GPU works a little; ``sign`` is the evidence beside utilization."""
    use = _newest_use(view, parts, idleness.since)
    mean = use.means[use.busiest]
    facts = (*_idle_facts(view, idleness, use, ACTIVE_PERCENT), *sign)
    wasted = share_of_paid(view, (1.0 - mean / 100.0) * idleness.seconds)
    number = {"measured": mean, "threshold": ACTIVE_PERCENT, "measure": WEAK_MEAN, "wasted_share": wasted}
    said = noted(common, finding=NAMES[Kind.HARDLY_USED])
    affected = share_of_paid(view, idleness.seconds)
    return _of_whole_node(view, Kind.HARDLY_USED, facts, affected, idleness.since, {**said, **number})


def _of_whole_node(
    view: NodeView, kind: Kind, facts: tuple[Fact, ...], lost: float | None, onset: float, more: Finding
) -> RuleResult:
    """Return a finding on all GPUs of a node since ``onset``; ``lost`` is its share of the paid time."""
    fields = {"affected_share": lost, "wasted_share": lost, "onset": onset, "gpus": view.gpu_names, **more}
    return RuleResult.of_kind(text, kind, facts, **fields)


def judge_idle(
    view: NodeView, idleness: Idleness, held: Mapping[str, HeldMemory], parts: Sequence[UsagePart], common: Finding
) -> RuleResult:
    holding, look = held_memory(held, view), _LOOKS[idleness.look]
    use = _newest_use(view, parts, 0.0) if look is Kind.NEARLY_IDLE else None
    facts = _idle_facts(view, idleness, use, QUIET_PERCENT)
    number = {"measured": idleness.seconds / 60.0, "threshold": IDLE_FINDING_S / 60.0, "measure": IDLE_TIME}
    kind, suffix = look, ""
    if holding is not None:
        kind, suffix, number["measure"] = Kind.HOLDS_MEMORY, HOLDING_SUFFIX, HELD_TIME
        facts = (*facts, view.fact("idle_as", look.value), *memory_facts(view, holding))
    elif look is Kind.NEARLY_IDLE:
        number = {"measured": view.idle_time.highest_mean, "threshold": QUIET_PERCENT, "measure": QUIET_MEAN}
    said = noted(common, finding=f"{NAMES[look]}{suffix}", memory=memory_of(held, view))
    lost, more = share_of_paid(view, idleness.seconds), {**said, **number, "idle_node": idleness.kind}
    return _of_whole_node(view, kind, facts, lost, idleness.since, more)


def memory_facts(view: NodeView, held: Held, device: str | None = None) -> tuple[Fact, ...]:
    if held.share:
        share = view.fact("memory_in_use_share", held.used, "%", series=names.MEMORY_SHARE, device=device)
        return share, view.fact("gpus_holding", len(held.gpus), "GPUs")
    used = view.fact("memory_in_use", held.used, "B", series=names.MEMORY_USED, device=device)
    total = (view.fact("memory_total", held.total, "B", series=names.MEMORY_TOTAL, device=device),)
    return used, *(total if held.total else ()), view.fact("gpus_holding", len(held.gpus), "GPUs")


def judge_in_part(view: NodeView, in_part: InPart, parts: Sequence[UsagePart], common: Finding) -> RuleResult | None:
    """Say that a node did nothing for most of the newest hour; None where it worked, or regular pauses are the most."""
    use, breaks = use_at_work(parts, view), regular_breaks(view)
    if in_part.onset is None or use is None:
        return None
    if breaks is not None and breaks.is_costly and breaks.share >= MOST_OF_IT * use.idle / use.samples:
        return None
    of_use = {"series": UTILIZATION, "start": use.start, "end": use.end}
    share = use.idle / use.samples
    lost = share_of_paid(view, in_part.lost_s)
    facts = (
        view.fact("idle_share", share, "share", threshold=IN_PART_SHARE, **of_use),
        view.fact("mean_utilization", use.mean, "%", **of_use),
        view.fact("highest_mean_utilization", use.means[use.busiest], "%", device=use.busiest, **of_use),
        view.fact("samples", use.samples, "samples", **of_use),
        view.fact("gpus", len(view.gpu_names), "GPUs"),
        *stream_end(view),
    )
    number = {"measured": 100.0 * share, "threshold": 100.0 * IN_PART_SHARE, "measure": IDLE_SHARE}
    return _of_whole_node(view, Kind.IDLE_IN_PART, facts, lost, in_part.onset, {**common, **number})


def judge_breaks(view: NodeView, breaks: RegularBreaks, common: Finding) -> RuleResult:
    facts = (*break_facts(view, breaks), *stream_end(view))
    number = {"measured": 100.0 * breaks.share, "threshold": 100.0 * COSTLY_SHARE, "measure": PAUSED}
    return _of_whole_node(view, Kind.PAUSES, facts, breaks.of_paid, breaks.since, {**common, **number})


def break_facts(view: NodeView, breaks: RegularBreaks) -> tuple[Fact, ...]:
    newest = {"series": UTILIZATION, "start": breaks.since, "end": breaks.until}
    return (
        view.fact("pause_length", breaks.length_s, "s", **newest),
        view.fact("period", breaks.period_s, "s", **newest),
        view.fact("pause_share", breaks.share, "share", threshold=COSTLY_SHARE, **newest),
        view.fact("paused_time_share", breaks.of_paid, "share", series=UTILIZATION),
    )
