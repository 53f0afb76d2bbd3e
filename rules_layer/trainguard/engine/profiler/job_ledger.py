"""The ledger of a job from the states of its nodes' streams."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trainguard.ledger.assembly import NodeTime, node_ledger, sharing
from trainguard.ledger.bucket import StepShares
from trainguard.ledger.job import Ledger
from trainguard.ledger.spans import Span, without
from trainguard.pricing.cost import Account
from trainguard.state.gpu_time import GpuTime
from trainguard.state.step_time import CHECKPOINT, EVALUATION, StepTime


@dataclass(frozen=True, slots=True)
class PaidNodes:
    """What is paid for: ``account`` without the times in which there were no instances."""

    account: Account
    unpaid: Sequence[Span]
    ended: bool

    @property
    def spans(self) -> list[Span]:
        """When each node is paid for, epoch seconds."""
        started_at, until = self.account.started_at, self.account.watermark_s
        if started_at is None or until is None:
            return []
        return without([(started_at, until)], self.unpaid)

    @property
    def gpus_of_type(self) -> int:
        """How many GPUs an instance has; 0 where that is not known."""
        row = None if self.account.instance_type is None else self.account.table.row(self.account.instance_type)
        return 0 if row is None or row.accelerators is None else row.accelerators.gpus

    @property
    def hourly(self) -> float | None:
        """Price of a node an hour; None where it is not known."""
        known = self.account.instance_type
        return None if known is None else self.account.table.hourly(known)


@dataclass(frozen=True, slots=True)
class SampledNode:
    """Samples of a node's GPUs up to the newest (`GpuTime.finished`), without partitioned ones (``mig_names``)."""

    gpu_names: Sequence[str]
    mig_names: Sequence[str]
    use: GpuTime
    interval_s: float


def job_ledger(
    system: Mapping[str, SampledNode],
    framework: Mapping[str, StepTime],
    paid: PaidNodes,
    shares: StepShares | None = None,
) -> Ledger:
    """Return the ledger of a job from samples and steps by node, and a kernel trace's ``shares``."""
    spans, of_type = paid.spans, paid.gpus_of_type
    seen = max((len(node.gpu_names) for node in system.values()), default=0)
    names = _with_missing({*system, *framework}, paid.account.nodes)
    times, left_out = [], []
    for name in names:
        sampled = system.get(name)
        time = _node_time(name, sampled, framework.get(name), of_type or seen)
        if sampled is not None and sampled.mig_names:
            left_out.append(name)
        if time.gpus:
            times.append(replace(time, paid=spans, ended=paid.ended))
    saver, evaluator = (_lead([time.steps for time in times], column) for column in (CHECKPOINT, EVALUATION))
    nodes = [node_ledger(replace(time, saver=saver, evaluator=evaluator), shares) for time in times]
    return Ledger(nodes, paid.hourly, tuple(left_out), shares)


def _node_time(name: str, sampled: SampledNode | None, steps: StepTime | None, expected: int) -> NodeTime:
    """Return the time of a node: of one with partitioned GPUs only the others count."""
    if sampled is None:
        return NodeTime(name, expected, (), steps=steps)
    gpu_names = tuple(sampled.gpu_names)
    gpus = len(gpu_names) if sampled.mig_names else max(len(gpu_names), expected)
    return NodeTime(name, gpus, (), gpu_names=gpu_names, use=sampled.use, steps=steps, interval_s=sampled.interval_s)


def _with_missing(known: set[str], nodes: int) -> list[str]:
    """Return the names of so many nodes: SageMaker's names for those that have written nothing."""
    missing = [name for name in (f"algo-{number}" for number in range(1, nodes + 1)) if name not in known]
    found = [*known, *missing[: max(nodes - len(known), 0)]]
    return sorted(found, key=lambda name: (len(name), name))


def _lead(steps: Sequence[StepTime | None], column: int) -> StepTime | None:
    """Return the steps of the node that saves, or evaluates, the longest; None where none does."""
    with_samples = [each for each in steps if each is not None and each.grid.column(column).any()]
    return max(
        with_samples, key=lambda each: each.grid.column(column).sum() / max(sharing(each, column), 1), default=None
    )
