"""What time lines say in text: a row of numbers a node, and a line that needs no script."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import NOTHING, percent, rate
from trainguard.timeline.series import Band, NodeTimeline, Timelines, Values

FALLBACK_WIDTH = 1_000
FALLBACK_HEIGHT = 100
FALLBACK_POINTS = 250


@dataclass(frozen=True)
class Quantity:
    """Something that a node's time lines tell: its column's title, its parts, and how a value is written."""

    title: str
    bands: Callable[[NodeTimeline], Sequence[Band | None]]
    show: Callable[[float], str] = percent


@dataclass(frozen=True)
class NodeNumbers:
    """A node's row: its name, and a cell for each column."""

    node: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Numbers:
    """Lowest, mean and highest value of every quantity that was collected, a row a node."""

    columns: tuple[str, ...]
    rows: tuple[NodeNumbers, ...]


def show_moment(at: float) -> str:
    """Epoch seconds as ``2026-07-01 12:30:05``, UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


QUANTITIES = (
    Quantity("GPU utilization", lambda node: [each.utilization for each in node.gpus]),
    Quantity("GPU memory activity", lambda node: [each.memory for each in node.gpus]),
    Quantity("CPU", lambda node: [node.cpu]),
    Quantity("I/O wait", lambda node: [node.io_wait]),
    Quantity("Host memory", lambda node: [node.host_memory]),
    Quantity("Network", lambda node: [node.network], rate),
)


def node_numbers(timelines: Timelines) -> Numbers:
    """Sum every node up; a quantity that no node has is left out."""
    found = [each for each in QUANTITIES if any(band for node in timelines.nodes for band in each.bands(node))]
    rows = (
        NodeNumbers(shown_name(node.node), tuple(_cell(each, each.bands(node)) for each in found))
        for node in timelines.nodes
    )
    return Numbers(tuple(each.title for each in found), tuple(rows))


def _cell(quantity: Quantity, bands: Sequence[Band | None]) -> str:
    kept = [each for each in bands if each is not None]
    means = _present([each.mean for each in kept])
    if not means.size:
        return NOTHING
    values = _present([part for each in kept for part in (each.mean, each.low, each.high) if part is not None])
    return " / ".join(quantity.show(float(each)) for each in (values.min(), means.mean(), values.max()))


def _present(series: Sequence[Values]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([each for values in series for each in values if each is not None], np.float64)


def fallback_path(nodes: Sequence[NodeTimeline]) -> str:
    """Draw the mean utilization of all GPUs as the ``d`` of an SVG path, in a box of 1000 by 100."""
    series = [gpu.utilization.mean for node in nodes for gpu in node.gpus]
    if not series or not series[0]:
        return ""
    values = np.array([[np.nan if each is None else each for each in row] for row in series], np.float64)
    present = ~np.isnan(values)
    counts, sums = present.sum(axis=0), np.where(present, values, 0.0).sum(axis=0)
    edges = np.unique(np.linspace(0, counts.size, FALLBACK_POINTS, endpoint=False).astype(np.int64))
    counts, sums = np.add.reduceat(counts, edges), np.add.reduceat(sums, edges)
    return _path([None if not count else total / count for count, total in zip(counts, sums, strict=True)])


def _path(values: Values) -> str:
    """Draw a line with gaps where there is no value."""
    parts, drawing = [], False
    for index, value in enumerate(values):
        if value is not None:
            x, y = FALLBACK_WIDTH * (index + 0.5) / len(values), FALLBACK_HEIGHT - value
            parts.append(f"{'L' if drawing else 'M'}{x:.1f} {y:.1f}")
        drawing = value is not None
    return "".join(parts)
