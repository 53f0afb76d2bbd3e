"""All that is kept of random nodes, portion by portion: points, gaps, idle time, use by time, and their bytes."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.answers.recorded import compare, rounded
from tests.support.node_snapshots import node_snapshots
from trainguard.formats.profile.snapshots import FloatArray, Snapshots
from trainguard.state.codec import CODEC, decode_state, encode_state
from trainguard.state.gpu_time import GpuTime
from trainguard.state.histogram import DurationHistogram, LogHistogram, PercentCounts, TrafficCounts
from trainguard.state.sample_window import SampleWindow, SampleWindowState

FOLDER = Path(__file__).with_name("state")
NODES, SETS, GROUP = 60, 40, 10
START = 1_700_000_040.0
# Percent: 10 is active, and what has decimals takes more bytes.
LEVELS = (0.0, 0.0, 0.0, 3.0, 9.0, 9.5, 10.0, 50.0, 50.25, 97.0)

Random = np.random.Generator


def random_node(seed: int) -> tuple[Snapshots, float, Random]:
    """Return snapshots of up to two GPUs, in phases, with pauses, gaps and missing samples; and how far apart they are.

    The second GPU appears late on each third node.
    """
    random = np.random.default_rng(seed)
    interval_s = float(random.choice([2.0, 10.0, 20.0, 30.0, 60.0]))
    points = int(random.integers(40, 160))
    gpus = int(random.integers(0 if seed % 10 == 0 else 1, 3))
    gpu, begin = np.zeros((points, gpus)), 0
    while begin < points:
        end = begin + int(random.choice([1, 2, 3, 6, 7, 12, 31]))
        gpu[begin:end] = random.choice(LEVELS, gpus)
        begin = end
    gpu[random.random(points) < float(random.choice([0.0, 0.05, 0.2]))] = np.nan
    if gpus > 1 and seed % 3 == 0:
        gpu[: points // 2, 1] = np.nan
    steps = np.full(points, interval_s)
    jumps = random.random(points) < float(random.choice([0.0, 0.02, 0.06]))
    steps[jumps] *= random.choice([2.0, 3.0, 4.0, 7.0, 60.0], int(jumps.sum()))
    if seed % 2:
        steps[random.random(points) < 0.03] += random.choice([0.5, 5.0, 60.0, 120.0])
    times = START + np.cumsum(steps)
    cpu = random.choice([20.0, 20.25, 33.333, 80.0], points)
    memory = np.where(np.isnan(gpu), np.nan, random.choice([0.0, 12.5, 41.0], gpu.shape))
    return node_snapshots(times, gpu, gpu_memory=memory, cpu_mean=cpu), interval_s, random


def portions(random: Random, points: int) -> list[slice]:
    """Return how snapshots come: in up to six objects, some of them empty."""
    cuts = sorted(random.integers(0, points + 1, int(random.integers(0, 6))).tolist())
    return [slice(start, end) for start, end in zip([0, *cuts], [*cuts, points], strict=True)]


def part_of(node: Snapshots, rows: slice, gpus: int) -> Snapshots:
    """Return some of a node's snapshots, of so many of its GPUs."""
    return node_snapshots(
        node.times[rows],
        node.gpu_utilization[rows, :gpus],
        gpu_memory=node.gpu_memory[rows, :gpus],
        cpu_mean=node.cpu_mean[rows],
    )


def seen_of(window: SampleWindow, since: FloatArray, state: SampleWindowState) -> list[Any]:
    """Return what a window shows to those who work with it."""
    recent = state.recent_use
    return [
        window.fresh,
        window.restarted,
        window.working_since,
        window.ever_active.tolist(),
        [digest(each) for each in (window.times, window.cpu_mean, window.gpu_utilization, window.gpu_memory)],
        window.histogram.sum(axis=1).tolist(),
        [recent.highest_mean, recent.newest_mean, *(recent.mean_since(float(each)) for each in since)],
    ]


def digest(values: Any) -> str:
    """Return a short name of values: of bytes, of an array, or of what JSON holds."""
    data = values.tobytes() if isinstance(values, np.ndarray) else msgspec.json.encode(rounded(values))
    return hashlib.sha256(data).hexdigest()[:12]


def _working_since(window: SampleWindow, state: SampleWindowState) -> float | None:
    return window.working_since if state.first_active_at is None else state.first_active_at


