"""Operations of a parallel job as columns, in the order of each rank, and the faults of their table."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from trainguard.formats.operations import Bools, Floats, Ints, OperationTable, Texts

FORWARD, BACKWARD = "forward-compute", "backward-compute"
SENDS = {"forward-send": FORWARD, "backward-send": BACKWARD}
RECEIVES = {"forward-recv": FORWARD, "backward-recv": BACKWARD}
CLIP, EMBEDDING, LAYER_NORM = "optimizer-clip-main-grad", "embedding-grads-all-reduce", "layernorm-grads-all-reduce"
GATHER, SCATTER, SEPARATE = "params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"
COLLECTIVES = (CLIP, EMBEDDING, LAYER_NORM, GATHER, SCATTER, SEPARATE)
LOCAL = (FORWARD, BACKWARD, "optimizer", "gc")
KNOWN = (*LOCAL, *SENDS, *RECEIVES, *COLLECTIVES)

_LATEST_S = 1e20
_OVERLAP = 0.05
# Recorded times of one GPU are rounded, and of two streams: a larger overlap than both is a fault.
_OVERLAP_S = 1e-3


@dataclass(frozen=True, kw_only=True)
class Operations:
    """Operations sorted by step, rank and start; ``kind``, ``group`` and ``host`` are places in their lists of names.

    rank: The rank's number. lane: A rank in a step, counted from 0. step: Place in ``steps``.
    group: -1 where the kind says who takes part. part: Place of a rank among those of one stage and copy.
    """

    steps: Ints
    kinds: list[str]
    hosts: list[str]
    rank: Ints
    dp_rank: Ints
    stage: Ints
    part: Ints
    step: Ints
    lane: Ints
    kind: Ints
    start: Floats
    duration: Floats
    chunk: Ints
    whole_chunk: Ints
    batch: Ints
    group: Ints
    host: Ints

    def __len__(self) -> int:
        return len(self.rank)

    @cached_property
    def end(self) -> Floats:
        return self.start + self.duration

    def of_kind(self, *names: str) -> Bools:
        return np.isin(self.kind, [at for at, name in enumerate(self.kinds) if name in names])

    @cached_property
    def is_work(self) -> Bools:
        """Whether each is a forward or backward pass; in a table without those, whatever one rank does alone."""
        passes = self.of_kind(FORWARD, BACKWARD)
        return passes if passes.any() else ~self.is_transfer

    @cached_property
    def is_transfer(self) -> Bools:
        return self.of_kind(*SENDS, *RECEIVES, *COLLECTIVES) | (self.group >= 0)

    def without_steps(self, steps: Ints) -> "Operations":
        """Return the operations of other steps; ``steps`` are places."""
        if not len(steps):
            return self
        kept = ~np.isin(self.step, steps)
        named = {"steps", "kinds", "hosts"}
        columns: dict[str, Any] = {
            each.name: getattr(self, each.name)[kept] for each in fields(self) if each.name not in named
        }
        left, columns["step"] = np.unique(columns["step"], return_inverse=True)
        columns["lane"] = np.unique(columns["lane"], return_inverse=True)[1]
        return Operations(**columns, steps=self.steps[left], kinds=self.kinds, hosts=self.hosts)


def sorted_operations(table: OperationTable) -> tuple[Operations, Counter[str]]:
    """Return a table's operations, without the steps that are not whole, and how many faults of each kind it has."""
    faults: Counter[str] = Counter()
    broken = ~((np.abs(table.start) < _LATEST_S) & (table.duration >= 0) & (table.duration < _LATEST_S))
    broken |= (table.rank < 0) | (table.step < 0) | (table.stage < 0) | (table.dp_rank < 0)
    faults["rows without a number"] = int(broken.sum())
    good = np.flatnonzero(~broken)
    steps, step = np.unique(table.step[good], return_inverse=True)
    kinds, kind = _named(table.kind[good], lambda name: name.lower().replace("_", "-"))
    groups, group = _named(table.group[good])
    hosts, host = _named(table.host[good])
    ranks, own = np.unique(table.rank[good], return_inverse=True)
    order = np.lexsort((kind, table.place[good], table.start[good], own, step))
    columns: dict[str, Any] = {
        name: getattr(table, name)[good][order]
        for name in ("rank", "dp_rank", "stage", "start", "duration", "chunk", "whole_chunk", "batch")
    }
    at = combined(columns["dp_rank"], columns["stage"])
    usual = usual_of(own[order], at)
    found = Operations(
        **columns,
        steps=steps,
        kinds=kinds,
        hosts=hosts,
        part=_parts(usual, own[order], len(ranks)),
        step=step[order],
        lane=np.unique(combined(step, own)[order], return_inverse=True)[1],
        kind=kind[order],
        group=np.where(group == (0 if "" in groups else -1), -1, group)[order],
        host=host[order],
    )
    bad = [np.flatnonzero(np.isin(steps, table.step[broken]))]
    unlike = {"rows of another stage or copy than their rank's": np.flatnonzero(at != usual)}
    for name, rows in {**unlike, **_unlike(found, table.place[good][order])}.items():
        faults[name] = len(rows)
        bad.append(found.step[rows])
    return found.without_steps(np.unique(np.concatenate(bad))), +faults


