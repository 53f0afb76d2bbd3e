"""The ledger of a node: paid time, its GPUs' use, its processes' time, a kernel trace.

Utilization is compute; the rest goes to the causes in the order of the buckets. A process that waits while the GPU
works loses nothing, so data, checkpoints and evaluation get no more than the GPUs left undone in the same step of time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainguard.formats.profile.snapshots import FloatArray, IntArray
from trainguard.ledger.bucket import ROWS, Bucket, StepShares
from trainguard.ledger.node import (
    NO_ATTEMPTS,
    Attempts,
    NodeLedger,
    Span,
    attempts_of,
    empty_amounts,
    joined,
    seconds_in,
    seconds_until,
    shares_in,
)
from trainguard.state.gpu_time import BUSY, SAMPLED, GpuTime
from trainguard.state.step_time import CHECKPOINT, DATA, EVALUATION, PEERS, TRAIN, StepTime

# GPUs that were busy for a smaller share of the sampled time have not worked.
_NEVER_WORKED = 1e-3
# So many samples tell how busy a GPU was, to a few percent.
_ENOUGH_SAMPLES = 64

_FEW = 8
# What utilization leaves open, in the order in which causes take it.
_OPEN = (ROWS[Bucket.IDLE], ROWS[Bucket.UNEXPLAINED])


@dataclass(slots=True)
class NodeTime:
    """One node's times; ``paid`` is in epoch seconds, ``gpu_names`` are those sampled.

    ``use`` is up to the newest sample (`GpuTime.finished`), None of a node that wrote none; ``steps`` is None without
    events of a framework. Once it has ``ended``, the time after the last work is the tail. ``saver`` and ``evaluator``
    are of another node that alone saves checkpoints, or evaluates, for all: this one waits for it. ``peers_share``, 0
    to 1, is of its waits for peers what is no communication.
    """

    node: str
    gpus: int
    paid: Sequence[Span]
    gpu_names: tuple[str, ...] = ()
    use: GpuTime | None = None
    steps: StepTime | None = None
    ended: bool = False
    interval_s: float = 60.0
    saver: StepTime | None = None
    evaluator: StepTime | None = None
    peers_share: float = 1.0


def node_ledger(time: NodeTime, shares: StepShares | None = None) -> NodeLedger:
    use, paid = time.use, joined(time.paid)
    if use is None or not use.first_ms or not time.gpus or not paid:
        return _unsampled(time, paid)
    attempts = NO_ATTEMPTS if time.steps is None else attempts_of(time.steps)
    edges = _edges(use, paid, attempts)
    ledger = NodeLedger(time.node, time.gpus, edges, empty_amounts(len(edges) - 1), _lost(time.gpu_names, use, paid))
    if use.sm_samples:
        ledger.sm_gpu_seconds = use.sm_percents / use.sm_samples / 100.0 * sum(row[SAMPLED] for row in use.gpus) / 1_000
    _sample(ledger, use, paid)
    _begin_and_end(ledger, use, ended=time.ended)
    _restarts(ledger, attempts)
    unused, samples = _set_aside(ledger, use), _Samples(len(use.gpus), use.grid.width_s, time.interval_s)
    for bucket, waits in _waits(time, attempts).items():
        rates = _undone_in(waits, ledger, samples) if bucket is Bucket.EVALUATION else None
        if rates is None:
            _take(ledger, bucket, waits, samples)
            continue
        for row, rate in rates.items():
            _take(ledger, bucket, replace(waits, rows=(row,), wanted=rate * waits.wanted), samples)
    if shares is None:
        _wait_for_peers(ledger, time, attempts, samples)
    else:
        _divide(ledger, shares, time.steps)
    ledger.of(Bucket.IDLE)[:] += unused
    return ledger


def _unsampled(time: NodeTime, paid: Sequence[Span]) -> NodeLedger:
    edges = np.unique(np.array([edge for span in paid for edge in span] or [0.0]))
    ledger = NodeLedger(time.node, time.gpus, edges, empty_amounts(len(edges) - 1))
    ledger.of(Bucket.NO_SAMPLES)[:] = time.gpus * seconds_in(edges, paid)
    return ledger


def _edges(use: GpuTime, paid: Sequence[Span], attempts: Attempts) -> FloatArray:
    cuts = [edge for span in paid for edge in span]
    cuts += [use.first_ms / 1_000, use.last_ms / 1_000]
    cuts += [mark.at_ms / 1_000 for mark in (use.start, use.end) if mark is not None]
    cuts += [edge for span in (*attempts.restarts, *attempts.again) for edge in span]
    edges = np.unique(np.concatenate([use.grid.edges, cuts]))
    inside: FloatArray = edges[(edges >= paid[0][0]) & (edges <= paid[-1][1])]
    return inside


def _lost(gpu_names: Sequence[str], use: GpuTime, paid: Sequence[Span]) -> dict[str, float]:
    paid_s = sum(end - start for start, end in paid)
    return {name: max(paid_s - row[BUSY] / 1_000, 0.0) for name, row in zip(gpu_names, use.gpus, strict=False)}


def _sample(ledger: NodeLedger, use: GpuTime, paid: Sequence[Span]) -> None:
    """Divide the paid time into time without samples, compute, idle time, and the rest."""
    capacity = ledger.gpus * seconds_in(ledger.edges, paid)
    sampled, busy, idle = _in_cells(ledger.edges, use, paid)
    kept = np.minimum(1.0, np.divide(capacity, sampled, out=np.zeros_like(sampled), where=sampled > 0.0))
    sampled, busy, idle = sampled * kept, busy * kept, idle * kept
    ledger.of(Bucket.NO_SAMPLES)[:] = capacity - sampled
    ledger.of(Bucket.COMPUTE)[:] = busy
    ledger.of(Bucket.IDLE)[:] = idle
    ledger.of(Bucket.UNEXPLAINED)[:] = np.maximum(sampled - busy - idle, 0.0)


def _in_cells(edges: FloatArray, use: GpuTime, paid: Sequence[Span]) -> FloatArray:
    """Return GPU-seconds sampled, busy and idle in each cell, float64[3, C]: exact at marks, even between."""
    sums = 1_000 * use.sums()
    totals = np.zeros((3, sums.shape[1] + 1))
    np.cumsum(sums, axis=1, out=totals[:, 1:])
    at = use.grid.edges
    exact = [*_at_paid_edges(at, paid, totals), (use.first_ms / 1_000, [0, 0, 0]), (use.last_ms / 1_000, totals[:, -1])]
    exact += [(mark.at_ms / 1_000, mark.sums) for mark in (use.start, use.end) if mark is not None]
    at = np.append(at, [each for each, _ in exact])
    reached = np.concatenate([totals, np.array([sums for _, sums in exact], dtype=np.float64).T], axis=1)
    order = np.argsort(at, kind="stable")
    at, reached = at[order], np.maximum.accumulate(reached[:, order], axis=1)
    in_edges = np.stack([np.interp(edges, at, row) for row in reached])
    cells: FloatArray = (in_edges[:, 1:] - in_edges[:, :-1]) / 1_000
    return cells


def _at_paid_edges(
    edges: FloatArray, paid: Sequence[Span], totals: FloatArray
) -> Iterator[tuple[float, Sequence[float] | FloatArray]]:
    """Yield edges of paid time within a step of the grid, and the sums up to there, float64[3]."""
    for at in (edge for span in paid for edge in span):
        step = int(edges.searchsorted(at, side="right")) - 1
        if not 0 <= step < len(edges) - 1 or at == edges[step]:
            continue
        begin, until, end = seconds_until(np.array([edges[step], at, edges[step + 1]]), paid).tolist()
        if end > begin:
            share = (until - begin) / (end - begin)
            yield at, totals[:, step] + share * (totals[:, step + 1] - totals[:, step])


def _begin_and_end(ledger: NodeLedger, use: GpuTime, *, ended: bool) -> None:
    """Give what is open before the first work to start-up, and after the last to the tail of an ended job."""
    middles = _middles(ledger.edges)
    worked = sum(row[BUSY] for row in use.gpus) >= _NEVER_WORKED * sum(row[SAMPLED] for row in use.gpus)
    before = 0
    if use.start is not None:
        before = int(middles.searchsorted(use.start.at_ms / 1_000))
    elif not worked and not ended:
        before = middles.size
    for row in _OPEN:
        _move(ledger, row, Bucket.START_UP, slice(before))
    if not use.starts_active:
        first = int(middles.searchsorted(use.first_ms / 1_000))
        _move(ledger, ROWS[Bucket.NO_SAMPLES], Bucket.START_UP, slice(first))
    if ended and use.end is not None and worked:
        for row in _OPEN:
            _move(ledger, row, Bucket.TAIL, slice(int(middles.searchsorted(use.end.at_ms / 1_000)), None))
        if use.end.at_ms < use.last_ms:
            last = int(middles.searchsorted(use.last_ms / 1_000))
            _move(ledger, ROWS[Bucket.NO_SAMPLES], Bucket.TAIL, slice(last, None))


def _move(ledger: NodeLedger, row: int, bucket: Bucket, cells: slice) -> None:
    ledger.of(bucket)[cells] += ledger.amounts[row, cells]
    ledger.amounts[row, cells] = 0.0


def _restarts(ledger: NodeLedger, attempts: Attempts) -> None:
    spans = joined([*attempts.restarts, *attempts.again])
    if not spans:
        return
    moved = ledger.amounts * shares_in(ledger.edges, spans)
    moved[ROWS[Bucket.NO_SAMPLES]] = 0.0
    ledger.amounts -= moved
    ledger.amounts[ROWS[Bucket.RESTART]] += moved.sum(axis=0)
    if attempts.again:
        ledger.estimated.add(Bucket.RESTART)


def _unused(use: GpuTime) -> int:
    return sum(row[BUSY] < _NEVER_WORKED * row[SAMPLED] for row in use.gpus)


def _set_aside(ledger: NodeLedger, use: GpuTime) -> FloatArray:
    """Take the idle time of GPUs that never worked out of what causes share; return it, GPU-seconds, float64[C]."""
    if not _unused(use):
        return np.zeros(len(ledger.edges) - 1)
    aside = ledger.amounts[[*_OPEN, ROWS[Bucket.COMPUTE]]].sum(axis=0) * (_unused(use) / max(len(use.gpus), 1))
    taken: FloatArray = np.minimum(aside, ledger.of(Bucket.IDLE))
    ledger.of(Bucket.IDLE)[:] -= taken
    return taken


@dataclass(frozen=True, slots=True)
class _Waits:
    """GPU-seconds for which processes held GPUs up, float64[S] in the steps of a grid, to be taken from ``rows``."""

    edges: FloatArray
    width_s: float
    wanted: FloatArray
    rows: tuple[int, ...] = _OPEN


@dataclass(frozen=True, slots=True)
class _Samples:
    """How finely a node's GPUs were sampled: so many of them, in steps of a grid, at an interval; seconds."""

    gpus: int
    width_s: float
    interval_s: float


