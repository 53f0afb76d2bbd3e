"""Measured sizes of the items of NodeState: for costs, and for the table of settings.

`python -m tests.scale.replay 1 1440` prints the state of a node with 8 GPUs and 96 cores that is sampled at 500 ms:
9,517 bytes after 24 hours; a GPU has some 640 bytes.
"""

import math

UNIT_BYTES = 1_024
"""Written by a write unit."""

READ_BYTES = 4_096
"""Read by a read unit, consistently."""

STATE_BYTES, STATE_BYTES_A_GPU = 4_440, 640
_BESIDE_STATE_BYTES = 200

_OWN_BYTES, _OWN_BYTES_A_NODE = 650, 4


def node_bytes(gpus: int) -> int:
    """Return the size of the item of a node's system metrics, after a day."""
    return STATE_BYTES + STATE_BYTES_A_GPU * gpus + _BESIDE_STATE_BYTES


def node_units(gpus: int) -> int:
    return math.ceil(node_bytes(gpus) / UNIT_BYTES)


def own_bytes(nodes: int) -> int:
    return _OWN_BYTES + _OWN_BYTES_A_NODE * nodes


def own_units(nodes: int) -> int:
    return math.ceil(own_bytes(nodes) / UNIT_BYTES)
