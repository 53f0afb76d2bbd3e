"""The section of time lines: what its template, the page's script and the page's style need.

``templates/timelines.html.j2`` is included with a TimelinesContext under the name ``timelines``; it writes the data
islands itself. ``scripts`` and ``styles`` belong into the page's one script, at the end of its body, and its one style.
"""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainguard.report.html.islands import ISLAND, timelines_island
from trainguard.report.html.names import shown_name
from trainguard.report.html.timeline_text import (
    FireShown,
    Numbers,
    fallback_path,
    fires_shown,
    node_numbers,
    show_moment,
)
from trainguard.timeline.series import NodeTimeline, Phase, TimeAxis, Timelines

_ASSETS = Path(__file__).parent.parent / "assets"
_SCRIPTS = (
    "data.js",
    "format.js",
    "theme.js",
    "view.js",
    "series.js",
    "detail.js",
    "legend.js",
    "lines.js",
    "ramp.js",
    "rows.js",
    "heatdraw.js",
    "heatmap.js",
    "strip.js",
    "toolbar.js",
    "keys.js",
    "print.js",
    "main.js",
)
LINES_A_ROW = 5
_STYLES = ("uplot/uPlot.min.css", "timelines.css")
_ROWS_A_HEIGHT = (("s", 8), ("m", 16), ("l", 64))


@dataclass(frozen=True)
class Chart:
    """A chart that the script draws: its name there, its title and unit, and whether its legend has two rows."""

    kind: str
    title: str
    unit: str
    tall: bool = False


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
        Those of which there is something to show, in order.
    nodes : tuple of str
        Names as shown; their places are the values of the node selector.
    gpus : int
        How many rows the heat map has; ``heat_height`` is the class of its height.
    covers : str
        From when to when, and how long a bucket is.
    phases : tuple of str
        The kinds of phases that there are, in order of time.
    fallback : str
        Path of the mean utilization over all GPUs, empty where there are none.
    """

    scripts: str
    styles: str
    data: Mapping[str, str]
    charts: tuple[Chart, ...]
    nodes: tuple[str, ...]
    gpus: int
    heat_height: str
    covers: str
    phases: tuple[str, ...]
    fires: tuple[FireShown, ...]
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


def timelines_context(timelines: Timelines) -> TimelinesContext:
    """Prepare ``timelines`` for the page; of what was not collected there is no chart and no column."""
    gpus = sum(len(each.gpus) for each in timelines.nodes)
    return TimelinesContext(
        scripts=timelines_script(),
        styles=timelines_style(),
        data={ISLAND: timelines_island(timelines)},
        charts=tuple(_with_legend(each, timelines) for each in CHARTS if _has(each.kind, timelines)),
        nodes=tuple(shown_name(each.node) for each in timelines.nodes),
        gpus=gpus,
        heat_height=next((each for each, rows in _ROWS_A_HEIGHT if gpus <= rows), "xl"),
        covers=_covers(timelines.axis),
        phases=_phase_kinds(timelines.phases),
        fires=fires_shown(timelines.marks),
        numbers=node_numbers(timelines),
        left_out=tuple(timelines.left_out),
        fallback=fallback_path(timelines.nodes),
    )


@functools.cache
def timelines_script() -> str:
    """Give uPlot, then the section's files in one strict function, so that no name of theirs is global."""
    library = _read("uplot/uPlot.iife.min.js")
    files = "\n".join(_read(f"timelines/{each}") for each in _SCRIPTS)
    return f'{library}\n(() => {{\n"use strict";\n{files}\n}})();\n'


@functools.cache
def timelines_style() -> str:
    """Give the style of uPlot, then the section's own."""
    return "\n".join(_read(each) for each in _STYLES)


def _read(file: str) -> str:
    return (_ASSETS / file).read_text(encoding="utf-8")


def _has(kind: str, timelines: Timelines) -> bool:
    if kind == "steps":
        return bool(timelines.steps)
    return any(_has_band(kind, each) for each in timelines.nodes)


def _has_band(kind: str, node: NodeTimeline) -> bool:
    if kind == "utilization":
        return bool(node.gpus)
    if kind == "memory":
        return any(each.memory is not None for each in node.gpus)
    return getattr(node, kind) is not None


def _with_legend(chart: Chart, timelines: Timelines) -> Chart:
    """Reserve the legend's room for the view of the job, and for that of each node."""
    if chart.kind in ("utilization", "memory"):
        own = max(len(each.gpus) for each in timelines.nodes)
    elif chart.kind == "steps":
        own = max(Counter(each.node for each in timelines.steps).values())
    else:
        own = 2
    return replace(chart, tall=max(own, len(timelines.nodes)) > LINES_A_ROW)


def _covers(axis: TimeAxis) -> str:
    end = axis.start + axis.buckets * axis.bucket_s
    return f"{show_moment(axis.start)} to {show_moment(end)} UTC, a value each {axis.bucket_s:g} s"


def _phase_kinds(phases: Sequence[Phase]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.kind for each in sorted(phases, key=lambda phase: phase.start)))
