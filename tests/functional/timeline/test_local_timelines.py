"""Time lines of a profile on disk: in a pass of their own or beside the rules, whoever parses, whatever is broken."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.profile_folder import START as FOLDER_START
from tests.support.profile_folder import ProfileFolder, ticks
from tests.support.small_job import INTERVAL_S, JOB, MINUTES, START, uploads
from tests.unit.local.places import write
from trainguard.core.records import JobRecord
from trainguard.engine.installed import FAMILIES
from trainguard.local.analysis import digest_profile, profile_axis
from trainguard.local.engine import evaluate_profile
from trainguard.local.pool import WorkerPool
from trainguard.local.profile import Profile, read_profile
from trainguard.local.sources import open_folder
from trainguard.report.timeline.build import build_timelines
from trainguard.report.timeline.digest import NodeDigest, NodeDigests
from trainguard.report.timeline.series import TimeAxis

KNOWN = JobRecord(JOB, f"unknown:{JOB}", "", "")
SAMPLES_OF_A_GPU = MINUTES * 60 // INTERVAL_S


def opened(place: Path) -> Profile:
    return read_profile(open_folder(str(place)))


def digested(place: Path, workers: int = 0, watch: Any = None, axis: TimeAxis | None = None) -> list[NodeDigest]:
    profile = opened(place)
    with WorkerPool(workers) as pool:
        return digest_profile(profile, pool, watch, axis=axis or profile_axis(profile, KNOWN))


def encoded(digests: list[NodeDigest]) -> list[bytes]:
    return [digest.encode() for digest in digests]


def samples_of(digest: NodeDigest) -> list[int]:
    return digest.tables["gpu"].counts.sum(axis=1).tolist()  # type: ignore[no-any-return]  # numpy's tolist is untyped


def test_digest_has_all_samples_and_steps_of_each_node(tmp_path: Path) -> None:
    first, second = digested(write(tmp_path))
    assert (first.node, second.node) == ("algo-1", "algo-2")
    assert samples_of(first) == samples_of(second) == [SAMPLES_OF_A_GPU] * 2
    assert first.outside == 0
    assert len(first.tables["steps"].keys) >= 2
    assert first.axis.bucket_s == 2 * INTERVAL_S


def test_digest_beside_rules_or_by_workers_is_the_same(tmp_path: Path) -> None:
    place = write(tmp_path)
    alone = digested(place)
    tap = NodeDigests(alone[0].axis)
    with WorkerPool(0) as pool:
        tapped = evaluate_profile(KNOWN, FAMILIES.plan(KNOWN), opened(place), pool, digests=tap)
        plain = evaluate_profile(KNOWN, FAMILIES.plan(KNOWN), opened(place), pool)
    assert encoded(tap.in_order()) == encoded(alone)
    assert encoded(digested(place, workers=2)) == encoded(alone)
    assert tapped == plain


def test_unreadable_objects_leave_the_others_digested(tmp_path: Path) -> None:
    place = write(tmp_path)
    whole = digested(place)
    broken = [sorted(place.rglob("*.algo-1.json"))[5], sorted(place.rglob("*algo-1_pythontimeline.json"))[0]]
    for file in broken:
        file.write_bytes(b"\x1f\x8bno gzip")
    first, second = digested(place, axis=whole[0].axis)
    assert samples_of(first) == [SAMPLES_OF_A_GPU - 60 // INTERVAL_S] * 2
    assert 0 < first.tables["steps"].counts.sum() < whole[0].tables["steps"].counts.sum()
    assert second.encode() == whole[1].encode()


def test_axis_skips_an_unreadable_first_object(
    tmp_path: Path,
) -> None:
    place = write(tmp_path)
    whole = profile_axis(opened(place), KNOWN)
    for file in sorted(place.rglob(f"{START}.algo-*.json")):
        file.write_bytes(b"\x1f\x8bno gzip")
    assert profile_axis(opened(place), KNOWN) == whole


def test_steps_alone_give_the_axis(tmp_path: Path) -> None:
    place = write(tmp_path, [upload for upload in uploads() if "/framework/" in upload.key])
    (first, _) = digested(place)
    assert first.axis.bucket_s == 1.0
    assert first.outside == 0
    assert first.tables["steps"].counts.sum() > 0
    assert first.tables["gpu"].keys == []


def test_axis_contains_start_and_end_of_the_job(tmp_path: Path) -> None:
    job = replace(KNOWN, started_at=START - 500.0, ended_at=START + 5_000.0)
    axis = profile_axis(opened(write(tmp_path)), job)
    assert axis.start <= START - 500.0
    assert axis.start + axis.buckets * axis.bucket_s > START + 5_000.0


@pytest.mark.parametrize(("every_s", "bucket_s"), [(5.0, 10.0), (60.0, 120.0)])
def test_no_bucket_within_the_job_is_empty_at_any_interval(tmp_path: Path, every_s: float, bucket_s: float) -> None:
    folder = ProfileFolder(tmp_path)
    folder.system(ticks(60, every_s=every_s * 1.001), {"gpu0": 50.0, "cpu0": 5.0})
    digests = digested(folder.path)
    (node,) = build_timelines(digests, episodes=[], started_at=None, ended_at=None).nodes
    assert digests[0].axis.bucket_s == bucket_s
    assert digests[0].axis.start <= FOLDER_START
    assert None not in node.gpus[0].utilization.mean


def test_tensorflow_steps_take_times_from_the_metadata(tmp_path: Path) -> None:
    place = write(tmp_path, uploads()[:12])
    folder = place / "profiler-output" / "framework" / "tensorflow" / "detailed_profiling" / "2026112117" / "000000010"
    run = folder / "plugins" / "profile" / "2026_11_21_17_00_00"
    run.mkdir(parents=True)
    start_us, end_us = (START + 30) * 1_000_000, (START + 100) * 1_000_000
    (folder / f"algo-1_{start_us}_{end_us}.metadata").write_bytes(b"")
    events = [{"ph": "X", "name": "Step:ModeKeys.TRAIN", "pid": 1, "tid": 1, "ts": 1_000, "dur": 50}]
    (run / "algo-1.trace.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    extents = digested(place)[0].extents
    (trace,) = (extent for (_, process, _), extent in extents.items() if process == "algo-1-trace")
    assert trace[:2] == (start_us + 1_000, start_us + 1_050)


def test_watcher_is_notified_of_each_object(tmp_path: Path) -> None:
    place = write(tmp_path)
    told: list[tuple[int, float]] = []
    digested(place, watch=lambda size, watermark_s: told.append((size, watermark_s)))
    assert sorted(size for size, _ in told) == sorted(file.stat().st_size for file in place.rglob("*.json"))
    assert max(watermark_s for _, watermark_s in told) > START + 60 * (MINUTES - 1)
