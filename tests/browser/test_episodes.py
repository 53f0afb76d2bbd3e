"""Episodes lead to their place on the time lines and back; zoomed in, the page shows what it holds more finely."""

import re
from collections.abc import Callable

import pytest

from tests.browser.pages import Opened
from tests.browser.test_charts import legend_values, point_at, value_at
from tests.support.report_samples import day_report

Open = Callable[..., Opened]
COLUMNS = """([kind, colours]) => {
    const canvas = document.querySelector(`[data-tl-chart=${kind}] canvas`);
    const ratio = canvas.width / canvas.clientWidth;
    const { width, height } = canvas;
    const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
    const near = (x, y, each, i) => Math.abs(data[4 * (y * width + x) + i] - each) < 4;
    const is = (x, y) => colours.some((colour) => colour.every((each, i) => near(x, y, each, i)));
    const share = (x) => [...Array(height).keys()].filter((y) => is(x, y)).length / height;
    return [...Array(width).keys()].filter((x) => share(x) > 0.5).map((x) => x / ratio);
}"""
# The colour of a critical finding.
HIGH = [179, 38, 30]


def shown_range(page: Opened) -> str:
    page.settle()
    return page.range_shown()


def test_finding_links_to_its_episode_and_the_bar_links_back(
    opened: Open,
) -> None:
    page = opened("bad")
    page.page.locator("#rule-LowGPUUtilization [data-episode]").first.click()
    assert shown_range(page) == "2026-06-30 20:07:00 to 20:28:00 EDT (21 min)"
    assert page.page.evaluate("document.getElementById('timelines').getBoundingClientRect().top") < 200
    page.chart("strip")
    page.page.get_by_role(
        "link", name=re.compile("algo-1: gpu3, 15 min: LowGPUUtilization, critical, from 2026-06-30 20:10")
    ).click()
    page.page.wait_for_url("**#episode-1")
    row = page.page.locator("#episode-1")
    assert page.page.evaluate("document.querySelector(':target').id") == "episode-1"
    assert "20:10:00" in row.inner_text()


def test_episode_bars_begin_at_their_onsets_in_lanes_of_rules(
    opened: Open,
) -> None:
    page = opened("bad")
    page.chart("strip")
    lanes = page.page.locator(".tl-lane-name").all_inner_texts()
    assert [each.replace("\n", "") for each in lanes] == ["LowGPUUtilization", "CPUBottleneck", "Phases"]
    bars = page.page.locator(".tl-episode").evaluate_all(
        "bars => bars.map((each) => [each.offsetLeft / each.parentElement.clientWidth, "
        "each.offsetWidth / each.parentElement.clientWidth])"
    )
    assert [place for place, _ in bars] == pytest.approx([600 / 3_600, 0.8, 1_818 / 3_600], abs=0.002)
    assert [width for _, width in bars] == pytest.approx([0.25, 0.2, 282 / 3_600], abs=0.003)


def test_chart_marks_the_onset_of_an_episode(opened: Open) -> None:
    page = opened("bad")
    chart = page.chart("utilization")
    over = chart.locator(".u-over").bounding_box()
    canvas = chart.locator("canvas").bounding_box()
    assert over is not None
    assert canvas is not None
    columns = page.page.evaluate(COLUMNS, ["utilization", [HIGH]])
    for share in (600 / 3_600, 0.8):
        onset = over["x"] - canvas["x"] + share * over["width"]
        assert any(abs(column - onset) <= 2 for column in columns), (onset, columns)


