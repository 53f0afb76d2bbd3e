"""The timeline of kernel profiles in a browser: zoom, search, selection, arrows, files, and how fast it is drawn."""

import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from pytest_benchmark.fixture import BenchmarkFixture

from tests.browser.pages import Opened, open_page
from tests.support.kernel_pages import busy_trace, page_of, small_trace

WHOLE = "0.000 ms to 2.000 ms (2 ms)"
LEAST_RATE, AIM = 30.0, 60.0
ATTEMPTS = 4
MOST_BYTES = 3_000_000
ACCENT = [0x24, 0x57, 0xC5]
PIXEL = """([x, y]) => {
    const one = document.createElement("canvas").getContext("2d");
    one.drawImage(document.querySelector("#kt canvas"), x, y, 1, 1, 0, 0, 1, 1);
    return [...one.getImageData(0, 0, 1, 1).data];
}"""
RATE = """async () => {
    const canvas = document.querySelector("#kt canvas");
    canvas.scrollIntoView({ block: "center", behavior: "instant" });
    canvas.focus();
    const box = canvas.getBoundingClientRect();
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    const wheel = (delta, share, shift) => canvas.dispatchEvent(new WheelEvent("wheel", {
      deltaY: delta, shiftKey: shift, clientX: box.left + share * box.width, clientY: box.top + 100, cancelable: true,
    }));
    const measured = async (frames, act) => {
      const times = [];
      let before = await frame();
      for (let i = 0; i < frames; i += 1) {
        act(i);
        const now = await frame();
        times.push(now - before);
        before = now;
      }
      return times;
    };
    const still = await measured(60, () => {});
    const drawn = Number(document.querySelector("#kt").dataset.ktDrawn);
    const moving = await measured(240, (i) => {
      if (i % 80 < 30) wheel(-120, 0.37, false);
      else if (i % 80 < 50) wheel(90, 0.5, true);
      else wheel(120, 0.61, false);
    });
    return { still, moving, drawn: Number(document.querySelector("#kt").dataset.ktDrawn) - drawn };
}"""


