"""The table of kernels, for the script and, its first rows, without one; and the ranks side by side."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from markupsafe import Markup

from trainguard.kernels.document import AcrossRanks, RankLine, RankProfile
from trainguard.kernels.entries import KernelEntry
from trainguard.render.blocks import Cell, heat
from trainguard.render.numbers import NOTHING, nanos, share
from trainguard.render.plots.strips import parts_of_whole
from trainguard.report.html.kernels.figures import TONES, grouped, total_of
from trainguard.report.html.kernels.island import NO_BREAK, PageNames, rank_name

TOP = 10
MOST_KERNELS = 1_000
MOST_OF_A_RANK = 200


def kernel_totals(ranks: Iterable[RankProfile]) -> list[KernelEntry]:
    kernels = (kernel for rank in ranks for kernel in rank.kernels)
    totals = [_total(entries) for entries in grouped(kernels, lambda each: (each.name, each.precision))]
    return sorted(totals, key=lambda each: (-each.total_ns, each.name))


def _total(entries: Sequence[KernelEntry]) -> KernelEntry:
    """Return all runs of a kernel on several ranks; ``p99_ns`` is the largest of a rank."""
    runs, total_ns = total_of(entries, "count"), total_of(entries)
    return msgspec.structs.replace(
        entries[0],
        count=runs,
        total_ns=total_ns,
        mean_ns=round(total_ns / runs) if runs else 0,
        min_ns=min(each.min_ns for each in entries),
        max_ns=max(each.max_ns for each in entries),
        p99_ns=max(each.p99_ns for each in entries),
        tensor_core=any(each.tensor_core for each in entries),
        communication=any(each.communication for each in entries),
        launch_calls=total_of(entries, "launch_calls"),
        std_ns=_deviation(entries, total_ns / max(runs, 1), max(runs, 1)),
        short_count=total_of(entries, "short_count"),
        occupancy=_weighted((each.occupancy, each.total_ns) for each in entries),
        blocks_per_sm=_weighted((each.blocks_per_sm, each.total_ns) for each in entries),
    )


def _deviation(entries: Sequence[KernelEntry], mean: float, runs: int) -> int:
    if len(entries) == 1:
        return entries[0].std_ns
    squares = sum(each.count * (each.std_ns**2 + (each.total_ns / max(each.count, 1) - mean) ** 2) for each in entries)
    return round(math.sqrt(squares / runs))


def _weighted(values: Iterable[tuple[float | None, int]]) -> float | None:
    known = [(value, weight) for value, weight in values if value is not None and weight]
    total = sum(weight for _, weight in known)
    return round(sum(value * weight for value, weight in known) / total, 4) if total else None


def kernel_views(
    ranks: Sequence[RankProfile], totals: Sequence[KernelEntry], drawn: Sequence[RankProfile], names: PageNames
) -> list[dict[str, Any]]:
    """Return the script's views of the kernels: of all ranks, and of each of those that are shown one by one."""
    title = "all ranks" if len(ranks) > 1 else "all kernels"
    shown = drawn if len(ranks) > 1 else ()
    return [
        _view(title, ranks, totals, totals[:MOST_KERNELS], names),
        *(_view(rank_name(each), [each], each.kernels, each.kernels[:MOST_OF_A_RANK], names) for each in shown),
    ]


def _view(
    title: str,
    ranks: Sequence[RankProfile],
    kernels: Sequence[KernelEntry],
    shown: Sequence[KernelEntry],
    names: PageNames,
) -> dict[str, Any]:
    """Return a view; its totals are of every kernel, also of those that it leaves out."""
    return {
        "title": title,
        "window": total_of(ranks, "window_ns"),
        "total": total_of(kernels) + total_of(ranks, "kernels_left_out_ns"),
        "runs": total_of(kernels, "count") + total_of(ranks, "kernels_left_out_count"),
        "rows": [_row(each, names) for each in shown],
    }


def _row(kernel: KernelEntry, names: PageNames) -> list[Any]:
    return [
        names.number(kernel.name),
        kernel.count,
        kernel.total_ns,
        kernel.min_ns,
        kernel.max_ns,
        kernel.p99_ns,
        kernel.precision,
        int(kernel.tensor_core) + 2 * int(kernel.communication),
        names.number(kernel.operator) if kernel.operator else -1,
        kernel.launch_calls,
        kernel.std_ns,
        kernel.short_count,
        kernel.occupancy,
        kernel.blocks_per_sm,
        kernel.family,
    ]


def top_rows(
    kernels: Sequence[KernelEntry], field: str, whole: int, write: Callable[[float | None], str]
) -> list[tuple[str, Markup, str, str]]:
    """Return the first kernels by a field, and all others as one: name, bar, value, and share of the ``whole``."""
    ranked = sorted(kernels, key=lambda each: -getattr(each, field))
    values = [(each.name, getattr(each, field), TONES.get(each.family, "s8")) for each in ranked[:TOP]]
    if len(ranked) > TOP:
        values.append((f"{len(ranked) - TOP:,} others", whole - sum(value for _, value, _ in values), "s8"))
    most = max((value for _, value, _ in values), default=0) or 1
    rows = []
    for name, value, tone in values:
        part = share(value / (whole or 1))
        bar = parts_of_whole([("", value / most, tone)], alt=f"{write(value)}, {part} of all kernels")
        rows.append((name, bar, write(value), part))
    return rows


