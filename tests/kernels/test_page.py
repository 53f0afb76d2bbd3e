"""``kernels.html``: its size, its order, what it says is missing, and that nothing in it is markup of others."""

import json
import random
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.support.kernel_pages import HOSTILE, MARKUP, hostile_trace, page_of, page_of_drawn, real_page, small_trace
from tests.support.kernel_traces import BF16_GEMM, TraceWriter, read, real_names, real_profile, real_trace
from tests.support.packed import unpack_counts
from trainguard import report
from trainguard.kernels.document import KernelProfiles, RankProfile
from trainguard.kernels.entries import Histogram
from trainguard.kernels.join import across_ranks
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.timeline.build import timeline_of
from trainguard.render.numbers import nanos
from trainguard.report.html.kernels.figures import duration_bins, joined
from trainguard.report.html.kernels.island import OMITTED, PageNames
from trainguard.report.html.kernels.page import MOST_BYTES, kernels_script, kernels_style, render_kernels
from trainguard.report.html.packed import LARGEST, pack_counts, pack_signed, pack_steps


class Tags(HTMLParser):
    """Collects the tags of a page and their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.partition("</style>")[2].partition("<script type")[0]))


def island_of(page: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(page.partition('id="kernels-data">')[2].partition("</script>")[0])
    return found


@pytest.mark.parametrize("name", real_names())
def test_every_real_trace_has_a_page_under_three_megabytes(name: str) -> None:
    page = real_page(name)
    assert len(page.encode()) < MOST_BYTES
    assert "timelines" in island_of(page)


def test_names_of_others_are_text_everywhere() -> None:
    page = page_of([hostile_trace(), hostile_trace()], source=MARKUP, unread={MARKUP: MARKUP})
    tags = Tags(page)
    assert tags.tags.count("script") == 2
    assert "img" not in tags.tags
    assert not [each for each in tags.attributes if each.startswith("on") or each == "style"]
    assert not [each for each in "\u202e\x00\x1b" if each in page]
    assert "<!--" not in page


def test_the_page_may_load_and_run_nothing_but_its_own() -> None:
    page = page_of([small_trace()])
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert "default-src &#39;none&#39;" in policy[1] or "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    for text in ("http:", "https:", "innerHTML", "eval(", "fetch(", "import(", "document.write"):
        assert text not in kernels_script().replace("http://www.w3.org/2000/svg", "")
    assert "url(" not in kernels_style()


def test_every_script_of_the_folder_is_on_the_page() -> None:
    files = sorted((Path(report.__file__).parent / "assets" / "kernels").glob("*.js"))
    assert len(files) > 12
    assert [file.name for file in files if file.read_text() not in kernels_script()] == []


def long_names(rng: random.Random, count: int) -> list[str]:
    return [f"{'<&' * 140}{rng.random()}" for _ in range(count)]


def wild_trace(rng: random.Random, kernels: int) -> bytes:
    """Long names without end, on many streams and threads, over days."""
    made = TraceWriter()
    for place, name in enumerate(long_names(rng, kernels)):
        at = rng.random() * 3e11
        made.kernel(name, at + 5, rng.random() * 1e9, launch=at, call=rng.random() * 1e8, stream=place % 90)
        made.event("user_annotation", name, at, 1e6 * rng.random(), tid=place % 70)
    return made.text()


def test_page_of_wild_traces_is_bounded_and_counts_omissions() -> None:
    rng = random.Random(7)
    traces = [read(wild_trace(rng, 1_500), f"{place}.json") for place in range(3)]
    drawn = [(rank_profile(each), timeline_of(each, 33_000)) for each in traces]
    page = page_of_drawn(drawn)
    assert len(page.encode()) < MOST_BYTES
    assert "names are left out" in text_of(page)
    assert "lanes are left out" in text_of(page)
    assert "kernels with the least time are in none of these tables" in text_of(page)


def many_ranks(count: int) -> list[RankProfile]:
    one = real_profile("pair_rank-0")
    return [msgspec.structs.replace(one, rank=rank, trace=f"host{rank}_1.2.pt.trace.json") for rank in range(count)]


def test_page_of_a_thousand_ranks_is_bounded_with_counts() -> None:
    ranks = many_ranks(1_000)
    slow = msgspec.structs.replace(ranks[700], compute_ns=2 * ranks[700].compute_ns)
    ranks[700] = slow
    drawn = [(rank, timeline_of(real_trace("pair_rank-0"), 10_000)) for rank in ranks[:8]]
    document = KernelProfiles(source="s3://bucket/job", ranks=ranks, unread={}, across=across_ranks(ranks))
    page = render_kernels(document, drawn)
    text = text_of(page)
    assert "Rank 700 computes 2 times as long" in text.replace("2.00", "2")
    assert len(page.encode()) < MOST_BYTES
    assert "1,000 traces" in text
    assert "936 are not" in text
    assert "rank 700" in text
    assert "992 ranks are not drawn" in text
    assert "1,000 of 1,000 ranks (0, 1, 2, 3, 4, 5, 6, 7 and 992 more)" in text


def test_traces_of_one_rank_are_told_apart_by_their_files() -> None:
    rank = real_profile("pair_rank-0")
    timeline = timeline_of(real_trace("pair_rank-0"))
    traces = [msgspec.structs.replace(rank, trace=f"host_1.{place}.pt.trace.json") for place in range(2)]
    page = page_of_drawn([(each, timeline) for each in traces])
    titles = [view["title"] for view in json.loads(json.dumps(island_of(page)["kernels"]))]
    assert titles == ["all ranks", "host_1.0.pt.trace.json", "host_1.1.pt.trace.json"]
    assert "rank 0" not in text_of(page)


def test_timelines_too_large_for_the_page_are_named() -> None:
    trace = small_trace()
    timeline = timeline_of(trace)
    rows = timeline.rows
    times = {
        field: np.repeat(getattr(rows, field), 30_000) for field in ("end", "name", "sort", "lane", "source", "count")
    }
    large = np.sort(np.random.default_rng(3).integers(0, 1 << 52, len(times["end"])))
    rows = type(rows)(
        start=large, **{**times, "end": large + np.random.default_rng(4).integers(0, 1 << 52, len(large))}
    )
    level, launch, size = (np.repeat(each, 30_000) for each in (timeline.level, timeline.launch, timeline.size))
    large_one = msgspec.structs.replace(timeline, rows=rows, level=level, launch=launch, size=size)
    page = page_of_drawn([(rank_profile(trace), large_one)])
    assert len(page.encode()) < MOST_BYTES
    assert "There is no event to draw" in text_of(page)
    assert "would make this page larger than 3 MB" in text_of(page)


def test_findings_are_ordered_by_gain_below_the_timeline() -> None:
    page = real_page("resnet50_workers0")
    rules = re.findall(r'id="finding-(\w+)"', page)
    profile = real_profile("resnet50_workers0")
    shares = {each.id.removeprefix("kernels/"): round(each.gain.share, 2) for each in profile.findings}
    assert set(rules) == set(shares)
    assert [shares[each] for each in rules if each != "TraceQuality"] == sorted(
        (shares[each] for each in rules if each != "TraceQuality"), reverse=True
    )
    places = [page.index(f'id="{anchor}"') for anchor in ("verdict", "timeline", "findings", "gpu")]
    assert places == sorted(places)


def test_page_without_gpu_steps_and_rank_says_so() -> None:
    made = TraceWriter(rank=None, gpus=[])
    made.event("cpu_op", "aten::mm", 0, 100)
    text = text_of(page_of([read(made.text())]))
    assert "Not judged" in text
    assert "The trace has no steps" in text
    assert "no work of a GPU" in text
    assert "1 event ." in text or "1 event." in text


def test_an_empty_trace_has_a_page() -> None:
    text = text_of(page_of([read(TraceWriter(rank=None, gpus=[]).text())], unread={"b.json": "it is no trace"}))
    assert "There is no event to draw" in text
    assert "It was not read: it is no trace" in text


def test_a_healthy_trace_is_called_healthy() -> None:
    made = TraceWriter()
    for step in range(6):
        made.step(step, 20_000.0 * step, 20_000)
        for place in range(10):
            made.kernel(
                BF16_GEMM,
                20_000.0 * step + 2_000 * place,
                2_000,
                launch=max(20_000.0 * step + 2_000 * place - 3_000, 20_000.0 * step),
            )
    assert "Healthy The GPU is busy" in text_of(page_of([read(made.text())]))


@pytest.mark.parametrize("values", [[], [0, 1, 127, 128, 16_383, 16_384, LARGEST], [-5, LARGEST + 7]])
def test_packed_numbers_are_read_back(values: list[int]) -> None:
    assert unpack_counts(pack_counts(np.array(values, dtype=np.int64))) == [
        min(max(each, 0), LARGEST) for each in values
    ]


def test_packed_steps_are_differences_with_their_sign() -> None:
    assert unpack_counts(pack_steps(np.array([5, 3, 3, 10]))) == [10, 3, 0, 14]
    assert unpack_counts(pack_signed(np.array([0, -1, 1, -2]))) == [0, 1, 2, 3]


def test_names_are_cut_plain_and_bounded_together() -> None:
    names = PageNames(most_bytes=1_000)
    numbers = [names.number(each) for each in (*HOSTILE, *(f"name {place}" for place in range(500)))]
    texts = names.texts
    assert texts[0] == OMITTED
    assert max(map(len, texts)) <= 200
    assert names.omitted > 400
    assert all(number < len(texts) for number in numbers)
    assert names.number(HOSTILE[1]) == numbers[1]


def test_bins_hold_every_duration() -> None:
    for values in ([1.0], [2.0, 2.0], [0.0, 0.0], [1.0] * 50 + [1e6], list(np.linspace(1, 9, 500))):
        edges, counts = duration_bins(values)
        assert sum(counts) == len(values)
        assert len(edges) == len(counts) + 1


def test_histograms_of_ranks_are_joined_without_loss() -> None:
    one = Histogram(edges_ns=[10, 20, 30], counts=[3, 4])
    other = Histogram(edges_ns=[100, 101], counts=[2])
    whole = joined([one, other])
    assert sum(whole.counts) == 9
    assert (whole.edges_ns[0], whole.edges_ns[-1]) == (10, 101)
    assert joined([one]) == one


@pytest.mark.parametrize(
    ("ns", "text"), [(0, "0 ns"), (999, "999 ns"), (1_500, "1.5 µs"), (12_345_678, "12.3 ms"), (3_000_000_000, "3 s")]
)
def test_times_are_written_in_the_unit_that_fits(ns: int, text: str) -> None:
    assert nanos(ns) == text
