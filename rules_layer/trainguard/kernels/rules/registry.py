"""The rules over kernel profiles, and what they find on one rank: no nanosecond counts at two findings.

A GPU that waits for data is idle, too. So findings take their stretches of the GPU's time in turn, causes before
symptoms, and each gets what no finding before it has.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from trainguard.kernels.entries import KernelFinding
from trainguard.kernels.rules.allocator import MEMORY_RULES
from trainguard.kernels.rules.compute import LowPrecisionUnused, SmUnderfilled, TensorCoresIdle
from trainguard.kernels.rules.finding import JudgedRank, at_most_medium, in_order, weighed
from trainguard.kernels.rules.host import LaunchBound, LoaderBound, QueueFull, SmallKernelStorm, SyncStall
from trainguard.kernels.rules.idle import GpuBusyLow, GpuGap, TraceStepOutlier
from trainguard.kernels.rules.memory import GpuMemoryFull, MemcpyBound, PageableCopy
from trainguard.kernels.rules.operators import SlowOperators
from trainguard.kernels.rules.parallel import ExposedCommunication, WrongParallel
from trainguard.kernels.rules.ranks import LateRank, SlowRank
from trainguard.kernels.rules.rule import KernelRule, RankRule
from trainguard.kernels.rules.text import words
from trainguard.kernels.rules.trace_quality import TraceQuality
from trainguard.kernels.times.intervals import Spans, difference, union
from trainguard.kernels.times.window import inner
from trainguard.kernels.verdict import RuleVerdict
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.spec import RuleSpec

_LAST_RULES: tuple[RankRule, ...] = (
    TraceStepOutlier(),
    GpuMemoryFull(),
    *MEMORY_RULES,
    QueueFull(),
    TraceQuality(),
)

KERNEL_RULES: tuple[KernelRule, ...] = (
    GpuBusyLow(),
    GpuGap(),
    LoaderBound(),
    LaunchBound(),
    SmallKernelStorm(),
    SyncStall(),
    ExposedCommunication(),
    MemcpyBound(),
    PageableCopy(),
    WrongParallel(),
    TensorCoresIdle(),
    LowPrecisionUnused(),
    SlowOperators(),
    SmUnderfilled(),
    *_LAST_RULES,
    LateRank(),
    SlowRank(),
)

# The rules over one rank in the order in which they take what they explain: causes before symptoms.
CAUSES_FIRST: tuple[RankRule, ...] = (
    LoaderBound(),
    WrongParallel(),
    SyncStall(),
    LaunchBound(),
    SmallKernelStorm(),
    ExposedCommunication(),
    PageableCopy(),
    MemcpyBound(),
    GpuGap(),
    GpuBusyLow(),
    LowPrecisionUnused(),
    TensorCoresIdle(),
    SlowOperators(),
    SmUnderfilled(),
    *_LAST_RULES,
)

PARAMETERS_TYPES: Mapping[str, type[RuleParameters]] = {rule.name: rule.parameters_type for rule in KERNEL_RULES}

SPECS: Mapping[str, RuleSpec] = {rule.name: rule.spec for rule in KERNEL_RULES}


def words_of(found: RuleVerdict) -> tuple[str, str]:
    """Return the finding's words and its advice; importing this module gives the words of all rules."""
    return words(found.kind, found.facts)


def findings_of(judged: JudgedRank) -> list[KernelFinding]:
    """Return what fires on a rank: what explains most of the time comes first, then by severity."""
    fired = {rule: finding for rule in CAUSES_FIRST if (finding := rule.judge_rank(judged)) is not None}
    unsure = _unsteady(judged, fired)
    found = {rule: _unsure(weighed(finding)) if rule in unsure else weighed(finding) for rule, finding in fired.items()}
    return in_order(_explained(judged, found))


def _unsteady(judged: JudgedRank, fired: Iterable[RankRule]) -> set[RankRule]:
    """Return the rules that fire because of the first or the last step, or by rows that may be missing."""
    window = inner(judged.trace, judged.window)
    if window is None or judged.trace.is_cut or judged.trace.is_mixed or judged.lost.matters:
        return set(fired)
    steady = {rule for rule in fired if rule.is_steady}
    if not steady:
        return set()
    within = judged.within(window)
    return {rule for rule in steady if rule.judge_rank(within) is None}


def _unsure(finding: KernelFinding) -> KernelFinding:
    """Return a finding from too few steps or from a part of the rows: of medium severity at most."""
    return replace(finding, confidence="low", severity=at_most_medium(finding.severity))


def _explained(judged: JudgedRank, found: Mapping[RankRule, KernelFinding]) -> list[KernelFinding]:
    """Return findings with their own gains; one of low confidence takes only what no sure one explains."""
    order = sorted(found, key=lambda rule: found[rule].confidence == "low")
    totals = _totals(judged, order)
    return [
        replace(each, gain=min(each.gain, judged.gain(totals[rule]), key=lambda gain: gain.ns_per_step))
        for rule, each in found.items()
    ]


def _totals(judged: JudgedRank, order: Iterable[RankRule]) -> dict[RankRule, float]:
    """Return nanoseconds of the window by rule, which take them in order: the mean over the GPUs that count."""
    totals = dict.fromkeys(order, 0.0)
    counted = [gpu for gpu in judged.gpus if gpu.counted]
    for gpu in counted:
        taken = Spans(gpu.busy.start[:0], gpu.busy.end[:0])
        for rule in totals:
            own = difference(rule.stretches(judged, gpu), taken)
            taken = union(taken, own)
            totals[rule] += own.total * rule.counts_for / len(counted)
        for rule in totals:
            if isinstance(rule, TraceStepOutlier):
                totals[rule] += rule.beyond(judged, taken) / len(counted)
    return totals
