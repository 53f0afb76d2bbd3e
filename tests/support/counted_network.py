"""A job's messages through the real engine on stores that count what AWS bills."""

import contextlib
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from aws_lambda_powertools import Logger, Metrics

from tests.support.delivery import Network
from tests.support.faults import Faults
from tests.support.memory import MemoryNodeStates, MemoryRuleStates, MemoryWorld
from tests.support.small_job import START
from trainguard.aws.dynamodb import node_states, rule_states
from trainguard.aws.dynamodb.attributes import present
from trainguard.aws.dynamodb.stored_form import stored_row
from trainguard.aws.dynamodb.table import row_key
from trainguard.aws.fault_points import LateVerdicts
from trainguard.aws.observability import PowertoolsJournal
from trainguard.core.ports import Services
from trainguard.core.records import RuleRow, StreamKey, StreamRecord
from trainguard.engine.messages import Message
from trainguard.running_costs.unit_prices import packaged_unit_prices
from trainguard.running_costs.workload import READ_BYTES, UNIT_BYTES, node_bytes

GPUS = 8
SYSTEM = "system"
MESSAGES_A_REQUEST = 10
PRICES = packaged_unit_prices().prices
# Read every minute with jobs or without: an idle deployment's.
OF_THE_SCHEDULER = {"Jobs.polled_fast", "Jobs.polled_slowly"}

OF_THE_JOB = {"ProfileObjects.put"}


class Counts(dict[str, float]):
    """Amounts by the unit that AWS bills, as `UnitPrices` names it."""

    def __missing__(self, unit: str) -> float:
        return 0.0

    def write(self, size: int) -> None:
        """Count a write of an item."""
        self["write_unit"] += max(1, math.ceil(size / UNIT_BYTES))

    def read(self, size: int) -> None:
        """Count a consistent read of items."""
        self["read_unit"] += max(1, math.ceil(size / READ_BYTES))

    @property
    def cost(self) -> float:
        """USD."""
        return math.fsum(amount * getattr(PRICES, unit) for unit, amount in self.items())


def size_of(value: object) -> int:
    """Return what DynamoDB counts of an item, or of one of its values."""
    if not isinstance(value, Mapping):
        return 0
    (kind, held), *more = value.items()
    if more or len(kind) > len("BOOL"):
        return sum(len(name.encode()) + size_of(each) for name, each in value.items())
    if kind in {"S", "B"}:
        return len(held if isinstance(held, bytes) else str(held).encode())
    if kind == "N":
        return 21
    if kind == "M":
        return 3 + sum(len(name.encode()) + size_of(each) + 1 for name, each in held.items())
    return 3 + sum(size_of(each) + 1 for each in held) if kind == "L" else 1


class WeighedNodes(MemoryNodeStates):
    """NodeStates that count units; an item of system metrics has what it has after a day, at least."""

    def __init__(self, *, faults: Faults, counts: Counts) -> None:
        super().__init__(faults=faults)
        self._counts = counts
        self.largest = 0

    def save(self, record: StreamRecord) -> StreamRecord:
        """Write the item."""
        self._counts.write(self._size(record))
        return super().save(record)

    def load(self, key: StreamKey) -> StreamRecord | None:
        """Read an item."""
        record = super().load(key)
        self._counts.read(0 if record is None else self._size(record))
        return record

    def of_job(self, job: str) -> list[StreamRecord]:
        """Read all items of a job."""
        records = super().of_job(job)
        self._counts.read(sum(map(self._size, records)))
        return records

    def _size(self, record: StreamRecord) -> int:
        size = size_of(node_states._item(record))
        if record.key.stream != SYSTEM:
            return size
        self.largest = max(size, self.largest)
        return max(size, node_bytes(GPUS))


class WeighedRows(MemoryRuleStates):
    """RuleStates that count units."""

    def __init__(self, *, faults: Faults, counts: Counts) -> None:
        super().__init__(faults=faults)
        self._counts = counts

    def publish(self, rows: Sequence[RuleRow]) -> None:
        """Write rows."""
        for row in rows:
            columns = present(rule_states._columns(stored_row(row)))
            self._counts.write(size_of({**row_key(row.job, row.target), **columns}))
        super().publish(rows)


