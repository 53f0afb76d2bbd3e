"""The first picture of the page: where the paid GPU time went, as one bar, and a table that leads to the times."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from trainguard.ledger.bucket import BUCKET_WORDS, Bucket
from trainguard.ledger.document import LedgerEntry, NodeLedgerEntries
from trainguard.report.document import Report
from trainguard.report.html.plots.strips import parts_of_whole
from trainguard.rules.units import show_share

LEAST_SHARE = 0.0005
"""A bucket of a smaller share is not drawn."""

NODES_AT_MOST = 64
_TONES = {
    Bucket.COMPUTE: "s1",
    Bucket.HOST: "s2",
    Bucket.DATA: "s3",
    Bucket.COMMUNICATION: "s4",
    Bucket.PEERS: "s4",
    Bucket.CHECKPOINT: "s5",
    Bucket.EVALUATION: "s5",
    Bucket.START_UP: "s6",
    Bucket.TAIL: "s6",
    Bucket.RESTART: "s6",
    Bucket.IDLE: "s7",
    Bucket.HANG: "s7",
    Bucket.BROKEN: "s7",
}


@dataclass(frozen=True, slots=True)
class BucketLine:
    """A bucket as the table shows it; ``tone`` is the colour of its part of the bar."""

    entry: LedgerEntry
    title: str
    tone: str


@dataclass(frozen=True, slots=True)
class NodeBar:
    """The paid time of one node as a bar."""

    node: str
    bar: Markup


@dataclass(frozen=True, slots=True)
class LedgerView:
    """What the page shows of a ledger; ``note`` says what is estimated."""

    bar: Markup
    lines: Sequence[BucketLine]
    nodes: Sequence[NodeBar]
    nodes_left_out: int
    note: str


def ledger_view(report: Report) -> LedgerView | None:
    """Prepare the picture of a report's ledger; None of a job without GPUs."""
    lines = [_line(entry) for entry in report.ledger if entry.share >= LEAST_SHARE]
    if not lines:
        return None
    nodes = report.ledger_by_node if len(report.ledger_by_node) > 1 else []
    traced = max((line.entry.steps or 0 for line in lines), default=0)
    return LedgerView(
        bar=_bar("The paid GPU time", lines),
        lines=lines,
        nodes=[_node(each) for each in nodes[:NODES_AT_MOST]],
        nodes_left_out=max(len(nodes) - NODES_AT_MOST, 0),
        note=f"Estimated parts are divided as a kernel trace of {traced} steps shows." if traced else "",
    )


def _line(entry: LedgerEntry) -> BucketLine:
    return BucketLine(entry, BUCKET_WORDS[entry.bucket], _TONES.get(entry.bucket, ""))


def _node(entries: NodeLedgerEntries) -> NodeBar:
    lines = [_line(entry) for entry in entries.ledger if entry.share >= LEAST_SHARE]
    return NodeBar(entries.node, _bar(f"The paid GPU time of {entries.node}", lines))


def _bar(what: str, lines: Sequence[BucketLine]) -> Markup:
    said = ", ".join(f"{line.title} {show_share(line.entry.share)}" for line in lines)
    return parts_of_whole([(line.title, line.entry.share, line.tone) for line in lines], said=f"{what}: {said}")
