import itertools
import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.compatible.profiles import FIRST_US, Profile, Sample, replayed, report
from trainguard.managed import system_rules
from trainguard.managed.history import ManagedHistory, box
from trainguard.managed.system_stream import SeriesSamples, pieces_between_resets

GPU = "GPUUtilization"
MEMORY = "GPUMemoryUtilization"
CPU = "CPUUtilization"


def series(
    dimension: str, device: str, values: Iterable[float], *, start: float = 0.5, every: float = 0.5
) -> list[Sample]:
    return [(dimension, device, start + every * number, value) for number, value in enumerate(values)]


def low_gpu(values: list[float], **parameters: Any) -> dict[str, Any]:
    settings = {"window": 4, "patience": 4} | parameters
    return report(Profile().minute(0, series(GPU, "gpu0", values)).minutes(1), "LowGPUUtilization", **settings)


@pytest.mark.parametrize(("count", "violations"), [(3, 0), (4, 0), (5, 1)])
def test_low_values_are_judged_above_patience_only(count: int, violations: int) -> None:
    found = low_gpu([10.0] * count)

    assert (found["Violations"], found["Datapoints"]) == (violations, count)


@pytest.mark.parametrize(
    ("values", "violations"),
    [
        ([69.9] * 5, 1),
        ([70.0] * 5, 0),
        ([80, 80, 80, 80, 80], 0),
        ([90, 90, 90, 0, 0], 1),
        ([0, 90, 90, 90, 90], 0),
        ([70, 70, 70, 0, 0], 0),
    ],
)
def test_threshold_equal_to_a_percentile_is_no_fault(values: list[float], violations: int) -> None:
    assert low_gpu(values)["Violations"] == violations


def test_every_low_gpu_counts_in_every_window() -> None:
    profile = Profile()
    for minute in range(3):
        samples = series(GPU, "gpu1", [20, 30, 40], start=60 * minute + 1, every=10)
        profile.minute(minute, samples + series(GPU, "gpu0", [0, 1, 2], start=60 * minute + 1, every=10))

    found = report(profile, "LowGPUUtilization", patience=2, window=3)

    assert (found["RuleTriggered"], found["Violations"], found["Datapoints"]) == (4, 4, 6)
    assert list(found["Details"]) == ["algo-1", "last_timestamp"]
    assert list(found["Details"]["algo-1"]) == ["gpu1", "gpu0"]
    assert found["Details"]["last_timestamp"] == FIRST_US + 60_000_000
    box = found["Details"]["algo-1"]["gpu1"]
    assert list(box) == ["gpu_max", "gpu_95", "gpu_5", "p25", "p50", "p75", "p95", "upper", "lower"]
    assert (box["p25"], box["p75"], box["upper"], box["lower"]) == (22.5, 37.5, 40, 20)
    assert found["RuleParameters"] == "threshold_p95:70\nthreshold_p5:10\nwindow:3\npatience:2"


@pytest.mark.parametrize(("window", "violations"), [(0, 0), (-1, 1), (1, 1), (2.0, 1), (99, 0)])
def test_window_of_any_number_is_the_slice_of_the_original(window: float, violations: int) -> None:
    assert low_gpu([90, 5, 5, 5, 5], window=window, patience=0, threshold_p5=0)["Violations"] == violations


def test_more_values_than_the_limit_drop_state_after_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(system_rules, "MAX_DATAPOINTS", 5)
    profile = Profile().minutes(3)
    profile.minute(0, series(GPU, "gpu0", [10] * 6) + series(GPU, "gpu1", [10] * 3))
    profile.minute(1, series(GPU, "gpu0", [20] * 3, start=70))

    found = report(profile, "LowGPUUtilization", patience=2, window=3)

    assert (found["Violations"], found["Datapoints"]) == (4, 3)
    assert {gpu: box["gpu_max"] for gpu, box in found["Details"]["algo-1"].items()} == {"gpu0": 20, "gpu1": 10}


def test_batch_size_judges_the_other_nodes_without_gpus_in_one() -> None:
    profile = Profile().minutes(2)
    cpu = series(CPU, "cpu0", [10, 20, 30]) + series(CPU, "cpu1", [30, 40, 50])
    gpus = series(GPU, "gpu0", [10, 20, 30]) + series(MEMORY, "gpu0", [5, 15, 25])
    profile.minute(0, cpu + gpus, node="algo-2").minute(0, series(CPU, "cpu0", [30, 30, 30, 30]), node="algo-1")

    found = report(profile, "BatchSize", window=2, patience=2)

    assert (found["RuleTriggered"], found["Datapoints"]) == (2, 3)
    assert list(found["Details"]) == ["algo-2", "last_timestamp"]
    assert list(found["Details"]["algo-2"]) == ["cpu", "gpu0", "gpu0_memory"]
    assert found["Details"]["algo-2"]["cpu"]["p50"] == 30
    assert found["Details"]["last_timestamp"] == FIRST_US


