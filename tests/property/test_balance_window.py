"""Which sides stay behind the busiest over the window, by definition: block by block, in plain numbers."""

from dataclasses import dataclass
from functools import cached_property
from math import inf, nan, sqrt

import numpy as np
import pytest

from trainguard.rules.load_balancing.times import FineMeans
from trainguard.rules.load_balancing.window import BalanceWindow, Block, Gaps, gaps_across

BLOCK_S = 600.0
RUNS = 300
WIDE, WIDE_IN_A_BLOCK = 20.0, 10.0


@dataclass
class Window:
    """Blocks of some sides: numbers, and points and means by block and side."""

    numbers: list[int]
    points: list[list[float]]
    means: list[list[float]]
    variance: float
    interval_s: float

    @cached_property
    def gaps(self) -> Gaps:
        points, means = np.array(self.points), np.array(self.means)
        nothing = FineMeans.of([], np.zeros((0, points.shape[1])), np.zeros((0, points.shape[1])))
        return Gaps.of(self.numbers, points, points * means, (self.variance, self.interval_s), nothing)

    def total(self, side: int) -> float:
        return sum(row[side] for row in self.points)

    def mean(self, side: int) -> float:
        total = self.total(side)
        sums = sum(points[side] * means[side] for points, means in zip(self.points, self.means, strict=True))
        return sums / total if total else nan

    @property
    def sides(self) -> range:
        return range(len(self.points[0]))

    @cached_property
    def judged(self) -> list[int]:
        return [side for side in self.sides if self.total(side) >= max(20.0, 600.0 / self.interval_s)]

    @cached_property
    def busiest(self) -> int:
        return max(self.judged, key=self.mean) if len(self.judged) > 1 else 0

    def is_behind(self, block: int, side: int) -> bool:
        both = self.points[block][side] and self.points[block][self.busiest]
        return bool(both) and self.means[block][self.busiest] - self.means[block][side] >= WIDE_IN_A_BLOCK

    @cached_property
    def apart(self) -> list[int]:
        if len(self.judged) < 2:
            return []
        found = []
        for side in self.judged:
            gap = self.mean(self.busiest) - self.mean(side)
            error = sqrt(self.variance / self.total(side) + self.variance / self.total(self.busiest))
            behind = sum(row[side] for block, row in enumerate(self.points) if self.is_behind(block, side))
            if gap >= WIDE and gap >= 4.0 * error and behind / self.total(side) >= 2.0 / 3.0:
                found.append(side)
        return found

    @cached_property
    def held(self) -> list[bool]:
        return [any(self.is_behind(block, side) for side in self.apart) for block in range(len(self.numbers))]

    @property
    def first(self) -> int:
        """The block since which it holds; of what does not hold in the newest one, the first in which it did."""
        held = self.held
        if not held[-1] or all(held):
            return held.index(True)
        return len(held) - held[::-1].index(False)

    def over_since(self, low: int, others: list[int]) -> float | None:
        gaps = {}
        for block, row in enumerate(self.points):
            known = [self.means[block][side] for side in others if row[side]]
            if row[low] and known:
                gaps[block] = sum(known) / len(known) - self.means[block][low]
        held = [gap >= WIDE_IN_A_BLOCK for gap in gaps.values()]
        if len(held) < 2 or held[-1] or held[-2]:
            return None
        last = max((block for block, gap in gaps.items() if gap >= WIDE_IN_A_BLOCK), default=None)
        return BLOCK_S * (self.numbers[0] if last is None else self.numbers[last] + 1)


def random_window(random: np.random.Generator) -> Window:
    """Return a window of two to four sides, many of whose means, points and shares lie on a bound."""
    blocks, sides = int(random.integers(1, 7)), int(random.integers(2, 5))
    numbers = (100 + np.cumsum(random.integers(1, 3, blocks))).tolist()
    levels = random.choice([40.0, 70.0, 80.0, 90.0], sides)
    changed = np.where(random.random((blocks, sides)) < 0.2, random.choice([50.0, 90.0]), levels)
    points = random.choice([0.0, 5.0, 10.0, 20.0, 30.0], (blocks, sides), p=[0.1, 0.1, 0.3, 0.3, 0.2])
    variance = float(random.choice([0.0, 100.0, 400.0, 1_600.0]))
    return Window(numbers, points.tolist(), changed.tolist(), variance, float(random.choice([10.0, 20.0, 30.0, 60.0])))


def indices(flags: np.ndarray) -> list[int]:
    return [int(each) for each in np.flatnonzero(flags)]


