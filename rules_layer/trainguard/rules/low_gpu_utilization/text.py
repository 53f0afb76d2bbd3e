"""The words of LowGPUUtilization, here on GPUs that idle."""

from collections.abc import Callable, Mapping

from trainguard.core.finding import Fact, Status
from trainguard.core.units import show_duration, show_number, show_percent
from trainguard.rules.low_gpu_utilization.usage import NODE_IDLES, Kind
from trainguard.rules.low_gpu_utilization.use_text import (
    INSTANCE_WORDS,
    NOT_BUSY,
    USE_WORDS,
    how_many,
    is_past,
    percent_of,
    span_of,
    time_of,
)
from trainguard.rules.rule_result import FactSheet, Words

_GIGA = 1e9

NAMES: Mapping[str, str] = {
    Kind.NEVER_USED: "never used",
    Kind.STOPPED: "idle",
    Kind.NEARLY_IDLE: "nearly idle",
    Kind.HARDLY_USED: "under-used",
}
_DONE: Mapping[str, str] = {
    Kind.NEVER_USED: "were never used",
    Kind.STOPPED: "stopped working",
    Kind.NEARLY_IDLE: "were nearly idle",
}
HOLDING_SUFFIX = ", memory held"


def text(sheet: FactSheet) -> Words:
    words = _WORDS.get(sheet.kind)
    if words is not None:
        return words(sheet)
    return Words("", None, NOT_BUSY if sheet.status is Status.FIRED else "")


def _idle(sheet: FactSheet) -> Words:
    idle, node = sheet["idle_time"], sheet["idle_time"].node
    look = sheet.name("idle_as") if sheet.kind == Kind.HOLDS_MEMORY else sheet.kind
    held = sheet.get("memory_in_use")
    more = "" if held is None else f", and {_holding(sheet)} {_amount(held, sheet.get('memory_total'))} of memory"
    name = f"{NAMES[look]}{'' if held is None else HOLDING_SUFFIX}"
    reason = f"{name}: {_idling(sheet, look)} (allowed {show_duration(idle.threshold or 0.0)}){more}."
    if held is not None:
        holders = f"the processes on {node}"
        return Words(reason, _end_holders(sheet, holders), f"the GPUs of {node} were idle and held memory")
    return Words(reason, _idle_advice(sheet, look), f"the GPUs of {node} {_DONE[look]}")


def _idling(sheet: FactSheet, look: str) -> str:
    idle = sheet["idle_time"]
    node, lasted = idle.node, time_of(idle)
    if look == Kind.STOPPED:
        return f"every GPU of {node} {'was' if is_past(sheet) else 'has been'} idle for {lasted}"
    since = " since its first sample" if sheet.number("idle_since") <= sheet.number("first_sample") + 1.0 else ""
    if look == Kind.NEVER_USED:
        return f"no GPU of {node} was used in the {lasted}{since}"
    mean = sheet["highest_mean_utilization"]
    over = f"over the last {span_of(mean)} of it"
    if look == Kind.NEARLY_IDLE:
        return f"for {lasted}{since}; {over} no GPU of {node} was busier than {percent_of(mean)} on average"
    return (
        f"for {lasted}{since} no GPU of {node} had a GPU utilization of {show_percent(mean.threshold or 0.0)} or more; "
        f"{over} the busiest had {percent_of(mean)} on average"
    )


def _idle_advice(sheet: FactSheet, look: str) -> str:
    node, past = sheet["idle_time"].node, is_past(sheet)
    if look == Kind.NEVER_USED:
        return f"Check that the script places the model on the GPUs of {node}."
    if look == Kind.STOPPED:
        over = f"Find out what the job waited for, or why it hung, on {node}."
        return over if past else f"Check whether the job hangs on {node}, and stop it if it does."
    does, needs = ("did", "needed") if past else ("does", "needs")
    return f"Check what the job {does} on {node}, and whether that {needs} GPUs."


