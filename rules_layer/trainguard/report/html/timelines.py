"""The section of time lines: what its template, the page's script and the page's style need."""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from trainguard.render.blocks import Column, Table
from trainguard.render.names import shown_name
from trainguard.render.numbers import NOTHING, duration, percent, rate
from trainguard.report.html.episodes import Episode
from trainguard.report.html.islands import Threshold, timelines_island
from trainguard.report.html.page import joined_script, read_asset
from trainguard.report.timeline.digest import DEVICE_KINDS
from trainguard.report.timeline.series import Band, NodeTimeline, TimeAxis, TimelineDetail, Timelines, Values

FALLBACK_WIDTH = 1_000
FALLBACK_HEIGHT = 100
FALLBACK_POINTS = 250


Quantity = tuple[str, str, str, Callable[[NodeTimeline], Sequence[Band | None]]]
"""Kind, title and unit of a chart, and a node's bands in it."""

QUANTITIES: Sequence[Quantity] = (
    ("utilization", "GPU utilization", "%", lambda node: [each.utilization for each in node.gpus]),
    ("memory", "GPU memory activity", "%", lambda node: [each.memory for each in node.gpus]),
    ("cpu", "CPU", "%", lambda node: [node.cpu]),
    ("io_wait", "I/O wait", "%", lambda node: [node.io_wait]),
    ("host_memory", "Host memory", "%", lambda node: [node.host_memory]),
    ("network", "Network", "bytes per second", lambda node: [node.network]),
)


def node_numbers(timelines: Timelines) -> Table:
    """Sum every node up in a row; a quantity that no node has is left out."""
    found = [each for each in QUANTITIES if any(band for node in timelines.nodes for band in each[3](node))]
    rows = [
        [shown_name(node.node), *(_cell(bands(node), percent if unit == "%" else rate) for _, _, unit, bands in found)]
        for node in timelines.nodes
    ]
    columns = [Column("Node"), *(Column(title) for _, title, _, _ in found)]
    return Table("Lowest / mean / highest over the whole job", columns, rows if found else [])


def _cell(bands: Sequence[Band | None], write: Callable[[float], str]) -> str:
    kept = [each for each in bands if each is not None]
    means = _present([each.mean for each in kept])
    if not means.size:
        return NOTHING
    values = _present([part for each in kept for part in (each.mean, each.low, each.high) if part is not None])
    return " / ".join(write(float(each)) for each in (values.min(), means.mean(), values.max()))


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
    parts, drawing = [], False
    for index, value in enumerate(values):
        if value is not None:
            x, y = FALLBACK_WIDTH * (index + 0.5) / len(values), FALLBACK_HEIGHT - value
            parts.append(f"{'L' if drawing else 'M'}{x:.1f} {y:.1f}")
        drawing = value is not None
    return "".join(parts)


_SCRIPTS = (
    *("data", "format", "levels", "theme", "view", "series", "detail", "legend", "marks", "lines"),
    *("ramp", "rows", "heatdraw", "heatmap", "strip", "toolbar", "links", "keys", "print", "main"),
)
LINES_A_ROW = 5
_STYLES = ("uplot/uPlot.min.css", "timelines.css")
_ROWS_A_HEIGHT = (("s", 8), ("m", 16), ("l", 64))


Chart = tuple[str, str, str, bool, Sequence[Threshold]]
"""Kind, title and unit of a chart that the script draws, whether it has many lines, and its thresholds."""


