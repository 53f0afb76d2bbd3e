"""What explains the loss: slow ranks, uneven stages, sequence lengths, transfers; each is replayed away and alone."""

from collections.abc import Iterator
from enum import StrEnum

import msgspec
import numpy as np

from trainguard.formats.operations import Bools, Floats, Ints
from trainguard.stragglers.operations import BACKWARD, FORWARD, Operations, combined, places_in_keys
from trainguard.stragglers.paces import Paces, by_step, paces_of
from trainguard.stragglers.replay import WhatIf

MOST_OF_LOSS = 0.5
# A rank is slow that takes this part longer than its peers, a stage that takes it longer than the mean stage.
SLOW = 0.05

STEADY_STEPS = 0.8
# A long sequence makes a micro-batch's forward and backward pass longer alike; a pause does not.
SEQUENCE_CORRELATION = 0.7

_FEWEST_PAIRS = 8
# Of a rank: it is not known of fewer whether the rank or its batches are slow.
_FEWEST_BATCHES = 3

_FEWEST_STEPS = 5
_FEWEST_LONG_STEPS = 3
_SLOW_AT_TIMES = 0.2
_MOST_OF_EXCESS = 0.8
_MOST_SLOW = 0.25
_MOST_OF_HOST = 0.75


class CauseKind(StrEnum):
    """``COPY``: all stages of a data-parallel rank, as longer data make them. ``HOST``: the ranks of one machine."""

    RANKS = "ranks"
    HOST = "host"
    COPY = "copy"
    STAGE = "stage"
    SEQUENCES = "sequences"
    TRANSFERS = "transfers"


class StragglerCause(msgspec.Struct, frozen=True, kw_only=True):
    """What explains a part of the loss.

    share: Of the loss: the mean of what is saved without the cause, and of what the cause alone loses. Above 1 where
        causes overlap.
    saves: Part of a step's time that is saved without it. times: How many times as long as its peers the work takes.
    ranks, dp_rank, stage, host, operation: Whose it is; empty and None where that is not one.
    correlation: Of forward and backward times of micro-batches. in_steps: The part of the steps in which a rank is slow
        that is not slow in most. unsure: The stage is one rank or one machine, which
        may be slow itself; or there are too few steps to tell slow ranks from long batches.
    """

    kind: CauseKind
    share: float
    saves: float
    times: float | None = None
    ranks: list[int] = []
    dp_rank: int | None = None
    stage: int | None = None
    host: str = ""
    operation: str = ""
    correlation: float | None = None
    in_steps: float | None = None
    unsure: bool = False


def causes_of(what_if: WhatIf) -> list[StragglerCause]:
    """Return what explains parts of the loss, the largest first."""
    paces = paces_of(what_if.ops, what_if.lasting)
    if not len(paces.rows):
        return []
    times = paces.times
    in_steps = by_step(paces, what_if.ops.step[paces.rows])
    slow = times >= 1 + np.maximum(SLOW, paces.chance())
    slow &= (in_steps >= 1 + (times[:, None] - 1) / 2).mean(axis=1) >= STEADY_STEPS
    at_times = [] if slow.any() else list(_slow_at_times(what_if, paces, in_steps))
    found = [
        *_slow_ranks(what_if, paces, slow),
        *at_times,
        *_stages(what_if, paces),
        *([] if at_times else _sequences(what_if, paces, slow)),
        *_transfers(what_if),
    ]
    return sorted(found, key=lambda cause: -cause.share)


def _weighed(what_if: WhatIf, without: Floats, alone: Floats) -> tuple[float, float]:
    """Return the share of the loss and the part of a step that is saved; ``alone`` is the cause in an even job."""
    loss = what_if.replayed_s - what_if.even_s
    saved = what_if.replayed_s - what_if.mean_step(without)
    lost = what_if.mean_step(alone) - what_if.even_s
    return (saved + lost) / 2 / loss if loss > 0 else 0.0, saved / what_if.replayed_s


def _by_factor(what_if: WhatIf, paces: Paces, factor: Floats) -> tuple[float, float]:
    all_rows = np.ones(len(what_if.ops))
    all_rows[paces.rows] = np.where(factor > 0, factor, 1.0)
    return _weighed(what_if, what_if.lasting / all_rows, what_if.even * all_rows)


def _slow_ranks(what_if: WhatIf, paces: Paces, slow: Bools) -> Iterator[StragglerCause]:
    if not slow.any():
        return
    times = paces.times
    kind, dp_rank, host = _whose(what_if.ops, paces, slow)
    if kind is CauseKind.RANKS and slow.sum() > max(1, int(_MOST_SLOW * len(slow))):
        return
    share, saves = _by_factor(what_if, paces, paces.slow(slow))
    order = np.argsort(-times, kind="stable")
    stages = np.unique(paces.stage[slow])
    yield StragglerCause(
        kind=kind,
        share=share,
        saves=saves,
        times=float(times[slow].max()),
        ranks=[int(paces.ranks[at]) for at in order if slow[at]],
        dp_rank=dp_rank,
        stage=int(stages[0]) if len(stages) == 1 else None,
        host=host,
        unsure=len(what_if.ops.steps) < _FEWEST_STEPS,
    )


