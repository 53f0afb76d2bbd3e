"""What reconciling a job takes grows with its nodes and no faster: counted in calls, so that no clock decides."""

import cProfile
import pstats
from dataclasses import replace

import pytest

from tests.support.delivery import Network
from tests.support.large_jobs import large_job
from tests.support.memory import MemoryWorld
from tests.support.small_job import JOB, describe, uploads
from trainguard.core.ports import Timing
from trainguard.core.records import JobRecord, StreamRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.reconcile import scheduler_at_once

FEW, MANY = 30, 120
# Of calls a node: some do not depend on the number of nodes, so they grow by less than it does.
GROWTH_LIMIT = 1.1


@pytest.fixture(scope="module")
def small_job() -> tuple[JobRecord, list[StreamRecord], float]:
    """Return a job of which every object was met, its nodes' items, and the time."""
    network = Network()
    for upload in uploads():
        network.put(upload)
        network.announce(upload, upload.at + 1.0)
    network.run_until(uploads()[-1].at + 10.0, batch_s=20.0)
    records = [record for record in network.world.nodes.of_job(JOB) if not record.key.is_own]
    return network.job(), [replace(record, closed=False) for record in records], network.now


def calls(world: MemoryWorld, now: float) -> int:
    """Return how many calls it takes to reconcile the world's one job."""
    timing = Timing(lambda: now, lambda _: None, lambda: True)
    tick = scheduler_at_once(services=world.services, timing=timing, families=FAMILIES)
    profile = cProfile.Profile()
    outcome = profile.runcall(tick.run)
    assert outcome == (1, {})
    return int(vars(pstats.Stats(profile))["total_calls"])


def test_calls_of_a_run_are_linear_in_nodes(
    small_job: tuple[JobRecord, list[StreamRecord], float],
) -> None:
    job, records, now = small_job
    open_job = replace(job, active=True, closing=False)
    few, many = (calls(large_job(open_job, describe(), records, nodes), now) for nodes in (FEW, MANY))
    assert many / few <= GROWTH_LIMIT * MANY / FEW
