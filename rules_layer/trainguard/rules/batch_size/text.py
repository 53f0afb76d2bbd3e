"""The words of BatchSize."""

from enum import StrEnum

from trainguard.core.finding import Fact, Status
from trainguard.core.units import counted, show_percent
from trainguard.rules.rule_result import FactSheet, Words
from trainguard.rules.windows.warm_up import or_undecided


class BatchKind(StrEnum):
    TOO_SMALL = "too_small"
    NOT_LONG_YET = "not_long_yet"
    SMALL_PART = "small_part"
    LARGE_ENOUGH = "large_enough"
    UNSAMPLED = "unsampled"


@or_undecided
def text(sheet: FactSheet) -> Words:
    clause = "the batches, or the whole job, were too small for the instance"
    if not sheet.kind:
        return Words("", None, clause)
    node = sheet.facts[0].node
    if sheet.kind == BatchKind.UNSAMPLED:
        return Words(
            f"too few of the newest points of {node} have samples of the CPU and of every used GPU's utilization and "
            "memory activity."
        )
    reason = f"{_levels(sheet)}{_lasting(sheet)}{_part(sheet)}."
    found = sheet.status is Status.FIRED
    return Words(reason, _advice(sheet) if found else None, clause if sheet.kind == BatchKind.TOO_SMALL else "")


def _levels(sheet: FactSheet) -> str:
    cpu, gpu, memory = (sheet[f"p95_{of}_at_work"] for of in ("core_utilization", "utilization", "memory_activity"))
    points = sheet.count("samples")
    are = "were" if sheet.past else "are"
    return (
        f"over the last {points:,} points ({sheet.duration('window')}) the 95th percentiles on {cpu.node} "
        f"{are} {_of(cpu)} of CPU ({_limit(cpu)}), at most {_of(gpu)} of GPU utilization ({gpu.device}, {_limit(gpu)}) "
        f"and at most {_of(memory)} of GPU memory activity ({memory.device}, {_limit(memory)})"
    )


def _of(fact: Fact) -> str:
    return show_percent(float(fact.value))


def _limit(fact: Fact) -> str:
    return f"threshold {show_percent(fact.threshold or 0.0)}"


def _lasting(sheet: FactSheet) -> str:
    points = sheet.get("points_low")
    if points is None:
        return ""
    many, has = int(points.value), "had" if sheet.past else "has"
    if points.threshold is None:
        return f"; this {has} lasted for {counted(many, 'point')} ({sheet.duration('low_time')})"
    lasted = f"lasted for {counted(many, 'point')}" if many else "just begun"
    return f"; this {has} {lasted}, and counts from {counted(int(points.threshold), 'point')} on"


def _part(sheet: FactSheet) -> str:
    part = sheet.get("unused_share")
    if part is None or sheet.kind != BatchKind.SMALL_PART:
        return ""
    shown, least = show_percent(100.0 * float(part.value)), show_percent(100.0 * (part.threshold or 0.0))
    return f"; it is a part of the job that leaves {shown} of its time unused, and counts from {least} on"


def _advice(sheet: FactSheet) -> str:
    gpu = sheet["p95_utilization_at_work"]
    verb = "was" if sheet.past else "is"
    return (
        f"Raise the batch size, or take a smaller instance: even the busiest GPU, {gpu.device}, {verb} at or below "
        f"{_of(gpu)} in 95 % of the newest points of {gpu.node}."
    )
