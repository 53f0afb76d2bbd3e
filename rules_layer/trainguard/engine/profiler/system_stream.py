"""A node's system stream in hand: objects in order to snapshots, kept points, rule states and verdicts."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np

from trainguard.core.errors import ObjectMissingError, RuleConfigError, RuleLoadError
from trainguard.core.records import StreamRecord
from trainguard.engine.family import ObjectSource
from trainguard.engine.ordering.grid_order import GridOrder
from trainguard.engine.plan import RulePlan
from trainguard.engine.profiler.job_time import SampledNode, job_ledger
from trainguard.engine.profiler.listing import system_minutes
from trainguard.engine.streams.rule_runner import Evaluate, shown
from trainguard.engine.streams.session import (
    NEWEST,
    Announced,
    Applied,
    Load,
    Session,
    Stream,
    StreamState,
    Tap,
    state_of,
)
from trainguard.engine.verdicts.verdict import Fire
from trainguard.formats.profile.assemble import (
    OpenSnapshot,
    assemble,
    complete,
    estimate_interval_s,
    extend_gpu_names,
    of_gpus,
    with_times,
)
from trainguard.formats.profile.keys import SystemKey, system_key
from trainguard.formats.profile.snapshots import NO_DEVICES, DeviceSamples, Snapshots, instances_of
from trainguard.formats.profile.system import Samples, read_system_object
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import PaidTime
from trainguard.rules.protocol import AnySystemRule, check_window
from trainguard.rules.rule_inputs import IdleTime, LateView, NodeMinute, NodeView
from trainguard.state.gpu_time import GpuTime
from trainguard.state.sample_window import SampleWindow, SampleWindowState

# A node with GPUs that has not worked is starting for so long at most: after that it may never work.
STARTING_S = 3_600.0

# For so long after a node's first work its rules with a patience are waited for.
WARM_UP_S = 900.0


class SystemState(StreamState):
    """What is stored of a node's system stream.

    ``interval_s`` is the sampling interval of the series that is sampled most often, ``gpu_interval_s`` that of the
    GPUs, which may be longer. ``cores`` is the largest number of logical cores that one object named. ``mig_names`` are
    the instances of partitioned GPUs.
    """

    interval_s: float | None = None
    gpu_names: list[str] = msgspec.field(default_factory=list)
    open_snapshot: OpenSnapshot | None = None
    kept: SampleWindowState = msgspec.field(default_factory=SampleWindowState)
    cores: int = 0
    skipped: list[int] = msgspec.field(default_factory=list)
    use: GpuTime = msgspec.field(default_factory=GpuTime)
    gpu_interval_s: float | None = None
    near_threshold: bool = False
    mig_names: list[str] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise ValueError unless the GPUs with points are those with a name."""
        if self.kept.gpus > len(self.gpu_names):
            raise ValueError(f"points of {self.kept.gpus} GPUs are kept, and {len(self.gpu_names)} have a name")


