"""The streams of the GPUs: how busy they are, why they are idle, and how many launches wait."""

from collections.abc import Sequence

from trainguard.kernels.document import RankProfile, StreamEntry
from trainguard.kernels.words import counted
from trainguard.report.html.blocks import Block, Cell, Column, Folded, Table
from trainguard.report.html.kernels.island import rank_name
from trainguard.report.html.kernels.text import nanos
from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import count, number

MOST_ROWS = 24


def stream_blocks(ranks: Sequence[RankProfile]) -> list[Block]:
    """Return the streams with the most time, folded; nothing where no trace has any."""
    found = [(rank, stream) for rank in ranks for stream in rank.streams]
    if not found:
        return []
    shown = sorted(found, key=lambda each: -each[1].busy_ns)[:MOST_ROWS]
    titles = ("Events", "Busy", "Idle: host late", "Idle: GPU's own", "Idle: other", "Mean queue", "Longest queue")
    columns = [Column("Stream"), *(Column(title, "number") for title in titles)]
    left = len(found) - len(shown) + sum(rank.streams_left_out for rank in ranks)
    note = (
        "The host is late where a kernel is launched after the one before it has ended. The queue counts launches that "
        "have not begun."
    )
    if left:
        note += f" {counted(left, 'stream')} with less time left out."
    rows = [_row(rank, stream, len(ranks)) for rank, stream in shown]
    return [Folded(counted(len(found), "stream"), [Table("Streams", columns, rows, (), note)])]


def _row(rank: RankProfile, stream: StreamEntry, ranks: int) -> list[Cell]:
    where = f"{rank_name(rank)}, " if ranks > 1 else ""
    device = f"GPU {stream.device}, " if stream.device >= 0 else ""
    return [
        f"{where}{device}stream {shown_name(stream.stream)}",
        count(stream.count),
        nanos(stream.busy_ns),
        nanos(stream.idle.host_wait_ns),
        nanos(stream.idle.kernel_wait_ns),
        nanos(stream.idle.other_ns),
        number(stream.queue_mean),
        count(stream.queue_max),
    ]
