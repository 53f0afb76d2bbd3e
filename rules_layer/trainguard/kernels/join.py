"""The ranks of a job beside each other: who waits, who comes last, and what fires across them."""

from collections.abc import Sequence

import numpy as np

from trainguard.core.units import counted
from trainguard.kernels.columns import Ints
from trainguard.kernels.document import AcrossRanks, RankLine, RankProfile
from trainguard.kernels.rules.finding import in_order, weighed
from trainguard.kernels.rules.ranks import LateRank, SlowRank
from trainguard.kernels.waiting import Waiting, compared, compared_places, groups_of, likes_of, transfers_of, widest
from trainguard.kernels.words import are, have

MOST_MISSING = 100
MOST_WAITS = 50


def across_ranks(ranks: Sequence[RankProfile]) -> AcrossRanks | None:
    """Return the ranks beside each other, of several traces the one of `compared_places`; None of fewer than two."""
    all_ranks, places = ranks, compared_places(ranks)
    if len(places) < 2:
        return None
    ranks = [all_ranks[place] for place in places]
    likes = likes_of(ranks)
    collectives = [compared(ranks, group) for group in groups_of(likes) if len(group) > 1]
    chosen = [each for group in collectives if (each := widest(ranks, group)) is not None]
    waiting = max(chosen, key=lambda each: float(each.total_ns.std(axis=0).mean()), default=None)
    world = max((rank.world_size for rank in ranks if rank.world_size is not None), default=None)
    known = {rank.rank for rank in all_ranks if rank.rank is not None}
    missing = [rank for rank in range(world or 0) if rank not in known] if known else []
    waits = {} if waiting is None else _waits(waiting)
    lines = [_line(rank, like, waits.get(at)) for at, (rank, like) in enumerate(zip(ranks, likes, strict=True))]
    late = None if waiting is None else LateRank().judge_ranks(ranks, lines, waiting)
    findings = [] if late is None else [late[1]]
    findings += [found for place, found in SlowRank().judge_ranks(lines) if late is None or place != late[0]]
    return AcrossRanks(
        world_size=world,
        missing=missing[:MOST_MISSING],
        missing_count=len(missing),
        collective="" if waiting is None else waiting.name,
        compared_steps=0 if waiting is None else len(waiting.steps),
        steps=[] if waiting is None else waiting.steps[:MOST_WAITS],
        transfers=transfers_of(each for group in collectives for each in group),
        lines=lines,
        findings=in_order(map(weighed, findings)),
        notes=[*_left_out(all_ranks, places), *_notes(ranks, likes, waiting, len(missing))],
    )


def _waits(waiting: Waiting) -> dict[int, tuple[Ints, int]]:
    waits, last = waiting.wait_ns, np.bincount(waiting.last, minlength=len(waiting.ranks))
    return {place: (waits[at], int(last[at])) for at, place in enumerate(waiting.ranks)}


def _line(rank: RankProfile, like: int, waits: tuple[Ints, int] | None) -> RankLine:
    steps = max(rank.step_count, 1)
    return RankLine(
        rank=rank.rank,
        trace=rank.trace,
        like=like,
        steps=rank.step_count,
        step_ns=round(rank.mean_step_ns if rank.steps else rank.window_ns),
        compute_ns=round(rank.compute_ns / steps),
        communication_ns=round(rank.communication_ns / steps),
        exposed_communication_ns=round(rank.exposed_communication_ns / steps),
        wait_ns=None if waits is None else round(float(waits[0].mean())),
        last_steps=0 if waits is None else waits[1],
        waits_ns=[] if waits is None else waits[0][:MOST_WAITS].tolist(),
    )


def _notes(ranks: Sequence[RankProfile], likes: Sequence[int], waiting: Waiting | None, missing: int) -> list[str]:
    notes = []
    if missing:
        which = "it" if missing == 1 else "one of them"
        notes.append(f"{have(missing, 'rank')} no trace: {which} may be the slow one.")
    if any(rank.rank is None for rank in ranks):
        notes.append("A trace says no rank: it is compared as an unknown one.")
    if len(set(likes)) > 1:
        notes.append(f"The ranks run {len(set(likes))} different sets of kernels; only ranks of one set are compared.")
    if waiting is None:
        notes.append(
            "No collective ran equally often in the same steps of several ranks: the one that waits is unknown."
        )
    return notes


def _left_out(ranks: Sequence[RankProfile], places: Sequence[int]) -> list[str]:
    cut = sum(not rank.quality.is_whole for rank in ranks)
    others = len(ranks) - len(places) - cut
    notes = []
    if others:
        notes.append(f"Ranks have several traces: those of one window are compared, {are(others, 'other')} not.")
    if cut:
        lacks, verb = ("lacks", "is") if cut == 1 else ("lack", "are")
        notes.append(f"{counted(cut, 'trace')} {lacks} work of the GPU, and {verb} not compared.")
    return notes
