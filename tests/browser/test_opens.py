"""Every page opens from the disk, asks for nothing, says nothing, and runs nothing that it was not given."""

from collections.abc import Callable

import pytest

from tests.browser.conftest import SAMPLES
from tests.browser.pages import Opened
from tests.support.report_samples import HOSTILE

Open = Callable[..., Opened]


@pytest.mark.parametrize("sample", SAMPLES)
def test_given_any_report_when_read_from_top_to_end_then_nothing_is_asked_for_and_nothing_complained_of(
    opened: Open, sample: str
) -> None:
    page = opened(sample)
    page.draw_all() if sample != "state" else page.settle()
    assert page.faults == []
    assert page.page.title()


def test_given_names_with_markup_when_shown_then_they_are_text_and_nothing_of_them_runs(opened: Open) -> None:
    page = opened("hostile")
    page.draw_all()
    for index in ("0", "1", ""):
        page.page.select_option("#tl-node", index)
    page.chart("heat").locator(".tl-heat-over").hover()
    assert page.page.evaluate("window.__hacked") is None
    assert page.page.locator("img").count() == 0
    assert page.page.locator("script").count() == 2
    assert HOSTILE[:20] in page.page.locator("#tl-node").inner_text()


def test_given_no_script_when_opened_then_the_time_lines_are_a_picture_and_numbers(opened: Open) -> None:
    page = opened("bad", scripts=False)
    assert page.page.locator(".tl-fallback").bounding_box() is not None
    assert not page.page.locator(".tl-live").is_visible()
    page.page.get_by_text("Time lines as numbers").click()
    assert "algo-2" in page.page.locator(".tl-table").last.inner_text()


def test_given_a_report_from_state_when_opened_then_there_is_no_section_of_time_lines(opened: Open) -> None:
    assert opened("state").page.locator("#tl").count() == 0
