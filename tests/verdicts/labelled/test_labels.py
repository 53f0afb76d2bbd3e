"""The labelled jobs are what their labels say, and are written as the managed service writes them."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.verdicts.labelled.activity import NodeCounters, node_counters
from tests.verdicts.labelled.catalogue.everything import JOBS, resampled
from tests.verdicts.labelled.catalogue.stock import ordinary
from tests.verdicts.labelled.description import Flaws, Growth, Job, Load, Piece, Steps
from tests.verdicts.labelled.machines import G5_XLARGE, TWO_GPUS
from tests.verdicts.labelled.profile_files import START, write_job
from tests.verdicts.labelled.truth import KINDS, Fault

FULL_PACE = 93.0
SINGLE = [job for job in JOBS if job.faults]


def _small(**described: object) -> Job:
    job = Job(
        name="small",
        group="test",
        about="A small job.",
        machine=TWO_GPUS,
        minutes=6,
        pieces=ordinary(6),
        interval_s=1.0,
    )
    return replace(job, **described)  # type: ignore[arg-type]  # any field of a job


def _unused_min(job: Job, fault: Fault) -> float:
    """Return the instance-minutes that the planted GPUs left undone in the fault's time, against a full pace."""
    begin, end = 60.0 * fault.onset_min, 60.0 * (job.minutes if fault.end_min is None else fault.end_min)
    unused = 0.0
    for node in fault.nodes or range(1, job.nodes + 1):
        counters = node_counters(job, node)
        within = (counters.at_s >= begin) & (counters.at_s < end)
        gpus = counters.gpus[within][:, np.array(fault.gpus or range(job.machine.gpus))]
        share = gpus.shape[1] / job.machine.gpus
        unused += share * (1.0 - min(1.0, float(gpus.mean()) / FULL_PACE)) * (end - begin) / 60.0
    return unused


def test_jobs_have_unique_names_and_include_every_fault_kind() -> None:
    assert max(Counter(job.name for job in JOBS).values()) == 1
    assert {fault.kind for job in JOBS for fault in job.faults} == set(KINDS)


# Faults that end a job, so that their labels say when.
ENDING = {"leak", "memory leak", "hung collective", "lost GPU", "memory held after training"}


def test_faults_lie_within_the_job_and_the_largest_is_first() -> None:
    for job in SINGLE:
        _check_faults(job)


def _check_faults(job: Job) -> None:
    for fault in job.faults:
        end = job.minutes if fault.end_min is None else fault.end_min
        assert 0 <= fault.onset_min < end <= job.minutes
        assert 0 <= fault.wasted[0] <= fault.wasted[1] <= job.paid_min
        assert all(1 <= node <= job.nodes for node in fault.nodes)
        assert all(0 <= gpu < job.machine.gpus for gpu in fault.gpus)
        assert fault.fails_in_h is None if fault.kind not in ENDING else fault.fails_in_h is not None
    assert job.faults[0].wasted[1] == max(fault.wasted[1] for fault in job.faults)


def test_what_a_label_calls_wasted_is_what_the_gpus_left_undone() -> None:
    for job in SINGLE:
        for fault in job.faults:
            if fault.kind == "leak" or job.collected is not None:
                continue  # GPUs that wait in a kernel look busy: what is lost with them is no matter of utilization
            unused = _unused_min(replace(job, flaws=Flaws()), fault)
            assert 0.87 * fault.wasted[0] - 1.0 <= unused <= 1.13 * fault.wasted[1] + 3.0, (job.name, fault)


def test_a_leak_fails_when_its_label_says() -> None:
    for job in JOBS:
        for fault in job.faults:
            if fault.kind != "leak" or fault.fails_in_h is None:
                continue
            gpu = fault.gpus[0] if fault.gpus else 0
            counters = node_counters(job, 1)
            training = (counters.at_s > 60.0 * fault.onset_min) & (counters.gpus[:, gpu] > 75.0)
            memory, at_h = counters.memory[training, gpu], counters.at_s[training] / 3600.0
            slope, level = np.polyfit(at_h, memory, 1)
            left_h = (100.0 - (slope * job.minutes / 60.0 + level)) / slope
            assert left_h == pytest.approx(fault.fails_in_h, rel=0.25, abs=0.15), job.name


