"""What the GPUs' hardware counted, and how well kernels fill it."""

from collections.abc import Sequence

from trainguard.kernels.document import RankProfile
from trainguard.kernels.words import counted
from trainguard.report.html.blocks import Block, Cell, Column, Table
from trainguard.report.html.kernels.island import rank_name
from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import count, number, share

MOST_ROWS = 60


def hardware_blocks(ranks: Sequence[RankProfile]) -> list[Block]:
    """Return the tables of the GPUs and of their counters; nothing where traces have neither."""
    return [*_devices(ranks), *_counters(ranks)]


def _where(rank: RankProfile, gpu: int, ranks: int) -> str:
    device = f"GPU {gpu}" if gpu >= 0 else "GPU"
    return f"{rank_name(rank)}, {device}" if ranks > 1 else device


def _devices(ranks: Sequence[RankProfile]) -> list[Block]:
    found = [
        (rank, device)
        for rank in ranks
        for device in rank.devices
        if len(rank.devices) > 1 or device.sm_efficiency is not None or device.occupancy is not None
    ]
    if not found:
        return []
    rows: list[list[Cell]] = [
        [
            _where(rank, device.device, len(ranks)),
            *(
                share(part / rank.window_ns if rank.window_ns else None)
                for part in (
                    device.busy_ns,
                    device.kernel_ns,
                    device.compute_ns,
                    device.communication_ns,
                    device.exposed_communication_ns,
                )
            ),
            share(device.sm_efficiency),
            share(device.occupancy),
        ]
        for rank, device in found[:MOST_ROWS]
    ]
    titles = (
        "Busy",
        "In kernels",
        "Computes",
        "Communicates",
        "Only communicates",
        "Multiprocessors with a block",
        "Occupancy",
    )
    note = "Of the window; the occupancy is that of the kernels, as the profiler estimates it from their size."
    if any(len(rank.devices) > 1 for rank in ranks):
        note += " The figures of a rank with several GPUs are the means over them, without GPUs with hardly any work."
    if len(found) > MOST_ROWS:
        note += f" {counted(len(found) - MOST_ROWS, 'GPU')} more are in kernels.json."
    return [Table("GPUs", [Column("GPU"), *(Column(title, "number") for title in titles)], rows, (), note)]


def _counters(ranks: Sequence[RankProfile]) -> list[Block]:
    found = [(rank, counter) for rank in ranks for counter in rank.counters]
    if not found:
        return []
    rows: list[list[Cell]] = [
        [
            f"{_where(rank, counter.gpu, len(ranks))}: {shown_name(counter.name, 80)}",
            number(counter.mean),
            number(counter.min),
            number(counter.max),
            count(counter.samples),
        ]
        for rank, counter in found[:MOST_ROWS]
    ]
    columns = [Column("Counter"), *(Column(title, "number") for title in ("Mean", "Least", "Most", "Samples"))]
    note = "Samples over the whole trace, in the unit that the counter's name has."
    if len(found) > MOST_ROWS:
        note += f" {counted(len(found) - MOST_ROWS, 'counter')} more are in kernels.json."
    return [Table("Hardware counters", columns, rows, (), note)]
