"""Gaps in the samples of a job's nodes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from trainguard.core.records import JobRecord
from trainguard.engine.profiler.system_stream import SystemStream
from trainguard.engine.streams.session import Gap, GapKind
from trainguard.engine.verdicts.combine import VANISHED_S
from trainguard.ledger.spans import Span, without

LACKING_SHARE = 0.05
"""A fault could hide where so much of a node's time has no samples: such a job is not called healthy."""

NAMED_SPANS = 3


def gaps_of(
    system: Mapping[str, SystemStream], expected: Iterable[str], job: JobRecord, unpaid: Sequence[Span]
) -> Iterator[Gap]:
    """Yield the gaps of a job that must have the nodes ``expected``, outside of ``unpaid``, epoch seconds."""
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
