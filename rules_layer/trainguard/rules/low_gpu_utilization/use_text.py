"""Words on GPUs, or instances (MIG), that work: how busy they are, how they pause, how much of them is used."""

from collections.abc import Callable, Mapping

from trainguard.core.finding import Fact, clock
from trainguard.core.units import counted, show_duration, show_number, show_percent
from trainguard.rules.low_gpu_utilization.usage import Kind
from trainguard.rules.rule_result import FactSheet, Words


def is_past(sheet: FactSheet) -> bool:
    return sheet.past or sheet.get("stream_end") is not None


def time_of(fact: Fact) -> str:
    return show_duration(float(fact.value))


def limit_of(fact: Fact) -> str:
    return f"{percent_of(fact)} (threshold {show_percent(fact.threshold or 0.0)})"


def percent_of(fact: Fact) -> str:
    return show_percent(float(fact.value))


def share_of(fact: Fact) -> str:
    return show_percent(100.0 * float(fact.value))


def span_of(fact: Fact) -> str:
    return show_duration((fact.end or 0.0) - (fact.start or 0.0))


_UNMEASURED = "; utilization is not measured, since its GPUs are partitioned (MIG)"


def _instances_low(sheet: FactSheet) -> Words:
    high, minutes = sheet["p95_sm_activity"], sheet.duration("low_time")
    leave, have = ("left", "had") if is_past(sheet) else ("leave", "have")
    return Words(
        f"{high.device} on {high.node}: for {minutes} 95 % of its minutes {have} an SM activity of at most "
        f"{limit_of(high)}{how_many(sheet, 'instances')}{_UNMEASURED}.",
        "Raise the batch size, fuse small kernels (torch.compile, CUDA graphs), or give the job a smaller instance "
        f"than {high.device} on {high.node}: its kernels {leave} {show_percent(100.0 - float(high.value))} of its "
        "multiprocessors unused.",
        f"instances of the partitioned GPUs of {high.node} were hardly used",
    )


def _instances_unused(sheet: FactSheet) -> Words:
    highest = sheet["highest_sm_activity"]
    lasted, least = time_of(sheet["low_time"]), show_percent(highest.threshold or 0.0)
    idle = f"for {lasted} the SM activity of each was below {least}"
    advice = f"Check whether the job hangs on {highest.node} or computes on the CPU, and stop it if it does."
    if is_past(sheet):
        advice = f"Find out why the job hung on {highest.node}, or computed on the CPU."
    return Words(
        f"no instance (MIG) of {highest.node} was used: {idle}{_UNMEASURED}.",
        advice,
        f"instances of the partitioned GPUs of {highest.node} were never used",
    )


