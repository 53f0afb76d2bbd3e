"""Every page opens from the disk, asks for nothing, says nothing, and runs nothing that it was not given."""

from collections.abc import Callable

import pytest

from tests.browser.conftest import SAMPLES
from tests.browser.pages import Opened
from tests.support.report_samples import HOSTILE

Open = Callable[..., Opened]


@pytest.mark.parametrize("sample", SAMPLES)
def test_report_loads_nothing_and_logs_no_errors(opened: Open, sample: str) -> None:
    page = opened(sample)
    page.draw_all() if sample != "state" else page.settle()
    assert page.faults == []
    assert page.page.title()


@pytest.mark.parametrize("locale", [None, "de-DE", "ar-EG"])
def test_charts_and_times_are_the_same_in_any_locale(opened: Open, locale: str | None) -> None:
    page = opened("bad", locale=locale)
    language = page.page.evaluate("navigator.language")
    assert language == locale or (locale is None and "posix" in language.lower())
    page.chart("utilization")
    page.chart("heat")
    assert page.range_shown() == "2026-06-30 20:00:00 to 21:00:00 EDT (60 min)"
    assert page.page.locator("[data-tl-chart=utilization] .tl-value").first.inner_text().endswith(" %")


def test_names_with_markup_are_shown_as_text(opened: Open) -> None:
    page = opened("hostile")
    page.draw_all()
    for index in ("0", "1", ""):
        page.page.select_option("#tl-node", index)
    page.chart("heat").locator(".tl-heat-over").hover()
    assert page.page.evaluate("window.__hacked") is None
    assert page.page.locator("img").count() == 0
    assert page.page.locator("script").count() == 2
    assert HOSTILE[:20] in page.page.locator("#tl-node").inner_text()


def test_time_lines_without_script_are_a_picture_and_numbers(opened: Open) -> None:
    page = opened("bad", scripts=False)
    assert page.page.locator(".tl-fallback").bounding_box() is not None
    assert not page.page.locator(".tl-live").is_visible()
    page.page.get_by_text("Time lines as numbers").click()
    assert "algo-2" in page.page.locator(".tl-table").last.inner_text()


def test_report_from_state_has_no_time_line_section(opened: Open) -> None:
    assert opened("state").page.locator("#tl").count() == 0
