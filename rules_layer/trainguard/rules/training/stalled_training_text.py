"""The words of StalledTrainingRule."""

from enum import StrEnum

from trainguard.finding import Fact
from trainguard.rules.training.step_text import step_words
from trainguard.rules.units import counted, show_duration
from trainguard.rules.words import FactSheet, Words

NEEDS = "It checks when steps are saved: record the losses, with CollectionConfig(name='losses')."
BOUND = ("step", "saved without a time")


class StallKind(StrEnum):
    """The outcomes of StalledTrainingRule."""

    FIRST = "first step"
    GOES_ON = "goes on"
    FIRST_GAP = "first gap"
    RESUMED = "resumed"
    STALLED = "stalled"
    RECENT = "recent"
    WAITS = "waits"
    ENDED = "ended"
    NOT_RUNNING = "not running"
    NEWEST = "newest object"
    UNTIMED = "no times"


def text(sheet: FactSheet) -> Words:
    """Return the words of a judgement."""
    return step_words(sheet, _words, rule="StalledTrainingRule", needs=NEEDS, bound=BOUND)


def _words(sheet: FactSheet) -> Words:
    if sheet.kind not in _GAPS:
        return Words(_OTHERS[StallKind(sheet.kind)](sheet))
    reason = _gap(sheet)
    if sheet.kind not in (StallKind.STALLED, StallKind.WAITS):
        return Words(reason)
    patience = show_duration(float(sheet["time_without_step"].threshold or 0.0))
    advice = (
        "Look at the job's log and at its GPUs: a dead worker, a collective that waits, a data loader that hangs. If "
        f"steps are saved less often than every {patience} on purpose, raise the threshold above the save interval."
    )
    return Words(reason, advice, "training stalled")


_GAPS = (
    StallKind.GOES_ON,
    StallKind.FIRST_GAP,
    StallKind.RESUMED,
    StallKind.STALLED,
    StallKind.RECENT,
    StallKind.WAITS,
)


def _gap(sheet: FactSheet) -> str:
    gap, step, until = sheet["time_without_step"], sheet.get("step"), sheet.get("until_step")
    since = "since the rule began to wait" if step is None else f"after step {step.value}"
    beginning = "No step was saved" if step is None else f"Step {step.value}: no step was saved"
    goes_on = "" if sheet.past else ", and training has not ended"
    after = goes_on if until is None else f", until step {until.value}"
    return f"{beginning} for {show_duration(float(gap.value))} {since}{after}; {_compared(sheet, gap)}."


def _compared(sheet: FactSheet, gap: Fact) -> str:
    if sheet.kind == StallKind.FIRST_GAP:
        return "it is the first time between two steps, and tells how often this run saves one"
    if sheet.kind == StallKind.RESUMED:
        return "the run was stopped then, and resumed"
    compared = "above" if sheet.kind in (StallKind.STALLED, StallKind.WAITS) else "not above"
    return f"that is {compared} the threshold of {show_duration(float(gap.threshold or 0.0))}"


def _first(sheet: FactSheet) -> str:
    return f"Step {sheet['step'].value}: it is the first saved step, and no time without one was measured yet."


def _untimed(sheet: FactSheet) -> str:
    steps = counted(int(sheet.number("untimed_steps")), "step")
    return (
        f"The file has no times: its {steps} all have that at which it was saved. Event files of TensorBoard and "
        "debug-output have times."
    )


def _ended(sheet: FactSheet) -> str:
    del sheet
    return "Training has ended."


def _not_running(sheet: FactSheet) -> str:
    return f"The job's status is {sheet.name('job_status')}: whether it still trains is not known."


def _newest(sheet: FactSheet) -> str:
    return f"The newest object came {show_duration(sheet.number('time_since_object'))} before the last look."


_OTHERS = {
    StallKind.FIRST: _first,
    StallKind.UNTIMED: _untimed,
    StallKind.ENDED: _ended,
    StallKind.NOT_RUNNING: _not_running,
    StallKind.NEWEST: _newest,
}
