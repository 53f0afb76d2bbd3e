"""The ledger as reports have it, as facts of a finding or of a job's row, and as one line of words."""

from collections.abc import Iterable, Sequence

import msgspec

from trainguard.core.finding import Fact
from trainguard.core.units import show_share
from trainguard.ledger.bucket import BUCKET_WORDS, Bucket
from trainguard.ledger.node import Span


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One bucket: what it took of the paid time.

    share: Of all GPU-seconds that were paid for, 0 to 1; of the node's in the ledger of a node.
    usd: In the currency of the price table; None where no price is known.
    estimated: Whether it is divided by a kernel trace of a few steps, or steps were counted at an even pace.
    steps: How many traced steps it is estimated from; None of one that is not.
    sm_share: Of compute: the SM activity of the busy time, 0 to 1, where it was collected.
    times: When it took most, epoch seconds, the largest first, 3 at most.
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


PREFIX = "ledger_"
LEAST_SHARE = 0.0005
NAMED = 4
SHARE_DIGITS = 4


def ledger_facts(entries: Iterable[LedgerEntry]) -> tuple[Fact, ...]:
    """Return the share, 0 to 1, of each bucket that took any of the paid GPU time; compute always."""
    return tuple(
        Fact(
            name=f"{PREFIX}{entry.bucket.value}",
            value=round(entry.share, SHARE_DIGITS),
            unit="share",
            series="GPUUtilization",
        )
        for entry in entries
        if entry.share >= LEAST_SHARE or entry.bucket is Bucket.COMPUTE
    )


def shares_of(facts: Sequence[Fact]) -> dict[Bucket, float]:
    named = {f"{PREFIX}{bucket.value}": bucket for bucket in Bucket}
    return {named[fact.name]: float(fact.value) for fact in facts if fact.name in named}


def lost_share_of(facts: Sequence[Fact]) -> float | None:
    """Return the share, 0 to 1, of paid GPU time that was no compute; None without a ledger or samples."""
    shares = shares_of(facts)
    if Bucket.COMPUTE not in shares or shares.get(Bucket.NO_SAMPLES, 0.0) >= 1.0:
        return None
    return max(round(1.0 - shares[Bucket.COMPUTE], SHARE_DIGITS), 0.0)


def ledger_line(facts: Sequence[Fact]) -> str | None:
    """Say what the paid time went into, the largest parts; None where facts hold no ledger."""
    shares = shares_of(facts)
    if Bucket.COMPUTE not in shares:
        return None
    compute = shares.pop(Bucket.COMPUTE)
    largest = sorted(shares.items(), key=lambda each: -each[1])[:NAMED]
    parts = [f"{BUCKET_WORDS[bucket]} {show_share(part)}" for bucket, part in [(Bucket.COMPUTE, compute), *largest]]
    return f"Paid GPU time until then: {', '.join(parts)}."
