"""The rules over one rank's kernel profile, and their findings in order."""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from trainguard.finding import Severity
from trainguard.kernels.findings.computation import low_precision_unused, sm_underfilled, tensor_cores_idle
from trainguard.kernels.findings.explained import explained
from trainguard.kernels.findings.finding import Judged, KernelFinding, in_order
from trainguard.kernels.findings.gpu_time import (
    gpu_busy_low,
    gpu_gap,
    launch_bound,
    loader_bound,
    small_kernel_storm,
    sync_stall,
)
from trainguard.kernels.findings.parallelism import wrong_parallel
from trainguard.kernels.findings.steps_and_trace import gpu_memory_full, queue_full, step_outlier
from trainguard.kernels.findings.trace_quality import trace_quality
from trainguard.kernels.findings.transfers import exposed_communication, memcpy_bound, pageable_copy
from trainguard.kernels.kernel_table import kernel_table
from trainguard.kernels.window import inner

Rule = Callable[[Judged], KernelFinding | None]

RULES: Sequence[Rule] = (
    loader_bound,
    sync_stall,
    launch_bound,
    small_kernel_storm,
    exposed_communication,
    memcpy_bound,
    pageable_copy,
    wrong_parallel,
    gpu_gap,
    gpu_busy_low,
    tensor_cores_idle,
    low_precision_unused,
    sm_underfilled,
    step_outlier,
    gpu_memory_full,
    queue_full,
    trace_quality,
)


STEADY = frozenset(RULES) - {step_outlier, gpu_memory_full, queue_full, trace_quality}
"""Rules that have to fire without the first and the last step, too; else their confidence is low."""

SMALL_GAIN = 0.01
"""What could win less than that of the window is of low severity, whatever its value."""


def findings_of(judged: Judged) -> list[KernelFinding]:
    """Return what fires on a rank: what explains most of the time comes first, then by severity."""
    fired = {rule: finding for rule in RULES if (finding := rule(judged)) is not None}
    unsure = _unsteady(judged, fired)
    weighed = {rule: _weighed(finding) for rule, finding in fired.items()}
    found = [_unsure(finding) if rule in unsure else finding for rule, finding in weighed.items()]
    return in_order(explained(judged, found))


def _unsteady(judged: Judged, fired: Iterable[Rule]) -> set[Rule]:
    """Return the rules that fire because of the first or the last step, or by rows that may be missing.

    All where there are too few steps to know, or the file is cut off.
    """
    window = inner(judged.trace, judged.window)
    if window is None or judged.trace.is_cut:
        return set(fired)
    doubted = STEADY & set(fired)
    if not doubted:
        return set()
    metrics = judged.metrics.within(window)
    within = Judged(metrics, kernel_table(metrics))
    return {rule for rule in doubted if rule(within) is None}


def _weighed(finding: KernelFinding) -> KernelFinding:
    small = finding.gain.ns_per_step > 0 and finding.gain.share < SMALL_GAIN
    return replace(finding, severity=Severity.LOW) if small else finding


def _unsure(finding: KernelFinding) -> KernelFinding:
    """Return a finding from too few steps or from a part of the rows: of medium severity at most."""
    capped = min(finding.severity, Severity.MEDIUM, key=lambda each: each.rank)
    return replace(finding, confidence="low", severity=capped)
