"""Missing or damaged parts of a trace, so that other rules see less than they should, and the remedy for each."""

from dataclasses import dataclass

from trainguard.core.finding import Fact, Severity
from trainguard.core.units import counted
from trainguard.kernels.columns import Framework, Trace, WorkKind
from trainguard.kernels.entries import KernelFinding
from trainguard.kernels.rules.finding import FEW_STEPS, JudgedRank, percent
from trainguard.kernels.rules.rule import RankRule, Share
from trainguard.kernels.rules.text import Saying
from trainguard.kernels.times.intervals import clipped, merged
from trainguard.kernels.times.lost import starting_work
from trainguard.rules.rule_result import FactSheet, Measure

# An earlier time, in 2001, is no time of the epoch: old traces write the epoch and have no base.
EPOCH_LEAST_NS = 10**18

MOST_FAULTS = 8

_MAY_NOT_RECORD = (
    "Let the profiler record kernels: look for CUPTI_ERROR_INSUFFICIENT_PRIVILEGES in the job's log (it needs the "
    "driver's option NVreg_RestrictProfilingToAdminUsers=0, or CAP_SYS_ADMIN), and run no second profiler beside it."
)
_WRITE_AGAIN = "Have the profiler end before the job does, and copy the whole file."
_RECORD_AGAIN = "Update PyTorch and the GPU's driver, and record it again."
_EXPORT_AGAIN = "Export the report again, with tables alone."
_WARM_UP = "Give the profiler's schedule warm-up steps, and record the host, too."
_MARK_STEPS = {
    Framework.PYTORCH: "Call profiler.step() after each step.",
    Framework.JAX: "Mark steps with jax.profiler.StepTraceAnnotation.",
    Framework.XLA: "Mark steps with jax.profiler.StepTraceAnnotation or tf.profiler.experimental.Trace.",
    Framework.TENSORFLOW: "Mark steps with tf.profiler.experimental.Trace.",
    Framework.UNKNOWN: "Mark steps with NVTX ranges such as 'step 12'.",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """What a trace lacks, as a phrase, and what to do; no advice where nothing can be done."""

    words: str
    advice: str = ""


DAMAGES = {
    "truncated_gzip": Fault("the file ends within its gzip stream", _WRITE_AGAIN),
    "broken_gzip": Fault("the gzip stream is broken", _WRITE_AGAIN),
    "cut_off": Fault("the text ends within the events", _WRITE_AGAIN),
    "unreadable_events": Fault(
        "events that cannot be read", "Record it with a newer PyTorch, which escapes quotes in names."
    ),
    "unnamed_events": Fault("events without a name", "Export the report again, with its table of names."),
    "unreadable_parts": Fault("planes or names that cannot be read", _WRITE_AGAIN),
    "unreadable_metadata": Fault("a head that cannot be read", _WRITE_AGAIN),
    "refused_tables": Fault("views or virtual tables in the place of tables, refused", _EXPORT_AGAIN),
    "refused_columns": Fault("computed columns, refused", _EXPORT_AGAIN),
    "bad_times": Fault("events with a negative, missing or days-long time", _RECORD_AGAIN),
    "lost_times": Fault("pieces of work of a GPU without a time", _RECORD_AGAIN),
    "overflowing_times": Fault("pieces of work that last beyond the next one of their stream", _RECORD_AGAIN),
    "bad_memory_events": Fault("events of memory without a size, a time or a device that is known"),
    "rounded_times": Fault(
        "times that are only exact to a quarter of a microsecond",
        "Record it with a newer PyTorch, which writes baseTimeNanoseconds.",
    ),
}


def _trace_quality_summary(sheet: FactSheet) -> str:
    named = [str(fact.value) for fact in sheet.all("fault")]
    more = int(sheet.number("faults")) - len(named)
    return f"The trace shows less than it could: {'; '.join(named)}" + (f"; {more:,} more." if more else ".")


class TraceQuality(RankRule):
    title = "Quality of traces"
    fires_when = (
        "never: it says what is missing or damaged in traces, such as kernels without their launch ({unlaunched} of "
        "them), or a profiler that takes {overhead} of the time"
    )
    measure = Measure("faults")
    informs_only = True
    is_steady = False
    says = (Saying("trace_quality", _trace_quality_summary, advice="Nothing needs to be done."),)

    unlaunched: Share = 0.05
    overhead: Share = 0.05
    stacks: Share = 0.5

    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
        faults = [*damaged(judged.trace.tally), *missing(judged)]
        if not faults:
            return None
        advice = dict.fromkeys(fault.advice for fault in faults if fault.advice)
        return self.found(
            [
                Fact(name="faults", value=len(faults)),
                *(Fact(name="fault", value=fault.words) for fault in faults[:MOST_FAULTS]),
                *(Fact(name="remedy", value=each) for each in advice),
            ],
            severity=Severity.LOW,
            evidence=[fault.words for fault in faults],
        )


def missing(judged: JudgedRank) -> list[Fault]:
    trace = judged.trace
    found = _steps(judged)
    if not len(trace.gpu):
        found.append(_without_work(trace))
    elif not judged.has_gpu:
        found.append(Fault("no work of a GPU in the steps", "Profile steps in which the GPU works."))
    if trace.rank is None:
        advice = "Start torch.distributed before the profiler, or write the rank into the file's name, as in rank3."
        found.append(Fault("no rank", advice))
    # The base time stands behind the events: a file that is cut off has none.
    if not trace.is_cut and (trace.world_size or 1) > 1 and judged.window.start + trace.base_ns < EPOCH_LEAST_NS:
        words = "no time base, so ranks cannot be aligned"
        found.append(Fault(words, DAMAGES["rounded_times"].advice))
    found += _joined(judged)
    kernels = judged.in_window & (trace.gpu.kind <= WorkKind.COMMUNICATION)
    unlaunched = float((judged.window.launch[kernels] < 0).mean()) if kernels.any() else 0.0
    if unlaunched > TraceQuality.unlaunched:
        words = f"{percent(unlaunched)} of the kernels without their launch"
        found.append(Fault(words, "" if trace.is_cut else _WARM_UP))
    return [*found, *_costs(judged)]


# What a trace without work of a GPU may hold, by the reader's count.
_OTHERS = {
    "tpu_planes": Fault("work of TPUs, which is not read", "Open it with XProf; here GPUs are judged."),
    "mtia_events": Fault("work of MTIA, which is not read", "Open it with Perfetto; here GPUs are judged."),
    "ascend_processes": Fault(
        "work of Ascend NPUs, which is not read", "Open it with MindStudio Insight; here GPUs are judged."
    ),
    "begin_events": Fault(
        "events with begin and end apart, which are not read",
        "Record it with torch.profiler, which writes complete events.",
    ),
}


def _without_work(trace: Trace) -> Fault:
    """Say what a trace holds in the place of a GPU's work, and how to record that."""
    other = next((each for what, each in _OTHERS.items() if trace.tally.get(what)), None)
    if other is not None:
        return Fault(f"no work of a GPU, but {other.words}", other.advice)
    if launches := int(starting_work(trace).sum()):
        return Fault(f"no work of a GPU, but {counted(launches, 'launching call')}", _MAY_NOT_RECORD)
    is_pytorch = trace.framework is Framework.PYTORCH
    how = "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]" if is_pytorch else "the tracing of the GPU"
    held = "no work of a GPU, but the host's operators" if len(trace.operators) else "no work of a GPU"
    return Fault(held, f"Profile where the GPU works, with {how}.")


def _steps(judged: JudgedRank) -> list[Fault]:
    window, found = judged.window, []
    if not len(window.steps):
        found.append(Fault("no steps", _MARK_STEPS[judged.trace.framework]))
    elif len(window.steps) < FEW_STEPS:
        found.append(Fault(f"fewer than {FEW_STEPS} steps", "Profile 3 to 10 steps after warm-up."))
    if len(judged.trace.gpu) and (lost := len(judged.lost.at)):
        words = f"{lost:,} of {judged.lost.launches:,} launches without their work on the GPU"
        found.append(Fault(words, "" if judged.trace.is_cut else _WARM_UP))
    if window.steps_lost:
        words = "a step is" if window.steps_lost == 1 else f"{window.steps_lost:,} steps are"
        found.append(Fault(f"{words} not judged, as the file does not hold all of the GPU's work", _WRITE_AGAIN))
    if not window.is_whole:
        words = "work of the GPU may be missing anywhere in the window"
        found.append(Fault(words, _WRITE_AGAIN))
    return found


def _costs(judged: JudgedRank) -> list[Fault]:
    trace, found = judged.trace, []
    spent = clipped(merged(trace.overhead.start, trace.overhead.end), judged.window.start, judged.window.end)
    if judged.share(spent.total) > TraceQuality.overhead:
        words = f"the profiler itself takes {percent(judged.share(spent.total))} of the time"
        found.append(Fault(words, "Record less: with_stack=False, profile_memory=False, fewer steps."))
    stacks = trace.tally.get("stack_bytes", 0) / max(trace.tally.get("text_bytes", 0), 1)
    if stacks > TraceQuality.stacks and not len(trace.functions):
        words = f"{percent(stacks)} of the file are stacks of Python, which nothing here reads"
        found.append(Fault(words, "Set with_stack=False."))
    return found


def _joined(judged: JudgedRank) -> list[Fault]:
    tally = judged.trace.tally
    processes, graphs = tally.get("processes"), tally.get("whole_graphs")
    found = [Fault(f"{judged.counted:,} GPUs, judged by their mean")] if judged.counted > 1 else []
    idle = (gpu.number for gpu in judged.gpus if not gpu.counted)
    found += [Fault(f"GPU {number} with hardly any work, not in the mean") for number in idle]
    if processes:
        found.append(Fault(f"{processes:,} processes, judged as one rank", "Export one process at a time."))
    if mixed := tally.get("mixed_processes"):
        words = f"{mixed:,} processes that launch work in one file: which work is whose is not known"
        found.append(Fault(words, "Judge the ranks' own files, one a rank."))
    if merged := tally.get("merged_ranks"):
        found.append(Fault(f"{merged:,} ranks in one file, judged as one", "Judge the ranks' own files, one a rank."))
    if graphs:
        words = f"no kernels of {graphs:,} runs of CUDA graphs, traced as a whole"
        found.append(Fault(words, "Trace graphs by their nodes: nsys profile --cuda-graph-trace=node."))
    return found


def damaged(tally: dict[str, int]) -> list[Fault]:
    return [
        Fault(f"{fault.words} ({tally[what]:,})", fault.advice) for what, fault in DAMAGES.items() if tally.get(what)
    ]
