"""What the rules over framework events compute."""

import re
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest

from tests.defects.readings import NEWEST, Both, both
from tests.support.profile_folder import EVAL, START, TRAIN, ProfileFolder, event, step, ticks
from trainguard.core.records import Status

SECOND_US = 1_000_000
MEASURED = {"gpu0": 90.0, "cpu0": 30.0}


@pytest.mark.defect("time outside of steps")
@pytest.mark.parametrize(("modes", "half"), [((TRAIN,), 75), ((TRAIN, EVAL), -5 * 30)])
def test_compatible_finds_at_most_half_of_time_outside_steps(
    profile: ProfileFolder, modes: tuple[str, ...], half: int
) -> None:
    profile.system(ticks(6), MEASURED)
    profile.timeline(step(number, 10.0 * number + 2.0, 5.0, mode=mode) for number in range(30) for mode in modes)
    read = both(profile)
    in_steps, others = 0, 0
    for number, _ in product(range(30), modes):
        in_steps += 5
        others = 10 * number + 5 - in_steps - others
    assert others == half
    shown = read.compatible.details("OverallFrameworkMetrics")["phase"]
    shares = {**dict.fromkeys(modes, 30 * 5), "others": others}
    assert shown == pytest.approx({phase: 100.0 * share / (in_steps + others) for phase, share in shares.items()})
    assert read.documented.details("OverallFrameworkMetrics", "algo-1")["phase_time"] == {
        **dict.fromkeys(modes, 30 * 5 * SECOND_US),
        "others": 29 * 5 * SECOND_US,
    }


@pytest.mark.defect("time outside of steps")
def test_compatible_outside_time_goes_negative_on_overlap(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(6), MEASURED)
    for pid in (100, 101, 102):
        profile.timeline((step(number, 10.0 * number + 2.0, 5.0, pid=pid) for number in range(29)), pid=pid)
    read = both(profile)
    in_steps, others = 0, 0
    for minute, _ in product(range(5), range(3)):
        for number in range(6 * minute, min(6 * minute + 6, 29)):
            in_steps += 5
            others = 10 * number + 5 - in_steps - others
    assert (in_steps, others) == (435, -315)
    shown = read.compatible.details("OverallFrameworkMetrics")["phase"]["others"]
    assert shown == pytest.approx(100.0 * others / (in_steps + others))
    times = read.documented.details("OverallFrameworkMetrics", "algo-1")["phase_time"]
    assert times == {TRAIN: 3 * 29 * 5 * SECOND_US, "others": 3 * 28 * 5 * SECOND_US}


@pytest.mark.defect("labels of CPU and GPU")
def test_compatible_swaps_cpu_and_gpu_labels(
    profile: ProfileFolder,
) -> None:
    times = ticks(10)
    profile.system(times, {"gpu0": [50.0 if index % 4 == 0 else 5.0 for index in range(times.size)], "cpu0": 99.0})
    on_cpu = [event("cpu_functions", "decode", 60.0 * minute, 45.0) for minute in range(10)]
    on_gpu = [event("gpu_functions-dev:0", "conv", 60.0 * minute + 45.0, 14.0) for minute in range(10)]
    profile.timeline(on_cpu + on_gpu)
    read = both(profile, {"CPUBottleneck": {"threshold": 30, "patience": 0}})
    bottlenecks = [second for second in range(1, 60, 5) if second not in {1, 21, 41}]
    weights = {
        "cpu": 45 * sum(second < 45 for second in bottlenecks),
        "gpu": 14 * sum(second > 45 for second in bottlenecks),
    }
    assert weights == {"cpu": 45 * 6, "gpu": 14 * 3}
    cpu_percent = 100.0 * weights["cpu"] / sum(weights.values())
    assert read.compatible.details("CPUBottleneck")["ratio"] == pytest.approx(
        {"cpu_functions": 100.0 - cpu_percent, "gpu_functions-dev:0": cpu_percent}
    )
    classes = read.documented.details("CPUBottleneck", "algo-1")["framework"]["classes"]
    assert {row["class"]: row["with_bottlenecks_percent"] for row in classes} == pytest.approx(
        {"CPU operators": 100.0 * 45 / 60, "GPU operators": 100.0 * 14 / 60}
    )


