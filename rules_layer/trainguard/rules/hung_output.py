"""What is said of a job that hangs: sentences, advice and details."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from trainguard.rules.details import Details
from trainguard.rules.hung_watch import WatchState
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.units import counted, show_duration, show_number

NAMED = 4
"""So many GPUs, or ranks, are named in a sentence."""

MOST_STEPS = 256
NOT_COLLECTED = (
    "no power of the GPUs was collected, which the rule needs: trainguard-collector, dcgm-exporter, W&B and MLflow "
    "write it."
)


class HungNode(msgspec.Struct, frozen=True):
    """A node: its GPUs by what they do, and their power now and at work, watts."""

    waiting: list[str]
    idle: list[str]
    power: dict[str, float]
    power_at_work: dict[str, float]
    quiet_s: float


class HungDetails(Details, frozen=True):
    """The nodes, and the number of each process's newest step."""

    nodes: dict[str, HungNode]
    steps: dict[str, str]


NO_DETAILS = HungDetails({}, {})


@dataclass(frozen=True, slots=True)
class Standstill:
    """A job of which no GPU works: GPUs are ``<node>/<gpu>``, processes ``<node>-<rank>``.

    ``behind`` are the processes whose newest step is not the furthest; None where that is not known. ``silent`` are
    nodes that write no samples any more.
    """

    seconds: float
    waiting: Sequence[str]
    idle: Sequence[str]
    silent: Sequence[str]
    power: float
    power_at_work: float
    steps_stopped: bool
    behind: Sequence[str] | None

    @property
    def suspects(self) -> Sequence[str]:
        """The GPUs for which the others seem to wait."""
        return self.idle if self.waiting and len(self.idle) <= len(self.waiting) else ()


def details_of(watched: dict[str, WatchState], steps: dict[str, str]) -> HungDetails:
    """Return the numbers of every node, and of MOST_STEPS processes."""
    return HungDetails(
        {
            node: HungNode(state.waiting, state.idle, state.drawn, state.known, state.quiet_s)
            for node, state in watched.items()
        },
        dict(itertools.islice(steps.items(), MOST_STEPS)),
    )


def node_sentence(state: WatchState, node: str) -> str:
    """Say what is known of a node."""
    if state.quiet_since is None:
        return f"the GPUs of {node} work, by their utilization or their power."
    if state.quiet_s > 0.0:
        return f"no GPU of {node} has worked for {show_duration(state.quiet_s)}."
    if state.paused_s > 0.0:
        return (
            f"no GPU of {node} has worked for {show_duration(state.paused_s)}, and its host computes, reads, writes or "
            "sends."
        )
    return f"no GPU of {node} works in its newest sample."


def calm_sentence(seconds: float, needed: float, present: Mapping[str, WatchState]) -> str:
    """Say of a job that does not hang for how many ``seconds`` no GPU of its nodes has worked; 0 where some work."""
    if seconds:
        return f"no GPU has worked for {show_duration(seconds)}; that counts from {show_duration(needed)} on."
    paused_s = min(state.paused_s for state in present.values())
    if paused_s > 0.0:
        busy = any(state.quiet_s < state.paused_s for state in present.values())
        hosts = ", and hosts compute, read, write or send" if busy else ""
        return f"no GPU has worked for {show_duration(paused_s)}{hosts}."
    return f"GPUs of {counted(len(present), 'node')} work, by their utilization or their power."


def sentence_of(found: Standstill) -> str:
    """Say how the job hangs."""
    lasted = show_duration(found.seconds)
    each = "" if len(found.waiting) == 1 else " each"
    watts = f"{show_number(found.power)} W{each}, of {show_number(found.power_at_work)} W at work"
    stopped = "steps have stopped: " if found.steps_stopped else ""
    if found.waiting and not found.idle:
        look = (
            f"for {lasted} {counted(len(found.waiting), 'GPU')} {_have(found.waiting)} looked busy at {watts}, as in a "
            "collective that does not end"
        )
    elif found.waiting:
        look = (
            f"for {lasted} {counted(len(found.waiting), 'GPU')} {_have(found.waiting)} looked busy at "
            f"{watts}, and "
            f"{_named(found.idle)} {'is' if len(found.idle) == 1 else 'are'} idle"
        )
    else:
        look = f"for {lasted} no GPU has worked, and the hosts neither compute, read, write nor send"
    return f"{stopped}{look}{_behind(found)}{_silent(found)}"


def _behind(found: Standstill) -> str:
    if not found.behind:
        return ""
    return f"; behind in steps: {_named(found.behind)}"


def _silent(found: Standstill) -> str:
    return f"; no samples any more from {_named(found.silent)}" if found.silent else ""


def advice_on(found: Standstill) -> str:
    """Say what to do."""
    where = found.behind or found.silent or found.suspects
    first = f"Look at {_named(where)} first" if where else "Take stack traces of all ranks (py-spy dump) first"
    return (
        f"{first}, then stop the job and restart it from its last checkpoint: it is paid for and does not go on. "
        "Set a timeout of collectives (TORCH_NCCL_ASYNC_ERROR_HANDLING=1, the timeout of init_process_group), so that "
        "it fails by itself, and replace the node if the same one hangs again."
    )


def _have(what: Sequence[str]) -> str:
    return "has" if len(what) == 1 else "have"


def _named(what: Sequence[str]) -> str:
    shown = ", ".join(what[:NAMED])
    return shown if len(what) <= NAMED else f"{shown} and {len(what) - NAMED} more"


def clause_of(result: RuleResult, _: int) -> str:
    """Say what was found on a job."""
    del result
    return "the job hung"
