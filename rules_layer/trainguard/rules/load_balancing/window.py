"""How much each GPU, or node, did in the last hour: which stays behind the busiest, and since when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from trainguard.formats.profile.snapshots import BoolArray, FloatArray, IntArray
from trainguard.rules.load_balancing.times import FINE_BLOCKS, FINE_S, SILENT_PERCENT, FineMeans
from trainguard.rules.sample_statistics import means_of

BLOCK_S = 600.0
BLOCKS = 6
MIN_WINDOW_S = 600.0
MIN_WINDOW_POINTS = 20
# Percentage points by which a side must stay behind the busiest over the window; half of that within a block.
WIDE_GAP = 20.0
# Share of the window's blocks in which it must stay behind: an evaluation on one GPU is no imbalance.
STEADY = 2.0 / 3.0

CEASED_BLOCKS = 2
TENTHS = 10
# The gap must be so many times its standard error.
SURE = 4.0


class Block(msgspec.Struct, array_like=True):
    """A stretch of a node: its number since the epoch, points and sum of each GPU, all squares' sum (percent squared).

    Sums are in tenths of a percent, rounded once a portion of samples: whole percents would be off at sparse samples.
    """

    number: int
    points: list[int]
    sums: list[int]
    squares: int = 0
    first: float = 0.0
    last: float = 0.0


class BalanceWindow(msgspec.Struct, array_like=True):
    """The newest blocks of ten minutes, oldest first.

    ``since``, ``began`` and ``counted_to`` are epoch seconds; ``lost`` is in hundredths of a percent of the node's
    GPUs, summed over points, in ``seen`` of ``judged`` points. ``fine`` are stretches of three minutes, ``every``
    blocks with the samples of pauses too. ``worked`` is the newest stretch in which each GPU did something, -1 for
    none, ``sampled`` when each GPU's newest sample was taken: a lost one has none after its loss.
    """

    blocks: list[Block] = msgspec.field(default_factory=list)
    since: float | None = None
    lost: int = 0
    seen: int = 0
    judged: int = 0
    fine: list[Block] = msgspec.field(default_factory=list)
    counted_to: float | None = None
    every: list[Block] = msgspec.field(default_factory=list)
    began: float | None = None
    worked: list[int] = msgspec.field(default_factory=list)
    sampled: list[float] = msgspec.field(default_factory=list)

    def reset(self) -> None:
        """Forget the samples after a start-up that was not over yet."""
        self.every = []

    def add_all(self, times: FloatArray, utilization: FloatArray) -> None:
        """Add samples whether they are kept or not: float64[T], float64[T, G]."""
        self.every = _with_points(self.every, times, utilization, (BLOCK_S, 0), squares=False)
        self._note_samples(times, utilization)
        kept = self.blocks[-1].number if self.blocks else -1
        newest = self.every[-1].number if self.every else 0
        self.every = [
            each
            for each in self.every
            if each.number > newest - BLOCKS or (self.blocks and self.blocks[0].number <= each.number <= kept)
        ]

    @property
    def overall(self) -> "Overall | None":
        """All samples of the window, from its first block to that of the newest kept point; None without any."""
        if not self.blocks:
            return None
        found = overall_of([self.every], self.blocks[0].number, self.blocks[-1].number)
        return None if found is None else (self.own(found[0]), found[1])

    def _note_samples(self, times: FloatArray, utilization: FloatArray) -> None:
        self.sampled += [0.0] * (utilization.shape[1] - len(self.sampled))
        for gpu, taken in enumerate(~np.isnan(utilization.T)):
            if taken.any():
                self.sampled[gpu] = max(self.sampled[gpu], float(times[taken].max()))

    def own(self, spans: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
        """Return spans, one for each GPU, up to the GPU's own newest sample."""
        return tuple(
            (begin, max(begin, min(end, self.sampled[gpu])) if gpu < len(self.sampled) else end)
            for gpu, (begin, end) in enumerate(spans)
        )

    def add(self, times: FloatArray, utilization: FloatArray) -> None:
        """Add kept points: float64[T], float64[T, G]."""
        if self.began is None and times.size:
            self.began = float(times[0])
        self._note_samples(times, utilization)
        self.blocks = _with_points(self.blocks, times, utilization, (BLOCK_S, BLOCKS), squares=True)
        self.fine = _with_points(self.fine, times, utilization, (FINE_S, FINE_BLOCKS), squares=False)
        for block in self.fine:
            self.worked += [-1] * (len(block.points) - len(self.worked))
            for gpu, (points, total) in enumerate(zip(block.points, block.sums, strict=True)):
                if points and total >= TENTHS * SILENT_PERCENT * points:
                    self.worked[gpu] = max(self.worked[gpu], block.number)

    def worked_until(self, gpu: int) -> float | None:
        """Return up to when a GPU did something in kept points, epoch seconds, to three minutes; None if never."""
        number = self.worked[gpu] if gpu < len(self.worked) else -1
        return FINE_S * (number + 1) if number >= 0 else None

    def gaps(self, interval_s: float) -> "Gaps":
        gpus = self._gpus
        points, sums = _table(self.blocks, gpus)
        fine = FineMeans.of([each.number for each in self.fine], *_table(self.fine, gpus))
        gaps = Gaps.of([each.number for each in self.blocks], points, sums, (self.variance, interval_s), fine)
        return replace(gaps, spans=self.own((_span(self.blocks),) * gpus), overall=self.overall)

    @property
    def _gpus(self) -> int:
        return len(self.blocks[-1].points) if self.blocks else 0

    @property
    def variance(self) -> float:
        """Variance of a GPU's points about its own mean, over all GPUs, percent squared."""
        points, within = sum(sum(each.points) for each in self.blocks), float(sum(each.squares for each in self.blocks))
        for gpu in range(self._gpus):
            columns = [each for each in self.blocks if gpu < len(each.points)]
            number, total = sum(each.points[gpu] for each in columns), sum(each.sums[gpu] for each in columns) / TENTHS
            within -= total**2 / number if number else 0.0
        return max(within, 0.0) / points if points else 0.0

    def note(self, gaps: "Gaps", times: FloatArray, utilization: FloatArray) -> None:
        """Take note of what the newest kept points showed: float64[T], float64[T, G]."""
        if not gaps.judged.any() or not times.size:
            return
        self.judged += len(times)
        if not gaps.apart.any():
            self.since = None
            return
        points, lost = len(times), gaps.lost_of(utilization)
        if self.since is None:
            self.since = gaps.since
            earlier = gaps.lost_since(self.since, self.counted_to)
            points, lost = (max(points, earlier[0]), max(lost, earlier[1])) if earlier[0] else (points, lost)
        self.seen = min(self.seen + points, self.judged)
        self.lost = max(self.lost + round(1e4 * lost), 0)
        self.counted_to = float(times[-1])


