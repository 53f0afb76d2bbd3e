"""What is said of GPUs that are low, and of nodes that idle: sentences, advice, and the report's details."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from trainguard.rules.details import Details
from trainguard.rules.low_gpu_activity import SM, Hollow
from trainguard.rules.low_gpu_idle import IDLE_FINDING_S, Idleness, Look
from trainguard.rules.low_gpu_pauses import RegularBreaks, regular_breaks
from trainguard.rules.quantiles import counted_boxes
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.symptoms import NO_REASON
from trainguard.rules.units import counted, show_duration, show_number, show_percent
from trainguard.state.sample_window import ACTIVE_PERCENT

Kind = Literal["under", "fluctuating"]

IDLE_TIME = Measure("time without a GPU in use", "min")
WEAK_MEAN = Measure("mean utilization of the busiest GPU without an active one", "%")
QUIET_MEAN = Measure("mean utilization of the busiest GPU while nearly idle", "%")
PAUSED = Measure("time in regular pauses", "%")
SM_P95 = Measure("95th percentile of SM activity", "%")
TENSOR_P95 = Measure("95th percentile of the activity of tensor cores and memory", "%")
FINDINGS: Mapping[Look, str] = {
    "unused": "never used",
    "silent": "idle",
    "quiet": "nearly idle",
    "weak": "under-used",
}
UTILIZATION = "GPU utilization"
"""The measure of every finding but that of a hollow GPU."""

_PAUSES = re.compile(r" pause (for [^,]+ every [^,]+),")

IDLE_PERCENT = 1.0
"""A GPU whose 95th percentile is below it does nothing."""

LEFT_OUT_SHARE = 0.2
"""So much of the points left out as pauses is said beside the verdict on the others."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What one ever-active GPU did over the newest window; ``kind`` is None while nothing is wrong or not judged."""

    gpu: str
    points: int
    judged: bool
    p95: float
    p5: float
    kind: Kind | None


class GpuUsage(msgspec.Struct, frozen=True):
    """A GPU: ``gpu_95`` and ``gpu_5`` are of the newest window, None until it is judged; the rest of all points."""

    gpu_max: float
    gpu_95: float | None
    gpu_5: float | None
    p25: float | None
    p50: float | None
    p75: float | None
    p95: float | None
    upper: float | None
    lower: float | None
    kind: str | None


class LowGpuDetails(Details, frozen=True, kw_only=True):
    """A node's GPUs; ``last_timestamp`` is the watermark, epoch microseconds.

    ``finding`` is that of an idle or under-used node, or of an idle GPU that holds memory; ``memory`` is "held", "free"
    or "not collected". ``measure`` is what the verdict was taken from: "GPU utilization", "SM activity", or "activity
    of tensor cores and memory".
    """

    gpus: dict[str, GpuUsage]
    never_active: list[str]
    last_timestamp: int | None
    finding: str | None = None
    memory: str | None = None
    measure: str = UTILIZATION


def details_of(view: NodeView, usages: Sequence[Usage]) -> LowGpuDetails:
    """Return quantiles of the newest window, and the box of all kept points, of each GPU that has some."""
    boxes = dict(zip(view.gpu_names, counted_boxes(view.gpu_histogram), strict=True))
    gpus = {}
    for usage in usages:
        if not usage.points:
            continue
        box = boxes[usage.gpu]
        gpus[usage.gpu] = GpuUsage(
            gpu_max=box.largest,
            gpu_95=usage.p95 if usage.judged else None,
            gpu_5=usage.p5 if usage.judged else None,
            p25=box.p25,
            p50=box.p50,
            p75=box.p75,
            p95=box.p95,
            upper=box.upper,
            lower=box.lower,
            kind=usage.kind,
        )
    active = {usage.gpu for usage in usages}
    return LowGpuDetails(
        gpus=gpus,
        never_active=[gpu for gpu in view.gpu_names if gpu not in active],
        last_timestamp=None if view.watermark_s is None else round(view.watermark_s * 1e6),
    )


