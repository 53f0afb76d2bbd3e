"""Every time that is said lies in the job."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tests.claims.claim import Untrue
from tests.claims.raw import RawJob


def time_claims(job: RawJob, where: str, fact: dict[str, Any]) -> Iterator[Untrue | None]:
    """Yield whether a fact's times lie in the job, and in order."""
    start, end = fact.get("from"), fact.get("to")
    for name, at in (("from", start), ("to", end)):
        if at is not None:
            yield _inside(job, where, f"{fact['name']}, {name}", at)
    if start is not None and end is not None:
        yield Untrue(where, fact["name"], f"it is from {start} to {end}") if end < start else None
    if fact.get("unit") == "time":
        yield _inside(job, where, fact["name"], float(fact["value"]))
    if fact.get("unit") == "s" and not _is_to_come(fact["name"]) and isinstance(fact["value"], int | float):
        begin, last = job.span
        longer = fact["value"] > last - begin + job.interval_s
        yield Untrue(where, fact["name"], f"{fact['value']:.0f} s of a job of {last - begin:.0f} s") if longer else None


def _is_to_come(name: str) -> bool:
    """Tell whether a time is of what is still to come, or of a setting: it may be longer than the job."""
    return name in {
        "time_left",
        "time_left_at_end",
        "patience",
        "needed_time",
        "watched_time",
    }


def episode_claims(job: RawJob, finding: dict[str, Any]) -> Iterator[Untrue | None]:
    """Yield whether a finding's episodes lie in the job, in order, and on nodes and GPUs that there are."""
    where, before = f"{finding['rule']}/{finding['finding_kind']}", None
    for episode in finding["episodes"]:
        start = epoch(episode["start"])
        end = None if episode["end"] is None else epoch(episode["end"])
        yield _inside(job, where, "start of an episode", start)
        if end is not None:
            yield _inside(job, where, "end of an episode", end)
            yield Untrue(where, "episode", f"it ends at {end}, before {start}") if end < start - 1e-3 else None
        if before is not None:
            yield Untrue(where, "episodes", "they are not in order of time") if start < before - 1e-3 else None
        before = start
        for node in episode["nodes"]:
            known = node in job.nodes or any(node == name for name, _ in job.events)
            yield None if known else Untrue(where, "episode", f"no node is called {node}")
        for gpu in episode["gpus"]:
            yield None if _is_gpu(job, gpu, episode["nodes"]) else Untrue(where, "episode", f"no GPU is called {gpu}")


def _is_gpu(job: RawJob, gpu: str, nodes: list[str]) -> bool:
    node, _, name = gpu.rpartition("/")
    places = [node] if node else nodes or list(job.nodes)
    return any((name, "GPUUtilization") in job.nodes[place].series for place in places if place in job.nodes) or any(
        device == name for place in places if place in job.nodes for device, _ in job.nodes[place].series
    )


def epoch(time: str) -> float:
    """Return an ISO 8601 time as epoch seconds."""
    return datetime.fromisoformat(time).timestamp()


def _inside(job: RawJob, where: str, what: str, at: float) -> Untrue | None:
    """Say that a time lies outside of the job: before its start, or an interval after its end."""
    start, end = job.span
    if start - 1e-3 <= at <= end + job.interval_s + 1e-3:
        return None
    side = f"{start - at:.1f} s before its start" if at < start else f"{at - end:.1f} s after its end"
    return Untrue(where, what, f"{at:.1f} is not in the job: {side}")