@pytest.fixture(scope="session")
def timeline_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("timelines")
    traces = {"small": small_trace, "busy": busy_trace}

    def write(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            path.write_text(page_of([traces[name]()]), encoding="utf-8")
        return path

    return write


@pytest.fixture
def opened(browser: Browser, timeline_file: Callable[[str], Path]) -> Iterator[Callable[[str], Opened]]:
    pages: list[Opened] = []

    def open_trace(name: str) -> Opened:
        pages.append(open_page(browser, timeline_file(name), at="timeline"))
        pages[-1].page.wait_for_selector("#kt[data-kt-drawn]")
        return pages[-1]

    yield open_trace
    for each in pages:
        each.close()
    assert [each.faults for each in pages] == [[]] * len(pages)


def shown(page: Opened) -> str:
    page.settle()
    return page.page.locator("#kt-range").inner_text().replace("\N{EN DASH}", "to")


def press(page: Opened, *keys: str) -> None:
    page.page.locator("#kt canvas").focus()
    for key in keys:
        page.page.keyboard.press(key)


def details(page: Opened) -> str:
    return page.page.locator("#kt-details").inner_text()


def picture(page: Opened) -> str:
    page.settle()
    drawn: str = page.page.evaluate("document.querySelector('#kt canvas').toDataURL()")
    return drawn


def lane_middle(page: Opened, title: str) -> float:
    """Return how far below the canvas's top the middle of a lane's first level is."""
    entry = page.page.locator(".kt-entry", has_text=title).first.bounding_box()
    canvas = page.page.locator("#kt canvas").bounding_box()
    assert entry is not None
    assert canvas is not None
    return entry["y"] - canvas["y"] + 7


def colour_at(page: Opened, x: float, y: float) -> list[int]:
    """Return the red, green and blue of a pixel of the canvas."""
    page.settle()
    found: list[int] = page.page.evaluate(PIXEL, [x, y])
    return found[:3]


def click_at(page: Opened, title: str, share: float) -> None:
    """Click a lane at a part of the window's width."""
    box = page.page.locator("#kt canvas").bounding_box()
    assert box is not None
    page.page.locator("#kt canvas").click(position={"x": share * box["width"], "y": lane_middle(page, title)})


def test_keys_zoom_move_and_reset_the_range(opened: Callable[[str], Opened]) -> None:
    page = opened("small")
    ranges = [shown(page)]
    for key in ("w", "d", "ArrowLeft", "s", "w", "a", "0"):
        press(page, key)
        ranges.append(shown(page))
    assert ranges == [
        WHOLE,
        "0.200 ms to 1.800 ms (1.6 ms)",
        "0.360 ms to 1.960 ms (1.6 ms)",
        "0.200 ms to 1.800 ms (1.6 ms)",
        WHOLE,
        "0.200 ms to 1.800 ms (1.6 ms)",
        "0.040 ms to 1.640 ms (1.6 ms)",
        WHOLE,
    ]


def test_wheel_zooms_only_a_focused_timeline(
    opened: Callable[[str], Opened],
) -> None:
    page = opened("small")
    box = page.page.locator("#kt canvas").bounding_box()
    assert box is not None
    page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 200)
    page.page.mouse.wheel(0, -50)
    page.page.wait_for_timeout(100)
    assert shown(page) == WHOLE
    page.page.locator("#kt canvas").focus()
    box = page.page.locator("#kt canvas").bounding_box()
    assert box is not None
    page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 200)
    page.page.mouse.wheel(0, -200)
    page.page.wait_for_function("!document.querySelector('#kt-range').textContent.endsWith('(2 ms)')")
    zoomed = shown(page)
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + box["width"] / 2 - 80, box["y"] + 200, steps=4)
    page.page.mouse.up()
    assert shown(page) != zoomed
    assert shown(page).split("(")[1] == zoomed.split("(")[1]


def test_clicked_kernel_shows_details_and_an_arrow_to_its_launch(
    opened: Callable[[str], Opened],
) -> None:
    page = opened("small")
    before = picture(page)
    click_at(page, "stream 7", 0.25)
    assert "ampere_bf16" in details(page)
    assert "0.400000 ms" in details(page)
    assert "300 µs" in details(page)
    assert "it starts 250 µs after the call begins, 240 µs after it ends" in details(page)
    box = page.page.locator("#kt canvas").bounding_box()
    assert box is not None
    across, lane = round(0.2 * box["width"]), lane_middle(page, "stream 7")

    def arrow() -> bool:
        return ACCENT in [colour_at(page, across, lane + below) for below in range(5, 40)]

    assert arrow()
    press(page, "l")
    assert details(page).startswith("cudaLaunchKernel")
    assert "aten::mm" in details(page)
    page.page.get_by_role("button", name="Go to what it starts").click()
    assert "ampere_bf16" in details(page)
    press(page, "Escape")
    assert "Nothing is selected" in details(page)
    page.page.mouse.move(0, 0)
    page.page.evaluate("document.activeElement.blur()")
    assert picture(page) == before
    assert not arrow()


def test_launch_out_of_sight_is_scrolled_into_view(opened: Callable[[str], Opened]) -> None:
    page = opened("small")
    click_at(page, "stream 20", 0.375)
    press(page, "f")
    assert shown(page) == "0.665 ms to 0.835 ms (170 µs)"
    press(page, "l")
    assert shown(page) == "0.238 ms to 0.408 ms (170 µs)"


def test_keys_move_the_selection_along_its_lane(
    opened: Callable[[str], Opened],
) -> None:
    page = opened("small")
    click_at(page, "stream 7", 0.25)
    press(page, ".")
    assert details(page).startswith("Memcpy")
    assert "1 MB, 20 GB/s" in details(page)
    press(page, ",")
    assert details(page).startswith("ampere_bf16")


