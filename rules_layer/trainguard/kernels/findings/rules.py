"""The rules over one rank's kernel profile, and their findings in order."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from trainguard.finding import Severity
from trainguard.kernels.findings.computation import low_precision_unused, sm_underfilled, tensor_cores_idle
from trainguard.kernels.findings.finding import FEW_STEPS, Judged, KernelFinding
from trainguard.kernels.findings.gpu_time import (
    gpu_busy_low,
    gpu_gap,
    launch_bound,
    loader_bound,
    small_kernel_storm,
    sync_stall,
)
from trainguard.kernels.findings.steps_and_trace import gpu_memory_full, queue_full, step_outlier, trace_quality
from trainguard.kernels.findings.transfers import exposed_communication, memcpy_bound, pageable_copy

RULES: Sequence[Callable[[Judged], KernelFinding | None]] = (
    loader_bound,
    sync_stall,
    launch_bound,
    small_kernel_storm,
    exposed_communication,
    memcpy_bound,
    pageable_copy,
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


SMALL_GAIN = 0.01
"""What could win less than that of the window is of low severity, whatever its value."""


def findings_of(judged: Judged) -> list[KernelFinding]:
    """Return what fires on a rank: most severe first, then the most that can be won."""
    found = [finding for rule in RULES if (finding := rule(judged)) is not None]
    found = [_weighed(finding) for finding in found]
    if len(judged.window.steps) < FEW_STEPS:
        found = [_unsure(finding) for finding in found]
    return sorted(found, key=lambda finding: (-finding.severity.rank, -finding.gain.ns_per_step))


def _weighed(finding: KernelFinding) -> KernelFinding:
    small = finding.gain.ns_per_step > 0 and finding.gain.share < SMALL_GAIN
    return replace(finding, severity=Severity.LOW) if small else finding


def _unsure(finding: KernelFinding) -> KernelFinding:
    """Return a finding from too few steps: of medium severity at most."""
    capped = min(finding.severity, Severity.MEDIUM, key=lambda each: each.rank)
    return replace(finding, confidence="low", severity=capped)
