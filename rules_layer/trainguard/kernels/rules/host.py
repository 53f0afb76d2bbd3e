"""The host holds the GPU up: data, launches, synchronization."""

import numpy as np

from trainguard.core.finding import Fact, Severity
from trainguard.core.text import one_line
from trainguard.kernels.columns import WorkKind
from trainguard.kernels.entries import Evidence, KernelFinding
from trainguard.kernels.rules.finding import SHOWN, JudgedRank, call_named, longest_gaps, ordered, severity
from trainguard.kernels.rules.idle import GpuBusyLow, long_gap_ns
from trainguard.kernels.rules.rule import MICROSECONDS, MILLISECONDS, Nanoseconds, Number, RankRule, Share, portion
from trainguard.kernels.rules.text import Saying, shown
from trainguard.kernels.times.gpu_times import FULL_QUEUE, TraceGpuTime
from trainguard.kernels.times.intervals import Spans, difference, intersection, merged, union
from trainguard.kernels.times.metrics import SYNC_REACH_NS
from trainguard.ledger.bucket import Bucket
from trainguard.rules.change import ChangeCode
from trainguard.rules.rule_result import FactSheet, Measure
from trainguard.rules.spec import DATA_WAITS, LOW_GPUS


class LoaderBound(RankRule):
    title = "Waiting for the data loader"
    change = ChangeCode.FEED_FASTER
    fires_when = "steps wait over {most} of their time for the data loader"
    measure = Measure("share of steps in the data loader")
    symptom = DATA_WAITS
    explains = (LOW_GPUS,)
    claims = (Bucket.DATA,)
    takes = "waits_for_loader"
    summary = "Steps wait {loader_share} of their time for the data loader."
    advice = "Raise the DataLoader's num_workers and prefetch_factor, and decode less."
    clause = "steps waited for the data loader"

    most: Share = 0.05
    high: Share = 0.2

    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
        waiting = intersection(judged.loading, judged.gaps)
        share = judged.share(waiting.total)
        if share <= self.most:
            return None
        return self.found(
            [portion("loader_share", share, self.most)],
            severity=severity(share, self.most, self.high),
            evidence=[judged.stretch("data loader, GPU idle", *each) for each in ordered(waiting)],
            gain=judged.gain(waiting.total),
        )


SHOWN_WAIT = 0.01


def _launch_bound_summary(sheet: FactSheet) -> str:
    said = shown(sheet)
    beside = " beside the wait for data" if "waits_for_data_share" in said else ""
    return (
        f"The GPU waits for launches: kernels start {sheet.number('launch_delay'):.1f} us after their launch at the "
        f"median, {sheet.number('queued_launches'):.1f} launches wait on average, and the host causes "
        f"{said['host_share']} of the idle time{beside}."
    )


_LAUNCH_LESS = "Launch less: CUDA graphs, torch.compile, a fused or foreach optimizer, fewer Python operators."