def _waits(time: NodeTime, attempts: Attempts) -> dict[Bucket, _Waits]:
    """Return what data, checkpoints and evaluation held up: the latter two all GPUs, also of nodes that wait."""
    found = {Bucket.DATA: (time.steps, DATA, attempts.processes)}
    for bucket, column, own, other in (
        (Bucket.CHECKPOINT, CHECKPOINT, attempts.savers, time.saver),
        (Bucket.EVALUATION, EVALUATION, attempts.evaluators, time.evaluator),
    ):
        steps = time.steps if own or other is None else other
        found[bucket] = steps, column, own if own or steps is None else sharing(steps, column)
    gpus = 0 if time.use is None else len(time.use.gpus) - _unused(time.use)
    waits = {}
    for bucket, (steps, column, processes) in found.items():
        if steps is not None and steps.grid.column(column).any():
            wanted = steps.grid.column(column) / 1_000 * gpus / max(processes, 1)
            waits[bucket] = _Waits(steps.grid.edges, steps.grid.width_s, wanted)
    return waits


def _undone_in(evaluation: _Waits, ledger: NodeLedger, samples: _Samples) -> dict[int, float] | None:
    """Return how much of the GPUs' time evaluation leaves undone, 0 to 1, by row; None without mostly such steps.

    The lower quartile counts, so that a pause nearby is not taken for it; of few samples, which differ anyhow, the
    mean.
    """
    place = np.searchsorted(evaluation.edges, _middles(ledger.edges), side="right") - 1
    count = evaluation.wanted.size
    inside = (place >= 0) & (place < count)

    def by_step(row: int) -> FloatArray:
        return _sums(place[inside], ledger.amounts[row, inside], count)

    rows = {row: by_step(row) for row in evaluation.rows}
    total = by_step(ROWS[Bucket.COMPUTE]) + sum(rows.values())
    held = np.minimum(evaluation.wanted, total)
    mostly, none = (held > 0.5 * total) & (total > 0.0), (held <= 0.0) & (total > 0.0)
    if not mostly.any():
        return None
    rates = {}
    for row, left in rows.items():
        elsewhere = float(np.median(left[none] / total[none])) if none.any() else 0.0
        found = (left[mostly] - elsewhere * (total - held)[mostly]) / held[mostly]
        few = evaluation.width_s < _FEW * samples.interval_s
        rates[row] = float(np.clip(found.mean() if few else np.quantile(found, 0.25), 0.0, 1.0))
    return rates