class SystemStream(Stream[SystemState]):
    def __init__(self, node: str, state: SystemState, plan: RulePlan) -> None:
        super().__init__(node, state, plan)
        self._kept = SampleWindow(state.kept, len(state.gpu_names))
        self._late: LateView | None = None
        self._packed_use = b""
        self.unnamed_gpu_samples = 0

    @staticmethod
    def rules_of(plan: RulePlan) -> Sequence[AnySystemRule]:
        return plan.system_rules

    def apply(self, samples: Samples) -> list[Fire]:
        state, samples = self.state, with_times(samples)
        last = state.watermark_s if state.open_snapshot is None else state.open_snapshot.time
        state.interval_s = estimate_interval_s(samples, state.interval_s, last)
        state.gpu_interval_s = estimate_interval_s(of_gpus(samples), state.gpu_interval_s, self._last_gpu_sample_at())
        state.cores = max(state.cores, sum(series.kind == "cpu" for series in samples.table))
        self._admit(extend_gpu_names(tuple(state.gpu_names), samples))
        self.unnamed_gpu_samples = self._unnamed(samples)
        state.mig_names = instances_of(state.mig_names, samples.devices)
        snapshots, state.open_snapshot = assemble(
            samples, state.open_snapshot, gpu_names=tuple(state.gpu_names), interval_s=self._snapshot_interval_s
        )
        return self._fold(snapshots, samples.devices, closed=False)

    def _last_gpu_sample_at(self) -> float | None:
        last = self.state.open_snapshot
        if last is not None and not all(math.isnan(each) for each in (*last.gpu_utilization, *last.gpu_memory)):
            return last.time
        return self.state.kept.last_seen_at

    def _unnamed(self, samples: Samples) -> int:
        known = set(self.state.gpu_names)
        unnamed = [
            column
            for column, series in enumerate(samples.table)
            if series.kind in {"gpu", "gpu_memory"} and series.name not in known
        ]
        return int(np.count_nonzero(np.isin(samples.series, unnamed))) if unnamed else 0

    def _admit(self, gpu_names: tuple[str, ...]) -> None:
        if len(gpu_names) > len(self.state.gpu_names):
            self._kept.store()
            self.state.gpu_names = list(gpu_names)
            self._kept = SampleWindow(self.state.kept, len(gpu_names))

    def _fold(self, snapshots: Snapshots, devices: DeviceSamples, *, closed: bool) -> list[Fire]:
        self._kept.note_gaps(snapshots.times, since=self.state.watermark_s, interval_s=self._snapshot_interval_s)
        active, started = self._kept.extend(snapshots, capacity=self._capacity(), interval_s=self.interval_s)
        if closed:
            self._kept.settle()
        if len(snapshots):
            self._note_time(snapshots)
            self.state.watermark_s = max(float(snapshots.times[-1]), self.state.watermark_s or 0.0)
        if self.state.watermark_s is None:
            return []
        self.state.use.add_activity(devices)
        view = self.view(closed=closed)
        minute = NodeMinute(
            snapshots=snapshots,
            active=active,
            started=started,
            fresh=self._kept.fresh,
            view=view,
            restarted=self._kept.restarted,
            devices=devices,
        )
        fires = self._rules.run(
            lambda rule, rule_state, parameters: rule.observe(rule_state, shown(rule, minute), parameters),
            lambda rule, rule_state, parameters: rule.judge(rule_state, shown(rule, view), parameters),
            watermark_s=self.state.watermark_s,
            interval_s=self.interval_s,
            closed=closed,
            ledger=lambda: self.ledger(PaidTime(None, None, self.state.watermark_s, 1), ended=closed),
        )
        self._kept.trim()
        self.state.near_threshold = bool(self._rules.near_threshold) or _is_starting(
            view, is_warming_up=self._rules.is_warming_up
        )
        return fires

    def _note_time(self, snapshots: Snapshots) -> None:
        kept = self.state.kept
        since = self._kept.working_since if kept.first_active_at is None else kept.first_active_at
        self.state.use.add(snapshots.times, snapshots.gpu_utilization, interval_s=self.interval_s, working_since=since)

    def finish(self) -> list[Fire]:
        """Complete the open snapshot, and judge as a stream that has ended."""
        rest = [] if self.state.open_snapshot is None else [self.state.open_snapshot]
        self.state.open_snapshot = None
        return self._fold(complete(rest, tuple(self.state.gpu_names)), NO_DEVICES, closed=True)

    @property
    def use(self) -> GpuTime:
        """The time of the node's GPUs; of a released stream a new copy."""
        return msgspec.msgpack.decode(self._packed_use, type=GpuTime) if self._packed_use else self.state.use

    @property
    def sampled(self) -> SampledNode:
        state = self.state
        return SampledNode(
            state.gpu_names, state.mig_names, lambda: self.use.finished(self.interval_s), self.interval_s
        )

    def ledger(self, paid_time: PaidTime, *, ended: bool = False) -> Ledger:
        """Return where the paid time of the node's GPUs went, by utilization alone."""
        starts = [at for at in (paid_time.started_at, self.state.kept.first_sample_at) if at is not None]
        paid_time = replace(paid_time, started_at=min(starts, default=None), nodes=1)
        return job_ledger({self.node: self.sampled}, {}, paid_time, ended=ended)

    def _judge(self, *, closed: bool) -> Evaluate[AnySystemRule]:
        view = self.view(closed=closed)
        return lambda rule, rule_state, parameters: rule.judge(rule_state, shown(rule, view), parameters)

    def degrade(self) -> str | None:
        self._rules.forget()
        return self._kept.degrade()

    def store(self) -> SystemState:
        self._kept.store()
        return super().store()

    @property
    def interval_s(self) -> float:
        """Distance of the points that rules judge, seconds: that of the GPUs' samples, where there are some."""
        return self._snapshot_interval_s if self.state.gpu_interval_s is None else self.state.gpu_interval_s

    @property
    def _snapshot_interval_s(self) -> float:
        return self._plan.interval_s if self.state.interval_s is None else self.state.interval_s

    def _capacity(self) -> int:
        return max((self._window_points(rule) for rule in self._plan.system_rules), default=0)

    def _window_points(self, rule: AnySystemRule) -> int:
        if rule.name in self._plan.faults:
            return 0
        try:
            return check_window(rule.name, rule.window_points(self._plan.parameters_of(rule.name), self.interval_s))
        except RuleLoadError as fault:
            self._rules.fail(rule, fault)
        except RuleConfigError:
            pass  # the rule's own judgement says so, in its row
        except (Exception, SystemExit) as fault:
            self._rules.fail(rule, fault)
        return 0

    def release(self, again: Callable[[], "SystemStream"]) -> None:
        """Keep what a job's verdict is made of; ``again`` reopens the stream for its points. Nothing more is judged."""
        self._late = LateView(self.view(closed=False), closed=False, again=lambda: again().view(closed=False))
        self._rules.release(keep=self._plan.compared_rules)
        state, kept = self.state, self.state.kept
        # Packed it takes a seventh of the memory, and few reconciliations read it.
        self._packed_use, state.use = msgspec.msgpack.encode(state.use), GpuTime()
        state.kept = SampleWindowState(first_sample_at=kept.first_sample_at, gaps=kept.gaps, missing_s=kept.missing_s)
        state.open_snapshot, self._kept = None, SampleWindow(state.kept, 0)

    def view(self, *, closed: bool) -> NodeView:
        if self._late is not None:
            return self._late.as_of(closed=closed)
        state, kept = self.state, self._kept
        return NodeView(
            node=self.node,
            watermark_s=state.watermark_s,
            first_sample_at=state.kept.first_sample_at,
            first_active_at=state.kept.first_active_at,
            interval_s=self.interval_s,
            gpu_names=tuple(state.gpu_names),
            ever_active=kept.ever_active,
            kept_total=state.kept.kept_total,
            kept_times=kept.times,
            kept_gpu_utilization=kept.gpu_utilization,
            kept_gpu_memory=kept.gpu_memory,
            kept_cpu_mean=kept.cpu_mean,
            idle_run_s=self._idle_run_s(),
            gpu_histogram=kept.histogram,
            closed=closed,
            detailed=self._plan.detailed,
            idle_time=self._idle_time(),
            mig_names=tuple(state.mig_names),
        )

    def _idle_run_s(self) -> float:
        kept, watermark_s = self.state.kept, self.state.watermark_s
        if watermark_s is None:
            return 0.0
        if kept.idle is not None:
            return watermark_s - kept.idle.since
        at_work = kept.first_active_at is not None or self._kept.working_since is not None
        return 0.0 if at_work or kept.observed_since is None else watermark_s - kept.observed_since

    def _idle_time(self) -> IdleTime:
        kept, watermark_s = self.state.kept, self.state.watermark_s
        use, idle = kept.recent_use, kept.idle_time
        since, run_s = use.quiet_since, self._idle_run_s()
        return IdleTime(
            samples=idle.samples,
            paused=idle.paused,
            chance=idle.chance,
            breaks_s=idle.breaks_s,
            breaks=tuple(idle.breaks),
            quiet_s=0.0 if since is None or watermark_s is None else watermark_s - since,
            highest_mean=use.highest_mean,
            newest_mean=use.newest_mean,
            run_mean=0.0 if watermark_s is None or not run_s else use.mean_since(watermark_s - run_s),
        )


