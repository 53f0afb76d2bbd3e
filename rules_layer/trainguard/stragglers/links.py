"""What each operation waits for: the order of its rank, the message that it needs, the others of a collective."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainguard.formats.operations import Bools, Ints
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
    places_in_runs,
    usual_of,
)

Pairs = tuple[Ints, Ints]

# By as much clocks of ranks and rounded times may differ.
CLOCK_S = 5e-5


@dataclass(frozen=True, slots=True)
class Links:
    """``after[i]`` starts once ``before[i]`` has ended; operations of one ``group`` end once all of it have started.

    alone: Rows without their partner; their steps cannot be replayed.
    """

    before: Ints
    after: Ints
    group: Ints
    alone: Ints


@dataclass(frozen=True, slots=True)
class Messages:
    """Sends and receives of a table.

    pairs: What waits for what. real: Which rows have a partner; some profilers write messages that are never sent.
    channel, place: The same for both sides of a message. unmatched: Rows whose pass or partner is missing.
    """

    pairs: list[tuple[Ints, Ints]]
    real: Bools
    channel: Ints
    place: Ints
    unmatched: Ints


@dataclass(frozen=True, slots=True)
class _Passes:
    """Passes of one kind, sorted by lane; ``first`` and ``count`` are by lane."""

    rows: Ints
    first: Ints
    count: Ints


def links_of(ops: Operations) -> Links:
    """Return what each operation waits for."""
    gathers, scatters = ops.of_kind(GATHER), _scatters_aside(ops)
    aside = gathers | scatters
    messages = messages_of(ops)
    line = ~aside & ~ops.of_kind(*SENDS, *RECEIVES)
    pairs = [chained(ops, line), chained(ops, aside), *_beside(ops, gathers, scatters, line), *messages.pairs]
    group, alone = _groups(ops, messages)
    before, after = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return Links(before, after, group, np.concatenate([alone, messages.unmatched]))


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


def messages_of(ops: Operations) -> Messages:
    """Return the messages of a table."""
    size = len(ops)
    found = Messages(
        [], np.zeros(size, bool), np.zeros(size, np.int64), np.zeros(size, np.int64), np.empty(0, np.int64)
    )
    unmatched = [found.unmatched]
    _post_first_backward(ops, found)
    for of_pass, names in ((FORWARD, ("forward-send", "forward-recv")), (BACKWARD, ("backward-send", "backward-recv"))):
        passes = np.flatnonzero(ops.of_kind(of_pass))
        for name in names:
            rows = np.flatnonzero(ops.of_kind(name))
            if len(rows):
                unmatched.append(_match(ops, name, rows, passes, found))
    return Messages(found.pairs, found.real, found.channel, found.place, np.concatenate(unmatched))


def _post_first_backward(ops: Operations, found: Messages) -> None:
    """Let the first backward messages of a rank wait for the pass before the one before its first backward pass."""
    passes = np.flatnonzero(ops.of_kind(FORWARD, BACKWARD))
    backward = np.flatnonzero(ops.of_kind(BACKWARD)[passes])
    lanes, first = np.unique(ops.lane[passes][backward], return_index=True)
    at = backward[first] - 2
    known = (at >= 0) & (ops.lane[passes[np.maximum(at, 0)]] == lanes)
    before = np.full(int(ops.lane.max(initial=0)) + 1, -1)
    before[lanes[known]] = passes[at[known]]
    for name in ("backward-send", "backward-recv"):
        rows = np.flatnonzero(ops.of_kind(name))
        rows = rows[np.unique(ops.lane[rows], return_index=True)[1]]
        rows = rows[before[ops.lane[rows]] >= 0]
        found.pairs.append((before[ops.lane[rows]], rows))


def _by_lane(ops: Operations, rows: Ints) -> _Passes:
    count = np.bincount(ops.lane[rows], minlength=int(ops.lane.max(initial=0)) + 1)
    return _Passes(rows, np.cumsum(count) - count, count)


def _match(ops: Operations, name: str, rows: Ints, passes: Ints, found: Messages) -> Ints:
    """Match the messages of one kind with passes and channels; return those that have none.

    A profiler writes a message for each pass, or for each that needs one; some leave out the first receive of a rank
    whose first pass needs none.
    """
    lane = ops.lane[rows]
    follows = lane[1:] == lane[:-1]
    found.pairs.append((rows[:-1][follows], rows[1:][follows]))
    needs = _needs_message(ops, name)
    every, needing = _by_lane(ops, passes), _by_lane(ops, passes[needs[passes]])
    sent = _is_sent(ops, name, rows, every)
    counts = np.bincount(lane[sent], minlength=len(every.count))
    for_needing = counts == needing.count
    for_each = (counts == every.count) & ~for_needing
    but_first = np.zeros_like(for_each)
    if name in RECEIVES and len(passes):
        firsts = every.rows[np.minimum(every.first, len(every.rows) - 1)]
        but_first = ~for_needing & ~for_each & (counts == every.count - 1) & ~needs[firsts]
    fits = (for_needing | for_each | but_first)[lane]
    chosen = sent & fits
    matched, lane = rows[chosen], lane[chosen]
    at = places_in_runs(lane)
    of = np.empty(len(matched), np.int64)
    few = for_needing[lane]
    of[few] = needing.rows[(needing.first[lane] + at)[few]]
    of[~few] = every.rows[(every.first[lane] + at + but_first[lane])[~few]]
    if name in RECEIVES:
        found.pairs.append((matched, of))
        place = np.empty(len(ops), np.int64)
        place[every.rows] = places_in_runs(ops.lane[every.rows])
        later = place[of] > 0
        before = every.first[lane] + place[of] - 1
        found.pairs.append((every.rows[before[later]], matched[later]))
    else:
        found.pairs.append((of, matched))
    _put_on_channels(ops, name, matched[needs[of]], found)
    lost: Ints = rows[sent & ~fits]
    return lost


def _is_sent(ops: Operations, name: str, rows: Ints, passes: _Passes) -> Bools:
    """Return which messages are sent: none is received after the last pass starts, or sent before the first ends."""
    lane = ops.lane[rows]
    if not len(passes.rows):
        return np.ones(len(rows), bool)
    first = np.minimum(passes.first[lane], len(passes.rows) - 1)
    last = np.maximum(passes.first[lane] + passes.count[lane] - 1, 0)
    if name in RECEIVES:
        sent = ops.start[rows] <= ops.start[passes.rows[last]] + CLOCK_S
    else:
        sent = ops.end[rows] >= ops.end[passes.rows[first]] - CLOCK_S
    sent |= passes.count[lane] == 0
    # Clocks differ: what holds for most ranks of a stage counts for the message at a place.
    alike = combined(ops.stage[rows], np.bincount(lane)[lane], places_in_runs(lane))
    found: Bools = usual_of(alike, sent.astype(np.int64)) > 0
    return found


def _needs_message(ops: Operations, name: str) -> Bools:
    """Return for each operation whether its part of the model is not at the end that sends or receives none."""
    stages = int(ops.stage.max()) + 1
    chunk = np.where(ops.whole_chunk >= 0, ops.whole_chunk, np.maximum(ops.chunk, 0) * stages + ops.stage)
    passes = ops.of_kind(FORWARD, BACKWARD)
    is_last = (name in SENDS) == name.startswith("forward")
    edge = int(chunk[passes].max(initial=0)) if is_last else 0
    found: Bools = chunk != edge
    return found


def _put_on_channels(ops: Operations, name: str, real: Ints, found: Messages) -> None:
    """Note the channel and place of messages that are sent, which both of their sides share."""
    stages, copies, parts = (int(each.max()) + 1 for each in (ops.stage, ops.dp_rank, ops.part))
    ahead = 1 if name.startswith("forward") else -1
    sender = ops.stage[real] if name in SENDS else (ops.stage[real] - ahead) % stages
    found.real[real] = True
    found.channel[real] = ((sender * copies + ops.dp_rank[real]) * parts + ops.part[real]) * 2 + (ahead > 0)
    found.place[real] = places_in_runs(ops.lane[real])