def _hardly_used(sheet: FactSheet) -> Words:
    node = sheet["idle_time"].node
    allowed = show_duration(sheet["idle_time"].threshold or 0.0)
    work, leave = ("worked", "left") if is_past(sheet) else ("work", "leave")
    return Words(
        f"under-used: {_idling(sheet, Kind.HARDLY_USED)} (allowed {allowed}){_sign(sheet)}.",
        f"Raise the batch size, feed the GPUs of {node} faster, or take a smaller instance: they {work}, and {leave} "
        "most of their time unused.",
        f"the GPUs of {node} were hardly used",
    )


def _sign(sheet: FactSheet) -> str:
    activity, power = sheet.get("mean_sm_activity"), sheet.get("power")
    verb = "was" if is_past(sheet) else "is"
    if activity is not None:
        return f", and the SM activity of {activity.device} {verb} {percent_of(activity)}"
    if power is None:
        return ""
    draws = "drew" if is_past(sheet) else "draws"
    at_work = show_number(sheet.number("power_at_work"))
    return f", and {power.device} {draws} {show_number(float(power.value))} W, of {at_work} W at work"


def _holding(sheet: FactSheet) -> str:
    gpus, holding = sheet.count("gpus"), sheet.count("gpus_holding")
    if gpus == 1:
        return f"its GPU {'held' if is_past(sheet) else 'holds'}"
    hold = "held" if is_past(sheet) else "holds" if holding == 1 else "hold"
    return f"{holding} of {gpus} GPUs {hold}"


def _amount(held: Fact, total: Fact | None) -> str:
    used = f"{float(held.value) / _GIGA:,.1f} GB"
    if total is None:
        return used
    share = 100.0 * float(held.value) / float(total.value)
    return f"{used} of {float(total.value) / _GIGA:,.1f} GB ({show_percent(share)})"


def _end_holders(sheet: FactSheet, who: str) -> str:
    holders = "a job that hangs, a script that does not exit, a notebook or a waiting server"
    if is_past(sheet):
        return (
            f"Find out what {who} waited for, and let the next run end the process when its work is done: {holders} "
            "holds memory like this."
        )
    return (
        f"Save what is needed, then end {who} or stop the job: {holders} holds the memory, and nvidia-smi there names "
        "it."
    )


def _see_who_holds(sheet: FactSheet, gpu: str) -> str:
    if is_past(sheet):
        return (
            f"Find out which process held the memory of {gpu}. If it was not the job's, end it before the next run, or "
            "place that elsewhere. If it was, find out why it did not compute, or pay for fewer GPUs."
        )
    return (
        f"Look with nvidia-smi which process holds the memory of {gpu}. If it is not the job's, end it, or place the "
        "job elsewhere. If it is, find out why it does not compute, or pay for fewer GPUs."
    )


def _gpu_holds(sheet: FactSheet) -> Words:
    idle, held, taken = sheet["idle_time"], sheet["memory_in_use"], sheet.kind == Kind.GPU_TAKEN
    been, holds = ("was", "held") if is_past(sheet) else ("has been", "holds")
    where = f"{idle.device} of {idle.node}"
    return Words(
        f"{NAMES[Kind.NEVER_USED if taken else Kind.STOPPED]}{HOLDING_SUFFIX}: {idle.device} on {idle.node} {been} "
        f"idle for {time_of(idle)} (allowed {show_duration(idle.threshold or 0.0)}), and {holds} "
        f"{_amount(held, sheet.get('memory_total'))} of memory{how_many(sheet)}.",
        _see_who_holds(sheet, where) if taken else _end_holders(sheet, f"the process on {where}"),
        f"{where} held memory and never worked" if taken else f"{where} was idle and held memory",
    )


_WORDS: Mapping[str, Callable[[FactSheet], Words]] = {
    **dict.fromkeys(NODE_IDLES, _idle),
    Kind.HARDLY_USED: _hardly_used,
    **dict.fromkeys((Kind.GPU_HOLDS_MEMORY, Kind.GPU_TAKEN), _gpu_holds),
    **USE_WORDS,
    **INSTANCE_WORDS,
}
