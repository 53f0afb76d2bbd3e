"""What is said of GPU memory that grows: sentences, advice, warm-up, and the report's details."""

from collections.abc import Sequence

import msgspec

from trainguard.finding import clock_times
from trainguard.rules.details import SeriesDetails
from trainguard.rules.memory_growth import FLOOR_QUANTILE, JUMP_WINDOWS, TREND_Z, Increase, Jump
from trainguard.rules.memory_rise import TENTHS
from trainguard.rules.quantiles import column_boxes, column_quantiles
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.units import show_duration, show_number, show_percent, show_percentage_points
from trainguard.rules.warm_up import never_active_reason
from trainguard.timestamps import iso_time

LONG_WAIT_S = 7_200.0
KEPT_TENSORS = "tensors that are kept from step to step (losses summed with their graph, growing lists and caches)"
METRIC = (
    "the metric is the activity of the memory controller, not memory in use: check that first (nvidia-smi, or the peak "
    "that the framework reports)"
)


class GpuMemory(msgspec.Struct, frozen=True):
    """A GPU; quantiles are of the newest window, ``floors`` (percent) of windows of ``floor_s`` seconds each."""

    increase: float | None
    gpu_max: float
    p05: float | None
    p25: float | None
    p50: float | None
    p75: float | None
    p95: float | None
    upper: float | None
    lower: float | None
    kind: str | None
    floors: list[float]
    floor_s: float


class MemoryDetails(SeriesDetails, frozen=True):
    """A node's GPUs; ``in_use`` says that floors are of memory in use, and not of its activity."""

    series: dict[str, GpuMemory]
    in_use: bool = False


def details_of(increases: Sequence[Increase], view: NodeView, window: int, window_s: float) -> MemoryDetails:
    """Return the numbers of every judged GPU; ``window`` in points, ``window_s`` in seconds."""
    held = view.kept_gpu_memory[-window:]
    boxes = dict(zip(view.gpu_names, column_boxes(held), strict=True))
    floors = dict(zip(view.gpu_names, column_quantiles(held, (FLOOR_QUANTILE,))[0].tolist(), strict=True))
    series = {}
    for increase in increases:
        box = boxes[increase.gpu]
        series[increase.gpu] = GpuMemory(
            increase=increase.points,
            gpu_max=increase.growth.largest / TENTHS,
            p05=None if box is None else floors[increase.gpu],
            p25=None if box is None else box.p25,
            p50=None if box is None else box.p50,
            p75=None if box is None else box.p75,
            p95=None if box is None else box.p95,
            upper=None if box is None else box.upper,
            lower=None if box is None else box.lower,
            kind=increase.kind,
            floors=[level / TENTHS for level in increase.growth.floors],
            floor_s=increase.growth.stride * window_s,
        )
    return MemoryDetails(series)


def warming_up_reason(view: NodeView, patience: int, window: int) -> str:
    """Say what is missing until the third window after patience is complete; both in points."""
    needed = patience + JUMP_WINDOWS * window
    if view.first_active_at is None:
        return never_active_reason(view)
    if view.kept_total >= needed:
        return f"too few of the newest points of {view.node} have samples of GPU memory."
    reason = (
        f"{view.node} has {view.kept_total:,} of the {needed:,} points that a first verdict takes, {patience:,} of "
        f"patience and {JUMP_WINDOWS} windows of {window:,}"
    )
    if view.closed:
        return f"{reason}; its stream has ended, too early for a verdict."
    reason += f"; about {show_duration((needed - view.kept_total) * view.interval_s)} left"
    if needed * view.interval_s > LONG_WAIT_S:
        reason += f" at a sampling interval of {view.interval_s:g} s: better give patience_s and window_s"
    return f"{reason}."


