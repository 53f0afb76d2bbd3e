"""Recomputes the facts of Straggler: the own work of each rank's steps, as docs/rules/Straggler.md defines it."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import mean, median

from tests.claims.context import Context, Expected, Fact, Recompute
from tests.claims.peer_waits import OTHER, PARTS, timed_steps
from tests.claims.raw import Event
from tests.claims.timelines import STEP, files_of, is_on_gpu, nodes_with_events, own_times

BLOCK_S, MOST_BLOCKS = 300, 12
LEAST_STEPS, COSTLY, BY_WAITS = 20, 0.1, 0.5
MOST_NAMED = 4
_PASSES, _ON_GPU = ("Forward-SubModuleInternal", "Optimizer"), ("forward", "optimizer")


@dataclass
class Sums:
    """Steps, and microseconds: of the steps with the waits before them, of own work in them, and of that in waits.

    ``timed`` are the same by name of steps of which waits for peers are known: ``steps``, ``own``, ``peers``, ``least``
    and each part of own work.
    """

    steps: int = 0
    total: int = 0
    own: int = 0
    waits: int = 0
    timed: Counter[str] = field(default_factory=Counter)

    def add(self, steps: int, total: int, own: int, waits: int) -> None:
        """Add steps."""
        self.steps, self.total = self.steps + steps, self.total + total
        self.own, self.waits = self.own + own, self.waits + waits


@dataclass
class Rank:
    """A process that trains: its sums by blocks of five minutes of the clock."""

    node: str
    name: str
    blocks: dict[int, Sums] = field(default_factory=lambda: defaultdict(Sums))

    def over(self, blocks: Sequence[int]) -> Sums:
        """Return the sums over blocks."""
        found = Sums()
        for block in blocks:
            each = self.blocks[block]
            found.add(each.steps, each.total, each.own, each.waits)
            found.timed.update(each.timed)
        return found


def _ranks(context: Context) -> list[Rank]:
    """Return the processes whose steps have work of their own."""
    if "ranks" not in context.raw.cached:
        found: dict[tuple[str, str], Rank] = {}
        for node in nodes_with_events(context.raw.job):
            for process, events in files_of(context.raw.job, node):
                rank = found.setdefault((node, process), Rank(node, f"{node}-{process}"))
                _add_file(rank, events)
        context.raw.cached["ranks"] = [rank for _, rank in sorted(found.items()) if rank.blocks]
    ranks: list[Rank] = context.raw.cached["ranks"]
    return ranks


def _add_file(rank: Rank, events: list[Event]) -> None:
    """Add the steps of a file, each with what the same file has of it."""
    steps = sorted((each for each in events if STEP in each.name), key=lambda each: each.end_us)
    asked, taken, inside = Counter[int](), Counter[int](), Counter[int]()
    before: dict[int, tuple[int, int]] = {}
    for each, own in zip(events, own_times(events), strict=True):
        if each.phase == "DataLoaderIter":
            place = next((at for at, step in enumerate(steps) if step.end_us >= each.end_us), None)
            if place is None:
                continue
            if each.start_us >= steps[place].start_us:
                inside[place] += each.length_us
            elif each.end_us >= before.get(place, (-1, 0))[0]:
                before[place] = each.end_us, each.length_us
        elif each.phase in _PASSES or (is_on_gpu(each.phase) and each.name in _ON_GPU):
            place = next((at for at, step in enumerate(steps) if step.end_us > each.start_us), None)
            if place is not None and steps[place].start_us <= each.start_us:
                (asked if each.phase in _PASSES else taken)[place] += own
    tells = _add_timed(rank, steps, events, before.get(0, (0, 0))[1])
    for place, step in enumerate(steps):
        wait_before = before.get(place, (0, 0))[1]
        waits = inside[place] + wait_before
        work = max(asked[place], taken[place]) + waits
        if (work or tells) and "TRAIN" in step.name:
            rank.blocks[step.end_us // (BLOCK_S * 1_000_000)].add(1, step.length_us + wait_before, work, waits)


def _add_timed(rank: Rank, steps: list[Event], events: list[Event], before_us: int) -> bool:
    """Add what steps are without waits for peers; return whether the file tells those."""
    tells = any(each.name == "peer_wait" for each in events)
    if tells and steps:
        for block, sums in timed_steps(steps, events, before_us, BLOCK_S * 1_000_000).items():
            rank.blocks[block].timed.update(sums)
    return tells


@dataclass
class Judged:
    """Ranks over the blocks of a finding, with what their peers have, and which of them are slow, the slowest first."""

    ranks: dict[str, Rank]
    blocks: list[int]
    slow: list[str]

    @cached_property
    def is_timed(self) -> bool:
        """Tell whether waits for peers are known of at least half of each rank's steps, in each block."""
        held = [rank.blocks[block] for rank in self.ranks.values() for block in self.blocks]
        return all(2 * sums.timed["steps"] >= sums.steps for sums in held)

    def mean(self, name: str, what: str, blocks: Sequence[int] | None = None) -> float:
        """Return microseconds a step."""
        sums = self.ranks[name].over(self.blocks if blocks is None else blocks)
        if not self.is_timed:
            return float(getattr(sums, what)) / sums.steps
        timed = sums.timed
        known = {**timed, "total": timed["own"] + timed["peers"], "waits": timed["data_wait"]}
        known[OTHER] = max(timed["own"] - sum(timed[part] for part in PARTS), 0)
        return known.get(what, 0) / timed["steps"]

    def late(self, name: str, what: str = "own") -> float:
        """Return by how many microseconds a step a rank has more than its peers."""
        return self.mean(name, what) - self.of_peers(name, what)

    def of_peers(self, name: str, what: str, blocks: Sequence[int] | None = None) -> float:
        """Return the median of the other ranks' means."""
        return median(self.mean(other, what, blocks) for other in self.ranks if other != name)

    def excess(self, name: str) -> float:
        """Return by which share of the peers' own work a rank has more."""
        return self.mean(name, "own") / self.of_peers(name, "own") - 1.0

    def is_slow(self, name: str, slower: float) -> bool:
        """Tell whether a rank is slow in each block."""
        for block in self.blocks:
            own, peers = self.mean(name, "own", [block]), self.of_peers(name, "own", [block])
            if own - peers <= slower / 100.0 * peers or own - peers < COSTLY * self.mean(name, "total", [block]):
                return False
        return True