def test_search_selects_matches_in_order_of_time(
    opened: Callable[[str], Opened],
) -> None:
    page = opened("small")
    page.page.locator("#kt-search").fill("ALLREDUCE")
    assert page.page.locator("#kt-found").inner_text() == "2 events"
    page.page.locator("#kt-next").click()
    first = details(page)
    page.page.keyboard.press("Enter")
    second = details(page)
    assert ("0.700000 ms" in first, "1.700000 ms" in second) == (True, True)
    assert page.page.locator("#kt-found").inner_text() == "2 of 2 events"
    press(page, "p")
    assert details(page) == first
    page.page.locator("#kt-search").fill("memcpy")
    found = []
    for _ in range(4):
        page.page.locator("#kt-next").click()
        found.append(details(page).split("\n")[0])
    assert found == ["cudaMemcpyAsync", "Memcpy HtoD (Pinned -> Device)"] * 2
    page.page.locator("#kt-search").fill("nothing like that")
    assert page.page.locator("#kt-found").inner_text() == "0 events"


def test_folded_group_hides_its_lanes_until_a_search_opens_it(
    opened: Callable[[str], Opened],
) -> None:
    page = opened("small")
    lanes = page.page.locator(".kt-lane").count()
    gpu = page.page.locator("button.kt-gpu")
    gpu.focus()
    page.page.keyboard.press("Enter")
    assert gpu.get_attribute("aria-expanded") == "false"
    assert page.page.locator(".kt-lane").count() < lanes
    page.page.locator("#kt-search").fill("Memcpy HtoD")
    page.page.locator("#kt-next").click()
    assert page.page.locator(".kt-lane").count() == lanes


def test_saved_range_is_a_trace_trainguard_reads(opened: Callable[[str], Opened], tmp_path: Path) -> None:
    page = opened("small")
    click_at(page, "stream 20", 0.375)
    press(page, "f", "s", "s", "s", "s", "s")
    with page.page.expect_download() as download:
        page.page.locator("#kt-save").click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    events = json.loads(path.read_text())["traceEvents"]
    rows = [event for event in events if event["ph"] == "X"]
    assert {event["cat"] for event in rows} == {"kernel", "gpu_memcpy", "cuda_runtime", "user_annotation"}
    kernel = next(event for event in rows if "nccl" in event["name"])
    assert (kernel["ts"], kernel["dur"]) == (700, 100)
    flows = [event for event in events if event.get("cat") == "ac2g"]
    assert [event["ph"] for event in flows[:2]] == ["s", "f"]


def rates(page: Opened) -> tuple[float, float, int]:
    """Return frames a second at rest and while the timeline zooms and pans, and how often it was drawn in that time."""
    found = page.page.evaluate(RATE)
    still, moving = (1_000.0 / statistics.median(found[key]) for key in ("still", "moving"))
    return still, moving, found["drawn"]


def test_timeline_of_100_000_events_draws_30_frames_a_second(
    opened: Callable[[str], Opened], timeline_file: Callable[[str], Path]
) -> None:
    assert timeline_file("busy").stat().st_size < MOST_BYTES
    page = opened("busy")
    assert page.page.locator("#timeline .lead").inner_text().startswith("99,781 events")
    # Where the machine is busy, a page that draws nothing has fewer frames, too; what else it does comes and goes.
    found = []
    for _ in range(ATTEMPTS):
        still, moving, drawn = rates(page)
        assert drawn > 200
        found.append(f"{moving:.0f} of {still:.0f}")
        if moving >= LEAST_RATE * min(still / AIM, 1.0):
            return
    pytest.fail(f"{', '.join(found)} frames a second")


@pytest.mark.perf
def test_timeline_of_100_000_events_alone_draws_60_frames(
    opened: Callable[[str], Opened], benchmark: BenchmarkFixture
) -> None:
    page = opened("busy")
    found: list[float] = []
    benchmark(lambda: found.append(rates(page)[1]))
    benchmark.extra_info["frames_a_second"] = statistics.median(found)
    assert statistics.median(found) >= 0.95 * AIM
