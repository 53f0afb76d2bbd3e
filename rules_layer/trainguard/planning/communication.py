"""What collectives take on more or fewer GPUs: bytes by the links that carry them, latency by the ranks in a row."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainguard.kernels.entries import CollectiveEntry
from trainguard.planning.cluster import Cluster

# Of smaller messages the latency counts, not the bytes (NCCL changes its algorithm there, too).
_SMALL_BYTES = 1 << 20
_ALL_REDUCE = ("allreduce", "all_reduce")
_PARTS = ("gather", "scatter", "alltoall", "all_to_all")


@dataclass(frozen=True, slots=True)
class Communication:
    """The collectives of ``steps`` traced steps of ``step_s`` seconds each, on one rank."""

    collectives: Sequence[CollectiveEntry]
    steps: int
    step_s: float

    @property
    def exposed_s(self) -> float:
        """Of a step, seconds in which nothing is computed."""
        return sum(each.exposed_ns for each in self.collectives) / 1e9 / self.steps

    def exposed_on(self, old: Cluster, new: Cluster, compute: float) -> float:
        """Return the exposed seconds of a step on other machines; ``compute`` is the factor on computing.

        Computation hides as much of it as before, by its own factor, and never more than there is.
        """
        total = sum(each.total_ns * self._factor(each, old, new) for each in self.collectives)
        hidden = sum(each.total_ns - each.exposed_ns for each in self.collectives) * compute
        return max(total - hidden, 0.0) / 1e9 / self.steps

    @staticmethod
    def _factor(entry: CollectiveEntry, old: Cluster, new: Cluster) -> float:
        """Return the factor on a collective's time; a group smaller than the job keeps its size."""
        before = old.world if entry.group_size is None else entry.group_size
        whole = before >= old.world
        after = max(round(before * new.world / old.world), 1) if whole else before
        if before < 2:
            return 1.0
        if after < 2:
            return 0.0
        size = None if entry.bytes is None or not entry.sized_count else entry.bytes / entry.sized_count
        if size is not None and size < _SMALL_BYTES:
            return math.log2(2 * after) / math.log2(2 * before)
        speeds = [_speed(entry.name, cluster, ranks) for cluster, ranks in ((old, before), (new, after))]
        links = 1.0 if speeds[0] is None or speeds[1] is None else speeds[0] / speeds[1]
        return links * _carried(entry.name, after) / _carried(entry.name, before)


def _carried(name: str, ranks: int) -> float:
    """Return how often links carry a collective's bytes, as ``nccl-tests`` counts it."""
    plain = name.lower()
    if any(each in plain for each in _ALL_REDUCE):
        return 2.0 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if any(each in plain for each in _PARTS) else 1.0


def _speed(name: str, cluster: Cluster, ranks: int) -> float | None:
    """Return what carries a GPU's part, 10^9 bytes a second: links in a node, else the slower of links and network."""
    link = None if cluster.peaks is None else cluster.peaks.link_gb_per_s
    if ranks <= cluster.gpus:
        return link
    if cluster.network is None:
        return None
    of_all = "alltoall" in name.lower().replace("_", "")
    network = cluster.network / cluster.gpus if of_all else cluster.network
    return network if link is None else min(link, network)


def knows_links(old: Cluster, new: Cluster) -> bool:
    """Whether the speeds of what carries collectives over all GPUs are known on both."""
    return _speed("", old, old.world) is not None and _speed("", new, new.world) is not None
