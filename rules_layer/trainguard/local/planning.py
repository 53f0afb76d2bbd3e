"""What a plan needs of a job: its time by bucket, collectives of a kernel trace, and when which step was done."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from trainguard.core.errors import TrainGuardError
from trainguard.kernels.columns import Trace
from trainguard.kernels.document import RankProfile
from trainguard.kernels.memory.snapshot import MemorySnapshot
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.readers.reading import read_any
from trainguard.ledger.bucket import Bucket
from trainguard.local.profile import Profile
from trainguard.local.traces import open_traces
from trainguard.planning.cluster import Cluster, Communication, cluster_of
from trainguard.planning.document import Lack, Lacking
from trainguard.planning.plan import MeasuredJob
from trainguard.pricing.table import PriceTable
from trainguard.report.document import Report
from trainguard.report.job.build import points_of


def trace_of(place: str | None, profile: Profile | None) -> RankProfile | None:
    """Return the first trace of a place, or of a job's newest capture, that can be read; None without any.

    Raises KernelTraceError where ``place`` is given and cannot be read.
    """
    if place is not None:
        found = open_traces(place)
        return _first(partial(found.read, name) for name in found.names)
    files = None if profile is None else profile.kernels
    if files is None:
        return None
    opened = {each.key: partial(files.objects.open_stream, files.bucket, each.key) for each in files.newest.traces}
    return _first(partial(read_any, key, stream, files.on_disk(key)) for key, stream in opened.items())


def _first(readers: Iterable[Callable[[], Trace | MemorySnapshot]]) -> RankProfile | None:
    for read in readers:
        with suppress(TrainGuardError, OSError):
            trace = read()
            if isinstance(trace, Trace):
                return rank_profile(trace)
    return None


def measured_job(
    report: Report, trace: RankProfile | None, cluster: Cluster, total_steps: int | None
) -> tuple[MeasuredJob | None, list[Lack]]:
    """Return how a job ran, None where its time is unknown, and what is not known of it."""
    lacks = [] if trace is not None or report.kernels is not None else [Lack(kind=Lacking.TRACE)]
    paid = sum(entry.gpu_seconds for entry in report.ledger)
    gpus = cluster.world
    duration_s, points = report.job.duration_s, points_of(report.training)
    if not duration_s and points:
        duration_s = max(at for at, _ in points) - min(at for at, _ in points)
    if paid > 0.0 and gpus:
        seconds = {entry.bucket: entry.gpu_seconds / gpus for entry in report.ledger if entry.gpu_seconds > 0.0}
    elif duration_s:
        seconds = {Bucket.COMPUTE: duration_s}
        lacks.insert(0, Lack(kind=Lacking.GPU_TIME))
    else:
        return None, [Lack(kind=Lacking.TIME)]
    done = max((step for _, step in points), default=report.job.steps or 0)
    left = total_steps / done if total_steps is not None and done and total_steps > done else 1.0
    return MeasuredJob(
        seconds=seconds,
        cluster=cluster,
        left=left,
        communication=None if trace is None else _communication(trace),
        traced=any(entry.estimated and entry.steps for entry in report.ledger),
        precision=None if trace is None else next(iter(trace.precision), None),
    ), lacks


def _communication(trace: RankProfile) -> Communication | None:
    steps = len(trace.steps) + trace.steps_left_out
    if not steps or not trace.collectives:
        return None
    return Communication(trace.collectives, steps, trace.window_ns / steps / 1e9)


def cluster_of_job(report: Report, prices: PriceTable, ran_on: str | None, nodes: int | None) -> Cluster:
    """Return the machines of a job; a person's word holds, then the job's own, then the nodes that wrote samples."""
    wrote = len(report.ledger_by_node) or 1
    nodes = nodes or report.job.instance_count or wrote
    return cluster_of(ran_on or report.job.instance_type, nodes, prices, gpus=max(report.job.gpus // wrote, 1))