def timelines_context(
    timelines: Timelines,
    *,
    started_at: float | None = None,
    episodes: Sequence[Episode] = (),
    thresholds: Sequence[Threshold] = (),
) -> dict[str, Any]:
    """Return the code, data and charts of the section; of what was not collected there is no chart and no column.

    ``gpus`` are the rows of the heat map, ``heat_height`` is the class of its height. ``fallback`` is empty without
    GPUs. ``scripts`` and ``styles`` hold nothing that ends their element.
    """
    gpus = sum(len(each.gpus) for each in timelines.nodes)
    steps = Counter(each.node for each in timelines.steps)
    charts = list(_charts(QUANTITIES, timelines.nodes, thresholds))
    if steps:
        tall = max(*steps.values(), len(timelines.nodes)) > LINES_A_ROW
        charts.append(("steps", "Step durations", "seconds", tall, [at for at in thresholds if at[0] == "steps"]))
    return {
        "scripts": timelines_script(),
        "styles": timelines_style(),
        "island": timelines_island(timelines, started_at=started_at, episodes=episodes, thresholds=thresholds),
        "charts": charts,
        "device_charts": list(_charts(_devices(), timelines.nodes, ())),
        "nodes": [shown_name(each.node) for each in timelines.nodes],
        "gpus": gpus,
        "heat_height": next((each for each, rows in _ROWS_A_HEIGHT if gpus <= rows), "xl"),
        "resolution": tuple(_resolution(timelines)),
        "phases": list(dict.fromkeys(each.kind for each in sorted(timelines.phases, key=lambda phase: phase.start))),
        "rules": list(dict.fromkeys(each["finding"].rule for each in episodes)),
        "numbers": node_numbers(timelines),
        "left_out": timelines.left_out,
        "fallback": fallback_path(timelines.nodes),
    }


def _charts(
    quantities: Iterable[Quantity], nodes: Sequence[NodeTimeline], thresholds: Sequence[Threshold]
) -> Iterator[Chart]:
    for kind, title, unit, bands in quantities:
        of_nodes = [bands(node) for node in nodes]
        if any(band for each in of_nodes for band in each):
            tall = max(len(nodes), *map(len, of_nodes)) > LINES_A_ROW
            yield kind, title, unit, tall, [at for at in thresholds if at[0] == kind]


def _devices() -> Iterator[Quantity]:
    def bands(kind: str, node: NodeTimeline) -> list[Band]:
        return [each.band for each in node.devices if each.kind == kind]

    return ((kind, title, unit, functools.partial(bands, kind)) for kind, (title, unit, _) in DEVICE_KINDS.items())


@functools.cache
def timelines_script() -> str:
    """Give uPlot, then the page's own files and the section's in one function, so that no name of theirs is global.

    uPlot reads ``navigator.language`` as it loads; ``en-US@posix`` (``LANG=C``) is no language tag, and it would throw.
    """
    plot = read_asset("uplot/uPlot.iife.min.js")
    own = joined_script(f"timelines/{each}.js" for each in _SCRIPTS)
    return f'const uPlot = ((navigator) => {{\n{plot}\nreturn uPlot;\n}})({{ language: "en-US" }});\n{own}'


@functools.cache
def timelines_style() -> str:
    return "\n".join(read_asset(each) for each in _STYLES)


def _resolution(timelines: Timelines) -> Iterator[str]:
    axis, detail = timelines.axis, timelines.detail
    yield f"A value covers {axis.bucket_s:g} s over the whole job."
    if not detail:
        return
    finer = detail[0].axis.bucket_s
    steps = " Step durations stay as they are." if timelines.steps else ""
    if len(detail) == 1 and _covers(detail[0].axis, axis):
        yield f"Zoom in, and it covers {finer:g} s.{steps}"
    else:
        held = duration(sum(each.axis.buckets * each.axis.bucket_s for each in detail))
        yield f"Zoom in on an episode, and it covers {finer:g} s: for {held} around {_stretches(detail)}.{steps}"


def _stretches(detail: Sequence[TimelineDetail]) -> str:
    return "the onset of one" if len(detail) == 1 else f"the onsets, in {len(detail)} stretches"


def _covers(fine: TimeAxis, whole: TimeAxis) -> bool:
    end, fine_end = (each.start + each.buckets * each.bucket_s for each in (whole, fine))
    return fine.start <= whole.start + whole.bucket_s and fine_end >= end - whole.bucket_s
