"""Kinds of findings of HungJob, their facts, words and details."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from statistics import fmean
from typing import Literal

import msgspec

from trainguard.core.finding import Fact
from trainguard.render.details import Details
from trainguard.rules.hung_job.state import LEAST_WORK_MINUTES, WatchState
from trainguard.rules.rule_result import FactSheet, Parts, Words
from trainguard.rules.windows.warm_up import or_undecided

NAMED = 4


class HungKind(StrEnum):
    """Findings of HungJob on a node or a job; the first three fire."""

    SPINS = "spins"
    WAITS_FOR_IDLE = "waits_for_idle"
    STOPPED = "stopped"
    STANDS_STILL = "stands_still"
    PAUSES = "pauses"
    NEWEST_SAMPLE = "newest_sample"
    WORKS = "works"
    NOT_KNOWN = "not_known"
    NO_POWER = "no_power"
    NO_SAMPLES = "no_samples"


def suspects(waiting: Sequence[str], idle: Sequence[str]) -> Sequence[str]:
    """Return the GPUs for which the others seem to wait."""
    return idle if waiting and len(idle) <= len(waiting) else ()


def facts_of_standstill(
    present: Mapping[str, WatchState],
    standing: Fact,
    *,
    silent: Sequence[str],
    last_step_end: float | None,
    behind: Sequence[str],
) -> tuple[HungKind, tuple[Fact, ...]]:
    """Return the facts of nodes without a GPU at work: at most 12.

    ``silent`` are nodes, ``behind`` processes ``<node>-<rank>``. ``last_step_end`` (epoch seconds) is None where no
    steps have stopped. Power is a mean, watts; where that at work is not known of all GPUs, the limit counts.
    """
    waiting, idle = (gpus_of(present, look) for look in ("waiting", "idle"))
    kind = HungKind.STOPPED
    if waiting:
        kind = HungKind.WAITS_FOR_IDLE if idle else HungKind.SPINS
    shown = [(state, gpu) for state in present.values() for gpu in (state.waiting if waiting else state.idle)]
    at_work = [state.known[gpu] for state, gpu in shown if gpu in state.known]
    limits = [state.limits[gpu] for state, gpu in shown if gpu in state.limits]
    watts = Fact(name="power_limit", value=fmean(limits) if limits else 0, unit="W")
    if any(at_work) and len(at_work) == len(shown):
        watts = Fact(name="power_at_work", value=fmean(at_work), unit="W", series="PowerWatts")
    places = {"idle_gpu": idle if waiting else [], "rank_behind": behind, "silent_node": silent}
    named = {name: each for name, each in places.items() if each}
    each = NAMED // max(len(named), 1)
    drawn = fmean(state.drawn[gpu] for state, gpu in shown)
    return kind, (
        standing,
        Fact(name="gpus_waiting", value=len(waiting), unit="GPUs"),
        Fact(name="gpus_idle", value=len(idle), unit="GPUs"),
        Fact(name="power", value=drawn, unit="W", series="PowerWatts", end=standing.end),
        watts,
        *_one("last_step_end", last_step_end, unit="time"),
        *_one("ranks_behind", len(behind) or None),
        *_one("silent_nodes", len(silent) or None),
        *(Fact(name=name, value=place) for name, known in named.items() for place in known[:each]),
    )


def gpus_of(present: Mapping[str, WatchState], look: Literal["waiting", "idle"]) -> list[str]:
    """Return the GPUs that wait, or are idle, as ``<node>/<gpu>``."""
    return [f"{node}/{gpu}" for node, state in present.items() for gpu in getattr(state, look)]


def facts_of_calm(present: Mapping[str, WatchState]) -> tuple[HungKind, tuple[Fact, ...]]:
    paused = min(present.values(), key=lambda state: state.paused_s)
    if paused.paused_s > 0.0:
        busy = any(state.quiet_s < state.paused_s for state in present.values())
        return HungKind.PAUSES, _pause(paused, None, busy=busy)
    return HungKind.WORKS, (Fact(name="nodes", value=len(present)),)


def facts_of_node(state: WatchState, node: str) -> tuple[HungKind, tuple[Fact, ...]]:
    if state.quiet_since is None:
        return HungKind.WORKS, (Fact(name="watched_through", value=state.through, unit="time", node=node),)
    if state.paused_s > 0.0:
        return HungKind.PAUSES, _pause(state, node, busy=state.quiet_s <= 0.0)
    return HungKind.NEWEST_SAMPLE, (Fact(name="idle_since", value=state.quiet_since, unit="time", node=node),)


def facts_of_unknown(state: WatchState, node: str | None) -> tuple[Fact, ...]:
    minutes = max((len(values) for values in state.power.values()), default=0)
    return (Fact(name="minutes_at_work", value=minutes, node=node, threshold=float(LEAST_WORK_MINUTES)),)


def no_power(node: str | None) -> tuple[Fact, ...]:
    return (Fact(name="samples", value=0, series="PowerWatts", node=node),)


def standing_fact(since: float, through: float, needed_s: float) -> Fact:
    """Return for how long no GPU has worked; that counts from ``needed_s`` seconds on."""
    lasted = max(through - since, 0.0)
    return Fact(name="standstill_time", value=lasted, unit="s", start=since, end=through, threshold=needed_s)


def _pause(state: WatchState, node: str | None, *, busy: bool) -> tuple[Fact, ...]:
    since = state.paused_since if busy or node is None else state.quiet_since
    lasted = state.paused_s if busy or node is None else state.quiet_s
    pause = Fact(name="pause_length", value=lasted, unit="s", node=node, start=since, end=state.at)
    return (pause, *([Fact(name="hosts_at_work", value=1, node=node)] if busy else []))


def _one(name: str, value: float | None, unit: str = "") -> tuple[Fact, ...]:
    return () if value is None else (Fact(name=name, value=value, unit=unit),)


MOST_STEPS = 256


class HungNode(msgspec.Struct, frozen=True):
    """A node: its GPUs by what they do, and their power now and at work, watts."""

    waiting: list[str]
    idle: list[str]
    power: dict[str, float]
    power_at_work: dict[str, float]
    quiet_s: float


class HungDetails(Details, frozen=True):
    """The nodes, and the number of each process's newest step."""

    nodes: dict[str, HungNode]
    steps: dict[str, str]


