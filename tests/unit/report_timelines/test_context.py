"""What the template of time lines is given."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.packed import unpack_floats, unpack_percents
from tests.support.report_samples import HOSTILE, bad_report, finding, hostile_report
from tests.support.timeline_samples import START, make_timelines
from trainguard.core.finding import EpisodeEntry
from trainguard.core.timestamps import iso_time
from trainguard.report.document import Report
from trainguard.report.html.render import report_timelines
from trainguard.report.html.timelines import fallback_path, timelines_context
from trainguard.report.timeline.series import Band, GpuTimeline, NodeTimeline, TimeAxis, TimelineDetail, Timelines


def timelines_of(report: Report) -> Timelines:
    assert report.timelines is not None
    return report.timelines


def island_of(report: Report) -> dict[str, Any]:
    context = report_timelines(report)
    assert context is not None
    decoded: dict[str, Any] = json.loads(context["island"])
    return decoded


def kinds(context: dict[str, Any]) -> list[str]:
    return [kind for kind, *_ in context["charts"]]


def test_every_packed_series_can_be_read_back() -> None:
    timelines = timelines_of(bad_report())
    island = island_of(bad_report())
    assert island["axis"] == {"start": START, "bucket_s": 15.0, "buckets": 240}
    assert island["origin"] == START
    for node, packed in zip(timelines.nodes, island["nodes"], strict=True):
        assert packed["name"] == node.node
        for gpu, shown in zip(node.gpus, packed["gpus"], strict=True):
            for part in ("mean", "low", "high"):
                read = unpack_percents(shown["utilization"][part])
                assert read == pytest.approx(getattr(gpu.utilization, part), abs=0.25, nan_ok=True)
        assert set(packed["cpu"]) == {"mean", "high"}
        assert node.network is not None
        assert unpack_floats(packed["network"]["mean"]) == pytest.approx(node.network.mean, rel=1e-6)


def test_finer_buckets_have_their_own_axis() -> None:
    whole = timelines_of(bad_report())
    names = [node.node for node in whole.nodes]
    fine = make_timelines(nodes=names, gpus=2, buckets=720, bucket_s=5.0, slow=[(0, 1)])
    detailed = replace(whole, detail=[TimelineDetail(axis=fine.axis, nodes=fine.nodes)])
    (detail,) = island_of(replace(bad_report(), timelines=detailed))["detail"]
    assert detail["axis"] == {"start": START, "bucket_s": 5.0, "buckets": 720}
    assert len(unpack_percents(detail["nodes"][0]["gpus"][1]["utilization"]["mean"])) == 720
    assert island_of(bad_report())["detail"] == []


def test_packed_episodes_begin_at_onset_on_rows_of_their_gpus() -> None:
    episodes = island_of(bad_report())["episodes"]
    assert [(each["rule"], each["start"] - START, each["end"] - START) for each in episodes] == [
        ("LowGPUUtilization", 600.0, 1_500.0),
        ("CPUBottleneck", 1_818.0, 2_100.0),
        ("LowGPUUtilization", 2_880.0, 3_600.0),
    ]
    assert [(each["nodes"], each["gpus"], each["where"]) for each in episodes] == [
        ([0], [[0, 3]], "algo-1: gpu3"),
        ([], [], "whole job"),
        ([0], [[0, 3]], "algo-1: gpu3"),
    ]
    assert [each["anchor"] for each in episodes] == ["episode-1", "episode-3", "episode-2"]


def test_gpus_have_rows_on_their_node_and_unknown_ones_none() -> None:
    entry = EpisodeEntry(
        start=iso_time(START),
        end=None,
        node=None,
        nodes=["algo-1", "algo-2", "gone"],
        gpus=["algo-2/gpu1", "gone/gpu0"],
    )
    shown = replace(bad_report(), findings=[finding("LowGPUUtilization", [entry])])
    (episode,) = island_of(shown)["episodes"]
    assert (episode["nodes"], episode["gpus"]) == ([0, 1], [[1, 1]])
    assert episode["end"] == START + 3_600.0


def test_each_threshold_has_its_chart_and_the_fired_rule() -> None:
    assert island_of(bad_report())["thresholds"] == [
        {"chart": "utilization", "value": 70.0, "label": "LowGPUUtilization p95"},
        {"chart": "utilization", "value": 10.0, "label": "LowGPUUtilization p5"},
    ]


def test_packed_names_with_markup_cannot_end_the_element() -> None:
    context = timelines_context(timelines_of(hostile_report()))
    text = context["island"]
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text)["nodes"][0]["name"].startswith(HOSTILE[:20])
    assert all(len(each) < 100 and "\u202e" not in each for each in context["nodes"])


def test_charts_and_columns_are_of_collected_data_only() -> None:
    axis = TimeAxis(start=START, bucket_s=60.0, buckets=2)
    node = NodeTimeline(node="algo-1", gpus=[], cpu=Band(mean=[10.0, 20.0], high=[30.0, 90.0]))
    context = timelines_context(Timelines(axis=axis, nodes=[node], steps=[], phases=[]))
    assert kinds(context) == ["cpu"]
    assert (context["gpus"], context["fallback"]) == (0, "")
    titles, rows = context["numbers"]
    assert titles == ["Node", "CPU"]
    assert rows[0][1:] == ["10 % / 15 % / 90 %"]


def test_gpu_without_any_value_shows_a_dash() -> None:
    axis = TimeAxis(start=START, bucket_s=60.0, buckets=2)
    none: list[float | None] = [None, None]
    gpu = GpuTimeline(gpu="gpu0", utilization=Band(mean=none, low=none, high=none))
    context = timelines_context(
        Timelines(axis=axis, nodes=[NodeTimeline(node="algo-1", gpus=[gpu])], steps=[], phases=[])
    )
    assert context["numbers"][1][0][1:] == ["\N{EN DASH}"]
    assert context["fallback"] == ""


@pytest.mark.parametrize(("gpus", "height"), [(8, "s"), (9, "m"), (16, "m"), (17, "l"), (64, "l"), (65, "xl")])
def test_heat_map_grows_with_gpus_up_to_a_limit(gpus: int, height: str) -> None:
    timelines = make_timelines(nodes=["algo-1"], gpus=gpus, buckets=40, bucket_s=60.0)
    assert timelines_context(timelines)["heat_height"] == height


def test_gap_is_a_gap_in_the_line_drawn_without_a_script() -> None:
    gpu = GpuTimeline(gpu="gpu0", utilization=Band(mean=[0.0, 50.0, None, 100.0]))
    assert fallback_path([NodeTimeline(node="a", gpus=[gpu])]) == "M125.0 100.0L375.0 50.0M875.0 0.0"
