"""Which nodes a section shows in full: the worst ones, the job's worst first."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from trainguard.core.units import counted
from trainguard.render.blocks import Block, Cell, Column, Folded, Note, Table
from trainguard.render.details import Details
from trainguard.render.numbers import shown_name
from trainguard.render.rule_entry import RuleEntry

T = TypeVar("T")
D = TypeVar("D", bound=Details)
NODES_IN_FULL = 8
ROWS_AT_MOST = 512


@dataclass(frozen=True, slots=True)
class Picked(Generic[T]):
    """Nodes by name: those to show in full, and the rest, both worst first."""

    full: Sequence[tuple[str, T]]
    rest: Sequence[tuple[str, T]]

    @property
    def single(self) -> bool:
        """Whether there is one node only, which then need not be named everywhere."""
        return len(self.full) + len(self.rest) == 1


def nodes_of(entry: RuleEntry, shape: type[D]) -> dict[str, D]:
    """Return a rule's details by node; raises msgspec.ValidationError when they are of another shape."""
    return {node: shape.read(held) for node, held in entry.details.items()}


def pick(nodes: Mapping[str, T], *, worst: str | None, badness: Callable[[T], float]) -> Picked[T]:
    """Order nodes by ``badness``, after the one that ``worst`` (``algo-2`` or ``algo-2/gpu0``) names."""
    fitting = (node for node in nodes if worst is not None and (worst == node or worst.startswith(f"{node}/")))
    named = max(fitting, key=len, default=None)
    ranked = sorted(nodes.items(), key=lambda item: (item[0] != named, -badness(item[1])))
    return Picked(ranked[:NODES_IN_FULL], ranked[NODES_IN_FULL:])


def label(node: str, series: str, picked: Picked[T]) -> str:
    """Name a series of a node; the node only where there are several."""
    return shown_name(series) if picked.single else f"{shown_name(node, 48)} / {shown_name(series, 48)}"


def table_of(caption: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[Block]:
    """Return a table of at most `ROWS_AT_MOST` rows; none where there are none."""
    return [Table(caption, columns, rows[:ROWS_AT_MOST])] if rows else []


def folded_rest(what: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> list[Folded]:
    """Return the table of the nodes that are not shown in full, folded; none when there are none."""
    if not rows:
        return []
    summary = counted(len(rows), "more node")
    table = Table(f"{what}: {summary}", columns, rows[:ROWS_AT_MOST])
    left = len(rows) - ROWS_AT_MOST
    note = [Note(f"In report.json only: {counted(left, 'node')} more.")] if left > 0 else []
    return [Folded(summary, (table, *note))]


def first_and_folded(what: str, of_nodes: Sequence[Sequence[Block]]) -> list[Block]:
    """Return the blocks of the first node that has some, and those of the others folded."""
    held = [blocks for blocks in of_nodes if blocks]
    if len(held) <= 1:
        return [block for blocks in held for block in blocks]
    more = len(held) - 1
    rest = [block for blocks in held[1:] for block in blocks]
    return [*held[0], Folded(f"{what} of {counted(more, 'more node')}", rest)]


def least(values: Sequence[float | None], default: float | None = None) -> float | None:
    return min((value for value in values if value is not None), default=default)


def most(values: Sequence[float | None], default: float | None = None) -> float | None:
    return max((value for value in values if value is not None), default=default)
