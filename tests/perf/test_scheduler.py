"""What reconciling a job costs by the number of its nodes: rows and save included, on stores in memory. `make bench`.

Growth is a ratio within one run, and memory hardly depends on the machine; seconds are shown, and do.
"""

import gc
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from demo.minute_lines import MinuteWriter
from demo.sampler import sample_node
from demo.workload import Activity, Level, Stretch, Workload
from tests.perf.test_bench import one_object, show
from tests.support.delivery import Network
from tests.support.large_jobs import large_job
from tests.support.memory import MemoryWorld
from tests.support.small_job import JOB, START, describe, uploads
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import Timing
from trainguard.core.records import JobRecord, StreamKey, StreamRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.plan import RulePlan
from trainguard.engine.profiler.system_stream import SystemSession
from trainguard.engine.reconcile import scheduler_at_once
from trainguard.engine.streams.session import Announced
from trainguard.formats.profile.keys import SystemKey, system_key

pytestmark = pytest.mark.perf

MINUTES = 14
FEW, MANY = 250, 1_000
# Four times the nodes, and some for caches that no longer hold them.
GROWTH_LIMIT = 4.5

# For 1,000 nodes of 8 GPUs with both streams and findings on half of them, beyond the imports and the items.
#
# It grows with the nodes: 4,000 take about 320 MB of the function's 512 MiB, mostly verdicts by node and their facts.
MEMORY_LIMIT_MB = 90

# The GPUs of half the nodes are low, so that a rule fires on them.
LEVELS = {"algo-1": Level(30, 3, low=10), "algo-2": Level(93, 3, low=60)}


def system_item(node: str, level: Level, plan: RulePlan) -> StreamRecord:
    """Return the item of a node with 8 GPUs at 500 ms after some minutes; of its cores it holds no more than means."""
    workload = Workload(
        instance_type="",
        nodes=1,
        cores=4,
        gpus=8,
        stretches=(Stretch(0, Activity(core=Level(35, 8, high=88), gpu=level)),),
        ends_s=60 * (MINUTES + 2),
        loading=(),
        first_snapshot_s=59.55,
        interval_ms=500,
    )
    samples = sample_node(workload, 0, np.random.default_rng(3))
    writer = MinuteWriter(node=node, cores=4, gpus=8, every_counter=False)
    root = ProfileRoot("", JOB)
    record = StreamRecord(StreamKey(JOB, node, "system"), cursors={"minute": START, "newest": START})
    for index in range(1, MINUTES + 1):
        minute = START + 60 * index
        session = SystemSession(record, one_object(writer.body(samples, samples.rows(index), start=START)), plan)
        session.announce([Announced(system_key(root, node, minute), SystemKey(root, node, minute))])
        assert len(list(session.apply(drain=False, modified_before=None))) == 1
        record = session.to_record(closed=False)
    return record


@pytest.fixture(scope="module")
def seeds() -> tuple[JobRecord, list[StreamRecord]]:
    """Return a job, and the items of two nodes with both streams."""
    network = Network()
    for upload in uploads(low=False)[:-1]:
        network.put(upload)
        network.announce(upload, upload.at)
        network.run_until(upload.at, batch_s=1.0)
    job = replace(network.job(), rule_settings={"LowGPUUtilization_patience": "100"})
    framework = [each for each in network.world.nodes.of_job(JOB) if each.key.stream == "framework"]
    return job, [*(system_item(node, level, FAMILIES.plan(job)) for node, level in LEVELS.items()), *framework]


def looked_after(world: MemoryWorld) -> Callable[[], None]:
    """Return what reconciles the job once."""
    timing = Timing(lambda: START + 60.0 * MINUTES + 120.0, lambda _: None, lambda: True)
    tick = scheduler_at_once(services=world.services, timing=timing, families=FAMILIES)

    def look() -> None:
        gc.collect()
        outcome = tick.run()
        assert outcome == (1, {})

    return look


def cpu_seconds(work: Callable[[], object], rounds: int = 5) -> float:
    """Return the least processor time that some rounds took: the machine's noise only ever adds."""
    times = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def memory_mb(work: Callable[[], object]) -> float:
    """Return the most memory, in megabytes, that was allocated at once while something was done."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("streams", [("system",), ("system", "framework")])
def test_looking_after_a_job_of_thousands_of_nodes(
    seeds: tuple[JobRecord, list[StreamRecord]], streams: tuple[str, ...]
) -> None:
    """From the items to rows and the saved item of the job, on stores in memory."""
    job, records = seeds
    kept = [record for record in records if record.key.stream in streams]
    worlds = {nodes: large_job(job, describe(), kept, nodes) for nodes in (FEW, MANY)}
    memory = {nodes: memory_mb(looked_after(world)) for nodes, world in worlds.items()}
    item = sum(len(record.state) for record in kept) / len(LEVELS)
    seconds = {nodes: cpu_seconds(looked_after(world)) for nodes, world in worlds.items()}
    rows = worlds[MANY].rows.of_job(JOB)
    assert any(row.rule == "LowGPUUtilization" and row.times_fired for row in rows) or "system" not in streams
    growth = seconds[MANY] / seconds[FEW]
    show(
        f"reconcile a job, {' and '.join(streams)} ({item:.0f} bytes a node): {seconds[FEW]:.2f} s for {FEW:,} nodes, "
        f"{seconds[MANY]:.2f} s for {MANY:,}, growth {growth:.2f} (limit {GROWTH_LIMIT}); {memory[FEW]:.0f} and "
        f"{memory[MANY]:.0f} MB (limit {MEMORY_LIMIT_MB})"
    )
    assert growth <= GROWTH_LIMIT
    assert memory[MANY] <= min(GROWTH_LIMIT * memory[FEW], MEMORY_LIMIT_MB)
