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
# A4 without the margins of 12 mm, CSS pixels.
PAPER_WIDTH = 794 - 2 * 45


def luminance(colour: str) -> float:
    channels = [int(each) / 255.0 for each in re.findall(r"\d+", colour)[:3]]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(text: str, back: str) -> float:
    light, dark = sorted((luminance(text), luminance(back)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_contrast_is_at_least_four_and_a_half_in_each_theme(opened: Open, dark: bool) -> None:
    page = opened("bad", dark=dark)
    page.draw_all()
    found = page.page.evaluate(COLOURS)
    assert [(name, text, back) for name, text, back in found if contrast(text, back) < 4.5] == []
    assert (luminance(found[0][2]) < 0.2) == dark


def test_theme_change_redraws_every_chart(opened: Open) -> None:
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
def test_unscrolled_page_prints_every_chart_uncut(opened: Open, dark: bool, landscape: bool) -> None:
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


def test_charts_are_restored_after_printing(opened: Open) -> None:
    page = opened("bad", dark=True)
    page.draw_all()
    before = page.pictures()
    page.page.pdf(format="A4")
    page.settle()
    assert page.pictures() == before


def test_tab_reaches_all_controls_in_order(opened: Open) -> None:
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
def test_layout_does_not_shift_on_load_and_scroll(opened: Open, width: int) -> None:
    page = opened("day", width=width)
    page.draw_all()
    assert page.page.evaluate("window.__shift") < 0.01


def test_narrower_window_fits_charts_without_sideways_scroll(
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


def test_canvases_have_the_resolution_of_a_sharp_screen(opened: Open) -> None:
    page = opened("healthy", sharpness=2.0)
    page.draw_all()
    ratios = page.page.evaluate(
        "[...document.querySelectorAll('.tl-heat-canvas, .uplot canvas')].map((each) => each.width / each.offsetWidth)"
    )
    assert ratios == pytest.approx([2.0] * 8, abs=0.01)
