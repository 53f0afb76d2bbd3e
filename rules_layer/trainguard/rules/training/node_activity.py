"""How often each node of a layer was active in a batch; axis 0 is the batch, a node is a place beyond it."""

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from trainguard.errors import TensorUnusableError
from trainguard.rules.training.folds import numbers
from trainguard.tensors.step_view import StepView, Tensor

MOST_NODES = 8_000_000
"""Counts of so many nodes take 32 MB."""

Active = Callable[[Tensor], NDArray[np.bool_]]


def inactive_percent(step: StepView, name: str, active: Active, threshold: float) -> float | None:
    """Return the percentage of nodes that were active in less than ``threshold`` percent of the batch.

    None of a tensor that holds no numbers, or nothing. A tensor of one axis is one node over a batch.

    Raises
    ------
    TensorUnusableError
        When its shape was not saved, or it has more nodes than are counted.
    """
    shape = step.shape(name)
    if shape is None:
        raise TensorUnusableError(name, step.step, "its shape was not saved")
    batch, nodes = (shape[0] if shape else 1), math.prod(shape[1:])
    if nodes > MOST_NODES:
        raise TensorUnusableError(name, step.step, f"it has {nodes:,} nodes, expected at most {MOST_NODES:,}")
    blocks = numbers(step, name)
    if blocks is None or not batch or not nodes:
        return None
    times = np.zeros(nodes, dtype=np.int32)
    for start, values in _rows(blocks, nodes):
        times[start : start + values.shape[1]] += np.count_nonzero(active(values), axis=0).astype(np.int32)
    shares = 100.0 * times / batch
    return 100.0 * int(np.count_nonzero(shares < threshold)) / nodes


def _rows(blocks: Iterator[Tensor], nodes: int) -> Iterator[tuple[int, Tensor]]:
    """Cut blocks into pieces of whole rows, [rows, nodes], and parts of a row, [1, n]; each with its first node."""
    node = 0
    for block in blocks:
        rest = block.ravel()
        if node:
            head, rest = rest[: nodes - node], rest[nodes - node :]
            yield node, head[np.newaxis]
            node = (node + head.size) % nodes
        whole = rest.size // nodes
        if whole:
            yield 0, rest[: whole * nodes].reshape(whole, nodes)
            rest = rest[whole * nodes :]
        if rest.size:
            yield 0, rest[np.newaxis]
            node = rest.size
