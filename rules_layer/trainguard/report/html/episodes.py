"""The episodes of the findings, and the picture at the page's head: GPUs over time, and a lane for each finding.

The picture's template draws it, so that it is there without a script and on paper. Places are in percent of its width.
"""

import base64
import math
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count, groupby
from typing import Any

import numpy as np

from trainguard.core.finding import EpisodeEntry
from trainguard.core.timestamps import epoch_of
from trainguard.core.units import listed
from trainguard.render.numbers import NOTHING, duration, elapsed, money, quantity, shown_name
from trainguard.render.plots.scale import Scale
from trainguard.render.rule_entry import RuleEntry
from trainguard.report.document import Report
from trainguard.report.timeline.series import NodeTimeline

Palette = Sequence[tuple[int, int, int]]
Pixels = np.ndarray[tuple[int, int], np.dtype[np.uint8]]

VIRIDIS: Palette = (
    *((68, 1, 84), (71, 45, 123), (59, 82, 139)),
    *((44, 114, 142), (33, 145, 140), (40, 174, 128)),
    *((94, 201, 98), (173, 220, 48), (253, 231, 37)),
)
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PALETTE_COLOURS = 3
_LEVEL = 9


def png_url(pixels: Pixels, colours: Palette) -> str:
    """Return a ``data:`` URL of a picture.

    ``pixels``, uint8[rows, columns], are places in at most 255 ``colours``; what is no place there is transparent.
    """
    rows, columns = pixels.shape
    clear = len(colours)
    held = np.minimum(pixels, clear).astype(np.uint8)
    lines = np.concatenate([np.zeros((rows, 1), np.uint8), held], axis=1)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, _PALETTE_COLOURS, 0, 0, 0)),
        (b"PLTE", bytes([*(channel for colour in colours for channel in colour), 0, 0, 0])),
        (b"tRNS", bytes([255] * clear + [0])),
        (b"IDAT", zlib.compress(lines.tobytes(), _LEVEL)),
        (b"IEND", b""),
    )
    body = _SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(body).decode("ascii")


def palette(stops: Palette, shades: int) -> Palette:
    """Return so many colours from the first stop to the last, each channel straight between two of them."""
    places = np.linspace(0.0, len(stops) - 1.0, shades)
    channels = [np.interp(places, range(len(stops)), [stop[channel] for stop in stops]) for channel in range(3)]
    return [(round(red), round(green), round(blue)) for red, green, blue in zip(*channels, strict=True)]


MOST_NAMED = 4

_NUMBERED = re.compile(r"(?P<name>.*?)(?P<number>\d+)", re.DOTALL)


# An episode as templates read it, with its ``entry`` and ``finding``.
#
# ``until``, epoch seconds, is of one that goes on how far the job was judged.
Episode = Mapping[str, Any]


def episodes_of(report: Report) -> dict[str, list[Episode]]:
    rules = {entry.rule: entry for entry in report.rules}
    number = count(1)
    return {
        finding.rule: [
            {"anchor": f"episode-{next(number)}", "finding": finding, **_shown(entry, report, rules.get(finding.rule))}
            for entry in finding.episodes
        ]
        for finding in report.findings
    }


def _shown(entry: EpisodeEntry, report: Report, rule: RuleEntry | None) -> dict[str, Any]:
    job, start = report.job, epoch_of(entry.start)
    last = entry.end or job.ended_at or job.evaluated_through or report.generated_at
    until = max(epoch_of(last), start)
    cost = NOTHING if entry.wasted_s is None else f"{duration(entry.wasted_s)} of a node"
    return {
        "entry": entry,
        "start": start,
        "until": until,
        "span_s": until - start,
        "into": NOTHING if job.started_at is None else elapsed(start - epoch_of(job.started_at)),
        "lasted": duration(until - start),
        "place": place_of(entry),
        "measured": quantity(entry.measured, None if rule is None else rule.unit),
        "cost": cost if entry.cost is None else money(entry.cost, report.cost.currency),
    }


