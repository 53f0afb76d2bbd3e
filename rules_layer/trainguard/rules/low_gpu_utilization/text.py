"""The words of LowGPUUtilization: on GPUs that idle, and on GPUs or instances (MIG) that work."""

from collections.abc import Mapping
from dataclasses import replace

from trainguard.core.accelerators import FAULTS, STATE
from trainguard.core.finding import Status
from trainguard.core.units import show_percent
from trainguard.rules.low_gpu_utilization.usage import Kind
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
        return Words("", None, _NOT_BUSY if sheet.status is Status.FIRED else "")
    past = replace(sheet, past=sheet.past or sheet.get("stream_end") is not None)
    return past.fill(words, **_PARTS)


_UNMEASURED = "; utilization is not measured, since its GPUs are partitioned (MIG)"
_INSTANCE_WORDS: Mapping[str, Words] = {
    Kind.INSTANCES_UNUSED: Words(
        "no instance (MIG) of {node} was used: for {low_time} the {activity_of} of each was below "
        f"{{highest_sm_activity.limit}}{_UNMEASURED}.",
        "{hung}",
        "instances of the partitioned GPUs of {node} were never used",
    ),
    Kind.INSTANCES_LOW: Words(
        "{device} on {node}: for {low_time} 95 % of its minutes {had/have} an {activity_of} of at most "
        f"{{p95_sm_activity}} (threshold {{p95_sm_activity.limit}}){{more}}{_UNMEASURED}.",
        "Raise the batch size, fuse small kernels (torch.compile, CUDA graphs), or give the job a smaller instance "
        "than {device} on {node}: its kernels {left/leave} {p95_sm_activity.rest} of its {resource} unused.",
        "instances of the partitioned GPUs of {node} were hardly used",
    ),
    Kind.INSTANCES_FINE: Words(
        "{device} on {node}, the least active of {instances:instance}: the 95th percentile of its {activity_of} is "
        f"{{p95_sm_activity}} (threshold {{p95_sm_activity.limit}}){_UNMEASURED}."
    ),
    Kind.INSTANCES_WARMING_UP: Words(
        "the instances (MIG) of {node} have {minutes_measured.value} of {minutes_measured.limit:minute} with SM or "
        "engine activity."
    ),
    Kind.INSTANCES_UNKNOWN: Words(
        "the GPUs of {node} are partitioned (MIG), so utilization is not measured. SM and engine activity of the "
        "instances, which stand in for it, were not collected."
    ),
}

