"""Values of series, each measured at its own time, as snapshots of a node.

Some tools record each device by itself, within moments of the others: such records make one snapshot.
"""

import itertools
from collections.abc import Mapping
from statistics import median

from trainguard.sources.run import SeriesName, Snapshot

_ONE_MOMENT = 0.5
"""Records within this part of the interval, with no series twice, are of one snapshot."""


class SnapshotCollector:
    """Collects the values of a run by node; an empty name is that of the node that a tool does not name."""

    def __init__(self) -> None:
        self._records: dict[str, list[tuple[float, dict[SeriesName, float]]]] = {}
        self._counted: dict[tuple[str, SeriesName], tuple[float, float]] = {}

    def add(self, node: str, at: float, values: Mapping[SeriesName, float]) -> None:
        """Take in what was measured on a node at ``at``, epoch seconds."""
        self._records.setdefault(node, []).append((at, dict(values)))

    def rate(self, node: str, series: SeriesName, at: float, total: float) -> float | None:
        """Return how much a counter grew a second since its last value; None of the first, and after a restart."""
        before = self._counted.get((node, series))
        self._counted[node, series] = (at, total)
        if before is None or at <= before[0] or total < before[1]:
            return None
        return (total - before[1]) / (at - before[0])

    def snapshots(self, unnamed: str) -> dict[str, list[Snapshot]]:
        """Return snapshots by node; ``unnamed`` is the name of the node that the tool does not name."""
        return {node or unnamed: _merged(records) for node, records in sorted(self._records.items())}


def _merged(records: list[tuple[float, dict[SeriesName, float]]]) -> list[Snapshot]:
    """Return snapshots in order of time, each of the records of one moment."""
    records.sort(key=lambda record: record[0])
    merged: list[tuple[float, dict[SeriesName, float]]] = []
    near_s = _ONE_MOMENT * _interval_s(records)
    for at, values in records:
        if merged and at - merged[-1][0] <= near_s and not merged[-1][1].keys() & values.keys():
            merged[-1][1].update(values)
        else:
            merged.append((at, dict(values)))
    return [Snapshot(at, values) for at, values in merged]


def _interval_s(records: list[tuple[float, dict[SeriesName, float]]]) -> float:
    """Return the median distance of two values of one series, seconds: of the series that is there most often."""
    times: dict[SeriesName, list[float]] = {}
    for at, values in records:
        for name in values:
            times.setdefault(name, []).append(at)
    most = max(times.values(), key=len, default=[])
    gaps = [later - earlier for earlier, later in itertools.pairwise(most)]
    return median(gaps) if gaps else 0.0