def place_of(entry: EpisodeEntry) -> str:
    """Where an episode was: ``all nodes``, ``algo-2``, ``algo-2: gpu0 to gpu3``."""
    if not entry.nodes and not entry.gpus:
        return "whole job"
    if entry.node is not None:
        gpus = runs([gpu.rpartition("/")[2] for gpu in entry.gpus])
        return f"{shown_name(entry.node)}: {gpus}" if gpus else shown_name(entry.node)
    by_node: dict[str, list[str]] = {node: [] for node in entry.nodes}
    for each in entry.gpus:
        node, _, gpu = each.rpartition("/")
        by_node.setdefault(node, []).append(gpu)
    named = [f"{shown_name(node)}: {runs(gpus)}" if gpus else shown_name(node) for node, gpus in by_node.items()]
    if len(named) > MOST_NAMED:
        named = [shown_name(node) for node in by_node]
    return listed(named, MOST_NAMED)


def runs(names: Sequence[str]) -> str:
    """Join names of which some are numbered on: ``gpu0 to gpu3, gpu6``."""
    parts: list[tuple[str, str]] = []
    for name in names:
        if parts and _follows(parts[-1][1], name):
            parts[-1] = (parts[-1][0], name)
        else:
            parts.append((name, name))
    written = []
    for first, last in parts:
        joint = " to " if not _follows(first, last) else ", "
        written.append(shown_name(first) if first == last else f"{shown_name(first)}{joint}{shown_name(last)}")
    return ", ".join(written)


def _follows(before: str, after: str) -> bool:
    one, two = _NUMBERED.fullmatch(before), _NUMBERED.fullmatch(after)
    if one is None or two is None or one["name"] != two["name"]:
        return False
    return int(two["number"]) - int(one["number"]) == 1


MOST_COLUMNS = 480
MOST_ROWS = 64
MOST_LANES = 3

ROW_HEIGHT, LEAST_HEIGHT, MOST_HEIGHT = 11, 33, 112
NAME_HEIGHT = 16
LEAST_BAR = 0.5

SHADES = 100
_CLEAR = SHADES + 1
_TICK_STEPS_S = (
    *(1, 5, 15, 30),
    *(length * 60 for length in (1, 2, 5, 10, 15, 30)),
    *(length * 3_600 for length in (1, 2, 3, 6, 12, 24, 48, 168, 336, 672)),
)
_MOST_TICKS = 6


Grid = np.ndarray[tuple[int, int], np.dtype[np.float64]]


# Nodes of a row, and the GPU where it is of one.
_Row = tuple[tuple[str, ...], str | None]


def _is_in(row: _Row, entry: EpisodeEntry) -> bool:
    """Whether an episode was in a row: on its GPUs where it names some and a row is one, else on its nodes."""
    nodes, gpu = row
    if gpu is not None and entry.gpus:
        return f"{nodes[0]}/{gpu}" in entry.gpus or (entry.node == nodes[0] and gpu in entry.gpus)
    return not set(nodes).isdisjoint(entry.nodes)


def picture_of(report: Report, episodes: Mapping[str, Sequence[Episode]]) -> dict[str, Any] | None:
    """Return what the template draws; None of a job without a time, or with neither GPUs nor an episode.

    ``heat`` is None without time lines, else an image with frames from the left and width in percent, from the top and
    height in pixels. ``ticks`` are times as epoch seconds, as the time of day and as the time since the job's start.
    """
    span = _span(report)
    # What a rule explains has its cause's times: the others have the first lanes.
    shown = [finding for finding in report.findings if episodes.get(finding.rule)]
    found = sorted(shown, key=lambda finding: finding.explained_by is not None)
    nodes = [] if report.timelines is None else [node for node in report.timelines.nodes if node.gpus]
    if span is None or not (found or nodes):
        return None
    every = [each for finding in found for each in episodes[finding.rule]]
    return {
        "place_of": span.at,
        "width_of": lambda episode: _width(episode, span),
        "heat": _heat(nodes, span, every) if nodes else None,
        "ticks": _ticks(span, report.job.started_at),
        "lanes": [(finding, episodes[finding.rule]) for finding in found[:MOST_LANES]],
        "more": max(len(found) - MOST_LANES, 0),
    }


def _span(report: Report) -> Scale | None:
    """Return the time that the picture covers, epoch seconds."""
    if report.timelines is not None:
        axis = report.timelines.axis
        return Scale(axis.start, axis.start + axis.buckets * axis.bucket_s, ())
    start, end = report.job.started_at, report.job.ended_at or report.job.evaluated_through
    if start is None or end is None or epoch_of(end) <= epoch_of(start):
        return None
    return Scale(epoch_of(start), epoch_of(end), ())