def test_compared_sides_of_random_windows_match_the_definition() -> None:
    random = np.random.default_rng(3)
    found = 0
    for _ in range(RUNS):
        window = random_window(random)
        gaps = window.gaps
        assert indices(gaps.judged) == window.judged
        assert (indices(gaps.apart), gaps.busiest) == (window.apart, window.busiest)
        assert gaps.points.tolist() == [window.total(side) for side in window.sides]
        assert np.allclose(gaps.means, [window.mean(side) for side in window.sides], equal_nan=True)
        assert gaps.full is (window.numbers[-1] - window.numbers[0] + 1 >= 6)
        if window.apart:
            found += 1
            assert gaps.since == BLOCK_S * window.numbers[window.first]
            assert gaps.reaches is (window.first == 0)
            assert gaps.worst == min(window.apart, key=window.mean)
        else:
            assert (gaps.since, gaps.reaches) == (None, False)
            others = [side for side in window.judged if side != window.busiest]
            if len(window.judged) > 1:
                assert gaps.worst == min(others, key=window.mean)
    assert found > RUNS / 5


def test_gap_is_over_after_two_blocks_without_it() -> None:
    random = np.random.default_rng(4)
    seen = set()
    for _ in range(RUNS):
        window = random_window(random)
        gaps = window.gaps
        ends = {side: window.over_since(side, [other for other in window.sides if other != side]) for side in (0, 1)}
        assert {side: gaps.over_since(side) for side in (0, 1)} == ends
        of_apart = [window.over_since(side, [window.busiest]) for side in window.apart]
        assert [gaps.over_since(side, gaps.busiest) for side in window.apart] == of_apart
        known = [each for each in of_apart if each is not None]
        over = max(known) if known and len(known) == len(of_apart) else None
        assert gaps.over == over
        seen |= {over is None, ends[0] is None}
    assert seen == {True, False}


def test_lost_points_are_the_gap_as_share_of_the_busiest() -> None:
    random = np.random.default_rng(5)
    for _ in range(RUNS):
        window = random_window(random)
        gaps = window.gaps
        if not window.apart:
            continue
        rows = random.choice([nan, 0.0, 40.0, 90.0], (3, len(window.sides)))
        lost = sum(
            row[window.busiest] - row[side]
            for row in rows
            for side in window.apart
            if not np.isnan(row[side]) and not np.isnan(row[window.busiest])
        )
        share = lost / window.mean(window.busiest) / len(window.judged)
        assert gaps.lost_of(rows) == pytest.approx(share)


STEADY = [[10.0, 10.0]] * 6


def behind(*gaps: float) -> list[list[float]]:
    return [[90.0, 90.0 - gap] for gap in gaps]


@pytest.mark.parametrize(
    ("points", "means", "variance", "interval_s", "apart"),
    [
        (STEADY, behind(*[20.0] * 6), 0.0, 60.0, True),
        (STEADY, behind(*[20.0] * 5, 19.0), 0.0, 60.0, False),
        # Two thirds of the time behind, by ten points at least.
        (STEADY, behind(40.0, 40.0, 40.0, 40.0, 0.0, 0.0), 0.0, 60.0, True),
        (STEADY, behind(40.0, 40.0, 40.0, 9.0, 9.0, 9.0), 0.0, 60.0, False),
        (STEADY, behind(40.0, 40.0, 40.0, 10.0, 9.0, 9.0), 0.0, 60.0, True),
        # 50 points each at a variance of 625: an error of 5.
        ([[50.0, 50.0]], behind(20.0), 625.0, 60.0, True),
        ([[50.0, 50.0]], behind(20.0), 626.0, 60.0, False),
        # Twenty points, and ten minutes of them.
        ([[20.0, 20.0]], behind(20.0), 0.0, 60.0, True),
        ([[20.0, 19.0]], behind(20.0), 0.0, 60.0, False),
        ([[19.0, 20.0]], behind(20.0), 0.0, 60.0, False),
        ([[60.0, 60.0]], behind(20.0), 0.0, 10.0, True),
        ([[60.0, 59.0]], behind(20.0), 0.0, 10.0, False),
    ],
)
def test_window_on_a_bound_is_apart_only_if_it_reaches_it(
    points: list[list[float]], means: list[list[float]], variance: float, interval_s: float, apart: bool
) -> None:
    gaps = Window(list(range(100, 100 + len(points))), points, means, variance, interval_s).gaps
    assert indices(gaps.apart) == ([1] if apart else [])


