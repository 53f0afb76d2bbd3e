"""How long collectives take without the wait for a late rank, and how fast they are then."""

from collections.abc import Iterable

from trainguard.kernels.collectives import bus_factor
from trainguard.kernels.ranks.entries import TransferEntry
from trainguard.kernels.ranks.waiting import Waiting

MOST_TRANSFERS = 50


def transfers_of(found: Iterable[Waiting]) -> list[TransferEntry]:
    """Return collectives with their time on the rank that came last; most time first."""
    return sorted(map(_entry, found), key=lambda each: (-each.transfer_ns - each.wait_ns, each.name, each.group))[
        :MOST_TRANSFERS
    ]


def _entry(waiting: Waiting) -> TransferEntry:
    # The rank that comes last has the shortest kernel: it waits for nobody.
    shortest = waiting.total_ns.min(axis=0)
    transfer = int(shortest.sum())
    size = int(waiting.bytes.sum()) if (waiting.bytes >= 0).all() else None
    rate = size / transfer if size is not None and transfer else None
    of = waiting.of
    factor = bus_factor(of.name, of.group_size) if of.group_size else None
    return TransferEntry(
        name=of.name,
        group=of.group,
        group_size=of.group_size,
        dtype=of.dtype,
        ranks=len(waiting.ranks),
        steps=len(waiting.steps),
        transfer_ns=transfer,
        wait_ns=round(float(waiting.wait_ns.sum(axis=1).mean())),
        bytes=size,
        algorithm_gb_per_s=None if rate is None else round(rate, 3),
        bus_gb_per_s=None if rate is None or factor is None else round(rate * factor, 3),
    )
