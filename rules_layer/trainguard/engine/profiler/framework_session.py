"""A node's framework stream in hand."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from trainguard.core.records import Status, StreamRecord
from trainguard.engine.family import ObjectSource
from trainguard.engine.ordering.partition_order import MOST_PENDING, UNLISTED, Arrival, PartitionOrder
from trainguard.engine.plan import RulePlan
from trainguard.engine.profiler.job_time import with_steps
from trainguard.engine.profiler.listing import SharedNames, trace_of, traces_without_metadata
from trainguard.engine.streams.rule_runner import Evaluate, RuleRunner, shown
from trainguard.engine.streams.session import (
    LISTED_NAMES,
    NEWEST,
    Announced,
    Applied,
    Session,
    Stream,
    StreamState,
    Tap,
    state_of,
)
from trainguard.engine.verdicts.verdict import Fire
from trainguard.formats.profile.columns import FrameworkEvents, read_framework_object
from trainguard.formats.profile.keys import FrameworkKey, parse_key
from trainguard.rules.protocol import AnyFrameworkRule
from trainguard.rules.rule_inputs import FrameworkView
from trainguard.rules.rule_result import RuleResult
from trainguard.state.step_time import StepTime

MICROSECONDS = 1_000_000
COLLECTED = RuleResult(Status.OK, "collected for the job's verdict")


class FrameworkState(StreamState):
    """State of a framework stream; ``step_runs_us`` are times with steps, up to ``listed_us`` names were listed."""

    first_step_us: int | None = None
    floor_us: int = -1
    listed_us: int = UNLISTED
    step_runs_us: list[tuple[int, int]] = msgspec.field(default_factory=list)
    time: StepTime = msgspec.field(default_factory=StepTime)


class FrameworkStream(Stream[FrameworkState]):
    def __init__(self, node: str, state: FrameworkState, plan: RulePlan) -> None:
        super().__init__(node, state, plan)
        self._joined = RuleRunner(plan.joined_rules, state.stored_rules, plan)

    @staticmethod
    def rules_of(plan: RulePlan) -> Sequence[AnyFrameworkRule]:
        return plan.framework_rules

    def apply(self, events: FrameworkEvents, end_us: int) -> list[Fire]:
        """Apply one object that holds events up to ``end_us``; return its fires."""
        watermark_s = max(end_us / MICROSECONDS, self.state.watermark_s or 0.0)
        self.state.watermark_s = watermark_s
        for batch in events.steps:
            first = int(batch.starts_us.min())
            self.state.first_step_us = min(first, self.state.first_step_us or first)
        self.state.step_runs_us = with_steps(self.state.step_runs_us, events.steps)
        self.state.time.fold(events)
        self._joined.run(
            lambda rule, state, parameters: rule.observe(state, shown(rule, events), parameters),
            lambda *_: COLLECTED,
            watermark_s=watermark_s,
            interval_s=self._plan.interval_s,
        )
        return self._run(lambda rule, rule_state, parameters: rule.observe(rule_state, shown(rule, events), parameters))

    def store(self) -> FrameworkState:
        self._joined.store()
        return super().store()

    def release(self) -> None:
        """Keep what joined rules have collected for a job's verdict. Nothing more is judged or stored."""
        self._rules.release()

    @property
    def raised(self) -> list[str]:
        return [*self._rules.raised, *self._joined.raised]

    def state_of(self, rule: str) -> Any:
        """Return a rule's state, or what a joined one has collected here; raises RuleFailedError when it failed."""
        is_joined = any(each.name == rule for each in self._plan.joined_rules)
        return self._joined.state_of(rule) if is_joined else super().state_of(rule)

    def _judge(self, *, closed: bool) -> Evaluate[AnyFrameworkRule]:
        view = self.view(closed=closed)
        return lambda rule, rule_state, parameters: rule.judge(rule_state, view, parameters)

    def view(self, *, closed: bool) -> FrameworkView:
        first_us = self.state.first_step_us
        first_step_at = None if first_us is None else first_us / MICROSECONDS
        return FrameworkView(
            node=self.node,
            watermark_s=self.state.watermark_s,
            closed=closed,
            first_step_at=first_step_at,
            detailed=self._plan.detailed,
        )


# Counts lanes that were forgotten because a node has too many: their data over two minutes late are lost.
FEWER_PARTITIONS = "degraded_to_fewer_lanes"


class FrameworkSession(Session[FrameworkStream]):
    """Applies a node's framework objects; raises StateCodecError."""

    def __init__(self, record: StreamRecord, source: ObjectSource, plan: RulePlan, *, tap: Tap | None = None) -> None:
        state = state_of(record, FrameworkState)
        super().__init__(record, source.get, FrameworkStream(record.key.node, state, plan), tap=tap)
        self._source = source
        names = source.shared if isinstance(source.shared, SharedNames) else SharedNames(source.objects)
        self._names = partial(names.of_node, source.bucket, source.root, record.key.node)
        cursors = {partition: position for partition, position in record.cursors.items() if partition != NEWEST}
        listed_us = state.listed_us
        if listed_us == UNLISTED:
            listed_us = max(cursors.values(), default=UNLISTED)  # an earlier version wrote the item
        self._order = PartitionOrder(
            cursors=cursors,
            max_seen=record.cursors.get(NEWEST),
            listed=listed_us,
            floor=state.floor_us,
        )
        waiting = ((key, parse_key(key)) for key in record.pending)
        self._order.restore((key, parsed) for key, parsed in waiting if isinstance(parsed, FrameworkKey))

    def announce(self, messages: Sequence[Announced]) -> None:
        for message in messages:
            if isinstance(message.parsed, FrameworkKey):
                self._order.announce(message.key, message.parsed)

    def apply(self, *, drain: bool, modified_before: float | None) -> Iterator[Applied]:
        """Apply the objects that are ready; at a stream's end, count the traces that never can be."""
        for arrival in self._order.ready(self._names, drain=drain, modified_before=modified_before):
            yield self._use(arrival.key, partial(self._read, arrival), partial(self._fold, arrival.position))
        if drain:
            self.counters["traces_without_metadata"] = traces_without_metadata(self._source, self.record.key.node)

    def _read(self, arrival: Arrival, body: bytes) -> FrameworkEvents:
        name, _, kind = arrival.partition.partition("/")
        process = f"{self.record.key.node}-{name}"
        parsed = parse_key(arrival.key)
        key, start_us = arrival.key, parsed.start_us if isinstance(parsed, FrameworkKey) else None
        if isinstance(parsed, FrameworkKey) and start_us is not None:
            key = trace_of(self._source, key, parsed)
            body = self._source.get(key)
        return read_framework_object(key, body, process=process, end_us=arrival.position, kind=kind, start_us=start_us)

    def _fold(self, end_us: int, events: FrameworkEvents) -> tuple[Counter[str], list[Fire]]:
        return events.tally, self.stream.apply(events, end_us)

    @property
    def has_changes(self) -> bool:
        return self._order.stored != self.record.pending

    def to_record(self, *, closed: bool) -> StreamRecord:
        order = self._order
        self.counters["duplicates"] += order.duplicates
        order.duplicates = 0
        self.counters[LISTED_NAMES] += len(order.pending) > MOST_PENDING
        self.counters[FEWER_PARTITIONS] += order.forget_partitions()
        self.stream.state.floor_us, self.stream.state.listed_us = order.floor, order.applied
        return self._record(cursors={**order.cursors, NEWEST: order.max_seen}, pending=order.stored, closed=closed)
