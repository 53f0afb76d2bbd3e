"""What ``trainguard gate --json`` prints: facts, and sentences that ``text.py`` makes of them."""

from typing import Literal

import msgspec

from trainguard.gate.noise import Answer
from trainguard.gate.runs import Metric

Why = Literal["change", "no_change", "noise", "stalls", "missing"]
FaultKind = Literal["failed", "not_finite", "cut_short", "unusable"]
CauseKind = Literal["data", "host", "communication", "compute", "checkpoint", "evaluation", "restart", "start_up"]
WarningKind = Literal[
    "about", "length", "missing_steps", "order", "broken_baseline", "assumed_noise", "slow_node", "unread", "unsure"
]


class MetricVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of the candidate beside the baselines.

    name: The scalar or column; empty where none is in all runs.
    baseline, candidate: Medians over the compared steps, in ``unit``; None where they are not compared.
    change: Of the value, as a part of the baseline; of a share its difference. ``interval`` holds it but for a chance
        of 0.5 % on the side that would be a regression, and 2 % on the other.
    worse: The change in the direction of worse: above 0 is worse.
    mean_worse: Of a speed, by which part the mean of all compared steps takes longer, stalls too.
    tolerance: The smallest change for the worse that must not pass.
    noise_between: Standard deviation of a run's level between repeats, estimated with what is known beforehand;
        ``noise_seen`` by these runs alone, None of one a side. ``noise_within``: standard error of a level by the
        scatter of a run's own steps. All are parts of the value, of a share its unit.
    runs_needed: Further runs that decide, if they are like these, ``candidate_runs_needed`` of them of the candidate; 0
        of a metric that is decided, None where even 100 more do not, or no run can.
    """

    metric: Metric
    name: str
    verdict: Answer
    why: Why
    unit: str = ""
    baseline: float | None = None
    candidate: float | None = None
    change: float | None = None
    interval: tuple[float, float] | None = None
    worse: float | None = None
    mean_worse: float | None = None
    tolerance: float = 0.0
    noise_between: float | None = None
    noise_seen: float | None = None
    noise_within: float | None = None
    runs_needed: int | None = 0
    candidate_runs_needed: int | None = 0
    steps: int = 0
    warm_up_steps: int = 0
    windows: int = 0
    reason: str = ""


class ChangedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator or kernel that takes another time in as much work: milliseconds of a step, where steps are known."""

    name: str
    is_kernel: bool
    change: str
    delta_ms: float
    before_ms: float | None
    after_ms: float | None


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of the time grew most.

    share: Of all that grew. before, after: GPU-seconds a step, of a kernel trace seconds; where steps are not known, of
        the run.
    """

    kind: CauseKind
    share: float
    before: float
    after: float
    per_step: bool
    source: Literal["ledger", "kernels"]
    text: str = ""


class GateFault(msgspec.Struct, frozen=True, kw_only=True):
    """What shows without any comparison that a run of the candidate is none that may pass."""

    kind: FaultKind
    verdict: Answer
    text: str


class GateWarning(msgspec.Struct, frozen=True):
    kind: WarningKind
    text: str


class GateVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer on a candidate.

    runs_needed: The most that an inconclusive metric needs; 0 of a decided verdict, None where runs do not help.
    cause: None where nothing is worse, or no ledger and no kernel traces are known of both.
    """

    schema_version: Literal["1"] = "1"
    verdict: Answer
    reason: str
    candidates: list[str]
    baselines: list[str]
    faults: list[GateFault]
    metrics: list[MetricVerdict]
    runs_needed: int | None = 0
    cause: Cause | None = None
    operators: list[ChangedOperator] = []
    warnings: list[GateWarning] = []
