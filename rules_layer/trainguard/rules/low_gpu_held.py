"""GPU memory that is held while its GPU does nothing: a hung job, a script that does not exit, a waiting server.

A GPU without a process has next to no memory in use. Who holds memory is not told: processes are never listed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from trainguard.rules.rule_inputs import NodeMinute, NodeView
from trainguard.state.idle_evidence import QUIET_PERCENT
from trainguard.state.sample_window import ACTIVE_PERCENT
from trainguard.telemetry import devices as names

HELD_S = 900.0
"""So long memory must have been held: a node idles for 20 minutes, and may load a model in the first five of them."""

LEAST_BYTES = 2e9
"""Less is that of a driver's context. It counts where a GPU's whole memory is not known."""

STALE_S = 180.0
MOST_GPUS = 64
_MEGA = 1e6
_PERCENT = 100.0


class HeldMemory(msgspec.Struct, array_like=True):
    """Memory in use of one GPU, megabytes, at epoch second ``at``; ``total`` is 0 where it is not known.

    It has been held without a break since the minute at epoch second ``since``, and the GPU has been idle since that at
    ``idle_since``.
    """

    at: int
    used: int
    total: int = 0
    since: int | None = None
    idle_since: int | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """Who holds memory: GPUs in order, bytes of theirs in use, and in all; 0 where one of these is not known."""

    gpus: tuple[str, ...]
    used: float
    total: float


def fold_held(held: dict[str, HeldMemory], minute: NodeMinute, threshold: float) -> None:
    """Add the minute of each GPU whose memory in use is collected; ``threshold`` is in percent of the GPU's memory."""
    if not len(minute.snapshots):
        return
    totals = minute.devices.of(names.MEMORY_TOTAL)
    gpus, begun = minute.snapshots.gpu_names, int(minute.snapshots.times[0])
    for gpu, used in minute.devices.of(names.MEMORY_USED).items():
        if gpu not in gpus or (gpu not in held and len(held) >= MOST_GPUS):
            continue
        before = held.get(gpu)
        total = totals[gpu].last if gpu in totals else _MEGA * before.total if before else 0.0
        at = int(used.times[-1])
        if before is not None and begun - before.at > STALE_S:
            before = None
        is_held = used.least >= (threshold / _PERCENT * total if total else LEAST_BYTES)
        utilization = minute.snapshots.gpu_utilization[:, gpus.index(gpu)]
        sampled = utilization[~np.isnan(utilization)]
        is_idle = bool(sampled.size and sampled.max() < ACTIVE_PERCENT and sampled.mean() < QUIET_PERCENT)
        held[gpu] = HeldMemory(
            at=at,
            used=round(used.least / _MEGA),
            total=round(total / _MEGA),
            since=_since(before.since if before else None, begun) if is_held else None,
            idle_since=_since(before.idle_since if before else None, begun) if is_idle else None,
        )


def _since(before: int | None, begun: int) -> int:
    return begun if before is None else before


def is_known(held: Mapping[str, HeldMemory], view: NodeView) -> bool:
    """Tell whether memory in use is known now."""
    return any(_is_fresh(each, view) for each in held.values())


def held_memory(held: Mapping[str, HeldMemory], view: NodeView) -> Held | None:
    """Return the GPUs that have held memory for HELD_S; None where none has."""
    gpus = [gpu for gpu, each in held.items() if _lasts(each.since, HELD_S, each, view)]
    return _sum(held, gpus) if gpus else None


def held_while_idle(
    held: Mapping[str, HeldMemory], view: NodeView, gpu: str, least_s: float
) -> tuple[Held, float] | None:
    """Return what a GPU holds that has been idle for ``least_s`` seconds, whatever the others do, and for how many.

    None where it holds nothing, or works.
    """
    each = held.get(gpu)
    if each is None or not _lasts(each.since, HELD_S, each, view):
        return None
    idle_s = _lasted_s(each.idle_since, each, view)
    return None if idle_s is None or idle_s < least_s else (_sum(held, [gpu]), idle_s)


def _sum(held: Mapping[str, HeldMemory], gpus: list[str]) -> Held:
    holding = [held[gpu] for gpu in gpus]
    total = sum(each.total for each in holding) if all(each.total for each in holding) else 0
    ordered = sorted(gpus, key=lambda gpu: (len(gpu), gpu))
    return Held(tuple(ordered), _MEGA * sum(each.used for each in holding), _MEGA * total)


def _lasts(since: int | None, least_s: float, each: HeldMemory, view: NodeView) -> bool:
    lasted_s = _lasted_s(since, each, view)
    return lasted_s is not None and lasted_s >= least_s


def _lasted_s(since: int | None, each: HeldMemory, view: NodeView) -> float | None:
    if since is None or view.watermark_s is None or not _is_fresh(each, view):
        return None
    return view.watermark_s + view.interval_s - since


def _is_fresh(each: HeldMemory, view: NodeView) -> bool:
    return view.watermark_s is not None and view.watermark_s - each.at <= STALE_S
