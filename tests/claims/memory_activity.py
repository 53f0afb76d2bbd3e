"""Memory activity, window by window of kept points, as docs/rules/GPUMemoryIncrease.md defines what rises."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tests.claims.context import Context
from tests.claims.memory_use import MOST_FLOORS, merged
from tests.claims.raw import Floats, Ints, Node

HOUR_S = 3_600.0
FEWEST_POINTS, MOST_POINTS, DEFAULT_POINTS = 20, 2_500, 5
DEFAULT_WINDOW_S, DEFAULT_PATIENCE_S = 250.0, 50.0
LOADED = 20.0
NEWEST_WINDOWS = 2
TREND_FLOORS, TREND_Z = 12, 3.09
RAMP_FLOORS = 4
AT_FULL_LOAD = 0.5
BEGUN, GOES_ON = 0.1, 0.25
STEPS_S, STEPS_Z = 1_800.0, 1.6


@dataclass(frozen=True, slots=True)
class Windows:
    """A GPU's windows in order: mean and floor as measured and at full load, tenths of a percent, int64[N] each.

    ``loads`` are mean utilizations, in tenths of a percent, ``begins`` the kept points with which they begin.
    """

    means: Ints
    floors: Ints
    full_means: Ints
    full_floors: Ints
    loads: Ints
    begins: Ints

    def up_to(self, number: int) -> "Windows":
        """Return the first windows."""
        return Windows(*(getattr(self, name)[:number] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Activity:
    """The kept points of a node up to a time, epoch seconds; a window is ``size`` of them, and ``window_s`` long."""

    times: Floats
    size: int
    window_s: float
    gpus: dict[str, Windows]


@dataclass(frozen=True)
class Levels:
    """The means and floors of windows, tenths of a percent, int64[N > 2] each."""

    means: Ints
    floors: Ints

    @cached_property
    def merged(self) -> tuple[Ints, int, Ints]:
        """The lowest floor of each so many windows in a row, how many they are, and the floors that are fewer."""
        return merged(self.floors)

    @property
    def stride(self) -> int:
        """How many windows a merged floor is of."""
        return self.merged[1]

    @property
    def lows(self) -> Ints:
        """The merged floors, and the lowest of those that are fewer."""
        whole, _, rest = self.merged
        return np.append(whole, rest.min()) if rest.size else whole

    @property
    def highest_mean(self) -> int:
        """The highest mean of all windows but the newest two."""
        return int(self.means[:-NEWEST_WINDOWS].max())

    @property
    def jump(self) -> float:
        """Percentage points from that to the newest floor."""
        return float(self.floors[-1] - self.highest_mean) / 10.0

    @property
    def late(self) -> float:
        """Percentage points from the highest floor before floors were merged last to the newest one."""
        if self.stride == 1:
            return -math.inf
        return float(self.floors[-1] - self.floors[: MOST_FLOORS * self.stride // 2].max()) / 10.0

    @property
    def trend(self) -> tuple[float, float]:
        """Mann-Kendall's Z of the merged floors, and by how many percentage points they rose."""
        whole = self.merged[0]
        if whole.size < TREND_FLOORS:
            return 0.0, 0.0
        rise = min(median_slope(whole) * (whole.size - 1), float(whole[-1] - whole.min()))
        return mann_kendall(whole), rise / 10.0

    @property
    def rising(self) -> Ints:
        """The lows since the last one that lies near the lowest."""
        lows = self.lows
        near = lows <= lows.min() + BEGUN * (lows[-1] - lows.min())
        return lows[int(np.flatnonzero(near)[-1]) :]

    @property
    def goes_on(self) -> bool:
        """Whether the newest third of what rises still does."""
        rising = self.rising
        if rising.size < 3:
            return False
        newest = rising[-max(math.ceil(rising.size / 3.0), 2) - 1 :]
        risen = median_slope(newest) * (newest.size - 1)
        return risen > 0.0 and risen >= GOES_ON * float(rising[-1] - rising[0])

    def is_steady(self, window_s: float) -> bool:
        """Tell whether it rose for long, by no more than half of it at once."""
        rising = self.rising
        fewest = 5 if self.stride == 1 else 4
        if rising.size < fewest or (rising.size - 1) * self.stride * window_s < STEPS_S or not self.goes_on:
            return False
        return bool(np.diff(rising).max() <= (rising[-1] - rising[0]) / 2.0 and mann_kendall(rising) >= STEPS_Z)


def mann_kendall(series: Ints) -> float:
    """Return Mann-Kendall's Z of a series, with the variance that equal values leave."""
    score = sum(int(np.sign(series[place + 1 :] - value).sum()) for place, value in enumerate(series))
    number, (_, groups) = series.size, np.unique(series, return_counts=True)
    ties = sum(group * (group - 1) * (2 * group + 5) for group in groups.tolist())
    variance = (number * (number - 1) * (2 * number + 5) - ties) / 18.0
    return (score - math.copysign(1.0, score)) / math.sqrt(variance) if score and variance > 0.0 else 0.0


