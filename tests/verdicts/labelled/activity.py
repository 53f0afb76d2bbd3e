"""From a description to what a sampler would have read: arrays of one node's counters."""

from dataclasses import dataclass

import numpy as np

from tests.verdicts.labelled.description import Growth, Job, Load, Piece
from tests.verdicts.labelled.noise import Floats, Generator, Whole, computing, drifting, trailing_means
from tests.verdicts.labelled.steps import slow_spans

FIRST_SAMPLE_S = 1.3
# A GPU's utilization is that of the last moments before it is read.
LATEST_READING_S = 0.5

# Cells of a node's GPUs that are worked out at 0.1 s; where there would be more, at 0.5 s and then at 2.5 s.
FINE_CELLS = 600_000


@dataclass(frozen=True, slots=True)
class NodeCounters:
    """What was sampled on one node.

    Times are seconds since the job's start, float64[T]; cores and I/O wait float64[T, C]; GPUs and their memory
    float64[T, G]; host memory, percent, and traffic, bytes a second, float64[T].
    """

    at_s: Floats
    cores: Floats
    io_wait: Floats
    gpus: Floats
    memory: Floats
    host: Floats
    received: Floats
    read: Floats


def node_counters(job: Job, node: int) -> NodeCounters:
    """Return what is sampled on a node (from 1) of the job: equal descriptions give equal counters."""
    at_s = _sampled_at(job, node)
    cores, io_wait, host, received, read = _host(job, node, at_s)
    gpus, memory = _gpus(job, node, at_s)
    return NodeCounters(at_s, cores, io_wait, gpus, memory, host, received, read)


def _sampled_at(job: Job, node: int) -> Floats:
    rng = _random(job, node, 1)
    at_s = np.arange(FIRST_SAMPLE_S, 60.0 * job.minutes, job.interval_s)
    kept = rng.random(at_s.size) >= job.flaws.missing
    kept &= at_s >= 60.0 * dict(job.late_nodes).get(node, 0.0)
    for begin, end in job.flaws.gaps:
        kept &= (at_s < 60.0 * begin) | (at_s >= 60.0 * end)
    return np.asarray(at_s[kept])


def _random(job: Job, *place: int) -> Generator:
    return np.random.default_rng([job.seed, *place])


def _base_s(job: Job) -> float:
    for base_s in (0.1, 0.5):
        if 60.0 * job.minutes / base_s * max(1, job.machine.gpus) <= FINE_CELLS and base_s <= job.interval_s:
            return base_s
    return min(2.5, job.interval_s)


def pieces_of(job: Job, node: int) -> list[tuple[int, Piece]]:
    """Return the pieces of a node with their numbers."""
    return [(number, piece) for number, piece in enumerate(job.pieces) if not piece.nodes or node in piece.nodes]


def within(at_s: Floats, begin: float, end: float) -> slice:
    """Return the part of rising times that lies in a stretch."""
    return slice(int(np.searchsorted(at_s, begin)), int(np.searchsorted(at_s, end)))


def _gpus(job: Job, node: int, at_s: Floats) -> tuple[Floats, Floats]:
    """Return utilization and memory counter at the sampled times, whole percents as a driver gives them."""
    base_s = _base_s(job)
    count = job.machine.gpus
    fine = np.arange(base_s, 60.0 * job.minutes + base_s, base_s)
    busy = np.zeros((fine.size, count))
    memory = np.zeros_like(busy)
    rng = _random(job, node, 2)
    offsets = 1.2 * rng.standard_normal(count)
    for number, piece in pieces_of(job, node):
        for turn, (begin, end) in enumerate(piece.spans(job.minutes)):
            part = within(fine, begin, end)
            works = computing(
                fine[part],
                wait=piece.load.wait,
                cycle_s=piece.load.cycle_s,
                rng=_random(job, 0, 3, number, turn),
            )
            for gpu in piece.gpus or range(count):
                level = _level(piece.load, fine[part], float(offsets[gpu]), base_s, rng)
                busy[part, gpu] = np.where(works, level, piece.load.idle * rng.exponential(1.0, works.size))
                memory[part, gpu] = piece.load.memory * busy[part, gpu]
    for begin, end in slow_spans(job):
        part = within(fine, begin, end)
        busy[part] = np.minimum(busy[part], 2.0)
        memory[part] = np.minimum(memory[part], 1.0)
    for growth in job.growth:
        if not growth.nodes or node in growth.nodes:
            memory[:, list(growth.gpus or range(count))] += grown(growth, fine)[:, None]
    over_s = job.interval_s if job.averaging else min(job.interval_s, LATEST_READING_S)
    read = np.clip(np.round(trailing_means(busy, base_s, at_s, over_s)), 0.0, 100.0)
    filled = trailing_means(memory, base_s, at_s, over_s)
    filled = np.clip(np.round(filled + 0.6 * rng.standard_normal(filled.shape) * (filled > 1.0)), 0.0, 100.0)
    read[rng.random(read.shape) < job.flaws.zeros] = 0.0
    return read, filled


