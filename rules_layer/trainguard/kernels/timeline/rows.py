"""Rows of every sort in one table, each on the lane of its stream or thread."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import msgspec
import numpy as np

from trainguard.kernels.columns import Bools, Ints, Kind, Numbers, Trace

UNKNOWN_DEVICE = -1


class Sort(IntEnum):
    """Sorts of rows; the first four are those of `Kind`."""

    COMPUTE = Kind.COMPUTE
    COMMUNICATION = Kind.COMMUNICATION
    MEMCPY = Kind.MEMCPY
    MEMSET = Kind.MEMSET
    WAIT = 4
    GPU_ANNOTATION = 5
    ANNOTATION = 6
    OPERATOR = 7
    LAUNCH = 8
    OVERHEAD = 9


LAST_OF_GPU = Sort.GPU_ANNOTATION


class LaneKey(msgspec.Struct, frozen=True, array_like=True):
    """A lane of a stream or thread; ``device`` is -1 on the host, and where the trace does not say it."""

    side: Literal["gpu", "host"]
    device: int
    holds: Literal["work", "waits", "annotations"]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTable:
    """N rows of a timeline, int64[N] each; ``start`` and ``end`` are nanoseconds of the trace's clock.

    ``name`` is an index into `Trace.names`, ``source`` a row of ``Trace.gpu`` or ``Trace.launches``, by sort; both are
    -1 where a row joins several, of which ``count`` is the number.
    """

    start: Ints
    end: Ints
    name: Ints
    sort: Ints
    lane: Ints
    source: Ints
    count: Ints

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.start)

    @classmethod
    def none(cls) -> "RowTable":
        """Return a table without rows."""
        return cls(**dict.fromkeys(_FIELDS, np.empty(0, dtype=np.int64)))

    def where(self, mask: Bools | Ints) -> "RowTable":
        """Return the rows of a mask, or at places."""
        return RowTable(**{field: getattr(self, field)[mask] for field in _FIELDS})


_FIELDS = ("start", "end", "name", "sort", "lane", "source", "count")


def together(tables: list[RowTable]) -> RowTable:
    """Return the rows of all tables."""
    return RowTable(**{field: np.concatenate([getattr(each, field) for each in tables]) for field in _FIELDS})


CHUNK = 1 << 17
"""Rows that are looked at together, so that the timeline of a large trace takes little memory."""


class AllRows:
    """Every row that a timeline may draw, and their lanes; what ran on the GPU comes before its launches."""

    def __init__(self, trace: Trace) -> None:
        numbers: dict[LaneKey, int] = {}
        gpu = trace.gpu
        devices = np.unique(gpu.device).tolist()
        device = devices[0] if len(devices) == 1 else UNKNOWN_DEVICE
        lane = np.empty(len(gpu), dtype=np.int32)
        for each in devices:
            mine = gpu.device == each
            lane[mine] = _lanes(trace, gpu.rows.lane[mine], LaneKey("gpu", each, "work", ""), numbers)
        self._kinds = gpu.kind
        self._sources = [(gpu.rows, lane, Sort.COMPUTE)]
        host = LaneKey("host", UNKNOWN_DEVICE, "work", "")
        for rows, sort, key in (
            (trace.waits, Sort.WAIT, LaneKey("gpu", device, "waits", "")),
            (trace.gpu_annotations, Sort.GPU_ANNOTATION, LaneKey("gpu", device, "annotations", "")),
            (trace.annotations, Sort.ANNOTATION, host),
            (trace.operators, Sort.OPERATOR, host),
            (trace.launches, Sort.LAUNCH, host),
            (trace.overhead, Sort.OVERHEAD, host),
        ):
            self._sources.append((rows, _lanes(trace, rows.lane, key, numbers), sort))
        self.lanes = list(numbers)

    def __len__(self) -> int:
        """Return the number of rows."""
        return sum(len(rows) for rows, _, _ in self._sources)

    def chunks(self) -> Iterator[RowTable]:
        """Yield all rows, some at a time."""
        for rows, lane, sort in self._sources:
            for begin in range(0, len(rows), CHUNK):
                part = slice(begin, begin + CHUNK)
                start = rows.start[part]
                none = np.full(len(start), -1, dtype=np.int64)
                yield RowTable(
                    start=start,
                    end=rows.end[part],
                    name=rows.name[part].astype(np.int64),
                    sort=self._kinds[part] if sort is Sort.COMPUTE else np.full(len(start), sort, dtype=np.int64),
                    lane=lane[part].astype(np.int64),
                    source=np.arange(begin, begin + len(start)) if sort in (Sort.COMPUTE, Sort.LAUNCH) else none,
                    count=np.ones(len(start), dtype=np.int64),
                )


def _lanes(trace: Trace, names: Numbers, key: LaneKey, numbers: dict[LaneKey, int]) -> Numbers:
    number = np.zeros(len(trace.names), dtype=np.int32)
    for name in np.flatnonzero(np.bincount(names, minlength=1)).tolist() if len(names) else []:
        found = LaneKey(key.side, key.device, key.holds, trace.names[name])
        number[name] = numbers.setdefault(found, len(numbers))
    return number[names]
