"""The section of time lines: what its template, the page's script and the page's style need."""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from trainguard.render.numbers import NOTHING, percent, rate, shown_name
from trainguard.render.rule_entry import RuleEntry, setting
from trainguard.report.html.episodes import Episode
from trainguard.report.html.packed import in_script, pack_floats, pack_percents
from trainguard.report.html.page import joined_script, read_asset
from trainguard.report.html.rule_sections import NOT_JUDGING
from trainguard.report.timeline.digest import DEVICE_KINDS, PERCENT
from trainguard.report.timeline.series import (
    Band,
    NodeTimeline,
    StepTimeline,
    TimeAxis,
    Timelines,
    Values,
)
from trainguard.rules.registry import spec_of

_IN_PERCENT = frozenset(kind for kind, (_, unit, _) in DEVICE_KINDS.items() if unit == PERCENT)

# A line: in which chart, at which percentage, whose it is, and the name of one rule, a fired one first.
Threshold = tuple[str, float, str, str]


def thresholds_of(rules: Sequence[RuleEntry], fired: Sequence[str]) -> list[Threshold]:
    """Return the thresholds in force of the rules that judge; those of one value in one chart are one line."""
    entries = {entry.rule: entry for entry in rules if entry.status not in NOT_JUDGING}
    lines: dict[tuple[str, float], list[tuple[str, str]]] = {}
    for rule, entry in entries.items():
        for line in spec_of(rule).chart_lines:
            value = setting(entry, line.parameter)
            if value is not None:
                lines.setdefault((line.chart, value), []).append((rule, line.words))
    return [(chart, value, _label(names), _short(names, fired)) for (chart, value), names in lines.items()]


def _short(names: Sequence[tuple[str, str]], fired: Sequence[str]) -> str:
    rule, what = min(names, key=lambda each: each[0] not in fired)
    return f"{rule} {what}" if what.startswith("p") else rule


def _label(names: Sequence[tuple[str, str]]) -> str:
    by_words: dict[str, list[str]] = {}
    for rule, what in names:
        by_words.setdefault(what, []).append(rule)
    return "; ".join(f"{', '.join(rules)}: {what}" for what, rules in by_words.items())


def timelines_island(
    timelines: Timelines,
    *,
    started_at: float | None = None,
    episodes: Sequence[Episode] = (),
    thresholds: Sequence[Threshold] = (),
) -> str:
    """Return JSON without ``<``, so that nothing ends its element; time counts from ``started_at``, epoch seconds."""
    rows = {each.node: index for index, each in enumerate(timelines.nodes)}
    document = {
        "axis": timelines.axis,
        "origin": timelines.axis.start if started_at is None else started_at,
        "nodes": [_node(each) for each in timelines.nodes],
        "steps": [_steps(each, rows) for each in timelines.steps],
        "phases": [{**msgspec.structs.asdict(each), "label": shown_name(each.label)} for each in timelines.phases],
        "episodes": [_episode(each, rows, timelines.nodes) for each in episodes],
        "thresholds": [{"chart": chart, "value": value, "label": short} for chart, value, _, short in thresholds],
        "detail": [{"axis": each.axis, "nodes": [_node(node) for node in each.nodes]} for each in timelines.detail],
    }
    return in_script(msgspec.json.encode(document))


def _node(node: NodeTimeline) -> dict[str, Any]:
    return {
        "name": shown_name(node.node),
        "gpus": [
            {"name": shown_name(each.gpu), "utilization": _band(each.utilization), "memory": _band(each.memory)}
            for each in node.gpus
        ],
        "cpu": _band(node.cpu),
        "io_wait": _band(node.io_wait),
        "host_memory": _band(node.host_memory),
        "network": _band(node.network, pack_floats),
        "devices": [
            {
                "kind": each.kind,
                "name": "mean of the GPUs" if each.gpu is None else shown_name(each.gpu),
                "band": _band(each.band, pack_percents if each.kind in _IN_PERCENT else pack_floats),
            }
            for each in node.devices
        ],
    }


