"""Kinds of judgements of MaxInitializationTime, and their words."""

from trainguard.core.finding import clock
from trainguard.core.records import Status
from trainguard.rules.rule_result import FactSheet, JudgedKind, Words


class MaxInitializationKind(JudgedKind):
    LATE = "late_first_step", Status.FIRED
    # No step was seen for so long that the first one must begin too late.
    NO_STEP = "no_step", Status.FIRED
    # No step was seen, and GPUs work: the steps may not be written.
    UNCERTAIN = "no_step_while_gpus_work", Status.FIRED
    IN_TIME = "in_time"
    WARMING_UP = "warming_up", Status.WARMING_UP
    ENDED_BEFORE = "ended_before"
    ENDED_WITHOUT_METRICS = "ended_without_metrics", Status.NOT_APPLICABLE
    WITHOUT_STEPS = "trains_without_steps", Status.NOT_APPLICABLE
    NO_START = "no_start", Status.WAITING_FOR_DATA
    NO_DATA = "no_data", Status.WAITING_FOR_DATA
    NO_FRAMEWORK_METRICS = "no_framework_metrics", Status.NOT_APPLICABLE


_LATE = "The first step began at {at}, {time_to_first_step} after the {start} (threshold {time_to_first_step.limit})."
_UNSEEN = "No step was seen in the {time_without_step} since the {start} at {at} (threshold {time_without_step.limit})"
_NO_STEP = "no training step was seen in the {time_without_step} since the {start}"
_SHORTEN = (
    "Shorten what comes before the first step by at least {time_over}: stream the data set (FastFile or Pipe mode) "
    "instead of copying it, build dependencies into the image, compile or cache models ahead."
)
_WORDS = {
    MaxInitializationKind.LATE: Words(
        _LATE, _SHORTEN, "the first training step came {time_to_first_step} after the {start}"
    ),
    MaxInitializationKind.NO_STEP: Words(f"{_UNSEEN}.", _SHORTEN, _NO_STEP),
    MaxInitializationKind.UNCERTAIN: Words(
        f"{_UNSEEN}, but GPUs {{worked/have worked}} for {{time_at_work}}.",
        "Check that the job writes steps, as it is set to: GPUs that have worked for {time_at_work} without one rather "
        "train than initialize. If they do not train, shorten what they do before the first step.",
        _NO_STEP,
    ),
    MaxInitializationKind.IN_TIME: Words(_LATE),
    MaxInitializationKind.WARMING_UP: Words(f"{_UNSEEN}; a step may still arrive for {{grace}} after the threshold."),
    MaxInitializationKind.ENDED_BEFORE: Words(
        "The job ended {time_without_step} after the {start} without a step (threshold {time_without_step.limit})."
    ),
    MaxInitializationKind.ENDED_WITHOUT_METRICS: Words(
        "The job has ended and wrote no framework metrics, so its first step is unknown."
    ),
    MaxInitializationKind.WITHOUT_STEPS: Words(
        "The job's framework metrics have no steps: GPUs have worked and data loaders fetched for {time_at_work} "
        "without one, so its first step is unknown."
    ),
    MaxInitializationKind.NO_START: Words("Neither the training start nor a first sample is known."),
    MaxInitializationKind.NO_DATA: Words("Neither a sample nor a step was seen."),
    MaxInitializationKind.NO_FRAMEWORK_METRICS: Words(
        "The job writes no framework metrics, so its first step is unknown."
    ),
}


def text(sheet: FactSheet) -> Words:
    return sheet.fill(_WORDS[MaxInitializationKind(sheet.kind)], start=_start, at=_at)


def _start(sheet: FactSheet) -> str:
    return "training start" if sheet.get("restarted_at") is None else "restart of the job"


def _at(sheet: FactSheet) -> str:
    took = sheet.get("time_to_first_step")
    return clock(sheet["time_without_step"].start if took is None else took.end)