def median_slope(series: Ints) -> float:
    """Return the median over all pairs of what a series rises from one value to the next."""
    slopes = [
        (float(later) - float(earlier)) / (j - i)
        for i, earlier in enumerate(series)
        for j, later in enumerate(series)
        if i < j
    ]
    return float(np.median(slopes)) if slopes else 0.0


@dataclass(frozen=True)
class Growth:
    """What a GPU's windows of ``window_s`` seconds say: ``kind`` None of one that does not fire."""

    kind: str | None
    measured: Levels
    points: float
    windows: int
    rising: Ints
    window_s: float
    z: float

    @property
    def is_ramp(self) -> bool:
        """Whether a jump is one of several in a row."""
        newest = self.measured.merged[0][-RAMP_FLOORS:]
        steps = np.diff(newest)
        if self.kind != "jump" or newest.size < RAMP_FLOORS:
            return False
        return bool(steps.min() > 0 and steps.max() <= steps.sum() / 2.0 and steps[-1] >= steps.max() / 2.0)

    @property
    def goes_on(self) -> bool:
        """Whether it grows, and has not jumped."""
        return self.kind is not None and (self.kind != "jump" or self.is_ramp)

    @property
    def newest_floor(self) -> float:
        """The floor of the newest window, or of the newest merged ones of a trend; percent."""
        floors = self.measured.merged[0] if self.kind == "trend" else self.measured.floors
        return float(floors[-1]) / 10.0

    @property
    def hourly(self) -> float:
        """Percentage points an hour."""
        levels = self.measured.merged[0][-RAMP_FLOORS:] if self.is_ramp else self.rising
        return median_slope(levels) / 10.0 / self.measured.stride / (self.window_s / HOUR_S)

    @property
    def left_s(self) -> float:
        """In how many seconds the mean of the newest window is 100 % at that pace."""
        hourly, room = self.hourly, max(100.0 - float(self.measured.means[-1]) / 10.0, 0.0)
        return HOUR_S * room / hourly if hourly > 0.0 else math.nan


def growth_of(windows: Windows, increase: float, window_s: float, lasted_s: float) -> Growth:
    """Judge a GPU's windows: ``window_s`` long by their points, ``lasted_s`` with the pauses among them."""
    measured, full = Levels(windows.means, windows.floors), Levels(windows.full_means, windows.full_floors)
    load = float(windows.loads[-1]) / 1_000.0
    rising = measured.lows[-full.rising.size :]
    risen = float(rising[-1] - rising[0]) / 10.0
    risen_at_full = float(full.rising[-1] - full.rising[0]) / 10.0
    z, trend = measured.trend

    def shows(points: float, at_full: float) -> bool:
        return points > increase and at_full * load >= AT_FULL_LOAD * points

    kind, points, number = None, measured.jump, 3
    if shows(measured.jump, full.jump):
        kind = "jump"
    elif z > TREND_Z and shows(trend, full.trend[1]) and full.goes_on:
        kind, points, number = "trend", trend, (measured.merged[0].size - 1) * measured.stride
    elif shows(measured.late, full.late) and full.goes_on:
        kind, points = "late", measured.late
        number = measured.floors.size - MOST_FLOORS * measured.stride // 2
    elif shows(risen, risen_at_full) and full.is_steady(window_s):
        kind, points, number = "rise", risen, (full.rising.size - 1) * full.stride
    return Growth(kind, measured, points, number, rising, lasted_s, z)


def growths_of(context: Context, node: Node, until: float) -> dict[str, Growth]:
    """Return what the windows of each GPU of a node say up to then, epoch seconds; of those with three or more."""
    activity = activity_of(context, node, until)
    increase, window_s = float(context.parameters["increase"]), activity.size * node.gpu_interval_s
    return {
        gpu: growth_of(windows, increase, window_s, activity.window_s)
        for gpu, windows in activity.gpus.items()
        if windows.means.size > NEWEST_WINDOWS
    }


@dataclass(frozen=True, slots=True)
class Jump:
    """The strongest jump: the time at which its window began, and the levels before and after it, percent."""

    gpu: str
    at: float
    before: float
    after: float