def _is_starting(view: NodeView, *, is_warming_up: bool) -> bool:
    """Whether start-up, which rules over the job judge, is not over, or first verdicts are due."""
    if view.watermark_s is None or view.first_sample_at is None or not view.gpu_names:
        return False
    if view.first_active_at is None:
        return view.watermark_s - view.first_sample_at < STARTING_S
    return is_warming_up and view.watermark_s - view.first_active_at < WARM_UP_S


MINUTE_PARTITION = "minute"

# The message of a minute usually comes within this time after the minute's beginning. A later one is not dropped: what
# follows it may be late, too, or may not come.
ARRIVAL_S = 180.0


class SystemSession(Session[SystemStream]):
    """Applies a node's minutes; raises StateCodecError when the item's state cannot be decoded."""

    def __init__(
        self,
        record: StreamRecord,
        source: ObjectSource,
        plan: RulePlan,
        *,
        load: Load | None = None,
        tap: Tap | None = None,
    ) -> None:
        state = state_of(record, SystemState)
        super().__init__(record, self._body, SystemStream(record.key.node, state, plan), load=load, tap=tap)
        self._source = source
        self._fetched: dict[str, bytes] = {}
        self._order = GridOrder(
            cursor=record.cursors.get(MINUTE_PARTITION),
            max_seen=record.cursors.get(NEWEST),
            pending={minute: key for key, minute in record.pending.items()},
            skipped=list(state.skipped),
        )

    def _body(self, key: str) -> bytes:
        """Return an object's bytes; one that was fetched by its minute is read once."""
        held = self._fetched.pop(key, None)
        return self._source.get(key) if held is None else held

    def _key_of(self, minute: int) -> str:
        return system_key(self._source.root, self.record.key.node, minute)

    def _fetch(self, minute: int) -> str | None:
        """Read the object of a minute and return its key; None when S3 has none."""
        key = self._key_of(minute)
        try:
            self._fetched[key] = self._source.get(key)
        except ObjectMissingError:
            return None
        return key

    def announce(self, messages: Sequence[Announced]) -> None:
        for message in messages:
            if isinstance(message.parsed, SystemKey):
                self._order.announce(message.key, message.parsed.minute)

    def defers(self, messages: Sequence[Announced], *, every_s: float, now: float, in_turn: bool) -> bool:
        """Whether messages may be dropped: nothing is near a threshold, and one that is due comes soon."""
        cursor = self._order.cursor
        if cursor is None or self.record.closed or now >= cursor + every_s + ARRIVAL_S:
            return False
        if self.stream.state.near_threshold and not in_turn:
            return False
        keys = {message.parsed.minute: message.key for message in messages if isinstance(message.parsed, SystemKey)}
        found_again = all(key == self._key_of(minute) for minute, key in keys.items())
        return found_again and self._order.defers(keys, int(every_s))

    def apply(self, *, drain: bool, modified_before: float | None) -> Iterator[Applied]:
        ready = self._order.ready(
            partial(system_minutes, self._source, self.record.key.node),
            fetch=self._fetch,
            drain=drain,
            modified_before=modified_before,
        )
        for minute, key in ready:
            yield self._use(key, partial(self._read, key, minute), self._fold)

    def _read(self, key: str, minute: int, body: bytes) -> Samples:
        return read_system_object(key, body, node=self.record.key.node, minute=minute)

    def _fold(self, samples: Samples) -> tuple[Counter[str], list[Fire]]:
        fires = self.stream.apply(samples)
        return samples.tally + Counter({"too_many_series": self.stream.unnamed_gpu_samples}), fires

    @property
    def near_threshold(self) -> bool:
        return self.stream.state.near_threshold

    @property
    def has_changes(self) -> bool:
        return self._order.late > 0 or self._pending != self.record.pending

    @property
    def _pending(self) -> dict[str, int]:
        return {key: minute for minute, key in self._order.pending.items()}

    def to_record(self, *, closed: bool) -> StreamRecord:
        order = self._order
        self.counters.update({"gaps": order.gaps, "late": order.late, "duplicates": order.duplicates})
        order.gaps = order.late = order.duplicates = 0
        self.stream.state.skipped = order.skipped
        return self._record(
            cursors={MINUTE_PARTITION: order.cursor, NEWEST: order.max_seen}, pending=self._pending, closed=closed
        )
