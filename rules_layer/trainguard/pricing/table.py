"""The price table: prices with source and date, and accelerators."""

import datetime
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from trainguard.core.errors import PriceTableError

PACKAGED_NAME = "prices.json"
SCHEMA_VERSION: Literal[2] = 2
# A price that is older than the time it is applied to by more than this is called by its date.
RECENT = datetime.timedelta(days=365)


class Accelerators(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Accelerators of a type: ``count`` 0 and ``kind`` None for none, ``cores`` are NeuronCores, None for GPUs."""

    count: int
    kind: Literal["gpu", "trainium"] | None = None
    model: str | None = None
    cores: int | None = None

    @property
    def gpus(self) -> int:
        return self.count if self.kind == "gpu" else 0

    def __str__(self) -> str:
        return f"{self.count} x {self.model or self.kind}" if self.count else "none"


class InstanceRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One instance type; ``per_hour`` is on demand. None stands for anything unknown."""

    per_hour: float | None = None
    source: str | None = None
    date: datetime.date | None = None
    accelerators: Accelerators | None = None

    def is_recent(self, at: datetime.date) -> bool:
        """Whether the price is dated, and at most a year older than ``at``."""
        return self.date is not None and at - self.date <= RECENT


class PriceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """On-demand prices of one Region, in ``currency`` an hour of one instance, also of EC2's types."""

    region: str
    currency: str
    instances: Mapping[str, InstanceRow]
    schema_version: Literal[2] = SCHEMA_VERSION

    def row(self, instance_type: str) -> InstanceRow | None:
        return self.instances.get(instance_type)

    def hourly(self, instance_type: str) -> float | None:
        row = self.row(instance_type)
        return None if row is None else row.per_hour

    def origin_of(self, instance_type: str, at: datetime.date | None = None) -> str:
        """Return source, Region and date of a type's price; one a year older than ``at`` is called by its date."""
        row = self.instances[instance_type]
        if row.date is None:
            return f"{row.source}, {self.region}, undated"
        old = at is not None and not row.is_recent(at)
        return f"{row.source}, {self.region}, {'price of ' if old else ''}{row.date}"

    @property
    def origin(self) -> str:
        """Whose prices these are, or of how many sources, with the first and the last of their dates."""
        priced = [row for row in self.instances.values() if row.per_hour is not None]
        sources = sorted({row.source for row in priced if row.source is not None})
        dates = sorted({row.date for row in priced if row.date is not None})
        who = "no source" if not sources else sources[0] if len(sources) == 1 else f"{len(sources)} sources"
        when = [f"{dates[0]} to {dates[-1]}" if len(dates) > 1 else str(dates[0])] if dates else []
        return ", ".join([who, self.region, *when])


def read_prices(name: str, body: bytes) -> PriceTable:
    """Read a price table from JSON; raises PriceTableError."""
    try:
        table = msgspec.json.decode(body, type=PriceTable)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise PriceTableError(name, str(fault)) from fault
    for instance_type, row in table.instances.items():
        _check(name, f"instances.{instance_type}", row)
    return table


def _check(name: str, field: str, row: InstanceRow) -> None:
    price, of = row.per_hour, row.accelerators
    if price is not None and not (math.isfinite(price) and price > 0.0):
        raise PriceTableError(name, f"{field}.per_hour is {price!r}, expected a number above 0")
    if price is not None and row.source is None:
        raise PriceTableError(name, f"{field}.source is missing, expected whose price per_hour is")
    if of is not None and (of.count < 0 or (of.count == 0) != (of.kind is None)):
        raise PriceTableError(
            name,
            f"{field}.accelerators is {of.count} of kind {of.kind!r}, expected a number above 0 with "
            "a kind, or 0 without",
        )


def write_prices(table: PriceTable) -> bytes:
    """Return a table as JSON, a row a line, as `read_prices` reads it."""
    head = {"schema_version": table.schema_version, "region": table.region, "currency": table.currency}
    lines = [f"  {_json(field)}: {_json(value)}," for field, value in head.items()]
    rows = [f"    {_json(name)}: {_json(row)}" for name, row in table.instances.items()]
    return "\n".join(["{", *lines, '  "instances": {', ",\n".join(rows), "  }", "}", ""]).encode()


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


@cache
def packaged_prices() -> PriceTable:
    """Return the table that comes with TrainGuard; it is read when it is first asked for."""
    return read_prices(PACKAGED_NAME, Path(__file__).with_name(PACKAGED_NAME).read_bytes())
