"""The section of time lines: what its template, the page's script and the page's style need."""

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainguard.render.blocks import Column, Table
from trainguard.render.names import shown_name
from trainguard.render.numbers import NOTHING, duration, percent, rate
from trainguard.report.html.episodes import Episode
from trainguard.report.html.islands import ISLAND, Threshold, timelines_island
from trainguard.report.html.page import joined_script, read_asset
from trainguard.report.timeline.device_kinds import KIND_LIMITS
from trainguard.report.timeline.series import Band, NodeTimeline, Phase, TimeAxis, TimelineDetail, Timelines, Values

FALLBACK_WIDTH = 1_000
FALLBACK_HEIGHT = 100
FALLBACK_POINTS = 250


@dataclass(frozen=True)
class Quantity:
    """Something that a node's time lines tell: its column's title, its parts, and how a value is written."""

    title: str
    bands: Callable[[NodeTimeline], Sequence[Band | None]]
    show: Callable[[float], str] = percent


QUANTITIES = (
    Quantity("GPU utilization", lambda node: [each.utilization for each in node.gpus]),
    Quantity("GPU memory activity", lambda node: [each.memory for each in node.gpus]),
    Quantity("CPU", lambda node: [node.cpu]),
    Quantity("I/O wait", lambda node: [node.io_wait]),
    Quantity("Host memory", lambda node: [node.host_memory]),
    Quantity("Network", lambda node: [node.network], rate),
)


def node_numbers(timelines: Timelines) -> Table:
    """Sum every node up in a row; a quantity that no node has is left out."""
    found = [each for each in QUANTITIES if any(band for node in timelines.nodes for band in each.bands(node))]
    rows = [[shown_name(node.node), *(_cell(each, each.bands(node)) for each in found)] for node in timelines.nodes]
    columns = [Column("Node"), *(Column(each.title) for each in found)]
    return Table("Lowest / mean / highest over the whole job", columns, rows if found else [])


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
    parts, drawing = [], False
    for index, value in enumerate(values):
        if value is not None:
            x, y = FALLBACK_WIDTH * (index + 0.5) / len(values), FALLBACK_HEIGHT - value
            parts.append(f"{'L' if drawing else 'M'}{x:.1f} {y:.1f}")
        drawing = value is not None
    return "".join(parts)


_SCRIPTS = (
    "data.js",
    "format.js",
    "levels.js",
    "theme.js",
    "view.js",
    "series.js",
    "detail.js",
    "legend.js",
    "marks.js",
    "lines.js",
    "ramp.js",
    "rows.js",
    "heatdraw.js",
    "heatmap.js",
    "strip.js",
    "toolbar.js",
    "links.js",
    "keys.js",
    "print.js",
    "main.js",
)
LINES_A_ROW = 5
_DEVICE_KINDS = frozenset(KIND_LIMITS)
_STYLES = ("uplot/uPlot.min.css", "timelines.css")
_ROWS_A_HEIGHT = (("s", 8), ("m", 16), ("l", 64))


@dataclass(frozen=True)
class Chart:
    """A chart that the script draws; ``thresholds`` are the lines that it has."""

    kind: str
    title: str
    unit: str
    tall: bool = False
    thresholds: tuple[Threshold, ...] = ()


@dataclass(frozen=True)
class TimelinesContext:
    """The code, data and charts of the section of time lines.

    ``data`` is JSON text by data island, ``gpus`` the rows of the heat map, and ``heat_height`` the class of its
    height. ``fallback`` is empty without GPUs. ``scripts`` and ``styles`` hold nothing that ends their element.
    """

    scripts: str
    styles: str
    data: Mapping[str, str]
    charts: tuple[Chart, ...]
    device_charts: tuple[Chart, ...]
    nodes: tuple[str, ...]
    gpus: int
    heat_height: str
    resolution: tuple[str, ...]
    phases: tuple[str, ...]
    rules: tuple[str, ...]
    numbers: Table
    left_out: tuple[str, ...]
    fallback: str


