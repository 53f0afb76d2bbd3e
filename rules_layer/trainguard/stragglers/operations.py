"""Operations of a parallel job as columns, in the order of each rank, and the faults of their table."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from trainguard.formats.operations import Floats, Ints, OperationTable

Bools = npt.NDArray[np.bool_]

FORWARD, BACKWARD = "forward-compute", "backward-compute"
SENDS = {"forward-send": FORWARD, "backward-send": BACKWARD}
RECEIVES = {"forward-recv": FORWARD, "backward-recv": BACKWARD}
CLIP, EMBEDDING, LAYER_NORM = "optimizer-clip-main-grad", "embedding-grads-all-reduce", "layernorm-grads-all-reduce"
GATHER, SCATTER, SEPARATE = "params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"
COLLECTIVES = (CLIP, EMBEDDING, LAYER_NORM, GATHER, SCATTER, SEPARATE)
LOCAL = (FORWARD, BACKWARD, "optimizer", "gc")
KNOWN = (*LOCAL, *SENDS, *RECEIVES, *COLLECTIVES)

_OVERLAP = 0.05
_OVERLAP_S = 1e-3
"""Recorded times of one GPU are rounded, and of two streams: a larger overlap than both is a fault."""


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
        """Whether each is a forward or backward pass, or, in a table without those, whatever no other rank takes part in."""
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
        columns = {
            each.name: getattr(self, each.name)[kept] if each.name not in {"steps", "kinds", "hosts"} else None
            for each in fields(self)
        }
        left, columns["step"] = np.unique(columns["step"], return_inverse=True)
        columns["lane"] = np.unique(columns["lane"], return_inverse=True)[1]
        return Operations(**{**columns, "steps": self.steps[left], "kinds": self.kinds, "hosts": self.hosts})


def sorted_operations(table: OperationTable) -> tuple[Operations, Counter[str]]:
    """Return a table's operations, without the steps that are not whole, and how many faults of each kind it has."""
    faults: Counter[str] = Counter()
    broken = ~(np.isfinite(table.start) & np.isfinite(table.duration) & (table.duration >= 0))
    broken |= (table.rank < 0) | (table.step < 0) | (table.stage < 0) | (table.dp_rank < 0)
    faults["rows without a number"] = int(broken.sum())
    steps, step = np.unique(table.step, return_inverse=True)
    kinds, kind = _named([name.lower().replace("_", "-") for name in table.kind])
    groups, group = _named(table.group)
    hosts, host = _named(table.host)
    ranks, own = np.unique(table.rank, return_inverse=True)
    order = np.lexsort((kind, table.place, table.start, own, step))
    columns: dict[str, Any] = {
        name: getattr(table, name)[order]
        for name in ("rank", "dp_rank", "stage", "start", "duration", "chunk", "whole_chunk", "batch")
    }
    lane = combined(step, own)[order]
    found = Operations(
        **columns,
        steps=steps,
        kinds=kinds,
        hosts=hosts,
        part=_parts(table, ranks)[own][order],
        step=step[order],
        lane=np.unique(lane, return_inverse=True)[1],
        kind=kind[order],
        group=np.where(group == (0 if "" in groups else -1), -1, group)[order],
        host=host[order],
    )
    bad = [found.step[broken[order]]]
    for name, rows in _unlike(found, table.place[order]).items():
        faults[name] = len(rows)
        bad.append(found.step[rows])
    return found.without_steps(np.unique(np.concatenate(bad))), +faults


def combined(*columns: Ints) -> Ints:
    """Return one number for each different row of columns, none of which has numbers below 0."""
    found = np.zeros(len(columns[0]), np.int64)
    for column in columns:
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


def _named(values: Iterable[str]) -> tuple[list[str], Ints]:
    """Return the different names, sorted, and the place of each value among them."""
    listed = list(values)
    names = sorted(set(listed))
    place = {name: at for at, name in enumerate(names)}
    return names, np.array([place[value] for value in listed], np.int64)


def _parts(table: OperationTable, ranks: Ints) -> Ints:
    """Return for each rank its place among those of the same stage and copy, as of tensor parallel ones."""
    first = np.unique(table.rank, return_index=True)[1]
    of_rank = combined(np.maximum(table.stage[first], 0), np.maximum(table.dp_rank[first], 0))
    order = np.lexsort((ranks, of_rank))
    parts = np.empty(len(ranks), np.int64)
    parts[order] = places_in_runs(of_rank[order])
    return parts


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
    return {"operations that are missing or twice there": gaps, "operations that overlap": line[1:][overlaps]}