def _width(episode: Episode, span: Scale) -> float:
    """Return how wide an episode is, in percent: even a short one can be seen."""
    return max(span.at(episode["until"]) - span.at(episode["start"]), LEAST_BAR)


def _heat(nodes: Sequence[NodeTimeline], span: Scale, episodes: Sequence[Episode]) -> dict[str, Any]:
    grid, rows, what = _grid(nodes)
    height = min(max(ROW_HEIGHT * len(rows), LEAST_HEIGHT), MOST_HEIGHT)
    return {
        "image": png_url(_pixels(grid), palette(VIRIDIS, SHADES + 1)),
        "height": height,
        "frames": [frame for each in episodes for frame in _frames(each, rows, span, height)],
        "names": _names(rows, height),
        "rows": what,
    }


def _names(rows: Sequence[_Row], height: float) -> list[tuple[str, float]] | None:
    """Return the nodes with the middle of their rows; None where there are too many."""
    owners = [nodes for nodes, _ in rows]
    names = list(dict.fromkeys(owners))
    if any(len(name) > 1 for name in names) or len(names) > height / NAME_HEIGHT:
        return None
    each = height / len(owners)
    return [(name, each * (owners.index((name,)) + owners.count((name,)) / 2.0)) for (name,) in names]


def _grid(nodes: Sequence[NodeTimeline]) -> tuple[Grid, list[_Row], str]:
    """Return percent by row and bucket, the nodes of each row, and the name of a row."""
    values = [
        np.array([[np.nan if each is None else each for each in gpu.utilization.mean] for gpu in node.gpus])
        for node in nodes
    ]
    gpus = sum(len(held) for held in values)
    if gpus <= MOST_ROWS:
        rows: list[_Row] = [((node.node,), gpu.gpu) for node in nodes for gpu in node.gpus]
        return np.concatenate(values), rows, "a row is a GPU" if gpus > 1 else "one GPU"
    lowest = np.array([np.fmin.reduce(held, axis=0) for held in values])
    size = math.ceil(len(lowest) / MOST_ROWS)
    firsts = range(0, len(lowest), size)
    joined = np.array([np.fmin.reduce(lowest[first : first + size], axis=0) for first in firsts])
    groups: list[_Row] = [(tuple(node.node for node in nodes[first : first + size]), None) for first in firsts]
    what = "a row is the lowest GPU of a node" if size == 1 else f"a row is the lowest GPU of {size} nodes"
    return joined, groups, what


def _pixels(grid: Grid) -> Pixels:
    """Join neighbours until there are few enough columns."""
    size = math.ceil(grid.shape[1] / MOST_COLUMNS)
    edges = np.arange(0, grid.shape[1], size)
    there = ~np.isnan(grid)
    counts = np.add.reduceat(there, edges, axis=1, dtype=np.int64)
    sums = np.add.reduceat(np.where(there, grid, 0.0), edges, axis=1)
    means = sums / np.maximum(counts, 1)
    shades = np.rint(np.clip(means, 0.0, 100.0) * SHADES / 100.0)
    return np.where(counts > 0, shades, _CLEAR).astype(np.uint8)


def _frames(
    episode: Episode, rows: Sequence[_Row], span: Scale, height: float
) -> Iterator[tuple[float, float, float, float]]:
    each = height / len(rows)
    owned = [_is_in(row, episode["entry"]) for row in rows]
    for is_owned, run in groupby(range(len(rows)), key=owned.__getitem__):
        places = list(run)
        if is_owned:
            tall = max(each * len(places) - 2, 1.0)
            yield span.at(episode["start"]), _width(episode, span), each * places[0] + 1, tall


def _ticks(span: Scale, started_at: str | None) -> list[tuple[float, str, str]]:
    step = next((each for each in _TICK_STEPS_S if (span.high - span.low) / each <= _MOST_TICKS), _TICK_STEPS_S[-1])
    origin = span.low if started_at is None else epoch_of(started_at)
    ticks = []
    for index in range(math.ceil(span.low / step), math.floor(span.high / step) + 1):
        time = float(index * step)
        clock = datetime.fromtimestamp(time, UTC)
        shown = f"{clock:%H:%M}" if step >= 60 else f"{clock:%H:%M:%S}"
        into = elapsed(time - origin) if step < 60 else elapsed(60.0 * round((time - origin) / 60.0))[:-3]
        ticks.append((time, shown, into))
    return ticks
