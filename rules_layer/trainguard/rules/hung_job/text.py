"""Kinds of findings of HungJob, their facts, words and details."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from statistics import fmean
from typing import Literal

import msgspec

from trainguard.core.finding import Fact
from trainguard.core.units import counted, show_duration, show_number
from trainguard.render.details import Details
from trainguard.rules.hung_job.state import LEAST_WORK_MINUTES, WatchState
from trainguard.rules.rule_result import FactSheet, Words
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


_HOSTS_DO = "compute, read, write nor send"


@or_undecided
def text(sheet: FactSheet) -> Words:
    kind = HungKind(sheet.kind)
    if kind in _CALM:
        return Words(_CALM[kind](sheet))
    return Words(_standstill(sheet, kind), _advice(sheet, kind), "the job hung")


def _standstill(sheet: FactSheet, kind: HungKind) -> str:
    past = sheet.past
    stopped = "" if sheet.get("last_step_end") is None else f"steps {'had' if past else 'have'} stopped: "
    waiting, lasted = sheet.count("gpus_waiting"), sheet.duration("standstill_time")
    looked = "looked" if past else f"{'has' if waiting == 1 else 'have'} looked"
    busy = f"for {lasted} {counted(waiting, 'GPU')} {looked} busy at {_watts(sheet)}"
    if kind is HungKind.SPINS:
        look = f"{busy}, as in a collective that does not end, or a kernel that only spins"
    elif kind is HungKind.WAITS_FOR_IDLE:
        idle = sheet.count("gpus_idle")
        be = ("was" if idle == 1 else "were") if past else ("is" if idle == 1 else "are")
        look = f"{busy}, and {_names(sheet, 'idle_gpu', idle)} {be} idle"
    else:
        worked, did = ("worked", "computed, read, wrote nor sent") if past else ("has worked", _HOSTS_DO)
        look = f"for {lasted} no GPU {worked}, and the hosts neither {did}"
    late, silent = _count(sheet, "ranks_behind"), _count(sheet, "silent_nodes")
    behind = f"; behind in steps: {_names(sheet, 'rank_behind', late)}" if late else ""
    gone = f"; no samples any more from {_names(sheet, 'silent_node', silent)}" if silent else ""
    return f"{stopped}{look}{behind}{gone}."


def _watts(sheet: FactSheet) -> str:
    each = "" if sheet.count("gpus_waiting") == 1 else " each"
    drawn, at_work = f"{show_number(sheet.number('power'))} W{each}", sheet.get("power_at_work")
    if at_work is not None:
        return f"{drawn}, of {show_number(float(at_work.value))} W at work"
    return f"{drawn}, of a limit of {show_number(sheet.number('power_limit'))} W"


def _advice(sheet: FactSheet, kind: HungKind) -> str:
    late, silent, idle = _count(sheet, "ranks_behind"), _count(sheet, "silent_nodes"), _count(sheet, "gpus_idle")
    if late:
        first = f"Look at {_names(sheet, 'rank_behind', late)} first"
    elif silent:
        first = f"Look at {_names(sheet, 'silent_node', silent)} first"
    elif kind is HungKind.WAITS_FOR_IDLE and idle <= sheet.number("gpus_waiting"):
        first = f"Look at {_names(sheet, 'idle_gpu', idle)} first"
    else:
        first = "Take stack traces of all ranks (py-spy dump) first"
    return (
        f"{first}, then stop the job and restart it from its last checkpoint: it is paid for and does not go on. "
        "Set a timeout of collectives (TORCH_NCCL_ASYNC_ERROR_HANDLING=1, the timeout of init_process_group), so that "
        "it fails by itself, and replace the node if the same one hangs again."
    )


def _count(sheet: FactSheet, name: str) -> int:
    fact = sheet.get(name)
    return 0 if fact is None else int(fact.value)


def _names(sheet: FactSheet, name: str, count: int) -> str:
    shown = [str(fact.value) for fact in sheet.all(name)]
    if count == len(shown):
        return ", ".join(shown)
    return f"{', '.join(shown)} and {count - len(shown)} more"


def _paused(sheet: FactSheet) -> str:
    pause = sheet["pause_length"]
    where = "" if pause.node is None else f" of {pause.node}"
    busy = ""
    if sheet.get("hosts_at_work") is not None:
        busy = (
            ", and its host computes, reads, writes or sends" if where else ", and hosts compute, read, write or send"
        )
    return f"no GPU{where} has worked for {show_duration(float(pause.value))}{busy}."


def _works(sheet: FactSheet) -> str:
    nodes = sheet.get("nodes")
    where = sheet.facts[0].node if nodes is None else counted(int(nodes.value), "node")
    return f"{'the GPUs' if nodes is None else 'GPUs'} of {where} work, by their utilization or their power."


def _not_known(sheet: FactSheet) -> str:
    needed, node = sheet["minutes_at_work"].threshold or 0.0, sheet["minutes_at_work"].node
    if node is None:
        return f"its GPUs have not worked for {needed:g} minutes with samples of power yet."
    return f"no GPU of {node} has worked for {needed:g} minutes with a sample of power."


def _no_power(sheet: FactSheet) -> str:
    node = sheet["samples"].node
    return (
        f"{'' if node is None else f'{node}: '}no power of the GPUs was collected, which the rule needs: "
        "trainguard-collector, dcgm-exporter, W&B and MLflow write it."
    )


_CALM: Mapping[HungKind, Callable[[FactSheet], str]] = {
    HungKind.NO_SAMPLES: lambda _: "no system metrics were written.",
    HungKind.NO_POWER: _no_power,
    HungKind.NOT_KNOWN: _not_known,
    HungKind.WORKS: _works,
    HungKind.STANDS_STILL: lambda sheet: (
        f"no GPU has worked for {sheet.duration('standstill_time')}; that counts from "
        f"{show_duration(sheet['standstill_time'].threshold or 0.0)} on."
    ),
    HungKind.PAUSES: _paused,
    HungKind.NEWEST_SAMPLE: lambda sheet: f"no GPU of {sheet.facts[0].node} works in its newest sample.",
}
