"""Where there are more buckets than pixels, some are drawn as one point: it is what its buckets hold, and no less."""

import math
from collections.abc import Callable

import pytest

from tests.browser.pages import Opened
from tests.browser.test_charts import legend_values, point_at
from tests.browser.test_zoom import drag
from tests.support.report_samples import SPIKE, day_report, spiky_report
from trainguard.report.timeline.series import Values

Open = Callable[..., Opened]
BUCKETS = 2_000
WHAT = "[data-tl-chart=utilization] .tl-what"
COLUMN = """([kind, x]) => {
    const canvas = document.querySelector(`[data-tl-chart=${kind}] canvas`);
    const ratio = canvas.width / canvas.clientWidth;
    const copy = new OffscreenCanvas(1, canvas.height).getContext("2d");
    copy.drawImage(canvas, -Math.round(x * ratio), 0);
    const data = copy.getImageData(0, 0, 1, canvas.height).data;
    return Array.from({ length: canvas.height }, (_, y) => [...data.slice(4 * y, 4 * y + 4)].join());
}"""


def together(page: Opened, kind: str = "utilization", buckets: int = BUCKETS) -> int:
    """Return how many buckets should be a point, of at least four pixels."""
    width: int = page.chart(kind).locator(".u-over").evaluate("each => each.clientWidth")
    return math.ceil(buckets * 4 / width)


def mean_around(values: Values, bucket: int, joined: int) -> float:
    first = bucket // joined * joined
    kept = [each for each in values[first : first + joined] if each is not None]
    return sum(kept) / len(kept)


def test_point_of_several_buckets_shows_their_mean(
    opened: Open,
) -> None:
    page = opened("day")
    page.page.select_option("#tl-node", "0")
    timelines = day_report().timelines
    assert timelines is not None
    joined = together(page, buckets=2_880)
    assert joined > 5
    for bucket in (75, 1_204, 2_872):
        point_at(page, "utilization", bucket, 2_880)
        expected = {gpu.gpu: mean_around(gpu.utilization.mean, bucket, joined) for gpu in timelines.nodes[0].gpus}
        assert legend_values(page, "utilization") == pytest.approx(expected, abs=0.3)
        assert page.page.locator(WHAT).inner_text() == f"over {joined / 2:.1f} min"


def test_shade_of_a_joined_point_spans_its_minimum_and_maximum(opened: Open) -> None:
    page = opened("spiky")
    page.chart("utilization")
    joined = together(page)
    over = page.page.locator("[data-tl-chart=utilization] .u-over").bounding_box()
    canvas = page.page.locator("[data-tl-chart=utilization] canvas").bounding_box()
    assert over is not None
    assert canvas is not None

    def shaded(bucket: int) -> tuple[bool, bool]:
        """Tell whether the column of a point has a colour near 90 % and near 10 %."""
        middle = (bucket // joined + 0.5) * joined / BUCKETS
        column = page.page.evaluate(COLUMN, ["utilization", over["x"] - canvas["x"] + middle * over["width"]])
        spots = [round(over["y"] - canvas["y"] + over["height"] * share) for share in (0.1, 0.9)]
        high, low = (column[spot] != "0,0,0,0" for spot in spots)
        return high, low

    point_of_high, point_of_low = SPIKE // joined, (SPIKE + 1) // joined
    assert shaded(SPIKE) == (True, point_of_high == point_of_low)
    assert shaded(SPIKE + 1) == (point_of_high == point_of_low, True)
    assert shaded(SPIKE + 20 * joined) == (False, False)
    assert shaded(SPIKE - 20 * joined) == (False, False)


def test_briefly_busy_core_is_still_seen_after_joining(opened: Open) -> None:
    page = opened("spiky")
    page.chart("cpu")
    point_at(page, "cpu", SPIKE, BUCKETS)
    items = page.page.locator("[data-tl-chart=cpu] .tl-item").all_inner_texts()
    assert [each.split()[-2] for each in items] == ["20.0", "95.0"]


def test_zoom_splits_points_into_buckets_and_joins_them_again(
    opened: Open,
) -> None:
    page = opened("spiky")
    page.chart("utilization")
    whole = page.pictures()["utilization"]
    drag(page, "[data-tl-chart=utilization] .u-over", 0.4, 0.5)
    point_at(page, "utilization", 0, 4)
    assert page.page.locator(WHAT).inner_text() == "at cursor"
    first = legend_values(page, "utilization")["gpu0"]
    assert first in {40.0, 41.0}
    page.page.keyboard.press("Tab")
    page.page.locator("[data-tl-chart=utilization] .tl-plot").focus()
    seen = set()
    for _ in range(2):
        page.page.keyboard.press("Shift+ArrowRight")
        seen.add(legend_values(page, "utilization")["gpu0"])
    assert seen == {40.0, 41.0}, "the cursor moves bucket by bucket"
    page.page.keyboard.press("0")
    page.page.mouse.move(0, 0)
    page.settle()
    assert page.pictures()["utilization"] == whole


def test_narrower_window_joins_more_buckets_into_a_point(opened: Open) -> None:
    page = opened("spiky")
    wide = together(page)
    page.page.set_viewport_size({"width": 700, "height": 900})
    page.page.wait_for_function("() => document.querySelector('.u-over').clientWidth < 600")
    page.settle()
    narrow = together(page)
    assert narrow > wide
    point_at(page, "utilization", 600, BUCKETS)
    assert page.page.locator(WHAT).inner_text() == f"over {narrow} s"
    timelines = spiky_report().timelines
    assert timelines is not None
    expected = mean_around(timelines.nodes[0].gpus[0].utilization.mean, 600, narrow)
    assert legend_values(page, "utilization")["gpu0"] == pytest.approx(expected, abs=0.06)
