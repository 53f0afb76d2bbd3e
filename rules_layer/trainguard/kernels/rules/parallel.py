"""Communication is not hidden, or the training is spread over GPUs in the wrong way."""

import re

import numpy as np

from trainguard.core.finding import Fact, Severity
from trainguard.kernels.columns import Trace, WorkKind
from trainguard.kernels.entries import Evidence, KernelFinding
from trainguard.kernels.rules.finding import SHOWN, JudgedRank, percent, severity
from trainguard.kernels.rules.rule import Number, RankRule, Share, portion
from trainguard.kernels.rules.text import Saying
from trainguard.kernels.times.gpu_times import TraceGpuTime
from trainguard.kernels.times.intervals import Spans, clipped, intersection, merged, union
from trainguard.kernels.work import collectives_of
from trainguard.ledger.bucket import Bucket
from trainguard.rules.change import ChangeCode
from trainguard.rules.rule_result import Measure


class ExposedCommunication(RankRule):
    """Fires where the GPU communicates, all of it without computing, or half of it.

    The value is the exposed share of the time; where that alone is allowed, the overlapping share of communication.
    """

    title = "Exposed communication"
    change = ChangeCode.OVERLAP_COMMUNICATION
    fires_when = (
        "communication without computation takes {exposed} of the time, or under {overlap} of communication that takes "
        "{communicating} of the time overlaps with computation"
    )
    measure = Measure("exposed share of the window")
    claims = (Bucket.COMMUNICATION,)
    takes = "communication_alone"
    summary = (
        "{exposed_share} of the time the GPU communicates and does not compute; {overlap_share} of the "
        "communication overlaps with computation."
    )
    advice = (
        "Overlap it: bucket size, prefetch, gradient accumulation; or send less: hierarchical or "
        "compressed collectives. A kernel that waits for a late rank looks the same: compare the ranks."
    )
    clause = "communication was not hidden behind computation"

    exposed: Share = 0.1
    exposed_high: Share = 0.25
    communicating: Share = 0.1
    overlap: Share = 0.5

    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
        share = judged.share(judged.exposed_communication_ns)
        communicating = judged.share(judged.communication_ns)
        overlap = judged.overlap_ns / judged.communication_ns if judged.communication_ns else 1.0
        much = share >= self.exposed
        if not much and not (communicating >= self.communicating and overlap < self.overlap):
            return None
        return self.found(
            [portion("exposed_share", share, self.exposed), portion("overlap_share", overlap, self.overlap)],
            measured="exposed_share" if much else "overlap_share",
            severity=severity(share, self.exposed, self.exposed_high),
            evidence=_collectives(judged),
            gain=judged.gain(judged.exposed_communication_ns),
        )


def _collectives(judged: JudgedRank) -> list[Evidence]:
    found = []
    for each in collectives_of(judged)[:SHOWN]:
        parts = [each.name, each.group, f"{each.group_size} ranks" if each.group_size else ""]
        parts.append(f"{percent(each.overlap_ns / each.total_ns)} overlaps" if each.total_ns else "")
        if each.bus_gb_per_s is not None:
            parts.append(f"{each.bus_gb_per_s:.2f} GB/s on the bus")
        what = ", ".join(part for part in parts if part)
        found.append(Evidence(what=what, duration_ns=each.total_ns, count=each.count))
    return found


# NCCL needs this capability.
KEPLER = (3, 5)

_DATA_PARALLEL, _DISTRIBUTED = "DataParallel.forward", "DistributedDataParallel.forward"
_COLLECTIVE = re.compile(r"(gloo|mpi|nccl|ucc):\w")
# Part of the name of each vendor's library for collectives: NCCL, RCCL, oneCCL, HCCL.
_OF_GPUS = "ccl"


