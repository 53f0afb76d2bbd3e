"""Operators of profiled steps as events of the timeline: what the managed profiler calls detailed profiling."""

from typing import Any

from trainguard_collector.recorder.recorder import Recorder
from trainguard_collector.recorder.timeline import MOST_WAITING

CPU_LABEL, GPU_LABEL = "cpu_functions", "gpu_functions"
MOST_OPERATORS = MOST_WAITING // 2
"""Of more operators the longest are kept."""

LONGEST_LABELS = 100


def record_operators(recorder: Recorder, profile: Any, first: int) -> None:
    """Add the operators of a profile to the timeline; ``first`` is the profile's first step."""
    events = profile.profiler.function_events or profile.events()
    start_ns = profile.profiler.kineto_results.trace_start_ns()
    shift_ns = recorder.log.monotonic_ns(start_ns)
    found: list[tuple[float, Any]] = [(each.time_range.elapsed_us(), each) for each in events]
    found = [row for row in found if row[0] > 0.0 and not row[1].name.startswith("ProfilerStep")]
    longest = sorted(found, key=lambda row: -row[0])[:MOST_OPERATORS]
    note = {"first_step": first, "operators": len(found), "left_out": len(found) - len(longest)}
    recorder.notes["detailed_profile"] = note
    for _, each in sorted(longest, key=lambda row: row[1].time_range.end):
        on_gpu = "CUDA" in str(each.device_type)
        label = f"{GPU_LABEL}-dev:{each.device_index}" if on_gpu else CPU_LABEL
        began_ns = shift_ns + round(each.time_range.start * 1_000)
        ended_ns = shift_ns + round(each.time_range.end * 1_000)
        thread = int(getattr(each, "thread", 0) or 0)
        recorder.log.record((label, each.name, began_ns, ended_ns, "", thread))
