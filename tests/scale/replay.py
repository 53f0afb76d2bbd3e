"""Replays a job through the real evaluator on the in-memory stores, and measures it: ``python -m tests.scale.replay``.

``python -m tests.scale.replay 128 60`` is 128 nodes and an hour. Each minute all nodes write an object of 96 cores and
8 GPUs at 500 ms, and their messages come one by one; a scheduler run follows. Bodies are made when they are read,
outside the measured time, so that a day of a profile needs no 4 GB.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from demo.synthesis import minute_of_node
from tests.support.memory import MemoryJournal, MemoryProfileObjects, MemoryWorld
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import Timing, TrainingJobDescription
from trainguard.core.records import JobStatus
from trainguard.core.timestamps import iso_time
from trainguard.engine.batch import BatchOutcome, BatchProcessor
from trainguard.engine.installed import FAMILIES
from trainguard.engine.messages import Message, encode_task
from trainguard.engine.reconcile import scheduler_at_once
from trainguard.formats.profile.keys import SystemKey, parse_key, system_key

BUCKET, JOB, START = "profiles", "replayed", 1_795_248_000
ROOT = ProfileRoot("", JOB)
MINUTE_S = 60
# Minutes whose objects stay in the bucket: older ones no evaluator asks for.
KEPT_MINUTES = 12

Body = Callable[[str, int], bytes]


@dataclass
class Replayed:
    """What a replay came to, by minute where that grows.

    Attributes
    ----------
    evaluated_s : list of float
        CPU seconds of each message that had its node evaluated, bodies left out.
    dropped_s : list of float
        Those of each other one: its node has no findings, and its object waits for another message or the scheduler.
    tasks_s : list of float
        Those of each task that the scheduler sends.
    item_bytes, items, lines, rss_mib : list
        After each minute: bytes of all state, items of both tables, lines of the log, memory of the process.
    """

    evaluated_s: list[float] = field(default_factory=list)
    dropped_s: list[float] = field(default_factory=list)
    tasks_s: list[float] = field(default_factory=list)
    item_bytes: list[int] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    rss_mib: list[float] = field(default_factory=list)


class _MadeOnDemand(MemoryProfileObjects):
    """Objects whose bytes are made when they are read; ``made_s`` is the CPU time that this took, ``read`` how many."""

    def __init__(self, world: MemoryWorld, body: Body) -> None:
        super().__init__(faults=world.faults)
        self._make = body
        self.made_s = 0.0
        self.read = 0

    def get(self, bucket: str, key: str, max_bytes: int) -> bytes:
        """Return the bytes of a minute."""
        held = super().get(bucket, key, max_bytes)
        parsed = parse_key(key) if key.startswith(ROOT.system) else None
        if not isinstance(parsed, SystemKey):
            return held
        self.read += 1
        begun = time.process_time()
        body = self._make(parsed.node, parsed.minute)
        self.made_s += time.process_time() - begun
        return body


class _CountingJournal(MemoryJournal):
    """A journal that keeps no lines, only how many they were."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = 0

    def count(self, what: str, amount: float = 1, **where: object) -> None:
        """Count a line."""
        del what, amount, where
        self.lines += 1

    def measure(self, what: str, seconds: float) -> None:
        """Count a line."""
        del what, seconds
        self.lines += 1


