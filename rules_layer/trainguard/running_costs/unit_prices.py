"""What AWS asks for a unit of what the stack uses: a dated data file, which another of the same form can replace."""

import math
from functools import cache
from pathlib import Path

import msgspec

from trainguard.errors import PriceTableError

PACKAGED_NAME = "unit_prices.json"


class UnitPrices(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Prices of one unit each, in the table's currency.

    Attributes
    ----------
    event : float
        One S3 event through EventBridge.
    queue_request : float
        One request to a standard SQS queue.
    invocation, compute_gib_s : float
        One Lambda invocation; one GiB held for one second (arm64).
    object_get, object_put, object_gb_month : float
        One S3 GET; one PUT or LIST; one GB stored for a month (Standard).
    write_unit, read_unit : float
        One DynamoDB request unit, on demand.
    transition : float
        One state transition of a Standard workflow.
    message : float
        One message published to SNS.
    log_gb, trace, metric_month, alarm_metric_month, dashboard_month : float
        One GB of log events taken in; one X-Ray trace recorded, where the deployment sends any; a month of one metric,
        of one metric that an alarm reads, of one dashboard, where the deployment has one.
    """

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
    log_gb: float
    trace: float
    metric_month: float
    alarm_metric_month: float
    dashboard_month: float


class FreeTier(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an account has for nothing every month, not only in its first year.

    Attributes
    ----------
    queue_requests, invocations, compute_gib_s, traces, log_gb : float
        Requests to SQS, Lambda invocations and GiB-s, X-Ray traces recorded, GB of log events taken in.
    alarm_metrics, dashboards : float
        Metrics that alarms read, and dashboards.
    """

    queue_requests: float = 0.0
    invocations: float = 0.0
    compute_gib_s: float = 0.0
    traces: float = 0.0
    log_gb: float = 0.0
    alarm_metrics: float = 0.0
    dashboards: float = 0.0


class PriceSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A later source that names the same price: what it is, and its date."""

    date: str
    source: str


class UnitPriceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Unit prices with whose, of when and of which Regions they are.

    ``confirmed`` names for a price a later public source that has the same.
    """

    source: str
    date: str
    currency: str
    regions: tuple[str, ...]
    prices: UnitPrices
    free_a_month: FreeTier = FreeTier()
    confirmed: dict[str, PriceSource] = msgspec.field(default_factory=dict)

    def origin(self, region: str) -> str:
        """Whose prices these are, for example ``AWS public price list, us-east-1, 2025-05-01``."""
        return f"{self.source}, {region}, {self.date}"

    def of_region(self, name: str, region: str) -> UnitPrices:
        """Return the prices that hold in a Region; ``name`` is the table's file.

        Raises
        ------
        PriceTableError
            When the table has none of it.
        """
        if region not in self.regions:
            known = ", ".join(self.regions)
            raise PriceTableError(name, f"it has no prices of {region}, only of {known}; give a file of that Region's")
        return self.prices


def read_unit_prices(name: str, body: bytes) -> UnitPriceTable:
    """Read a table from JSON.

    Raises
    ------
    PriceTableError
        When it is not such a table, or a price is below zero or no number; it names the file and the field.
    """
    try:
        table = msgspec.json.decode(body, type=UnitPriceTable)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise PriceTableError(name, str(fault)) from fault
    for field in ("prices", "free_a_month"):
        for unit, amount in msgspec.structs.asdict(getattr(table, field)).items():
            if not (math.isfinite(amount) and amount >= 0.0):
                raise PriceTableError(name, f"{field}.{unit} is {amount!r}, expected a number of 0 or above")
    return table


@cache
def packaged_unit_prices() -> UnitPriceTable:
    """Return the table that comes with TrainGuard; it is read when it is first asked for."""
    return read_unit_prices(PACKAGED_NAME, Path(__file__).with_name(PACKAGED_NAME).read_bytes())