def sharing(steps: StepTime, column: int) -> int:
    """Return how many processes of a node save checkpoints, or evaluate, at the same time."""
    attempts = attempts_of(steps)
    return attempts.savers if column == CHECKPOINT else attempts.evaluators


def _take(ledger: NodeLedger, bucket: Bucket, waits: _Waits, samples: _Samples) -> None:
    """Give a bucket what was held up, of what is open in the same time, idle first, in blocks as wide as the grids."""
    width, wanted = max(waits.width_s, samples.width_s), waits.wanted
    mine, theirs = _middles(ledger.edges), _middles(waits.edges)
    while True:
        blocks, inverse = np.unique(
            np.concatenate([np.floor(mine / width), np.floor(theirs / width)]), return_inverse=True
        )
        cells, places = inverse[: mine.size], inverse[mine.size :]
        in_block = _sums(places, wanted, blocks.size)
        left = in_block
        for row in waits.rows:
            left = left - _take_from(ledger, row, bucket, cells, left)
        number = width / samples.interval_s
        if number >= _ENOUGH_SAMPLES or not left.any():
            return
        left = np.minimum(left, 0.5 * samples.gpus * samples.interval_s * np.sqrt(number))
        wanted = wanted * np.divide(left, in_block, out=np.zeros_like(left), where=in_block > 0.0)[places]
        width *= 2.0


