"""The price table: a dated data file of one Region, which another file of the same form can replace."""

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from trainguard.errors import PriceTableError

PACKAGED_NAME = "prices.json"


class PriceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """On-demand prices of training instances, in ``currency`` an hour of one instance.

    ``source``, ``date`` and ``region`` say whose prices they are, of when and of where.
    """

    source: str
    date: str
    region: str
    currency: str
    per_hour: Mapping[str, float]

    def hourly(self, instance_type: str) -> float | None:
        """Return the price of an instance type; None for one that the table does not have."""
        return self.per_hour.get(instance_type)

    @property
    def origin(self) -> str:
        """Whose prices these are, for example ``AWS public price list, us-east-1, 2025-05-01``."""
        return f"{self.source}, {self.region}, {self.date}"


def read_prices(name: str, body: bytes) -> PriceTable:
    """Read a price table from JSON.

    Raises
    ------
    PriceTableError
        When it is not such a table, or has a price that is not a positive number; it names the file and the field.
    """
    try:
        table = msgspec.json.decode(body, type=PriceTable)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise PriceTableError(name, str(fault)) from fault
    for instance_type, price in table.per_hour.items():
        if not (math.isfinite(price) and price > 0.0):
            raise PriceTableError(name, f"per_hour.{instance_type} is {price!r}, expected a number above 0")
    return table


@cache
def packaged_prices() -> PriceTable:
    """Return the table that comes with TrainGuard; it is read when it is first asked for."""
    return read_prices(PACKAGED_NAME, Path(__file__).with_name(PACKAGED_NAME).read_bytes())
