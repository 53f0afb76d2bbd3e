"""The words that the rules on bottlenecks share."""

from collections.abc import Callable
from dataclasses import dataclass

from trainguard.finding import clock_times
from trainguard.rules.bottleneck_facts import BottleneckKind
from trainguard.rules.units import counted, show_duration, show_percent
from trainguard.rules.warm_up import undecided
from trainguard.rules.words import FactSheet, Words
from trainguard.statuses import Status
from trainguard.timestamps import iso_time


@dataclass(frozen=True, slots=True)
class CoreWords:
    """What one rule calls the condition of the cores.

    ``cause`` says it of single points, ``cause_of_minutes`` of slow minutes, ``at_limit`` of a core in few words;
    ``remedy`` says what to do, without a full stop.
    """

    clause: str
    cause: Callable[[FactSheet], str]
    cause_of_minutes: Callable[[FactSheet], str]
    at_limit: Callable[[FactSheet], str]
    remedy: Callable[[FactSheet], str]


def words_of(sheet: FactSheet, cores: CoreWords) -> Words:
    """Say how GPUs waited for the cores."""
    shared = undecided(sheet)
    if shared is not None:
        return shared
    if not sheet.kind:
        return Words("", None, cores.clause)
    kind = BottleneckKind(sheet.kind)
    reason = _points(sheet, cores) if kind.by_points else _minutes(sheet, cores)
    reason += _why_not(sheet, kind, cores)
    advice = _advice(sheet, cores) if sheet.status is Status.FIRED else None
    return Words(reason, advice, "" if kind.value.endswith("alike") else cores.clause)


def _counted(sheet: FactSheet) -> tuple[str, str]:
    share, window = sheet["share_of_samples"], sheet.get("window")
    where = f"on {share.node}"
    if window is not None and share.end is not None:
        at = iso_time(share.end)
        where = f"of the {show_duration(float(window.value))} to {clock_times(at, at)} on {share.node}"
    percent, threshold = (show_percent(100.0 * value) for value in (float(share.value), share.threshold or 0.0))
    seen = f"{int(sheet.number('samples_found')):,} of {counted(int(sheet.number('samples')), 'point')}"
    return f"{seen} {where}", f"{percent}, threshold {threshold}"


def _points(sheet: FactSheet, cores: CoreWords) -> str:
    seen, share = _counted(sheet)
    fraction, low = show_percent(100.0 * sheet.number("gpus_low")), show_percent(sheet.number("low_limit"))
    return f"in {seen} ({share}) at least {fraction} of the GPUs were below {low} while {cores.cause(sheet)}."


def _minutes(sheet: FactSheet, cores: CoreWords) -> str:
    seen, share = _counted(sheet)
    newest = sheet.get("mean_utilization_newest_slow")
    mean = newest or sheet["mean_utilization_slow"]
    now = "" if newest is None else " in the newest"
    return (
        f"in the minutes of {seen} ({share}) the GPUs were below {show_percent(mean.threshold or 0.0)} on average, at "
        f"{show_percent(float(mean.value))}{now}, while {cores.cause_of_minutes(sheet)}."
    )


def _why_not(sheet: FactSheet, kind: BottleneckKind, cores: CoreWords) -> str:
    if kind.value.endswith("cheap"):
        undone = sheet["undone_share"]
        amount, least = show_percent(100.0 * float(undone.value)), show_percent(100.0 * (undone.threshold or 0.0))
        return f" The GPUs left {amount} of the time undone in it, less than the {least} from which on it fires."
    if kind.value.endswith("over"):
        return f" The newest {sheet.number('free_minutes'):g} min were free of it."
    if kind.value.endswith("alike"):
        good, poor = sheet.number("core_at_limit_while_working"), sheet.number("core_at_limit_while_low")
        return (
            f" {cores.at_limit(sheet)} in {show_percent(100.0 * good)} of the points of minutes in which the GPUs "
            f"worked, at {show_percent(sheet.number('mean_utilization_while_working'))}, and in "
            f"{show_percent(100.0 * poor)} of those of the others: that is no cause."
        )
    return ""


def _advice(sheet: FactSheet, cores: CoreWords) -> str:
    advice = f"{cores.remedy(sheet)} ({sheet['share_of_samples'].node})."
    phase = sheet.get("grown_phase")
    if phase is None:
        return advice
    hit, clean = (show_percent(sheet.number(f"phase_time_{side}")) for side in ("with", "without"))
    takes = "took" if sheet.past else "takes"
    return (
        f"{advice} {phase.value} {takes} {hit} of the processes' time in minutes with bottlenecks and {clean} in those "
        "without."
    )
