"""Kinds of findings of HungJob, and their words."""

from collections.abc import Callable, Mapping

from trainguard.core.records import Status
from trainguard.rules.hung_job.ranks_text import what_to_do, who
from trainguard.rules.rule_result import FactSheet, JudgedKind, Parts, Words
from trainguard.rules.windows.warm_up import or_undecided


class HungKind(JudgedKind):
    """Findings of HungJob on a node or a job; the first three fire."""

    SPINS = "spins", Status.FIRED
    WAITS_FOR_IDLE = "waits_for_idle", Status.FIRED
    STOPPED = "stopped", Status.FIRED
    STANDS_STILL = "stands_still"
    PAUSES = "pauses"
    NEWEST_SAMPLE = "newest_sample"
    WORKS = "works"
    NOT_KNOWN = "not_known", Status.WARMING_UP
    NO_POWER = "no_power", Status.NOT_APPLICABLE
    NO_SAMPLES = "no_samples", Status.WAITING_FOR_DATA


@or_undecided
def text(sheet: FactSheet) -> Words:
    kind = HungKind(sheet.kind)
    if kind in _CALM:
        return Words(sheet.say(_CALM[kind], **_PARTS))
    return sheet.fill(_HUNG, look=_LOOKS[kind], **_PARTS)


def _named(sheet: FactSheet, what: str, text: str) -> str:
    """Say a text with ``{names}``, those of processes, nodes or GPUs; nothing where there are none."""
    name, counted_as = _NAMED[what]
    count = sheet.get(counted_as)
    if count is None or not count.value:
        return ""
    shown = [str(fact.value) for fact in sheet.all(name)]
    more = int(count.value) - len(shown)
    return sheet.say(text, names=", ".join(shown) + (f" and {more} more" if more else ""))


_NAMED = {
    "late": ("rank_behind", "ranks_behind"),
    "silent": ("silent_node", "silent_nodes"),
    "idle": ("idle_gpu", "gpus_idle"),
}


def _has_ranks(sheet: FactSheet) -> bool:
    return sheet.get("culprit_kind") is not None or sheet.get("awaited_operation") is not None


def _by_ranks(sheet: FactSheet) -> str:
    """Say what the dumps of the ranks say, if there are any."""
    return f"; {who(sheet)}" if _has_ranks(sheet) else ""


def _first(sheet: FactSheet) -> str:
    if _has_ranks(sheet):
        return f"{what_to_do(sheet)} Stop"
    found = _named(sheet, "late", "{names}") or _named(sheet, "silent", "{names}")
    waits = sheet.kind == HungKind.WAITS_FOR_IDLE and sheet.number("gpus_idle") <= sheet.number("gpus_waiting")
    found = found or (_named(sheet, "idle", "{names}") if waits else "")
    return (
        f"Look at {found} first, then stop"
        if found
        else "Take stack traces of all ranks (py-spy dump) first, then stop"
    )


def _next_time(sheet: FactSheet) -> str:
    return "" if _has_ranks(sheet) else f" {_GET_DUMPS}"


_GET_DUMPS = (
    "With TORCH_FR_BUFFER_SIZE and TORCH_NCCL_DUMP_ON_TIMEOUT, or trainguard-collector, dumps name the rank: see "
    "docs/hangs.md."
)


def _paused(sheet: FactSheet) -> str:
    if sheet["pause_length"].node is not None:
        return sheet.say_if("hosts_at_work", ", and its host computes, reads, writes or sends")
    return sheet.say_if("hosts_at_work", ", and hosts compute, read, write or send")


def _busy(sheet: FactSheet) -> str:
    one = sheet.count("gpus_waiting") == 1
    power = sheet.say_if("power_at_work", ", of {power_at_work} W at work")
    return sheet.say(
        "for {standstill_time} {gpus_waiting:GPU} {looked/" + ("has" if one else "have") + " looked} busy at {power} W"
        "{each}{power_known}",
        each="" if one else " each",
        power_known=power or sheet.say(", of a limit of {power_limit} W"),
    )


_LOOKS: Mapping[HungKind, Callable[[FactSheet], str]] = {
    HungKind.SPINS: lambda sheet: f"{_busy(sheet)}, as in a collective that does not end, or a kernel that only spins",
    HungKind.WAITS_FOR_IDLE: lambda sheet: (
        _busy(sheet)
        + _named(
            sheet,
            "idle",
            ", and {names} {was/is} idle" if sheet.count("gpus_idle") == 1 else ", and {names} {were/are} idle",
        )
    ),
    HungKind.STOPPED: lambda sheet: sheet.say(
        "for {standstill_time} no GPU {worked/has worked}, and the hosts neither {computed, read, wrote nor sent/"
        "compute, read, write nor send}"
    ),
}
_HUNG = Words(
    "{stopped}{look}{behind}{gone}{ranks}.",
    "{first} the job and restart it from its last checkpoint: it is paid for and does not go on. Set a "
    "timeout of collectives (TORCH_NCCL_ASYNC_ERROR_HANDLING=1, the timeout of init_process_group), so that it fails "
    "by itself, and replace the node if the same one hangs again.{next_time}",
    "the job hung",
)
_PARTS: Parts = {
    "stopped": lambda sheet: sheet.say_if("last_step_end", "steps {had/have} stopped: "),
    "behind": lambda sheet: _named(sheet, "late", "; behind in steps: {names}"),
    "gone": lambda sheet: _named(sheet, "silent", "; no samples any more from {names}"),
    "ranks": _by_ranks,
    "first": _first,
    "next_time": _next_time,
    "busy": _paused,
    "of_node": lambda sheet: "" if sheet.facts[0].node is None else sheet.say(" of {node}"),
    "on_node": lambda sheet: "" if sheet.facts[0].node is None else sheet.say("{node}: "),
    "gpus_at_work": lambda sheet: sheet.say_if("nodes", "GPUs of {nodes:node}") or sheet.say("the GPUs of {node}"),
    "lacking": lambda sheet: sheet.say(
        "its GPUs have not worked for {minutes_at_work.threshold:g} minutes with samples of power yet"
        if sheet.facts[0].node is None
        else "no GPU of {node} has worked for {minutes_at_work.threshold:g} minutes with a sample of power"
    ),
}
_CALM: Mapping[HungKind, str] = {
    HungKind.NO_SAMPLES: "no system metrics were written.",
    HungKind.NO_POWER: (
        "{on_node}no power of the GPUs was collected, which the rule needs: trainguard-collector, dcgm-exporter, W&B "
        "and MLflow write it."
    ),
    HungKind.NOT_KNOWN: "{lacking}.",
    HungKind.WORKS: "{gpus_at_work} work, by their utilization or their power.",
    HungKind.STANDS_STILL: "no GPU has worked for {standstill_time}; that counts from {standstill_time.limit} on.",
    HungKind.PAUSES: "no GPU{of_node} has worked for {pause_length}{busy}.",
    HungKind.NEWEST_SAMPLE: "no GPU of {node} works in its newest sample.",
}