def _band(band: Band | None, pack: Callable[[Values], str] = pack_percents) -> dict[str, str] | None:
    if band is None:
        return None
    parts = {"mean": band.mean, "low": band.low, "high": band.high}
    return {part: pack(values) for part, values in parts.items() if values is not None}


def _steps(steps: StepTimeline, rows: Mapping[str, int]) -> dict[str, Any]:
    mode = steps.mode.removeprefix("Step:").removeprefix("ModeKeys.").lower()
    return {
        "node": rows.get(steps.node),
        "name": shown_name(f"{steps.process} {mode}"),
        "seconds": {
            "mean": pack_floats(steps.mean_s),
            "low": pack_floats(steps.low_s),
            "high": pack_floats(steps.high_s),
        },
        "slowest": [[each.at, shown_name(each.step), each.duration_s] for each in steps.slowest],
    }


def _episode(episode: Episode, rows: Mapping[str, int], nodes: Sequence[NodeTimeline]) -> dict[str, Any]:
    entry = episode["entry"]
    return {
        "anchor": episode["anchor"],
        "rule": shown_name(episode["finding"].rule),
        "severity": episode["finding"].severity,
        "start": episode["start"],
        "end": episode["until"],
        "nodes": [rows[node] for node in entry.nodes if node in rows],
        "gpus": [place for gpu in entry.gpus if (place := _gpu_place(gpu, entry.node, rows, nodes)) is not None],
        "where": episode["place"],
        "lasted": episode["lasted"],
    }


def _gpu_place(
    name: str, node: str | None, rows: Mapping[str, int], nodes: Sequence[NodeTimeline]
) -> tuple[int, int] | None:
    owner, _, gpu = (node, "", name) if node is not None else name.rpartition("/")
    row = rows.get(owner)
    names = [] if row is None else [each.gpu for each in nodes[row].gpus]
    return None if row is None or gpu not in names else (row, names.index(gpu))


FALLBACK_WIDTH = 1_000
FALLBACK_HEIGHT = 100
FALLBACK_POINTS = 250


# Kind, title and unit of a chart, and a node's bands in it.
Quantity = tuple[str, str, str, Callable[[NodeTimeline], Sequence[Band | None]]]

QUANTITIES: Sequence[Quantity] = (
    ("utilization", "GPU utilization", "%", lambda node: [each.utilization for each in node.gpus]),
    ("memory", "GPU memory activity", "%", lambda node: [each.memory for each in node.gpus]),
    ("cpu", "CPU", "%", lambda node: [node.cpu]),
    ("io_wait", "I/O wait", "%", lambda node: [node.io_wait]),
    ("host_memory", "Host memory", "%", lambda node: [node.host_memory]),
    ("network", "Network", "bytes per second", lambda node: [node.network]),
)


def node_numbers(timelines: Timelines) -> tuple[list[str], list[list[str]]]:
    """Return titles, and a row a node, which sum up the whole job; a quantity that no node has is left out."""
    found = [each for each in QUANTITIES if any(band for node in timelines.nodes for band in each[3](node))]
    rows = [
        [shown_name(node.node), *(_cell(bands(node), percent if unit == "%" else rate) for _, _, unit, bands in found)]
        for node in timelines.nodes
    ]
    return ["Node", *(title for _, title, _, _ in found)], rows if found else []


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


# Kind, title and unit of a chart that the script draws, whether it has many lines, and its thresholds.
Chart = tuple[str, str, str, bool, Sequence[Threshold]]


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
        "bucket_s": timelines.axis.bucket_s,
        "detail": timelines.detail,
        "detail_s": sum(each.axis.buckets * each.axis.bucket_s for each in timelines.detail),
        "is_all_fine": len(timelines.detail) == 1 and _covers(timelines.detail[0].axis, timelines.axis),
        "has_steps": bool(timelines.steps),
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


def _covers(fine: TimeAxis, whole: TimeAxis) -> bool:
    end, fine_end = (each.start + each.buckets * each.bucket_s for each in (whole, fine))
    return fine.start <= whole.start + whole.bucket_s and fine_end >= end - whole.bucket_s
