"""What no verdict reports about a job: facts from what its rules remember, None of what no rule looked at, and gaps."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from trainguard.core.accelerators import listing_tools
from trainguard.core.errors import RuleFailedError
from trainguard.core.units import clause, counted, listed, show_duration, show_share
from trainguard.engine.diagnosis.case import SIZEABLE_SHARE
from trainguard.engine.kernels.session import CaptureStreams
from trainguard.engine.profiler.framework_session import MICROSECONDS
from trainguard.kernels.captures.keys import DOCUMENT, KERNELS, PAGE
from trainguard.kernels.rules.rule import unjudged
from trainguard.kernels.verdict import CaptureVerdict
from trainguard.kernels.words import explained
from trainguard.ledger.bucket import Bucket
from trainguard.pricing.cost import Unpriced
from trainguard.report.document import KernelReport, NotCollected, Scope
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.rules.dataloader.series import LoaderState
from trainguard.rules.overall_framework_metrics.rule import FrameworkTimeState
from trainguard.rules.overall_system_usage.rule import METRICS, UsageState
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import SPECS, spec_of
from trainguard.rules.spec import LOW_GPUS
from trainguard.rules.step_outlier.series import StepsState
from trainguard.rules.windows import PatienceParameters

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
        f"{listed(nodes)} {'shows' if len(nodes) == 1 else 'show'} {_in_gpus(shown)}"
        for shown, nodes in sorted(others.items())
    ]
    has = f"An instance of {judged.job.instance_type} has {_in_gpus(expected)}"
    return [f"{has}, and in the profile {', '.join(parts)}: the whole instance is what was paid for."]


def _in_gpus(count: int) -> str:
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
    """Return how a capture is in at most three sentences, and its snapshots in another one."""
    said = [_of_traces(verdict) if verdict.has_traces else "", of_snapshots(verdict)]
    return " ".join(sentence for sentence in said if sentence)


def _of_traces(verdict: CaptureVerdict) -> str:
    if not verdict.judged:
        return unjudged(verdict)
    busy = "" if verdict.busy_share is None else f" were busy {100.0 * verdict.busy_share:.1f} % of the window"
    text = [f"The GPUs of {counted(verdict.traces - verdict.unread, 'trace')}{busy}."]
    sure = [each for each in verdict.rules if each.sure and not spec_of(each.rule).informs_only]
    if not sure:
        return f"{text[0]} No rule fired."
    named = [each.rule.rpartition("/")[2] for each in sure]
    text.append(f"{counted(len(sure), 'rule')} fired: {listed(named, _NAMED)}.")
    text += [explained(each.rule, each.gain_ns_per_step, each.gain_share) for each in sure[:_CAUSES]]
    return " ".join(sentence for sentence in text if sentence)


def of_snapshots(verdict: CaptureVerdict) -> str:
    """Return what a job's newest memory snapshots say, in a sentence; empty without any."""
    found = verdict.snapshots
    if found is None or not found.files:
        return ""
    if found.unread == found.files:
        return f"None of {counted(found.files, 'memory snapshot')} could be read."
    read = counted(found.files - found.unread, "memory snapshot")
    sure = [each.rule.rpartition("/")[2] for each in found.rules if each.sure]
    return f"In {read}: {listed(sure, _NAMED)}." if sure else f"In {read} no rule on memory fired."


# From this sampling interval on, what a point hides is worth a word.
LONG_INTERVAL_S = 5.0

RECORDER = (
    "Use the recorder (docs/recorder.md) in the training script: `trainguard_collector.Recorder()`. It works with "
    "PyTorch, transformers, Lightning, Keras 3 and JAX."
)
COLLECTOR = (
    "Run the collector (docs/collector.md) beside the training: install it in the image and set `TRAINGUARD_OUTPUT`. "
    "It records them all."
)
FRAMEWORK_PROFILE = (
    "In an account that has SageMaker Debugger, "
    "`profiler_config=ProfilerConfig(framework_profile_params=FrameworkProfile())` records them with PyTorch below 2.0 "
    "or TensorFlow below 2.11."
)
SYSTEM_PROFILE = "In an account that has SageMaker Debugger, `profiler_config=ProfilerConfig()` does, too."
SYSTEM_INTERVAL = (
    "In an account that has SageMaker Debugger: `profiler_config=ProfilerConfig(system_monitor_interval_millis=500)`."
)
# A job that SageMaker does not know, or that is evaluated from its files, has no such name.
_SAGEMAKER = "arn:"