@pytest.mark.defect("a slow start")
def test_compatible_misses_a_first_step_after_24_minutes(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(27, every_s=20.0), MEASURED)
    profile.timeline(step(number, 24.0 * 60.0 + number, 0.5) for number in range(120))
    read = both(profile)
    assert read.compatible.counts("MaxInitializationTime")[:2] == (0, 0)
    assert read.documented.times_fired("MaxInitializationTime") == 1
    assert read.documented.details("MaxInitializationTime")["initialization_s"] == 24.0 * 60.0 - 1.0


@pytest.mark.defect("outliers of a healthy job")
def test_compatible_adds_outliers_repeatedly(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(10), MEASURED)
    profile.timeline(step(number, 1.2 * number + 0.1, 1.1 if number % 10 == 0 else 1.0) for number in range(500))
    read = both(profile, {"StepOutlier": {"stddev": 1, "n_outliers": 10}})
    violating = [5 * window for window in range(1, 10) if 50 * window > 100 and 5 * window > 10]
    assert violating == [15, 20, 25, 30, 35, 40, 45]
    assert read.compatible.counts("StepOutlier") == (len(violating), sum(violating), 9 * 50)
    assert read.compatible.details("StepOutlier")["step_details"]["algo-1-100"]["number_of_outliers"] == 45
    series = read.documented.details("StepOutlier", "algo-1")["series"][0]
    assert (series["number_of_outliers"], series["steps"]) == (40, 400 - NEWEST)
    assert series["plausible_outliers"] > 40
    assert read.documented.status("StepOutlier") is Status.OK


@pytest.mark.defect("two modes of a process")
def test_compatible_shows_the_mode_without_outliers(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(10), MEASURED)
    training = [step(number, float(number), 0.95 if number % 15 == 14 else 0.3) for number in range(250)]
    evaluating = [step(number, 250.0 + number, 0.3, mode=EVAL) for number in range(250)]
    profile.timeline(training + evaluating)
    read = both(profile, {"StepOutlier": {"stddev": 3, "n_outliers": 5}})
    assert read.compatible.counts("StepOutlier")[0] > 0
    shown = read.compatible.details("StepOutlier")["step_details"]["algo-1-100"]
    assert (shown["phase"], shown["number_of_outliers"]) == (EVAL, 0)
    series = read.documented.details("StepOutlier", "algo-1")["series"]
    assert [(each["mode"], each["number_of_outliers"]) for each in series] == [(TRAIN, 10), (EVAL, 0)]
    assert read.documented.worst("StepOutlier") == "algo-1/algo-1-100 TRAIN"


@pytest.mark.defect("steps of one length")
def test_compatible_has_an_empty_histogram_for_equal_steps(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(10), MEASURED)
    profile.timeline(step(number, float(number), 0.5) for number in range(500))
    read = both(profile)
    assert sum(read.compatible.details("StepOutlier")["step_details"]["algo-1-100"]["probs"]) == 0
    series = read.documented.details("StepOutlier", "algo-1")["series"][0]
    assert sum(series["histogram"]["counts"]) == series["steps"] == 400 - NEWEST


@pytest.mark.defect("steps of one number")
def test_compatible_explains_slow_steps_by_another_mode(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(10), MEASURED)
    events = []
    for minute in range(10):
        slow = 50 * minute + 49
        events += [step(slow, 60.0 * minute + 1.0, 1.0, mode=EVAL)]
        events += [event("cpu_functions", "validate", 60.0 * minute + 1.1, 0.8)]
        for number in range(50):
            lasting = 3.0 if number == 49 else 0.5
            events += [step(50 * minute + number, 60.0 * minute + 5.0 + number, lasting)]
        events += [event("cpu_functions", "decode", 60.0 * minute + 54.5, 2.0)]
    profile.timeline(events)
    read = both(profile, {"StepOutlier": {"stddev": 3, "n_outliers": 5}})
    violating = [window for window in range(1, 10) if window > 5]
    assert read.compatible.counts("StepOutlier")[:2] == (len(violating), sum(violating))
    assert read.compatible.details("StepOutlier")["CPU_total"] == {"validate": len(violating) * 800_000}
    explained = read.documented.details("StepOutlier", "algo-1")["framework"]["events"]
    assert explained == [
        {"event": "decode", "slow_steps_percent": pytest.approx(100.0 * 2.0 / 3.0), "ordinary_steps_percent": 0.0}
    ]


