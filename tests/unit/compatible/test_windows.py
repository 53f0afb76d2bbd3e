import json
import re
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

from tests.unit.compatible.profiles import (
    FIRST_S,
    FIRST_US,
    STEP,
    Profile,
    event,
    line,
    origin,
    phase,
    replayed,
    report,
)
from trainguard.core.errors import EmptyProfileError, RuleConfigError
from trainguard.managed.replay import MAX_WINDOWS, replay
from trainguard.managed.source import Parser, catalogue
from trainguard.managed.system_rules import ManagedLowGPUUtilization

MEMORY = "MemoryUsedPercent"
A = TypeVar("A")
B = TypeVar("B")


def ram(at: float, value: float) -> tuple[str, str, float, float]:
    return ("Platform", MEMORY, at, value)


def step(at: float, number: int, seconds: float = 0.4) -> dict[str, object]:
    return event(STEP, 1, at, seconds, step_num=str(number), pid=905)


def test_last_of_three_minutes_is_lost_but_its_first_instant() -> None:
    profile = Profile().minute(0, [ram(12.5, 10)]).minute(1, [ram(70, 20)])
    profile.minute(2, [ram(120, 30), ram(120.001, 40)])

    result = replayed(profile)

    assert (result.windows, result.first_us, result.through_us) == (2, FIRST_US, FIRST_US + 120_000_000)
    times = result.reports["MaxInitializationTime"]["Details"]
    assert (times["job_start"], times["job_end"]) == (FIRST_S + 12.5, FIRST_S + 120)


def test_sample_on_an_edge_is_in_two_windows_and_doubled() -> None:
    edge = [ram(60, 23), ("CPUUtilization", "cpu0", 60, 50), ("CPUUtilization", "cpu0", 61, 50)]
    profile = Profile().minute(0, [ram(30, 10)]).minute(1, [*edge, ram(90, 11)]).minutes(3)

    found = report(profile, "OverallSystemUsage")

    assert found["Datapoints"] == 2
    memory = found["Details"]["CPU memory"]["algo-1"]
    assert (memory["max"], memory["min"], memory["p50"]) == (46, 10, 11)


def test_step_across_an_edge_counts_twice() -> None:
    profile = Profile().minutes(3)
    profile.trace(179, [origin(), phase(1, STEP), step(10, 0), step(59.9, 1), step(130, 2)])

    assert report(profile, "MaxInitializationTime")["Datapoints"] == 4


def test_system_metrics_end_with_early_framework_files() -> None:
    profile = Profile().minutes(5).trace(61, [origin(), phase(1, STEP), step(10, 0)])

    assert replayed(profile).windows == 2


def test_windows_begin_at_an_earlier_framework_file() -> None:
    profile = Profile().minutes(2).trace(-5.5, [origin()]).trace(300, [origin()])

    result = replayed(profile)

    assert (result.first_us, result.windows) == (FIRST_US - 5_500_000, 3)


@pytest.mark.parametrize(("interval_us", "windows"), [(60_000_000, 4), (90_000_000, 3), ("240000000", 1), (1e9, 1)])
def test_windows_are_as_long_as_the_scan_interval(interval_us: object, windows: int) -> None:
    settings = {"ProfilerReport": {"scan_interval_us": interval_us}}

    assert replayed(Profile().minutes(4), settings).windows == windows


def test_one_minute_has_no_complete_window_and_empty_reports() -> None:
    reports = replayed(Profile().minute(0, [ram(1, 10)])).reports

    assert list(reports) == [
        "CPUBottleneck",
        "IOBottleneck",
        "LowGPUUtilization",
        "StepOutlier",
        "GPUMemoryIncrease",
        "BatchSize",
        "MaxInitializationTime",
        "LoadBalancing",
        "OverallSystemUsage",
        "Dataloader",
        "OverallFrameworkMetrics",
    ]
    assert {tuple(found) for found in reports.values()} == {
        ("RuleTriggered", "Violations", "Details", "Datapoints", "RuleParameters")
    }
    assert {found["Datapoints"] for found in reports.values()} == {0}