def test_memory_whiskers_use_the_quartile_of_utilisation() -> None:
    cpu = series(CPU, "cpu0", [10.0] * 5)
    used, memory = [90, 91, 92, 93, 94], [50, 51, 52, 53, 54]
    profile = Profile().minute(0, cpu + series(GPU, "gpu0", used) + series(MEMORY, "gpu0", memory)).minutes(1)

    found = report(profile, "BatchSize", window=2, patience=2, gpu_threshold_p95=100)

    spread = 53 - 91
    box = found["Details"]["algo-1"]["gpu0_memory"]
    assert (box["upper"], box["lower"]) == (53 + 1.5 * spread, 51 - 1.5 * spread)


@pytest.mark.parametrize(("times", "triggered"), [((1, 2), 1), ((2, 1), 0)])
def test_newest_cpu_samples_are_the_last_lines(times: tuple[float, float], triggered: int) -> None:
    cpu = [(CPU, "cpu0", at, 90.0 if at == 1 else 10.0) for at in times]
    profile = Profile().minute(0, cpu + series(GPU, "gpu0", [10.0] * 2) + series(MEMORY, "gpu0", [10.0] * 2))

    assert report(profile.minutes(1), "BatchSize", window=1, patience=1)["RuleTriggered"] == triggered


@pytest.mark.parametrize(("rule", "parameter"), [("BatchSize", "window"), ("BatchSize", "patience")])
@pytest.mark.parametrize(("count", "triggered"), [(4, 0), (5, 0), (6, 1)])
def test_batch_size_is_judged_above_window_and_patience_only(
    rule: str, parameter: str, count: int, triggered: int
) -> None:
    samples = [sample for of in (CPU, GPU, MEMORY) for sample in series(of, "x0", [10.0] * count)]
    settings = {"window": 1, "patience": 1} | {parameter: 5}

    assert report(Profile().minute(0, samples).minutes(1), rule, **settings)["RuleTriggered"] == triggered


def increases(values: list[float], **parameters: Any) -> dict[str, Any]:
    profile = Profile().minute(0, series(MEMORY, "gpu0", values, every=0.1)).minutes(1)
    return report(profile, "GPUMemoryIncrease", **{"patience": 0, "window": 4} | parameters)


def expected_violations(values: list[float], increase: float, patience: int, window: int) -> int:
    """Judge value after value, as the documentation of the defect says: [-w:] against [-w - 1:-2]."""
    count = 0
    for size in range(window + 2, len(values) + 1):
        newer, older = values[:size][-window:], values[:size][-window - 1 : -2]
        count += bool(older and size > patience and np.mean(newer) - np.mean(older) > increase)
    return count


@given(
    st.lists(st.integers(0, 100).map(float), min_size=1, max_size=60),
    st.sampled_from([-1, 0, 5, 12.5]),
    st.integers(0, 30),
    st.integers(1, 12),
)
def test_every_memory_value_is_judged_on_its_own_past(
    values: list[float], increase: float, patience: int, window: int
) -> None:
    found = increases(values, increase=increase, patience=patience, window=window)

    assert found["Violations"] == expected_violations(values, increase, patience, window)
    assert found["Datapoints"] == len(values)


@pytest.mark.parametrize(("jump", "violations"), [(24, 0), (25, 0), (26, 1)])
def test_jump_below_five_times_the_parameter_is_missed(jump: float, violations: int) -> None:
    found = increases([30.0] * 50 + [30.0 + jump] * 50, window=10)

    assert found["Violations"] == violations
    assert not violations or found["Details"]["algo-1"]["gpu0"]["increase"] == pytest.approx(jump / 5)


def test_memory_beyond_the_limit_drops_state_at_that_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(system_rules, "MAX_DATAPOINTS", 10)
    values = [0.0] * 9 + [100.0, 100.0] + [0.0] * 4

    found = increases(values, window=2, patience=0)

    assert found["Datapoints"] == 4
    # The eleventh value, at which the state is dropped, is not judged; of the four after it none increases.
    assert found["Violations"] == expected_violations(values[:10], 5, 0, 2)


def test_values_of_99_and_100_percent_are_in_no_bin() -> None:
    profile = Profile().minute(0, series(GPU, "gpu0", [0, 1.9, 2, 97, 98, 99, 100]) + series(GPU, "gpu1", [0] * 3))

    found = report(profile.minutes(1), "LoadBalancing", threshold=-1, patience=0)

    counts = found["Details"]["algo-1"]["workloads"]["gpu0"]
    assert (len(counts), counts[0], counts[1], counts[-1], sum(counts)) == (49, 2, 1, 2, 5)
    assert (found["RuleTriggered"], found["Datapoints"]) == (0, 3)


def test_more_balanced_values_than_the_limit_reset_histograms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(system_rules, "MAX_DATAPOINTS", 4)
    samples = (
        series(GPU, "gpu1", [50, 50], start=0.4)
        + series(GPU, "gpu0", [10.0] * 5)
        + series(GPU, "gpu0", [20.0] * 2, start=9)
    )
    profile = Profile().minute(0, samples).minutes(2)

    found = report(profile, "LoadBalancing")

    assert found["Datapoints"] == 2
    assert {gpu: sum(counts) for gpu, counts in found["Details"]["algo-1"]["workloads"].items()} == {"gpu0": 2}


