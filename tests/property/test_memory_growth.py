"""What is remembered of a GPU's memory activity, and whether it grows, by definition: in plain numbers."""

from dataclasses import dataclass
from itertools import combinations, pairwise
from math import ceil, inf, sqrt
from statistics import median

import msgspec
import numpy as np
import pytest

from trainguard.rules.gpu_memory_increase.growth import (
    Increase,
    Kind,
    Levels,
    MemoryGrowth,
    MemoryState,
    increases_of,
)
from trainguard.rules.gpu_memory_increase.rise import Rise

HISTORIES, STATES = 150, 800
WINDOW_S = 250.0


def slope_of(levels: list[int]) -> float:
    """Return the median slope of all pairs."""
    if len(levels) < 2:
        return 0.0
    return median((levels[j] - levels[i]) / (j - i) for i, j in combinations(range(len(levels)), 2))


def z_of(levels: list[int]) -> float:
    """Return Mann and Kendall's Z, its variance corrected for ties."""
    count = len(levels)
    score = sum((later > earlier) - (later < earlier) for earlier, later in combinations(levels, 2))
    ties = sum(levels.count(each) * (levels.count(each) - 1) * (2 * levels.count(each) + 5) for each in set(levels))
    variance = (count * (count - 1) * (2 * count + 5) - ties) / 18
    return 0.0 if not score else (score - score / abs(score)) / sqrt(variance)


@dataclass
class Rising:
    """The newest levels since they left the lowest."""

    levels: list[int]
    stride: int

    @property
    def slope(self) -> float:
        return slope_of(self.levels) / 10.0 / self.stride

    @property
    def points(self) -> float:
        return (self.levels[-1] - self.levels[0]) / 10

    @property
    def windows(self) -> int:
        return self.stride * (len(self.levels) - 1)

    @property
    def goes_on(self) -> bool:
        third = Rising(self.levels[-(max(ceil(len(self.levels) / 3), 2) + 1) :], self.stride)
        risen = third.slope * third.windows
        return len(self.levels) > 2 and risen > 0.0 and risen >= self.points / 4

    def is_steady(self, window_s: float) -> bool:
        steps = [after - before for before, after in pairwise(self.levels)]
        return (
            len(self.levels) >= (5 if self.stride == 1 else 4)
            and self.windows * window_s >= 1_800.0
            and self.goes_on
            and 2 * max(steps) <= self.levels[-1] - self.levels[0]
            and z_of(self.levels) >= 1.6
        )


def rising(floors: list[int], stride: int) -> Rising:
    lowest = min(floors)
    near = [index for index, floor in enumerate(floors) if 10 * (floor - lowest) <= floors[-1] - lowest]
    return Rising(floors[near[-1] :], stride)


def floors_of(random: np.random.Generator, length: int) -> list[int]:
    """Return floors in tenths of a percent, most of which rise by a few steps of a percent."""
    steps = random.choice([-20, -10, 0, 10, 20, 30], length, p=[0.05, 0.1, 0.25, 0.3, 0.2, 0.1])
    return [int(each) for each in np.clip(200 + np.cumsum(steps), 0, 1_000)]


def test_rise_of_random_floors_matches_the_definition() -> None:
    random = np.random.default_rng(1)
    seen = []
    for _ in range(600):
        floors, stride = floors_of(random, int(random.integers(1, 16))), int(random.choice([1, 2, 4]))
        expected, found = rising(floors, stride), Rise.of(floors, stride)
        assert found.levels == expected.levels
        assert (found.points, found.windows) == (expected.points, expected.windows)
        assert found.slope == pytest.approx(expected.slope)
        assert found.goes_on is expected.goes_on
        for window_s in (250.0, 450.0, 900.0):
            assert found.is_steady(window_s) is expected.is_steady(window_s)
        seen.append((found.goes_on, found.is_steady(250.0)))
    assert len(set(seen)) == 3


def test_one_step_up_is_no_growth_that_goes_on() -> None:
    assert not Rise.of([2, 3, 2, 116], 2).goes_on
    assert Rise.of([2, 3, 2, 60, 116], 2).goes_on


