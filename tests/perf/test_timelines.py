"""What time lines cost: to digest an object and a node's day, to build the largest report's, and their size.

`make bench`. A day is made of 20 distinct minutes, parsed again for every minute of theirs and then disturbed,
so that no two minutes are alike and a part compresses no better than a real one.
"""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from demo.synthesis import minute_of_node
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import StepBatch
from trainguard.formats.profile.system import MetricSeries, Samples, read_system_object
from trainguard.report.timeline.build import build_timelines
from trainguard.report.timeline.digest import NodeDigest, decode_digest
from trainguard.report.timeline.series import Band, TimeAxis, Timelines, axis_for

pytestmark = pytest.mark.perf

START = 1_795_248_000
MINUTE_S, DAY_S = 60, 86_400
DISTINCT = 20
GPUS = 16
STEP_S = 0.4
DIGEST_LIMIT = 0.5
PEAK_LIMIT_BYTES = 1e9
PART_LIMIT_BYTES = 3e6
BUILD_LIMIT_S = 3.0
# A page may have 3 MB: a sixth of it is left to everything that is no time line.
PACKED_LIMIT_BYTES = 2.5e6


class TypedLine(msgspec.Struct):
    """All six fields of a line: what any reader of these objects has to parse."""

    Type: str
    Name: str | None
    Dimension: str
    Value: float
    NodeId: str
    Timestamp: float


def show(figure: str) -> None:
    """Print a figure past pytest's capture."""
    os.write(1, f"\n{figure}\n".encode())


def best_of(work: Callable[[], object], rounds: int = 30) -> float:
    """Return the fastest of some rounds, in seconds: the machine's noise only ever adds."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def forget_peak() -> None:
    """Reset the peak of this process's memory."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")


def peak_bytes() -> int:
    """Return the most that this process held."""
    status = Path("/proc/self/status").read_text("ascii")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def minute_samples(body: bytes, minute: int) -> Samples:
    """Parse a minute that stands for another one."""
    samples = read_system_object("key", body, node="algo-1", minute=START)
    return replace(samples, times=samples.times + (minute - START))


def steps_of_a_minute(minute: int, rng: np.random.Generator) -> FrameworkEvents:
    """Return the steps of a process."""
    count = round(MINUTE_S / STEP_S)
    starts = (minute * 1e6 + np.arange(count) * STEP_S * 1e6).astype(np.int64)
    durations = rng.normal(STEP_S * 1e6, 5_000, count).astype(np.int64)
    return FrameworkEvents((StepBatch("algo-1-100", "Step:ModeKeys.TRAIN", starts, durations, ("7",) * count),))


def packed_bytes(timelines: Timelines) -> int:
    """Return the bytes of the series in base64: one a percent, four a rate or a number of seconds."""
    nodes = [*timelines.nodes, *(node for detail in timelines.detail for node in detail.nodes)]
    bands = [band for node in nodes for band in (node.cpu, node.io_wait, node.host_memory)]
    bands += [band for node in nodes for gpu in node.gpus for band in (gpu.utilization, gpu.memory)]
    total = sum(_bytes(band, 1) for band in bands) + sum(_bytes(node.network, 4) for node in nodes)
    for steps in timelines.steps:
        total += 3 * 4 * len(steps.mean_s) + sum(12 + len(step.step) for step in steps.slowest)
    return total * 4 // 3


def _bytes(band: Band | None, width: int) -> int:
    lines = () if band is None else (band.mean, band.low, band.high)
    return sum(width * len(line) for line in lines if line is not None)


def figures(what: str, timelines: Timelines, seconds: float) -> str:
    """Return a line on how long a build took and what came of it."""
    json = len(msgspec.json.encode(timelines)) / 1e6
    axis = timelines.axis
    return (
        f"{what}: {axis.buckets} buckets of {axis.bucket_s:.0f} s"
        f"{''.join(f', {each.axis.buckets} of {each.axis.bucket_s:.0f} s' for each in timelines.detail)}, "
        f"built in {seconds:.2f} s, "
        f"{packed_bytes(timelines) / 1e6:.2f} MB packed, {json:.1f} MB as JSON"
    )


