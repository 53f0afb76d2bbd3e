"""GPUMemoryIncrease on each bound: which samples count, what is said about growth, and of growth that is over."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.rules.memory_replay import DEFAULTS, RULE, SMALL, START, minutes, play, windows
from trainguard.core.records import Status
from trainguard.formats.profile.snapshots import FloatArray
from trainguard.rules.gpu_memory_increase.growth import Increase, Kind, MemoryGrowth, MemoryState
from trainguard.rules.gpu_memory_increase.rise import Rise, UseLevels
from trainguard.rules.gpu_memory_increase.rule import GPUMemoryIncreaseParameters, judge_use
from trainguard.rules.gpu_memory_increase.text import increase_facts, kind_of, text
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import FactSheet, RuleResult, Words
from trainguard.rules.windows import stream_end

HOUR_S = 3_600.0


def growing(kind: Kind | None, *, floors: tuple[int, ...] = (300, 310, 500), mean: int = 520) -> Increase:
    """Return an increase of 20 points over 6 windows, at 4 points an hour of windows of a quarter of an hour."""
    growth = MemoryGrowth(0, means=[mean], highest_mean=300, floor=500, floors=list(floors))
    return Increase("gpu1", growth, kind, 20.0, 6, 4.5 if kind == "trend" else None, Rise([300, 310], 1))


def any_view(points: int = 100, interval_s: float = 60.0, **changes: Any) -> NodeView:
    view = list(minutes(np.full(points, 40.0), interval_s=interval_s, a_minute=points, held=points))[-1].view
    return replace(view, **changes)


def words_of(increase: Increase, *, past: bool = False, closed: bool = False) -> Words:
    """Return what is said about an increase over a threshold of 10 points, in windows of a quarter of an hour."""
    view = any_view(closed=closed)
    facts = (*increase_facts(increase, view, 900.0, 10.0), *stream_end(view))
    return text(FactSheet(Status.FIRED, kind_of(increase, 10.0), facts, past=past))


GROWN = "gpu1 on algo-1: memory activity grew and stopped: its floor rose by 20 percentage points (threshold 10) in "


@pytest.mark.parametrize(
    ("increase", "said"),
    [
        (growing("trend"), f"{GROWN}90 min, to 50 %."),
        (growing("late"), f"{GROWN}90 min, to 50 %."),
        (growing("rise"), f"{GROWN}90 min, to 50 %."),
        (growing("jump", floors=(300, 310, 320, 330)), f"{GROWN}90 min, to 33 %."),
        (growing("jump"), None),
    ],
)
def test_past_growth_is_told_as_stopped_and_a_jump_as_a_jump(increase: Increase, said: str | None) -> None:
    words = words_of(increase, past=True)
    assert words.reason == said if said is not None else "memory activity jumped" in words.reason
    grew = "or a cache of gpu1 on algo-1 grew to their size" in (words.advice or "")
    assert grew is (said is not None)
    over = ", and stopped rising" if said is not None else ""
    assert words.clause == f"the memory activity of gpu1 on algo-1 rose{over}"


@pytest.mark.parametrize(
    ("increase", "closed", "said"),
    [
        (growing("late"), False, "It grew by 4 percentage points an hour, and at that rate gpu1 is at 100 % in 12 h: "),
        (
            growing("late"),
            True,
            "It grew by 4 percentage points an hour, and at that rate gpu1 would have been at 100 ",
        ),
        (growing("late", mean=1_000), False, "It grew by 4 percentage points an hour: look for tensors"),
        (growing("jump"), False, "Look at what changed on gpu1 in the 90 min of the jump: longer inputs, a larger "),
    ],
)
def test_advice_on_an_increase_has_its_rate_and_the_time_left(increase: Increase, closed: bool, said: str) -> None:
    advice = words_of(increase, closed=closed).advice or ""
    assert advice.startswith(said)
    assert ("in 12 h more: look" in advice) is (closed and increase.kind == "late")
    assert ("one more such jump leaves 30 %." in advice) is (increase.kind == "jump")


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (
            any_view(50),
            "algo-1 has 50 of the 120 points that a first verdict takes, 60 of patience and 3 windows of 20",
        ),
        (any_view(119), "60 of patience and 3 windows of 20; about 60 s left."),
        (any_view(119, interval_s=61.0), "about 61 s left at a sampling interval of 61 s: better give patience_s and"),
        (any_view(119, closed=True), "3 windows of 20; its stream has ended, too early for a verdict."),
        (any_view(120), "too few of the newest points of algo-1 have samples of GPU memory."),
        (any_view(50, first_active_at=None), "algo-1 has not finished its start-up"),
    ],
)
def test_missing_points_are_counted_with_the_time_they_take(view: NodeView, said: str) -> None:
    parameters = GPUMemoryIncreaseParameters(window=20, patience=60)
    state = RULE.state_type()
    state.gpus["gpu0"] = MemoryGrowth(0)
    assert said in RULE.judge(state, view, parameters).reason


def loaded(load: float, *, sampled: int = 20) -> MemoryState:
    """Return what is remembered of a window under a load, in which the GPU had so many samples."""
    memory = np.where(np.arange(20) < sampled, 10.0, np.nan)
    state = RULE.state_type()
    for minute in minutes(memory, interval_s=0.5, a_minute=20, held=20, load=load):
        RULE.observe(state, minute, GPUMemoryIncreaseParameters(window=20, patience=0))
    return state


def test_full_load_memory_is_estimated_from_20_percent_load_on() -> None:
    memory = np.where(np.arange(40) % 2, 10.0, 30.0)
    load = np.where(np.arange(40) % 2, 20.0, 19.5)
    state = RULE.state_type()
    for minute in minutes(memory, interval_s=0.5, a_minute=40, held=40, load=load):
        RULE.observe(state, minute, GPUMemoryIncreaseParameters(window=40, patience=0))
    full = state.gpus["gpu0"].full
    assert full is not None
    assert (full.floor, full.means) == (500, [500])
    assert state.gpus["gpu0"].load == 198
    below = loaded(19.0).gpus["gpu0"].full
    assert below is not None
    assert below.means == [round(10.0 * 10.0 * 100.0 / 19.0)]


@pytest.mark.parametrize(("sampled", "counts"), [(4, True), (3, False)])
def test_short_window_counts_with_four_of_five_points_sampled(sampled: int, counts: bool) -> None:
    memory = np.array([40.0] * sampled + [np.nan] * (5 - sampled))
    state = RULE.state_type()
    for minute in minutes(memory, interval_s=60.0, a_minute=5, held=5):
        RULE.observe(state, minute, GPUMemoryIncreaseParameters(patience=0))
    assert state.windows == 1
    assert bool(state.gpus["gpu0"].means) is counts


@pytest.mark.parametrize(("sampled", "counts"), [(16, True), (15, False)])
def test_window_of_20_points_counts_with_16_sampled(sampled: int, counts: bool) -> None:
    state = loaded(90.0, sampled=sampled)
    assert bool(state.gpus["gpu0"].means) is counts
    assert state.gpus["gpu0"].largest == 100


def test_levels_of_a_never_active_gpu_are_0() -> None:
    said = play(np.zeros(100), SMALL, a_minute=20).last
    assert (
        "its floor is 0 % (threshold 10 percentage points above the highest mean of all windows but the last two, 0 %)"
        in (said.reason)
    )


def test_largest_of_a_gpu_without_activity_is_0_despite_gaps() -> None:
    assert play(np.where(np.arange(40) % 3, 0.0, np.nan), SMALL, a_minute=20).state.gpus["gpu0"].largest == 0


def test_patience_of_a_late_gpu_begins_at_its_first_sample() -> None:
    late = np.concatenate([np.full(33, np.nan), np.full(87, 40.0)])
    state = play(np.column_stack([np.full(120, 40.0), late]), SMALL, a_minute=30, held=30).state
    assert (state.gpus["gpu0"].since, state.gpus["gpu1"].since) == (0, 33)
    assert (len(state.gpus["gpu0"].floors), len(state.gpus["gpu1"].floors)) == (5, 3)


def test_windows_before_a_late_start_of_the_rule_are_empty() -> None:
    state = RULE.state_type()
    last = list(minutes(np.full(120, 40.0), interval_s=0.5, a_minute=20, held=20))[-1]
    RULE.observe(state, last, SMALL)
    assert (state.windows, state.begin, state.violated, state.jumped_at) == (5, 120, 0, None)
    assert state.gpus["gpu0"].floors == []
    assert state.gpus["gpu0"].since == 100


def test_lost_points_after_shortening_the_window_are_left_out() -> None:
    state, parts = RULE.state_type(), list(minutes(np.full(820, 40.0), interval_s=0.5, a_minute=20, held=20))
    for minute in parts:
        long = minute.view.kept_total <= 780
        RULE.observe(state, minute, GPUMemoryIncreaseParameters(window=400 if long else 20, patience=0))
    assert (state.begin, state.windows) == (820, 22)
    assert state.gpus["gpu0"].floors == [400] * 4


def test_windows_keep_the_interval_of_the_first_one() -> None:
    state, default = RULE.state_type(), GPUMemoryIncreaseParameters()
    for minute in minutes(np.full(120, 40.0), interval_s=10.0, a_minute=6, held=50):
        irregular = replace(minute.view, interval_s=10.0 if minute.view.kept_total <= 48 else 7.0)
        RULE.observe(state, replace(minute, view=irregular), default)
    assert (state.interval_s, state.windows, state.begin) == (10.0, 4, 5 + 4 * 25)


def test_memory_without_samples_past_patience_was_not_collected() -> None:
    said = play(np.full(30, np.nan), SMALL, a_minute=1)
    assert [each.status for each in said.results] == [Status.WARMING_UP] * 20 + [Status.NOT_APPLICABLE] * 10
    closed = RULE.judge(RULE.state_type(), any_view(1, closed=True), SMALL)
    assert closed.status is Status.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("interval_s", "points"), [(0.05, 2_500), (0.5, 500), (12.5, 20), (50.0, 5), (60.0, 5), (600.0, 5)]
)
def test_default_window_has_five_rare_points(interval_s: float, points: int) -> None:
    assert RULE.window_points(DEFAULTS, interval_s) == points
    assert RULE.window_points(GPUMemoryIncreaseParameters(window=3), interval_s) == 20
    assert RULE.window_points(GPUMemoryIncreaseParameters(window_s=interval_s), interval_s) == 20


def two(first: FloatArray, second: FloatArray) -> RuleResult:
    return play(np.column_stack([first, second]), SMALL, interval_s=30.0, a_minute=20).last


def test_growth_with_the_least_time_left_is_reported_first() -> None:
    ramp, steep = windows(*range(20, 80, 5)), windows(*range(20, 86, 6)[:11], 86)
    jump = windows(*[10] * 10, 90, 90)
    assert two(jump, ramp).worst == "gpu1"
    assert two(ramp, steep).worst == "gpu1"
    assert two(steep, ramp).worst == "gpu0"
    assert two(jump, windows(*[10] * 10, 40, 40)).worst == "gpu0"


def test_rate_of_growth_with_pauses_is_over_the_time_passed() -> None:
    memory = windows(*range(20, 32))
    state, steps = RULE.state_type(), list(minutes(memory, interval_s=180.0, a_minute=20, held=20))
    for minute in steps:
        RULE.observe(state, minute, SMALL)
    view = steps[-1].view
    later = replace(view, watermark_s=START + 2.0 * 180.0 * len(memory) - 180.0)
    whole, paused = RULE.judge(state, view, SMALL), RULE.judge(state, later, SMALL)
    assert "in 11 h, to 31 %" in whole.reason
    assert "in 22 h, to 31 %" in paused.reason
    assert whole.time_left_s is not None
    assert paused.time_left_s == pytest.approx(2.0 * whole.time_left_s)
    assert whole.onset == START + 30 * 180.0


def use_of(levels: list[int], newest: int, **changes: Any) -> UseLevels:
    return UseLevels(80e9, levels, 10, newest=newest, at=START + 3_600.0, risen_at=START + 3_600.0, **changes)


def test_leak_of_a_full_gpu_shows_no_time_left() -> None:
    leak = use_of([9_000, 9_200, 9_400, 9_600, 9_800, 10_000], 10_000)
    said = judge_use({"gpu0": leak}, any_view(), 5.0)
    assert said.reason.endswith("9.6 GB an hour; it is 80 GB of 80 GB now.")
    assert (said.advice or "").startswith("Save a checkpoint, and look for tensors")
    closed = judge_use({"gpu0": leak}, any_view(closed=True), 5.0)
    assert closed.reason.endswith("up to the end; it was 80 GB of 80 GB then.")
    assert (closed.advice or "").startswith("Look for tensors")
    assert (closed.advice or "").endswith(
        "gpu0 on algo-1 rose by 12 percentage points an hour and was never given back."
    )


def test_leak_with_the_least_time_left_is_named_and_all_counted() -> None:
    slow, fast = use_of([100 * step for step in range(7)], 600), use_of([200 * step for step in range(7)], 1_200)
    still = use_of([5_000] * 7, 5_000)
    said = judge_use({"gpu0": slow, "gpu1": fast, "gpu2": still}, any_view(), 5.0)
    assert (said.worst, said.gpus) == ("gpu1", ("gpu0", "gpu1"))
    assert "; 2 GPUs of algo-1 leak." in said.reason
    assert (said.past_reason or "").endswith("to 9.6 GB of 80 GB; 2 GPUs of algo-1 did so.")
    assert (said.past_advice or "").startswith("Nothing needs to be changed if a cache")
    assert said.affected_share == 1.0
    short = replace(any_view(), watermark_s=START + 7_200.0, first_sample_at=START - 7_200.0)
    assert judge_use({"gpu1": fast}, short, 5.0).affected_share == 0.5
    assert judge_use({"gpu1": fast}, replace(short, first_sample_at=None), 5.0).affected_share is None
    assert judge_use({"gpu0": slow, "gpu2": still}, any_view(), 5.0).reason.endswith("at that rate.")
    none = judge_use({"gpu0": slow, "gpu1": fast}, any_view(), 12.0)
    assert (none.status, none.worst, none.measured) == (Status.OK, "gpu1", 12.0)
    assert (none.past_advice, none.past_reason, none.advice, none.affected_share) == (None, None, None, None)
    assert (none.onset, none.until, none.time_left_s) == (None, None, None)
    assert none.plain_details["gpu1"]["kind"] is None
    assert said.plain_details["gpu1"]["kind"] == "leak"
    assert none.plain_details["gpu0"]["floor_s"] == 600.0


@pytest.mark.parametrize(("count", "status"), [(5, Status.WARMING_UP), (6, Status.OK)])
def test_less_than_an_hour_without_a_leak_is_too_early(count: int, status: Status) -> None:
    said = judge_use({"gpu0": use_of([5_000], 5_000), "gpu1": use_of([5_000] * count, 5_000)}, any_view(), 5.0)
    assert said.status is status
    assert said.needs_longer is (status is Status.WARMING_UP)
    assert len(said.facts) <= 12
    without = judge_use({"gpu0": use_of([5_000] * 9, 5_000)}, any_view(detailed=False), 5.0)
    assert without.plain_details == {}