# What a call bills; those of items are counted by their sizes. A change of `Active` moves an entry of the index.
CALLS = {
    "Jobs.load": Counts(read_unit=1),
    "Jobs.touch": Counts(write_unit=1),
    "Jobs.set_fast_polling": Counts(write_unit=3),
    "ReadableObjects.get": Counts(object_get=1),
    "ReadableObjects.get_range": Counts(object_get=1),
    "ReadableObjects.list": Counts(object_put=1),
    "NodeStates.load": Counts(),
    "NodeStates.save": Counts(),
    "NodeStates.of_job": Counts(invocation=1),
    "RuleStates.publish": Counts(),
}


class CountedWorld(MemoryWorld):
    """A world whose functions log as deployed ones do."""

    def __init__(self, journal: LateVerdicts) -> None:
        super().__init__()
        self._as_deployed = journal

    @property
    def services(self) -> Services:
        return replace(super().services, journal=self._as_deployed)


class CountedNetwork(Network):
    """Delivers messages, and counts what is billed for them beside calls of stores."""

    def __post_init__(self) -> None:
        self.counts = Counts()
        self.log = io.StringIO()
        self._metrics = Metrics(namespace="TrainGuard", service="evaluate_objects")
        self._journal = LateVerdicts(PowertoolsJournal(logger=Logger(stream=self.log), metrics=self._metrics))
        self.world = CountedWorld(self._journal)
        faults = self.world.faults
        self.world.nodes = self.nodes = WeighedNodes(faults=faults, counts=self.counts)
        self.world.rows = WeighedRows(faults=faults, counts=self.counts)
        super().__post_init__()

    def deliver(self, messages: list[Message]) -> None:
        """Process a batch."""
        super().deliver(messages)
        self.counts["queue_request"] += len(messages) + 2 * math.ceil(len(messages) / MESSAGES_A_REQUEST)
        self.counts["invocation"] += 1
        self._journal.end_batch()
        self._write_log()

    def run_scheduler(self) -> None:
        """Let a minute's tick run, with its looks; its own lines are an idle deployment's."""
        super().run_scheduler()
        self._write_log()

    def with_calls(self, begin: int) -> Counts:
        """Return the counts with what calls of stores bill, from the call of that number on."""
        counts = Counts(self.counts)
        for call, times in Counter(self.world.faults.calls[begin:]).items():
            if call not in OF_THE_SCHEDULER | OF_THE_JOB:
                for unit, amount in CALLS[call].items():
                    counts[unit] += times * amount
        return counts

    def _write_log(self) -> None:
        with contextlib.redirect_stdout(self.log):
            self._metrics.flush_metrics()
        self.counts["log_gb"] += self.log.tell() / 1e9
        self.log.seek(0)
        self.log.truncate()


def minute_of(random: np.random.Generator, index: int, node: int) -> bytes:
    """Return a small healthy minute of a node with 8 GPUs: how many requests it makes does not hang on its lines."""
    at = START + 60 * index
    lines = []
    for tick in range(4):
        rest = f'"NodeId":"algo-{node}","Timestamp":{at + tick * 15.0:.3f}}}'
        cpu = random.integers(20, 50)
        lines.append(f'{{"Type":"cpu","Name":"cpu0","Dimension":"CPUUtilization","Value":{cpu}.0,{rest}')
        for gpu in range(GPUS):
            named, busy = f'{{"Type":"gpu","Name":"gpu{gpu}"', 0 if index == 0 else random.integers(90, 99)
            lines.append(f'{named},"Dimension":"GPUUtilization","Value":{busy}.0,{rest}')
            lines.append(f'{named},"Dimension":"GPUMemoryUtilization","Value":42.0,{rest}')
    return "\n".join(lines).encode()
