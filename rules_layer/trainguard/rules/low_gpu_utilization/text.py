"""The words of LowGPUUtilization, here on GPUs that idle."""

from collections.abc import Mapping
from dataclasses import replace

from trainguard.core.finding import Status
from trainguard.core.units import show_percent
from trainguard.rules.low_gpu_utilization.usage import Kind
from trainguard.rules.low_gpu_utilization.use_text import INSTANCE_WORDS, NOT_BUSY, USE_PARTS, USE_WORDS, how_many
from trainguard.rules.rule_result import FactSheet, Parts, Words

_GIGA = 1e9

NAMES: Mapping[str, str] = {
    Kind.NEVER_USED: "never used",
    Kind.STOPPED: "idle",
    Kind.NEARLY_IDLE: "nearly idle",
    Kind.HARDLY_USED: "under-used",
}
HOLDING_SUFFIX = ", memory held"


def text(sheet: FactSheet) -> Words:
    words = _WORDS.get(sheet.kind)
    if words is None:
        return Words("", None, NOT_BUSY if sheet.status is Status.FIRED else "")
    past = replace(sheet, past=sheet.past or sheet.get("stream_end") is not None)
    return past.fill(words, **_PARTS)


_IDLING: Mapping[str, str] = {
    Kind.NEVER_USED: "no GPU of {node} was used in the {idle_time}{since}",
    Kind.STOPPED: "every GPU of {node} {was/has been} idle for {idle_time}",
    Kind.NEARLY_IDLE: (
        "for {idle_time}{since}; over the last {highest_mean_utilization.span} of it no GPU of {node} was busier than "
        "{highest_mean_utilization} on average"
    ),
    Kind.HARDLY_USED: (
        "for {idle_time}{since} no GPU of {node} had a GPU utilization of {highest_mean_utilization.limit} or more; "
        "over the last {highest_mean_utilization.span} of it the busiest had {highest_mean_utilization} on average"
    ),
}


def _idling(sheet: FactSheet) -> str:
    look = sheet.name("idle_as") if sheet.kind == Kind.HOLDS_MEMORY else sheet.kind
    return sheet.say(f"{NAMES[look]}{{held}}: {_IDLING[look]} (allowed {{idle_time.limit}})", **_PARTS)


def _since(sheet: FactSheet) -> str:
    at_start = sheet.number("idle_since") <= sheet.number("first_sample") + 1.0
    return " since its first sample" if at_start else ""


def _sign(sheet: FactSheet) -> str:
    activity = ", and the SM activity of {mean_sm_activity.device} {was/is} {mean_sm_activity}"
    power = ", and {power.device} {drew/draws} {power} W, of {power_at_work} W at work"
    return sheet.say_if("mean_sm_activity", activity) or sheet.say_if("power", power)


def _holding(sheet: FactSheet) -> str:
    gpus, holding = sheet.count("gpus"), sheet.count("gpus_holding")
    if gpus == 1:
        return sheet.say("its GPU {held/holds}")
    return sheet.say("{gpus_holding.value} of {gpus.value} GPUs {held/" + ("holds}" if holding == 1 else "hold}"))


def _amount(sheet: FactSheet) -> str:
    used, total = sheet.number("memory_in_use"), sheet.get("memory_total")
    if total is None:
        return f"{used / _GIGA:,.1f} GB"
    whole = float(total.value)
    return f"{used / _GIGA:,.1f} GB of {whole / _GIGA:,.1f} GB ({show_percent(100.0 * used / whole)})"


def _end_holders(sheet: FactSheet) -> str:
    who = sheet.say(
        "the processes on {node}" if sheet.kind == Kind.HOLDS_MEMORY else "the process on {device} of {node}"
    )
    holders = "a job that hangs, a script that does not exit, a notebook or a waiting server"
    if sheet.past:
        return (
            f"Find out what {who} waited for, and let the next run end the process when its work is done: {holders} "
            "holds memory like this."
        )
    return (
        f"Save what is needed, then end {who} or stop the job: {holders} holds the memory, and nvidia-smi there names "
        "it."
    )


def _see_who_holds(sheet: FactSheet) -> str:
    if sheet.past:
        return sheet.say(
            "Find out which process held the memory of {device} of {node}. If it was not the job's, end it before the "
            "next run, or place that elsewhere. If it was, find out why it did not compute, or pay for fewer GPUs."
        )
    return sheet.say(
        "Look with nvidia-smi which process holds the memory of {device} of {node}. If it is not the job's, end it, or "
        "place the job elsewhere. If it is, find out why it does not compute, or pay for fewer GPUs."
    )


_PARTS: Parts = {
    **USE_PARTS,
    "idling": _idling,
    "since": _since,
    "sign": _sign,
    "holding": _holding,
    "amount": _amount,
    "end_holders": _end_holders,
    "see_who_holds": _see_who_holds,
    "how_many": how_many,
    "held": lambda sheet: HOLDING_SUFFIX if sheet.kind == Kind.HOLDS_MEMORY else "",
    "look_at_hang": lambda sheet: sheet.say(
        "Find out what the job waited for, or why it hung, on {node}."
        if sheet.past
        else "Check whether the job hangs on {node}, and stop it if it does."
    ),
}
_HOLDS = (
    ": {device} on {node} {was/has been} idle for {idle_time} (allowed {idle_time.limit}), and {held/holds} {amount} "
    "of memory{how_many}."
)
_WORDS: Mapping[str, Words] = {
    Kind.NEVER_USED: Words(
        "{idling}.",
        "Check that the script places the model on the GPUs of {node}.",
        "the GPUs of {node} were never used",
    ),
    Kind.STOPPED: Words("{idling}.", "{look_at_hang}", "the GPUs of {node} stopped working"),
    Kind.NEARLY_IDLE: Words(
        "{idling}.",
        "Check what the job {did/does} on {node}, and whether that {needed/needs} GPUs.",
        "the GPUs of {node} were nearly idle",
    ),
    Kind.HOLDS_MEMORY: Words(
        "{idling}, and {holding} {amount} of memory.",
        "{end_holders}",
        "the GPUs of {node} were idle and held memory",
    ),
    Kind.HARDLY_USED: Words(
        "{idling}{sign}.",
        "Raise the batch size, feed the GPUs of {node} faster, or take a smaller instance: they {worked/work}, and "
        "{left/leave} most of their time unused.",
        "the GPUs of {node} were hardly used",
    ),
    Kind.GPU_HOLDS_MEMORY: Words(
        f"{NAMES[Kind.STOPPED]}{HOLDING_SUFFIX}{_HOLDS}",
        "{end_holders}",
        "{device} of {node} was idle and held memory",
    ),
    Kind.GPU_TAKEN: Words(
        f"{NAMES[Kind.NEVER_USED]}{HOLDING_SUFFIX}{_HOLDS}",
        "{see_who_holds}",
        "{device} of {node} held memory and never worked",
    ),
    **USE_WORDS,
    **INSTANCE_WORDS,
}