_IDLE_PERCENT = 1.0
_NOT_BUSY = "the GPUs were not kept busy"
_PAUSING = (
    "the GPUs of {pause_length.node} {paused/pause} for {pause_length} every {period}, {paused_time_share} of the paid "
    "time, as saving a checkpoint, evaluating or preprocessing does"
)
_HIGH = "{p95_utilization_at_work} (threshold {p95_utilization_at_work.limit})"
_LOW = "{p5_utilization_at_work} (threshold {p5_utilization_at_work.limit})"
_NOTHING_DONE = (
    "Look at the process of {device} on {node}, at its log, and for faults of the GPU in "
    f"{FAULTS} and {STATE}: "
    "it {did/does} nothing."
)
_LITTLE_DONE = (
    "Raise the batch size, make fewer blocking calls, or distribute the work in another way; if the GPUs have nothing "
    "more to do and cores are free, take a smaller instance: {device} on {node} was at most {p95_utilization_at_work} "
    "busy in 95 % of its newest samples at work."
)
_FOUND = "{low}, and so for {low_time}{more}.{notes}"
_USE_WORDS: Mapping[str, Words] = {
    Kind.IDLE_IN_PART: Words(
        "idle in part: over the last {idle_share.span} no GPU of {node} was active in {idle_share} of all samples "
        "(threshold {idle_share.limit}); the GPUs {were/are} {mean_utilization} busy on average{most}.",
        "Find out what the GPUs of {node} wait for between their work: data, evaluation, checkpoints, other workers "
        "or a slow service; do that while they train, or let the job have fewer GPUs.",
        "the GPUs of {node} did nothing in {idle_share} of {idle_share.span}",
    ),
    Kind.PAUSES: Words(
        f"{_PAUSING} (threshold {{pause_share.limit}}).",
        "Save, evaluate or preprocess less often, or do so while training goes on: in every {period} the GPUs of "
        "{period.node} {did/do} nothing for {pause_length}.",
        "the GPUs of {pause_length.node} paused for {pause_length} every {period}",
    ),
    Kind.UNDER_USED: Words(_FOUND, "{do_more}", _NOT_BUSY),
    Kind.FLUCTUATES: Words(
        _FOUND,
        "Look for what {device} on {node} {waited/waits} for again and again, idle at {p5_utilization_at_work} and "
        "then busy at {p95_utilization_at_work}: data, checkpoints, other workers or blocking calls between steps.",
        _NOT_BUSY,
    ),
    Kind.LOW_ACTIVITY: Words(
        "{device} on {node} {looked/looks} {mean_utilization_at_work} busy, but 95 % of its last "
        "{minutes_at_work:minute} of work {had/have} {activity} of at most {p95_activity_at_work} (threshold "
        "{p95_activity_at_work.limit}){drawn}{do_so}.",
        "{use_more}",
        "the GPUs of {node} looked busy and used little of themselves",
    ),
    Kind.FINE: Words(
        "{device} on {node}: over {p95_utilization_at_work.span}, outside pauses, the 95th percentile of its GPU "
        f"utilization is {_HIGH}{{which}}, and the 5th {_LOW}.{{others}}{{notes}}"
    ),
    Kind.LOW_FOR_SHORT: Words("{low}, {lasted}; that counts from {low_points.limit:point} on.{notes}"),
    Kind.SMALL_DIPS: Words(
        "{low}, and so for {low_time}; its dips leave {dip_share} of that time unused, and count from "
        "{dip_share.limit} on.{notes}"
    ),
}


def _low(sheet: FactSheet) -> str:
    high, unsteady = sheet["p95_utilization_at_work"], sheet.kind in {Kind.FLUCTUATES, Kind.SMALL_DIPS}
    if sheet.kind == Kind.UNDER_USED or not (unsteady or float(high.value) >= (high.threshold or 0.0)):
        little = "95 % of its last {samples_at_work:sample} outside pauses {had/have} a GPU utilization of at most "
        return sheet.say(f"{{device}} on {{node}}: {little}{_HIGH}")
    return sheet.say(
        "{device} on {node}: of its last {samples_at_work:sample} outside pauses the busiest 5 % {had/have} a GPU "
        f"utilization of at least {_HIGH}, but the idlest 5 % of at most {_LOW}"
    )


def _how_many(sheet: FactSheet, what: str = "GPUs", verb: str = "{were low/are low}") -> str:
    """Say on how many GPUs of the node it is so; nothing of one."""
    affected = sheet.get("gpus_affected")
    if affected is None or affected.value == 1:
        return ""
    return sheet.say(f"; {{gpus_affected.value}} {what} of {{gpus_affected.node}} {verb}")


def _notes(sheet: FactSheet) -> str:
    activity = sheet.say_if("mean_activity_at_work", "{activity}")
    return (
        sheet.say_if(
            "mean_utilization",
            " Over all samples, {mean_utilization.when}, {mean_utilization.device} was {mean_utilization} busy on "
            "average.",
        )
        + sheet.say_if("pause_length", f" T{_PAUSING[1:]}.")
        + sheet.say_if(
            "paused_share",
            " {paused_share} of the samples of {paused_share.node} since its first work were left out as pauses.",
        )
        + sheet.say_if(
            "mean_activity_at_work",
            " {what} of {mean_activity_at_work.device} was {mean_activity_at_work} on average over the last "
            "{minutes_at_work:minute} of work in which it was measured.",
            what=f"{activity[:1].upper()}{activity[1:]}",
        )
    )


def _others(sheet: FactSheet) -> str:
    left = sheet.count("gpus") - sheet.count("gpus_judged")
    many = f"{left:,} GPU" if left == 1 else f"{left:,} GPUs"
    return sheet.say(" {many} of {node} had too little work to be judged.", many=many) if left else ""