def test_digest_of_one_object_beside_its_typed_parse() -> None:
    """96 cores, 16 GPUs, 500 ms."""
    body = minute_of_node(minute=START, gpus=GPUS)
    samples = minute_samples(body, START)
    digest = NodeDigest("algo-1", axis_for(START, START + DAY_S, GPUS))
    decoder = msgspec.json.Decoder(TypedLine)
    took, parse = best_of(lambda: digest.add_samples(samples)), best_of(lambda: decoder.decode_lines(body))
    show(f"digest of {samples.times.size:,} samples: {took * 1e3:.2f} ms, {took / parse:.2f} of the typed parse")
    assert took <= DIGEST_LIMIT * parse


def test_a_nodes_day() -> None:
    """Read, parsed, digested, encoded; and the report of two such nodes."""
    bodies = [minute_of_node(minute=START, gpus=GPUS, seed=seed) for seed in range(DISTINCT)]
    forget_peak()
    digest = NodeDigest("algo-1", axis_for(START - MINUTE_S, START + DAY_S, GPUS))
    digesting = 0.0
    rng = np.random.default_rng(0)
    began = time.perf_counter()
    for index in range(DAY_S // MINUTE_S):
        minute = START + MINUTE_S * index
        samples, events = minute_samples(bodies[index % DISTINCT], minute), steps_of_a_minute(minute, rng)
        samples = replace(samples, values=samples.values * rng.uniform(0.9, 1.0, samples.values.size))
        started = time.perf_counter()
        digest.add_samples(samples)
        digest.add_events(events)
        digesting += time.perf_counter() - started
    took = time.perf_counter() - began
    part = digest.encode()
    started = time.perf_counter()
    shown = build_timelines([decode_digest(part)], episodes=[], started_at=None, ended_at=None)
    built, peak = time.perf_counter() - started, peak_bytes()
    show(
        f"a day of a node, {GPUS} GPUs, 500 ms: {took:.1f} s, of which {digesting:.2f} s to digest; "
        f"part {len(part) / 1e3:.0f} kB; peak {peak / 1e6:.0f} MB"
    )
    show(figures(f"24 h x {GPUS} GPUs", shown, built))
    assert digest.outside == 0
    assert peak < PEAK_LIMIT_BYTES
    assert len(part) < PART_LIMIT_BYTES
    assert packed_bytes(shown) < PACKED_LIMIT_BYTES


def full_digest(node: str, axis: TimeAxis, gpus: int, rng: np.random.Generator) -> NodeDigest:
    """Return a digest with two samples of every series in every bucket, and the steps of eight processes."""
    table = (
        *(MetricSeries("gpu", f"gpu{number}") for number in range(gpus)),
        *(MetricSeries("gpu_memory", f"gpu{number}") for number in range(gpus)),
        *(MetricSeries(kind, kind) for kind in ("cpu", "io_wait", "host_memory", "network")),
    )
    times = axis.start + axis.bucket_s * np.repeat(np.arange(axis.buckets, dtype=np.float64), 2) + 0.25
    series = np.tile(np.arange(len(table)), times.size)
    times = np.repeat(times, len(table))
    digest = NodeDigest(node, axis)
    digest.add_samples(Samples(times, rng.uniform(0, 100, times.size), series, table))
    starts = ((axis.start + axis.bucket_s * np.arange(axis.buckets)) * 1e6).astype(np.int64)
    for rank in range(8):
        durations = rng.integers(300_000, 500_000, starts.size)
        mode = "Step:ModeKeys.TRAIN"
        batch = StepBatch(f"{node}-{rank}", mode, starts, durations, ("123456",) * starts.size)
        digest.add_events(FrameworkEvents((batch,)))
    return digest


def test_time_lines_of_the_largest_job() -> None:
    """128 nodes of 8 GPUs over three days, in a part a node and day."""
    axis = axis_for(START, START + 3 * DAY_S, 1_024, 128)
    rng = np.random.default_rng(0)
    parts = [full_digest(f"algo-{number}", axis, 8, rng).encode() for number in range(1, 129)]
    forget_peak()
    before = peak_bytes()
    started = time.perf_counter()
    digests = [decode_digest(part) for part in parts]
    shown = build_timelines(digests, episodes=[], started_at=None, ended_at=None)
    took, peak = time.perf_counter() - started, peak_bytes() - before
    show(figures("128 nodes x 8 GPUs x 3 days, from its parts", shown, took) + f"; peak {peak / 1e6:.0f} MB more")
    assert took < BUILD_LIMIT_S
    assert peak < PEAK_LIMIT_BYTES
    assert packed_bytes(shown) < PACKED_LIMIT_BYTES
