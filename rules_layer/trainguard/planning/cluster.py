"""The machines of a job, and what collectives take on more or fewer: bytes by links, latency by ranks in a row."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainguard.core.units import counted
from trainguard.kernels.columns import Gpu
from trainguard.kernels.device_entries import PeaksEntry
from trainguard.kernels.entries import CollectiveEntry
from trainguard.kernels.peaks import peaks_of
from trainguard.pricing.table import PriceTable

_GIB = 1 << 30
# Of the network between nodes, 10^9 bits a second: AWS, "Accelerated computing instances" of the EC2 user guide.
_NETWORK = {
    "p3.16xlarge": 25, "p3dn.24xlarge": 100, "p4d.24xlarge": 400, "p4de.24xlarge": 400, "p5.4xlarge": 100,
    "p5.48xlarge": 3200, "p5e.48xlarge": 3200, "p5en.48xlarge": 3200, "p6-b200.48xlarge": 3200,
    "p6-b300.48xlarge": 6400, "p6e-gb200.36xlarge": 1600, "g4dn.12xlarge": 50, "g4dn.16xlarge": 50, "g5.12xlarge": 40,
    "g5.24xlarge": 50, "g5.48xlarge": 100, "g6.12xlarge": 40, "g6.24xlarge": 50, "g6.48xlarge": 100,
    "g6e.12xlarge": 100, "g6e.24xlarge": 200, "g6e.48xlarge": 400, "trn1.32xlarge": 800, "trn1n.32xlarge": 1600,
    "trn2.48xlarge": 3200,
}  # fmt: skip

# Of smaller messages the latency counts, not the bytes (NCCL changes its algorithm there, too).
_SMALL_BYTES = 1 << 20
_ALL_REDUCE = ("allreduce", "all_reduce")
_PARTS = ("gather", "scatter", "alltoall", "all_to_all")


@dataclass(frozen=True, slots=True)
class Cluster:
    """``nodes`` instances with ``gpus`` GPUs each; ``hourly`` is the price of one, ``network`` 10^9 bytes a second."""

    nodes: int
    gpus: int
    instance_type: str | None = None
    hourly: float | None = None
    peaks: PeaksEntry | None = None
    network: float | None = None

    @property
    def world(self) -> int:
        return self.nodes * self.gpus

    def cost(self, seconds: float) -> float | None:
        return None if self.hourly is None else self.hourly * self.nodes * seconds / 3_600.0


def cluster_of(instance_type: str | None, nodes: int, prices: PriceTable, gpus: int = 0) -> Cluster:
    """Return the machines of a type; ``gpus`` of a node counts where the table does not know the type."""
    row = None if instance_type is None else prices.row(instance_type)
    known = None if row is None else row.accelerators
    if instance_type is None or row is None or known is None:
        return Cluster(nodes, gpus, instance_type, None if row is None else row.per_hour)
    network = _NETWORK.get(instance_type.removeprefix("ml."))
    return Cluster(
        nodes=nodes,
        gpus=known.count or gpus,
        instance_type=instance_type,
        hourly=row.per_hour,
        peaks=None if known.model is None else _peaks(known.model),
        network=None if network is None else network / 8.0,
    )


def _peaks(model: str) -> PeaksEntry | None:
    """Return the peaks of a model as the price table has it: ``NVIDIA A100 80 GB``."""
    words = model.split()
    memory = int(words[-2]) if words[-1] == "GB" and words[-2].isdecimal() else 0
    return peaks_of(Gpu(name=model, memory=memory * _GIB, capability=(0, 0), sms=0))


def machines_of(cluster: Cluster) -> str:
    kind = cluster.instance_type
    return f"{cluster.nodes:,} x {kind}" if kind else counted(cluster.nodes, "node")


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
