"""An item whose state is damaged is computed again from S3; one that a later version wrote is left alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.support.delivered import NODE_1, SYSTEM_1, UPLOADS, deliver, row
from tests.support.delivery import Network
from tests.support.small_job import JOB
from trainguard.core.records import Status, StreamKey, StreamRecord
from trainguard.state.codec import CODEC, compress, decompress

OWN = StreamKey.own(JOB)


def changed(network: Network, key: StreamKey, **fields: object) -> StreamRecord:
    """Write fields into an item, behind the engine's back."""
    return network.world.nodes.save(replace(network.node(key), **fields))  # type: ignore[arg-type]


def altered(state: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return a state that can be decompressed, and whose parts do not fit each other."""
    document = msgspec.msgpack.decode(decompress(state))
    change(document)
    return compress(msgspec.msgpack.encode(document))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "no state": lambda _: b"damaged",
    "a kind of column that is none": lambda state: altered(state, lambda of: of["kept"]["window"][1].__setitem__(0, 9)),
    "half a value": lambda state: altered(state, lambda of: of["kept"]["window"].__setitem__(0, [3, b"1234"])),
    "a longer column": lambda state: altered(state, lambda of: of["kept"]["window"].__setitem__(2, [0, bytes(7)])),
    "a column too few": lambda state: altered(state, lambda of: of["kept"]["window"].pop()),
    "GPUs without a name": lambda state: altered(state, lambda of: of["gpu_names"].clear()),
    "part of a histogram": lambda state: altered(state, lambda of: of["kept"].__setitem__("histogram", bytes(10))),
    "idle points that differ": lambda state: altered(
        state, lambda of: of["kept"].__setitem__("idle", {"since": 0.0, "points": [[0, b"1"], [0, b""]], "samples": 3})
    ),
}


@pytest.fixture(scope="module")
def plain() -> Network:
    network = Network()
    deliver(network, SYSTEM_1, until=SYSTEM_1[-1].at + 1.0)
    return network


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_item_is_rebuilt_whole_and_alerted_once(plain: Network, damage: Callable[[bytes], bytes]) -> None:
    network = Network()
    deliver(network, SYSTEM_1[:-3], until=SYSTEM_1[-4].at + 1.0)
    changed(network, NODE_1, state=damage(network.node(NODE_1).state))
    deliver(network, SYSTEM_1[-3:], until=SYSTEM_1[-1].at + 1.0)
    assert plain.world.executions.started
    assert network.node(NODE_1).state == plain.node(NODE_1).state
    assert network.world.executions.started.keys() == plain.world.executions.started.keys()
    assert network.world.journal.totals["items_rebuilt"] == 1


def test_scheduler_requests_a_rebuild_for_a_silent_damaged_node() -> None:
    network = Network()
    deliver(network, SYSTEM_1, until=SYSTEM_1[-1].at + 1.0)
    changed(network, NODE_1, state=b"damaged")
    network.run_scheduler()
    assert "damaged" in str(
        [entry.where for entry in network.world.journal.entries if entry.what == "reconcile_failures"]
    )
    network.run_until(network.now + 400.0, batch_s=0.0)
    network.run_scheduler()
    assert network.world.journal.totals["reconcile_failures"] == 1
    assert row(network, "LowGPUUtilization").status is Status.FIRED


def test_damaged_item_of_the_job_is_reset_and_resends_nothing() -> None:
    network = Network()
    deliver(network, UPLOADS[:-1])
    network.run_scheduler()
    before = list(network.world.executions.started)
    changed(network, OWN, state=b"damaged")
    network.run_scheduler()
    assert network.world.journal.totals.get("reconcile_failures", 0) == 0
    assert network.node(OWN).state != b"damaged"
    assert list(network.world.executions.started) == before


@pytest.mark.parametrize("key", [NODE_1, OWN])
def test_item_of_a_later_version_is_left_unchanged(key: StreamKey) -> None:
    network = Network()
    deliver(network, SYSTEM_1[:-1], until=SYSTEM_1[-2].at + 1.0)
    network.run_scheduler()
    later = changed(network, key, codec=CODEC + 1)
    deliver(network, SYSTEM_1[-1:], until=SYSTEM_1[-1].at + 1.0)
    network.run_scheduler()
    assert (network.node(key).state, network.node(key).codec) == (later.state, CODEC + 1)
