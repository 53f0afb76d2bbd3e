"""Recomputes the facts of Dataloader."""

import math
from dataclasses import dataclass

import numpy as np

from tests.claims.context import Context, Expected, Fact, Recompute, mean_of
from tests.claims.durations import binned
from tests.claims.raw import Event, Node
from tests.claims.timelines import STEP, last_file_without
from tests.claims.weighted import weighted_mean

ALIVE_S = 600.0
FETCH, TOLD = "DataLoaderIter", {"DataLoaderIter", "DataLoaderWorker"}
BLOCK_US, BLOCKS, LEAST_US = 600_000_000, 4, 900_000_000
MOST_BINS = 256


def _last_file(context: Context, node: str) -> float:
    """Return up to which files were read when the finding was made: its loop ends with the newest loader event."""
    loop = context.first("waiting_share")
    if loop is None:
        return math.inf
    events = [each for (where, _), of_process in context.raw.job.events.items() if where == node for each in of_process]
    fetching = {each.file for each in events if each.phase == FETCH}
    return last_file_without(e for e in events if e.phase in TOLD and e.end > loop["to"] + 1e-6 and e.file in fetching)


def _loading(context: Context, node: str) -> dict[str, list[Event]]:
    """Return the loader events of each training process of a node that still loads."""
    key = ("loading", node, (context.first("waiting_share") or {}).get("to"))
    if key not in context.raw.cached:
        context.raw.cached[key] = _events_of_loaders(context, node)
    found: dict[str, list[Event]] = context.raw.cached[key]
    return found


def _events_of_loaders(context: Context, node: str) -> dict[str, list[Event]]:
    last_file = _last_file(context, node)
    found = {
        process: [each for each in events if each.phase.startswith("DataLoader") and each.file <= last_file]
        for (where, process), events in context.raw.job.events.items()
        if where == node
    }
    found = {process: events for process, events in found.items() if any(e.phase == FETCH for e in events)}
    newest = max((each.end for events in found.values() for each in events), default=0.0)
    return {
        process: events
        for process, events in found.items()
        if max(each.end for each in events if each.phase == FETCH) > newest - ALIVE_S - 1.0
    }


def _main_pids(process: str, events: list[Event], every: list[Event]) -> set[int]:
    pids = {e.arguments.get("pid") for e in events if e.phase == "DataLoaderIterInitialize"}
    pids |= {e.arguments.get("pid") for e in every if "Step" in e.phase}
    found = {int(pid) for pid in pids if pid is not None}
    return found or ({int(process)} if process.isdecimal() else set())


def _loaders(context: Context, fact: Fact) -> Expected:
    return sum(_median_loaders(context, fact["node"], process) for process in _loading(context, fact["node"]))


def _median_loaders(context: Context, node: str, process: str) -> float:
    events = _loading(context, node)[process]
    mains = _main_pids(process, events, context.raw.job.events[node, process])
    declared = [e.arguments.get("num_workers") for e in events if e.phase == "DataLoaderIterInitialize"]
    least = next((int(number) for number in reversed(declared) if number is not None), 0)
    by_second: dict[int, tuple[set[int], set[int]]] = {}
    for each in events:
        if each.phase not in TOLD:
            continue
        pids, workers = by_second.setdefault(int(each.end), (set(), set()))
        pid, worker = each.arguments.get("pid"), each.arguments.get("worker_id")
        if pid is not None and int(pid) not in mains:
            pids.add(int(pid))
        elif worker is not None and each.phase == FETCH:
            workers.add(int(worker))
    return float(np.median([max(len(pids), len(workers), least) for pids, workers in by_second.values()]))


def _cores(context: Context, fact: Fact) -> Expected:
    return float(len(context.node(fact).of("CPUUtilization")))


def _of_cores(context: Context, fact: Fact) -> Expected:
    loaders, cores = _loaders(context, fact), _cores(context, fact)
    assert isinstance(loaders, int | float)
    assert isinstance(cores, float)
    return 100.0 * loaders / cores


