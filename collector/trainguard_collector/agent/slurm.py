"""Jobs and nodes of Slurm, by its own commands on a host that may use them."""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Optional

from trainguard_collector.agent.resources import Request, Resource

# ``sbatch --comment=trainguard=requeue``; ``scontrol update NodeName=gpu-7 Comment=trainguard=drain``.
_CONSENT = re.compile(r"(?:^|[\s,;])trainguard=([a-z]+)(?=$|[\s,;])")
_JOB = re.compile(r"(?:^|[\s,;])trainguard-job=([^\s,;]+)")
_EXEMPT = re.compile(r"(?:^|[\s,;])trainguard-exempt(?=$|[\s,;=])")
# Slurm's names begin with a capital.
_FIELD = re.compile(r"(?:^| )([A-Z][\w:/]*)=(.*?)(?= [A-Z][\w:/]*=|\s*$)")
_ID = re.compile(r"[0-9]{1,10}")
# What the agent writes before it acts on a job: the request, and how often the job had been requeued by then.
_MARK = re.compile(r"(?:^|\s)trainguard:([\w.-]+):([0-9]+)(?=$|\s)")
_NODE_MARK = re.compile(r"(?:^|\s)trainguard:([\w.-]+)(?=$|\s)")

_ON_JOBS = ("requeue", "cancel")
# A node that HyperPod replaces or reboots: its guide names state and reason.
_HYPERPOD = {"replace": "Action:Replace", "reboot": "Action:Reboot"}
_ON_NODES = ("drain", *_HYPERPOD)
# Slurm itself knows no longer lists.
_MOST_HOSTS, _DIGITS = 65_536, 9
_UNKNOWN = ("Invalid job id", "not found")
_TIMEOUT_S = 30.0


class Slurm:
    """See `Platform`; nodes only ``with_nodes``."""

    def __init__(self, *, with_nodes: bool = False) -> None:
        self._with_nodes = with_nodes

    def opted_in(self) -> "Iterator[Resource]":
        jobs = self._shown("job")
        for fields in jobs:
            comment = fields.get("Comment", "")
            if _CONSENT.search(comment) or _JOB.search(comment):
                yield _job(fields)
        if self._with_nodes:
            for fields in self._shown("node"):
                if _CONSENT.search(fields.get("Comment", "")):
                    yield _node(fields, jobs)

    def look(self, name: str) -> Optional[Resource]:
        kind, _, own = name.partition("/")
        if kind == "slurm" and _ID.fullmatch(own):
            return next((_job(each) for each in self._shown("job", own) if each["JobId"] == own), None)
        if kind == "slurm-node" and self._with_nodes and re.fullmatch(r"\w[\w.-]*", own):
            found = [each for each in self._shown("node", own) if each["NodeName"] == own]
            return _node(found[0], self._shown("job")) if found else None
        return None

    def act(self, found: Resource, request: Request) -> None:
        kind, _, own = found.name.partition("/")
        if kind == "slurm":
            restarts, comment = found.version
            kept = _MARK.sub("", comment).strip()
            mark = f"{kept} trainguard:{request.id}:{restarts}".strip()
            _run(["scontrol", "update", f"JobId={own}", f"AdminComment={mark}"])
            _run(["scancel", own] if found.action == "cancel" else ["scontrol", "requeue", own])
            return
        reason = _HYPERPOD.get(found.action, f"TrainGuard: {request.rule}")
        state = "FAIL" if found.action in _HYPERPOD else "DRAIN"
        mark = f"Comment={found.version} trainguard:{request.id}"
        _run(["scontrol", "update", f"NodeName={own}", f"State={state}", f"Reason={reason}", mark])

    @staticmethod
    def _shown(kind: str, *own: str) -> "list[dict[str, str]]":
        """Return the fields of jobs or nodes; none of one that Slurm does not know."""
        try:
            lines = _run(["scontrol", "show", kind, *own, "-o"]).splitlines()
        except _RefusedError as fault:
            if any(each in str(fault) for each in _UNKNOWN):
                return []
            raise
        # A comment may hold a line of its own: only what Slurm says about one job or node counts for it.
        begin = "JobId=" if kind == "job" else "NodeName="
        # The first of two fields of one name is Slurm's: a name or comment may hold what looks like one.
        return [dict(reversed(_FIELD.findall(line))) for line in lines if line.startswith(begin)]