_GPU_METRICS = frozenset({"GPU", "GPU memory"})


def not_collected(judged: EvaluatedJob, scope: Scope, missing: Sequence[str]) -> list[NotCollected]:
    """Return what is absent in this job, and nothing else; ``missing`` says which time lines could not be read."""
    return [
        *_streams(judged),
        *_kernel_trace(judged),
        *_gpus(judged),
        *_system_metrics(judged),
        *_points(judged),
        *_of_report(judged, scope, missing),
    ]


def _streams(judged: EvaluatedJob) -> Iterator[NotCollected]:
    if not judged.system_nodes:
        yield NotCollected(
            what="System metrics",
            unknown="How busy GPUs, CPU, disk and network were, and so what the paid time went into: a log of losses, "
            "or tensors alone, does not say it.",
            how=_with_debugger(judged, COLLECTOR, SYSTEM_PROFILE),
        )
    if not judged.framework_nodes:
        expected = "expected, but none came" if judged.job.framework_expected else "none came"
        yield NotCollected(
            what="Framework metrics",
            unknown=f"Steps, phases and waits for data ({expected}): {_of_framework()} cannot judge without them.",
            how=_with_debugger(judged, RECORDER, FRAMEWORK_PROFILE),
        )
        return
    if judged.profiler.first_step_at is None:
        yield NotCollected(
            what="Steps",
            unknown="When training began and ended, how long a step takes and which ones are slow.",
            how="Mark them with the recorder (docs/recorder.md): `with recorder.step():` round each step, or its "
            "callback for transformers, Lightning or Keras.",
        )
    if has_loader_events(judged) is False:
        yield NotCollected(
            what="Waits for data",
            unknown="How many loader processes feed the training, and how long it waits for them.",
            how="Let the recorder (docs/recorder.md) time them: `for batch in recorder.wrap(loader):`, or "
            "`recorder.time_loaders()` where the script has no loop of its own.",
        )


def _kernel_trace(judged: EvaluatedJob) -> Iterator[NotCollected]:
    unexplained = judged.diagnosis.share_of(Bucket.UNEXPLAINED)
    if judged.ledger.shares is None and unexplained >= SIZEABLE_SHARE:
        yield NotCollected(
            what="A kernel trace",
            unknown=f"Why the GPUs did little in {show_share(unexplained)} of the paid time: whether they waited for "
            "the host, for data or for other ranks.",
            how="Record three to ten steps after warm-up (docs/kernels.md): with the recorder, "
            "`Recorder(kernels=KernelProfile(steps=StepRange(50, 5)))`, or with `torch.profiler`.",
        )


def _with_debugger(judged: EvaluatedJob, ours: str, debugger: str) -> str:
    """Add what SageMaker Debugger offers: AWS has closed it to other accounts on 2026-07-30."""
    return f"{ours} {debugger}" if judged.job.arn.startswith(_SAGEMAKER) else ours


def _gpus(judged: EvaluatedJob) -> Iterator[NotCollected]:
    states = {node: judged.profiler.system[node].state for node in judged.system_nodes}
    parted = [node for node, state in states.items() if state.mig_names and not state.gpu_names]
    if parted:
        yield NotCollected(
            what=f"GPU utilization of {listed(parted)}",
            unknown="How busy the GPUs are: they are partitioned (MIG), and NVML does not measure utilization then.",
            how="Nothing. Memory of each instance is collected, and since Hopper its SM activity, which rules judge.",
        )
    without = [node for node, state in states.items() if not (state.gpu_names or state.mig_names)]
    if without:
        yield NotCollected(
            what="GPU metrics" if not judged.gpus else f"GPU metrics of {listed(without)}",
            unknown="How busy GPUs and their memory are: the rules on GPUs cannot judge "
            f"{'this job' if not judged.gpus else counted(len(without), 'node')}.",
            how="If these nodes have accelerators, check that the container sees them "
            f"({listing_tools(judged.job.instance_type)}), and that what recorded the run samples them: the collector "
            "(docs/collector.md) does.",
        )


