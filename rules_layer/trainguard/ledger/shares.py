"""What a kernel trace says of the time of steps: the input that divides what utilization and steps leave open."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepShares:
    """Shares, 0 to 1, of the time of ``steps`` traced steps; together they are 1.

    ``communication`` is that of collective operations which no computation covers, without the waits for slower ranks
    in them, which are ``peers``. In both the GPU counts as busy. In ``data``, ``host`` and ``other`` it is idle.
    """

    compute: float
    communication: float
    peers: float
    data: float
    host: float
    other: float
    steps: int