MOST_RANKS = 64
MOST_STEPS = 20
# Distances from the median of like ranks, as shares of it, from which the next darker shade begins.
SHADES = (0.05, 0.1, 0.2, 0.4)

LEAST_SHARE = 0.1
# A smaller median is taken for that.
LEAST_NS = 10_000.0

Row = tuple[RankProfile | None, RankLine]
Numbers = Sequence[float | None]


def _part(field: str) -> Callable[[Row], float | None]:
    return lambda row: getattr(row[0], field) / row[0].window_ns if row[0] and row[0].window_ns else None


def _delay(row: Row) -> float | None:
    return None if row[0] is None or row[0].launch_delay_ns is None else row[0].launch_delay_ns.median


# Title, value of a rank, how it is written, and the least median that it is compared with.
MEASURES: Sequence[tuple[str, Callable[[Row], float | None], Callable[[float | None], str], float]] = (
    ("Mean step", lambda row: row[1].step_ns, nanos, LEAST_NS),
    ("Computes", lambda row: row[1].compute_ns, nanos, LEAST_NS),
    ("Communicates", lambda row: row[1].communication_ns, nanos, LEAST_NS),
    ("of it exposed", lambda row: row[1].exposed_communication_ns, nanos, LEAST_NS),
    ("GPU busy", _part("busy_ns"), share, LEAST_SHARE),
    ("Copies, exposed", _part("exposed_memory_ns"), share, LEAST_SHARE),
    ("Synchronization", _part("synchronization_ns"), share, LEAST_SHARE),
    ("Launch delay", _delay, nanos, LEAST_NS),
)


def rank_matrix(ranks: Sequence[RankProfile], across: AcrossRanks) -> dict[str, Any]:
    """Return what the table of ranks shows, of very many the farthest from the others, and who waits in which step.

    ``rows`` are a rank's line, its name, its profile and the cells of `MEASURES`, ``medians`` those of each set of like
    ranks. ``waits`` are names with cells, a step each; nothing where no collective is compared.
    """
    rows = _joined(ranks, across.lines)
    values = [[value(row) for _, value, _, _ in MEASURES] for row in rows]
    likes = sorted({line.like for line in across.lines})
    sets = {like: [held for held, (_, line) in zip(values, rows, strict=True) if line.like == like] for like in likes}
    medians = {like: [_median(column) for column in zip(*held, strict=True)] for like, held in sets.items()}
    away = [
        [_away(value, medians[row[1].like][at], at) for at, value in enumerate(held)]
        for held, row in zip(values, rows, strict=True)
    ]
    far = sorted(range(len(rows)), key=lambda place: -(max(away[place]) + rows[place][1].last_steps))
    chosen = sorted(far[:MOST_RANKS])
    return {
        "titles": [f"#{title}" for title, *_ in MEASURES],
        "rows": [(rows[at][1], _name(rows[at]), rows[at][0], _cells(values[at], away[at])) for at in chosen],
        "medians": {
            like: [measure[2](at) for at, measure in zip(held, MEASURES, strict=True)] for like, held in medians.items()
        },
        "ranks": len(rows),
        "waits": _waits([rows[at] for at in chosen], across),
    }


def _joined(ranks: Sequence[RankProfile], lines: Sequence[RankLine]) -> list[Row]:
    """Return the lines with the profiles; a document that lists all ranks has both in one order."""
    if len(ranks) == len(lines):
        return list(zip(ranks, lines, strict=True))
    listed = {(rank.trace, rank.rank): rank for rank in ranks}
    # A rank that several traces are of is called by its file, and listed without its number.
    return [(listed.get((line.trace, line.rank)) or listed.get((line.trace, None)), line) for line in lines]


def _median(values: Numbers) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _away(value: float | None, median: float | None, place: int) -> float:
    """Return how far a value of a measure is from the median of like ranks, as a share of it."""
    if value is None or median is None:
        return 0.0
    return abs(value - median) / max(median, MEASURES[place][3])


def _shade(away: float) -> int:
    return sum(away >= shade for shade in SHADES)


def _cells(values: Numbers, away: Sequence[float]) -> list[Cell]:
    return [
        NOTHING if value is None else heat(_shade(far), write(value))
        for value, far, (_, _, write, _) in zip(values, away, MEASURES, strict=True)
    ]


def _name(row: Row) -> str:
    return rank_name(row[1] if row[0] is None else row[0]).replace(" ", NO_BREAK)


def _waits(rows: Sequence[Row], across: AcrossRanks) -> list[tuple[str, list[Cell]]]:
    steps = range(len(across.steps[:MOST_STEPS]))
    known = [line.waits_ns for line in across.lines if line.waits_ns]
    most = [max(waits[place] for waits in known) for place in steps] if known else []
    return [
        (_name(row), [_wait(wait, row[1].step_ns, top) for wait, top in zip(row[1].waits_ns, most, strict=False)])
        for row in rows
        if row[1].waits_ns and most
    ]


def _wait(wait_ns: int, step_ns: int, most_ns: int) -> Cell:
    return heat(0, nanos(wait_ns)) if wait_ns else heat(_shade(most_ns / max(step_ns, LEAST_NS)), "last")
