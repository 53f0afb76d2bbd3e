"""The ledger as facts of a finding or of a job's row, and as one line of words."""

from collections.abc import Iterable, Sequence

from trainguard.finding import Fact
from trainguard.ledger.bucket import BUCKET_WORDS, Bucket
from trainguard.ledger.document import LedgerEntry
from trainguard.rules.units import show_share

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
    """Return the shares that facts hold; empty where they hold no ledger."""
    named = {f"{PREFIX}{bucket.value}": bucket for bucket in Bucket}
    return {named[fact.name]: float(fact.value) for fact in facts if fact.name in named}


def lost_share_of(facts: Sequence[Fact]) -> float | None:
    """Return the share, 0 to 1, of the paid GPU time that was no compute.

    None where facts hold no ledger, and where no GPU was sampled: nobody knows it then.
    """
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
