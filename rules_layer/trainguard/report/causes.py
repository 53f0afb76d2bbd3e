"""Which finding is the thing to change, what stands or falls with it, and what it looks like in words."""

from collections.abc import Callable, Mapping, Sequence

from trainguard.engine.findings import EXPLAINED_SHARE, Finding
from trainguard.engine.slots import Verdict
from trainguard.records import Status
from trainguard.rules.batch_size import BatchSize
from trainguard.rules.cpu_bottleneck import CPUBottleneck
from trainguard.rules.dataloader import Dataloader
from trainguard.rules.gpu_memory_increase import GPUMemoryIncrease
from trainguard.rules.io_bottleneck import IOBottleneck
from trainguard.rules.load_balancing import LoadBalancing
from trainguard.rules.low_gpu_utilization import LowGPUUtilization
from trainguard.rules.max_initialization_time import MaxInitializationTime
from trainguard.rules.step_outlier import StepOutlier
from trainguard.rules.units import show_percent

Words = Callable[[Finding, Verdict], str]
NO_REASON = "for no reason that the profile shows"
_BETWEEN_SHARE = 0.5
"""What lies between the steps is named where it is at least this part of what low GPUs waste."""

BOTTLENECKS: Mapping[str, str] = {
    CPUBottleneck.name: "the CPU cores could not keep up with the GPUs",
    IOBottleneck.name: "the GPUs waited for storage or other I/O",
}


def root_of(findings: Sequence[Finding]) -> Finding | None:
    """Return the cause at the end of the gravest finding's chain of explanations; None without findings."""
    return _root(findings[0], findings) if findings else None


def group_of(root: Finding, findings: Sequence[Finding]) -> list[Finding]:
    """Return a cause with all that it explains, be it through others: what they waste is the same waste."""
    return [finding for finding in findings if _root(finding, findings).rule == root.rule]


def other_roots(root: Finding, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that nothing explains, without ``root``."""
    return [finding for finding in findings if finding.explained_by is None and finding.rule != root.rule]


def wasted_share(group: Sequence[Finding], nodes: int) -> float | None:
    """Return the share, 0 to 1, of the nodes' paid time that a group has wasted; None where no rule can say.

    Findings that explain one another see the same loss from different sides, so the largest counts.
    """
    wasted = [finding.wasted_nodes for finding in group if finding.wasted_nodes is not None]
    return min(max(wasted) / nodes, 1.0) if wasted and nodes else None


def looks_low(group: Sequence[Finding]) -> bool:
    """Tell whether GPUs that are not busy are part of what was found."""
    return any(finding.rule in _LOW_GPUS for finding in group)


def joined_with(use: str, finding: Finding, verdict: Verdict, hint: str | None = None) -> str:
    """Say how busy the GPUs were and, as its reason, what was found; ``hint`` is what may be behind low GPUs."""
    if finding.rule == LowGPUUtilization.name and finding.idle_node is None:
        return f"{use}, {NO_REASON if hint is None else hint}"
    return f"{use}, because {in_words(finding, verdict)}"


def hint_of(finding: Finding, quiet: Mapping[str, tuple[int, int]]) -> str | None:
    """Say what low GPUs waited for in a good part of the time, though too rarely for the rule on it to fire.

    ``quiet`` holds, of each such rule, in how many points it was seen and how many were judged.
    """
    shares = {rule: hits / judged for rule, (hits, judged) in quiet.items() if judged}
    rule = max(shares, key=lambda each: shares[each], default=None)
    if rule is None or finding.wasted_share is None or shares[rule] < EXPLAINED_SHARE * finding.wasted_share:
        return None
    return f"in part because {BOTTLENECKS[rule]}, in {show_percent(100.0 * shares[rule])} of the points"


def lies_between_steps(finding: Finding, between: float | None) -> bool:
    """Tell whether low GPUs can be those of the time between steps: ``between``, 0 to 1, is its share of the loop."""
    if finding.rule != LowGPUUtilization.name or finding.idle_node is not None:
        return False
    wasted = finding.wasted_share
    return between is not None and wasted is not None and between >= _BETWEEN_SHARE * wasted


def between_steps(share: float) -> str:
    """Say what goes with low GPUs, where nothing else does."""
    return f"with {show_percent(100.0 * share)} of the training loop between the steps, where batches are loaded"


def in_words(finding: Finding, verdict: Verdict) -> str:
    """Say what was found as a clause in the past tense, for example ``the GPUs waited for the CPU cores``."""
    words = _WORDS.get(finding.rule)
    return f"{finding.rule} fired" if words is None else words(finding, verdict)


def _root(finding: Finding, findings: Sequence[Finding]) -> Finding:
    by_rule = {each.rule: each for each in findings}
    while finding.explained_by is not None and finding.explained_by in by_rule:
        finding = by_rule[finding.explained_by]
    return finding


def _node_of(finding: Finding) -> str:
    return "a node" if finding.worst is None else finding.worst.partition("/")[0]


def _low_gpus(finding: Finding, _: Verdict) -> str:
    if finding.idle_node == "never used":
        return f"the GPUs of {_node_of(finding)} were never used"
    if finding.idle_node == "idle":
        return f"the GPUs of {_node_of(finding)} stopped working"
    return f"the GPUs were not kept busy, {NO_REASON}"


def _memory(finding: Finding, _: Verdict) -> str:
    return f"the memory activity of {_place(finding.worst) if finding.worst else 'a GPU'} rose"


def _place(worst: str) -> str:
    node, slash, gpu = worst.partition("/")
    return f"{gpu} on {node}" if slash else worst


def _balance(finding: Finding, _: Verdict) -> str:
    across_nodes = finding.nodes[1] > 1 and "/" not in (finding.worst or "")
    return f"the {'nodes' if across_nodes else 'GPUs'} did not share the work evenly"


def _loaders(_: Finding, verdict: Verdict) -> str:
    judgement = verdict.judgement
    if judgement.status is not Status.FIRED or judgement.measured is None or judgement.threshold is None:
        return "the number of data loader processes did not fit the cores"
    number = "few" if judgement.measured < judgement.threshold else "many"
    return f"there were too {number} data loader processes for the cores"


def _always(text: str) -> Words:
    return lambda *_: text


_WORDS: Mapping[str, Words] = {
    BatchSize.name: _always("the batches, or the whole job, were too small for the instance"),
    **{rule: _always(text) for rule, text in BOTTLENECKS.items()},
    Dataloader.name: _loaders,
    GPUMemoryIncrease.name: _memory,
    LoadBalancing.name: _balance,
    LowGPUUtilization.name: _low_gpus,
    MaxInitializationTime.name: _always("the first training step came too late"),
    StepOutlier.name: _always("too much time went into slow steps"),
}
_LOW_GPUS = frozenset({BatchSize.name, CPUBottleneck.name, IOBottleneck.name, LowGPUUtilization.name})
