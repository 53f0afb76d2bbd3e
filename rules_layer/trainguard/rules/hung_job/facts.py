"""Kinds of findings of HungJob, their facts, and details."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

import msgspec

from trainguard.core.finding import Fact
from trainguard.render.details import Details
from trainguard.rules.hung_job.watch import LEAST_WORK_MINUTES, WatchState

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


@dataclass(frozen=True, slots=True)
class Standstill:
    """A job of which no GPU works from ``since`` to ``through``, epoch seconds; it counts from ``needed_s`` on.

    GPUs are ``<node>/<gpu>``, processes ``<node>-<rank>``. ``behind`` is None where unknown, ``last_step_end`` (epoch
    seconds) where no steps have stopped. ``power`` and ``power_at_work`` are means, watts; without the latter
    ``power_limit`` counts.
    """

    since: float
    through: float
    needed_s: float
    waiting: Sequence[str]
    idle: Sequence[str]
    silent: Sequence[str]
    power: float
    power_at_work: float | None
    power_limit: float | None
    last_step_end: float | None
    behind: Sequence[str] | None

    @property
    def kind(self) -> HungKind:
        """Which of the findings it is."""
        if not self.waiting:
            return HungKind.STOPPED
        return HungKind.WAITS_FOR_IDLE if self.idle else HungKind.SPINS

    @property
    def suspects(self) -> Sequence[str]:
        """The GPUs for which the others seem to wait."""
        return self.idle if self.waiting and len(self.idle) <= len(self.waiting) else ()

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What the finding rests on: at most 12."""
        named = {
            name: each
            for name, each in (
                ("idle_gpu", self.idle if self.waiting else ()),
                ("rank_behind", self.behind or ()),
                ("silent_node", self.silent),
            )
            if each
        }
        each = NAMED // max(len(named), 1)
        watts = ("power_at_work", self.power_at_work) if self.power_at_work else ("power_limit", self.power_limit or 0)
        return (
            _standing(self.since, self.through, self.needed_s),
            Fact(name="gpus_waiting", value=len(self.waiting), unit="GPUs"),
            Fact(name="gpus_idle", value=len(self.idle), unit="GPUs"),
            Fact(name="power", value=self.power, unit="W", series="PowerWatts", end=self.through),
            Fact(name=watts[0], value=watts[1], unit="W", series="PowerWatts" if self.power_at_work else None),
            *_one("last_step_end", self.last_step_end, unit="time"),
            *_one("ranks_behind", len(self.behind or ()) or None),
            *_one("silent_nodes", len(self.silent) or None),
            *(Fact(name=name, value=place) for name, places in named.items() for place in places[:each]),
        )


def standstill_of(
    present: Mapping[str, WatchState],
    span: tuple[float, float, float],
    *,
    silent: Sequence[str],
    last_step_end: float | None,
    behind: Sequence[str] | None,
) -> Standstill:
    """Return the standstill of nodes without a GPU at work; ``span``: its start, its end, how long it takes."""
    waiting = [f"{node}/{gpu}" for node, state in present.items() for gpu in state.waiting]
    idle = [f"{node}/{gpu}" for node, state in present.items() for gpu in state.idle]
    shown = [(state, gpu) for state in present.values() for gpu in (state.waiting if waiting else state.idle)]
    at_work = [state.known[gpu] for state, gpu in shown if gpu in state.known]
    limits = [state.limits[gpu] for state, gpu in shown if gpu in state.limits]
    return Standstill(
        *span,
        waiting=waiting,
        idle=idle,
        silent=silent,
        power=fmean(state.drawn[gpu] for state, gpu in shown),
        power_at_work=fmean(at_work) if len(at_work) == len(shown) else None,
        power_limit=fmean(limits) if limits else None,
        last_step_end=last_step_end,
        behind=behind,
    )


def facts_of_quiet(since: float, through: float, needed_s: float) -> tuple[HungKind, tuple[Fact, ...]]:
    """Return the facts of a job of which no GPU works, for too short a time."""
    return HungKind.STANDS_STILL, (_standing(since, through, needed_s),)


def facts_of_calm(present: Mapping[str, WatchState]) -> tuple[HungKind, tuple[Fact, ...]]:
    """Return the facts of nodes of which some GPU, or a host, works."""
    paused = min(present.values(), key=lambda state: state.paused_s)
    if paused.paused_s > 0.0:
        busy = any(state.quiet_s < state.paused_s for state in present.values())
        return HungKind.PAUSES, _pause(paused, None, busy=busy)
    return HungKind.WORKS, (Fact(name="nodes", value=len(present)),)


def facts_of_node(state: WatchState, node: str) -> tuple[HungKind, tuple[Fact, ...]]:
    """Return the facts of one node."""
    if state.quiet_since is None:
        return HungKind.WORKS, (Fact(name="watched_through", value=state.through, unit="time", node=node),)
    if state.paused_s > 0.0:
        return HungKind.PAUSES, _pause(state, node, busy=state.quiet_s <= 0.0)
    return HungKind.NEWEST_SAMPLE, (Fact(name="idle_since", value=state.quiet_since, unit="time", node=node),)


def facts_of_unknown(state: WatchState, node: str | None) -> tuple[Fact, ...]:
    """Return for how many minutes the GPU that was busy longest has been."""
    minutes = max((len(values) for values in state.power.values()), default=0)
    return (Fact(name="minutes_at_work", value=minutes, node=node, threshold=float(LEAST_WORK_MINUTES)),)


def no_power(node: str | None) -> tuple[Fact, ...]:
    """Return that no power was collected."""
    return (Fact(name="samples", value=0, series="PowerWatts", node=node),)


def _standing(since: float, through: float, needed_s: float) -> Fact:
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
    """Return the numbers of every node, and of MOST_STEPS processes."""
    return HungDetails(
        {
            node: HungNode(state.waiting, state.idle, state.drawn, state.known, state.quiet_s)
            for node, state in watched.items()
        },
        dict(itertools.islice(steps.items(), MOST_STEPS)),
    )
