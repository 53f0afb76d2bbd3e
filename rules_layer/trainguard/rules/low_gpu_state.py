"""What LowGPUUtilization keeps of a node, and what its GPUs have wasted by that."""

from collections.abc import Sequence

import msgspec
import numpy as np

from trainguard.rules.low_gpu_devices import BusyMinutes, GpuSigns, HeldMemory
from trainguard.rules.low_gpu_instances import InstanceMinutes
from trainguard.rules.low_gpu_node import InPart
from trainguard.rules.low_gpu_usage import Part, Streak, Usage
from trainguard.rules.paid_time import share_of_paid
from trainguard.rules.rule_inputs import NodeView


class LowGPUUtilizationState(msgspec.Struct, array_like=True):
    """One streak for each GPU that is of some kind now, in the GPUs' order; at most the node's GPUs.

    ``judged`` counts the kept points that were added at evaluations which judged some GPU, ``low`` those of them at
    which a GPU was of some kind. ``wasted`` is what each GPU lost at those, in points: all that it left undone
    where it had too little to do, and what its dips cost where it fluctuated. ``activity`` is of the GPUs whose
    activity is collected, ``held`` of those whose memory in use is, ``signs`` of those whose SM activity or power is,
    ``instances`` of those of partitioned GPUs. ``found`` is what was lost in streaks that were a finding, all GPUs
    together. ``parts`` sum up all samples of the newest hour, and ``in_part`` says whether the node idled in it.
    """

    streaks: dict[str, Streak] = msgspec.field(default_factory=dict)
    judged: int = 0
    low: int = 0
    wasted: dict[str, float] = msgspec.field(default_factory=dict)
    activity: dict[str, BusyMinutes] = msgspec.field(default_factory=dict)
    held: dict[str, HeldMemory] = msgspec.field(default_factory=dict)
    signs: dict[str, GpuSigns] = msgspec.field(default_factory=dict)
    instances: dict[str, InstanceMinutes] = msgspec.field(default_factory=dict)
    found: float = 0.0
    parts: list[Part] = msgspec.field(default_factory=list)
    in_part: InPart = msgspec.field(default_factory=InPart)

    def uncounted(self, gpu: str) -> float:
        """Return what a GPU has wasted in its streak and no finding has counted yet, in points."""
        return max(self.wasted.get(gpu, 0.0) - self.streaks[gpu].counted, 0.0)

    def wasted_share(self, view: NodeView, fired: Sequence[Usage]) -> float | None:
        """Return what was lost in all streaks that were a finding, as a share of the paid time of ever active GPUs."""
        if not fired:
            return None
        return _share_of_paid(view, self.found + sum(self.uncounted(usage.gpu) for usage in fired))

    def wasted_by(self, view: NodeView, fired: Sequence[Usage]) -> float | None:
        """Return what the GPUs that fire have wasted since the job's start, in the same terms."""
        if not fired:
            return None
        return _share_of_paid(view, sum(self.wasted.get(usage.gpu, 0.0) for usage in fired))


def _share_of_paid(view: NodeView, points: float) -> float | None:
    return share_of_paid(view, points * view.interval_s / int(np.count_nonzero(view.ever_active)))
