"""Lines of a bill."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CostLine:
    """One line of a bill: ``amount`` units of ``what`` at ``price`` each, ``free`` of them for nothing."""

    service: str
    what: str
    amount: float
    price: float
    free: float = 0.0

    @property
    def cost(self) -> float:
        """The line at list price."""
        return self.amount * self.price

    @property
    def cost_beyond_free(self) -> float:
        """The line in an account that uses its free tier for nothing else."""
        return max(self.amount - self.free, 0.0) * self.price


def total(lines: Sequence[CostLine]) -> float:
    return math.fsum(line.cost for line in lines)