class Replay:
    """A running job of so many nodes, minute by minute."""

    def __init__(self, nodes: int, body: Body) -> None:
        self._nodes = [f"algo-{number}" for number in range(1, nodes + 1)]
        self.world = MemoryWorld()
        self._objects = _MadeOnDemand(self.world, body)
        self.world.objects = self._objects
        self._journal = _CountingJournal()
        self.world.journal = self._journal
        self._now = float(START)
        timing = Timing(now=lambda: self._now, pause=lambda _: None, has_time=lambda: True)
        services = self.world.services
        self._batches = BatchProcessor(services=services, timing=timing, bucket=BUCKET, families=FAMILIES)
        self._tick = scheduler_at_once(services=services, timing=timing, families=FAMILIES)
        self.world.training_jobs.set(_description(nodes))
        self.measured = Replayed()
        self._sent = 0
        self._next = START

    def run(self, minutes: int) -> Replayed:
        """Replay so many minutes from where the last call ended, and return all that was measured."""
        begun, self._next = self._next, self._next + minutes * MINUTE_S
        for minute in range(begun, self._next, MINUTE_S):
            self._now = minute + 70.0
            self.world.objects.now = self._now
            for node in self._nodes:
                self._write(node, minute)
            self._tick.run()
            self._take_tasks()
            self.world.faults._calls.clear()
            self._note()
        return self.measured

    def _write(self, node: str, minute: int) -> None:
        key = system_key(ROOT, node, minute)
        self._objects.put(BUCKET, key, b"", "application/json")
        self._objects.delete(BUCKET, [system_key(ROOT, node, minute - KEPT_MINUTES * MINUTE_S)])
        detail = {"bucket": {"name": BUCKET}, "object": {"key": key}}
        self._deliver(json.dumps({"source": "aws.s3", "time": iso_time(self._now), "detail": detail}))

    def _deliver(self, body: str) -> None:
        self._sent += 1
        read = self._objects.read
        outcome, took_s = self._timed(Message(f"m{self._sent}", body))
        (self.measured.evaluated_s if self._objects.read > read else self.measured.dropped_s).append(took_s)
        if outcome.failed or outcome.refused:
            raise RuntimeError(f"not evaluated: {body}")

    def _timed(self, message: Message) -> tuple[BatchOutcome, float]:
        """Process a message; return what came of it, and the CPU seconds without those of making bodies."""
        begun, made_s = time.process_time(), self._objects.made_s
        outcome = self._batches.process([message])
        return outcome, time.process_time() - begun - (self._objects.made_s - made_s)

    def _take_tasks(self) -> None:
        for task in self.world.tasks.drain():
            self.measured.tasks_s.append(self._timed(Message("task", encode_task(task)))[1])

    def _note(self) -> None:
        items = self.world.nodes.of_job(JOB)
        self.measured.item_bytes.append(sum(len(item.state) for item in items))
        self.measured.items.append(len(items) + len(self.world.rows.of_job(JOB)))
        self.measured.lines.append(self._journal.lines)
        self.measured.rss_mib.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024)


def _description(nodes: int) -> TrainingJobDescription:
    return TrainingJobDescription(
        job=JOB,
        arn=f"arn:aws:sagemaker:eu-west-1:111122223333:training-job/{JOB}",
        status=JobStatus.IN_PROGRESS,
        secondary_status=None,
        instance_type="ml.p4d.24xlarge",
        instance_count=nodes,
        created_at=START - 60.0,
        started_at=float(START),
        ended_at=None,
        profiling_interval_ms=500,
        framework_profiling=False,
        tags={},
        profile_uri=f"s3://{BUCKET}",
    )


class Bodies:
    """Minutes of a large node; all nodes have the same samples, under their own names."""

    def __init__(self, **node: Any) -> None:
        self._node = node
        self._minute: tuple[int, bytes] = (0, b"")

    def __call__(self, node: str, minute: int) -> bytes:
        """Return one minute of a node."""
        if self._minute[0] != minute:
            self._minute = (minute, minute_of_node(minute=minute, seed=minute, **self._node))
        return self._minute[1].replace(b'"algo-1"', f'"{node}"'.encode())


def main(nodes: int, minutes: int) -> None:
    """Replay a job and print what it took."""
    found = Replay(nodes, Bodies()).run(minutes)
    objects = len(found.evaluated_s) + len(found.dropped_s)
    quarter = minutes // 4
    print(f"{nodes} nodes, {minutes} min: {objects:,} objects")
    kinds = {"evaluated messages": found.evaluated_s, "dropped messages": found.dropped_s, "tasks": found.tasks_s}
    for kind, seconds in kinds.items():
        p50, p99 = np.percentile(np.array(seconds or [0.0]), [50, 99])
        share = len(seconds) / objects
        print(f"{kind}: {len(seconds):,}, {share:.2f} an object; CPU seconds p50 {p50:.4f}, p99 {p99:.4f}")
    print(f"CPU seconds an object: {sum(map(sum, kinds.values())) / objects:.4f}")
    print(f"memory, at most: {found.rss_mib[-1]:.0f} MiB; after a quarter: {found.rss_mib[quarter]:.0f} MiB")
    states = [total / nodes for total in found.item_bytes]
    print(f"state of a node: {states[-1]:,.0f} bytes; after a quarter: {states[quarter]:,.0f}")
    print(f"items: {found.items[-1]:,}; after a quarter: {found.items[quarter]:,}")
    print(f"log lines an object: {found.lines[-1] / objects:.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