def _take_from(ledger: NodeLedger, row: int, bucket: Bucket, cells: IntArray, wanted: FloatArray) -> FloatArray:
    there = _sums(cells, ledger.amounts[row], wanted.size)
    part = np.divide(np.minimum(wanted, there), there, out=np.zeros_like(there), where=there > 0.0)
    moved = ledger.amounts[row] * part[cells]
    ledger.amounts[row] -= moved
    ledger.amounts[ROWS[bucket]] += moved
    taken: FloatArray = part * there
    return taken


def _wait_for_peers(ledger: NodeLedger, time: NodeTime, attempts: Attempts, samples: _Samples) -> None:
    """Give waits for slower ranks, and the communication in them, their buckets.

    A GPU that waits in a collective is busy, so what is timed there is taken from compute first; else it is idle.
    """
    steps = time.steps
    if steps is None or time.use is None or not steps.grid.column(PEERS).any():
        return
    gpus = len(time.use.gpus) - _unused(time.use)
    wanted = steps.grid.column(PEERS) / 1_000 * gpus / max(attempts.processes, 1)
    on_gpu = any(each.waits_on_gpu for each in steps.processes.values())
    rows = (ROWS[Bucket.COMPUTE], *_OPEN) if on_gpu else _OPEN
    for bucket, share in ((Bucket.PEERS, time.peers_share), (Bucket.COMMUNICATION, 1.0 - time.peers_share)):
        _take(ledger, bucket, _Waits(steps.grid.edges, steps.grid.width_s, share * wanted, rows), samples)


def _divide(ledger: NodeLedger, shares: StepShares, steps: StepTime | None) -> None:
    """Divide compute and what is left, as the traced steps do.

    Collective operations keep a GPU busy, so exposed ones, and the waits in them, are taken from compute. Where waits
    for data are recorded the trace says nothing of them.
    """
    within = _in_steps(ledger, steps)
    on_gpu = shares.compute + shares.communication + shares.peers
    busy = ledger.of(Bucket.COMPUTE) * within
    for bucket, share in ((Bucket.COMMUNICATION, shares.communication), (Bucket.PEERS, shares.peers)):
        part = busy * (share / on_gpu if on_gpu > 0.0 else 0.0)
        ledger.of(Bucket.COMPUTE)[:] -= part
        ledger.of(bucket)[:] += part
    has_waits = steps is not None and bool(steps.grid.column(DATA).any())
    weights = {Bucket.HOST: shares.host, Bucket.DATA: 0.0 if has_waits else shares.data}
    total = sum(weights.values()) + shares.other
    for row in _OPEN:
        left = ledger.amounts[row] * within
        for bucket, weight in weights.items():
            part = left * (weight / total if total > 0.0 else 0.0)
            ledger.amounts[row] -= part
            ledger.of(bucket)[:] += part
    taken = {Bucket.COMMUNICATION: shares.communication, Bucket.PEERS: shares.peers, **weights}
    ledger.estimated |= {bucket for bucket, share in taken.items() if share > 0.0}
    ledger.estimated |= {Bucket.COMPUTE} if shares.communication + shares.peers > 0.0 else set()


def _in_steps(ledger: NodeLedger, steps: StepTime | None) -> FloatArray:
    """Return which share, 0 to 1, of each cell lies in training steps; all of it where no steps are recorded."""
    if steps is None or not steps.grid.column(TRAIN).any():
        return np.ones(len(ledger.edges) - 1)
    processes = max(attempts_of(steps).processes, 1)
    edges, sums = steps.grid.edges, steps.grid.column(TRAIN) / 1_000 / processes
    totals = np.concatenate([[0.0], np.cumsum(sums)])
    covered = np.diff(np.interp(ledger.edges, edges, totals))
    share: FloatArray = np.clip(covered / np.maximum(np.diff(ledger.edges), 1e-9), 0.0, 1.0)
    return share


def _sums(places: IntArray, values: FloatArray, count: int) -> FloatArray:
    return np.bincount(places, weights=values, minlength=count).astype(np.float64)


def _middles(edges: FloatArray) -> FloatArray:
    middles: FloatArray = (edges[:-1] + edges[1:]) / 2.0
    return middles
