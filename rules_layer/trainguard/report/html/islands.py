"""Time lines as the page's script reads them: one JSON document with packed series, safe inside a script element."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from trainguard.report.html.episodes import Episode
from trainguard.report.html.names import shown_name
from trainguard.report.html.packing import pack_floats, pack_percents
from trainguard.report.html.thresholds import Threshold
from trainguard.timeline.device_kinds import DEVICE_KINDS
from trainguard.timeline.series import (
    Band,
    DeviceTimeline,
    GpuTimeline,
    NodeTimeline,
    Phase,
    StepTimeline,
    Timelines,
    Values,
)

ISLAND = "timelines-data"
_IN_PERCENT = frozenset(each.name for each in DEVICE_KINDS if each.is_percent)

# JSON needs none of these outside of strings, and every reader of JSON takes the escapes.
_ESCAPES = str.maketrans({each: f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"})


def timelines_island(
    timelines: Timelines,
    *,
    started_at: float | None = None,
    episodes: Sequence[Episode] = (),
    thresholds: Sequence[Threshold] = (),
) -> str:
    """Give the JSON text; it holds no ``<``, so nothing in it can end the element that it stands in.

    Parameters
    ----------
    timelines : Timelines
    started_at : float or None
        The job's start, epoch seconds, which time is counted from; else the axis's.
    episodes : sequence of Episode
        In order of time.
    thresholds : sequence of Threshold
    """
    rows = {each.node: index for index, each in enumerate(timelines.nodes)}
    document = {
        "axis": timelines.axis,
        "origin": timelines.axis.start if started_at is None else started_at,
        "nodes": [_node(each) for each in timelines.nodes],
        "steps": [_steps(each, rows) for each in timelines.steps],
        "phases": [_phase(each) for each in timelines.phases],
        "episodes": [_episode(each, rows, timelines.nodes) for each in episodes],
        "thresholds": [{"chart": each.chart, "value": each.value, "label": each.short} for each in thresholds],
        "detail": [{"axis": each.axis, "nodes": [_node(node) for node in each.nodes]} for each in timelines.detail],
    }
    return in_script(msgspec.json.encode(document))


def in_script(document: bytes) -> str:
    """Return JSON so that nothing in it can end the script element that it stands in."""
    return document.decode().translate(_ESCAPES)


def _node(node: NodeTimeline) -> dict[str, Any]:
    return {
        "name": shown_name(node.node),
        "gpus": [_gpu(each) for each in node.gpus],
        "cpu": _percent_band(node.cpu),
        "io_wait": _percent_band(node.io_wait),
        "host_memory": _percent_band(node.host_memory),
        "network": _float_band(node.network),
        "devices": [_device(each) for each in node.devices],
    }


def _gpu(gpu: GpuTimeline) -> dict[str, Any]:
    return {
        "name": shown_name(gpu.gpu),
        "utilization": _percent_band(gpu.utilization),
        "memory": _percent_band(gpu.memory),
    }


def _device(device: DeviceTimeline) -> dict[str, Any]:
    pack = _percent_band if device.kind in _IN_PERCENT else _float_band
    name = "mean of the GPUs" if device.gpu is None else shown_name(device.gpu)
    return {"kind": device.kind, "name": name, "band": pack(device.band)}


def _percent_band(band: Band | None) -> dict[str, str] | None:
    return None if band is None else {part: pack_percents(values) for part, values in _parts(band)}


def _float_band(band: Band | None) -> dict[str, str] | None:
    return None if band is None else {part: pack_floats(values) for part, values in _parts(band)}


def _parts(band: Band) -> Iterator[tuple[str, Values]]:
    """Yield the parts that are shown."""
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


def _episode(episode: Episode, rows: Mapping[str, int], nodes: Sequence[NodeTimeline]) -> dict[str, Any]:
    """Give an episode with the places of its nodes, and of the GPUs that it names as pairs of both."""
    entry = episode.entry
    held = [rows[node] for node in entry.nodes if node in rows]
    return {
        "anchor": episode.anchor,
        "rule": shown_name(episode.finding.rule),
        "severity": episode.finding.severity,
        "start": episode.start,
        "end": episode.until,
        "nodes": held,
        "gpus": [place for gpu in entry.gpus if (place := _gpu_place(gpu, entry.node, rows, nodes)) is not None],
        "where": episode.place,
        "lasted": episode.lasted,
    }


def _gpu_place(
    name: str, node: str | None, rows: Mapping[str, int], nodes: Sequence[NodeTimeline]
) -> tuple[int, int] | None:
    owner, _, gpu = (node, "", name) if node is not None else name.rpartition("/")
    row = rows.get(owner)
    names = [] if row is None else [each.gpu for each in nodes[row].gpus]
    return None if row is None or gpu not in names else (row, names.index(gpu))
