"""The fleet's page in a browser: opens without a network, runs nothing, and is readable on any screen and on paper."""

from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser
from pypdf import PdfReader

from tests.browser.pages import Opened, open_page
from tests.support.fleets import MONDAY, Rows, found, hostile, job, many, with_rows
from trainguard.core.records import JobRecord
from trainguard.report.fleet.fleet import Fleet, build_fleet
from trainguard.report.html.fleet import render_fleet

FLEET = Fleet(stack="TrainGuard", region="eu-west-1")
MARKUP = "</script></table><script>window.__hacked=1</script><img src=x onerror=window.__hacked=1>"
MOST_PAGES = 60

Open = Callable[..., Opened]


def some() -> list[tuple[JobRecord, Rows]]:
    stopped, waits = job("resnet-sweep-7", hours=31.0, nodes=8), job("bert-late")
    stop = found(stopped, wasted=92.0, action="Training job stopped: the owner allows it.")
    return [*many(60), with_rows(stopped, stop), with_rows(waits, judged=0)]


SAMPLES: dict[str, Callable[[], list[tuple[JobRecord, Rows]]]] = {
    "some": some,
    "many": lambda: many(5_000),
    "none": list,
    "hostile": lambda: [hostile(MARKUP), hostile("\u202egnp.exe")],
}


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    pages: list[Opened] = []

    def open_sample(name: str, **settings: Any) -> Opened:
        path = tmp_path / f"{name}.html"
        path.write_text(render_fleet(build_fleet(FLEET, SAMPLES[name](), now=MONDAY)), encoding="utf-8")
        pages.append(open_page(browser, path, **settings))
        return pages[-1]

    yield open_sample
    for each in pages:
        each.close()
    assert [each.faults for each in pages] == [[]] * len(pages)


# The page of many jobs takes longest, and is tight where the window is narrow.
WINDOWS = [
    pytest.param(name, width, marks=[pytest.mark.thorough] if (name, width) == ("many", 1280) else [])
    for width in (1280, 390)
    for name in SAMPLES
]


@pytest.mark.parametrize(("sample", "width"), WINDOWS)
def test_fleet_page_loads_nothing_and_fits_the_window(opened: Open, sample: str, width: int) -> None:
    page = opened(sample, width=width).page
    assert page.title() == "TrainGuard · TrainGuard"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("window.__shift") < 0.01


def test_names_with_markup_are_shown_as_text(opened: Open) -> None:
    page = opened("hostile").page
    assert page.evaluate("window.__hacked") is None
    assert page.locator("img, script").count() == 0
    assert "window.__hacked" in page.locator("#jobs").inner_text()


def test_bars_and_heat_have_the_colours_of_their_findings(opened: Open) -> None:
    page = opened("some").page
    strip = page.locator("#jobs svg.strip").first.bounding_box()
    box = page.locator("#jobs svg.strip rect").first.bounding_box()
    assert strip is not None
    assert box is not None
    assert box["width"] / strip["width"] == pytest.approx(0.92, abs=0.02)
    shades = {
        page.locator(f"#heat .heat-{shade}").first.evaluate("each => getComputedStyle(each).backgroundColor")
        for shade in range(1, 5)
    }
    assert len(shades) == 4


def test_given_a_dark_screen_when_opened_then_the_page_is_dark(opened: Open) -> None:
    colours = [
        opened("some", dark=dark).page.evaluate("getComputedStyle(document.body).backgroundColor")
        for dark in (False, True)
    ]
    assert len(set(colours)) == 2


def test_links_and_tables_are_reached_by_keyboard(opened: Open) -> None:
    page = opened("some").page
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.tagName + (document.activeElement.className || '')"))
    assert {"Askip", "A", "DIVtable", "SUMMARY"} <= reached


def test_given_the_page_when_printed_then_it_is_on_paper_whole(opened: Open) -> None:
    pages = PdfReader(BytesIO(opened("some").page.pdf(format="A4", print_background=True))).pages
    text = " ".join(page.extract_text() for page in pages)
    assert len(pages) < MOST_PAGES
    for word in ("resnet-sweep-7", "Trend by week", "Training job stopped", "How to read this"):
        assert word in text
