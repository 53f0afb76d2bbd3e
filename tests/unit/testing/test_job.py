"""Synthetic jobs: what their objects hold, and what cannot be asked for."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainguard.core.errors import SyntheticJobError
from trainguard.core.layout import EndKey
from trainguard.formats.profile.columns import read_framework_object
from trainguard.formats.profile.keys import FrameworkKey, SystemKey, parse_key
from trainguard.formats.profile.system import Samples, read_system_object
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization
from trainguard.testing import SyntheticJob, run_rule, write_profile
from trainguard.testing.objects import objects_of


def samples(job: SyntheticJob, *, node: str = "algo-1") -> list[Samples]:
    """Read the node's objects of system metrics, as the engine does."""
    read = []
    for item in objects_of(job, "job"):
        key = parse_key(item.key)
        if isinstance(key, SystemKey) and key.node == node:
            read.append(read_system_object(item.key, item.body, node=node, minute=key.minute))
    return read


def series(job: SyntheticJob, kind: str, name: str, *, node: str = "algo-1") -> Any:
    """Return times since the start and values of one series: float64[N, 2]."""
    found = []
    for each in samples(job, node=node):
        index = next((row for row, known in enumerate(each.table) if (known.kind, known.name) == (kind, name)), None)
        chosen = each.series == index
        found.append(np.stack([each.times[chosen] - job.start, each.values[chosen]], axis=1))
    return np.concatenate(found)


def test_written_job_has_all_minutes_and_series_of_each_node() -> None:
    job = SyntheticJob(nodes=2, gpus=3, cores=5, minutes=4)
    for node in job.node_names:
        read = samples(job, node=node)
        assert len(read) == 4
        assert len(read[0].table) == 3 * 2 + 5 * 2 + 2
        assert not [name for each in read for name in each.tally if name != "lines"]
    keys = [parse_key(item.key) for item in objects_of(job, "job")]
    assert isinstance(keys[-1], EndKey)
    assert len(keys) == 9


@pytest.mark.parametrize("interval_s", [0.5, 1.0, 5.0, 60.0])
def test_snapshots_lie_an_interval_apart(interval_s: float) -> None:
    job = SyntheticJob(minutes=3, interval_s=interval_s)
    times = series(job, "gpu", "gpu1")[:, 0]
    assert times == pytest.approx(job.times_s)
    assert len(times) == job.snapshots == 180 / interval_s


def test_last_of_several_changes_counts_where_it_holds() -> None:
    job = (
        SyntheticJob(nodes=2, minutes=2)
        .with_series("gpu_utilization", 30.0)
        .with_series("gpu_utilization", [1.0, 2.0], node="algo-2", device=1, start_s=10.0, end_s=20.0)
        .with_series("cpu", lambda times_s: times_s / 2.0, device=0)
        .with_series("host_memory", float("nan"), start_s=60.0)
    )
    assert set(series(job, "gpu", "gpu1")[:, 1]) == {30.0}
    assert series(job, "gpu", "gpu1", node="algo-2")[:5, 1].tolist() == [30.0, 30.0, 1.0, 2.0, 30.0]
    assert set(series(job, "gpu", "gpu0", node="algo-2")[:, 1]) == {30.0}
    assert series(job, "cpu", "cpu0")[:, 1] == pytest.approx(job.times_s / 2.0)
    assert set(series(job, "cpu", "cpu1")[:, 1]) == {35.0}
    assert samples(job)[1].values[samples(job)[1].series == -1].size == 0
    assert "host_memory" not in {known.kind for known in samples(job)[1].table}


def test_outage_leaves_neither_samples_nor_events_of_the_node() -> None:
    job = SyntheticJob(nodes=2, minutes=4).with_steps(1.0).with_outage("algo-1", start_s=60.0, end_s=185.0)
    times = series(job, "gpu", "gpu0")[:, 0]
    assert not [time for time in times.tolist() if 60.0 <= time < 185.0]
    assert {55.0, 185.0} <= set(times.tolist())
    assert len(series(job, "gpu", "gpu0", node="algo-2")) == 48
    ends = [start + took for node, start, took in steps(job) if node == "algo-1"]
    assert not [end for end in ends if 60.0 <= end < 185.0]
    assert len(ends) > 50


def steps(job: SyntheticJob) -> list[tuple[str, float, float]]:
    """Return node, start and duration of each training step, in seconds, as the engine reads them."""
    found = []
    for item in objects_of(job, "job"):
        key = parse_key(item.key)
        if isinstance(key, FrameworkKey):
            read = read_framework_object(item.key, item.body, process=f"{key.node}-{key.process}", end_us=key.end_us)
            assert not [name for name in read.tally if name != "events"]
            for batch in read.steps:
                starts = (batch.starts_us / 1e6 - job.start).tolist()
                found += [
                    (key.node, start, took)
                    for start, took in zip(starts, (batch.durations_us / 1e6).tolist(), strict=True)
                ]
    return found


