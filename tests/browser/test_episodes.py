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
HIGH = [179, 38, 30]
"""The colour of a critical finding."""


def shown_range(page: Opened) -> str:
    page.settle()
    return page.range_shown()


def test_given_a_finding_when_its_episode_is_followed_then_the_time_lines_show_it_and_its_bar_leads_back(
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
    assert page.page.url.endswith("#episode-1")
    row = page.page.locator("#episode-1")
    assert page.page.evaluate("document.querySelector(':target').id") == "episode-1"
    assert "20:10:00" in row.inner_text()


def test_given_episodes_when_shown_then_every_one_has_a_bar_that_begins_at_its_onset_in_a_lane_of_its_rule(
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


def test_given_an_episode_when_a_chart_is_drawn_then_a_line_stands_at_its_onset(opened: Open) -> None:
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


def test_given_thresholds_when_a_chart_is_drawn_then_a_dashed_line_stands_at_each_and_its_rule_is_named(
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


def test_given_a_day_when_zoomed_into_an_episode_then_values_are_the_finer_ones_and_the_page_says_so(
    opened: Open,
) -> None:
    page = opened("day")
    page.chart("utilization")
    assert page.page.locator("#tl-cursor").inner_text() == "a value each 30 s"
    page.page.locator("[data-episode=episode-2]").click()
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


def test_given_a_large_job_when_zoomed_then_it_is_finer_around_an_onset_and_as_before_elsewhere(opened: Open) -> None:
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


def test_given_a_line_that_was_hidden_when_the_level_changes_then_it_stays_hidden(opened: Open) -> None:
    page = opened("day")
    chart = page.chart("utilization")
    chart.get_by_role("button", name="algo-1").click()
    page.page.locator("[data-episode=episode-2]").click()
    page.settle()
    assert chart.get_by_role("button", name="algo-1").get_attribute("aria-pressed") == "false"
    assert chart.get_by_role("button", name="algo-2").get_attribute("aria-pressed") == "true"
