"""Series in blocks, their noise, levels and trends: each against its definition, over short lists on a lattice."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Sequence
from statistics import fmean, median

import msgspec
import pytest

from tests.unit.rules.training.series_runs import series_of
from trainguard.core.finding import Status
from trainguard.rules.rule_result import FactSheet
from trainguard.rules.training.series import (
    Series,
    fall,
    first_facts,
    gain,
    level,
    noise,
    smoothed,
    tail,
    unit,
    z_score,
)
from trainguard.rules.training.step_words import filled

LENGTHS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 18, 31, 32, 33, 34, 63, 64, 65, 66, 67, 97, 128, 129, 131, 200]


def lattice(length: int, seed: int) -> list[float]:
    draw = random.Random(100 * length + seed)
    return [draw.randint(-4, 8) / 4.0 for _ in range(length)]


def lists(most: int = 12) -> list[list[float]]:
    """Return lists of up to so many values, most of them with ties."""
    return [lattice(length, seed) for length in range(most + 1) for seed in range(8)]


@pytest.mark.parametrize("length", LENGTHS)
def test_blocks_are_the_smallest_of_which_32_are_enough(length: int) -> None:
    values = lattice(length, 0)
    size = next(2**power for power in itertools.count() if math.ceil(length / 2**power) <= 32)
    blocks = [values[place : place + size] for place in range(0, length, size)]
    series = series_of(values)
    assert series.means == pytest.approx([fmean(block) for block in blocks])
    assert list(series.whole) == series.means[: length // size]
    ends = [10 + 3 * (min(place + size, length) - 1) for place in range(0, length, size)]
    stored = msgspec.to_builtins(series)
    assert stored[:3] == [length, size, len(blocks[-1]) if blocks else 0]
    assert stored[4] == ends
    assert stored[5:] == [
        values[0] if values else 0.0,
        10 if values else 0,
        values[-1] if values else 0.0,
        min(values, default=math.inf),
        max(values, default=-math.inf),
        values[:4],
        [1_000 + end for end in ends],
        1_010 if values else 0,
    ]


def test_mean_of_joined_blocks_near_the_float_maximum_is_finite() -> None:
    assert series_of([1.5e308] * 66).means == [1.5e308] * 17


def test_smoothed_inner_value_is_the_median_of_three() -> None:
    for values in lists():
        plain = [
            median(values[place - 1 : place + 2]) if 0 < place < len(values) - 1 else value
            for place, value in enumerate(values)
        ]
        assert smoothed(values) == plain


def test_noise_is_estimated_from_the_median_bend() -> None:
    for values in lists():
        bends = [abs(values[at - 1] - 2 * values[at] + values[at + 1]) for at in range(1, len(values) - 1)]
        assert noise(values) == pytest.approx(median(bends) / math.sqrt(6) / 0.6745 if bends else 0.0)


def test_level_is_the_mean_of_a_share_and_of_at_least_one_value() -> None:
    for values, share in itertools.product(lists()[8:], (0.0, 0.1, 0.2, 0.25, 0.5, 1.0)):
        count = max(1, round(share * len(values)))
        assert level(values, share) == pytest.approx(sum(values[:count]) / count)
        assert level(values, share, end=True) == pytest.approx(sum(values[::-1][:count]) / count)


def plain_z(values: Sequence[float]) -> float:
    """Return Mann and Kendall's Z with the correction for ties, as textbooks have it."""
    pairs = list(itertools.combinations(values, 2))
    s = sum(later > earlier for earlier, later in pairs) - sum(later < earlier for earlier, later in pairs)
    if len(values) < 5 or s == 0:
        return 0.0
    n = len(values)
    ties = sum(t * (t - 1) * (2 * t + 5) for t in Counter(values).values())
    return (s - 1 if s > 0 else s + 1) / math.sqrt((n * (n - 1) * (2 * n + 5) - ties) / 18)


def test_z_of_a_trend_is_that_of_the_textbook() -> None:
    special: list[list[float]] = [[1.0] * 6, [1.0, 1.0, 1.0, 1.0, 2.0], list(range(4)), list(range(5)), list(range(32))]
    for values in [*lists(16), *special]:
        assert z_score(values) == pytest.approx(plain_z(values), abs=1e-12)
        assert z_score(values[::-1]) == pytest.approx(-plain_z(values), abs=1e-12)


def beginning(series: Series, digits: int = 6) -> str:
    return filled(FactSheet(Status.OK, "", first_facts("loss", series)), f"{{loss_first:began {digits}}}")


def test_short_series_show_recorded_levels_and_long_ones_blocks() -> None:
    assert beginning(series_of([1.23456789, 2.0])) == "1.23457 at the start (step 10)"
    assert beginning(series_of([1.23456789, 2.0]), 3) == "1.23 at the start (step 10)"
    assert beginning(series_of([1.0, 2.0] * 20)) == "about 1.5 over the first 2 values (steps 10 to 13)"
    long = beginning(series_of([1.5] * (32 * 1024 + 1)))
    assert long == "about 1.5 over the first 2,048 values (steps 10 to 6151)"


def test_fall_is_a_share_of_the_size_of_the_first_loss() -> None:
    for values in lists()[8:]:
        count = max(1, round(len(values) / 4))
        last = sum(values[-count:]) / count
        assert tail(series_of(values)) == pytest.approx(last)
        plain = (values[0] - last) / abs(values[0]) if values[0] != 0.0 else 0.0
        assert fall(series_of(values)) == pytest.approx(plain)


@pytest.mark.parametrize(("most", "range_of"), [(1.0, 1.0), (1.5, 1.0), (1.75, 100.0), (2.25, 100.0), (98.0, 100.0)])
def test_scores_above_one_and_a_half_are_per_cent(most: float, range_of: float) -> None:
    assert unit(series_of([0.5, most, 0.25])) == range_of
    assert gain(series_of([0.0, most, most, most])) == most / range_of


def test_gain_uses_the_best_with_a_trend_else_the_last_quarter() -> None:
    found = set()
    for values in [lattice(length, seed) for length in (1, 3, 4, 5, 7, 8, 9, 12, 15, 33, 66) for seed in range(12)]:
        rising = [value + 0.5 * place for place, value in enumerate(values)]
        for score in map(series_of, (values, rising, [*rising, values[0]], rising[::-1])):
            means = score.means
            inner = [sorted(means[at - 1 : at + 2])[1] for at in range(1, len(means) - 1)]
            last = fmean(means[len(means) - max(1, len(means) // 4) :])
            best = max(means[0], means[-1], *inner)
            rises = plain_z(means[: score.count // score.size]) > 1.96
            found.add(rises)
            plain = (max(best, last) if rises else last) - means[0]
            assert gain(score) == pytest.approx(plain / (100.0 if max(score.most, 0.0) > 1.5 else 1.0))
    assert found == {False, True}
