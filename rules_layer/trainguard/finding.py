"""What a rule has found, as values: the episodes in which its condition held."""

from dataclasses import dataclass

MOST_EPISODES = 8
"""So many episodes of one finding are kept, the newest; those before them are counted."""


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
