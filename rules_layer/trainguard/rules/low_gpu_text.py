"""What is said of GPU use, made of facts alone."""

from collections.abc import Callable, Mapping

from trainguard.finding import Fact, clock_times
from trainguard.rules.low_gpu_usage import NODE_IDLES, Kind
from trainguard.rules.units import counted, show_duration, show_number, show_percent
from trainguard.rules.words import FactSheet, Words
from trainguard.statuses import Status
from trainguard.timestamps import iso_time

_GIGA = 1e9
IDLE_PERCENT = 1.0
"""A GPU whose 95th percentile is below it does nothing."""


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
    """Make the words of a judgement."""
    words = _WORDS.get(sheet.kind)
    if words is not None:
        return words(sheet)
    return Words("", None, _NOT_BUSY if sheet.status is Status.FIRED else "")


_NOT_BUSY = "the GPUs were not kept busy"


def _is_past(sheet: FactSheet) -> bool:
    return sheet.past or sheet.get("stream_end") is not None


def _idle(sheet: FactSheet) -> Words:
    """Say that no GPU of a node works, and what memory they hold the while."""
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
    node, lasted = idle.node, _time(idle)
    if look == Kind.STOPPED:
        return f"every GPU of {node} {'was' if _is_past(sheet) else 'has been'} idle for {lasted}"
    since = " since its first sample" if sheet.number("idle_since") <= sheet.number("first_sample") + 1.0 else ""
    if look == Kind.NEVER_USED:
        return f"no GPU of {node} was used in the {lasted}{since}"
    mean = sheet["highest_mean_utilization"]
    over = f"over the last {_span(mean)} of it"
    if look == Kind.NEARLY_IDLE:
        return f"for {lasted}{since}; {over} no GPU of {node} was busier than {_percent(mean)} on average"
    return (
        f"for {lasted}{since} no GPU of {node} had a GPU utilization of {show_percent(mean.threshold or 0.0)} or more; "
        f"{over} the busiest had {_percent(mean)} on average"
    )


def _idle_advice(sheet: FactSheet, look: str) -> str:
    node, past = sheet["idle_time"].node, _is_past(sheet)
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
    work, leave = ("worked", "left") if _is_past(sheet) else ("work", "leave")
    return Words(
        f"under-used: {_idling(sheet, Kind.HARDLY_USED)} (allowed {allowed}){_sign(sheet)}.",
        f"Raise the batch size, feed the GPUs of {node} faster, or take a smaller instance: they {work}, and {leave} "
        "most of their time unused.",
        f"the GPUs of {node} were hardly used",
    )


def _sign(sheet: FactSheet) -> str:
    activity, power = sheet.get("mean_sm_activity"), sheet.get("power")
    verb = "was" if _is_past(sheet) else "is"
    if activity is not None:
        return f", and the SM activity of {activity.device} {verb} {_percent(activity)}"
    if power is None:
        return ""
    draws = "drew" if _is_past(sheet) else "draws"
    at_work = show_number(sheet.number("power_at_work"))
    return f", and {power.device} {draws} {show_number(float(power.value))} W, of {at_work} W at work"


def _holding(sheet: FactSheet) -> str:
    gpus, holding = int(sheet.number("gpus")), int(sheet.number("gpus_holding"))
    if gpus == 1:
        return f"its GPU {'held' if _is_past(sheet) else 'holds'}"
    hold = "held" if _is_past(sheet) else "holds" if holding == 1 else "hold"
    return f"{holding} of {gpus} GPUs {hold}"


def _amount(held: Fact, total: Fact | None) -> str:
    used = f"{float(held.value) / _GIGA:,.1f} GB"
    if total is None:
        return used
    share = 100.0 * float(held.value) / float(total.value)
    return f"{used} of {float(total.value) / _GIGA:,.1f} GB ({show_percent(share)})"


def _end_holders(sheet: FactSheet, who: str) -> str:
    holders = "a job that hangs, a script that does not exit, a notebook or a waiting server"
    if _is_past(sheet):
        return (
            f"Find out what {who} waited for, and let the next run end the process when its work is done: {holders} "
            "holds memory like this."
        )
    return (
        f"Save what is needed, then end {who} or stop the job: {holders} holds the memory, and nvidia-smi there names "
        "it."
    )


def _gpu_holds_memory(sheet: FactSheet) -> Words:
    """Say that one GPU idles beside others that work, and what it holds."""
    idle, held = sheet["idle_time"], sheet["memory_in_use"]
    been, holds = ("was", "held") if _is_past(sheet) else ("has been", "holds")
    allowed = show_duration(idle.threshold or 0.0)
    return Words(
        f"idle{HOLDING_SUFFIX}: {idle.device} on {idle.node} {been} idle for {_time(idle)} "
        f"(allowed {allowed}), and {holds} {_amount(held, sheet.get('memory_total'))} of memory{_how_many(sheet)}.",
        _end_holders(sheet, f"the process on {idle.device} of {idle.node}"),
        f"{idle.device} of {idle.node} was idle and held memory",
    )


