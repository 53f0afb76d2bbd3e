"""The time that was paid for, and its price."""

import datetime
from dataclasses import dataclass

from trainguard.pricing.table import PriceTable, packaged_prices

HOUR_S = 3_600.0


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What ``nodes`` nodes of a job have cost at ``hourly`` each; in ``unpaid_hours`` there were no instances."""

    hourly: float
    hours: float
    nodes: int
    currency: str
    origin: str
    unpaid_hours: float = 0.0

    @property
    def instance_hours(self) -> float:
        return _paid_hours(self.hours, self.unpaid_hours, self.nodes)

    @property
    def spent(self) -> float:
        return self.hourly * self.instance_hours


@dataclass(frozen=True, slots=True)
class Unpriced:
    """Why there is no cost; ``instance_hours`` were paid for, where it is the price alone that is not known."""

    why: str
    instance_hours: float | None = None


@dataclass(frozen=True, slots=True)
class PaidTime:
    """What has to be paid for, between epoch seconds, but ``unpaid_s``; ``prices`` None is the packaged table."""

    instance_type: str | None
    started_at: float | None
    watermark_s: float | None
    nodes: int
    prices: PriceTable | None = None
    unpaid_s: float = 0.0

    @property
    def table(self) -> PriceTable:
        return packaged_prices() if self.prices is None else self.prices

    @property
    def hourly(self) -> float | None:
        """Price of a node an hour; None where it is not known."""
        return None if self.instance_type is None else self.table.hourly(self.instance_type)

    def estimate(self) -> CostEstimate | Unpriced:
        if self.instance_type is None:
            return Unpriced("the job's instance type is not known")
        if self.started_at is None or self.watermark_s is None:
            return Unpriced("it is not known since when the job has been paid for")
        table, hours = self.table, max(self.watermark_s - self.started_at, 0.0) / HOUR_S
        hourly = table.hourly(self.instance_type)
        if hourly is None:
            why = f"no price of {self.instance_type} is known ({table.origin})"
            return Unpriced(why, _paid_hours(hours, self.unpaid_s / HOUR_S, self.nodes))
        day = datetime.datetime.fromtimestamp(self.watermark_s, datetime.UTC).date()
        origin = table.origin_of(self.instance_type, day)
        return CostEstimate(hourly, hours, self.nodes, table.currency, origin, self.unpaid_s / HOUR_S)


def _paid_hours(hours: float, unpaid_hours: float, nodes: int) -> float:
    return max(hours - unpaid_hours, 0.0) * nodes
