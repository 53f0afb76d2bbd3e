"""What a full report costs in the stack: to digest a node's hour, and to put many nodes' days together. `make bench`.

The functions have 2 GiB, and 15 and 10 minutes.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pytest

from demo.synthesis import minute_of_node
from tests.perf.long_profile import START, write_hours
from tests.perf.test_bench import one_object
from tests.support.memory import MemoryWorld
from trainguard.core.layout import ProfileRoot, report_links
from trainguard.core.ports import ListedObject, ProfileObjects
from trainguard.core.records import JobRecord, JobStatus, StreamKey, StreamRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.profiler.system_stream import SystemSession
from trainguard.engine.streams.session import Announced
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import StepBatch
from trainguard.formats.profile.keys import SystemKey, system_key
from trainguard.formats.profile.system import MetricSeries, Samples
from trainguard.report.timeline.digest import NodeDigest
from trainguard.report.timeline.series import axis_for
from trainguard.stack.report.build import StackReports
from trainguard.stack.report.digest import digest_item
from trainguard.stack.report.parts import DAY_S, PARTS_TYPE, DigestItem, ReportPart, encode_items, encode_part

pytestmark = pytest.mark.perf

BUCKET = "profiles"
GIB = 1024**3
# Of the 2 GiB that both functions have.
MEMORY_LIMIT_BYTES = 1.5 * GIB

# For a node-minute: so that a day of one takes seven invocations of 15 min at most.
DIGEST_LIMIT_S = 0.25

BUILD_LIMIT_S = 120.0
PAGE_LIMIT_BYTES = 3e6
WARM_MINUTES = 8
PROCESSES = 8
FROM = START // DAY_S * DAY_S


def show(figure: str) -> None:
    """Print a figure past pytest's capture."""
    os.write(1, f"\n{figure}\n".encode())


