"""What a rule has found, as values: the episodes in which its condition held, and how JSON has them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from trainguard.plain_text import one_line
from trainguard.timestamps import iso_time

MOST_EPISODES = 8
"""So many episodes of one finding are kept, the newest; those before them are counted."""

MOST_NAMES = 16
NAMED_GPUS = 2
LONGEST_NAME = 120
_MINUTE = len("2026-01-31T12:00")
_DAY = len("2026-01-31")


class EpisodeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of time in which a finding's condition held.

    Attributes
    ----------
    start : str
        When the condition began, as the data show it; not when the alert went out.
    end : str or None
        The last time at which it held; None while it goes on.
    node : str or None
        The node on which it held; None of several nodes, or of the job as a whole.
    nodes : list of str
        All nodes on which it held; empty for the job as a whole.
    gpus : list of str
        The GPUs on which it held, for example ``gpu3``; of several nodes with the node, ``algo-2/gpu3``. Empty where
        the rule looks at no GPU.
    measured : float or None
        The worst value that the rule measured in it, in the unit of the rule's ``measured``.
    wasted_s : float or None
        Seconds of the nodes' paid time that it cost, all nodes added up; None where the rule cannot say.
    cost : float or None
        The same in money, in ``currency``.
    """

    start: str
    end: str | None
    node: str | None
    nodes: list[str] = msgspec.field(default_factory=list)
    gpus: list[str] = msgspec.field(default_factory=list)
    measured: float | None = None
    wasted_s: float | None = None
    cost: float | None = None
    currency: str | None = None

    @property
    def sentence(self) -> str:
        """Say when and where it was, for example ``2026-01-31 12:00 to 13:10 UTC on algo-1, gpu3``."""
        node = [f"on {named(self.nodes)}"] if self.nodes else []
        where = ", ".join([*node, *([_gpus(self.gpus)] if self.gpus else [])])
        return f"{clock_times(self.start, self.end)} {where}".strip()

    @property
    def lost(self) -> str | None:
        """Say what it cost in money; None where that is not known."""
        return None if self.cost is None else f"{self.currency} {self.cost:,.2f}"


@dataclass(frozen=True, slots=True)
class Episode:
    """A stretch of time in which a rule's condition held; times are event time in epoch seconds.

    Attributes
    ----------
    start : float
        When the condition began, as the data show it; not when the alert went out.
    end : float or None
        The last time at which it held; None while it goes on.
    nodes : tuple of str
        The nodes on which it held; empty for the job as a whole.
    gpus : tuple of str
        The GPUs on which it held; of several nodes with the node, ``algo-2/gpu3``.
    measured : float or None
        The worst value that the rule measured in it.
    wasted_s : float or None
        Seconds of the nodes' paid time that it cost, all nodes added up; None where the rule cannot say.
    cost : float or None
        The same in money, in ``currency``; None where no price is known.
    """

    start: float
    end: float | None
    nodes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    measured: float | None = None
    wasted_s: float | None = None
    cost: float | None = None
    currency: str | None = None

    @property
    def node(self) -> str | None:
        """The one node on which it held; None of several, and of the job as a whole."""
        return self.nodes[0] if len(self.nodes) == 1 else None

    @property
    def plain(self) -> "Episode":
        """The episode with names that act nowhere, and no more of them than an alert or a row holds."""
        return replace(self, nodes=_plain(self.nodes), gpus=_plain(self.gpus))

    @property
    def sentence(self) -> str:
        """Say when and where it was."""
        return self.entry.sentence

    @property
    def entry(self) -> EpisodeEntry:
        """The episode as JSON has it."""
        return EpisodeEntry(
            start=iso_time(self.start),
            end=None if self.end is None else iso_time(self.end),
            node=self.node,
            nodes=list(self.nodes),
            gpus=list(self.gpus),
            measured=_rounded(self.measured, 6),
            wasted_s=_rounded(self.wasted_s, 3),
            cost=_rounded(self.cost, 2),
            currency=self.currency,
        )


def _rounded(value: float | None, decimals: int) -> float | None:
    return None if value is None else round(value, decimals)


def clock_times(start: str, end: str | None) -> str:
    """Say from when to when, both ISO 8601, in UTC to the minute; ``since ...`` where ``end`` is None."""
    first = start[:_MINUTE].replace("T", " ")
    if end is None:
        return f"since {first} UTC"
    last = end[:_MINUTE].replace("T", " ")
    if last == first:
        return f"{first} UTC"
    return f"{first} to {last[_DAY:].strip() if last[:_DAY] == first[:_DAY] else last} UTC"


def named(names: Sequence[str], limit: int = 4) -> str:
    """Join names; of many, the first and how many more there are."""
    shown = names if len(names) <= limit else [*names[: limit - 1], f"{len(names) - limit + 1:,} more"]
    return " and ".join(part for part in (", ".join(shown[:-1]), *shown[-1:]) if part)


def _gpus(names: Sequence[str]) -> str:
    return named(names) if len(names) <= NAMED_GPUS else f"{len(names)} GPUs"


def _plain(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one_line(name, LONGEST_NAME) for name in names[:MOST_NAMES])
