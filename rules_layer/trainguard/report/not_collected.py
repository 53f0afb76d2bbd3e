"""What a job did not write: what is not known without it, and how to collect it next time."""

from collections.abc import Iterator, Sequence

from trainguard.pricing.cost import Unpriced
from trainguard.report.document import NotCollected, Scope
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.report.facts import first_step_at, has_loader_events, has_operators, usage
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import SPECS
from trainguard.rules.symptoms import LOW_GPUS
from trainguard.rules.system_usage import METRICS
from trainguard.rules.units import clause, counted, listed, show_duration
from trainguard.rules.windowing import PatienceParameters

LONG_INTERVAL_S = 5.0
"""From this sampling interval on, what a point hides is worth a word."""

FRAMEWORKS = "PyTorch below 2.0 or TensorFlow below 2.11, whose SageMaker containers bring the hook (smdebug)"
FRAMEWORK_PROFILE = "`profiler_config=ProfilerConfig(framework_profile_params=FrameworkProfile({}))`"
_GPU_METRICS = frozenset({"GPU", "GPU memory"})


def not_collected(judged: EvaluatedJob, scope: Scope, missing: Sequence[str]) -> list[NotCollected]:
    """Return what is absent in this job, and nothing else; ``missing`` says which time lines could not be read."""
    return [
        *_framework(judged),
        *_gpus(judged),
        *_system_metrics(judged),
        *_points(judged),
        *_time_lines(scope, missing),
        *_money(judged),
        *_disabled(judged),
    ]


def _framework(judged: EvaluatedJob) -> Iterator[NotCollected]:
    if not judged.framework_nodes:
        expected = "expected, but none came" if judged.job.framework_expected else "none were asked for and none came"
        yield NotCollected(
            what="Framework metrics",
            unknown=f"Steps, phases, data loaders and operators ({expected}): {_of_framework()} cannot judge without "
            "them.",
            how=f"{FRAMEWORK_PROFILE.format('')} of the SageMaker SDK, or `ProfilerConfig.ProfilingParameters` of "
            f"CreateTrainingJob; it takes {FRAMEWORKS}.",
        )
        return
    if first_step_at(judged) is None:
        yield NotCollected(
            what="Steps",
            unknown="When training began and ended, how long a step takes and which ones are slow.",
            how="Register the hook with the model (`hook.register_module(model)`, or Estimator and Keras callbacks), "
            f"so that steps are written; {FRAMEWORK_PROFILE.format('')} turns framework metrics on.",
        )
    if has_loader_events(judged) is False:
        yield NotCollected(
            what="Data loader events",
            unknown="How many loader processes feed the training, and how long it waits for them.",
            how=f"{FRAMEWORK_PROFILE.format('dataloader_profiling_config=DataloaderProfilingConfig()')}; a loader that "
            "is not `torch.utils.data.DataLoader` or `tf.data` writes none.",
        )
    if has_operators(judged) is False:
        config = "detailed_profiling_config=DetailedProfilingConfig(start_step=5, num_steps=1)"
        yield NotCollected(
            what="Operators (detailed profiling)",
            unknown="Which operators and kernels take the time on the CPU and on the GPUs.",
            how=f"{FRAMEWORK_PROFILE.format(config)}; for a few steps only, as it slows them down.",
        )
    yield NotCollected(
        what="Python profiles",
        unknown="Which Python functions take the time: no rule reads such profiles, so this report has none.",
        how=f"{FRAMEWORK_PROFILE.format('python_profiling_config=PythonProfilingConfig(start_step=9, num_steps=3)')} "
        "writes them under `framework/` of the profile; open them with pstats or pyinstrument.",
    )


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
            how="They are written on instances with GPUs only. If these have some, check that the container sees them "
            "(`nvidia-smi`).",
        )


