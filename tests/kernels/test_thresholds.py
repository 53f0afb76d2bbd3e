"""Each rule on its threshold, and a nanosecond or a count beside it."""

import json
from typing import Any

import pytest

from tests.support import kernel_faults as faults
from tests.support.kernel_faults import STEP, Fault, good, steps
from tests.support.kernel_traces import (
    A100,
    BF16_GEMM,
    COMMUNICATION_STREAM,
    FP32_GEMM,
    NCCL,
    PAGEABLE,
    TraceWriter,
    ids,
    judged,
)
from trainguard.kernels.document import RankProfile
from trainguard.kernels.rules.rule import Nanoseconds, Number, Share, shown_thresholds

# A nanosecond as a share of a step.
NS = 1 / (STEP * 1_000)


def profile(fault: Fault, strength: float) -> RankProfile:
    return judged(steps(lambda made, start: fault(made, start, strength)).text())


@pytest.mark.parametrize(
    ("rule", "fault", "limit", "on_it"),
    [
        ("LoaderBound", faults.loader, 0.05, False),
        ("ExposedCommunication", faults.exposed, 0.1, True),
        ("ExposedCommunication", faults.little_overlap, 0.5, False),
        ("MemcpyBound", faults.copies, 0.1, True),
        ("PageableCopy", faults.pageable, 0.01, True),
        ("LowPrecisionUnused", faults.fp32, 0.1, False),
        ("TensorCoresIdle", faults.fp32, 0.5, False),
        ("SmUnderfilled", faults.underfilled, 0.2, True),
        ("GpuBusyLow", faults.idle, 0.3, False),
        ("GpuGap", faults.idle, 0.1, False),
        ("SyncStall", faults.sync, 0.05, True),
        ("QueueFull", faults.queue, 0.05, False),
        ("TraceQuality", faults.overhead, 0.05, False),
    ],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_a_share_of_the_step(rule: str, fault: Fault, limit: float, *, on_it: bool) -> None:
    unit = NS / 0.15 if fault is faults.little_overlap else NS
    assert (rule in ids(profile(fault, limit))) == on_it
    assert rule in ids(profile(fault, limit + unit))
    assert rule not in ids(profile(fault, limit - unit))


def test_gpu_idle_over_half_of_the_time_has_medium_severity() -> None:
    def severity(strength: float) -> str:
        (found,) = (each for each in profile(faults.idle, strength).findings if each.id == "kernels/GpuBusyLow")
        return found.severity.value

    assert (severity(0.5), severity(0.5 + NS)) == ("low", "medium")


def test_a_gap_of_half_a_second_fires_in_a_long_step() -> None:
    def found(gap: float) -> set[str]:
        def fill(made: TraceWriter, start: float) -> None:
            good(made, start, 6_000_000 - gap)

        return ids(judged(steps(fill, lasts=6_000_000).text()))

    assert "GpuGap" in found(500_000)
    assert "GpuGap" not in found(499_999.999)


def little_communication(share: float) -> Fault:
    """Communicate for a share of the step, almost alone for more than half of it."""

    def fill(made: TraceWriter, start: float, _: float) -> None:
        length = STEP * share
        good(made, start, STEP - 0.6 * length)
        begin = start + STEP - length
        made.kernel(NCCL, begin, length, launch=begin - 500, stream=COMMUNICATION_STREAM)

    return fill


@pytest.mark.parametrize(("share", "fires"), [(0.1, True), (0.1 - NS, False)])
def test_little_overlap_matters_from_a_tenth_of_the_step_on(share: float, *, fires: bool) -> None:
    found = profile(little_communication(share), 0)
    assert ("ExposedCommunication" in ids(found)) == fires
    if fires:
        (finding,) = found.findings
        assert (finding.value, finding.threshold, finding.severity.value) == (0.4, 0.5, "low")


@pytest.mark.parametrize(("call", "fires"), [("cudaMemcpyAsync", True), ("cudaMemcpy", False)])
def test_a_copy_that_is_meant_to_wait_is_no_pageable_copy(call: str, *, fires: bool) -> None:
    def fill(made: TraceWriter, start: float) -> None:
        good(made, start, STEP * 0.95)
        made.copy(PAGEABLE, start + STEP * 0.95, STEP * 0.05, call=call)

    assert ("PageableCopy" in ids(judged(steps(fill).text()))) == fires


def launched_late(delay: float, idle: float = 0.35) -> RankProfile:
    def fill(made: TraceWriter, start: float) -> None:
        for place in range(100):
            begin = start + STEP * place / 100
            made.kernel(BF16_GEMM, begin + 5 + delay, STEP / 100 * (1 - idle), launch=begin, call=5)

    return judged(steps(fill).text())


def late_kinds(profile: RankProfile) -> set[str]:
    return {each.kind for each in profile.findings if each.id == "kernels/LaunchBound"}


def test_empty_queue_starts_kernels_within_ten_microseconds() -> None:
    assert late_kinds(launched_late(9.999)) == {"launch_bound"}
    assert late_kinds(launched_late(10)) == {"late_launches"}


def test_launches_matter_below_seven_tenths() -> None:
    assert late_kinds(launched_late(1, 0.3 + NS * 100)) == {"launch_bound"}
    assert late_kinds(launched_late(1, 0.29)) == {"late_launches"}


def test_short_gaps_before_launches_matter_from_a_tenth_on() -> None:
    # What a kernel takes to start on the idle GPU belongs to the gap.
    assert late_kinds(launched_late(1, 0.1 + NS * 100)) == {"late_launches"}
    assert late_kinds(launched_late(1, 0.1 - NS * 100)) == set()
    (found,) = (each for each in launched_late(1, 0.2).findings if each.kind == "late_launches")
    assert found.evidence[0].what == f"GPU idle before {BF16_GEMM}"
    assert found.evidence[0].count == 600


def many_kernels(number: int, long_ones: int, *, graph: bool = False) -> RankProfile:
    """So many kernels a step, each in the time of 60 us; the long ones are longer than their call."""

    def fill(made: TraceWriter, start: float) -> None:
        for place in range(number):
            begin = start + 60 * place
            lasts = 45 if place < long_ones else 40
            made.kernel(BF16_GEMM, begin + 45, lasts / 2 if graph else lasts, launch=begin, call=44)
            if graph:  # a second kernel of the same call
                args = {"correlation": made.launched, "device": 0, "stream": 7}
                made.event("kernel", BF16_GEMM, begin + 45 + lasts / 2, lasts / 2, args=args)

    return judged(steps(fill).text())


def test_a_storm_has_three_hundred_kernels_a_step() -> None:
    assert "SmallKernelStorm" in ids(many_kernels(300, 0))
    assert "SmallKernelStorm" not in ids(many_kernels(299, 0))


def test_storm_needs_half_of_its_calls_longer_than_their_work() -> None:
    assert "SmallKernelStorm" in ids(many_kernels(320, 160))
    assert "SmallKernelStorm" not in ids(many_kernels(320, 161))


def test_a_graph_is_as_long_as_all_that_it_runs() -> None:
    found = many_kernels(320, 320, graph=True)
    assert found.launches is not None
    assert (found.launches.short_kernels, found.launches.calls) == (2 * 320 * 6, 320 * 6)
    assert "SmallKernelStorm" not in ids(found)


def waits(share: float, idle: float) -> RankProfile:
    """Wait for the GPU for a share of the step, the end of it for an idle one."""

    def fill(made: TraceWriter, start: float) -> None:
        good(made, start, STEP * (1 - idle))
        made.event("cuda_runtime", "cudaDeviceSynchronize", start + STEP * (1 - share), STEP * share)

    return judged(steps(fill).text())


def test_waits_matter_from_a_tenth_of_the_time_on() -> None:
    assert "SyncStall" in ids(waits(0.1, 0.06))
    assert "SyncStall" not in ids(waits(0.1 - NS, 0.06))


def test_a_wait_for_a_busy_gpu_is_no_stall() -> None:
    assert "SyncStall" not in ids(waits(0.5, 0))


def items(ends_in_call: float) -> RankProfile:
    """Copy a number to pageable memory in each step, and wait in the call: a fifth of the step, 6 % of it idle."""

    def fill(made: TraceWriter, start: float) -> None:
        good(made, start, STEP * 0.94)
        made.launched += 1
        args = {"correlation": made.launched, "device": 0, "stream": 7, "bytes": 4}
        end = start + STEP * 0.94 + 2
        made.event("cuda_runtime", "cudaMemcpyAsync", end - STEP * 0.2, STEP * 0.2 + ends_in_call, args=args)
        made.event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", end - 2, 2, args=args)

    return judged(steps(fill).text())


def test_a_copy_that_ends_before_its_call_is_a_wait() -> None:
    (finding,) = (each for each in items(0).findings if each.id == "kernels/SyncStall")
    assert finding.value == pytest.approx(0.2, abs=1e-3)
    assert finding.evidence[0].what == "cudaMemcpyAsync"
    assert "SyncStall" not in ids(items(-0.001)), "the copy goes on behind its call"


def outliers(lengths: list[float]) -> set[str]:
    made, start = TraceWriter(), 0.0
    for number, lasts in enumerate(lengths):
        made.step(number, start, lasts)
        good(made, start, lasts)
        start += lasts
    return ids(judged(made.text()))


def test_outlier_is_over_a_tenth_above_the_median_of_ten_steps() -> None:
    usual = [STEP] * 9
    assert "TraceStepOutlier" in outliers([*usual, STEP * 1.1 + 0.001])
    assert "TraceStepOutlier" not in outliers([*usual, STEP * 1.1])
    assert "TraceStepOutlier" not in outliers([STEP] * 8 + [STEP * 3])


def test_an_outlier_is_five_robust_sigmas_above_the_median() -> None:
    """Half of the steps are 500 us off: a sigma of 741.3 us, five of which are 3,706.5."""
    usual = [STEP - 500, STEP + 500] * 6 + [STEP]
    assert "TraceStepOutlier" in outliers([*usual, STEP + 500 + 5 * 1.4826 * 500 + 1])
    assert "TraceStepOutlier" not in outliers([*usual, STEP + 5 * 1.4826 * 500 - 1])


def reserved(size: int) -> set[str]:
    made = steps(good)
    said = {"Device Type": 1, "Device Id": 0, "Total Reserved": size}
    made.events.append({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 1, "args": said})
    return ids(judged(made.text()))


def test_memory_is_full_above_nine_tenths() -> None:
    size = 40 << 30
    assert "GpuMemoryFull" in reserved(size * 9 // 10 + 1)
    assert "GpuMemoryFull" not in reserved(size * 9 // 10)


def test_full_memory_has_the_first_moment_of_its_peak() -> None:
    made = steps(good)
    for at, size in ((STEP * 1.5, 37 << 30), (STEP * 2.5, 39 << 30), (STEP * 3.5, 39 << 30), (STEP * 4.5, 38 << 30)):
        said = {"Device Type": 1, "Device Id": 0, "Total Reserved": size}
        made.events.append({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": at, "args": said})
    (finding,) = judged(made.text()).findings
    assert (finding.evidence[0].start_ns, finding.evidence[0].step) == (STEP * 2.5 * 1_000, 2)


def test_a_queue_is_full_with_1024_launches() -> None:
    def found(launches: int) -> set[str]:
        def fill(made: TraceWriter, start: float) -> None:
            made.kernel(BF16_GEMM, start + 1, STEP * 0.9, launch=start)
            begin = start + 1 + STEP * 0.9
            for place in range(launches):
                made.kernel(BF16_GEMM, begin + place * 0.5, 0.5, launch=begin - STEP * 0.3, call=0)

        return ids(judged(steps(fill, number=3).text()))

    assert "QueueFull" in found(1_024)
    assert "QueueFull" not in found(1_023)


def on(gpu: dict[str, Any], fault: Fault, strength: float) -> set[str]:
    made = TraceWriter(gpus=[A100 | gpu])
    return ids(judged(steps(lambda found, start: fault(found, start, strength), made=made).text()))


@pytest.mark.parametrize(
    ("rule", "capability", "fires"),
    [
        ("TensorCoresIdle", (7, 0), True),
        ("TensorCoresIdle", (6, 2), False),
        ("LowPrecisionUnused", (8, 0), True),
        ("LowPrecisionUnused", (7, 5), False),
    ],
)
def test_a_gpu_has_to_have_what_is_unused(rule: str, capability: tuple[int, int], *, fires: bool) -> None:
    gpu = {"computeMajor": capability[0], "computeMinor": capability[1]}
    assert (rule in on(gpu, faults.fp32, 0.9)) == fires


def test_multiprocessors_are_those_of_nvidia() -> None:
    assert "SmUnderfilled" in on({}, faults.underfilled, 0.9)
    assert "SmUnderfilled" not in on({"name": "AMD Instinct MI300X"}, faults.underfilled, 0.9)


def test_tensor_cores_matter_from_a_tenth_of_the_time() -> None:
    def found(share: float) -> set[str]:
        def fill(made: TraceWriter, start: float) -> None:
            made.kernel(FP32_GEMM, start, STEP * share, launch=start)
            made.kernel("vectorized_add", start + STEP * share, STEP * (1 - share), launch=start + 1)

        return ids(judged(steps(fill).text()))

    assert "TensorCoresIdle" in found(0.1)
    assert "TensorCoresIdle" not in found(0.1 - NS)


def lacks(made: TraceWriter) -> list[str]:
    return judged(made.text()).quality.missing


def test_kernels_without_a_launch_matter_above_a_twentieth() -> None:
    def found(strength: float) -> list[str]:
        return lacks(steps(lambda made, start: faults.unlaunched(made, start, strength)))

    assert found(0.05) == []
    assert found(0.06) == ["6.0 % of the kernels without their launch"]


def with_stacks(share: float, size: int) -> list[str]:
    """A trace of which events of stacks, their names of so many letters, take so much."""
    made = steps(good)
    least, other = 0, sum(len(json.dumps(event)) + 2 for event in made.events)
    while least < share * (other + least):
        made.event("python_function", "n" * size, 0, 1)
        least += len(json.dumps(made.events[-1])) + 2
    return lacks(made)


def test_stacks_matter_above_half_of_the_file() -> None:
    assert with_stacks(0.49, 10) == []
    (found,) = with_stacks(0.51, 10)
    assert found.endswith("of the file are stacks of Python, which nothing here reads")


def test_stacks_of_a_large_file_are_sampled() -> None:
    made = steps(good)
    for place in range(20_000):
        made.event("python_function" if place % 10 < 6 else "other_category_", "n" * 100, 0, 1)
    (found,) = lacks(made)
    assert 57 <= float(found.partition(" ")[0]) <= 63


def two_ranks(base: int | None) -> list[str]:
    made = steps(good)
    made.base_ns = base
    text = made.text().replace(b'"world_size": 1', b'"world_size": 2')
    return judged(text).quality.missing


def test_two_ranks_need_a_time_base() -> None:
    assert two_ranks(1_711_964_646_000_000_000) == []
    assert two_ranks(None) == ["no time base, so ranks cannot be aligned"]


def only_in(chosen: int, fault: Fault, strength: float, number: int) -> RankProfile:
    count = iter(range(number))

    def fill(made: TraceWriter, start: float) -> None:
        fault(made, start, strength if next(count) == chosen else 0)

    return judged(steps(fill, number=number).text())


@pytest.mark.parametrize(
    ("chosen", "number", "confidence"),
    [(0, 3, "low"), (2, 3, "low"), (1, 3, "normal"), (0, 6, "low"), (2, 6, "normal")],
)
def test_finding_of_only_first_or_last_step_has_low_confidence(chosen: int, number: int, confidence: str) -> None:
    found = only_in(chosen, faults.loader, 0.9, number).findings
    (finding,) = (each for each in found if each.id == "kernels/LoaderBound")
    assert finding.confidence == confidence
    assert finding.severity.value == ("high" if (confidence, number) == ("normal", 3) else "medium")


@pytest.mark.parametrize("number", [3, 4, 6, 12])
def test_a_healthy_trace_of_any_length_has_no_finding(number: int) -> None:
    assert ids(judged(steps(good, number=number).text())) == set()


def test_a_threshold_is_shown_with_its_unit() -> None:
    class Sample:
        share: Share = 0.125
        short: Nanoseconds = 10_000
        long: Nanoseconds = 500_000_000
        number: Number = 1_024
        other: int = 3

    assert shown_thresholds(Sample) == {
        "share": "12.5 %",
        "short": "10 us",
        "long": "500 ms",
        "number": "1,024",
    }
