"""The verdict on stragglers: facts for the page and for ``trainguard stragglers --json``."""

from collections import Counter
from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np

from trainguard.formats.operations import Bools, Ints, OperationTable
from trainguard.stragglers.causes import MOST_OF_LOSS, CauseKind, StragglerCause, causes_of
from trainguard.stragglers.operations import KNOWN, combined, sorted_operations
from trainguard.stragglers.replay import WhatIf, what_if

# From this slowdown on causes are named: less is the jitter of any job.
SLOW_FROM = 1.05

# Ranks and data-parallel ranks, those with the longest operations, that are replayed one by one.
MOST_LISTED = 64

_MOST_SAVED = 4
_MOST_LEFT_OUT = 0.1
_MOST_OFF = 0.05
_MOST_NAMED = 8


class StragglerShare(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank, stage or kind of operation costs.

    slowdown: How many times as long a step takes if these operations alone last as recorded and all others are even.
    saves: Part of a step's time that is saved if they run at the median pace of their peers; of a kind, evenly. None
        beyond the worst few.
    """

    slowdown: float
    saves: float | None


class RankShare(StragglerShare, frozen=True, kw_only=True):
    """A rank, or with ``rank`` None all ranks of a data-parallel one, or of a stage."""

    rank: int | None = None
    dp_rank: int | None = None
    stage: int | None = None


class KindShare(StragglerShare, frozen=True, kw_only=True):
    operation: str


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """What the job costs: ``spent`` in ``hours``, or in one where those are not known, by all its instances.

    lost: By the first of the causes.
    """

    currency: str
    spent: float
    hours: float | None
    lost: float = 0.0


class StragglerVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What stragglers cost a job.

    slowdown: Seconds of the replayed step by those of an even one. recorded_s, replayed_s, even_s: Seconds of the mean
        step, as recorded, replayed from the operations alone, and replayed at an even pace.
    left_out: Part of the recorded step that no operation explains, as time between them.
    worst: The worst rank, data-parallel rank, stage and kind of operation; None where there is only one.
    ranks, dp_ranks, stages, operations: What each costs, the worst first.
    causes: What explains most of the loss; empty where nothing does. parts: What else explains some of it.
    confidence: ``low`` where much could not be replayed. faults: Rows that could not be used, by their fault.
    unknown_kinds: Kinds of operations that are replayed as work of their rank alone. unread: By file, why.
    """

    schema_version: Literal["1"] = "1"
    slowdown: float
    recorded_s: float
    replayed_s: float
    even_s: float
    left_out: float
    steps: int
    steps_left_out: int
    rank_count: int
    operation_count: int
    worst: dict[str, int | str | None]
    ranks: list[RankShare]
    dp_ranks: list[RankShare]
    stages: list[RankShare]
    operations: list[KindShare]
    causes: list[StragglerCause]
    parts: list[StragglerCause]
    confidence: Literal["high", "low"]
    faults: dict[str, int]
    unknown_kinds: list[str]
    unread: dict[str, str] = {}
    price: Price | None = None
    reason: str = ""
    advice: str = ""


def straggler_verdict(table: OperationTable, counted: Mapping[str, int]) -> StragglerVerdict | Counter[str]:
    """Return what stragglers cost, without sentences; where no step can be replayed, why: faults with their numbers."""
    steps = len(np.unique(table.step[table.step >= 0]))
    ops, faults = sorted_operations(table)
    replayed, more = what_if(ops)
    faults.update(more)
    faults.update(counted)
    if replayed is None or replayed.even_s <= 0:
        return faults
    return _verdict(replayed, steps, faults)


def _verdict(replayed: WhatIf, steps: int, faults: Counter[str]) -> StragglerVerdict:
    ops = replayed.ops
    slowdown = replayed.replayed_s / replayed.even_s
    recorded = float(replayed.recorded_steps.mean())
    left_out = 1 - replayed.replayed_s / recorded if recorded > 0 else 0.0
    ranks, dp_ranks, stages, operations = _shares(replayed)
    causes = causes_of(replayed)
    told = [each for each in causes if each.share > MOST_OF_LOSS and _is_notable(each, slowdown)]
    lost_steps = steps - len(ops.steps)
    sure = lost_steps <= _MOST_LEFT_OUT * steps and abs(left_out) <= _MOST_OFF
    sure &= not any(each.unsure for each in told[:1])
    unknown = [name for name in ops.kinds if name not in KNOWN and not ops.is_transfer[ops.of_kind(name)].any()]
    return StragglerVerdict(
        slowdown=slowdown,
        recorded_s=recorded,
        replayed_s=replayed.replayed_s,
        even_s=replayed.even_s,
        left_out=left_out,
        steps=len(ops.steps),
        steps_left_out=lost_steps,
        rank_count=len(np.unique(ops.rank)),
        operation_count=len(ops),
        worst={
            "rank": ranks[0].rank if len(ranks) > 1 else None,
            "dp_rank": dp_ranks[0].dp_rank if len(dp_ranks) > 1 else None,
            "stage": stages[0].stage if len(stages) > 1 else None,
            "operation": operations[0].operation if len(operations) > 1 else None,
        },
        ranks=ranks,
        dp_ranks=dp_ranks,
        stages=stages,
        operations=operations,
        causes=told,
        parts=[each for each in causes if each not in told],
        confidence="high" if sure else "low",
        faults=dict(+faults),
        unknown_kinds=unknown[:_MOST_NAMED],
    )


def _is_notable(cause: StragglerCause, slowdown: float) -> bool:
    """Whether enough is lost. Slow ranks raise the mean as well, which a slowdown is counted from."""
    of_ranks = cause.kind in {CauseKind.RANKS, CauseKind.HOST, CauseKind.COPY}
    return slowdown >= SLOW_FROM or (of_ranks and cause.saves >= SLOW_FROM - 1)


def _shares(
    replayed: WhatIf,
) -> tuple[list[RankShare], list[RankShare], list[RankShare], list[KindShare]]:
    """Return what each rank, data-parallel rank, stage and kind of operation costs."""
    ops = replayed.ops
    stages, copies = _places(replayed, ops.stage), _places(replayed, ops.dp_rank)
    by_stage = {at: replayed.slowdown_of(ops.stage == at) for at in stages}
    by_copy = {at: replayed.slowdown_of(ops.dp_rank == at) for at in copies}
    names, kind = replayed.work_kinds
    by_kind = {at: replayed.slowdown_of(kind == at) for at in range(len(names))}
    listed = _places(replayed, ops.rank)
    first = {int(rank): row for rank, row in zip(*np.unique(ops.rank, return_index=True), strict=True)}
    by_rank = {at: replayed.slowdown_of(ops.rank == at) for at in listed}
    if not ops.part.any():
        # A rank's slowdown is the lesser of its stage's and its copy's, as the public analysis has it.
        by_rank = {
            at: min(by_stage.get(int(ops.stage[first[at]]), 1.0), by_copy.get(int(ops.dp_rank[first[at]]), 1.0))
            for at in listed
        }
    within, anywhere = combined(ops.stage), np.zeros_like(ops.rank)
    return (
        [
            RankShare(
                rank=at,
                dp_rank=int(ops.dp_rank[first[at]]),
                stage=int(ops.stage[first[at]]),
                slowdown=by_rank[at],
                saves=_saved(replayed, place, ops.rank == at, within),
            )
            for place, at in enumerate(_worst(by_rank))
        ],
        [
            RankShare(dp_rank=at, slowdown=by_copy[at], saves=_saved(replayed, place, ops.dp_rank == at, within))
            for place, at in enumerate(_worst(by_copy))
        ],
        [
            RankShare(stage=at, slowdown=by_stage[at], saves=_saved(replayed, place, ops.stage == at, anywhere))
            for place, at in enumerate(_worst(by_stage))
        ],
        [
            KindShare(
                operation=names[at],
                slowdown=by_kind[at],
                saves=replayed.saved_by(np.where(kind == at, replayed.even, replayed.lasting)),
            )
            for at in _worst(by_kind)
        ],
    )


def _saved(replayed: WhatIf, place: int, rows: Bools, peers: Ints) -> float | None:
    return replayed.saved_by(replayed.at_pace_of(rows, peers)) if place < _MOST_SAVED else None


def _worst(shares: Mapping[int, float]) -> list[int]:
    return sorted(shares, key=lambda at: (-shares[at], at))


def _places(replayed: WhatIf, of: Ints) -> list[int]:
    """Return the numbers of ranks, copies or stages; of many, those whose operations are longer than even ones."""
    numbers, place = np.unique(of, return_inverse=True)
    if len(numbers) <= MOST_LISTED:
        return [int(at) for at in numbers]
    longer = np.bincount(place, weights=np.maximum(replayed.lasting - replayed.even, 0.0))
    return sorted(int(at) for at in numbers[np.argsort(-longer, kind="stable")[:MOST_LISTED]])
