"""One rank comes late into collectives, or computes more slowly than others."""

import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from trainguard.core.finding import Fact, Severity
from trainguard.core.units import counted
from trainguard.kernels.document import AcrossRanks, RankLine, RankProfile
from trainguard.kernels.entries import Evidence, Gain, KernelFinding
from trainguard.kernels.memory.entries import SnapshotProfile
from trainguard.kernels.rules.finding import FEW_STEPS, SHOWN, capped, rank_name
from trainguard.kernels.rules.parallel import ExposedCommunication
from trainguard.kernels.rules.rule import ACROSS, KernelRule, Number, Share, portion
from trainguard.kernels.rules.text import shown
from trainguard.kernels.waiting import Waiting
from trainguard.ledger.bucket import Bucket
from trainguard.rules.change import ChangeCode
from trainguard.rules.rule_result import FactSheet, Measure
from trainguard.rules.spec import LOW_GPUS


def _slow_rank_summary(sheet: FactSheet) -> str:
    longer = f"computes {sheet.number('compute_ratio'):.2f} times as long as"
    others = int(sheet.number("like_ranks"))
    peers = "the only other like rank" if others == 1 else f"the median of {counted(others, 'like rank')}"
    return f"{sheet.name('slow_rank')} {longer} {peers}."


class SlowRank(KernelRule):
    title = "A slow rank"
    looks_at = ACROSS
    change = ChangeCode.BALANCE_RANKS
    fires_when = "a rank computes {times} times as long as the median of the other like ranks, and is not the late one"
    measure = Measure("times the median of like ranks")
    claims = (Bucket.PEERS,)
    summary = _slow_rank_summary
    advice = (
        "Balance the work between the ranks, and look at this rank's GPU: clocks, temperature, other programs on it."
    )
    clause = "a rank computed more slowly than others"

    times: Number = 1.1
    times_high: Number = 1.5

    def judge_ranks(self, lines: Sequence[RankLine]) -> Iterator[tuple[int, KernelFinding]]:
        for place, line in enumerate(lines):
            others = [each.compute_ns for at, each in enumerate(lines) if at != place and each.like == line.like]
            median = float(np.median(others)) if others else 0.0
            if not median or line.compute_ns < self.times * median:
                continue
            name, ratio, more = rank_name(line.rank, line.trace), line.compute_ns / median, line.compute_ns - median
            share = more / line.step_ns if line.step_ns else 0.0
            yield (
                place,
                self.found(
                    [
                        Fact(name="compute_ratio", value=round(ratio, 3), threshold=self.times),
                        Fact(name="slow_rank", value=name),
                        Fact(name="like_ranks", value=len(others)),
                    ],
                    severity=capped(Severity.HIGH if ratio >= self.times_high else Severity.MEDIUM, line.steps),
                    evidence=[
                        Evidence(
                            what=f"{name}, computation of a step",
                            duration_ns=line.compute_ns,
                        )
                    ],
                    gain=Gain(ns_per_step=round(more), share=round(share, 4)),
                    confidence="normal" if line.steps >= FEW_STEPS else "low",
                ),
            )


def _late_rank_summary(sheet: FactSheet) -> str:
    ratio, slower = sheet.number("compute_ratio"), sheet["compute_ratio"].threshold or LateRank.compute
    if ratio >= slower:
        cause = f"It computes {ratio:.2f} times as long as the others"
    else:
        how = "as long as" if ratio * slower >= 1.0 else "less than"
        cause = f"It computes {how} the others, so something else holds it up: its data, its host, a checkpoint"
    more = sheet.get("exchange_ratio")
    if more is not None:
        cause = f"It exchanges {more.value:.2f} times the data of the others all to all, and computes {ratio:.2f} times"
        cause += " as long, as where it holds the experts or tables that are used most"
    return (
        f"{sheet.name('late_rank')} comes last into {sheet.name('collective')} in {sheet['last_steps'].value} of "
        f"{sheet['steps'].value} steps, {shown(sheet)['lateness_share']} of a step later than the middle one of "
        f"{counted(int(sheet.number('ranks_compared')), 'rank')}. {cause}."
    )


