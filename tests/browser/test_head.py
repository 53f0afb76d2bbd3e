"""The head of the page: in ten seconds what happened, when, where, what it cost and what to change; in any zone."""

from collections.abc import Callable

import pytest

from tests.browser.pages import Opened

Open = Callable[..., Opened]
BOTTOMS = """() => Object.fromEntries([".verdict h2", ".verdict .figures-row", ".verdict .health", ".heat-strip",
    ".lane-bars", ".time-axis", ".answers > div p"].map((each) =>
    [each, document.querySelector(each).getBoundingClientRect().bottom]))"""
RIGHTS = "[...document.querySelectorAll('.verdict *')].map((each) => each.getBoundingClientRect().right)"

COPIES = "() => { navigator.clipboard.writeText = async (text) => { window.__copied = text; }; }"
REFUSES = "() => { navigator.clipboard.writeText = () => Promise.reject(new Error('refused')); }"


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
@pytest.mark.parametrize("sample", ["bad", "day", "large"])
def test_summary_is_visible_without_scrolling(opened: Open, sample: str, width: int, height: int) -> None:
    page = opened(sample, width=width, height=height)
    page.settle()
    assert {name: bottom for name, bottom in page.page.evaluate(BOTTOMS).items() if bottom > height} == {}
    assert max(page.page.evaluate(RIGHTS)) <= width


def test_times_are_local_with_the_zone_named(opened: Open) -> None:
    page = opened("bad")
    header = page.page.locator("header.top").inner_text()
    assert "2026-06-30 20:00:00 EDT to 21:00:00" in header
    assert "America/New_York (EDT)" in page.page.locator("footer").inner_text()
    assert page.page.locator(".tick-clock").first.text_content() == "20:00"
    assert page.page.locator(".lane-facts time").first.inner_text() == "20:10:00"


def test_times_in_sentences_use_the_same_zone(opened: Open) -> None:
    page = opened("state")
    reason = page.page.locator("#rule-LowGPUUtilization .reason")
    assert reason.inner_text().startswith("2026-06-30 20:10 to 20:25 EDT: ")
    page.page.get_by_role("button", name="UTC").click()
    assert reason.inner_text().startswith("2026-07-01 00:10 to 00:25 UTC: ")


def test_choosing_utc_switches_all_times_and_back(opened: Open) -> None:
    page = opened("bad")
    page.draw_all()
    before = page.page.locator("main").inner_text()
    pictures = page.pictures()
    page.page.get_by_role("button", name="UTC").click()
    page.page.mouse.move(0, 0)
    page.settle()
    assert "EDT" not in page.page.locator("body").inner_text()
    assert page.range_shown() == "2026-07-01 00:00:00 to 01:00:00 UTC (60 min)"
    assert page.page.locator("#episode-1 time").inner_text() == "2026-07-01 00:10:00"
    assert page.page.locator(".tick-clock").first.text_content() == "00:00"
    assert [each for each in pictures if pictures[each] == page.pictures()[each]] == []
    page.page.get_by_role("button", name="Local time").click()
    page.page.mouse.move(0, 0)
    page.settle()
    assert page.page.locator("main").inner_text() == before
    assert page.pictures() == pictures


def test_page_without_time_lines_has_local_times_and_summary(
    opened: Open,
) -> None:
    page = opened("state")
    assert "EDT" in page.page.locator("header.top").inner_text()
    assert "algo-1: gpu3" in page.page.locator(".picture").inner_text()
    assert page.page.locator(".lane-bars rect").count() == 2


def test_page_without_script_has_utc_times_and_the_picture(opened: Open) -> None:
    page = opened("bad", scripts=False)
    assert "2026-07-01 00:00:00 UTC" in page.page.locator("header.top").inner_text()
    assert not page.page.locator(".zones").is_visible()
    assert not page.page.locator(".copy").is_visible()
    box = page.page.locator(".heat-strip").bounding_box()
    assert box is not None
    assert (box["width"] > 400, box["height"] > 80) == (True, True)
    assert "from 00:10:00 (+0:10:00)" in page.page.locator(".picture").inner_text()


def test_the_summary_is_copied_or_where_that_is_refused_shown(opened: Open) -> None:
    page = opened("bad")
    page.page.evaluate(COPIES)
    page.page.get_by_role("button", name="Copy summary").click()
    assert page.page.evaluate("window.__copied").startswith("bert-large-slow: Unhealthy\n")
    assert not page.page.locator("#summary").is_visible()
    page.page.get_by_role("button", name="Copied").wait_for()
    page.page.evaluate(REFUSES)
    page.page.locator("button.copy").click()
    page.page.get_by_role("button", name="Selected below").wait_for()
    assert page.page.evaluate("getSelection().toString()").startswith("bert-large-slow: Unhealthy")


@pytest.mark.parametrize(("width", "columns"), [(1920, 2), (1200, 1), (390, 1)])
def test_the_page_uses_the_width_and_never_scrolls_sideways(opened: Open, width: int, columns: int) -> None:
    page = opened("bad", width=width, height=1080)
    page.draw_all()
    edges = page.page.evaluate("[...document.querySelectorAll('main > *')].map((each) => each.getBoundingClientRect())")
    assert max(each["right"] for each in edges) >= 0.95 * width
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    lefts = page.page.evaluate("[...document.querySelectorAll('.tl-plot')].map((each) => each.offsetLeft)")
    assert len(set(lefts)) == columns
