"""The words of BatchSize."""

from trainguard.core.finding import Status
from trainguard.rules.rule_result import FactSheet, JudgedKind, Words
from trainguard.rules.windows import or_undecided


class BatchKind(JudgedKind):
    TOO_SMALL = "too_small", Status.FIRED
    NOT_LONG_YET = "not_long_yet"
    SMALL_PART = "small_part"
    LARGE_ENOUGH = "large_enough"
    UNSAMPLED = "unsampled", Status.WARMING_UP


@or_undecided
def text(sheet: FactSheet) -> Words:
    if not sheet.kind:
        return Words("", None, _TOO_SMALL)
    if sheet.kind == BatchKind.UNSAMPLED:
        return Words(
            sheet.say(
                "too few of the newest points of {node} have samples of the CPU and of every used GPU's utilization "
                "and memory activity."
            )
        )
    advice = _ADVICE if sheet.status is Status.FIRED else None
    clause = _TOO_SMALL if sheet.kind == BatchKind.TOO_SMALL else ""
    return sheet.fill(Words(f"{_LEVELS}{{lasting}}{{part}}.", advice, clause), lasting=_lasting, part=_part)


_TOO_SMALL = "the batches, or the whole job, were too small for the instance"
_LEVELS = (
    "over the last {samples.value:,} points ({window}) the 95th percentiles on {p95_core_utilization_at_work.node} "
    "{were/are} {p95_core_utilization_at_work} of CPU (threshold {p95_core_utilization_at_work.limit}), at most "
    "{p95_utilization_at_work} of GPU utilization ({p95_utilization_at_work.device}, threshold "
    "{p95_utilization_at_work.limit}) and at most {p95_memory_activity_at_work} of GPU memory activity "
    "({p95_memory_activity_at_work.device}, threshold {p95_memory_activity_at_work.limit})"
)
_ADVICE = (
    "Raise the batch size, or take a smaller instance: even the busiest GPU, {p95_utilization_at_work.device}, "
    "{was/is} at or below {p95_utilization_at_work} in 95 % of the newest points of {p95_utilization_at_work.node}."
)


def _lasting(sheet: FactSheet) -> str:
    points = sheet.get("points_low")
    if points is None:
        return ""
    if points.threshold is None:
        return sheet.say("; this {had/has} lasted for {points_low:point} ({low_time})")
    lasted = "lasted for {points_low:point}" if points.value else "just begun"
    return sheet.say(f"; this {{had/has}} {lasted}, and counts from {{points_low.limit:point}} on")


def _part(sheet: FactSheet) -> str:
    if sheet.kind != BatchKind.SMALL_PART:
        return ""
    left = "; it is a part of the job that leaves {unused_share} of its time unused"
    return sheet.say_if("unused_share", f"{left}, and counts from {{unused_share.limit}} on")