def _see_who_holds(sheet: FactSheet, gpu: str) -> str:
    if _is_past(sheet):
        return (
            f"Find out which process held the memory of {gpu}. If it was not the job's, end it before the next run, or "
            "place that elsewhere. If it was, find out why it did not compute, or pay for fewer GPUs."
        )
    return (
        f"Look with nvidia-smi which process holds the memory of {gpu}. If it is not the job's, end it, or place the "
        "job elsewhere. If it is, find out why it does not compute, or pay for fewer GPUs."
    )


def _gpu_taken(sheet: FactSheet) -> Words:
    """Say that one GPU never worked beside others that do, and what it holds."""
    idle, held = sheet["idle_time"], sheet["memory_in_use"]
    been, holds = ("was", "held") if _is_past(sheet) else ("has been", "holds")
    where = f"{idle.device} of {idle.node}"
    return Words(
        f"never used{HOLDING_SUFFIX}: {idle.device} on {idle.node} {been} idle for {_time(idle)} (allowed "
        f"{show_duration(idle.threshold or 0.0)}), and {holds} {_amount(held, sheet.get('memory_total'))} of memory"
        f"{_how_many(sheet)}.",
        _see_who_holds(sheet, where),
        f"{where} held memory and never worked",
    )


def _idle_in_part(sheet: FactSheet) -> Words:
    share, node = sheet["idle_share"], sheet["idle_share"].node
    mean, highest = sheet["mean_utilization"], sheet["highest_mean_utilization"]
    busy = f"the GPUs {'were' if _is_past(sheet) else 'are'} {_percent(mean)} busy on average"
    most = "" if sheet.number("gpus") == 1 else f", {highest.device} the most with {_percent(highest)}"
    return Words(
        f"idle in part: over the last {_span(share)} no GPU of {node} was active in {_share(share)} of all samples "
        f"(threshold {show_percent(100.0 * (share.threshold or 0.0))}); {busy}{most}.",
        f"Find out what the GPUs of {node} wait for between their work: data, evaluation, checkpoints, other workers "
        "or a slow service; do that while they train, or let the job have fewer GPUs.",
        f"the GPUs of {node} did nothing in {_share(share)} of {_span(share)}",
    )


def _pauses(sheet: FactSheet) -> Words:
    length, period = sheet["pause_length"], sheet["period"]
    least, do = show_percent(100.0 * (sheet["pause_share"].threshold or 0.0)), "did" if _is_past(sheet) else "do"
    return Words(
        f"{_pausing(sheet)} (threshold {least}).",
        "Save, evaluate or preprocess less often, or do so while training goes on: in every "
        f"{_time(period)} the GPUs of {period.node} {do} nothing for {_time(length)}.",
        f"the GPUs of {length.node} paused for {_time(length)} every {_time(period)}",
    )


def _pausing(sheet: FactSheet) -> str:
    length, period, share = sheet["pause_length"], sheet["period"], sheet["paused_time_share"]
    pause = "paused" if _is_past(sheet) else "pause"
    return (
        f"the GPUs of {length.node} {pause} for {_time(length)} every "
        f"{_time(period)}, {_share(share)} of the paid time, as saving a checkpoint, evaluating "
        "or preprocessing does"
    )


def _under_used(sheet: FactSheet) -> Words:
    high = sheet["p95_utilization_at_work"]
    where = f"{high.device} on {high.node}"
    if float(high.value) < IDLE_PERCENT:
        advice = (
            f"Look at the process of {where}, at its log, and at the GPU (Xid errors in dmesg, nvidia-smi -q): it "
            f"{'did' if _is_past(sheet) else 'does'} nothing."
        )
    else:
        advice = (
            "Raise the batch size, make fewer blocking calls, or distribute the work in another way; if the GPUs have "
            f"nothing more to do and cores are free, take a smaller instance: {where} was at most {_percent(high)} "
            "busy in 95 % of its newest samples at work."
        )
    return Words(_low_found(sheet), advice, _NOT_BUSY)


def _fluctuates(sheet: FactSheet) -> Words:
    high, low = sheet["p95_utilization_at_work"], sheet["p5_utilization_at_work"]
    waits = "waited" if _is_past(sheet) else "waits"
    return Words(
        _low_found(sheet),
        f"Look for what {high.device} on {high.node} {waits} for again and again, idle at {_percent(low)} and then "
        f"busy at {_percent(high)}: data, checkpoints, other workers or blocking calls between steps.",
        _NOT_BUSY,
    )


