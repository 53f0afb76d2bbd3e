"""Recomputes the facts of rules over a framework's events: StepOutlier, Dataloader and the phases of bottlenecks."""

import math
from itertools import pairwise

import numpy as np

from tests.claims.context import Context, Expected, Fact, Range, Recompute, mean_of
from tests.claims.raw import Event, Floats, Node
from tests.claims.weighted import weighted_mean

LEFT_OUT = 100
BIN = 0.011
"""Durations are counted in bins that are at most 1 % wide."""

PLAUSIBLE_SHARE = 0.002
ALIVE_S = 600.0


def _series(context: Context) -> list[Event]:
    """Return the steps of the process and mode that a finding names, without the first 100 and the newest."""
    named = context.first("process")
    if named is None:
        return []
    process, _, mode = str(named["value"]).rpartition(" ")
    for (node, name), events in context.raw.job.events.items():
        if node == named["node"] and process in {name, f"{node}-{name}"}:
            wanted = {mode, f"Step:ModeKeys.{mode}"}
            steps = [each for each in events if each.phase in wanted or each.name in wanted]
            done = [each for each in steps if each.end <= named.get("to", math.inf) + 1e-3]
            return sorted(done, key=lambda each: each.end)[LEFT_OUT : -1 if len(done) == len(steps) else None]
    return []


def _durations(context: Context) -> Floats:
    return np.array([step.seconds for step in _series(context)])


def _median(context: Context, fact: Fact) -> Expected:
    del fact
    durations = _durations(context)
    if not durations.size:
        return math.nan
    least, most = (
        np.quantile(durations, [0.499, 0.501], method="lower"),
        np.quantile(durations, [0.501], method="higher"),
    )
    return Range(float(least[0]) * (1.0 - BIN), float(most[0]) * (1.0 + BIN))


def _limit_of_outliers(context: Context) -> float:
    durations = _durations(context)
    return float(durations.mean() + context.parameters["stddev"] * durations.std()) if durations.size else math.nan


def _slow_steps(context: Context, fact: Fact) -> Expected:
    del fact
    durations, limit = _durations(context), _limit_of_outliers(context)
    return Range(float((durations > limit * (1.0 + BIN)).sum()), float((durations > limit).sum()))


def _slow_share(context: Context, fact: Fact) -> Expected:
    """Return what steps over twice the median took beyond it, of the process's time in steps of all modes."""
    del fact
    durations = _durations(context)
    median = float(np.median(durations)) if durations.size else math.nan
    total = _time_in_steps(context)
    shares = []
    for limit in (2.0 * median * (1.0 + BIN), 2.0 * median * (1.0 - BIN)):
        slow = durations[durations > limit]
        shares.append(float((slow - median).sum()) / total)
    return Range(min(shares) * (1.0 - BIN) - 1e-3, max(shares) * (1.0 + BIN) + 1e-3)


def _time_in_steps(context: Context) -> float:
    named = context.first("process")
    if named is None:
        return math.nan
    process, _, _ = str(named["value"]).rpartition(" ")
    total = 0.0
    for (node, name), events in context.raw.job.events.items():
        if node == named["node"] and process in {name, f"{node}-{name}"}:
            modes: dict[str, list[Event]] = {}
            for each in events:
                if each.phase.startswith("Step:ModeKeys") and each.end <= named.get("to", math.inf) + 1e-3:
                    modes.setdefault(each.phase, []).append(each)
            for steps in modes.values():
                total += sum(each.seconds for each in sorted(steps, key=lambda each: each.end)[LEFT_OUT:-1])
    return total or math.nan


def _process(context: Context, fact: Fact) -> Expected:
    return str(fact["value"]) if _series(context) else "no process of this name has steps"


def _apart(context: Context, fact: Fact) -> Expected:
    """Return at which distance the slow steps come."""
    del fact
    steps = _series(context)
    durations = np.array([step.seconds for step in steps])
    limit = min(2.0 * float(np.median(durations)), _limit_of_outliers(context))
    numbers = [int(step.arguments.get("step_num", -1)) for step in steps if step.seconds > limit]
    distances = [after - before for before, after in pairwise(numbers)]
    return float(max(set(distances), key=distances.count)) if distances else math.nan


def _event(context: Context, fact: Fact) -> Expected:
    names = {name for events in context.raw.job.events.values() for each in events for name in (each.name, each.phase)}
    return str(fact["value"]) if fact["value"] in names else "no event has this name"


def _in_steps(*, slow: bool) -> Recompute:
    """Return the share of slow, or of ordinary, steps that the named event takes."""

    def recompute(context: Context, fact: Fact) -> Expected:
        named, process = context.first("grown_event"), context.first("process")
        if named is None or process is None:
            return math.nan
        steps = _series(context)
        durations = np.array([step.seconds for step in steps])
        limit = min(2.0 * float(np.median(durations)), _limit_of_outliers(context))
        chosen = [step for step in steps if (step.seconds > limit) == slow]
        total = sum(step.seconds for step in chosen)
        events = [
            each
            for (node, _), of_process in context.raw.job.events.items()
            if node == process["node"]
            for each in of_process
            if named["value"] in {each.name, each.phase}
        ]
        overlap = _overlap(chosen, events)
        share = overlap / total if total else math.nan
        # Steps are told slow from ordinary as they come, by what was known then.
        return Range(share - 0.05, share + 0.05)

    return recompute


