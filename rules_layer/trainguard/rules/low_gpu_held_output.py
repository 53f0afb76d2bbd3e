"""What is said of memory that idle GPUs hold: how much, what to do, and where nobody knows, what to collect."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from trainguard.rules.low_gpu_held import Held, HeldMemory, held_memory, is_known
from trainguard.rules.low_gpu_idle import IDLE_FINDING_S, Idleness
from trainguard.rules.low_gpu_output import FINDINGS, LowGpuDetails
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import Measure
from trainguard.rules.units import show_duration, show_percent

HELD_TIME = Measure("time without a GPU in use while memory is held", "min")
HOLDING_SUFFIX = ", memory held"

Memory = Literal["held", "free", "not collected"]
_GIGA = 1e9


def memory_of(held: Mapping[str, HeldMemory], view: NodeView) -> Memory:
    """Return what is known of the memory of an idle node's GPUs."""
    if held_memory(held, view) is not None:
        return "held"
    return "free" if is_known(held, view) else "not collected"


def node_holds(held: Held, view: NodeView) -> str:
    """Say how much memory the GPUs of an idle node hold, as the rest of a sentence."""
    gpus = f"{len(held.gpus)} of {len(view.gpu_names)} GPUs {'holds' if len(held.gpus) == 1 else 'hold'}"
    return f", and {'its GPU holds' if len(view.gpu_names) == 1 else gpus} {_amount(held)} of memory"


def gpu_sentence(held: Held, idle_s: float, view: NodeView) -> str:
    """Say that one GPU idles beside others that work, and what it holds; without a full stop."""
    verb = "was" if view.closed else "has been"
    return (
        f"{FINDINGS['silent']}{HOLDING_SUFFIX}: {held.gpus[0]} on {view.node} {verb} idle for "
        f"{show_duration(idle_s)} (allowed {show_duration(IDLE_FINDING_S)}), and holds {_amount(held)} of memory"
    )


def node_advice(view: NodeView, idleness: Idleness) -> str:
    """Say what to do about a node that idles and holds memory."""
    cost = f"{show_duration(idleness.seconds)} were paid for without use."
    return _advice(f"the processes on {view.node}", cost, closed=view.closed)


def gpu_advice(held: Held, view: NodeView) -> str:
    """Say what to do about one GPU that idles and holds memory."""
    work = "worked" if view.closed else "work"
    cost = f"the others of its node {work} without it."
    return _advice(f"the process on {held.gpus[0]} of {view.node}", cost, closed=view.closed)


def _advice(who: str, cost: str, *, closed: bool) -> str:
    holders = "a job that hangs, a script that does not exit, a notebook or a waiting server"
    if closed:
        return (
            f"Find out what {who} waited for, and let the next run end the process when its work is done: {holders} "
            f"holds memory like this; {cost}"
        )
    return (
        f"Save what is needed, then end {who} or stop the job: {holders} holds the memory, and nvidia-smi there names "
        f"it; {cost}"
    )


def noted(details: LowGpuDetails | None, memory: Memory, finding: str) -> LowGpuDetails | dict[str, str]:
    """Return the details with what was found, and what is known of the memory."""
    if details is None:
        return {}
    suffix = HOLDING_SUFFIX if memory == "held" else ""
    return msgspec.structs.replace(details, finding=f"{finding}{suffix}", memory=memory)


def _amount(held: Held) -> str:
    used = f"{held.used / _GIGA:,.1f} GB"
    if not held.total:
        return used
    return f"{used} of {held.total / _GIGA:,.1f} GB ({show_percent(100.0 * held.used / held.total)})"
