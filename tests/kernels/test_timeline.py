"""The timeline of a trace: bounded, with every event where it promises it, and nothing lost without being counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kernel_traces import BF16_GEMM, NCCL, TraceWriter, read, real_names, real_trace
from trainguard.kernels.columns import Trace
from trainguard.kernels.timeline.build import DEEPEST, MOST_LANES, OVERLAP_NS, Timeline, levels, timeline_of
from trainguard.kernels.timeline.rows import AllRows, RowTable, Sort


def counted(timeline: Timeline) -> int:
    """Return how many rows of the trace the timeline says that it holds or leaves out."""
    left = timeline.left_out
    return int(timeline.rows.count.sum()) + left.outside + left.lane_rows + left.deep


def all_of(trace: Trace) -> int:
    return len(AllRows(trace))


@pytest.mark.parametrize("name", real_names())
@pytest.mark.parametrize("most", [100_000, 3_000, 256])
def test_a_timeline_is_bounded_and_accounts_for_every_row(name: str, most: int) -> None:
    trace = real_trace(name)
    timeline = timeline_of(trace, most)
    assert len(timeline.rows) <= most
    assert counted(timeline) == all_of(trace)
    several = timeline.rows.count > 1
    assert timeline.left_out.joins == int(several.sum())
    assert timeline.left_out.joined == int(timeline.rows.count[several].sum())


@pytest.mark.parametrize("name", real_names())
@pytest.mark.parametrize("most", [100_000, 3_000])
def test_rows_of_a_level_are_in_order_and_do_not_overlap(name: str, most: int) -> None:
    timeline = timeline_of(real_trace(name), most)
    rows = timeline.rows
    for lane in range(len(timeline.lanes)):
        for level in range(DEEPEST):
            mine = (rows.lane == lane) & (timeline.level == level)
            start, end = rows.start[mine], rows.end[mine]
            assert (np.diff(start) >= 0).all()
            assert (np.diff(end) >= 0).all()
            assert (start[1:] - end[:-1] >= -OVERLAP_NS).all()


def steps(number: int, kernels: int, *, slow: int = -1) -> Trace:
    """Steps of kernels; one of them takes three times as long."""
    made, begin = TraceWriter(), 0.0
    for step in range(number):
        lasts = 30_000.0 if step == slow else 10_000.0
        made.step(step, begin, lasts)
        for place in range(kernels):
            at = begin + lasts * place / kernels
            made.kernel(NCCL if place % 4 == 0 else BF16_GEMM, at + 5, 1.5, launch=at, call=2)
        begin += lasts
    return read(made.text())


def test_slowest_step_is_drawn_by_event_with_its_launches() -> None:
    trace = steps(10, 200, slow=6)
    timeline = timeline_of(trace, 1_500)
    rows = timeline.rows
    begin, end = 60_000_000, 90_000_000
    assert (begin, end) in timeline.detail
    slow = (rows.start >= begin) & (rows.start < end) & (rows.sort <= Sort.COMMUNICATION)
    assert int(slow.sum()) == 200
    assert (rows.count[slow] == 1).all()
    assert (timeline.launch[slow] >= 0).all()
    assert (rows.sort[timeline.launch[slow]] == Sort.LAUNCH).all()
    assert timeline.left_out.joined > 0


def test_launches_of_drawn_kernels_are_kept_if_host_is_far_ahead() -> None:
    made = TraceWriter()
    for step in range(10):
        lasts = 30_000.0 if step == 6 else 10_000.0
        begin = 10_000.0 * step + (20_000.0 if step > 6 else 0)
        made.step(step, begin, lasts)
        for place in range(100):
            made.kernel(BF16_GEMM, begin + 90 * place + 12_000, 50, launch=begin + 20 * place, call=5)
    timeline = timeline_of(read(made.text()), 800)
    rows = timeline.rows
    slow = (rows.start >= 60_000_000) & (rows.start < 90_000_000) & (rows.sort == Sort.COMPUTE)
    launches = timeline.launch[slow]
    assert int(slow.sum()) == 211
    assert (launches >= 0).all()
    assert (rows.start[launches] < 60_000_000).any()


def test_a_launch_and_its_kernel_stay_connected() -> None:
    trace = steps(2, 10)
    timeline = timeline_of(trace)
    kernels = np.flatnonzero(timeline.rows.sort <= Sort.COMMUNICATION)
    launches = timeline.launch[kernels]
    assert len(kernels) == 20
    assert (timeline.rows.start[kernels] - timeline.rows.start[launches] == 5_000).all()


def test_joined_rows_have_the_sort_with_the_most_time() -> None:
    made = TraceWriter()
    made.step(1, 0, 1_000_000)
    for place in range(3_000):
        made.kernel(NCCL if place % 3 else BF16_GEMM, 300.0 * place + 20, 10, launch=300.0 * place)
    timeline = timeline_of(read(made.text()), 100)
    joined = timeline.rows.sort[(timeline.rows.count > 1)]
    assert set(joined.tolist()) == {Sort.COMMUNICATION, Sort.LAUNCH}


def test_lanes_with_the_least_time_are_left_out_and_counted() -> None:
    made = TraceWriter()
    made.step(1, 0, 100_000)
    for stream in range(100):
        made.kernel(BF16_GEMM, 10.0 * stream, 1 + stream, launch=0, stream=stream)
    timeline = timeline_of(read(made.text()))
    assert len(timeline.lanes) <= MOST_LANES
    assert (timeline.left_out.lanes, timeline.left_out.lane_rows) == (68, 68)
    assert "99" in {lane.name for lane in timeline.lanes}


def test_lanes_are_in_the_order_in_which_people_look_for_them() -> None:
    made = TraceWriter()
    for stream in (20, 7, 100):
        made.kernel(BF16_GEMM, 10, 10, launch=0, stream=stream)
    made.event("gpu_user_annotation", "forward", 5, 40, args={"stream": 7, "device": 0})
    timeline = timeline_of(read(made.text()))
    assert [(lane.side, lane.name) for lane in timeline.lanes if lane.holds == "work"] == [
        ("gpu", "7"),
        ("gpu", "20"),
        ("gpu", "100"),
        ("host", "1"),
    ]


def test_a_trace_without_a_row_has_an_empty_timeline() -> None:
    timeline = timeline_of(read(TraceWriter().text()))
    assert (len(timeline.rows), timeline.lanes, timeline.left_out.joined) == (0, [], 0)


ROWS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 2_000), st.integers(0, 10**12)),
        st.one_of(st.integers(0, 50), st.integers(0, 10**11)),
        st.integers(0, 70),
        st.sampled_from(["kernel", "cpu_op", "cuda_runtime", "user_annotation"]),
    ),
    min_size=1,
    max_size=60,
)


@given(ROWS, st.integers(0, 4), st.sampled_from([1, 10]))
def test_any_rows_give_a_bounded_ordered_complete_timeline(
    rows: list[tuple[int, int, int, str]], number: int, times: int
) -> None:
    made = TraceWriter()
    for step in range(number):
        made.step(step, 1_000.0 * step, 1_000)
    for start, lasts, lane, category in rows * times:
        args = {"stream": lane, "device": 0, "correlation": start % 40}
        made.event(category, f"name {lane}", start, lasts, tid=lane, args=args)
    trace = read(made.text())
    timeline = timeline_of(trace, 256)
    assert len(timeline.rows) <= 256
    assert counted(timeline) == all_of(trace)
    assert (timeline.rows.end >= timeline.rows.start).all()
    for lane in range(len(timeline.lanes)):
        for level in range(DEEPEST):
            mine = (timeline.rows.lane == lane) & (timeline.level == level)
            assert (np.diff(timeline.rows.start[mine]) >= 0).all()
            assert (np.diff(timeline.rows.end[mine]) >= 0).all()


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30)), max_size=40))
def test_levels_are_the_lowest_where_a_row_fits(stretches: list[tuple[int, int]]) -> None:
    scaled = sorted((start * 10 * OVERLAP_NS, -(start + lasts) * 10 * OVERLAP_NS) for start, lasts in stretches)
    start = np.array([each[0] for each in scaled], dtype=np.int64)
    end = np.array([-each[1] for each in scaled], dtype=np.int64)
    same = np.zeros(len(scaled), dtype=np.int64)
    found = levels(RowTable(start=start, end=end, name=same, sort=same, lane=same, source=same, count=same))
    for place in range(len(scaled)):
        before = [other for other in range(place) if end[other] > start[place]]
        taken = {int(found[other]) for other in before}
        lowest = next(level for level in range(DEEPEST + 1) if level not in taken)
        assert found[place] == min(lowest, DEEPEST)
