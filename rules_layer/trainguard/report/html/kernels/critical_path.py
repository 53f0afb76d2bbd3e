"""The critical paths of steps: what a step waits for, one thing after the other."""

from collections.abc import Sequence

from trainguard.kernels.document import RankProfile
from trainguard.kernels.entries import CriticalPathEntry
from trainguard.kernels.words import counted
from trainguard.report.html.blocks import Block, Cell, Column, Key, Table, plot_column
from trainguard.report.html.kernels.island import rank_name
from trainguard.report.html.kernels.matrix import NO_BREAK
from trainguard.report.html.kernels.text import nanos
from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import NOTHING, share
from trainguard.report.html.plots.scale import up_from_zero
from trainguard.report.html.plots.strips import parts_of_whole

MOST_ROWS = 16
LONGEST = 32
PARTS = (
    ("compute", "computation", "s1"),
    ("communication", "communication", "s2"),
    ("memory", "copies, memory set", "s3"),
    ("gpu_gap", "between kernels", "s6"),
    ("launch", "launch to kernel", "s4"),
    ("host", "the host", "s5"),
    ("data_loading", "data loader", "s7"),
    ("synchronization", "return of a wait", "s8"),
)


def path_blocks(ranks: Sequence[RankProfile]) -> list[Block]:
    """Return the table of critical paths; nothing where no trace has any."""
    found = [(rank, path) for rank in ranks for path in rank.critical_paths]
    if not found:
        return []
    shown = found[:MOST_ROWS]
    scale = up_from_zero(max(path.total_ns for _, path in shown) / 1e6)
    used = [part for part in PARTS if any(path.parts.get(part[0], 0) for _, path in shown)]
    columns = [
        Column("Step"),
        Column("Length", "number"),
        plot_column("Critical path", scale, " ms"),
        Column("Mostly"),
        Column("Longest on it"),
    ]
    rows: list[list[Cell]] = []
    for rank, path in shown:
        name = _name(rank, path, len(ranks))
        parts = [(label, path.parts.get(key, 0), tone) for key, label, tone in used]
        said = ", ".join(f"{label} {share(part / path.total_ns)}" for label, part, _ in parts)
        drawn = [(label, part / 1e6 / scale.high, tone) for label, part, tone in parts]
        bar = parts_of_whole(drawn, said=f"{name}: {said}", whole=path.total_ns / 1e6 / scale.high)
        label, most, _ = max(parts, key=lambda part: part[1])
        longest = path.kernels[0] if path.kernels else None
        on_it = NOTHING if longest is None else f"{shown_name(longest.name, LONGEST)}, {nanos(longest.total_ns)}"
        rows.append([name, nanos(path.total_ns), bar, f"{label}, {share(most / path.total_ns)}", on_it])
    note = (
        "A step of median length and the slowest one. What is not on the path can take less time without the step "
        "being shorter. Where kernels of two streams meet, the path is inferred from their times."
    )
    if len(found) > len(shown):
        note += f" {counted(len(found) - len(shown), 'path')} more are in kernels.json."
    legend = [Key(f"part {tone}", label) for _, label, tone in used]
    return [Table("Critical path", columns, rows, legend, note)]


def _name(rank: RankProfile, path: CriticalPathEntry, ranks: int) -> str:
    step = "the window" if path.step is None else f"step {path.step}"
    return (f"{step}, {rank_name(rank)}" if ranks > 1 else step).replace(" ", NO_BREAK)