@pytest.mark.defect("a mode")
def test_compatible_ignores_the_chosen_mode(profile: ProfileFolder) -> None:
    profile.system(ticks(10), MEASURED)
    training = [step(number, 1.0 * number, 0.9) for number in range(250)]
    evaluating = [step(number, 250.0 + number, 0.9, mode=EVAL) for number in range(250)]
    profile.timeline(training + evaluating)
    read = both(profile, {"StepOutlier": {"mode": EVAL}})
    assert read.compatible.counts("StepOutlier")[2] >= 500
    assert read.documented.datapoints("StepOutlier") == 250 - 100
    assert [each["mode"] for each in read.documented.details("StepOutlier", "algo-1")["series"]] == [EVAL]


def loading(
    folder: ProfileFolder,
    *,
    loaders: int,
    cores: int,
    minutes: int = 4,
    node: str = "algo-1",
    pids: int = 0,
    odd: int = 0,
) -> None:
    """Write a node whose loader processes are all at work in every second, beside a main process that fetches.

    ``odd`` loaders more are at work in odd seconds.
    """
    folder.system(ticks(minutes), {"gpu0": 90.0, **{f"cpu{core}": 30.0 for core in range(cores)}}, node=node)
    events = []
    for second in range(2, 60 * minutes - 2):
        for loader in range(loaders + odd * (second % 2)):
            worker = {"pid": pids + 200 + loader, "worker_id": loader}
            events.append(event("DataLoaderWorker", "DataLoaderWorker", second + 0.1, 0.8, **worker))
        events.append(event("DataLoaderIter", "DataLoaderIter::GetNext", second + 0.3, 0.01, pid=pids + 100))
        events.append(step(second, second + 0.35, 0.5, pid=pids + 100))
    folder.timeline(events, node=node, pid=pids + 100)


@pytest.mark.defect("a loading main process")
def test_compatible_counts_the_main_process_as_a_loader(
    profile: ProfileFolder,
) -> None:
    loading(profile, loaders=3, cores=4)
    read = both(profile, {"Dataloader": {"min_threshold": 100}})
    assert read.compatible.details("Dataloader")["dataloaders"] == 3 + 1
    assert read.compatible.counts("Dataloader")[:2] == (0, 0)
    assert read.documented.details("Dataloader")["algo-1"]["dataloaders"] == 3
    assert read.documented.times_fired("Dataloader") == 0, "the GPU is 90 % busy: too few loaders cost nothing"


@pytest.mark.defect("loading times")
def test_compatible_mixes_worker_lifetimes_with_fetches(
    profile: ProfileFolder,
) -> None:
    loading(profile, loaders=3, cores=4)
    read = both(profile)
    assert read.compatible.details("Dataloader")["dataloading_time"]["p50"] == pytest.approx(0.8)
    assert read.documented.details("Dataloader")["algo-1"]["dataloading_time"]["p50"] == pytest.approx(0.01, rel=0.05)
    assert read.documented.details("Dataloader")["algo-1"]["worker_time"]["p50"] == pytest.approx(0.8, rel=0.05)


@pytest.mark.defect("loaders of two nodes")
def test_compatible_pools_loaders_of_two_nodes(
    profile: ProfileFolder,
) -> None:
    for number, node in enumerate(("algo-1", "algo-2")):
        loading(profile, loaders=3, cores=4, node=node, pids=1_000 * number)
    read = both(profile, {"Dataloader": {"max_threshold": 150}})
    windows = read.compatible.replayed.windows
    assert read.compatible.details("Dataloader")["dataloaders"] == 2 * (3 + 1)
    assert read.compatible.counts("Dataloader")[:2] == (1, windows)
    assert {each["dataloaders"] for each in read.documented.details("Dataloader").values()} == {3}
    assert read.documented.status("Dataloader") is Status.OK


@pytest.mark.defect("a median between two numbers")
def test_compatible_truncates_a_median_between_two_loader_counts(
    profile: ProfileFolder,
) -> None:
    loading(profile, loaders=3, cores=4, odd=1)
    read = both(profile)
    median_with_main = (4 + 5) / 2
    assert read.compatible.details("Dataloader")["dataloaders"] == int(median_with_main)
    assert read.documented.details("Dataloader")["algo-1"]["dataloaders"] == (3 + 4) / 2


