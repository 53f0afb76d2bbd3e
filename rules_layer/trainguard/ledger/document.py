"""The ledger as reports have it."""

import msgspec

from trainguard.ledger.bucket import Bucket
from trainguard.ledger.spans import Span


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One bucket: what it took of the paid time.

    Attributes
    ----------
    bucket : Bucket
    gpu_seconds : float
    share : float
        Of all GPU-seconds that were paid for, 0 to 1; of the node's in the ledger of a node.
    usd : float or None
        In the currency of the price table; None where no price is known.
    estimated : bool
        Whether it is divided by a kernel trace of a few steps, or steps were counted at an even pace.
    steps : int or None
        How many traced steps it is estimated from; None of one that is not.
    sm_share : float or None
        Of compute: the SM activity of the busy time, 0 to 1, where it was collected.
    times : list of (float, float)
        When it took most, epoch seconds, the largest first, 3 at most.
    """

    bucket: Bucket
    gpu_seconds: float
    share: float
    usd: float | None
    estimated: bool = False
    steps: int | None = None
    sm_share: float | None = None
    times: list[Span] = msgspec.field(default_factory=list)


class NodeLedgerEntries(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger of one node, which has ``gpus`` GPUs."""

    node: str
    gpus: int
    gpu_seconds: float
    ledger: list[LedgerEntry]