def _use_more(sheet: FactSheet) -> str:
    if sheet.name("activity") == "memory activity":
        return sheet.say(
            "Check whether the process on {device} of {node} computes, or waits in a kernel for others: its "
            "utilization alone is no sign of work."
        )
    of = "its multiprocessors" if sheet.name("activity") == "SM activity" else "its tensor cores and its memory"
    return sheet.say(
        "Raise the batch size, fuse small kernels (torch.compile, CUDA graphs), or share {device} on {node}: its "
        "kernels {left/leave} {p95_activity_at_work.rest} of {of} unused; a kernel profile names them.",
        of=of,
    )


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


def _late(sheet: FactSheet) -> str:
    idle = sheet.get("idle_time")
    if idle is None:
        return sheet.say("no instance (MIG) of {node} was used for {low_time} at first")
    if idle.device is not None:
        return sheet.say("{device} of {node} held memory and did not work for {idle_time} at first")
    little = "did next to nothing" if sheet.get("highest_mean_utilization") else "did not work"
    return sheet.say("the GPUs of {node} {little} in their first {idle_time}", little=little)


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
    if sheet.get("memory_in_use_share"):
        return sheet.say("{memory_in_use_share}")
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
        f"Save what is needed, then end {who} or stop the job: {holders} holds the memory, and {STATE} there names it."
    )


def _see_who_holds(sheet: FactSheet) -> str:
    if sheet.past:
        return sheet.say(
            "Find out which process held the memory of {device} of {node}. If it was not the job's, end it before the "
            "next run, or place that elsewhere. If it was, find out why it did not compute, or pay for fewer GPUs."
        )
    return sheet.say(
        f"Look with {STATE} "
        "which process holds the memory of {device} of {node}. If it is not the job's, end it, or place the job "
        "elsewhere. If it is, find out why it does not compute, or pay for fewer GPUs."
    )


_PARTS: Parts = {
    "low": _low,
    "notes": _notes,
    "others": _others,
    "use_more": _use_more,
    "more": lambda sheet: _how_many(sheet, "instances" if sheet.kind in _INSTANCE_WORDS else "GPUs"),
    "do_so": lambda sheet: _how_many(sheet, verb="{did so/do so}"),
    "drawn": lambda sheet: sheet.say_if("power", ", at {power} W"),
    "do_more": lambda sheet: sheet.say(
        _NOTHING_DONE if sheet.number("p95_utilization_at_work") < _IDLE_PERCENT else _LITTLE_DONE
    ),
    "lasted": lambda sheet: sheet.say("for {low_points:point}") if sheet["low_points"].value else "just now",
    "most": lambda sheet: (
        ""
        if sheet.number("gpus") == 1
        else sheet.say(", {highest_mean_utilization.device} the most with {highest_mean_utilization}")
    ),
    "which": lambda sheet: (
        "" if sheet.count("gpus_judged") == 1 else sheet.say(", the lowest of the {gpus_judged.value} GPUs judged")
    ),
    "hung": lambda sheet: sheet.say(
        "Find out why the job hung on {node}, or computed on the CPU."
        if sheet.past
        else "Check whether the job hangs on {node} or computes on the CPU, and stop it if it does."
    ),
    "activity_of": lambda sheet: sheet.say_if("activity", "{activity}") or "SM activity",
    "resource": lambda sheet: "time" if sheet.get("activity") else "multiprocessors",
    "idling": _idling,
    "late": _late,
    "since": _since,
    "sign": _sign,
    "holding": _holding,
    "amount": _amount,
    "end_holders": _end_holders,
    "see_who_holds": _see_who_holds,
    "how_many": _how_many,
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
    Kind.IDLE_AT_FIRST: Words(
        "idle at first: {late}.",
        "Shorten what comes before the first step on {node}: stream data instead of copying it, keep what is compiled "
        "or preprocessed, load models in parallel; the job's log of that time says what it did.",
        "{late}",
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
    **_USE_WORDS,
    **_INSTANCE_WORDS,
}