def sentence_of(usage: Usage, view: NodeView, window: int, thresholds: tuple[float, float]) -> str:
    """Say what a GPU did over a window of so many points, against the thresholds of the 95th and 5th percentile."""
    span = f"the last {window:,} points ({show_duration(window * view.interval_s)})"
    high = f"{show_percent(usage.p95)} (threshold {show_percent(thresholds[0])})"
    low = f"{show_percent(usage.p5)} (threshold {show_percent(thresholds[1])})"
    where = f"{usage.gpu} on {view.node}"
    if usage.kind == "under":
        return f"{where}: 95 % of {span} have a {UTILIZATION} of at most {high}"
    if usage.kind == "fluctuating":
        busiest = f"of {span} the busiest 5 % have a {UTILIZATION} of at least {high}"
        return f"{where}: {busiest}, but the idlest 5 % of at most {low}"
    return (
        f"{where}, the least busy GPU: over {span} the 95th percentile of its {UTILIZATION} is {high} and the 5th {low}"
    )


def lasting_of(points: int, view: NodeView, needed: int | None) -> str:
    """Say for how many points a GPU has been low; ``needed`` is from how many on it counts, None where it does."""
    lasted = f", for {counted(points, 'point')} ({show_duration(points * view.interval_s)})" if points else ", just now"
    return lasted if needed is None else f"{lasted}; that counts from {counted(needed, 'point')} on"


def cost_of(cost: float, gate: float | None) -> str:
    """Say which share of the time the dips cost; ``gate`` is from which on that is worth an alert, if it is not."""
    said = f"; the dips cost {show_percent(100.0 * cost)} of that time"
    return said if gate is None else f"{said}, and count from {show_percent(100.0 * gate)} on"


def pauses_of(view: NodeView) -> str:
    """Say how the node pauses: regularly, at what cost, and how much of its time was left out for that."""
    said = ""
    if (breaks := regular_breaks(view)) is not None:
        said += f" {_capitalised(breaks_sentence(breaks, view))}."
    paused = view.idle_time.paused
    if paused and paused >= LEFT_OUT_SHARE * (view.kept_total + paused):
        share = 100.0 * paused / (view.kept_total + paused)
        said += f" {show_percent(share)} of the points of {view.node} were left out as pauses."
    return said


def breaks_sentence(breaks: RegularBreaks, view: NodeView) -> str:
    """Say how the GPUs pause, without a full stop."""
    return (
        f"the GPUs of {view.node} pause for {show_duration(breaks.length_s)} every {show_duration(breaks.period_s)}, "
        f"{show_percent(100.0 * breaks.of_paid)} of the paid time, as saving a checkpoint, evaluating or "
        "preprocessing does"
    )


def breaks_advice(breaks: RegularBreaks, view: NodeView) -> str:
    """Say what to do about pauses that cost much."""
    return (
        f"Save, evaluate or preprocess less often, or do so while training goes on: in every "
        f"{show_duration(breaks.period_s)} the GPUs of {view.node} do nothing for {show_duration(breaks.length_s)}."
    )


def advice_on(worst: Usage, view: NodeView) -> str:
    """Say what to do about a GPU that is low for long."""
    if worst.kind == "fluctuating":
        return (
            f"Look for what {worst.gpu} on {view.node} waits for again and again, idle at {show_percent(worst.p5)} and "
            f"then busy at {show_percent(worst.p95)}: data, checkpoints, other workers or blocking calls between steps."
        )
    if worst.p95 < IDLE_PERCENT:
        return (
            f"Look at the process of {worst.gpu} on {view.node}, at its log, and at the GPU (Xid errors in dmesg, "
            "nvidia-smi -q): it does nothing."
        )
    return (
        f"Raise the batch size, make fewer blocking calls, or distribute the work in another way; if the GPUs have "
        f"nothing more to do and cores are free, take a smaller instance: {worst.gpu} on {view.node} leaves "
        f"{show_percent(100.0 - worst.p95)} or more unused in 95 % of the newest points."
    )


def hollow_sentence(hollow: Sequence[Hollow], view: NodeView) -> str:
    """Say that GPUs look busy and use little of themselves."""
    worst = hollow[0]
    more = f"; {len(hollow)} GPUs of {view.node} do so" if len(hollow) > 1 else ""
    power = f", at {show_number(worst.power)} W" if worst.measure != SM and worst.power else ""
    return (
        f"{worst.gpu} on {view.node} looks {show_percent(worst.busy)} busy, but 95 % of its last "
        f"{counted(worst.minutes, 'minute')} of work have an {worst.measure} of at most {show_percent(worst.p95)} "
        f"(threshold {show_percent(worst.threshold)}){power}{more}"
    )


