"""Recordings: what they hold, what they expand to, and what becomes of a job that is stopped."""

import re
from pathlib import Path

import numpy as np
import pytest

from demo.make_recordings import RECORDINGS, SEED, START
from demo.recording import Recording, RecordingError
from demo.samples import NodeSamples, ProcessTimeline, columns
from demo.synthesis import record
from demo.uploads import RecordedObject
from demo.workloads import WORKLOADS

NAMES = ("healthy", "slow_data_loader", "cpu_bottleneck", "late_first_step", "slow_steps")
SYSTEM_KEY = re.compile(r"runs/job-1/profiler-output/system/incremental/(\d{10})/(\d{10})\.algo-([12])\.json")
EVENTS_KEY = re.compile(
    r"runs/job-1/profiler-output/framework/pevents/(\d{10})/(\d{16})_(\d+)-algo-([12])_pythontimeline\.json"
)


@pytest.fixture(scope="module")
def healthy() -> Recording:
    return Recording.load(RECORDINGS / "healthy.npz")


@pytest.fixture(scope="module")
def uploads(healthy: Recording) -> list[RecordedObject]:
    return list(healthy.objects("job-1", prefix="runs/"))


def assert_same(one: NodeSamples | ProcessTimeline, other: NodeSamples | ProcessTimeline) -> None:
    for name, column in columns(one).items():
        assert np.array_equal(column, columns(other)[name]), name
        assert column.dtype == columns(other)[name].dtype, name


def test_saved_recording_is_loaded_unchanged(tmp_path: Path) -> None:
    made = record(WORKLOADS["slow_steps"], seed=1, start=START)

    made.save(tmp_path / "one.npz")
    loaded = Recording.load(tmp_path / "one.npz")

    assert (loaded.instance_type, loaded.interval_ms, loaded.start) == ("ml.g5.2xlarge", 500, START)
    assert (loaded.ended_us, loaded.phases) == (made.ended_us, made.phases)
    assert_same(loaded.nodes[0], made.nodes[0])
    assert_same(loaded.processes[0], made.processes[0])


def test_saving_a_recording_twice_writes_equal_bytes(tmp_path: Path, healthy: Recording) -> None:
    healthy.save(tmp_path / "one.npz")
    Recording.load(tmp_path / "one.npz").save(tmp_path / "other.npz")

    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "other.npz").read_bytes()


def test_foreign_format_error_names_file_and_format(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "old.npz", about=np.frombuffer(b'{"format": 0}', dtype=np.uint8))

    with pytest.raises(RecordingError, match=r"old\.npz: format is 0, expected 1"):
        Recording.load(tmp_path / "old.npz")


@pytest.mark.parametrize("name", NAMES)
def test_seed_reproduces_the_stored_recording(name: str) -> None:
    stored = Recording.load(RECORDINGS / f"{name}.npz")
    made = record(WORKLOADS[name], seed=SEED + list(WORKLOADS).index(name), start=START)

    for node, made_node in zip(stored.nodes, made.nodes, strict=True):
        assert_same(node, made_node)
    for process, made_process in zip(stored.processes, made.processes, strict=True):
        assert_same(process, made_process)


def test_stored_recordings_are_small() -> None:
    sizes = {path.stem: path.stat().st_size for path in RECORDINGS.glob("*.npz")}

    assert set(sizes) == set(NAMES)
    assert max(sizes.values()) < 600_000
    assert sum(sizes.values()) < 3_000_000


def test_expanded_job_has_all_minutes_and_both_end_marks(
    uploads: list[RecordedObject],
) -> None:
    minutes = [match for upload in uploads if (match := SYSTEM_KEY.fullmatch(upload.key))]
    events = [match for upload in uploads if (match := EVENTS_KEY.fullmatch(upload.key))]

    for node in ("1", "2"):
        assert sorted(int(m[2]) for m in minutes if m[3] == node) == [START + 60 * k for k in range(26)]
        assert len([m for m in events if m[4] == node]) > 20
    assert len(minutes) + len(events) + 2 == len(uploads)
    assert {m[1] for m in minutes} == {"2026071409"}


