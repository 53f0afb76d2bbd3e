"""How the sentences of a report are put together."""

from collections.abc import Mapping, Sequence

from trainguard.rules.units import show_percent
from trainguard.timestamps import iso_time

NAMED = 8
"""So many names are listed; what is more is counted."""

SMALLEST_PERCENT = 0.1
ALMOST_ALL = 99.95
"""From here on, a percentage that is not whole would be rounded to 100."""


def shown_time(epoch_s: float | None) -> str | None:
    """Return a time as the document has it."""
    return None if epoch_s is None else iso_time(epoch_s)


def listed(names: Sequence[str], limit: int = NAMED) -> str:
    """Join names: ``A``, ``A and B``, ``A, B and C``, ``A, B and 126 more``."""
    shown = list(names) if len(names) <= limit else [*names[: limit - 1], f"{len(names) - limit + 1:,} more"]
    return " and ".join(part for part in (", ".join(shown[:-1]), *shown[-1:]) if part)


def by_node(amounts: Mapping[str, int]) -> str:
    """Say how many of each node, the most first: ``10 of algo-1 and 2 of algo-2``, ``all of algo-1``."""
    if len(amounts) == 1 and sum(amounts.values()) > 1:
        return f"all of {next(iter(amounts))}"
    ranked = sorted(amounts.items(), key=lambda each: (-each[1], each[0]))
    return listed([f"{amount:,} of {node}" for node, amount in ranked])


def show_share(share: float) -> str:
    """Show a share, 0 to 1, as a percentage that is 0 only for nothing and 100 only for all."""
    percent = 100.0 * share
    if ALMOST_ALL <= percent < 100.0:
        return f"more than {show_percent(100.0 - SMALLEST_PERCENT)}"
    return f"less than {show_percent(SMALLEST_PERCENT)}" if 0.0 < percent < SMALLEST_PERCENT else show_percent(percent)


def show_money(amount: float, currency: str) -> str:
    """For example ``USD 41.20``; whole above 10,000."""
    if 0.0 < amount < 0.01:
        return f"less than {currency} 0.01"
    return f"{currency} {amount:,.0f}" if amount >= 10_000.0 else f"{currency} {amount:,.2f}"


def clause(sentence: str) -> str:
    """Return a sentence without its full stop, to go on with."""
    return sentence.strip().removesuffix(".")
