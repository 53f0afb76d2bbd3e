"""What the framework did in minutes with bottlenecks, against minutes without: joined from both streams of a node.

Both streams keep their newest 30 minutes. A minute has bottlenecks when at least half of its judged snapshots were.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from trainguard.core.errors import RuleFailedError
from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.engine.plan import RulePlan
from trainguard.engine.profiler.framework_session import FrameworkStream
from trainguard.engine.profiler.system_stream import SystemStream
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.rules.bottlenecks.rule import BottleneckRule
from trainguard.rules.bottlenecks.state import BottleneckState, MinuteCount
from trainguard.rules.bottlenecks.text import BottleneckDetails, ComparedClass, ComparedMinutes, ComparedPhase
from trainguard.rules.framework_events import CLASS_LABELS, MINUTE_US, OTHER, MinuteProfile
from trainguard.rules.overall_framework_metrics.rule import FrameworkTimeState
from trainguard.rules.protocol import is_custom
from trainguard.rules.registry import spec_of

BOTTLENECKED_SHARE = 0.5
# A phase is named in the advice when its share of the time grows by so many points.
NAMED_FROM_PERCENT = 10.0

REPORTED_PHASES = 16
Row = TypeVar("Row", ComparedClass, ComparedPhase)
NodeVerdicts = Mapping[str, dict[str, RuleOutcome]]


class Correlation:
    """The framework's time in minutes with bottlenecks, node by node; without details only where one was found."""

    def __init__(self, plan: RulePlan) -> None:
        rules = [each for each in plan.system_rules if isinstance(each, BottleneckRule) and not is_custom(each)]
        self._rules = {rule.name for rule in rules}
        self._profiled = plan.rule_of_state(FrameworkTimeState)
        self._detailed = plan.detailed
        self._counts: dict[str, dict[str, Sequence[MinuteCount]]] = {}
        self._compared: dict[str, dict[str, ComparedMinutes]] = {}

    def note_system(self, stream: SystemStream, verdicts: Sequence[RuleOutcome]) -> None:
        """Read the minutes of a node's bottlenecks, by the rules' verdicts on it."""
        for verdict in verdicts:
            found = self._detailed or verdict.result.status is Status.FIRED
            if verdict.rule in self._rules and found:
                self._counts.setdefault(stream.node, {})[verdict.rule] = _bottleneck_minutes(verdict.rule, stream)

    def note_framework(self, stream: FrameworkStream) -> None:
        """Compare a node's minutes, after `note_system`."""
        if self._profiled is None:
            return
        for rule, counts in self._counts.pop(stream.node, {}).items():
            compared = compare_minutes(counts, _framework_minutes(self._profiled, stream))
            if compared is not None:
                self._compared.setdefault(rule, {})[stream.node] = compared

    def add_to(self, verdicts: NodeVerdicts) -> None:
        """Add the comparison to the verdicts by rule and node: to their details, and advice."""
        for rule, by_node in self._compared.items():
            for node, compared in by_node.items():
                verdicts[rule][node] = _with_framework(verdicts[rule][node], compared)


def compare_minutes(counts: Sequence[MinuteCount], profiles: Sequence[MinuteProfile]) -> ComparedMinutes | None:
    """Return percent of time by class and phase, with and without bottlenecks; None without a common minute."""
    by_minute = {profile.minute: profile for profile in profiles if profile.processes}
    judged = [count for count in counts if count.judged and count.minute in by_minute]
    if not judged:
        return None
    hit = [by_minute[count.minute] for count in judged if _has_bottlenecks(count)]
    clean = [by_minute[count.minute] for count in judged if not _has_bottlenecks(count)]
    return ComparedMinutes(
        minutes_with_bottlenecks=len(hit),
        minutes_without=len(clean),
        classes=_rows(ComparedClass, _class_shares(hit), _class_shares(clean)),
        phases=_rows(ComparedPhase, _phase_shares(hit), _phase_shares(clean))[:REPORTED_PHASES],
    )


def _has_bottlenecks(count: MinuteCount) -> bool:
    return count.bottlenecked >= BOTTLENECKED_SHARE * count.judged


def _bottleneck_minutes(rule: str, system: SystemStream) -> Sequence[MinuteCount]:
    try:
        state = system.state_of(rule)
    except RuleFailedError:
        return ()
    return state.kept.minutes if isinstance(state, BottleneckState) else ()


def _framework_minutes(rule: str, framework: FrameworkStream) -> Sequence[MinuteProfile]:
    try:
        state = framework.state_of(rule)
    except RuleFailedError:
        return ()
    return state.minutes if isinstance(state, FrameworkTimeState) else ()


def _class_shares(profiles: Sequence[MinuteProfile]) -> dict[str, float] | None:
    times = [sum(column) for column in zip(*(profile.classes_us for profile in profiles), strict=True)]
    return _shares(dict(zip(CLASS_LABELS, times, strict=True)), profiles) if profiles else None


def _phase_shares(profiles: Sequence[MinuteProfile]) -> dict[str, float] | None:
    times: dict[str, int] = {}
    for profile in profiles:
        for phase, time_us in zip(profile.phases.names, profile.phases.times_us, strict=True):
            times[phase] = times.get(phase, 0) + time_us
        times[OTHER] = times.get(OTHER, 0) + profile.phases.other_us
    return _shares(times, profiles) if profiles else None


def _shares(times_us: Mapping[str, int], profiles: Sequence[MinuteProfile]) -> dict[str, float]:
    available_us = MINUTE_US * sum(profile.processes for profile in profiles)
    return {name: 100.0 * time_us / available_us for name, time_us in times_us.items() if time_us}


def _rows(kind: type[Row], hit: dict[str, float] | None, clean: dict[str, float] | None) -> list[Row]:
    """List the names, the one whose share differs most first."""
    rows = []
    for name in sorted({*(hit or {}), *(clean or {})}):
        shares = [None if side is None else side.get(name, 0.0) for side in (hit, clean)]
        rows.append(kind(name, *shares))
    return sorted(rows, key=lambda row: abs(_growth(row)), reverse=True)


def _growth(row: ComparedClass | ComparedPhase) -> float:
    return (row.with_bottlenecks_percent or 0.0) - (row.without_percent or 0.0)


def _with_framework(verdict: RuleOutcome, compared: ComparedMinutes) -> RuleOutcome:
    result = verdict.result
    if isinstance(result.details, BottleneckDetails):
        result = replace(result, details=msgspec.structs.replace(result.details, framework=compared))
    grown, text = _most_grown(compared), spec_of(verdict.rule).text
    if result.status is not Status.FIRED or not grown or text is None:
        return replace(verdict, result=result)
    # Without a reason of its own, ``text`` makes the words of the facts that were added.
    amended = replace(result, facts=(*result.facts, *grown), reason="", text=text)
    return replace(verdict, result=amended)


def _most_grown(compared: ComparedMinutes) -> tuple[Fact, ...]:
    """Return the phase that takes more of the time in minutes with bottlenecks; nothing without a clear one."""
    if not (compared.minutes_with_bottlenecks and compared.minutes_without):
        return ()
    for row in compared.phases:
        if row.name != OTHER and _growth(row) >= NAMED_FROM_PERCENT:
            return (
                Fact(name="grown_phase", value=row.name),
                Fact(name="phase_time_with", value=row.with_bottlenecks_percent or 0.0, unit="%"),
                Fact(name="phase_time_without", value=row.without_percent or 0.0, unit="%"),
            )
    return ()
