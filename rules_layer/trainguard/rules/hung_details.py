"""What reports show of a job that may hang: each node's GPUs, and the newest step of each process."""

import itertools

import msgspec

from trainguard.rules.details import Details
from trainguard.rules.hung_watch import WatchState

MOST_STEPS = 256


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


def details_of(watched: dict[str, WatchState], steps: dict[str, str]) -> HungDetails:
    """Return the numbers of every node, and of MOST_STEPS processes."""
    return HungDetails(
        {
            node: HungNode(state.waiting, state.idle, state.drawn, state.known, state.quiet_s)
            for node, state in watched.items()
        },
        dict(itertools.islice(steps.items(), MOST_STEPS)),
    )
