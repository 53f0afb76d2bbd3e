"""How long the messages of one minute's edge take, against the documented limits: ``python -m tests.scale.drain``.

A simulation, with no clock and no AWS. All nodes' messages come in the same second, which is the worst that can be;
every evaluation takes what it takes in `make bench`, rounded up, and waits for its writes. What it leaves out: cold
starts, which begin once for each of the evaluators, and messages that come back.
"""

import heapq
from collections import deque
from dataclasses import dataclass

from trainguard.core.evaluation_interval import EVALUATION_EVERY_S
from trainguard.core.job_policy import MOST_NODES_EACH_MINUTE
from trainguard.rules.registry import SYSTEM_RULES
from trainguard.running_costs.sizing import SIZES, Size
from trainguard.running_costs.workload import READ_BYTES, node_bytes, node_units

# Write and read units a second of one partition: of one job, as a job's name is the partition key of each table.
PARTITION_UNITS, PARTITION_READ_UNITS = 1_000, 3_000

# Lambda begins with five batches at a time, adds 300 a minute, and has 1,250 at most.
FIRST_POLLERS, POLLERS_A_SECOND, MOST_POLLERS = 5, 5.0, 1_250

# A function's environments grow by a thousand in ten seconds.
CONCURRENCY_STEP, CONCURRENCY_STEP_S = 1_000, 10.0

# Write units a second that a new table on demand takes.
TABLE_UNITS = 4_000

# Read units a second.
TABLE_READ_UNITS = 12_000

# Messages of one invocation, and how long Lambda waits for a batch that is not full.
BATCH, WINDOW_S = 100, 20.0

# One evaluation without its objects, and one object of it (96 cores, 8 GPUs at 500 ms).
EVALUATION_S, MINUTE_S = 0.05, 0.085

GPUS = 8
# Units of the item of a node, to write and to read it.
ITEM_UNITS, ITEM_READ_UNITS = node_units(GPUS), -(-node_bytes(GPUS) // READ_BYTES)

# Rows of RuleState that a node's first evaluation writes, a unit each.
FIRST_ROWS = len(SYSTEM_RULES)

# A node without findings, and each node of a large job, is evaluated in every third minute.
EVERY = int(EVALUATION_EVERY_S / 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """What comes at a minute's edge.

    Attributes
    ----------
    jobs : sequence of int
        Nodes of each job.
    minutes : int
        Minutes that an evaluation takes in.
    rows : int
        Rows that it writes.
    """

    jobs: tuple[int, ...]
    minutes: int = EVERY
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Drained:
    """When the last message was done, seconds after the edge, and what evaluators waited for writes, seconds."""

    after_s: float
    waited_s: float


class Units:
    """Units of a table as they are granted: of a job's partition, and of the whole table."""

    def __init__(self, partition_units: float, table_units: float) -> None:
        self._partition_units = partition_units
        self._table_units = table_units
        self._table_free_at = 0.0
        self._free_at: dict[int, float] = {}

    def granted(self, job: int, at: float, units: int) -> float:
        """Return when a request of one item is through."""
        through = max(at, self._free_at.get(job, 0.0), self._table_free_at)
        self._free_at[job] = through + units / self._partition_units
        self._table_free_at = max(at, self._table_free_at) + units / self._table_units
        return through


def drain(edge: Edge, size: Size) -> Drained:
    """Return how long the messages of an edge take with a row's settings."""
    waiting = deque(_messages(edge))
    most_writes = min(size.max_write_units, TABLE_UNITS)
    items, rows = Units(PARTITION_UNITS, most_writes), Units(PARTITION_UNITS, most_writes)
    reads = Units(PARTITION_READ_UNITS, TABLE_READ_UNITS)
    most = min(size.evaluator_concurrency, MOST_POLLERS)
    running = [max(0.0, (number - FIRST_POLLERS + 1) / POLLERS_A_SECOND) for number in range(most)]
    running = [max(at, number // CONCURRENCY_STEP * CONCURRENCY_STEP_S) for number, at in enumerate(running)]
    heapq.heapify(running)
    last = waited = 0.0
    compute = 1_024 / min(size.evaluator_memory_mb, 1_769)
    steps: list[tuple[float, int, deque[int]]] = []
    number = 0
    while waiting or steps:
        while running and waiting and (not steps or running[0] <= steps[0][0]):
            at = heapq.heappop(running)
            batch = deque(waiting.popleft() for _ in range(min(BATCH, len(waiting))))
            number += 1
            heapq.heappush(steps, (at if len(batch) == BATCH else at + WINDOW_S, number, batch))
        at, one, batch = heapq.heappop(steps)
        job = batch.popleft()
        read = reads.granted(job, at, ITEM_READ_UNITS)
        evaluated = read + EVALUATION_S + edge.minutes * MINUTE_S * compute
        done = items.granted(job, evaluated, ITEM_UNITS)
        for _ in range(edge.rows):
            done = rows.granted(job, done, 1)
        waited += done - evaluated + read - at
        last = max(last, done)
        if batch:
            heapq.heappush(steps, (done, one, batch))
        else:
            heapq.heappush(running, done)
    return Drained(last, waited)


def _messages(edge: Edge) -> list[int]:
    """Return the job of each message; the jobs' are mixed as they come."""
    return [
        job
        for _, job in sorted((number / nodes, job) for job, nodes in enumerate(edge.jobs) for number in range(nodes))
    ]


def edges(nodes: int) -> dict[str, Edge]:
    """Return what a row is held against: slowly polled jobs, all due, one of them, its first minute, a crisis.

    In a crisis all nodes are near a threshold: those of a job that is not too large are evaluated each minute.
    """
    jobs = tuple(min(1_000, nodes - first) for first in range(0, nodes, 1_000))
    return {
        "jobs of 1,000, all due": Edge(jobs=jobs),
        "one job, all due": Edge(jobs=(nodes,)),
        "one job, first minute": Edge(jobs=(nodes,), minutes=1, rows=FIRST_ROWS),
        "one job, near a threshold": Edge(jobs=(nodes,), minutes=period(nodes)),
    }


def period(nodes: int) -> int:
    """Return how many minutes a job of nodes near a threshold has until the next edge."""
    return EVERY if nodes > MOST_NODES_EACH_MINUTE else 1


def table() -> list[str]:
    """Return the table of `docs/reliability.md`: how long each row's settings take."""
    head = "| nodes | " + " | ".join(edges(1)) + " |"
    rows = []
    for size in SIZES:
        cells = (f"{drain(edge, size).after_s:.0f} s" for edge in edges(size.nodes).values())
        rows.append(f"| {size.nodes:,} | " + " | ".join(cells) + " |")
    return [head, "|---|" + "---|" * len(edges(1)), *rows]


if __name__ == "__main__":
    print("\n".join(table()))