def test_steps_follow_one_another_until_the_end() -> None:
    job = SyntheticJob(nodes=2, minutes=3).with_steps(2.0, pause_s=0.5, start_s=10.0)
    assert len(steps(job)) == 2 * 68
    assert ("algo-2", 10.0, 2.0) in steps(job)
    assert ("algo-1", 12.5, 2.0) in steps(job)
    one = SyntheticJob(nodes=2, minutes=3).with_steps([1.0, 7.0], node="algo-2", start_s=0.0, pause_s=1.0)
    assert steps(one) == [("algo-2", 0.0, 1.0), ("algo-2", 2.0, 7.0)]
    counted = SyntheticJob(minutes=1).with_steps(lambda number: 1.0 + number, start_s=0.0, pause_s=0.0)
    assert [took for _, _, took in steps(counted)] == [float(each) for each in range(1, 11)]


def test_event_has_its_phase_name_and_arguments() -> None:
    job = SyntheticJob(minutes=2).with_event("Loader", "next", 61.0, 0.25, process=7, kind="model_timeline", tid=3)
    (item,) = (item for item in objects_of(job, "job") if "framework" in item.key)
    key = parse_key(item.key)
    assert isinstance(key, FrameworkKey)
    assert (key.node, key.process, key.kind) == ("algo-1", "7", "model_timeline")
    table = read_framework_object(item.key, item.body, process="algo-1-7", end_us=key.end_us, kind=key.kind).table
    assert (table.phases, table.names) == (("Loader",), ("next",))
    assert (table.starts_us.tolist(), table.durations_us.tolist()) == ([(job.start + 61) * 1_000_000], [250_000])


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"nodes": 0}, "nodes is 0, expected a whole number from 1 to 1,000"),
        ({"gpus": -1}, "gpus is -1"),
        ({"minutes": 2.5}, "minutes is 2.5"),
        ({"interval_s": 2.0}, "interval_s is 2.0, expected one of (0.1, 0.2, 0.5, 1.0, 5.0, 60.0)"),
        ({"start": 61}, "start is 61, expected a full minute"),
        ({"nodes": 100, "gpus": 8, "cores": 96, "minutes": 60}, "samples of the job is 15,120,000"),
    ],
)
def test_impossible_job_error_names_the_field_and_a_valid_value(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(SyntheticJobError) as caught:
        SyntheticJob(**fields)
    assert told.replace(",", "") in str(caught.value).replace(",", "")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"series": "gpu_power"}, "series is 'gpu_power', expected one of gpu_utilization, gpu_memory"),
        ({"values": 101.0}, "values of gpu_utilization is 101.0, expected numbers from 0 to 100, or NaN"),
        ({"values": -0.5}, "values of gpu_utilization is -0.5"),
        ({"values": [1.0, 2.0]}, "an array of shape (2,)', expected one, or 24 as there are snapshots from 0 s to 120"),
        ({"node": "algo-3"}, "node is 'algo-3', expected one of algo-1, algo-2"),
        ({"device": 2}, "device is 2, expected a number from 0 to 1"),
        ({"series": "host_memory", "device": 0}, "device is 0, expected none: host_memory is of the node"),
        ({"start_s": 60.0, "end_s": 60.0}, "start_s, end_s is (60.0, 60.0), expected seconds since the start"),
        ({"end_s": 121.0}, "within the job's 120"),
    ],
)
def test_impossible_change_is_named_in_the_error(given: dict[str, Any], told: str) -> None:
    change: dict[str, Any] = {"series": "gpu_utilization", "values": 50.0} | given
    with pytest.raises(SyntheticJobError) as caught:
        SyntheticJob(nodes=2, minutes=2).with_series(**change)
    assert told in str(caught.value)


def test_impossible_steps_events_or_outages_are_named() -> None:
    job = SyntheticJob(minutes=2)
    with pytest.raises(SyntheticJobError, match=r"duration_s is 0\.0, expected seconds from 0"):
        job.with_steps(0.0, pause_s=0.0)
    with pytest.raises(SyntheticJobError, match="duration_s is nan"):
        job.with_steps([float("nan")])
    with pytest.raises(SyntheticJobError, match="node is 'algo-9'"):
        job.with_steps(1.0, node="algo-9")
    with pytest.raises(SyntheticJobError, match="within the job's 120"):
        job.with_event("Loader", "next", 119.0, 2.0)
    with pytest.raises(SyntheticJobError, match="kind is 'chrome', expected one of"):
        job.with_event("Loader", "next", 1.0, 2.0, kind="chrome")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(SyntheticJobError, match="in order"):
        job.with_outage("algo-1", start_s=5.0, end_s=5.0)


def test_healthy_job_is_quiet_under_the_built_in_rule() -> None:
    outcome = run_rule(LowGPUUtilization(), SyntheticJob(minutes=20), {"patience": 60})
    assert outcome.assert_not_fired().row.status.value == "OK"


def test_profile_in_a_folder_lies_as_a_job_would_leave_it(tmp_path: Path) -> None:
    job = SyntheticJob(nodes=2, minutes=3).with_steps(1.0)
    folder = write_profile(job, tmp_path / "runs" / "my-job")
    assert folder == tmp_path / "runs" / "my-job"
    files = {file.relative_to(folder.parent).as_posix() for file in folder.rglob("*") if file.is_file()}
    assert files == {item.key for item in objects_of(job, "my-job")} | {"my-job/job.json"}
    about = json.loads((folder / "job.json").read_text("utf-8"))
    assert (about["name"], about["instance_count"], about["profiling_interval_ms"]) == ("my-job", 2, 5_000)
