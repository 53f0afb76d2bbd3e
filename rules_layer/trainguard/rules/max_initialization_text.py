"""What is said of the time before a job's first step, from the facts of MaxInitializationTime."""

from enum import StrEnum

from trainguard.finding import Fact, clock_times
from trainguard.rules.units import show_duration
from trainguard.rules.words import FactSheet, Words
from trainguard.timestamps import iso_time


class MaxInitializationKind(StrEnum):
    """What MaxInitializationTime says of a job's start."""

    LATE = "late_first_step"
    NO_STEP = "no_step"
    """No step was seen for so long that the first one must begin too late."""

    DOUBTED = "no_step_while_gpus_work"
    """No step was seen, and GPUs work: the steps may not be written."""

    IN_TIME = "in_time"
    WARMING_UP = "warming_up"
    ENDED_BEFORE = "ended_before"
    ENDED_WITHOUT_METRICS = "ended_without_metrics"
    WITHOUT_STEPS = "trains_without_steps"
    NO_START = "no_start"
    NO_DATA = "no_data"
    NO_FRAMEWORK_METRICS = "no_framework_metrics"


_FIXED = {
    MaxInitializationKind.NO_FRAMEWORK_METRICS: "The job writes no framework metrics, so its first step is unknown.",
    MaxInitializationKind.ENDED_WITHOUT_METRICS: (
        "The job has ended and wrote no framework metrics, so its first step is unknown."
    ),
    MaxInitializationKind.NO_START: "Neither the training start nor a first sample is known.",
    MaxInitializationKind.NO_DATA: "Neither a sample nor a step was seen.",
}


def text(sheet: FactSheet) -> Words:
    """Put a judgement of a job's start into words."""
    kind = MaxInitializationKind(sheet.kind)
    if kind in _FIXED:
        return Words(_FIXED[kind])
    if kind is MaxInitializationKind.WITHOUT_STEPS:
        return Words(
            "The job's framework metrics have no steps: GPUs have worked and data loaders fetched for "
            f"{show_duration(sheet.number('time_at_work'))} without one, so its first step is unknown."
        )
    if kind in {MaxInitializationKind.LATE, MaxInitializationKind.IN_TIME}:
        return _of_first_step(sheet, late=kind is MaxInitializationKind.LATE)
    return _of_absence(sheet, kind)


def _of_first_step(sheet: FactSheet, *, late: bool) -> Words:
    took = sheet["time_to_first_step"]
    after = show_duration(float(took.value))
    reason = f"The first step began at {_clock(took.end)}, {after} after the {_start(sheet)} ({_allowed(took)})."
    if not late:
        return Words(reason)
    return Words(reason, _advice(sheet), f"the first training step came {after} after the {_start(sheet)}")


def _of_absence(sheet: FactSheet, kind: MaxInitializationKind) -> Words:
    waited = sheet["time_without_step"]
    since = f"{show_duration(float(waited.value))} since the {_start(sheet)} at {_clock(waited.start)}"
    seen = f"No step was seen in the {since} ({_allowed(waited)})"
    if kind is MaxInitializationKind.ENDED_BEFORE:
        after = f"{show_duration(float(waited.value))} after the {_start(sheet)}"
        return Words(f"The job ended {after} without a step ({_allowed(waited)}).")
    if kind is MaxInitializationKind.WARMING_UP:
        grace = show_duration(sheet.number("grace"))
        return Words(f"{seen}; a step may still arrive for {grace} after the threshold.")
    clause = f"no training step was seen in the {show_duration(float(waited.value))} since the {_start(sheet)}"
    if kind is MaxInitializationKind.NO_STEP:
        return Words(f"{seen}.", _advice(sheet), clause)
    worked = show_duration(sheet.number("time_at_work"))
    return Words(
        f"{seen}, but GPUs {'worked' if sheet.past else 'have worked'} for {worked}.",
        f"Check that the job writes steps, as it is set to: GPUs that have worked for {worked} without one rather "
        "train than initialize. If they do not train, shorten what they do before the first step.",
        clause,
    )


def _advice(sheet: FactSheet) -> str:
    return (
        f"Shorten what comes before the first step by at least {show_duration(sheet.number('time_over'))}: stream the "
        "data set (FastFile or Pipe mode) instead of copying it, build dependencies into the image, compile or cache "
        "models ahead."
    )


def _start(sheet: FactSheet) -> str:
    return "training start" if sheet.get("restarted_at") is None else "restart of the job"


def _allowed(fact: Fact) -> str:
    return f"threshold {show_duration(fact.threshold or 0.0)}"


def _clock(at: float | None) -> str:
    return clock_times(iso_time(at or 0.0), iso_time(at or 0.0))