def _slow_at_times(what_if: WhatIf, paces: Paces, in_steps: Floats) -> Iterator[StragglerCause]:
    """Yield the one rank that is slow in some steps, as a GPU that is hot; long sequences come to any rank."""
    steps = in_steps.shape[1]
    longer = 1 + np.maximum(_SLOW_AT_TIMES, paces.chance()[:, None] * np.sqrt(steps))
    over = np.where(in_steps >= longer, in_steps - 1, 0.0)
    rank = int(over.sum(axis=1).argmax())
    is_long = over[rank] > 0
    if is_long.sum() < _FEWEST_LONG_STEPS or over[rank].sum() < _MOST_OF_EXCESS * over.sum():
        return
    step = what_if.ops.step[paces.rows]
    factor = np.where((paces.rank == rank) & is_long[step], in_steps[paces.rank, step], 1.0)
    share, saves = _by_factor(what_if, paces, factor)
    yield StragglerCause(
        kind=CauseKind.RANKS,
        share=share,
        saves=saves,
        times=float(np.median(in_steps[rank][is_long])),
        ranks=[int(paces.ranks[rank])],
        dp_rank=int(paces.dp_rank[rank]),
        stage=int(paces.stage[rank]),
        in_steps=float(is_long.mean()),
    )


def _whose(ops: Operations, paces: Paces, slow: Bools) -> tuple[CauseKind, int | None, str]:
    """Return whether the slow ranks are one machine, one copy of the model with its data, or some ranks."""
    hosts, copies = np.unique(paces.host[slow]), np.unique(paces.dp_rank[slow])
    mine = paces.host == hosts[0]
    is_host = len(hosts) == 1 and bool(ops.hosts[hosts[0]]) and 1 < mine.sum() < len(mine)
    if is_host and slow.sum() >= _MOST_OF_HOST * mine.sum():
        return CauseKind.HOST, None, ops.hosts[hosts[0]]
    copy = paces.dp_rank == copies[0]
    if len(copies) == 1 and bool(slow[copy].all()) and len(np.unique(paces.stage[copy])) > 1:
        return CauseKind.COPY, int(copies[0]), ""
    return CauseKind.RANKS, int(copies[0]) if len(copies) == 1 else None, ""


def _stages(what_if: WhatIf, paces: Paces) -> Iterator[StragglerCause]:
    """Yield the stage that takes longest, if stages are uneven: their work could be shared out differently."""
    stages, place = np.unique(paces.stage, return_inverse=True)
    if len(stages) < 2:
        return
    own = paces.own.sum(axis=1)
    # The lower median: one slow rank of two does not make a slow stage.
    spent = np.array([np.sort(own[place == at])[(int((place == at).sum()) - 1) // 2] for at in range(len(stages))])
    times = spent / spent.mean()
    longest = int(times.argmax())
    if times[longest] < 1 + SLOW:
        return
    share, saves = _by_factor(what_if, paces, times[place][paces.rank])
    hosts = np.unique(paces.host[place == longest])
    alone = len(hosts) == 1 and len(np.unique(paces.host)) > 1
    host = what_if.ops.hosts[hosts[0]] if alone else ""
    yield StragglerCause(
        kind=CauseKind.STAGE,
        share=share,
        saves=saves,
        times=float(times[longest]),
        stage=int(stages[longest]),
        host=host,
        unsure=bool(host) or len(own[place == longest]) == 1,
    )


def _sequences(what_if: WhatIf, paces: Paces, slow: Bools) -> Iterator[StragglerCause]:
    if np.bincount(paces.rank).min() < 2 * _FEWEST_BATCHES:
        return
    longer = paces.of_batch(slow)
    correlation = _correlation(what_if.ops, paces.rows, longer)
    if correlation is None or correlation < SEQUENCE_CORRELATION:
        return
    share, saves = _by_factor(what_if, paces, longer)
    yield StragglerCause(kind=CauseKind.SEQUENCES, share=share, saves=saves, correlation=correlation)


def _correlation(ops: Operations, rows: Ints, times: Floats) -> float | None:
    """Return the correlation of forward and backward times of the same micro-batches; None of too few."""
    within = combined(ops.lane, np.maximum(ops.chunk, 0))
    is_forward, is_backward = ops.of_kind(FORWARD)[rows], ops.of_kind(BACKWARD)[rows]
    batch = ops.batch
    if (batch[rows] < 0).any():
        batch = places_in_keys(combined(within, ops.kind))
    keys = combined(within, batch)[rows]
    _, forward, backward = np.intersect1d(keys[is_forward], keys[is_backward], return_indices=True)
    if len(forward) < _FEWEST_PAIRS:
        return None
    pairs = times[is_forward][forward], times[is_backward][backward]
    if min(pairs[0].std(), pairs[1].std()) == 0:
        return None
    return float(np.corrcoef(*pairs)[0, 1])


def _transfers(what_if: WhatIf) -> Iterator[StragglerCause]:
    """Yield the kind of transfer that costs most, without the waiting for those who start late."""
    is_transfer = what_if.ops.is_transfer
    if not is_transfer.any():
        return
    lasting, even = what_if.lasting, what_if.even
    share, saves = _weighed(what_if, np.where(is_transfer, even, lasting), np.where(is_transfer, lasting, even))
    names, kind = what_if.work_kinds
    worst = max(np.unique(kind[is_transfer]), key=lambda at: what_if.slowdown_of(kind == at))
    yield StragglerCause(kind=CauseKind.TRANSFERS, share=share, saves=saves, operation=names[worst])