class LaunchBound(RankRule):
    """Fires where the GPU often waits for its next launch: all the time, as no queue forms, or in many short gaps.

    A host that waits for data launches nothing: that time is the loader's, and counts nowhere here. Gaps that begin
    while the host waits for the GPU are those of `SyncStall`, and long ones those of `GpuGap`. What work takes to start
    on a GPU that was idle at its launch belongs to the gap: behind other work nobody would see it.
    """

    title = "Launches that come too late"
    change = ChangeCode.FUSE_KERNELS
    fires_when = (
        "{host_share} of the idle time is the host's, and the GPU is busy under {enough} and kernels start within "
        "{delay_ns} of their launch ({delay_amd_ns} on AMD's GPUs), or short gaps before launches take {short_gaps} of "
        "the time; the wait for data counts as neither busy nor idle"
    )
    measure = Measure("median delay from launch to start", "us")
    explains = (LOW_GPUS,)
    claims = (Bucket.HOST,)
    takes = "waits_for_host"
    says = (
        Saying(
            "launch_bound",
            _launch_bound_summary,
            _LAUNCH_LESS,
            "the host launched kernels too slowly",
        ),
        Saying(
            "late_launches",
            "The GPU waits for launches in {gaps_before_launches:,} short gaps, {short_gaps_share} of the time.",
            _LAUNCH_LESS,
            "the host launched work too slowly",
        ),
    )

    enough: Share = GpuBusyLow.enough
    medium: Share = GpuBusyLow.medium
    host_share: Share = 0.5
    delay_ns: Nanoseconds = 10_000
    delay_amd_ns: Nanoseconds = 40_000
    short_gaps: Share = 0.1

    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
        fed_ns, busy = judged.fed
        idle = fed_ns - judged.known_busy_ns
        late = judged.host_idle_ns / idle if idle else 0.0
        delays, most_ns = judged.delays.after_call, self._delay_ns(judged)
        at_once = len(delays) > 0 and np.median(delays) < most_ns
        if late < self.host_share or busy >= self.enough or not at_once:
            return self._late_launches(judged, idle)
        waits = judged.share(judged.loader_idle_ns)
        queue = sum(stream.mean_queue(judged.window) for stream in judged.streams)
        return self.found(
            [
                Fact(
                    name="launch_delay",
                    value=round(float(np.median(delays)) / 1e3, 3),
                    unit=MICROSECONDS,
                    threshold=most_ns / 1e3,
                ),
                Fact(name="queued_launches", value=round(float(queue), 3)),
                portion("host_share", late, self.host_share),
                *([portion("waits_for_data_share", waits)] if waits >= SHOWN_WAIT else []),
            ],
            severity=severity(judged.share(idle), 1 - self.enough, 1 - self.medium),
            evidence=longest_gaps(judged, judged.unlaunched_gaps),
            gain=judged.gain(judged.host_idle_ns),
        )

    def stretches(self, judged: JudgedRank, gpu: TraceGpuTime) -> Spans:
        starting = intersection(gpu.waits_for_other, self._before_launches(judged))
        return union(gpu.waits_for_host, difference(starting, gpu.unknown))

    def _delay_ns(self, judged: JudgedRank) -> int:
        return self.delay_amd_ns if judged.is_amd else self.delay_ns

    def _late_launches(self, judged: JudgedRank, idle: int) -> KernelFinding | None:
        gaps = self._before_launches(judged)
        share = judged.share(gaps.total)
        if share < self.short_gaps or gaps.total < self.host_share * idle:
            return None
        return self.found(
            [
                portion("short_gaps_share", share, self.short_gaps),
                Fact(name="gaps_before_launches", value=len(gaps.start)),
            ],
            kind="late_launches",
            severity=severity(share, 1 - self.enough, 1 - self.medium),
            evidence=_by_next_work(judged, gaps),
            gain=judged.gain(gaps.total),
        )

    def _before_launches(self, judged: JudgedRank) -> Spans:
        """Return gaps before a launch that are short and do not begin while the host waits for the GPU or for data."""
        gaps = difference(self._until_started(judged), judged.loading)
        chosen = (gaps.end - gaps.start <= long_gap_ns(judged)) & ~judged.sync_reach.holds(gaps.start)
        return Spans(gaps.start[chosen], gaps.end[chosen])

    def _until_started(self, judged: JudgedRank) -> Spans:
        """Return gaps whose next work is not launched as they begin, with what that work takes to start."""
        late, every = judged.unlaunched_gaps, judged.gaps
        late = Spans(late.start[late.end > late.start], late.end[late.end > late.start])
        place = np.searchsorted(every.start, late.start, side="right") - 1
        return merged(late.start, np.minimum(late.end + self._delay_ns(judged), every.end[place]))


def _by_next_work(judged: JudgedRank, gaps: Spans) -> list[Evidence]:
    """Return gaps by the operator, else the work, that is launched too late; most time first."""
    trace, rows = judged.trace, judged.trace.gpu
    order = np.argsort(rows.start, kind="stable")
    place = np.searchsorted(rows.start[order], gaps.end, side="left")
    found: dict[str, list[int]] = {}
    for gap, at in enumerate(place.tolist()):
        if at < len(order):
            row = int(order[at])
            caller = int(judged.operator[row])
            name = trace.names[int(rows.name[row] if caller < 0 else trace.operators.name[caller])]
            found.setdefault(name, []).append(gap)
    evidence = [
        judged.several(f"GPU idle before {one_line(name)}", gaps.start[each], gaps.end[each])
        for name, each in found.items()
    ]
    return sorted(evidence, key=lambda each: -each.duration_ns)[:SHOWN]


def _small_kernel_storm_summary(sheet: FactSheet) -> str:
    each = "" if sheet.number("gpus") == 1 else " on each GPU"
    kernels = f"{sheet.number('kernels_per_step'):,.0f} kernels a step{each}"
    return f"{kernels}; {shown(sheet)['short_share']} of the launching calls take longer than their work."