@pytest.mark.parametrize(
    ("levels", "stride", "window_s", "is_steady"),
    [
        ([0, 10, 20, 30, 40], 1, 450.0, True),
        ([0, 10, 20, 30, 40], 1, 449.0, False),
        ([0, 10, 20, 30], 1, 900.0, False),
        ([0, 10, 20, 30], 2, 300.0, True),
        ([0, 10, 20, 30], 2, 299.0, False),
        ([0, 10, 20], 2, 900.0, False),
        ([0, 5, 10, 15, 30], 1, 900.0, True),
        ([0, 5, 10, 14, 30], 1, 900.0, False),
        ([0, 10, 20, 30, 20], 1, 900.0, False),
        ([0, 10, 20, 10, 20, 20], 1, 900.0, True),
        ([0, 10, 20, 10, 10, 20], 1, 900.0, False),
    ],
)
def test_rise_on_a_bound_is_steady_only_if_it_reaches_it(
    levels: list[int], stride: int, window_s: float, is_steady: bool
) -> None:
    assert Rise(levels, stride).is_steady(window_s) is is_steady
    assert Rising(levels, stride).is_steady(window_s) is is_steady


def levels_after(means: list[float], floors: list[float]) -> Levels:
    """Return what is remembered of windows, from all of them at once."""
    tenths = [round(10 * floor) for floor in floors]
    rounded = [round(10 * mean) for mean in means]
    stride = 1
    while len(tenths) > 24 * stride:
        stride *= 2
    whole = len(tenths) - len(tenths) % stride
    return Levels(
        means=rounded[-2:],
        highest_mean=max(rounded[:-2], default=None),
        floor=tenths[-1],
        highest_floor=max(tenths),
        floors=[min(tenths[begin : begin + stride]) for begin in range(0, whole, stride)],
        stride=stride,
        lowest=min(tenths[whole:] or tenths[whole - stride :]),
        pending=len(tenths) - whole,
        earlier_floor=max(tenths[: 12 * stride]) if stride > 1 else None,
    )


def base_after(floors: list[float], at: list[float]) -> tuple[int, float | None, int | None]:
    """Return the lowest floor, when a floor was last within 2 points of it as it was then, and the one after that."""
    tenths = [round(10 * floor) for floor in floors]
    near = [place for place in range(len(tenths)) if tenths[place] <= min(tenths[: place + 1]) + 20]
    after = tenths[near[-1] + 1 :]
    return min(tenths), at[near[-1]], after[0] if after else None


def test_levels_added_in_parts_match_all_windows_at_once() -> None:
    random = np.random.default_rng(2)
    for run in range(HISTORIES):
        count = int(random.choice([1, 2, 3, 4, 23, 24, 25, 26, 48, 49, 50, 60, 97, 110]))
        growth, windows = MemoryGrowth(0), []
        for number in range(count):
            floor = float(random.choice([20.0, 21.0, 22.0, 22.1, 24.0, 24.1, 30.04]))
            load = float(random.choice([0.0, 50.0, 80.0, 100.0]))
            full = None if random.random() < 0.3 else (2.0 * floor, 2.0 * floor - 1.0)
            windows.append((floor + float(random.choice([0.0, 5.0, 10.0])), floor, load, full, 60.0 * number))
            growth.add(*windows[-1])
            if run % 2:
                growth = msgspec.msgpack.decode(msgspec.msgpack.encode(growth), type=MemoryGrowth)
        factors = [100.0 / max(load, 1.0) for _, _, load, _, _ in windows]
        fulls = [
            full or (mean * factor, floor * factor)
            for (mean, floor, _, full, _), factor in zip(windows, factors, strict=True)
        ]
        assert growth.levels == levels_after([each[0] for each in windows], [each[1] for each in windows])
        assert growth.full == levels_after([mean for mean, _ in fulls], [floor for _, floor in fulls])
        assert growth.load == round(10 * windows[-1][2])
        assert (growth.base, growth.left_at, growth.left_to) == base_after(
            [floor for _, floor in fulls], [60.0 * number for number in range(count)]
        )
        left_by = None if growth.left_to is None or growth.base is None else growth.left_to - growth.base
        assert growth.left_slowly is (left_by is not None and left_by <= 40)


