"""What is drawn is the data: pixels of the heat map, values under the pointer, lines of the node that was chosen."""

import re
from collections.abc import Callable, Sequence

import pytest

from tests.browser.pages import Opened
from tests.support.report_samples import bad_report, day_report, healthy_report, large_report
from trainguard.report.document import Report
from trainguard.report.timeline.series import Timelines, Values

Open = Callable[..., Opened]
GUTTER, RIGHT, TOP, BOTTOM = 76, 26, 4, 36
RAMP = [
    (68, 1, 84),
    (71, 45, 123),
    (59, 82, 139),
    (44, 114, 142),
    (33, 145, 140),
    (40, 174, 128),
    (94, 201, 98),
    (173, 220, 48),
    (253, 231, 37),
]
PIXEL = """([x, y]) => {
    const canvas = document.querySelector(".tl-heat-canvas");
    const ratio = canvas.width / canvas.clientWidth;
    const copy = new OffscreenCanvas(1, 1).getContext("2d");
    copy.drawImage(canvas, -Math.round(x * ratio), -Math.round(y * ratio));
    return [...copy.getImageData(0, 0, 1, 1).data];
}"""
COLOURS = """(kind) => {
    const canvas = [...document.querySelectorAll(`[data-tl-chart=${kind}] canvas`)].at(-1);
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    return new Set(new Uint32Array(data.buffer)).size;
}"""


def timelines_of(report: Report) -> Timelines:
    assert report.timelines is not None
    return report.timelines


def ramp_colour(percent: float) -> list[int]:
    at = percent / 100.0 * (len(RAMP) - 1)
    low = min(int(at), len(RAMP) - 2)
    return [round(a + (b - a) * (at - low)) for a, b in zip(RAMP[low], RAMP[low + 1], strict=True)]


def cell(page: Opened, row: int, rows: int, bucket: int, buckets: int) -> tuple[float, float]:
    """Return the middle of a cell on the heat map, pixels from its corner."""
    box = page.page.locator(".tl-heat").bounding_box()
    assert box is not None
    x = GUTTER + (bucket + 0.5) / buckets * (box["width"] - GUTTER - RIGHT)
    return x, TOP + (row + 0.5) / rows * (box["height"] - TOP - BOTTOM)


def point_at(page: Opened, kind: str, bucket: int, buckets: int) -> None:
    """Move the pointer over the middle of a bucket of a line chart."""
    over = page.chart(kind).locator(".u-over")
    box = over.bounding_box()
    assert box is not None
    page.page.mouse.move(box["x"] + (bucket + 0.5) / buckets * box["width"], box["y"] + box["height"] / 2)


def legend_values(page: Opened, kind: str) -> dict[str, float]:
    items = page.page.locator(f"[data-tl-chart={kind}] .tl-item").all_inner_texts()
    pairs = [re.split(r"\s+", each.strip()) for each in items]
    return {name: float(rest[0]) for name, *rest in pairs}


def test_every_canvas_of_a_report_is_drawn(opened: Open) -> None:
    page = opened("bad")
    page.draw_all()
    for kind in ("heat", "utilization", "memory", "cpu", "io_wait", "host_memory", "network", "steps"):
        assert page.page.evaluate(COLOURS, kind) > 20, kind


def test_heat_map_cells_have_the_colours_of_their_values(opened: Open) -> None:
    page = opened("bad")
    page.chart("heat")
    gpus = [gpu for node in timelines_of(bad_report()).nodes for gpu in node.gpus]
    for row, bucket in ((0, 100), (3, 60), (8, 30), (15, 200), (0, 2), (7, 239)):
        *pixel, opacity = page.page.evaluate(PIXEL, cell(page, row, 16, bucket, 240))
        expected = ramp_colour(round(value_at(gpus[row].utilization.mean, bucket) * 2) / 2)
        assert max(abs(a - b) for a, b in zip(pixel, expected, strict=True)) <= 2, (row, bucket)
        assert opacity == 255


def test_cells_without_data_have_no_colour_of_the_ramp(opened: Open) -> None:
    page = opened("bad")
    page.chart("heat")
    x, y = cell(page, 12, 16, 120, 240)
    pixels = [page.page.evaluate(PIXEL, (x + dx, y))[:3] for dx in range(6)]
    assert all(max(pixel) - min(pixel) < 20 for pixel in pixels), "a hatch in grey"


