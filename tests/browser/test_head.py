"""The head of the page: in ten seconds what happened, when, where, what it cost and what to change; in any zone."""

from collections.abc import Callable

import pytest

from tests.browser.pages import Opened

Open = Callable[..., Opened]
BOTTOMS = """() => Object.fromEntries([".verdict h2", ".verdict .figures-row", ".verdict .health", ".heat-strip",
    ".lane-bars", ".time-axis", ".answers > div p"].map((each) =>
    [each, document.querySelector(each).getBoundingClientRect().bottom]))"""
RIGHTS = "[...document.querySelectorAll('.verdict *')].map((each) => each.getBoundingClientRect().right)"


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
@pytest.mark.parametrize("sample", ["bad", "day", "large"])
def test_given_a_report_when_opened_then_what_happened_when_where_and_what_to_change_is_seen_without_scrolling(
    opened: Open, sample: str, width: int, height: int
) -> None:
    page = opened(sample, width=width, height=height)
    page.settle()
    assert {name: bottom for name, bottom in page.page.evaluate(BOTTOMS).items() if bottom > height} == {}
    assert max(page.page.evaluate(RIGHTS)) <= width


def test_given_a_reader_in_another_zone_when_opened_then_times_are_local_with_the_zone_named(opened: Open) -> None:
    page = opened("bad")
    header = page.page.locator("header.top").inner_text()
    assert "2026-06-30 20:00:00 EDT to 21:00:00" in header
    assert "America/New_York (EDT)" in page.page.locator("footer").inner_text()
    assert page.page.locator(".tick-clock").first.text_content() == "20:00"
    assert page.page.locator(".lane-facts time").first.inner_text() == "20:10:00"


def test_given_a_sentence_with_times_when_opened_then_they_are_in_the_zone_of_all_others(opened: Open) -> None:
    page = opened("state")
    reason = page.page.locator("#rule-LowGPUUtilization .reason")
    assert reason.inner_text().startswith("2026-06-30 20:10 to 20:25 EDT: ")
    page.page.get_by_role("button", name="UTC").click()
    assert reason.inner_text().startswith("2026-07-01 00:10 to 00:25 UTC: ")


def test_given_utc_is_chosen_when_read_then_every_time_is_in_utc_and_local_again_after(opened: Open) -> None:
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


def test_given_a_page_without_time_lines_when_opened_then_its_times_are_local_too_and_it_says_when_and_where(
    opened: Open,
) -> None:
    page = opened("state")
    assert "EDT" in page.page.locator("header.top").inner_text()
    assert "algo-1: gpu3" in page.page.locator(".picture").inner_text()
    assert page.page.locator(".lane-bars rect").count() == 2


def test_given_no_script_when_opened_then_times_are_in_utc_and_the_picture_is_there(opened: Open) -> None:
    page = opened("bad", scripts=False)
    assert "2026-07-01 00:00:00 UTC" in page.page.locator("header.top").inner_text()
    assert not page.page.locator(".zones").is_visible()
    box = page.page.locator(".heat-strip").bounding_box()
    assert box is not None
    assert (box["width"] > 400, box["height"] > 80) == (True, True)
    assert "from 00:10:00 (+0:10:00)" in page.page.locator(".picture").inner_text()