def test_expanded_objects_are_in_order_of_appearance(
    uploads: list[RecordedObject],
) -> None:
    times = [upload.appears_at for upload in uploads]

    assert times == sorted(times)
    assert [upload.key.rpartition("profiler-output/")[2] for upload in uploads[-2:]] == [
        "system/training_job_end.ts",
        "framework/training_job_end.ts",
    ]
    assert [upload.body for upload in uploads[-2:]] == [b"", b""]


def test_expanded_minute_appears_within_a_second_of_its_end(
    uploads: list[RecordedObject],
) -> None:
    delays = {
        (int(match[2]) - START) // 60: upload.appears_at - int(match[2]) - 60
        for upload in uploads
        if (match := SYSTEM_KEY.fullmatch(upload.key)) and match[3] == "1"
    }

    assert delays[0] == pytest.approx(delays[1] + 61)
    assert all(0 < delays[minute] < 1 for minute in range(1, 25))


def test_last_objects_appear_two_to_five_seconds_before_the_mark(
    uploads: list[RecordedObject],
) -> None:
    last = [next(u for u in reversed(uploads) if pattern.fullmatch(u.key)) for pattern in (SYSTEM_KEY, EVENTS_KEY)]

    assert all(2 <= uploads[-2].appears_at - upload.appears_at <= 5 for upload in last)


def test_samples_of_an_object_lie_in_the_minute_of_its_name(
    uploads: list[RecordedObject],
) -> None:
    for upload in uploads:
        if match := SYSTEM_KEY.fullmatch(upload.key):
            times = [float(text) for text in re.findall(rb'"Timestamp":([\d.]+)', upload.body)]
            assert int(match[2]) <= min(times) <= max(times) < int(match[2]) + 60.03


def test_names_and_times_shift_with_another_start(healthy: Recording, uploads: list[RecordedObject]) -> None:
    shift = 3 * 86_400
    moved = list(healthy.objects("job-1", prefix="runs/", start=START + shift))

    minutes = [
        (SYSTEM_KEY.fullmatch(one.key), SYSTEM_KEY.fullmatch(other.key))
        for one, other in zip(uploads, moved, strict=True)
    ]
    assert all(int(a[2]) + shift == int(b[2]) for a, b in minutes if a and b)
    assert [len(one.body) for one in uploads if "system" in one.key] == pytest.approx(
        [len(other.body) for other in moved if "system" in other.key], rel=0.01
    )
    assert moved[-1].appears_at - uploads[-1].appears_at == pytest.approx(shift)


def test_start_off_the_minute_is_refused(healthy: Recording) -> None:
    with pytest.raises(RecordingError, match=r"start is 1784021041, expected an epoch second on the minute"):
        next(healthy.objects("job-1", start=START + 1))


def test_expanding_a_job_twice_yields_equal_objects(healthy: Recording, uploads: list[RecordedObject]) -> None:
    assert list(healthy.objects("job-1", prefix="runs/")) == uploads


def test_cut_job_keeps_uploads_and_adds_open_files_and_marks(healthy: Recording, uploads: list[RecordedObject]) -> None:
    stopped_at = 910.0
    cut = list(healthy.until(stopped_at).objects("job-1", prefix="runs/"))

    before = [upload for upload in uploads if upload.appears_at <= START + stopped_at]
    after = cut[len(before) :]
    assert cut[: len(before)] == before
    assert [bool(SYSTEM_KEY.fullmatch(upload.key)) for upload in after].count(True) == 2
    assert [bool(EVENTS_KEY.fullmatch(upload.key)) for upload in after].count(True) == 2
    assert [upload.key.rpartition("/")[2] for upload in after[-2:]] == ["training_job_end.ts"] * 2
    for open_minute in (upload for upload in after if SYSTEM_KEY.fullmatch(upload.key)):
        times = [float(text) for text in re.findall(rb'"Timestamp":([\d.]+)', open_minute.body)]
        assert START + stopped_at - 0.6 < max(times) < START + stopped_at + 0.03
    assert all(after[-2].appears_at - upload.appears_at >= 2 for upload in after[:-2])
    assert max(upload.appears_at for upload in after) < START + stopped_at + 5


@pytest.mark.parametrize("elapsed_s", [0.0, 9.0, 1_600.0])
def test_stop_time_outside_the_job_is_refused(healthy: Recording, elapsed_s: float) -> None:
    with pytest.raises(RecordingError, match=r"expected a time within its 1508\.0 s"):
        healthy.until(elapsed_s)