def _overlap(steps: list[Event], events: list[Event]) -> float:
    ordered = sorted(events, key=lambda each: each.start)
    starts = np.array([each.start for each in ordered])
    total = 0.0
    for step in steps:
        place = int(np.searchsorted(starts, step.start - 60.0))
        for each in ordered[place:]:
            if each.start >= step.end:
                break
            total += max(min(each.end, step.end) - max(each.start, step.start), 0.0)
    return total


def _least_busy(context: Context, fact: Fact) -> Expected:
    """Return the mean of the named GPU; NaN where another GPU in use is less busy."""
    node = context.node(fact)
    means = {gpu: _busy(node, gpu, fact) for gpu in node.used_gpus or node.gpus}
    named = means.get(fact["device"], math.nan)
    return named if named <= min(means.values(), default=math.nan) + 0.1 else math.nan


STEP_OUTLIER: dict[str, Recompute] = {
    "process": _process,
    "steps": lambda context, _: float(len(_series(context))),
    "slow_steps": _slow_steps,
    "outlier_above": lambda context, _: _limit_of_outliers(context),
    "median_step": _median,
    "slow_time_share": _slow_share,
    "mean_utilization": _least_busy,
    "grown_event": _event,
    "event_in_slow_steps": _in_steps(slow=True),
    "event_in_other_steps": _in_steps(slow=False),
    "steps_apart": _apart,
}


def _loading(context: Context, node: str) -> dict[str, list[Event]]:
    """Return the loader events of each training process of a node that still loads."""
    found = {
        process: [each for each in events if each.phase.startswith("DataLoader")]
        for (where, process), events in context.raw.job.events.items()
        if where == node
    }
    found = {process: events for process, events in found.items() if any(e.phase == "DataLoaderIter" for e in events)}
    newest = max((each.end for events in found.values() for each in events), default=0.0)
    return {
        process: events
        for process, events in found.items()
        if max(each.end for each in events if each.phase == "DataLoaderIter") > newest - ALIVE_S - 1.0
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
        if each.phase not in {"DataLoaderIter", "DataLoaderWorker"}:
            continue
        pids, workers = by_second.setdefault(int(each.end), (set(), set()))
        pid, worker = each.arguments.get("pid"), each.arguments.get("worker_id")
        if pid is not None and int(pid) not in mains:
            pids.add(int(pid))
        elif worker is not None and each.phase == "DataLoaderIter":
            workers.add(int(worker))
    return float(np.median([max(len(pids), len(workers), least) for pids, workers in by_second.values()]))


def _cores(context: Context, fact: Fact) -> Expected:
    return float(len(context.node(fact).of("CPUUtilization")))


def _of_cores(context: Context, fact: Fact) -> Expected:
    loaders, cores = _loaders(context, fact), _cores(context, fact)
    assert isinstance(loaders, int | float)
    assert isinstance(cores, float)
    return 100.0 * loaders / cores


def _waiting(context: Context, fact: Fact) -> Expected:
    """Return the share of the loop, from first to last event, in which processes fetched batches themselves."""
    shares, start, end = [], fact["from"], fact["to"]
    for process, events in _loading(context, fact["node"]).items():
        mains = _main_pids(process, events, context.raw.job.events[fact["node"], process])
        own = [
            each
            for each in events
            if each.phase == "DataLoaderIter" and int(each.arguments.get("pid", next(iter(mains), -1))) in mains
        ]
        waited = sum(each.seconds for each in own if start - 1.0 <= each.end <= end + 1.0)
        shares.append(min(waited / max(end - start, 1e-6), 1.0))
    share = float(np.mean(shares)) if shares else math.nan
    return Range(share - 5e-3, share + 5e-3)


def _mean_of_used(context: Context, fact: Fact) -> Expected:
    node = context.node(fact)
    return mean_of(np.array([_busy(node, gpu, fact) for gpu in node.used_gpus]))


def _busy(node: Node, gpu: str, fact: Fact) -> float:
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
    found = [
        each.seconds
        for (node, _), events in context.raw.job.events.items()
        if node == fact["node"]
        for each in events
        if each.phase == "DataLoaderWorker" and "Fetch" in each.name
    ]
    median = float(np.median(found)) if found else math.nan
    return Range(median * (1.0 - 2.0 * BIN), median * (1.0 + 2.0 * BIN))


DATALOADER: dict[str, Recompute] = {
    "loaders": _loaders,
    "cores": _cores,
    "loaders_of_cores": _of_cores,
    "training_processes": lambda context, fact: float(len(_loading(context, fact["node"]))),
    "workers_advised": _workers,
    "min_threshold": lambda context, _: float(context.parameters["min_threshold"]),
    "max_threshold": lambda context, _: float(context.parameters["max_threshold"]),
    "waiting_share": _waiting,
    "mean_utilization": _mean_of_used,
    "num_workers": _declared,
    "pin_memory": _pinned,
    "prefetch": lambda *_: 0.0,
    "fetch_time": _fetch_time,
}