def test_bad_and_blank_lines_are_counted_and_lose_no_others() -> None:
    profile = Profile().minutes(2)
    name = profile.names()[0]
    good = [line("Platform", MEMORY, at, at) for at in (10, 20, 30)]
    bad = ["", "{broken", '{"Name":"x"}', good[0].replace("10", '"10"'), good[0][:-10]]
    profile.files[name] = "\n".join([good[0], *bad, good[1], "", good[2]]).encode()

    result = replayed(profile)

    assert result.skipped["bad_lines"] == 6
    memory = result.reports["OverallSystemUsage"]["Details"]["CPU memory"]["algo-1"]
    assert (memory["min"], memory["p50"], memory["max"]) == (10, 20, 30)


def test_blank_lines_alone_are_counted() -> None:
    profile = Profile().minutes(1)
    profile.files[profile.names()[0]] = b"\n\n" + line("Platform", MEMORY, 1, 5).encode()

    assert replayed(profile).skipped["bad_lines"] == 2


def test_names_are_ignored_or_accepted_as_in_the_original() -> None:
    profile = Profile().minutes(2)
    minute = profile.names()[0].removesuffix(".algo-1.json")
    text = line("Platform", MEMORY, 5, 50).encode()
    profile.files[f"{minute}.algo-2.json.tmp"] = text
    profile.files[f"{minute}.my-host.json"] = text.replace(b"50", b"70")

    result = replayed(profile)

    assert result.reports["OverallSystemUsage"]["Details"]["CPU memory"]["algo-1"]["max"] == 50
    assert result.skipped["other_files"] == 1


@pytest.mark.parametrize(
    "names", [[], ["framework/pevents/2023111422/1700000100000000_1-algo-1_pythontimeline.json"], ["system/x.json"]]
)
def test_missing_system_files_error_lists_what_is_there(names: list[str]) -> None:
    profile = Profile()
    profile.files = dict.fromkeys(names, b"[]")

    with pytest.raises(EmptyProfileError, match=f"{len(names)} files"):
        replay(profile.names(), profile.read)


def test_other_file_kinds_move_the_clock_as_in_the_original() -> None:
    folder = "framework/pevents/2023111422"
    names = [
        "system/incremental/2023111422/1700000040.algo-1.json",
        "system/incremental/2023111422/1700000400.algo-1.json",
        f"{folder}/1700000300000000_1-algo-1_pythontimeline.json",
        f"{folder}/1700000360000000_1-algo-1_mystery.json",
        f"{folder}/late_1-algo-1_pythontimeline.json",
        "framework/pytorch/pyinstrument/algo-1/x/python_stats.json",
    ]

    found = catalogue(names)

    assert found.latest_us == 1_700_000_360_000_000
    assert [file.name for file in found.framework] == [names[2]]
    assert found.skipped == {"framework_files_without_parser": 2, "framework_files_without_time": 1}


def test_tensorflow_metadata_gives_the_times_of_its_trace() -> None:
    folder = "framework/tensorflow/detailed_profiling/2023111422/000000009"
    trace = f"{folder}/plugins/profile/run/host.trace.json.gz"
    system = "system/incremental/2023111422/1700000040.algo-1.json"

    [with_times] = catalogue([system, trace, f"{folder}/1-algo-1_1700000041000000_1700000050000000.metadata"]).framework
    [without] = catalogue([system, trace]).framework

    assert with_times.parser is Parser.TENSORFLOW
    assert (with_times.time_us, with_times.origin_us) == (1_700_000_050_000_000, 1_700_000_041_000_000)
    assert (without.time_us, without.origin_us) == (0, 0)


def test_worker_map_has_bounded_batches_and_the_same_reports() -> None:
    profile = Profile().minutes(100)
    for number in range(100):
        profile.minute(number, [ram(60 * number + 5, number)])
    batches = []

    def batched_map(function: Callable[[A], B], items: Iterable[A]) -> list[B]:
        taken = list(items)
        batches.append(len(taken))
        return [function(item) for item in taken]

    started: list[int] = []
    replayed_ahead = replay(
        profile.names(), profile.read, file_map=batched_map, progress=lambda *_: started.append(len(batches))
    )

    assert replayed_ahead.reports == replay(profile.names(), profile.read).reports
    assert (max(batches), started[0], started[-1]) == (16, 2, 7)


