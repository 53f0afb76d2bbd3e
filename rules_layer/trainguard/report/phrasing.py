"""How the sentences of a report are put together."""

from collections.abc import Mapping

from trainguard.rules.units import listed
from trainguard.timestamps import iso_time


def shown_time(epoch_s: float | None) -> str | None:
    """Return a time as the document has it."""
    return None if epoch_s is None else iso_time(epoch_s)


def by_node(amounts: Mapping[str, int]) -> str:
    """Say how many of each node, the most first: ``10 of algo-1 and 2 of algo-2``, ``all of algo-1``."""
    if len(amounts) == 1 and sum(amounts.values()) > 1:
        return f"all of {next(iter(amounts))}"
    ranked = sorted(amounts.items(), key=lambda each: (-each[1], each[0]))
    return listed([f"{amount:,} of {node}" for node, amount in ranked])
