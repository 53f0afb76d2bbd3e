"""Scales, strips, charts and joined bins."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.render.numbers import (
    NOTHING,
    duration,
    moment,
    money,
    number,
    percent,
    quantity,
    rate,
    seconds,
    share,
)
from trainguard.render.plots import strips
from trainguard.render.plots.charts import HEIGHT, MOST_COLUMNS, WIDTH, histogram, join_bins, lines_over
from trainguard.render.plots.scale import PERCENT, between, of_durations, tick_labels, up_from_zero
from trainguard.render.plots.svg import element, text, title

positive = st.floats(1e-6, 1e12)


@given(positive)
def test_scale_fits_the_highest_value_with_few_round_ticks(highest: float) -> None:
    scale = up_from_zero(highest)
    assert scale.ticks[0] == 0.0
    assert highest <= scale.high * (1 + 1e-9)
    assert scale.high <= highest * 2.0 + 1e-12
    assert 2 <= len(scale.ticks) <= 6


@given(positive, positive)
def test_scaled_positions_keep_the_order_of_values(one: float, other: float) -> None:
    low, high = sorted((one, other))
    for scale in (between(low, high), of_durations(low, high)):
        assert 0.0 <= scale.at(low) <= scale.at((low + high) / 2.0) <= scale.at(high) <= 100.0
        assert all(0.0 <= scale.at(tick) <= 100.0 for tick in scale.ticks)
        assert len(scale.ticks) <= 24


@pytest.mark.parametrize(
    ("highest", "labels"),
    [
        (100.0, "0 20 40 60 80 100"),
        (6.0, "0 2 4 6"),
        (0.4, "0.0 0.1 0.2 0.3 0.4"),
        (12.0, "0.0 2.5 5.0 7.5 10.0 12.5"),
        (4_000.0, "0 1,000 2,000 3,000 4,000"),
    ],
)
def test_tick_labels_have_the_decimals_they_need(highest: float, labels: str) -> None:
    assert tick_labels(up_from_zero(highest).ticks) == labels.split()


def test_widely_spread_durations_use_a_logarithmic_scale() -> None:
    assert not of_durations(0.3, 0.5).logarithmic
    scale = of_durations(0.1, 10.0)
    assert scale.logarithmic
    assert scale.at(1.0) == pytest.approx(50.0)


@given(st.dictionaries(st.integers(1, 400), st.integers(1, 10_000), min_size=1, max_size=300))
def test_joined_bins_lose_no_count_and_are_few(stored: dict[int, int]) -> None:
    held = sorted(stored.items())
    lower = [1_000.0 * 1.01**index for index, _ in held]
    upper = [1_000.0 * 1.01 ** (index + 1) for index, _ in held]
    edges, counts = join_bins(lower, upper, [count for _, count in held])
    assert sum(counts) == sum(count for _, count in held)
    assert len(edges) == len(counts) + 1
    assert len(counts) <= MOST_COLUMNS + 1
    assert edges[0] <= lower[0] * 1.0001
    assert edges[-1] >= upper[-1] * 0.9999


def test_joined_bins_of_one_ratio_leave_no_empty_gap() -> None:
    lower = [1.02**index for index in range(200)]
    _, counts = join_bins(lower, [each * 1.02 for each in lower], [7] * 200)
    assert set(counts[:-1]) == {28}


@pytest.mark.parametrize("counts", [[], [1]])
def test_edges_that_do_not_fit_are_refused(counts: list[int]) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        join_bins([1.0, 2.0][: 2 * len(counts)], [2.0][: len(counts)], counts)


def test_bar_length_is_the_share_with_the_limit_at_its_place() -> None:
    drawn = strips.bar(70.5, PERCENT, alt="seventy", tone="hot", limits=[strips.Limit(50.0, "threshold")])
    assert '<rect x="0%" width="70.5%"' in drawn
    assert '<line x1="50%" x2="50%"' in drawn
    assert "<title>seventy</title>" in drawn


@pytest.mark.parametrize("value", [-5.0, 0.0, 250.0])
def test_value_beyond_the_scale_stays_on_the_strip(value: float) -> None:
    widths = [float(each) for each in re.findall(r'width="([\d.]+)%"', strips.bar(value, PERCENT, alt="x"))]
    assert all(0.0 < width <= 100.0 for width in widths)


def test_unknown_values_are_not_drawn() -> None:
    empty = strips.box([None] * 5, PERCENT, alt="nothing", marks=(None, None))
    assert "<rect" not in empty
    assert "<circle" not in empty
    assert "<rect" not in strips.bar(None, PERCENT, alt="nothing")


def test_parts_are_adjacent_and_small_ones_have_no_label() -> None:
    drawn = strips.parts_of_whole([("start", 0.02, "s2"), ("loop", 0.98, "s1")], alt="job")
    assert re.findall(r'<rect x="([\d.]+)%" width="([\d.]+)%"', drawn) == [("0", "2"), ("2", "98")]
    assert re.findall(r"<text[^>]*>([^<]*)", drawn) == ["loop"]


def test_titles_of_a_short_bar_are_shares_of_the_bar() -> None:
    drawn = strips.parts_of_whole([("host", 0.1, "s1"), ("gpu", 0.3, "s2")], alt="step 7", whole=0.4)
    assert re.findall(r"<title>([^<]*)", drawn) == ["host: 25 %", "gpu: 75 %"]
    assert re.findall(r'width="([\d.]+)%" y', drawn) == ["10", "30"]
    bare = strips.parts_of_whole([("", 1.0, "s1")], alt="131 ms, 29.2 % of all kernels")
    assert re.findall(r"<title>([^<]*)", bare) == ["131 ms, 29.2 % of all kernels"]


def test_histogram_lies_wholly_in_its_frame() -> None:
    bins = join_bins([0.4, 4.9], [0.41, 5.0], [3_000, 1])
    lines = [strips.Limit(0.5, "mean", "mean"), strips.Limit(9.0, "threshold")]
    drawn = histogram(bins, alt="steps", across="s", up="steps", lines=lines)
    for x, y, width, height in re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', drawn):
        assert 0.0 <= float(x) <= float(x) + float(width) <= WIDTH
        assert 0.0 <= float(y) <= float(y) + float(height) <= HEIGHT
        assert float(height) >= 1.5
    assert "threshold" in drawn


def test_each_line_has_a_point_a_value_and_its_own_colour() -> None:
    drawn = lines_over({"gpu0": [10.0, 20.0, 30.0], "gpu1": [5.0]}, step=5.0, alt="floors", across="min", up=PERCENT)
    assert [len(points.split()) for points in re.findall(r'points="([^"]+)"', drawn)] == [3, 1]
    assert 'class="series s1"' in drawn
    assert 'class="series s2"' in drawn


def test_markup_in_drawn_texts_and_attributes_is_escaped() -> None:
    drawn = element("svg", title("</title><script>"), text("<b>&"), class_='"><script>')
    assert "<script>" not in drawn
    assert "&lt;b&gt;&amp;" in drawn


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (number(0.026282), "0.0263"),
        (number(1004.0), "1,004"),
        (number(12.5), "12.5"),
        (number(float("nan")), NOTHING),
        (percent(0.01), "< 0.1 %"),
        (percent(70.49), "70.5 %"),
        (percent(100.0), "100 %"),
        (share(0.123), "12.3 %"),
        (quantity(19.2, "percentage points"), "19.2 percentage points"),
        (quantity(None, "%"), NOTHING),
        (seconds(0.00944), "9.44 ms"),
        (seconds(5.1), "5.1 s"),
        (seconds(1_500.0), "25 min"),
        (duration(86_400.0 * 3), "3 days"),
        (rate(644_706.0), "645 kB/s"),
        (rate(2.5e9), "2.5 GB/s"),
        (money(8.8, "USD"), "USD 8.80"),
        (money(12_345.6, "USD"), "USD 12,346"),
        (money(None, "USD"), NOTHING),
        (moment("2023-11-18T03:06:12.501Z"), "2023-11-18 03:06:12"),
        (moment("yesterday"), "yesterday"),
        (moment(None), NOTHING),
    ],
)
def test_given_a_number_when_written_then_people_can_read_it(written: str, text: str) -> None:
    assert written == text
