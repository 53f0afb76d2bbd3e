"""CPUBottleneck and IOBottleneck as the original counts them: snapshots, and what ran during them."""

from collections.abc import Iterable
from typing import Any

import pytest

from tests.unit.compatible.profiles import FIRST_S, Profile, Sample, event, origin, phase, report

GPU = "GPUUtilization"
CPU = "CPUUtilization"
IO = "I/OWaitPercentage"


def series(
    dimension: str, device: str, values: Iterable[float], *, start: float = 0.5, every: float = 0.5
) -> list[Sample]:
    return [(dimension, device, start + every * number, value) for number, value in enumerate(values)]


def bottlenecks(samples: Iterable[Sample], *, rule: str = "CPUBottleneck", **parameters: Any) -> dict[str, Any]:
    return report(Profile().minute(0, samples).minutes(1), rule, **{"patience": 0, "threshold": 0} | parameters)


@pytest.mark.parametrize(("gap", "snapshots", "found"), [(0.0195, 1, 1), (0.0205, 2, 0)])
def test_cpu_and_gpu_samples_over_20_ms_apart_are_two_snapshots(gap: float, snapshots: int, found: int) -> None:
    result = bottlenecks([(CPU, "cpu0", 1, 95), (GPU, "gpu0", 1 + gap, 5)])

    assert (result["Datapoints"], result["Violations"]) == (snapshots, found)


def test_idle_gpu_with_busy_cores_is_a_bottleneck() -> None:
    samples = [(CPU, "cpu0", 1, 95), (CPU, "cpu1", 1, 99), (CPU, "cpu2", 1, 90)]
    samples += [(GPU, "gpu0", 1, 5), (GPU, "gpu1", 1, 10)]

    found = bottlenecks(samples)

    assert found["Details"]["bottlenecks"] == {repr(float(FIRST_S + 1)): {"GPUs": 1, "CPUs": 2}}
    assert found["Details"]["low_gpu_utilization"] == 1


def test_two_nodes_at_one_time_make_a_bottleneck_neither_has() -> None:
    profile = Profile().minute(0, [(CPU, "cpu0", 1, 95)]).minute(0, [(GPU, "gpu0", 1, 5)], node="algo-2").minutes(1)

    assert report(profile, "CPUBottleneck", patience=0, threshold=0)["Violations"] == 1


@pytest.mark.parametrize(("patience", "triggered"), [(3, 1), (4, 0), (5, 0)])
def test_bottleneck_triggers_above_patience_only(patience: int, triggered: int) -> None:
    samples = series(CPU, "cpu0", [99] * 4) + series(GPU, "gpu0", [0] * 4)

    found = bottlenecks(sorted(samples, key=lambda sample: sample[2]), patience=patience)

    assert (found["RuleTriggered"], found["Violations"]) == (triggered, 4)


@pytest.mark.parametrize(("threshold", "triggered"), [(49.9, 1), (50, 0), (50.1, 0)])
def test_share_of_snapshots_must_exceed_the_threshold(threshold: float, triggered: int) -> None:
    samples = series(IO, "cpu0", [60, 40]) + series(GPU, "gpu0", [0, 0])

    found = bottlenecks(sorted(samples, key=lambda sample: sample[2]), rule="IOBottleneck", threshold=threshold)

    assert found["RuleTriggered"] == triggered


def test_bottleneck_on_an_edge_is_in_both_windows() -> None:
    profile = Profile().minute(1, [(CPU, "cpu0", 60, 95), (GPU, "gpu0", 60, 5)]).minutes(3)

    found = report(profile, "CPUBottleneck", patience=0, threshold=0)

    assert (found["RuleTriggered"], found["Violations"], found["Datapoints"]) == (3, 1, 1)
    assert found["Details"]["low_gpu_utilization"] == 2


def test_bottlenecks_are_in_the_order_of_the_busy_cores() -> None:
    profile = Profile().minute(0, [(GPU, "gpu0", 1, 5), (GPU, "gpu0", 2, 5)]).minutes(1)
    profile.minute(0, [(CPU, "cpu0", 2, 95), (CPU, "cpu0", 1, 95)], node="algo-2")

    found = report(profile, "CPUBottleneck")["Details"]["bottlenecks"]

    assert list(found) == [repr(float(FIRST_S + at)) for at in (2, 1)]


def test_correlated_names_are_in_the_order_of_the_queries() -> None:
    profile = Profile().minutes(1)
    for node, times in (("algo-1", (1, 2)), ("algo-2", (1.5,))):
        profile.minute(0, [sample for at in times for sample in ((CPU, "c", at, 95.0), (GPU, "g", at, 5.0))], node=node)
    events = [event("third", 1, 1.4, 0.2), event("second", 1, 1.9, 0.2), event("first", 1, 0.9, 1.3)]
    profile.trace(70, [origin(), phase(1, "cpu_functions"), *events])

    details = report(profile, "CPUBottleneck", patience=0, threshold=0)["Details"]

    assert list(details["CPU_total"].items()) == [("first", 3_900_000), ("second", 200_000), ("third", 200_000)]


def test_keys_of_later_queries_follow_an_empty_first_query() -> None:
    profile = Profile().minute(0, [(CPU, "c", 1, 95), (GPU, "g", 1, 5), (CPU, "c", 2, 95), (GPU, "g", 2, 5)]).minutes(1)
    profile.trace(70, [origin(), phase(1, "cpu_functions"), event("op", 1, 1.9, 0.2)])

    details = report(profile, "CPUBottleneck", patience=0, threshold=0)["Details"]

    assert list(details)[2:] == ["ratio", "phase", "phase_time", "CPU", "CPU_total"]


def test_correlated_events_add_their_full_duration_each_time() -> None:
    profile = Profile().minute(
        0, [(CPU, "cpu0", 1, 95), (GPU, "gpu0", 1, 5), (CPU, "cpu0", 2, 95), (GPU, "gpu0", 2, 5)]
    )
    profile.minutes(1)
    names = [phase(1, "cpu_functions"), phase(2, "gpu_functions-dev:0"), phase(3, "DataLoaderIter")]
    events = [event("late", 1, 1, 3), event("conv", 1, 0.5, 3), event("tiny", 1, 0.9, 0.11), event("mm", 2, 1.5, 2)]
    profile.trace(70, [origin(), *names, *events, event("next", 3, 1.9, 0.2)])

    details = report(profile, "CPUBottleneck", patience=0, threshold=0)["Details"]

    keys = "bottlenecks low_gpu_utilization ratio CPU CPU_total phase phase_time GPU GPU_total general"
    assert list(details) == keys.split()
    assert details["CPU_total"] == {"conv": 6_000_000, "late": 3_000_000}
    assert details["GPU_total"] == {"mm": 2_000_000}
    # Labels are swapped: the CPU's share is the GPU's.
    assert details["ratio"]["cpu_functions"] == pytest.approx(100 * 2 / 11.11)
    assert details["CPU"] == {"conv": pytest.approx(100 * 6 / 9), "late": pytest.approx(100 * 3 / 9)}