def usual_of(keys: Ints, values: Ints) -> Ints:
    """Return for each the most frequent value of its key, of equally frequent ones the largest."""
    known, key = np.unique(keys, return_inverse=True)
    names, value = np.unique(values, return_inverse=True)
    pairs, times = np.unique(key * len(names) + value, return_counts=True)
    last = np.lexsort((pairs, times, pairs // len(names)))
    most = np.empty(len(known), np.int64)
    most[pairs[last] // len(names)] = pairs[last] % len(names)  # of one key the last one stays
    found: Ints = names[most[key]]
    return found


def combined(*columns: Ints) -> Ints:
    """Return one number for each different row of columns, none of which has numbers below 0."""
    found = np.zeros(len(columns[0]), np.int64)
    for each in columns:
        column = each if int(each.max(initial=0)) < 1 << 31 else np.unique(each, return_inverse=True)[1]
        most = int(column.max(initial=0)) + 1
        if int(found.max(initial=0)) >= (1 << 62) // most:
            found = np.unique(found, return_inverse=True)[1].astype(np.int64)
        found = found * most + column
    return found


def places_in_runs(keys: Ints) -> Ints:
    """Return the place of each in its run of equal numbers."""
    begins = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1 if len(keys) else 0))
    return np.arange(len(keys)) - np.repeat(begins, np.diff(begins, append=len(keys)))


def places_in_keys(keys: Ints) -> Ints:
    """Return the place of each among the earlier ones of the same number."""
    order = np.argsort(keys, kind="stable")
    places = np.empty(len(keys), np.int64)
    places[order] = places_in_runs(keys[order])
    return places


def _named(values: Texts, spelled: Callable[[str], str] = str) -> tuple[list[str], Ints]:
    """Return the different names, sorted, and the place of each value among them."""
    names_of = {value: spelled(value) for value in set(values)}
    names = sorted(set(names_of.values()))
    at = {name: place for place, name in enumerate(names)}
    place = {value: at[name] for value, name in names_of.items()}
    return names, np.fromiter(map(place.__getitem__, values), np.int64, len(values))


def _parts(at: Ints, rank: Ints, ranks: int) -> Ints:
    """Return for each row the place of its rank among those of the same stage and copy, as of tensor parallel ones."""
    of_rank = np.zeros(ranks, np.int64)
    of_rank[rank] = at
    return places_in_keys(of_rank)[rank]


def _unlike(ops: Operations, place: Ints) -> Mapping[str, Ints]:
    """Return the rows of each fault that the order of operations shows."""
    order = np.lexsort((np.maximum(place, 0), combined(ops.lane, ops.kind)))
    keys = combined(ops.lane, ops.kind)[order]
    numbered = place[order] >= 0
    gaps = order[numbered & (place[order] != places_in_runs(keys))]
    line = np.flatnonzero(ops.is_work)
    begun, ended = ops.start[line], ops.end[line]
    over = ended[:-1] - begun[1:]
    shorter = np.minimum(ops.duration[line][:-1], ops.duration[line][1:])
    overlaps = (ops.lane[line][:-1] == ops.lane[line][1:]) & (over > _OVERLAP * shorter) & (over > _OVERLAP_S)
    first = np.unique(ops.lane, return_index=True)[1]
    ranks = np.bincount(ops.step[first], minlength=len(ops.steps))
    fewer = ranks != usual_of(np.zeros(len(ranks), np.int64), ranks)
    return {
        "operations that are missing or twice there": gaps,
        "operations that overlap": line[1:][overlaps],
        "operations of steps without all ranks": np.flatnonzero(fewer[ops.step]),
    }