def gaps_across(windows: Sequence[BalanceWindow], interval_s: float) -> "Gaps":
    """Compare nodes, the GPUs of each taken together, with the busiest of them."""
    numbers, points, sums = _pooled([window.blocks for window in windows], BLOCKS)
    fine = FineMeans.of(*_pooled([window.fine for window in windows], FINE_BLOCKS))
    variance = max((window.variance for window in windows), default=0.0)
    gaps = Gaps.of(numbers, points, sums, (variance, interval_s), fine)
    overall = overall_of([window.every for window in windows], numbers[0], numbers[-1]) if numbers else None
    held = [[block for block in window.blocks if block.number in numbers] for window in windows]
    return replace(gaps, spans=tuple(map(_span, held)), overall=overall)


def _pooled(windows: Sequence[Sequence[Block]], newest: int) -> tuple[list[int], FloatArray, FloatArray]:
    """Return the numbers of the ``newest`` blocks, and the points and sums of each node, float64[B, N], per GPU."""
    nodes: list[Mapping[int, tuple[int, int, int]]] = [
        {each.number: (sum(each.points), sum(each.sums), sum(points > 0 for points in each.points)) for each in blocks}
        for blocks in windows
    ]
    known = sorted({number for node in nodes for number in node})
    numbers = [number for number in known if number > known[-1] - newest]
    table = np.array([[node.get(number, (0, 0, 0)) for node in nodes] for number in numbers], dtype=np.float64)
    table = table.reshape(len(numbers), len(nodes), 3)
    gpus = np.maximum(table[:, :, 2], 1.0)
    return numbers, table[:, :, 0] / gpus, table[:, :, 1] / (TENTHS * gpus)


