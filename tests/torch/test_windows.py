"""Profiles of some steps: kernel traces, operators, functions; the training goes on whatever happens to them."""

import gzip
import json
import pstats
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.torch.conftest import Record
from trainguard.formats.profile.columns import FrameworkEvents, read_framework_object
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.readers.reading import read_any
from trainguard_collector.recorder.profiles import (
    DataloaderProfilingConfig,
    DetailedProfilingConfig,
    FrameworkProfile,
    KernelProfile,
    PythonProfiler,
    PythonProfilingConfig,
    StepRange,
    cProfileTimer,
)
from trainguard_collector.recorder.recorder import Recorder

pytestmark = pytest.mark.torch
Send = Callable[[], Path]


def train(recorder: Recorder, steps: int) -> None:
    model = nn.Linear(32, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in recorder.wrap([torch.randn(4, 32)] * steps):
        with recorder.step():
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
    recorder.close()


def events_of(job: Path) -> FrameworkEvents:
    (path,) = (job / "profiler-output/framework/pevents").rglob("*.json")
    return read_framework_object(path.name, path.read_bytes(), process="node-1-7", end_us=int(path.name[:16]))


def status_of(job: Path) -> dict[str, object]:
    (path,) = (job / "collector").glob("*.recorder.json")
    found: dict[str, object] = json.loads(path.read_bytes())
    return found


def test_kernel_profile_traces_its_steps_and_compares_overhead(record: Record, send: Send) -> None:
    recorder = record(kernels=KernelProfile(StepRange(20, 3)))
    train(recorder, 60)
    assert recorder.faults.newest == {}
    job = send()
    (trace,) = (job / "kernel-traces/step-20").glob("node-1.*.pt.trace.json.gz")
    marks = re.findall(rb'"name": "(ProfilerStep#[0-9]+)"', gzip.decompress(trace.read_bytes()))
    assert sorted(set(marks)) == [b"ProfilerStep#20", b"ProfilerStep#21", b"ProfilerStep#22"]
    assert len(rank_profile(read_any(trace.name, lambda: trace.open("rb"))).steps) == 3
    note = status_of(job)["kernel_profile"]
    assert isinstance(note, dict)
    assert note["steps_compared"] == [19, 35]
    assert note["median_before_ms"] > 0.0
    assert note["median_after_ms"] > 0.0


def test_too_few_traced_steps_compare_no_overhead(record: Record, send: Send) -> None:
    train(record(kernels=KernelProfile(StepRange(2, 2))), 6)
    note = status_of(send())["kernel_profile"]
    assert isinstance(note, dict)
    assert note["compared"] == "fewer than 10 steps before or after the window"
    assert "median_after_ms" not in note


def test_run_that_ends_inside_the_window_still_has_its_trace(record: Record, send: Send) -> None:
    train(record(kernels=KernelProfile(StepRange(3, 50))), 6)
    assert len(list((send() / "kernel-traces/step-3").glob("*.gz"))) == 1


def test_profiler_of_the_script_is_left_alone_by_a_window(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = record(kernels=KernelProfile(StepRange(2, 2)))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        train(recorder, 6)
    assert any("addmm" in each.key for each in profile.key_averages())
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("a profiler of torch is running already; these steps are not profiled")


def test_managed_defaults_record_operators_waits_and_functions(record: Record, send: Send) -> None:
    recorder = record(profile=FrameworkProfile())
    train(recorder, 14)
    assert recorder.faults.newest == {}
    job = send()
    events = events_of(job)
    phases = Counter(events.table.phases[row] for row in events.table.phase_index.tolist())
    assert phases["Step:ModeKeys.TRAIN"] == 14
    assert phases["DataLoaderIter"] == 1
    assert phases["cpu_functions"] > 3
    assert "aten::addmm" in events.table.names
    step = next(batch for batch in events.steps if batch.mode.endswith("TRAIN"))
    rows = events.table.rows_in(["cpu_functions"])
    slack_us = 2_000
    assert int(events.table.starts_us[rows].min()) >= int(step.starts_us[5]) - slack_us
    assert int(events.table.ends_us[rows].max()) <= int(step.starts_us[5] + step.durations_us[5]) + slack_us
    files = sorted((job / "profiler-output/framework/pytorch/cprofile/total_time").rglob("python_stats"))
    assert [path.parent.name.split("-")[1] for path in files] == ["10", "11", "9"]
    assert any("backward" in name for _, _, name in pstats.Stats(str(files[0])).stats)  # type: ignore[attr-defined]


def test_single_configuration_records_nothing_else(record: Record, send: Send) -> None:
    train(record(profile=FrameworkProfile(dataloader_profiling_config=DataloaderProfilingConfig(2, 3))), 8)
    job = send()
    events = events_of(job)
    phases = Counter(events.table.phases[row] for row in events.table.phase_index.tolist())
    assert phases == {"DataLoaderIterInitialize": 1, "DataLoaderIter": 3, "Step:ModeKeys.TRAIN": 8}
    assert not (job / "profiler-output/framework/pytorch").exists()


def test_pyinstrument_with_all_timers_writes_a_file_per_step(record: Record, send: Send) -> None:
    config = PythonProfilingConfig(1, 2, python_profiler=PythonProfiler.PYINSTRUMENT)
    train(record(profile=FrameworkProfile(python_profiling_config=config)), 4)
    every = PythonProfilingConfig(1, 3, cprofile_timer=cProfileTimer.DEFAULT)
    train(record(profile=FrameworkProfile(python_profiling_config=every)), 5)
    folder = send() / "profiler-output/framework/pytorch"
    assert len(list(folder.glob("pyinstrument/*/*/python_stats.html"))) == 2
    assert sorted(path.name for path in (folder / "cprofile").iterdir()) == ["cpu_time", "off_cpu_time", "total_time"]


def test_disjoint_detailed_and_kernel_profiles_are_both_written(record: Record, send: Send) -> None:
    detailed = FrameworkProfile(detailed_profiling_config=DetailedProfilingConfig(2, 1))
    recorder = record(profile=detailed, kernels=KernelProfile(StepRange(6, 2)))
    train(recorder, 12)
    assert recorder.faults.newest == {}
    job = send()
    assert len(list((job / "kernel-traces").rglob("*.gz"))) == 1
    assert "cpu_functions" in events_of(job).table.phases
