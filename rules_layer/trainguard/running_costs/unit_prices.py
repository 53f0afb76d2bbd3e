"""Prices of AWS by unit, a dated data file that another of the same form can replace, and the lines of a bill."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from trainguard.core.errors import PriceTableError

PACKAGED_NAME = "unit_prices.json"


class UnitPrices(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Prices of one unit each: requests, GB, a GiB-second of Lambda (arm64), and a month of what stays."""

    event: float
    queue_request: float
    invocation: float
    compute_gib_s: float
    object_get: float
    object_put: float
    object_gb_month: float
    write_unit: float
    read_unit: float
    transition: float
    message: float
    webhook_post: float
    ops_item: float
    log_gb: float
    trace: float
    metric_month: float
    alarm_metric_month: float
    dashboard_month: float
    endpoint_hour: float
    endpoint_gb: float
    key_month: float
    key_request: float
    data_event: float
    canary_job_hour: float


class FreeTier(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an account has for nothing every month, not only in its first year."""

    queue_requests: float = 0.0
    invocations: float = 0.0
    compute_gib_s: float = 0.0
    traces: float = 0.0
    log_gb: float = 0.0
    alarm_metrics: float = 0.0
    dashboards: float = 0.0


class PriceSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    date: str
    source: str


class RegionPrices(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Prices of another Region by unit; what it lacks costs there what it costs in the table's own Regions."""

    date: str
    source: str
    prices: dict[str, float]


class UnitPriceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Unit prices with source, date and Regions; ``confirmed`` names later public sources of the same price."""

    source: str
    date: str
    currency: str
    regions: tuple[str, ...]
    prices: UnitPrices
    free_a_month: FreeTier = FreeTier()
    confirmed: dict[str, PriceSource] = msgspec.field(default_factory=dict)
    elsewhere: dict[str, RegionPrices] = msgspec.field(default_factory=dict)

    def origin(self, region: str) -> str:
        """Whose prices these are, for example ``AWS public price list, us-east-1, 2025-05-01``."""
        found = self.elsewhere.get(region)
        return f"{self.source}, {region}, {self.date if found is None else found.date}"

    def sources(self, region: str) -> dict[str, PriceSource]:
        """Return each unit's source and date in a Region, the newest that is known."""
        own = {unit: PriceSource(date=self.date, source=self.source) for unit in UnitPrices.__struct_fields__}
        if (found := self.elsewhere.get(region)) is None:
            return own | self.confirmed
        there = PriceSource(date=found.date, source=found.source)
        return own | self.confirmed | dict.fromkeys(found.prices, there)

    def of_region(self, name: str, region: str) -> UnitPrices:
        """Return the prices of a Region; raises PriceTableError. ``name`` is the table's file."""
        if region in self.elsewhere:
            return msgspec.structs.replace(self.prices, **self.elsewhere[region].prices)
        if region not in self.regions:
            known = ", ".join((*self.regions, *self.elsewhere))
            raise PriceTableError(name, f"it has no prices of {region}, only of {known}; give a file of that Region's")
        return self.prices


def read_unit_prices(name: str, body: bytes) -> UnitPriceTable:
    """Read a table from JSON; raises PriceTableError, also for a price below zero."""
    try:
        table = msgspec.json.decode(body, type=UnitPriceTable)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise PriceTableError(name, str(fault)) from fault
    fields = {
        "prices": msgspec.structs.asdict(table.prices),
        "free_a_month": msgspec.structs.asdict(table.free_a_month),
    }
    fields |= {f"elsewhere.{region}.prices": found.prices for region, found in table.elsewhere.items()}
    for field, amounts in fields.items():
        for unit, amount in amounts.items():
            if unit not in UnitPrices.__struct_fields__ and field != "free_a_month":
                raise PriceTableError(name, f"{field} has {unit!r}, which is no unit")
            if not (math.isfinite(amount) and amount >= 0.0):
                raise PriceTableError(name, f"{field}.{unit} is {amount!r}, expected a number of 0 or above")
    return table


@cache
def packaged_unit_prices() -> UnitPriceTable:
    return read_unit_prices(PACKAGED_NAME, Path(__file__).with_name(PACKAGED_NAME).read_bytes())


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
        return self.amount * self.price

    @property
    def cost_beyond_free(self) -> float:
        """The line in an account that uses its free tier for nothing else."""
        return max(self.amount - self.free, 0.0) * self.price


def total(lines: Sequence[CostLine]) -> float:
    return math.fsum(line.cost for line in lines)