def test_empty_or_zero_sides_are_never_behind() -> None:
    empty = BalanceWindow().gaps(1.0)
    assert (empty.full, empty.apart.tolist(), empty.points.tolist(), empty.since) == (False, [], [], None)
    idle = Window([1], [[60.0, 60.0]], [[0.0, 0.0]], 0.0, 60.0).gaps
    assert indices(idle.apart) == []


def kept(random: np.random.Generator, gpus: int) -> tuple[np.ndarray, np.ndarray]:
    """Return times and utilization of two hours of a node, with samples missing."""
    times = 1_000_000.0 + np.arange(0.0, 7_200.0, 30.0)
    times = times[random.random(times.size) < 0.9]
    values = random.choice([nan, 0.0, 40.0, 90.0, 100.0], (times.size, gpus), p=[0.1, 0.2, 0.2, 0.3, 0.2])
    return times, values


def untimed(blocks: list[Block]) -> list[Block]:
    return [Block(each.number, each.points, each.sums, each.squares) for each in blocks]


def of_blocks(times: np.ndarray, values: np.ndarray, seconds: float, most: int) -> dict[int, np.ndarray]:
    numbers = np.floor(times / seconds).astype(int)
    return {number: values[numbers == number] for number in sorted(set(numbers)) if number > numbers[-1] - most}


@pytest.mark.parametrize("gpus", [1, 2, 3])
def test_added_parts_keep_an_hour_of_blocks_and_81_fine_minutes(gpus: int) -> None:
    random = np.random.default_rng(gpus)
    times, values = kept(random, gpus)
    window, begin = BalanceWindow(), 0
    while begin < times.size:
        end = begin + int(random.integers(1, 9))
        window.add(times[begin:end], values[begin:end])
        begin = end
    blocks, fine = of_blocks(times, values, 600.0, 6), of_blocks(times, values, 180.0, 27)
    assert untimed(window.blocks) == [
        Block(
            number,
            (~np.isnan(each)).sum(axis=0).tolist(),
            (10 * np.nansum(each, axis=0)).astype(int).tolist(),
            int(np.nansum(each**2)),
        )
        for number, each in blocks.items()
    ]
    assert untimed(window.fine) == [
        Block(number, (~np.isnan(each)).sum(axis=0).tolist(), (10 * np.nansum(each, axis=0)).astype(int).tolist(), 0)
        for number, each in fine.items()
    ]
    whole = np.concatenate(list(blocks.values()))
    within = sum(np.nanvar(whole[:, gpu]) * np.count_nonzero(~np.isnan(whole[:, gpu])) for gpu in range(gpus))
    assert window.variance == pytest.approx(within / np.count_nonzero(~np.isnan(whole)))


def test_late_gpu_has_no_points_before_it_appears() -> None:
    window = BalanceWindow()
    window.add(np.array([0.0, 600.0]), np.array([[50.0], [50.0]]))
    window.add(np.array([610.0, 1_200.0]), np.array([[50.0, 20.0], [50.0, 30.0]]))
    assert untimed(window.blocks) == [
        Block(0, [1], [500], 2_500),
        Block(1, [2, 1], [1_000, 200], 5_400),
        Block(2, [1, 1], [500, 300], 3_400),
    ]
    assert window.variance == pytest.approx(50.0 / 6.0)
    assert window.gaps(30.0).points.tolist() == [4.0, 2.0]
    assert BalanceWindow().variance == 0.0