def forget_peak() -> None:
    """Reset the peak of this process's memory."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")


def peak_bytes() -> int:
    """Return the most that this process held."""
    status = Path("/proc/self/status").read_text("ascii")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


@dataclass
class FolderObjects:
    """Objects of a folder, whose names are their keys; what is put is counted and forgotten."""

    root: Path
    read_bytes: int = 0
    written_bytes: int = 0

    def get(self, bucket: str, key: str, max_bytes: int) -> bytes:
        """Return a file's bytes."""
        assert bucket == BUCKET
        body = (self.root / key).read_bytes()[: max_bytes + 1]
        self.read_bytes += len(body)
        return body

    def get_range(self, bucket: str, key: str, start: int, length: int) -> bytes:
        """Return a part of a file's bytes."""
        return self.get(bucket, key, start + length)[start : start + length]

    def open_stream(self, bucket: str, key: str) -> BinaryIO:
        """Open a file."""
        assert bucket == BUCKET
        return (self.root / key).open("rb")

    def list(self, bucket: str, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """Iterate over the files under ``prefix``, in order."""
        assert bucket == BUCKET
        keys = sorted(str(file.relative_to(self.root)) for file in (self.root / prefix).rglob("*.json"))
        yield from (ListedObject(key, FROM + 2.0 * DAY_S, 0) for key in keys if key > start_after)

    def put(self, bucket: str, key: str, body: bytes, content_type: str) -> None:
        """Count the bytes of a part."""
        assert (bucket, content_type) == (BUCKET, PARTS_TYPE)
        assert "/parts/run/nodes/algo-1/" in key
        self.written_bytes += len(body)


def test_digest_of_a_nodes_hour(tmp_path: Path) -> None:
    """96 cores, 8 GPUs, 500 ms, and 1,500 framework events a minute: listed, read, parsed, digested, written."""
    write_hours(tmp_path, 1)
    objects = FolderObjects(tmp_path)
    axis = axis_for(START, START + DAY_S, 16, 2)
    item = DigestItem(job="job", bucket=BUCKET, prefix="", run="run", node="algo-1", day=FROM, axis=axis)
    forget_peak()
    before, began = peak_bytes(), time.process_time()
    done = digest_item(cast("ProfileObjects", objects), item, now=FROM, has_time=lambda: True)
    took, peak = time.process_time() - began, peak_bytes()
    minute_s = took / 60
    show(
        f"digest of a node's hour: {took:.1f} s of one core, {1e3 * minute_s:.0f} ms a node-minute of "
        f"{objects.read_bytes / 60e6:.1f} MB; so {1_440 * minute_s:.0f} s a node-day; "
        f"part {objects.written_bytes / 1e3:.0f} kB; peak {peak / 1e6:.0f} MB, {(peak - before) / 1e6:.0f} MB more"
    )
    assert not done.more
    assert minute_s < DIGEST_LIMIT_S
    assert peak < MEMORY_LIMIT_BYTES


def warm_record(node: str) -> StreamRecord:
    """Return the system item of a node that some minutes were applied to, closed."""
    plan = FAMILIES.plan(JobRecord("job", "arn", BUCKET, ""))
    record = StreamRecord(StreamKey("job", node, "system"), cursors={"minute": START - 60, "newest": START - 60})
    for index in range(WARM_MINUTES):
        minute = START + 60 * index
        session = SystemSession(record, one_object(minute_of_node(minute=minute, seed=index)), plan)
        root = ProfileRoot("", "job")
        session.announce([Announced(system_key(root, "algo-1", minute), SystemKey(root, "algo-1", minute))])
        assert list(session.apply(drain=False, modified_before=None))
        record = session.to_record(closed=index == WARM_MINUTES - 1)
    return record


def day_of_samples(item: DigestItem, gpus: int, rng: np.random.Generator) -> NodeDigest:
    """Return a digest with two samples of every series in every bucket, and steps of some processes."""
    kinds = ("cpu", "io_wait", "host_memory", "network")
    names = [(kind, f"gpu{number}") for number in range(gpus) for kind in ("gpu", "gpu_memory")]
    table = tuple(MetricSeries(*each) for each in (*names, *zip(kinds, kinds, strict=True)))
    axis = item.axis
    moments = axis.start + axis.bucket_s * (np.arange(2 * axis.buckets) / 2.0) + 0.01
    times, series = np.repeat(moments, len(table)), np.tile(np.arange(len(table)), moments.size)
    digest = NodeDigest(item.node, axis)
    digest.add_samples(Samples(times, rng.uniform(0, 100, times.size), series, table))
    for rank in range(PROCESSES):
        starts = (moments * 1e6).astype(np.int64)
        durations = rng.integers(300_000, 500_000, starts.size)
        process = f"{item.node}-{rank}"
        batch = StepBatch(process, "Step:ModeKeys.TRAIN", starts, durations, ("123456",) * starts.size)
        digest.add_events(FrameworkEvents((batch,)))
    return digest


@pytest.mark.parametrize(("nodes", "gpus"), [(2, 8), (128, 8)])
def test_report_of_a_day_from_its_parts(nodes: int, gpus: int) -> None:
    """Parts read, decoded and merged; state judged; page and JSON made and written."""
    rng = np.random.default_rng(0)
    world = MemoryWorld()
    ended = START + float(DAY_S)
    job = JobRecord(
        "job",
        "arn:aws:sagemaker:eu-west-1:111122223333:training-job/job",
        BUCKET,
        "",
        status=JobStatus.COMPLETED,
        instance_type="ml.p4d.24xlarge",
        instance_count=nodes,
        started_at=float(START),
        ended_at=ended,
        closing=True,
        active=False,
    )
    world.jobs.register(job)
    axis = axis_for(START, ended, nodes * gpus, nodes)
    record = warm_record("algo-1")
    items = []
    for number in range(1, nodes + 1):
        name = f"algo-{number}"
        world.nodes.save(replace(record, key=StreamKey("job", name, "system")))
        item = DigestItem(job="job", bucket=BUCKET, prefix="", run="run", node=name, day=FROM, axis=axis)
        items.append(item)
        digest = day_of_samples(item, gpus, rng).encode()
        part = encode_part(ReportPart(after="", through="k", done=True, unread=0, digest=digest))
        world.objects.put(BUCKET, item.place.part(item), part, PARTS_TYPE)
    world.objects.put(BUCKET, items[0].place.items, encode_items(items), "application/json")
    reports = StackReports(jobs=world.jobs, nodes=world.nodes, objects=world.objects)
    forget_peak()
    before, began = peak_bytes(), time.process_time()
    reports.full("job", "run", now=ended + 60.0)
    took, peak = time.process_time() - began, peak_bytes()
    links = report_links(job="job", arn=job.arn, bucket=BUCKET, prefix="")
    page, document = (
        len(world.objects.get(BUCKET, uri.removeprefix(f"s3://{BUCKET}/"), 10**9))
        for uri in (links.page, links.document)
    )
    show(
        f"report of {nodes} nodes x {gpus} GPUs x 24 h from its parts: {took:.1f} s of one core; "
        f"page {page / 1e6:.2f} MB, JSON {document / 1e6:.1f} MB; "
        f"peak {peak / 1e6:.0f} MB, {(peak - before) / 1e6:.0f} MB more"
    )
    assert took < BUILD_LIMIT_S
    assert peak < MEMORY_LIMIT_BYTES
    assert page < PAGE_LIMIT_BYTES
