"""Further series of a described job's GPUs, as trainguard-collector writes them."""

from collections.abc import Iterator

import numpy as np

from tests.verdicts.labelled.activity import NodeCounters, grown, pieces_of, within
from tests.verdicts.labelled.description import Collected, Job
from tests.verdicts.labelled.noise import Floats, Whole

SLOW_S = 10.0
CLOCK_MHZ, MAXIMUM_MHZ = 1_530.0, 1_980.0
AT_POWER_LIMIT, IDLE = 4.0, 1.0

OF_AN_INSTANCE = frozenset({"MemoryUsedBytes", "MemoryTotalBytes", "SMActivityPercent"})

# A series' name, the rows of the node's samples in which it was read, int64[N], and its values, float64[N].
Column = tuple[str, Whole, Floats]


def further_series(job: Job, node: int, counters: NodeCounters) -> list[Column]:
    """Return what is read of each GPU of a node beside the managed series; nothing of a managed profile."""
    collected = job.collected
    if collected is None:
        return []
    found: list[Column] = []
    slow = _slow_rows(counters.at_s)
    for gpu in range(job.machine.gpus):
        for name, rows, values in _of_gpu(job, collected, node, gpu, counters, slow):
            shown, kept = _changed(collected, node, gpu, name, counters.at_s[rows], values)
            if kept.any():
                device = f"gpu{gpu}.mig0" if collected.mig and name in OF_AN_INSTANCE else f"gpu{gpu}"
                found.append((f"{device}.{name}", rows[kept], shown[kept]))
        found += _further(collected, node, gpu, counters.at_s, slow)
    return found


def _slow_rows(at_s: Floats) -> Whole:
    """Return the first sample in each ten seconds."""
    tens = np.floor(at_s / SLOW_S)
    return np.flatnonzero(np.diff(tens, prepend=-1.0) > 0.0)


def _of_gpu(
    job: Job, collected: Collected, node: int, gpu: int, counters: NodeCounters, slow: Whole
) -> Iterator[Column]:
    rng = np.random.default_rng([job.seed, node, 7, gpu])
    at_s, busy = counters.at_s, counters.gpus[:, gpu]
    every = np.arange(at_s.size)
    effort, activity, rough = np.ones(at_s.size), np.zeros(at_s.size), np.ones(at_s.size)
    for _, piece in pieces_of(job, node):
        if piece.gpus and gpu not in piece.gpus:
            continue
        for begin, end in piece.spans(job.minutes):
            effort[within(at_s, begin, end)] = piece.load.effort
            activity[within(at_s, begin, end)] = piece.load.activity
            rough[within(at_s, begin, end)] = min(1.0, piece.load.spread / 3.0)  # a kernel that polls draws evenly
    power = collected.idle_w + (collected.work_w - collected.idle_w) * effort * busy / 100.0
    yield "PowerWatts", every, np.maximum(power + 0.02 * rough * power * rng.standard_normal(at_s.size), 1.0)
    used = np.where(at_s >= 60.0 * _first_work_min(job), collected.used_gb, 0.5)
    for growth in collected.held:
        if (not growth.nodes or node in growth.nodes) and (not growth.gpus or gpu in growth.gpus):
            used = used + grown(growth, at_s)
    yield "MemoryUsedBytes", every, 1e9 * np.minimum(used, collected.total_gb)
    yield "MemoryTotalBytes", every, np.full(at_s.size, 1e9 * collected.total_gb)
    working = busy[slow] >= 50.0
    yield (
        "SMActivityPercent",
        slow,
        np.clip(activity[slow] * busy[slow] / 100.0 + rng.standard_normal(slow.size), 0, 100),
    )
    yield "TemperatureCelsius", slow, 38.0 + 0.3 * busy[slow]
    clock: Floats = np.where(working, CLOCK_MHZ + 12.0 * rng.standard_normal(slow.size), 345.0)
    yield "SMClockMHz", slow, clock
    yield "SMClockMaximumMHz", slow, np.full(slow.size, MAXIMUM_MHZ)
    yield "ThrottleReasons", slow, np.where(working, AT_POWER_LIMIT, IDLE).astype(np.float64)
    yield "PCIeLinkWidth", slow, np.full(slow.size, 16.0)
    for name in ("ECCUncorrectedErrors", "RemappedRowsFailed", "XID", "Lost"):
        yield name, slow, np.zeros(slow.size)


def _first_work_min(job: Job) -> float:
    return min((piece.start_min for piece in job.pieces if piece.load.busy > 0.0), default=0.0)


def _changed(
    collected: Collected, node: int, gpu: int, name: str, at_s: Floats, values: Floats
) -> tuple[Floats, np.ndarray]:
    """Return a series with what is not as on a healthy GPU, and which of its readings there are."""
    shown, kept = values.copy(), np.ones(values.size, dtype=np.bool_)
    for reading in collected.readings:
        if reading.name not in {name, "*"} or (reading.nodes and node not in reading.nodes):
            continue
        if reading.gpus and gpu not in reading.gpus:
            continue
        part = within(at_s, 60.0 * reading.start_min, np.inf if reading.end_min is None else 60.0 * reading.end_min)
        if reading.value is None:
            kept[part] = name in {"Lost", "XID"}
        elif name != "SMClockMHz" or reading.value < CLOCK_MHZ:
            shown[part] = reading.value
    return shown, kept


def _further(collected: Collected, node: int, gpu: int, at_s: Floats, slow: Whole) -> Iterator[Column]:
    """Return series that not every collected GPU has."""
    for reading in collected.readings:
        if reading.value is None or not reading.name.startswith(("XIDCount", "PowerLimit")):
            continue
        if (not reading.nodes or node in reading.nodes) and (not reading.gpus or gpu in reading.gpus):
            rows = slow[at_s[slow] >= 60.0 * reading.start_min]
            yield f"gpu{gpu}.{reading.name}", rows, np.full(rows.size, reading.value)
