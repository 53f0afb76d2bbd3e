"""A job's items of NodeState, as far as they are the job's: what an earlier registration left is as good as none.

A job that was met before SageMaker knew it is registered anew once SageMaker does, see `registry`. Until then
anybody's objects may have come under its name, and other settings may have held. So each item says under which
registration it was computed::

    evaluator A (old registration)   store                         evaluator B (new registration)
    ------------------------------   -----                         ------------------------------
    load item, generation 0          generation 0, Version 7       load item: generation 0 < 1, so nothing but its
                                                                   Version counts
    save Version 8 ----------------> refused  <------------------- save generation 1, Version 8
    load item: generation 1 > 0: refused, its messages come back and meet the new registration

Had A been first, B's write would be refused, and B would find A's item as empty as the one before. What waited in the
outbox of an earlier registration is dropped with it: a fire says for whom it asks, and nobody knows whose objects made
it.
"""

from trainguard.errors import StateConflictError
from trainguard.records import JobRecord, NodeRecord, StreamKey
from trainguard.stores import NodeStates

RETENTION_S = 90 * 24 * 3_600


def item_of(job: JobRecord, key: StreamKey, nodes: NodeStates) -> NodeRecord:
    """Return the item of a stream, an empty one where there is none of this registration.

    Raises StateConflictError when the item is of a later one: ``job`` was read before SageMaker knew it.
    """
    stored = nodes.load(key)
    return NodeRecord(key, generation=job.generation) if stored is None else _current(job, stored)


def items_of(job: JobRecord, nodes: NodeStates) -> list[NodeRecord]:
    """Return the items of a job's streams, and its own if there is one; raises StateConflictError as `item_of` does.

    The own item is there, empty, also where only an earlier registration has one: a write has to know its Version.
    """
    own = StreamKey.own(job.job)
    records = {stored.key: (stored, _current(job, stored)) for stored in nodes.of_job(job.job)}
    found = [record for stored, record in records.values() if record is stored or record.key == own]
    if job.generation and own not in records:
        found.append(NodeRecord(own, generation=job.generation))
    return found


def _current(job: JobRecord, stored: NodeRecord) -> NodeRecord:
    if stored.generation > job.generation:
        raise StateConflictError(f"NodeState/{job.job}/{stored.key.node_kind}", stored.version)
    if stored.generation == job.generation:
        return stored
    return NodeRecord(stored.key, version=stored.version, generation=job.generation)


def expiry(watermark_s: float | None, now: float) -> int:
    """Return when a closed item may be deleted, epoch seconds: 90 days after its job's end, as far as that is known."""
    return int(max(watermark_s or now, now)) + RETENTION_S