CHARTS = (
    Chart("utilization", "GPU utilization", "%"),
    Chart("memory", "GPU memory activity", "%"),
    Chart("cpu", "CPU", "%"),
    Chart("io_wait", "I/O wait", "%"),
    Chart("host_memory", "Host memory", "%"),
    Chart("network", "Network", "bytes per second"),
    Chart("steps", "Step durations", "seconds"),
)
DEVICE_CHARTS = (
    Chart("sm_activity", "SM activity", "%"),
    Chart("memory_used", "GPU memory in use", "%"),
    Chart("tensor_activity", "Tensor core activity", "%"),
    Chart("dram_activity", "Use of GPU memory's bandwidth", "%"),
    Chart("sm_occupancy", "SM occupancy", "%"),
    Chart("power", "GPU power", "watts"),
    Chart("sm_clock", "SM clock", "MHz"),
    Chart("temperature", "GPU temperature", "°C"),
    Chart("nvlink", "NVLink, both directions", "bytes per second"),
    Chart("pcie", "PCIe, both directions", "bytes per second"),
)


def timelines_context(
    timelines: Timelines,
    *,
    started_at: float | None = None,
    episodes: Sequence[Episode] = (),
    thresholds: Sequence[Threshold] = (),
) -> TimelinesContext:
    """Prepare ``timelines`` for the page; of what was not collected there is no chart and no column."""
    gpus = sum(len(each.gpus) for each in timelines.nodes)
    return TimelinesContext(
        scripts=timelines_script(),
        styles=timelines_style(),
        data={
            ISLAND: timelines_island(timelines, started_at=started_at, episodes=episodes, thresholds=thresholds),
        },
        charts=tuple(_prepared(each, timelines, thresholds) for each in CHARTS if _has(each.kind, timelines)),
        device_charts=tuple(_prepared(each, timelines, ()) for each in DEVICE_CHARTS if _has(each.kind, timelines)),
        nodes=tuple(shown_name(each.node) for each in timelines.nodes),
        gpus=gpus,
        heat_height=next((each for each, rows in _ROWS_A_HEIGHT if gpus <= rows), "xl"),
        resolution=tuple(_resolution(timelines)),
        phases=_phase_kinds(timelines.phases),
        rules=tuple(dict.fromkeys(each.finding.rule for each in episodes)),
        numbers=node_numbers(timelines),
        left_out=tuple(timelines.left_out),
        fallback=fallback_path(timelines.nodes),
    )


@functools.cache
def timelines_script() -> str:
    """Give uPlot, then the page's own files and the section's in one function, so that no name of theirs is global.

    uPlot reads ``navigator.language`` as it loads; ``en-US@posix`` (``LANG=C``) is no language tag, and it would throw.
    """
    plot = read_asset("uplot/uPlot.iife.min.js")
    own = joined_script(f"timelines/{each}" for each in _SCRIPTS)
    return f'const uPlot = ((navigator) => {{\n{plot}\nreturn uPlot;\n}})({{ language: "en-US" }});\n{own}'


@functools.cache
def timelines_style() -> str:
    """Give the style of uPlot, then the section's own."""
    return "\n".join(read_asset(each) for each in _STYLES)


def _has(kind: str, timelines: Timelines) -> bool:
    if kind == "steps":
        return bool(timelines.steps)
    return any(_has_band(kind, each) for each in timelines.nodes)


def _has_band(kind: str, node: NodeTimeline) -> bool:
    if kind == "utilization":
        return bool(node.gpus)
    if kind == "memory":
        return any(each.memory is not None for each in node.gpus)
    if kind in _DEVICE_KINDS:
        return any(each.kind == kind for each in node.devices)
    return getattr(node, kind) is not None


def _prepared(chart: Chart, timelines: Timelines, thresholds: Sequence[Threshold]) -> Chart:
    if chart.kind in _DEVICE_KINDS:
        own = max(sum(each.kind == chart.kind for each in node.devices) for node in timelines.nodes)
    elif chart.kind in ("utilization", "memory"):
        own = max(len(each.gpus) for each in timelines.nodes)
    elif chart.kind == "steps":
        own = max(Counter(each.node for each in timelines.steps).values())
    else:
        own = 2
    lines = tuple(each for each in thresholds if each.chart == chart.kind)
    return replace(chart, tall=max(own, len(timelines.nodes)) > LINES_A_ROW, thresholds=lines)


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


def _phase_kinds(phases: Sequence[Phase]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.kind for each in sorted(phases, key=lambda phase: phase.start)))
