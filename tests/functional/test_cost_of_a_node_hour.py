"""What an hour of a node costs, by counts of the real engine on instrumented stores: no more than the model says.

The model's documents are compared with it elsewhere. So a change that makes an hour a tenth dearer fails here.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.support.delivery import Network
from tests.support.small_job import JOB, START, Upload, describe
from trainguard.adapters.memory.faults import Faults
from trainguard.adapters.memory.node_states import MemoryNodeStates
from trainguard.adapters.memory.world import MemoryWorld
from trainguard.layout import hour_folder
from trainguard.records import NodeRecord
from trainguard.running_costs.operating import CostLine, estimate
from trainguard.running_costs.unit_prices import packaged_unit_prices
from trainguard.running_costs.workload import Workload

DEARER = 1.1
BEFORE, HOUR = 24, 60
"""Minutes until a node's rules have warmed up, and those that are counted."""

GPUS = 8
ITEM_BYTES = 200
"""What an item of NodeState holds beside its state: names, key, cursors, counters, version."""


class Weighed(MemoryNodeStates):
    """NodeStates that add up write units: one for each begun 1,024 bytes of an item."""

    def __init__(self, *, faults: Faults) -> None:
        super().__init__(faults=faults)
        self.units: Counter[str] = Counter()

    def save(self, record: NodeRecord) -> NodeRecord:
        """Write the item."""
        self.units[record.key.stream] += math.ceil((len(record.state) + ITEM_BYTES) / 1_024)
        return super().save(record)


def minute_of(random: np.random.Generator, index: int, node: int, interval_ms: int) -> Upload:
    """Return a healthy minute of a node with 8 GPUs; in the first one they do not work yet."""
    at = START + 60 * index
    ticks = 60_000 // interval_ms
    busy = np.zeros((ticks, GPUS)) if index == 0 else random.normal(95.0, 2.0, (ticks, GPUS)).clip(0, 100).round()
    memory, cpu = random.integers(40, 44, (ticks, GPUS)), random.uniform(20.0, 50.0, ticks).round()
    lines = []
    for tick in range(ticks):
        rest = f'"NodeId":"algo-{node}","Timestamp":{at + tick * interval_ms / 1_000.0:.3f}}}'
        lines.append(f'{{"Type":"cpu","Name":"cpu0","Dimension":"CPUUtilization","Value":{cpu[tick]},{rest}')
        for gpu in range(GPUS):
            named = f'{{"Type":"gpu","Name":"gpu{gpu}"'
            lines.append(f'{named},"Dimension":"GPUUtilization","Value":{busy[tick, gpu]},{rest}')
            lines.append(f'{named},"Dimension":"GPUMemoryUtilization","Value":{memory[tick, gpu]}.0,{rest}')
    key = f"{JOB}/profiler-output/system/incremental/{hour_folder(at)}/{at}.algo-{node}.json"
    return Upload(at + 62.0 + 0.1 * node, key, "\n".join(lines).encode())


@cache
def counted(nodes: int, interval_ms: int) -> Mapping[str, float]:
    """Return the requests of an hour, and the write units of items."""
    world = MemoryWorld()
    world.nodes = weighed = Weighed(faults=world.faults)
    network = Network(world)
    description = replace(describe({}), instance_count=nodes, framework_profiling=False)
    world.training_jobs.set(replace(description, profiling_interval_ms=interval_ms))
    random = np.random.default_rng(1)
    begin = 0
    for index in range(BEFORE + HOUR):
        if index == BEFORE:
            begin = len(world.faults.calls)
            weighed.units.clear()
        for node in range(1, nodes + 1):
            upload = minute_of(random, index, node, interval_ms)
            network.put(upload)
            network.announce(upload, upload.at)
        network.run_until(START + 60.0 * index + 85.0, batch_s=20.0)
        network.tick()
    return Counter(world.faults.calls[begin:]) | {f"units of {key}": n for key, n in weighed.units.items()}


def lines_of(nodes: int) -> dict[str, CostLine]:
    return {
        line.what: line for line in estimate(Workload(nodes=nodes, gpus=GPUS), packaged_unit_prices().prices).hourly
    }


@pytest.mark.parametrize(("nodes", "interval_ms"), [(1, 500), (5, 15_000)])
def test_given_an_hour_of_healthy_nodes_when_requests_are_counted_then_they_are_at_most_the_models(
    nodes: int, interval_ms: int
) -> None:
    found, model = counted(nodes, interval_ms), lines_of(nodes)
    most: dict[str, Any] = {
        "GET": found["ProfileObjects.get"],
        "write units of RuleState": found["RuleStates.publish"],
        "write units of Jobs": found["Jobs.touch"] + found.get("Jobs.set_urgent", 0),
        "invocations of look_after_job": found["NodeStates.of_job"],
    }
    for what, amount in most.items():
        assert amount <= DEARER * model[what].amount, what
    assert found.get("ProfileObjects.list", 0) == 0
    assert found["NodeStates.save"] <= DEARER * (20 * nodes + 20)


def test_given_a_node_that_is_sampled_twice_a_second_when_its_items_are_weighed_then_they_are_at_most_the_models() -> (
    None
):
    found, model = counted(1, 500), lines_of(1)
    units = found["units of system"] + found["units of job"]
    assert units <= DEARER * model["write units of NodeState"].amount
    loads = found["NodeStates.load"] * math.ceil(found["units of system"] / 20 / 4)
    assert loads + found["Jobs.load"] + 2 * found["NodeStates.of_job"] <= DEARER * model["read units"].amount
