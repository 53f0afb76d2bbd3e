"""Time lines as the page's script reads them: one JSON document with packed series, safe inside a script element."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from trainguard.report.html.names import shown_name
from trainguard.report.html.packing import pack_floats, pack_percents
from trainguard.rules.registry import RULE_NAMES
from trainguard.timeline.series import Band, GpuTimeline, Mark, NodeTimeline, Phase, StepTimeline, Timelines, Values

ISLAND = "timelines-data"
LONGEST_TEXT = 300

# JSON needs none of these outside of strings, and every reader of JSON takes the escapes.
_ESCAPES = str.maketrans({each: f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"})


def timelines_island(timelines: Timelines) -> str:
    """Give the JSON text; it holds no ``<``, so nothing in it can end the element that it stands in."""
    rows = {each.node: index for index, each in enumerate(timelines.nodes)}
    document = {
        "axis": timelines.axis,
        "nodes": [_node(each) for each in timelines.nodes],
        "steps": [_steps(each, rows) for each in timelines.steps],
        "phases": [_phase(each) for each in timelines.phases],
        "marks": [_mark(each, rows, timelines.nodes) for each in timelines.marks],
    }
    return msgspec.json.encode(document).decode().translate(_ESCAPES)


def _node(node: NodeTimeline) -> dict[str, Any]:
    return {
        "name": shown_name(node.node),
        "gpus": [_gpu(each) for each in node.gpus],
        "cpu": _percent_band(node.cpu),
        "io_wait": _percent_band(node.io_wait),
        "host_memory": _percent_band(node.host_memory),
        "network": _float_band(node.network),
    }


def _gpu(gpu: GpuTimeline) -> dict[str, Any]:
    return {
        "name": shown_name(gpu.gpu),
        "utilization": _percent_band(gpu.utilization),
        "memory": _percent_band(gpu.memory),
    }


def _percent_band(band: Band | None) -> dict[str, str] | None:
    return None if band is None else {part: pack_percents(values) for part, values in _parts(band)}


def _float_band(band: Band | None) -> dict[str, str] | None:
    return None if band is None else {part: pack_floats(values) for part, values in _parts(band)}


def _parts(band: Band) -> Iterator[tuple[str, Values]]:
    """Yield the parts that are told."""
    for part in ("mean", "low", "high"):
        values = getattr(band, part)
        if values is not None:
            yield part, values


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


def _phase(phase: Phase) -> dict[str, Any]:
    return {"kind": phase.kind, "label": shown_name(phase.label), "start": phase.start, "end": phase.end}


def _mark(mark: Mark, rows: Mapping[str, int], nodes: Sequence[NodeTimeline]) -> dict[str, Any]:
    node = rows.get(mark.node or "")
    gpus = [] if node is None else [each.gpu for each in nodes[node].gpus]
    return {
        "at": mark.at,
        "rule": shown_name(mark.rule),
        "anchor": mark_anchor(mark),
        "severity": mark.severity,
        "node": node,
        "gpu": gpus.index(mark.gpu) if mark.gpu in gpus else None,
        "where": mark_place(mark),
        "text": shown_name(mark.text, LONGEST_TEXT),
    }


def mark_anchor(mark: Mark) -> str | None:
    """Return the id of what the page says of the rule; None of a rule that is not known."""
    return f"rule-{mark.rule}" if mark.rule in RULE_NAMES else None


def mark_place(mark: Mark) -> str:
    """Where a rule fired: ``all nodes``, ``algo-1`` or ``algo-1/gpu3``."""
    if mark.node is None:
        return "all nodes"
    return shown_name(mark.node) if mark.gpu is None else f"{shown_name(mark.node)}/{shown_name(mark.gpu)}"
