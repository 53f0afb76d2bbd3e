"""What the nodes of a job did not show of their GPUs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from trainguard.engine.streams.gaps import Gap, GapKind
from trainguard.engine.verdicts.liveness import VANISHED_S
from trainguard.families.profiler.system_stream import SystemStream
from trainguard.ledger.spans import Span, without
from trainguard.records import JobRecord

LACKING_SHARE = 0.05
"""A fault could hide where so much of a node's time has no samples: nobody may call its job healthy."""

NAMED_SPANS = 3


def gaps_of(
    system: Mapping[str, SystemStream], expected: Iterable[str], job: JobRecord, unpaid: Sequence[Span]
) -> Iterator[Gap]:
    """Yield what nobody saw of a job.

    Parameters
    ----------
    system : mapping
        Streams of system metrics by node.
    expected : iterable of str
        Names of the nodes that the job must have.
    job : JobRecord
    unpaid : sequence of (float, float)
        Times, epoch seconds, in which it is known to have had no instance: there was nothing to see.
    """
    wrote = {node: stream for node, stream in system.items() if stream.state.watermark_s is not None}
    silent = sorted({*system, *expected} - set(wrote), key=lambda name: (len(name), name))
    most = len(silent) if job.instance_count is None else max(job.instance_count - len(wrote), 0)
    for node in silent[:most]:
        yield Gap(GapKind.SILENT, node)
    last = max((stream.state.watermark_s or 0.0 for stream in wrote.values()), default=0.0)
    for node, stream in sorted(wrote.items()):
        behind_s = last - (stream.state.watermark_s or 0.0)
        if behind_s >= VANISHED_S:
            yield Gap(GapKind.STOPPED, node, behind_s)
        lack = _lack(node, stream, unpaid)
        if lack is not None:
            yield lack


def _lack(node: str, stream: SystemStream, unpaid: Sequence[Span]) -> Gap | None:
    kept, until = stream.state.kept, stream.state.watermark_s
    if kept.first_sample_at is None or until is None:
        return None
    begin = kept.first_sample_at
    silent = [max(min(end, until) - max(start, begin), 0.0) for start, end in unpaid]
    whole_s = until - begin - sum(silent)
    # The last sample before a silence stands for an interval of it.
    missing_s = kept.missing_s - sum(max(each - stream.interval_s, 0.0) for each in silent)
    if whole_s <= 0.0 or missing_s < LACKING_SHARE * whole_s:
        return None
    gaps = tuple(gap for gap in kept.gaps if without([gap], unpaid))
    return Gap(GapKind.NO_SAMPLES, node, missing_s, whole_s, gaps[-NAMED_SPANS:])
