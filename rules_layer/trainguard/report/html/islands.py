"""Time lines as the page's script reads them: JSON with packed series, safe inside a script element."""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from trainguard.kernels.columns import Ints
from trainguard.render.names import shown_name
from trainguard.render.rule_entry import RuleEntry, setting
from trainguard.report.html.episodes import Episode
from trainguard.report.html.rule_sections import NOT_JUDGING
from trainguard.report.timeline.digest import DEVICE_KINDS, PERCENT
from trainguard.report.timeline.series import (
    Band,
    NodeTimeline,
    StepTimeline,
    Timelines,
    Values,
)
from trainguard.rules.registry import spec_of

MISSING = 255
STEPS_A_PERCENT = 2


def pack_percents(values: Sequence[float | None]) -> str:
    """Pack percentages; what lies outside 0 to 100 is drawn on that edge."""
    found = _floats(values)
    kept = np.nan_to_num(np.clip(found, 0.0, 100.0), nan=0.0)
    steps = np.rint(kept * STEPS_A_PERCENT).astype(np.uint8)
    return _text(np.where(np.isnan(found), np.uint8(MISSING), steps).tobytes())


def pack_floats(values: Sequence[float | None]) -> str:
    """Pack values of any size, to the seven digits of a float32."""
    limit = float(np.finfo(np.float32).max)
    return _text(np.clip(_floats(values), -limit, limit).astype("<f4").tobytes())


def _floats(values: Sequence[float | None]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([np.nan if each is None else each for each in values], np.float64)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


_IN_PERCENT = frozenset(kind for kind, (_, unit, _) in DEVICE_KINDS.items() if unit == PERCENT)

# JSON needs none of these outside of strings, and every reader of JSON takes the escapes.
_ESCAPES = str.maketrans({each: f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"})


Threshold = tuple[str, float, str, str]
"""A line: in which chart, at which percentage, whose it is, and the name of one rule, a fired one first."""


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


def in_script(document: bytes) -> str:
    """Return JSON that cannot end the script element in which it stands."""
    return document.decode().translate(_ESCAPES)


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


LARGEST = (1 << 53) - 1
_BITS = 7


def pack_counts(values: Ints) -> str:
    """Pack numbers of 0 or more; smaller ones become 0, larger ones than `LARGEST` become it."""
    left = np.clip(values, 0, LARGEST)
    length = np.ones(len(left), dtype=np.int64)
    for more in range(_BITS, LARGEST.bit_length(), _BITS):
        length += left >> more > 0
    ends = np.cumsum(length)
    packed = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    begins = ends - length
    for place in range(int(length.max()) if len(length) else 0):
        has = length > place
        bits = left[has] >> (_BITS * place) & 0x7F
        packed[begins[has] + place] = bits | np.where(length[has] > place + 1, 0x80, 0)
    return base64.b64encode(packed.tobytes()).decode("ascii")


def pack_signed(values: Ints) -> str:
    """Pack numbers of any sign: 0, -1, 1, -2 as 0, 1, 2, 3."""
    kept = np.clip(values, -(LARGEST >> 1), LARGEST >> 1)
    return pack_counts(np.where(kept < 0, -2 * kept - 1, 2 * kept))


def pack_steps(values: Ints) -> str:
    """Pack numbers as what each is more than the one before."""
    return pack_signed(np.diff(values, prepend=0))
