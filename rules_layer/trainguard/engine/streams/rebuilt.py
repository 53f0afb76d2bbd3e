"""An item whose state is damaged, computed again from S3.

Of such an item its Version, its outbox and its registration count. All objects that S3 has are applied anew, in their
order: they give the state that was, and a fire that was sent has the same execution name, which starts once.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from trainguard.errors import StateDamagedError
from trainguard.ports import Journal
from trainguard.records import NodeRecord

REBUILT = "items_rebuilt"
"""Counts items whose state was damaged."""

S = TypeVar("S")


def opened(record: NodeRecord, open_session: Callable[[NodeRecord], S], journal: Journal) -> S:
    """Open the session of an item, of an emptied one where its state is damaged.

    Raises StateCodecError when a later version wrote the item.
    """
    try:
        return open_session(record)
    except StateDamagedError as fault:
        journal.count(REBUILT, job=record.key.job, node=record.key.node_kind, reason=str(fault))
        return open_session(emptied(record))


def emptied(record: NodeRecord) -> NodeRecord:
    """Return an item as before its first object, with Version, outbox and registration."""
    return replace(
        record, state=b"", cursors={}, pending={}, counters={}, watermark_s=None, closed=False, expires_at=None
    )
