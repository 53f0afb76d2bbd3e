"""Delivers a job's objects to the real engine on the in-memory stores, as a hostile network would."""

import json
from dataclasses import dataclass, field

from tests.support.faults import Crash
from tests.support.memory import MemoryWorld
from tests.support.small_job import BUCKET, JOB, Upload, describe
from trainguard.core.ports import Timing
from trainguard.core.records import JobRecord, StreamKey, StreamRecord
from trainguard.core.timestamps import iso_time
from trainguard.engine.batch import BatchProcessor
from trainguard.engine.family import Families
from trainguard.engine.installed import FAMILIES
from trainguard.engine.messages import Message, encode_task
from trainguard.engine.reconcile import scheduler_at_once
from trainguard.engine.streams.session import DELIVERY_COUNTERS
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.step_outlier.rule import StepOutlier

VISIBILITY_S = 360.0
STREAMS: tuple[str, ...] = ("system", "framework")

# Rules over the streams of the whole job: the scheduler has them judged, and late objects come to a later run.
BY_SCHEDULER = (StepOutlier.name, PROFILER_REPORT)


@dataclass
class Network:
    """A world, its clock, and the messages that are under way: (time, message).

    ``doomed`` are functions that die after so many port calls, ``rivals`` second evaluators that get an object's
    message just before the nth save of a first one.
    """

    world: MemoryWorld = field(default_factory=MemoryWorld)
    now: float = 0.0
    queue: list[tuple[float, int, Message]] = field(default_factory=list)
    crashes: int = 0
    lasting_faults: bool = False
    doomed: list[int] = field(default_factory=list)
    families: Families = FAMILIES
    rivals: list[tuple[int, Upload]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world.training_jobs.set(describe())
        self.timing = Timing(now=lambda: self.now, pause=lambda _: None, has_time=lambda: True)
        self.batch, self.rival = self._evaluator(), self._evaluator()
        self.clock = scheduler_at_once(services=self.world.services, timing=self.timing, families=self.families)
        self._sent = 0

    def _evaluator(self) -> BatchProcessor:
        return BatchProcessor(services=self.world.services, timing=self.timing, bucket=BUCKET, families=self.families)

    def put(self, upload: Upload) -> None:
        """Let the object appear in S3."""
        self.world.objects.now = upload.at
        self.world.objects.put(BUCKET, upload.key, upload.body, "application/json")

    def announce(self, upload: Upload, at: float) -> None:
        """Let the message about the object arrive at ``at``."""
        self.send(object_message(upload), at)

    def send(self, body: str, at: float, deliveries: int = 1) -> None:
        """Put a message on its way."""
        self._sent += 1
        self.queue.append((at, self._sent, Message(f"m{self._sent}", body, deliveries)))

    def deliver(self, messages: list[Message]) -> None:
        """Process a batch; after a crash, or a failure, its messages come back when their visibility ends."""
        if not messages:
            return
        self._arm()
        try:
            failed = set(self.batch.process(messages).failed)
        except Crash:
            self.crashes += 1
            self.batch = self._evaluator()
            failed = {message.message_id for message in messages}
        self._forget_faults()
        for message in messages:
            if message.message_id in failed:
                self.send(message.body, self.now + VISIBILITY_S, message.deliveries + 1)
        self.take_tasks()

    def run_scheduler(self) -> None:
        """Let a minute's tick run."""
        self._arm()
        try:
            self.clock.run()
        except Crash:
            self.crashes += 1
        self._forget_faults()
        self.take_tasks()

    def node(self, key: StreamKey) -> StreamRecord:
        """Return a node's item, which must exist."""
        return stored_node(self.world, key)

    def job(self) -> JobRecord:
        """Return the job's item, which must exist."""
        record = self.world.jobs.load(JOB)
        assert record is not None
        return record

    def _forget_faults(self) -> None:
        if not self.lasting_faults:
            self.world.faults.clear()

    def _arm(self) -> None:
        """Let the next function die after so many port calls, or meet a rival, when that is due."""
        if self.doomed:
            self.world.faults.crash_after(self.doomed.pop(0))
        if self.rivals:
            nth, upload = self.rivals.pop(0)
            rival = Message("rival", object_message(upload))
            self.world.faults.interleave("NodeStates.save", lambda: self.rival.process([rival]), nth=nth)

    def take_tasks(self) -> None:
        """Put the tasks that a function has sent on their way."""
        for task in self.world.tasks.drain():
            self.send(encode_task(task), self.now + 1.0)

    def run_until(self, time: float, *, batch_s: float) -> None:
        """Deliver what arrives until ``time``, in batches of what came within ``batch_s``."""
        while due := sorted(entry for entry in self.queue if entry[0] <= time):
            first = due[0][0]
            taken = [entry for entry in due if entry[0] <= first + batch_s]
            self.queue = [entry for entry in self.queue if entry not in taken]
            self.now = max(self.now, taken[-1][0])
            self.deliver([message for _, _, message in taken])
        self.now = max(self.now, time)


def object_message(upload: Upload) -> str:
    """Return the body of an object's message."""
    detail = {"bucket": {"name": BUCKET}, "object": {"key": upload.key}}
    return json.dumps({"source": "aws.s3", "time": iso_time(upload.at), "detail": detail})


def stored_node(world: MemoryWorld, key: StreamKey) -> StreamRecord:
    """Return a node's item, which must exist."""
    record = world.nodes.load(key)
    assert record is not None, key
    return record


def final_state(world: MemoryWorld) -> dict[str, object]:
    """Return all that must not depend on delivery: state, cursors, counters of what was read, rows, fires."""
    state: dict[str, object] = {}
    for stream in STREAMS:
        for node in ("algo-1", "algo-2"):
            record = stored_node(world, StreamKey(JOB, node, stream))
            counters = {name: count for name, count in record.counters.items() if name not in DELIVERY_COUNTERS}
            state[record.key.node_kind] = (record.state, dict(record.cursors), dict(record.pending), counters)
    for row in world.rows.of_job(JOB):
        fired_at = row.fired_at is not None if row.rule in BY_SCHEDULER else row.fired_at
        fired = (row.violations, row.times_fired, fired_at)
        state[row.target] = (row.status, row.finding.measured, row.worst, row.data_points, row.evaluated_through, fired)
    state["executions"] = sorted(
        (payload["rule"], payload["episode"])
        for payload in world.executions.started.values()
        if payload["kind"] == "fire"
    )
    return state
