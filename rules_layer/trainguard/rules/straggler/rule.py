"""Straggler: a rank, or a node, whose own work in a step takes longer than its peers' for long.

In synchronous training all ranks have steps of the same length: only the step without waiting shows the slow one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import numpy as np

from trainguard.core.finding import MOST_FACTS, Fact, Patience
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.snapshots import BoolArray, FloatArray, IntArray
from trainguard.ledger.bucket import Bucket
from trainguard.render.details import Details
from trainguard.rules.change import ChangeCode
from trainguard.rules.protocol import JoinedRule, Positive, RuleParameters
from trainguard.rules.rule_inputs import JobView
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import FRAMEWORK, LOW_GPUS, ParameterHelp, RuleSpec
from trainguard.rules.straggler.pace import BLOCK_US, BLOCKS, PARTS, Pace, PaceState, ProcessPace
from trainguard.rules.straggler.text import StragglerKind, text

# A block of five minutes with fewer steps of a process says too little.
LEAST_STEPS = 20
# What a rank takes longer must be this share of the step: else nobody waits for it for long.
COSTLY_SHARE = 0.1
# A rank is slow by a part of the step, such as its data, where that is this share of what it takes longer.
MOST_OF = 0.5

OTHER = "other"

# All training processes of a job by name, in order.
Ranks = Mapping[str, ProcessPace]


def common_blocks(ranks: Ranks) -> list[int]:
    """Return the blocks in which every process has steps enough, without the newest, which may go on."""
    newest = max(max(pace.blocks) for pace in ranks.values())
    known = [{block for block, each in pace.blocks.items() if each.steps >= LEAST_STEPS} for pace in ranks.values()]
    return sorted(set.intersection(*known) - {newest})


@dataclass(frozen=True)
class PaceTable:
    """Of R processes in B blocks the steps, and microseconds a step, float64[R, B] each.

    ``short`` is own work that a quarter of the steps take at most. ``totals`` are with waits for peers, of which
    ``least`` is what a step takes of them at least; ``parts``, float64[P, R, B], are those of own work. ``timed`` says
    whether the waits for peers are known; else ``least`` is 0.
    """

    steps: IntArray
    own: FloatArray
    short: FloatArray
    totals: FloatArray
    least: FloatArray
    parts: FloatArray
    timed: bool

    @classmethod
    def of(cls, paces: list[list[Pace]]) -> "PaceTable":
        timed = all(2 * each.timed.steps >= each.steps for row in paces for each in row)
        sums = np.array([[_sums(each, timed=timed) for each in row] for row in paces])
        steps = sums[:, :, 0]
        own, short, totals, least, *parts = np.moveaxis(sums[:, :, 1:] / steps[:, :, None], 2, 0)
        return cls(steps, own, short, totals, least, np.stack(parts), timed)

    def mean(self, values: FloatArray) -> FloatArray:
        """Return the means over all steps of the blocks, of float64[…, R, B]: float64[…, R]."""
        found: FloatArray = (values * self.steps).sum(axis=-1) / self.steps.sum(axis=-1)
        return found

    def slow(self, slower: float) -> BoolArray:
        """Return which processes are slow in which blocks, in the mean and in their short steps: bool[R, B]."""
        return self._longer(self.own, slower) & self._longer(self.short, slower)

    def _longer(self, own: FloatArray, slower: float) -> BoolArray:
        others = np.stack([median_of_others(column) for column in own.T], axis=1)
        excess = own - others
        longer: BoolArray = (excess > slower / 100.0 * others) & (excess >= COSTLY_SHARE * self.totals)
        return longer

    def late(self) -> FloatArray:
        """Return what each process takes longer than its peers in a step, microseconds, float64[R]."""
        own = self.mean(self.own)
        late: FloatArray = own - median_of_others(own)
        return late

    def late_in(self, rank: int) -> str | None:
        """Return the part of own work with most of what a process takes longer than its peers; None without one."""
        longer = [float(row[rank] - median_of_others(row)[rank]) for row in self.mean(self.parts)]
        most = int(np.argmax(longer))
        return self.names[most] if longer[most] >= MOST_OF * float(self.late()[rank]) else None

    @property
    def names(self) -> tuple[str, ...]:
        return (*PARTS, OTHER) if self.timed else PARTS[:1]

    def waited_in_turn(self) -> float:
        """Return the share of a step that even the process with the least waits for others, beside communication."""
        totals, waits = self.mean(self.totals), self.mean(self.totals - self.own)
        return float((waits.min() - self.mean(self.least).min()) / max(totals.mean(), 1.0)) if self.timed else 0.0


def per_step(ranks: Ranks, blocks: Sequence[int]) -> PaceTable:
    return PaceTable.of([[pace.blocks[block] for block in blocks] for pace in ranks.values()])


def _sums(pace: Pace, *, timed: bool) -> tuple[int, ...]:
    if not timed:
        return pace.steps, pace.own_us, pace.own_us - pace.beyond_us, pace.total_us, 0, pace.wait_us
    of = pace.timed
    other_us = max(of.own_us - sum(of.parts_us), 0)
    return of.steps, of.own_us, of.own_us - of.beyond_us, of.own_us + of.peers_us, of.least_us, *of.parts_us, other_us


def median_of_others(values: FloatArray) -> FloatArray:
    """Return, for each of N > 1 values, the median of all others: float64[N]."""
    order = np.sort(values)
    place = np.searchsorted(order, values, side="left")
    count = values.size - 1

    def kept(index: int) -> FloatArray:
        found: FloatArray = np.where(place <= index, order[index + 1], order[index])
        return found

    middle: FloatArray = (kept((count - 1) // 2) + kept(count // 2)) / 2.0
    return middle


NAMED, MOST_SHOWN = 4, 256


class StragglerParameters(RuleParameters, frozen=True, kw_only=True):
    slower: Positive = 25.0
    lasting_s: Positive = 900.0


class RankPace(msgspec.Struct, frozen=True):
    """A process: own work in a step over the newest blocks, and its peers', microseconds; steps in the job."""

    own_us: float
    peers_us: float
    step_us: float
    steps: int
    is_slow: bool

    @property
    def excess(self) -> float:
        """How much longer it takes, as a share of what its peers take."""
        return self.own_us / max(self.peers_us, 1.0) - 1.0


