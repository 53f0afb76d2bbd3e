"""The ranks of a job beside each other: who waits, who comes last, and what fires across them."""

from collections.abc import Sequence

import numpy as np

from trainguard.finding import Fact, Severity
from trainguard.kernels.columns import Ints
from trainguard.kernels.document import RankProfile
from trainguard.kernels.findings.finding import FAMILY, FEW_STEPS, SHOWN, Evidence, Gain, KernelFinding, in_order
from trainguard.kernels.findings.text import KernelKind, portion, said
from trainguard.kernels.ranks.alike import groups_of, likes_of
from trainguard.kernels.ranks.entries import AcrossRanks, RankLine
from trainguard.kernels.ranks.late import LATE_RANK
from trainguard.kernels.ranks.transfers import transfers_of
from trainguard.kernels.ranks.waiting import Waiting, compared, widest
from trainguard.kernels.ranks.windows import compared_places
from trainguard.kernels.words import are, have

LATE_STEPS, LATE_SHARE, LATE_HIGH = 0.5, 0.05, 0.2
"""Of the steps in which one rank comes last, and of a step that it comes later by."""

SLOW_COMPUTE, SLOW_HIGH = 1.1, 1.5
"""Times the median of like ranks."""

MOST_MISSING = 100
MOST_WAITS = 50


def across_ranks(ranks: Sequence[RankProfile]) -> AcrossRanks | None:
    """Return the ranks beside each other; None of fewer than two.

    Parameters
    ----------
    ranks : sequence of RankProfile
        Each of one trace. Of a rank that has several the one of `compared_places` is compared.
    """
    all_ranks, places = ranks, compared_places(ranks)
    if len(places) < 2:
        return None
    ranks = [all_ranks[place] for place in places]
    likes = likes_of(ranks)
    collectives = [compared(ranks, group) for group in groups_of(likes) if len(group) > 1]
    waiting = _widest_of(ranks, collectives)
    world = max((rank.world_size for rank in ranks if rank.world_size is not None), default=None)
    known = {rank.rank for rank in all_ranks if rank.rank is not None}
    missing = [rank for rank in range(world or 0) if rank not in known] if known else []
    waits = {} if waiting is None else _waits(waiting)
    lines = [_line(rank, like, waits.get(at)) for at, (rank, like) in enumerate(zip(ranks, likes, strict=True))]
    late = None if waiting is None else _late(ranks, lines, waiting)
    findings = [] if late is None else [late[1]]
    findings += [found for place, found in _slow(lines) if late is None or place != late[0]]
    return AcrossRanks(
        world_size=world,
        missing=missing[:MOST_MISSING],
        missing_count=len(missing),
        collective="" if waiting is None else waiting.name,
        compared_steps=0 if waiting is None else len(waiting.steps),
        steps=[] if waiting is None else waiting.steps[:MOST_WAITS],
        transfers=transfers_of(each for group in collectives for each in group),
        lines=lines,
        findings=in_order(findings),
        notes=[*_left_out(all_ranks, places), *_notes(ranks, likes, waiting, len(missing))],
    )


def _widest_of(ranks: Sequence[RankProfile], found: Sequence[Sequence[Waiting]]) -> Waiting | None:
    """Return the collective whose time differs most, over groups of like ranks."""
    chosen = [each for group in found if (each := widest(ranks, group)) is not None]
    return max(chosen, key=lambda each: float(each.total_ns.std(axis=0).mean()), default=None)


def _waits(waiting: Waiting) -> dict[int, tuple[Ints, int]]:
    """Return by the rank's place how long it waits in each step, and in how many it comes last."""
    waits, last = waiting.wait_ns, np.bincount(waiting.last, minlength=len(waiting.ranks))
    return {place: (waits[at], int(last[at])) for at, place in enumerate(waiting.ranks)}


def _line(rank: RankProfile, like: int, waits: tuple[Ints, int] | None) -> RankLine:
    count = len(rank.steps) + rank.steps_left_out
    steps = max(count, 1)
    step_ns = sum(step.gpu_duration_ns for step in rank.steps) / len(rank.steps) if rank.steps else rank.window_ns
    return RankLine(
        rank=rank.rank,
        trace=rank.trace,
        like=like,
        steps=count,
        step_ns=round(step_ns),
        compute_ns=round(rank.compute_ns / steps),
        communication_ns=round(rank.communication_ns / steps),
        exposed_communication_ns=round(rank.exposed_communication_ns / steps),
        wait_ns=None if waits is None else round(float(waits[0].mean())),
        last_steps=0 if waits is None else waits[1],
        waits_ns=[] if waits is None else waits[0][:MOST_WAITS].tolist(),
    )