class SmallKernelStorm(RankRule):
    title = "Small kernels"
    change = ChangeCode.FUSE_KERNELS
    fires_when = (
        "there are {kernels_per_step} kernels a step, {short_share} of them shorter than their launching call, and the "
        "GPU is busy under {enough} of the time beside the wait for data"
    )
    measure = Measure("share of kernels shorter than their call")
    explains = (LOW_GPUS,)
    claims = (Bucket.HOST,)
    takes = "waits_for_host"
    summary = _small_kernel_storm_summary
    advice = "Fuse small kernels: torch.compile, foreach optimizers, CUDA graphs, channels_last."
    clause = "kernels were too small and too many"

    kernels_per_step: Number = 300
    short_share: Share = 0.5
    enough: Share = 0.9

    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
        fed_ns, busy = judged.fed
        runs = int((judged.in_window & (judged.trace.gpu.kind <= WorkKind.COMMUNICATION)).sum())
        kernels = runs / judged.steps / judged.counted
        short = judged.delays.short_calls
        share = float(short.mean()) if len(short) else 0.0
        if kernels < self.kernels_per_step or share < self.short_share or busy >= self.enough:
            return None
        lines = sorted(judged.compute, key=lambda line: -line.short_count)
        return self.found(
            [
                portion("short_share", share, self.short_share),
                Fact(name="kernels_per_step", value=round(kernels, 1), threshold=self.kernels_per_step),
                Fact(name="gpus", value=judged.counted),
            ],
            severity=Severity.MEDIUM,
            evidence=judged.lines(lines),
            gain=judged.gain(fed_ns - judged.known_busy_ns),
        )


class SyncStall(RankRule):
    title = "Synchronization"
    change = ChangeCode.REMOVE_SYNCS
    fires_when = (
        "the host waits for the GPU {waiting} of the time, and for {idle} the GPU is idle in the wait or right after "
        "it, as its next work is not launched"
    )
    measure = Measure("share of the window in synchronization")
    explains = (LOW_GPUS,)
    claims = (Bucket.HOST,)
    summary = (
        "The host waits {waiting_share} of the time for the GPU, which has no next work {idle_share} of the time in "
        "or within {after_wait:g} ms after these calls."
    )
    advice = "Remove .item(), .cpu() and print of tensors from the step, copy with non_blocking=True."
    clause = "synchronization held the host up"

    waiting: Share = 0.1
    idle: Share = 0.05
    idle_high: Share = 0.2

    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
        waiting, idle = judged.share(judged.host_sync.total), judged.share(judged.sync_idle_ns)
        if waiting < self.waiting or idle < self.idle:
            return None
        return self.found(
            [
                portion("waiting_share", waiting, self.waiting),
                portion("idle_share", idle, self.idle),
                Fact(name="after_wait", value=SYNC_REACH_NS // 1_000_000, unit=MILLISECONDS),
            ],
            severity=severity(idle, self.idle, self.idle_high),
            evidence=_waits(judged),
            gain=judged.gain(judged.sync_idle_ns),
        )

    def stretches(self, judged: JudgedRank, gpu: TraceGpuTime) -> Spans:
        return intersection(gpu.waits_for_host, judged.sync_reach)


def _waits(judged: JudgedRank) -> list[Evidence]:
    launches, trace = judged.trace.launches, judged.trace
    waits = np.flatnonzero(judged.waiting_calls)
    longest = waits[np.argsort((launches.start - launches.end)[waits], kind="stable")][:SHOWN].tolist()
    return [
        judged.stretch(call_named(trace, place), int(launches.start[place]), int(launches.end[place]))
        for place in longest
    ]


class QueueFull(RankRule):
    title = "Full queues"
    fires_when = "never: it says that {launches} launches wait in a stream's queue for {most} of the time"
    measure = Measure("share of the window with a full queue")
    informs_only = True
    is_steady = False
    claims = (Bucket.HOST,)
    summary = "{full_queue_share} of the time {queued_launches:,} launches wait for the GPU."
    advice = "Nothing is wrong: the host is far ahead, so a synchronizing call costs little here."

    launches: Number = FULL_QUEUE
    most: Share = 0.05

    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
        share = judged.share(judged.full_queue_ns)
        if share <= self.most:
            return None
        return self.found(
            [
                portion("full_queue_share", share, self.most),
                Fact(name="queued_launches", value=FULL_QUEUE),
            ],
            severity=Severity.LOW,
            evidence=[Evidence(what=f"queue of {FULL_QUEUE:,} launches", duration_ns=judged.full_queue_ns)],
        )
