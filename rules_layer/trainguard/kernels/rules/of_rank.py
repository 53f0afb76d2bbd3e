"""Findings on one rank, and how much of a step each explains by itself: no nanosecond counts at two findings.

A GPU that waits for data is idle, too. So findings take their stretches of the GPU's time in turn, causes before
symptoms, and each gets what no finding before it has.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from trainguard.kernels.intervals import Spans, difference, union
from trainguard.kernels.kernel_table import kernel_lines
from trainguard.kernels.rules.finding import Judged, KernelFinding, at_most_medium, in_order, weighed
from trainguard.kernels.rules.idle import TraceStepOutlier
from trainguard.kernels.rules.registry import CAUSES_FIRST
from trainguard.kernels.rules.rule import RankRule
from trainguard.kernels.window import inner


def findings_of(judged: Judged) -> list[KernelFinding]:
    """Return what fires on a rank: what explains most of the time comes first, then by severity."""
    fired = {rule: finding for rule in CAUSES_FIRST if (finding := rule.judge_rank(judged)) is not None}
    unsure = _unsteady(judged, fired)
    found = {rule: _unsure(weighed(finding)) if rule in unsure else weighed(finding) for rule, finding in fired.items()}
    return in_order(_explained(judged, found))


def _unsteady(judged: Judged, fired: Iterable[RankRule]) -> set[RankRule]:
    """Return the rules that fire because of the first or the last step, or by rows that may be missing."""
    window = inner(judged.trace, judged.window)
    if window is None or judged.trace.is_cut:
        return set(fired)
    stale = {rule for rule in fired if rule.is_steady}
    if not stale:
        return set()
    metrics = judged.metrics.within(window)
    within = Judged(metrics, kernel_lines(metrics))
    return {rule for rule in stale if rule.judge_rank(within) is None}


def _unsure(finding: KernelFinding) -> KernelFinding:
    """Return a finding from too few steps or from a part of the rows: of medium severity at most."""
    return replace(finding, confidence="low", severity=at_most_medium(finding.severity))


def _explained(judged: Judged, found: Mapping[RankRule, KernelFinding]) -> list[KernelFinding]:
    """Return findings with their own gains; one of low confidence takes only what no sure one explains."""
    order = sorted(found, key=lambda rule: found[rule].confidence == "low")
    totals = _totals(judged, order)
    return [
        replace(each, gain=min(each.gain, judged.gain(totals[rule]), key=lambda gain: gain.ns_per_step))
        for rule, each in found.items()
    ]


def _totals(judged: Judged, order: Iterable[RankRule]) -> dict[RankRule, float]:
    """Return nanoseconds of the window by rule, which take them in order: the mean over the GPUs that count."""
    totals = dict.fromkeys(order, 0.0)
    counted = [gpu for gpu in judged.metrics.gpus if gpu.counted]
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