class StragglerDetails(Details, frozen=True):
    processes: dict[str, RankPace]


class Straggler(JoinedRule[StragglerParameters, PaceState]):
    spec = RuleSpec(
        name="Straggler",
        title="Stragglers",
        looks_at="the own work of each rank's steps",
        fires_when="a rank or a node is slower than its peers for long",
        condition=(
            "a rank's own work in a step takes {slower} % longer than its peers' for {lasting_s} s, and a tenth of the "
            "step longer"
        ),
        measures=(Measure("own work above that of the peers", "%"),),
        parameters={
            "slower": ParameterHelp("% of the peers' own work", "a rank that takes so much longer is slow"),
            "lasting_s": ParameterHelp("seconds, at most an hour", "a rank that is slow for as long fires"),
        },
        inputs=FRAMEWORK,
        explains=(LOW_GPUS,),
        changes={"": ChangeCode.BALANCE_RANKS},
        text=text,
        claims={StragglerKind.SLOW: (Bucket.PEERS, Bucket.IDLE, Bucket.UNEXPLAINED)},
        details=StragglerDetails,
        section="trainguard.rules.straggler.section:blocks",
    )

    # 30 min: a block is five minutes.
    clear_s = 1_800.0

    def observe(self, state: PaceState, events: FrameworkEvents, parameters: StragglerParameters) -> None:
        state.fold(events)

    def judge(self, view: JobView, parameters: StragglerParameters) -> RuleResult:
        ranks, nodes = _ranks(view)
        if not view.framework_seen and not view.framework_expected:
            return RuleResult.of_kind(text, StragglerKind.NO_FRAMEWORK_METRICS)
        if len(ranks) < 2:
            known = (Fact(name="ranks", value=len(ranks), unit="ranks"),)
            details = StragglerDetails({})
            return RuleResult.of_kind(text, StragglerKind.NO_PEERS, known, details=details)
        needed = min(max(-(-round(parameters.lasting_s * 1e6) // BLOCK_US), 1), BLOCKS)
        blocks = common_blocks(ranks)[-needed:]
        progress = Patience(seen=len(blocks), needed=needed, counts="blocks")
        if len(blocks) < needed:
            waiting = (
                Fact(name="ranks", value=len(ranks), unit="ranks"),
                Fact(name="blocks", value=len(blocks), unit="blocks", threshold=float(needed)),
                Fact(name="block_length", value=BLOCK_US / 1e6, unit="s"),
            )
            return RuleResult.of_kind(text, StragglerKind.WARMING_UP, waiting, progress=progress)
        found = per_step(ranks, blocks)
        compared = _compared(ranks, found, parameters.slower)
        order = sorted(compared, key=lambda name: -compared[name].excess)
        details = StragglerDetails({name: compared[name] for name in order[:MOST_SHOWN] if view.detailed})
        slow = [name for name in order if compared[name].is_slow]
        worst = slow[0] if slow else order[0]
        kind = StragglerKind.SLOW if slow else StragglerKind.FINE
        if not slow and found.waited_in_turn() >= COSTLY_SHARE:
            kind = StragglerKind.UNEVEN
        pace, (start, end) = compared[worst], _time_of(blocks, view)
        fact = partial(Fact, node=nodes[worst], start=start, end=end)
        steps = sum(ranks[worst].blocks[block].steps for block in blocks)
        facts = (
            fact(name="rank", value=worst),
            fact(name="own_work", value=pace.own_us / 1e6, unit="s"),
            fact(name="own_work_of_peers", value=pace.peers_us / 1e6, unit="s"),
            fact(name="longer_than_peers", value=100.0 * pace.excess, unit="%", threshold=parameters.slower),
            fact(name="mean_step", value=pace.step_us / 1e6, unit="s"),
            Fact(name="ranks", value=len(ranks), unit="ranks"),
            *_reasons(fact, found, list(ranks).index(worst), slow, nodes, steps),
        )
        return RuleResult.of_kind(
            text,
            kind,
            facts[:MOST_FACTS],
            measured=100.0 * pace.excess,
            threshold=parameters.slower,
            worst=f"{nodes[worst]}/{worst.removeprefix(f'{nodes[worst]}-')}",
            data_points=sum(pace.whole.steps for pace in ranks.values()),
            progress=progress,
            wasted_share=_wasted_share(slow, ranks, view) if slow else None,
            onset=_onset(worst, ranks, parameters.slower, view) if slow else None,
            details=details,
        )


def _ranks(view: JobView) -> tuple[Ranks, dict[str, str]]:
    """Return the job's processes, and the node of each."""
    states = view.collected(Straggler.spec.name, PaceState)
    nodes = {name: node for node, state in states.items() for name in state.processes}
    return {name: states[nodes[name]].processes[name] for name in sorted(nodes)}, nodes


def _compared(ranks: Ranks, found: PaceTable, slower: float) -> dict[str, RankPace]:
    own, totals = found.mean(found.own), found.mean(found.totals)
    slow = np.asarray(found.slow(slower).all(axis=1)).tolist()
    counts = [pace.whole.steps for pace in ranks.values()]
    rows = zip(own.tolist(), median_of_others(own).tolist(), totals.tolist(), counts, slow, strict=True)
    return dict(zip(ranks, (RankPace(*row) for row in rows), strict=True))


def _wasted_share(slow: list[str], ranks: Ranks, view: JobView) -> float | None:
    """Return for which share of the paid time the others waited for the slowest process over the whole job."""
    marks = [facts.framework.watermark_s for facts in view.nodes.values() if facts.framework is not None]
    through = max((mark for mark in (*marks, view.system_through) if mark is not None), default=None)
    if through is None or view.started_at is None or through <= view.started_at:
        return None
    names, whole = list(ranks), PaceTable.of([[pace.whole] for pace in ranks.values()])
    own, steps = whole.own[:, 0], np.array([pace.whole.steps for pace in ranks.values()])
    lost = np.maximum((own - median_of_others(own)) * steps, 0.0) / 1e6
    return min(max(float(lost[names.index(name)]) for name in slow) / (through - view.started_at), 1.0)


def _onset(name: str, ranks: Ranks, slower: float, view: JobView) -> float | None:
    """Return when the newest run of slow blocks began, epoch seconds: none begins before the job."""
    blocks = common_blocks(ranks)
    slow = per_step(ranks, blocks).slow(slower)[list(ranks).index(name)].tolist()
    begun = None
    for block, is_slow in zip(reversed(blocks), reversed(slow), strict=True):
        if not is_slow:
            break
        begun, _ = _time_of([block], view)
    return begun


def _slow_node(slow: list[str], node_of: Mapping[str, str]) -> str | None:
    nodes = {node_of[name] for name in slow}
    if len(nodes) != 1 or len(slow) < 2:
        return None
    node = nodes.pop()
    return node if len(slow) == sum(each == node for each in node_of.values()) < len(node_of) else None


def _time_of(blocks: list[int], view: JobView) -> tuple[float, float]:
    start, end = blocks[0] * BLOCK_US / 1e6, (blocks[-1] + 1) * BLOCK_US / 1e6
    return start if view.started_at is None else max(start, min(view.started_at, end)), end


def _reasons(
    fact: Callable[..., Fact], found: PaceTable, rank: int, slow: list[str], nodes: Mapping[str, str], steps: int
) -> Iterator[Fact]:
    """Yield who waits, what that costs, in which part the worst process is late, and which others are."""
    waiting = len(nodes) - len(slow)
    yield Fact(name="ranks_affected", value=len(slow), unit="ranks")
    yield Fact(name="ranks_waiting", value=waiting, unit="ranks")
    in_turn, late_in = found.waited_in_turn(), found.late_in(rank)
    if not slow and in_turn >= COSTLY_SHARE:
        yield fact(name="waited_in_turn", value=100.0 * in_turn, unit="%", threshold=100.0 * COSTLY_SHARE)
    if not found.timed and late_in is not None:
        yield fact(name="longer_by_waits", value=1)
    if found.timed and slow:
        late, step = float(found.late()[rank]), max(float(found.mean(found.totals)[rank]), 1.0)
        yield fact(name="lost_of_step", value=100.0 * late / step, unit="%")
        yield fact(name="lost_gpu_time", value=late * steps * waiting / 1e6, unit="s")
        if late_in is not None:
            yield fact(name="late_in", value=late_in)
    whole_node = _slow_node(slow, nodes)
    if whole_node is not None:
        yield Fact(name="slow_node", value=whole_node, node=whole_node)
    elif len(slow) > 1:
        yield from (Fact(name="slow_rank", value=name, node=nodes[name]) for name in slow[:NAMED])
