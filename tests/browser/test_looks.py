"""Light and dark, paper, the keyboard's way, and a page that does not jump."""

import io
import re
from collections.abc import Callable

import pytest
from pypdf import PdfReader

from tests.browser.pages import Opened

Open = Callable[..., Opened]
COLOURS = """() => [".tl-title", ".tl-unit", ".tl-label", ".tl-value", ".tl-range", ".tl-readout", ".tl-help",
    ".tl-phase", ".tl-episode", ".tl-lane-name", ".tl-thresholds",
    ".lane-name", ".lane-name span", ".lane-facts", ".zones button", ".ramp-key",
    ".tl-buttons button", ".tl-details summary"].map((selector) => {
    const element = document.querySelector(selector);
    let back = element;
    while (/, 0\\)$|transparent/.test(getComputedStyle(back).backgroundColor)) back = back.parentElement;
    return [selector, getComputedStyle(element).color, getComputedStyle(back).backgroundColor];
})"""
WIDTHS = """() => addEventListener("beforeprint", () => {
    window.__widths = [...document.querySelectorAll("[data-tl-chart] canvas")].map((each) => each.offsetWidth);
    window.__undrawn = document.querySelectorAll("[data-tl-chart]:not([data-tl-drawn])").length;
})"""
FOCUSED = "(({ id, className, dataset }) => id || className || dataset.tl)(document.activeElement)"
CANVAS_WIDTHS = "[...document.querySelectorAll('[data-tl-chart] canvas')].map((each) => each.offsetWidth)"
PAPER_WIDTH = 794 - 2 * 45
"""A4 without the margins of 12 mm, CSS pixels."""


def luminance(colour: str) -> float:
    channels = [int(each) / 255.0 for each in re.findall(r"\d+", colour)[:3]]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(text: str, back: str) -> float:
    light, dark = sorted((luminance(text), luminance(back)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_given_a_theme_when_shown_then_all_text_has_a_contrast_of_four_and_a_half(opened: Open, dark: bool) -> None:
    page = opened("bad", dark=dark)
    page.draw_all()
    found = page.page.evaluate(COLOURS)
    assert [(name, text, back) for name, text, back in found if contrast(text, back) < 4.5] == []
    assert (luminance(found[0][2]) < 0.2) == dark


def test_given_the_theme_changes_when_the_page_is_open_then_every_chart_is_drawn_in_it(opened: Open) -> None:
    page = opened("bad")
    page.draw_all()
    light = page.pictures()
    page.page.emulate_media(color_scheme="dark")
    page.settle()
    dark = page.pictures()
    assert [each for each in light if light[each] == dark[each]] == []
    page.page.emulate_media(color_scheme="light")
    page.settle()
    assert page.pictures() == light


@pytest.mark.parametrize(("dark", "landscape"), [(False, False), (True, True)], ids=["portrait", "landscape, dark"])
def test_given_a_page_that_was_not_scrolled_when_printed_then_every_chart_is_on_paper_and_none_is_cut(
    opened: Open, dark: bool, landscape: bool
) -> None:
    page = opened("bad", dark=dark)
    page.page.evaluate(WIDTHS)
    printed = PdfReader(io.BytesIO(page.page.pdf(format="A4", landscape=landscape, print_background=True)))
    text = "\n".join(each.extract_text() for each in printed.pages)
    for title in ("GPU utilization, GPU by GPU", "Host memory", "Step durations", "algo-2", "LowGPUUtilization"):
        assert title in text
    assert page.page.evaluate("window.__undrawn") == 0
    widths = page.page.evaluate("window.__widths")
    assert len(widths) == 9
    assert max(widths) <= PAPER_WIDTH
    assert len(printed.pages) <= 12
    assert len(re.findall(r"20:40(?!:)", text)) == 9, "the axis of every chart, and of the picture at the head"


def test_given_a_page_was_printed_when_seen_again_then_the_charts_are_as_they_were(opened: Open) -> None:
    page = opened("bad", dark=True)
    page.draw_all()
    before = page.pictures()
    page.page.pdf(format="A4")
    page.settle()
    assert page.pictures() == before


def test_given_only_a_keyboard_when_tabbed_through_then_all_that_can_be_used_is_reached_in_order(opened: Open) -> None:
    page = opened("bad")
    page.draw_all()
    page.page.locator("#tl-node").focus()
    reached = []
    for _ in range(10):
        reached.append(page.page.evaluate(FOCUSED))
        page.page.keyboard.press("Tab")
    assert reached[:6] == ["tl-node", "left", "right", "in", "out", "reset"]
    assert [each.split(" ")[0] for each in reached[6:9]] == ["tl-episode", "tl-episode", "tl-episode"]
    assert page.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    label = page.page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label.startswith("GPU utilization over time")


@pytest.mark.parametrize("width", [1280, 390])
def test_given_a_page_when_loaded_and_scrolled_then_nothing_jumps(opened: Open, width: int) -> None:
    page = opened("day", width=width)
    page.draw_all()
    assert page.page.evaluate("window.__shift") < 0.01


def test_given_a_narrower_window_when_resized_then_the_charts_fit_and_the_page_does_not_scroll_sideways(
    opened: Open,
) -> None:
    page = opened("bad")
    page.draw_all()
    page.page.set_viewport_size({"width": 390, "height": 800})
    page.settle()
    page.settle()
    widths = page.page.evaluate(CANVAS_WIDTHS)
    assert max(widths) <= 390
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_given_a_sharp_screen_when_drawn_then_canvases_have_its_resolution(opened: Open) -> None:
    page = opened("healthy", sharpness=2.0)
    page.draw_all()
    ratios = page.page.evaluate(
        "[...document.querySelectorAll('.tl-heat-canvas, .uplot canvas')].map((each) => each.width / each.offsetWidth)"
    )
    assert ratios == pytest.approx([2.0] * 8, abs=0.01)