class WrongParallel(RankRule):
    title = "The wrong kind of data parallelism"
    change = ChangeCode.START_DDP
    fires_when = "DataParallel drives more than {gpus} GPU, or DistributedDataParallel sends gradients without NCCL"
    measure = Measure("GPUs, or share of the window in collectives on the host")
    says = (
        Saying(
            "data_parallel",
            "DataParallel runs on {gpus} GPUs: one process launches for all of them, and copies the model to each of "
            "them in each step. Their kernels take from {least_busy_share} to {most_busy_share} of the time.",
            advice="Use DistributedDataParallel with one process for each GPU.",
            clause="GPUs were driven by one process",
        ),
        Saying(
            "without_nccl",
            "DistributedDataParallel sends gradients by {library} and not by NCCL. Collectives run on the host "
            "{collective_share} of the time, and the GPU is idle {idle_share} of the time.",
            advice='Call torch.distributed.init_process_group(backend="nccl"): it moves gradients from GPU to GPU.',
            clause="gradients were sent by the host",
        ),
    )

    gpus: Number = 1

    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
        return self._data_parallel(judged) or self._without_nccl(judged)

    def stretches(self, judged: JudgedRank, gpu: TraceGpuTime) -> Spans:
        """Return when the GPU is idle: all the time with DataParallel, else in collectives on the host."""
        calls = _calls(judged, _host_collectives(judged.trace))
        if len(_calls(judged, (_DATA_PARALLEL,)).start):
            calls = merged(np.array([judged.window.start]), np.array([judged.window.end]))
        return intersection(gpu.surely_idle, calls)

    def _data_parallel(self, judged: JudgedRank) -> KernelFinding | None:
        """Fire for DataParallel; a step takes a GPU's mean computation at least, and the rest can be won."""
        calls = _calls(judged, (_DATA_PARALLEL,))
        devices = judged.gpus
        if not len(calls.start) or len(devices) <= self.gpus:
            return None
        busy = [device.kernels.total for device in devices]
        return self.found(
            [
                Fact(name="gpus", value=len(devices), threshold=self.gpus),
                portion("least_busy_share", judged.share(min(busy))),
                portion("most_busy_share", judged.share(max(busy))),
            ],
            kind="data_parallel",
            severity=Severity.MEDIUM,
            evidence=[
                *_of_calls(judged, _DATA_PARALLEL, calls)[:1],
                *(
                    Evidence(what=f"kernels of GPU {device.number}", duration_ns=device.kernels.total)
                    for device in devices[: SHOWN - 1]
                ),
            ],
            gain=judged.gain(max(judged.window.length - float(np.mean(busy)), 0)),
        )

    def _without_nccl(self, judged: JudgedRank) -> KernelFinding | None:
        trace = judged.trace
        if not judged.has_gpu or judged.capability < KEPLER or not len(_calls(judged, (_DISTRIBUTED,)).start):
            return None
        libraries = {match[1] for name in trace.names if (match := _COLLECTIVE.match(name))}
        libraries |= {trace.backend.lower()} - {""}
        on_gpu = bool((trace.gpu.kind == WorkKind.COMMUNICATION).any())
        if on_gpu or not libraries or any(_OF_GPUS in each for each in libraries):
            return None
        library = ", ".join(sorted(libraries))
        waits = _calls(judged, _host_collectives(trace))
        idle = intersection(waits, judged.gaps).total
        return self.found(
            [
                Fact(name="library", value=library),
                portion("collective_share", judged.share(waits.total)),
                portion("idle_share", judged.share(idle)),
            ],
            kind="without_nccl",
            measured="collective_share",
            severity=Severity.MEDIUM,
            evidence=_of_calls(judged, f"collectives of {library}", waits) or [library],
            gain=judged.gain(idle),
        )


def _host_collectives(trace: Trace) -> tuple[str, ...]:
    return tuple(name for name in trace.names if _COLLECTIVE.match(name))


def _calls(judged: JudgedRank, names: tuple[str, ...]) -> Spans:
    """Return when the host is in annotations or operators of these names; old traces have the former as the latter."""
    trace, window = judged.trace, judged.window
    numbers = trace.numbers_of(set(names).__contains__)
    found = []
    for rows in (trace.annotations, trace.operators):
        mine = np.isin(rows.name, numbers)
        found.append(merged(rows.start[mine], rows.end[mine]))
    return clipped(union(*found), window.start, window.end)


def _of_calls(judged: JudgedRank, what: str, calls: Spans) -> list[Evidence]:
    return [judged.several(what, calls.start, calls.end)] if len(calls.start) else []
