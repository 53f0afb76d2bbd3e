"""The timelines as the page's script reads them: columns of whole numbers, and names by number."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from trainguard.kernels.columns import Ints
from trainguard.kernels.document import RankLine, RankProfile
from trainguard.kernels.memory.entries import SnapshotProfile
from trainguard.kernels.rules.trace_quality import EPOCH_LEAST_NS
from trainguard.kernels.timeline.build import Timeline
from trainguard.kernels.timeline.rows import LAST_OF_GPU, Sort
from trainguard.render.numbers import shown_name
from trainguard.report.html.packed import in_script, pack_counts, pack_steps

LONGEST_NAME = 200
MOST_BYTES = 450_000
OMITTED = "(a name that this page leaves out)"


class PageNames:
    """Names by number, in the order of their first use; what goes beyond the limit shares one number."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._numbers: dict[str, int] = {OMITTED: 0}
        self.texts = [OMITTED]
        self._left = most_bytes
        self.omitted = 0

    def number(self, name: str) -> int:
        if name not in self._numbers:
            text = shown_name(name, LONGEST_NAME)
            size = len(in_script(msgspec.json.encode(text))) + 1
            fits = size <= self._left
            self._numbers[name] = len(self.texts) if fits else 0
            if fits:
                self._left -= size
                self.texts.append(text)
            else:
                self.omitted += 1
        return self._numbers[name]


NO_BREAK = "\N{NO-BREAK SPACE}"
MOST_STEPS = 2_000
# How `tensorboard_trace_handler` names files: host, process and time.
_WORKER = re.compile(r"(?P<host>.+?)_(?P<process>\d+)\.(?:\d+\.)?pt\.trace\.json(?:\.gz)?")


def timelines_document(timelines: Sequence[tuple[RankProfile, Timeline]], names: PageNames) -> dict[str, Any]:
    """Return what the script draws; windows start at once where one rank's clock has its own origin."""
    aligned = all(timeline.start_unix_ns >= EPOCH_LEAST_NS for _, timeline in timelines)
    first = min((timeline.start_unix_ns for _, timeline in timelines), default=0)
    lead = max((timeline.lead_ns for _, timeline in timelines), default=0)
    return {
        "zero": lead,
        "processes": [
            _process(profile, timeline, names, lead + (timeline.start_unix_ns - first if aligned else 0))
            for profile, timeline in timelines
        ],
    }


def node_of(trace: str) -> str | None:
    """Return the host that a trace's file name has; None where it has none."""
    found = _WORKER.fullmatch(trace.rpartition("/")[2])
    return found["host"] if found else None


def rank_name(profile: RankProfile | RankLine | SnapshotProfile) -> str:
    return shown_name(profile.trace) if profile.rank is None else f"rank {profile.rank}"


def _process(profile: RankProfile, timeline: Timeline, names: PageNames, offset: int) -> dict[str, Any]:
    node = node_of(timeline.trace)
    rows = timeline.rows
    lengths = np.bincount(rows.lane, minlength=len(timeline.lanes))
    copies = (rows.sort >= Sort.MEMCPY) & (rows.sort <= Sort.MEMSET) & (rows.count == 1)
    steps = profile.steps[:MOST_STEPS]
    return {
        "node": None if node is None else shown_name(node),
        "title": rank_name(profile),
        "offset": offset,
        "window": timeline.window_ns,
        # Of all GPUs under -1 where only that is known.
        "busy": {str(each.device): each.utilization for each in profile.devices} or {"-1": profile.utilization},
        "steps": [[each.number, each.start_ns, each.duration_ns] for each in steps],
        "detail": timeline.detail,
        "lanes": [
            {"side": key.side, "device": key.device, "holds": key.holds, "name": shown_name(key.name), "rows": length}
            for key, length in zip(timeline.lanes, lengths.tolist(), strict=True)
        ],
        "start": pack_steps(rows.start),
        "lasts": pack_counts(rows.end - rows.start),
        "name": pack_counts(_numbers(rows.name, timeline.names, names)),
        "look": pack_counts(rows.sort + len(Sort) * timeline.level),
        "joins": pack_counts(rows.count[rows.count > 1]),
        "launch": _launches(timeline),
        "size": pack_counts(timeline.size[copies] + 1),
    }


def _numbers(name: Ints, texts: Sequence[str], names: PageNames) -> Ints:
    """Return for each row 1 + the number of its name; 0 where it joins several. The most used names come first."""
    found, times = np.unique(name[name >= 0], return_counts=True)
    order = np.argsort(-times, kind="stable")
    known: Mapping[int, int] = {each: names.number(texts[each]) for each in found[order].tolist()}
    return np.array([0 if each < 0 else known[each] + 1 for each in name.tolist()], dtype=np.int64)


def _launches(timeline: Timeline) -> str:
    rows, launch = timeline.rows, timeline.launch
    has = rows.sort <= LAST_OF_GPU
    mine = launch[has]
    known = np.flatnonzero(mine >= 0)
    found = np.zeros(len(mine), dtype=np.int64)
    steps = np.diff(mine[known], prepend=0)
    found[known] = np.where(steps < 0, -2 * steps - 1, 2 * steps) + 1
    return pack_counts(found)
