"""Brings one node up to date: load, apply, one conditional write, rows and fires; failing half-way is safe."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainguard.core.errors import StateConflictError
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import Services, Timing
from trainguard.core.records import JobRecord, NodeRecord, StreamKey
from trainguard.engine.family import Families, ObjectSource
from trainguard.engine.jobs.job_description import profile_place
from trainguard.engine.jobs.job_registry import check_stream
from trainguard.engine.outbox import drain, enqueue, rule_row, unit_context
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.rule_runner import gone_rules
from trainguard.engine.streams.session import (
    DELIVERY_COUNTERS,
    Announced,
    AnyStream,
    Applied,
    Session,
    expiry,
    item_of,
    opened,
)
from trainguard.engine.verdicts.verdict import Fire, final

AnySession = Session[Any]

ATTEMPTS = 4
OBJECTS_PER_WRITE = 120

# A slower object is named in the log.
SLOW_OBJECT_S = 2.0

# A profile further behind was copied or is replayed: its age says nothing about how timely verdicts are.
LIVE_S = 6 * 3_600.0


@dataclass(frozen=True, slots=True)
class NodeWork:
    """Work of one batch for a node; after a ``repeated`` message rows are published whatever changed."""

    key: StreamKey
    messages: Sequence[Announced] = ()
    close: bool = False
    modified_before: float | None = None
    repeated: bool = False
    message_ids: Sequence[str] = ()


class NodeEvaluator:
    def __init__(
        self, *, services: Services, timing: Timing, families: Families, shared: Mapping[str, object] | None = None
    ) -> None:
        self._families = families
        self._shared = families.share(services.objects) if shared is None else shared
        self._services = services
        self._nodes, self._journal = services.nodes, services.journal
        self._timing = timing

    def evaluate(self, job: JobRecord, work: NodeWork) -> bool:
        """Bring the node up to date; False when time ran out. Raises StateConflictError, TooManyNamesError."""
        for attempt in range(1, ATTEMPTS):
            try:
                return self._attempt(job, work)
            except StateConflictError:
                self._journal.count("state_conflicts", job=job.job, node=work.key.node_kind)
                self._timing.pause(attempt)
        return self._attempt(job, work)

    def _attempt(self, job: JobRecord, work: NodeWork) -> bool:
        plan = replace(self._families.plan(job), detailed=False)
        record = item_of(job, work.key, self._nodes)
        check_stream(job, record, self._services.jobs)
        record = drain(record, job, self._services)
        closing = work.close or job.closing
        family = self._families.of(work.key)
        objects, shared = self._services.objects, self._shared.get(family.name)
        source = ObjectSource(objects, job.bucket, job.root, family.object_cap_bytes, shared, self._place_of)
        session = opened(record, lambda record: family.open_session(record, source, plan), self._journal)
        is_first_delivery = not (closing or work.repeated or work.modified_before is not None)
        every_s, in_turn = job.evaluation_every_s, job.is_evaluated_in_turn
        if is_first_delivery and session.defers(
            work.messages, every_s=every_s, now=self._timing.now(), in_turn=in_turn
        ):
            return True
        session.announce(work.messages)
        ready = session.apply(drain=closing, modified_before=work.modified_before)
        while True:
            fires, exhausted = self._apply_some(session, ready, job)
            self._settle(session, fires, job=job, plan=plan, closed=closing and exhausted, repeated=work.repeated)
            if exhausted or not self._timing.has_time():
                return exhausted

    def _place_of(self, name: str) -> tuple[str, ProfileRoot] | None:
        description = self._services.training_jobs.describe(name)
        return None if description is None else profile_place(description)

    def _apply_some(self, session: AnySession, ready: Iterator[Applied], job: JobRecord) -> tuple[list[Fire], bool]:
        fires: list[Fire] = []
        begun = self._timing.now()
        for count, applied in enumerate(ready, 1):
            ended = self._timing.now()
            if ended - begun >= SLOW_OBJECT_S:
                self._journal.count("slow_objects", job=job.job, key=applied.key, seconds=round(ended - begun, 3))
            begun = ended
            fires.extend(applied.fires)
            self._journal.count("objects_applied", job=job.job, node=session.record.key.node_kind)
            if applied.fault is not None:
                for name, amount in applied.tally.items():
                    self._journal.count(name, amount, job=job.job, key=applied.key, reason=applied.fault)
            if count == OBJECTS_PER_WRITE or not self._timing.has_time():
                return fires, False
        return fires, True

    def _settle(
        self, session: AnySession, fires: list[Fire], *, job: JobRecord, plan: RulePlan, closed: bool, repeated: bool
    ) -> None:
        last = session.stream.finished() if closed else session.stream
        if closed:
            fires = [*fires, *last.finish()]
        before, has_changes = session.record, session.has_changes
        record = enqueue(session.to_record(closed=closed or before.closed), fires, job=job, plan=plan)
        if closed:
            record = replace(record, expires_at=expiry(last.state.watermark_s, self._timing.now()))
        if has_changes or record.unsent or _moved(record, before):
            record = self._nodes.save(record)
        if session.near_threshold and not job.polled_fast:
            self._services.jobs.set_fast_polling(job.job, polled_fast=True)
        for name, payload in session.requests:
            self._services.captures.start(name, payload)
        session.record = drain(record, job, self._services)
        self._report(before, record, closed=closed)
        for fault in session.stream.raised:
            self._journal.count("rule_errors", job=job.job, node=record.key.node_kind, reason=fault)
        self._publish(last, record, job=job, plan=plan, closed=closed, repeated=repeated)

    def _report(self, before: NodeRecord, record: NodeRecord, *, closed: bool) -> None:
        for name in ("gaps", *DELIVERY_COUNTERS):
            amount = record.counters.get(name, 0) - before.counters.get(name, 0)
            if amount:
                self._journal.count(name, amount, job=record.key.job, node=record.key.node_kind)
        if not closed and record.watermark_s is not None and record.watermark_s != before.watermark_s:
            lag = self._timing.now() - record.watermark_s
            if lag <= LIVE_S:
                self._journal.measure("evaluation_lag_seconds", max(lag, 0.0))

    def _publish(
        self, last: AnyStream, record: NodeRecord, *, job: JobRecord, plan: RulePlan, closed: bool, repeated: bool
    ) -> None:
        context = unit_context(job, plan, record, last, record.expires_at)
        wanted = None if closed or repeated else last.due
        verdicts = last.verdicts(closed=closed, of=wanted)
        if closed:
            verdicts = [final(verdict, last.state.watermark_s) for verdict in verdicts]
            verdicts.extend(gone_rules([last.state.stored_rules], plan))
        self._services.rows.publish([rule_row(context, verdict) for verdict in verdicts])
        last.due.clear()


def _moved(record: NodeRecord, before: NodeRecord) -> bool:
    return (record.state, record.closed, record.cursors) != (before.state, before.closed, before.cursors)
