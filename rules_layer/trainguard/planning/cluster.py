"""The machines of a job: what they have, cost and carry to each other."""

from dataclasses import dataclass

from trainguard.core.units import counted
from trainguard.kernels.columns import Gpu
from trainguard.kernels.peaks import peaks_of
from trainguard.kernels.rollup_entries import PeaksEntry
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
