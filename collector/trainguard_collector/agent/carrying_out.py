"""Carries requests out: each once, never after its time, and only what the resource's owner allows now."""

import logging
from typing import Any, Callable, Optional

from trainguard_collector.agent.resources import (
    CLOCKS_APART_S,
    ChangedError,
    Desk,
    Platform,
    Request,
    Resource,
    text_of,
)

LOG = logging.getLogger("trainguard-agent")

# A state that has not changed is written again after so many seconds: it says that the agent runs.
FRESH_S = 120.0

# The stack reads no longer text, and the table keeps no item of more than 400 KB.
_LONGEST = 512

_TRIES = 3


class Agent:
    """One cluster's agent; ``now`` returns epoch seconds. With ``dry_run`` it does all but the last step."""

    def __init__(self, desk: Desk, platform: Platform, now: Callable[[], float], *, dry_run: bool = False) -> None:
        self._desk, self._platform, self._now, self._dry_run = desk, platform, now, dry_run
        self._published: dict[str, tuple[dict[str, Any], float]] = {}
        self._settled: set[str] = set()

    def run_once(self) -> int:
        """Answer the requests, then write the states; return how many of these failed, which come again."""
        return self._guarded(self._answer_all) + self._guarded(self._publish_all)

    def _answer_all(self) -> None:
        failed: Optional[OSError] = None
        requests = self._desk.requests()
        self._settled.intersection_update(each.id for each in requests)
        for request in requests:
            if request.id in self._settled:
                continue
            try:
                self.answer(request)
                self._settled.add(request.id)
            except OSError as fault:
                failed = fault
        if failed is not None:
            raise failed

    def answer(self, request: Request) -> None:
        """Carry a request out unless it is answered; raises OSError where it must come again."""
        now = self._now()
        if now >= request.expires_at:
            # Others than those that were begun in time the stack has closed, or will.
            if self._desk.stage(request.id) != "begun":
                return
            stage, why = self._done(request, "its time was over")
        else:
            braked = self._desk.objection(request.job, request.rule, now)
            known = self._desk.begin(request.id)
            if known not in (None, "begun"):
                return
            stage, why = self._done(request, braked, begun_before=known is not None)
        LOG.info("request %s on %s for job %s: %s, %s", request.id, request.resource, request.job, stage, why)
        if stage != "unknown":
            self._desk.finish(request.id, stage, why)

    def _done(self, request: Request, forbidden: Optional[str], *, begun_before: bool = True) -> "tuple[str, str]":
        """Act unless something stands against it, or it is done; return the stage and why.

        What was begun by a process that has ended may have been done to a run that is gone: that is unknown.
        """
        for _ in range(_TRIES):
            found = self._platform.look(request.resource)
            if found is not None and found.acted_by == request.id:
                return "done", found.action
            if begun_before and (found is None or is_another_run(request, found)):
                return "unknown", "what it was begun on is gone"
            if found is None:
                return "refused", f"there is no {request.resource}"
            objection = forbidden or objection_to(request, found) or self._own_objection(request, found)
            if objection is not None:
                return "refused", objection
            try:
                self._platform.act(found, request)
            except ChangedError:
                continue
            return "done", found.action
        return "refused", "it changed again and again"

    def _own_objection(self, request: Request, found: Resource) -> Optional[str]:
        if self._dry_run:
            return f"the agent makes a dry run: it would have done {found.action}"
        return "its time was over" if self._now() >= request.expires_at else None

    def _publish_all(self) -> None:
        now, seen = self._now(), {}
        for found in self._platform.opted_in():
            seen.update(states_of(found))
        for name, state in seen.items():
            known, at = self._published.get(name, (None, 0.0))
            if state != known or now - at >= FRESH_S:
                self._desk.publish(name, {**state, "at": now})
                self._published[name] = (state, now)
        for name in [name for name in self._published if name not in seen]:
            self._desk.withdraw(name)
            del self._published[name]

    @staticmethod
    def _guarded(what: Callable[[], None]) -> int:
        try:
            what()
        except OSError as fault:
            LOG.warning("%s failed, and is tried again: %s", what.__name__.strip("_"), fault)
            return 1
        return 0


def is_another_run(request: Request, found: Resource) -> bool:
    began, decided = found.started_at, request.started_at
    return began is None or decided is None or began > decided + CLOCKS_APART_S


def objection_to(request: Request, found: Resource) -> Optional[str]:
    """Return why a request is not carried out on a resource as it is now."""
    objections = {
        "its owner has not opted in": not found.action,
        "it is exempt": found.exempt,
        f"its owner allows {found.action}, and {request.action} was announced": found.action != request.action,
        f"it is of job {found.job!r}": found.job is not None and text_of(found.job) != request.job,
        f"nothing of job {request.job!r} runs on it": found.job is None and not _runs(request.job, found),
        f"it is {found.status}, and does not run": not found.runs,
        "it was started again since": is_another_run(request, found),
    }
    return next((why for why, holds in objections.items() if holds), None)


def _runs(job: str, node: Resource) -> bool:
    return any(named is not None and text_of(named) == job for _, _, named in node.units)


def states_of(found: Resource) -> "dict[str, dict[str, Any]]":
    """Return the states that the stack reads, by name: of a workload its own, of a node that of each of its units."""
    state = {
        "resource": found.name,
        "action": found.action,
        "status": found.status,
        "runs": found.runs,
        "exempt": found.exempt,
    }
    if found.job is not None:
        return {found.name: {**state, "started_at": found.started_at, "job": found.job[:_LONGEST]}}
    return {
        f"unit/{unit}": {**state, "started_at": since, "job": None if job is None else job[:_LONGEST]}
        for unit, since, job in found.units
    }
