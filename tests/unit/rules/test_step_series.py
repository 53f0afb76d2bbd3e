"""What is remembered of steps, and what is said about slow ones, on its bounds."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from tests.support import framework_traces
from tests.unit.rules.step_batches import DEFAULTS, EVAL, RULE, START_US, TRAIN, VIEW, batches, folded, judge, judged
from trainguard.core.records import Status
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import StepBatch
from trainguard.rules.framework_events import ProcessLoop, TimeTable, admitted
from trainguard.rules.step_outlier.evaluation import StepOutlierParameters
from trainguard.rules.step_outlier.rule import OUTLIERS
from trainguard.rules.step_outlier.series import SlowStep, StepOverlap, StepSeries


def distinct_us(count: int) -> list[float]:
    """Return durations in microseconds, each in a bin of its own."""
    return [*map(float, range(min(count, 199))), *(200 * 1.05**number for number in range(1, count - 198))]


def slow_at(numbers: Sequence[str]) -> str:
    """Return the advice on a process with slow steps of some numbers, in order of time."""
    state = folded(batches(np.where(np.arange(1_100) % 20 == 19, 4.0, 0.5)))
    state.series[0].slow = [SlowStep(place, 1, number) for place, number in enumerate(numbers)]
    return (judged(state).advice or "").partition(" They come every ")[2]


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        (["10", "20", "30", "40", "50"], "10 steps."),
        (["10", "20", "30", "40"], ""),
        (["1", "2", "3", "4", "5"], ""),
        (["2", "4", "6", "8", "10"], "2 steps."),
        (["10", "20", "30", "40", "50", "53"], "10 steps."),
        (["10", "20", "30", "40", "43", "46"], ""),
        (["10", "20", "30", "37", "47"], ""),
        (["10", "?", "20", "30", "40", "50"], "10 steps."),
        (["10", "20", "30", "40", "?"], ""),
    ],
)
def test_distance_kept_by_four_of_five_slow_steps_is_named(numbers: list[str], said: str) -> None:
    assert slow_at(numbers) == said


@pytest.mark.parametrize(("squares_high", "deviation_us"), [(0, 0.0), (1, 2.0**30), (4, 2.0**31)])
def test_stored_sum_of_squares_is_in_parts_of_2_to_the_62(squares_high: int, deviation_us: float) -> None:
    series = StepSeries("p", TRAIN, steps=4, total_us=0, squares_high=squares_high)
    assert series.deviation_us == deviation_us
    series.add([2**31] * 2)
    assert (series.squares_high, series.squares_low) == (squares_high + 2, 0)


def test_shortest_and_longest_of_added_steps_are_known() -> None:
    series = StepSeries("p", TRAIN)
    for durations, bounds in (([5, 9], (5, 9)), ([7], (5, 9)), ([3, 4], (3, 9)), ([12], (3, 12))):
        series.add(durations)
        assert (series.shortest_us, series.longest_us) == bounds
    assert (series.mean_us, series.steps) == (40 / 6, 6)


def numbered(count: int, slow: Sequence[int], *, number: str = "7" * 25) -> StepBatch:
    durations = np.full(count, 400_000)
    durations[list(slow)] = 4_000_000
    starts = START_US + np.cumsum(durations) - durations
    return StepBatch("algo-1-905", TRAIN, starts, durations, (number,) * count)


@pytest.mark.parametrize(("count", "noted"), [(200, 0), (202, 1)])
def test_slow_step_is_noted_only_after_a_hundred_steps(count: int, noted: int) -> None:
    state = folded([numbered(count, [150])])
    assert [step.number for step in state.series[0].slow] == ["7" * 20] * noted
    assert (state.series[0].dropped, state.series[0].steps) == (100, count - 100)


def test_first_single_step_after_the_hundred_counts() -> None:
    durations = [500_000] * 100 + [700_000, 900_000]
    parts = [StepBatch("algo-1-905", TRAIN, np.array([START_US]), np.array([each]), ("1",)) for each in durations]
    series = folded(parts).series[0]
    assert (series.dropped, series.steps, series.shortest_us, series.longest_us) == (100, 2, 700_000, 900_000)


def test_unreasonable_durations_are_clipped() -> None:
    durations = np.full(202, 500_000)
    durations[150], durations[151] = -5, 10**15
    series = folded([replace(numbered(202, []), durations_us=durations)]).series[0]
    assert (series.shortest_us, series.longest_us) == (0, 100_000_000_000)


@pytest.mark.parametrize(("count", "level"), [(256, 0), (257, 1)])
def test_step_bins_are_joined_beyond_their_limit(count: int, level: int) -> None:
    series = folded(batches(np.array([1.0] * 100 + [each / 1e6 for each in distinct_us(count)]))).series[0]
    assert (series.durations.total, series.durations.level) == (count, level)


@pytest.mark.parametrize(("processes", "bins"), [(32, 256), (33, 248), (64, 128), (128, 64)])
def test_many_processes_share_the_bins(processes: int, bins: int) -> None:
    state = folded(*(batches(np.array([1.0]), process=f"p-{number:03d}") for number in range(processes)))
    for extra, level in ((0, 0), (1, 1)):
        seconds = np.array([1.0] * 99 + [each / 1e6 for each in distinct_us(bins + extra)])
        fresh = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=type(state))
        for batch in batches(np.append(seconds, 1.0), process="p-000"):
            RULE.observe(fresh, FrameworkEvents((batch,)), DEFAULTS)
        assert fresh.series[0].durations.level == level


@pytest.mark.parametrize(("processes", "judged", "refused"), [(128, 128, 0), (129, 128, 1)])
def test_last_processes_by_name_beyond_128_are_refused(processes: int, judged: int, refused: int) -> None:
    names = [f"p-{number:03d}" for number in range(processes)]
    for order in (names, names[::-1]):
        state = folded(*(batches(np.full(105, 0.5), process=name) for name in order))
        assert [series.process for series in state.series] == names[:judged]
        assert (len(state.refused), state.steps_not_judged) == (refused, 105 * refused)


@pytest.mark.parametrize(("extra", "said"), [(255, "; 255 series"), (256, "; 256 or more "), (300, "; 256 or more ")])
def test_hundreds_of_refused_processes_are_counted_to_256(extra: int, said: str) -> None:
    state = folded(*(batches(np.full(201, 0.5), process=f"a-{number}") for number in range(2)))
    for number in range(126 + extra):
        for batch in batches(np.array([0.5]), process=f"p-{number:03d}"):
            RULE.observe(state, FrameworkEvents((batch,)), DEFAULTS)
    assert said in judged(state).reason


def test_refused_series_notes_no_more_slow_steps() -> None:
    state = folded([numbered(300, [150])], batches(np.array([0.5]), process="b"))
    state.refused = [1]
    for batch in [numbered(10, [3])]:
        RULE.observe(state, FrameworkEvents((batch,)), DEFAULTS)
    assert len(state.series[0].slow) == 1
    assert state.series[0].steps == 210


@pytest.mark.parametrize(("share", "status"), [(0.0, Status.FIRED), (100.0, Status.OK)])
def test_slow_share_of_zero_fires_on_any_loss(share: float, status: Status) -> None:
    seconds = np.full(1_100, 0.5)
    seconds[[200, 300, 400]] = 8.0
    assert judge(batches(seconds), parameters=StepOutlierParameters(slow_share=share)).status is status


def test_process_closest_to_a_limit_speaks() -> None:
    def process(name: str, slow: int, factor: float) -> list[StepBatch]:
        seconds = np.full(1_100, 0.5)
        seconds[150 : 150 + 40 * slow : 40] *= factor
        return list(batches(seconds, process=name))

    few, more, many, costly = (
        process("a", 2, 8.0),
        process("b", 5, 8.0),
        process("c", 12, 8.0),
        process("d", 9, 30.0),
    )
    assert judge(few, more).worst == "algo-1/b TRAIN"
    assert judge(more, many).worst == "algo-1/c TRAIN"
    assert judge(many, costly).worst == "algo-1/d TRAIN"
    judged = judge(costly, many, few)
    assert [each["process"] for each in judged.plain_details["algo-1"]["series"]] == ["d", "c", "a"]
    assert judge(few, more, parameters=StepOutlierParameters(slow_share=0.0)).worst == "algo-1/b TRAIN"


def test_details_report_16_of_more_series() -> None:
    streams = [
        batches(np.full(210, 0.5), process=f"p-{number}", mode=mode) for number in range(9) for mode in (TRAIN, EVAL)
    ]
    details = judge(*streams).plain_details["algo-1"]
    assert (len(details["series"]), details["series_judged"]) == (16, 18)


def test_sixteen_events_that_differ_most_have_shares_by_kind() -> None:
    names = [f"op-{number:02d}" for number in range(20)]
    slow = TimeTable(names, [1_000 + number for number in range(20)], 5_000)
    ordinary = TimeTable(["op-19", "z"], [4_000, 2_000])
    rows = StepOverlap(100_000, 200_000, slow, ordinary).compared()
    assert [name for name, _, _ in rows] == [*names[18:2:-1][:16]]
    assert rows[0] == ("op-18", 1.018, 0.0)
    assert StepOverlap(100_000, 200_000, slow, ordinary).most_grown() == rows[0]
    assert StepOverlap(100_000, 0, slow, ordinary).compared() == []
    assert StepOverlap(0, 200_000, slow, ordinary).compared() == []


def test_events_that_shrink_or_stay_do_not_grow() -> None:
    alike = TimeTable(["a", "b"], [1_000, 2_000])
    assert StepOverlap(10_000, 10_000, alike, alike).most_grown() is None
    shrinks = StepOverlap(10_000, 10_000, TimeTable(["a"], [1_000]), alike)
    assert shrinks.most_grown() is None
    assert [name for name, _, _ in shrinks.compared()] == ["b", "a"]


@pytest.mark.parametrize(("count", "kept"), [(64, 64), (65, 64)])
def test_largest_64_operators_beside_slow_steps_are_kept(count: int, kept: int) -> None:
    state = folded(batches(np.full(300, 0.4)))
    events = [
        framework_traces.event("cpu_functions", f"op{number}", 0.0, 0.5 + number / 1_000.0, tid=number)
        for number in range(count)
    ]
    RULE.observe(state, framework_traces.read([*events, framework_traces.step(300, 0.0, 4.0)]), DEFAULTS)
    assert len(state.overlap.slow.names) == kept
    assert (state.overlap.slow.other_us > 0) is (count > kept)
    assert (state.overlap.slow_step_us, state.overlap.ordinary_step_us) == (4_000_000, 0)


@pytest.mark.parametrize(("grown", "named"), [(10.0, True), (9.99, False)])
def test_advice_names_an_event_that_grows_by_ten_points(grown: float, named: bool) -> None:
    state = folded(batches(np.where(np.arange(1_100) % 20 == 19, 4.0, 0.5)))
    state.overlap = StepOverlap(
        1_000_000, 1_000_000, TimeTable(["a"], [round(300_000 + grown * 10_000)]), TimeTable(["a"], [300_000])
    )
    assert (judged(state).advice or "").startswith("Look at it: a takes 40 %" if named else "No recorded event")


def test_step_times_are_in_seconds_to_the_microsecond() -> None:
    state = folded(batches(np.where(np.arange(1_100) % 20 == 19, 4.0, 0.5)))
    state.overlap = StepOverlap(3_000_001, 5_000_007, TimeTable(["a"], [1_000]), TimeTable(["a"], [1_000]))
    details = judged(state).plain_details["algo-1"]
    series = state.series[0]
    p50, p95, p99 = series.durations.quantiles((0.5, 0.95, 0.99))
    assert details["series"][0]["step_stats"] == {
        "mean": (950 * 0.5 + 50 * 4.0) / 1_000,
        "max": 4.0,
        "p99": p99 / 1e6,
        "p95": p95 / 1e6,
        "p50": p50 / 1e6,
        "min": 0.5,
    }
    assert details["series"][0]["stddev"] == series.deviation_us / 1e6
    assert (details["framework"]["slow_steps_s"], details["framework"]["ordinary_steps_s"]) == (3.000001, 5.000007)
    last = details["slow_steps"][-1]
    assert (last["start"], last["duration"]) == (START_US / 1e6 + 1_045 * 0.5 + 54 * 4.0, 4.0)


def test_shares_of_microsecond_steps_are_exact_when_it_fires() -> None:
    seconds = np.where(np.arange(1_100) % 20 == 19, 150e-6, 50e-6)
    result = judge(batches(seconds), parameters=StepOutlierParameters(slow_share=5.0))
    assert result.status is Status.FIRED
    assert result.affected_share == 50 * 150 / 55_000
    assert result.wasted_share == 50 * 100 / 55_000
    assert VIEW.watermark_s is not None
    longer = replace(VIEW, first_step_at=VIEW.watermark_s - 4_096.0)
    shared = judge(batches(seconds), parameters=StepOutlierParameters(slow_share=5.0), view=longer)
    assert shared.wasted_share == 50 * 100 / 4_096e6
    on_the_limit = StepOutlierParameters(slow_share=100.0 * 50 * 100 / 55_000)
    assert judge(batches(seconds), parameters=on_the_limit).status is Status.OK


def test_loss_outweighs_outliers_at_a_slow_share_of_zero() -> None:
    long, slow = np.full(1_100, 0.5), np.full(1_100, 0.5)
    long[110::50] = 0.9
    slow[300] = 8.0
    streams = batches(long, process="long"), batches(slow, process="slow")
    assert judge(*streams, parameters=StepOutlierParameters(slow_share=0.0)).worst == "algo-1/slow TRAIN"


@pytest.mark.parametrize(("known", "has_room"), [(127, True), (128, False)])
def test_no_training_loop_is_admitted_beyond_128_per_node(known: int, has_room: bool) -> None:
    loops = [ProcessLoop(f"p-{number}") for number in range(known)]
    assert (admitted(loops, "another", ProcessLoop) is not None) is has_room
    assert admitted(loops, "p-7", ProcessLoop) is loops[7]
    assert len(loops) == 128


@pytest.mark.parametrize(("factor", "noted"), [(2.5, 32), (1.96, 0)])
def test_steps_over_twice_the_median_are_noted_as_slow_anyway(factor: float, noted: int) -> None:
    state = folded(batches(np.where(np.arange(1_100) % 20 == 19, 0.5 * factor, 0.5)))
    assert len(state.series[0].slow) == noted


def test_measure_is_the_number_if_number_and_cost_are_too_high() -> None:
    seconds = np.full(1_100, 0.5)
    seconds[150 : 150 + 40 * 12 : 40] *= 8.0
    result = judge(batches(seconds), parameters=StepOutlierParameters(slow_share=5.0))
    assert (result.measured, result.threshold, result.measure) == (12.0, 10.0, OUTLIERS)
    assert "12 of 1,000 steps" in result.reason
    assert "of the time in steps (slow_share 5 %)" in result.reason


@pytest.mark.parametrize(
    ("slow", "first"),
    [
        pytest.param([300, 400, 500], 300, id="in a row"),
        pytest.param([110, 20_000, 20_100], 20_000, id="one long before"),
    ],
)
def test_slow_steps_in_a_row_began_with_the_first(slow: list[int], first: int) -> None:
    """What came over 90 min before is no part of it, and it does not matter in which portions steps arrive."""
    batch = numbered(20_300, slow)
    parts = [
        replace(
            batch, starts_us=batch.starts_us[part], durations_us=batch.durations_us[part], numbers=batch.numbers[part]
        )
        for part in (slice(begin, begin + 2_030) for begin in range(0, 20_300, 2_030))
    ]

    for of in ([batch], parts):
        assert folded(of).series[0].slow_since_us == int(batch.starts_us[first])