class _RefusedError(OSError):
    """A command ended with an error."""


def _run(command: Sequence[str]) -> str:
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, env=environment, check=False
        )
    except subprocess.TimeoutExpired as fault:
        raise OSError(f"{command[0]} did not end in {_TIMEOUT_S:.0f} s") from fault
    if done.returncode != 0:
        raise _RefusedError(f"{' '.join(command[:3])} ended with {done.returncode}: {done.stderr.strip()[:200]}")
    return done.stdout


def _job(fields: "dict[str, str]") -> Resource:
    comment, state = fields.get("Comment", ""), fields.get("JobState", "")
    own, restarts, kept = fields["JobId"], fields.get("Restarts", "0"), fields.get("AdminComment", "")
    mark = _MARK.search(kept)
    has_ended = mark is not None and (state != "RUNNING" or restarts != mark[2])
    return Resource(
        **_consent(comment, _ON_JOBS),
        name=f"slurm/{own}",
        status=state.lower() or "of unknown state",
        runs=state == "RUNNING",
        started_at=_epoch(fields.get("StartTime", "")),
        job=_name_of(fields),
        acted_by=mark[1] if mark and has_ended else None,
        version=(restarts, "" if kept == "(null)" else kept),
    )


def _name_of(fields: "dict[str, str]") -> str:
    named = _JOB.search(fields.get("Comment", ""))
    return named[1] if named else f"{fields.get('JobName', '')}-{fields['JobId']}"


def hosts_of(listed: str) -> "set[str]":
    """Return the names of a list such as ``gpu[1-3,07],login``; none of one that is no such list, or is too long."""
    found: set[str] = set()
    for part in re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", listed):
        names = [""]
        for plain, numbers in re.findall(r"([^\[\]]+)|\[([^\[\]]*)\]", part):
            ends = [plain] if plain else list(_numbers(numbers))
            if len(names) * len(ends) + len(found) > _MOST_HOSTS:
                return set()
            names = [name + end for name in names for end in ends]
        found.update(names)
    return found


def _numbers(text: str) -> "Iterator[str]":
    for each in text.split(","):
        first, dash, last = each.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(last) > _DIGITS:
            return
        stop = int(last) if dash else int(first)
        yield from (
            str(number).zfill(len(first)) for number in range(int(first), min(stop, int(first) + _MOST_HOSTS) + 1)
        )


def _node(fields: "dict[str, str]", jobs: "Sequence[dict[str, str]]") -> Resource:
    """Return a node, with the jobs that run on it."""
    name, state = fields["NodeName"], fields.get("State", "")
    comment = fields.get("Comment", "")
    booted = _epoch(fields.get("BootTime", ""))
    is_out = any(each in state for each in ("DRAIN", "FAIL", "DOWN"))
    mark = _NODE_MARK.search(comment)
    return Resource(
        **_consent(comment, _ON_NODES),
        name=f"slurm-node/{name}",
        status=state.lower(),
        runs=not is_out,
        started_at=booted,
        acted_by=mark[1] if mark and is_out else None,
        version=_NODE_MARK.sub("", comment).strip(),
        units=tuple(
            (f"slurm/{each['JobId']}/{name}", booted, _name_of(each))
            for each in jobs
            if each.get("JobState") == "RUNNING" and name in hosts_of(each.get("NodeList", ""))
        ),
    )


def _consent(comment: str, actions: Sequence[str]) -> "dict[str, Any]":
    found = _CONSENT.search(comment)
    action = found[1] if found else ""
    return {"action": action if action in actions else "", "exempt": bool(_EXEMPT.search(comment))}


def _epoch(text: str) -> Optional[float]:
    """Return a time as ``SLURM_TIME_FORMAT=%s`` gives it, or as older versions do, in this host's zone."""
    try:
        return float(text) if text.isdigit() else datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
