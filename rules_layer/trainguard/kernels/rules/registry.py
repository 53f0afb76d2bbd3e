"""The rules over kernel profiles, and what they find on one rank: no nanosecond counts at two findings.

A GPU that waits for data is idle, too. So findings take their stretches of the GPU's time in turn, causes before
symptoms, and each gets what no finding before it has.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from trainguard.kernels.entries import KernelFinding
from trainguard.kernels.memory.entries import GpuMemory
from trainguard.kernels.rules.allocator import MemoryRule, worst
from trainguard.kernels.rules.finding import JudgedRank, at_most_medium, in_order, weighed
from trainguard.kernels.rules.rule import KernelRule, RankRule
from trainguard.kernels.times.intervals import Spans, difference, union
from trainguard.kernels.times.window import inner
from trainguard.kernels.verdict import RuleVerdict
from trainguard.rules import family_rules
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.spec import RuleSpec

KERNEL_RULES: tuple[KernelRule, ...] = family_rules.made("trainguard.kernels.rules", family_rules.KERNEL_RULES)
MEMORY_RULES = tuple(rule for rule in KERNEL_RULES if isinstance(rule, MemoryRule))
_BY_NAME: Mapping[str, KernelRule] = {rule.name: rule for rule in KERNEL_RULES}

# Rules over one rank take the time that they explain in this order, causes before symptoms; others take none.
_TAKING = (
    "LoaderBound",
    "WrongParallel",
    "SyncStall",
    "LaunchBound",
    "SmallKernelStorm",
    "ExposedCommunication",
    "PageableCopy",
    "MemcpyBound",
    "GpuGap",
    "GpuBusyLow",
    "LowPrecisionUnused",
    "TensorCoresIdle",
    "SlowOperators",
    "SmUnderfilled",
    "TraceStepOutlier",
)
_OVER_A_RANK = {family_rules.bare(rule.name): rule for rule in KERNEL_RULES if isinstance(rule, RankRule)}
CAUSES_FIRST = tuple({**{name: _OVER_A_RANK[name] for name in _TAKING}, **_OVER_A_RANK}.values())

PARAMETERS_TYPES: Mapping[str, type[RuleParameters]] = {rule.name: rule.parameters_type for rule in KERNEL_RULES}

SPECS: Mapping[str, RuleSpec] = {rule.name: rule.spec for rule in KERNEL_RULES}


def words_of(found: RuleVerdict) -> tuple[str, str]:
    """Return the finding's words and its advice."""
    return _BY_NAME[found.rule].words(found.kind, found.facts)


def findings_of(judged: JudgedRank) -> list[KernelFinding]:
    """Return what fires on a rank: what explains most of the time comes first, then by severity."""
    fired = {rule: finding for rule in CAUSES_FIRST if (finding := rule.judge_rank(judged)) is not None}
    unsure = _unsteady(judged, fired)
    found = {rule: _unsure(weighed(finding)) if rule in unsure else weighed(finding) for rule, finding in fired.items()}
    return in_order(_explained(judged, found))


def memory_findings(memory: Sequence[GpuMemory]) -> list[KernelFinding]:
    """Return what fires on the memory of a snapshot's GPUs, the severest first."""
    found = (worst(rule.judge_memory(each) for each in memory) for rule in MEMORY_RULES)
    return sorted((each for each in found if each is not None), key=lambda each: -each.severity.rank)


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
            totals[rule] += rule.beyond(judged, taken) / len(counted)
    return totals
