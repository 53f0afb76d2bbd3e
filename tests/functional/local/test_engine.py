"""The local engine: the same items whatever parses them, and bad objects that cost themselves and no other."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support import small_job
from tests.support.small_job import JOB, MINUTES, START, Upload, uploads
from tests.unit.local.places import write
from trainguard.core.errors import WorkerDiedError
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import JobRecord, StreamKey
from trainguard.engine.installed import FAMILIES
from trainguard.engine.streams.session import Unreadable
from trainguard.formats.profile.keys import SystemKey, system_key
from trainguard.formats.profile.system import Samples
from trainguard.local import pool
from trainguard.local.engine import Planned, ProfileEvaluation, by_stream, evaluate_profile, schedule
from trainguard.local.pool import WorkerPool
from trainguard.local.profile import read_profile
from trainguard.local.sources import open_folder

SETTINGS = {name.partition(":")[2]: value for name, value in small_job.SETTINGS.items()}
KNOWN = JobRecord(JOB, f"unknown:{JOB}", "", "", rule_settings=SETTINGS)


def evaluate(place: Path, workers: int = 0, watch: Any = None) -> ProfileEvaluation:
    with WorkerPool(workers) as pool:
        return evaluate_profile(KNOWN, FAMILIES.plan(KNOWN), read_profile(open_folder(str(place))), pool, watch)


def states(evaluation: ProfileEvaluation) -> dict[StreamKey, tuple[bytes, dict[str, int]]]:
    return {record.key: (record.state, dict(record.counters)) for record in evaluation.records}


def test_local_and_worker_parsing_give_the_same_items(tmp_path: Path) -> None:
    place = write(tmp_path)
    alone = states(evaluate(place))
    assert states(evaluate(place, workers=2)) == alone
    assert len(alone) == 5


def test_compressed_files_differ_only_in_their_count(tmp_path: Path) -> None:
    plain = states(evaluate(write(tmp_path / "plain")))
    packed = write(tmp_path / "packed")
    for file in list(packed.rglob("*.json")):
        file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    for key, (state, counters) in states(evaluate(packed)).items():
        assert state == plain[key][0]
        assert {name: count for name, count in counters.items() if name != "gzip_objects"} == plain[key][1]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("damage", [b"\x1f\x8bno gzip", None])
def test_unreadable_object_is_counted_and_others_are_used(tmp_path: Path, workers: int, damage: bytes | None) -> None:
    place = write(tmp_path)
    broken = sorted(place.rglob("*.algo-1.json"))[5]
    if damage is None:
        broken.unlink()
        broken.symlink_to("/proc/self/mem")
    else:
        broken.write_bytes(damage)
    done = evaluate(place, workers)
    records = {record.key.node_kind: record for record in done.records}
    assert records["algo-1#system"].counters["bad_objects"] == 1
    assert [("OSError" in note, "RuntimeError" in note) for note in done.notes] == [(damage is None, False)]
    assert "bad_objects" not in records["algo-2#system"].counters
    assert records["algo-1#system"].watermark_s == pytest.approx(START + 60 * MINUTES - 10, abs=5)


def test_given_a_missing_minute_when_evaluated_then_it_is_a_gap(tmp_path: Path) -> None:
    place = write(tmp_path)
    sorted(place.rglob("*.algo-2.json"))[5].unlink()
    records = {record.key.node_kind: record for record in evaluate(place).records}
    assert records["algo-2#system"].counters["gaps"] == 1
    assert "gaps" not in records["algo-1#system"].counters


def test_framework_objects_alone_are_judged(tmp_path: Path) -> None:
    place = write(tmp_path, [upload for upload in uploads() if "/framework/" in upload.key])
    assert {record.key.stream for record in evaluate(place).records} == {"framework", "job"}


def test_tensorflow_trace_takes_times_from_its_metadata(
    tmp_path: Path,
) -> None:
    place = write(tmp_path, uploads()[:12])
    before = {record.key.node_kind: record for record in evaluate(place).records}["algo-1#framework"]
    step = place / "profiler-output" / "framework" / "tensorflow" / "detailed_profiling" / "2026112117" / "000000010"
    run = step / "plugins" / "profile" / "2026_11_21_17_00_00"
    run.mkdir(parents=True)
    start_us, end_us = START * 1_000_000, (START + 100) * 1_000_000
    (step / f"algo-1_{start_us}_{end_us}.metadata").write_bytes(b"")
    events = [{"ph": "X", "name": "MatMul", "pid": 1, "tid": 1, "ts": 1_000, "dur": 50}]
    body = gzip.compress(json.dumps({"traceEvents": events}).encode())
    (run / "algo-1.trace.json.gz").write_bytes(body)
    after = {record.key.node_kind: record for record in evaluate(place).records}["algo-1#framework"]
    assert after.counters["events"] == before.counters["events"] + 1
    assert "bad_objects" not in after.counters


def test_watcher_is_notified_of_each_object(tmp_path: Path) -> None:
    place = write(tmp_path)
    told: list[tuple[int, float | None]] = []
    evaluate(place, watch=lambda size, watermark_s: told.append((size, watermark_s)))
    files = list(place.rglob("*.json"))
    assert sorted(size for size, _ in told) == sorted(file.stat().st_size for file in files)
    assert max(watermark_s or 0.0 for _, watermark_s in told) > START + 60 * (MINUTES - 1)


def test_objects_are_scheduled_once_and_in_stream_order(
    tmp_path: Path,
) -> None:
    profile = read_profile(open_folder(str(write(tmp_path))))
    minutes, framework = ([key for key, _ in each] for each in by_stream(schedule(profile)))
    assert sorted([*minutes, *framework]) == sorted(profile.files)
    for node in profile.nodes.values():
        assert [key for key in minutes if key in node.minutes] == sorted(node.minutes)
        ends = [(node.framework[key].end_us, key) for key in framework if key in node.framework]
        assert ends == sorted(ends)


def minutes_of(run: list[Planned], node: str) -> list[int]:
    return [(key.minute - START) // 60 for _, key in run if isinstance(key, SystemKey) and key.node == node]


def minutes_by_tick(planned: list[list[Planned]], node: str) -> list[list[int]]:
    """Return the numbers of the minutes of a node that each run finds applied; the last are left for the end."""
    return [minutes for run in planned if (minutes := minutes_of(run, node))]


def test_nodes_are_scheduled_minute_by_minute_after_the_first(
    tmp_path: Path,
) -> None:
    planned = schedule(read_profile(open_folder(str(write(tmp_path)))))
    together = [[0, 1, 2], *([number] for number in range(3, MINUTES))]
    assert minutes_by_tick(planned, "algo-1") == together
    assert minutes_by_tick(planned, "algo-2") == together
    minutes, framework = by_stream(planned[-1:])
    assert not minutes
    assert framework


def test_minutes_wait_for_newer_ones_or_flush_on_a_paused_node(
    tmp_path: Path,
) -> None:
    written = {"algo-1": [*range(4), *range(8, 11), 16, 25, 26], "algo-2": range(27)}
    root = ProfileRoot("", JOB)
    keys = [system_key(root, node, START + 60 * minute) for node, minutes in written.items() for minute in minutes]
    planned = schedule(read_profile(open_folder(str(write(tmp_path, [Upload(0.0, key, b"") for key in keys])))))
    assert minutes_by_tick(planned, "algo-1") == [[0, 1, 2], [3], [8, 9, 10], [16], [25, 26]]
    found = [minute for minute, run in enumerate(planned[:-1], 4) if minutes_of(run, "algo-1")]
    assert found == [4, 5, 12, 24], "in minutes after the start"
    assert len(minutes_of(planned[-1], "algo-1")) == 2


def die(task: pool.SystemTask) -> Samples | Unreadable:
    del task
    os._exit(3)


@pytest.mark.timeout(20)
def test_dead_worker_is_an_error_and_no_bad_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "read_samples", die)
    with pytest.raises(WorkerDiedError, match="exit code 3"):
        evaluate(write(tmp_path), workers=2)