def test_average_over_two_nodes_divides_by_names_of_both() -> None:
    profile = Profile().minutes(1)
    profile.minute(
        0, [(CPU, "cpu0", 1, 30), (CPU, "cpu1", 1, 50), (GPU, "gpu0", 1, 50), ("Algorithm", "eth", 1, 7.126)]
    )
    profile.minute(0, [(CPU, "cpu7", 1, 30), (CPU, "cpu7", 2, 90)], node="algo-2")

    found = report(profile, "OverallSystemUsage")

    assert list(found["Details"]) == ["Network", "GPU", "CPU", "CPU memory", "GPU memory", "I/O"]
    assert found["Details"]["CPU"]["algo-1"] == dict.fromkeys(("max", "p99", "p95", "p50", "min"), 26.67)
    assert found["Details"]["CPU"]["algo-2"]["p50"] == 20
    assert found["Details"]["Network"]["algo-1"]["max"] == 7.13
    assert found["Details"]["GPU memory"] == {}
    assert found["Datapoints"] == 1


def test_old_numbers_stay_after_the_limit_until_new_ones_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(system_rules, "MAX_DATAPOINTS", 3)
    profile = Profile().minutes(3)
    profile.minute(0, [(CPU, "cpu0", 1, 10), (CPU, "cpu0", 2, 20)], node="algo-1")
    profile.minute(0, [(CPU, "cpu0", 3, 5)], node="algo-2")
    profile.minute(1, [(CPU, "cpu0", 61, 70), (CPU, "cpu0", 62, 80)], node="algo-1")
    profile.minute(2, [(CPU, "cpu0", 121, 33)], node="algo-1")

    details = report(profile, "OverallSystemUsage")["Details"]["CPU"]

    assert (details["algo-1"]["max"], details["algo-2"]["max"]) == (33, 5)


def test_gpu_memory_without_utilisation_does_not_stop_the_rule() -> None:
    profile = Profile().minute(0, series(MEMORY, "gpu0", [10])).minutes(1)

    assert report(profile, "OverallSystemUsage")["Details"]["GPU memory"]["algo-1"]["max"] == math.inf


@pytest.mark.parametrize(("threshold", "fired"), [(20, 0), (0, 0), (-1, 3)])
def test_time_without_a_step_fires_a_negative_threshold_only(threshold: float, fired: int) -> None:
    found = report(Profile().minutes(3), "MaxInitializationTime", threshold=threshold)

    assert (found["RuleTriggered"], found["Violations"]) == (fired, fired)
    assert found["Details"] == {"step_num": {}}


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9).map(float)), max_size=40),
    st.dictionaries(st.tuples(st.just("n"), st.sampled_from("ab")), st.integers(0, 6)),
    st.integers(1, 7),
)
def test_stream_cut_at_resets_equals_a_check_after_every_value(
    stream: list[tuple[str, float]], sizes: dict[tuple[str, str], int], limit: int
) -> None:
    sizes = {key: min(size, limit) for key, size in sizes.items()}
    samples = []
    for name in dict.fromkeys(name for name, _ in stream):
        rows = np.array([row for row, (of, _) in enumerate(stream) if of == name])
        samples.append(SeriesSamples("n", name, np.array([stream[row][1] for row in rows]), rows))
    counts = {name: size for (_, name), size in sizes.items()}
    resets = []
    for row, (name, _) in enumerate(stream):
        counts[name] = counts.get(name, 0) + 1
        if counts[name] > limit:
            resets.append(row)
            counts = {}

    pieces = list(pieces_between_resets(samples, sizes, limit))

    edges = [-1, *resets, len(stream)]
    expected = [[row for row in range(len(stream)) if low < row <= high] for low, high in itertools.pairwise(edges)]
    assert [sorted(int(row) for part in piece for row in part.rows) for piece in pieces] == expected


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50), st.integers(1, 5))
def test_history_and_box_in_parts_equal_those_of_all_values(values: list[float], parts: int) -> None:
    history = ManagedHistory()
    for part in np.array_split(np.array(values), parts):
        history.extend(part)

    assert history.values.tolist() == values
    numbers = box(history.values)
    assert (numbers["min"], numbers["max"]) == (min(values), max(values))
    assert numbers["p50"] == pytest.approx(float(np.quantile(values, 0.5)))


def test_null_name_leaves_the_report_writable() -> None:
    profile = Profile().minute(0, series(GPU, "gpu0", [1.0] * 5)).minutes(1)
    profile.files = {name: body.replace(b'"gpu0"', b"null") for name, body in profile.files.items()}

    reports = replayed(profile).reports

    assert list(json.loads(json.dumps(reports))["LoadBalancing"]["Details"]["algo-1"]["workloads"]) == ["null"]
