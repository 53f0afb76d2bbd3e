"""Straggler: a rank, or a node, whose own work in a step takes longer than its peers' for long.

In synchronous training all ranks have steps of the same length: only the step without waiting shows the slow one.
"""

from collections.abc import Mapping

import msgspec
import numpy as np

from trainguard.core.finding import MOST_FACTS, Fact, Progress
from trainguard.core.records import Status
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.snapshots import BoolArray, FloatArray
from trainguard.ledger.bucket import Bucket
from trainguard.render.details import Details
from trainguard.rules.protocol import JoinedRule, Positive, RuleParameters
from trainguard.rules.rule_inputs import JobView
from trainguard.rules.rule_result import FactSheet, JudgedKind, Measure, Parts, RuleResult, Words
from trainguard.rules.spec import FRAMEWORK, LOW_GPUS, ParameterHelp, RuleSpec
from trainguard.rules.straggler.pace import BLOCK_US, BLOCKS, PaceState, ProcessPace


class StragglerKind(JudgedKind):
    SLOW = "slow", Status.FIRED
    FINE = "fine"
    WARMING_UP = "warming_up", Status.WARMING_UP
    NO_PEERS = "no_peers", Status.NOT_APPLICABLE
    NO_FRAMEWORK_METRICS = "no_framework_metrics", Status.NOT_APPLICABLE


def text(sheet: FactSheet) -> Words:
    return sheet.fill(_WORDS[StragglerKind(sheet.kind)], **_PARTS)


def _others(sheet: FactSheet) -> str:
    named = [str(each.value) for each in sheet.all("slow_rank")]
    if not named:
        return ""
    more = sheet.count("ranks_affected") - len(named)
    return sheet.say("; slow {were/are} {ranks}", ranks=", ".join(named) + (f", and {more} more" if more else ""))


_PARTS: Parts = {
    "who": lambda sheet: (
        sheet.say_if("slow_node", "Every rank of {slow_node} {was/is} slow, most of all {rank}")
        or sheet.say("{rank} {was/is} slow")
    ),
    "where": lambda sheet: sheet.say_if("slow_node", "{slow_node}") or sheet.say("{rank} on {rank.node}"),
    "why": lambda sheet: sheet.say_if("longer_by_waits", ", most of it in waits for data"),
    "waiting": lambda sheet: f"{sheet['ranks_waiting']:rank}",
    "others": _others,
    "remedy": lambda sheet: sheet.say(_LOOK_AT_GPU if sheet.get("longer_by_waits") is None else _BALANCE, **_PARTS),
}
_BALANCE = (
    "Give {where} as much data loading as the others: compare the sizes of the ranks' shards, its loader workers, "
    "cores and storage."
)
_LOOK_AT_GPU = (
    "Look at clocks, temperature and power of the GPU of {where}, and at other processes there; compare the sizes of "
    "the ranks' batches. Replace the node if its GPUs stay slow with the same work."
)
_WORDS = {
    StragglerKind.SLOW: Words(
        "{who}: from {rank.when} its own work in a step took {own_work.as_step}, {longer_than_peers} longer than its "
        "peers' {own_work_of_peers.as_step} (threshold {longer_than_peers.limit}){why}; {waiting} waited for it in "
        "each step of {mean_step.as_step}{others}.",
        "{remedy}",
        "{where} was slower than its peers, which waited for it",
    ),
    StragglerKind.FINE: Words(
        "No rank of {ranks.value} is slower than its peers: from {rank.when} {rank} had most work of its own in a "
        "step, {own_work.as_step}, of which the peers had {own_work_of_peers.as_step}."
    ),
    StragglerKind.WARMING_UP: Words(
        "{ranks.value} ranks have {blocks.value} of the {blocks.limit:block} of {block_length} that a verdict takes."
    ),
    StragglerKind.NO_PEERS: Words(
        "The steps of fewer than two ranks have forward passes: there are no peers to compare."
    ),
    StragglerKind.NO_FRAMEWORK_METRICS: Words("This job has written no framework metrics, which the rule needs."),
}


LEAST_STEPS = 20
"""A block of five minutes with fewer steps of a process says too little."""
COSTLY_SHARE = 0.1
"""What a rank takes longer must be this share of the step: else nobody waits for it for long."""
WAITS_SHARE = 0.5
"""A rank is slow by its data where this share of what it takes longer is waiting for data."""
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
        return self.own_us / self.peers_us - 1.0