class LateRank(KernelRule):
    """Fires for the rank that comes last into a collective in many steps, by much of a step.

    Of two ranks one always comes last: where they take turns, neither is late over all steps. A rank that is late over
    a few steps, and not in each of them, may be so by chance: then the confidence is low.
    """

    title = "A late rank"
    looks_at = ACROSS
    change = ChangeCode.BALANCE_RANKS
    fires_when = (
        "in {steps} of the steps one rank comes last into a collective, {lateness} of a step later than the middle "
        "rank, and that much later over all steps; what it computes, {compute} times as long as others, and exchanges "
        "all to all, {exchange} times as much, say why"
    )
    measure = Measure("lateness as a share of a step")
    explains = (LOW_GPUS,)
    claims = (Bucket.PEERS,)
    summary = _late_rank_summary
    advice = (
        "Balance the data and the layers between the ranks, and look at this rank's node: clocks, "
        "temperature, its data loader, other programs."
    )
    clause = "one rank came late into collectives"

    steps: Share = 0.5
    lateness: Share = 0.05
    lateness_high: Share = 0.2
    sigmas: Number = 3
    compute: Number = SlowRank.times
    exchange: Number = SlowRank.times

    def judge_ranks(
        self, ranks: Sequence[RankProfile], lines: Sequence[RankLine], waiting: Waiting
    ) -> tuple[int, KernelFinding] | None:
        times = np.bincount(waiting.last, minlength=len(waiting.ranks))
        mine = int(times.argmax())
        place, steps = waiting.ranks[mine], len(waiting.steps)
        late = waiting.lateness_ns[waiting.last == mine]
        step_ns = float(np.median([lines[each].step_ns for each in waiting.ranks]))
        lateness = float(late.mean()) if len(late) else 0.0
        share = lateness / step_ns if step_ns else 0.0
        lead = waiting.lead_ns(mine)
        if times[mine] < self.steps * steps or share < self.lateness or lead.mean() < self.lateness * step_ns:
            return None
        sure = steps >= FEW_STEPS and lead.mean() >= self.sigmas * lead.std() / np.sqrt(steps)
        others = [lines[each] for each in waiting.ranks if each != place]
        slower = lines[place].compute_ns / max(float(np.median([each.compute_ns for each in others])), 1.0)
        exchanged = exchange_ratio(ranks, waiting, place) if slower >= self.compute else 0.0
        return place, self.found(
            [
                portion("lateness_share", share, self.lateness),
                Fact(name="late_rank", value=rank_name(ranks[place].rank, ranks[place].trace)),
                Fact(name="collective", value=waiting.name),
                Fact(name="last_steps", value=int(times[mine])),
                Fact(name="steps", value=steps),
                Fact(name="ranks_compared", value=len(waiting.ranks)),
                Fact(name="compute_ratio", value=round(slower, 3), threshold=self.compute),
                *(self._uneven(exchanged) if exchanged >= self.exchange else []),
            ],
            severity=Severity.HIGH if sure and share >= self.lateness_high else Severity.MEDIUM,
            evidence=_latest(ranks, waiting),
            gain=Gain(ns_per_step=round(lateness * len(late) / steps), share=round(share * len(late) / steps, 4)),
            confidence="normal" if sure else "low",
        )

    def _uneven(self, exchanged: float) -> list[Fact]:
        advice = (
            "Balance what the ranks hold: for experts a router's auxiliary loss or bias and a capacity factor, for "
            "experts and tables another placement."
        )
        return [
            Fact(name="exchange_ratio", value=round(exchanged, 3), threshold=self.exchange),
            Fact(name="remedy", value=advice),
        ]


_ALL_TO_ALL = re.compile(r"all_?to_?all", re.IGNORECASE)


def exchange_ratio(ranks: Sequence[RankProfile], waiting: Waiting, place: int) -> float:
    """Return how many times the data of the middle one of the others a rank exchanges all to all; 0 if unknown."""
    totals = {each: _exchanged(ranks[each], waiting.steps) for each in waiting.ranks}
    others = [size for each, size in totals.items() if each != place]
    middle = float(np.median(others))
    return totals[place] / middle if min(others) > 0 else 0.0


def _exchanged(rank: RankProfile, steps: Sequence[int]) -> int:
    """Return the bytes of a rank's exchanges in some steps; 0 without any, or where one is not known."""
    mine = [each for each in rank.collective_steps if _ALL_TO_ALL.search(each.name)]
    sizes = [size for each in mine for step, size in zip(each.steps, each.bytes, strict=False) if step in steps]
    return sum(sizes) if sizes and min(sizes) >= 0 else 0


def _latest(ranks: Sequence[RankProfile], waiting: Waiting) -> list[Evidence]:
    evidence = []
    for at in np.argsort(-waiting.lateness_ns, kind="stable")[:SHOWN].tolist():
        last = ranks[waiting.ranks[int(waiting.last[at])]]
        what = f"{rank_name(last.rank, last.trace)} comes last into {waiting.name}"
        evidence.append(Evidence(what=what, duration_ns=int(waiting.lateness_ns[at]), step=waiting.steps[at]))
    return evidence


Profile = TypeVar("Profile", RankProfile, RankProfile | SnapshotProfile)


def by_rule(
    ranks: Sequence[Profile], across: AcrossRanks | None
) -> dict[str, list[tuple[Profile | None, KernelFinding]]]:
    """Return the findings on all ranks by rule, each with its rank; those across ranks have none."""
    found: dict[str, list[tuple[Profile | None, KernelFinding]]] = {}
    for rank in ranks:
        for finding in _beside_late_rank(rank.findings, across):
            found.setdefault(finding.id, []).append((rank, finding))
    for finding in [] if across is None else across.findings:
        found.setdefault(finding.id, []).append((None, finding))
    return found


def _beside_late_rank(findings: Sequence[KernelFinding], across: AcrossRanks | None) -> list[KernelFinding]:
    """Return a rank's findings; exposed communication without the wait that a late rank explains."""
    found = [] if across is None else across.findings
    late = next((each.gain for each in found if each.id == LateRank.name and each.confidence == "normal"), None)
    if late is None:
        return list(findings)
    return [
        replace(
            each,
            gain=Gain(
                ns_per_step=max(each.gain.ns_per_step - late.ns_per_step, 0),
                share=round(max(each.gain.share - late.share, 0.0), 4),
            ),
        )
        if each.id == ExposedCommunication.name
        else each
        for each in findings
    ]