def test_gpus_of_a_node_are_combined_into_points_of_one() -> None:
    random = np.random.default_rng(8)
    nodes, windows = [kept(random, gpus) for gpus in (1, 2, 4)], []
    for place, (times, values) in enumerate(nodes):
        window = BalanceWindow()
        cut = times.size - 40 * place
        window.add(times[:cut], values[:cut])
        windows.append(window)
        nodes[place] = times[:cut], values[:cut]
    gaps = gaps_across(windows, 30.0)

    newest = max(times[-1] for times, _ in nodes) // 600.0
    for node, (times, values) in enumerate(nodes):
        chosen = values[np.floor(times / 600.0) > max(newest - 6, times[-1] // 600.0 - 6)]
        assert gaps.points[node] == np.count_nonzero(~np.isnan(chosen)) / values.shape[1]
        assert gaps.means[node] == pytest.approx(np.nanmean(chosen))
    assert gaps.numbers == tuple(range(int(newest) - 5, int(newest) + 1))
    assert gaps.variance == max(window.variance for window in windows)
    finest = max(times[-1] for times, _ in nodes) // 180.0
    assert gaps.fine.starts.tolist() == [180.0 * number for number in range(int(finest) - 26, int(finest) + 1)]
    assert gaps_across([], 30.0).span == (0.0, 0.0)
    assert inf > gaps.fine.points.max() > 0.0


@pytest.mark.parametrize(
    ("since", "counted_to", "first"), [(None, None, 0), (360.0, None, 2), (300.0, 540.0, 3), (540.0, 300.0, 3)]
)
def test_loss_of_fine_means_counts_since_the_later_time(
    since: float | None, counted_to: float | None, first: int
) -> None:
    points = np.array([[6.0, 6.0, 3.0]] * 5)
    means = np.array([[90.0, 45.0, 90.0]] * 4 + [[90.0, 30.0, 90.0]])
    fine = FineMeans.of(range(5), points, points * means)
    sums = (points * means).sum(axis=0)[np.newaxis]
    gaps = Gaps.of([0], points.sum(axis=0)[np.newaxis], sums, (0.0, 60.0), fine)
    assert indices(gaps.apart) == [1]
    lost = sum(6.0 * (0.5 if block < 4 else 60.0 / 90.0) for block in range(first, 5)) / 2.0
    count, share = gaps.lost_since(since, counted_to)
    assert count == 6 * (5 - first)
    assert share == pytest.approx(lost)


def test_gpu_without_points_is_not_counted_in_its_node() -> None:
    node = BalanceWindow([Block(7, [30, 0], [27_000, 0], 243_000)])
    gaps = gaps_across([node, BalanceWindow([Block(7, [30], [12_000], 48_000)])], 60.0)
    assert (gaps.points.tolist(), gaps.means.tolist()) == ([30.0, 30.0], [90.0, 40.0])
    assert node.variance == 0.0


def test_onset_within_a_block_is_found_to_three_minutes() -> None:
    times = 601_200.0 + np.arange(0.0, 3_600.0, 60.0)
    low = np.where(times < times[0] + 900.0, 81.0, 40.0)
    window = BalanceWindow()
    window.add(times, np.column_stack([np.full(times.size, 90.0), low]))
    assert window.gaps(60.0).since == 601_200.0 + 900.0
    short = BalanceWindow(window.blocks, fine=[])
    assert short.gaps(60.0).since == 601_200.0 + 600.0


def added(window: BalanceWindow, minutes: range, low: float) -> None:
    """Add minutes of a GPU at 80 % and one at a level, and note what they show."""
    times = 601_200.0 + 60.0 * np.array(minutes)
    values = np.column_stack([np.full(len(minutes), 80.0), np.full(len(minutes), low)])
    window.add(times, values)
    window.note(window.gaps(60.0), times, values)


def test_noted_minutes_count_the_loss_once_from_the_onset() -> None:
    window = BalanceWindow()
    added(window, range(10), 80.0)
    assert (window.judged, window.since) == (0, None)
    added(window, range(10, 30), 80.0)
    assert (window.judged, window.seen, window.lost, window.since) == (20, 0, 0, None)
    added(window, range(30, 60), 40.0)
    assert (window.judged, window.seen, window.since, window.counted_to) == (50, 0, None, None)
    added(window, range(60, 70), 40.0)
    mean = float(window.gaps(60.0).means[0])
    assert mean == 80.0
    assert (window.judged, window.since) == (60, 601_200.0 + 30 * 60.0)
    assert (window.seen, window.lost) == (40, round(1e4 * 40 * 0.5 / 2.0))
    added(window, range(70, 71), 40.0)
    assert (window.judged, window.seen, window.lost) == (61, 41, round(1e4 * 41 * 0.5 / 2.0))
    assert window.counted_to == 601_200.0 + 70 * 60.0
    added(window, range(71, 131), 80.0)
    assert (window.judged, window.seen, window.since) == (121, 41, None)
    window.note(window.gaps(60.0), np.zeros(0), np.zeros((0, 2)))
    assert window.judged == 121
    added(window, range(131, 191), 20.0)
    assert (window.judged, window.seen) == (181, 101)
    assert window.lost == round(1e4 * (41 * 0.5 + 60 * 0.75) / 2.0)


def test_gpu_busier_than_others_never_has_a_negative_loss() -> None:
    window = BalanceWindow()
    added(window, range(50), 20.0)
    before = window.lost
    added(window, range(50, 51), 100.0)
    assert 0 < window.lost < before
    window.lost = 1
    added(window, range(51, 52), 100.0)
    assert window.lost == 0