class StragglerDetails(Details, frozen=True):
    processes: dict[str, RankPace]


class Straggler(JoinedRule[StragglerParameters, PaceState]):
    spec = RuleSpec(
        name="Straggler",
        title="Stragglers",
        looks_at="the own work of each rank's steps",
        fires_when="a rank or a node is slower than its peers for long",
        condition=(
            "a rank's own work in a step, forward pass, wait for data and optimizer, takes {slower} % longer than its "
            "peers' for {lasting_s} s, and a tenth of the step longer"
        ),
        measures=(Measure("own work above that of the peers", "%"),),
        parameters={
            "slower": ParameterHelp("% of the peers' own work", "a rank that takes so much longer is slow"),
            "lasting_s": ParameterHelp("seconds, at most an hour", "a rank that is slow for as long fires"),
        },
        inputs=FRAMEWORK,
        explains=(LOW_GPUS,),
        text=text,
        claims={StragglerKind.SLOW: (Bucket.PEERS, Bucket.IDLE, Bucket.UNEXPLAINED)},
        details=StragglerDetails,
        section="trainguard.rules.straggler.section:blocks",
    )

    clear_s = 1_800.0
    """30 min: a block is five minutes."""

    def observe(self, state: PaceState, events: FrameworkEvents, parameters: StragglerParameters) -> None:
        state.fold(events)

    def judge(self, view: JobView, parameters: StragglerParameters) -> RuleResult:
        ranks, nodes = _ranks(view)
        if not view.framework_seen and not view.framework_expected:
            return RuleResult.told(text, StragglerKind.NO_FRAMEWORK_METRICS)
        if len(ranks) < 2:
            known = (Fact(name="ranks", value=len(ranks), unit="ranks"),)
            details = StragglerDetails({})
            return RuleResult.told(text, StragglerKind.NO_PEERS, known, details=details)
        needed = min(max(-(-round(parameters.lasting_s * 1e6) // BLOCK_US), 1), BLOCKS)
        blocks = _common_blocks(ranks)[-needed:]
        progress = Progress(seen=len(blocks), needed=needed, counts="blocks")
        if len(blocks) < needed:
            waiting = (
                Fact(name="ranks", value=len(ranks), unit="ranks"),
                Fact(name="blocks", value=len(blocks), unit="blocks", threshold=float(needed)),
                Fact(name="block_length", value=BLOCK_US / 1e6, unit="s"),
            )
            return RuleResult.told(text, StragglerKind.WARMING_UP, waiting, progress=progress)
        compared, by_waits = _compared(ranks, blocks, parameters.slower)
        order = sorted(compared, key=lambda name: -compared[name].excess)
        details = StragglerDetails({name: compared[name] for name in order[:MOST_SHOWN] if view.detailed})
        slow = [name for name in order if compared[name].is_slow]
        worst = slow[0] if slow else order[0]
        judged = _time_of(blocks, view), parameters.slower
        return RuleResult.told(
            text,
            StragglerKind.SLOW if slow else StragglerKind.FINE,
            _facts(worst, compared[worst], slow, nodes, judged, by_waits=worst in by_waits),
            measured=100.0 * compared[worst].excess,
            threshold=parameters.slower,
            worst=f"{nodes[worst]}/{worst.removeprefix(f'{nodes[worst]}-')}",
            data_points=sum(pace.whole.steps for pace in ranks.values()),
            progress=progress,
            wasted_share=_wasted_share(slow, ranks, view) if slow else None,
            onset=_onset(worst, ranks, parameters.slower, view) if slow else None,
            details=details,
        )


Ranks = Mapping[str, ProcessPace]
"""All training processes of the job by name, in order."""


def _ranks(view: JobView) -> tuple[Ranks, dict[str, str]]:
    """Return the job's processes, and the node of each."""
    states = view.collected(Straggler.spec.name, PaceState)
    nodes = {name: node for node, state in states.items() for name in state.processes}
    return {name: states[nodes[name]].processes[name] for name in sorted(nodes)}, nodes


def _common_blocks(ranks: Ranks) -> list[int]:
    """Return the blocks in which every process has steps enough, without the newest, which may go on."""
    newest = max(max(pace.blocks) for pace in ranks.values())
    known = [{block for block, each in pace.blocks.items() if each.steps >= LEAST_STEPS} for pace in ranks.values()]
    return sorted(set.intersection(*known) - {newest})


def _per_step(ranks: Ranks, blocks: list[int]) -> tuple[FloatArray, ...]:
    """Return steps of R processes in B blocks, and in a step own work, waits and all time in µs, float64[R, B] each."""
    paces = [[pace.blocks[block] for block in blocks] for pace in ranks.values()]
    sums = np.array([[(each.steps, each.own_us, each.wait_us, each.total_us) for each in row] for row in paces])
    steps = sums[:, :, 0].astype(np.float64)
    return steps, *(sums[:, :, column] / steps for column in (1, 2, 3))


def _is_slow(own: FloatArray, totals: FloatArray, slower: float) -> BoolArray:
    others = np.stack([median_of_others(column) for column in own.T], axis=1)
    excess = own - others
    slow: BoolArray = (excess > slower / 100.0 * others) & (excess >= COSTLY_SHARE * totals)
    return slow


def _compared(ranks: Ranks, blocks: list[int], slower: float) -> tuple[dict[str, RankPace], set[str]]:
    """Return each process beside its peers, and those of which waits for data are most of what they take longer."""
    steps, *per_step = _per_step(ranks, blocks)
    own, waits, totals = ((each * steps).sum(axis=1) / steps.sum(axis=1) for each in per_step)
    peers, peers_wait = median_of_others(own), median_of_others(waits)
    by_waits = np.flatnonzero(waits - peers_wait >= WAITS_SHARE * (own - peers)).tolist()
    slow = np.asarray(_is_slow(per_step[0], per_step[2], slower).all(axis=1)).tolist()
    counts = [pace.whole.steps for pace in ranks.values()]
    rows = zip(own.tolist(), peers.tolist(), totals.tolist(), counts, slow, strict=True)
    paces = dict(zip(ranks, (RankPace(*row) for row in rows), strict=True))
    names = list(ranks)
    return paces, {names[place] for place in by_waits}


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


def _wasted_share(slow: list[str], ranks: Ranks, view: JobView) -> float | None:
    """Return for which share of the paid time the others waited for the slowest process over the whole job."""
    marks = [facts.framework.watermark_s for facts in view.nodes.values() if facts.framework is not None]
    through = max((mark for mark in (*marks, view.system_through) if mark is not None), default=None)
    if through is None or view.started_at is None or through <= view.started_at:
        return None
    names, whole = list(ranks), [pace.whole for pace in ranks.values()]
    own = np.array([pace.own_us / pace.steps for pace in whole])
    steps = np.array([pace.steps for pace in whole])
    lost = np.maximum((own - median_of_others(own)) * steps, 0.0) / 1e6
    return min(max(float(lost[names.index(name)]) for name in slow) / (through - view.started_at), 1.0)


def _onset(name: str, ranks: Ranks, slower: float, view: JobView) -> float | None:
    """Return when the newest run of slow blocks began, epoch seconds: none begins before the job."""
    blocks = _common_blocks(ranks)
    _, own, _, totals = _per_step(ranks, blocks)
    slow = _is_slow(own, totals, slower)[list(ranks).index(name)].tolist()
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


def _facts(
    worst: str,
    pace: RankPace,
    slow: list[str],
    node_of: Mapping[str, str],
    judged: tuple[tuple[float, float], float],
    *,
    by_waits: bool,
) -> tuple[Fact, ...]:
    node, ((start, end), slower) = node_of[worst], judged

    def fact(name: str, value: float | str, unit: str = "", threshold: float | None = None) -> Fact:
        return Fact(name=name, value=value, unit=unit, node=node, start=start, end=end, threshold=threshold)

    facts = [
        fact("rank", worst),
        fact("own_work", pace.own_us / 1e6, "s"),
        fact("own_work_of_peers", pace.peers_us / 1e6, "s"),
        fact("longer_than_peers", 100.0 * pace.excess, "%", slower),
        fact("mean_step", pace.step_us / 1e6, "s"),
        Fact(name="ranks", value=len(node_of), unit="ranks"),
        Fact(name="ranks_affected", value=len(slow), unit="ranks"),
        Fact(name="ranks_waiting", value=len(node_of) - len(slow), unit="ranks"),
    ]
    whole_node = _slow_node(slow, node_of)
    if whole_node is not None:
        facts.append(Fact(name="slow_node", value=whole_node, node=whole_node))
    if by_waits:
        facts.append(fact("longer_by_waits", 1))
    if whole_node is None and len(slow) > 1:
        facts += [Fact(name="slow_rank", value=name, node=node_of[name]) for name in slow[:NAMED]]
    return tuple(facts[:MOST_FACTS])