def _low(sheet: FactSheet) -> str:
    """Say what a GPU did over the newest window, against the thresholds of the 95th and 5th percentile."""
    high, low = sheet["p95_utilization_at_work"], sheet["p5_utilization_at_work"]
    points = counted(int(sheet.number("samples_at_work")), "sample")
    span = f"its last {points} outside pauses"
    unsteady = sheet.kind in {Kind.FLUCTUATES, Kind.SMALL_DIPS}
    have = "had" if _is_past(sheet) else "have"
    if sheet.kind == Kind.UNDER_USED or not (unsteady or float(high.value) >= (high.threshold or 0.0)):
        return f"{high.device} on {high.node}: 95 % of {span} {have} a GPU utilization of at most {_limit(high)}"
    return (
        f"{high.device} on {high.node}: of {span} the busiest 5 % {have} a GPU utilization of at least {_limit(high)}, "
        f"but the idlest 5 % of at most {_limit(low)}"
    )


def _low_found(sheet: FactSheet) -> str:
    return f"{_low_since(sheet)}{_how_many(sheet)}.{_notes(sheet)}"


def _low_since(sheet: FactSheet) -> str:
    return f"{_low(sheet)}, and so for {show_duration(sheet.number('low_time'))}"


def _low_for_short(sheet: FactSheet) -> Words:
    points = sheet["low_points"]
    lasted = f"for {counted(int(points.value), 'point')}" if points.value else "just now"
    needed = counted(round(points.threshold or 0.0), "point")
    return Words(f"{_low(sheet)}, {lasted}; that counts from {needed} on.{_notes(sheet)}")


def _small_dips(sheet: FactSheet) -> Words:
    dips = sheet["dip_share"]
    gate = show_percent(100.0 * (dips.threshold or 0.0))
    return Words(
        f"{_low_since(sheet)}; its dips leave {_share(dips)} of that time unused, and count from {gate} "
        f"on.{_notes(sheet)}"
    )


def _fine(sheet: FactSheet) -> Words:
    high, low = sheet["p95_utilization_at_work"], sheet["p5_utilization_at_work"]
    worked, gpus = int(sheet.number("gpus_judged")), int(sheet.number("gpus"))
    which = "" if worked == 1 else f", the lowest of the {worked} GPUs judged"
    others = (
        "" if gpus == worked else f" {counted(gpus - worked, 'GPU')} of {high.node} had too little work to be judged."
    )
    return Words(
        f"{high.device} on {high.node}: over {_span(high)}, outside pauses, the 95th percentile of its GPU utilization "
        f"is {_limit(high)}{which}, and the 5th {_limit(low)}.{others}{_notes(sheet)}"
    )


def _how_many(sheet: FactSheet) -> str:
    affected = sheet.get("gpus_affected")
    if affected is None or affected.value == 1:
        return ""
    return f"; {affected.value} GPUs of {affected.node} {'were' if _is_past(sheet) else 'are'} low"


def _notes(sheet: FactSheet) -> str:
    """Say how busy the GPU was over all samples, how the node pauses, and how active the GPU was."""
    said, mean = "", sheet.get("mean_utilization")
    if mean is not None:
        when = clock_times(iso_time(mean.start or 0.0), iso_time(mean.end or 0.0))
        said += f" Over all samples, {when}, {mean.device} was {_percent(mean)} busy on average."
    if sheet.get("pause_length") is not None:
        said += f" T{_pausing(sheet)[1:]}."
    paused = sheet.get("paused_share")
    if paused is not None:
        said += f" {_share(paused)} of the samples of {paused.node} since its first work were left out as pauses."
    active = sheet.get("mean_activity_at_work")
    if active is not None:
        what = sheet.name("activity")
        measured = f"over the last {counted(int(sheet.number('minutes_at_work')), 'minute')} of work"
        said += (
            f" {what[:1].upper()}{what[1:]} of {active.device} was {_percent(active)} on average {measured} in which "
            "it was measured."
        )
    return said


def _low_activity(sheet: FactSheet) -> Words:
    """Say that GPUs look busy and use little of themselves."""
    high, busy, what = sheet["p95_activity_at_work"], sheet["mean_utilization_at_work"], sheet.name("activity")
    node, power, minutes = high.node, sheet.get("power"), counted(int(sheet.number("minutes_at_work")), "minute")
    drawn = "" if power is None else f", at {show_number(float(power.value))} W"
    affected = int(sheet.number("gpus_affected"))
    more = f"; {affected} GPUs of {node} {'did' if _is_past(sheet) else 'do'} so" if affected > 1 else ""
    unused = "its multiprocessors" if what == "SM activity" else "its tensor cores and its memory"
    looks, leave, have = ("looked", "left", "had") if _is_past(sheet) else ("looks", "leave", "have")
    if what == "memory activity":
        advice = (
            f"Check whether the process on {high.device} of {node} computes, or waits in a kernel for others: its "
            "utilization alone is no sign of work."
        )
    else:
        advice = (
            f"Raise the batch size, fuse small kernels (torch.compile, CUDA graphs), or share {high.device} on {node}: "
            f"its kernels {leave} {show_percent(100.0 - float(high.value))} of {unused} unused; a kernel profile names "
            "them."
        )
    return Words(
        f"{high.device} on {node} {looks} {_percent(busy)} busy, but 95 % of its last {minutes} of work {have} "
        f"{what} of at most {_limit(high)}{drawn}{more}.",
        advice,
        f"the GPUs of {node} looked busy and used little of themselves",
    )