def _with_points(
    blocks: list[Block], times: FloatArray, utilization: FloatArray, kept: tuple[float, int], *, squares: bool
) -> list[Block]:
    length_s, most = kept
    numbers = np.floor(times / length_s).astype(np.int64)
    for number in np.unique(numbers).tolist():
        values = utilization[numbers == number]
        if not blocks or blocks[-1].number < number:
            blocks.append(Block(number, [], [], first=float(times[numbers == number].min())))
        block = next(each for each in reversed(blocks) if each.number <= number)
        block.last = max(block.last, float(times[numbers == number].max()))
        block.points = _added(block.points, np.count_nonzero(~np.isnan(values), axis=0).astype(np.int64))
        block.sums = _added(block.sums, np.rint(TENTHS * np.nansum(values, axis=0)).astype(np.int64))
        block.squares += round(float(np.nansum(values**2))) if squares else 0
    return [each for each in blocks if not most or each.number > blocks[-1].number - most]


def _span(blocks: Sequence[Block]) -> tuple[float, float]:
    return min((each.first for each in blocks), default=0.0), max((each.last for each in blocks), default=0.0)


def _table(blocks: Sequence[Block], gpus: int) -> tuple[FloatArray, FloatArray]:
    rows = [[*counts, *[0] * (gpus - len(counts))] for each in blocks for counts in (each.points, each.sums)]
    table = np.array(rows, dtype=np.float64).reshape(len(blocks), 2, gpus)
    return table[:, 0], table[:, 1] / TENTHS


# First and last time of each of N sides, epoch seconds, and means over all samples, float64[N], percent or NaN.
Overall = tuple[tuple[tuple[float, float], ...], FloatArray]


def overall_of(sides: Sequence[Sequence[Block]], first: int, last: int) -> Overall | None:
    """Take the blocks from one number to another: of one node its GPUs, of several each node as a whole."""
    chosen = [[each for each in blocks if first <= each.number <= last] for blocks in sides]
    held = [blocks for blocks in chosen if blocks]
    if not held:
        return None
    begin, end = max(blocks[0].number for blocks in held), min(blocks[-1].number for blocks in held)
    chosen = [[each for each in blocks if begin <= each.number <= end] for blocks in chosen]
    if not all(any(begin <= each.number <= end for each in blocks) for blocks in held):
        return None
    gpus = max(len(each.points) for blocks in chosen for each in blocks)
    tables = [[column.sum(axis=0) for column in _table(blocks, gpus)] for blocks in chosen]
    points, sums = (np.stack(columns) for columns in zip(*tables, strict=True))
    if len(sides) == 1:
        return (_span(chosen[0]),) * gpus, means_of(sums[0], points[0])
    return tuple(map(_span, chosen)), means_of(sums.sum(axis=1), points.sum(axis=1))


