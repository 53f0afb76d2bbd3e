"""Data loaders of a job, as traces show them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tests.support.framework_traces import SECOND, START_US, event
from tests.unit.rules.node_replay import node_minutes, series
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.rules.dataloader.rule import Dataloader, DataloaderParameters
from trainguard.rules.dataloader.series import LoaderState
from trainguard.rules.rule_inputs import JobView, NodeFacts, NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.state.gpu_time import GpuTime

RULE = Dataloader()
DEFAULTS = DataloaderParameters()
START = START_US / SECOND
CORES = 8


def setup(workers: int | None, *, pinned: bool | None = None, pid: int = 905) -> dict[str, Any]:
    return event("DataLoaderIterInitialize", "init", 0.0, 0.1, pid=pid, num_workers=workers, pin_memory=pinned)


def fetches(second: float, loaders: Iterable[int], *, duration_s: float = 0.01) -> list[dict[str, Any]]:
    """GetNext events within a second, each of another loader process."""
    return [
        event(
            "DataLoaderIter", "DataLoaderIter::GetNext", second + 0.1, duration_s, pid=5000 + loader, worker_id=loader
        )
        for loader in loaders
    ]


def seconds_of(loaders: int, count: int = 11) -> list[dict[str, Any]]:
    return [each for second in range(count) for each in fetches(second, range(loaders))]


def folded(*objects: FrameworkEvents) -> LoaderState:
    state = LoaderState()
    for each in objects:
        RULE.observe(state, each, DEFAULTS)
    return state


def job(states: Mapping[str, LoaderState], *, cores: int = CORES, **changes: Any) -> JobView:
    fields = {
        "started_at": START,
        "system_through": START + 100.0,
        "first_step_at": None,
        "framework_expected": True,
        "framework_seen": bool(states),
        "closed": False,
        "nodes": {node: NodeFacts(node, cores=cores, collected={RULE.name: state}) for node, state in states.items()},
    }
    return JobView(**{**fields, **changes})


def judge(*objects: FrameworkEvents, parameters: DataloaderParameters = DEFAULTS, **changes: Any) -> RuleResult:
    return RULE.judge(job({"algo-1": folded(*objects)}, **changes), parameters)


def busy_at(level: float) -> NodeView:
    (minute,) = node_minutes(series(np.full((120, 2), [level, 0.0]), interval_s=0.5), closed=False)
    return minute.view


def used_at(level: float, *, hours: float) -> GpuTime:
    """GPUs of which the first is so busy, percent, from the start of the loop on, and the second is never used."""
    use, times = GpuTime(), START + np.arange(0.0, 3_600.0 * hours, 15.0)
    use.add(times, np.full((len(times), 2), [level, 0.0]), interval_s=15.0)
    return use.finished(15.0)


def node_at(level: float, *objects: FrameworkEvents, hours: float = 0.2) -> NodeFacts:
    """A node with such loaders, whose used GPU is so busy."""
    system = replace(busy_at(level), node="algo-1", watermark_s=START + 3_600.0 * hours)
    use = used_at(level, hours=hours)
    return NodeFacts("algo-1", system, CORES, collected={RULE.name: folded(*objects)}, use=lambda: use)


def own_fetches(wait_s: float, seconds: range) -> list[dict[str, Any]]:
    """Fetches of a training process without workers: ``wait_s`` of each second."""
    return [event("DataLoaderIter", "DataLoaderIter::GetNext", s, wait_s, pid=905) for s in seconds]


def workers_of(count: int, wait_s: float) -> list[dict[str, Any]]:
    """A training process that waits ``wait_s`` of each second for a batch of its workers."""
    return [setup(count), *own_fetches(wait_s, range(100))]
