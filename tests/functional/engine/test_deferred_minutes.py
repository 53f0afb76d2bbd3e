"""Minutes that are not due wait in S3: nothing is written for them, and nothing is lost."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.support.delivery import Network, object_message
from tests.support.small_job import INTERVAL_S, JOB, SETTINGS, START, Upload, describe
from trainguard.core.job_policy import MOST_NODES_EACH_MINUTE
from trainguard.core.layout import hour_folder
from trainguard.core.records import Status, StreamKey, StreamRecord
from trainguard.engine.profiler.system_stream import SystemState
from trainguard.state.codec import decode_state

NODE = StreamKey(JOB, "algo-1", "system")
# From this minute on nothing of the start is waited for.
WORKS = 18


def minute_of(index: int, busy: float = 95.0) -> Upload:
    """Return a minute of a node with two GPUs."""
    minute = START + 60 * index
    lines = []
    for tick in range(60 // INTERVAL_S):
        time = minute + tick * INTERVAL_S
        for gpu in range(2):
            value = busy + (tick + gpu) % 3
            lines.append(
                f'{{"Type": "gpu", "Name": "gpu{gpu}", "Dimension": "GPUUtilization", "Value": {value}, '
                f'"NodeId": "algo-1", "Timestamp": {time}}}\n'
            )
    key = f"{JOB}/profiler-output/system/incremental/{hour_folder(minute)}/{minute}.algo-1.json"
    return Upload(minute + 62.0, key, "".join(lines).encode())


def network_of(every_s: int = 180) -> Network:
    """Return a job whose node has worked for a while, all evaluated, and has no findings."""
    network = Network()
    tags = SETTINGS | {"trainguard:evaluation-every-s": str(every_s)}
    network.world.training_jobs.set(replace(describe(tags), instance_count=1, framework_profiling=False))
    for index in range(WORKS):
        arrive(network, index)
    index = WORKS
    while arrived(network) < minute(index - 1):
        arrive(network, index)
        index += 1
    return network


def minute(index: int) -> int:
    return START + 60 * index


def arrived(network: Network) -> int:
    """Return the cursor."""
    return network.node(NODE).cursors["minute"]


def arrive(network: Network, index: int, *, busy: float = 95.0, late_s: float = 0.0, rings: bool = True) -> None:
    """Let a minute appear, and its message come, unless it is lost."""
    upload = minute_of(index, busy)
    network.put(upload)
    if rings:
        network.announce(upload, upload.at + late_s)
    network.run_until(upload.at + late_s, batch_s=0.0)


def applied(network: Network, first: int, last: int) -> tuple[StreamRecord, Counter[str]]:
    """Let minutes come from ``first`` to ``last``; return the item, and the requests that they made."""
    before = len(network.world.faults.calls)
    for index in range(first, last + 1):
        arrive(network, index)
    return network.node(NODE), Counter(network.world.faults.calls[before:])


@pytest.mark.parametrize("every_s", [60, 120, 180, 300])
def test_calm_node_writes_once_per_interval_and_reads_once(
    every_s: int,
) -> None:
    network = network_of(every_s)
    first = (arrived(network) - START) // 60 + 1
    item, requests = applied(network, first, first + 59)
    assert requests["NodeStates.save"] == 3_600 // every_s
    assert requests["ReadableObjects.get"] == 60
    assert requests["ReadableObjects.list"] == 0
    assert item.cursors["minute"] == minute(first + 59)
    assert item.counters.get("gaps", 0) == 0


@pytest.mark.parametrize("every_s", [60, 180])
@pytest.mark.parametrize(
    ("nodes", "writes", "through"), [(MOST_NODES_EACH_MINUTE, 12, 12), (MOST_NODES_EACH_MINUTE + 1, 5, 11)]
)
def test_node_near_a_change_in_a_large_job_is_evaluated_in_turn(
    nodes: int, writes: int, through: int, every_s: int
) -> None:
    """In the first minutes each node is near one; the first two minutes are written apart."""
    network = Network()
    tags = SETTINGS | {"trainguard:evaluation-every-s": str(every_s)}
    network.world.training_jobs.set(replace(describe(tags), instance_count=nodes, framework_profiling=False))
    arrive(network, 0)
    item, requests = applied(network, 1, 12)
    assert decode_state("item", item.codec, item.state, SystemState).near_threshold
    assert requests["NodeStates.save"] == writes
    assert item.cursors["minute"] == minute(through)


def test_deferred_minute_missing_in_s3_is_still_waited_for() -> None:
    network = network_of()
    first = (arrived(network) - START) // 60 + 1
    arrive(network, first + 1)
    arrive(network, first + 2)
    assert network.node(NODE).pending
    assert arrived(network) == minute(first - 1)
    arrive(network, first, late_s=200.0)
    assert arrived(network) == minute(first + 2)
    assert network.node(NODE).counters.get("gaps", 0) == 0


def test_redelivered_deferred_message_brings_its_node_up_to_date() -> None:
    network = network_of()
    first = (arrived(network) - START) // 60 + 1
    arrive(network, first)
    assert arrived(network) == minute(first - 1)
    upload = minute_of(first)
    network.send(object_message(upload), upload.at + 1.0, deliveries=2)
    network.run_until(upload.at + 1.0, batch_s=0.0)
    assert arrived(network) == minute(first)


def test_run_applies_the_dropped_messages_of_a_silent_node() -> None:
    network = network_of()
    first = (arrived(network) - START) // 60 + 1
    arrive(network, first)
    arrive(network, first + 1)
    assert arrived(network) == minute(first - 1)
    for _ in range(12):
        network.run_scheduler()
        network.run_until(network.now + 60.0, batch_s=0.0)
    assert arrived(network) == minute(first + 1)


def test_message_of_an_irregular_key_is_not_dropped() -> None:
    network = network_of()
    first = (arrived(network) - START) // 60 + 1
    upload = minute_of(first)
    elsewhere = replace(upload, key=upload.key.replace(hour_folder(minute(first)), hour_folder(minute(first) - 3_600)))
    network.put(elsewhere)
    network.announce(elsewhere, elsewhere.at)
    network.run_until(elsewhere.at, batch_s=0.0)
    assert arrived(network) == minute(first)


@pytest.mark.parametrize("late_s", [0.0, 600.0])
def test_given_a_message_when_it_is_late_then_it_is_not_dropped(late_s: float) -> None:
    network = network_of()
    first = (arrived(network) - START) // 60 + 1
    arrive(network, first, late_s=late_s)
    assert arrived(network) == minute(first if late_s else first - 1)


def test_low_minutes_fire_at_most_two_minutes_later() -> None:
    fired = {}
    for every_s in (60, 180):
        network = network_of(every_s)
        first = 30
        for index in range((arrived(network) - START) // 60 + 1, first + 12):
            arrive(network, index, busy=15.0 if index >= first else 95.0)
            if network.world.executions.started:
                fired[every_s] = (index - first, network.world.executions.started)
                break
    (soon, at_once), (later, deferred) = fired[60], fired[180]
    assert soon <= later <= soon + 2
    assert [each["firedAt"] for each in at_once.values()] == [each["firedAt"] for each in deferred.values()]


def test_open_episode_is_evaluated_each_minute_until_it_is_over() -> None:
    network = network_of()
    first = (arrived(network) - START) // 60 + 1
    for index in range(first, first + 12):
        arrive(network, index, busy=15.0)
    row = next(each for each in network.world.rows.of_job(JOB) if each.target == "LowGPUUtilization#algo-1")
    assert row.status is Status.FIRED
    index = first + 12
    while arrived(network) < minute(first + 12):
        arrive(network, index)
        index += 1
    before = len(network.world.faults.calls)
    arrive(network, index)
    assert "NodeStates.save" in network.world.faults.calls[before:]