def test_given_progress_when_replayed_then_every_window_is_told() -> None:
    told: list[tuple[int, int]] = []

    profile = Profile().minutes(3)
    replay(profile.names(), profile.read, progress=lambda done, of: told.append((done, of)))

    assert told == [(1, 3), (2, 3), (3, 3)]


def test_reports_of_whole_numbers_are_those_of_floats() -> None:
    samples = [("GPUUtilization", "gpu0", at / 2, 25.0) for at in range(24, 240)]
    floats = replayed(Profile().minute(0, samples).minutes(2), {"LowGPUUtilization": {"patience": 10, "window": 20}})
    ints = Profile().minute(0, samples).minutes(2)
    ints.files = {name: body.replace(b"25.0", b"25") for name, body in ints.files.items()}

    whole = replayed(ints, {"LowGPUUtilization": {"patience": 10, "window": 20}})

    assert whole.reports["LowGPUUtilization"]["RuleTriggered"] == 2
    assert json.dumps(whole.reports) == json.dumps(floats.reports)


@pytest.mark.parametrize(
    "name",
    [
        "system/incremental/2023111422/0000000001.algo-1.json",
        "framework/pevents/2023111422/5_1-algo-1_pythontimeline.json",
    ],
)
def test_windows_of_a_name_of_another_century_are_refused(name: str) -> None:
    profile = Profile().minutes(3).trace(170, [origin()])
    profile.files[name] = b"[]"

    with pytest.raises(RuleConfigError, match=r"scan_interval_us.*1700000\d{3} s apart"):
        replay(profile.names(), profile.read)


@pytest.mark.parametrize(("over", "refused"), [(0, False), (1, True)])
def test_scan_interval_making_over_a_million_windows_is_refused(
    over: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainguard.managed.replay.MAX_WINDOWS", 180)
    assert MAX_WINDOWS == 1_000_000
    settings = {"ProfilerReport": {"scan_interval_us": 1_000_000 - over}}

    if refused:
        with pytest.raises(RuleConfigError, match="expected at least 1000000"):
            replayed(Profile().minutes(3), settings)
    else:
        assert replayed(Profile().minutes(3), settings).windows == 180


@pytest.mark.parametrize("step", ["observe", "finish"])
def test_raising_rule_leaves_the_other_reports_unchanged(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = Profile().minute(0, [ram(5, 10), ram(65, 20)]).minutes(3)
    expected = replay(profile.names(), profile.read).reports

    def fail(*_: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(ManagedLowGPUUtilization, step, fail)
    result = replayed(profile)

    assert list(result.failed) == ["LowGPUUtilization"]
    fault = result.failed["LowGPUUtilization"]
    assert re.fullmatch(r"ZeroDivisionError in compatible/test_windows\.py:\d+: by nothing", fault)
    assert result.reports == {rule: of for rule, of in expected.items() if rule != "LowGPUUtilization"}


@pytest.mark.filterwarnings("error")
def test_numbers_near_the_largest_fail_no_rule_and_warn_nobody() -> None:
    dimensions = ("CPUUtilization", "GPUUtilization", "GPUMemoryUtilization", "I/OWaitPercentage", "Algorithm")
    samples = [(of, f"x{at % 3}", at / 4, 1.7e308) for at in range(4, 400) for of in (*dimensions, MEMORY)]
    steps = [event(STEP, 1, 1 + at / 4, 0.2, step_num=at) | {"dur": 1.7e308} for at in range(200)]
    steps += [event("DataLoaderIter", 2, 1, 1) | {"ts": at, "dur": 1.7e308} for at in (-1e308, 0)]
    steps += [event("DataLoaderIter", 2, 1, 1, pid=1)]
    profile = Profile().minute(0, samples).minutes(4)
    profile.trace(90, [origin(), phase(1, STEP), phase(2, "DataLoaderIter"), *steps])

    settings = {"StepOutlier": {"stddev": -1, "n_outliers": 0}, "GPUMemoryIncrease": {"patience": 1, "window": 5}}
    assert replayed(profile, settings).failed == {}
