"""Facts of a job that no verdict says: read from what its rules remember. None is what no rule has looked at."""

from collections import defaultdict
from typing import TypeVar

import msgspec

from trainguard.core.errors import RuleFailedError
from trainguard.core.units import counted, listed
from trainguard.engine.kernels.session import CaptureStreams
from trainguard.engine.profiler.framework_session import MICROSECONDS
from trainguard.kernels.captures.keys import DOCUMENT, KERNELS, PAGE
from trainguard.kernels.rules.registry import SPECS
from trainguard.kernels.rules.rule import unjudged
from trainguard.kernels.verdict import CaptureVerdict
from trainguard.kernels.words import explained
from trainguard.report.document import KernelReport
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
    return sum(each.steps_not_judged + sum(s.seen + s.dropped for s in each.series) for each in states) or None


def has_loader_events(judged: EvaluatedJob) -> bool | None:
    """Tell whether a data loader has written events."""
    rule = judged.plan.rule_of_state(LoaderState)
    if rule is None:
        return None
    try:
        states = [judged.profiler.framework[node].state_of(rule) for node in judged.framework_nodes]
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
    row = judged.paid_time.table.row(judged.job.instance_type)
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


_NAMED = 3
_CAUSES = 2


def kernel_report(judged: EvaluatedJob) -> KernelReport | None:
    """Return what a report shows of the newest capture; None before the first verdict."""
    family = judged.streams.families.get(KERNELS)
    stream = family.stream if isinstance(family, CaptureStreams) else None
    if stream is None or stream.state.verdict is None:
        return None
    return KernelReport(
        verdict=stream.state.verdict,
        sentence=sentence_of(stream.state.verdict),
        page=PAGE,
        document=DOCUMENT,
        captures=stream.state.captures,
        waits=any(record.pending for record in judged.streams.records.values() if record.key.family == KERNELS),
    )


def sentence_of(verdict: CaptureVerdict) -> str:
    """Return how a capture is in at most three sentences."""
    if not verdict.judged:
        return unjudged(verdict)
    busy = "" if verdict.busy_share is None else f" were busy {100.0 * verdict.busy_share:.1f} % of the window"
    text = [f"The GPUs of {counted(verdict.traces - verdict.unread, 'trace')}{busy}."]
    sure = [each for each in verdict.rules if each.sure and not SPECS[each.rule].informs_only]
    if not sure:
        return f"{text[0]} No rule fired."
    named = [each.rule.rpartition("/")[2] for each in sure]
    text.append(f"{counted(len(sure), 'rule')} fired: {listed(named, _NAMED)}.")
    text += [explained(each.rule, each.gain_ns_per_step, each.gain_share) for each in sure[:_CAUSES]]
    return " ".join(sentence for sentence in text if sentence)
