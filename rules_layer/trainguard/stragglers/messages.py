"""Messages between stages of a pipeline: the pass that each belongs to, and its partner."""

from dataclasses import dataclass

import numpy as np

from trainguard.formats.operations import Bools, Ints
from trainguard.stragglers.operations import (
    BACKWARD,
    FORWARD,
    RECEIVES,
    SENDS,
    Operations,
    combined,
    places_in_runs,
    usual_of,
)

_CLOCK_S = 5e-5


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
        sent = ops.start[rows] <= ops.start[passes.rows[last]] + _CLOCK_S
    else:
        sent = ops.end[rows] >= ops.end[passes.rows[first]] - _CLOCK_S
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
