"""The page's decoder reads what Python packed."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

import trainguard.report.html.timelines as section
from trainguard.report.html.packed import pack_floats, pack_percents

SCRIPT = Path(section.__file__).parent.parent / "assets" / "timelines" / "data.js"
READ = """([script, packed]) => {
    const readers = new Function(`${script}; return { percents, floats };`)();
    return [readers.percents({ mean: packed[0] }, "mean"), readers.floats({ mean: packed[1] }, "mean")];
}"""


@pytest.mark.parametrize("native", [True, False], ids=["Uint8Array.fromBase64", "atob"])
def test_packed_series_are_decoded_unchanged_in_the_browser(browser: Browser, native: bool) -> None:
    percents = [None, 0.0, 0.5, 49.5, 100.0, None, *(each / 2.0 for each in range(201))]
    floats = [None, 0.0, 1.5, -2.25, 123_456.0, 9.5e8, None]
    page = browser.new_page()
    if not native:
        page.evaluate("() => { Uint8Array.fromBase64 = undefined; }")
    read = page.evaluate(READ, [SCRIPT.read_text(), [pack_percents(percents), pack_floats(floats)]])
    page.close()
    assert read == [percents, floats]
