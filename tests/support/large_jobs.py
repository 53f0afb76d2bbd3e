"""Jobs of any number of nodes: the items of a few nodes, given to many."""

from collections.abc import Sequence
from dataclasses import replace

from tests.support.memory import MemoryWorld
from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JobRecord, StreamKey, StreamRecord


def large_job(
    job: JobRecord, description: TrainingJobDescription, seeds: Sequence[StreamRecord], nodes: int
) -> MemoryWorld:
    """Return a world with a job of ``nodes`` nodes, each of which has both items of the next node of ``seeds``."""
    world = MemoryWorld()
    world.training_jobs.set(replace(description, instance_count=nodes))
    world.jobs.register(replace(job, instance_count=nodes))
    names = sorted({record.key.node for record in seeds})
    by_place: dict[tuple[str, str], StreamRecord] = {(each.key.node, each.key.stream): each for each in seeds}
    for number in range(1, nodes + 1):
        source = names[number % len(names)]
        for (name, stream), record in by_place.items():
            if name == source:
                key = StreamKey(job.job, f"algo-{number}", stream)
                world.nodes.save(replace(record, key=key, version=0, outbox={}))
    return world