@pytest.mark.defect("loaders of TensorFlow")
def test_only_documented_reports_tensorflow_without_prefetch(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(4), MEASURED)
    profile.timeline(
        [event("Dataset", "dataset::GetNext", float(second), 0.02) for second in range(1, 238)], kind="model_timeline"
    )
    read = both(profile)
    assert read.compatible.counts("Dataloader") == (0, 0, 0)
    assert "dataloading_time" not in read.compatible.details("Dataloader")
    assert read.documented.status("Dataloader") is Status.NOT_APPLICABLE
    assert "does not prefetch" in read.documented.reason("Dataloader")
    assert read.documented.details("Dataloader")["algo-1"]["tensorflow_time"]["count"] == 237


@pytest.mark.defect("a job without framework metrics")
def test_documented_says_it_lacks_framework_metrics(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(24, every_s=20.0), MEASURED)
    read = both(profile, {"MaxInitializationTime": {"threshold": 5}})
    assert read.compatible.counts("MaxInitializationTime") == (0, 0, 0)
    for rule in ("MaxInitializationTime", "StepOutlier", "Dataloader", "OverallFrameworkMetrics"):
        assert read.documented.status(rule) is Status.NOT_APPLICABLE, rule
        assert "framework metrics" in read.documented.reason(rule)


@pytest.mark.defect("the first step")
def test_compatible_takes_the_first_step_it_meets(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(4), MEASURED)
    profile.timeline([step(1, 45.0, 5.0), step(2, 120.0, 30.0)], pid=100)
    profile.timeline(
        [step(1, 10.0, 10.0, pid=200), step(2, 50.0, 5.0, pid=200), step(3, 160.0, 20.0, pid=200)], pid=200
    )
    read = both(profile)
    met = read.compatible.details("MaxInitializationTime")["step_num"]
    assert (met["first"] / SECOND_US - START, met["last"] / SECOND_US - START) == (45.0, 160.0)
    assert read.documented.details("MaxInitializationTime")["initialization_s"] == 10.0 - 1.0


def without_arguments(text: str) -> str:
    return re.sub(r', "args": \{"pid": 100, "step_num": "\d+"\}', "", text)


@pytest.mark.defect("steps without number")
def test_both_readings_count_steps_without_a_number(
    profile: ProfileFolder,
) -> None:
    steps = [step(number, 1.0 * number + 0.05, 0.9) for number in range(300)]
    read, plain = twice(profile, steps, without_arguments)
    for rule in ("StepOutlier", "MaxInitializationTime"):
        assert read.compatible.counts(rule) == plain.compatible.counts(rule)
    assert read.compatible.details("StepOutlier")["step_details"]["algo-1-100"]["step_stats"]["max"] == pytest.approx(
        0.9
    )
    assert read.documented.details("StepOutlier", "algo-1") == plain.documented.details("StepOutlier", "algo-1")
    assert read.documented.counters("algo-1", "framework") == plain.documented.counters("algo-1", "framework")


def twice(folder: ProfileFolder, events: Sequence[dict[str, Any]], edit: Any) -> tuple[Both, Both]:
    """Read a profile as it is, and with its traces edited: the edited one first."""
    folder.system(ticks(6), MEASURED)
    folder.timeline(events)
    plain = both(folder)
    folder.change("pythontimeline", edit)
    return both(folder), plain


@pytest.mark.defect("steps of no length")
def test_both_readings_survive_steps_of_zero_length(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(6), MEASURED)
    profile.timeline(instants(range(300)))
    read = both(profile)
    assert read.compatible.details("StepOutlier")["step_details"]["algo-1-100"]["step_stats"]["max"] == 0.0
    assert read.compatible.counts("StepOutlier")[0] == 0
    assert read.documented.status("StepOutlier") is Status.OK
    assert read.documented.details("OverallFrameworkMetrics", "algo-1")["phase"] == {"others": 100.0}


def instants(numbers: Iterable[int]) -> list[dict[str, Any]]:
    """Return steps that end when they begin."""
    return [step(number, number + 0.5, 0.0) for number in numbers]
