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
def test_drag_zooms_all_charts_and_double_click_resets(opened: Open, kind: str, over: str) -> None:
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
def test_keys_zoom_move_and_reset_a_focused_chart(opened: Open, chart: str) -> None:
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


def test_shift_keys_move_the_cursor_by_buckets(opened: Open) -> None:
    page = opened("bad")
    page.draw_all()
    page.page.locator(".tl-heat").focus()
    page.page.keyboard.press("ArrowDown")
    assert page.page.locator("#tl-heat-readout").inner_text().startswith("algo-1/gpu0 · 20:30:00 (+0:30:00)")
    page.page.keyboard.press("Shift+ArrowRight")
    page.page.keyboard.press("ArrowDown")
    assert page.page.locator("#tl-heat-readout").inner_text().startswith("algo-1/gpu1 · 20:30:15 (+0:30:15)")


def test_zoom_buttons_stop_at_a_minimum_of_buckets(opened: Open) -> None:
    page = opened("bad")
    for _ in range(12):
        page.page.get_by_role("button", name="Zoom in").click()
    assert page.range_shown().endswith("(75 s)")
    page.page.get_by_role("button", name="Earlier").click()
    assert page.range_shown().startswith("2026-06-30 20:29:0")
    page.page.get_by_role("button", name="Whole job").click()
    assert page.range_shown() == WHOLE


def test_chosen_range_survives_a_change_of_node(opened: Open) -> None:
    page = opened("bad")
    page.draw_all()
    page.page.get_by_role("button", name="Zoom in").click()
    shown = page.range_shown()
    page.page.select_option("#tl-node", "1")
    page.settle()
    assert page.range_shown() == shown
    assert page.page.locator("[data-tl-chart=cpu] .tl-label").all_inner_texts() == ["mean of the cores", "busiest core"]