@pytest.mark.parametrize("job", [job for job in JOBS if job.every_interval], ids=lambda job: job.name)
def test_every_interval_shows_the_same_activity(job: Job) -> None:
    def shown(counters: NodeCounters) -> list[float]:
        return [float(counters.gpus.mean()), float(counters.cores.mean()), float(counters.io_wait.mean())]

    described = shown(node_counters(job, 1))
    for _, again in resampled(job):
        chance = 0.0 if again.averaging else 2.5 * 45.0 / np.sqrt(again.minutes * 60.0 / again.interval_s)
        assert shown(node_counters(again, 1)) == pytest.approx(described, abs=2.0 + chance)


def test_a_job_is_written_in_the_managed_layout(tmp_path: Path) -> None:
    job = _small(nodes=2, steps=Steps(first_min=2.0, workers=2))
    folder = write_job(job, tmp_path)
    files = sorted((folder / "profiler-output" / "system" / "incremental").glob("*/*.json"))
    assert {file.name for file in files if file.name.endswith("algo-2.json")} == {
        f"{int(START // 60 + minute) * 60}.algo-2.json" for minute in range(7)
    }
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert set(lines[0]) == {"Type", "Name", "Dimension", "Value", "NodeId", "Timestamp"}
    series = Counter((line["Type"], line["Dimension"]) for line in lines if line["NodeId"] == "algo-1")
    snapshots = series["memory", ""]
    assert series["gpu", "GPUUtilization"] == series["gpu", "GPUMemoryUtilization"] == 2 * snapshots
    assert series["cpu", "CPUUtilization"] == series["cpu", "I/OWaitPercentage"] == 8 * snapshots
    for file in files:
        minute = int(file.name.split(".")[0])
        stamps = [json.loads(line)["Timestamp"] for line in file.read_text().splitlines()]
        assert minute <= min(stamps)
        assert max(stamps) < minute + 60


def test_steps_are_written_as_chrome_traces(tmp_path: Path) -> None:
    job = _small(steps=Steps(first_min=2.0, step_s=0.5, slow_every=10, slow_s=3.0))
    folder = write_job(job, tmp_path)
    files = sorted((folder / "profiler-output" / "framework" / "pevents").glob("*/*_84-algo-1_pythontimeline.json"))
    events = [event for file in files for event in json.loads(file.read_text()) if event["ph"] == "X"]
    steps = [event for event in events if event["name"] == "Step:ModeKeys.TRAIN"]
    assert [int(step["args"]["step_num"]) for step in steps] == list(range(len(steps)))
    assert steps[0]["ts"] == pytest.approx(120e6, abs=1e6)
    assert sum(step["dur"] > 2_000_000 for step in steps) == len(steps) // 10
    for file in files:
        ends = [event["ts"] + event["dur"] for event in json.loads(file.read_text()) if event["ph"] == "X"]
        assert int(file.name.split("_")[0]) == round(START * 1e6) + max(ends)


def test_equal_descriptions_give_equal_files(tmp_path: Path) -> None:
    def content(place: Path) -> list[bytes]:
        return [file.read_bytes() for file in sorted(write_job(_small(), place).rglob("*")) if file.is_file()]

    assert content(tmp_path / "one") == content(tmp_path / "other")


def test_gpus_wait_for_slow_steps() -> None:
    job = _small(steps=Steps(first_min=2.0, step_s=0.5, gap_s=0.0, slow_every=10, slow_s=5.0), interval_s=0.5)
    counters = node_counters(job, 1)
    training = (counters.at_s > 130.0) & (counters.at_s < 290.0)
    waits = float((counters.gpus[training, 0] < 10.0).mean())
    assert waits == pytest.approx(4.5 / 9.5, abs=0.08)


