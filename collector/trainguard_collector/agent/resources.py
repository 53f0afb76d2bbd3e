"""What the agent knows of a cluster's resources, and the services that it works with, which raise OSError."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Optional, Protocol

# How far the stack's clock may be from the cluster's.
CLOCKS_APART_S = 1.0

# What runs on a node: its name, since when, and the training job that its owner names.
Unit = tuple[str, Optional[float], Optional[str]]

_ESCAPE = re.compile(r"(?:=[0-9A-F]{2})+")


@dataclass(frozen=True)
class Resource:
    """A workload or a node as it is now; ``name`` such as ``job/team-a/train-17``, ``slurm/1234``, ``node/gpu-7``.

    ``action`` is what its owner allows, empty without an opt-in. ``job`` is the training job that may ask for it, None
    for a node: of that each of its ``units`` has one, with the pod or job of Slurm, and since when. ``started_at`` is
    when this run began, epoch seconds. ``acted_by`` is the request that was carried out, ``version`` what a write is
    conditional on.
    """

    name: str
    action: str
    status: str
    runs: bool
    started_at: Optional[float]
    job: Optional[str] = None
    exempt: bool = False
    acted_by: Optional[str] = None
    version: Any = None
    units: "tuple[Unit, ...]" = ()


@dataclass(frozen=True)
class Request:
    """What the stack asks for; see `AgentRequest` in the stack."""

    id: str
    resource: str
    action: str
    job: str
    rule: str
    started_at: Optional[float]
    expires_at: float


class ChangedError(Exception):
    """The resource has changed since it was looked at: nothing was done."""


class Platform(Protocol):
    """A scheduler."""

    def opted_in(self) -> Iterable[Resource]:
        """Iterate over the resources whose owners allow an action, and the workloads that name their job."""

    def look(self, name: str) -> Optional[Resource]:
        """Return a resource as it is now; None when there is none."""

    def act(self, found: Resource, request: Request) -> None:
        """Do what its owner allows; raises ChangedError."""


class Desk(Protocol):
    """Where the agent meets the stack."""

    def requests(self) -> "list[Request]":
        """Return the requests of this cluster that may not be answered yet."""

    def publish(self, resource: str, state: "dict[str, Any]") -> None:
        """Write the state of a resource with an opt-in."""

    def withdraw(self, resource: str) -> None:
        """Delete a state: its owner took the opt-in back, or the resource is gone."""

    def begin(self, request_id: str) -> Optional[str]:
        """Claim a request; return None, or the stage that its answer has already."""

    def stage(self, request_id: str) -> Optional[str]:
        """Return the stage of a request's answer; None where nobody has written one."""

    def finish(self, request_id: str, stage: str, why: str) -> None:
        """Write what came of a request that was begun."""

    def objection(self, job: str, rule: str, now: float) -> Optional[str]:
        """Return why operators forbid stops now: the stop switch, its override or a brake."""


def text_of(tag: str) -> str:
    """Return the text of a tag's value, as the stack reads it: ``=25`` is ``%``."""

    def plain(found: "re.Match[str]") -> str:
        try:
            return bytes.fromhex(found[0].replace("=", "")).decode()
        except UnicodeDecodeError:
            return found[0]

    return _ESCAPE.sub(plain, tag)