def test_windows_of_a_version_without_loads_take_the_next_load() -> None:
    stored = MemoryGrowth(0, 0, [400, 500], 300, 400, 450, [200, 400], 2, 300, 1, 450)
    stored.add(50.0, 40.0, 50.0, None, 0.0)
    assert stored.full == Levels([1_000, 1_000], 800, 800, 900, [400, 800, 600], 2, 600, 0, 900)
    unknown = MemoryGrowth(0)
    unknown.add(0.5, 0.25, 0.25, None, 0.0)
    assert unknown.full == Levels([500], None, 250, 250, [250], 1, 250, 0, None)


def random_levels(random: np.random.Generator, length: int, stride: int) -> Levels:
    """Return levels of so many floors, one of which waits for its windows."""
    floors = floors_of(random, length + 1)
    newest = floors[-1] + int(random.choice([0, 0, 10, 50]))
    return Levels(
        means=[newest, newest + 5],
        highest_mean=newest + int(random.choice([50, 0, -50, -100, -110, -200])),
        floor=newest,
        highest_floor=max(*floors, newest),
        floors=floors[:-1],
        stride=stride,
        lowest=floors[-1],
        pending=stride // 2,
        earlier_floor=None if stride == 1 else newest + int(random.choice([50, 0, -100, -110])),
    )


@dataclass
class Found:
    """What one set of levels says."""

    jump: float
    trend: float
    z: float
    late: float
    rise: Rising


def found_in(levels: Levels) -> Found:
    floors, z, trend = levels.floors, 0.0, -inf
    if len(floors) >= 12:
        z, trend = z_of(floors), min(slope_of(floors) * (len(floors) - 1), floors[-1] - min(floors)) / 10
    late = -inf if levels.earlier_floor is None else (levels.floor - levels.earlier_floor) / 10
    pending = [levels.lowest] if levels.pending else []
    jump = (levels.floor - (levels.highest_mean or 0)) / 10
    return Found(jump, trend, z, late, rising([*floors, *pending], levels.stride))


def judged(growth: MemoryGrowth, increase: float) -> tuple[str | None, float, int]:
    """Return the kind of increase, its points and its windows."""
    levels = growth.levels
    measured, full = found_in(levels), found_in(growth.full or levels)
    load = growth.load / 10 / 100 if growth.full else 1.0
    floors = [*levels.floors, *([levels.lowest] if levels.pending else [])]
    steady = (floors[-1] - floors[-len(full.rise.levels)]) / 10
    recent = (len(levels.floors) - 12) * levels.stride + levels.pending
    if measured.jump > increase and full.jump * load >= 0.5 * measured.jump:
        return "jump", measured.jump, 3
    goes_on = full.rise.goes_on
    if goes_on and measured.z > 3.09 and measured.trend > increase and full.trend * load >= 0.5 * measured.trend:
        return "trend", measured.trend, (len(levels.floors) - 1) * levels.stride
    if goes_on and measured.late > increase and full.late * load >= 0.5 * measured.late:
        return "late", measured.late, recent
    if full.rise.is_steady(WINDOW_S) and steady > increase and full.rise.points * load >= 0.5 * steady:
        return "rise", steady, full.rise.windows
    return None, measured.jump, 3


