"""The page of kernel profiles in a browser: opens without a network, runs nothing of its data, and its parts work."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser

from tests.browser.pages import Opened, open_page
from tests.support.kernel_pages import hostile_trace, page_of, real_page, small_trace
from tests.support.kernel_ranks import job
from trainguard.kernels.comparison.compare import compared
from trainguard.kernels.document import KernelProfiles
from trainguard.kernels.join import across_ranks
from trainguard.report.html.kernels.island import NO_BREAK
from trainguard.report.html.kernels.page import render_kernels

Open = Callable[..., Opened]


def ranks_page() -> str:
    """Return the page of twelve ranks, one of them late, beside an older profile of them."""
    ranks, old = job([6_000.0] * 12, delay_us={7: 3_000.0}, steps=30), job([5_000.0] * 12)
    document = KernelProfiles(source="today", ranks=ranks, unread={}, across=across_ranks(ranks))
    older = KernelProfiles(source="yesterday", ranks=old, unread={})
    return render_kernels(replace(document, comparison=compared(older, document)), [])


SAMPLES: dict[str, Callable[[], str]] = {
    "a100": lambda: real_page("a100_ddp2_rank0_nccl_ns"),
    "pair": lambda: real_page("pair_rank-0", "pair_rank-1"),
    "cpu": lambda: real_page("cpu_only_no_gpu_events"),
    "ranks": ranks_page,
    "small": lambda: page_of([small_trace()]),
    "hostile": lambda: page_of([hostile_trace(), hostile_trace()], source="<img src=x onerror=alert(1)>"),
}


@pytest.fixture(scope="session")
def kernel_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("kernels")

    def write(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            path.write_text(SAMPLES[name](), encoding="utf-8")
        return path

    return write


@pytest.fixture
def opened(browser: Browser, kernel_file: Callable[[str], Path]) -> Iterator[Open]:
    pages: list[Opened] = []

    def open_sample(name: str, **settings: Any) -> Opened:
        pages.append(open_page(browser, kernel_file(name), **settings))
        return pages[-1]

    yield open_sample
    for each in pages:
        each.close()
    assert [each.faults for each in pages] == [[]] * len(pages)


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("width", [1280, 390])
def test_kernels_page_loads_nothing_and_fits_the_window(opened: Open, sample: str, width: int) -> None:
    page = opened(sample, width=width)
    page.settle()
    assert "kernel profiles" in page.page.title()
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width


def test_usual_page_is_short_and_begins_with_chart_and_timeline(opened: Open) -> None:
    page = opened("a100", width=1920, height=1080)
    page.page.wait_for_selector("#kt[data-kt-drawn]")
    assert page.page.evaluate("document.documentElement.scrollHeight") <= 5 * 1080
    for part in ("#verdict", ".glance", "#kt canvas"):
        box = page.page.locator(part).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 1080, part
    width = page.page.locator("main").bounding_box()
    assert width is not None
    assert width["width"] > 1600


def test_link_to_a_folded_section_opens_it(opened: Open) -> None:
    page = opened("a100").page
    table = page.locator("#steps table").first
    assert not table.is_visible()
    page.locator(".contents a[href='#steps']").click()
    table.wait_for(state="visible")


def test_names_with_markup_are_shown_as_text(opened: Open) -> None:
    page = opened("hostile").page
    page.locator("#kt-search").fill("<script>")
    page.locator("#kt-next").click()
    page.locator("#kn-search").fill("<script>")
    page.locator("#annotations summary").first.click()
    for index in range(page.locator("#an-name option").count()):
        page.select_option("#an-name", index=index)
    assert page.evaluate("window.__hacked") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    assert "window.__hacked" in page.locator("#kt-details").inner_text()
    assert "window.__hacked" in page.locator("#kn-table").inner_text()
    assert "\u202e" not in page.content()


def test_page_without_script_has_verdict_findings_and_charts(opened: Open) -> None:
    page = opened("a100", scripts=False).page
    assert "LaunchBound" in page.locator("#findings").inner_text()
    assert page.locator("#kn-time tbody tr").count() == 11
    assert not page.locator("#kt").is_visible()
    assert "needs JavaScript" in page.locator("#timeline").inner_text()


def test_kernel_table_follows_search_sort_and_k(opened: Open) -> None:
    page = opened("a100").page
    page.locator("#kn-k").fill("3")
    assert page.locator("#kn-time tbody tr").count() == 4
    assert page.locator("#kn-count tbody tr").last.inner_text().startswith("67 others")
    page.locator("#kn-search").fill("ncclKERNEL_")
    assert page.locator("#kn-said").inner_text() == "2 of 2 kernels"
    page.locator("#kn-search").fill("")
    totals = page.locator("#kn-table tbody tr td:nth-child(3)")
    page.get_by_role("button", name="Runs").click()
    runs = [int(each.replace(",", "")) for each in totals.all_inner_texts()]
    assert runs == sorted(runs, reverse=True)
    page.get_by_role("button", name="Runs").click()
    assert page.locator("#kn-table thead [aria-sort]").get_attribute("aria-sort") == "ascending"
    assert int(totals.first.inner_text()) == 3


def test_chosen_rank_filters_the_kernel_table(opened: Open) -> None:
    page = opened("pair").page
    of_all = page.locator("#kn-time tbody tr").first.inner_text()
    page.select_option("#kn-view", label="rank 1")
    assert page.locator("#kn-time tbody tr").first.inner_text() != of_all
    assert page.locator("#ranks tbody tr").count() == 3


def test_ranks_and_older_profile_are_tables_without_script(opened: Open) -> None:
    page = opened("ranks", scripts=False).page
    assert "rank 7" in page.locator("#ranks").inner_text().replace(NO_BREAK, " ")
    assert page.locator("#ranks .heat-4").count() > 0
    assert "LateRank" in page.locator("#verdict").inner_text()
    assert page.locator("#comparison details").count() == 11
    assert page.locator("#ranks th.heat-4, #ranks th .heat-4").count() == 1


def test_kernel_table_has_spread_occupancy_and_short_runs(opened: Open) -> None:
    page = opened("a100").page
    titles = page.locator("#kn-table thead th").all_inner_texts()
    assert {"Std", "Shorter than their call", "Occupancy", "Blocks per SM"} <= set(titles)
    page.get_by_role("button", name="Occupancy").click()
    place = titles.index("Occupancy") + 1
    shown = page.locator(f"#kn-table tbody tr > :nth-child({place})").all_inner_texts()
    values = [float(each.removesuffix(" %")) for each in shown if each.endswith(" %") and not each.startswith("<")]
    assert len(values) > 5
    assert values == sorted(values, reverse=True)


def test_longest_run_of_evidence_moves_the_timeline_there(opened: Open) -> None:
    page = opened("a100").page
    page.wait_for_selector("#kt[data-kt-drawn]")
    before = page.locator("#kt-range").inner_text()
    page.get_by_role("button", name="Show the longest in the timeline").first.click()
    page.wait_for_function("text => document.querySelector('#kt-range').innerText !== text", arg=before)


def test_dark_scheme_applies_to_page_and_timeline(opened: Open) -> None:
    def colours(*, dark: bool) -> tuple[str, list[int]]:
        page = opened("small", dark=dark)
        page.page.wait_for_selector("#kt[data-kt-drawn]")
        ground: str = page.page.evaluate("getComputedStyle(document.body).backgroundColor")
        pixel: list[int] = page.page.evaluate(
            "[...document.querySelector('#kt canvas').getContext('2d').getImageData(5, 400, 1, 1).data]"
        )
        return ground, pixel

    light, night = colours(dark=False), colours(dark=True)
    assert light[0] != night[0]
    assert sum(light[1][:3]) > 600
    assert sum(night[1][:3]) < 200


def test_trace_without_gpu_is_named_and_shows_the_host(opened: Open) -> None:
    page = opened("cpu").page
    assert "Not judged" in page.locator("#verdict").inner_text()
    assert page.locator("#missing").is_visible()
    assert page.locator("#kt .kt-lane").count() > 0
    assert page.locator("#kernels").count() == 0