def _system_metrics(judged: EvaluatedJob) -> Iterator[NotCollected]:
    states = states_of(judged, UsageState).values()
    if not any(state.snapshots for state in states):
        return
    seen = {metric for state in states for metric in state.percents}
    if any(state.traffic.largest is not None for state in states):
        seen.add("Network")
    lacking = [metric for metric in METRICS if metric not in seen and metric not in _GPU_METRICS]
    if judged.gpus:
        lacking += [metric for metric in METRICS if metric not in seen and metric in _GPU_METRICS]
    if lacking:
        needing = dict.fromkeys(rule for metric in lacking for rule, spec in SPECS.items() if metric in spec.metrics)
        blind = f", and {listed([*needing])} cannot judge" if needing else ""
        blind = ", and no rule on GPUs can judge" if "GPU" in lacking else blind
        informing = [rule for rule, spec in SPECS.items() if spec.informs_only and "system" in spec.inputs]
        yield NotCollected(
            what=f"System metrics: {listed(lacking)}",
            unknown=f"{listed(informing)} and the time lines have nothing on {listed(lacking)}{blind}.",
            how=_with_debugger(judged, COLLECTOR, SYSTEM_PROFILE),
        )


def _of_framework() -> str:
    rules = [(spec.informs_only, rule) for rule, spec in SPECS.items() if "framework" in spec.inputs]
    return listed([rule for informs_only, rule in sorted(rules, key=lambda each: each[0])])


def _points(judged: EvaluatedJob) -> Iterator[NotCollected]:
    if judged.system_nodes and judged.interval_s >= LONG_INTERVAL_S:
        parameters = [judged.plan.parameters.get(rule) for rule, spec in SPECS.items() if spec.symptom == LOW_GPUS]
        known = [each for each in parameters if isinstance(each, PatienceParameters)]
        patience = max((each.patience_points(judged.interval_s) for each in known), default=0)
        lasts = show_duration(patience * judged.interval_s)
        wait = f"; {patience:,} points of patience take {lasts}" if patience else ""
        yield NotCollected(
            what=f"What happens between two points, {judged.interval_s:g} s apart",
            unknown=f"Stalls shorter than {show_duration(2.0 * judged.interval_s)} are hidden or look longer than they "
            f"are{wait}.",
            how=_with_debugger(
                judged,
                "The collector (docs/collector.md) samples each 500 ms: `TRAINGUARD_INTERVAL_MS=500`.",
                SYSTEM_INTERVAL,
            ),
        )


def _of_report(judged: EvaluatedJob, scope: Scope, missing: Sequence[str]) -> Iterator[NotCollected]:
    if scope == "state":
        why = f" ({clause(' '.join(missing))})" if missing else ""
        yield NotCollected(
            what="Time lines",
            unknown=f"How utilization, memory, network and step durations went over time{why}.",
            how="The full report is made at the job's end; before that, or for a folder or an S3 URI: "
            "`trainguard report <job>`.",
        )
    estimate, disabled = judged.paid_time.estimate(), judged.plan.disabled
    if isinstance(estimate, Unpriced):
        yield NotCollected(
            what="Prices",
            unknown=f"What the job and its findings cost, because {estimate.why}.",
            how="`trainguard report --instance-type ml.…` says the type, `--prices FILE` gives your own prices.",
        )
    if disabled:
        yield NotCollected(
            what=f"Verdicts of {counted(len(disabled), 'rule')}",
            unknown=f"Whatever {listed(disabled)} would say, and what this report takes from them (number of steps, "
            "end of the training loop, mean use).",
            how=f"Set `rule_to_invoke` to {PROFILER_REPORT}, or leave it out.",
        )
