"""The picture at the head of the page: GPUs over time as colours, and below it a lane for each finding's episodes.

It is drawn here, not by the script, so that it is there without one and on paper. Places on it are in percent of its
width.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

import numpy as np
from markupsafe import Markup

from trainguard.finding import EpisodeEntry
from trainguard.report.document import FindingEntry, Report
from trainguard.report.html.episodes import Episode
from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import duration, elapsed, money
from trainguard.report.html.overview import SEVERITIES
from trainguard.report.html.plots.svg import at, element, text, title
from trainguard.report.html.png import Pixels, png_url
from trainguard.timeline.series import NodeTimeline, Timelines
from trainguard.timestamps import epoch_of

MOST_COLUMNS = 480
MOST_ROWS = 64
MOST_LANES = 3
"""Findings in the picture; the others are counted, and stand in the table of rules."""

ROW_HEIGHT, LEAST_HEIGHT, MOST_HEIGHT = 11, 33, 112
NAME_HEIGHT = 16
LANE_HEIGHT = 20
AXIS_HEIGHT = 30
LEAST_BAR = 0.5
"""Narrowest bar, percent of the width."""

SHADES = 100
_CLEAR = SHADES + 1
_VIRIDIS = (
    (68, 1, 84),
    (71, 45, 123),
    (59, 82, 139),
    (44, 114, 142),
    (33, 145, 140),
    (40, 174, 128),
    (94, 201, 98),
    (173, 220, 48),
    (253, 231, 37),
)
_TICK_STEPS_S = (
    *(1, 5, 15, 30),
    *(length * 60 for length in (1, 2, 5, 10, 15, 30)),
    *(length * 3_600 for length in (1, 2, 3, 6, 12, 24, 48, 168, 336, 672)),
)
_MOST_TICKS = 6


Grid = np.ndarray[tuple[int, int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the picture: a GPU, or the lowest one of some nodes."""

    nodes: tuple[str, ...]
    gpu: str | None = None

    def is_of(self, entry: EpisodeEntry) -> bool:
        """Whether an episode was here: on its GPUs where it names some and a row is one, else on its nodes."""
        if self.gpu is not None and entry.gpus:
            return f"{self.nodes[0]}/{self.gpu}" in entry.gpus or (
                entry.node == self.nodes[0] and self.gpu in entry.gpus
            )
        return not set(self.nodes).isdisjoint(entry.nodes)


@dataclass(frozen=True, slots=True)
class Lane:
    """A finding in the picture: its episodes as bars, and beside them where, since when, how long and what it cost."""

    finding: FindingEntry
    bars: Markup
    where: str
    first: Episode
    how_much: Sequence[str]


@dataclass(frozen=True, slots=True)
class Picture:
    """What the head shows of where and when.

    Attributes
    ----------
    start, end : str
        The time that it covers, ISO 8601.
    heat : Markup or None
        The GPUs; None without time lines.
    names : Markup or None
        The nodes beside their rows, where there are few.
    rows : str
        What a row of it is.
    axis : Markup
    lanes : sequence of Lane
    more : int
        Findings that have no lane.
    """

    start: str
    end: str
    heat: Markup | None
    names: Markup | None
    rows: str
    axis: Markup
    lanes: Sequence[Lane]
    more: int


@dataclass(frozen=True, slots=True)
class _Span:
    start: float
    end: float

    def at(self, time: float) -> float:
        """Return the place of a time, 0 to 100."""
        return 100.0 * min(max((time - self.start) / (self.end - self.start), 0.0), 1.0)


def picture_of(report: Report, episodes: Mapping[str, Sequence[Episode]]) -> Picture | None:
    """Draw the picture; None of a job of whose time nothing is known, or that has neither GPUs nor an episode."""
    span = _span(report)
    # What a rule explains has its cause's times: the others have the first lanes.
    shown = [finding for finding in report.findings if episodes.get(finding.rule)]
    found = sorted(shown, key=lambda finding: finding.explained_by is not None)
    gpus = [] if report.timelines is None else [gpu for node in report.timelines.nodes for gpu in node.gpus]
    if span is None or not (found or gpus):
        return None
    every = [each for finding in found for each in episodes[finding.rule]]
    heat, names, rows = (
        (None, None, "") if report.timelines is None or not gpus else _heat(report.timelines, span, every)
    )
    return Picture(
        start=_iso(span.start),
        end=_iso(span.end),
        heat=heat,
        names=names,
        rows=rows,
        axis=_axis(span, report.job.started_at),
        lanes=[_lane(report, finding, episodes[finding.rule], span) for finding in found[:MOST_LANES]],
        more=max(len(found) - MOST_LANES, 0),
    )