def kept_of(seed: int) -> dict[str, Any]:
    """Fold a random node's objects, with a store and a read after each, and return what is kept of it."""
    node, interval_s, random = random_node(seed)
    state, use = SampleWindowState(), GpuTime()
    seen, degraded, last = [], [], None
    gpus = node.gpu_utilization.shape[1]
    capacity = int(random.choice([20, 60, 2_500]))
    for rows in portions(random, len(node)):
        shown = 1 if gpus > 1 and seed % 3 == 0 and rows.stop <= len(node) // 2 else gpus
        part = part_of(node, rows, shown)
        window = SampleWindow(state, shown)
        window.note_gaps(part.times, since=last, interval_s=interval_s)
        active, started = window.extend(part, capacity=capacity, interval_s=interval_s)
        use.add(part.times, part.gpu_utilization, interval_s=interval_s, working_since=_working_since(window, state))
        last = float(part.times[-1]) if len(part) else last
        marks = START + 240.0 * random.integers(0, 30, 2) + random.choice([0.0, 10.0])
        seen.append([active.tolist(), started.tolist(), seen_of(window, marks, state)])
        if seed % 4 == 1 and random.random() < 0.4:
            degraded += [window.degrade(), window.degrade() if random.random() < 0.5 else None]
        if seed % 2 == 0 and rows.stop == len(node):
            window.settle()
        window.store()
        seen.append(seen_of(window, marks, state))
        state = decode_state("a node", CODEC, encode_state(state), SampleWindowState)
    plain = msgspec.to_builtins(state)
    packed = plain.pop("window", []), plain.pop("histogram", "")
    return {
        "all": digest([seen, packed, plain]),
        "degraded": [each for each in degraded if each],
        "kept": len(SampleWindow(state, gpus).times),
        **{name: plain[name] for name in ("first_active_at", "kept_total", "missing_s", "gaps") if name in plain},
        "idle": [None if state.idle is None else state.idle.since, msgspec.to_builtins(state.idle_time)],
        "quiet_since": state.recent_use.quiet_since,
        "use": [use.grid.width_s, digest(msgspec.to_builtins(use))],
        "steps": digest(use.finished(interval_s).sums().round(3).tolist()),
    }


@pytest.mark.parametrize("first", range(0, NODES, GROUP))
def test_state_folded_from_random_nodes_matches_the_reviewed(first: int) -> None:
    answers = {f"node {seed}": kept_of(seed) for seed in range(first, first + GROUP)}
    compare(answers, FOLDER / f"nodes-{first:02}.json")


def random_set(random: Random) -> np.typing.NDArray[np.int64]:
    """Return whole numbers of very different sizes."""
    size = int(random.choice([0, 1, 2, 5, 30]))
    exponents = random.uniform(0.0, float(random.choice([1.0, 3.0, 12.5])), size)
    return np.floor(10.0**exponents).astype(np.int64) - 1


def counted_of(seed: int) -> dict[str, Any]:
    """Count random numbers in a histogram, merged with another one, and in the counts of usage."""
    random = np.random.default_rng(seed)
    histogram: LogHistogram = DurationHistogram() if seed % 2 else LogHistogram()
    other = type(histogram)()
    histogram.add(random_set(random))
    histogram.add(random_set(random))
    other.add(random_set(random))
    other.limit(int(random.choice([2, 5, 64])))
    histogram.limit(int(random.choice([3, 8, 64])))
    histogram.merge(other)
    histogram.add(random_set(random))
    quantiles = histogram.quantiles((0.0, 0.25, 0.5, 0.95, 1.0))
    answer = {"level": histogram.level, "total": histogram.total, "quantiles": quantiles}
    answer |= {"bins": histogram.bins, "counts": histogram.counts, "edges": digest([*histogram.edges()[1].tolist()])}
    if isinstance(histogram, DurationHistogram):
        lower, upper = (each.tolist() for each in histogram.edges())
        marks = [0.0, 99.0, 99.5, 5_000.0, *lower[:2], *upper[:2]]
        sums = [(histogram.count_above(each), histogram.count_below(each)) for each in marks]
        answer["beyond"] = [*sums, *(histogram.excess_above(each, each / 2.0) for each in marks)]
    percents, traffic = PercentCounts(), TrafficCounts()
    for _ in range(3):
        percents.add(random.choice([0.0, 0.49, 0.5, 1.5, 33.335, 99.5, 100.0], int(random.integers(1, 20))))
        traffic.add(random.choice([np.nan, 0.0, 0.5, 150.4, 1e6, 2e13], int(random.integers(0, 5))))
        traffic.add(np.power(1.01, random.integers(0, 100, int(random.choice([0, 70]))), dtype=np.float64) * 1e3)
    answer["usage"] = [msgspec.to_builtins(each) for each in (percents, traffic)]
    return answer


def test_counts_of_random_numbers_match_the_reviewed() -> None:
    compare({f"set {seed}": counted_of(seed) for seed in range(SETS)}, FOLDER / "counts.json")
