"""A rule on how the training is spread over GPUs: DataParallel, and DistributedDataParallel without NCCL."""

import re

import numpy as np

from trainguard.finding import Fact, Severity
from trainguard.kernels.columns import Kind, Trace
from trainguard.kernels.findings.finding import FAMILY, SHOWN, Evidence, Judged, KernelFinding
from trainguard.kernels.findings.text import KernelKind, portion, said
from trainguard.kernels.gpu_devices import devices_of
from trainguard.kernels.intervals import Spans, clipped, difference, merged, union

ONE_GPU = 1
KEPLER = (3, 5)
"""NCCL needs this capability."""

_DATA_PARALLEL, _DISTRIBUTED = "DataParallel.forward", "DistributedDataParallel.forward"
_COLLECTIVE = re.compile(r"(gloo|mpi|nccl|ucc):\w")
_OF_GPUS = "ccl"
"""Part of the name of each vendor's library for collectives: NCCL, RCCL, oneCCL, HCCL."""


def wrong_parallel(judged: Judged) -> KernelFinding | None:
    """Fire where one process drives several GPUs by DataParallel, or DistributedDataParallel does not use NCCL."""
    return _data_parallel(judged) or _without_nccl(judged)


def parallel_spans(judged: Judged) -> Spans:
    """Return when the kind of parallelism holds a GPU up: all the time with DataParallel, else in host collectives."""
    window = judged.window
    if len(_calls(judged, (_DATA_PARALLEL,)).start):
        return merged(np.array([window.start]), np.array([window.end]))
    return _calls(judged, _host_collectives(judged.trace))


def _host_collectives(trace: Trace) -> tuple[str, ...]:
    return tuple(name for name in trace.names if _COLLECTIVE.match(name))


def _data_parallel(judged: Judged) -> KernelFinding | None:
    """Fire for DataParallel on two GPUs or more.

    A step takes no less than the mean computation of a GPU, so the rest of the window is what can be won.
    """
    calls = _calls(judged, (_DATA_PARALLEL,))
    devices = devices_of(judged.trace, judged.window, judged.metrics.in_window)
    if not len(calls.start) or len(devices) <= ONE_GPU:
        return None
    busy = [device.kernels.total for device in devices]
    return KernelFinding(
        id=FAMILY + "WrongParallel",
        severity=Severity.MEDIUM,
        value=float(len(devices)),
        threshold=float(ONE_GPU),
        **said(
            KernelKind.DATA_PARALLEL,
            Fact(name="gpus", value=len(devices), threshold=ONE_GPU),
            portion("least_busy_share", judged.metrics.share(min(busy))),
            portion("most_busy_share", judged.metrics.share(max(busy))),
        ),
        evidence=[
            *_of_calls(judged, _DATA_PARALLEL, calls)[:1],
            *(
                Evidence(what=f"kernels of GPU {device.number}", duration_ns=device.kernels.total)
                for device in devices[: SHOWN - 1]
            ),
        ],
        gain=judged.gain(max(judged.window.length - float(np.mean(busy)), 0)),
    )


def _without_nccl(judged: Judged) -> KernelFinding | None:
    """Fire for DistributedDataParallel on a GPU whose collectives another library runs on the host.

    What can be won is the time of these collectives in which the GPU is idle.
    """
    trace = judged.trace
    capability = max((gpu.capability for gpu in trace.gpus), default=(0, 0))
    if not judged.has_gpu or capability < KEPLER or not len(_calls(judged, (_DISTRIBUTED,)).start):
        return None
    libraries = {match[1] for name in trace.names if (match := _COLLECTIVE.match(name))}
    libraries |= {trace.backend.lower()} - {""}
    on_gpu = bool((trace.gpu.kind == Kind.COMMUNICATION).any())
    if on_gpu or not libraries or any(_OF_GPUS in each for each in libraries):
        return None
    library = ", ".join(sorted(libraries))
    waits = _calls(judged, _host_collectives(trace))
    idle = difference(waits, judged.metrics.busy).total
    return KernelFinding(
        id=FAMILY + "WrongParallel",
        severity=Severity.MEDIUM,
        value=round(judged.metrics.share(waits.total), 4),
        threshold=0.0,
        **said(
            KernelKind.WITHOUT_NCCL,
            Fact(name="library", value=library),
            portion("collective_share", judged.metrics.share(waits.total)),
            portion("idle_share", judged.metrics.share(idle)),
        ),
        evidence=_of_calls(judged, f"collectives of {library}", waits) or [Evidence(what=library, duration_ns=0)],
        gain=judged.gain(idle),
    )


def _calls(judged: Judged, names: tuple[str, ...]) -> Spans:
    """Return when the host is in annotations or operators of these names; old traces have the former as the latter."""
    trace, window = judged.trace, judged.window
    numbers = _numbers(trace, names)
    found = []
    for rows in (trace.annotations, trace.operators):
        mine = np.isin(rows.name, numbers)
        found.append(merged(rows.start[mine], rows.end[mine]))
    return clipped(union(*found), window.start, window.end)


def _numbers(trace: Trace, names: tuple[str, ...]) -> list[int]:
    wanted = set(names)
    return [place for place, name in enumerate(trace.names) if name in wanted]


def _of_calls(judged: Judged, what: str, calls: Spans) -> list[Evidence]:
    """Return calls as one line of evidence; none where there are none."""
    if not len(calls.start):
        return []
    lasted = calls.end - calls.start
    longest = int(lasted.argmax())
    return [
        Evidence(
            what=what,
            duration_ns=calls.total,
            count=len(lasted),
            step=judged.step_at(int(calls.start[longest])),
            longest_start_ns=int(calls.start[longest]) - judged.window.start,
            longest_ns=int(lasted[longest]),
        )
    ]
