"""Why a run takes longer: the part of its time that grew most, by the ledger or by kernel traces."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TypeVar

from msgspec.structs import replace

from trainguard.gate.document import Cause, CauseKind, ChangedOperator
from trainguard.gate.runs import GateRun
from trainguard.gate.text import cause_text
from trainguard.kernels.changes import KernelComparison, RankComparison
from trainguard.ledger.bucket import Bucket

_OF_BUCKET: Mapping[Bucket, CauseKind] = {
    Bucket.DATA: "data",
    Bucket.HOST: "host",
    Bucket.IDLE: "host",
    Bucket.UNEXPLAINED: "host",
    Bucket.COMMUNICATION: "communication",
    Bucket.PEERS: "communication",
    Bucket.COMPUTE: "compute",
    Bucket.CHECKPOINT: "checkpoint",
    Bucket.EVALUATION: "evaluation",
    Bucket.RESTART: "restart",
    Bucket.NO_SAMPLES: "restart",
    Bucket.START_UP: "start_up",
    Bucket.TAIL: "start_up",
}
_OF_PART: Mapping[str, CauseKind] = {
    "compute": "compute",
    "memcpy": "compute",
    "memset": "compute",
    "exposed_memory": "compute",
    "exposed_communication": "communication",
    "idle_loader": "data",
    "idle_host": "host",
    "idle_other": "host",
}
_NS = 1e9
_MS = 1e-6
_MOST_OPERATORS = 10

Amounts = dict[CauseKind, float]
T = TypeVar("T")


def ledger_cause(candidates: Sequence[GateRun], baselines: Sequence[GateRun]) -> Cause | None:
    """Return the cause that grew most of medians over the runs of a side; None where a side has no ledger."""
    sides = [[each for each in side if each.ledger is not None] for side in (candidates, baselines)]
    if not all(sides):
        return None
    per_step = all(each.steps for side in sides for each in side)
    after, before = (_medians([_amounts(each, per_step=per_step) for each in side]) for side in sides)
    return _grown_most(before, after, per_step=per_step, from_kernels=False)


def _amounts(run: GateRun, *, per_step: bool) -> Amounts:
    return _by_kind(_OF_BUCKET, run.ledger or {}, (run.steps or 1) if per_step else 1)


def _by_kind(kinds: Mapping[T, CauseKind], amounts: Mapping[T, float], by: float) -> Amounts:
    """Return the sums of the amounts of each kind, divided by ``by``; an amount of no kind is left out."""
    found: Amounts = {}
    for each, amount in amounts.items():
        if (kind := kinds.get(each)) is not None:
            found[kind] = found.get(kind, 0.0) + amount / by
    return found


def _medians(runs: Sequence[Amounts]) -> Amounts:
    return {kind: median(each.get(kind, 0.0) for each in runs) for kind in {kind for each in runs for kind in each}}


def _grown_most(before: Amounts, after: Amounts, *, per_step: bool, from_kernels: bool) -> Cause | None:
    grown = {kind: after.get(kind, 0.0) - before.get(kind, 0.0) for kind in sorted({*before, *after})}
    kind = max(grown, key=lambda each: grown[each], default=None)
    if kind is None or grown[kind] <= 0.0:
        return None
    found = Cause(
        kind=kind,
        share=grown[kind] / sum(each for each in grown.values() if each > 0.0),
        before=before.get(kind, 0.0),
        after=after.get(kind, 0.0),
        per_step=per_step,
        source="kernels" if from_kernels else "ledger",
    )
    return replace(found, text=cause_text(found))


def kernel_cause(
    compared: KernelComparison, before_parts: Mapping[str, int], after_parts: Mapping[str, int]
) -> Cause | None:
    """Return the part of a typical step that grew most; None where no rank got slower.

    The parts are those of all ranks that are compared, nanoseconds.
    """
    if not any(each.is_worse for each in compared.ranks):
        return None
    before, after = (_by_kind(_OF_PART, parts, _NS) for parts in (before_parts, after_parts))
    return _grown_most(before, after, per_step=True, from_kernels=True)


def changed_operators(compared: KernelComparison) -> list[ChangedOperator]:
    """Return what takes longer, of all ranks the largest change of each name, operators and kernels together."""
    found: dict[tuple[str, bool], ChangedOperator] = {}
    for rank in compared.ranks:
        if rank.comparable.verdict != "no":
            for each in _changed(rank):
                known = found.get((each.name, each.is_kernel))
                if known is None or each.delta_ms > known.delta_ms:
                    found[each.name, each.is_kernel] = each
    return sorted(found.values(), key=lambda each: -each.delta_ms)[:_MOST_OPERATORS]


def _changed(rank: RankComparison) -> list[ChangedOperator]:
    return [
        ChangedOperator(
            name=each.name,
            is_kernel=is_kernel,
            change=each.change,
            delta_ms=each.delta_ns * _MS,
            before_ms=None if each.before_ns is None else each.before_ns * _MS,
            after_ms=None if each.after_ns is None else each.after_ns * _MS,
        )
        for entries, is_kernel in ((rank.operators, False), (rank.kernels, True))
        for each in entries
        if each.change != "same" and each.delta_ns > 0
    ]
