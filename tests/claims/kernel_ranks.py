"""Recomputes what is said about ranks beside each other: who comes last into a collective, and who computes longer.

A collective ends on all ranks at once, so the rank that comes last has the shortest kernel, whatever its clock says.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tests.claims.kernel_gains import FEW_STEPS, Rank
from tests.claims.kernel_trace import KernelTrace
from tests.claims.raw import Floats

LEAST_SHARE, LATE, TIMES, ALIKE = 0.01, 0.05, 1.1, 0.5
# By so many standard errors of its lead a rank is late for sure.
ERRORS = 3.0


@dataclass(frozen=True)
class Found:
    """A finding across ranks: its facts by name, what it can win of a step, how sure it is, and its evidence."""

    facts: dict[str, Any]
    gain_ns: float
    gain_share: float
    sure: bool
    evidence: list[tuple[str, float]]


@dataclass(frozen=True)
class Together:
    """A collective on ranks: its time by rank and step, float64[R, S], of the ranks at ``places``."""

    name: str
    places: list[int]
    steps: list[str]
    times: Floats

    @cached_property
    def last(self) -> list[int]:
        """Which rank comes last in each step."""
        return [self.places[int(times.argmin())] for times in self.times.T]

    @cached_property
    def lateness(self) -> Floats:
        """By how much it comes later than the middle one, nanoseconds, float64[S]."""
        ordered = np.sort(self.times, axis=0)
        found: Floats = ordered[len(self.places) // 2] - ordered[0]
        return found

    def lead(self, place: int) -> Floats:
        """Return by how much a rank comes later than the middle one of the others, nanoseconds, float64[S]."""
        mine = self.places.index(place)
        others = [sorted(np.delete(times, mine).tolist()) for times in self.times.T]
        middle = (len(self.places) - 2) // 2
        found: Floats = np.array([each[middle] for each in others]) - self.times[mine]
        return found

    @cached_property
    def differs(self) -> float:
        """How far its time differs between ranks, nanoseconds."""
        return float(self.times.std(axis=0).mean())


class Ranks:
    """The ranks of a capture beside each other."""

    def __init__(self, ranks: list[Rank]) -> None:
        self.ranks = ranks
        self.computes = [round(each.trace.mean(lambda gpu: gpu.computing) / len(each.trace.steps)) for each in ranks]
        self.step_ns = [round(_mean_step(each.trace)) for each in ranks]
        self.likes = _likes(ranks)

    def name(self, place: int) -> str:
        """Return how a rank is called at the beginning of a sentence."""
        rank = self.ranks[place]
        return rank.recording.file if rank.recording.rank is None else f"Rank {rank.recording.rank}"

    @cached_property
    def collective(self) -> Together | None:
        """The collective that differs most between like ranks."""
        chosen: list[Together] = []
        for like in sorted(set(self.likes)):
            places = [place for place, each in enumerate(self.likes) if each == like]
            longest = max(_mean_step(self.ranks[place].trace) for place in places)
            every = _together(self.ranks, places) if len(places) > 1 else []
            large = [each for each in every if float(each.times.mean()) >= LEAST_SHARE * longest]
            chosen += large
        return max(chosen, key=lambda each: (each.differs, each.name), default=None)

    @cached_property
    def late(self) -> tuple[int, Found] | None:
        """The rank that comes last in half of the steps or more, by a twentieth of a step."""
        found = self.collective
        if found is None:
            return None
        place = max(found.places, key=found.last.count)
        steps, times = len(found.last), found.last.count(place)
        mine = [late for last, late in zip(found.last, found.lateness.tolist(), strict=True) if last == place]
        step_ns = float(np.median([self.step_ns[each] for each in found.places]))
        share = float(np.mean(mine)) / step_ns
        lead = found.lead(place)
        net = float(lead.mean())
        if times < 0.5 * steps or share < LATE or net < LATE * step_ns:
            return None
        sure = steps >= FEW_STEPS and net >= ERRORS * float(lead.std()) / math.sqrt(steps)
        others = [self.computes[each] for each in found.places if each != place]
        facts: dict[str, Any] = {
            "lateness_share": share,
            "late_rank": self.name(place),
            "collective": found.name,
            "last_steps": times,
            "steps": steps,
            "ranks_compared": len(found.places),
            "compute_ratio": self.computes[place] / max(float(np.median(others)), 1.0),
        }
        if facts["compute_ratio"] >= TIMES and (more := self._exchanges(found, place)) >= TIMES:
            facts["exchange_ratio"] = more
        latest = sorted(zip(found.lateness.tolist(), found.last, strict=True), key=lambda each: -each[0])
        evidence = [(f"{self.name(last)} comes last into {found.name}", late) for late, last in latest]
        return place, Found(facts, sum(mine) / steps, share * times / steps, sure, evidence)

    def _exchanges(self, found: Together, place: int) -> float:
        """Return how many times the bytes of the middle one of the others a rank exchanges all to all; 0 if unknown."""
        sizes = {each: _exchanged(self.ranks[each].trace, found.steps) for each in found.places}
        others = [size for each, size in sizes.items() if each != place]
        return sizes[place] / float(np.median(others)) if min(others) > 0 else 0.0

    @cached_property
    def slow(self) -> list[Found]:
        """The ranks that compute longer than those like them, but for the late one."""
        return [each for place in range(len(self.ranks)) if (each := self._slow(place)) is not None]

    def _slow(self, place: int) -> Found | None:
        others = [
            self.computes[other]
            for other, like in enumerate(self.likes)
            if other != place and like == self.likes[place]
        ]
        mine, median = self.computes[place], float(np.median(others)) if others else 0.0
        is_late = self.late is not None and self.late[0] == place
        if is_late or not median or mine < TIMES * median:
            return None
        facts = {"compute_ratio": mine / median, "slow_rank": self.name(place), "like_ranks": len(others)}
        sure, more = len(self.ranks[place].trace.steps) >= FEW_STEPS, mine - median
        evidence = [(f"{self.name(place)}, computation of a step", float(mine))]
        return Found(facts, more, more / self.step_ns[place], sure, evidence)


def _mean_step(trace: KernelTrace) -> float:
    """Return how long a step is with its work: without the wait for the work of the step before."""
    lengths, before = [], trace.start
    for step in trace.steps:
        ends = [event.end for event in trace.work_of(step)]
        start = max(step.start, before)
        lengths.append(max([step.end, *ends, start]) - start)
        before = max([before, *ends])
    return float(np.mean(lengths))


def _likes(ranks: list[Rank]) -> list[int]:
    """Return a number for each rank: those with the same GPUs and half of their kernels in common have the same."""
    firsts: list[tuple[set[str], set[str]]] = []
    found = []
    for rank in ranks:
        cards = {card.name for card in rank.recording.cards}
        names = {event.name for event in rank.trace.kernels if event.computes}
        places = [
            place
            for place, (gpus, others) in enumerate(firsts)
            if gpus == cards and len(names & others) >= ALIKE * len(names | others)
        ]
        if not places:
            firsts.append((cards, names))
        found.append(places[0] if places else len(firsts) - 1)
    return found


def _together(ranks: list[Rank], places: list[int]) -> list[Together]:
    """Return the collectives that ranks ran equally often in the same steps."""
    by_rank = {place: _by_step(ranks[place].trace) for place in places}
    found = []
    for name in sorted({name for each in by_rank.values() for name in each}):
        mine = [place for place in places if name in by_rank[place]]
        steps = set.intersection(*(set(by_rank[place][name]) for place in mine))
        alike = [step for step in sorted(steps) if len({len(by_rank[place][name][step]) for place in mine}) == 1]
        if len(mine) > 1 and alike:
            times = [[float(sum(by_rank[place][name][step])) for step in alike] for place in mine]
            found.append(Together(name, mine, alike, np.array(times)))
    return found


def _exchanged(trace: KernelTrace, steps: list[str]) -> int:
    wanted = [step for step in trace.steps if _number(step.name) in steps]
    sent = [event for step in wanted for event in trace.work_of(step) if event.sends]
    sizes = [event.bytes for event in sent if event.collective[0].replace("_", "").startswith("alltoall")]
    return sum(sizes) if sizes and min(sizes) >= 0 else 0


def _number(step: str) -> str:
    return step.removeprefix("ProfilerStep#").removeprefix("step ")


def _by_step(trace: KernelTrace) -> dict[str, dict[str, list[int]]]:
    """Return how long each run of a collective is, by its name and by the step's."""
    found: dict[str, dict[str, list[int]]] = {}
    for step in trace.steps:
        for event in trace.work_of(step):
            if event.sends:
                called, group, _ = event.collective
                name = f"{called} of group {group}" if group else called or event.name
                found.setdefault(name, {}).setdefault(_number(step.name), []).append(event.lasts)
    return found