def _late(
    ranks: Sequence[RankProfile], lines: Sequence[RankLine], waiting: Waiting
) -> tuple[int, KernelFinding] | None:
    """Return the rank that comes last into a collective in half of the steps, by a twentieth of a step or more."""
    times = np.bincount(waiting.last, minlength=len(waiting.ranks))
    mine = int(times.argmax())
    place, steps = waiting.ranks[mine], len(waiting.steps)
    late = waiting.lateness_ns[waiting.last == mine]
    step_ns = float(np.median([lines[each].step_ns for each in waiting.ranks]))
    lateness = float(late.mean()) if len(late) else 0.0
    share = lateness / step_ns if step_ns else 0.0
    if times[mine] < LATE_STEPS * steps or share < LATE_SHARE:
        return None
    others = [lines[each] for each in waiting.ranks if each != place]
    slower = lines[place].compute_ns / max(float(np.median([each.compute_ns for each in others])), 1.0)
    worst = np.argsort(-waiting.lateness_ns, kind="stable")[:SHOWN]
    name = _named(ranks[place])
    return place, KernelFinding(
        id=LATE_RANK,
        severity=_capped(Severity.HIGH if share >= LATE_HIGH else Severity.MEDIUM, steps),
        value=round(share, 4),
        threshold=LATE_SHARE,
        **said(
            KernelKind.LATE_RANK,
            portion("lateness_share", share, LATE_SHARE),
            Fact(name="late_rank", value=name),
            Fact(name="collective", value=waiting.name),
            Fact(name="last_steps", value=int(times[mine])),
            Fact(name="steps", value=steps),
            Fact(name="ranks_compared", value=len(waiting.ranks)),
            Fact(name="compute_ratio", value=round(slower, 3), threshold=SLOW_COMPUTE),
        ),
        evidence=[
            Evidence(
                what=f"{_named(ranks[waiting.ranks[int(waiting.last[at])]])} comes last into {waiting.name}",
                duration_ns=int(waiting.lateness_ns[at]),
                step=waiting.steps[int(at)],
            )
            for at in worst.tolist()
        ],
        gain=Gain(ns_per_step=round(lateness * len(late) / steps), share=round(share * len(late) / steps, 4)),
        confidence="normal" if steps >= FEW_STEPS else "low",
    )


def _slow(lines: Sequence[RankLine]) -> list[tuple[int, KernelFinding]]:
    """Return the ranks that compute a tenth longer than the median of the other ranks that are like them."""
    found = []
    for place, line in enumerate(lines):
        others = [each.compute_ns for at, each in enumerate(lines) if at != place and each.like == line.like]
        median = float(np.median(others)) if others else 0.0
        if not median or line.compute_ns < SLOW_COMPUTE * median:
            continue
        ratio, more = line.compute_ns / median, line.compute_ns - median
        share = more / line.step_ns if line.step_ns else 0.0
        finding = KernelFinding(
            id=FAMILY + "SlowRank",
            severity=_capped(Severity.HIGH if ratio >= SLOW_HIGH else Severity.MEDIUM, line.steps),
            value=round(ratio, 3),
            threshold=SLOW_COMPUTE,
            **said(
                KernelKind.SLOW_RANK,
                Fact(name="compute_ratio", value=round(ratio, 3), threshold=SLOW_COMPUTE),
                Fact(name="slow_rank", value=_named(line)),
                Fact(name="like_ranks", value=len(others)),
            ),
            evidence=[Evidence(what=f"{_named(line)}, computation of a step", duration_ns=line.compute_ns)],
            gain=Gain(ns_per_step=round(more), share=round(share, 4)),
            confidence="normal" if line.steps >= FEW_STEPS else "low",
        )
        found.append((place, finding))
    return found


def _notes(ranks: Sequence[RankProfile], likes: Sequence[int], waiting: Waiting | None, missing: int) -> list[str]:
    notes = []
    if missing:
        which = "it" if missing == 1 else "one of them"
        notes.append(f"{have(missing, 'rank')} no trace: {which} may be the slow one.")
    if any(rank.rank is None for rank in ranks):
        notes.append("A trace says no rank: it is compared, and nobody knows as which.")
    if len(set(likes)) > 1:
        notes.append(f"The ranks run {len(set(likes))} different sets of kernels; only ranks of one set are compared.")
    if waiting is None:
        notes.append("No collective ran equally often in the same steps of several ranks: nobody knows who waits.")
    return notes


def _left_out(ranks: Sequence[RankProfile], places: Sequence[int]) -> list[str]:
    """Say which traces are not compared."""
    cut = sum(not rank.quality.is_whole for rank in ranks)
    others = len(ranks) - len(places) - cut
    notes = []
    if others:
        notes.append(f"Ranks have several traces: those of one window are compared, {are(others, 'other')} not.")
    if cut:
        verb = "is" if cut == 1 else "are"
        notes.append(f"{have(cut, 'trace')} no whole step, as the file is cut off, and {verb} not compared.")
    return notes


def _named(rank: RankProfile | RankLine) -> str:
    return rank.trace if rank.rank is None else f"Rank {rank.rank}"


def _capped(severity: Severity, steps: int) -> Severity:
    """Return a severity; of too few steps medium at most."""
    return severity if steps >= FEW_STEPS else min(severity, Severity.MEDIUM, key=lambda each: each.rank)
