"""One browser a file, pages without a network, and reports as files."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.chromium import find_browser
from tests.browser.pages import Opened, open_page
from tests.support.report_samples import (
    bad_report,
    collected_report,
    day_report,
    healthy_report,
    hostile_report,
    large_report,
    spiky_report,
    state_report,
    tiny_report,
    trained_report,
)
from trainguard.report.html.render import render_report

SAMPLES = {
    "healthy": healthy_report,
    "bad": bad_report,
    "tiny": tiny_report,
    "state": state_report,
    "hostile": hostile_report,
    "day": day_report,
    "large": large_report,
    "spiky": spiky_report,
    "collected": collected_report,
    "trained": trained_report,
}
# Text and edges are drawn alike on every machine: no hinting, no subpixels, one thread of rasterization.
# A machine without a locale, as every container is: what a page shows must not hang on it.
POSIX = {"LANG": "C", "LC_ALL": "C", "LANGUAGE": ""}
ARGUMENTS = [
    "--no-sandbox",
    "--font-render-hinting=none",
    "--disable-lcd-text",
    "--force-color-profile=srgb",
    "--disable-gpu",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run a browser for the tests of one file: Playwright's loop and greenlets do not stay in the worker after it."""
    found = find_browser()
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=found.executable, args=ARGUMENTS, env={**os.environ, **POSIX, **found.environment}
        )
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Write the sample of that name as HTML, once a worker."""
    folder = tmp_path_factory.mktemp("reports")

    def write(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            path.write_text(render_report(SAMPLES[name]()), encoding="utf-8")
        return path

    return write


@pytest.fixture
def opened(browser: Browser, report_file: Callable[[str], Path]) -> Iterator[Callable[..., Opened]]:
    """Open a sample: ``opened("bad", dark=True, width=390)``; what the page must never do is checked at the end."""
    pages: list[Opened] = []

    def open_sample(name: str, **settings: Any) -> Opened:
        pages.append(open_page(browser, report_file(name), **settings))
        return pages[-1]

    yield open_sample
    for each in pages:
        each.close()
    assert [each.faults for each in pages] == [[]] * len(pages)
