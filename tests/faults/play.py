"""Plays a trial: the job writes, messages come as its faults say, functions run and die, until all is at rest."""

import json
import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from typing import Any
from unittest.mock import patch

from tests.faults.jobs import BUCKET, FAMILIES, JOB, START, Written, describe, end_of, written
from tests.faults.stops import FirePath
from tests.faults.trial import OUTAGE_S, PORTS, Fault, Trial
from tests.support import faults as ports
from tests.support.faults import Crash
from tests.support.memory import MemoryWorld
from trainguard.core.errors import TrainGuardError
from trainguard.core.ports import Timing
from trainguard.core.records import JobStatus, StreamKey
from trainguard.core.timestamps import iso_time
from trainguard.engine.batch import BatchProcessor
from trainguard.engine.jobs.job_registry import JobRegistry
from trainguard.engine.jobs.lifecycle import follow_sagemaker
from trainguard.engine.messages import Message, encode_task
from trainguard.engine.reconcile import scheduler_at_once
from trainguard.state import codec
from trainguard.state import codec as migrations

VISIBILITY_S = 360.0
# After so many deliveries a message goes to the dead-letter queue.
RECEIVES = 5

# So long after an outage the dead-letter queue is emptied into the queue.
REDRIVEN_S = 1_800.0

LAST_TICK_S = 30 * 3_600.0
BAD_BODIES = ("", "{", "[]", '{"trainguard":"task"}', '{"source":"aws.s3"}', "\ud800", '{"detail":{"object":3}}')
END_KEY = f"{JOB}/profiler-output/system/training_job_end.ts"


