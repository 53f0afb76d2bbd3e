"""How memory in use rises, by definition: levels, jumps, leaks, in plain numbers."""

from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from tests.unit.rules.device_minutes import Rows, devices
from tests.unit.rules.node_replay import node_minutes
from trainguard.rules.gpu_memory_increase.rise import UseLevels, UseRise, fold_use, rises_of

# So that a level, in hundredths of a percent, is the number of bytes.
TOTAL = 10_000.0

RUNS = 1_500
PERCENT = 100


def filled(levels: list[int], *, stride: int = 1, newest: int | None = None) -> UseLevels:
    """Return what is remembered of a device with these levels."""
    return UseLevels(TOTAL, levels, stride, newest=levels[-1] if newest is None else newest)


def since_jump(levels: list[int]) -> list[int]:
    """Return the levels after the newest of the largest steps, while that is more than a third of the rise."""
    steps = [after - before for before, after in pairwise(levels)]
    if not steps or 3 * max(steps) <= levels[-1] - min(levels):
        return levels
    place = max(index for index, step in enumerate(steps) if step == max(steps))
    return since_jump(levels[place + 1 :])


def leaks(levels: list[int], stride: int, newest: int) -> bool:
    """Tell whether levels rise for an hour, evenly and up to now, and never gave back; near the end for half of it."""
    rising = rising_part(levels)
    steps = [after - before for before, after in pairwise(rising)]
    risen = rising[-1] - rising[0]
    minutes = 30 if newest >= 85 * PERCENT else 60
    if len(rising) < 6 or stride * len(rising) < minutes:
        return False
    third = max(len(steps) // 3, 2)
    fallen = max(max(levels[: place + 1]) - level for place, level in enumerate(levels))
    return (
        3 * max(steps) <= risen
        and 10 * len([step for step in steps if step > 0]) >= 6 * len(steps)
        and -4 * min(steps) <= risen
        and 4 * sum(steps[-third:]) * len(steps) >= 3 * risen * third
        and 4 * fallen <= risen
    )


def rising_part(levels: list[int]) -> list[int]:
    since = since_jump(levels)
    lowest = min(since)
    near = [index for index, level in enumerate(since) if 10 * (level - lowest) <= since[-1] - lowest]
    return since[near[-1] :]


def random_levels(random: np.random.Generator) -> list[int]:
    """Return levels whose steps are small whole numbers, with a fall or a jump here and there."""
    length = int(random.integers(1, 20))
    pace = random.choice([0, 1, 2, 2, 3], length) if random.random() < 0.7 else np.full(length, 2)
    steps = np.where(random.random(length) < 0.15, random.choice([-4, -2, -1, 0, 6, 12]), pace)
    return [1_000 + int(each) for each in np.cumsum(steps)]


def rise_of(use: UseLevels) -> UseRise:
    return rises_of({"gpu0": use})[0]


def test_leaks_of_random_levels_match_the_definition() -> None:
    random = np.random.default_rng(1)
    found = []
    for _ in range(RUNS):
        levels, stride = random_levels(random), int(random.choice([1, 2, 4, 5, 6, 8, 10]))
        newest = int(random.choice([levels[-1], 8_499, 8_500]))
        rise = rise_of(filled(levels, stride=stride, newest=newest))
        assert rise.is_steady == leaks(levels, stride, newest)
        rising = rising_part(levels)
        assert rise.points == (levels[-1] - min(since_jump(levels))) / 100
        assert rise.minutes == stride * (len(rising) - 1)
        risen = (rising[-1] - rising[0]) / 100
        assert rise.hourly == pytest.approx(60.0 * risen / rise.minutes if rise.minutes else 0.0)
        found.append(rise.is_steady)
    assert RUNS / 20 < sum(found) < RUNS / 2


@pytest.mark.parametrize(
    ("levels", "stride", "newest", "is_steady"),
    [
        ([*range(0, 600, 100)], 10, 0, True),
        ([*range(0, 600, 100)], 9, 0, False),
        ([*range(0, 500, 100)], 20, 0, False),
        ([*range(0, 600, 100)], 5, 8_500, True),
        ([*range(0, 600, 100)], 5, 8_499, False),
        ([*range(0, 600, 100)], 4, 8_500, False),
        # A third of the rise at once, no more.
        ([0, 50, 100, 150, 300, 375, 450], 10, 0, True),
        ([0, 50, 100, 150, 301, 375, 450], 10, 0, False),
        # Six tenths of the steps rise.
        ([0, 100, 200, 200, 200, 300], 10, 0, True),
        ([0, 100, 200, 200, 200, 200, 300], 10, 0, False),
        # A quarter of the rise was given back.
        ([0, 100, 200, 300, 200, 300, 400], 10, 0, True),
        ([0, 100, 200, 300, 199, 300, 400], 10, 0, False),
        ([100, 0, 100, 200, 300, 400], 20, 0, False),
        ([100, 0, 80, 160, 240, 320, 400], 20, 0, True),
        ([101, 0, 80, 160, 240, 320, 400], 20, 0, False),
        # The newest third at three quarters of the pace.
        ([0, 100, 200, 300, 375, 450], 10, 0, True),
        ([0, 100, 200, 300, 350, 400], 10, 0, False),
    ],
)
def test_level_on_a_bound_leaks_only_if_it_reaches_it(
    levels: list[int], stride: int, newest: int, is_steady: bool
) -> None:
    assert rise_of(filled(levels, stride=stride, newest=newest)).is_steady is is_steady


@pytest.mark.parametrize("largest_at", [None, 3])
def test_level_is_the_lowest_floor_of_its_minutes(
    largest_at: int | None,
) -> None:
    random = np.random.default_rng(2)
    for minutes in (1, 2, 23, 24, 25, 26, 47, 48, 49, 50, 97, 131, 400):
        floors = (10 * random.integers(10, 20, minutes)).tolist()
        use = UseLevels(TOTAL)
        for minute, floor in enumerate(floors):
            largest = 9_000.0 if minute == largest_at else floor + 1.0
            use.add(float(floor), largest, 60.0 * minute)
        stride = 1
        while minutes > 24 * stride:
            stride *= 2
        whole = minutes - minutes % stride
        assert use.stride == stride
        assert use.levels == [min(floors[begin : begin + stride]) for begin in range(0, whole, stride)]
        assert use.pending == minutes % stride
        if use.pending:
            assert use.lowest == min(floors[whole:])
        assert (use.newest, use.at) == (floors[-1], 60.0 * (minutes - 1))
        assert use.largest == (9_000 if largest_at is not None and minutes > largest_at else max(floors) + 1)
        risen: list[tuple[int, float | None]] = [(0, None)]
        for minute, floor in enumerate(floors):
            risen += [(floor, 60.0 * minute)] if floor >= risen[-1][0] + 10 else []
        assert (use.peak, use.risen_at) == risen[-1]
        assert use.percent == floors[-1] / 100
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(use), type=UseLevels) == use


