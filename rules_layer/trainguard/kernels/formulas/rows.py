"""Operators on rows that indexes choose: embedding and its gradient, gathering, scattering.

Source of the arguments: PyTorch's ``native_functions.yaml``.
"""

from math import prod

from trainguard.kernels.costs import Cost, Inputs
from trainguard.kernels.formulas.common import LONG, Formula, broadcast, numbers, tensor, type_of


def _rows(inputs: Inputs, count: int, width: int) -> Cost:
    moved = 2 * count * width * type_of(inputs) + count * LONG
    return Cost(0, moved, moved)


def embedding(inputs: Inputs) -> Cost:
    table, indexes = tensor(inputs, 0), tensor(inputs, 1)
    return _rows(inputs, prod(indexes), prod(table[1:]))


def index_select(inputs: Inputs) -> Cost:
    table, indexes = tensor(inputs, 0), tensor(inputs, 2)
    along = numbers(inputs, 1)[0] if inputs.values[1] else 0
    return _rows(inputs, prod(indexes), prod(table) // table[along])


def gather(inputs: Inputs) -> Cost:
    return _rows(inputs, prod(tensor(inputs, 2)), 1)


def scattered(at: int) -> Formula:
    """Return the formula of values, input ``at``, that are added to or put into rows: those are read and written."""

    def of(inputs: Inputs) -> Cost:
        values = prod(tensor(inputs, at))
        moved = 3 * values * type_of(inputs)
        return Cost(values, moved, moved)

    return of


def embedding_backward(rows: int) -> Formula:
    """Return the formula of a dense gradient of as many rows as an argument says: all are written.

    A row of the gradient is read for each index, also where a bag has several.
    """

    def of(inputs: Inputs) -> Cost:
        gradient, indexes = tensor(inputs, 0), tensor(inputs, 1)
        read = prod(indexes) * gradient[-1]
        moved = type_of(inputs) * (read + numbers(inputs, rows)[0] * gradient[-1]) + prod(indexes) * LONG
        return Cost(read, moved, moved)

    return of


def embedding_bag(inputs: Inputs) -> Cost:
    """Return the cost of sums of rows: each index reads one, each bag writes one."""
    table, indexes, bags = (tensor(inputs, place) for place in range(3))
    moved = type_of(inputs) * (prod(indexes) + prod(bags)) * table[1] + LONG * (prod(indexes) + prod(bags))
    return Cost(prod(indexes) * table[1], moved, moved)


def indexed(inputs: Inputs) -> Cost:
    """Return the cost of rows that lists of indexes choose, of leading dimensions."""
    table, indexes = tensor(inputs, 0), inputs.lists[1]
    if not indexes:
        raise ValueError("no indexes")
    return _rows(inputs, prod(broadcast(*indexes)), prod(table[len(indexes) :]))


def chosen(inputs: Inputs) -> Cost:
    """Return the cost of a loss that reads one value a row."""
    rows = prod(tensor(inputs, 1))
    moved = rows * (type_of(inputs) + LONG)
    return Cost(rows, moved, moved)


ROWS: dict[str, Formula] = {
    "aten::nll_loss_forward": chosen,
    "aten::embedding": embedding,
    "aten::embedding_dense_backward": embedding_backward(2),
    "aten::_embedding_bag": embedding_bag,
    "aten::_embedding_bag_forward_only": embedding_bag,
    "aten::_embedding_bag_dense_backward": embedding_backward(5),
    "aten::index": indexed,
    **{f"aten::{name}": scattered(2) for name in ("index_put_", "index_put", "_index_put_impl_")},
    **{f"aten::{name}": scattered(3) for name in ("index_add_", "index_add", "scatter_add_", "scatter_add")},
    "aten::index_select": index_select,
    "aten::gather": gather,
}