def _system_metrics(judged: EvaluatedJob) -> Iterator[NotCollected]:
    states = usage(judged).values()
    if not any(state.snapshots for state in states):
        return
    seen = {metric for state in states for metric in state.percents}
    if any(state.traffic.largest is not None for state in states):
        seen.add("Network")
    lacking = [metric for metric in METRICS if metric not in seen and metric not in _GPU_METRICS]
    if judged.gpus:
        lacking += [metric for metric in METRICS if metric not in seen and metric in _GPU_METRICS]
    if lacking:
        blind = "" if not (cannot := _cannot_judge(lacking)) else f", and {cannot}"
        yield NotCollected(
            what=f"System metrics: {listed(lacking)}",
            unknown=f"{_of_usage()} and the time lines have nothing on {listed(lacking)}{blind}.",
            how="The profiler agent of SageMaker writes them by itself; your own files need lines of the dimensions "
            "GPUUtilization, CPUUtilization, I/OWaitPercentage, Algorithm (network), Platform (MemoryUsedPercent) and "
            "GPUMemoryUtilization.",
        )


def _cannot_judge(lacking: Sequence[str]) -> str:
    """Say which rules need a metric that lacks; empty where none does."""
    if "GPU" in lacking:
        return "no rule on GPUs can judge"
    needing = [rule for metric in lacking for rule, spec in SPECS.items() if metric in spec.metrics]
    rules = list(dict.fromkeys(needing))
    return f"{listed(rules)} cannot judge" if rules else ""


def _of_framework() -> str:
    """Name the rules that need framework metrics, those that only inform last."""
    rules = [(spec.informs_only, rule) for rule, spec in SPECS.items() if "framework" in spec.inputs]
    return listed([rule for informs_only, rule in sorted(rules, key=lambda each: each[0])])


def _of_usage() -> str:
    """Name the rules that sum up system metrics."""
    return listed([rule for rule, spec in SPECS.items() if spec.informs_only and "system" in spec.inputs])


def _patience_on_low_gpus(judged: EvaluatedJob) -> int:
    """Return after how many points low GPUs are found at the earliest; 0 where that is not known."""
    parameters = [judged.plan.parameters.get(rule) for rule, spec in SPECS.items() if spec.symptom == LOW_GPUS]
    known = [each for each in parameters if isinstance(each, PatienceParameters)]
    return max((each.patience_points(judged.interval_s) for each in known), default=0)


def _points(judged: EvaluatedJob) -> Iterator[NotCollected]:
    if judged.system_nodes and judged.interval_s >= LONG_INTERVAL_S:
        patience = _patience_on_low_gpus(judged)
        wait = (
            f"; {patience:,} points of patience take {show_duration(patience * judged.interval_s)}" if patience else ""
        )
        yield NotCollected(
            what=f"What happens between two points, {judged.interval_s:g} s apart",
            unknown=f"Stalls shorter than {show_duration(2.0 * judged.interval_s)} are hidden or look longer than they "
            f"are{wait}.",
            how="`profiler_config=ProfilerConfig(system_monitor_interval_millis=500)`, or "
            "`ProfilerConfig.ProfilingIntervalInMilliseconds` of CreateTrainingJob: 100, 200, 500, 1000 or 5000.",
        )


def _time_lines(scope: Scope, missing: Sequence[str]) -> Iterator[NotCollected]:
    if scope == "state":
        why = f" ({clause(' '.join(missing))})" if missing else ""
        yield NotCollected(
            what="Time lines",
            unknown=f"How utilization, memory, network and step durations went over time{why}.",
            how="The full report is made at the job's end; before that, or for a folder or an S3 URI: "
            "`trainguard report <job>`.",
        )


def _money(judged: EvaluatedJob) -> Iterator[NotCollected]:
    bill = judged.account.bill()
    if isinstance(bill, Unpriced):
        yield NotCollected(
            what="Prices",
            unknown=f"What the job and its findings cost, because {bill.why}.",
            how="`trainguard report --instance-type ml.…` says the type, `--prices FILE` gives your own prices.",
        )


def _disabled(judged: EvaluatedJob) -> Iterator[NotCollected]:
    disabled = judged.plan.disabled
    if disabled:
        yield NotCollected(
            what=f"Verdicts of {counted(len(disabled), 'rule')}",
            unknown=f"Whatever {listed(disabled)} would say, and what this report takes from them (number of steps, "
            "end of the training loop, mean use).",
            how=f"Set `rule_to_invoke` to {PROFILER_REPORT}, or leave it out.",
        )
