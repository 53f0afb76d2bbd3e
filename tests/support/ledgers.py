"""Ledgers made by hand: nodes of which it is said what their GPUs' time went into, hour by hour."""

from collections.abc import Mapping

import numpy as np

from trainguard.ledger.bucket import ROWS, Bucket
from trainguard.ledger.job import Ledger
from trainguard.ledger.node import NodeLedger, empty_amounts

HOUR_S = 3_600.0
CELLS_AN_HOUR = 20

# From hour, to hour, and the share, 0 to 1, of that time that each bucket took; the rest of it is compute.
Part = tuple[float, float, Mapping[Bucket, float]]


def node_time(name: str, *parts: Part, hours: float, gpus: int = 1, start: float = 0.0) -> NodeLedger:
    """Return the ledger of a node whose GPUs worked but in ``parts``; it was paid for from ``start`` on, epoch s."""
    cells = max(round(hours * CELLS_AN_HOUR), 1)
    edges = np.linspace(0.0, hours, cells + 1)
    amounts = empty_amounts(cells)
    seconds = gpus * np.diff(edges) * HOUR_S
    for begin, end, shares in parts:
        held = np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], begin), 0.0, None) / np.diff(edges)
        for bucket, share in shares.items():
            amounts[ROWS[bucket]] += share * held * seconds
    amounts[ROWS[Bucket.COMPUTE]] += seconds - amounts.sum(axis=0)
    lost = [bucket for bucket in Bucket if bucket is not Bucket.COMPUTE]
    lost_s = float(amounts[[ROWS[bucket] for bucket in lost]].sum()) / max(gpus, 1)
    return NodeLedger(name, gpus, start + edges * HOUR_S, amounts, {f"gpu{gpu}": lost_s for gpu in range(gpus)})


def ledger_of(*nodes: NodeLedger, hourly: float | None = None) -> Ledger:
    """Return the ledger of a job of such nodes, each at ``hourly`` an hour."""
    return Ledger(list(nodes), hourly)


def one_node(*parts: Part, hours: float = 10.0, hourly: float | None = None, start: float = 0.0) -> Ledger:
    """Return the ledger of a job of one node with one GPU."""
    return ledger_of(node_time("algo-1", *parts, hours=hours, start=start), hourly=hourly)