def test_pixel_of_several_buckets_shows_the_mean_of_present_ones(
    opened: Open,
) -> None:
    page = opened("day")
    columns = round(page.chart("heat").locator(".tl-heat").evaluate("each => each.clientWidth")) - GUTTER - RIGHT
    values = timelines_of(day_report()).nodes[1].gpus[0].utilization.mean
    _, y = cell(page, 8, 16, 0, 2_880)
    gap = int(0.45 * 2_880)
    for column in (200, gap * columns // 2_880):
        first, last = int(column * 2_880 / columns), int((column + 1) * 2_880 / columns)
        kept = [round(each * 2) / 2 for each in values[first:last] if each is not None]
        assert 0 < len(kept) < 6
        *pixel, opacity = page.page.evaluate(PIXEL, (GUTTER + column, y))
        expected = ramp_colour(mean_of(kept))
        assert max(abs(a - b) for a, b in zip(pixel, expected, strict=True)) <= 3, column
        assert opacity == 255


def test_tooltip_of_a_cell_names_row_time_and_value(opened: Open) -> None:
    page = opened("bad")
    heat = page.chart("heat").locator(".tl-heat")
    x, y = cell(page, 11, 16, 200, 240)
    heat.hover(position={"x": x, "y": y})
    value = timelines_of(bad_report()).nodes[1].gpus[3].utilization.mean[200] or 0.0
    assert (
        page.page.locator(".tl-tip").inner_text() == f"algo-2/gpu3 · 20:50:00 (+0:50:00) · {round(value * 2) / 2:.1f} %"
    )


def test_hovered_bucket_shows_its_values_in_every_chart(opened: Open) -> None:
    page = opened("bad")
    page.draw_all()
    page.page.select_option("#tl-node", "0")
    node = timelines_of(bad_report()).nodes[0]
    assert node.host_memory is not None
    for bucket in (7, 100, 239):
        point_at(page, "utilization", bucket, 240)
        assert legend_values(page, "utilization") == pytest.approx(
            {gpu.gpu: value_at(gpu.utilization.mean, bucket) for gpu in node.gpus}, abs=0.3
        )
        used = value_at(node.host_memory.mean, bucket)
        assert legend_values(page, "host_memory")["mean"] == pytest.approx(used, abs=0.3)


def value_at(values: Values, bucket: int) -> float:
    value = values[bucket]
    assert value is not None
    return value


def test_hovered_slow_step_is_named_with_its_length(opened: Open) -> None:
    page = opened("bad")
    note = page.chart("steps").locator(".tl-note")
    said = note.inner_text()
    point_at(page, "steps", int(0.55 * 240), 240)
    assert note.inner_text() == "step 2000 took 1.30 s"
    point_at(page, "steps", int(0.65 * 240), 240)
    assert note.inner_text() == said


def test_legend_shows_the_visible_mean_without_a_pointer(opened: Open) -> None:
    page = opened("healthy")
    page.chart("utilization")
    gpus = timelines_of(healthy_report()).nodes[0].gpus
    expected = {each.gpu: mean_of(each.utilization.mean) for each in gpus}
    assert legend_values(page, "utilization") == pytest.approx(expected, abs=0.3)


def mean_of(values: Sequence[float | None]) -> float:
    kept = [each for each in values if each is not None]
    return sum(kept) / len(kept)


def test_legend_button_hides_and_restores_its_line(opened: Open) -> None:
    page = opened("healthy")
    chart = page.chart("utilization")
    before = page.pictures()["utilization"]
    button = chart.get_by_role("button", name="gpu5")
    button.click()
    page.page.mouse.move(0, 0)
    page.settle()
    assert button.get_attribute("aria-pressed") == "false"
    assert page.pictures()["utilization"] != before
    button.click()
    page.page.mouse.move(0, 0)
    page.settle()
    assert page.pictures()["utilization"] == before


def test_worst_of_many_nodes_are_named_and_open_gpu_by_gpu(
    opened: Open,
) -> None:
    page = opened("large")
    page.chart("utilization")
    labels = page.page.locator("[data-tl-chart=utilization] .tl-label")
    assert labels.all_inner_texts()[:3] == ["mean of 128 nodes", "algo-41", "algo-91"]
    page.page.select_option("#tl-node", label="algo-91")
    assert list(legend_values(page, "utilization")) == [f"gpu{i}" for i in range(8)]
    page.chart("heat").locator(".tl-heat").hover(position={"x": 300, "y": 5 + 2.5 * 480 / 8})
    assert page.page.locator(".tl-tip").inner_text().startswith("algo-91/gpu2")


def test_slow_gpu_stands_out_in_the_lowest_of_a_thousand(
    opened: Open,
) -> None:
    page = opened("large")
    page.chart("heat")
    spot = cell(page, 90, 128, 100, 288)
    mean = page.page.evaluate(PIXEL, spot)
    page.page.get_by_role("button", name="Lowest GPU of a node").click()
    lowest = page.page.evaluate(PIXEL, spot)
    value = timelines_of(large_report()).nodes[90].gpus[2].utilization.mean[100] or 0.0
    assert lowest != mean
    assert max(abs(a - b) for a, b in zip(lowest[:3], ramp_colour(round(value * 2) / 2), strict=True)) <= 8