class Play:
    """One trial in the making; ``run`` plays it to its end. ``reached`` are the operations that functions called."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.world = MemoryWorld()
        self.objects = written(trial.shape)
        self.now = START - 1.0
        self.off_s = 0.0
        self.invocations = 0
        self.dead: list[str] = []
        self.reached: set[str] = set()
        another = trial.of("another job")
        self.fire_path = FirePath(self.world, another[0].number if another else None)
        self._timing = Timing(now=lambda: self.now + self.off_s, pause=lambda _: None, has_time=lambda: True)
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0
        self._queue: list[tuple[float, int, Message]] = []
        self._begun: set[str] = set()
        self._thawed, self._last_at = False, 0.0
        self._appears: dict[int, float] = {}
        self._outages = [(START + each.seconds, each) for each in trial.of("outage")]
        self._batch, self._rival = self._evaluator(), self._evaluator()

    def run(self) -> None:
        """Play the trial."""
        world, shape = self.world, self.trial.shape
        world.training_jobs.set(describe(shape))
        if self.trial.of("stops taken"):
            self.fire_path.take_all(START + 120.0)
        self._write()
        self._end()
        self._disturb()
        silent = {each.which + later for each in self.trial.of("no ticks") for later in range(each.number)}
        with ExitStack() as stack:
            self._stack = stack
            minute = 0
            while True:
                minute += 1
                self._until(START + 60.0 * minute)
                if self._at_rest():
                    return
                if minute not in silent:
                    self._invoke(self._tick)
                if 60.0 * minute > LAST_TICK_S:
                    raise AssertionError("the job is not finished 30 h after its start")

    def _at_rest(self) -> bool:
        if self._events or self._queue or self.now < end_of(self.trial.shape):
            return False
        record = self.world.jobs.load(JOB)
        return record is not None and not record.active

    # What the job does.

    def _write(self) -> None:
        end = end_of(self.trial.shape)
        slow = {each.which % len(self.objects): each.seconds for each in self.trial.of("slow upload")}
        after: dict[int, float] = {}
        for fault in self.trial.of("after the end"):
            stream = self.trial.shape.streams[fault.which % len(self.trial.shape.streams)]
            last = [index for index, each in enumerate(self.objects) if each.stream == stream][-fault.number :]
            after.update({index: end + fault.seconds + index for index in last})
        late = {each.which % len(self.objects): each.seconds for each in self.trial.of("late message")}
        lost = {each.which % len(self.objects) for each in self.trial.of("lost message")} - after.keys()
        appears = self._appears
        for index, each in enumerate(self.objects):
            at = each.at
            if index in after:
                at = after[index]
            elif each.stream.stream == "system":
                at = max(each.at, min(each.at + slow.get(index, 0.0), end - 1.0))
            appears[index] = at
            self._at(at, partial(self._put, each, at))
            if index not in lost:
                self._announce(each, at + 0.5 + late.get(index, 0.0))
        self._last_at = max((at for at in appears.values() if at < end), default=end)
        for fault in self.trial.of("message twice"):
            index = fault.which % len(self.objects)
            self._announce(self.objects[index], appears[index] + 0.5 + fault.seconds)

    def _put(self, each: Written, at: float) -> None:
        self.world.objects.now = at
        self.world.objects.put(BUCKET, each.key, each.body, "application/json")

    def _announce(self, each: Written, at: float) -> None:
        self._send(_created(each.key, each.at), at)

    def _end(self) -> None:
        shape, trial = self.trial.shape, self.trial
        end = end_of(shape)
        self._at(end, lambda: self.world.training_jobs.set(describe(shape, JobStatus.COMPLETED)))
        if not trial.of("end mark lost"):
            self._send(_created(END_KEY, end), end + 1.5)
        for fault in trial.of("end mark early"):
            self._send(_created(END_KEY, START + fault.seconds), START + fault.seconds)
        if not trial.of("end event lost"):
            self._at(end + 2.0, lambda: self._invoke(self._follow))
        for fault in trial.of("end event twice"):
            self._at(end + 2.0 + fault.seconds, lambda: self._invoke(self._follow))

    # What goes wrong beside functions.

    def _disturb(self) -> None:
        shape = self.trial.shape
        for each in self.trial.of("redeploy"):
            self._at(START + each.seconds, self._redeploy)
        for each in self.trial.of("damaged item"):
            self._at(START + each.seconds, partial(self._damage, each))
        for each in self.trial.of("deleted item"):
            key = shape.streams[each.which % len(shape.streams)]
            self._at(START + each.seconds, partial(self.world.nodes.remove, key))
        for begun, _ in self._outages:
            self._at(begun + OUTAGE_S + REDRIVEN_S, self._redrive)
        for each in self.trial.of("bad message"):
            self._send(BAD_BODIES[each.which % len(BAD_BODIES)], START + each.seconds)
        for each in self.trial.of("old task"):
            key = shape.streams[each.which % len(shape.streams)]
            task = {"trainguard": "task", "job": JOB, "node": key.node, "stream": key.stream, "action": "flush"}
            self._send(json.dumps({**task, "since": "unknown to this version"}), START + each.seconds)

    def _redrive(self) -> None:
        """Let an operator send what lies in the dead-letter queue once more, as the alarm asks for."""
        again, self.dead = self.dead, []
        for body in again:
            self._send(body, self.now + 1.0)

    def _redeploy(self) -> None:
        """Let a new version take over, which stores another codec: it reads what the earlier one left."""
        self._batch = self._evaluator()
        newest = codec.CODEC + 1
        steps = {**migrations.MIGRATIONS, newest - 1: lambda _, document: document}
        self._stack.enter_context(patch.object(migrations, "MIGRATIONS", steps))
        for module in ("state.codec", "engine.streams.session", "engine.summary"):
            self._stack.enter_context(patch(f"trainguard.{module}.CODEC", newest))

    def _damage(self, fault: Fault) -> None:
        keys = [*self.trial.shape.streams, StreamKey.own(JOB)]
        record = self.world.nodes.load(keys[fault.which % len(keys)])
        if record is not None and record.state:
            at = fault.number % len(record.state)
            self.world.nodes.save(replace(record, state=record.state[:at] + b"\x00\xff" + record.state[at + 3 :]))

    # The network.

    def _at(self, at: float, what: Callable[[], object]) -> None:
        self._count += 1
        heappush(self._events, (at, self._count, what))

    def _send(self, body: str, at: float, deliveries: int = 1, message_id: str | None = None) -> None:
        self._count += 1
        message = Message(message_id or f"m{self._count}", body, deliveries)
        for begun, outage in self._outages:
            if outage.number == 0 and begun <= at < begun + OUTAGE_S:
                chance = random.Random(outage.which * 100_003 + self._count)
                at = begun + OUTAGE_S + chance.uniform(0.0, 60.0)
                if chance.random() < 0.2:
                    heappush(self._queue, (at + chance.uniform(0.0, 60.0), self._count, message))
                    self._count += 1
        heappush(self._queue, (at, self._count, message))

    def _until(self, time: float) -> None:
        """Let happen what happens until ``time``."""
        while True:
            event = self._events[0][0] if self._events else time + 1.0
            message = self._queue[0][0] if self._queue else time + 1.0
            if min(event, message) > time:
                break
            if event <= message:
                self.now = max(self.now, event)
                heappop(self._events)[2]()
                continue
            self._deliver(self._batch_until(min(message + self.trial.batch_s, event, time)))
        self.now = max(self.now, time)

    def _batch_until(self, time: float) -> list[Message]:
        """Take the messages that have come by ``time``, at most a hundred."""
        batch: list[Message] = []
        while self._queue and self._queue[0][0] <= time and len(batch) < 100:
            at, _, message = heappop(self._queue)
            self.now = max(self.now, at)
            batch.append(message)
        return batch

    def _deliver(self, messages: list[Message]) -> None:
        failed = {message.message_id for message in messages}

        def process() -> None:
            failed.intersection_update(self._batch.process(messages).failed)

        if not self._invoke(process):
            self._batch = self._evaluator()
        for message in messages:
            if message.message_id in failed:
                if message.deliveries >= RECEIVES:
                    self.dead.append(message.body)
                else:
                    again = self.now + VISIBILITY_S
                    self._send(message.body, again, message.deliveries + 1, message.message_id)

    # Functions.

    def _evaluator(self) -> BatchProcessor:
        return BatchProcessor(services=self.world.services, timing=self._timing, bucket=BUCKET, families=FAMILIES)

    def _tick(self) -> None:
        scheduler_at_once(services=self.world.services, timing=self._timing, families=FAMILIES).run()

    def _follow(self) -> None:
        follow_sagemaker(JOB, BUCKET, JobRegistry(self.world.services, FAMILIES, self._timing.now))

    def _invoke(self, function: Callable[[], None]) -> bool:
        """Run a function with the faults that await this invocation; False when it died or raised."""
        number, self.invocations = self.invocations, self.invocations + 1
        if any(each.number == 0 and at <= self.now < at + OUTAGE_S for at, each in self._outages):
            return False  # nothing runs
        self._arm(number)
        called = len(self.world.faults.calls)
        try:
            function()
        except (Crash, TrainGuardError):
            return False
        finally:
            self.off_s = 0.0
            self.reached.update(self.world.faults.calls[called:])
            self.world.faults.clear()
            for task in self.world.tasks.drain():
                self._send(encode_task(task), self.now + 1.0)
            self._begin_fires()
        return True

    def _arm(self, number: int) -> None:
        faults, trial = self.world.faults, self.trial
        mine = [each for each in trial.faults if each.which == number]
        for each in mine:
            if each.kind == "clock":
                self.off_s = each.seconds
            elif each.kind == "crash":
                faults.crash_after(each.number)
            elif each.kind == "port fails":
                what = ports.Fault.FAIL_AFTER if each.seconds else ports.Fault.FAIL_BEFORE
                faults.schedule(each.name, what, nth=each.number, times=each.number)
            elif each.kind == "race":
                self._race(each)
        if trial.of("frozen") and not self._thawed and self.now >= self._last_at:
            faults.interleave("NodeStates.save", self._close_meanwhile)
        for each in trial.of("dies at"):
            if (nth := each.number - faults.calls.count(each.name)) >= 1:
                faults.schedule(each.name, (ports.Fault.CRASH_BEFORE, ports.Fault.CRASH_AFTER)[each.which], nth=nth)
        self._arm_outages()

    def _arm_outages(self) -> None:
        for at, each in self._outages:
            if each.number and at <= self.now < at + OUTAGE_S:
                names = sorted(ports.OPERATIONS) if each.number == 1 else [PORTS[each.which % len(PORTS)]]
                for name in names:
                    self.world.faults.schedule(name, ports.Fault.FAIL_BEFORE, times=1_000_000)

    def _race(self, fault: Fault) -> None:
        there = [self.objects[index] for index, at in self._appears.items() if at <= self.now]
        if not there:
            return
        rival = Message("rival", _created(there[fault.number % len(there)].key, self.now))
        self.world.faults.interleave("NodeStates.save", lambda: self._rival.process([rival]))

    def _close_meanwhile(self) -> None:
        """Let the job end, and another function close it, while this one stands still before it saves."""
        self._thawed = True
        self.world.training_jobs.set(describe(self.trial.shape, JobStatus.COMPLETED))
        self._follow()
        for task in self.world.tasks.drain():
            done = False
            try:
                done = not self._rival.process([Message("rival", encode_task(task))]).failed
            finally:
                if not done:
                    self._send(encode_task(task), self.now + VISIBILITY_S, deliveries=2)

    def _begin_fires(self) -> None:
        for name, payload in self.world.executions.started.items():
            if name not in self._begun and payload["kind"] == "fire":
                self._begun.add(name)
                self._at(self.now + 2.0, partial(self._handle, name, payload, 1))

    def _handle(self, name: str, payload: dict[str, Any], attempt: int) -> None:
        if not self._invoke(lambda: self.fire_path.run(name, payload, self.now)) and attempt < RECEIVES:
            self._at(self.now + 70.0, lambda: self._handle(name, payload, attempt + 1))


def _created(key: str, at: float) -> str:
    detail = {"bucket": {"name": BUCKET}, "object": {"key": key}}
    return json.dumps({"source": "aws.s3", "time": iso_time(at), "detail": detail})


def played(trial: Trial) -> Play:
    """Play a trial and return what it left."""
    play = Play(trial)
    play.run()
    return play
