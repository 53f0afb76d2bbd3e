"""All charts show one range of time: chosen by drag, by key and by button."""

from collections.abc import Callable

import pytest

from tests.browser.pages import Opened

Open = Callable[..., Opened]
WHOLE = "2026-06-30 20:00:00 to 21:00:00 EDT (60 min)"


def drag(page: Opened, over: str, start: float, end: float) -> None:
    """Drag over the parts of that element's width."""
    box = page.page.locator(over).bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.page.mouse.move(box["x"] + start * box["width"], y)
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + (start + end) / 2 * box["width"], y)
    page.page.mouse.move(box["x"] + end * box["width"], y)
    page.page.mouse.up()
    page.settle()


@pytest.mark.parametrize(
    ("kind", "over"), [("utilization", "[data-tl-chart=utilization] .u-over"), ("heat", ".tl-heat-over")]
)
def test_given_a_drag_when_let_go_then_all_charts_show_that_time_and_a_double_click_shows_all_again(
    opened: Open, kind: str, over: str
) -> None:
    page = opened("bad")
    page.draw_all()
    page.chart(kind)
    before = page.pictures()
    drag(page, over, 0.25, 0.5)
    shown = page.range_shown()
    assert shown.startswith("2026-06-30 20:1"), shown
    assert shown.endswith(("(15 min)", "(14 min)", "(15.0 min)")), shown
    after = page.pictures()
    assert [each for each in before if after[each] == before[each]] == []
    page.page.locator(over).dblclick()
    page.page.mouse.move(0, 0)
    page.settle()
    assert page.range_shown() == WHOLE
    assert page.pictures() == before


@pytest.mark.parametrize("chart", [".tl-heat", "[data-tl-chart=cpu] .tl-plot"])
def test_given_a_focused_chart_when_keys_are_pressed_then_it_zooms_moves_and_resets(opened: Open, chart: str) -> None:
    page = opened("bad")
    page.draw_all()
    page.page.locator(chart).focus()
    shown = [page.range_shown()]
    for key in ("+", "ArrowRight", "ArrowLeft", "-"):
        page.page.keyboard.press(key)
        shown.append(page.range_shown())
    assert shown == [
        WHOLE,
        "2026-06-30 20:15:00 to 20:45:00 EDT (30 min)",
        "2026-06-30 20:22:30 to 20:52:30 EDT (30 min)",
        "2026-06-30 20:15:00 to 20:45:00 EDT (30 min)",
        WHOLE,
    ]
    for reset in ("0", "Escape"):
        page.page.keyboard.press("+")
        assert page.range_shown() != WHOLE
        page.page.keyboard.press(reset)
        assert page.range_shown() == WHOLE


def test_given_keys_with_shift_when_pressed_then_the_cursor_moves_bucket_by_bucket(opened: Open) -> None:
    page = opened("bad")
    page.draw_all()
    page.page.locator(".tl-heat").focus()
    page.page.keyboard.press("ArrowDown")
    assert page.page.locator("#tl-heat-readout").inner_text().startswith("algo-1/gpu0 · 20:30:00 (+0:30:00)")
    page.page.keyboard.press("Shift+ArrowRight")
    page.page.keyboard.press("ArrowDown")
    assert page.page.locator("#tl-heat-readout").inner_text().startswith("algo-1/gpu1 · 20:30:15 (+0:30:15)")


def test_given_buttons_when_pressed_then_they_zoom_no_further_than_some_buckets(opened: Open) -> None:
    page = opened("bad")
    for _ in range(12):
        page.page.get_by_role("button", name="Zoom in").click()
    assert page.range_shown().endswith("(75 s)")
    page.page.get_by_role("button", name="Earlier").click()
    assert page.range_shown().startswith("2026-06-30 20:29:0")
    page.page.get_by_role("button", name="Whole job").click()
    assert page.range_shown() == WHOLE


def test_given_a_range_that_was_chosen_when_the_node_changes_then_it_stays(opened: Open) -> None:
    page = opened("bad")
    page.draw_all()
    page.page.get_by_role("button", name="Zoom in").click()
    shown = page.range_shown()
    page.page.select_option("#tl-node", "1")
    page.settle()
    assert page.range_shown() == shown
    assert page.page.locator("[data-tl-chart=cpu] .tl-label").all_inner_texts() == ["mean of the cores", "busiest core"]
