"""The annotations of a rank by name: how long they last on the host and on the GPU."""

import re

import numpy as np

from trainguard.core.text import one_line
from trainguard.kernels.columns import Ints, Rows, Trace
from trainguard.kernels.document import AnnotationEntry
from trainguard.kernels.durations import durations
from trainguard.kernels.window import Window

MOST_VISITS = 200_000_000
"""Rows that are looked at to project annotations on the GPU; what is left then has no projection."""

_NUMBERED = re.compile(r"[#_\- ]?\d+$")


def annotations_of(trace: Trace, window: Window) -> list[AnnotationEntry]:
    marks, on_gpu = _grouped(trace, trace.annotations), _grouped(trace, trace.gpu_annotations)
    projection = _Projection(trace, window)
    found = []
    for name, rows in sorted(marks.items(), key=lambda item: -_total(trace.annotations, item[1])):
        host = durations(trace.annotations.end[rows] - trace.annotations.start[rows])
        if host is None:
            continue
        recorded = on_gpu.get(name)
        if recorded is None:
            lasted = projection.lasted(trace.annotations.start[rows], trace.annotations.end[rows])
        else:
            lasted = trace.gpu_annotations.end[recorded] - trace.gpu_annotations.start[recorded]
        gpu = durations(lasted)
        found.append(
            AnnotationEntry(
                name=one_line(name),
                count=host.count,
                total_ns=host.total_ns,
                min_ns=host.min_ns,
                median_ns=host.median_ns,
                max_ns=host.max_ns,
                host=host,
                gpu=gpu,
                gpu_source=None if gpu is None else "annotation" if recorded is not None else "kernels",
            )
        )
    return sorted(found, key=lambda each: (-each.total_ns, each.name))


def _grouped(trace: Trace, rows: Rows) -> dict[str, Ints]:
    order = np.argsort(rows.name, kind="stable")
    names, first = np.unique(rows.name[order], return_index=True)
    groups: dict[str, list[Ints]] = {}
    for name, places in zip(names.tolist(), np.split(order, first[1:]), strict=False):
        text = trace.names[name]
        groups.setdefault(_NUMBERED.sub("", text) or text, []).append(places)
    return {name: np.concatenate(places) for name, places in groups.items()}


def _total(rows: Rows, places: Ints) -> float:
    return float((rows.end[places] - rows.start[places]).sum(dtype=np.float64))


class _Projection:
    def __init__(self, trace: Trace, window: Window) -> None:
        known = np.flatnonzero(window.launch >= 0)
        launched = trace.launches.start[window.launch[known]]
        order = np.argsort(launched, kind="stable")
        self._launched = launched[order]
        self._start = trace.gpu.start[known][order]
        self._end = trace.gpu.end[known][order]
        self._left = MOST_VISITS

    def lasted(self, start: Ints, end: Ints) -> Ints:
        """Return how long stretches last on the GPU; those that launch nothing are left out."""
        first = np.searchsorted(self._launched, start, side="left")
        last = np.searchsorted(self._launched, end, side="left")
        some = last > first
        first, last = first[some], last[some]
        visits = int((last - first).sum(dtype=np.float64))
        if not len(first) or visits > self._left:
            return np.empty(0, dtype=np.int64)
        self._left -= visits
        return np.array(
            [
                self._end[one:other].max() - self._start[one:other].min()
                for one, other in zip(first.tolist(), last.tolist(), strict=True)
            ],
            dtype=np.int64,
        )