def _instances_fine(sheet: FactSheet) -> Words:
    high = sheet["p95_sm_activity"]
    return Words(
        f"{high.device} on {high.node}, the least active of {counted(sheet.count('instances'), 'instance')}: the "
        f"95th percentile of its SM activity is {limit_of(high)}"
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


INSTANCE_WORDS: Mapping[str, Callable[[FactSheet], Words]] = {
    Kind.INSTANCES_UNUSED: _instances_unused,
    Kind.INSTANCES_LOW: _instances_low,
    Kind.INSTANCES_FINE: _instances_fine,
    Kind.INSTANCES_WARMING_UP: _instances_warming_up,
    Kind.INSTANCES_UNKNOWN: _instances_unknown,
}

IDLE_PERCENT = 1.0
NOT_BUSY = "the GPUs were not kept busy"


def _idle_in_part(sheet: FactSheet) -> Words:
    share, node = sheet["idle_share"], sheet["idle_share"].node
    mean, highest = sheet["mean_utilization"], sheet["highest_mean_utilization"]
    busy = f"the GPUs {'were' if is_past(sheet) else 'are'} {percent_of(mean)} busy on average"
    most = "" if sheet.number("gpus") == 1 else f", {highest.device} the most with {percent_of(highest)}"
    return Words(
        f"idle in part: over the last {span_of(share)} no GPU of {node} was active in {share_of(share)} of all samples "
        f"(threshold {show_percent(100.0 * (share.threshold or 0.0))}); {busy}{most}.",
        f"Find out what the GPUs of {node} wait for between their work: data, evaluation, checkpoints, other workers "
        "or a slow service; do that while they train, or let the job have fewer GPUs.",
        f"the GPUs of {node} did nothing in {share_of(share)} of {span_of(share)}",
    )


def _pauses(sheet: FactSheet) -> Words:
    length, period = sheet["pause_length"], sheet["period"]
    least, do = show_percent(100.0 * (sheet["pause_share"].threshold or 0.0)), "did" if is_past(sheet) else "do"
    return Words(
        f"{_pausing(sheet)} (threshold {least}).",
        "Save, evaluate or preprocess less often, or do so while training goes on: in every "
        f"{time_of(period)} the GPUs of {period.node} {do} nothing for {time_of(length)}.",
        f"the GPUs of {length.node} paused for {time_of(length)} every {time_of(period)}",
    )


def _pausing(sheet: FactSheet) -> str:
    length, period, share = sheet["pause_length"], sheet["period"], sheet["paused_time_share"]
    pause = "paused" if is_past(sheet) else "pause"
    return (
        f"the GPUs of {length.node} {pause} for {time_of(length)} every "
        f"{time_of(period)}, {share_of(share)} of the paid time, as saving a checkpoint, evaluating "
        "or preprocessing does"
    )


def _under_used(sheet: FactSheet) -> Words:
    high = sheet["p95_utilization_at_work"]
    where = f"{high.device} on {high.node}"
    if float(high.value) < IDLE_PERCENT:
        advice = (
            f"Look at the process of {where}, at its log, and at the GPU (Xid errors in dmesg, nvidia-smi -q): it "
            f"{'did' if is_past(sheet) else 'does'} nothing."
        )
    else:
        advice = (
            "Raise the batch size, make fewer blocking calls, or distribute the work in another way; if the GPUs have "
            f"nothing more to do and cores are free, take a smaller instance: {where} was at most {percent_of(high)} "
            "busy in 95 % of its newest samples at work."
        )
    return Words(_low_found(sheet), advice, NOT_BUSY)


def _fluctuates(sheet: FactSheet) -> Words:
    high, low = sheet["p95_utilization_at_work"], sheet["p5_utilization_at_work"]
    waits = "waited" if is_past(sheet) else "waits"
    return Words(
        _low_found(sheet),
        f"Look for what {high.device} on {high.node} {waits} for again and again, idle at {percent_of(low)} and then "
        f"busy at {percent_of(high)}: data, checkpoints, other workers or blocking calls between steps.",
        NOT_BUSY,
    )


def _low(sheet: FactSheet) -> str:
    high, low = sheet["p95_utilization_at_work"], sheet["p5_utilization_at_work"]
    points = counted(sheet.count("samples_at_work"), "sample")
    span = f"its last {points} outside pauses"
    unsteady = sheet.kind in {Kind.FLUCTUATES, Kind.SMALL_DIPS}
    have = "had" if is_past(sheet) else "have"
    if sheet.kind == Kind.UNDER_USED or not (unsteady or float(high.value) >= (high.threshold or 0.0)):
        return f"{high.device} on {high.node}: 95 % of {span} {have} a GPU utilization of at most {limit_of(high)}"
    return (
        f"{high.device} on {high.node}: of {span} the busiest 5 % {have} a GPU utilization of at least "
        f"{limit_of(high)}, but the idlest 5 % of at most {limit_of(low)}"
    )


def _low_found(sheet: FactSheet) -> str:
    return f"{_low_since(sheet)}{how_many(sheet)}.{_notes(sheet)}"


def _low_since(sheet: FactSheet) -> str:
    return f"{_low(sheet)}, and so for {sheet.duration('low_time')}"


def _low_for_short(sheet: FactSheet) -> Words:
    points = sheet["low_points"]
    lasted = f"for {counted(int(points.value), 'point')}" if points.value else "just now"
    needed = counted(round(points.threshold or 0.0), "point")
    return Words(f"{_low(sheet)}, {lasted}; that counts from {needed} on.{_notes(sheet)}")


def _small_dips(sheet: FactSheet) -> Words:
    dips = sheet["dip_share"]
    gate = show_percent(100.0 * (dips.threshold or 0.0))
    return Words(
        f"{_low_since(sheet)}; its dips leave {share_of(dips)} of that time unused, and count from {gate} "
        f"on.{_notes(sheet)}"
    )


def _fine(sheet: FactSheet) -> Words:
    high, low = sheet["p95_utilization_at_work"], sheet["p5_utilization_at_work"]
    worked, gpus = sheet.count("gpus_judged"), sheet.count("gpus")
    which = "" if worked == 1 else f", the lowest of the {worked} GPUs judged"
    others = (
        "" if gpus == worked else f" {counted(gpus - worked, 'GPU')} of {high.node} had too little work to be judged."
    )
    return Words(
        f"{high.device} on {high.node}: over {span_of(high)}, outside pauses, the 95th percentile of its GPU "
        f"utilization is {limit_of(high)}{which}, and the 5th {limit_of(low)}.{others}{_notes(sheet)}"
    )


def how_many(sheet: FactSheet, what: str = "GPUs", now: str = "are low", past: str = "were low") -> str:
    """Say on how many GPUs of the node it is so; nothing of one."""
    affected = sheet.get("gpus_affected")
    if affected is None or affected.value == 1:
        return ""
    return f"; {affected.value} {what} of {affected.node} {past if is_past(sheet) else now}"


def _notes(sheet: FactSheet) -> str:
    said, mean = "", sheet.get("mean_utilization")
    if mean is not None:
        said += (
            f" Over all samples, {clock(mean.start, mean.end)}, {mean.device} was {percent_of(mean)} busy on average."
        )
    if sheet.get("pause_length") is not None:
        said += f" T{_pausing(sheet)[1:]}."
    paused = sheet.get("paused_share")
    if paused is not None:
        said += f" {share_of(paused)} of the samples of {paused.node} since its first work were left out as pauses."
    active = sheet.get("mean_activity_at_work")
    if active is not None:
        what = sheet.name("activity")
        measured = f"over the last {counted(sheet.count('minutes_at_work'), 'minute')} of work"
        said += (
            f" {what[:1].upper()}{what[1:]} of {active.device} was {percent_of(active)} on average {measured} in which "
            "it was measured."
        )
    return said


def _low_activity(sheet: FactSheet) -> Words:
    high, busy, what = sheet["p95_activity_at_work"], sheet["mean_utilization_at_work"], sheet.name("activity")
    node, power, minutes = high.node, sheet.get("power"), counted(sheet.count("minutes_at_work"), "minute")
    drawn = "" if power is None else f", at {show_number(float(power.value))} W"
    more = how_many(sheet, "GPUs", "do so", "did so")
    unused = "its multiprocessors" if what == "SM activity" else "its tensor cores and its memory"
    looks, leave, have = ("looked", "left", "had") if is_past(sheet) else ("looks", "leave", "have")
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
        f"{high.device} on {node} {looks} {percent_of(busy)} busy, but 95 % of its last {minutes} of work {have} "
        f"{what} of at most {limit_of(high)}{drawn}{more}.",
        advice,
        f"the GPUs of {node} looked busy and used little of themselves",
    )


USE_WORDS: Mapping[str, Callable[[FactSheet], Words]] = {
    Kind.IDLE_IN_PART: _idle_in_part,
    Kind.PAUSES: _pauses,
    Kind.UNDER_USED: _under_used,
    Kind.FLUCTUATES: _fluctuates,
    Kind.LOW_ACTIVITY: _low_activity,
    Kind.FINE: _fine,
    Kind.LOW_FOR_SHORT: _low_for_short,
    Kind.SMALL_DIPS: _small_dips,
}
