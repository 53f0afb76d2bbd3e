"""Kinds of judgements on the durations of steps, and their words."""

from trainguard.core.records import Status
from trainguard.rules.rule_result import FactSheet, JudgedKind, Words


class StepOutlierKind(JudgedKind):
    TOO_MANY = "too_many", Status.FIRED
    TOO_SLOW = "too_slow", Status.FIRED
    # The host's steps are as slow, and the GPUs worked on.
    GPUS_BUSY = "gpus_busy_meanwhile"
    FINE = "fine"
    WARMING_UP = "warming_up", Status.WARMING_UP
    TOO_SHORT = "too_short", Status.WARMING_UP
    WAITS_FOR_SAMPLES = "waits_for_samples", Status.WARMING_UP
    NO_STEPS = "no_steps", Status.WAITING_FOR_DATA
    NO_FRAMEWORK_METRICS = "no_framework_metrics", Status.NOT_APPLICABLE


_PROGRESS = (
    "{node} has {steps.value:,} of the more than {steps.threshold:,.0f} steps that a process needs for a verdict, the "
    "first {steps_left_out.value} of which are left out{end}."
)


def text(sheet: FactSheet) -> Words:
    kind = StepOutlierKind(sheet.kind)
    if kind is StepOutlierKind.NO_FRAMEWORK_METRICS:
        return Words("This job has written no framework metrics, which the rule needs.")
    if kind is StepOutlierKind.NO_STEPS:
        mode = sheet.get("mode")
        return Words(f"No training step{'' if mode is None else f' in mode {mode.value}'} was seen.")
    if kind in {StepOutlierKind.WARMING_UP, StepOutlierKind.TOO_SHORT}:
        end = "; the job has ended, too early for a verdict" if kind is StepOutlierKind.TOO_SHORT else ""
        return Words(sheet.say(_PROGRESS, end=end))
    reason = f"{_counts(sheet)}{_left_out(sheet)}.{_meanwhile(sheet, kind)}"
    if kind in {StepOutlierKind.TOO_MANY, StepOutlierKind.TOO_SLOW}:
        return Words(reason, _advice(sheet), _clause(sheet))
    return Words(reason)


def _counts(sheet: FactSheet) -> str:
    slow, time = sheet["slow_steps"], sheet["slow_time_share"]
    plausible = int(slow.threshold or 0)
    many = float(slow.value) > plausible
    counts = sheet.say(
        "{slow_steps.value:,} of {steps.value:,} steps took over {outlier_above.as_step}, {than} the {plausible:,} "
        "that are plausible",
        than="more than" if many else "no more than",
        plausible=plausible,
    )
    said = counts
    if float(time.value) > (time.threshold or 0.0):
        said = f"{counts}; " if many else ""
        said += sheet.say(
            "what steps over twice the median of {median_step.as_step} took beyond it {was/is} {slow_time_share} of "
            "the time in steps (slow_share {slow_time_share.limit})"
        )
    return sheet.say("{process} of {node}: {said}", said=said)


def _left_out(sheet: FactSheet) -> str:
    more = sheet.get("series_not_judged")
    if more is None:
        return ""
    at_least = " or more" if more.threshold is not None and float(more.value) >= more.threshold else ""
    return f"; {more.value}{at_least} series were not judged: no room is left"


def _meanwhile(sheet: FactSheet, kind: StepOutlierKind) -> str:
    if kind is StepOutlierKind.WAITS_FOR_SAMPLES:
        return " The samples of the GPUs do not reach as far as the steps yet."
    if kind is StepOutlierKind.FINE:
        return ""
    busy = " The least busy GPU that {used.node} uses, {used.device}, was {used} busy then"
    on = ": the process handed out work ahead, and its slow steps hardly kept the GPUs waiting."
    ending = on if kind is StepOutlierKind.GPUS_BUSY else "."
    return sheet.say_if("mean_utilization", busy + ending, used=sheet.get("mean_utilization"))


def _clause(sheet: FactSheet) -> str:
    waited = "there were" if sheet.get("mean_utilization") is None else "the GPUs waited in"
    if sheet.kind == StepOutlierKind.TOO_MANY:
        return sheet.say("{waited} {slow_steps.value:,} slow steps of {steps.value:,}", waited=waited)
    took = "{waited} slow steps, which took {slow_time_share} of the time in steps beyond their median"
    return sheet.say(took, waited=waited)


_REMEDIES = (
    (("checkpoint", "save"), "Make checkpoints asynchronous, or write them less often"),
    (("loader", "getnext", "dataset"), "Give the data loader more workers, or make batches cheaper to load"),
    (("eval", "valid"), "Evaluate less often, or on fewer batches"),
    (("compil",), "Keep the shapes of batches the same, so that nothing is compiled again"),
)


def _advice(sheet: FactSheet) -> str:
    apart = sheet.say_if("steps_apart", " They come every {steps_apart.value} steps.")
    if sheet.get("grown_event") is None:
        return sheet.say(
            "No recorded event takes a clearly larger share of the slow steps than of the others. Look in the log of "
            "{process} at what runs at the times of the slow steps.{apart}",
            apart=apart,
        )
    name = sheet.name("grown_event").lower()
    remedy = next((said for parts, said in _REMEDIES if any(part in name for part in parts)), "Look at it")
    return sheet.say(
        "{remedy}: {grown_event} takes {event_in_slow_steps} of the slow steps' time and {event_in_other_steps} of "
        "that of the others.{apart}",
        remedy=remedy,
        apart=apart,
    )