def strongest_jump(context: Context, node: Node, until: float) -> Jump | None:
    """Return the strongest jump that any window of a node showed up to then, epoch seconds: the first of equal ones."""
    activity, increase = activity_of(context, node, until), float(context.parameters["increase"])
    found: list[tuple[int, float, Jump]] = []
    for gpu, windows in activity.gpus.items():
        for number in range(NEWEST_WINDOWS + 1, windows.means.size + 1):
            seen = windows.up_to(number)
            growth = growth_of(seen, increase, activity.size * node.gpu_interval_s, activity.window_s)
            if growth.kind == "jump":
                before, after = growth.measured.highest_mean / 10.0, float(seen.floors[-1]) / 10.0
                begin = int(seen.begins[-1])
                found.append((begin, growth.points, Jump(gpu, float(activity.times[begin]), before, after)))
    return max(found, key=lambda each: (each[1], -each[0]))[2] if found else None


def activity_of(context: Context, node: Node, until: float) -> Activity:
    """Return the windows of a node's GPUs up to then, epoch seconds."""
    key = ("memory activity", node.name, until)
    if key not in context.raw.cached:
        context.raw.cached[key] = _activity(context, node, until)
    found: Activity = context.raw.cached[key]
    return found


def _activity(context: Context, node: Node, until: float) -> Activity:
    work, points = context.raw.work_until(node, until), node.points
    rows = np.flatnonzero(work.kept)
    memory = _at_points(node, "GPUMemoryUtilization")[rows]
    load, times = points.gpus[rows], points.times[rows]
    lasted = until - (until if work.began is None else work.began) + node.gpu_interval_s
    point_s = lasted / max(rows.size, 1)
    size, patience = _size(context, node, point_s), _patience(context, node.gpu_interval_s)
    windows = {gpu: _windows(memory[:, place], load[:, place], size, patience) for place, gpu in enumerate(node.gpus)}
    return Activity(times, size, size * point_s, windows)


def _size(context: Context, node: Node, point_s: float) -> int:
    """Return how many points are a window; where distances vary, the number that is given, if one of them makes it."""
    window_s: float | None = context.parameters.get("window_s")
    told = context.first("window")
    if window_s is None:
        return int(context.parameters["window"])
    fewest = DEFAULT_POINTS if window_s == DEFAULT_WINDOW_S else FEWEST_POINTS
    distances = np.diff(node.points.times[node.points.seen])
    usual = [node.gpu_interval_s, *np.quantile(distances, [0.0, 0.9]).tolist()]
    least, own, most = (
        min(max(round(window_s / each), fewest), MOST_POINTS) for each in (max(usual), usual[0], min(usual))
    )
    points = own if told is None else round(float(told["value"]) / point_s)
    return int(min(max(points, least), most))


def _patience(context: Context, interval: float) -> int:
    """Return how many points are waited for."""
    patience_s: float | None = context.parameters.get("patience_s")
    if patience_s is None:
        return int(context.parameters["patience"])
    return max(round(patience_s / interval), DEFAULT_POINTS if patience_s == DEFAULT_PATIENCE_S else 1)


def _at_points(node: Node, metric: str) -> Floats:
    """Return a metric of each GPU at each point: float64[T, G], NaN without a sample."""
    found = np.full(node.points.gpus.shape, np.nan)
    for place, gpu in enumerate(node.gpus):
        series = node.of(metric).get(gpu)
        if series is not None:
            rows = np.searchsorted(node.points.times, series.times, side="right") - 1
            found[rows[rows >= 0], place] = series.values[rows >= 0]
    return found


def _windows(memory: Floats, load: Floats, size: int, patience: int) -> Windows:
    """Return the windows of one GPU that have samples enough, once it has been sampled for the patience."""
    sampled = np.flatnonzero(~np.isnan(memory))
    since = int(sampled[0]) if sampled.size else memory.size
    rows: list[list[int]] = []
    for begin in range(patience, memory.size - size + 1, size):
        used, busy = memory[begin : begin + size], load[begin : begin + size]
        if since + patience > begin or not _is_enough(used):
            continue
        mean, floor = _mean_and_floor(used)
        mean_load = float(np.nanmean(busy)) if (~np.isnan(busy)).any() else 0.0
        at_full = np.array([100.0 * each / at for each, at in zip(used, busy, strict=True) if at >= LOADED])
        at_full = np.append(at_full, np.full(size - at_full.size, np.nan))
        factor = 100.0 / max(mean_load, 1.0)
        full = _mean_and_floor(at_full) if _is_enough(at_full) else (mean * factor, floor * factor)
        rows.append([*(round(10.0 * each) for each in (mean, floor, *full, mean_load)), begin])
    return Windows(*np.array(rows, dtype=np.int64).reshape(-1, 6).T)


def _is_enough(values: Floats) -> bool:
    number = int(np.count_nonzero(~np.isnan(values)))
    return number >= max(min(FEWEST_POINTS, math.ceil(0.8 * values.size)), 0.25 * values.size)


def _mean_and_floor(values: Floats) -> tuple[float, float]:
    there = values[~np.isnan(values)]
    return float(there.mean()), float(np.quantile(there, 0.05))
