"""Captures of a job on the in-memory world: traces of its ranks, and the state machine that judges them."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import msgspec

from tests.support.delivery import Network
from tests.support.faults import Crash
from tests.support.kernel_ranks import documents
from tests.support.memory import MemoryWorld
from tests.support.small_job import BUCKET, JOB, START, Upload
from trainguard.core.errors import PortUnavailableError
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import RuleRow, StreamKey, StreamRecord
from trainguard.engine.installed import FAMILIES
from trainguard.kernels.captures.keys import ALL_RANKS, KERNELS
from trainguard.stack.captures.digest import digest_trace
from trainguard.stack.captures.join import CaptureJoiner, notify_evaluator
from trainguard.stack.captures.plan import CaptureCall, TraceItem, plan_capture

if TYPE_CHECKING:
    from trainguard.kernels.document import JobEntry

ROOT = ProfileRoot("", JOB)
KEY = StreamKey(JOB, ALL_RANKS, KERNELS)
FIRST = START + 600.0
MINUTE_S = 60.0
EVEN = (9_000.0, 9_000.0, 9_000.0, 9_000.0)
# Rank 2 begins so many microseconds later: LateRank fires on it.
HELD_UP = {2: 2_000.0}


def trace_key(rank: int, at: float, folder: str = "kernel-traces/") -> str:
    return f"{ROOT.folder}{folder}node_{1_000 + rank}.{round(at * 1_000)}.pt.trace.json"


def capture(
    at: float = FIRST,
    work_us: Sequence[float] = EVEN,
    *,
    delay_us: Mapping[int, float] | None = None,
    steps: int = 5,
    folder: str = "kernel-traces/",
) -> list[Upload]:
    """Return the traces of a capture, a second after each other."""
    made = documents(work_us, delay_us=delay_us, steps=steps)
    return [
        Upload(at + rank, trace_key(rank, at + rank, folder), json.dumps(document).encode())
        for rank, document in enumerate(made)
    ]


class KernelMachine:
    """The state machine of kernel profiles over a world: runs what was started, each execution once.

    ``dies`` are keys of traces whose function dies, at every attempt; ``failing`` names steps of the machine that fail:
    ``plan`` or ``join``. ``digested`` are the traces that were read, in order.
    """

    def __init__(self, world: MemoryWorld) -> None:
        self.world = world
        self.facts: dict[str, JobEntry] = {}
        self.dies: set[str] = set()
        self.failing: set[str] = set()
        self.digested: list[str] = []
        self.ran: list[str] = []
        self.joiner = CaptureJoiner(objects=world.objects, facts=self.facts.get)

    def run(self, now: float) -> int:
        """Run every execution that was started and has not run; return how many there were."""
        waiting = [each for each in self.world.captures.started if each not in self.ran]
        for name in waiting:
            self.ran.append(name)
            self._execute(name, msgspec.convert(self.world.captures.started[name], CaptureCall), now)
        return len(waiting)

    def _execute(self, name: str, call: CaptureCall, now: float) -> None:
        if "plan" in self.failing:
            return
        planned = plan_capture(self.world.objects, call)
        for item in planned.items:
            self._digest(item)
        if "join" not in self.failing:
            self.join(call, now)

    def join(self, call: CaptureCall, now: float) -> None:
        self.joiner.join(call, now=now)
        notify_evaluator(self.world.tasks, call, now=now)

    def _digest(self, item: TraceItem) -> None:
        if item.key in self.dies:
            return
        self.digested.append(item.key.rpartition("/")[2])
        digest_trace(self.world.objects, item, nullcontext())


class Live:
    """A job that writes traces, the evaluator, the scheduler and the machine, minute by minute."""

    def __init__(self) -> None:
        self.net = Network(families=FAMILIES, now=float(START))
        self.machine = KernelMachine(self.net.world)

    @property
    def world(self) -> MemoryWorld:
        return self.net.world

    def write(self, uploads: Sequence[Upload], *, announced: bool = True, times: int = 1) -> None:
        """Let objects appear, and their messages arrive."""
        for upload in uploads:
            self.net.put(upload)
            for _ in range(times if announced else 0):
                self.net.announce(upload, upload.at + 1.0)

    def until(self, time: float, watch: Callable[[], None] = lambda: None) -> None:
        """Let minutes pass: messages, a run of the scheduler, and what the machine was asked for."""
        while self.net.now < time:
            self.minute()
            watch()

    def minute(self) -> None:
        now = self.net.now + MINUTE_S / 2.0
        self.net.run_until(now, batch_s=2.0)
        self.world.objects.now = now
        self.net.run_scheduler()
        self.world.objects.now = now + 20.0
        try:
            self.machine.run(now + 20.0)
        except (Crash, PortUnavailableError):
            self.net.crashes += 1
        self.net.take_tasks()
        self.net.run_until(now + MINUTE_S / 2.0, batch_s=2.0)

    @property
    def record(self) -> StreamRecord:
        return self.net.node(KEY)

    def rows(self) -> dict[str, RuleRow]:
        return {row.target.removeprefix("kernels/"): row for row in self.world.rows.of_job(JOB)}

    def fires(self) -> list[str]:
        started = self.world.executions.started.values()
        return [str(each["rule"]) for each in started if each["kind"] == "fire" and "kernels/" in str(each["rule"])]

    def alerts(self) -> list[tuple[str, str]]:
        started = self.world.executions.started.values()
        return [(str(each["kind"]), str(each["rule"])) for each in started if "kernels/" in str(each["rule"])]

    def names(self) -> list[str]:
        """Names of all files that were written below the report."""
        return [each.key.removeprefix(ROOT.report) for each in self.world.objects.list(BUCKET, ROOT.report, "")]