def test_chart_draws_thresholds_dashed_with_their_rules(
    opened: Open,
) -> None:
    page = opened("bad")
    chart = page.chart("utilization")
    named = chart.locator(".tl-thresholds span").all_inner_texts()
    assert named == ["70 % LowGPUUtilization: p95", "10 % LowGPUUtilization: p5"]
    dark = chart.locator("canvas").evaluate(
        """(canvas) => {
            const ctx = canvas.getContext("2d");
            const { width, height } = canvas;
            const data = ctx.getImageData(0, 0, width, height).data;
            const isText = (x, y) => data[4 * (y * width + x)] < 60 && data[4 * (y * width + x) + 3] > 200;
            return [...Array(height).keys()].filter((y) => {
                let count = 0;
                for (let x = 100; x < width - 300; x += 1) if (isText(x, y)) count += 1;
                return count > 0.4 * (width - 400);
            }).map((y) => y * canvas.clientHeight / height);
        }"""
    )
    over = chart.locator(".u-over").bounding_box()
    canvas = chart.locator("canvas").bounding_box()
    assert over is not None
    assert canvas is not None
    for value in (70.0, 10.0):
        line = over["y"] - canvas["y"] + over["height"] * (1.0 - value / 100.0)
        assert any(abs(each - line) <= 2 for each in dark), (value, line, dark)


def test_zoom_into_an_episode_shows_finer_values_and_says_so(
    opened: Open,
) -> None:
    page = opened("day")
    page.chart("utilization")
    assert page.page.locator("#tl-cursor").inner_text() == "a value each 30 s"
    page.page.locator(".episodes [data-episode=episode-2]").click()
    page.settle()
    assert page.page.locator("#tl-cursor").inner_text() == "a value each 5 s"
    for _ in range(5):
        page.page.get_by_role("button", name="Zoom in").click()
    page.page.select_option("#tl-node", "1")
    fine = day_report().timelines
    assert fine is not None
    (detail,) = fine.detail
    middle = int((9.0 + 0.75) * 720)
    page.page.locator("[data-tl-chart=utilization] .tl-plot").focus()
    point_at(page, "utilization", 0, 2)
    seen = legend_values(page, "utilization")
    at = page.page.locator("#tl-cursor").inner_text()
    hours, minutes, seconds = (int(each) for each in re.findall(r"\+(\d+):(\d+):(\d+)", at)[0])
    bucket = (3_600 * hours + 60 * minutes + seconds) // 5
    assert abs(bucket - middle) < 60
    for gpu in detail.nodes[1].gpus:
        assert seen[gpu.gpu] == pytest.approx(value_at(gpu.utilization.mean, bucket), abs=0.3)
    page.page.get_by_role("button", name="Whole job").click()
    page.page.mouse.move(0, 0)
    page.settle()
    assert page.page.locator("#tl-cursor").inner_text() == "a value each 30 s"


def test_large_job_is_finer_only_around_an_onset(opened: Open) -> None:
    page = opened("large")
    page.chart("heat")
    page.page.evaluate("document.querySelector('#tl-range').scrollIntoView()")
    for _ in range(6):
        page.page.get_by_role("button", name="Zoom in").click()
    assert page.page.locator("#tl-cursor").inner_text() == "a value each 5.0 min"
    page.page.get_by_role("button", name="Whole job").click()
    over = page.page.locator(".tl-heat-over").bounding_box()
    assert over is not None
    page.page.mouse.move(over["x"] + 0.29 * over["width"], over["y"] + 40)
    page.page.mouse.down()
    page.page.mouse.move(over["x"] + 0.31 * over["width"], over["y"] + 40, steps=3)
    page.page.mouse.up()
    page.page.mouse.move(0, 0)
    page.settle()
    assert page.page.locator("#tl-cursor").inner_text() == "a value each 60 s"


def test_hidden_line_stays_hidden_after_a_change_of_level(opened: Open) -> None:
    page = opened("day")
    chart = page.chart("utilization")
    chart.get_by_role("button", name="algo-1").click()
    page.page.locator(".episodes [data-episode=episode-2]").click()
    page.settle()
    assert chart.get_by_role("button", name="algo-1").get_attribute("aria-pressed") == "false"
    assert chart.get_by_role("button", name="algo-2").get_attribute("aria-pressed") == "true"