@dataclass(frozen=True, slots=True)
class Gaps:
    """N sides over the window.

    ``points`` and ``means`` are float64[N], means in percent, NaN without points. Of bool[N], ``judged`` have enough
    points, ``apart`` stay behind the busiest, ``steady`` do in most blocks by half of the firing gap. ``since`` is when
    the imbalance began, epoch seconds; with ``reaches`` that may be before the window. ``full`` says that the window is
    full, and the time before it unknown. ``numbers`` are the blocks, since the epoch, and ``by_block``, float64[B, N],
    means by block, percent, NaN without points. ``variance`` is that of one side's points, percent squared. ``spans``
    are the first and last point of each side, epoch seconds; ``overall`` means over all samples of that time, pauses
    included.
    """

    points: FloatArray
    means: FloatArray
    judged: BoolArray
    apart: BoolArray
    steady: BoolArray
    busiest: int
    since: float | None
    reaches: bool
    full: bool
    numbers: tuple[int, ...]
    by_block: FloatArray
    fine: FineMeans
    variance: float
    spans: tuple[tuple[float, float], ...] = ()
    overall: Overall | None = None

    @classmethod
    def of(
        cls, numbers: Sequence[int], points: FloatArray, sums: FloatArray, noise: tuple[float, float], fine: FineMeans
    ) -> "Gaps":
        """Take points and sums of blocks, float64[B, N]; ``noise`` is a side's variance, and the interval, s."""
        variance, interval_s = noise
        total = points.sum(axis=0)
        judged: BoolArray = total >= max(MIN_WINDOW_POINTS, MIN_WINDOW_S / interval_s)
        means = means_of(sums.sum(axis=0), total)
        nobody = np.zeros(total.size, dtype=np.bool_)
        full = bool(numbers) and numbers[-1] - numbers[0] + 1 >= BLOCKS
        by_block = means_of(sums, points)
        blocks = tuple(numbers), by_block, fine, variance
        if np.count_nonzero(judged) < 2:
            return cls(total, means, judged, nobody, nobody, 0, None, False, full, *blocks)
        busiest = int(np.argmax(np.where(judged, means, -1.0)))
        errors = variance / np.maximum(total, 1.0)
        gaps = means[busiest] - means
        # A block without points of one of the two is NaN, and not behind.
        behind = by_block[:, [busiest]] - by_block >= WIDE_GAP / 2.0
        steady: BoolArray = means_of((behind * points).sum(axis=0), total) >= STEADY
        sure = gaps >= SURE * np.sqrt(errors + errors[busiest])
        apart: BoolArray = judged & (gaps >= WIDE_GAP) & steady & sure
        if not apart.any():
            return cls(total, means, judged, nobody, steady, busiest, None, False, full, *blocks)
        held = behind[:, apart].any(axis=1)
        broken = np.flatnonzero(~held)
        first = int(broken[-1]) + 1 if broken.size and broken[-1] + 1 < held.size else int(np.argmax(held))
        worst = int(np.argmin(np.where(apart, means, np.inf)))
        stretch = fine.stretch(worst, [busiest], WIDE_GAP / 2.0, variance)
        since = BLOCK_S * numbers[first] if stretch is None or stretch[0] is None else stretch[0]
        return cls(total, means, judged, apart, steady, busiest, since, first == 0, full, *blocks)

    @property
    def span(self) -> tuple[float, float]:
        """When the first and the last point of the window were taken, epoch seconds."""
        known = [span for span, points in zip(self.spans, self.points.tolist(), strict=False) if points]
        return min((start for start, _ in known), default=0.0), max((end for _, end in known), default=0.0)

    def over_since(self, low: int, other: int | None = None) -> float | None:
        """Return when a side ceased to stay behind another, or all others together, epoch seconds; None if it does."""
        others = [other] if other is not None else [side for side in range(self.means.size) if side != low]
        stretch = self.fine.stretch(low, others, WIDE_GAP / 2.0, self.variance)
        if stretch is not None and stretch[1] is not None:
            return stretch[1]
        rest = means_of(np.nansum(self.by_block[:, others], axis=1), (~np.isnan(self.by_block[:, others])).sum(axis=1))
        gaps = rest - self.by_block[:, low]
        seen = np.flatnonzero(~np.isnan(gaps))
        held = gaps[seen] >= WIDE_GAP / 2.0
        if seen.size < CEASED_BLOCKS or held[-CEASED_BLOCKS:].any():
            return None
        last = np.flatnonzero(held)
        return BLOCK_S * (self.numbers[int(seen[last[-1]])] + 1 if last.size else self.numbers[0])

    @property
    def over(self) -> float | None:
        """When all sides that stay behind over the window ceased to, epoch seconds; None while one does."""
        ends = [self.over_since(side, self.busiest) for side in np.flatnonzero(self.apart).tolist()]
        known = [end for end in ends if end is not None]
        return max(known) if known and len(known) == len(ends) else None

    def lost_of(self, utilization: FloatArray) -> float:
        """Return what the sides that stay behind lost in points, float64[T, N], each of all judged sides: up to T."""
        most = float(self.means[self.busiest])
        gaps = utilization[:, [self.busiest]] - utilization[:, np.flatnonzero(self.apart)]
        return float(np.nansum(gaps)) / most / int(np.count_nonzero(self.judged))

    def lost_since(self, since: float | None, counted_to: float | None) -> tuple[int, float]:
        """Return over how many points, and how much, was lost since then; what ``counted_to`` covers is left out."""
        begin = max(since or 0.0, counted_to or 0.0)
        chosen = self.fine.starts >= begin
        points = self.fine.points[chosen]
        apart, most = np.flatnonzero(self.apart), float(self.means[self.busiest])
        gaps = self.fine.means[chosen][:, [self.busiest]] - self.fine.means[chosen][:, apart]
        lost = float(np.nansum(gaps * points[:, apart])) / most
        return int(points.max(axis=1).sum()), lost / int(np.count_nonzero(self.judged))

    @property
    def worst(self) -> int:
        """The least busy of those that stay behind, or of those judged beside the busiest."""
        chosen = self.apart if self.apart.any() else self.judged & (np.arange(self.means.size) != self.busiest)
        return int(np.argmin(np.where(chosen, self.means, np.inf)))


def _added(before: Sequence[int], more: IntArray) -> list[int]:
    both = more.copy()
    both[: len(before)] += np.array(before, dtype=np.int64)
    counts: list[int] = both.tolist()
    return counts
