"""Facts of a job that no verdict says: read from what its rules remember. None is what no rule has looked at."""

from collections import defaultdict
from typing import TypeVar

import msgspec

from trainguard.core.errors import RuleFailedError
from trainguard.core.units import counted, listed
from trainguard.engine.profiler.framework_session import MICROSECONDS
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.rules.dataloader.series import LoaderState
from trainguard.rules.overall_framework_metrics.rule import FrameworkTimeState
from trainguard.rules.step_outlier.series import StepsState

S = TypeVar("S", bound=msgspec.Struct)


def last_step_end(judged: EvaluatedJob) -> float | None:
    states = states_of(judged, FrameworkTimeState).values()
    ends_us = [loop.last_us for state in states for loop in state.loops if loop.first_us is not None]
    return max(ends_us) / MICROSECONDS if ends_us else None


def steps(judged: EvaluatedJob) -> int | None:
    """Return how many steps all processes took in all modes; None also where only one mode's were counted."""
    rule = judged.plan.rule_of_state(StepsState)
    parameters = None if rule is None else judged.plan.parameters.get(rule)
    if parameters is None or getattr(parameters, "mode", None) not in {None, "None"}:
        return None
    states = states_of(judged, StepsState).values()
    counted = (each.steps_not_judged + sum(s.seen + s.dropped for s in each.series) for each in states)
    return sum(counted) or None


def has_loader_events(judged: EvaluatedJob) -> bool | None:
    """Tell whether a data loader has written events."""
    rule = judged.plan.rule_of_state(LoaderState)
    if rule is None:
        return None
    states = []
    for node in judged.framework_nodes:
        try:
            states.append(judged.profiler.framework[node].state_of(rule))
        except RuleFailedError:
            return None  # the rule is in error, and its row says so
    loads = [each for each in states if isinstance(each, LoaderState)]
    return any(each.processes or each.prefetch is not None for each in loads) if loads else None


def states_of(judged: EvaluatedJob, state_type: type[S]) -> dict[str, S]:
    """Return by node what the rule of a type of state remembers; nothing of a rule that has failed."""
    found: dict[str, S] = {}
    rule = judged.plan.rule_of_state(state_type)
    if rule is None or rule in judged.plan.faults:
        return found
    for streams in (judged.profiler.system, judged.profiler.framework):
        for node, stream in streams.items():
            stored = stream.state.stored_rules.get(rule)
            if stored is not None and stored.fault is None and isinstance(state := stream.state_of(rule), state_type):
                found[node] = state
    return found


def gpus_of_type(judged: EvaluatedJob) -> int | None:
    """Return how many GPUs an instance of the job's type has; None where the type or its GPUs are not known."""
    if judged.job.instance_type is None:
        return None
    row = judged.account.table.row(judged.job.instance_type)
    return None if row is None or row.accelerators is None else row.accelerators.gpus


def gpu_remarks(judged: EvaluatedJob) -> list[str]:
    """Say, in one sentence, which nodes show another number of GPUs than their type has; empty where none does."""
    expected = gpus_of_type(judged)
    if expected is None:
        return []
    others: defaultdict[int, list[str]] = defaultdict(list)
    for node in judged.system_nodes:
        shown = len(judged.profiler.system[node].state.gpu_names)
        if shown != expected:
            others[shown].append(node)
    if not others:
        return []
    parts = [
        f"{listed(nodes)} {'shows' if len(nodes) == 1 else 'show'} {_gpus(shown)}"
        for shown, nodes in sorted(others.items())
    ]
    has = f"An instance of {judged.job.instance_type} has {_gpus(expected)}"
    return [f"{has}, and in the profile {', '.join(parts)}: the whole instance is what was paid for."]


def _gpus(count: int) -> str:
    return counted(count, "GPU") if count else "no GPU"