NO_DETAILS = HungDetails({}, {})


def details_of(watched: dict[str, WatchState], steps: dict[str, str]) -> HungDetails:
    return HungDetails(
        {
            node: HungNode(state.waiting, state.idle, state.drawn, state.known, state.quiet_s)
            for node, state in watched.items()
        },
        dict(itertools.islice(steps.items(), MOST_STEPS)),
    )


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


def _first(sheet: FactSheet) -> str:
    found = _named(sheet, "late", "{names}") or _named(sheet, "silent", "{names}")
    waits = sheet.kind == HungKind.WAITS_FOR_IDLE and sheet.number("gpus_idle") <= sheet.number("gpus_waiting")
    found = found or (_named(sheet, "idle", "{names}") if waits else "")
    return f"Look at {found} first" if found else "Take stack traces of all ranks (py-spy dump) first"


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
    "{stopped}{look}{behind}{gone}.",
    "{first}, then stop the job and restart it from its last checkpoint: it is paid for and does not go on. Set a "
    "timeout of collectives (TORCH_NCCL_ASYNC_ERROR_HANDLING=1, the timeout of init_process_group), so that it fails "
    "by itself, and replace the node if the same one hangs again.",
    "the job hung",
)
_PARTS: Parts = {
    "stopped": lambda sheet: sheet.say_if("last_step_end", "steps {had/have} stopped: "),
    "behind": lambda sheet: _named(sheet, "late", "; behind in steps: {names}"),
    "gone": lambda sheet: _named(sheet, "silent", "; no samples any more from {names}"),
    "first": _first,
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