def _level(load: Load, at_s: Floats, offset: float, base_s: float, rng: Generator) -> Floats:
    """Return one GPU's utilization while it computes."""
    if load.busy <= 0.0:
        return np.zeros(at_s.size)
    end = load.busy if load.busy_to is None else load.busy_to
    level = np.linspace(load.busy, end, at_s.size) + offset * min(1.0, load.spread / 3.0)
    level += load.drift * drifting(at_s, 90.0, rng)
    level += 0.8 * load.spread * drifting(at_s, 2.0, rng) + 0.6 * load.spread * rng.standard_normal(at_s.size)
    dips = rng.random(at_s.size) < 0.004 * base_s / 0.1
    level[dips] *= rng.uniform(0.4, 0.9, int(dips.sum()))
    return np.clip(level, 0.0, 100.0)


def grown(growth: Growth, at_s: Floats) -> Floats:
    """Return what was added at so many seconds since the job's start."""
    into = np.clip((at_s / 60.0 - growth.start_min) / (growth.end_min - growth.start_min), 0.0, 1.0)
    if growth.shape == "sawtooth":
        into = (into * growth.stairs) % 1.0
    if growth.shape == "stairs":
        into = np.floor(into * growth.stairs) / growth.stairs
    if growth.shape == "plateau":
        into = np.minimum(1.0, (1.0 - np.exp(-12.0 * into)) / (1.0 - np.exp(-4.0)))
    return np.asarray(growth.points * into)


def _host(job: Job, node: int, at_s: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return the cores' loads, their I/O waits, host memory and traffic: means since the sample before."""
    count = job.machine.cores
    rng = _random(job, node, 4)
    cores = np.zeros((at_s.size, count))
    io_wait = np.zeros_like(cores)
    received, read = np.zeros(at_s.size), np.zeros(at_s.size)
    mix = np.exp(0.25 * rng.standard_normal(count))
    places = _places(rng.permutation(count), job.machine.gpus)
    for _, piece in pieces_of(job, node):
        if piece.gpus:
            continue
        for begin, end in piece.spans(job.minutes):
            part = within(at_s, begin, end)
            cores[part], io_wait[part] = _core_loads(piece.load, at_s[part], mix, places, job.interval_s, rng)
            traffic = np.exp(0.3 * drifting(at_s[part], 20.0, rng))
            received[part], read[part] = piece.load.received * traffic, piece.load.read * traffic
    host = np.clip(31.0 + 2.0 * drifting(at_s, 600.0, rng) + 0.2 * rng.standard_normal(at_s.size), 0.0, 100.0)
    return cores, io_wait, host, received, read


@dataclass(frozen=True, slots=True)
class _Places:
    """Which cores are filled first (and wait for a disk last), and those on which the GPUs' processes run."""

    order: Whole
    processes: Whole


def _places(order: Whole, gpus: int) -> _Places:
    middle = order.size // 2
    return _Places(order, order[middle : middle + gpus])


def _core_loads(
    load: Load, at_s: Floats, mix: Floats, places: _Places, interval_s: float, rng: Generator
) -> tuple[Floats, Floats]:
    """Return cores' loads and I/O waits float64[T, C]; the shorter the interval, the rougher they are."""
    shape = (at_s.size, mix.size)
    rough = min(3.0, (0.5 / interval_s) ** 0.5)
    slow = np.stack([drifting(at_s, 45.0, rng) for _ in range(mix.size)], axis=1)
    cores = load.cores * (mix + 0.12 * slow) + 6.0 * rough * rng.standard_normal(shape)
    if load.busy > 0.0:
        own = load.process + 5.0 * slow[:, places.processes]
        cores[:, places.processes] = own + 6.0 * rough * rng.standard_normal(own.shape)
    cores = np.clip(cores, 0.2, 100.0)
    full = places.order[: int(np.ceil(load.full_cores * mix.size))]
    cores[:, full] = 100.0 - np.abs(1.2 * rng.standard_normal((at_s.size, full.size)))
    io_wait = 0.4 * rng.exponential(1.0, shape)
    waiting = places.order[::-1][: int(np.ceil(load.io_cores * mix.size))]
    deep = load.io_wait + 4.0 * slow[:, waiting] + 5.0 * rough * rng.standard_normal((at_s.size, waiting.size))
    io_wait[:, waiting] = np.clip(deep, 0.0, 99.0)
    cores[:, waiting] = np.minimum(cores[:, waiting], 100.0 - io_wait[:, waiting])
    return cores, io_wait
