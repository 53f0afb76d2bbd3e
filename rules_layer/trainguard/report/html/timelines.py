"""The section of time lines: what its template, the page's script and the page's style need.

``templates/timelines.html.j2`` is included with a TimelinesContext under the name ``timelines``; it writes the data
islands itself. ``scripts`` and ``styles`` belong into the page's one script, at the end of its body, and its one style.
"""

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from trainguard.report.html.episodes import Episode
from trainguard.report.html.islands import ISLAND, timelines_island
from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import duration
from trainguard.report.html.scripts import joined_script, read_asset
from trainguard.report.html.thresholds import Threshold
from trainguard.report.html.timeline_text import Numbers, fallback_path, node_numbers
from trainguard.timeline.device_kinds import KIND_LIMITS
from trainguard.timeline.series import NodeTimeline, Phase, TimeAxis, TimelineDetail, Timelines

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
    """A chart that the script draws: its name there, its title and unit, and whether its legend has two rows.

    ``thresholds`` are the lines that it has.
    """

    kind: str
    title: str
    unit: str
    tall: bool = False
    thresholds: tuple[Threshold, ...] = ()


@dataclass(frozen=True)
class TimelinesContext:
    """What the page is made of.

    Attributes
    ----------
    scripts, styles : str
        The whole code, uPlot's included; neither holds anything that ends its element.
    data : Mapping
        JSON text by the id of its data island; it may stand in a script element as it is.
    charts : tuple of Chart
        Those of which there is something to show, in order; ``device_charts`` are those of further series.
    nodes : tuple of str
        Names as shown; their places are the values of the node selector.
    gpus : int
        How many rows the heat map has; ``heat_height`` is the class of its height.
    resolution : tuple of str
        Sentences on how long a bucket is, of the whole job and where a shorter one is held.
    phases : tuple of str
        The kinds of phases that there are, in order of time.
    rules : tuple of str
        The rules that have episodes: each has a lane.
    fallback : str
        Path of the mean utilization over all GPUs, empty where there are none.
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
    numbers: Numbers
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
"""Of further series; they stand below the others, folded, and are drawn when they are opened."""


def timelines_context(
    timelines: Timelines,
    *,
    started_at: float | None = None,
    episodes: Sequence[Episode] = (),
    thresholds: Sequence[Threshold] = (),
) -> TimelinesContext:
    """Prepare ``timelines`` for the page; of what was not collected there is no chart and no column.

    Parameters are those of `timelines_island`.
    """
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
    """Give uPlot, then the page's own files and the section's in one function, so that no name of theirs is global."""
    return f"{read_asset('uplot/uPlot.iife.min.js')}\n{joined_script(f'timelines/{each}' for each in _SCRIPTS)}"


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
    """Give a chart its thresholds, and reserve the legend's room for the view of the job and of each node."""
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
    """Say how long a bucket is, and of which time the page holds shorter ones."""
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