def _judged(context: Context) -> Judged:
    """Judge the newest blocks of which each rank has steps enough, but the newest of all, up to the finding's end."""
    named = context.first("rank") or {}
    if ("judged", named["to"]) not in context.raw.cached:
        ranks = {rank.name: rank for rank in _ranks(context)}
        last = min(math.ceil(named["to"] / BLOCK_S), max(max(rank.blocks) for rank in ranks.values()))
        kept = [
            {at for at, sums in rank.blocks.items() if sums.steps >= LEAST_STEPS and last - MOST_BLOCKS < at < last}
            for rank in ranks.values()
        ]
        needed = min(max(math.ceil(context.parameters["lasting_s"] / BLOCK_S), 1), MOST_BLOCKS)
        judged = Judged(ranks, sorted(set.intersection(*kept))[-needed:], [])
        slow = [name for name in ranks if judged.is_slow(name, context.parameters["slower"])]
        judged.slow.extend(sorted(slow, key=judged.excess, reverse=True))
        context.raw.cached["judged", named["to"]] = judged
    found: Judged = context.raw.cached["judged", named["to"]]
    return found


def _rank(context: Context, fact: Fact) -> Expected:
    """Return the slowest rank; where the fact has another time than the blocks, which one it has."""
    judged, (began, _) = _judged(context), context.raw.job.span
    start, end = max(judged.blocks[0] * BLOCK_S, began), (judged.blocks[-1] + 1) * BLOCK_S
    if abs(fact["from"] - start) > 1e-3 or abs(fact["to"] - end) > 1e-3:
        return f"of {start} to {end}"
    return judged.slow[0] if judged.slow else "none is slow"


