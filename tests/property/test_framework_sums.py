"""What is summed of steps and events, against the plainest way to say it: instant by instant."""

import numpy as np
import pytest

from trainguard.formats.profile.events import EventTable, StepBatch
from trainguard.rules.framework_events import (
    EventClass,
    MinuteProfile,
    ProcessLoop,
    TimeTable,
    class_of_phase,
    classes_of,
    fold_minutes,
)
from trainguard.rules.step_outlier.series import StepOverlap

SEEDS = range(60)
PHASES = ("cpu_functions", "DataLoaderIter", "Step:ModeKeys.TRAIN", "Forward-SubModuleInternal")
NAMES = ("aten::mm", "next", "a", "b")
MINUTE_US = 60_000_000
# An epoch minute.
FIRST = 29_920_800

Random = np.random.Generator


def random_steps(random: Random, begin: int, count: int) -> StepBatch:
    """Return steps at whole instants from one on, which may overlap, in order of their starts."""
    starts = begin + np.sort(random.integers(0, 40, count))
    durations = random.integers(0, 9, count)
    return StepBatch("algo-1-7", "Step", starts, durations, ("1",) * count)


def instants(batch: StepBatch) -> set[int]:
    spans = zip(batch.starts_us.tolist(), batch.durations_us.tolist(), strict=True)
    return {at for start, duration in spans for at in range(start, start + duration)}


@pytest.mark.parametrize("seed", SEEDS)
def test_loop_spans_first_to_last_step_without_double_time(
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    batches, loop, begin = [], ProcessLoop("algo-1-7"), 100
    for _ in range(3):
        given = [random_steps(random, begin, int(random.integers(1, 6))) for _ in range(int(random.integers(0, 3)))]
        loop.fold(given)
        batches += given
        begin = max([begin, *(int((batch.starts_us + batch.durations_us).max()) for batch in given)])
    covered = set[int]().union(*map(instants, batches))
    first = min((int(batch.starts_us.min()) for batch in batches), default=None)
    last = max((int((batch.starts_us + batch.durations_us).max()) for batch in batches), default=0)
    assert (loop.first_us, loop.last_us, loop.covered_us) == (first, last, len(covered))
    assert loop.wall_us == (0 if first is None else last - first)
    assert loop.others_us == loop.wall_us - len(covered)


def random_events(random: Random, begin: int, longest: int, count: int, unit: int = 1) -> EventTable:
    """Return events each on a thread of its own, so that each has all of its time for itself."""
    return EventTable(
        process="algo-1-7",
        kind="pythontimeline",
        phases=PHASES,
        names=NAMES,
        phase_index=random.integers(0, len(PHASES), count),
        name_index=random.integers(0, len(NAMES), count),
        starts_us=begin + unit * random.integers(0, 40, count),
        durations_us=unit * random.integers(0, longest, count),
        threads=np.arange(count),
        workers=np.full(count, -1),
        worker_ids=np.full(count, -1),
    )


def label(table: EventTable, row: int) -> str:
    """Return how an event is called: an operator by its name, any other by its phase."""
    phase = table.phases[table.phase_index[row]]
    return str(table.names[table.name_index[row]] if phase == "cpu_functions" else phase)


@pytest.mark.parametrize("seed", SEEDS)
def test_events_have_the_time_shared_with_slow_and_other_steps(
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    batch = random_steps(random, 100, int(random.integers(2, 9)))
    skipped = int(random.integers(0, 2))
    table = random_events(random, 95, 20, int(random.integers(0, 12)))
    slow = random.random(len(batch.numbers) - skipped) < 0.4
    overlap = StepOverlap()
    overlap.fold(batch, skipped, slow, table)
    taken: set[int] = set()
    sides: dict[bool, set[int]] = {True: set(), False: set()}
    for row in range(skipped, len(batch.numbers)):
        begin = int(batch.starts_us[row])
        own = set(range(begin, begin + int(batch.durations_us[row]))) - taken
        sides[bool(slow[row - skipped])] |= own
        taken |= own
    assert (overlap.slow_step_us, overlap.ordinary_step_us) == (len(sides[True]), len(sides[False]))
    for side, found in ((True, overlap.slow), (False, overlap.ordinary)):
        expected: dict[str, int] = {}
        for row in np.flatnonzero(classes_of(table) != EventClass.STEP).tolist():
            begin = int(table.starts_us[row])
            shared = len(sides[side] & set(range(begin, begin + int(table.durations_us[row]))))
            expected[label(table, row)] = expected.get(label(table, row), 0) + shared
        assert found.top(64) == {
            name: expected[name]
            for name in sorted(expected, key=lambda each: (-expected[each], each))
            if expected[name]
        }


@pytest.mark.parametrize("seed", SEEDS)
def test_events_are_split_by_minute_and_the_newest_30_kept(seed: int) -> None:
    random = np.random.default_rng(seed)
    kept: list[MinuteProfile] = []
    loop, expected = ProcessLoop("algo-1-7"), dict[int, dict[str, int]]()
    unit, begin = MINUTE_US // 2, FIRST * MINUTE_US
    for _ in range(int(random.integers(1, 4))):
        table = random_events(random, begin, 5, int(random.integers(1, 9)), unit)
        kept = fold_minutes(kept, loop, table, classes_of(table))
        for row in range(len(table)):
            half = int(table.starts_us[row]) // unit
            for each in range(half, half + int(table.durations_us[row]) // unit):
                times = expected.setdefault(each // 2, {})
                phase = table.phases[table.phase_index[row]]
                times[phase] = times.get(phase, 0) + unit
        begin += int(random.choice([0, 20, 31])) * MINUTE_US
        newest = max([(int(table.ends_us.max()) - 1) // MINUTE_US, *(profile.minute for profile in kept)])
        expected = {minute: times for minute, times in expected.items() if minute > newest - 30}
    assert {profile.minute: profile.phases.top(8) for profile in kept} == {
        minute: dict(sorted(times.items(), key=lambda each: (-each[1], each[0]))) for minute, times in expected.items()
    }
    assert [profile.minute for profile in kept] == sorted(expected)
    for profile in kept:
        sums = [0] * 8
        for phase, time_us in profile.phases.top(8).items():
            sums[class_of_phase(phase, "pythontimeline")] += time_us
        assert profile.classes_us == sums


@pytest.mark.parametrize("seed", SEEDS)
def test_largest_times_by_name_are_kept_and_nothing_is_lost(
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    table, limit = TimeTable(), 4
    known: dict[str, int] = {}
    other = 0
    for _ in range(5):
        names = [str(each) for each in random.choice([*"abcdefgh", "other"], int(random.integers(0, 6)), replace=False)]
        times = [int(each) for each in random.integers(1, 5, len(names))]
        table.add(names, times, limit=limit)
        for name, time_us in zip(names, times, strict=True):
            if name == "other":
                other += time_us
            else:
                known[name] = known.get(name, 0) + time_us
        if names:
            ranked = sorted(known, key=lambda name: (-known[name], name))
            other += sum(known.pop(name) for name in ranked[limit:])
    assert dict(zip(table.names, table.times_us, strict=True)) == known
    assert table.names == sorted(known)
    assert (table.other_us, table.total_us) == (other, other + sum(known.values()))
    ranked = sorted(known, key=lambda name: (-known[name], name))
    rest = other + sum(known[name] for name in ranked[2:])
    assert list(table.top(2).items()) == [
        *((name, known[name]) for name in ranked[:2]),
        *([("other", rest)] if rest else []),
    ]
