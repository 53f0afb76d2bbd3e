"""What the template of time lines is given."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.report_samples import HOSTILE, bad_report, healthy_report, hostile_report, large_report
from tests.support.timeline_samples import START, make_timelines
from trainguard.report.document import Report
from trainguard.report.html.islands import ISLAND
from trainguard.report.html.packing import unpack_floats, unpack_percents
from trainguard.report.html.timeline_text import fallback_path, fires_shown
from trainguard.report.html.timelines import TimelinesContext, timelines_context
from trainguard.timeline.series import Band, GpuTimeline, Mark, NodeTimeline, TimeAxis, Timelines


def timelines_of(report: Report) -> Timelines:
    assert report.timelines is not None
    return report.timelines


def island_of(timelines: Timelines) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(timelines_context(timelines).data[ISLAND])
    return decoded


def kinds(context: TimelinesContext) -> list[str]:
    return [each.kind for each in context.charts]


def test_given_time_lines_when_packed_then_every_series_can_be_read_again() -> None:
    timelines = timelines_of(bad_report())
    island = island_of(timelines)
    assert island["axis"] == {"start": START, "bucket_s": 15.0, "buckets": 240}
    for node, packed in zip(timelines.nodes, island["nodes"], strict=True):
        assert packed["name"] == node.node
        for gpu, shown in zip(node.gpus, packed["gpus"], strict=True):
            for part in ("mean", "low", "high"):
                read = unpack_percents(shown["utilization"][part])
                assert read == pytest.approx(getattr(gpu.utilization, part), abs=0.25, nan_ok=True)
        assert set(packed["cpu"]) == {"mean", "high"}
        assert node.network is not None
        assert unpack_floats(packed["network"]["mean"]) == pytest.approx(node.network.mean, rel=1e-6)


def test_given_fires_when_packed_then_they_stand_on_the_rows_of_their_node_and_gpu() -> None:
    marks = island_of(timelines_of(bad_report()))["marks"]
    assert [(each["node"], each["gpu"], each["where"]) for each in marks] == [
        (0, 3, "algo-1/gpu3"),
        (None, None, "all nodes"),
        (0, 3, "algo-1/gpu3"),
    ]
    assert {each["anchor"] for each in marks} == {"rule-LowGPUUtilization", "rule-CPUBottleneck"}


def test_given_a_fire_of_an_unknown_rule_when_packed_then_it_leads_nowhere() -> None:
    timelines = replace(timelines_of(healthy_report()), marks=[Mark(at=START, rule="x y", node="algo-9")])
    (mark,) = island_of(timelines)["marks"]
    assert (mark["anchor"], mark["node"], mark["where"]) == (None, None, "algo-9")
    assert timelines_context(timelines).fires[0].anchor is None


def test_given_names_with_markup_when_packed_then_the_text_cannot_end_its_element() -> None:
    context = timelines_context(timelines_of(hostile_report()))
    text = context.data[ISLAND]
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text)["nodes"][0]["name"].startswith(HOSTILE[:20])
    assert all(len(each) < 100 and "\u202e" not in each for each in context.nodes)


def test_given_little_was_collected_when_prepared_then_there_are_charts_and_columns_of_that_alone() -> None:
    axis = TimeAxis(start=START, bucket_s=60.0, buckets=2)
    node = NodeTimeline(node="algo-1", gpus=[], cpu=Band(mean=[10.0, 20.0], high=[30.0, 90.0]))
    context = timelines_context(Timelines(axis=axis, nodes=[node], steps=[], phases=[], marks=[]))
    assert kinds(context) == ["cpu"]
    assert (context.gpus, context.fallback) == (0, "")
    assert context.numbers.columns == ("CPU",)
    assert context.numbers.rows[0].cells == ("10 % / 15 % / 90 %",)


def test_given_a_gpu_without_a_single_value_when_prepared_then_its_numbers_are_a_dash() -> None:
    axis = TimeAxis(start=START, bucket_s=60.0, buckets=2)
    none: list[float | None] = [None, None]
    gpu = GpuTimeline(gpu="gpu0", utilization=Band(mean=none, low=none, high=none))
    context = timelines_context(
        Timelines(axis=axis, nodes=[NodeTimeline(node="algo-1", gpus=[gpu])], steps=[], phases=[], marks=[])
    )
    assert context.numbers.rows[0].cells == ("\N{EN DASH}",)
    assert context.fallback == ""


@pytest.mark.parametrize(("gpus", "height"), [(8, "s"), (9, "m"), (16, "m"), (17, "l"), (64, "l"), (65, "xl")])
def test_given_more_gpus_when_prepared_then_the_heat_map_is_higher_up_to_a_limit(gpus: int, height: str) -> None:
    timelines = make_timelines(nodes=["algo-1"], gpus=gpus, buckets=40, bucket_s=60.0)
    assert timelines_context(timelines).heat_height == height


def test_given_a_gap_when_drawn_without_a_script_then_the_line_has_one() -> None:
    gpu = GpuTimeline(gpu="gpu0", utilization=Band(mean=[0.0, 50.0, None, 100.0]))
    assert fallback_path([NodeTimeline(node="a", gpus=[gpu])]) == "M125.0 100.0L375.0 50.0M875.0 0.0"


def test_given_a_thousand_gpus_when_prepared_then_the_page_has_one_row_a_node() -> None:
    context = timelines_context(timelines_of(large_report()))
    assert len(context.numbers.rows) == len(context.nodes) == 128
    assert len(context.fallback) < 6_000


def test_given_fires_when_written_out_then_their_times_are_in_utc_and_in_order() -> None:
    marks = [Mark(at=START + 1_800.9, rule="B"), Mark(at=START, rule="A", node="algo-1", gpu="gpu1", severity="high")]
    shown = fires_shown(marks)
    assert [(each.at, each.rule, each.place, each.severity) for each in shown] == [
        ("2026-07-01 00:00:00", "A", "algo-1/gpu1", "high"),
        ("2026-07-01 00:30:00", "B", "all nodes", "\N{EN DASH}"),
    ]