def test_first_kind_that_holds_at_full_load_is_reported() -> None:
    random = np.random.default_rng(3)
    kinds = []
    for _ in range(STATES // 4):
        state = MemoryState()
        for gpu in ("gpu0", "gpu1", "gpu2", "gpu3"):
            stride = int(random.choice([1, 1, 2, 4]))
            length = int(random.integers(3 if stride == 1 else 12, 25))
            levels = random_levels(random, length, stride)
            full = levels.scaled(float(random.choice([0.25, 0.5, 1.0, 2.0])))
            if random.random() < 0.3:
                full = random_levels(random, length, stride)
            load = int(random.choice([500, 900, 1_000]))
            growth = MemoryGrowth(0, 0, *msgspec.structs.astuple(levels))
            growth.full, growth.load = full, load
            if random.random() < 0.2:
                growth.full = None
            if random.random() < 0.05:
                growth.highest_mean = None
            state.gpus[gpu] = growth
        increase = float(random.choice([2.0, 5.0, 10.0]))
        said = {each.gpu: each for each in increases_of(state, increase, WINDOW_S)}
        expected = {gpu: growth for gpu, growth in state.gpus.items() if growth.highest_mean is not None}
        assert list(said) == list(expected)
        for gpu, growth in expected.items():
            kind, points, windows = judged(growth, increase)
            assert (said[gpu].kind, said[gpu].windows) == (kind, windows)
            assert said[gpu].points == pytest.approx(points)
            assert (said[gpu].z is not None) is (kind == "trend")
            assert said[gpu].z is None or said[gpu].z == pytest.approx(z_of(growth.floors))
            at_full = found_in(growth.full or growth.levels).rise.levels
            assert said[gpu].rise.levels == growth.levels.all_floors[-len(at_full) :]
            kinds.append(kind)
    assert min(kinds.count(kind) for kind in (None, "jump", "trend", "late", "rise")) > 10


def increase_of(kind: Kind | None, floors: list[int], *, mean: int = 500, stride: int = 1) -> Increase:
    growth = MemoryGrowth(0, means=[mean], floors=floors, stride=stride)
    return Increase("gpu0", growth, kind, 10.0, 3, None, Rise([0, 30], 3))


@pytest.mark.parametrize(
    ("floors", "is_ramp"),
    [
        ([0, 10, 20, 30], True),
        ([500, 0, 10, 20, 30], True),
        ([0, 10, 20], False),
        ([0, 10, 10, 20], False),
        ([0, 1, 2, 3], True),
        ([0, 20, 30, 40], True),
        ([0, 21, 31, 40], False),
        ([0, 10, 30, 40], True),
        ([0, 10, 31, 41], False),
        ([0, 10, 26, 34], True),
        ([0, 10, 26, 33], False),
        ([0, 5, 10, 20], True),
        ([0, 5, 10, 21], False),
    ],
)
def test_jump_among_many_goes_on_with_time_left(floors: list[int], is_ramp: bool) -> None:
    jump = increase_of("jump", floors)
    assert (jump.is_ramp, jump.goes_on, jump.time_left_s(900.0) is not None) == (is_ramp, is_ramp, is_ramp)
    assert (increase_of("trend", floors).is_ramp, increase_of("trend", floors).goes_on) == (False, True)
    assert (increase_of(None, floors).is_ramp, increase_of(None, floors).goes_on) == (False, False)


def test_growth_rate_is_of_its_rise_or_of_the_floors_of_a_ramp() -> None:
    assert increase_of("late", []).hourly(900.0) == pytest.approx(4.0)
    assert increase_of("late", []).time_left_s(900.0) == pytest.approx(12.5 * 3_600.0)
    assert increase_of("jump", [0, 10, 20, 30], stride=2).hourly(900.0) == pytest.approx(2.0)
    assert increase_of("late", [], mean=1_010).room == 0.0
    falling = Increase("gpu0", MemoryGrowth(0, means=[500]), "late", 10.0, 3, None, Rise([30, 30], 1))
    assert falling.time_left_s(900.0) is None


def test_strongest_jump_is_kept_and_the_newest_has_its_onset() -> None:
    def jumped(floor: int, highest: int | None) -> list[Increase]:
        growth = MemoryGrowth(0, floor=floor, highest_mean=highest, means=[floor])
        return [Increase("gpu0", growth, "jump", 1.0, 3, None, Rise([0], 1)), increase_of("late", [])]

    state = MemoryState()
    state.note_jumps(jumped(500, 300), 100.0)
    state.note_jumps(jumped(700, 500), 200.0)
    assert state.strongest is not None
    assert (state.strongest.at, state.strongest.points, state.jumped_at) == (100.0, 20.0, 100.0)
    state.note_jumps([increase_of("late", [])], 300.0)
    assert (state.strongest.at, state.jumped_at) == (100.0, None)
    state.note_jumps(jumped(801, 600), 400.0)
    assert (state.strongest.at, state.strongest.gpu, state.jumped_at) == (400.0, "gpu0", 400.0)
    assert (state.strongest.floor, state.strongest.highest) == (801, 600)