@dataclass(frozen=True)
class _Loop:
    """A training process's loop: its own fetches, and from when to when there were loader events, microseconds."""

    own: list[Event]
    first_us: int
    last_us: int

    @property
    def waited_us(self) -> int:
        return sum(each.length_us for each in self.own)

    @property
    def newest(self) -> tuple[int, float] | None:
        """Since when the newest four blocks of ten minutes last, and the share of it that was waiting."""
        if not self.own:
            return None
        newest = max(each.end_us for each in self.own) // BLOCK_US
        recent = [each for each in self.own if each.end_us // BLOCK_US > newest - BLOCKS]
        since = max(min(each.end_us for each in recent) // BLOCK_US * BLOCK_US, self.first_us)
        length = self.last_us - since
        return (since, min(sum(each.length_us for each in recent) / length, 1.0)) if length >= LEAST_US else None


def _loops(context: Context, node: str) -> list[_Loop]:
    found = []
    for process, events in _loading(context, node).items():
        mains = _main_pids(process, events, context.raw.job.events[node, process])
        told = [each for each in events if each.phase in TOLD]
        fetches = [each for each in told if each.phase == FETCH]
        own = [each for each in fetches if int(each.arguments.get("pid", next(iter(mains), -1))) in mains]
        found.append(_Loop(own, min(each.start_us for each in told), max(each.end_us for each in told)))
    return found


def _waiting(context: Context, fact: Fact) -> Expected:
    """Return the share of a fact's time in which processes fetched batches themselves; NaN of another time than theirs.

    It is that of the whole loop, from the first loader event to the last one, or of the newest blocks.
    """
    loops = _loops(context, fact["node"])
    start, end = min(each.first_us for each in loops), max(each.last_us for each in loops)
    newest = [each.newest for each in loops if each.newest is not None]
    if abs(1e6 * fact["to"] - end) > 1.0:
        return math.nan
    if abs(1e6 * fact["from"] - start) <= 1.0:
        mean = sum(each.waited_us for each in loops) / len(loops)
        return min(mean / max(end - start, 1), 1.0)
    if newest and abs(1e6 * fact["from"] - min(since for since, _ in newest)) <= 1.0:
        return sum(share for _, share in newest) / len(newest)
    return math.nan


def _between_steps(context: Context, fact: Fact) -> Expected:
    """Return in which share of the processes' loops no step ran: from the first step's start to the last one's end."""
    between = whole = 0
    for (node, _), events in context.raw.job.events.items():
        steps = sorted((each for each in events if STEP in each.name), key=lambda each: each.start_us)
        if node != fact["node"] or not steps:
            continue
        reached = steps[0].start_us
        for step in steps:
            between += max(step.start_us - reached, 0)
            reached = max(step.end_us, reached)
        whole += reached - steps[0].start_us
    return between / whole if whole else math.nan


def _mean_of_used(context: Context, fact: Fact) -> Expected:
    node = context.node(fact)
    return mean_of(np.array([busy(node, gpu, fact) for gpu in node.used_gpus]))


def busy(node: Node, gpu: str, fact: Fact) -> float:
    """Return how busy a GPU was in the share of a fact's time, which ends steps of time: samples are cut there."""
    return weighted_mean(node.of("GPUUtilization")[gpu], fact["from"], fact["to"], node.interval_s)


def _workers(context: Context, fact: Fact) -> Expected:
    cores = _cores(context, fact)
    assert isinstance(cores, float)
    return float(max(int(cores) // max(len(_loading(context, fact["node"])), 1), 1))


def _declared(context: Context, fact: Fact) -> Expected:
    numbers = set()
    for events in _loading(context, fact["node"]).values():
        told = [e.arguments.get("num_workers") for e in events if e.phase == "DataLoaderIterInitialize"]
        numbers |= {int(number) for number in told[-1:] if number is not None}
    return "/".join(map(str, sorted(numbers)[:4]))


def _pinned(context: Context, fact: Fact) -> Expected:
    told = [
        e.arguments.get("pin_memory")
        for events in _loading(context, fact["node"]).values()
        for e in events
        if e.phase == "DataLoaderIterInitialize"
    ]
    return 0.0 if False in told else 1.0


def _fetch_time(context: Context, fact: Fact) -> Expected:
    """Return the median time of all batches of workers in the files that were read by the fact's end."""
    fetches = [
        each
        for (node, _), events in context.raw.job.events.items()
        if node == fact["node"]
        for each in events
        if each.phase == "DataLoaderWorker" and "Fetch" in each.name
    ]
    last_file = last_file_without(each for each in fetches if each.end > fact["to"] + 1e-6)
    lengths = [each.length_us for each in fetches if each.file <= last_file]
    return binned(np.array(lengths, dtype=np.int64), MOST_BINS).median / 1e6


DATALOADER: dict[str, Recompute] = {
    "loaders": _loaders,
    "cores": _cores,
    "loaders_of_cores": _of_cores,
    "training_processes": lambda context, fact: float(len(_loading(context, fact["node"]))),
    "workers_advised": _workers,
    "min_threshold": lambda context, _: float(context.parameters["min_threshold"]),
    "max_threshold": lambda context, _: float(context.parameters["max_threshold"]),
    "waiting_share": _waiting,
    "between_steps_share": _between_steps,
    "mean_utilization": _mean_of_used,
    "num_workers": _declared,
    "pin_memory": _pinned,
    "prefetch": lambda *_: 0.0,
    "fetch_time": _fetch_time,
}
