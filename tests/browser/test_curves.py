"""Charts over steps: values under the pointer, in all charts at once, and linked with the time lines by time."""

from collections.abc import Callable

from playwright.sync_api import Locator

from tests.browser.pages import Opened

Open = Callable[..., Opened]


def point_at(page: Opened, chart: Locator, share: float) -> None:
    """Move the pointer to a share of a chart's axis, 0 to 1."""
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    scale = box["width"] / 400.0
    page.page.mouse.move(box["x"] + (46.0 + share * 342.0) * scale, box["y"] + 0.5 * box["height"])
    page.settle()


def legends(page: Opened) -> list[str]:
    return page.page.locator("#training-series .legend b").all_inner_texts()


def test_pointed_step_is_shown_in_all_charts_and_time_lines(opened: Open) -> None:
    page = opened("trained", height=2_000)
    page.chart("utilization")
    chart = page.page.locator("#training-series svg.chart").first
    point_at(page, chart, 0.25)
    assert page.page.locator("#training-series figcaption b").all_inner_texts() == ["step 9,000", "step 9,000"]
    assert legends(page)[0] == "0.8"
    assert "1.00e-4" in legends(page)
    assert page.page.locator("#tl-cursor").inner_text().startswith("at 20:15:00")
    page.page.mouse.move(0, 0)
    page.settle()
    assert set(legends(page)) == {""}
    assert not page.page.locator("#tl-cursor").inner_text().startswith("at")


def test_a_step_without_a_finite_value_shows_none(opened: Open) -> None:
    page = opened("trained", height=2_000)
    point_at(page, page.page.locator("#training-series svg.chart").first, 300 / 599)
    assert legends(page)[0] == "\N{EN DASH}"


def test_a_moment_on_the_time_lines_is_shown_in_the_loss(opened: Open) -> None:
    page = opened("trained", height=2_000)
    over = page.chart("utilization").locator(".u-over")
    over.hover()
    page.settle()
    assert page.page.locator("#training-series figcaption b").first.inner_text() == "step 18,000"


def test_a_bar_at_the_head_zooms_the_time_lines_to_its_episode(opened: Open) -> None:
    page = opened("bad")
    page.page.locator(".lane-bars a").first.click()
    page.chart("utilization")
    assert page.range_shown().startswith("2026-06-30 20:07:00 to 20:28:00")
