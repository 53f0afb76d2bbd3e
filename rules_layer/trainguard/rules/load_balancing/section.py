"""LoadBalancing: histograms one below the other on one axis, and the distances of pairs."""

from collections.abc import Mapping, Sequence

from trainguard.core.records import JOB_NODE
from trainguard.render.blocks import Block, Cell, Column, Key, Table, heat, plot_column
from trainguard.render.nodes import Picked, first_and_folded, folded_rest, label, most, nodes_of, pick
from trainguard.render.numbers import NOTHING, percent, shown_name
from trainguard.render.plots import strips
from trainguard.render.plots.scale import PERCENT
from trainguard.render.rule_entry import RuleEntry, setting
from trainguard.rules.load_balancing.judging import BalanceDetails

# Distance of histograms without a common value: the square root of the logarithm of 2.
MAX_DISTANCE = 0.8326

SHADES = 4
SIDES_AT_MOST = 16
LEGEND = (
    Key("bin", "how often each utilization was seen"),
    Key("bin hot", "the same, of one that stays behind"),
    Key("mean", "mean"),
)


def blocks(entry: RuleEntry) -> list[Block]:
    nodes = {node: held for node, held in nodes_of(entry, BalanceDetails).items() if held.means}
    across = nodes.pop(JOB_NODE, None)
    shown: list[Block] = []
    if across is not None:
        shown.append(_across_nodes(across, entry))
    picked = pick(nodes, worst=entry.worst, badness=lambda held: _largest(held) or 0.0)
    rows = [row for node, held in picked.full for row in _gpu_rows(node, held, entry, picked)]
    if rows:
        columns = [
            Column("GPU"),
            plot_column("Share of points at each utilization", PERCENT, " %"),
            Column("Mean", "number"),
            Column("Largest distance", "number"),
        ]
        shown.append(Table("Workload of each GPU", columns, rows, LEGEND))
    matrices = [_matrix(node, held, entry) for node, held in picked.full if _told(held) and len(held.means) > 2]
    shown.extend(first_and_folded("Distances", [[matrix] for matrix in matrices]))
    rest = [
        (shown_name(node), percent(max(held.means.values()) - min(held.means.values())), _distance(_largest(held)))
        for node, held in picked.rest
    ]
    heads = [Column("Node"), Column("Means differ by", "number"), Column("Largest distance", "number")]
    return [*shown, *folded_rest("Workload of GPUs", heads, rest)]


def _across_nodes(across: BalanceDetails, entry: RuleEntry) -> Table:
    limit = setting(entry, "threshold")
    columns = [
        Column("Node"),
        plot_column("Share of points at each utilization", PERCENT, " %"),
        Column("Mean", "number"),
        Column("Distance from the rest", "number"),
    ]
    order = sorted(across.means, key=lambda side: -_of(across.distances.get(side)))[:SIDES_AT_MOST]
    usual = sum(across.means.values()) / len(across.means)
    rows = []
    for side in order:
        distance = _of(across.distances.get(side))
        behind = _beyond(distance, limit) and across.means[side] < usual
        rows.append(_side(shown_name(side), across, side, distance, behind=behind))
    left = len(across.means) - len(order)
    note = f"The {SIDES_AT_MOST} nodes furthest from the rest; {left:,} more are closer to it." if left else None
    return Table("Nodes against each other", columns, rows, LEGEND, note)


def _gpu_rows(
    node: str, held: BalanceDetails, entry: RuleEntry, picked: Picked[BalanceDetails]
) -> list[tuple[Cell, ...]]:
    limit, told = setting(entry, "threshold"), _told(held)
    from_busiest = told.get(max(held.means, key=lambda gpu: held.means[gpu]), {})
    rows = []
    for gpu in held.means:
        furthest = most([*told.get(gpu, {}).values()])
        behind = _beyond(from_busiest.get(gpu), limit)
        rows.append(_side(label(node, gpu, picked), held, gpu, furthest, behind=behind))
    return rows


def _side(shown: str, held: BalanceDetails, side: str, distance: float | None, *, behind: bool) -> tuple[Cell, ...]:
    mean = held.means[side]
    tone = "hot" if behind else "plain"
    drawn = strips.ridge(held.workloads.get(side, []), alt=f"{shown}: mean {percent(mean)}", tone=tone, mean=mean)
    return shown, drawn, percent(mean), _distance(distance)


def _beyond(distance: float | None, limit: float | None) -> bool:
    return distance is not None and limit is not None and distance > limit


def _matrix(node: str, held: BalanceDetails, entry: RuleEntry) -> Table:
    told, limit = _told(held), setting(entry, "threshold") or 0.0
    sides = list(held.means)[:SIDES_AT_MOST]
    rows: list[Sequence[Cell]] = []
    for first in sides:
        cells: list[Cell] = [shown_name(first, 24)]
        for second in sides:
            distance = told.get(first, {}).get(second)
            untold = NOTHING if first == second else "\N{MIDDLE DOT}"
            cells.append(heat(0, untold) if distance is None else heat(_shade(distance, limit), _distance(distance)))
        rows.append(cells)
    columns = [Column("from \\ to"), *(Column(shown_name(side, 24), "number") for side in sides)]
    note = "A dot stands for a pair that is closer than the threshold."
    return Table(f"Distances of the GPUs of {shown_name(node)} (0 to 0.83)", columns, rows, note=note)


def _shade(distance: float, limit: float) -> int:
    if distance <= limit:
        return 1
    return 2 + round((SHADES - 2) * (distance - limit) / max(MAX_DISTANCE - limit, 0.01))


def _told(held: BalanceDetails) -> dict[str, dict[str, float]]:
    both: dict[str, dict[str, float]] = {}
    for first, pairs in held.distances.items():
        for second, distance in pairs.items() if isinstance(pairs, Mapping) else ():
            both.setdefault(first, {})[second] = distance
            both.setdefault(second, {})[first] = distance
    return both


def _of(distance: dict[str, float] | float | None) -> float:
    return distance if isinstance(distance, float | int) else 0.0


def _largest(held: BalanceDetails) -> float | None:
    return most([distance for pairs in _told(held).values() for distance in pairs.values()])


def _distance(distance: float | None) -> str:
    return percent(None) if distance is None else f"{distance:.2f}"
