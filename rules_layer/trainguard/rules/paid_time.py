"""What a finding cost, as a share of the time in which a node was paid for.

A node is paid for from its first sample on, start-up, pauses and tail included, whatever a rule leaves out.
"""

import numpy as np

from trainguard.rules.rule_inputs import NodeView
from trainguard.telemetry.snapshots import BoolArray

ALARMING_WASTE = 0.15
"""What wastes a smaller share of the time is said, and nobody is woken or stopped for it."""


def share_of_paid(view: NodeView, lost_s: float) -> float | None:
    """Return ``lost_s`` seconds of the whole node as a share, 0 to 1, of its time; None before its first sample."""
    if view.watermark_s is None or view.first_sample_at is None:
        return None
    return min(max(lost_s / (view.watermark_s - view.first_sample_at + view.interval_s), 0.0), 1.0)


def idle_share_of_paid(view: NodeView, gpus: BoolArray, seen: float = 1.0) -> float | None:
    """Return what ``gpus`` (bool[G]) left undone in the kept points, as a share of the ever-active GPUs' paid time.

    A GPU at 30 % leaves 70 % undone. What was found in a share ``seen``, 0 to 1, of the kept points cannot have cost
    more than that share of them. None while nothing was kept.
    """
    counts = view.gpu_histogram[gpus]
    active = int(np.count_nonzero(view.ever_active))
    if not active or not counts.any():
        return None
    undone = float((counts * (100 - np.arange(counts.shape[1]))).sum()) / 100.0 / active
    return share_of_paid(view, min(undone, seen * view.kept_total) * view.interval_s)