def _iso(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _span(report: Report) -> _Span | None:
    """Return what the time lines cover, or the job's time where there are none."""
    if report.timelines is not None:
        axis = report.timelines.axis
        return _Span(axis.start, axis.start + axis.buckets * axis.bucket_s)
    start, end = report.job.started_at, report.job.ended_at or report.job.evaluated_through
    if start is None or end is None or epoch_of(end) <= epoch_of(start):
        return None
    return _Span(epoch_of(start), epoch_of(end))


def _heat(timelines: Timelines, span: _Span, episodes: Sequence[Episode]) -> tuple[Markup, Markup | None, str]:
    nodes = [node for node in timelines.nodes if node.gpus]
    grid, rows, what = _grid(nodes)
    height = min(max(ROW_HEIGHT * len(rows), LEAST_HEIGHT), MOST_HEIGHT)
    image = element(
        "image",
        href=png_url(_pixels(grid), _palette()),
        width="100%",
        height=height,
        preserveAspectRatio="none",
        class_="cells",
    )
    marks = [mark for each in episodes for mark in _outlines(each, rows, span, height)]
    said = f"Utilization of the GPUs over time, {what}; the time lines below show it large"
    drawn = element("svg", title(said), image, *marks, class_="heat-strip", width="100%", height=height, role="img")
    return drawn, _names(rows, height), what


def _names(rows: Sequence[_Row], height: float) -> Markup | None:
    """Write the nodes beside the middle of their rows; None where there are too many."""
    owners = [row.nodes for row in rows]
    names = list(dict.fromkeys(owners))
    if any(len(name) > 1 for name in names) or len(names) > height / NAME_HEIGHT:
        return None
    each = height / len(owners)
    middles = {name: each * (owners.index((name,)) + owners.count((name,)) / 2.0) for (name,) in names}
    texts = [text(shown_name(name, 20), x="100%", y=y + 4, text_anchor="end") for name, y in middles.items()]
    return element("svg", *texts, class_="row-names", width="100%", height=height, aria_hidden="true")


def _grid(nodes: Sequence[NodeTimeline]) -> tuple[Grid, list[_Row], str]:
    """Return percent by row and bucket, the nodes of each row, and what a row is."""
    values = [
        np.array([[np.nan if each is None else each for each in gpu.utilization.mean] for gpu in node.gpus])
        for node in nodes
    ]
    gpus = sum(len(held) for held in values)
    if gpus <= MOST_ROWS:
        rows = [_Row((node.node,), gpu.gpu) for node in nodes for gpu in node.gpus]
        return np.concatenate(values), rows, "a row is a GPU" if gpus > 1 else "one GPU"
    lowest = np.array([np.fmin.reduce(held, axis=0) for held in values])
    size = math.ceil(len(lowest) / MOST_ROWS)
    firsts = range(0, len(lowest), size)
    joined = np.array([np.fmin.reduce(lowest[first : first + size], axis=0) for first in firsts])
    groups = [_Row(tuple(node.node for node in nodes[first : first + size])) for first in firsts]
    what = "a row is the lowest GPU of a node" if size == 1 else f"a row is the lowest GPU of {size} nodes"
    return joined, groups, what


def _pixels(grid: Grid) -> Pixels:
    """Join neighbours until there are few enough columns, and round to a shade."""
    size = math.ceil(grid.shape[1] / MOST_COLUMNS)
    edges = np.arange(0, grid.shape[1], size)
    there = ~np.isnan(grid)
    counts = np.add.reduceat(there, edges, axis=1, dtype=np.int64)
    sums = np.add.reduceat(np.where(there, grid, 0.0), edges, axis=1)
    means = sums / np.maximum(counts, 1)
    shades = np.rint(np.clip(means, 0.0, 100.0) * SHADES / 100.0)
    return np.where(counts > 0, shades, _CLEAR).astype(np.uint8)


def _palette() -> list[tuple[int, int, int]]:
    places = np.linspace(0.0, len(_VIRIDIS) - 1.0, SHADES + 1)
    channels = [np.interp(places, range(len(_VIRIDIS)), [colour[i] for colour in _VIRIDIS]) for i in range(3)]
    return [(round(red), round(green), round(blue)) for red, green, blue in zip(*channels, strict=True)]


def _outlines(episode: Episode, rows: Sequence[_Row], span: _Span, height: float) -> list[Markup]:
    """Draw a frame around an episode's rows, one around rows that follow one another."""
    begin, end = span.at(episode.start), span.at(episode.until)
    width, each = max(end - begin, LEAST_BAR), height / len(rows)
    owned = [row.is_of(episode.entry) for row in rows]
    frames = []
    for is_owned, run in groupby(range(len(rows)), key=owned.__getitem__):
        places = list(run)
        if is_owned:
            top, tall = each * places[0] + 1, max(each * len(places) - 2, 1.0)
            frames += [
                element("rect", x=at(begin), width=at(width), y=top, height=tall, class_=kind)
                for kind in ("frame-dark", "frame-light")
            ]
    return frames


def _lane(report: Report, finding: FindingEntry, episodes: Sequence[Episode], span: _Span) -> Lane:
    bars = []
    for each in episodes:
        begin, end = span.at(each.start), span.at(each.until)
        said = f"{each.place}, {each.into}, {each.lasted}"
        bar = element("rect", title(said), x=at(begin), width=at(max(end - begin, LEAST_BAR)), y=4, height=12, rx=2)
        bars.append(bar)
    told = "; ".join(f"{each.into} for {each.lasted} on {each.place}" for each in episodes)
    named = title(f"{shown_name(finding.rule)}: {told}")
    line = element("line", x1="0%", x2="100%", y1=10, y2=10, class_="lane-line")
    drawn = element(
        "svg",
        named,
        line,
        *bars,
        class_=f"lane-bars {SEVERITIES.get(finding.severity, 'idle')}",
        width="100%",
        height=LANE_HEIGHT,
        role="img",
    )
    count = len(episodes) + finding.earlier_episodes
    lasted = duration(sum(each.span_s for each in episodes))
    parts = [f"{count} episodes", lasted] if count > 1 else [lasted]
    if finding.cost is not None:
        parts.append(money(finding.cost.lost, report.cost.currency))
    places = list(dict.fromkeys(each.place for each in episodes))
    where = places[0] if len(places) == 1 else f"{places[0]}, and {len(places) - 1} more"
    return Lane(finding, drawn, where, episodes[0], parts)


def _axis(span: _Span, started_at: str | None) -> Markup:
    """Write the time of day, which the script may change to another zone, and below it the time since the start."""
    step = next((each for each in _TICK_STEPS_S if (span.end - span.start) / each <= _MOST_TICKS), _TICK_STEPS_S[-1])
    origin = span.start if started_at is None else epoch_of(started_at)
    parts = []
    first = math.ceil(span.start / step)
    for index in range(first, math.floor(span.end / step) + 1):
        time = float(index * step)
        place = span.at(time)
        anchor = "start" if place < 4.0 else "end" if place > 96.0 else "middle"
        clock = datetime.fromtimestamp(time, UTC)
        parts.append(element("line", x1=at(place), x2=at(place), y1=0, y2=4, class_="axis"))
        shown = f"{clock:%H:%M}" if step >= 60 else f"{clock:%H:%M:%S}"
        parts.append(text(shown, x=at(place), y=14, text_anchor=anchor, class_="tick-clock", data_at=f"{time:.0f}"))
        into = elapsed(time - origin) if step < 60 else elapsed(60.0 * round((time - origin) / 60.0))[:-3]
        parts.append(text(into, x=at(place), y=27, text_anchor=anchor, class_="tick-into"))
    return element("svg", *parts, class_="time-axis", width="100%", height=AXIS_HEIGHT, aria_hidden="true")
