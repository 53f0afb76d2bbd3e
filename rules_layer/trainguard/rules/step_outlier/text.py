"""The words of StepOutlier."""

from enum import StrEnum

from trainguard.core.units import show_percent, show_step
from trainguard.rules.rule_result import FactSheet, Words


class StepOutlierKind(StrEnum):
    """Findings on a job's steps."""

    TOO_MANY = "too_many"

    TOO_SLOW = "too_slow"

    GPUS_BUSY = "gpus_busy_meanwhile"
    """The host's steps are as slow, and the GPUs worked on."""

    FINE = "fine"
    WARMING_UP = "warming_up"
    TOO_SHORT = "too_short"
    WAITS_FOR_SAMPLES = "waits_for_samples"
    NO_STEPS = "no_steps"
    NO_FRAMEWORK_METRICS = "no_framework_metrics"


def text(sheet: FactSheet) -> Words:
    """Put a judgement of steps into words."""
    kind = StepOutlierKind(sheet.kind)
    if kind is StepOutlierKind.NO_FRAMEWORK_METRICS:
        return Words("This job has written no framework metrics, which the rule needs.")
    if kind is StepOutlierKind.NO_STEPS:
        mode = sheet.get("mode")
        return Words(f"No training step{'' if mode is None else f' in mode {mode.value}'} was seen.")
    if kind in {StepOutlierKind.WARMING_UP, StepOutlierKind.TOO_SHORT}:
        return Words(_progress(sheet, ended=kind is StepOutlierKind.TOO_SHORT))
    reason = f"{_counts(sheet)}{_left_out(sheet)}.{_meanwhile(sheet, kind)}"
    if kind in {StepOutlierKind.TOO_MANY, StepOutlierKind.TOO_SLOW}:
        return Words(reason, _advice(sheet), _clause(sheet))
    return Words(reason)


def _progress(sheet: FactSheet, *, ended: bool) -> str:
    steps, left_out = sheet["steps"], sheet["steps_left_out"]
    end = "; the job has ended, too early for a verdict" if ended else ""
    return (
        f"{steps.node} has {steps.value:,} of the more than {steps.threshold:,.0f} steps that a process needs for a "
        f"verdict, the first {left_out.value} of which are left out{end}."
    )


def _counts(sheet: FactSheet) -> str:
    process, slow = sheet["process"], sheet["slow_steps"]
    plausible = int(slow.threshold or 0)
    many = float(slow.value) > plausible
    counts = (
        f"{slow.value:,} of {sheet['steps'].value:,} steps took over {_step(sheet, 'outlier_above')}, "
        f"{'more than' if many else 'no more than'} the {plausible:,} that are plausible"
    )
    time = sheet["slow_time_share"]
    limit = time.threshold or 0.0
    be = "was" if sheet.past else "is"
    beyond = (
        f"what steps over twice the median of {_step(sheet, 'median_step')} took beyond it {be} "
        f"{show_percent(100.0 * float(time.value))} of the time in steps (slow_share {show_percent(100.0 * limit)})"
    )
    if float(time.value) <= limit:
        return f"{process.value} of {process.node}: {counts}"
    return (
        f"{process.value} of {process.node}: {counts}; {beyond}"
        if many
        else (f"{process.value} of {process.node}: {beyond}")
    )


def _left_out(sheet: FactSheet) -> str:
    more = sheet.get("series_not_judged")
    if more is None:
        return ""
    at_least = " or more" if more.threshold is not None and float(more.value) >= more.threshold else ""
    return f"; {more.value}{at_least} series were not judged: no room is left"


def _meanwhile(sheet: FactSheet, kind: StepOutlierKind) -> str:
    used = sheet.get("mean_utilization")
    if kind is StepOutlierKind.WAITS_FOR_SAMPLES:
        return " The samples of the GPUs do not reach as far as the steps yet."
    if used is None or kind is StepOutlierKind.FINE:
        return ""
    busy = f" The least busy GPU that {used.node} uses, {used.device}, was {show_percent(float(used.value))} busy"
    if kind is StepOutlierKind.GPUS_BUSY:
        return f"{busy} then: the process handed out work ahead, and its slow steps hardly kept the GPUs waiting."
    return f"{busy} then."


def _clause(sheet: FactSheet) -> str:
    slow = sheet["slow_steps"]
    waited = "there were" if sheet.get("mean_utilization") is None else "the GPUs waited in"
    if sheet.kind == StepOutlierKind.TOO_MANY:
        return f"{waited} {slow.value:,} slow steps of {sheet['steps'].value:,}"
    share = show_percent(100.0 * sheet.number("slow_time_share"))
    return f"{waited} slow steps, which took {share} of the time in steps beyond their median"


_REMEDIES = (
    (("checkpoint", "save"), "Make checkpoints asynchronous, or write them less often"),
    (("loader", "getnext", "dataset"), "Give the data loader more workers, or make batches cheaper to load"),
    (("eval", "valid"), "Evaluate less often, or on fewer batches"),
    (("compil",), "Keep the shapes of batches the same, so that nothing is compiled again"),
)


def _advice(sheet: FactSheet) -> str:
    event, distance = sheet.get("grown_event"), sheet.get("steps_apart")
    apart = "" if distance is None else f" They come every {distance.value} steps."
    if event is None:
        return (
            "No recorded event takes a clearly larger share of the slow steps than of the others. Look in the log of "
            f"{sheet.name('process')} at what runs at the times of the slow steps.{apart}"
        )
    name = str(event.value)
    remedy = next((said for parts, said in _REMEDIES if any(part in name.lower() for part in parts)), "Look at it")
    shares = (show_percent(100.0 * sheet.number(of)) for of in ("event_in_slow_steps", "event_in_other_steps"))
    slow, others = shares
    return f"{remedy}: {name} takes {slow} of the slow steps' time and {others} of that of the others.{apart}"


def _step(sheet: FactSheet, name: str) -> str:
    return show_step(1e6 * sheet.number(name))