def test_flaws_are_in_the_samples() -> None:
    whole = node_counters(_small(minutes=20, pieces=ordinary(20)), 1)
    thin = node_counters(_small(minutes=20, pieces=ordinary(20), flaws=Flaws(missing=0.2, gaps=((5, 10),))), 1)
    assert thin.at_s.size == pytest.approx(0.8 * 0.75 * whole.at_s.size, rel=0.06)
    assert not ((thin.at_s >= 300.0) & (thin.at_s < 600.0)).any()
    zeros = node_counters(_small(minutes=20, pieces=ordinary(20), flaws=Flaws(zeros=0.05)), 1)
    busy = (zeros.at_s > 130.0) & (zeros.at_s < 1130.0)
    assert float((zeros.gpus[busy] == 0.0).mean()) == pytest.approx(0.05, abs=0.02)


def test_a_clock_that_jumps_moves_the_stamps(tmp_path: Path) -> None:
    folder = write_job(_small(flaws=Flaws(clock_jump=(3.0, 95.0))), tmp_path)
    files = (folder / "profiler-output").rglob("*.algo-1.json")
    stamps = {json.loads(line)["Timestamp"] for file in files for line in file.read_text().splitlines()}
    assert max(stamps) == pytest.approx(START + 360.0 + 95.0, abs=3.0)
    assert not [stamp for stamp in stamps if START + 182.0 < stamp < START + 274.0]


@pytest.mark.parametrize(("shape", "middle"), [("line", 20.0), ("stairs", 20.0), ("plateau", 40.0)])
def test_memory_grows_as_described(shape: str, middle: float) -> None:
    growth = Growth(points=40.0, start_min=3.0, end_min=23.0, shape=shape, stairs=4, gpus=(1,))  # type: ignore[arg-type]
    job = _small(minutes=30, pieces=(Piece(load=Load(memory=0.2)),), growth=(growth,))
    memory = node_counters(job, 1).memory
    assert memory[800:825, 1].mean() - memory[800:825, 0].mean() == pytest.approx(middle, abs=2.0)
    assert memory[1500:, 1].mean() - memory[1500:, 0].mean() == pytest.approx(40.0, abs=2.0)
    assert memory[:170, 1].mean() - memory[:170, 0].mean() == pytest.approx(0.0, abs=2.0)


def test_stairs_are_level() -> None:
    growth = Growth(points=40.0, start_min=0.0, end_min=40.0, shape="stairs", stairs=2)
    job = _small(minutes=40, pieces=(Piece(load=Load(memory=0.2)),), growth=(growth,))
    memory = node_counters(job, 1).memory
    assert memory[1000:1180].mean() - memory[20:200].mean() == pytest.approx(0.0, abs=1.5)
    assert memory[1220:1400].mean() - memory[1000:1180].mean() == pytest.approx(20.0, abs=1.5)


def test_averaging_counters_are_smooth_and_others_momentary() -> None:
    waiting = (Piece(load=Load(wait=0.5, cycle_s=2.0)),)
    smooth = node_counters(_small(minutes=30, pieces=waiting, interval_s=10.0, averaging=True), 1).gpus
    momentary = node_counters(_small(minutes=30, pieces=waiting, interval_s=10.0), 1).gpus
    assert float(smooth.std()) < 8.0
    assert float(momentary.std()) > 30.0
    assert float(smooth.mean()) == pytest.approx(46.0, abs=4.0)


def test_full_cores_and_disk_waits_are_where_they_are_described() -> None:
    job = _small(machine=G5_XLARGE, pieces=(Piece(load=Load(full_cores=0.5, io_cores=0.25)),))
    counters = node_counters(job, 1)
    assert sorted((counters.cores.mean(axis=0) > 95.0).tolist()) == [False, False, True, True]
    assert sorted((counters.io_wait.mean(axis=0) > 60.0).tolist()) == [False, False, False, True]
    assert (counters.cores + counters.io_wait).max() <= 101.0 + 15.0
