"""Parts of a job in finer buckets: all of it where there is room, else what is around the most severe episodes."""

import numpy as np
import pytest

from tests.unit.timeline.samples import START, axis, digest, samples, steps
from trainguard.formats.profile.system import MetricSeries, Samples
from trainguard.report.timeline.build import FEWEST_BUCKETS, MAX_PAGE_BYTES, build_timelines
from trainguard.report.timeline.digest import NodeDigest
from trainguard.report.timeline.series import Episode, TimeAxis, Timelines

# A day in buckets of 5 s; a report shows it in buckets of 30 s.
FINE = TimeAxis(start=float(START), bucket_s=5.0, buckets=17_280)


def day_of(gpus: int, *, node: str = "algo-1", on: TimeAxis = FINE) -> NodeDigest:
    """Return a node's day in which each GPU has one value a bucket: the number of the bucket, modulo 100."""
    table = tuple(MetricSeries("gpu", f"gpu{number}") for number in range(gpus))
    times = np.repeat(on.start + on.bucket_s * (np.arange(on.buckets) + 0.5), gpus)
    values = np.repeat(np.arange(on.buckets) % 100, gpus).astype(np.float64)
    made = NodeDigest(node, on)
    made.add_samples(Samples(times, values, np.tile(np.arange(gpus), on.buckets), table))
    return made


def build(*digests: NodeDigest, episodes: list[Episode] | None = None) -> Timelines:
    return build_timelines(digests, episodes=episodes or [], started_at=None, ended_at=None)


def episode(start: float, end: float | None, severity: str = "high") -> Episode:
    return START + start, None if end is None else START + end, severity


def many(nodes: int = 28) -> list[NodeDigest]:
    """Return a day of nodes with 64 GPUs each: too much to be shown finely as a whole."""
    on = TimeAxis(start=float(START), bucket_s=60.0, buckets=1_440)
    return [day_of(64, node=f"algo-{number}", on=on) for number in range(nodes)]


def test_job_shown_at_digest_resolution_has_no_detail() -> None:
    assert build(digest(samples([(1.0, "gpu", "gpu0", 5.0)]))).detail == []


def test_day_of_few_gpus_is_wholly_shown_in_finer_buckets() -> None:
    shown = build(day_of(4))
    (detail,) = shown.detail
    assert (shown.axis.bucket_s, shown.axis.buckets) == (30.0, 2_880)
    assert detail.axis == FINE
    assert detail.nodes[0].gpus[3].utilization.mean[:7] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert shown.nodes[0].gpus[3].utilization.mean[:2] == [2.5, 8.5]


def test_joined_buckets_have_the_extremes_of_the_finer_ones() -> None:
    rows = [(1.0, "gpu", "gpu0", 10.0), (6.0, "gpu", "gpu0", 90.0), (31.0, "gpu", "gpu0", 40.0)]
    shown = build(digest(samples(rows), steps([1.0, 8.0], [0.5, 2.0]), on=FINE), day_of(1, node="algo-2"))
    band = shown.nodes[0].gpus[0].utilization
    assert band.low is not None
    assert band.high is not None
    assert (band.mean[:3], band.low[:3], band.high[:3]) == ([50, 40, None], [10, 40, None], [90, 40, None])
    (timeline,) = shown.steps
    assert (timeline.mean_s[0], timeline.low_s[0], timeline.high_s[0], timeline.mean_s[1]) == (1.25, 0.5, 2.0, None)


def test_episodes_of_a_large_job_are_detailed_from_before_onset() -> None:
    hour = 3_600.0
    shown = build(*many(), episodes=[episode(2 * hour, 2.5 * hour), episode(12 * hour, 13 * hour)])
    spans = [(each.axis.start - START, each.axis.buckets * each.axis.bucket_s) for each in shown.detail]
    assert [each.axis.bucket_s for each in shown.detail] == [60.0, 60.0]
    for (start, length), (began, ended) in zip(spans, [(2 * hour, 2.5 * hour), (12 * hour, 13 * hour)], strict=True):
        assert began - 0.3 * hour <= start < began
        assert ended < start + length <= ended + 0.2 * hour
    assert [len(each.nodes) for each in shown.detail] == [28, 28]
    assert page_bytes(shown) <= MAX_PAGE_BYTES


def test_too_long_episode_is_detailed_at_its_onset() -> None:
    shown = build(*many(), episodes=[episode(3_600.0, None)])
    (detail,) = shown.detail
    assert detail.axis.start < START + 3_600.0 - 60.0
    assert FEWEST_BUCKETS <= detail.axis.buckets < 1_440 - 60
    assert page_bytes(shown) <= MAX_PAGE_BYTES


def test_most_severe_episodes_are_detailed_beyond_the_room() -> None:
    low = [episode(600.0 * number, 600.0 * number + 60.0, "low") for number in range(100)]
    shown = build(*many(), episodes=[*low, episode(80_000.0, 80_060.0, "critical")])
    assert any(each.axis.start <= START + 80_000.0 for each in shown.detail)
    assert max(each.axis.start + each.axis.buckets * each.axis.bucket_s for each in shown.detail) > START + 80_060.0
    assert page_bytes(shown) <= MAX_PAGE_BYTES


def test_large_job_without_an_episode_has_no_detail() -> None:
    assert build(*many()).detail == []


@pytest.mark.parametrize("start", [-1e6, 1e9])
def test_episode_outside_the_job_shows_nothing_outside(start: float) -> None:
    shown = build(*many(), episodes=[episode(start, start + 60.0)])
    assert all(each.axis.start >= START for each in shown.detail)
    assert all(each.axis.start + each.axis.buckets * each.axis.bucket_s <= START + 86_400.0 for each in shown.detail)


def test_joined_axis_may_begin_before_that_of_the_digest() -> None:
    late = TimeAxis(start=START + 25.0, bucket_s=5.0, buckets=17_280)
    shown = build(day_of(4, on=late))
    assert shown.axis.start == START
    assert shown.nodes[0].gpus[0].utilization.mean[:2] == [0.0, 3.5]
    assert shown.detail[0].axis == late


def page_bytes(timelines: Timelines) -> float:
    """Return what the GPUs take on the page, bytes."""
    parts = [(timelines.axis.buckets, timelines.nodes), *((each.axis.buckets, each.nodes) for each in timelines.detail)]
    lines = [
        buckets * sum(line is not None for line in (gpu.utilization.mean, gpu.utilization.low, gpu.utilization.high))
        for buckets, nodes in parts
        for node in nodes
        for gpu in node.gpus
    ]
    return sum(lines) * 4 / 3


def test_joining_a_digest_to_an_axis_loses_nothing() -> None:
    fine = digest(samples([(at, "gpu", "gpu0", at) for at in (0.5, 1.0, 12.0, 59.0)]), on=axis(60, 1))
    joined = fine.joined(axis(6, 10))
    assert joined.tables["gpu"].counts.tolist() == [[2, 1, 0, 0, 0, 1]]
    assert joined.tables["gpu"].totals.sum() == fine.tables["gpu"].totals.sum()
    assert fine.joined(fine.axis) is fine
