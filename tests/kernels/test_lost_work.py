"""Work of the GPU that a trace lost: it is counted and named, and no finding rests on its absence."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.kernel_faults import exposed, fp32, good, idle, late, loader, steps, sync
from tests.support.kernel_traces import BF16_GEMM, TraceWriter, ids, judged, real_text
from trainguard.kernels.captures.capture import is_judged
from trainguard.kernels.document import KernelProfiles, RankProfile
from trainguard.report.html.kernels.verdict import shown_verdict

Event = dict[str, Any]
IDLE = {"GpuBusyLow", "GpuGap", "LaunchBound", "SyncStall", "SmallKernelStorm", "LoaderBound"}
LATER = 1_000_000.0


def busy_steps(number: int = 6) -> TraceWriter:
    """Steps of five kernels, 95 % busy, launched one after another; a second behind the start of the clock."""
    made = TraceWriter()
    for step in range(number):
        start = LATER + 1_000.0 * step
        made.step(step, start, 1_000.0)
        for place in range(5):
            made.kernel(BF16_GEMM, start + 195 * place + 12, 190, launch=start + 195 * place + 5)
    return made


def kernels(made: TraceWriter) -> list[Event]:
    return [event for event in made.events if event["cat"] == "kernel"]


def without(made: TraceWriter, lost: list[Event]) -> TraceWriter:
    gone = {id(event) for event in lost}
    made.events = [event for event in made.events if id(event) not in gone]
    return made


def quality(profile: RankProfile) -> list[str]:
    return [*profile.quality.damaged, *profile.quality.missing]


def test_kernels_without_a_time_are_no_idle_time() -> None:
    """As in pytorch/kineto issue 109: each second kernel has the time 0 and no length."""
    made = busy_steps()
    for event in kernels(made)[::2]:
        event |= {"ts": 0, "dur": 0}
    profile = judged(made.text())
    assert ids(profile) == {"TraceQuality"}
    assert quality(profile) == [
        "pieces of work of a GPU without a time (15)",
        "15 of 30 launches without their work on the GPU",
    ]
    assert (profile.quality.work_lost, profile.quality.is_whole, is_judged(profile)) == (15, False, False)
    mark, sentences = shown_verdict(KernelProfiles(source="here", ranks=[profile], unread={}), [])
    assert mark[0] == "Judged in part"
    assert sentences.startswith("The GPU is busy at least 47.5 % of the time. 15 pieces of work are missing")
    assert profile.streams[0].queue_mean >= 0


def test_kernels_lost_at_the_start_are_no_gap() -> None:
    """As in pytorch/pytorch issue 192021: the first steps have launches, and no rows of the GPU."""
    made = busy_steps()
    profile = judged(without(made, kernels(made)[:10]).text())
    assert not IDLE & ids(profile)
    assert quality(profile) == ["10 of 30 launches without their work on the GPU"]
    assert {finding.confidence for finding in profile.findings} == {"low"}


@pytest.mark.parametrize("ts", [0.0, -1_767_189_312_000_000.0, -5.0])
@pytest.mark.parametrize("dur", [0.0, 7.0])
def test_a_window_without_steps_is_that_of_times(ts: float, dur: float) -> None:
    made = TraceWriter()
    for place in range(20):
        made.kernel(BF16_GEMM, LATER + 200 * place, 190, launch=LATER + 200 * place - 7)
    for number in range(3):
        args = {"device": 0, "stream": 7, "correlation": 900 + number}
        made.event("kernel", "lost_kernel", ts, dur, args=args)
    profile = judged(made.text())
    assert profile.window_ns == (200 * 19 + 190) * 1_000
    assert profile.quality.work_lost == 3
    assert not IDLE & ids(profile)


def test_a_duration_beyond_the_next_kernel_is_not_summed() -> None:
    made = busy_steps()
    kernels(made)[3]["dur"] = 1_600_000.0
    profile = judged(made.text())
    assert sum(kernel.total_ns for kernel in profile.kernels) == 29 * 190_000
    assert "pieces of work that last beyond the next one of their stream (1)" in quality(profile)
    assert {finding.confidence for finding in profile.findings} == {"low"}


def test_nodes_of_a_graph_may_run_side_by_side() -> None:
    made = TraceWriter()
    made.step(0, 0, 1_000)
    made.event("cuda_runtime", "cudaGraphLaunch", 5, 20, args={"correlation": 1})
    for lasts, start in ((600, 30), (100, 40), (200, 160)):
        made.event("kernel", BF16_GEMM, start, lasts, args={"correlation": 1, "device": 0, "stream": 7})
    profile = judged(made.text())
    assert profile.busy_ns == 600_000
    assert not profile.quality.damaged


def test_a_kernel_that_starts_before_the_last_one_ends_is_whole() -> None:
    """Programmatic dependent launch lets kernels of one stream overlap at their ends."""
    made = TraceWriter()
    made.step(0, 0, 1_000)
    for place in range(9):
        made.kernel(BF16_GEMM, 10 + 100 * place, 110, launch=5 + place)
    assert not judged(made.text()).quality.damaged


def calls(made: TraceWriter, *named: tuple[str, float, float]) -> None:
    for name, start, lasts in named:
        made.launched += 1
        made.event("cuda_runtime", name, start, lasts, args={"correlation": made.launched})


CAPTURED = [
    ("cudaStreamBeginCapture_v10000", LATER + 1_000, 2),
    ("cudaLaunchKernel", LATER + 1_010, 3),
    ("cudaMemcpyAsync", LATER + 1_020, 3),
    ("cudaStreamEndCapture", LATER + 1_040, 2),
]
OUTER = [("hipLaunchCooperativeKernel", LATER + 4, 8), ("cudaLaunchKernelExC", LATER + 199, 8)]
NOTHING = [("cudaLaunchHostFunc", LATER + 300, 5), ("cudaMemsetAsync", LATER + 400, 5), ("cudaEventRecord", LATER, 1)]


@pytest.mark.parametrize("more", [CAPTURED, OUTER, NOTHING])
def test_calls_that_start_no_work_lost_none(more: list[tuple[str, float, float]]) -> None:
    """A graph is captured and not run, a call contains the one that launches, or none is of a kernel."""
    made = busy_steps()
    calls(made, *more)
    assert judged(made.text()).quality.work_lost == 0


def test_a_capture_covers_no_launches_behind_it() -> None:
    made = busy_steps()
    calls(made, *CAPTURED, ("cudaLaunchKernel", LATER + 1_100, 5))
    assert judged(made.text()).quality.work_lost == 1


def test_one_lost_launch_of_many_leaves_findings_sure() -> None:
    made = steps(lambda trace, start: late(trace, start, 0.6), number=12)
    profile = judged(without(made, kernels(made)[600:601]).text())
    assert profile.quality.work_lost == 1
    (found,) = (each for each in profile.findings if each.id == "kernels/LaunchBound")
    assert found.confidence == "normal"


def test_work_that_runs_when_a_recording_ends_is_not_missed() -> None:
    """As in an export of Nsight Systems whose last launches were still queued; it is named, and no idle time."""
    made = steps(lambda trace, start: late(trace, start, 0.6), number=12)
    profile = judged(without(made, kernels(made)[-10:]).text())
    assert (profile.quality.work_lost, profile.quality.is_whole) == (10, True)
    assert "10 of 1,200 launches without their work on the GPU" in quality(profile)
    assert not judged(without(made, kernels(made)[-30:]).text()).quality.is_whole


FAULTS: list[Callable[[TraceWriter, float], None]] = [
    good,
    *(lambda made, start, fault=fault: fault(made, start, 0.3) for fault in (loader, exposed, fp32, idle, late, sync)),
]


def sure(profile: RankProfile) -> dict[str, int]:
    found = [each for each in profile.findings if each.id not in ("kernels/TraceQuality", "kernels/QueueFull")]
    return {each.id: each.severity.rank for each in found if each.confidence == "normal"}


GPU = ("kernel", "gpu_memcpy")


def worse(events: list[Event], chosen: list[tuple[int, str]], sorts: tuple[str, ...] = GPU) -> list[Event]:
    """Return events of which some rows are lost, or have no time."""
    rows = [place for place, event in enumerate(events) if event.get("cat") in sorts]
    harm = {rows[number % len(rows)]: how for number, how in chosen}
    made = []
    for place, event in enumerate(events):
        how = harm.get(place)
        if how == "zero":
            made.append(event | {"ts": 0, "dur": 0})
        elif how == "negative":
            made.append(event | {"ts": -1e15, "dur": 0})
        elif how != "lost":
            made.append(event)
    return made


HARMS = st.lists(
    st.tuples(st.integers(0, 10_000), st.sampled_from(["lost", "lost", "zero", "negative"])), min_size=1, max_size=200
)


@settings(suppress_health_check=[*HealthCheck], deadline=None)
@given(st.sampled_from(FAULTS), HARMS)
def test_a_worse_trace_gives_no_surer_finding(fault: Callable[[TraceWriter, float], None], harm: Any) -> None:
    made = steps(fault)
    whole = sure(judged(made.text()))
    made.events = worse(made.events, harm)
    found = judged(made.text())
    assert found.quality.work_lost
    assert sure(found).items() <= whole.items()
    assert "TraceQuality" in ids(found)


@settings(suppress_health_check=[*HealthCheck], deadline=None, max_examples=5)
@given(HARMS)
def test_a_real_trace_that_lost_rows_gives_no_surer_finding(harm: Any) -> None:
    document = json.loads(real_text("pair_rank-0"))
    whole = sure(judged(json.dumps(document).encode()))
    document["traceEvents"] = worse(document["traceEvents"], harm)
    assert sure(judged(json.dumps(document).encode())).items() <= whole.items()


@settings(suppress_health_check=[*HealthCheck], deadline=None)
@given(st.sampled_from(FAULTS), HARMS)
def test_lost_calls_and_steps_give_no_surer_finding(fault: Callable[[TraceWriter, float], None], harm: Any) -> None:
    made = steps(fault, number=8)
    for event in made.events:
        event["ts"] += LATER
    whole = sure(judged(made.text()))
    made.events = worse(made.events, harm, (*GPU, "cuda_runtime", "user_annotation"))
    assert sure(judged(made.text())).items() <= whole.items()