def hollow_advice(worst: Hollow, view: NodeView) -> str:
    """Say what to do about a GPU whose kernels leave most of it unused."""
    what = "its multiprocessors" if worst.measure == SM else "its tensor cores and its memory"
    return (
        f"Raise the batch size, fuse small kernels (torch.compile, CUDA graphs), or share {worst.gpu} on {view.node}: "
        f"its kernels leave {show_percent(100.0 - worst.p95)} of {what} unused; a kernel profile names them."
    )


def idle_sentence(idleness: Idleness, view: NodeView, kind: str = "", more: str = "", *, past: bool = False) -> str:
    """Say for how long no GPU of a node works; ``kind`` ends the finding's name, ``more`` the sentence.

    ``past`` says that it is over; of a stream that has ended it is.
    """
    verb = "was" if past or view.closed else "has been"
    idle = show_duration(idleness.seconds)
    since = " since its first sample" if idleness.at_start else ""
    reason = {
        "unused": f"no GPU of {view.node} was used in the {idle}{since}",
        "silent": f"every GPU of {view.node} {verb} idle for {idle}",
        "quiet": (
            f"for {idle}{since} no GPU of {view.node} was busier than "
            f"{show_percent(view.idle_time.highest_mean)} on average"
        ),
        "weak": (
            f"for {idle}{since} no GPU of {view.node} had a {UTILIZATION} of {show_percent(ACTIVE_PERCENT)} or more; "
            f"the busiest had {show_percent(view.idle_time.run_mean)} on average"
        ),
    }[idleness.look]
    return f"{FINDINGS[idleness.look]}{kind}: {reason} (allowed {show_duration(IDLE_FINDING_S)}){more}."


def idle_advice(idleness: Idleness, view: NodeView, *, past: bool = False) -> str:
    """Say what to do about a node that idles; ``past`` says that it works again."""
    cost, past = f"{show_duration(idleness.seconds)} were paid for without use.", past or view.closed
    if idleness.look == "weak":
        work, leave = ("worked", "left") if past else ("work", "leave")
        return (
            f"Raise the batch size, feed the GPUs of {view.node} faster, or take a smaller instance: they {work}, and "
            f"{leave} most of their time unused."
        )
    if idleness.look == "silent":
        hangs = "Find out what the job waited for, or why it hung," if past else "Check whether the job hangs"
        return f"{hangs} on {view.node}{'' if past else ', and stop it if it does'}: {cost}"
    if idleness.look == "quiet":
        does, needs = ("did", "needed") if past else ("does", "needs")
        return f"Check what the job {does} on {view.node}, and whether that {needs} GPUs: {cost}"
    return f"Check that the script places the model on the GPUs of {view.node}: {cost}"


def clause_of(result: RuleResult, _: int) -> str:
    """Say what was found on a job."""
    node = "a node" if result.worst is None else result.worst.partition("/")[0]
    if result.idle_node is not None:
        return _idle_clause(result, node)
    if result.measure == WEAK_MEAN:
        return f"the GPUs of {node} were hardly used"
    if result.measure == SM_P95 and ".mig" in (result.worst or ""):
        return f"instances of the partitioned GPUs of {node} were hardly used"
    if result.measure in {SM_P95, TENSOR_P95}:
        return f"the GPUs of {node} looked busy and used little of themselves"
    if result.measure == PAUSED:
        said = _PAUSES.search(result.reason)
        return f"the GPUs of {node} paused {'too often, or for too long' if said is None else said.group(1)}"
    return f"the GPUs were not kept busy, {NO_REASON}"


def _idle_clause(result: RuleResult, node: str) -> str:
    # What is over is retold by its sentence, without its measure.
    if ", memory held: " in result.reason:
        return f"the GPUs of {node} were idle and held memory"
    if f"{FINDINGS['quiet']}: " in result.reason:
        return f"the GPUs of {node} were nearly idle"
    return f"the GPUs of {node} {'were never used' if result.idle_node == 'never used' else 'stopped working'}"


def _capitalised(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
