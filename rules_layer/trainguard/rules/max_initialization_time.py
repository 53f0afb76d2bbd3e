"""MaxInitializationTime: a job that takes too long to reach its first training step.

Source: AWS documentation of MaxInitializationTime (the rule waits for the first step and fires when initialization
takes longer than threshold minutes). The grace for a step that may still arrive is added here.
"""

from typing import ClassVar

from trainguard.records import Status
from trainguard.rules.judgement import Judgement
from trainguard.rules.protocol import JobRule, Positive, RuleParameters
from trainguard.rules.units import show_duration, show_number
from trainguard.rules.views import JobView

UNSEEN_STEP_GRACE_S = 360.0
"""How much longer an unseen step is waited for.

A file of steps is closed after up to 60 s, and held until a file of the node is 120 s ahead of it, which at one file a
minute takes up to 180 s; that later file may itself arrive 120 s late.
"""

CLEAR_AFTER_S = 180.0


class MaxInitializationTimeParameters(RuleParameters, frozen=True, kw_only=True):
    """``threshold`` is in minutes."""

    threshold: Positive = 20.0


class MaxInitializationTime(JobRule[MaxInitializationTimeParameters]):
    """Fires when the first step began too late, or has not been seen for so long that it must begin too late."""

    name: ClassVar[str] = "MaxInitializationTime"
    parameters_type = MaxInitializationTimeParameters

    def clear_after_s(self, parameters: MaxInitializationTimeParameters, interval_s: float) -> float:
        """Three evaluations: the condition cannot come back, because a job has only one first step."""
        del parameters, interval_s
        return CLEAR_AFTER_S

    def judge(self, view: JobView, parameters: MaxInitializationTimeParameters) -> Judgement:
        """Compare the first step's start, or the watermark while no step was seen, with the training start."""
        if not (view.framework_expected or view.framework_seen):
            return Judgement(
                Status.NOT_APPLICABLE,
                "the job writes no framework metrics: none are configured and none were seen, so its first step is "
                "unknown.",
            )
        if view.started_at is None:
            return Judgement(Status.WAITING_FOR_DATA, "neither the training start nor a first sample is known yet.")
        if view.first_step_at is not None:
            elapsed_s = (view.system_through or view.first_step_at) - view.started_at
            return _judge_first_step(view.first_step_at - view.started_at, elapsed_s, parameters)
        if view.system_through is None:
            return Judgement(Status.WAITING_FOR_DATA, "neither a sample nor a step was seen yet.")
        return _judge_absence(view.system_through - view.started_at, view.closed, parameters)


def _judge_first_step(after_s: float, elapsed_s: float, parameters: MaxInitializationTimeParameters) -> Judgement:
    after_s = max(after_s, 0.0)
    elapsed_s = max(elapsed_s, after_s)
    minutes = after_s / 60.0
    late = minutes > parameters.threshold
    allowed = f"threshold {show_number(parameters.threshold)} min"
    return Judgement(
        Status.FIRED if late else Status.OK,
        f"the first step began {show_duration(after_s)} after the training start ({allowed}).",
        measured=minutes,
        threshold=parameters.threshold,
        data_points=1,
        advice=_advice(after_s, parameters) if late else None,
        affected_share=_share(after_s, elapsed_s) if late else None,
        wasted_share=_share(after_s - parameters.threshold * 60.0, elapsed_s) if late else None,
        details={"initialization_s": after_s, "step_seen": True},
    )


def _judge_absence(elapsed_s: float, closed: bool, parameters: MaxInitializationTimeParameters) -> Judgement:
    """Judge a job without a step; once every stream has ended nothing can arrive late and no grace is due."""
    grace_s = 0.0 if closed else UNSEEN_STEP_GRACE_S
    threshold_s = parameters.threshold * 60.0
    elapsed_s = max(elapsed_s, 0.0)
    allowed = f"threshold {show_number(parameters.threshold)} min"
    if elapsed_s > threshold_s + grace_s:
        status = Status.FIRED
        reason = f"no step was seen in the {show_duration(elapsed_s)} since the training start ({allowed})."
    elif closed:
        status = Status.OK
        reason = f"the job ended {show_duration(elapsed_s)} after the training start without a step ({allowed})."
    else:
        status = Status.WARMING_UP
        reason = (
            f"no step was seen in the {show_duration(elapsed_s)} since the training start; judged after "
            f"{show_duration(threshold_s + grace_s)}, which is the {allowed} and {show_number(grace_s / 60.0)} min "
            "in which a step may still arrive."
        )
    return Judgement(
        status,
        reason,
        measured=elapsed_s / 60.0,
        threshold=parameters.threshold,
        advice=_advice(elapsed_s, parameters) if status is Status.FIRED else None,
        affected_share=1.0 if status is Status.FIRED else None,
        wasted_share=_share(elapsed_s - threshold_s, elapsed_s) if status is Status.FIRED else None,
        details={"initialization_s": elapsed_s, "step_seen": False},
    )


def _advice(init_s: float, parameters: MaxInitializationTimeParameters) -> str:
    over = show_duration(init_s - parameters.threshold * 60.0)
    return (
        f"Shorten what comes before the first step by at least {over}: stream the data set (FastFile or Pipe mode) "
        "instead of copying it, build dependencies into the image, compile or cache models ahead."
    )


def _share(part_s: float, elapsed_s: float) -> float:
    """Share, 0 to 1, of the time since the training start."""
    return min(max(part_s / elapsed_s, 0.0), 1.0) if elapsed_s > 0.0 else 0.0