def _of_named(what: str) -> Recompute:
    def recompute(context: Context, fact: Fact) -> Expected:
        del fact
        return _judged(context).mean(str((context.first("rank") or {})["value"]), what) / 1e6

    return recompute


def _of_peers(context: Context, fact: Fact) -> Expected:
    del fact
    return _judged(context).of_peers(str((context.first("rank") or {})["value"]), "own") / 1e6


def _longer(context: Context, fact: Fact) -> Expected:
    del fact
    return 100.0 * _judged(context).excess(str((context.first("rank") or {})["value"]))


def _by_waits(context: Context, fact: Fact) -> Expected:
    """Return 1 where waits make up half of what the rank has more than its peers."""
    del fact
    judged, name = _judged(context), str((context.first("rank") or {})["value"])
    waits, own = (judged.mean(name, what) - judged.of_peers(name, what) for what in ("waits", "own"))
    return float(waits >= BY_WAITS * own)


def _of_worst(what: Callable[[Judged, str], Expected]) -> Recompute:
    def recompute(context: Context, fact: Fact) -> Expected:
        del fact
        judged = _judged(context)
        return what(judged, judged.slow[0]) if judged.is_timed and judged.slow else "no slow rank tells its waits"

    return recompute


def _late_in(judged: Judged, name: str) -> Expected:
    """Return the part of the step with at least half of what a rank has more."""
    parts = {part: judged.late(name, part) for part in (*PARTS, OTHER)}
    most = max(parts, key=lambda part: parts[part])
    return most if parts[most] >= 0.5 * judged.late(name) else "no part"


def _lost_of_step(judged: Judged, name: str) -> Expected:
    return 100.0 * judged.late(name) / judged.mean(name, "total")


def _lost_gpu_time(judged: Judged, name: str) -> Expected:
    steps = judged.ranks[name].over(judged.blocks).steps
    return judged.late(name) * steps * (len(judged.ranks) - len(judged.slow)) / 1e6


def _in_turn(context: Context, fact: Fact) -> Expected:
    """Return which percentage of a step the rank that waits least waits beyond the least waits of any."""
    del fact
    judged = _judged(context)
    waits, least = (min(judged.mean(name, what) for name in judged.ranks) for what in ("peers", "least"))
    return 100.0 * (waits - least) / mean(judged.mean(name, "total") for name in judged.ranks)


def _slow_node(context: Context, fact: Fact) -> Expected:
    """Return the node all of whose ranks are slow, and no others."""
    del fact
    judged = _judged(context)
    nodes = {judged.ranks[name].node for name in judged.slow}
    all_of_them = {name for name, rank in judged.ranks.items() if rank.node in nodes}
    one = len(nodes) == 1 and all_of_them == set(judged.slow) != set(judged.ranks)
    return nodes.pop() if one else "none: the slow ranks are not those of one node"


def _slow_rank(context: Context, fact: Fact) -> Expected:
    """Return the rank that is at the fact's place among the slow ones."""
    told = [each["value"] for each in context.finding["facts"] if each["name"] == fact["name"]]
    slow = _judged(context).slow
    if len(told) != min(len(slow), MOST_NAMED):
        return f"{len(slow)} are slow"
    return slow[told.index(fact["value"])]


STRAGGLER: dict[str, Recompute] = {
    "rank": _rank,
    "slow_rank": _slow_rank,
    "slow_node": _slow_node,
    "own_work": _of_named("own"),
    "own_work_of_peers": _of_peers,
    "longer_than_peers": _longer,
    "mean_step": _of_named("total"),
    "ranks": lambda context, _: float(len(_ranks(context))),
    "ranks_affected": lambda context, _: float(len(_judged(context).slow)),
    "ranks_waiting": lambda context, _: float(len(_ranks(context)) - len(_judged(context).slow)),
    "longer_by_waits": _by_waits,
    "late_in": _of_worst(_late_in),
    "lost_of_step": _of_worst(_lost_of_step),
    "lost_gpu_time": _of_worst(_lost_gpu_time),
    "waited_in_turn": _in_turn,
}
