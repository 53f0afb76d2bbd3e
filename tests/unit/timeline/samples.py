"""Samples and steps for the tests of time lines."""

from collections.abc import Iterable, Sequence

import numpy as np

from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import StepBatch
from trainguard.formats.profile.system import MetricSeries, Samples
from trainguard.report.timeline.digest import NodeDigest
from trainguard.report.timeline.series import TimeAxis

START = 1_795_248_000
TRAIN, EVAL, PREDICT = (f"Step:ModeKeys.{mode}" for mode in ("TRAIN", "EVAL", "PREDICT"))

# Seconds since START, kind, name, value.
Row = tuple[float, str, str, float]


def axis(buckets: int = 10, bucket_s: int = 10) -> TimeAxis:
    """Return an axis that begins at START."""
    return TimeAxis(start=float(START), bucket_s=float(bucket_s), buckets=buckets)


def samples(rows: Iterable[Row]) -> Samples:
    """Return rows as one object's samples."""
    listed = list(rows)
    table = tuple(dict.fromkeys(MetricSeries(kind, name) for _, kind, name, _ in listed))
    return Samples(
        np.array([START + at for at, *_ in listed]),
        np.array([value for *_, value in listed]),
        np.array([table.index(MetricSeries(kind, name)) for _, kind, name, _ in listed], dtype=np.int64),
        table,
    )


def steps(
    starts: Sequence[float],
    durations: Sequence[float],
    *,
    process: str = "algo-1-100",
    mode: str = TRAIN,
    first: int = 0,
) -> FrameworkEvents:
    """Return steps as one object's events: seconds since START, seconds; numbered from ``first`` on."""
    return FrameworkEvents(
        (
            StepBatch(
                process,
                mode,
                np.array([round((START + start) * 1e6) for start in starts], dtype=np.int64),
                np.array([round(duration * 1e6) for duration in durations], dtype=np.int64),
                tuple(str(first + index) for index in range(len(starts))),
            ),
        )
    )


def digest(*objects: Samples | FrameworkEvents, node: str = "algo-1", on: TimeAxis | None = None) -> NodeDigest:
    """Return a digest of objects."""
    result = NodeDigest(node, axis() if on is None else on)
    for each in objects:
        if isinstance(each, Samples):
            result.add_samples(each)
        else:
            result.add_events(each)
    return result