def test_use_above_the_total_is_100_percent() -> None:
    use = UseLevels(TOTAL)
    use.add(10_001.0, 20_000.0, 0.0)
    assert (use.percent, use.largest) == (100.0, 10_000)


@pytest.mark.parametrize(
    ("risen_at", "at", "hourly", "until"),
    [
        (None, 180.0, 20.0, None),
        (0.0, 180.0, 20.0, 0.0),
        (0.0, 179.0, 30.0, None),
        (0.0, 180.0, 19.0, None),
        (0.0, 181.0, 40.0, 0.0),
        (60.0, 420.0, 10.0, 60.0),
        (60.0, 419.0, 10.0, None),
    ],
)
def test_rise_is_over_after_three_minutes_and_a_missed_point(
    risen_at: float | None, at: float, hourly: float, until: float | None
) -> None:
    use = UseLevels(TOTAL, [0], at=at, risen_at=risen_at)
    assert UseRise("gpu0", use, 10.0, 60, hourly, is_steady=True).until == until


def test_onset_time_left_and_bytes_follow_the_pace_of_a_rise() -> None:
    use = UseLevels(80e9, [0], pending=3, newest=4_000, at=100_000.0)
    rise = UseRise("gpu0", use, 10.0, 60, 20.0, is_steady=True)
    assert rise.since == 100_000.0 - 3 * 60.0 - 1_800.0
    assert rise.time_left_s == 3.0 * 3_600.0
    assert rise.bytes_of(5.0) == 4e9


MINUTE = list(node_minutes(Rows([[90.0, 90.0]] * 3).series(), closed=False))[-1]
IDLE = replace(MINUTE, started=np.zeros(12, dtype=np.bool_))


def of_devices(used: dict[str, list[float]], total: dict[str, float]) -> dict[str, UseLevels]:
    in_use: dict[str, UseLevels] = {}
    found = devices(0, {"MemoryUsedBytes": used, "MemoryTotalBytes": total})
    fold_use(in_use, replace(MINUTE, devices=found))
    return in_use


def test_devices_with_total_memory_are_known_up_to_64() -> None:
    assert of_devices({"gpu0": [3.0, 2.0, 4.0]}, {"gpu0": 100.0})["gpu0"].levels == [200]
    assert of_devices({"gpu0": [3.0, 2.0, 4.0]}, {"gpu0": 100.0})["gpu0"].largest == 400
    assert list(of_devices({"gpu0": [1.0], "gpu1": [1.0], "gpu2": [1.0]}, {"gpu0": 0.0, "gpu2": 1.0})) == ["gpu2"]
    many = {f"gpu{number}": [1.0] for number in range(65)}
    assert list(of_devices(many, dict.fromkeys(many, 2.0))) == list(many)[:64]


def test_start_up_knows_only_instances_of_partitioned_gpus() -> None:
    in_use: dict[str, UseLevels] = {}
    names = ("gpu0", "gpu1.mig1")
    found = devices(0, {"MemoryUsedBytes": dict.fromkeys(names, 1.0), "MemoryTotalBytes": dict.fromkeys(names, 2.0)})
    fold_use(in_use, replace(IDLE, devices=found))
    assert in_use == {}
    fold_use(in_use, replace(IDLE, devices=found, view=replace(IDLE.view, mig_names=("gpu1.mig1",))))
    assert list(in_use) == ["gpu1.mig1"]
    assert in_use["gpu1.mig1"].at == float(found.of("MemoryUsedBytes")["gpu1.mig1"].times[-1])
