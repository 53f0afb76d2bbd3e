"""What each operation waits for: the order of its rank, the message that it needs, the others of a collective."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainguard.formats.operations import Bools, Ints
from trainguard.stragglers.messages import Messages, messages_of
from trainguard.stragglers.operations import (
    BACKWARD,
    CLIP,
    EMBEDDING,
    FORWARD,
    GATHER,
    LAYER_NORM,
    RECEIVES,
    SCATTER,
    SENDS,
    SEPARATE,
    Operations,
    combined,
    places_in_keys,
    usual_of,
)

Pairs = tuple[Ints, Ints]

# By as much clocks of ranks and rounded times may differ.
CLOCK_S = 5e-5


@dataclass(frozen=True, slots=True)
class Links:
    """``after[i]`` starts once ``before[i]`` has ended; operations of one ``group`` end once all of it have started.

    faults: Rows by what is wrong with them; their steps cannot be replayed.
    """

    before: Ints
    after: Ints
    group: Ints
    faults: dict[str, Ints]


def links_of(ops: Operations) -> Links:
    """Return what each operation waits for."""
    gathers, scatters = ops.of_kind(GATHER), _scatters_aside(ops)
    aside = gathers | scatters
    messages = messages_of(ops)
    line = ~aside & ~ops.of_kind(*SENDS, *RECEIVES)
    pairs = [chained(ops, line), chained(ops, aside), *_beside(ops, gathers, scatters, line), *messages.pairs]
    group, alone = _groups(ops, messages)
    before, after = (np.concatenate(side) for side in zip(*pairs, strict=True))
    partnerless = np.concatenate([alone, messages.unmatched])
    return Links(before, after, group, {"operations without a partner": partnerless} if len(partnerless) else {})


def chained(ops: Operations, rows: Bools) -> Pairs:
    """Return the pairs of chosen operations of a rank that follow each other."""
    found = np.flatnonzero(rows)
    follows = ops.lane[found][1:] == ops.lane[found][:-1]
    return found[:-1][follows], found[1:][follows]


def _scatters_aside(ops: Operations) -> Bools:
    """Return the reductions of gradients, if they run beside the passes: one starts before the last pass ends."""
    scatters = ops.of_kind(SCATTER)
    lanes, last = last_of(ops.lane, np.flatnonzero(ops.is_work))
    ends = np.full(int(ops.lane.max(initial=0)) + 1, -np.inf)
    ends[lanes] = ops.end[last]
    early = scatters & (ops.start < ends[ops.lane] - CLOCK_S)
    return scatters if early.any() or ops.of_kind(SEPARATE).any() else np.zeros_like(scatters)


def _beside(ops: Operations, gathers: Bools, scatters: Bools, line: Bools) -> Iterator[Pairs]:
    """Yield what links collectives to passes: the first that needs parameters, the last that makes gradients."""
    keys = combined(ops.lane, np.maximum(ops.chunk, 0))
    rows, passes = matched(keys, np.flatnonzero(gathers), *first_of(keys, np.flatnonzero(ops.of_kind(FORWARD))))
    yield rows, passes
    rows, passes = matched(keys, np.flatnonzero(scatters), *last_of(keys, np.flatnonzero(ops.of_kind(BACKWARD))))
    yield passes, rows
    last_pass = np.full(int(ops.lane.max(initial=0)) + 1, -1)
    lanes, found = last_of(ops.lane, np.flatnonzero(ops.is_work))
    last_pass[lanes] = found
    rows = np.flatnonzero(line & ~ops.of_kind("gc"))
    then = first_of(ops.lane, rows[rows > last_pass[ops.lane[rows]]])
    scattered = last_of(ops.lane, np.flatnonzero(scatters))
    yield matched(ops.lane, scattered[1], *then)


def first_of(keys: Ints, rows: Ints) -> Pairs:
    """Return the different keys of rows, sorted, and the first row of each."""
    found, at = np.unique(keys[rows], return_index=True)
    return found, rows[at]


def last_of(keys: Ints, rows: Ints) -> Pairs:
    """Return the different keys of rows, sorted, and the last row of each."""
    return first_of(keys, rows[::-1])


def matched(keys: Ints, rows: Ints, known: Ints, others: Ints) -> Pairs:
    """Return the rows whose key is one of the sorted ``known``, and the row of ``others`` that has it."""
    if not len(known):
        return rows[:0], rows[:0]
    at = np.minimum(np.searchsorted(known, keys[rows]), len(known) - 1)
    has = known[at] == keys[rows]
    return rows[has], others[at[has]]


def _groups(ops: Operations, messages: Messages) -> Pairs:
    """Return a number for each operation, the same for those that end together, and rows whose others are missing."""
    group = np.arange(len(ops))
    place = places_in_keys(combined(ops.lane, ops.kind))
    named = ops.group >= 0
    alone = []
    ends = ops.of_kind(EMBEDDING)
    for rows, scope, within, size in (
        (named, (ops.group,), places_in_keys(combined(ops.lane, np.maximum(ops.group, 0))), None),
        (ops.of_kind(GATHER, SCATTER, SEPARATE) & ~named, (ops.kind, ops.stage, ops.part), place, None),
        (ops.of_kind(CLIP) & ~named, (ops.kind,), place, None),
        (ops.of_kind(LAYER_NORM) & ~named, (ops.kind, ops.dp_rank, ops.stage), place, None),
        (ends & ~named, (ops.kind, ops.dp_rank, ops.part), place, None),
        (messages.real & ~named, (messages.channel,), messages.place, 2),
    ):
        found = np.flatnonzero(rows)
        if not len(found):
            continue
        scoped = combined(*(each[found] for each in scope))
        number = np.unique(combined(scoped, ops.step[found], within[found]), return_inverse=True)[1]
        group[found] = found[np.unique(number, return_index=True)[1]][number]
        alone.append(found[_is_unlike(scoped, number, size)])
    return group, np.concatenate([*alone, np.empty(0, np.int64)]).astype(np.int64)


def _is_unlike(scoped: Ints, number: Ints, size: int | None) -> Bools:
    """Return the rows of groups that have not the size, or where that is None not that of most of the same scope."""
    sizes = np.bincount(number)
    first = np.unique(number, return_index=True)[1]
    found: Bools = (sizes != (usual_of(scoped[first], sizes) if size is None else size))[number]
    return found
