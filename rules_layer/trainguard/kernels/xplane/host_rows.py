"""Events of the host's planes to rows: steps and annotations, calls of the driver, operators."""

import re
from functools import lru_cache
from typing import Any

from trainguard.kernels.builder import Columns, TraceBuilder
from trainguard.kernels.driver_calls import call_name, is_call
from trainguard.kernels.values import ints, whole
from trainguard.kernels.xplane.lines import Batch
from trainguard.kernels.xplane.planes import Plane

_WANTED = ("correlation_id", "step_num", "hlo_op", "tf_op", "_src", "allocator_name", "peak_bytes_in_use")
_ALLOCATOR = re.compile(r"GPU_(\d{1,9})_bfc")
_LOADER = ("IteratorGetNext",)
_OF_RUNTIME = re.compile(r"TFE_|Eager|Executor|Prefetch|Parallel|PjRt|PJRT|Xla|Thunk|Memory(?:Dea|A)llocation|Kernel")
_IGNORED = ("$", "ThreadpoolListener")
"""Python's own calls, and marks of the thread pool."""


class HostPlane:
    """Adds the host's events to a trace."""

    def __init__(self, plane: Plane, builder: TraceBuilder) -> None:
        self._plane = plane
        self._builder = builder
        self._wanted = {number: name for number, name in plane.stat_names.items() if name in _WANTED}

    def add(self, batch: Batch) -> None:
        """Add what ran on a thread."""
        names = self._builder.names
        lane = names.number(batch.line)
        lasts = (batch.end > batch.start).tolist()
        sorted_in: dict[str, list[tuple[int, str, int, int]]] = {}
        for place, event in enumerate(batch.events):
            name = self._plane.event_names.get(event.metadata_id, "")
            stats = self._plane.values(event.stats, self._wanted)
            if name == "MemoryAllocation":
                self._reserve(stats, int(batch.start[place]))
            sort, shown = _sorted_in(name, stats)
            if sort != "launches" and not lasts[place]:
                continue
            operator = stats.get("hlo_op") or stats.get("tf_op")
            number = names.number(operator) if operator else -1
            correlation = whole(stats.get("correlation_id", -1)) if sort == "launches" else -1
            sorted_in.setdefault(sort, []).append((place, shown, correlation, number))
            if sort == "launches" and operator:
                sorted_in.setdefault("operators", []).append((place, str(operator), -1, number))
        for sort, rows in sorted_in.items():
            if sort:
                self._add(sort, batch, lane, rows)

    def _add(self, sort: str, batch: Batch, lane: int, rows: list[tuple[int, str, int, int]]) -> None:
        places = [row[0] for row in rows]
        no_type = self._builder.names.number("")
        self._builder.add(
            sort,
            Columns(
                start=batch.start[places],
                end=batch.end[places],
                name=self._builder.names.of([row[1] for row in rows]),
                lane=ints([lane] * len(rows)),
                correlation=ints([no_type if sort == "operators" else row[2] for row in rows]),
                operator=ints([row[3] for row in rows]),
            ),
        )

    def _reserve(self, stats: dict[str, Any], at: int) -> None:
        """Note the most bytes in use: XLA reserves most of the memory at once, whether it needs it or not."""
        allocator = _ALLOCATOR.fullmatch(str(stats.get("allocator_name", "")))
        if allocator:
            self._builder.reserve(int(allocator[1]), max(whole(stats.get("peak_bytes_in_use")), 0), at)


def _sorted_in(name: str, stats: dict[str, Any]) -> tuple[str, str]:
    """Return the sort of a row, empty for one that is not read, and the name that it is shown by."""
    if "step_num" in stats:
        return "annotations", f"ProfilerStep#{max(whole(stats['step_num']), 0)}"
    if "correlation_id" in stats or is_call(name):
        return "launches", call_name(name)
    return _by_name(name, known="_src" in stats or "hlo_op" in stats), name


@lru_cache(maxsize=16_384)
def _by_name(name: str, *, known: bool) -> str:
    if name.startswith(_IGNORED):
        return ""
    if name.startswith(_LOADER):
        return "annotations"
    return "operators" if known or ":" in name or _OF_RUNTIME.match(name) else "annotations"
