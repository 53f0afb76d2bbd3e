"""Rows of every sort in one table, each on the lane of its stream or thread, and the choice of those that are drawn.

A bounded timeline holds some rows one by one, and joins the others by lane and by cell of time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import msgspec
import numpy as np

from trainguard.kernels.columns import Bools, Ints, Numbers, Rows, Trace, WorkKind
from trainguard.kernels.times.intervals import Spans
from trainguard.kernels.times.window import TraceWindow

UNKNOWN_DEVICE = -1


class Sort(IntEnum):
    """Sorts of rows; the first four are those of `WorkKind`."""

    COMPUTE = WorkKind.COMPUTE
    COMMUNICATION = WorkKind.COMMUNICATION
    MEMCPY = WorkKind.MEMCPY
    MEMSET = WorkKind.MEMSET
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
        return len(self.start)

    @classmethod
    def none(cls) -> "RowTable":
        return cls(**dict.fromkeys(ROW_FIELDS, np.empty(0, dtype=np.int64)))

    def where(self, mask: Bools | Ints) -> "RowTable":
        return RowTable(**{field: getattr(self, field)[mask] for field in ROW_FIELDS})


ROW_FIELDS = ("start", "end", "name", "sort", "lane", "source", "count")


def together(tables: list[RowTable]) -> RowTable:
    return RowTable(**{field: np.concatenate([getattr(each, field) for each in tables]) for field in ROW_FIELDS})


# Rows that are looked at together, so that the timeline of a large trace takes little memory.
CHUNK = 1 << 17


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
            lane[mine] = _lanes(trace, gpu.lane[mine], LaneKey("gpu", each, "work", ""), numbers)
        self._kinds = gpu.kind
        self._sources: list[tuple[Rows, Numbers, Sort]] = [(gpu, lane, Sort.COMPUTE)]
        host = LaneKey("host", UNKNOWN_DEVICE, "work", "")
        waits = LaneKey("gpu", device, "waits", "")
        if len(trace.waits):
            lanes = np.full(len(trace.waits), numbers.setdefault(waits, len(numbers)), dtype=np.int32)
            self._sources.append((trace.waits, lanes, Sort.WAIT))
        for rows, sort, key in (
            (trace.gpu_annotations, Sort.GPU_ANNOTATION, LaneKey("gpu", device, "annotations", "")),
            (trace.annotations, Sort.ANNOTATION, host),
            (trace.operators, Sort.OPERATOR, host),
            (trace.launches, Sort.LAUNCH, host),
            (trace.overhead, Sort.OVERHEAD, host),
        ):
            self._sources.append((rows, _lanes(trace, rows.lane, key, numbers), sort))
        self.lanes = list(numbers)

    def __len__(self) -> int:
        return sum(len(rows) for rows, _, _ in self._sources)

    def chunks(self) -> Iterator[RowTable]:
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


MOST_CELLS = 1 << 12


class RowCells:
    """The rows that begin in each cell of each lane: first start, last end, how many, and how long by sort.

    Cells divide ``length`` from ``origin``; what begins before or after is in the first or last cell.
    """

    def __init__(self, lanes: int, origin: int, length: int) -> None:
        self._origin = origin
        self.cells = MOST_CELLS
        self.width = max(-(-length // MOST_CELLS), 1)
        size = lanes * MOST_CELLS
        self._start = np.full(size, np.iinfo(np.int64).max)
        self._end = np.full(size, np.iinfo(np.int64).min)
        self._count = np.zeros(size, dtype=np.int64)
        self._time = np.zeros((size, len(Sort)), dtype=np.float32)
        self._name = np.full(size, -1, dtype=np.int64)
        self._source = np.full(size, -1, dtype=np.int64)

    def add(self, rows: RowTable) -> None:
        cell = np.clip((rows.start - self._origin) // self.width, 0, self.cells - 1)
        place = rows.lane * self.cells + cell
        np.minimum.at(self._start, place, rows.start)
        np.maximum.at(self._end, place, rows.end)
        np.add.at(self._count, place, rows.count)
        np.add.at(self._time, (place, rows.sort), (rows.end - rows.start + 1).astype(np.float32))
        self._name[place] = rows.name
        self._source[place] = rows.source

    def __len__(self) -> int:
        return int((self._count > 0).sum())

    def double(self) -> None:
        self.cells //= 2
        self.width *= 2
        self._name = self._of_the_used(self._name)
        self._source = self._of_the_used(self._source)
        self._start = self._start.reshape(-1, 2).min(axis=1)
        self._end = self._end.reshape(-1, 2).max(axis=1)
        self._count = self._count.reshape(-1, 2).sum(axis=1)
        self._time = self._time.reshape(-1, 2, len(Sort)).sum(axis=1)

    def _of_the_used(self, values: Ints) -> Ints:
        pairs, used = values.reshape(-1, 2), self._count.reshape(-1, 2) > 0
        return np.where(used[:, 0], pairs[:, 0], pairs[:, 1])

    def table(self) -> RowTable:
        place = np.flatnonzero(self._count)
        single = self._count[place] == 1
        lane, cell = place // self.cells, place % self.cells
        last = self._origin + (cell + 1) * self.width
        end = self._end[place]
        return RowTable(
            start=self._start[place],
            end=np.where(single, end, np.maximum(np.minimum(end, last), self._start[place])),
            name=np.where(single, self._name[place], -1),
            sort=self._time[place].argmax(axis=1),
            lane=lane,
            source=np.where(single, self._source[place], -1),
            count=self._count[place],
        )


PARTS = 20

FOR_DETAIL = 0.7

Chunks = Callable[[], Iterator[RowTable]]
Stretch = tuple[int, int]


def chosen_rows(
    chunks: Chunks, number: int, lanes: int, window: TraceWindow, most: int
) -> tuple[RowTable, list[Stretch]]:
    """Return at most ``most`` rows (from four times the lanes) of the ``number`` that each call of ``chunks`` yields.

    With them are the stretches (start, end) in which every row is there; all of them: one stretch. Where there are
    more, some stretches are kept row by row with their launches: the slowest step, one of median length, then others
    from the first on. Elsewhere, rows that begin on one lane in one cell become one row, unless longer than it.
    """
    if number <= most:
        return together([*chunks(), RowTable.none()]), [(window.start, window.end)]
    detail = _detail(chunks, window, int(FOR_DETAIL * most))
    kept, long, cells = _parted(chunks, window, detail, lanes)
    room = most - sum(len(each) for each in kept)
    return together([*kept, *_fitting(long, cells, room)]), detail


def _detail(chunks: Chunks, window: TraceWindow, most: int) -> list[Stretch]:
    """Return the stretches that are kept in full, in order of time: as many as have ``most`` rows with launches."""
    starts, ends = _stretches(window)
    cost = np.zeros(len(starts), dtype=np.int64)
    for rows in chunks():
        cost += np.bincount(_place(starts, rows), weights=1.0 + _on_gpu(rows), minlength=len(starts)).astype(np.int64)
    order = _order(ends - starts)
    taken = []
    for each in order:
        if cost[each] <= most:
            taken.append(each)
            most -= int(cost[each])
    if taken:
        return sorted((int(starts[each]), int(ends[each])) for each in taken)
    times = np.concatenate([rows.start[_place(starts, rows) == order[0]] for rows in chunks()])
    end = int(np.partition(times, most // 2)[most // 2])
    return [(int(starts[order[0]]), end)] if end > starts[order[0]] else []


def _place(starts: Ints, rows: RowTable) -> Ints:
    """Return the stretch in which each row begins; what begins before the first is in it."""
    return np.maximum(np.searchsorted(starts, rows.start, side="right") - 1, 0)


def _on_gpu(rows: RowTable) -> Bools:
    return (rows.sort <= Sort.MEMSET) & (rows.source >= 0)


def _stretches(window: TraceWindow) -> tuple[Ints, Ints]:
    if len(window.steps):
        starts = window.steps.start
        return starts, np.append(starts[1:], max(window.end, int(starts[-1])))
    edges = np.linspace(window.start, window.end, PARTS + 1).astype(np.int64)
    return edges[:-1], edges[1:]


def _order(lengths: Ints) -> list[int]:
    """Return the slowest stretch, the one of median length, then the others in order of time."""
    by_length = np.argsort(lengths, kind="stable")
    first = [int(by_length[-1]), int(by_length[len(by_length) // 2])]
    return list(dict.fromkeys([*first, *range(len(lengths))]))


def _parted(
    chunks: Chunks, window: TraceWindow, detail: list[Stretch], lanes: int
) -> tuple[list[RowTable], list[RowTable], RowCells]:
    in_detail = Spans(*(np.array([each[side] for each in detail], dtype=np.int64) for side in (0, 1)))
    wanted = np.zeros(int(window.launch.max(initial=-1)) + 1, dtype=np.bool_)
    cells = RowCells(lanes, window.start, window.length)
    kept, long = [], []
    for rows in chunks():
        mask = in_detail.holds(rows.start)
        on_gpu = mask & _on_gpu(rows)
        launch = window.launch[rows.source[on_gpu]]
        wanted[launch[launch >= 0]] = True
        calls = np.flatnonzero((rows.sort == Sort.LAUNCH) & (rows.source < len(wanted)))
        mask[calls] |= wanted[rows.source[calls]]
        kept.append(rows.where(mask))
        is_long = ~mask & (rows.end - rows.start > cells.width)
        long.append(rows.where(is_long))
        cells.add(rows.where(~mask & ~is_long))
    return kept, long, cells


def _fitting(long: list[RowTable], cells: RowCells, most: int) -> list[RowTable]:
    """Return at most ``most`` rows for all of these: cells grow until they are few enough."""
    rest = together([*long, RowTable.none()])
    while len(rest) + len(cells) > most and cells.cells > 1:
        cells.double()
        is_long = rest.end - rest.start > cells.width
        cells.add(rest.where(~is_long))
        rest = rest.where(is_long)
    if len(rest) + len(cells) > most:
        cells.add(rest)
        rest = RowTable.none()
    return [rest, cells.table()]