def sentence_of(worst: Increase, view: NodeView, window_s: float, threshold: float) -> str:
    """Say what a GPU's memory did, against the threshold in percentage points."""
    growth = worst.growth
    where = f"{worst.gpu} on {view.node}: memory activity"
    floor = show_percent((growth.floors[-1] if worst.kind == "trend" else growth.floor) / TENTHS)
    allowed = f"threshold {show_number(threshold)}"
    amount = f"{show_percentage_points(worst.points)} ({allowed})"
    span = show_duration(worst.windows * window_s)
    if worst.kind == "trend":
        return (
            f"{where} grows: its floor rose by {amount} in {span}, to {floor}; "
            f"Mann-Kendall Z is {show_number(worst.z or 0.0)} (threshold {TREND_Z:g})"
        )
    if worst.kind == "rise":
        return f"{where} grows: its floor rose by {amount} in {span}, window after window, to {floor}"
    if worst.kind == "late":
        return f"{where} grows: its floor of {floor} is {amount} above the highest until {span} before"
    highest = show_percent((growth.highest_mean or 0) / TENTHS)
    newest = f"over the last window of {show_duration(window_s)} its floor is {floor}"
    before = f"the highest mean of all windows but the last two, {highest}"
    if worst.kind == "jump":
        how = "grows from window to window" if worst.is_ramp else "jumped"
        return f"{where} {how}: {newest}, {amount} above {before}"
    if worst.points > threshold:
        return f"{where} shows no increase: {newest}, {amount} above {before}; the GPU's load explains most of that"
    return f"{where} shows no increase: {newest} (threshold {show_number(threshold)} percentage points above {before})"


def past_sentence(worst: Increase, node: str, window_s: float, threshold: float) -> str | None:
    """Say what growth came to, once it is over; None of a jump, which stays true as it was said."""
    if not worst.goes_on:
        return None
    floor = show_percent(worst.growth.floors[-1] / TENTHS)
    return (
        f"{worst.gpu} on {node}: memory activity grew and stopped: its floor rose by "
        f"{show_percentage_points(worst.points)} (threshold {show_number(threshold)}) in "
        f"{show_duration(worst.windows * window_s)}, to {floor}."
    )


def past_advice(worst: Increase, node: str) -> str | None:
    """Say what to do about growth that is over; None of a jump."""
    if not worst.goes_on:
        return None
    return (
        f"Nothing needs to be changed if the batches, the inputs or a cache of {worst.gpu} on {node} grew to their "
        f"size: the memory activity stopped growing. If nothing did, look for {KEPT_TENSORS}; {METRIC}."
    )


def stronger(jump: Jump) -> str:
    """Say what the strongest jump so far was, where the newest is a weaker one."""
    when = clock_times(iso_time(jump.at), iso_time(jump.at))
    before, after = show_percent(jump.highest / TENTHS), show_percent(jump.floor / TENTHS)
    amount = show_percentage_points(jump.points)
    return f"; the strongest jump was of {amount}, from {before} to {after} on {jump.gpu}, at {when}"


def advice_on(worst: Increase, window_s: float, *, closed: bool) -> str:
    """Say what to look at, and when the GPU's memory is full; ``closed`` says that the job has ended."""
    room = 100.0 - worst.growth.floor / TENTHS
    if worst.kind == "jump" and not worst.is_ramp:
        return (
            f"Look at what changed on {worst.gpu} in the {show_duration(worst.windows * window_s)} of the jump: longer "
            f"inputs, a larger batch, a cache; one more such jump leaves "
            f"{show_percent(max(room - worst.points, 0.0))}. "
            f"For a job that needs the memory take GPUs with more of it; {METRIC}."
        )
    hourly, left_s = worst.hourly(window_s), worst.time_left_s(window_s)
    full = ""
    if left_s:
        verb, more = ("would have been", " more") if closed else ("is", "")
        full = f", and at that rate {worst.gpu} {verb} at 100 % in {show_duration(left_s)}{more}"
    return (
        f"It grew by {show_percentage_points(hourly)} an hour{full}: look for {KEPT_TENSORS}, save checkpoints, or "
        f"take GPUs with more memory; {METRIC}."
    )


def clause_of(result: RuleResult, _: int) -> str:
    """Say what was found on a job."""
    node, slash, gpu = (result.worst or "").partition("/")
    place = f"{gpu} on {node}" if slash else node or "a GPU"
    if " rose and stopped: " in result.reason:
        return f"the memory in use of {place} rose, and stopped rising"
    if " grew and stopped: " in result.reason:
        return f"the memory activity of {place} rose, and stopped rising"
    if " leaks memory: " in result.reason:
        return f"{place} leaked memory"
    return f"the memory activity of {place} rose"