_UNMEASURED = "; utilization is not measured, since its GPUs are partitioned (MIG)"


def _instances_low(sheet: FactSheet) -> Words:
    high, minutes = sheet["p95_sm_activity"], show_duration(sheet.number("low_time"))
    affected = int(sheet.number("gpus_affected"))
    more = f"; {affected} instances of {high.node} {'were' if _is_past(sheet) else 'are'} low" if affected > 1 else ""
    leave, have = ("left", "had") if _is_past(sheet) else ("leave", "have")
    return Words(
        f"{high.device} on {high.node}: for {minutes} 95 % of its minutes {have} an SM activity of at most "
        f"{_limit(high)}{more}{_UNMEASURED}.",
        "Raise the batch size, fuse small kernels (torch.compile, CUDA graphs), or give the job a smaller instance "
        f"than {high.device} on {high.node}: its kernels {leave} {show_percent(100.0 - float(high.value))} of its "
        "multiprocessors unused.",
        f"instances of the partitioned GPUs of {high.node} were hardly used",
    )


def _instances_unused(sheet: FactSheet) -> Words:
    highest = sheet["highest_sm_activity"]
    idle = f"for {_time(sheet['low_time'])} the SM activity of each was below {show_percent(highest.threshold or 0.0)}"
    advice = f"Check whether the job hangs on {highest.node} or computes on the CPU, and stop it if it does."
    if _is_past(sheet):
        advice = f"Find out why the job hung on {highest.node}, or computed on the CPU."
    return Words(
        f"no instance (MIG) of {highest.node} was used: {idle}{_UNMEASURED}.",
        advice,
        f"instances of the partitioned GPUs of {highest.node} were never used",
    )


def _instances_fine(sheet: FactSheet) -> Words:
    high = sheet["p95_sm_activity"]
    return Words(
        f"{high.device} on {high.node}, the least active of {counted(int(sheet.number('instances')), 'instance')}: the "
        f"95th percentile of its SM activity is {_limit(high)}"
        f"{_UNMEASURED}."
    )


def _instances_warming_up(sheet: FactSheet) -> Words:
    seen = sheet["minutes_measured"]
    needed = counted(round(seen.threshold or 0.0), "minute")
    return Words(f"the instances (MIG) of {seen.node} have {seen.value} of {needed} with SM activity.")


def _instances_unknown(sheet: FactSheet) -> Words:
    node = sheet["instances"].node
    what = f"the GPUs of {node} are partitioned (MIG), so utilization is not measured."
    return Words(f"{what} SM activity of the instances, which stands in for it, was not collected.")


def _time(fact: Fact) -> str:
    return show_duration(float(fact.value))


def _limit(fact: Fact) -> str:
    """Say a percentage with its threshold."""
    return f"{_percent(fact)} (threshold {show_percent(fact.threshold or 0.0)})"


def _percent(fact: Fact) -> str:
    return show_percent(float(fact.value))


def _share(fact: Fact) -> str:
    return show_percent(100.0 * float(fact.value))


def _span(fact: Fact) -> str:
    """Say how long a fact's time was."""
    return show_duration((fact.end or 0.0) - (fact.start or 0.0))


_WORDS: Mapping[str, Callable[[FactSheet], Words]] = {
    **dict.fromkeys(NODE_IDLES, _idle),
    Kind.HARDLY_USED: _hardly_used,
    Kind.IDLE_IN_PART: _idle_in_part,
    Kind.PAUSES: _pauses,
    Kind.UNDER_USED: _under_used,
    Kind.FLUCTUATES: _fluctuates,
    Kind.GPU_HOLDS_MEMORY: _gpu_holds_memory,
    Kind.GPU_TAKEN: _gpu_taken,
    Kind.LOW_ACTIVITY: _low_activity,
    Kind.INSTANCES_UNUSED: _instances_unused,
    Kind.INSTANCES_LOW: _instances_low,
    Kind.FINE: _fine,
    Kind.LOW_FOR_SHORT: _low_for_short,
    Kind.SMALL_DIPS: _small_dips,
    Kind.INSTANCES_FINE: _instances_fine,
    Kind.INSTANCES_WARMING_UP: _instances_warming_up,
    Kind.INSTANCES_UNKNOWN: _instances_unknown,
}
