"""A confusion matrix as a table."""

from markupsafe import Markup

from trainguard.report.html.blocks import Block, Cell, Column, Table, heat
from trainguard.report.html.numbers import NOTHING, count, share
from trainguard.report.training.scores import ConfusionMatrix

CLASSES_SHOWN = 20


def confusion_blocks(matrix: ConfusionMatrix) -> list[Block]:
    """Return the matrix as a table of shaded cells: of very many classes those with the most samples."""
    samples = [sum(row) for row in matrix.counts]
    ranked = sorted(range(len(samples)), key=lambda place: -samples[place])[:CLASSES_SHOWN]
    places = sorted(ranked)
    columns = [Column("Label"), *(Column(f"as {matrix.classes[place]}", "number") for place in places)]
    columns.append(Column("Right", "number"))
    rows: list[list[Cell]] = []
    for place in places:
        row = matrix.counts[place]
        cells = [_cell(row[other], samples[place], right=other == place) for other in places]
        right = share(row[place] / samples[place]) if samples[place] else NOTHING
        rows.append([str(matrix.classes[place]), *cells, right])
    caption = (
        f"How {count(matrix.total)} samples were predicted at step {matrix.step:,}; {share(matrix.accuracy)} are right"
    )
    left = len(matrix.classes) - len(places)
    note = (
        None if not left else f"{left:,} {'class' if left == 1 else 'classes'} with fewer samples are in report.json."
    )
    return [Table(caption, columns, rows, (), note)]


def _cell(part: int, whole: int, *, right: bool) -> Cell:
    """Return a cell: what is wrong is shaded by its share of its label's samples."""
    if right:
        return Markup("<b>{}</b>").format(count(part))
    return heat(min(1 + int(4.0 * part / whole), 4) if part else 0, count(part))
